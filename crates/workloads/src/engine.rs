//! The interface between a workload and a storage engine.
//!
//! An [`Engine`] gives each client a [`Session`]; a session runs one [`Transaction`] at a time.
//! Tables are rows of bytes clustered by key (keys compare as bytes); secondary indexes are
//! declared as data in the [`Schema`] the engine's adapter was opened with, and maintained by the
//! engine within the same transaction. Engines that have no secondary indexes implement
//! [`PlainTransaction`](crate::PlainTransaction) instead, and [`Indexed`](crate::Indexed) adds the
//! indexes.
//!
//! Rows go out through borrowed slices or into the caller's buffer, so that a workload measures the
//! engine and not the allocator.

use crate::schema::{IndexId, Schema, TableId};
use std::fmt;

/// Why a transaction must be run again from its start. It was, or must be, rolled back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Retry {
    /// Another transaction changed what this one wants to change.
    Conflict,
    /// The engine chose it as the victim of a deadlock.
    Deadlock,
    /// The engine could not serve it now (another writer is active, the log is full, a lock timed
    /// out).
    Busy,
}

/// An engine's errors, by what the caller can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineError {
    /// Run the transaction again.
    Retry(Retry),
    /// The key, or a unique index's key, exists already in this table.
    Duplicate(TableId),
    /// The caller must give up; the message says why.
    Fatal(String),
}

impl EngineError {
    /// A fatal error from an engine's own error.
    pub fn fatal(cause: impl fmt::Display) -> EngineError {
        EngineError::Fatal(cause.to_string())
    }
}
impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EngineError::Retry(Retry::Conflict) => f.write_str("conflict with another transaction"),
            EngineError::Retry(Retry::Deadlock) => f.write_str("chosen to end a deadlock"),
            EngineError::Retry(Retry::Busy) => f.write_str("the engine is busy"),
            EngineError::Duplicate(table) => write!(f, "a row with this key is in table {} already", table.0),
            EngineError::Fatal(sentence) => f.write_str(sentence),
        }
    }
}
impl std::error::Error for EngineError {}

/// The result of an operation on an engine.
pub type Outcome<T> = Result<T, EngineError>;

/// What a transaction will do, for engines that must know beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It only reads, from one snapshot if the engine has snapshots.
    Read,
    /// It may write.
    Write,
}

/// When `commit` returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitMode {
    /// When the transaction is durable.
    Wait,
    /// When its place in the order of commits is certain; durability is requested, not waited for.
    /// Engines without asynchronous commits treat it as `Wait`.
    Async,
}

/// The state of a commit.
#[must_use = "a pending commit is not durable yet"]
pub enum Commit {
    /// Durable (or the transaction wrote nothing and everything that it read is durable).
    Durable,
    /// In the order of commits, not yet known durable.
    Pending(Box<dyn PendingCommit>),
}

impl Commit {
    /// Blocks until the commit is durable.
    pub fn wait(self) -> Outcome<()> {
        match self {
            Commit::Durable => Ok(()),
            Commit::Pending(pending) => pending.wait(),
        }
    }
}
impl fmt::Debug for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Commit::Durable => "Durable",
            Commit::Pending(_) => "Pending",
        })
    }
}

/// A commit that a client can poll or wait for until it is durable.
pub trait PendingCommit: Send {
    /// Whether it is durable now; does not block. An error means that the outcome is unknown.
    fn is_durable(&mut self) -> Outcome<bool>;
    /// Blocks until it is durable.
    fn wait(self: Box<Self>) -> Outcome<()>;
}

/// Keys from `low` on, below `high`; an empty `high` means no upper bound.
#[derive(Clone, Copy, Debug)]
pub struct KeyRange<'a> {
    /// Least key, included.
    pub low: &'a [u8],
    /// First key past the range; empty for none.
    pub high: &'a [u8],
}

impl KeyRange<'static> {
    /// Every key.
    pub const ALL: KeyRange<'static> = KeyRange { low: &[], high: &[] };
}
impl KeyRange<'_> {
    /// Whether `key` lies in the range.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= self.low && (self.high.is_empty() || key < self.high)
    }
    /// Whether no key lies in the range.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.high.is_empty() && self.low >= self.high
    }
}

/// How to walk a range.
#[derive(Clone, Copy, Debug)]
pub struct Scan<'a> {
    /// The keys to walk.
    pub range: KeyRange<'a>,
    /// Descending instead of ascending.
    pub reverse: bool,
    /// At most this many rows; `usize::MAX` for all.
    pub limit: usize,
}

impl<'a> Scan<'a> {
    /// All rows with keys from `low` on and below `high` (empty: no bound), ascending.
    #[must_use]
    pub fn between(low: &'a [u8], high: &'a [u8]) -> Scan<'a> {
        Scan { range: KeyRange { low, high }, reverse: false, limit: usize::MAX }
    }
    /// Every row, ascending.
    #[must_use]
    pub fn all() -> Scan<'static> {
        Scan { range: KeyRange::ALL, reverse: false, limit: usize::MAX }
    }
    /// The same rows, descending.
    #[must_use]
    pub fn reversed(self) -> Scan<'a> {
        Scan { reverse: true, ..self }
    }
    /// The first `limit` of these rows.
    #[must_use]
    pub fn first(self, limit: usize) -> Scan<'a> {
        Scan { limit, ..self }
    }
}

/// What a visitor returns for each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visit {
    /// Continue with the next row.
    Continue,
    /// Stop the scan.
    Stop,
}

/// Called with (primary key, row) for each row. Must not block: the engine may hold a latch
/// meanwhile.
pub type Visitor<'v> = &'v mut dyn FnMut(&[u8], &[u8]) -> Visit;

