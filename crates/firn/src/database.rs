//! A database as its users hold it.

use crate::backup::archive::Archives;
use crate::backup::base_backup::{self, BackupProgress, BackupReport};
use crate::engine::devices::Devices;
use crate::engine::directory;
use crate::engine::recovery_report::RecoveryReport;
use crate::engine::superblock::Superblock;
use crate::engine::superblock::copies::Found;
use crate::engine::threads::Threads;
use crate::engine::{Engine, assembly, closing, recovery};
use crate::error::{Error, ErrorKind};
use crate::options::Options;
use crate::table::{Table, TableSpec};
use crate::transaction::Transaction;
use firndb_base::sync::Arc;
use firndb_base::{DatabaseId, Progress, clock, rng};
use firndb_table::{BuildLimits, IndexSpec};
use firndb_txn::CancelToken;
use firndb_txn::TxnOptions as TransactionOptions;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// An open database. Cheap to clone; usable from any thread.
///
/// It is closed by [`Database::close`], or when the last handle, table and transaction is dropped.
/// Dropping it without closing loses nothing that was committed.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// let db = firndb::Database::open(dir.path().join("db"))?;
/// let fruit = db.create_table("fruit")?;
/// db.transact(|tx| tx.put(&fruit, b"apple", b"red"))?;
/// assert_eq!(db.snapshot().get(&fruit, b"apple")?.as_deref(), Some(&b"red"[..]));
/// # db.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Database {
    pub(crate) handle: Arc<Handle>,
}

/// What all handles of one open database share.
pub(crate) struct Handle {
    pub engine: Arc<Engine>,
    threads: Option<Arc<Threads>>,
    directory: Option<PathBuf>,
}

impl Handle {
    fn close(&self) -> Result<(), Error> {
        if !self.engine.begin_close() {
            return Ok(());
        }
        closing::close(&self.engine, self.threads.as_ref())
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // No caller is left to report to; what was committed is in the log.
        let _ = self.close();
    }
}

/// How often [`Database::transact`] runs a transaction before it returns the conflict.
const ATTEMPTS_MAX: u32 = 100;

impl Options {
    /// Opens the database in directory `path`, or creates it there.
    ///
    /// Opening recovers from a crash. It reads the log since the last checkpoint, and takes time in
    /// proportion to that, never to the data. The rest of recovery runs beside transactions: see
    /// [`Database::finish_recovery`].
    ///
    /// Errors: `NotFound`, `Unusable`, `InUse`, `BadArgument`, `Damaged`, `Failed`, `Full`.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Database, Error> {
        let path = path.as_ref();
        let engine = directory::open(path, &self, &Archives)?;
        Database::start(engine, Some(path.to_path_buf()))
    }

    /// Opens the database in directory `path` for reading, and writes not a byte to its files:
    /// recovery works in memory ([`crate::Tuning::overlay_bytes`]), and what it would have written
    /// is dropped when the database is closed. No permission to write is needed, and any number of
    /// processes may open a database for reading at once; while one has it open for writing it is
    /// `InUse`.
    ///
    /// Transactions read; a call that would change the database fails with `ReadOnly`. There are no
    /// background threads. The archive, if there is one, is read where recovery needs it, and a new
    /// flash cache is not created.
    ///
    /// Errors: as [`Options::open`], and `NotFound` where there is no database.
    pub fn open_read_only(self, path: impl AsRef<Path>) -> Result<Database, Error> {
        let path = path.as_ref();
        let engine = directory::open_read_only(path, &self.for_looking(), &Archives)?;
        Database::start(engine, Some(path.to_path_buf()))
    }

    /// As [`Options::open_read_only`], from devices instead of files in a directory.
    pub fn open_read_only_on(self, devices: Devices) -> Result<Database, Error> {
        self.for_looking().open_on(devices)
    }

    /// Creates a database on empty devices, instead of files in a directory.
    pub fn create_on(self, devices: Devices) -> Result<Database, Error> {
        let options = self.log(|log| log.devices(devices.logs.len())).with_profiles(None)?;
        options.check()?;
        let members = assembly::members(&options);
        let others = (1..=devices.store_others.len()).map(|member| format!("store.{member}"));
        let stores: Vec<String> = std::iter::once("store".to_owned()).chain(others).collect();
        let database = DatabaseId(rng::entropy());
        assembly::claim_devices(database, &devices, &members, &stores, &options)?;
        let engine = assembly::create(database, devices, members, &stores, &options, &Archives)?;
        Database::start(engine, None)
    }

    /// Opens a database from its devices, instead of files in a directory. If not as many log
    /// devices are given as the log has members, the header of each is read to find its member:
    /// devices that are no members are left alone, and a missing member is an error unless copies
    /// of the log cover it.
    pub fn open_on(self, devices: Devices) -> Result<Database, Error> {
        let options = self.with_profiles(None)?;
        let name = &devices.superblock.info().name;
        let superblock = match Superblock::read(&devices.superblock)? {
            Found::Database(superblock) => superblock,
            Found::Nothing => {
                return Err(Error::damaged(format!(
                    "{name} is blank: a database was never created here, or lost its superblock; restore it from a copy"
                )));
            }
            Found::Creating(_) | Found::Restoring(_) => {
                let message = "the creation of this database was interrupted; nothing was stored in it";
                return Err(Error::not_found(message));
            }
        };
        let options = options.for_existing(&superblock);
        let devices = devices.arranged(&superblock)?.overlaid(&options);
        let engine = recovery::open(superblock, devices, &options, &Archives)?;
        Database::start(engine, None)
    }
}

