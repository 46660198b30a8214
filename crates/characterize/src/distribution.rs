//! Latencies as a distribution.

use std::collections::BTreeMap;
use std::time::Duration;

/// How long requests took, to a thousandth, and their exact mean and maximum.
#[derive(Clone, Debug, Default)]
pub struct Distribution {
    /// Number of requests by latency in nanoseconds, rounded up to its step.
    steps: BTreeMap<u64, u64>,
    count: u64,
    sum_ns: u128,
    max_ns: u64,
}

impl Distribution {
    /// Adds one request's latency.
    pub fn record(&mut self, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).min(LONGEST_NS);
        *self.steps.entry(step_end(nanoseconds)).or_default() += 1;
        self.count += 1;
        self.sum_ns += u128::from(nanoseconds);
        self.max_ns = self.max_ns.max(nanoseconds);
    }

    /// Adds the requests of another distribution.
    pub fn merge(&mut self, other: &Distribution) {
        for (step, count) in &other.steps {
            *self.steps.entry(*step).or_default() += count;
        }
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Number of requests.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Arithmetic mean in microseconds; 0 if there are none.
    #[must_use]
    pub fn mean_us(&self) -> f64 {
        self.sum_ns as f64 / self.count.max(1) as f64 / 1000.0
    }

    /// The quantile (0 to 1) in microseconds; 0 if there are none.
    #[must_use]
    pub fn quantile_us(&self, quantile: f64) -> f64 {
        let wanted = (quantile * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let step = self.steps.iter().find(|(_, count)| {
            seen += **count;
            seen >= wanted
        });
        step.map_or(self.max_ns, |(end, _)| *end).min(self.max_ns) as f64 / 1000.0
    }

    /// The longest in microseconds; 0 if there are none.
    #[must_use]
    pub fn max_us(&self) -> f64 {
        self.max_ns as f64 / 1000.0
    }

    /// For a plot: (microseconds, share of requests that took at most this time), ascending.
    #[must_use]
    pub fn cumulative(&self) -> Vec<(f64, f64)> {
        let mut sum = 0;
        let steps = self.steps.iter().map(|(end, count)| {
            sum += count;
            (*end as f64 / 1000.0, sum as f64 / self.count as f64)
        });
        steps.collect()
    }
}

/// An hour: longer latencies count as this.
const LONGEST_NS: u64 = 3_600_000_000_000;
/// Significant bits of a latency: steps are at most a thousandth apart.
const BITS: u32 = 11;

/// The greatest latency of the step that `nanoseconds` is in.
fn step_end(nanoseconds: u64) -> u64 {
    let dropped = (u64::BITS - nanoseconds.leading_zeros()).saturating_sub(BITS);
    nanoseconds | ((1 << dropped) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_thousandth_and_means_exact() {
        let mut all = Distribution::default();
        for part in 0..4 {
            let mut one = Distribution::default();
            (1..=250).for_each(|i| one.record(Duration::from_micros(part * 250 + i)));
            all.merge(&one);
        }
        assert_eq!((all.count(), all.mean_us()), (1000, 500.5));
        for (quantile, expected) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1000.0)] {
            assert!((all.quantile_us(quantile) / expected - 1.0).abs() < 0.002, "{quantile}");
        }
        let cumulative = all.cumulative();
        assert!(cumulative.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1));
        assert_eq!(cumulative.last().map(|last| last.1), Some(1.0));
        assert_eq!(Distribution::default().quantile_us(0.5), 0.0);
    }
}
