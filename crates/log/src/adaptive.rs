//! Whether hiding one device's outliers is worth what it costs (3.5).
//!
//! Every outlier is weighed once its slow write is done and it is known how long it really took:
//! * one that was hidden gained the time by which its request was done earlier than by the slow write;
//! * one whose slow write came first after all gained nothing;
//! * one that was not re-issued *would* have gained what it took beyond detection and re-issue, as far as those are
//!   known. So a device whose hiding is off is judged by the same measure, for nothing.
//!
//! The cost is the time for which a re-issue occupies another device. Gains and costs are sums that forget; hiding is
//! on while the gains exceed the costs, with some play, so that it does not flutter. What re-issues take compared with
//! ordinary writes is learned, too: where all devices stall together, since they are one device in truth, re-issues
//! take as long as the outliers and gain nothing. While hiding is off nothing is learned of that, and the belief
//! slowly returns to the usual: then it is tried again.
//!
//! Pure: no clock, no I/O.

use std::time::Duration;

/// Outliers judged before the first decision.
const FIRST_DECISION: u32 = 4;
/// What an outlier weighs less with each one after it.
const FORGETTING: f64 = 31.0 / 32.0;
/// Gains over costs at which hiding is switched on again; it is switched off at 1.
const ON_AGAIN: f64 = 2.0;
/// How fast the re-issues' cost is learned, and how fast it is forgotten while nothing is re-issued.
const LEARNING: f64 = 1.0 / 8.0;
const RETURNING: f64 = 1.0 / 1024.0;

/// What became of an outlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Its request was done by a re-issue, so much earlier than by the slow write.
    Hidden(Duration),
    /// It was re-issued, and the slow write was done first.
    Wasted,
    /// It was not re-issued: the slow write took this long beyond what is an outlier.
    Endured(Duration),
}

/// The switch of one device.
#[derive(Clone, Debug)]
pub(crate) struct Switch {
    on: bool,
    judged: u32,
    /// Seconds.
    gains: f64,
    costs: f64,
    /// What a re-issue takes, in expected latencies of an ordinary write.
    reissue_factor: f64,
}

impl Switch {
    /// On, as in the paper, until it is known better.
    pub fn new() -> Switch {
        Switch { on: true, judged: 0, gains: 0.0, costs: 0.0, reissue_factor: 1.0 }
    }

    /// Whether this device's outliers are worth hiding.
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// Learns that a re-issue of an outlier of this device took `took` where an ordinary write was expected to take
    /// `expected`.
    pub fn reissued(&mut self, took: Duration, expected: Duration) {
        let factor = took.as_secs_f64() / expected.as_secs_f64().max(1e-6);
        self.reissue_factor += (factor.min(1000.0) - self.reissue_factor) * LEARNING;
    }

    /// Judges an outlier of which an ordinary write was expected to take `expected`.
    pub fn judge(&mut self, outcome: Outcome, expected: Duration) {
        let cost = expected.as_secs_f64() * self.reissue_factor;
        let gain = match outcome {
            Outcome::Hidden(earlier) => earlier.as_secs_f64(),
            Outcome::Wasted => 0.0,
            Outcome::Endured(beyond) => (beyond.as_secs_f64() - cost).max(0.0),
        };
        if matches!(outcome, Outcome::Endured(_)) {
            self.reissue_factor += (1.0 - self.reissue_factor) * RETURNING;
        }
        self.gains = self.gains * FORGETTING + gain;
        self.costs = self.costs * FORGETTING + cost;
        self.judged = self.judged.saturating_add(1);
        if self.judged >= FIRST_DECISION {
            let wanted = if self.on { 1.0 } else { ON_AGAIN };
            self.on = self.gains >= wanted * self.costs;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn what_the_outliers_take_decides() {
        // What each outlier gains or takes beyond detection, and where the switch ends, from on and from off.
        let table = [
            (Outcome::Hidden(ms(20)), true),
            (Outcome::Hidden(ms(3)), true),
            (Outcome::Hidden(Duration::from_micros(400)), false),
            (Outcome::Wasted, false),
            (Outcome::Endured(ms(20)), true),
            (Outcome::Endured(Duration::from_micros(1500)), false),
            (Outcome::Endured(Duration::ZERO), false),
        ];
        for (outcome, on) in table {
            for first in [Outcome::Endured(ms(50)), Outcome::Wasted] {
                let mut switch = Switch::new();
                (0..10).for_each(|_| switch.judge(first, ms(1)));
                assert_eq!(switch.is_on(), first != Outcome::Wasted);
                (0..400).for_each(|_| switch.judge(outcome, ms(1)));
                assert_eq!(switch.is_on(), on, "{first:?} then {outcome:?}");
            }
        }
    }

    #[test]
    fn it_begins_on_and_waits_for_a_few_outliers() {
        let mut switch = Switch::new();
        (1..FIRST_DECISION).for_each(|_| switch.judge(Outcome::Wasted, ms(1)));
        assert!(switch.is_on());
        switch.judge(Outcome::Wasted, ms(1));
        assert!(!switch.is_on());
    }

    #[test]
    fn one_device_in_truth_is_found_out_and_tried_again_only_now_and_then() {
        // Every write stalls for 20 ms beyond detection, and so does its re-issue.
        let mut switch = Switch::new();
        let mut tried = 0;
        for _ in 0..10_000 {
            if switch.is_on() {
                tried += 1;
                switch.reissued(ms(20), ms(1));
                switch.judge(Outcome::Wasted, ms(1));
            } else {
                switch.judge(Outcome::Endured(ms(20)), ms(1));
            }
        }
        assert!((5..200).contains(&tried), "{tried}");
    }

    #[test]
    fn it_does_not_flutter_between_on_and_off() {
        let mut switch = Switch::new();
        let mut turns = 0;
        for i in 0..10_000u64 {
            let before = switch.is_on();
            // About as much gained as it costs.
            let outcome =
                if i % 2 == 0 { Outcome::Wasted } else { Outcome::Hidden(Duration::from_micros(1900)) };
            switch.judge(if before { outcome } else { Outcome::Endured(ms(2)) }, ms(1));
            turns += u32::from(before != switch.is_on());
        }
        assert!(turns <= 2, "{turns}");
    }
}
