//! Counters and state of an open database.

use crate::database::Database;
use crate::engine::archiver::ArchiveStatistics;
use crate::engine::recovery_report::RecoveryReport;
use crate::engine::recovery_time::RestartEstimate;
use crate::log_devices::LogArrayStatus;
use crate::options::profiled::Setting;
use crate::store_devices::StoreArrayStatus;
use crate::store_loads::StoreLoads;
use firndb_base::Lsn;
use firndb_buffer::BufferStatistics;
use firndb_device::{Counting, DeviceCounts};
use firndb_log::{LogSpace, LogStatistics};
use firndb_tier::page_cache::statistics::CacheStatistics;
use firndb_tier::{PageTier, TierStatistics};
use firndb_txn::{SetAside, TxnStatistics};

/// I/O since the database was opened, by tier.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct IoCounts {
    /// Of each log device.
    pub logs: Vec<DeviceCounts>,
    /// Of the page store.
    pub store: DeviceCounts,
    /// Of the superblock.
    pub superblock: DeviceCounts,
    /// Of the flash cache.
    pub cache: Option<DeviceCounts>,
}

/// Write operations, write bytes, read operations and read bytes of one tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IoTotal {
    /// Write calls.
    pub write_ops: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Read calls.
    pub read_ops: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Syncs, and writes that were durable by themselves.
    pub flushes: u64,
}

impl IoTotal {
    fn of<'a>(counts: impl IntoIterator<Item = &'a DeviceCounts>) -> IoTotal {
        counts.into_iter().fold(IoTotal::default(), |total, counts| IoTotal {
            write_ops: total.write_ops + counts.writes.ops,
            write_bytes: total.write_bytes + counts.writes.bytes,
            read_ops: total.read_ops + counts.reads.ops,
            read_bytes: total.read_bytes + counts.reads.bytes,
            flushes: total.flushes + counts.flushes(),
        })
    }
}

impl IoCounts {
    /// All log devices together.
    #[must_use]
    pub fn log_total(&self) -> IoTotal {
        IoTotal::of(&self.logs)
    }
    /// The page store.
    #[must_use]
    pub fn store_total(&self) -> IoTotal {
        IoTotal::of([&self.store])
    }
    /// The flash cache.
    #[must_use]
    pub fn cache_total(&self) -> IoTotal {
        IoTotal::of(&self.cache)
    }
    /// The counts since `earlier`, taken of the same database in the same opening.
    #[must_use]
    pub fn since(&self, earlier: &IoCounts) -> IoCounts {
        IoCounts {
            logs: self.logs.iter().zip(&earlier.logs).map(|(now, then)| now.since(then)).collect(),
            store: self.store.since(&earlier.store),
            superblock: self.superblock.since(&earlier.superblock),
            cache: self.cache.as_ref().map(|cache| match &earlier.cache {
                Some(earlier) => cache.since(earlier),
                None => *cache,
            }),
        }
    }
}

/// Counters and state of an open database.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Statistics {
    /// The database's id, in hexadecimal.
    pub database: String,
    /// How often it has been opened after its creation, plus one.
    pub epoch: u32,
    /// Bytes of a page.
    pub page_size: usize,
    /// Names of its tables.
    pub tables: Vec<String>,
    /// Transactions.
    pub txn: TxnStatistics,
    /// The buffer pool.
    pub buffer: BufferStatistics,
    /// The page store.
    pub store: TierStatistics,
    /// The flash cache, if there is one.
    pub cache: Option<CacheStatistics>,
    /// The log.
    pub log: LogStatistics,
    /// The log's devices and copies.
    pub log_array: LogArrayStatus,
    /// The log's space.
    pub log_space: LogSpace,
    /// LSN of the next log record.
    pub log_end: Lsn,
    /// Everything before is durable.
    pub log_durable: Lsn,
    /// The last checkpoint record, and where redo would start.
    pub checkpoint: (Lsn, Lsn),
    /// Bytes of log between checkpoints.
    pub checkpoint_interval: u64,
    /// What a restart after a crash would take now.
    pub restart: RestartEstimate,
    /// Log devices: name and bytes.
    pub log_devices: Vec<(String, u64)>,
    /// The store's device: name and bytes.
    pub store_device: (String, u64),
    /// The store's devices, if it has several.
    pub store_array: Option<StoreArrayStatus>,
    /// What tables asked of the store, if it has several devices.
    pub store_loads: Option<StoreLoads>,
    /// The name of the flash cache's kind.
    pub cache_kind: Option<String>,
    /// The flash cache's device: name and bytes.
    pub cache_device: Option<(String, u64)>,
    /// I/O since opening.
    pub io: IoCounts,
    /// The archive, if there is one.
    pub archive: Option<ArchiveStatistics>,
    /// What recovery did at opening.
    pub recovery: RecoveryReport,
    /// Background work that met damage and is left until the next opening: the first pieces, and
    /// how many in all.
    pub set_aside: (Vec<SetAside>, u64),
    /// Of a database opened read-only: bytes in its overlay, in DRAM and in a temporary file.
    pub kept_aside: Option<(u64, u64)>,
    /// Settings that devices decide, with their origins.
    pub settings: Vec<Setting>,
}

