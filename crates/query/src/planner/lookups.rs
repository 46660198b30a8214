//! Joins by lookups, and from how many left rows on a hash join is cheaper than they are.

use super::access::Access;
use super::costs::{Pages, Reading};
use super::joins::{KEPT_BYTES, PAIR_BYTES, Step, distinct_of, met_in_parts};
use super::request::{Choice, JoinMethod, Right};
use super::spills::{Side, Spill};
use crate::fetch::reads_of;

/// When lookups become a hash join of the left rows that are left, and of what.
#[derive(Clone, Debug)]
pub struct OrHash {
    /// If there are more left rows than this.
    pub rows: u64,
    /// They are counted before any is looked up.
    pub counts_ahead: bool,
    /// How the table is read then.
    pub access: Access,
    /// Left rows are the build side.
    pub builds_left: bool,
    /// More left rows are expected.
    pub is_expected: bool,
}

/// Most left rows for which it is asked whether a hash join is cheaper.
const ROWS_MAX: f64 = 1e9;

/// How much cheaper it is taken to be than a hash join that does the same, for what it saves if
/// there are few left rows.
const INSURED: f64 = 0.95;

/// The part of the time of lookups that counting their rows ahead may take.
const COUNTING: f64 = 0.1;

/// A hash join instead of lookups.
struct ByHash<'a> {
    step: &'a Step<'a>,
    access: &'a Access,
    builds_left: bool,
    share: f64,
}

impl<'a> ByHash<'a> {
    fn new(step: &'a Step<'a>, access: &'a Access) -> ByHash<'a> {
        let share = step.planner.costs.share_bytes(step.left.node.shares() + 1 + access.shares());
        // The build side is the table if all of it fits in memory, however many left rows there are
        // and whatever is thought of its conditions. Else the left rows may fit; of an outer join,
        // they must be the probe side.
        let facts = &step.planner.request.tables[step.table];
        let whole = Side { rows: facts.rows, bytes: facts.rows * facts.row_bytes };
        let builds_left = !step.condition.is_outer && !whole.is_hashed_in(share);
        ByHash { step, access, builds_left, share }
    }

    /// Whether it is cheaper than lookups by a path, of this many left rows.
    fn is_cheaper(&self, path: usize, rows: f64) -> bool {
        let (us, spill) = self.step.hash(self.access, rows, self.builds_left, self.share);
        us + spill.us < self.step.lookups(path, rows, self.share).1
    }
}

impl Step<'_> {
    pub(super) fn index_nested_loops(&self) -> Vec<Choice> {
        let (request, costs) = (self.planner.request, self.planner.costs);
        if !request.hints.allow_join(self.table, JoinMethod::IndexNestedLoops) {
            return Vec::new();
        }
        let can = |path: &usize| self.can_look_up(*path) && request.hints.allow_lookups(self.table, *path);
        let mut all = Vec::new();
        for path in (0..request.tables[self.table].paths.len()).filter(can) {
            let or_hash = self.or_hash(path);
            let shares = self.left.node.shares() + 1 + or_hash.as_ref().map_or(0, |it| it.access.shares());
            let share = costs.share_bytes(shares);
            let (pages, us, spill) = match &or_hash {
                Some(OrHash { access, builds_left, is_expected: true, .. }) => {
                    let (us, spill) = self.hash(access, self.left.rows, *builds_left, share);
                    let spill = Spill { us: spill.us * INSURED, ..spill };
                    (access.pages, us * INSURED, spill)
                }
                _ => {
                    let (pages, us) = self.lookups(path, self.left.rows, share);
                    let waits = or_hash.as_ref().is_some_and(|or_hash| or_hash.counts_ahead);
                    (pages, us, if waits { self.counting(self.left.rows, share) } else { Spill::default() })
                }
            };
            all.push(self.choice(Right::IndexNestedLoops(path, or_hash.map(Box::new)), pages, us, spill));
        }
        all
    }

    /// Whether rows can be looked up by keys that a path begins with: by a part of an index, or the
    /// whole primary key. Keys that are left are compared then.
    fn can_look_up(&self, path: usize) -> bool {
        let found = self.keys_of(path);
        found > 0 && (path > 0 || found == self.planner.request.tables[self.table].paths[path].columns.len())
    }

    /// How many of the join's keys a path begins with.
    fn keys_of(&self, path: usize) -> usize {
        let first = self.planner.request.first_column(self.table);
        let is_key = |column: usize| self.condition.keys.iter().any(|(_, key)| *key == first + column);
        let columns = &self.planner.request.tables[self.table].paths[path].columns;
        columns.iter().take_while(|part| is_key(part.column)).count()
    }

    /// Left rows of a block, which are looked up together.
    fn block_rows(&self, share: f64) -> f64 {
        (share / 4.0 / (self.left_bytes() + KEPT_BYTES)).max(1.0)
    }

