//! The engine's best settings for a device, from measurements. Pure.

use crate::cell::{Op, Pattern, Purpose};
use crate::measure::{Measured, Measurements};
use crate::outliers;
use crate::plan::PAGE;
use firndb_profile::{Choice, Choices};

/// A value of at least this share of the best is as good: the rest costs more than it gains.
const NEARLY: f64 = 0.9;
/// If durable writes are faster than this, several in flight hide nothing: the processor is the
/// limit, and larger groups on one device are cheaper (docs/lab/2026-11-20-benchmarks.md, "How many
/// log devices").
const FAST_US: f64 = 300.0;
/// Largest share of requests that may be treated as outliers.
const OUTLIERS_MOST: f64 = 0.02;

/// All choices that the measurements suffice for.
#[must_use]
pub fn choices(measurements: &Measurements) -> Choices {
    Choices {
        log_width: log_width(&log_streams(measurements)),
        cache_batch_bytes: cache_batch(&sizes(measurements, Op::WriteDurable)),
        read_batch: read_batch(&read_batches(measurements)),
        outlier_threshold: long_run(measurements).map(outlier_threshold),
        random_to_sequential_read: ratio(measurements, Op::Read, "read"),
        random_to_sequential_write: ratio(measurements, Op::WriteDurable, "durable write"),
    }
}

/// (streams, writes a second, median microseconds) of page-sized durable writes.
fn log_streams(measurements: &Measurements) -> Vec<(u32, f64, f64)> {
    let found = measurements.of(Purpose::LogStreams, Op::WriteDurable, Pattern::Sequential);
    let pages = found.into_iter().filter(|measured| measured.cell.bytes == PAGE);
    pages
        .map(|one| (one.cell.streams as u32, one.requests_per_second(), one.tally.latency.quantile_us(0.5)))
        .collect()
}

/// (bytes, MB/s) of sequential requests, ascending.
fn sizes(measurements: &Measurements, op: Op) -> Vec<(u64, f64)> {
    let found = measurements.of(Purpose::BySize, op, Pattern::Sequential);
    found.into_iter().map(|measured| (measured.cell.bytes as u64, measured.mb_per_second())).collect()
}

/// (reads submitted at once, pages a second), ascending.
fn read_batches(measurements: &Measurements) -> Vec<(u32, f64)> {
    let one = measurements.of(Purpose::BySize, Op::Read, Pattern::Random);
    let more = measurements.of(Purpose::ReadBatch, Op::Read, Pattern::Random);
    let pages = one.into_iter().chain(more).filter(|measured| measured.cell.bytes == PAGE);
    pages
        .map(|measured| {
            let batch = measured.cell.batch;
            (batch as u32, measured.requests_per_second() * batch as f64)
        })
        .collect()
}

/// The long run of page-sized durable sequential writes.
pub(crate) fn long_run(measurements: &Measurements) -> Option<&Measured> {
    let runs = measurements.of(Purpose::Outliers, Op::WriteDurable, Pattern::Sequential);
    runs.into_iter().find(|one| one.cell.bytes == PAGE && !one.tally.ordered.is_empty())
}

/// The first, and therefore least, with a value that is nearly the best; and the best.
fn least_nearly_best<T: Copy>(values: &[(T, f64)]) -> Option<((T, f64), f64)> {
    let best = values.iter().map(|value| value.1).fold(0.0, f64::max);
    let least = values.iter().find(|value| value.1 >= NEARLY * best)?;
    (best > 0.0).then_some((*least, best))
}

/// The least number of streams that is nearly as fast as any.
fn log_width(streams: &[(u32, f64, f64)]) -> Option<Choice<u32>> {
    let &(_, rate, latency) = streams.iter().find(|stream| stream.0 == 1)?;
    if latency < FAST_US {
        let reason = format!(
            "a durable write of a page takes {latency:.0} us, under {FAST_US} us: there is nothing to hide by writing several at once"
        );
        return Some(Choice::new(1, reason));
    }
    let rates: Vec<(u32, f64)> = streams.iter().map(|&(width, rate, _)| (width, rate)).collect();
    let ((width, chosen), best) = least_nearly_best(&rates)?;
    let reason = format!(
        "{width} durable streams make {chosen:.0} writes a second, one makes {rate:.0}, the best number measured {best:.0}"
    );
    Some(Choice::new(width, reason))
}

