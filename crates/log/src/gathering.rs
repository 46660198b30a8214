//! Whether a free device had better wait for more log to gather.
//!
//! Whoever finds a device free takes all log that waits. Of the threads that a completed request wakes, the first to commit
//! again finds the device free, and takes its own log alone; the others gather behind it and make a long request. But the short
//! one gains nothing: commits are acknowledged in order, so it waits for the request in flight before it, and the long
//! one begins later for it. So with many waiting threads, requests should be even.
//!
//! A request is held back while
//! * another is in flight, whose end calls for the next: nothing is ever held back without an end in sight; and
//! * it is shorter than usual by more than chance. With `t` threads that wait for a log of `n` devices, a request carries
//!   the log of `m = t / n` of them, which scatters by about one part in `√m`: below `1 - 1/√m` of the usual it is
//!   held back. With one thread for each device, each commit is a request of its own, and nothing is held back at all.
//!
//! Nothing has to be tuned to a device: neither its speed nor its costs enter. What is usual is the mean over bytes, not over
//! requests, since the short ones are what it is about. That share has to stay well below 1, or what is gathered
//! would grow without end until all log waits for one device. Measured: `docs/flashlogging.md`.
//!
//! [`Gathering`] is pure: no clock, no I/O.

use crate::flight::Flight;
use crate::options::Compose;
use crate::pipeline::Pipeline;
use crate::policy::LogPolicy;

/// What an average forgets with each request.
const FORGETTING: f64 = 1.0 / 16.0;

/// What requests were like lately.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    /// Mean of the bytes of log that a request carried, and of their squares.
    mean: f64,
    square: f64,
    /// Most threads that waited.
    threads: f64,
}

impl Gathering {
    /// Whether a request of `bytes` bytes of log is held back while another is in flight, with so many threads waiting for
    /// a log that writes so many requests at once.
    pub fn holds_back(&mut self, bytes: u64, threads: usize, at_once: usize) -> bool {
        self.threads = self.threads.max(threads as f64);
        if self.threads <= at_once as f64 {
            return false;
        }
        let share = 1.0 - (at_once as f64 / self.threads).sqrt();
        // Square over mean is the mean over bytes.
        (bytes as f64) * self.mean < share * self.square
    }

    /// Notes that a request took `bytes` bytes of log.
    pub fn took(&mut self, bytes: u64) {
        let bytes = bytes as f64;
        self.mean += (bytes - self.mean) * FORGETTING;
        self.square += (bytes * bytes - self.square) * FORGETTING;
        self.threads -= self.threads * FORGETTING;
    }
}

impl Pipeline {
    /// Whether the log that waits is left to gather until a request in flight is done, or there is more of it; asked by
    /// so many threads (one or none) that wait and are not on the list.
    pub fn holds_back(&self, flight: &mut Flight, asking: usize) -> bool {
        let evens =
            self.options.compose == Compose::WhenDeviceFree && self.options.policy == LogPolicy::Array;
        // A request that lost its devices ends only if somebody goes on.
        let in_flight = flight.is_busy() && flight.orphans.is_empty() && flight.settling == 0;
        let waiting = self.end().since(flight.covered);
        // Those inside device calls wait as well.
        let writing = if flight.hider.is_active() { 0 } else { flight.busy_devices() };
        let threads = flight.waiters.len() + writing + asking;
        let at_once = flight.usable() / flight.width();
        evens && in_flight && flight.gathering.holds_back(waiting, threads, at_once)
    }

    /// Whether log waits for a device: not for more of it, and not for what goes before all new log (a device that failed is
    /// settled, a request that lost its device finds another). Whoever was called meanwhile could take nothing.
    pub fn is_contended(&self, flight: &mut Flight) -> bool {
        let can_be_taken = flight.settling == 0 && flight.orphans.is_empty();
        can_be_taken && flight.is_needy() && !self.holds_back(flight, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_back_depends_on_how_many_wait_for_how_many_devices() {
        let mut gathering = Gathering::default();
        assert!(!gathering.holds_back(100, 30, 2), "nothing is known yet");
        for (threads, at_once, bytes, held) in [
            (1, 1, 100, false),
            (2, 2, 100, false),
            (4, 4, 100, false),
            (8, 2, 4_900, true),
            (8, 2, 5_100, false),
            (32, 2, 7_400, true),
            (32, 2, 7_600, false),
            (32, 8, 4_900, true),
            (32, 8, 5_100, false),
            (200, 2, 8_900, true),
            (200, 2, 9_100, false),
        ] {
            let mut gathering = Gathering::default();
            (0..100).for_each(|_| gathering.took(10_000));
            let found = gathering.holds_back(bytes, threads, at_once);
            assert_eq!(found, held, "{threads} threads, {at_once} devices, {bytes} bytes");
        }
    }

    #[test]
    fn short_requests_do_not_count_for_what_is_usual() {
        let mut gathering = Gathering::default();
        for _ in 0..100 {
            gathering.took(10_000);
            gathering.took(500);
        }
        assert!(gathering.holds_back(7_000, 32, 2), "of 10,000, not of their mean with 500");
    }

    #[test]
    fn that_many_waited_is_forgotten() {
        let mut gathering = Gathering::default();
        (0..100).for_each(|_| gathering.took(10_000));
        assert!(gathering.holds_back(100, 30, 2));
        let requests = (1..200).find(|_| {
            gathering.took(10_000);
            !gathering.holds_back(100, 2, 2)
        });
        assert!(requests.is_some_and(|count| (20..120).contains(&count)), "{requests:?}");
    }

    #[test]
    fn what_is_usual_follows_the_load_down() {
        let mut gathering = Gathering::default();
        (0..100).for_each(|_| gathering.took(100_000));
        assert!(gathering.holds_back(2_000, 30, 2));
        let requests = (1..300).find(|_| {
            gathering.took(2_000);
            !gathering.holds_back(2_000, 30, 2)
        });
        assert!(requests.is_some_and(|count| count < 150), "{requests:?}");
    }
}
