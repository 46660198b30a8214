//! What is done with an engine once it is open, whichever it is.

use firndb::Deltas;
use firndb_workloads::{Engine, Outcome, Schema};
use std::path::PathBuf;

/// How every engine is opened.
#[derive(Clone, Debug)]
pub struct Settings {
    /// A directory of the engine's own; it exists.
    pub dir: PathBuf,
    /// DRAM for the engine's cache of data.
    pub cache_bytes: u64,
    /// Sessions that will be open at once.
    pub sessions: usize,
}

/// Something to do with an open engine. (A closure can't be generic over the engine's type.)
pub trait Job {
    /// The result of the job.
    type Output;
    /// Runs the job on `engine`.
    fn run<E: Engine>(self, engine: &E) -> Outcome<Self::Output>;
}

/// The engines built in.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Peer {
    /// Firn, its defaults.
    Firn,
    /// Firn, pages written whole.
    FirnOff,
    /// Firn, small changes written as deltas.
    FirnOn,
    /// Maps in memory, nothing durable: the workload's own cost.
    Memory,
    /// SQLite.
    Sqlite,
    /// redb.
    Redb,
    /// LMDB, through heed.
    Lmdb,
    /// RocksDB, through its C interface.
    #[cfg(feature = "rocksdb")]
    Rocksdb,
}

impl Peer {
    /// The engine's name in results, which is also its directory's.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Peer::Firn => "firn",
            Peer::FirnOff => "firn-off",
            Peer::FirnOn => "firn-on",
            Peer::Memory => "memory",
            Peer::Sqlite => "sqlite",
            Peer::Redb => "redb",
            Peer::Lmdb => "lmdb",
            #[cfg(feature = "rocksdb")]
            Peer::Rocksdb => "rocksdb",
        }
    }

    /// Whether it runs without being named: one engine is not compared with itself unasked.
    #[must_use]
    pub fn by_default(self) -> bool {
        !matches!(self, Peer::Memory | Peer::FirnOff | Peer::FirnOn)
    }

    /// Whether it lets one transaction write at a time, so that loading on several threads gains
    /// nothing.
    #[must_use]
    pub fn single_writer(self) -> bool {
        match self {
            Peer::Memory | Peer::Sqlite | Peer::Redb | Peer::Lmdb => true,
            Peer::Firn | Peer::FirnOff | Peer::FirnOn => false,
            #[cfg(feature = "rocksdb")]
            Peer::Rocksdb => false,
        }
    }

    /// Opens the engine, runs `job` on it and closes it.
    pub fn with<J: Job>(self, settings: &Settings, schema: &Schema, job: J) -> Outcome<J::Output> {
        match self {
            Peer::Firn => crate::firn::with(settings, None, schema, job),
            Peer::FirnOff => crate::firn::with(settings, Some(Deltas::Off), schema, job),
            Peer::FirnOn => crate::firn::with(settings, Some(Deltas::On), schema, job),
            Peer::Memory => job.run(&firndb_workloads::MemoryEngine::new(schema)),
            Peer::Sqlite => crate::sqlite::with(settings, schema, job),
            Peer::Redb => crate::redb::with(settings, schema, job),
            Peer::Lmdb => crate::lmdb::with(settings, schema, job),
            #[cfg(feature = "rocksdb")]
            Peer::Rocksdb => crate::rocksdb::with(settings, schema, job),
        }
    }
}
