//! Overdue requests, and issuing them again on another device (hedged writes; 3.4, 3.5).
//!
//! Detection: a thread that waits for a request sets a timer for the time at which the request will
//! be overdue, so that nothing but a sleeping thread's timer is needed, with one client as with
//! many. In addition, each thread that finds a device free checks for overdue requests before it
//! takes new log. Older requests come before younger ones, as each stream's LSNs must not decrease.
//! A reissued request may become overdue again, at its new device.
//!
//! Only requests that a thread waits for are issued again, only on devices that are free, and only
//! if there is space for them. Hiding is optional: it may be left undone, and it cannot fail.

use crate::hedge::reissue::Need;
use crate::write::in_flight::Flight;
use crate::write::job::Job;
use crate::write::pipeline::Pipeline;
use firndb_base::Lsn;
use firndb_base::clock::{self, Moment};
use firndb_base::sync::Arc;
use std::time::Duration;

/// A request whose write takes too long.
#[derive(Clone, Copy, Debug)]
struct Overdue {
    number: u64,
    /// Index of the device that is writing it.
    device: usize,
    /// Whether it is worth hiding at any cost.
    is_stall: bool,
}

impl Pipeline {
    /// Composes the oldest overdue request once more, for another device. Only requests that the
    /// waiting threads need are considered, or that the caller needs, for which the log should be
    /// durable up to `lsn`.
    pub fn compose_reissue(&self, flight: &mut Flight, lsn: Lsn) -> Option<Job> {
        if !flight.may_reissue() {
            return None;
        }
        flight
            .overdue_writes(clock::now(), lsn)
            .into_iter()
            .find_map(|overdue| self.reissue_write(flight, overdue))
    }

    fn reissue_write(&self, flight: &mut Flight, overdue: Overdue) -> Option<Job> {
        let (from, devices) = flight.unfinished(overdue.number).map(|r| (r.from, r.devices))?;
        let bytes = Arc::clone(&flight.writing(overdue.device)?.bytes);
        flight.detect_overdue(overdue.device);
        let contended = flight.is_contended(self.end());
        let begun = bytes.begun()?;
        let overdue_bytes = &begun.buf[..begun.len];
        if !overdue.is_stall && !flight.hider().may_spend(begun.len as u64) {
            return None;
        }
        let in_main = self.options.layout.as_ref().is_some_and(|layout| layout.hedges_in_main_stream());
        for device in flight.devices_in_turn() {
            if devices & (1 << device) != 0 {
                // Two copies on one device are one.
                continue;
            }
            let Some(mut free) = flight.take_device(device) else { continue };
            let owner = if in_main { free.owner } else { free.owner.area() };
            let need = if overdue.is_stall { Need::Stall } else { Need::Outlier };
            let composed =
                self.front.lock().compose_again(device, owner, from, overdue_bytes, need, &mut free.buf);
            match composed {
                Some(composed) => {
                    let (number, slow) = (overdue.number, overdue.device);
                    return Some(flight.begin_again(free, composed, number, slow, contended));
                }
                None => flight.return_device(free),
            }
        }
        None
    }

    /// When a thread that is about to wait for `lsn` should check whether the write that it waits
    /// for is overdue; `None` if nothing in flight can be hedged any more.
    pub fn hedge_timer(&self, flight: &mut Flight, lsn: Lsn) -> Option<Moment> {
        if !flight.may_become_overdue() {
            return None;
        }
        let now = clock::now();
        let (due, limit) =
            (0..flight.slots().len()).filter_map(|device| flight.next_deadline(device, lsn, now)).min()?;
        if flight.set_timer(due, now).is_some() {
            // Another thread will check by then. In case that thread stops waiting before, this one
            // checks a little later.
            return due.after(limit / 4);
        }
        Some(due)
    }
}

impl Flight {
    /// First LSN of the oldest overdue request, if requests may be issued again now.
    pub fn first_overdue(&self) -> Option<Lsn> {
        if !self.may_reissue() {
            return None;
        }
        let overdue = self.overdue_writes(clock::now(), Lsn::ZERO).into_iter().next()?;
        self.unfinished(overdue.number).map(|request| request.from)
    }

    /// The overdue writes of requests that are needed up to `lsn` or by a waiter, oldest first.
    fn overdue_writes(&self, now: Moment, lsn: Lsn) -> Vec<Overdue> {
        let needed = self.last_awaited(lsn);
        let devices = 0..self.slots().len();
        let mut overdue: Vec<Overdue> =
            devices.filter_map(|device| self.overdue_write(device, now, needed)).collect();
        overdue.sort_unstable_by_key(|overdue| overdue.number);
        overdue
    }

    fn overdue_write(&self, device: usize, now: Moment, needed: Lsn) -> Option<Overdue> {
        let writing = self.writing(device)?;
        let number = writing.request?;
        let request = self.unfinished(number)?;
        if writing.reissued.is_some() || request.from >= needed {
            return None;
        }
        let took = now.since(writing.bytes.begun()?.at);
        let (outlier, stall) = self.hider().limits(device, writing.blocks);
        let is_stall = took >= stall;
        (is_stall || outlier.is_some_and(|limit| took >= limit)).then_some(Overdue {
            number,
            device,
            is_stall,
        })
    }

    /// The next time past `now` at which the write on `device` becomes overdue, if a waiter for
    /// `lsn` needs it, and how long after the write's begin that is.
    fn next_deadline(&self, device: usize, lsn: Lsn, now: Moment) -> Option<(Moment, Duration)> {
        let writing = self.writing(device)?;
        let request = self.unfinished(writing.request?)?;
        if writing.reissued.is_some() || request.from >= lsn {
            return None;
        }
        let (outlier, stall) = self.hider().limits(device, writing.blocks);
        let limits = outlier.into_iter().chain([stall]);
        // A write that no thread has begun yet cannot be overdue: check again after the shortest
        // time in which it could be.
        let begun = writing.bytes.begun().map_or(now, |begun| begun.at);
        limits.filter_map(|limit| Some((begun.after(limit)?, limit))).filter(|&(due, _)| due > now).min()
    }
}
