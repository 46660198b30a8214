//! Reads that complete one by one.
//!
//! A thread begins reads of a device ([`Device::begin_read`](crate::Device::begin_read)) and takes
//! each when it is complete ([`Device::next_read`](crate::Device::next_read)). A read's
//! memory is handed over with it and comes back with it, so that a thread need not wait for a late
//! one: what is under way has its memory here.
//!
//! Invariants: every read that was begun is taken once, in the order of completion; memory that a
//! device may still write to is not freed: dropping this waits for the kernel.

use crate::aligned::AlignedBuf;
use crate::error::DeviceError;
use crate::ring_reads::RingReads;
use firndb_base::clock::{self, Moment};
use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;

/// A read of whole blocks.
#[derive(Debug)]
pub struct OwnedRead {
    /// Byte offset on the device.
    pub offset: u64,
    /// Bytes, at the beginning of `buf`.
    pub len: usize,
    /// At least `len` bytes.
    pub buf: AlignedBuf,
    /// By which the caller knows it.
    pub tag: u64,
}

/// A read that is complete.
#[derive(Debug)]
pub struct ReadDone {
    /// With the bytes, if it succeeded.
    pub read: OwnedRead,
    /// How it went.
    pub outcome: Result<(), DeviceError>,
}

/// Reads that one thread has under way on one device.
#[derive(Debug, Default)]
pub struct InFlight {
    /// Complete.
    done: VecDeque<ReadDone>,
    /// Complete from a moment on; of several, those that were begun first.
    timed: BTreeMap<(Moment, u64), ReadDone>,
    /// Reads that were given a moment.
    given_moments: u64,
    /// Those that the kernel has.
    pub(crate) ring: Option<RingReads>,
    /// Those of a device that reads several others.
    composed: Option<Box<dyn Composed>>,
}

/// What a device that reads several others keeps of the reads under way on it: theirs, and how they
/// make up its own.
pub trait Composed: Any + Send + Debug {
    /// Reads that were begun and are not complete.
    fn count(&self) -> usize;
}

impl InFlight {
    /// Reads that were begun and not taken.
    #[must_use]
    pub fn count(&self) -> usize {
        let composed = self.composed.as_ref().map_or(0, |composed| composed.count());
        self.done.len() + self.timed.len() + self.ring.as_ref().map_or(0, RingReads::count) + composed
    }

    /// For a device over several others: what it put here, to be put back.
    pub fn take_composed<T: Composed>(&mut self) -> Option<Box<T>> {
        let composed: Box<dyn Any> = self.composed.take()?;
        Some(composed.downcast().expect("reads under way are used with one device only"))
    }

    /// For a device over several others: keeps this with the reads under way.
    pub fn put_composed(&mut self, composed: Box<dyn Composed>) {
        self.composed = Some(composed);
    }

    /// For a device: the read is complete.
    pub fn complete(&mut self, read: OwnedRead, outcome: Result<(), DeviceError>) {
        self.done.push_back(ReadDone { read, outcome });
    }

    /// For a device: the read is complete from `moment` on.
    pub fn complete_at(&mut self, moment: Moment, read: OwnedRead, outcome: Result<(), DeviceError>) {
        self.given_moments += 1;
        self.timed.insert((moment, self.given_moments), ReadDone { read, outcome });
    }

    /// For a device: when the next one with a moment is complete.
    #[must_use]
    pub fn next_moment(&self) -> Option<Moment> {
        self.timed.first_key_value().map(|((moment, _), _)| *moment)
    }

    /// For a device: takes one that is complete by `now`.
    pub fn take(&mut self, now: Moment) -> Option<ReadDone> {
        self.take_done().or_else(|| {
            let first = self.timed.first_entry()?;
            (first.key().0 <= now).then(|| first.remove())
        })
    }

    /// For a device: takes one that is complete without a moment.
    pub fn take_done(&mut self) -> Option<ReadDone> {
        self.done.pop_front()
    }

    /// What [`Device::next_read`](crate::Device::next_read) does where reads are complete as soon
    /// as they are begun, or from a moment on that `wait_until` waits for.
    pub fn next(&mut self, until: Option<Moment>, wait_until: impl Fn(Moment)) -> Option<ReadDone> {
        // What is complete already is taken without a wait: even one for a moment that has passed
        // gives way to other threads, and in a simulation time passes by that.
        if let Some(done) = self.take(clock::now()) {
            return Some(done);
        }
        let moment = self.next_moment()?;
        let end = until.map_or(moment, |until| until.min(moment));
        wait_until(end);
        self.take(clock::now().max(end))
    }

    /// As [`InFlight::next`], sleeping.
    pub(crate) fn next_sleeping(&mut self, until: Option<Moment>) -> Option<ReadDone> {
        self.next(until, clock::sleep_until)
    }
}
