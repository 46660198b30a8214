//! Durability through the archive (3.7, figure 10): a commit whose log is archived need not wait
//! for the log's devices.
//!
//! The archiver appends log to its own files, durably, before the devices have all of it, and
//! reports that with [`Log::archived`]: the committers that wait for that log are then
//! acknowledged. The devices write the same log nevertheless, and its bytes in the log buffer are
//! not overwritten before that has begun. So log that only the archive has is at most what the
//! buffer and the requests in flight hold.
//!
//! Invariants:
//! * `on_devices() <= durable() <= end()`; both move forward only, from one group's end to
//!   another's;
//! * the archive counts as one copy: log that should have *r* copies is durable once it is archived
//!   and on *r* − 1 devices;
//! * truncation, seals, readers of the devices, and all that is written below DRAM (pages, the page
//!   map, checkpoints) use `on_devices()` alone;
//! * before the archive writes log that the devices may lack, the fact that it may hold such log is
//!   durable. The caller ensures that; it also passes the archive to the scan after a crash
//!   ([`crate::ArchiveUse::Needed`]).

use crate::error::LogError;
use crate::log::Log;
use crate::write::in_flight::Flight;
use crate::write::in_flight::waiter::Depth;
use crate::write::pipeline::Pipeline;
use firndb_base::Lsn;
use std::time::Duration;

impl Log {
    /// All log before this LSN is durable on the log's devices, with the required number of copies.
    /// Never more than [`Log::durable`], which counts the archive as well.
    pub fn on_devices(&self) -> Lsn {
        self.pipeline.on_devices()
    }

    /// As [`Log::flush`], but waits until the log's devices have all log before `lsn`, whatever the
    /// archive has.
    pub fn flush_to_devices(&self, lsn: Lsn) -> Result<(), LogError> {
        self.pipeline.flush_to(lsn, Depth::Devices)
    }

    /// Reports that the archive has all log before `lsn`, the end of a group, durably. The
    /// committers that wait for it are acknowledged; the devices continue to write it.
    pub fn archived(&self, lsn: Lsn) {
        self.pipeline.archived(lsn);
    }

    /// Whether any thread waits for log to become durable.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.pipeline.flight.lock().is_awaited()
    }

    /// Sets whether log is archived before the devices have it. If so, slow writes to devices are
    /// left to workers, so that committers can be acknowledged meanwhile.
    pub fn expect_archived(&self, early: bool) {
        self.pipeline.flight.lock().expect_archived(early);
    }

    /// Waits until the log has grown to `end` or [`Log::stop_waiting_for_log`] is called, at most
    /// for `limit`. For one thread.
    pub fn wait_for_log(&self, end: Lsn, limit: Duration) {
        self.pipeline.archiver_signal.wait(end, limit, || self.end());
    }

    /// Ends the current [`Log::wait_for_log`], or the next one.
    pub fn stop_waiting_for_log(&self) {
        self.pipeline.archiver_signal.signal();
    }
}

impl Pipeline {
    fn archived(&self, lsn: Lsn) {
        assert!(lsn <= self.end(), "only what was appended can be archived");
        let mut flight = self.flight.lock();
        if flight.failure().is_some() {
            // The waiting committers have been given the error that their outcome is unknown.
            return;
        }
        let moved = flight.archived_up_to(lsn, self.end());
        self.acknowledge(moved);
        let wakes = flight.take_wakes();
        self.unlock_and_wake(flight, wakes);
        // Perhaps no thread waits for this log any more, and the devices must write it all the
        // same.
        self.request_flush(lsn);
    }
}

impl Flight {
    /// The end of the durable log if the archive counts as one copy of what it has; [`Lsn::ZERO`]
    /// if it adds nothing.
    pub fn durable_with_archive(&self) -> Lsn {
        let archived = self.archived();
        if archived == Lsn::ZERO {
            return Lsn::ZERO;
        }
        let mut reached = Lsn::ZERO;
        for request in self.requests() {
            if request.copies_written + 1 < request.copies_required {
                return reached;
            }
            if request.boundary > archived {
                // With one copy, durability may end at any group's end. With several, a request's
                // devices have all of it or none.
                return if request.copies_required == 1 { archived } else { reached };
            }
            reached = request.boundary;
        }
        // Log that no request holds is on no device yet.
        if self.width() == 1 { archived } else { reached }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Owner;
    use crate::hedge::hiding::{Hider, Hiding};
    use crate::hedge::outliers::OutlierOptions;
    use crate::options::LogOptions;
    use crate::testing::memory_device;
    use crate::write::front::{Composed, Requested};
    use crate::write::gathering::Gathering;
    use crate::write::in_flight::rules::Rules;
    use crate::write::in_flight::slot::Slot;
    use firndb_base::sync::Arc;

    fn flight(copies: usize, archived: u64, requests: &[(u64, u64, u32)]) -> Flight {
        let hider = Hider::new(Hiding::Off, &OutlierOptions::default(), 1);
        let slot = |member| {
            let device = memory_device("log", 4096);
            Slot::new(device, Owner::main(7, member), firndb_device::AlignedBuf::zeroed(512))
        };
        let rules = Rules::of(&LogOptions { copies, ..LogOptions::default() });
        let gathering = Arc::new(Gathering::new(Lsn(1)));
        let mut flight = Flight::new((0..3).map(slot).collect(), rules, hider, Lsn(1), None, gathering);
        for &(devices, boundary, written) in requests {
            let composed =
                Composed { offset: 0, len: 512, rest: None, from: Lsn(1), boundary: Lsn(boundary) };
            let requested = Requested { end: Lsn(boundary), boundary: Lsn(boundary), lane: None };
            let task = flight.begin_request(0, devices, &composed, requested);
            for _ in 0..written {
                assert!(!flight.copy_written(task.request().expect("a request has a number")));
            }
        }
        let _ = flight.archived_up_to(Lsn(archived), Lsn(100));
        flight
    }

    #[test]
    fn the_archive_counts_as_one_copy() {
        // One copy: all archived log counts, requested or not, even part of a request.
        assert_eq!(flight(1, 0, &[(1, 50, 0)]).durable_with_archive(), Lsn(0));
        assert_eq!(flight(1, 90, &[(1, 50, 0), (2, 70, 0)]).durable_with_archive(), Lsn(90));
        assert_eq!(flight(1, 60, &[(1, 50, 0), (2, 70, 0)]).durable_with_archive(), Lsn(60));
        // Two copies: one device must have each request, and unrequested log does not count.
        assert_eq!(flight(2, 90, &[(3, 50, 0), (3, 70, 1)]).durable_with_archive(), Lsn(0));
        assert_eq!(flight(2, 90, &[(3, 50, 1), (3, 70, 0)]).durable_with_archive(), Lsn(50));
        assert_eq!(flight(2, 60, &[(3, 50, 1), (3, 70, 1)]).durable_with_archive(), Lsn(50));
        // Three: two devices.
        assert_eq!(flight(3, 90, &[(7, 50, 1)]).durable_with_archive(), Lsn(0));
        assert_eq!(flight(3, 90, &[(7, 50, 2)]).durable_with_archive(), Lsn(50));
    }
}
