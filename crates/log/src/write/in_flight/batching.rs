//! Group-commit batching: whether a free device should be left idle for now to let more log
//! accumulate.
//!
//! A leader that finds a device free takes all log that waits. Of the threads that a completed
//! request wakes, the first to commit again finds the device free and takes its own log alone; the
//! log of the others accumulates behind it and makes a long request. But the short request gains
//! nothing: commits are acknowledged in order, so it waits for the request in flight before it, and
//! it delays the start of the long one. So with many waiting threads, requests should be of even
//! length.
//!
//! A request is delayed while
//! * another is in flight, whose end triggers the next: a delay is always bounded by the end of a
//!   request; and
//! * it is shorter than usual by more than chance. With `t` threads that wait for a log of `n`
//!   devices, a request carries the log of `m = t / n` of them, which scatters by about one part in
//!   `√m`: below `1 - 1/√m` of the usual length it is delayed. With one thread for each device,
//!   each commit is a request of its own, and nothing is delayed at all.
//!
//! Nothing has to be tuned to a device: neither its speed nor its costs enter. The usual length is
//! the mean over bytes, not over requests, since the short requests are the ones to be detected.
//! The share of it has to stay well below 1: otherwise batches would grow without bound until all
//! log waits for one device. Measured: `docs/lab/2026-11-20-flashlogging.md`.
//!
//! [`Batching`] is pure: no clock, no I/O.

/// Weight of each new request in the moving averages.
const SAMPLE_WEIGHT: f64 = 1.0 / 16.0;

/// Moving averages over recent requests.
#[derive(Debug, Default)]
pub(crate) struct Batching {
    /// Mean of the bytes of log that a request carried, and of their squares.
    mean: f64,
    square: f64,
    /// Most threads that waited; decays with each request.
    threads: f64,
}

impl Batching {
    /// Whether a request of `bytes` bytes of log should be delayed while another is in flight, with
    /// `threads` threads waiting for a log that writes `at_once` requests at a time.
    pub fn should_delay(&mut self, bytes: u64, threads: usize, at_once: usize) -> bool {
        self.threads = self.threads.max(threads as f64);
        if self.threads <= at_once as f64 {
            return false;
        }
        let share = 1.0 - (at_once as f64 / self.threads).sqrt();
        // Mean square over mean is the mean over bytes.
        (bytes as f64) * self.mean < share * self.square
    }

    /// Records that a request took `bytes` bytes of log.
    pub fn took(&mut self, bytes: u64) {
        let bytes = bytes as f64;
        self.mean += (bytes - self.mean) * SAMPLE_WEIGHT;
        self.square += (bytes * bytes - self.square) * SAMPLE_WEIGHT;
        self.threads -= self.threads * SAMPLE_WEIGHT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_depends_on_waiting_threads_and_devices() {
        let mut batching = Batching::default();
        assert!(!batching.should_delay(100, 30, 2), "nothing is known yet");
        for (threads, at_once, bytes, delayed) in [
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
            let mut batching = Batching::default();
            (0..100).for_each(|_| batching.took(10_000));
            let found = batching.should_delay(bytes, threads, at_once);
            assert_eq!(found, delayed, "{threads} threads, {at_once} devices, {bytes} bytes");
        }
    }

    #[test]
    fn short_requests_do_not_count_for_what_is_usual() {
        let mut batching = Batching::default();
        for _ in 0..100 {
            batching.took(10_000);
            batching.took(500);
        }
        assert!(batching.should_delay(7_000, 32, 2), "of 10,000, not of their mean with 500");
    }

    #[test]
    fn the_number_of_waiting_threads_decays() {
        let mut batching = Batching::default();
        (0..100).for_each(|_| batching.took(10_000));
        assert!(batching.should_delay(100, 30, 2));
        let requests = (1..200).find(|_| {
            batching.took(10_000);
            !batching.should_delay(100, 2, 2)
        });
        assert!(requests.is_some_and(|count| (20..120).contains(&count)), "{requests:?}");
    }

    #[test]
    fn what_is_usual_follows_the_load_down() {
        let mut batching = Batching::default();
        (0..100).for_each(|_| batching.took(100_000));
        assert!(batching.should_delay(2_000, 30, 2));
        let requests = (1..300).find(|_| {
            batching.took(2_000);
            !batching.should_delay(2_000, 30, 2)
        });
        assert!(requests.is_some_and(|count| count < 150), "{requests:?}");
    }
}
