//! RocksDB: an LSM tree with pessimistic transactions, a synced and recycled WAL, group commit.
//!
//! A table is a one-byte prefix of the keys of the default column family, as in MyRocks. Writers
//! read the newest versions and lock the rows that they change (`get_for_update`); readers read
//! from a snapshot. Under a snapshot RocksDB refuses every change of a row that changed since, so
//! on TPC-C's hot rows its writers would mostly fail; the choice here is the more favourable one,
//! and keeps the consistency conditions.

mod ffi;
mod handle;

use crate::job::{Job, Settings};
use ffi::*;
use firndb_workloads::{
    Access, Commit, CommitMode, Engine, EngineError, Found, IndexBuffers, Indexed, Outcome, PlainSchema,
    PlainTable, PlainTransaction, Scan, Schema, Session, Visit, Visitor, make_successor,
};
use handle::{Db, Iterator, Transaction, WriteOptions};
use std::sync::Arc;

/// A transaction that waits longer than this for a lock is refused; deadlocks are detected, not
/// timed out.
const LOCK_TIMEOUT_MS: i64 = 2000;

/// Opens the database in `settings.dir` and runs a job on it.
pub fn with<J: Job>(settings: &Settings, schema: &Schema, job: J) -> Outcome<J::Output> {
    let layout = Arc::new(PlainSchema::new(schema));
    assert!(layout.plain_tables().len() < 255, "a table is one byte of a key");
    let db = Db::open(&settings.dir, settings.cache_bytes)?;
    job.run(&RocksEngine { layout, db, cache_bytes: settings.cache_bytes })
}

struct RocksEngine {
    layout: Arc<PlainSchema>,
    db: Db,
    cache_bytes: u64,
}

impl Engine for RocksEngine {
    type Session<'e> = RocksSession<'e>;

    fn name(&self) -> &str {
        "rocksdb"
    }
    fn isolation(&self) -> &str {
        "read committed with row locks; readers on a snapshot"
    }
    fn settings(&self) -> Vec<(String, String)> {
        vec![
            ("wal".into(), "sync at every commit, recycled files".into()),
            ("cache_bytes".into(), self.cache_bytes.to_string()),
            ("write_buffer_bytes".into(), handle::write_buffer_bytes(self.cache_bytes).to_string()),
            ("compression".into(), "none".into()),
        ]
    }
    fn schema(&self) -> &Schema {
        self.layout.schema()
    }
    fn session(&self) -> Outcome<RocksSession<'_>> {
        Ok(RocksSession {
            engine: self,
            write: WriteOptions::synced(),
            buffers: IndexBuffers::default(),
            keys: Keys::default(),
        })
    }
}

/// A client.
pub struct RocksSession<'e> {
    engine: &'e RocksEngine,
    write: WriteOptions,
    buffers: IndexBuffers,
    keys: Keys,
}

/// Keys with their table's prefix.
#[derive(Default)]
struct Keys {
    key: Vec<u8>,
    high: Vec<u8>,
    /// Of several rows, end to end.
    many: Vec<u8>,
}

fn prefixed<'k>(buffer: &'k mut Vec<u8>, table: PlainTable, key: &[u8]) -> &'k [u8] {
    buffer.clear();
    buffer.push(table.0 as u8);
    buffer.extend_from_slice(key);
    buffer
}

impl Session for RocksSession<'_> {
    type Transaction<'s>
        = Indexed<'s, RocksTransaction<'s>>
    where
        Self: 's;

    fn begin(&mut self, access: Access) -> Outcome<Self::Transaction<'_>> {
        let txn = Transaction::begin(&self.engine.db, &self.write, access == Access::Read);
        let transaction = RocksTransaction { txn, keys: &mut self.keys };
        Ok(Indexed::new(transaction, self.engine.layout.clone(), &mut self.buffers))
    }
}

/// A transaction of either kind.
pub struct RocksTransaction<'s> {
    txn: Transaction<'s>,
    keys: &'s mut Keys,
}

impl PlainTransaction for RocksTransaction<'_> {
    fn get(&mut self, table: PlainTable, key: &[u8], row: &mut Vec<u8>) -> Outcome<bool> {
        self.txn.get(prefixed(&mut self.keys.key, table, key), false, row)
    }

    fn get_for_update(&mut self, table: PlainTable, key: &[u8], row: &mut Vec<u8>) -> Outcome<bool> {
        self.txn.get(prefixed(&mut self.keys.key, table, key), true, row)
    }

    fn get_many(&mut self, table: PlainTable, keys: &[&[u8]], found: Found<'_>) -> Outcome<()> {
        let all = &mut self.keys.many;
        all.clear();
        for key in keys {
            all.push(table.0 as u8);
            all.extend_from_slice(key);
        }
        let mut rest = all.as_slice();
        let prefixed: Vec<&[u8]> = keys
            .iter()
            .map(|key| {
                let (key, behind) = rest.split_at(1 + key.len());
                rest = behind;
                key
            })
            .collect();
        self.txn.multi_get(&prefixed, found)
    }

    fn insert(&mut self, table: PlainTable, key: &[u8], row: &[u8]) -> Outcome<bool> {
        let key = prefixed(&mut self.keys.key, table, key);
        if self.txn.get(key, true, &mut self.keys.high)? {
            return Ok(false);
        }
        self.txn.put(key, row)?;
        Ok(true)
    }

    fn put(&mut self, table: PlainTable, key: &[u8], row: &[u8]) -> Outcome<()> {
        self.txn.put(prefixed(&mut self.keys.key, table, key), row)
    }

    fn delete(&mut self, table: PlainTable, key: &[u8]) -> Outcome<bool> {
        let key = prefixed(&mut self.keys.key, table, key);
        let found = self.txn.get(key, true, &mut self.keys.high)?;
        if found {
            self.txn.delete(key)?;
        }
        Ok(found)
    }

    fn scan(&mut self, table: PlainTable, scan: Scan<'_>, visit: Visitor<'_>) -> Outcome<()> {
        if scan.range.is_empty() || scan.limit == 0 {
            return Ok(());
        }
        let low = prefixed(&mut self.keys.key, table, scan.range.low);
        prefixed(&mut self.keys.high, table, scan.range.high);
        if scan.range.high.is_empty() {
            make_successor(&mut self.keys.high);
        }
        let high = self.keys.high.as_slice();
        let mut rows = Iterator::over(&self.txn, low, high, scan.reverse);
        let mut left = scan.limit;
        while let Some((key, row)) = rows.row() {
            left -= 1;
            if visit(&key[1..], row) == Visit::Stop || left == 0 {
                break;
            }
            rows.advance();
        }
        rows.finish()
    }

    fn commit(self, _mode: CommitMode) -> Outcome<Commit> {
        self.txn.commit().map(|()| Commit::Durable)
    }

    fn rollback(self) -> Outcome<()> {
        self.txn.rollback()
    }
}
