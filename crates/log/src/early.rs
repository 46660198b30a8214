//! The archive's part in making log durable (3.7, figure 10): what it holds need not wait for the log's devices.
//!
//! Whoever archives appends log to a place of its own, durably, before the devices have it all, and says so with
//! [`Log::archived`]: those who wait for it are answered. The devices write the same log nevertheless, and its place in the
//! log buffer is not given to other log before that has begun, so what only the archive has is at most what the buffer and
//! the requests in flight hold.
//!
//! Invariants:
//! * `on_devices() <= durable() <= end()`; both move forward only, from one group's end to another's;
//! * the archive counts as one copy: log of which *r* copies are wanted is durable once it is archived and on *r* − 1 devices;
//! * truncation, seals, and whoever reads the devices go by `on_devices()` alone;
//! * that the archive may have log which the devices lack is durable before the archive writes such log: that is the
//!   caller's, who also hands the archive to the scan after a crash ([`crate::ArchiveUse::Needed`]).

use crate::flight::{Flight, WakeList};
use crate::pipeline::{Depth, Pipeline};
use crate::{Log, LogError};
use firn_base::Lsn;
use firn_base::clock;
use firn_base::sync::atomic::{AtomicU64, Ordering};
use firn_base::sync::{Condvar, Mutex};
use std::time::Duration;

/// Wakes the archive's thread when enough log has been appended.
#[derive(Default)]
pub(crate) struct Bell {
    /// It is rung by whoever appends to here or beyond; 0 while nobody listens.
    at: AtomicU64,
    rung: Mutex<bool>,
    wake: Condvar,
}

impl Bell {
    /// After an append that ended at `end`. One load, where nobody listens or there is too little log.
    pub fn appended(&self, end: Lsn) {
        let at = self.at.load(Ordering::Relaxed);
        if at != 0 && end.0 >= at {
            self.ring();
        }
    }

    fn ring(&self) {
        *self.rung.lock() = true;
        self.at.store(0, Ordering::Relaxed);
        self.wake.notify_all();
    }
}

impl Log {
    /// All log before this LSN is durable on the log's devices, on as many as are wanted. Never more than
    /// [`Log::durable`], which counts the archive as well.
    pub fn on_devices(&self) -> Lsn {
        self.pipeline.on_devices()
    }

    /// As [`Log::flush`], until the log's devices have all log before `lsn`, whatever the archive has.
    pub fn flush_to_devices(&self, lsn: Lsn) -> Result<(), LogError> {
        self.pipeline.flush_to(lsn, Depth::Devices)
    }

    /// Says that the archive has all log before `lsn`, the end of a group, durably. Whoever waits for it is answered; the
    /// devices go on to write it.
    pub fn archived(&self, lsn: Lsn) {
        self.pipeline.archived(lsn);
    }

    /// Whether anybody waits for log to become durable.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        let flight = self.pipeline.flight.lock();
        let durable = self.durable();
        flight.waiters.iter().any(|waiter| waiter.depth == Depth::Anywhere && waiter.lsn > durable)
    }

    /// Says whether log is archived before the devices have it. If so, slow writes to devices are left to the log's own
    /// threads, so that those who commit can be answered meanwhile.
    pub fn expect_archived(&self, early: bool) {
        self.pipeline.flight.lock().archive_completes = early;
    }

    /// Waits until the log has grown to `end`, or [`Log::stop_waiting_for_log`] is called, for at most `limit`. For one
    /// thread.
    pub fn wait_for_log(&self, end: Lsn, limit: Duration) {
        let bell = &self.pipeline.bell;
        let deadline = clock::now().after(limit);
        let mut rung = bell.rung.lock();
        bell.at.store(end.0.max(1), Ordering::SeqCst);
        while !*rung && self.end() < end {
            // Should an append be missed between the two, the limit ends the wait.
            let in_time = match deadline {
                Some(deadline) => bell.wake.wait_until(&mut rung, deadline),
                None => return,
            };
            if !in_time {
                break;
            }
        }
        *rung = false;
        bell.at.store(0, Ordering::Relaxed);
    }

    /// Ends a [`Log::wait_for_log`], or the next one.
    pub fn stop_waiting_for_log(&self) {
        self.pipeline.bell.ring();
    }
}