impl Database {
    /// Opens the database in directory `path` with the default options, or creates it there.
    pub fn open(path: impl AsRef<Path>) -> Result<Database, Error> {
        Options::new().open(path)
    }

    /// Opens the database in directory `path` for reading, with the default options; see
    /// [`Options::open_read_only`].
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Database, Error> {
        Options::new().open_read_only(path)
    }

    /// Whether it was opened with [`Database::open_read_only`].
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.engine().is_read_only()
    }

    fn start(engine: Arc<Engine>, directory: Option<PathBuf>) -> Result<Database, Error> {
        engine.open_spill(directory.as_deref())?;
        let threads = if engine.options.background { Some(Arc::new(Threads::start(&engine)?)) } else { None };
        Ok(Database { handle: Arc::new(Handle { engine, threads, directory }) })
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.handle.engine
    }

    /// The directory it was opened in.
    #[must_use]
    pub fn directory(&self) -> Option<&Path> {
        self.handle.directory.as_deref()
    }

    /// What recovery did at the opening and since, and what is left of it.
    #[must_use]
    pub fn recovery_report(&self) -> RecoveryReport {
        self.engine().recovery_report()
    }

    /// Helps recovery until nothing is left to do: rolls back what had not committed, redoes the
    /// pages that no transaction has touched, takes a checkpoint. Transactions may run meanwhile.
    ///
    /// Work that damage prevents is left to the next opening: see [`Database::work_set_aside`].
    ///
    /// Errors: those of devices and of space.
    pub fn finish_recovery(&self) -> Result<(), Error> {
        self.engine().check_open()?;
        let outcome = self.engine().finish_recovery();
        outcome.inspect_err(|error| self.engine().background_failed("recovering", error))
    }

    /// Creates a table of bytes.
    ///
    /// Errors: `Exists`, `BadArgument` (names have 1 to 255 bytes).
    pub fn create_table(&self, name: &str) -> Result<Table, Error> {
        self.create_table_with(name, TableSpec::raw())
    }

    /// Creates a table with a schema, or secondary indexes, or both.
    pub fn create_table_with(&self, name: &str, spec: TableSpec) -> Result<Table, Error> {
        let engine = self.engine();
        engine.check_writable()?;
        let kind = (spec.kind.clone(), engine.layout_of_new(&spec)?);
        let inner = engine.write(|| {
            Ok(engine.catalog.create_fragmented_table(name, kind.clone(), spec.indexes.clone())?)
        })?;
        engine.place_trees()?;
        Ok(Table { inner, handle: self.handle.clone() })
    }

    /// The table of this name.
    ///
    /// Errors: `NotFound`.
    pub fn table(&self, name: &str) -> Result<Table, Error> {
        self.engine().check_open()?;
        let inner = self.engine().catalog.table(name)?;
        Ok(Table { inner, handle: self.handle.clone() })
    }

    /// The table of this name, created as a table of bytes if there is none.
    pub fn open_table(&self, name: &str) -> Result<Table, Error> {
        match self.table(name) {
            Err(error) if error.kind() == ErrorKind::NotFound => match self.create_table(name) {
                Err(error) if error.kind() == ErrorKind::Exists => self.table(name),
                other => other,
            },
            other => other,
        }
    }

    /// The names of all tables, ascending.
    #[must_use]
    pub fn table_names(&self) -> Vec<String> {
        self.engine().catalog.names()
    }

    /// Drops a table with all its rows and indexes. Their pages are freed in the background.
    pub fn drop_table(&self, name: &str) -> Result<(), Error> {
        let engine = self.engine();
        engine.check_writable()?;
        engine.write(|| Ok(engine.catalog.drop_table(name)?))?;
        engine.place_trees()
    }

    /// Renames a table. Handles of it stay valid.
    pub fn rename_table(&self, from: &str, to: &str) -> Result<(), Error> {
        let engine = self.engine();
        engine.check_writable()?;
        engine.write(|| Ok(engine.catalog.rename_table(from, to)?))
    }

    /// Adds a secondary index to a table and fills it, while other threads read and write the
    /// table. Call it with no transaction open in this thread that has written to the table: the
    /// call would wait for it for ever. Other changes of the table's definition wait for the build.
    ///
    /// Sorts the entries in [`Options::index_build_bytes`] of memory and, beyond that, at
    /// [`Options::spill_path`]; without one, builds of more entries insert them piece by piece,
    /// which writes and logs some times as much.
    ///
    /// Errors: `Duplicate` if rows violate a unique index, `Exists`, `BadArgument`; `Full` if there
    /// is no space for what is sorted.
    ///
    /// [`Options::index_build_bytes`]: crate::Options::index_build_bytes
    /// [`Options::spill_path`]: crate::Options::spill_path
    pub fn create_index(&self, table: &Table, index: IndexSpec) -> Result<(), Error> {
        self.create_index_until(table, index, None)
    }

    /// As [`Database::create_index`]; ends with `Cancelled` once another thread cancels `cancel`,
    /// and there is no such index then.
    pub fn create_index_until(
        &self,
        table: &Table,
        index: IndexSpec,
        cancel: Option<CancelToken>,
    ) -> Result<(), Error> {
        let engine = self.engine();
        engine.check_writable()?;
        engine.admit()?;
        let (memory, spill) = (engine.options.index_build_bytes, engine.queries.spill.get().cloned());
        let limits = BuildLimits { memory, spill, cancel };
        engine.create_index(&table.inner, index, &limits)
    }

    /// Drops a secondary index.
    pub fn drop_index(&self, table: &Table, name: &str) -> Result<(), Error> {
        let engine = self.engine();
        engine.check_writable()?;
        engine.write(|| Ok(engine.catalog.drop_index(&table.inner, name)?))
    }

    /// Begins a transaction under snapshot isolation.
    #[must_use]
    pub fn begin(&self) -> Transaction {
        self.begin_with(TransactionOptions::default())
    }

    /// Begins a transaction.
    #[must_use]
    pub fn begin_with(&self, mut options: TransactionOptions) -> Transaction {
        options.read_only |= self.engine().is_read_only();
        if options.lock_deadline.is_none() {
            options.lock_deadline = self.engine().options.lock_deadline;
        }
        Transaction::new(self.engine().txns.begin(options), self.handle.clone())
    }

    /// Begins a transaction that only reads: it sees the database as it is at its first read.
    #[must_use]
    pub fn snapshot(&self) -> Transaction {
        self.begin_with(TransactionOptions { read_only: true, ..TransactionOptions::default() })
    }

    /// Runs `work` in a transaction under snapshot isolation and commits it durably; if a statement
    /// or the commit meets a conflict or a deadlock, rolls back and runs it again. `work` may
    /// therefore run more than once.
    ///
    /// The error type is the caller's own: `work` may end the transaction with an error of its
    /// domain, which rolls it back and is returned as it is. A closure that ends with `Ok(…)` must
    /// name the type, in that expression or as the method's second type argument.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = firndb::Database::open(dir.path().join("db"))?;
    /// # let accounts = db.create_table("accounts")?;
    /// #[derive(Debug, PartialEq)]
    /// enum Refused {
    ///     TooLittle(u64),
    ///     Database(firndb::Error),
    /// }
    /// impl From<firndb::Error> for Refused {
    ///     fn from(error: firndb::Error) -> Refused {
    ///         Refused::Database(error)
    ///     }
    /// }
    /// db.transact(|tx| tx.put(&accounts, b"alice", &100u64.to_le_bytes()))?;
    /// let withdraw = |amount| {
    ///     db.transact(|tx| {
    ///         let balance = tx.get_for_update(&accounts, b"alice")?.expect("she has an account");
    ///         let balance = u64::from_le_bytes(balance.try_into().expect("eight bytes"));
    ///         let rest = balance.checked_sub(amount).ok_or(Refused::TooLittle(balance))?;
    ///         tx.put(&accounts, b"alice", &rest.to_le_bytes())?;
    ///         Ok(rest)
    ///     })
    /// };
    /// assert_eq!(withdraw(70), Ok(30));
    /// assert_eq!(withdraw(70), Err(Refused::TooLittle(30)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Errors: those of `work` and of the commit; after a conflict or deadlock only if a hundred
    /// attempts met one. By [`Transaction::rollback_to`] `work` handles a conflict itself: an
    /// error that it returns after that, be it the conflict, ends the transaction.
    pub fn transact<T, E: From<Error>>(
        &self,
        work: impl FnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        self.transact_with(TransactionOptions::default(), work)
    }

    /// As [`Database::transact`], with these transaction options.
    pub fn transact_with<T, E: From<Error>>(
        &self,
        options: TransactionOptions,
        mut work: impl FnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut attempt = 0;
        loop {
            let mut tx = self.begin_with(options.clone());
            let outcome = work(&mut tx);
            let met_conflict = tx.met_conflict();
            let ended = match &outcome {
                Ok(_) => tx.commit(),
                Err(_) => tx.rollback(),
            };
            let again = ended.as_ref().map_or_else(Error::is_retry, |()| outcome.is_err() && met_conflict);
            if !again || attempt == ATTEMPTS_MAX {
                ended?;
                return outcome;
            }
            attempt += 1;
            // The first retries follow at once; later ones leave time to the other transactions.
            if attempt > 3 {
                clock::sleep(Duration::from_micros(50 << attempt.min(10)));
            }
        }
    }

    /// Global ids of the prepared transactions, which wait to be committed or rolled back.
    #[must_use]
    pub fn prepared(&self) -> Vec<Vec<u8>> {
        self.engine().txns.prepared().into_iter().map(|prepared| prepared.gid).collect()
    }

    /// Commits a prepared transaction, from any thread, and waits until that is durable.
    ///
    /// Errors: `BadArgument` if there is none of this id. Never `Full`: space for the decision was
    /// set aside.
    pub fn commit_prepared(&self, gid: &[u8]) -> Result<(), Error> {
        self.engine().check_writable()?;
        Ok(self.engine().txns.commit_prepared(gid)?.wait()?)
    }

    /// Rolls a prepared transaction back, from any thread, and waits until that is durable: it does
    /// not come back.
    ///
    /// Its rows are as before when it returns, but for those that cannot be undone just now,
    /// because the log has no space or their pages cannot be read: these stay locked, showing
    /// others the versions before, and are undone in the background.
    ///
    /// Errors: `BadArgument` if there is none of this id; `Unknown` if a log device failed at that
    /// moment: whether it is prepared still is known after the next opening. Never `Full`: space
    /// for the decision was set aside.
    pub fn rollback_prepared(&self, gid: &[u8]) -> Result<(), Error> {
        self.engine().check_writable()?;
        Ok(self.engine().txns.rollback_prepared(gid)?.wait()?)
    }

    /// Writes everything that is dirty and shortens the log: after it, opening has almost nothing
    /// to redo, but for what recovery has not redone yet.
    pub fn checkpoint(&self) -> Result<(), Error> {
        self.engine().check_writable()?;
        self.engine().checkpoint_all()
    }

    /// Does one step of background work; for databases opened without background threads. Several
    /// threads may call it; work that one of them does, the others skip. Of a database opened
    /// read-only: one step of recovery.
    pub fn step(&self) -> Result<Progress, Error> {
        self.engine().step()
    }

    /// Copies the database to `directory`, which is created and must be empty, while transactions
    /// run, and reads the copy back. [`crate::Options::restore`] makes a database of it: as it was
    /// at the end of the backup, or, with an archive, at any commit since. `progress` may stop it.
    ///
    /// Errors: `Exists` if the directory holds anything; `Full` if the volume is full, or the
    /// online log became full before the backup had copied it; `Cancelled`; `Damaged` if a page
    /// cannot be read. The files left then are not taken for a backup.
    pub fn backup(
        &self,
        directory: impl AsRef<Path>,
        progress: &mut dyn FnMut(BackupProgress) -> ControlFlow<()>,
    ) -> Result<BackupReport, Error> {
        self.check_backup_directory(directory.as_ref())?;
        base_backup::take(self.engine(), directory.as_ref(), progress)
    }

    /// Refuses a `directory` that [`Database::backup`] would refuse, and creates nothing: to be
    /// called before long work that ends with a backup.
    ///
    /// Errors: `Exists` if the directory holds anything; `BadArgument` if a backup there would mix
    /// with something else; `Unusable` if it cannot be read.
    pub fn check_backup_directory(&self, directory: impl AsRef<Path>) -> Result<(), Error> {
        let directory = directory.as_ref();
        self.engine().check_writable()?;
        base_backup::check_directory(directory, self.directory())
    }

    /// Closes the database: writes everything, so that the next opening has nothing to redo. Open
    /// transactions are rolled back by the next opening; the remaining handles return `Closed`.
    ///
    /// Errors: `Failed`, naming the device, if a device does not complete a call within
    /// [`Options::close_patience`]. Acknowledged commits are not lost. The device, or the whole
    /// database, stays in use until that call has ended: opening it before is refused with `InUse`.
    /// Dropping the last handle gives up in the same way.
    pub fn close(self) -> Result<(), Error> {
        self.handle.close()
    }

    /// Longest key of a row, in bytes: depends on the page size. An entry of a secondary index, its
    /// columns with the row's key, has the same limit.
    #[must_use]
    pub fn max_key_len(&self) -> usize {
        firndb_txn::max_key_len(self.engine().pool.page_size())
    }

    /// Longest key and value together, in bytes, of a row that is stored in one piece: depends on
    /// the page size. Values up to [`crate::MAX_VALUE_LEN`] bytes are stored apart from their keys.
    #[must_use]
    pub fn max_inline_len(&self) -> usize {
        firndb_txn::max_row_len(self.engine().pool.page_size())
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.handle.directory {
            Some(directory) => write!(f, "Database({})", directory.display()),
            None => write!(f, "Database"),
        }
    }
}
