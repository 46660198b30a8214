//! Transactions as users hold them.

use crate::database::Handle;
use crate::error::Error;
use crate::table::{Cursor, Index, IndexCursor, Table, of_table};
use firndb_base::sync::Arc;
use firndb_base::{Lsn, TxnId};
use firndb_btree::Direction;
use firndb_table::{KeyRange, Rows, TableError};
use firndb_txn::{CommitHandle, Savepoint};

/// A running transaction. Owned and `Send`; used from one thread at a time. Dropping it rolls it
/// back.
///
/// A statement that fails has changed nothing; after `Conflict` or `Deadlock` the whole transaction
/// must be rolled back and run again, which [`crate::Database::transact`] does.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = firndb::Database::open(dir.path().join("db"))?;
/// let accounts = db.create_table("accounts")?;
/// let mut tx = db.begin();
/// tx.insert(&accounts, b"alice", b"100")?;
/// let before = tx.savepoint();
/// tx.insert(&accounts, b"bob", b"50")?;
/// tx.rollback_to(&before)?;
/// tx.commit()?;
/// let mut tx = db.snapshot();
/// let mut cursor = tx.scan(&accounts, firndb::KeyRange::all(), firndb::Direction::Forward);
/// assert_eq!(cursor.next(&mut tx)?, Some((&b"alice"[..], &b"100"[..])));
/// assert_eq!(cursor.next(&mut tx)?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Transaction {
    pub(crate) inner: firndb_txn::Transaction,
    handle: Arc<Handle>,
    /// The last statement that failed met `Conflict` or `Deadlock`, and the caller has returned to
    /// no savepoint since: run again, the transaction may succeed.
    met_conflict: bool,
}

impl Transaction {
    pub(crate) fn new(inner: firndb_txn::Transaction, handle: Arc<Handle>) -> Transaction {
        Transaction { inner, handle, met_conflict: false }
    }

    pub(crate) fn check_open(&self) -> Result<(), Error> {
        self.handle.engine.check_open()
    }

    pub(crate) fn read<T>(
        &mut self,
        work: impl FnOnce(&mut firndb_txn::Transaction) -> Result<T, TableError>,
    ) -> Result<T, Error> {
        self.check_open()?;
        let outcome = work(&mut self.inner).map_err(Error::from);
        self.note(outcome)
    }

    /// Remembers whether a statement that failed met `Conflict` or `Deadlock`.
    pub(crate) fn note<T>(&mut self, outcome: Result<T, Error>) -> Result<T, Error> {
        if let Err(error) = &outcome {
            self.met_conflict = error.is_retry();
        }
        outcome
    }

    /// Whether the transaction's last failure was a conflict that may pass.
    pub(crate) fn met_conflict(&self) -> bool {
        self.met_conflict
    }

    /// Runs a statement that writes: with space in the log, or not at all.
    pub(crate) fn write<T>(
        &mut self,
        mut work: impl FnMut(&mut firndb_txn::Transaction) -> Result<T, TableError>,
    ) -> Result<T, Error> {
        self.check_open()?;
        if self.inner.id().is_none() {
            self.handle.engine.keep_recovery_time_limit();
        }
        let inner = &mut self.inner;
        let outcome = self.handle.engine.write(|| Ok(work(inner)?));
        self.note(outcome)
    }

    /// Its id, once it has written or locked something.
    #[must_use]
    pub fn id(&self) -> Option<TxnId> {
        self.inner.id()
    }

    /// Reads a row.
    pub fn get(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let mut value = Vec::new();
        Ok(self.get_into(table, key, &mut value)?.then_some(value))
    }

    /// Reads a row into `value`, whose memory is used again; false if there is none.
    pub fn get_into(&mut self, table: &Table, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Error> {
        self.read(|txn| table.inner.get(txn, key, value)).map_err(|error| of_table(&table.inner, error))
    }

    /// Reads many rows as one statement: the row of each key, in the order of the keys, which may
    /// come in any and repeat. What is not in memory is read together, so that a hundred rows wait
    /// hardly longer than one.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = firndb::Database::open(dir.path().join("db"))?;
    /// # let fruit = db.create_table("fruit")?;
    /// # db.transact(|tx| tx.put(&fruit, b"apple", b"red"))?;
    /// let rows = db.snapshot().get_many(&fruit, &["plum", "apple"])?;
    /// assert_eq!(rows, [None, Some(b"red".to_vec())]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get_many<K: AsRef<[u8]>>(
        &mut self,
        table: &Table,
        keys: &[K],
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let mut rows = Rows::new();
        self.get_many_into(table, keys, &mut rows)?;
        Ok(rows.iter().map(|row| row.map(<[u8]>::to_vec)).collect())
    }

