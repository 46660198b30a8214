//! Spans of time in which a device does nothing.
//!
//! Inside, a model runs on a time of its own in which frozen spans do not exist; this file
//! converts.

use std::time::Duration;

/// Frozen spans, in order, apart from each other; nanoseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Freezes {
    spans: Vec<(u64, u64)>,
}

impl Freezes {
    /// Adds a span; spans that touch become one. Nothing before `seen` is changed.
    pub fn add(&mut self, seen: u64, from: Duration, to: Duration) {
        let from = (from.as_nanos().min(u128::from(u64::MAX)) as u64).max(seen);
        let to = to.as_nanos().min(u128::from(u64::MAX / 2)) as u64;
        if from >= to {
            return;
        }
        self.spans.push((from, to));
        self.spans.sort_unstable();
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for &(from, to) in &self.spans {
            match joined.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => joined.push((from, to)),
            }
        }
        self.spans = joined;
    }

    /// The device's own time at the clock's time `at`.
    pub fn own_time(&self, at: u64) -> u64 {
        at - self.spans.iter().map(|&(from, to)| at.clamp(from, to) - from).sum::<u64>()
    }

    /// The clock's time at the device's own time `own`: the earlier one, if it then freezes.
    pub fn clock_time(&self, own: u64) -> u64 {
        self.spans.iter().fold(own, |at, &(from, to)| if at > from { at + (to - from) } else { at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_time_stands_still_in_a_frozen_span_and_converts_back() {
        let mut freezes = Freezes::default();
        let span = |from, to| (Duration::from_nanos(from), Duration::from_nanos(to));
        for (from, to) in [(100, 150), (200, 300), (140, 160)] {
            let (from, to) = span(from, to);
            freezes.add(0, from, to);
        }
        assert_eq!(freezes.spans, [(100, 160), (200, 300)]);
        for (at, own) in [(50, 50), (100, 100), (130, 100), (160, 100), (180, 120), (250, 140), (310, 150)] {
            assert_eq!(freezes.own_time(at), own, "at {at}");
        }
        for (own, at) in [(50, 50), (100, 100), (101, 161), (140, 200), (141, 301)] {
            assert_eq!(freezes.clock_time(own), at, "own {own}");
        }
    }

    #[test]
    fn the_past_is_not_frozen() {
        let mut freezes = Freezes::default();
        freezes.add(500, Duration::from_nanos(100), Duration::from_nanos(600));
        assert_eq!(freezes.spans, [(500, 600)]);
        freezes.add(700, Duration::from_nanos(100), Duration::from_nanos(650));
        assert_eq!(freezes.spans.len(), 1);
    }
}
