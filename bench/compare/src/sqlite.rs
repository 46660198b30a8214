//! SQLite: WAL, a sync at every commit, one connection a client.
//!
//! Tables are `WITHOUT ROWID`, so that rows are clustered by key as in the other engines.
//! Statements are prepared once a connection. SQLite has a single writer; where a connection finds
//! another one writing it sleeps and tries again, in steps of milliseconds. Writers here queue for
//! a lock of the process before `BEGIN IMMEDIATE` instead, which is what an application that knows
//! SQLite does. Each connection has a cache of its own, so the budget is divided among them; the
//! system's page cache is behind them all.

use crate::job::{Job, Settings};
use firndb_workloads::{
    Access, Commit, CommitMode, Engine, EngineError, IndexBuffers, Indexed, Outcome, PlainSchema, PlainTable,
    PlainTransaction, Retry, Scan, Schema, Session, Visit, Visitor,
};
use rusqlite::config::DbConfig;
use rusqlite::{CachedStatement, Connection, ErrorCode, FileControl, OpenFlags, ToSql};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Pages of WAL after which a commit checkpoints: SQLite's own 1,000 makes every 20th or so commit
/// of TPC-C pay for a checkpoint, ten times as many amortise it.
const CHECKPOINT_PAGES: u32 = 10_000;
/// How long a statement waits for a lock that the writers' queue does not cover (a checkpoint's).
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens the database in `settings.dir` and runs a job on it.
pub fn with<J: Job>(settings: &Settings, schema: &Schema, job: J) -> Outcome<J::Output> {
    let layout = Arc::new(PlainSchema::new(schema));
    let engine = SqliteEngine {
        statements: layout.plain_tables().iter().map(|table| Statements::of(table)).collect(),
        layout,
        path: settings.dir.join("sqlite.db"),
        cache_bytes: settings.cache_bytes / settings.sessions.max(1) as u64,
        writers: Mutex::new(()),
    };
    // One connection outlives the others, so that the last of a run does not checkpoint as it
    // closes.
    let connection = engine.connect()?;
    for table in engine.layout.plain_tables() {
        let create = format!(
            "CREATE TABLE IF NOT EXISTS {table} (k BLOB PRIMARY KEY, v BLOB NOT NULL) STRICT, WITHOUT ROWID"
        );
        connection.execute_batch(&create).map_err(outcome)?;
    }
    job.run(&engine)
}

struct SqliteEngine {
    layout: Arc<PlainSchema>,
    /// Statements by plain table.
    statements: Vec<Statements>,
    path: PathBuf,
    /// Cache of one connection: its share of the budget.
    cache_bytes: u64,
    /// Held by the connection that writes.
    writers: Mutex<()>,
}

/// Texts of a table's statements: keys of the connection's cache of prepared ones.
struct Statements {
    get: String,
    insert: String,
    put: String,
    delete: String,
    /// Scans: indexed by whether there is an upper bound, and whether descending.
    scan: [[String; 2]; 2],
}

impl Statements {
    fn of(table: &str) -> Statements {
        let scan = |bound: &str, order: &str| {
            format!("SELECT k, v FROM {table} WHERE k >= ?1 {bound} ORDER BY k {order} LIMIT ?2")
        };
        Statements {
            get: format!("SELECT v FROM {table} WHERE k = ?1"),
            insert: format!("INSERT INTO {table} (k, v) VALUES (?1, ?2) ON CONFLICT DO NOTHING"),
            put: format!(
                "INSERT INTO {table} (k, v) VALUES (?1, ?2) ON CONFLICT (k) DO UPDATE SET v = excluded.v"
            ),
            delete: format!("DELETE FROM {table} WHERE k = ?1"),
            scan: ["", "AND k < ?3"].map(|bound| ["ASC", "DESC"].map(|order| scan(bound, order))),
        }
    }
}

fn outcome(error: rusqlite::Error) -> EngineError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => EngineError::Retry(Retry::Busy),
        _ => EngineError::fatal(format_args!("SQLite: {error}")),
    }
}

impl SqliteEngine {
    fn connect(&self) -> Outcome<Connection> {
        // A connection is used by one thread only, so SQLite needs no mutexes of its own.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let open = || {
            let connection = Connection::open_with_flags(&self.path, flags)?;
            connection.busy_timeout(BUSY_TIMEOUT)?;
            connection.execute_batch(&format!(
                "PRAGMA page_size = 4096; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
                 PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}; PRAGMA temp_store = MEMORY; \
                 PRAGMA cache_size = -{};",
                self.cache_bytes / 1024
            ))?;
            connection.file_control(Some("main"), FileControl::PersistWal(&mut 1))?;
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
            connection.set_prepared_statement_cache_capacity(256);
            Ok(connection)
        };
        open().map_err(outcome)
    }
}

impl Engine for SqliteEngine {
    type Session<'e> = SqliteSession<'e>;

