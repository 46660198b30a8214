//! Counts and latencies of the requests to the file system.

use firndb_base::sync::Mutex;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::time::Duration;

/// Kinds of requests that programs make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Reads that the kernel's page cache did not serve.
    Read,
    /// Writes.
    Write,
    /// fsync, fdatasync.
    Sync,
}

/// All kinds, in the order of [`Counts::kinds`].
pub const KINDS: [Kind; 3] = [Kind::Read, Kind::Write, Kind::Sync];

/// One kind's counts. Latencies are from the request's arrival here to its reply: the time in the
/// kernel and in the program is not included.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KindCounts {
    /// The kind.
    pub kind: Kind,
    /// Requests completed, failed ones included.
    pub requests: u64,
    /// Bytes of those that did not fail.
    pub bytes: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Mean latency in microseconds.
    pub mean_us: f64,
    /// Median latency in microseconds.
    pub p50_us: u64,
    /// 99th percentile of the latency in microseconds.
    pub p99_us: u64,
    /// Longest latency in microseconds.
    pub max_us: u64,
}

/// All counts at a moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Counts {
    /// Reads, writes, syncs.
    pub kinds: [KindCounts; 3],
    /// Share of the time since the mount in which at least one request was in flight; 0 to 1.
    pub busy: f64,
    /// Seconds since the mount.
    pub seconds: f64,
}

struct One {
    bytes: u64,
    failed: u64,
    latency: Histogram<u64>,
}

struct State {
    kinds: [One; 3],
    under_way: u64,
    busy_since: Duration,
    busy: Duration,
}

/// Counts requests.
pub struct Counters(Mutex<State>);

/// Longest latency recorded; longer ones count as this.
const LONGEST_US: u64 = 3_600_000_000;

impl Default for Counters {
    fn default() -> Counters {
        let one = || One {
            bytes: 0,
            failed: 0,
            latency: Histogram::new_with_bounds(1, LONGEST_US, 3)
                .unwrap_or_else(|error| unreachable!("these bounds are good: {error}")),
        };
        Counters(Mutex::new(State {
            kinds: [one(), one(), one()],
            under_way: 0,
            busy_since: Duration::ZERO,
            busy: Duration::ZERO,
        }))
    }
}

impl Counters {
    /// Counts the arrival of a request; `now` is the time since the mount.
    pub fn begin(&self, now: Duration) {
        let mut state = self.0.lock();
        if state.under_way == 0 {
            state.busy_since = now;
        }
        state.under_way += 1;
    }

    /// Counts the completion of a request; `bytes` is `None` if it failed.
    pub fn end(&self, kind: Kind, begun: Duration, now: Duration, bytes: Option<u64>) {
        let mut state = self.0.lock();
        state.under_way -= 1;
        if state.under_way == 0 {
            let busy = now.saturating_sub(state.busy_since);
            state.busy += busy;
        }
        let one = &mut state.kinds[kind as usize];
        one.latency
            .saturating_record(now.saturating_sub(begun).as_micros().min(u128::from(LONGEST_US)) as u64);
        match bytes {
            Some(bytes) => one.bytes += bytes,
            None => one.failed += 1,
        }
    }

    /// All counts until now.
    #[must_use]
    pub fn counts(&self, now: Duration) -> Counts {
        let state = self.0.lock();
        let kinds = KINDS.map(|kind| {
            let one = &state.kinds[kind as usize];
            KindCounts {
                kind,
                requests: one.latency.len(),
                bytes: one.bytes,
                failed: one.failed,
                mean_us: one.latency.mean(),
                p50_us: one.latency.value_at_quantile(0.5),
                p99_us: one.latency.value_at_quantile(0.99),
                max_us: one.latency.max(),
            }
        });
        let running = if state.under_way > 0 { now.saturating_sub(state.busy_since) } else { Duration::ZERO };
        let busy = (state.busy + running).as_secs_f64() / now.as_secs_f64().max(1e-9);
        Counts { kinds, busy, seconds: now.as_secs_f64() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn time_is_busy_while_anything_is_under_way() {
        let counters = Counters::default();
        counters.begin(MS(0));
        counters.begin(MS(5));
        counters.end(Kind::Read, MS(0), MS(10), Some(4096));
        counters.end(Kind::Write, MS(5), MS(20), None);
        counters.begin(MS(90));
        let counts = counters.counts(MS(100));
        assert!((counts.busy - 0.3).abs() < 1e-9, "{}", counts.busy);
        let [read, write, sync] = &counts.kinds;
        assert_eq!((read.requests, read.bytes, read.failed), (1, 4096, 0));
        assert_eq!((write.requests, write.bytes, write.failed), (1, 0, 1));
        assert_eq!(sync.requests, 0);
        assert!((9_990..=10_010).contains(&read.p99_us) && (14_980..=15_020).contains(&write.max_us));
    }
}