/// The least size at which the durable sequential throughput is nearly the best.
fn cache_batch(sizes: &[(u64, f64)]) -> Option<Choice<u64>> {
    let ((bytes, rate), best) = least_nearly_best(sizes)?;
    let reason =
        format!("durable sequential writes of {bytes} B reach {rate:.0} MB/s of at most {best:.0} MB/s");
    Some(Choice::new(bytes, reason))
}

fn read_batch(batches: &[(u32, f64)]) -> Option<Choice<u32>> {
    let ((batch, rate), best) = least_nearly_best(batches)?;
    let reason = format!(
        "{batch} random pages handed over at once reach {rate:.0} pages a second of at most {best:.0}"
    );
    Some(Choice::new(batch, reason))
}

fn outlier_threshold(run: &Measured) -> Choice<f64> {
    let factor = outliers::threshold(&run.tally.ordered, OUTLIERS_MOST);
    let found = run.outliers();
    let reason = format!(
        "normal durable writes take {:.0} us; {:.2} % take over twice as long, typically {:.0} us; the least factor that at \
         most {:.0} % exceed without taking ten times as long",
        found.normal_us,
        found.share * 100.0,
        found.typical_us,
        OUTLIERS_MOST * 100.0
    );
    Choice::new(factor, reason)
}

/// How many times longer a random page takes than a sequential one (Myers, table 3.2): of the means
/// of all requests, since the median of a few short rounds holds too many outliers or none.
fn ratio(measurements: &Measurements, op: Op, what: &str) -> Option<Choice<f64>> {
    let mean = |pattern| {
        let found = measurements.of(Purpose::BySize, op, pattern);
        let page = found.into_iter().find(|measured| measured.cell.bytes == PAGE);
        page.map(|page| page.tally.latency.mean_us()).filter(|&us| us > 0.0)
    };
    let (sequential, random) = (mean(Pattern::Sequential)?, mean(Pattern::Random)?);
    let reason = format!(
        "{what}s of a page take {sequential:.0} us sequentially and {random:.0} us at random, on average"
    );
    Some(Choice::new(random / sequential, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_as_wide_as_pays_and_no_wider() {
        let slow = [(1, 500.0, 2000.0), (2, 980.0, 2040.0), (4, 1900.0, 2100.0), (8, 2000.0, 4000.0)];
        assert_eq!(log_width(&slow).unwrap().value, 4);
        let serial = [(1, 500.0, 2000.0), (2, 510.0, 3900.0), (8, 520.0, 15_000.0)];
        assert_eq!(log_width(&serial).unwrap().value, 1);
        let fast = [(1, 12_000.0, 80.0), (2, 20_000.0, 95.0), (4, 30_000.0, 120.0)];
        let choice = log_width(&fast).unwrap();
        assert!(choice.value == 1 && choice.reason.contains("nothing to hide"), "{choice:?}");
        assert_eq!(log_width(&[]), None);
    }

    #[test]
    fn a_batch_is_the_least_that_is_nearly_the_fastest() {
        let flash = [(4096, 20.0), (65_536, 150.0), (262_144, 275.0), (1 << 20, 300.0)];
        assert_eq!(cache_batch(&flash).unwrap().value, 262_144);
        assert_eq!(
            read_batch(&[(1, 10_000.0), (4, 35_000.0), (16, 80_000.0), (64, 82_000.0)]).unwrap().value,
            16
        );
        assert_eq!(cache_batch(&[]), None);
        assert_eq!(read_batch(&[(1, 0.0)]), None);
    }
}
