//! A profile from measurements: the emulator's model of the device, the rows behind it, and the
//! choices. Pure.
//!
//! Times in the model's tables are means of the requests without outliers, since the model adds
//! those itself; so the model's mean of all requests is the measured one. What the model cannot
//! express, or what was not measured, is in the notes.

use crate::cell::{Cell, Ground, Op, Pattern, Purpose};
use crate::choices::{choices, long_run};
use crate::error::Error;
use crate::head::Head;
use crate::measure::{Measured, Measurements, median};
use crate::outliers::normal_ns;
use crate::plan::PAGE;
use crate::streaming::fit_streams;
use firndb_profile::{
    Area, Band, Blocks, DeviceProfile, MeasuredRow, ModelSection, Origin, Outliers, Parameter, ServiceTable,
    VERSION, WriteCache,
};

/// Makes a profile. [`Error::Failed`] if too little was measured for one.
pub fn profile(measurements: &Measurements, head: Head) -> Result<DeviceProfile, Error> {
    let mut notes = head.notes;
    if measurements.cut_short > 0 {
        notes.push(format!(
            "time ran out: {} measurements have fewer rounds than planned, or none",
            measurements.cut_short
        ));
    }
    let profile = DeviceProfile {
        version: VERSION,
        name: head.name,
        title: head.title,
        origin: Origin::Measured,
        source: head.source,
        capacity_bytes: head.capacity_bytes,
        logical_block: head.logical_block,
        model: model(measurements, &mut notes),
        nand: None,
        notes,
        inputs: Vec::new(),
        figures: Vec::new(),
        measured: measurements.cells.iter().map(|measured| row(measured, measurements.area)).collect(),
        choices: Some(choices(measurements)),
    };
    profile
        .check()
        .map_err(|error| Error::Failed(format!("too little was measured for a profile: {error}")))?;
    Ok(profile)
}

fn model(measurements: &Measurements, notes: &mut Vec<String>) -> ModelSection {
    let table = |op, pattern| table(&measurements.of(Purpose::BySize, op, pattern));
    let (channels, band) = channels(measurements, notes);
    let mut model = ModelSection {
        channels,
        read_sequential: table(Op::Read, Pattern::Sequential),
        read_random: table(Op::Read, Pattern::Random),
        write_sequential: table(Op::WriteDurable, Pattern::Sequential),
        write_random: table(Op::WriteDurable, Pattern::Random),
        write_overlapping: self::table(&measurements.of(
            Purpose::Rewrite,
            Op::WriteDurable,
            Pattern::Rewrite,
        )),
        sync_us: measurements.about(Purpose::Sync).first().map_or(0.0, |sync| sync.tally.aside.mean_us()),
        read_mb_s: fastest(measurements, false),
        write_mb_s: fastest(measurements, true),
        append_streams: append_streams(measurements),
        write_cache: write_cache(measurements, notes),
        outliers: all_outliers(measurements),
        area: area(measurements),
        band,
        ..ModelSection::default()
    };
    fit_streams(measurements, &mut model);
    model
}

/// Microseconds of a normal request.
fn normal_us(measured: &Measured) -> f64 {
    match measured.tally.ordered.is_empty() {
        true => measured.tally.latency.mean_us(),
        false => normal_ns(&measured.tally.ordered) / 1000.0,
    }
}

/// Normal times by size. Times that fall with size are noise: the shorter request then gets the
/// time of the longer one.
fn table(cells: &[&Measured]) -> ServiceTable {
    let mut longest = 0.0f64;
    let points = cells.iter().filter(|measured| measured.tally.latency.count() > 0).map(|measured| {
        longest = longest.max(rounded(normal_us(measured)));
        (measured.cell.bytes as u64, longest)
    });
    ServiceTable::new(points.collect::<Vec<_>>())
}

/// Rounded to a hundredth, and never 0.
fn rounded(us: f64) -> f64 {
    (us * 100.0).round().max(1.0) / 100.0
}

/// Requests that the device serves side by side: the ratio of its best rate to that of one at a
/// time. Reads decide; writes give the other end of a band if they differ.
fn channels(measurements: &Measurements, notes: &mut Vec<String>) -> (u32, Vec<Band>) {
    let speed_up = |cells: Vec<&Measured>| {
        let pages: Vec<&Measured> =
            cells.into_iter().filter(|measured| measured.cell.bytes == PAGE).collect();
        let one = pages.iter().find(|measured| measured.cell.depth == 1)?.requests_per_second();
        let best = pages.iter().map(|measured| measured.requests_per_second()).fold(0.0, f64::max);
        (one > 0.0).then(|| (best / one).round().clamp(1.0, 4096.0))
    };
    let reads = speed_up(measurements.of(Purpose::ByDepth, Op::Read, Pattern::Random));
    let writes = speed_up(measurements.of(Purpose::ByDepth, Op::WriteDurable, Pattern::Random));
    let (Some(channels), writes) = (reads.or(writes), writes) else {
        notes.push("requests in flight were not measured: one channel is assumed".to_owned());
        return (1, Vec::new());
    };
    let band = writes.filter(|&writes| writes != channels).map(|writes| Band {
        parameter: Parameter::Channels,
        low: channels.min(writes),
        high: channels.max(writes),
        why: format!(
            "{channels} times as many reads, {writes} times as many durable writes with more in flight"
        ),
    });
    (channels as u32, band.into_iter().collect())
}