    /// As [`Transaction::get_many`], into `rows`, whose memory is used again: by the numbers of the
    /// keys.
    pub fn get_many_into<K: AsRef<[u8]>>(
        &mut self,
        table: &Table,
        keys: &[K],
        rows: &mut Rows,
    ) -> Result<(), Error> {
        self.read(|txn| table.inner.get_many(txn, keys, rows)).map_err(|error| of_table(&table.inner, error))
    }

    /// As [`Transaction::get_many_into`], locking the rows as [`Transaction::get_for_update`] does,
    /// one after the other in the order of their keys, so that transactions which lock or write
    /// rows in this order do not wait for each other in a circle.
    pub fn get_many_for_update_into<K: AsRef<[u8]>>(
        &mut self,
        table: &Table,
        keys: &[K],
        rows: &mut Rows,
    ) -> Result<(), Error> {
        self.write(|txn| table.inner.get_many_for_update(txn, keys, rows))
            .map_err(|error| of_table(&table.inner, error))
    }

    /// Reads a row that is about to be written: until this transaction ends, others can neither
    /// write nor lock it, even if there is none.
    ///
    /// Errors: `Conflict` if another transaction changed it since this one's snapshot; `Deadlock`,
    /// `Timeout`, `Cancelled`, `ReadOnly`.
    pub fn get_for_update(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let mut value = Vec::new();
        Ok(self.get_for_update_into(table, key, &mut value)?.then_some(value))
    }

    /// As [`Transaction::get_for_update`], into `value`; false if there is no row.
    pub fn get_for_update_into(
        &mut self,
        table: &Table,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        self.write(|txn| table.inner.get_for_update(txn, key, value))
            .map_err(|error| of_table(&table.inner, error))
    }

    /// Inserts a row, or replaces it; returns whether there was one.
    ///
    /// A key has at most [`crate::Database::max_key_len`] bytes, a value [`crate::MAX_VALUE_LEN`].
    /// A value too long to stand beside its key ([`crate::Database::max_inline_len`]) costs one
    /// more read of a tree, and about 1.3 times its length of pages; the value it replaces is freed
    /// in the background once no snapshot sees it. A value may be longer than the log: checkpoints
    /// free log while it is written.
    ///
    /// Errors of all writes: `Conflict` and `Deadlock` (run the transaction again), `Duplicate` (a
    /// unique index), `Timeout`, `Cancelled`, `ReadOnly`, `BadArgument` (too long), `Full`.
    pub fn put(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<bool, Error> {
        self.write(|txn| table.inner.put(txn, key, value)).map_err(|error| of_table(&table.inner, error))
    }

    /// Inserts a row.
    ///
    /// Errors: `Duplicate` if there is one with this key.
    pub fn insert(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.write(|txn| table.inner.insert(txn, key, value)).map_err(|error| of_table(&table.inner, error))
    }

    /// Replaces a row; false if there is none.
    pub fn update(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<bool, Error> {
        self.write(|txn| table.inner.update(txn, key, value)).map_err(|error| of_table(&table.inner, error))
    }

    /// Replaces a row by what `change` makes of it, in `value`; false if there is none. As
    /// [`Transaction::get_for_update_into`] and [`Transaction::update`], at the cost of the latter.
    ///
    /// `change` is called while the row's page is latched: it must be short, and must not use the
    /// database or wait for another thread. It may be called again, with the row as it is then: the
    /// last call counts.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = firndb::Database::open(dir.path().join("db"))?;
    /// # let counters = db.create_table("counters")?;
    /// # db.transact(|tx| tx.put(&counters, b"visits", &1u64.to_le_bytes()))?;
    /// let mut row = Vec::new();
    /// let add_one = |row: &mut Vec<u8>| row[0] += 1;
    /// let is_there = db.transact(|tx| tx.update_with(&counters, b"visits", &mut row, add_one))?;
    /// assert!(is_there && row == 2u64.to_le_bytes());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn update_with(
        &mut self,
        table: &Table,
        key: &[u8],
        value: &mut Vec<u8>,
        mut change: impl FnMut(&mut Vec<u8>),
    ) -> Result<bool, Error> {
        self.write(|txn| table.inner.update_with(txn, key, value, &mut change))
            .map_err(|error| of_table(&table.inner, error))
    }

    /// As [`Transaction::update_with`], of many rows as one statement, one after the other in the
    /// order of their keys, which may come in any and repeat. `change` is called with a key's
    /// number and its row, or without one if there is none. What is not in memory is read together.
    pub fn update_many_with<K: AsRef<[u8]>>(
        &mut self,
        table: &Table,
        keys: &[K],
        mut change: impl FnMut(usize, Option<&mut Vec<u8>>),
    ) -> Result<(), Error> {
        self.write(|txn| table.inner.update_many_with(txn, keys, &mut change))
            .map_err(|error| of_table(&table.inner, error))
    }

    /// Deletes a row; false if there is none.
    pub fn delete(&mut self, table: &Table, key: &[u8]) -> Result<bool, Error> {
        self.write(|txn| table.inner.delete(txn, key)).map_err(|error| of_table(&table.inner, error))
    }

    /// The rows of a range of keys, in their order or against it.
    #[must_use]
    pub fn scan(&self, table: &Table, range: KeyRange, direction: Direction) -> Cursor {
        Cursor { inner: table.inner.scan(range, direction), table: table.inner.clone() }
    }

    /// Looks up a row by all columns of a unique index: its primary key and its bytes; false if
    /// there is none.
    pub fn get_by_index(
        &mut self,
        index: &Index,
        key: &[u8],
        primary_key: &mut Vec<u8>,
        row: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        self.read(|txn| index.inner.get(txn, key, primary_key, row))
    }

    /// The rows whose index keys lie in a range, in the index's order or against it.
    #[must_use]
    pub fn scan_index(&self, index: &Index, range: KeyRange, direction: Direction) -> IndexCursor {
        IndexCursor { inner: index.inner.scan(range, direction) }
    }

    /// A mark to which [`Transaction::rollback_to`] can return.
    #[must_use]
    pub fn savepoint(&self) -> Savepoint {
        self.inner.savepoint()
    }

    /// Undoes everything done since the savepoint. Explicit locks stay; rows that are as they were
    /// are free for other transactions, except under serializable isolation.
    ///
    /// Errors: `BadArgument`, and nothing is undone, if another transaction made the savepoint;
    /// `Full` if the log has no space for it. The next statement, or the commit, continues the undo
    /// first, or fails likewise.
    pub fn rollback_to(&mut self, savepoint: &Savepoint) -> Result<(), Error> {
        self.check_open()?;
        self.met_conflict = false;
        let outcome = self.inner.rollback_to(savepoint).map_err(Error::from);
        self.note(outcome)
    }

    /// Commits, and waits until the commit is durable. A transaction that only read waits until
    /// what it saw is durable.
    ///
    /// Errors: `Unknown` if a log device failed at that moment: whether it committed is known after
    /// the next opening. After any other error nothing was committed.
    pub fn commit(self) -> Result<(), Error> {
        self.check_open()?;
        Ok(self.inner.commit()?)
    }

    /// Commits without waiting: the changes are visible and ordered when it returns, and durable
    /// when the handle says so.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = firndb::Database::open(dir.path().join("db"))?;
    /// # let table = db.create_table("t")?;
    /// let mut tx = db.begin();
    /// tx.put(&table, b"k", b"v")?;
    /// let commit = tx.commit_async()?;
    /// // … other work …
    /// commit.wait()?;
    /// assert!(commit.is_durable());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn commit_async(self) -> Result<Commit, Error> {
        self.check_open()?;
        let commit = Commit { inner: self.inner.commit_order()? };
        commit.inner.request();
        Ok(commit)
    }