    /// What it costs that left rows wait until all are counted.
    fn counting(&self, left: f64, share: f64) -> Spill {
        if left <= self.block_rows(share) {
            return Spill::default();
        }
        self.planner.costs.run_spill(Side { rows: left, bytes: left * self.left_bytes() }, share)
    }

    /// Pages and time to look up the matches of this many left rows.
    fn lookups(&self, path: usize, probes: f64, share: f64) -> (Pages, f64) {
        let (request, costs) = (self.planner.request, self.planner.costs);
        let facts = &request.tables[self.table];
        // The keys lie within the range that conditions leave of the path. If there are more left
        // rows than expected, or fewer, so are keys in it.
        let (bounds, entries) = &self.planner.tables[self.table].ranges[path];
        let misjudged = if bounds.is_bounded() { probes / self.left.rows.max(1.0) } else { 1.0 };
        let within = (entries * misjudged / facts.rows.max(1.0)).min(1.0);
        let tree = &facts.paths[path];
        let blocks = (probes / self.block_rows(share)).ceil().max(1.0);
        // Of the left rows of a block those with one key are looked up together.
        let keys = met_in_parts(self.left_values * within, probes, blocks);
        let entries = keys * self.fanout;
        let touched = |leaves: f64| {
            let leaves = (leaves * within).max(1.0);
            let each = distinct_of(leaves, keys / blocks);
            costs.read_again(distinct_of(leaves, keys), blocks * each)
        };
        let (pages, us) = if path == 0 {
            let leaves = touched(facts.leaves);
            let pages = costs.by_tier(leaves, facts.residency);
            let list = distinct_of(facts.leaves * within, keys / blocks);
            let reading =
                Reading::Ascending { list, reads: reads_of(keys, costs.fetched_together(share)).max(blocks) };
            let us = costs.pages_us(pages, reading, facts.tree());
            (pages, us + costs.lookups_us(keys) + costs.rows_us(keys))
        } else {
            let own = costs.by_tier(touched(tree.leaves), tree.residency);
            let list = distinct_of(tree.leaves * within, keys / blocks);
            let own_us = costs.pages_us(own, Reading::Ascending { list, reads: own.total() }, tree.tree());
            let lists = (entries * PAIR_BYTES / (share / 8.0)).ceil().max(blocks);
            let (rows, rows_us) = self.planner.use_of(self.table).rows_by_lists(path, entries, lists, costs);
            (own.plus(rows), own_us + rows_us + costs.probes_us(keys) + costs.entries_us(entries))
        };
        let sorted = costs.sorted_us(probes) + costs.keys_sorted_us(probes * self.fanout.max(1.0));
        (pages, us + sorted)
    }

    /// When lookups become a hash join; `None`: they do not, since a hint asks for lookups, since
    /// its rows might not fit in memory and there is no spill device, or since it is never cheaper.
    fn or_hash(&self, path: usize) -> Option<OrHash> {
        let (request, costs) = (self.planner.request, self.planner.costs);
        let is_forced = request.hints.joins.iter().any(|hint| hint.0 == self.table);
        if is_forced || costs.spill.is_none() {
            return None;
        }
        let accesses = &self.planner.tables[self.table].accesses;
        let expected = ByHash::new(self, accesses.first()?);
        let is_expected = expected.is_cheaper(path, self.left.rows);
        // If there are more left rows than expected, a range of their keys has more rows, too.
        let is_wider = |access: &&Access| access.path > 0 && self.keys_of(access.path) > 0;
        let by_hash = match accesses.iter().find(|access| !is_wider(access)) {
            Some(access) if !is_expected => ByHash::new(self, access),
            _ => expected,
        };
        let ByHash { access, builds_left, share, .. } = by_hash;
        let is_cheaper = |rows: f64| by_hash.is_cheaper(path, rows);
        let (mut low, mut high) = match is_expected {
            true => (0.0, self.left.rows),
            false => (self.left.rows, 4.0 * self.left.rows.max(1.0)),
        };
        while !is_cheaper(high) {
            (low, high) = (high, 4.0 * high);
            if high > ROWS_MAX {
                return None;
            }
        }
        while high > 1.1 * low + 0.5 {
            let middle = f64::midpoint(low, high);
            if is_cheaper(middle) { high = middle } else { low = middle }
        }
        // A hash join collects its build side in any case. Other left rows would be read twice, if
        // memory does not hold them.
        let most = match is_expected && !(builds_left && request.limit.is_none()) {
            true => low.min(self.block_rows(share) / 2.0),
            false => low,
        };
        // The first rows of a query with a limit should come soon.
        let counts_ahead = request.limit.is_none()
            && (is_expected || self.counting(most, share).us < COUNTING * self.lookups(path, most, share).1);
        let rows = most.ceil() as u64;
        Some(OrHash { rows, counts_ahead, access: access.clone(), builds_left, is_expected })
    }
}
