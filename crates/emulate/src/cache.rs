//! A write cache: it acknowledges writes and drains them to the medium later.
//!
//! Draining occupies channels like other requests, all of them: what is drained is spread over the
//! chips. A disk drains in order, one write at a time, and requests that go to the medium take
//! precedence: each delays the draining by its own service time.

use crate::time::{ns, transfer_ns};
use firndb_profile::WriteCache;
use std::collections::VecDeque;

/// The cache and the writes in it.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    stated: WriteCache,
    /// For each write, in order: the time at which it is on the medium, less the value of `put_off`
    /// when it was added; its bytes. The time is negative if the delays add up to more than the
    /// time that has passed.
    waiting: VecDeque<(i64, u64)>,
    held_bytes: u64,
    /// Sum of all delays of the draining.
    put_off: u64,
    /// The time at which the last write is on the medium, less `put_off`.
    empty_at: i64,
}

impl Cache {
    /// An empty cache.
    pub fn new(stated: &WriteCache) -> Cache {
        Cache { stated: stated.clone(), waiting: VecDeque::new(), held_bytes: 0, put_off: 0, empty_at: 0 }
    }

    /// Whether the cache acknowledges a write.
    pub fn takes(&self, durable: bool) -> bool {
        !durable || self.stated.survives_power_cut || self.stated.acknowledges_durable
    }

    /// The moment stored as `relative`.
    fn moment(&self, relative: i64) -> u64 {
        self.put_off.saturating_add_signed(relative)
    }

    fn forget_written(&mut self, now: u64) {
        while let Some(&(done, bytes)) = self.waiting.front() {
            if self.moment(done) > now {
                break;
            }
            self.waiting.pop_front();
            self.held_bytes -= bytes;
        }
    }

    /// How long the whole medium is busy with draining a write.
    pub fn drain_ns(&self, bytes: u64, sequential: bool) -> u64 {
        let random = if sequential { 0.0 } else { self.stated.drain_random_us };
        ns(random) + transfer_ns(bytes, self.stated.drain_mb_s)
    }

    /// The moment at which a write of `now` is on a medium that drains one write after another.
    pub fn drained_at(&self, now: u64, bytes: u64, sequential: bool) -> u64 {
        self.moment(self.empty_at).max(now) + self.drain_ns(bytes, sequential)
    }

    /// Adds a write at `now` that will be on the medium at `written`; returns the moment at which
    /// the device acknowledges it.
    pub fn take(&mut self, now: u64, bytes: u64, written: u64) -> u64 {
        self.forget_written(now);
        let written = written.max(self.moment(self.empty_at));
        // The write fits when enough of the earlier ones is on the medium. A write larger than the
        // cache returns when all earlier ones and its own excess are written.
        let mut fits_at = now;
        let mut held = self.held_bytes;
        for &(done, earlier) in &self.waiting {
            if held + bytes <= self.stated.bytes {
                break;
            }
            held -= earlier;
            fits_at = self.moment(done);
        }
        if bytes > self.stated.bytes {
            fits_at = written.saturating_sub(transfer_ns(self.stated.bytes, self.stated.drain_mb_s)).max(now);
        }
        self.empty_at = written as i64 - self.put_off as i64;
        self.waiting.push_back((self.empty_at, bytes));
        self.held_bytes += bytes;
        fits_at + ns(self.stated.accept_us)
    }

    /// The medium is busy with something else for `service` nanoseconds.
    pub fn put_off(&mut self, now: u64, service: u64) {
        self.forget_written(now);
        if !self.waiting.is_empty() {
            self.put_off += service;
        }
    }

    /// The moment at which all that it holds at `now` is on the medium.
    pub fn safe_at(&mut self, now: u64) -> u64 {
        self.forget_written(now);
        if self.takes(true) || self.waiting.is_empty() {
            return now;
        }
        self.moment(self.empty_at).max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(survives_power_cut: bool) -> Cache {
        // 1 byte a nanosecond, 4096 bytes.
        Cache::new(&WriteCache {
            bytes: 4096,
            survives_power_cut,
            acknowledges_durable: false,
            accept_us: 0.01,
            drain_mb_s: 1000.0,
            drain_random_us: 1.0,
        })
    }

    fn take(cache: &mut Cache, now: u64, bytes: u64, sequential: bool) -> u64 {
        let written = cache.drained_at(now, bytes, sequential);
        cache.take(now, bytes, written)
    }

    #[test]
    fn writes_return_at_once_until_the_cache_is_full_then_at_the_mediums_pace() {
        let mut cache = cache(false);
        assert_eq!((0..4).map(|_| take(&mut cache, 0, 1024, true)).collect::<Vec<_>>(), [10, 10, 10, 10]);
        assert_eq!((0..3).map(|_| take(&mut cache, 0, 1024, true)).collect::<Vec<_>>(), [1034, 2058, 3082]);
        assert_eq!(take(&mut cache, 100_000, 1024, true), 100_010, "it has been emptied");
    }

    #[test]
    fn a_sync_waits_for_what_is_held_unless_the_cache_survives() {
        for (survives, safe) in [(false, 1024 + 1024 + 1000), (true, 0)] {
            let mut cache = cache(survives);
            take(&mut cache, 0, 1024, true);
            take(&mut cache, 0, 1024, false);
            assert_eq!(cache.safe_at(0), safe);
            assert_eq!(cache.safe_at(10_000), 10_000);
        }
    }

    #[test]
    fn reads_put_the_emptying_off() {
        let mut cache = cache(false);
        take(&mut cache, 0, 1024, true);
        cache.put_off(0, 500);
        assert_eq!(cache.safe_at(0), 1524);
        cache.put_off(2000, 500);
        assert_eq!(cache.safe_at(2000), 2000, "an empty cache is not put off");
        take(&mut cache, 2000, 1024, true);
        assert_eq!(cache.safe_at(2000), 3024);
    }

    #[test]
    fn a_write_larger_than_the_cache_returns_when_its_excess_is_written() {
        let mut cache = cache(false);
        assert_eq!(take(&mut cache, 0, 8192, true), 4096 + 10);
    }
}