/// Called with the number of a key and its row, if there is one. Must not block: the engine may
/// hold a latch meanwhile.
pub type Found<'v> = &'v mut dyn FnMut(usize, Option<&[u8]>);

/// Called with the number of a key and its row, to be changed in place, if there is one. Must not
/// block, and may be called again with the row as it is: the last call counts.
pub type Change<'v> = &'v mut dyn FnMut(usize, Option<&mut [u8]>);

/// A storage engine, opened by its adapter with a [`Schema`]; all its tables exist.
pub trait Engine: Send + Sync {
    /// One client's session.
    type Session<'e>: Session
    where
        Self: 'e;

    /// A name for reports.
    fn name(&self) -> &str;
    /// Isolation level that transactions run at, for reports.
    fn isolation(&self) -> &str;
    /// The settings that matter to a reader of a report, as (name, value).
    fn settings(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    /// The schema the engine was opened with.
    fn schema(&self) -> &Schema;
    /// Makes a session for the calling thread.
    fn session(&self) -> Outcome<Self::Session<'_>>;
}

/// One client's connection; runs one transaction at a time.
pub trait Session {
    /// A transaction in progress.
    type Transaction<'s>: Transaction
    where
        Self: 's;

    /// Starts a transaction.
    fn begin(&mut self, access: Access) -> Outcome<Self::Transaction<'_>>;
}

/// Reads the rows at `keys` by `get`, which fills in a row and returns whether there is one.
pub(crate) fn one_by_one(
    keys: &[&[u8]],
    found: Found<'_>,
    mut get: impl FnMut(&[u8], &mut Vec<u8>) -> Outcome<bool>,
) -> Outcome<()> {
    let mut row = Vec::new();
    keys.iter().enumerate().try_for_each(|(number, key)| {
        let is_there = get(key, &mut row)?;
        found(number, is_there.then_some(&*row));
        Ok(())
    })
}

/// A transaction in progress. Dropping it rolls it back.
///
/// After an error of kind [`EngineError::Retry`] nothing but `rollback` (or dropping it) may be
/// called.
pub trait Transaction {
    /// Reads a row into `row` (and clears its old content) and returns whether it exists.
    fn get(&mut self, table: TableId, key: &[u8], row: &mut Vec<u8>) -> Outcome<bool>;
    /// As [`Transaction::get`], and locks the row: no other transaction changes it before this one
    /// ends.
    fn get_for_update(&mut self, table: TableId, key: &[u8], row: &mut Vec<u8>) -> Outcome<bool>;
    /// Reads the rows at `keys`, which come in any order and may repeat; `found` is called once for
    /// each key, in any order. Engines that can read several rows at once do so.
    fn get_many(&mut self, table: TableId, keys: &[&[u8]], found: Found<'_>) -> Outcome<()> {
        one_by_one(keys, found, |key, row| self.get(table, key, row))
    }
    /// As [`Transaction::get_many`], and locks the rows as [`Transaction::get_for_update`] does.
    fn get_many_for_update(&mut self, table: TableId, keys: &[&[u8]], found: Found<'_>) -> Outcome<()> {
        one_by_one(keys, found, |key, row| self.get_for_update(table, key, row))
    }
    /// Adds a row; fails with [`EngineError::Duplicate`] if its key exists already.
    fn insert(&mut self, table: TableId, key: &[u8], row: &[u8]) -> Outcome<()>;
    /// Adds or replaces a row.
    fn put(&mut self, table: TableId, key: &[u8], row: &[u8]) -> Outcome<()>;
    /// Replaces a row by what `change` makes of it, in `row`; returns whether it exists. `change`
    /// must not block, and may be called again with the row as it is: the last call counts.
    fn update_with(
        &mut self,
        table: TableId,
        key: &[u8],
        row: &mut Vec<u8>,
        change: &mut dyn FnMut(&mut [u8]),
    ) -> Outcome<bool> {
        if !self.get_for_update(table, key, row)? {
            return Ok(false);
        }
        change(row);
        self.put(table, key, row)?;
        Ok(true)
    }
    /// As [`Transaction::update_with`], of the rows at `keys`, which come in any order and may
    /// repeat.
    fn update_many_with(&mut self, table: TableId, keys: &[&[u8]], change: Change<'_>) -> Outcome<()> {
        let (mut bytes, mut places) = (Vec::new(), vec![None; keys.len()]);
        self.get_many_for_update(table, keys, &mut |number, row| {
            places[number] = row.map(|row| {
                bytes.extend_from_slice(row);
                bytes.len() - row.len()..bytes.len()
            });
        })?;
        for (number, key) in keys.iter().enumerate() {
            // What was done before with the same key is in the first one's row.
            let first = keys.iter().position(|other| other == key).unwrap_or(number);
            let Some(place) = places[first].clone() else {
                change(number, None);
                continue;
            };
            change(number, Some(&mut bytes[place.clone()]));
            self.put(table, key, &bytes[place])?;
        }
        Ok(())
    }
    /// Deletes a row; returns whether it existed.
    fn delete(&mut self, table: TableId, key: &[u8]) -> Outcome<bool>;
    /// Visits rows in the order of their keys.
    fn scan(&mut self, table: TableId, scan: Scan<'_>, visit: Visitor<'_>) -> Outcome<()>;
    /// Visits rows in the order of an index's keys; `scan`'s range is one of index keys.
    fn scan_index(
        &mut self,
        table: TableId,
        index: IndexId,
        scan: Scan<'_>,
        visit: Visitor<'_>,
    ) -> Outcome<()>;
    /// Ends the transaction and keeps its changes.
    fn commit(self, mode: CommitMode) -> Outcome<Commit>;
    /// Ends the transaction and undoes its changes.
    fn rollback(self) -> Outcome<()>;
}
