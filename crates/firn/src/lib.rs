//! Firn: an embeddable, transactional, flash-tiered storage engine.
//!
//! ```
//! # let dir = tempfile::tempdir()?;
//! let db = firndb::Database::open(dir.path().join("db"))?;
//! let fruit = db.create_table("fruit")?;
//! db.transact(|tx| {
//!     tx.put(&fruit, b"apple", b"red")?;
//!     tx.put(&fruit, b"pear", b"green")
//! })?;
//! let mut tx = db.snapshot();
//! let mut rows = tx.scan(&fruit, firndb::KeyRange::all(), firndb::Direction::Forward);
//! while let Some((key, value)) = rows.next(&mut tx)? {
//!     println!("{} is {}", key.escape_ascii(), value.escape_ascii());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! * [`Database`]: open, tables, transactions that run again after conflicts, close.
//! * [`Database::open_read_only`]: looking into a database, which leaves its files as they are.
//! * [`Transaction`]: reads, writes, scans, savepoints, commit (waiting or not), two-phase commit.
//! * [`Table`], [`TypedTable`], [`Index`]: named tables of bytes or of typed columns, with
//!   secondary indexes.
//! * [`query`]: filters, joins and sorting over typed tables, planned by what devices cost.
//! * [`PageFile`]: whole pages by number, under the same transactions.
//! * [`Options`]: memory, log, placement; the defaults suit one SSD.
//! * The feature `testing` is for tests, simulation and measurements: options that wrap devices and
//!   break rules, and devices that fail, crash and record.
//!
//! What is promised: a commit that returned is there after any crash; a transaction is there whole
//! or not at all; readers never wait for writers (except under serializable isolation). What the
//! medium may do to that is in `docs/fault-model.md`.
//!
//! Place in the stack: the top. This crate alone sees all layers: it opens, recovers, takes
//! checkpoints and runs the threads; it decides how much log is retained. Within it, imports lead
//! downward only:
//!
//! ```text
//! database, device, transaction, table, statistics, check, …   the facade: what users hold
//! backup/     the archive of the log, base backups, restoring
//! engine/     opening, recovery, checkpoints, devices, threads
//! options/, error, ranks                                      leaves that all of them use
//! ```
#![forbid(unsafe_code)]

mod advice;
mod analyze;
mod backup;
mod cache_devices;
mod check;
mod compact;
mod compact_numbers;
mod database;
pub mod device;
mod dump;
mod engine;
mod error;
#[cfg(doctest)]
mod guide;
mod layout;
mod layouts;
mod load;
mod log_devices;
mod named_device;
mod options;
mod page_file;
mod page_set;
pub mod query;
mod ranks;
mod statistics;
mod store_devices;
mod store_loads;
mod table;
mod transaction;

pub use advice::{Advice, MemoryCosts, MemoryUse, Purchase, Verdict};
pub use backup::archive_survey::survey_archive;
pub use backup::base_backup::{BackupProgress, BackupReport, verify_backup};
pub use backup::restore::{RestoreReport, RestoreTo};
pub use cache_devices::{CacheMemberState, CacheSpec, CacheStatus, cache_status};
pub use check::{CheckPhase, CheckReport};
pub use compact::{CompactPlan, CompactProgress, CompactReport};
pub use database::Database;
pub use dump::DumpWhat;
pub use engine::archiver::ArchiveStatistics;
pub use engine::devices::Devices;
pub use engine::recovery_report::{RecoveryCost, RecoveryReport, RedoCounts};
pub use engine::recovery_time::{CheckpointLimit, ReadRateOrigin, RestartEstimate};
pub use error::{Error, ErrorKind};
pub use firndb_buffer::{BufferStatistics, MissCurve};
pub use layout::Layout;
pub use layouts::MoveReport;
pub use log_devices::{LogArrayStatus, LogMember, LogMemberState, log_status};
pub use options::Options;
pub use options::archive::{ArchiveFull, ArchiveSettings};
pub use options::cache::CacheSettings;
pub use options::callbacks::{
    LogEvent, LogEventKind, RecoveryPhase, RecoveryProgress, StoreEvent, StoreEventKind,
};
pub use options::log::LogSettings;
pub use options::profiled::{Setting, SettingOrigin};
pub use options::tuning::{Deltas, Placement, Tuning};
pub use page_file::PageFile;
pub use statistics::{IoCounts, IoTotal, Statistics};
pub use store_devices::{ScrubReport, StoreArrayStatus, StoreDevice, StoreMemberState, store_status};
pub use store_loads::{FragmentCost, StoreLoads, TableLoad};
pub use table::{
    Cursor, Index, IndexCursor, KeyValue, Table, TableSpec, TypedCursor, TypedTable, UnorderedIndexCursor,
};
pub use transaction::{Commit, Transaction};

pub use firndb_base::{DatabaseId, Lsn, PageId, Progress, TreeId, TxnId};
pub use firndb_btree::Direction;
pub use firndb_log::archive::{SegmentInfo as ArchiveSegment, Survey as ArchiveSurvey};
pub use firndb_log::{DeviceHiding, Hiding, HidingStatistics, LogLayout, LogSpace, LogStatistics};
pub use firndb_profile::DeviceProfile;
pub use firndb_table::{
    AnalyzeProgress, Column, ColumnType, IndexPart, IndexParts, IndexRow, IndexSpec, IndexStatistics,
    KeyColumn, KeyRange, MAX_VALUE_LEN, RowCount, Rows, SampledRow, Schema, TableError, TableErrorKind,
    TableKind, TableStatistics, Value, ValueRef, WINDOWS as STATISTICS_WINDOWS,
};
pub use firndb_tier::cache::{CacheShape, Face};
pub use firndb_tier::page_cache::header::CacheId;
pub use firndb_tier::page_cache::policy::CachePolicy;
pub use firndb_tier::page_cache::statistics::CacheStatistics;
pub use firndb_tier::{CacheKind, TierError, TierErrorKind, TierStatistics};
pub use firndb_txn::{
    CancelToken, Isolation, PageRecovery, Savepoint, SetAside, TxnOptions as TransactionOptions,
    TxnStatistics as TransactionStatistics,
};

/// The README's example compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
