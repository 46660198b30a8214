//! What a run found, as it is kept in files of results.

use super::bounds::{DriveTime, Requests};
use super::meter::Counts;
use crate::bench::ahead::Ahead;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Of a run of TPC-C.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Found {
    #[serde(rename = "virtual_seconds")]
    pub seconds: f64,
    pub commits: u64,
    #[serde(rename = "transactions_per_second")]
    pub per_second: f64,
    /// New-Orders a minute.
    #[serde(rename = "tpmC")]
    pub tpm: f64,
    /// Of all pages that DRAM missed, those that the cache had.
    pub hit_rate: f64,
    /// Of all dirty pages that left DRAM, those that the store was spared.
    pub write_reduction: f64,
    #[serde(rename = "duplicate_share")]
    pub duplicates: f64,
    /// Pages missed in a transaction.
    #[serde(rename = "misses_per_transaction")]
    pub misses: f64,
    #[serde(rename = "dirty_evictions_per_transaction")]
    pub dirty_out: f64,
    #[serde(rename = "write_backs_per_transaction")]
    pub write_backs: f64,
    pub flash: DeviceFound,
    pub store: DeviceFound,
    #[serde(rename = "map_reads_per_transaction")]
    pub map_reads: f64,
    /// Share of the clients' time in lock waits.
    pub lock_wait_share: f64,
    /// Attempts repeated, a transaction.
    #[serde(rename = "retries_per_transaction")]
    pub retries: f64,
    #[serde(rename = "batches_written_by_misses")]
    pub helped_batches: u64,
    /// Pages fixed in DRAM, and pages read from cache or store, by all clients.
    #[serde(rename = "fixes_per_transaction")]
    pub fixes: f64,
    #[serde(rename = "tier_reads_per_transaction")]
    pub tier_reads: f64,
    /// Rows that scanners read in a transaction of TPC-C.
    #[serde(rename = "scanned_rows_per_transaction")]
    pub scanned_rows: f64,
    pub read_ahead: Ahead,
    pub database_bytes: u64,
    pub frames: u64,
    pub cache_slots: u64,
    pub trace_hash: String,
}

/// What a device did in a run.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct DeviceFound {
    /// Of the time, with a request under way.
    pub utilization: f64,
    /// Time that channels or arms worked, microseconds a transaction.
    #[serde(rename = "busy_us_per_transaction")]
    pub busy_us: f64,
    /// Pages a second.
    #[serde(rename = "pages_per_second")]
    pub pages: f64,
    /// Reads in a transaction.
    #[serde(rename = "reads_per_transaction")]
    pub reads: f64,
    #[serde(rename = "writes_per_transaction")]
    pub writes: f64,
    #[serde(rename = "write_bytes_per_transaction")]
    pub write_bytes: f64,
    /// Of the bytes written, those of large requests that went on where the last one ended.
    #[serde(rename = "sequential_share_of_write_bytes")]
    pub sequential: f64,
    /// All its requests in a transaction, by kind.
    pub requests: Requests,
    /// What they would take of the whole drive if each kind had it alone.
    pub alone: DriveTime,
}

impl DeviceFound {
    pub fn of(counts: &Counts, busy: Duration, seconds: f64, commits: f64) -> DeviceFound {
        DeviceFound {
            utilization: counts.busy.as_secs_f64() / seconds,
            busy_us: busy.as_secs_f64() * 1e6 / commits,
            pages: (counts.read_pages + counts.write_pages) as f64 / seconds,
            reads: counts.reads as f64 / commits,
            writes: counts.writes as f64 / commits,
            write_bytes: counts.write_bytes as f64 / commits,
            sequential: counts.sequential_write_bytes as f64 / (counts.write_bytes as f64).max(1.0),
            requests: Requests::of(counts, commits),
            alone: DriveTime::default(),
        }
    }
}
