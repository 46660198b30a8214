//! Counters that cost nothing where it matters.

use firndb_base::sync::atomic::{AtomicU64, Ordering::Relaxed};
use firndb_base::sync::thread;

/// Stripes of the hit counter; threads share the last one only if there are more of them.
const STRIPES: usize = 32;

/// Alone on its cache lines.
#[derive(Default)]
#[repr(align(128))]
struct Stripe(AtomicU64);

/// A counter that each thread adds to at a place of its own.
#[derive(Default)]
pub(crate) struct StripedCounter {
    stripes: [Stripe; STRIPES],
}

impl StripedCounter {
    pub(crate) fn add_one(&self) {
        match self.stripes[..STRIPES - 1].get(thread::stripe()) {
            // No other thread writes to it.
            Some(Stripe(own)) => own.store(own.load(Relaxed) + 1, Relaxed),
            None => _ = self.stripes[STRIPES - 1].0.fetch_add(1, Relaxed),
        }
    }
    pub(crate) fn total(&self) -> u64 {
        self.stripes.iter().map(|stripe| stripe.0.load(Relaxed)).sum()
    }
}

/// A counter off the fast path.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }
    pub(crate) fn subtract(&self, count: u64) {
        self.0.fetch_sub(count, Relaxed);
    }
    /// Adds, and returns the new count.
    pub(crate) fn raise(&self, count: u64) -> u64 {
        self.0.fetch_add(count, Relaxed) + count
    }
    /// At least `count` from now on.
    pub(crate) fn reach(&self, count: u64) {
        self.0.fetch_max(count, Relaxed);
    }
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// All counters of a pool.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) hits: StripedCounter,
    pub(crate) misses: Counter,
    pub(crate) evictions: Counter,
    pub(crate) resident: Counter,
    pub(crate) pages_written: Counter,
    pub(crate) batches_written: Counter,
    pub(crate) helped: Counter,
    pub(crate) pages_ahead: Counter,
    pub(crate) ahead_used: Counter,
    pub(crate) ahead_wasted: Counter,
    /// Pages that the tier reads at present.
    pub(crate) reading: Counter,
    pub(crate) reading_max: Counter,
    pub(crate) depths: Counter,
}

impl Counters {
    /// The tier begins to read `pages` pages.
    pub(crate) fn note_reading(&self, pages: u64) {
        let at_once = self.reading.raise(pages);
        self.reading_max.reach(at_once);
        self.depths.add(at_once * pages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread adds to its own stripe without an atomic addition: two with one number would lose
    /// counts.
    #[test]
    fn no_thread_adds_to_the_stripe_of_another() {
        const THREADS: u64 = 3 * STRIPES as u64;
        const ADDED: u64 = 20_000;
        let counter = StripedCounter::default();
        for _ in 0..2 {
            let all_run = std::sync::Barrier::new(THREADS as usize);
            std::thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        all_run.wait();
                        (0..ADDED).for_each(|_| counter.add_one());
                    });
                }
            });
        }
        assert_eq!(counter.total(), 2 * THREADS * ADDED);
    }
}