impl Pipeline {
    fn archived(&self, lsn: Lsn) {
        assert!(lsn <= self.end(), "only what was appended can be archived");
        let mut flight = self.flight.lock();
        if flight.failed.is_some() {
            // Who waited was told that the outcome is unknown.
            return;
        }
        flight.archived = flight.archived.max(lsn);
        let mut list = std::mem::take(&mut flight.scratch);
        self.acknowledge(&mut flight, None, &mut list);
        self.release(flight, list);
        // Nobody may wait for it any more, and the devices are to have it all the same.
        self.request_flush(lsn);
    }

    /// Says up to where the log is durable, if that is news, and gathers those who waited for it. `on_devices` is new, too.
    pub fn acknowledge(&self, flight: &mut Flight, on_devices: Option<Lsn>, list: &mut WakeList) {
        if let Some(lsn) = on_devices {
            assert!(lsn >= self.on_devices() && lsn <= self.end());
            self.set_on_devices(lsn);
        }
        let on_devices_now = self.on_devices();
        let durable = on_devices_now.max(flight.durable_with_archive()).max(self.durable());
        if on_devices.is_some() || durable > self.durable() {
            self.set_durable(durable);
            flight.settle(durable, on_devices_now, list);
        }
    }
}

impl Flight {
    /// Up to where the log is durable if the archive counts as one copy of what it has; [`Lsn::ZERO`] if it adds nothing.
    fn durable_with_archive(&self) -> Lsn {
        if self.archived == Lsn::ZERO {
            return Lsn::ZERO;
        }
        let mut reached = Lsn::ZERO;
        for request in self.requests() {
            if request.copies + 1 < request.needed {
                return reached;
            }
            if request.boundary > self.archived {
                // With one copy, any group's end will do; with several, the request's devices have all of it or none.
                return if request.needed == 1 { self.archived } else { reached };
            }
            reached = request.boundary;
        }
        // What no request holds is on no device yet.
        if self.width() == 1 { self.archived } else { reached }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Owner;
    use crate::flight::Slot;
    use crate::hiding::{Hider, Hiding, OutlierOptions};
    use crate::testing::memory_device;

    fn flight(copies: usize, archived: u64, requests: &[(u64, u64, u32)]) -> Flight {
        let hider = Hider::new(Hiding::Off, &OutlierOptions::default(), 1);
        let slot = |member| {
            let device = memory_device("log", 4096);
            Slot::new(device, Owner::main(7, member), firn_device::AlignedBuf::zeroed(512))
        };
        let mut flight = Flight::new((0..3).map(slot).collect(), copies, hider, Lsn(1), None);
        for &(carriers, boundary, written) in requests {
            let number = flight.begin(carriers, Lsn(1), Lsn(boundary));
            flight.unfinished_mut(number).expect("just begun").copies = written;
        }
        flight.archived = Lsn(archived);
        flight
    }

    #[test]
    fn the_archive_counts_as_one_copy() {
        // One copy: all that is archived, requested or not, whatever of a request it is.
        assert_eq!(flight(1, 0, &[(1, 50, 0)]).durable_with_archive(), Lsn(0));
        assert_eq!(flight(1, 90, &[(1, 50, 0), (2, 70, 0)]).durable_with_archive(), Lsn(90));
        assert_eq!(flight(1, 60, &[(1, 50, 0), (2, 70, 0)]).durable_with_archive(), Lsn(60));
        // Two copies: one device must have each request, and what was not requested does not count.
        assert_eq!(flight(2, 90, &[(3, 50, 0), (3, 70, 1)]).durable_with_archive(), Lsn(0));
        assert_eq!(flight(2, 90, &[(3, 50, 1), (3, 70, 0)]).durable_with_archive(), Lsn(50));
        assert_eq!(flight(2, 60, &[(3, 50, 1), (3, 70, 1)]).durable_with_archive(), Lsn(50));
        // Three: two devices.
        assert_eq!(flight(3, 90, &[(7, 50, 1)]).durable_with_archive(), Lsn(0));
        assert_eq!(flight(3, 90, &[(7, 50, 2)]).durable_with_archive(), Lsn(50));
    }
}
