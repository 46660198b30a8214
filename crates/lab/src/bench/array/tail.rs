//! The figure `tail`: reads over four network volumes of which one is late now and then, or frozen.
//!
//! Clients read single rows, or several at once, of a table of ten times DRAM, and pause between:
//! about a quarter of what the volumes can do with copies, three quarters with parity.

use super::devices::{Layout, Loaded, Machine};
use super::measuring::Bench;
use super::tables::Size;
use super::targets::{FROZEN_READ, SPIKES_EXTRA, SPIKES_HIDDEN, SPIKES_READ, SPIKES_WRITE, figure};
use crate::bench::cells::{Cellular, Measured, end_of};
use crate::bench::figure::{Figure, Panel, Point};
use crate::bench::reads::rows::{Rows, key};
use crate::bench::reads::work::{self, Length};
use crate::bench::sampled::Sampled;
use firndb::Database;
use firndb_base::clock::{self, Moment};
use firndb_base::rng::Rng;
use firndb_base::sync::thread;
use firndb_console::Failure;
use firndb_profile::{DeviceProfile, VariantName};
use firndb_workloads::{Latency, LatencyRecorder};
use serde::{Deserialize, Serialize};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const DRIVE: &str = "network-volume";
const CODES: [(usize, usize); 2] = [(1, 2), (3, 4)];
const CLIENTS: u64 = 8;
/// A client's pause between two reads, microseconds.
const PAUSE_US: (u64, u64) = (1_000, 19_000);
/// Reads before it is measured: what a read alone takes is known then.
const SETTLING: Duration = Duration::from_secs(1);
/// The member that has the fault.
const FAULTY: usize = 1;
const SPIKES: (f64, Duration) = (0.01, Duration::from_millis(100));
/// When it is frozen, from the beginning of what is measured.
const FROZEN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(6));
/// Rows that a client reads at a time.
const TOGETHER: [usize; 2] = [1, 4];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    Spikes,
    Frozen,
}

const FAULTS: [(Fault, &str); 3] =
    [(Fault::None, "none"), (Fault::Spikes, "1 % of 100 ms"), (Fault::Frozen, "frozen for 5 s")];

#[derive(Clone, Debug)]
struct Cell {
    profile: DeviceProfile,
    layout: Layout,
    size: Size,
    together: usize,
    fault: Fault,
    /// Whether late reads are begun again.
    is_hidden: bool,
    time: Duration,
}

impl Cellular for Cell {
    type Found = Found;

    fn name(&self) -> String {
        let hidden = if self.is_hidden { "" } else { ", not hidden" };
        let (layout, together) = (self.layout.name(), self.together);
        format!("tail, {layout}, {:?}, {together} at once{hidden}", self.fault).to_lowercase()
    }

