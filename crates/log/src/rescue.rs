//! Requests that take too long, and writing them again on another device (3.4, 3.5).
//!
//! Who notices: a thread that waits for a request sets an alarm for the time at which it will be late, so that
//! nothing but a sleeping thread's timer is needed, with one client as with many; and everybody who finds a device free
//! looks for late requests before it takes new log. Older requests come before younger ones, as each stream's LSNs
//! must not decrease. A re-issued request may be late again, at its new device.
//!
//! Only requests that somebody waits for are written again, only on devices that are free, and never if there is no
//! room for it: hiding may be left undone, it cannot fail.

use crate::block::Owner;
use crate::flight::{Flight, Slot};
use crate::hiding::Hiding;
use crate::job::{Job, Task};
use crate::pipeline::Pipeline;
use crate::reissue::Need;
use firn_base::Lsn;
use firn_base::clock::{self, Moment};
use firn_base::sync::Arc;

/// A request whose write takes too long.
#[derive(Clone, Copy, Debug)]
struct Late {
    number: u64,
    /// Where it is being written.
    device: usize,
    /// Whether it is worth hiding at any cost.
    is_stall: bool,
}

impl Pipeline {
    fn may_rescue(&self, flight: &Flight) -> bool {
        flight.hider.is_active() && flight.is_busy() && flight.has_idle_device() && flight.failed.is_none()
    }

    /// The LSN from which on the oldest late request carries log, if it may be written again.
    pub fn first_late(&self, flight: &Flight) -> Option<Lsn> {
        if !self.may_rescue(flight) {
            return None;
        }
        let late = flight.late(clock::now(), Lsn::ZERO).into_iter().next()?;
        flight.unfinished(late.number).map(|request| request.from)
    }

    /// Composes once more the oldest request that is late, for another device: of those that the waiting threads
    /// need, or the caller, who wants the log durable up to `lsn`.
    pub fn take_late(&self, flight: &mut Flight, lsn: Lsn) -> Option<Job> {
        if !self.may_rescue(flight) {
            return None;
        }
        flight.late(clock::now(), lsn).into_iter().find_map(|late| self.issue_again(flight, late))
    }

    fn issue_again(&self, flight: &mut Flight, late: Late) -> Option<Job> {
        let count = flight.slots.len();
        let (from, carriers) = flight.unfinished(late.number).map(|r| (r.from, r.carriers))?;
        let writing = flight.slots[late.device].writing.as_mut()?;
        let bytes = Arc::clone(&writing.bytes);
        if !std::mem::replace(&mut writing.detected, true) {
            flight.hider.detect();
        }
        let contended = self.is_contended(flight);
        let begun = bytes.begun()?;
        let late_bytes = &begun.buf[..begun.len];
        if !late.is_stall && !flight.hider.may_spend(begun.len as u64) {
            return None;
        }
        for i in 0..count {
            let device = (flight.next_device + i) % count;
            if carriers & (1 << device) != 0 {
                // Two copies on one device are one.
                continue;
            }
            let Some(mut buf) = flight.take_buffer(device) else { continue };
            let owner = second_owner(flight.hider.policy(), flight.slots[device].owner);
            let need = if late.is_stall { Need::Stall } else { Need::Outlier };
            let composed = self.front.lock().compose_again(device, owner, from, late_bytes, need, &mut buf);
            let Some(composed) = composed else {
                flight.slots[device].buffer = Some(buf);
                continue;
            };
            flight.hider.reissue(composed.len as u64);
            if let Some(writing) = &mut flight.slots[late.device].writing {
                writing.reissued = Some(contended);
            }
            flight.carry(late.number, device);
            let task = Task::Again { request: late.number, slow: late.device };
            return Some(self.job(flight, device, buf, composed, task));
        }
        None
    }

    /// When a thread that is about to wait for `lsn` had best look whether what it waits for is late; `None` if nothing
    /// in flight can be hidden any more.
    pub fn alarm(&self, flight: &mut Flight, lsn: Lsn) -> Option<Moment> {
        if !flight.hider.is_active() || !flight.is_busy() {
            return None;
        }
        let now = clock::now();
        let (due, limit) = (0..flight.slots.len()).filter_map(|device| flight.due(device, lsn, now)).min()?;
        if flight.alarm.is_some_and(|set| set > now && set <= due) {
            // Another thread will look by then. Should its own wait end before, this one looks a little later.
            return due.after(limit / 4);
        }
        flight.alarm = Some(due);
        Some(due)
    }
}

/// The stream of the device with main stream `main` that takes what is written again.
fn second_owner(policy: Hiding, main: Owner) -> Owner {
    match policy {
        Hiding::Naive => main,
        Hiding::Off | Hiding::TwoStream | Hiding::Adaptive => main.area(),
    }
}

impl Flight {
    /// The late requests that are needed up to `lsn` or by a waiter, oldest first.
    fn late(&self, now: Moment, lsn: Lsn) -> Vec<Late> {
        let needed = self.waiters.iter().map(|w| w.lsn).fold(lsn, Lsn::max);
        let carriers = self.slots.iter().enumerate();
        let mut late: Vec<Late> =
            carriers.filter_map(|(device, slot)| self.is_late(device, slot, now, needed)).collect();
        late.sort_unstable_by_key(|late| late.number);
        late
    }

    fn is_late(&self, device: usize, slot: &Slot, now: Moment, needed: Lsn) -> Option<Late> {
        let writing = slot.writing.as_ref()?;
        let number = writing.request?;
        let request = self.unfinished(number)?;
        if writing.reissued.is_some() || request.from >= needed {
            return None;
        }
        let took = now.since(writing.bytes.begun()?.at);
        let (outlier, stall) = self.hider.limits(device, writing.blocks);
        let is_stall = took >= stall;
        (is_stall || outlier.is_some_and(|limit| took >= limit)).then_some(Late { number, device, is_stall })
    }

    /// The next moment past `now` at which what `device` writes is late, if a waiter for `lsn` needs it, and how long
    /// that is after the write's begin.
    fn due(&self, device: usize, lsn: Lsn, now: Moment) -> Option<(Moment, std::time::Duration)> {
        let writing = self.slots[device].writing.as_ref()?;
        let request = self.unfinished(writing.request?)?;
        if writing.reissued.is_some() || request.from >= lsn {
            return None;
        }
        let (outlier, stall) = self.hider.limits(device, writing.blocks);
        let limits = outlier.into_iter().chain([stall]);
        // A write that no thread has taken up yet cannot be late: look again after the time in which it could.
        let begun = writing.bytes.begun().map_or(now, |begun| begun.at);
        limits.filter_map(|limit| Some((begun.after(limit)?, limit))).filter(|&(due, _)| due > now).min()
    }
}
