//! Latencies as a distribution.

use hdrhistogram::Histogram;
use std::time::Duration;

/// How long requests took, with three significant digits, and their exact mean.
#[derive(Clone, Debug)]
pub struct Distribution {
    nanoseconds: Histogram<u64>,
    sum_ns: u128,
}

impl Default for Distribution {
    fn default() -> Distribution {
        // It grows as needed, so that many small ones cost little.
        let nanoseconds = Histogram::new(3).expect("three digits are allowed");
        Distribution { nanoseconds, sum_ns: 0 }
    }
}

impl Distribution {
    /// Adds one request's latency.
    pub fn record(&mut self, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).min(LONGEST_NS);
        self.nanoseconds.record(nanoseconds).expect("it grows up to an hour");
        self.sum_ns += u128::from(nanoseconds);
    }

    /// Adds the requests of another distribution.
    pub fn merge(&mut self, other: &Distribution) {
        self.nanoseconds.add(&other.nanoseconds).expect("both grow by themselves");
        self.sum_ns += other.sum_ns;
    }

    /// Number of requests.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.nanoseconds.len()
    }

    /// Arithmetic mean in microseconds; 0 if there are none.
    #[must_use]
    pub fn mean_us(&self) -> f64 {
        self.sum_ns as f64 / self.count().max(1) as f64 / 1000.0
    }

    /// The quantile (0 to 1) in microseconds; 0 if there are none.
    #[must_use]
    pub fn quantile_us(&self, quantile: f64) -> f64 {
        self.nanoseconds.value_at_quantile(quantile) as f64 / 1000.0
    }

    /// The longest in microseconds; 0 if there are none.
    #[must_use]
    pub fn max_us(&self) -> f64 {
        self.nanoseconds.max() as f64 / 1000.0
    }

    /// For a plot: (microseconds, share of requests that took at most this time), ascending.
    #[must_use]
    pub fn cumulative(&self) -> Vec<(f64, f64)> {
        let all = self.count().max(1) as f64;
        let mut sum = 0;
        self.nanoseconds
            .iter_recorded()
            .map(|step| {
                sum += step.count_at_value();
                (step.value_iterated_to() as f64 / 1000.0, sum as f64 / all)
            })
            .collect()
    }
}

/// An hour: longer latencies count as this.
const LONGEST_NS: u64 = 3_600_000_000_000;

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
