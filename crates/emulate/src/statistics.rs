//! What a model did.

use std::time::Duration;

/// Requests of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindStatistics {
    /// How many.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// From submission to completion, all together.
    pub latency: Duration,
    /// The longest.
    pub latency_max: Duration,
}

/// What a model did since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Reads.
    pub reads: KindStatistics,
    /// Writes that needed not be durable.
    pub writes: KindStatistics,
    /// Durable writes.
    pub durable_writes: KindStatistics,
    /// Syncs.
    pub syncs: KindStatistics,
    /// Time that channels or spindles were occupied, all together: may exceed the time that passed.
    pub busy: Duration,
    /// Time that requests waited before they were served, all together.
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
