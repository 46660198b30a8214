//! Whether hiding one device's outliers is worth its cost (3.5).
//!
//! Every outlier is judged once its slow write has ended and its real latency is known:
//! * a hidden outlier gained the time by which its request completed earlier than the slow write;
//! * an outlier whose slow write completed before the reissue gained nothing;
//! * an outlier that was not reissued *would* have gained its latency beyond detection and reissue,
//!   as far as those are known. So a device whose hiding is off is judged by the same measure, at
//!   no cost.
//!
//! The cost is the time for which a reissue occupies another device: all of it while log waits for
//! a device, and next to nothing while the device would be idle. Gains and costs are decaying sums.
//! Hiding is on while the gains exceed the costs, with hysteresis, so that it does not flutter. The
//! latency of reissues relative to ordinary writes is learned, too: where all devices stall
//! together, since they are one physical device, reissues take as long as the outliers and gain
//! nothing. While hiding is off nothing is learned of that, and the estimate slowly returns to the
//! default: then hiding is tried again.
//!
//! Pure: no clock, no I/O.

use std::time::Duration;

/// Outliers judged before the first decision.
const FIRST_DECISION: u32 = 4;
/// Decay of an outlier's weight with each one after it.
const DECAY: f64 = 31.0 / 32.0;
/// Gains over costs at which hiding is switched on again; it is switched off at 1.
const ON_AGAIN: f64 = 2.0;
/// Weight of the time of a device that would be idle otherwise: it may be needed before the reissue
/// is done.
const IDLE_COST: f64 = 0.1;
/// Rates at which the reissues' cost is learned, and at which it decays while nothing is reissued.
const LEARNING: f64 = 1.0 / 8.0;
const RETURNING: f64 = 1.0 / 1024.0;

/// Writes before a device can be trusted; about this number of writes is remembered.
const TRUST_WRITES: u32 = 256;
/// Approximate cost of handing a write to another thread and being woken by it, in seconds:
/// `tests/all/what_handing_over_costs.rs`.
const HAND_OVER_COST: f64 = 15e-6;

/// Whether a device has so few outliers that committing threads should issue its writes themselves:
/// per write, hiding gains less than the hand-over to a worker costs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trust {
    writes: u32,
    /// Seconds gained, or that could have been gained, by the writes remembered.
    gains: f64,
}

impl Trust {
    /// Records a write, and what hiding it gained or could have gained, in seconds.
    pub fn wrote(&mut self, gain: f64) {
        self.writes = self.writes.saturating_add(1);
        self.gains += gain - self.gains / f64::from(TRUST_WRITES);
    }

    /// Whether the device can be trusted.
    pub fn is_earned(&self) -> bool {
        self.writes >= TRUST_WRITES && self.gains < HAND_OVER_COST * f64::from(TRUST_WRITES)
    }
}

/// What became of an outlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A reissue completed its request, earlier than the slow write by this time.
    Hidden(Duration),
    /// It was reissued, and the slow write completed first.
    Wasted,
    /// It was not reissued: the slow write took this long beyond the outlier limit.
    Endured(Duration),
}

/// Whether hiding is on for one device.
#[derive(Clone, Debug)]
pub(crate) struct Switch {
    on: bool,
    judged: u32,
    /// In seconds; `costs` likewise.
    gains: f64,
    costs: f64,
    /// Latency of a reissue, in expected latencies of an ordinary write.
    reissue_factor: f64,
}

impl Switch {
    /// On, as in the paper, until enough outliers have been judged.
    pub fn new() -> Switch {
        Switch { on: true, judged: 0, gains: 0.0, costs: 0.0, reissue_factor: 1.0 }
    }

    /// Whether this device's outliers are worth hiding.
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// Learns that a reissue of an outlier of this device took `took` where an ordinary write was
    /// expected to take `expected`.
    pub fn reissued(&mut self, took: Duration, expected: Duration) {
        let factor = took.as_secs_f64() / expected.as_secs_f64().max(1e-6);
        self.reissue_factor += (factor.min(1000.0) - self.reissue_factor) * LEARNING;
    }

