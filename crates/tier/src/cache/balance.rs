//! Which drive is short of time, the cache's or the store's, and what follows from it.
//!
//! An image that stays in the cache for another round costs a read and a write of the cache's
//! drive, and spares the store a write or a later read. That pays while the store's drive is what
//! transactions wait for. Of two drives, the one of which a transaction takes more time bounds the
//! throughput, so nothing stays while that is the cache's drive and it is busy: then a transaction
//! takes less of the cache's drive and more of the store's, until they are even.
//!
//! Two things keep that from being tried in vain. While dirty images leave, what stays are hotter
//! ones, and each that is let go costs the store several times what it spares the cache: so it
//! begins only where nearly all dirty images stay, or where a read takes about as much of one drive
//! as of the other. And once it has begun, it ends only when the store's drive
//! clearly has more to do: what was let go comes back at the price of a read and a write each, and
//! dirty images that were to stay are not written back ahead.
//!
//! A drive's time is computed: requests of each kind, times what its profile says that one takes.
//! Waits would be the wrong measure: a hit waits behind writes of groups on any drive.

use super::geometry::SEAL_BYTES;
use super::policy::Chances;
use super::state::{FlashCache, Ring};
use crate::page_cache::drive_times::{CacheSizes, DriveTimes};
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
/// Groups over which it is looked whether dirty images leave.
const LEAVING_FADING: f64 = 128.0;
/// Dirty images leave if there were more than one among this many images.
const IMAGES_A_LEAVING: f64 = 200.0;
/// The cache's drive is busy if requests took this share of the time. Less than 1, since the times
/// are those of a drive with more requests waiting than clients may have.
const BUSY: f64 = 0.9;
/// It is no longer busy below this share.
const IDLE: f64 = 0.45;
/// The cache's drive becomes the one that is short when it has this many times the store's work,
/// and is no longer when it has less than that part of it.
const BECOMES_SHORT: f64 = 1.5;
const STAYS_SHORT: f64 = 0.8;

/// The time of both drives, lately.
#[derive(Debug)]
pub(crate) struct Balance {
    times: DriveTimes,
    last: Requests,
    at: Moment,
    cache_us: f64,
    store_us: f64,
    passed_us: f64,
    /// Dirty images that left, lately.
    left: f64,
    /// Of those, as many are few.
    left_few: f64,
    cache_is_short: bool,
}

impl Balance {
    /// Of a cache whose groups have `group_pages` images. Until it is known better, many of them
    /// leave.
    pub(crate) fn new(times: DriveTimes, group_pages: usize, requests: Requests, now: Moment) -> Balance {
        let left_few = LEAVING_FADING * group_pages as f64 / IMAGES_A_LEAVING;
        Balance {
            times,
            last: requests,
            at: now,
            cache_us: 0.0,
            store_us: 0.0,
            passed_us: 0.0,
            left: 10.0 * left_few,
            left_few,
            cache_is_short: false,
        }
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
        let left = since(|requests| requests.store_page_writes);
        let fade = |sum: &mut f64, more: f64, groups: f64| *sum += more - *sum / groups;
        fade(&mut self.cache_us, cache_us, FADING);
        fade(&mut self.store_us, store_us, FADING);
        fade(&mut self.passed_us, passed_us, FADING);
        fade(&mut self.left, left, LEAVING_FADING);
        (self.last, self.at) = (requests, now);
        let takes = |busy: f64, times_the_store: f64| {
            self.cache_us >= busy * self.passed_us && self.cache_us > times_the_store * self.store_us
        };
        self.cache_is_short = match self.cache_is_short {
            true => takes(IDLE, STAYS_SHORT),
            false => {
                let few_leave = self.left < self.left_few || times.hits_spare_little();
                takes(BUSY, BECOMES_SHORT) && few_leave
            }
        };
    }

    /// No dirty image has left for long.
    #[cfg(test)]
    pub(crate) fn nothing_leaves(&mut self) {
        self.left = 0.0;
    }

    /// Whether the cache's drive bounds the throughput, and what stays is worth less than its time.
    pub(crate) fn cache_is_short(&self) -> bool {
        self.cache_is_short
    }
}

impl FlashCache {
    /// Weighs the drives' time from now on, if the policy has a use for it.
    pub(crate) fn weigh(&self, times: &dyn Fn(CacheSizes) -> DriveTimes) {
        if self.policy.weighs() {
            let geometry = &self.geometry;
            let image_bytes = (SEAL_BYTES + geometry.page_size).next_multiple_of(geometry.block);
            let times = times(CacheSizes { image_bytes, group_bytes: geometry.group_bytes });
            let times = *self.times.get_or_init(|| times);
            let balance = Balance::new(times, geometry.group_pages, self.requests(), clock::now());
            self.ring.lock().balance = Some(balance);
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

    /// A balance, and what it has seen.
    struct Run {
        balance: Balance,
        requests: Requests,
        now: Moment,
    }

    impl Run {
        /// Four hundred groups, in which no dirty image left, of drives that are hardly busy.
        fn new() -> Run {
            let now = clock::now();
            let balance = Balance::new(TIMES, 64, Requests::default(), now);
            let mut run = Run { balance, requests: Requests::default(), now };
            assert!(!run.is_short(400, 100_000, (1, 1), 0));
            run
        }

        /// Whether the cache's drive is short after `groups` more. Each took `us` microseconds,
        /// with some reads from the cache and some from the store, and some images written back.
        fn is_short(&mut self, groups: u64, us: u64, (hits, misses): (u64, u64), left: u64) -> bool {
            for _ in 0..groups {
                self.requests.cache_page_reads += hits;
                self.requests.cache_group_writes += 1;
                self.requests.store_page_reads += misses;
                self.requests.store_page_writes += left;
                self.now = self.now.after(Duration::from_micros(us)).expect("soon");
                self.balance.update(self.requests, self.now);
            }
            self.balance.cache_is_short()
        }
    }

    #[test]
    fn the_drive_of_which_far_more_is_asked_becomes_short_if_it_is_busy() {
        assert!(Run::new().is_short(200, 4000, (100, 3), 0), "4 ms of the cache's drive, 2.1 of the store's");
        assert!(!Run::new().is_short(200, 4000, (100, 4), 0), "4 and 2.8 ms");
        assert!(!Run::new().is_short(200, 5000, (100, 3), 0), "a fifth of its time is left");
    }

    #[test]
    fn it_is_short_until_the_stores_drive_is_or_its_own_has_time() {
        let short = || {
            let mut run = Run::new();
            assert!(run.is_short(200, 4000, (100, 3), 0));
            run
        };
        assert!(short().is_short(200, 6000, (100, 6), 1), "4 ms of 6, and 4.7 of the store's");
        assert!(!short().is_short(200, 6000, (100, 7), 1), "5.4 of the store's");
        assert!(!short().is_short(200, 10_000, (100, 3), 0), "4 ms of 10");
    }

    #[test]
    fn it_is_not_short_while_dirty_images_leave() {
        let mut run = Run::new();
        assert!(!run.is_short(200, 4000, (100, 1), 1), "one of 64");
        assert!(run.is_short(400, 4000, (100, 1), 0));
        let balance = Balance::new(TIMES, 64, Requests::default(), run.now);
        let mut fresh = Run { balance, requests: Requests::default(), now: run.now };
        assert!(!fresh.is_short(100, 4000, (100, 1), 0), "not known yet");
        fresh.balance.times.store_page_read = 59.0;
        assert!(fresh.is_short(200, 4000, (100, 1), 1), "a hit takes as much as a miss, about");
    }
}
