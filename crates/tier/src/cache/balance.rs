//! Which drive is short of time, the cache's or the store's, and what follows from it.
//!
//! An image that stays in the cache for another round costs a read and a write of the cache's
//! drive, and spares the store a write or a later read. That pays while the store's drive is what
//! transactions wait for. Of two drives, the one of which a transaction takes more time bounds the
//! throughput, so nothing stays while that is the cache's drive and it is busy: then a transaction
//! takes less of the cache's drive and more of the store's, until they are even.
//!
//! A drive's time is computed: requests of each kind, times what its profile says that one takes.
//! Waits would be the wrong measure: a hit waits behind writes of groups on any drive.

use super::policy::Chances;
use super::state::{FlashCache, Ring};
use crate::page_cache::drive_times::DriveTimes;
use firndb_base::clock::{self, Moment};
use firndb_base::sync::atomic::Ordering::Relaxed;

/// Requests since the cache was opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Requests {
    pub cache_page_reads: u64,
    pub cache_group_reads: u64,
    pub cache_group_writes: u64,
    pub store_page_reads: u64,
    pub store_page_writes: u64,
}

/// Groups over which what was measured fades to a third.
const FADING: f64 = 32.0;
/// The cache's drive is busy if requests took this share of the time. Less than 1, since the times
/// are those of a drive with more requests waiting than clients may have.
const BUSY: f64 = 0.7;

/// The time of both drives, lately.
#[derive(Debug)]
pub(crate) struct Balance {
    times: DriveTimes,
    last: Requests,
    at: Moment,
    cache_us: f64,
    store_us: f64,
    passed_us: f64,
}

impl Balance {
    pub(crate) fn new(times: DriveTimes, requests: Requests, now: Moment) -> Balance {
        Balance { times, last: requests, at: now, cache_us: 0.0, store_us: 0.0, passed_us: 0.0 }
    }

    /// Takes in what was requested since the last call, one group replaced ago.
    pub(crate) fn update(&mut self, requests: Requests, now: Moment) {
        let since = |of: fn(&Requests) -> u64| of(&requests).saturating_sub(of(&self.last)) as f64;
        let times = &self.times;
        let cache_us = since(|requests| requests.cache_page_reads) * times.cache_page_read
            + since(|requests| requests.cache_group_reads) * times.cache_group_read
            + since(|requests| requests.cache_group_writes) * times.cache_group_write;
        let store_us = since(|requests| requests.store_page_reads) * times.store_page_read
            + since(|requests| requests.store_page_writes) * times.store_page_write;
        let passed_us = now.since(self.at).as_secs_f64() * 1e6;
        let fade = |sum: &mut f64, more: f64| *sum += more - *sum / FADING;
        fade(&mut self.cache_us, cache_us);
        fade(&mut self.store_us, store_us);
        fade(&mut self.passed_us, passed_us);
        (self.last, self.at) = (requests, now);
    }

    /// Whether the cache's drive bounds the throughput.
    pub(crate) fn cache_is_short(&self) -> bool {
        self.cache_us > self.store_us && self.cache_us >= BUSY * self.passed_us
    }
}

impl FlashCache {
    /// Weighs the drives' time from now on, if the policy has a use for it.
    pub(crate) fn weigh(&self, times: &dyn Fn(usize) -> DriveTimes) {
        if self.policy.weighs() {
            let times = times(self.geometry.group_bytes);
            let times = *self.times.get_or_init(|| times);
            self.ring.lock().balance = Some(Balance::new(times, self.requests(), clock::now()));
        }
    }

    /// Looks at the drives' time once more; a group is about to be replaced.
    pub(super) fn weigh_again(&self, ring: &mut Ring) {
        let Some(balance) = &mut ring.balance else { return };
        balance.update(self.requests(), clock::now());
        self.is_short.store(balance.cache_is_short(), Relaxed);
    }

    /// Whether its drive bounds the throughput, so that nothing stays.
    pub(super) fn is_short(&self) -> bool {
        self.is_short.load(Relaxed)
    }

    /// What stays of a group that is replaced.
    pub(super) fn chances(&self) -> Chances {
        if self.is_leaving() || self.is_short() { Chances::None } else { self.policy.into() }
    }

    fn requests(&self) -> Requests {
        let counters = &self.counters;
        Requests {
            cache_page_reads: counters.read_requests.load(Relaxed) + counters.images_read.load(Relaxed),
            cache_group_reads: counters.groups_read.load(Relaxed),
            cache_group_writes: self.durable.load(Relaxed),
            store_page_reads: counters.misses.load(Relaxed),
            store_page_writes: counters.write_backs.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const TIMES: DriveTimes = DriveTimes {
        cache_page_read: 30.0,
        cache_group_read: 1000.0,
        cache_group_write: 1000.0,
        store_page_read: 700.0,
        store_page_write: 500.0,
    };

    /// Whether the cache's drive is short after a hundred groups. Each took `us` microseconds, with
    /// `hits` reads from the cache and `misses` from the store.
    fn is_short(us: u64, hits: u64, misses: u64) -> bool {
        let begin = clock::now();
        let mut balance = Balance::new(TIMES, Requests::default(), begin);
        for group in 1..=100 {
            let requests = Requests {
                cache_page_reads: group * hits,
                cache_group_writes: group,
                store_page_reads: group * misses,
                ..Requests::default()
            };
            let now = begin.after(Duration::from_micros(group * us)).expect("soon");
            balance.update(requests, now);
        }
        balance.cache_is_short()
    }

    #[test]
    fn the_drive_of_which_more_is_asked_is_short_if_it_is_busy() {
        assert!(is_short(4000, 100, 5), "4 ms of the cache's drive, 3.5 of the store's");
        assert!(!is_short(4300, 100, 6), "4 and 4.2 ms");
        assert!(!is_short(8000, 100, 5), "half of its time is left");
    }
}