/// The highest measured bandwidth in MB/s.
fn fastest(measurements: &Measurements, writes: bool) -> Option<f64> {
    let rates = measurements
        .cells
        .iter()
        .filter(|measured| {
            measured.cell.op.writes() == writes
                && !matches!(measured.cell.op, Op::Mixed { .. } | Op::Beside { .. })
        })
        .map(Measured::mb_per_second);
    rates.reduce(f64::max).filter(|&rate| rate > 0.0).map(rounded)
}

/// The number of sequential streams up to which a write costs less than half-way (in ratio) between
/// one stream and random writes; the most that were measured if their number makes no difference.
fn append_streams(measurements: &Measurements) -> u32 {
    let page_us = |pattern| {
        let found = measurements.of(Purpose::BySize, Op::WriteDurable, pattern);
        found.into_iter().find(|measured| measured.cell.bytes == PAGE).map(normal_us)
    };
    let (Some(one), Some(random)) = (page_us(Pattern::Sequential), page_us(Pattern::Random)) else {
        return 1;
    };
    let limit = if random > 1.3 * one { (one * random).sqrt() } else { f64::INFINITY };
    let tried = measurements.of(Purpose::AppendStreams, Op::WriteDurable, Pattern::Sequential);
    let kept = tried.into_iter().take_while(|measured| normal_us(measured) <= limit);
    kept.last().map_or(1, |measured| measured.cell.streams as u32)
}

/// Bytes of a cache that no measurement filled.
const CACHE_BYTES: u64 = 64 << 20;

/// A cache in front of the medium, if writes that need not be durable return much earlier.
fn write_cache(measurements: &Measurements, notes: &mut Vec<String>) -> Option<WriteCache> {
    let of = |op| measurements.of(Purpose::BySize, op, Pattern::Sequential);
    let page = |op| of(op).into_iter().find(|measured| measured.cell.bytes == PAGE).map(normal_us);
    let (durable, later) = (page(Op::WriteDurable)?, page(Op::WriteLater)?);
    if durable < 1.5 * later {
        return None;
    }
    let drain = of(Op::WriteLater).into_iter().map(Measured::mb_per_second).fold(0.0, f64::max);
    let bytes = match sustained_cache(measurements) {
        Some(bytes) => bytes,
        None => {
            notes.push(format!("the write cache's size was not seen: {} MiB are assumed", CACHE_BYTES >> 20));
            CACHE_BYTES
        }
    };
    let slow = sustained(measurements).map(|(_, slow)| slow);
    let drain_mb_s = rounded(slow.unwrap_or(drain).max(0.01));
    let accept_us = rounded(later);
    Some(WriteCache {
        bytes,
        survives_power_cut: false,
        acknowledges_durable: false,
        accept_us,
        drain_mb_s,
        drain_random_us: 0.0,
    })
}

/// (MB/s in the first tenth, MB/s in the last half) of writing without a pause, if it slowed down
/// by a third.
#[must_use]
pub fn sustained(measurements: &Measurements) -> Option<(f64, f64)> {
    let timeline = &measurements.about(Purpose::Sustained).first()?.tally.timeline;
    let rate = |part: &[u64]| {
        let steps: Vec<f64> = part.iter().map(|&bytes| bytes as f64 / 1e5).collect();
        median(&steps)
    };
    let first = rate(&timeline[..timeline.len() / 10]);
    let last = rate(&timeline[timeline.len() / 2..]);
    (first > 0.0 && last < first / 1.5).then_some((first, last))
}

/// Bytes written until the speed fell.
fn sustained_cache(measurements: &Measurements) -> Option<u64> {
    let (first, last) = sustained(measurements)?;
    let timeline = &measurements.about(Purpose::Sustained).first()?.tally.timeline;
    let between = (first * last).sqrt() * 1e5;
    let fast = timeline.iter().take_while(|&&bytes| bytes as f64 >= between);
    Some(fast.sum::<u64>().max(1 << 20))
}

fn all_outliers(measurements: &Measurements) -> Vec<Outliers> {
    let random = measurements.of(Purpose::BySize, Op::Read, Pattern::Random);
    let reads = random.into_iter().find(|measured| measured.cell.bytes == PAGE);
    let kinds = [(firndb_profile::Op::Read, reads), (firndb_profile::Op::Write, long_run(measurements))];
    let mut all = Vec::new();
    for (op, run) in kinds {
        let classes = run.map_or(Vec::new(), |run| run.outliers().classes);
        all.extend(classes.into_iter().map(|class| Outliers {
            op,
            min_bytes: 0,
            max_bytes: None,
            share: class.share,
            from_us: rounded(class.from_us),
            to_us: rounded(class.to_us),
            spacing: class.regular,
            blocks: Blocks::Channel,
        }));
    }
    all
}

