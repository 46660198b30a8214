//! Comparing a table with its indexes and its large values, both ways.

use crate::catalog::Catalog;
use crate::error::{TableError, TableErrorKind};
use crate::index::{Entry, IndexState};
use crate::large::{self, Part, ValueId};
use crate::large_read;
use crate::live_index::LiveIndex;
use crate::range::KeyRange;
use crate::show;
use crate::state::State;
use crate::table::Table;
use crate::table_kind::TableKind;
use crate::walk::Walk;
use firndb_base::sync::Arc;
use firndb_btree::Direction;
use firndb_txn::{Transaction, TxnOptions};
use std::ops::Bound;

/// Most sentences of damage in one report.
const DAMAGE_MAX: usize = 1000;

/// What a check of one table found, in one snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableReport {
    pub rows: u64,
    /// Rows whose values are too long to stand beside their keys.
    pub large_values: u64,
    /// Entries of each index that was checked, by its name. An index being built is not checked.
    pub entries: Vec<(String, u64)>,
    /// Sentences, one for each finding, with the key; at most 1000.
    pub damage: Vec<String>,
    /// Findings in all.
    pub findings: u64,
}

impl TableReport {
    fn find(&mut self, sentence: String) {
        self.findings += 1;
        if self.damage.len() < DAMAGE_MAX {
            self.damage.push(sentence);
        }
    }
}

impl Catalog {
    /// Compares every index of a table with its rows, both ways, in one snapshot, while other
    /// transactions run; reads every large value and searches for parts that belong to no row. The
    /// report says what does not agree; an error means only that the check itself could not
    /// continue. Takes 16 MiB of memory for the names of large values: if a table has more than
    /// fit, the rest is checked in further passes over its rows.
    pub fn check_table(&self, table: &Table) -> Result<TableReport, TableError> {
        self.check_table_within(table, NAMES_MAX)
    }

    /// As [`Catalog::check_table`], with at most `names_max` names of large values in memory: for
    /// tests.
    #[doc(hidden)]
    pub fn check_table_within(&self, table: &Table, names_max: usize) -> Result<TableReport, TableError> {
        let mut txn = self.manager.begin(TxnOptions { read_only: true, ..TxnOptions::default() });
        let state = table.state_for(&txn)?;
        let indexes: Vec<&LiveIndex> =
            state.indexes.iter().filter(|index| index.definition.state == IndexState::Ready).collect();
        let mut report = TableReport::default();
        let mut names = Names::new(names_max);
        check_rows(&mut txn, &state, &indexes, &mut names, &mut report)?;
        loop {
            names.settle(&mut |id| {
                let table = &state.definition.name;
                report.find(format!("two rows of table {table:?} share the large value {id}"));
            });
            check_large_values(&mut txn, &state, &names, &mut report)?;
            if !names.advance() {
                break;
            }
            collect_names(&mut txn, &state, &mut names)?;
        }
        for index in indexes {
            let entries = check_entries(&mut txn, &state, index, &mut report)?;
            report.entries.push((index.definition.spec.name.clone(), entries));
        }
        txn.rollback()?;
        Ok(report)
    }
}

/// Names of large values in memory at a time: 16 MiB of them, 24 MiB while the vector grows for the
/// last time.
const NAMES_MAX: usize = 1 << 20;

/// Names of the large values of rows, from one name up to another: as many of the least ones as
/// there is memory for.
struct Names {
    ids: Vec<ValueId>,
    max: usize,
    /// Names from this one on; `None`: from the first.
    from: Option<ValueId>,
    /// Names before this one; `None`: up to the last.
    below: Option<ValueId>,
    /// Found twice.
    twice: Vec<ValueId>,
}

impl Names {
    fn new(max: usize) -> Names {
        assert!(max >= 2);
        Names { ids: Vec::new(), max, from: None, below: None, twice: Vec::new() }
    }

    /// Whether a name lies between the bounds.
    fn covers(&self, id: ValueId) -> bool {
        self.from.is_none_or(|from| from <= id) && self.below.is_none_or(|below| id < below)
    }

    /// Adds a name, if it lies between the bounds. With no memory left, the upper bound comes down
    /// to the middle.
    fn add(&mut self, id: ValueId) {
        if !self.covers(id) {
            return;
        }
        if self.ids.len() == self.max {
            self.sort();
        }
        if self.ids.len() == self.max {
            let below = self.ids[self.max / 2];
            self.ids.truncate(self.max / 2);
            self.below = Some(below);
            if !self.covers(id) {
                return;
            }
        }
        self.ids.push(id);
    }

