//! LMDB, through heed: a memory-mapped copy-on-write tree, a sync at every commit, a single writer.
//!
//! Every commit syncs data and meta page (no `NOSYNC`, `NOMETASYNC`, `MAPASYNC`). The map is larger
//! than any run needs and takes no space until it is used. LMDB has no cache of its own: it uses
//! the system's page cache, as much of it as there is; give the process a memory limit where that
//! matters.

use crate::job::{Job, Settings};
use firndb_workloads::{
    Access, Commit, CommitMode, Engine, EngineError, IndexBuffers, Indexed, Outcome, PlainSchema, PlainTable,
    PlainTransaction, Scan, Schema, Session, Visit, Visitor,
};
use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvOpenOptions, MdbError, PutFlags, RoTxn, RwTxn, WithTls};
use std::ops::Bound;
use std::sync::Arc;

/// Address space for the map: 256 GiB.
const MAP_BYTES: usize = 256 << 30;

type Tree<'e> = Database<'e, Bytes, Bytes>;

/// Opens the environment in `settings.dir` and runs a job on it.
pub fn with<J: Job>(settings: &Settings, schema: &Schema, job: J) -> Outcome<J::Output> {
    let layout = Arc::new(PlainSchema::new(schema));
    let names = layout.plain_tables();
    let mut options = EnvOpenOptions::new();
    options
        .map_size(MAP_BYTES)
        .max_dbs(u32::try_from(names.len()).expect("a schema has few tables"))
        .max_readers(u32::try_from(settings.sessions + 8).expect("sessions are threads, so few"));
    // SAFETY: the file is this process's own for as long as it is open, and nothing truncates it.
    let env = unsafe { options.open(&settings.dir) }.map_err(EngineError::fatal)?;
    let mut trees = Vec::with_capacity(names.len());
    for name in &names {
        let txn = env.write_txn().map_err(EngineError::fatal)?;
        let created = env.create_databases_and_commit(txn, |opener, txn| {
            opener.create_database::<Bytes, Bytes>(txn, Some(name)).map(CommitOrAbort::<_, ()>::Commit)
        });
        trees.push(created.map_err(EngineError::fatal)?.unwrap_commit());
    }
    job.run(&LmdbEngine { layout, env: &env, trees })
}

struct LmdbEngine<'env> {
    layout: Arc<PlainSchema>,
    env: &'env Env<WithTls>,
    /// Trees by plain table.
    trees: Vec<Tree<'env>>,
}

impl<'env> Engine for LmdbEngine<'env> {
    type Session<'e>
        = LmdbSession<'e, 'env>
    where
        Self: 'e;

    fn name(&self) -> &str {
        "lmdb"
    }
    fn isolation(&self) -> &str {
        "serializable"
    }
    fn settings(&self) -> Vec<(String, String)> {
        vec![("map_bytes".into(), MAP_BYTES.to_string()), ("flags".into(), "none".into())]
    }
    fn schema(&self) -> &Schema {
        self.layout.schema()
    }
    fn session(&self) -> Outcome<LmdbSession<'_, 'env>> {
        Ok(LmdbSession { engine: self, buffers: IndexBuffers::default() })
    }
}

/// A client.
pub struct LmdbSession<'e, 'env> {
    engine: &'e LmdbEngine<'env>,
    buffers: IndexBuffers,
}

impl<'env> Session for LmdbSession<'_, 'env> {
    type Transaction<'s>
        = Indexed<'s, LmdbTransaction<'s, 'env>>
    where
        Self: 's;

    fn begin(&mut self, access: Access) -> Outcome<Self::Transaction<'_>> {
        let txn = match access {
            Access::Read => Txn::Read(self.engine.env.read_txn().map_err(EngineError::fatal)?),
            Access::Write => Txn::Write(self.engine.env.write_txn().map_err(EngineError::fatal)?),
        };
        let transaction = LmdbTransaction { trees: &self.engine.trees, txn };
        Ok(Indexed::new(transaction, self.engine.layout.clone(), &mut self.buffers))
    }
}

enum Txn<'env> {
    Read(RoTxn<'env, WithTls>),
    Write(RwTxn<'env>),
}

/// A transaction of either kind.
pub struct LmdbTransaction<'s, 'env> {
    trees: &'s [Tree<'env>],
    txn: Txn<'env>,
}

impl<'env> LmdbTransaction<'_, 'env> {
    fn reader(&self) -> &RoTxn<'env> {
        match &self.txn {
            Txn::Read(txn) => txn,
            Txn::Write(txn) => txn,
        }
    }
    fn writer(&mut self) -> Outcome<&mut RwTxn<'env>> {
        match &mut self.txn {
            Txn::Write(txn) => Ok(txn),
            Txn::Read(_) => Err(EngineError::Fatal("a read transaction cannot write".into())),
        }
    }
}

impl PlainTransaction for LmdbTransaction<'_, '_> {
    fn get(&mut self, table: PlainTable, key: &[u8], row: &mut Vec<u8>) -> Outcome<bool> {
        row.clear();
        let found = self.trees[table.0].get(self.reader(), key).map_err(EngineError::fatal)?;
        row.extend_from_slice(found.unwrap_or_default());
        Ok(found.is_some())
    }

    fn insert(&mut self, table: PlainTable, key: &[u8], row: &[u8]) -> Outcome<bool> {
        let tree = self.trees[table.0];
        match tree.put_with_flags(self.writer()?, PutFlags::NO_OVERWRITE, key, row) {
            Ok(()) => Ok(true),
            Err(heed::Error::Mdb(MdbError::KeyExist)) => Ok(false),
            Err(error) => Err(EngineError::fatal(error)),
        }
    }

    fn put(&mut self, table: PlainTable, key: &[u8], row: &[u8]) -> Outcome<()> {
        let tree = self.trees[table.0];
        tree.put(self.writer()?, key, row).map_err(EngineError::fatal)
    }

    fn delete(&mut self, table: PlainTable, key: &[u8]) -> Outcome<bool> {
        let tree = self.trees[table.0];
        tree.delete(self.writer()?, key).map_err(EngineError::fatal)
    }

    fn scan(&mut self, table: PlainTable, scan: Scan<'_>, visit: Visitor<'_>) -> Outcome<()> {
        if scan.range.is_empty() {
            return Ok(());
        }
        // LMDB has no empty keys and refuses to look for one.
        let low = if scan.range.low.is_empty() { Bound::Unbounded } else { Bound::Included(scan.range.low) };
        let high =
            if scan.range.high.is_empty() { Bound::Unbounded } else { Bound::Excluded(scan.range.high) };
        let (tree, range) = (self.trees[table.0], (low, high));
        let mut show = |row: heed::Result<(&[u8], &[u8])>| {
            row.map(|(key, row)| visit(key, row) == Visit::Stop).map_err(EngineError::fatal)
        };
        if scan.reverse {
            for row in tree.rev_range(self.reader(), &range).map_err(EngineError::fatal)?.take(scan.limit) {
                if show(row)? {
                    break;
                }
            }
        } else {
            for row in tree.range(self.reader(), &range).map_err(EngineError::fatal)?.take(scan.limit) {
                if show(row)? {
                    break;
                }
            }
        }
        Ok(())
    }

    fn commit(self, _mode: CommitMode) -> Outcome<Commit> {
        if let Txn::Write(txn) = self.txn {
            txn.commit().map_err(EngineError::fatal)?;
        }
        Ok(Commit::Durable)
    }

    fn rollback(self) -> Outcome<()> {
        if let Txn::Write(txn) = self.txn {
            txn.abort();
        }
        Ok(())
    }
}
