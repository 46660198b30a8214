//! The table's invariants, as assertions.

use crate::write::in_flight::{Flight, Request};

/// Requests whose invariants are checked each time, from the oldest: many may queue behind one that
/// stalls.
const CHECKED: usize = 64;

impl Flight {
    /// Asserts the invariants that the module's head states. Debug builds call it wherever the
    /// threads to wake are taken: after each write that ends, each failure and each change of the
    /// devices.
    pub fn check(&self) {
        assert!(self.on_devices <= self.durable, "what the devices have is durable");
        assert!(self.sealed <= self.on_devices, "a seal records what the devices have");
        assert!(self.on_devices <= self.requested_boundary, "requests carry all that the devices have");
        assert!(self.jobs.len() <= self.slots.len(), "a device has one write at a time");
        for slot in &self.slots {
            assert!(slot.writing.is_none() || slot.buffer.is_none(), "a device that writes has no buffer");
            assert!(slot.writing.is_none() || self.hedges, "writes are recorded where they may be hedged");
        }
        if self.lanes.is_none() {
            self.check_requests();
        }
        if self.failed.is_some() {
            return;
        }
        if !self.stopping {
            let writing = self.slots.iter().filter(|slot| slot.is_writing()).count();
            let counted = writing + self.unsettled_losses - self.lost_writes;
            assert_eq!(self.outstanding_writes, counted, "each write in flight is counted once");
        }
        for waiter in &self.waiters {
            assert!(waiter.lsn > self.reached(waiter.depth), "a thread waits for log that is not durable");
        }
    }

    fn check_requests(&self) {
        let last = self.requests.back().map_or(self.on_devices, |request| request.boundary);
        assert_eq!(last, self.requested_boundary, "the last request ends where requested log does");
        let next = self.requests.front().map_or(last, |request| request.boundary);
        assert!(self.on_devices <= next, "log is on the devices up to the oldest request");
        let mut before: Option<&Request> = None;
        for (number, request) in (self.first_number..).zip(&self.requests).take(CHECKED) {
            assert!(before.is_some() || !request.done, "what is done in front is removed at once");
            assert!(before.is_none_or(|b| b.boundary <= request.boundary), "requests are in order");
            assert!(request.copies_required > 0 && request.devices != 0);
            assert_eq!(request.done, request.copies_written >= request.copies_required);
            let is_orphan = self.orphans.iter().any(|orphan| orphan.number == number);
            assert_eq!(
                !request.done && request.writes == 0,
                is_orphan,
                "an unfinished request is being written, or is an orphan"
            );
            before = Some(request);
        }
        let orphans = self.orphans.iter().map(|orphan| orphan.number);
        assert!(orphans.is_sorted(), "orphans are in the order of their requests");
    }
}