    fn sort(&mut self) {
        self.ids.sort_unstable();
        let twice = &mut self.twice;
        self.ids.dedup_by(|later, first| {
            let same = later == first;
            if same && twice.len() < DAMAGE_MAX && twice.last() != Some(later) {
                twice.push(*later);
            }
            same
        });
    }

    /// All names between the bounds are there: reports names that were added twice.
    fn settle(&mut self, report: &mut dyn FnMut(ValueId)) {
        self.sort();
        let mut twice = std::mem::take(&mut self.twice);
        twice.sort_unstable();
        twice.dedup();
        twice.into_iter().filter(|id| self.covers(*id)).for_each(report);
    }

    fn contains(&self, id: ValueId) -> bool {
        self.ids.binary_search(&id).is_ok()
    }

    /// Advances to the names above; false if there are none.
    fn advance(&mut self) -> bool {
        let Some(below) = self.below.take() else { return false };
        self.from = Some(below);
        self.ids.clear();
        true
    }
}

/// Gathers the names of large values between the bounds of `names`.
fn collect_names(txn: &mut Transaction, state: &Arc<State>, names: &mut Names) -> Result<(), TableError> {
    let mut walk = Walk::new(KeyRange::all(), Direction::Forward);
    while walk.advance(txn, &state.tree)? {
        let (key, value) = walk.current();
        // A broken reference was reported with its row.
        if walk.flag()
            && let Ok(reference) = state.reference(key, value)
        {
            names.add(reference.id);
        }
    }
    Ok(())
}

/// Every row decodes and has its entry in every index; every large value is whole. Adds the names
/// of the large values to `names`.
fn check_rows(
    txn: &mut Transaction,
    state: &Arc<State>,
    indexes: &[&LiveIndex],
    names: &mut Names,
    report: &mut TableReport,
) -> Result<(), TableError> {
    let table = &state.definition.name;
    let mut walk = Walk::new(KeyRange::all(), Direction::Forward);
    let (mut values, mut entry, mut found) = (Vec::new(), Entry::default(), Vec::new());
    let mut large = Vec::new();
    while walk.advance(txn, &state.tree)? {
        let (key, mut value) = walk.current();
        report.rows += 1;
        if walk.flag() {
            report.large_values += 1;
            let Ok(reference) = state.reference(key, value) else {
                let row = show::Bytes(key);
                report.find(format!("row {row} of table {table:?} has a broken reference to its value"));
                continue;
            };
            names.add(reference.id);
            match large_read::read(txn, state, reference, &mut large) {
                Ok(true) => {}
                Ok(false) => {
                    report.find(large::not_whole(table, key).message);
                    continue;
                }
                Err(error) if error.is_damage() => {
                    report.find(format!("{}: {}", large::not_whole(table, key).message, error.message));
                    continue;
                }
                Err(error) => return Err(error),
            }
            value = &large;
        }
        if let TableKind::Typed(schema) = state.kind()
            && let Err(error) = schema.decode(key, value, &mut values)
        {
            report.find(format!("row {} of table {table:?} cannot be read: {error}", show::Bytes(key)));
            continue;
        }
        let row = state.source(key, value)?;
        for index in indexes {
            let name = &index.definition.spec.name;
            if let Err(error) = index.entry(&row, &mut entry) {
                report.find(format!("row {} of table {table:?}: {error}", show::Bytes(key)));
            } else if !txn.get(&index.tree, &entry.key, &mut found)? {
                let (row, entry) = (show::Bytes(key), show::Bytes(&entry.key));
                report
                    .find(format!("row {row} of table {table:?} lacks its entry {entry} in index {name:?}"));
            } else if found != entry.value {
                let (row, entry, found) = (show::Bytes(key), show::Bytes(&entry.key), show::Bytes(&found));
                report.find(format!(
                    "entry {entry} of index {name:?} leads to {found} and not to row {row} of table {table:?}"
                ));
            }
        }
    }
    Ok(())
}