    fn at_end(&self, end: VariantName) -> Option<Cell> {
        Some(Cell { profile: end_of(&self.profile, end)?, ..self.clone() })
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Found {
    reads: u64,
    /// Microseconds.
    latency: Latency,
    /// Bytes of members, without metadata, over those of the fragments that the pages need, less
    /// one, in per cent.
    extra_percent: f64,
}

/// Has every client read until the moment; latencies of all.
fn read_until(
    db: &Database,
    (rows, together): (Rows, usize),
    end: Moment,
    seed: u64,
) -> Result<LatencyRecorder, Failure> {
    let table = Rows::table(db)?;
    let client = |number: u64| -> Result<LatencyRecorder, Failure> {
        let (mut rng, mut recorder) = (Rng::new(seed.wrapping_mul(977) + number), LatencyRecorder::default());
        let (mut row, mut found) = (Vec::new(), firndb::Rows::new());
        let mut keys = vec![[0; 8]; together];
        while clock::now() < end {
            clock::sleep(Duration::from_micros(rng.between(PAUSE_US.0, PAUSE_US.1)));
            keys.iter_mut().for_each(|to| *to = key(rng.below(rows.rows)));
            let began = clock::now();
            match &keys[..] {
                [key] => _ = db.snapshot().get_into(&table, key, &mut row)?,
                keys => db.snapshot().get_many_into(&table, keys, &mut found)?,
            }
            recorder.record(began.elapsed());
        }
        Ok(recorder)
    };
    thread::scope(|scope| {
        let client = &client;
        let threads: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(move || client(number))).collect();
        threads.into_iter().try_fold(LatencyRecorder::default(), |mut all, thread| match thread.join() {
            Ok(recorder) => {
                all.merge(&recorder?);
                Ok(all)
            }
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })
}

fn run(cell: &Cell, loaded: &Loaded<Rows>, seed: u64, stop: &'static AtomicBool) -> Result<Found, Failure> {
    let machine = Machine::new(loaded, &cell.profile, seed)?;
    let options = cell.layout.options(cell.size.buffer).wait_for_late_reads(!cell.is_hidden);
    // What a read takes is learned from the first on: none may be free.
    machine.run_free(false);
    let db = machine.open(options.recovery_time(Duration::MAX))?;
    let warm = Length { rows: 2 * cell.size.frames(), time: Duration::MAX, stop };
    work::many(&db, loaded.what, 64, seed + 1, warm)?;
    let after = |time: Duration| clock::now().after(time).expect("it is within the clock's range");
    let load = (loaded.what, cell.together);
    read_until(&db, load, after(SETTLING), seed + 2)?;
    let faulty = &machine.members[FAULTY].timed;
    match cell.fault {
        Fault::None => {}
        Fault::Spikes => faulty.spikes(SPIKES.0, SPIKES.1),
        Fault::Frozen => faulty.freeze(FROZEN.0, FROZEN.1),
    }
    let counts = || (db.statistics().store, machine.moved().read_bytes);
    let before = counts();
    let recorder = read_until(&db, load, after(cell.time), seed)?;
    let after = counts();
    let pages = after.0.pages_read - before.0.pages_read;
    let metadata = after.0.metadata_bytes_read - before.0.metadata_bytes_read;
    let bytes = (after.1 - before.1).saturating_sub(metadata);
    machine.run_free(true);
    db.close()?;
    let extra_percent = extra_percent(cell.layout, pages, bytes);
    Ok(Found { reads: recorder.count(), latency: recorder.summary(), extra_percent })
}

fn extra_percent(layout: Layout, pages: u64, bytes: u64) -> f64 {
    100.0 * (bytes as f64 / (pages as f64 * layout.bytes_of_read()) - 1.0)
}

/// Code, rows at once, fault, and whether late reads are hidden.
type Asked = ((usize, usize), usize, Fault, bool);

fn measure(bench: &Bench, asked: Asked) -> Result<Measured<Found>, Failure> {
    let ((needed, written), together, fault, is_hidden) = asked;
    let profile = crate::tpcc::machine::profile(DRIVE)?;
    let (layout, size) = (Layout::new(needed, written, 4), bench.size());
    let time = Duration::from_secs(bench.args.by_size(1, 8, 20));
    let cell = Cell { profile, layout, size, together, fault, is_hidden, time };
    bench.over_rows(&cell, (cell.layout, cell.size), run)
}

/// What the targets are judged by: a value for each code and number of rows at once.
#[derive(Default)]
struct Judging {
    spikes: Vec<Sampled>,
    hidden: Vec<Sampled>,
    extra: Vec<Sampled>,
    frozen: Vec<Sampled>,
}

/// The figure.
pub fn tail(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = figure("tail");
    let title = "Reads over four network volumes: p99.9, ms";
    let mut panel = Panel::of_bars("array-tail", title, "one of the volumes", "ms");
    (panel.digits, panel.log_y) = (2, true);
    let title = "All of it, ms: late reads begun again, and not";
    let mut all = Panel::of_bars("array-tail-all", title, "code, rows at once, fault", "ms");
    (all.digits, all.drawn) = (2, false);
    let mut judging = Judging::default();
    let mut row = 0.0;
    for code in CODES {
        for together in TOGETHER {
            one(bench, (code, together), (&mut panel, &mut all), &mut row, &mut judging)?;
        }
    }
    figure.panels.extend([panel, all]);
    let most = |all: &[Sampled]| Sampled::most(all).unwrap_or_default();
    SPIKES_READ.judge(&mut figure, &most(&judging.spikes));
    SPIKES_HIDDEN.judge(&mut figure, &Sampled::least(&judging.hidden).unwrap_or_default());
    SPIKES_EXTRA.judge(&mut figure, &most(&judging.extra));
    SPIKES_WRITE.skip(&mut figure, "not built: a write returns when all members have it");
    FROZEN_READ.judge(&mut figure, &most(&judging.frozen));
    figure.notes.push(format!(
        "{CLIENTS} clients pause {} to {} ms between reads. The worst of the codes, and of one and several rows at \
         once, counts.",
        PAUSE_US.0 / 1000,
        PAUSE_US.1 / 1000,
    ));
    Ok(figure)
}

fn one(
    bench: &Bench,
    (code, together): ((usize, usize), usize),
    (panel, all): (&mut Panel, &mut Panel),
    row: &mut f64,
    judging: &mut Judging,
) -> Result<(), Failure> {
    let p999 = |found: &Measured<Found>| found.value(|it| it.latency.p999 / 1000.0);
    let longest = |found: &Measured<Found>| found.value(|it| it.latency.max / 1000.0);
    let clean = measure(bench, (code, together, Fault::None, true))?;
    let name = format!("{} of {}, {together} at once", code.0, code.1);
    for (at, (fault, fault_name)) in FAULTS.into_iter().enumerate() {
        let hidden = measure(bench, (code, together, fault, true))?;
        let plain = measure(bench, (code, together, fault, false))?;
        panel.add(&name, Point::new(at as f64, fault_name, &p999(&hidden)));
        *row += 1.0;
        let mut add = |series: &str, value: Sampled| {
            all.add(series, Point::new(*row, format!("{name}, {fault_name}"), &value));
        };
        add("p50", hidden.value(|it| it.latency.p50 / 1000.0));
        add("p99", hidden.value(|it| it.latency.p99 / 1000.0));
        add("p99.9", p999(&hidden));
        add("longest", longest(&hidden));
        add("extra reads, %", hidden.value(|it| it.extra_percent));
        add("not hidden: p99.9", p999(&plain));
        add("not hidden: longest", longest(&plain));
        match fault {
            Fault::None => {}
            Fault::Spikes => {
                judging.spikes.push(p999(&hidden).over(&p999(&clean)));
                judging.hidden.push(p999(&plain).over(&p999(&hidden)));
                judging.extra.push(hidden.value(|it| it.extra_percent));
            }
            Fault::Frozen => {
                let beyond = longest(&hidden).with(&longest(&clean), |late, clean| late - clean);
                judging.frozen.push(beyond);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extra_reads_are_what_goes_beyond_the_fragments_that_pages_need() {
        let (copies, parity) = (Layout::new(1, 2, 4), Layout::new(3, 4, 4));
        assert_eq!(extra_percent(copies, 100, 100 * 4096), 0.0);
        assert!((extra_percent(copies, 100, 103 * 4096) - 3.0).abs() < 1e-9);
        assert_eq!(extra_percent(parity, 100, 100 * 3 * 1536), 0.0);
    }
}