    fn name(&self) -> &str {
        "sqlite"
    }
    fn isolation(&self) -> &str {
        "serializable"
    }
    fn settings(&self) -> Vec<(String, String)> {
        vec![
            ("version".into(), rusqlite::version().into()),
            ("journal_mode".into(), "WAL, persistent".into()),
            ("synchronous".into(), "FULL".into()),
            ("wal_autocheckpoint".into(), CHECKPOINT_PAGES.to_string()),
            ("cache_bytes_per_connection".into(), self.cache_bytes.to_string()),
        ]
    }
    fn schema(&self) -> &Schema {
        self.layout.schema()
    }
    fn session(&self) -> Outcome<SqliteSession<'_>> {
        Ok(SqliteSession { engine: self, connection: self.connect()?, buffers: IndexBuffers::default() })
    }
}

/// A connection.
pub struct SqliteSession<'e> {
    engine: &'e SqliteEngine,
    connection: Connection,
    buffers: IndexBuffers,
}

impl Session for SqliteSession<'_> {
    type Transaction<'s>
        = Indexed<'s, SqliteTransaction<'s>>
    where
        Self: 's;

    fn begin(&mut self, access: Access) -> Outcome<Self::Transaction<'_>> {
        let (turn, begin) = match access {
            Access::Read => (None, "BEGIN DEFERRED"),
            Access::Write => {
                let turn = self.engine.writers.lock().unwrap_or_else(PoisonError::into_inner);
                (Some(turn), "BEGIN IMMEDIATE")
            }
        };
        let mut transaction =
            SqliteTransaction { engine: self.engine, connection: &self.connection, open: false, _turn: turn };
        transaction.execute(begin, &[])?;
        transaction.open = true;
        Ok(Indexed::new(transaction, self.engine.layout.clone(), &mut self.buffers))
    }
}

/// A transaction of a connection.
pub struct SqliteTransaction<'s> {
    engine: &'s SqliteEngine,
    connection: &'s Connection,
    /// Whether there is something to roll back.
    open: bool,
    /// The writers' lock, released after the transaction has ended.
    _turn: Option<MutexGuard<'s, ()>>,
}

impl<'s> SqliteTransaction<'s> {
    fn statement(&self, text: &str) -> Outcome<CachedStatement<'s>> {
        self.connection.prepare_cached(text).map_err(outcome)
    }
    /// Runs a statement that returns no rows; returns the number of rows it changed.
    fn execute(&self, text: &str, parameters: &[&dyn ToSql]) -> Outcome<usize> {
        self.statement(text)?.execute(parameters).map_err(outcome)
    }
    fn statements(&self, table: PlainTable) -> &'s Statements {
        &self.engine.statements[table.0]
    }
}

impl Drop for SqliteTransaction<'_> {
    fn drop(&mut self) {
        if self.open {
            // If it fails, SQLite has rolled back by itself, or the next BEGIN says what is wrong.
            let _ = self.execute("ROLLBACK", &[]);
        }
    }
}

impl PlainTransaction for SqliteTransaction<'_> {
    fn get(&mut self, table: PlainTable, key: &[u8], row: &mut Vec<u8>) -> Outcome<bool> {
        row.clear();
        let mut statement = self.statement(&self.statements(table).get)?;
        let mut rows = statement.query([key]).map_err(outcome)?;
        let Some(found) = rows.next().map_err(outcome)? else { return Ok(false) };
        let value = found.get_ref(0).map_err(outcome)?;
        row.extend_from_slice(value.as_blob().map_err(EngineError::fatal)?);
        Ok(true)
    }

    fn insert(&mut self, table: PlainTable, key: &[u8], row: &[u8]) -> Outcome<bool> {
        Ok(self.execute(&self.statements(table).insert, &[&key, &row])? > 0)
    }

    fn put(&mut self, table: PlainTable, key: &[u8], row: &[u8]) -> Outcome<()> {
        self.execute(&self.statements(table).put, &[&key, &row]).map(drop)
    }

    fn delete(&mut self, table: PlainTable, key: &[u8]) -> Outcome<bool> {
        Ok(self.execute(&self.statements(table).delete, &[&key])? > 0)
    }

    fn scan(&mut self, table: PlainTable, scan: Scan<'_>, visit: Visitor<'_>) -> Outcome<()> {
        let (low, high) = (scan.range.low, scan.range.high);
        let limit = i64::try_from(scan.limit).unwrap_or(-1);
        let text = &self.statements(table).scan[usize::from(!high.is_empty())][usize::from(scan.reverse)];
        let mut statement = self.statement(text)?;
        let parameters: &[&dyn ToSql] = &[&low, &limit, &high];
        let count = if high.is_empty() { 2 } else { 3 };
        let mut rows = statement.query(&parameters[..count]).map_err(outcome)?;
        while let Some(found) = rows.next().map_err(outcome)? {
            let (key, row) = (found.get_ref(0).map_err(outcome)?, found.get_ref(1).map_err(outcome)?);
            let key = key.as_blob().map_err(EngineError::fatal)?;
            if visit(key, row.as_blob().map_err(EngineError::fatal)?) == Visit::Stop {
                break;
            }
        }
        Ok(())
    }

    fn commit(mut self, _mode: CommitMode) -> Outcome<Commit> {
        self.execute("COMMIT", &[])?;
        self.open = false;
        Ok(Commit::Durable)
    }

    fn rollback(mut self) -> Outcome<()> {
        self.open = false;
        self.execute("ROLLBACK", &[]).map(drop)
    }
}