/// Every part whose value's name lies between the bounds of `names` belongs to a large value of a
/// row, or to one that waits to be freed.
fn check_large_values(
    txn: &mut Transaction,
    state: &Arc<State>,
    names: &Names,
    report: &mut TableReport,
) -> Result<(), TableError> {
    let Some(tree) = &state.large else { return Ok(()) };
    let table = &state.definition.name;
    let from = |key: &[u8]| KeyRange::new(Bound::Included(key), Bound::Unbounded);
    let ranges = match names.from {
        // The first pass sees whatever else the tree has, too.
        None => vec![KeyRange::all()],
        Some(first) => vec![from(&first.mark_key()), from(&first.page_key(0))],
    };
    // A value that belongs to no row, and was checked.
    let mut known = None;
    for range in ranges {
        let mut walk = Walk::new(range, Direction::Forward);
        while walk.advance(txn, tree)? {
            let key = walk.current().0;
            let part = match Part::decode(key) {
                Ok(part) => part,
                // Reported by the first pass.
                Err(_) if names.from.is_some() => continue,
                Err(error) => {
                    let key = show::Bytes(key);
                    report.find(format!("the tree of large values of table {table:?} has {key}: {error}"));
                    continue;
                }
            };
            let (Part::Freed(id) | Part::Page(id, _) | Part::Chunk(id, _)) = part;
            match part {
                // Another pass checks it.
                _ if !names.covers(id) && names.from.is_none() => {}
                _ if !names.covers(id) => break,
                Part::Freed(id) if names.contains(id) => report
                    .find(format!("the large value {id} of table {table:?} is a row's and is to be freed")),
                Part::Freed(_) => {}
                _ if names.contains(id) || known == Some(id) => {}
                Part::Page(..) | Part::Chunk(..) => {
                    if is_orphan(txn, tree, id, key)? {
                        report.find(format!("the large value {id} of table {table:?} is no row's"));
                    }
                    known = Some(id);
                }
            }
        }
    }
    Ok(())
}

/// Whether there is a part of a value that belongs to no row and is not marked to be freed. The
/// mark is read first: what was marked before this snapshot may be freed meanwhile, the parts
/// before the mark; what is marked after it stays until the snapshot is released.
fn is_orphan(
    txn: &mut Transaction,
    tree: &firndb_btree::Tree,
    id: ValueId,
    part: &[u8],
) -> Result<bool, TableError> {
    let mut found = Vec::new();
    let marked = txn.get(tree, &id.mark_key(), &mut found)?;
    Ok(!marked && txn.get(tree, part, &mut found)?)
}

/// Every entry of an index is that of a row. Returns how many there are.
fn check_entries(
    txn: &mut Transaction,
    state: &Arc<State>,
    index: &LiveIndex,
    report: &mut TableReport,
) -> Result<u64, TableError> {
    let (table, spec) = (&state.definition.name, &index.definition.spec);
    let mut walk = Walk::new(KeyRange::all(), Direction::Forward);
    let (mut row, mut entry, mut entries) = (Vec::new(), Entry::default(), 0);
    while walk.advance(txn, &index.tree)? {
        let (key, value) = walk.current();
        entries += 1;
        let shown = show::Bytes(key);
        let primary_key = match spec.primary_key(state.kind(), key, value) {
            Ok(primary_key) => primary_key,
            Err(error) => {
                report.find(format!("entry {shown} of index {:?} cannot be read: {error}", spec.name));
                continue;
            }
        };
        let found = match state.get(txn, primary_key, &mut row) {
            Ok(found) => found,
            // Its broken value was reported with the rows.
            Err(error) if error.kind == TableErrorKind::Damaged => continue,
            Err(error) => return Err(error),
        };
        if !found {
            let gone = show::Bytes(primary_key);
            report.find(format!(
                "entry {shown} of index {:?} leads to {gone}, no row of table {table:?}",
                spec.name
            ));
            continue;
        }
        // A row that cannot be read was reported with the rows.
        let Ok(source) = state.source(primary_key, &row) else { continue };
        let same = index.entry(&source, &mut entry).is_ok() && entry.key == key && entry.value == value;
        if !same {
            let row = show::Bytes(primary_key);
            report.find(format!(
                "entry {shown} of index {:?} is not that of row {row} of table {table:?}",
                spec.name
            ));
        }
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_base::TxnId;

    #[test]
    fn no_more_names_are_held_than_there_is_memory_for() {
        const COUNT: u32 = 100;
        for max in [2, 3, 10, 99, 100, 101] {
            let mut names = Names::new(max);
            let mut settled = Vec::new();
            loop {
                for n in 0..COUNT {
                    names.add(ValueId { txn: TxnId(1), sequence: n * 37 % COUNT });
                    assert!(names.ids.len() <= max, "{} names of at most {max}", names.ids.len());
                }
                names.settle(&mut |id| panic!("{id} was added once in this pass"));
                settled.extend(names.ids.iter().map(|id| id.sequence));
                if !names.advance() {
                    break;
                }
            }
            assert!(settled.into_iter().eq(0..COUNT), "each name in one pass, with at most {max} in memory");
        }
    }
}