/// By which factor the time of random writes in a part of the area differs from the table's, which
/// is of the whole area.
fn area(measurements: &Measurements) -> Vec<Area> {
    let found = measurements.of(Purpose::ByArea, Op::WriteDurable, Pattern::Random);
    let whole = measurements.of(Purpose::BySize, Op::WriteDurable, Pattern::Random);
    let Some(whole) = whole.into_iter().find(|measured| measured.cell.bytes == PAGE).map(normal_us) else {
        return Vec::new();
    };
    let mut points: Vec<Area> = found
        .iter()
        .filter_map(|measured| {
            let bytes = measured.cell.area.filter(|&bytes| bytes < measurements.area)?;
            Some(Area { bytes, factor: rounded(normal_us(measured) / whole) })
        })
        .collect();
    // A sixth up or down is noise.
    if points.iter().all(|point| (0.85..1.18).contains(&point.factor)) {
        return Vec::new();
    }
    points.push(Area { bytes: measurements.area, factor: 1.0 });
    points
}

fn row(measured: &Measured, area: u64) -> MeasuredRow {
    let cell = &measured.cell;
    let tally = &measured.tally;
    let us = |quantile| rounded(tally.latency.quantile_us(quantile));
    let read_share = match cell.op {
        Op::Mixed { read_percent } => Some(f64::from(read_percent) / 100.0),
        _ => None,
    };
    let found = measured.outliers();
    MeasuredRow {
        op: if cell.op.writes() && read_share.is_none() && cell.stream_depth() == 0 {
            firndb_profile::Op::Write
        } else {
            firndb_profile::Op::Read
        },
        pattern: pattern(cell),
        bytes: cell.bytes as u64,
        depth: (if cell.streams >= cell.depth { 1 } else { cell.depth }) as u32,
        streams: cell.streams as u32,
        durable: cell.op.writes() && cell.op.durability() == firndb_device::Durability::Durable,
        area_bytes: cell.area.unwrap_or(area).min(area),
        read_share,
        samples: tally.requests,
        iops: rounded(measured.requests_per_second() * cell.batch as f64),
        mb_s: rounded(measured.mb_per_second()),
        mean_us: rounded(tally.latency.mean_us()),
        p50_us: us(0.5),
        p95_us: us(0.95),
        p99_us: us(0.99),
        p999_us: us(0.999),
        max_us: rounded(tally.latency.max_us()),
        outlier_share: (!tally.ordered.is_empty()).then_some((found.share * 1e6).round() / 1e6),
        note: note(measured),
    }
}

fn pattern(cell: &Cell) -> firndb_profile::Pattern {
    match (cell.ground, cell.pattern) {
        (Ground::Reserved, _) => firndb_profile::Pattern::Unwritten,
        (Ground::Hole, _) => firndb_profile::Pattern::Append,
        (_, Pattern::Sequential | Pattern::TwoStreams { .. }) => firndb_profile::Pattern::Sequential,
        (_, Pattern::Random) => firndb_profile::Pattern::Random,
        (_, Pattern::Rewrite) => firndb_profile::Pattern::Overlapping,
    }
}

/// The purpose, and parameters without a column.
fn note(measured: &Measured) -> String {
    let (cell, tally) = (&measured.cell, &measured.tally);
    let mut note = cell.purpose.name().to_owned();
    let aside = |what: &str| {
        let latency = &tally.aside;
        let (p50, p99) = (latency.quantile_us(0.5), latency.quantile_us(0.99));
        format!(
            "; {what}: {} of them, mean {:.1} us, p50 {p50:.1}, p99 {p99:.1}",
            latency.count(),
            latency.mean_us()
        )
    };
    match (cell.op, cell.pattern) {
        (Op::WriteThenSync, _) => note += &aside("syncs"),
        (Op::Mixed { .. }, _) => note += &aside("writes"),
        (Op::Beside { .. }, _) => note += &aside("requests of a stream of 256 KiB"),
        (_, Pattern::TwoStreams { .. }) => note += &aside("second stream"),
        _ => {}
    }
    if cell.batch > 1 {
        note += &format!("; {} reads handed over at once, times are of the whole", cell.batch);
    }
    if cell.streams > 1 && cell.depth == 1 {
        note += "; one thread serves the streams in turn";
    }
    if !tally.stalls.is_empty() {
        let longest = tally.stalls.iter().map(|stall| stall.1).max().unwrap_or(0);
        note += &format!("; {} stalls, the longest {longest} ms", tally.stalls.len());
    }
    note
}
