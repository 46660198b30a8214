//! Comparing a table with its indexes and its large values, both ways.

use crate::catalog::Catalog;
use crate::cursor::Walk;
use crate::definition::TableKind;
use crate::index::{Entry, IndexState};
use crate::large::{self, Part, ValueId};
use crate::range::KeyRange;
use crate::show;
use crate::state::{LiveIndex, State};
use crate::{Table, TableError, TableErrorKind};
use firn_base::sync::Arc;
use firn_btree::Direction;
use firn_txn::{Transaction, TxnOptions};

/// Most sentences of damage in one report.
const DAMAGE_MAX: usize = 1000;

/// What a check of one table found, in one snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableReport {
    /// Rows.
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
    /// Compares every index of a table with its rows, both ways, in one snapshot, while others go on; reads
    /// every large value and looks for chunks that are no row's. The report says what does not agree; an
    /// error is only that the check itself could not go on. Takes 16 bytes of memory a large value.
    pub fn check_table(&self, table: &Table) -> Result<TableReport, TableError> {
        let mut txn = self.manager.begin(TxnOptions { read_only: true, ..TxnOptions::default() });
        let state = table.state_for(&txn)?;
        let indexes: Vec<&LiveIndex> =
            state.indexes.iter().filter(|index| index.definition.state == IndexState::Ready).collect();
        let mut report = TableReport::default();
        let mut values = check_rows(&mut txn, &state, &indexes, &mut report)?;
        check_large_values(&mut txn, &state, &mut values, &mut report)?;
        for index in indexes {
            let entries = check_entries(&mut txn, &state, index, &mut report)?;
            report.entries.push((index.definition.spec.name.clone(), entries));
        }
        txn.rollback()?;
        Ok(report)
    }
}

/// Every row decodes and has its entry in every index; every large value is whole. Answers the names of the
/// large values.
fn check_rows(
    txn: &mut Transaction,
    state: &Arc<State>,
    indexes: &[&LiveIndex],
    report: &mut TableReport,
) -> Result<Vec<ValueId>, TableError> {
    let table = &state.definition.name;
    let mut walk = Walk::new(KeyRange::all(), Direction::Forward);
    let (mut values, mut entry, mut found) = (Vec::new(), Entry::default(), Vec::new());
    let (mut names, mut large) = (Vec::new(), Vec::new());
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
            names.push(reference.id);
            if !large::read(state.large_tree()?, reference, &mut large)? {
                report.find(large::not_whole(table, key).message);
                continue;
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
    Ok(names)
}

/// Every chunk belongs to a large value of a row (whose names are given), or to one that waits to be freed.
/// The marks are read before the chunks: what was marked before this snapshot may be freed meanwhile, what is
/// marked after it stays until the snapshot is gone.
fn check_large_values(
    txn: &mut Transaction,
    state: &Arc<State>,
    names: &mut Vec<ValueId>,
    report: &mut TableReport,
) -> Result<(), TableError> {
    let Some(tree) = &state.large else { return Ok(()) };
    let table = &state.definition.name;
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        report.find(format!("two rows of table {table:?} share the large value {}", twice[0]));
    }
    let rows = names.len();
    let mut freed = large::freed(txn, tree, None, usize::MAX)?;
    for id in &freed {
        if names[..rows].binary_search(id).is_ok() {
            report.find(format!("the large value {id} of table {table:?} is a row's and is to be freed"));
        }
    }
    names.append(&mut freed);
    names.sort_unstable();
    let mut walk = Walk::new(KeyRange::all(), Direction::Forward);
    let mut orphan = None;
    while walk.advance(txn, tree)? {
        match Part::decode(walk.current().0) {
            Ok(Part::Freed(_)) => {}
            Ok(Part::Chunk(id, _)) if names.binary_search(&id).is_ok() || orphan == Some(id) => {}
            Ok(Part::Chunk(id, _)) => {
                orphan = Some(id);
                report.find(format!("the large value {id} of table {table:?} is no row's"));
            }
            Err(error) => report.find(format!(
                "the tree of large values of table {table:?} has {}: {error}",
                show::Bytes(walk.current().0)
            )),
        }
    }
    Ok(())
}

/// Every entry of an index is that of a row. Answers how many there are.
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
