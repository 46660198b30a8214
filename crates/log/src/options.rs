//! The log's options and statistics.

use crate::hedge::hiding::{Hiding, HidingStatistics};
use crate::hedge::outliers::OutlierOptions;
use crate::log_layout::LogLayout;
use crate::members::loss::LossHandler;
use firndb_base::Lsn;
use firndb_base::sync::Arc;
use std::time::Duration;

/// How the log uses its memory and devices. Set the fields that matter and take the others from
/// `LogOptions::default()`.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Bytes of DRAM for log not yet handed to a device; at least 8 KiB. A group may take half of
    /// it.
    pub buffer_bytes: usize,
    /// Largest request in bytes: each device has a buffer of this size.
    pub request_bytes: usize,
    /// How requests are composed and placed, if not as in the array.
    pub layout: Option<Arc<dyn LogLayout>>,
    /// Whether threads of the log's own serve `request_flush` and write seal blocks when the log
    /// becomes idle. Without them, call `Log::step`.
    pub workers: bool,
    /// What the log does about writes that take much too long, where there are two devices or more.
    /// A log created with `Off`, or on one device, has no areas for the other policies to write to,
    /// whatever it is opened with later.
    pub hiding: Hiding,
    /// What counts as an outlier.
    pub outliers: OutlierOptions,
    /// Number of devices that each request is written to before it is acknowledged: 1 to 8. While
    /// fewer are in use, all of them.
    pub copies: usize,
    /// The log fails when fewer devices than this are left in use.
    pub copies_required: usize,
    /// Decides what becomes of a device that fails, from the first write on: see
    /// [`crate::Log::on_device_lost`].
    pub on_device_lost: Option<LossHandler>,
    /// Requested section size in bytes when a log is created; 0 chooses 1 MiB, less on small
    /// devices and more on those of over a GiB.
    pub section_bytes: u64,
    /// Share of the capacity, in percent, that only `Rollback` and `System` may use.
    pub rollback_reserve_percent: u32,
    /// Share of the capacity, in percent, that only `System` may use.
    pub system_reserve_percent: u32,
    /// How long the log must be idle before a seal block records what is durable.
    pub seal_after: Duration,
    /// How long closing waits for one write that a device does not complete.
    pub close_patience: Duration,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions {
            buffer_bytes: 4 << 20,
            request_bytes: 256 << 10,
            layout: None,
            workers: true,
            hiding: Hiding::default(),
            outliers: OutlierOptions::default(),
            copies: 1,
            copies_required: 1,
            on_device_lost: None,
            section_bytes: 0,
            rollback_reserve_percent: 25,
            system_reserve_percent: 12,
            seal_after: Duration::from_millis(100),
            close_patience: Duration::from_secs(30),
        }
    }
}

impl LogOptions {
    /// Whether any device may write any log.
    pub(crate) fn takes_any_device(&self) -> bool {
        self.layout.as_ref().is_none_or(|layout| layout.takes_any_device())
    }

    /// Whether a request takes all log that waits, for any device.
    pub(crate) fn composes_as_array(&self) -> bool {
        self.takes_any_device() && !self.composes_at_flush()
    }

    /// Whether a flush call reserves the log before it as a request of its own.
    pub(crate) fn composes_at_flush(&self) -> bool {
        self.layout.as_ref().is_some_and(|layout| layout.composes_at_flush())
    }
}

/// The purpose of an append, which decides the reserves that it may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogClass {
    /// Work of transactions: refused first.
    Normal,
    /// A transaction's removal of rows: as `Normal` in the log, but may use a reserve of the store,
    /// so that a full one can be emptied.
    Removal,
    /// Rolling back, ending transactions, structure changes on behalf of rollback: may use the
    /// reserve for undo.
    Rollback,
    /// Checkpoints and page-map changes, which free space: may use all but what is set aside for
    /// decisions.
    System,
    /// The decision of a prepared transaction. Space was set aside for it when the transaction was
    /// prepared ([`crate::Log::decisions`]); every other class leaves that space.
    Decision,
}

/// Where a group was placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// LSN of the group's first record.
    pub first: Lsn,
    /// First LSN after the group; the record is durable once `durable() >= end`.
    pub end: Lsn,
}

/// Physical space of the online log, padding included; each byte once, however many copies of it
/// the devices hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogSpace {
    /// Total bytes that the devices hold.
    pub capacity_bytes: u64,
    /// Bytes of it that hold log at or after the truncation point, or are reserved for log still to
    /// be written.
    pub used_bytes: u64,
    /// Bytes that `Normal` appends may still take.
    pub normal_bytes: u64,
    /// Oldest LSN still kept.
    pub oldest: Lsn,
    /// Devices that a byte is written to.
    pub copies: usize,
}

impl LogSpace {
    /// Whether more than half of the space is in use, or less than twice of what makes it [tight]
    /// is left for `Normal` appends: open transactions may have set the rest aside.
    ///
    /// [tight]: LogSpace::is_tight
    #[must_use]
    pub fn is_filling(&self) -> bool {
        self.fills_within(0)
    }

    /// Whether it will be filling once `written` bytes more are written to the devices, copies
    /// included.
    #[must_use]
    pub fn fills_within(&self, written: u64) -> bool {
        let bytes = written / self.copies.max(1) as u64;
        self.used_bytes.saturating_add(bytes) > self.capacity_bytes / 2
            || self.normal_bytes < bytes.saturating_add(self.capacity_bytes / 8)
    }

    /// Whether so little is left for `Normal` appends that work which can wait should, and that
    /// writers should make space: the log keeps a reserve of its own behind it.
    #[must_use]
    pub fn is_tight(&self) -> bool {
        self.normal_bytes < self.capacity_bytes / 16
    }
}

/// Counters since the log was opened.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LogStatistics {
    /// Records appended.
    pub records: u64,
    /// Bytes appended, without framing.
    pub appended_bytes: u64,
    /// Requests written to devices, seals included.
    pub requests: u64,
    /// Bytes written to devices, framing and padding included.
    pub written_bytes: u64,
    /// Requests by size: index i counts those of 2^i blocks of 512 B and up to twice as many less
    /// one.
    pub requests_by_size: [u64; 16],
    /// Seal blocks written.
    pub seals: u64,
    /// Waits of threads in `flush` for another thread's request.
    pub waits: u64,
    /// Waiting threads woken to write as leader.
    pub hand_overs: u64,
    /// Appends that waited for buffer space.
    pub buffer_waits: u64,
    /// Appends refused for lack of space.
    pub refused: u64,
    /// Counters of outlier hiding.
    pub hiding: HidingStatistics,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_filling_by_what_is_used_or_set_aside() {
        let space = |used_bytes, normal_bytes, copies| LogSpace {
            capacity_bytes: 1600,
            used_bytes,
            normal_bytes,
            oldest: Lsn::FIRST,
            copies,
        };
        assert!(!space(800, 600, 1).is_filling());
        assert!(space(801, 600, 1).is_filling(), "more than half is in use");
        assert!(!space(500, 200, 1).is_filling());
        assert!(space(500, 199, 1).is_filling(), "open transactions have set the rest aside");
        assert!(!space(500, 199, 1).is_tight(), "before writers wait");
        assert!(!space(500, 400, 2).fills_within(400), "two copies of 200");
        assert!(space(500, 400, 1).fills_within(400));
        assert!(space(0, 1600, 0).fills_within(u64::MAX), "no device left");
    }
}
