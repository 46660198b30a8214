//! A running transaction, and what the database must show it.

use super::Effects;
use crate::support::model::State;
use firndb::{Database, Direction, Error, ErrorKind, KeyRange, Transaction};

/// A running transaction, and what the database must show it.
pub struct Work {
    pub(super) db: Database,
    pub(super) tx: Transaction,
    pub(super) state: State,
    pub(super) effects: Effects,
    pub(super) uncertain: bool,
    pub(super) broken: Vec<String>,
}

/// A mark in a transaction and its model.
pub struct Place {
    savepoint: firndb::Savepoint,
    state: State,
    effects: usize,
}

impl Work {
    pub(super) fn expect(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds && !self.uncertain {
            self.broken.push(what());
        }
    }

    /// A statement on a row; skipped if the table is not there, because its creation failed.
    fn change(
        &mut self,
        table: &str,
        key: &[u8],
        value: Option<&[u8]>,
        statement: impl FnOnce(&mut Transaction, &firndb::Table) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let Some(model) = self.state.tables.get_mut(table) else { return Ok(()) };
        let found = statement(&mut self.tx, &self.db.table(table)?)?;
        let there = match value {
            Some(value) => model.rows.insert(key.to_vec(), value.to_vec()),
            None => model.rows.remove(key),
        };
        self.effects.push((table.to_owned(), key.to_vec(), value.map(<[u8]>::to_vec)));
        let there = there.is_some();
        self.expect(there == found, || format!("row {} was there: {found}", key.escape_ascii()));
        Ok(())
    }

    pub fn put(&mut self, table: &str, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.change(table, key, Some(value), |tx, table| tx.put(table, key, value))
    }
    pub fn delete(&mut self, table: &str, key: &[u8]) -> Result<(), Error> {
        self.change(table, key, None, |tx, table| tx.delete(table, key))
    }
    /// Inserts a row that is not there.
    pub fn insert(&mut self, table: &str, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.change(table, key, Some(value), |tx, table| tx.insert(table, key, value).map(|()| false))
    }
    /// Inserts a row that must be refused because of its key or of a unique index.
    pub fn insert_in_vain(&mut self, table: &str, key: &[u8], value: &[u8]) -> Result<(), Error> {
        if !self.state.tables.contains_key(table) {
            return Ok(());
        }
        let table = self.db.table(table)?;
        match self.tx.insert(&table, key, value) {
            Err(error) if error.kind() == ErrorKind::Duplicate => Ok(()),
            Err(error) => Err(error),
            Ok(()) => {
                self.expect(false, || format!("row {} was not refused", key.escape_ascii()));
                Ok(())
            }
        }
    }
    /// As [`Work::put`], but goes on when the device is full: the statement has then changed
    /// nothing.
    pub fn put_if_room(&mut self, table: &str, key: &[u8], value: &[u8]) -> Result<bool, Error> {
        match self.put(table, key, value) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::Full => Ok(false),
            Err(error) => Err(error),
        }
    }
    pub fn get(&mut self, table: &str, key: &[u8]) -> Result<(), Error> {
        let Some(model) = self.state.tables.get(table) else { return Ok(()) };
        let expected = model.rows.get(key).cloned();
        let found = self.tx.get(&self.db.table(table)?, key)?;
        self.expect(found == expected, || format!("another row was read at {}", key.escape_ascii()));
        Ok(())
    }
    /// Reads a whole table, forwards or backwards.
    pub fn scan(&mut self, table: &str, direction: Direction) -> Result<(), Error> {
        let Some(model) = self.state.tables.get(table) else { return Ok(()) };
        let mut expected: Vec<(Vec<u8>, Vec<u8>)> = model.rows.clone().into_iter().collect();
        if direction == Direction::Backward {
            expected.reverse();
        }
        let mut found = Vec::new();
        let mut cursor = self.tx.scan(&self.db.table(table)?, KeyRange::all(), direction);
        while let Some((key, value)) = cursor.next(&mut self.tx)? {
            found.push((key.to_vec(), value.to_vec()));
        }
        self.expect(found == expected, || "a scan read other rows".to_owned());
        Ok(())
    }
    pub fn savepoint(&mut self) -> Place {
        let savepoint = self.tx.savepoint();
        Place { savepoint, state: self.state.clone(), effects: self.effects.len() }
    }
    pub fn roll_back_to(&mut self, place: &Place) -> Result<(), Error> {
        self.tx.rollback_to(&place.savepoint)?;
        self.state = place.state.clone();
        self.effects.truncate(place.effects);
        Ok(())
    }
    pub fn checkpoint(&mut self) -> Result<(), Error> {
        self.db.checkpoint()
    }
}
