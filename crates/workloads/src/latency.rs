//! Latencies: recorded in nanoseconds, reported in microseconds.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Longest latency recorded; longer ones count as this.
const MAX: Duration = Duration::from_secs(3600);

/// Collects latencies with three significant digits.
#[derive(Clone, Debug)]
pub struct LatencyRecorder {
    nanoseconds: Histogram<u64>,
}

impl Default for LatencyRecorder {
    fn default() -> LatencyRecorder {
        let nanoseconds =
            Histogram::new_with_max(MAX.as_nanos() as u64, 3).expect("the bounds are constants in range");
        LatencyRecorder { nanoseconds }
    }
}

/// Percentiles in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// The longest latency.
    pub max: f64,
}

impl LatencyRecorder {
    /// Adds a latency; one above an hour counts as an hour.
    pub fn record(&mut self, latency: Duration) {
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.saturating_record(nanoseconds);
    }
    /// Adds all latencies of another recorder.
    pub fn merge(&mut self, other: &LatencyRecorder) {
        self.nanoseconds.add(&other.nanoseconds).expect("both have the same bounds");
    }
    /// Number of latencies recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.nanoseconds.len()
    }
    /// Percentiles, rounded to a tenth of a microsecond; zeros if nothing was recorded.
    #[must_use]
    pub fn summary(&self) -> Latency {
        let us = |nanoseconds: f64| (nanoseconds / 100.0).round() / 10.0;
        let at = |quantile| us(self.nanoseconds.value_at_quantile(quantile) as f64);
        Latency {
            mean: us(self.nanoseconds.mean()),
            p50: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            max: us(self.nanoseconds.max() as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_a_thousandth() {
        let mut recorder = LatencyRecorder::default();
        assert_eq!(recorder.summary(), Latency::default());
        for us in 1..=1000 {
            recorder.record(Duration::from_micros(us));
        }
        let summary = recorder.summary();
        assert_eq!(recorder.count(), 1000);
        for (value, expected) in
            [(summary.p50, 500.0), (summary.p95, 950.0), (summary.p999, 999.0), (summary.max, 1000.0)]
        {
            assert!((value - expected).abs() <= expected / 500.0, "{value} is not {expected}");
        }
    }
}
