//! The ways to read one table, and what each costs.

use super::bounds::KeyBounds;
use super::costs::{Costs, Pages, Reading};
use super::facts::{Knowledge, PathFacts, TableFacts};
use crate::fetch::reads_of;
use crate::predicate::Predicate;
use crate::sort::SortColumn;

/// How a table is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// Its rows in the order of the primary key.
    TableScan,
    /// Its rows in the order of an index.
    IndexScan,
    /// Rows found by an index, and read in the order of their places.
    IndexFetch,
    /// The same, if the index has no more entries than those up to which that is cheaper than a
    /// scan of the table; else such a scan. Entries are counted before rows are read.
    AdaptiveFetch,
    /// Entries of an index, and no rows.
    IndexOnly,
}

/// Entries of an index whose rows a scan of it has read ahead together.
const ENTRIES_OF_BATCH: f64 = 256.0;

/// How much dearer a plan is taken to be for what it costs if there is more than is expected.
const RISK: f64 = 1.1;

/// One way to read a table, with what it is expected to do.
#[derive(Clone, Debug)]
pub struct Access {
    pub kind: AccessKind,
    /// Number of the path: 0 is the primary key.
    pub path: usize,
    pub bounds: KeyBounds,
    /// Of an adaptive fetch.
    pub or_scan: Option<OrScan>,
    /// Against the order of the path.
    pub is_backward: bool,
    /// In the order that was asked for.
    pub is_ordered: bool,
    /// Rows that it returns.
    pub rows: f64,
    pub pages: Pages,
    /// Microseconds until the first row.
    pub first_us: f64,
    /// Microseconds in all.
    pub us: f64,
}

impl Access {
    /// Into how many parts memory for rows is divided on its account.
    pub(super) fn shares(&self) -> usize {
        let is_fetch = matches!(self.kind, AccessKind::IndexFetch | AccessKind::AdaptiveFetch);
        usize::from(is_fetch && self.or_scan.as_ref().is_none_or(|or_scan| or_scan.has_share))
    }
}

/// When an adaptive fetch is a scan, and of what.
#[derive(Clone, Debug)]
pub struct OrScan {
    /// If the index has more entries than this.
    pub entries: u64,
    /// Of the table.
    pub bounds: KeyBounds,
    /// More entries are expected.
    pub is_expected: bool,
    /// It has a share of memory: not beside joins, if it is likely a scan.
    pub has_share: bool,
}

/// A table as a query uses it.
pub(super) struct Use<'a> {
    pub(super) number: usize,
    pub(super) facts: &'a TableFacts,
    /// On its columns.
    pub(super) conditions: &'a [Predicate],
    /// Columns that are returned or compared elsewhere.
    pub(super) needed: &'a [usize],
    /// The order wanted of its rows.
    pub(super) order: &'a [SortColumn],
    /// Into how many parts memory for rows is divided.
    pub(super) shares: usize,
    /// No other table is joined to it: it takes memory from nothing else.
    pub(super) is_alone: bool,
}

