//! Counts of a model's work.

use std::time::Duration;

/// Counts of the requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindStatistics {
    /// Number of requests.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Sum of the latencies, from submission to completion.
    pub latency: Duration,
    /// The longest latency.
    pub latency_max: Duration,
}

/// Counts since the model was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Reads.
    pub reads: KindStatistics,
    /// Writes that need a sync to be durable.
    pub writes: KindStatistics,
    /// Durable writes.
    pub durable_writes: KindStatistics,
    /// Syncs.
    pub syncs: KindStatistics,
    /// Sum of the times that channels or spindles were occupied: may exceed the time that passed.
    pub busy: Duration,
    /// Sum of the times that requests waited before they were served.
    pub queued: Duration,
    /// Requests that were outliers.
    pub outliers: u64,
    /// Writes that returned from the write cache.
    pub cached_writes: u64,
}

impl KindStatistics {
    pub(crate) fn count(&mut self, bytes: u64, latency_ns: u64) {
        let latency = Duration::from_nanos(latency_ns);
        self.requests += 1;
        self.bytes += bytes;
        self.latency += latency;
        self.latency_max = self.latency_max.max(latency);
    }
}