    /// Judges an outlier whose write was expected to take `expected`. `contended`: log waited for a
    /// device when the outlier was, or could have been, reissued. Returns the gain, actual or
    /// possible, in seconds.
    pub fn judge(&mut self, outcome: Outcome, expected: Duration, contended: bool) -> f64 {
        let reissue = expected.as_secs_f64() * self.reissue_factor;
        let gain = match outcome {
            Outcome::Hidden(earlier) => earlier.as_secs_f64(),
            Outcome::Wasted => 0.0,
            Outcome::Endured(beyond) => (beyond.as_secs_f64() - reissue).max(0.0),
        };
        if matches!(outcome, Outcome::Endured(_)) {
            self.reissue_factor += (1.0 - self.reissue_factor) * RETURNING;
        }
        let cost = if contended { reissue } else { reissue * IDLE_COST };
        self.gains = self.gains * DECAY + gain;
        self.costs = self.costs * DECAY + cost;
        self.judged = self.judged.saturating_add(1);
        if self.judged >= FIRST_DECISION {
            let wanted = if self.on { 1.0 } else { ON_AGAIN };
            self.on = self.gains >= wanted * self.costs;
        }
        gain
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
        // What each outlier gains or takes beyond detection, and the final state of the switch,
        // from on and from off.
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
                (0..10).for_each(|_| _ = switch.judge(first, ms(1), true));
                assert_eq!(switch.is_on(), first != Outcome::Wasted);
                (0..400).for_each(|_| _ = switch.judge(outcome, ms(1), true));
                assert_eq!(switch.is_on(), on, "{first:?} then {outcome:?}");
                // Where the other devices are idle, everything is worth it that gains anything.
                (0..400).for_each(|_| _ = switch.judge(outcome, ms(1), false));
                let nothing = matches!(outcome, Outcome::Wasted | Outcome::Endured(Duration::ZERO));
                assert_eq!(switch.is_on(), !nothing, "{first:?} then {outcome:?}, idle");
            }
        }
    }

    #[test]
    fn it_begins_on_and_waits_for_a_few_outliers() {
        let mut switch = Switch::new();
        (1..FIRST_DECISION).for_each(|_| _ = switch.judge(Outcome::Wasted, ms(1), true));
        assert!(switch.is_on());
        switch.judge(Outcome::Wasted, ms(1), true);
        assert!(!switch.is_on());
    }

    #[test]
    fn one_device_in_truth_is_found_out_and_tried_again_only_now_and_then() {
        // Every write stalls for 20 ms beyond detection, and so does its reissue.
        let mut switch = Switch::new();
        let mut tried = 0;
        for _ in 0..10_000 {
            if switch.is_on() {
                tried += 1;
                switch.reissued(ms(20), ms(1));
                switch.judge(Outcome::Wasted, ms(1), true);
            } else {
                switch.judge(Outcome::Endured(ms(20)), ms(1), true);
            }
        }
        assert!((5..200).contains(&tried), "{tried}");
    }

    #[test]
    fn trust_is_earned_by_quiet_writes_and_lost_by_what_handing_over_would_have_saved() {
        // One write in `every` gains `gain_us` microseconds: noise, rare spikes, frequent ones.
        for (every, gain_us, earned) in
            [(50, 50, true), (10_000, 100, true), (100, 100_000, false), (10, 400, false)]
        {
            let mut trust = Trust::default();
            (1..TRUST_WRITES).for_each(|_| trust.wrote(0.0));
            assert!(!trust.is_earned());
            (1..=5000).for_each(|i| trust.wrote(if i % every == 0 { gain_us as f64 * 1e-6 } else { 0.0 }));
            assert_eq!(trust.is_earned(), earned, "{gain_us} us every {every}");
        }
        // A stall of seconds is remembered for hundreds of writes, not for ever.
        let mut trust = Trust::default();
        (0..300).for_each(|_| trust.wrote(0.0));
        trust.wrote(5.0);
        let writes = (1..100_000).find(|_| {
            trust.wrote(0.0);
            trust.is_earned()
        });
        assert!(writes.is_some_and(|count| (1000..4000).contains(&count)), "{writes:?}");
    }

    #[test]
    fn it_does_not_flutter_between_on_and_off() {
        let mut switch = Switch::new();
        let mut turns = 0;
        for i in 0..10_000u64 {
            let before = switch.is_on();
            // The gain about equals the cost.
            let outcome =
                if i % 2 == 0 { Outcome::Wasted } else { Outcome::Hidden(Duration::from_micros(1900)) };
            switch.judge(if before { outcome } else { Outcome::Endured(ms(2)) }, ms(1), true);
            turns += u32::from(before != switch.is_on());
        }
        assert!(turns <= 2, "{turns}");
    }
}