impl Use<'_> {
    /// What each path's range is, and how many rows it holds.
    pub(super) fn ranges(&self, knowledge: &dyn Knowledge) -> Vec<(KeyBounds, f64)> {
        let of_path = |(path, facts): (usize, &PathFacts)| {
            let bounds = KeyBounds::new(self.conditions, &facts.columns);
            let rows = match bounds.is_bounded() {
                true => knowledge.range_rows(self.number, path, &bounds).unwrap_or_else(|| {
                    let taken = bounds.conditions.iter().map(|number| &self.conditions[*number]);
                    self.facts.rows * taken.map(super::facts::guess).product::<f64>()
                }),
                false => self.facts.rows,
            };
            let is_one = facts.is_unique && bounds.equal_columns() == facts.columns.len();
            (bounds, if is_one { rows.min(1.0) } else { rows.min(self.facts.rows) })
        };
        self.facts.paths.iter().enumerate().map(of_path).collect()
    }

    /// Every way to read it; `ranges` are those of [`Use::ranges`].
    pub(super) fn accesses(
        &self,
        ranges: &[(KeyBounds, f64)],
        costs: &Costs,
        knowledge: &dyn Knowledge,
    ) -> Vec<Access> {
        let rows = self.facts.rows_where(self.number, self.conditions, ranges, knowledge);
        let (mut all, mut adaptive) = (Vec::<Access>::new(), Vec::<Access>::new());
        for (path, (bounds, entries)) in ranges.iter().enumerate() {
            let entries = *entries;
            let facts = &self.facts.paths[path];
            let order = direction(&facts.columns, path == 0, bounds, self.order);
            let access = |kind| Access {
                kind,
                path,
                bounds: bounds.clone(),
                or_scan: None,
                is_backward: order == Some(true),
                is_ordered: order.is_some(),
                rows,
                pages: Pages::default(),
                first_us: 0.0,
                us: 0.0,
            };
            if path == 0 {
                all.push(self.table_scan(access(AccessKind::TableScan), entries, costs));
                continue;
            }
            if bounds.is_bounded() {
                let scan = all[0].clone();
                adaptive.push(self.adaptive_fetch(access(AccessKind::AdaptiveFetch), entries, &scan, costs));
            }
            // Beside an adaptive fetch, which an estimate that is too low does not harm.
            let risk = if bounds.is_bounded() { RISK } else { 1.0 };
            let at_risk = |access: Access| Access { us: access.us * risk, ..access };
            all.push(at_risk(self.index_scan(access(AccessKind::IndexScan), entries, costs)));
            all.push(at_risk(self.index_fetch(access(AccessKind::IndexFetch), entries, costs)));
            let covers = |column: usize| facts.covers[column];
            let mut is_covered = self.needed.iter().all(|column| covers(*column));
            for condition in self.conditions {
                condition.columns(&mut |column| is_covered &= covers(column));
            }
            if is_covered {
                all.push(self.index_only(access(AccessKind::IndexOnly), entries, costs));
            }
        }
        // Of two that cost the same the first is taken: one that cannot go far wrong.
        adaptive.sort_by(|a, b| a.us.total_cmp(&b.us));
        adaptive.extend(all);
        adaptive
    }

    /// By the entries that are expected it is a fetch, or else a scan behind the entries that it
    /// takes to find out. Few are counted then, which cost little beside the scan and nothing here:
    /// they insure against an estimate that is far too high.
    fn adaptive_fetch(&self, access: Access, entries: f64, scan: &Access, costs: &Costs) -> Access {
        /// What is little.
        const INSURANCE: f64 = 0.03;
        let fetch = |entries: f64| self.index_fetch(access.clone(), entries, costs);
        // The least number of entries at which a scan is cheaper, by halves.
        let (mut low, mut high) = (0.0, self.facts.rows.max(1.0));
        while high - low > 0.5 {
            let middle = f64::midpoint(low, high);
            if fetch(middle).us < scan.us { low = middle } else { high = middle }
        }
        let is_expected = entries > high;
        let or_scan = |entries: f64| {
            let (entries, has_share) = (entries as u64, self.is_alone || !is_expected);
            Some(OrScan { entries, bounds: scan.bounds.clone(), is_expected, has_share })
        };
        if !is_expected {
            // Those that are counted and not listed are read twice.
            let behind = (entries - self.list(costs)).max(0.0);
            let again = if behind > 0.0 { self.entries(access.path, behind, costs).1 } else { 0.0 };
            let found = fetch(entries);
            let (us, first_us) = (found.us + again, found.first_us + again);
            return Access { or_scan: or_scan(high), us, first_us, ..found };
        }
        let all = self.entries(access.path, high, costs).1;
        let counted = high * (INSURANCE * scan.us / all).min(1.0);
        let (read, first_us) = self.entries(access.path, counted, costs);
        let us = scan.us;
        let (is_ordered, is_backward) = (self.order.is_empty(), false);
        let (pages, or_scan) = (scan.pages.plus(read), or_scan(counted));
        Access { or_scan, pages, us, first_us, is_ordered, is_backward, ..access }
    }

    fn table_scan(&self, access: Access, rows: f64, costs: &Costs) -> Access {
        let leaves = self.facts.leaves_of(0, rows).max(1.0);
        let pages = costs.by_tier(leaves, self.facts.residency);
        let us = costs.pages_us(pages, Reading::Scan, self.facts.tree())
            + costs.rows_us(rows)
            + costs.returned_us(access.rows);
        Access { pages, us, first_us: 0.0, ..access }
    }

    /// The index's own pages for this many entries, and the time to read and step over them.
    fn entries(&self, path: usize, entries: f64, costs: &Costs) -> (Pages, f64) {
        let facts = &self.facts.paths[path];
        let leaves = (facts.leaves * entries / self.facts.rows.max(1.0)).clamp(1.0, facts.leaves.max(1.0));
        let pages = costs.by_tier(leaves, facts.residency);
        (pages, costs.pages_us(pages, Reading::Scan, facts.tree()) + costs.entries_us(entries))
    }

    fn index_only(&self, access: Access, entries: f64, costs: &Costs) -> Access {
        let (pages, us) = self.entries(access.path, entries, costs);
        let us = us + costs.rows_us(entries) + costs.returned_us(access.rows);
        Access { pages, us, first_us: 0.0, ..access }
    }

    /// Entries of about a leaf at a time: a leaf of the table may be read again for the next.
    fn index_scan(&self, access: Access, entries: f64, costs: &Costs) -> Access {
        let (own, own_us) = self.entries(access.path, entries, costs);
        let together = entries.clamp(1.0, 100.0);
        let read = entries / together * self.facts.leaves_of(access.path, together);
        let leaves = costs.read_again(self.facts.leaves_of(access.path, entries), read);
        let pages = costs.by_tier(leaves, self.facts.residency);
        // The rows of one leaf of entries come while those before are returned; of a batch, no more
        // than are missing.
        let missing = (pages.cache + pages.store) / leaves.max(f64::MIN_POSITIVE);
        let of_batch = self.facts.leaves_of(access.path, entries.min(ENTRIES_OF_BATCH)) * missing;
        let depth = (self.facts.leaves_of(access.path, together) / 4.0).min(of_batch.max(1.0));
        let us = own_us
            + costs.pages_us(pages, Reading::Anywhere(depth), self.facts.tree())
            + costs.lookups_us(entries)
            + costs.rows_us(entries)
            + costs.returned_us(access.rows);
        Access { pages: own.plus(pages), us, first_us: 0.0, ..access }
    }

    /// The rows of a list of entries; each leaf once for as many as memory holds. Collecting the
    /// list comes first.
    fn index_fetch(&self, access: Access, entries: f64, costs: &Costs) -> Access {
        let (own, own_us) = self.entries(access.path, entries, costs);
        let (pages, us) = self.rows_by_keys(access.path, entries, costs);
        let first_us = own_us + costs.keys_sorted_us(entries);
        let us = first_us + us + costs.returned_us(access.rows);
        let own = own.plus(pages);
        Access { pages: own, us, first_us, is_ordered: self.order.is_empty(), is_backward: false, ..access }
    }

    /// Keys that a list holds.
    fn list(&self, costs: &Costs) -> f64 {
        /// Bytes of a key in a list, with what it takes besides, by its usual length.
        const KEY_BYTES: f64 = 48.0;
        (costs.share_bytes(self.shares) / 2.0 / KEY_BYTES).max(1.0)
    }

    /// Pages and time to read the rows of this many entries of a path by sorted keys.
    pub(super) fn rows_by_keys(&self, path: usize, entries: f64, costs: &Costs) -> (Pages, f64) {
        self.rows_by_lists(path, entries, (entries / self.list(costs)).ceil().max(1.0), costs)
    }

    /// The same, of entries in this many lists.
    pub(super) fn rows_by_lists(&self, path: usize, entries: f64, lists: f64, costs: &Costs) -> (Pages, f64) {
        let visited = lists * self.facts.leaves_of(path, entries / lists);
        let leaves = costs.read_again(self.facts.leaves_of(path, entries.min(self.facts.rows)), visited);
        let pages = costs.by_tier(leaves, self.facts.residency);
        let list = visited / lists;
        let reads = reads_of(entries, costs.fetched_together(costs.share_bytes(self.shares))).max(lists);
        let reading = Reading::Ascending { list, reads };
        let read = costs.pages_us(pages, reading, self.facts.tree());
        (pages, read + costs.lookups_us(entries) + costs.rows_us(entries))
    }
}

