//! Definitions, checkpoints and background work of a session.

use super::Session;
use crate::support::model::{Rows, State};
use firndb::{Database, Error, ErrorKind, IndexSpec, TableSpec};

impl Session {
    pub(super) fn define(
        &mut self,
        what: &str,
        change: impl FnOnce(&Database) -> Result<(), Error>,
        model: impl FnOnce(&mut State),
    ) {
        let Some(db) = self.db.clone() else { return };
        let mut state = (**self.history.newest()).clone();
        model(&mut state);
        let number = self.history.attempt(state);
        self.mark_attempt(number);
        let outcome = change(&db);
        self.settle_commit(what, number, outcome);
    }

    pub(super) fn has_table(&self, name: &str) -> bool {
        self.history.newest().tables.contains_key(name)
    }

    pub fn create_table(&mut self, name: &str, indexes: &[IndexSpec]) {
        if self.has_table(name) {
            return;
        }
        let spec = indexes.iter().cloned().fold(TableSpec::raw(), TableSpec::with_index);
        self.define(
            "creating a table",
            |db| db.create_table_with(name, spec).map(|_| ()),
            |state| {
                let table = state.tables.entry(name.to_owned()).or_default();
                table.indexes = indexes.iter().map(|index| index.name.clone()).collect();
            },
        );
    }
    /// A table with these rows, created and filled by one call.
    pub fn load_table(&mut self, name: &str, indexes: &[IndexSpec], rows: &Rows) {
        if self.has_table(name) {
            return;
        }
        let spec = indexes.iter().cloned().fold(TableSpec::raw(), TableSpec::with_index);
        let given = rows.iter().map(|(key, value)| Ok((key.clone(), value.clone())));
        self.define(
            "loading a table",
            |db| db.load_table(name, spec, given).map(|_| ()),
            |state| {
                let table = state.tables.entry(name.to_owned()).or_default();
                table.rows = rows.clone();
                table.indexes = indexes.iter().map(|index| index.name.clone()).collect();
            },
        );
    }
    pub fn drop_table(&mut self, name: &str) {
        if self.has_table(name) {
            let change = |db: &Database| db.drop_table(name);
            self.define("dropping a table", change, |state| {
                state.tables.remove(name);
            });
        }
    }
    pub fn rename_table(&mut self, from: &str, to: &str) {
        if self.has_table(from) && !self.has_table(to) {
            let change = |db: &Database| db.rename_table(from, to);
            self.define("renaming a table", change, |state| {
                let table = state.tables.remove(from).expect("it was there");
                state.tables.insert(to.to_owned(), table);
            });
        }
    }
    pub fn create_index(&mut self, table: &str, index: IndexSpec) {
        if self.history.newest().tables.get(table).is_some_and(|t| !t.indexes.contains(&index.name)) {
            let name = index.name.clone();
            let change = |db: &Database| db.create_index(&db.table(table)?, index);
            self.define("creating an index", change, |state| {
                state.tables.get_mut(table).expect("it was there").indexes.insert(name);
            });
        }
    }
    /// Statistics of a table are kept.
    pub fn analyze(&mut self, table: &str) {
        if self.has_table(table) {
            let change = |db: &Database| db.analyze(&db.table(table)?).map(drop);
            self.define("analyzing a table", change, |state| {
                let table = state.tables.get_mut(table).expect("it was there");
                table.analyzed = Some(table.rows.len() as u64);
            });
        }
    }
    /// An index that the rows violate: it must be refused, and nothing change.
    pub fn create_index_in_vain(&mut self, table: &str, index: IndexSpec) {
        let Some(db) = self.db.clone().filter(|_| self.has_table(table)) else { return };
        match db.table(table).and_then(|table| db.create_index(&table, index)) {
            Ok(()) => self.broken.push("an index was created that its rows violate".to_owned()),
            Err(error) if error.kind() == ErrorKind::Duplicate => {}
            Err(error) => self.note("creating an index in vain", &error),
        }
    }
    pub fn drop_index(&mut self, table: &str, name: &str) {
        if self.history.newest().tables.get(table).is_some_and(|t| t.indexes.contains(name)) {
            let change = |db: &Database| db.drop_index(&db.table(table)?, name);
            self.define("dropping an index", change, |state| {
                state.tables.get_mut(table).expect("it was there").indexes.remove(name);
            });
        }
    }

    pub fn checkpoint(&mut self) {
        let Some(db) = self.db.clone() else { return };
        if let Err(error) = db.checkpoint() {
            self.note("a checkpoint", &error);
        }
    }

    /// Pages that the store's cleaner moved since the database was opened.
    /// Shadows written, and pages of page files written before the commit.
    pub fn shadows(&self) -> (u64, u64) {
        let counts = self.db.as_ref().map(|db| db.statistics().txn);
        counts.map_or((0, 0), |counts| (counts.shadows, counts.images_early))
    }
    pub fn images_moved(&self) -> u64 {
        self.db.as_ref().map_or(0, |db| db.statistics().store.images_moved)
    }

    /// Compaction, to the end.
    pub fn compact(&mut self) {
        let Some(db) = self.db.clone() else { return };
        match db.compact(&mut |_| std::ops::ControlFlow::Continue(())) {
            Ok(report) => self.renumbered += report.pages_renumbered,
            Err(error) => self.note("compaction", &error),
        }
    }

    /// Background work: up to `count` pieces.
    pub fn steps(&mut self, count: usize) {
        let Some(db) = self.db.clone() else { return };
        for _ in 0..count {
            match db.step() {
                Ok(firndb::Progress::Worked) => {}
                Ok(firndb::Progress::Idle) => return,
                Err(error) => self.note("background work", &error),
            }
        }
    }
}
