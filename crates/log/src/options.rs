//! How a log is set up, and what it answers about itself.

use crate::LogPolicy;
use crate::hiding::{Hiding, HidingStatistics, OutlierOptions};
use firn_base::Lsn;
use std::time::Duration;

/// When a request is composed of the log that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Compose {
    /// When a device falls free: all log appended until then. Adapts to the devices' speed by itself.
    #[default]
    WhenDeviceFree,
    /// At the flush call, queued until a device falls free: the paper's policy (section 3.5).
    AtFlush,
}

/// How the log uses its memory and devices. Name the fields that matter and take the others from
/// `LogOptions::default()`.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Bytes of DRAM for log not yet handed to a device; at least 8 KiB. A group may take half of it.
    pub buffer_bytes: usize,
    /// Largest request in bytes: each device owns a buffer of this size.
    pub request_bytes: usize,
    /// When requests are composed.
    pub compose: Compose,
    /// Where they go.
    pub policy: LogPolicy,
    /// Whether threads of the log's own serve `request_flush` and write seal blocks when the log falls
    /// idle. Without, call `Log::step`.
    pub workers: bool,
    /// What is done about writes that take much too long, where there are two devices or more. A log created with
    /// `Off`, or on one device, has no areas for the other policies to write to, whatever it is opened with later.
    pub hiding: Hiding,
    /// What takes too long.
    pub outliers: OutlierOptions,
    /// On how many devices each request is written before it is acknowledged: 1 to 8. While fewer are in use, on all.
    pub copies: usize,
    /// The log fails when fewer devices than this are left in use.
    pub copies_required: usize,
    /// Wanted section size in bytes when a log is created; 0 chooses 1 MiB, less on small devices and
    /// more on those of over a GiB.
    pub section_bytes: u64,
    /// Share of the capacity, in percent, that only `Rollback` and `System` may use.
    pub rollback_reserve_percent: u32,
    /// Share of the capacity, in percent, that only `System` may use.
    pub system_reserve_percent: u32,
    /// How long nothing may be written before a seal block records what is durable.
    pub seal_after: Duration,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions {
            buffer_bytes: 4 << 20,
            request_bytes: 256 << 10,
            compose: Compose::default(),
            policy: LogPolicy::default(),
            workers: true,
            hiding: Hiding::default(),
            outliers: OutlierOptions::default(),
            copies: 1,
            copies_required: 1,
            section_bytes: 0,
            rollback_reserve_percent: 25,
            system_reserve_percent: 12,
            seal_after: Duration::from_millis(100),
        }
    }
}

/// Who asks for log space: what is reserved for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogClass {
    /// Work of transactions: refused first.
    Normal,
    /// Rolling back, ending transactions, structure changes on behalf of rollback: may use the reserve.
    Rollback,
    /// Checkpoints and page-map changes, which make space: may use the last of it.
    System,
}

/// Where a group was placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// LSN of the group's first record.
    pub first: Lsn,
    /// First LSN after the group; the record is durable once `durable() >= end`.
    pub end: Lsn,
}

/// Physical space of the online log, padding included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSpace {
    /// Bytes that the devices hold in all.
    pub capacity_bytes: u64,
    /// Bytes of it that hold log at or after the truncation point, or wait to be written.
    pub used_bytes: u64,
    /// Bytes that `Normal` appends may still take.
    pub normal_bytes: u64,
    /// Oldest LSN still kept.
    pub oldest: Lsn,
}

/// Counters since the log was opened.
#[derive(Clone, Debug, Default)]
pub struct LogStatistics {
    /// Records appended.
    pub records: u64,
    /// Bytes appended, without framing.
    pub appended_bytes: u64,
    /// Requests written to devices, seals included.
    pub requests: u64,
    /// Bytes written to devices, framing and padding included.
    pub written_bytes: u64,
    /// Requests by size: index i counts those of 2^i blocks of 512 B and up to twice as many less one.
    pub requests_by_size: [u64; 16],
    /// Seal blocks written.
    pub seals: u64,
    /// Times a thread waited in `flush` for a request of another.
    pub waits: u64,
    /// Times a waiting thread was woken to write the next request.
    pub hand_overs: u64,
    /// Times an append waited for buffer space.
    pub buffer_waits: u64,
    /// Appends refused for lack of space.
    pub refused: u64,
    /// Outliers and what became of them.
    pub hiding: HidingStatistics,
}