/// Whether a path returns rows in an order, and then whether against its own.
fn direction(
    path: &[firndb_table::KeyColumn],
    is_primary: bool,
    bounds: &KeyBounds,
    order: &[SortColumn],
) -> Option<bool> {
    // Columns of one value are in any order.
    let single: Vec<usize> = path[..bounds.equal_columns()].iter().map(|part| part.column).collect();
    let mut wanted = order.iter().filter(|part| !single.contains(&part.column));
    let mut backward = None;
    for part in &path[bounds.equal_columns()..] {
        let Some(by) = wanted.next() else { return Some(backward.unwrap_or(false)) };
        let against = by.descending != part.descending;
        if by.column != part.column || *backward.get_or_insert(against) != against {
            return None;
        }
    }
    // No two rows have one primary key.
    (is_primary || wanted.next().is_none()).then_some(backward.unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predicate::Comparison;
    use firndb_table::KeyColumn;

    #[test]
    fn a_path_returns_an_order_forward_or_backward_or_not() {
        let down = |column| SortColumn { column, descending: true };
        let up = |column| SortColumn { column, descending: false };
        let path = [KeyColumn::ascending(1), KeyColumn { column: 2, descending: true }];
        let one = [Predicate::Compare(1, Comparison::Equal, 5i64.into())];
        /// Conditions, the order wanted, whether the path is the primary key; and what is expected.
        type Case<'a> = (&'a [Predicate], &'a [SortColumn], bool, Option<bool>);
        let cases: [Case<'_>; 12] = [
            (&[], &[], false, Some(false)),
            (&[], &[up(1)], false, Some(false)),
            (&[], &[down(1)], false, Some(true)),
            (&[], &[up(1), down(2)], false, Some(false)),
            (&[], &[down(1), up(2)], false, Some(true)),
            (&[], &[up(1), up(2)], false, None),
            (&[], &[up(2)], false, None),
            (&[], &[up(1), down(2), up(0)], false, None),
            (&[], &[up(1), down(2), up(0)], true, Some(false)),
            (&one, &[up(2)], false, Some(true)),
            (&one, &[down(2), down(1)], false, Some(false)),
            (&one, &[up(0)], false, None),
        ];
        for (conditions, order, is_primary, expected) in cases {
            let bounds = KeyBounds::new(conditions, &path);
            assert_eq!(direction(&path, is_primary, &bounds, order), expected, "{conditions:?} {order:?}");
        }
    }
}