impl Database {
    /// I/O since the database was opened.
    #[must_use]
    pub fn io_counts(&self) -> IoCounts {
        let devices = &self.engine().devices;
        IoCounts {
            logs: devices.logs.list().iter().map(|(_, log)| log.snapshot()).collect(),
            store: devices.store.snapshot(),
            superblock: devices.superblock.snapshot(),
            cache: devices.cache_counted().map(|cache| cache.snapshot()),
        }
    }

    /// State of the archive, if there is one.
    #[must_use]
    pub fn archive_statistics(&self) -> Option<ArchiveStatistics> {
        let engine = self.engine();
        engine.archive.as_ref().map(|archive| archive.statistics(engine))
    }

    /// Background work that met damage and is left until the next opening: the first pieces, and
    /// how many in all.
    #[must_use]
    pub fn work_set_aside(&self) -> (Vec<SetAside>, u64) {
        self.engine().work_set_aside()
    }

    /// Counters and state of every layer.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let engine = self.engine();
        let (database, epoch, page_size, checkpoint, cache_kind) = {
            let superblock = engine.superblock.lock();
            let checkpoint = (superblock.checkpoint, superblock.redo_start);
            // The epoch of a read-only opening is never written.
            let epoch = superblock.epoch().0 - u32::from(engine.is_read_only());
            let cache_kind = superblock.extensions.cache.as_ref().map(|cache| cache.kind.clone());
            (superblock.database.to_string(), epoch, superblock.page_size, checkpoint, cache_kind)
        };
        let txn = engine.txns.statistics();
        let log_devices = engine.devices.logs.list();
        Statistics {
            database,
            epoch,
            page_size,
            tables: self.table_names(),
            buffer: engine.pool.statistics(),
            store: engine.store.statistics(),
            log: engine.log.statistics(),
            log_array: self.log_array(),
            log_space: engine.log.space(),
            log_end: engine.log.end(),
            log_durable: engine.log.durable(),
            checkpoint,
            checkpoint_interval: engine.checkpointer.interval(),
            restart: engine.restart_estimate(),
            log_devices: log_devices.iter().map(|(_, log)| named(log)).collect(),
            store_device: named(&engine.devices.store),
            store_array: self.store_array(),
            store_loads: self.store_loads(),
            cache_kind,
            cache: engine.tier.cache().map(|cache| cache.cache_statistics()),
            cache_device: engine.devices.cache_counted().map(|cache| named(&cache)),
            io: self.io_counts(),
            archive: self.archive_statistics(),
            recovery: self.recovery_report(),
            set_aside: self.work_set_aside(),
            kept_aside: engine.options.overlay.as_ref().map(|space| space.used()),
            settings: engine.options.settings(self.directory(), log_devices.len(), txn.shadows_above),
            txn,
        }
    }
}

fn named(device: &Counting) -> (String, u64) {
    use firndb_device::Device;
    (device.info().name.clone(), device.len())
}