    /// Rolls everything back. When it returns, nothing of the transaction is seen by others. Rows
    /// that cannot be undone now stay locked: those for which the log has no space, because an
    /// archive or a backup retains it, until it has; those whose pages a device fails to read until
    /// it reads them, or for a minute, and then, as those on damaged pages, until the next opening,
    /// which [`crate::Options::on_set_aside`] reports.
    ///
    /// Errors: those after which the database must be opened again.
    pub fn rollback(self) -> Result<(), Error> {
        Ok(self.inner.rollback()?)
    }

    /// Two-phase commit, first phase. When it returns, the transaction survives crashes, with its
    /// rows locked and other transactions seeing the versions before, until
    /// [`crate::Database::commit_prepared`] or [`crate::Database::rollback_prepared`] is called
    /// with `gid`, from any thread, now or after a later opening of the database. Rows it has read
    /// for update stay locked as long.
    ///
    /// Errors, after which it is rolled back: `BadArgument` if `gid` is empty, over 256 bytes or
    /// taken, or nothing was written; `Full` if checkpoints have no space to list more prepared
    /// transactions, or the rows that this one has locked for update without writing them, or if
    /// the log is full.
    pub fn prepare(self, gid: &[u8]) -> Result<(), Error> {
        self.check_open()?;
        Ok(self.inner.prepare(gid)?.wait()?)
    }
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

/// A commit that is ordered and visible, and will be durable. Dropping it changes nothing.
#[derive(Clone)]
pub struct Commit {
    inner: CommitHandle,
}

impl std::fmt::Debug for Commit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Commit({:?}, durable: {})", self.lsn(), self.is_durable())
    }
}

impl Commit {
    /// Whether it is durable. Never blocks.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.inner.is_durable()
    }
    /// Blocks until it is durable.
    ///
    /// Errors: `Unknown` (see [`Transaction::commit`]).
    pub fn wait(&self) -> Result<(), Error> {
        Ok(self.inner.wait()?)
    }
    /// Its position in the order of commits, in bytes of log.
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        self.inner.lsn()
    }
}
