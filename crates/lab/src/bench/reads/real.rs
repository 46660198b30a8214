//! `--real`: reads on the drive under a directory, in real time, in turn with reads of the same
//! file by no engine.
//!
//! A round measures everything once; every second round begins with the other of each pair. Ratios
//! are taken within a round, then their median. What is cold begins with an opening of the
//! database.

use super::raw::Raw;
use super::rows::{self, Rows};
use super::targets::{COLD_GET, FETCH_AHEAD, MANY, POINTS, SCAN, SCAN_AHEAD, figure};
use super::work::{self, Done, Length};
use super::{Bench, BenchReads, seconds};
use crate::bench::figure::{Figure, Panel, Point, round as rounded};
use crate::bench::sampled::Sampled;
use firndb::device::{FileDevice, FileOptions};
use firndb::{Database, Options};
use firndb_base::sync::Arc;
use firndb_console::{Failure, progress, size};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Clients that read single rows, and reads of the drive beside which they are judged.
const CLIENTS: u64 = 32;
const DEPTH: usize = 32;
/// Keys that one client asks for at a time.
const EACH: usize = 64;
/// DRAM is filled by reads at random for at most this number of measurements' times.
const WARM_TIMES: u32 = 4;
/// Measurements of a round, for the progress bar.
const STEPS: u64 = 10;

/// How often each measurement is made.
pub fn rounds(args: &BenchReads) -> u32 {
    args.rounds.unwrap_or(if args.quick { 3 } else { 5 })
}

/// Whether pages are read before they are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadAhead {
    On,
    Off,
}

/// What one round measured.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// Of the drive: random pages a second, median latency of one, bytes a second in order.
    raw_random: f64,
    raw_us: f64,
    raw_sequential: f64,
    /// Rows a second, of those whose pages had to be read.
    points: f64,
    many: f64,
    /// The median time of a `get` that missed.
    get_us: f64,
    /// Bytes a second.
    scan: f64,
    scan_plain: f64,
    /// Rows a second.
    fetch: f64,
    fetch_plain: f64,
}

/// A database on the drive, closed between measurements that begin cold.
struct Drive<'a> {
    bench: &'a Bench<'a>,
    path: PathBuf,
    rows: Rows,
    raw: Raw,
    time: Duration,
    bar: indicatif::ProgressBar,
}

fn options(bench: &Bench, ahead: ReadAhead) -> Options {
    let options = Options::new().buffer_bytes(bench.size().buffer as usize);
    options.tuning(|tuning| tuning.read_ahead(ahead == ReadAhead::On))
}

impl<'a> Drive<'a> {
    /// Loads the table into a new database in `dir`.
    fn load(bench: &'a Bench<'a>, dir: &Path) -> Result<Drive<'a>, Failure> {
        let path = dir.join("db");
        let bytes = bench.size().bytes();
        let bar = progress::bar("loading", bytes);
        let db = options(bench, ReadAhead::On).open(&path)?;
        let rows = rows::load(&db, bytes, |loaded| {
            bar.set_position(loaded);
            !bench.is_interrupted()
        })?;
        bar.finish_and_clear();
        let (store, _) = db.statistics().store_device;
        db.close()?;
        let raw = FileOptions { read_only: true, lock: false, ..FileOptions::default() };
        let device = FileDevice::open(Path::new(&store), &raw).map_err(firndb::Error::from)?;
        let bar = progress::bar("measuring", u64::from(rounds(bench.args)) * STEPS);
        Ok(Drive {
            bench,
            path,
            rows,
            raw: Raw { device: Arc::new(device), bytes: rows.pages * rows.page_bytes, stop: bench.stop },
            time: Duration::from_secs_f64(seconds(bench.args)),
            bar,
        })
    }

    fn length(&self) -> Length<'a> {
        Length { rows: u64::MAX, time: self.time, stop: self.bench.stop }
    }

    /// Opens the database for one measurement.
    fn cold<T>(
        &self,
        ahead: ReadAhead,
        body: impl FnOnce(&Database) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.bench.cells.check_interrupt()?;
        let db = options(self.bench, ahead).create(false).open(&self.path)?;
        let outcome = body(&db);
        db.close()?;
        self.step();
        outcome
    }

    fn step(&self) {
        self.bar.inc(1);
    }

    /// Both, in the order of the round.
    fn pair<A, B>(
        &self,
        number: u32,
        one: impl FnOnce() -> Result<A, Failure>,
        other: impl FnOnce() -> Result<B, Failure>,
    ) -> Result<(A, B), Failure> {
        if number.is_multiple_of(2) {
            let one = one()?;
            Ok((one, other()?))
        } else {
            let other = other()?;
            Ok((one()?, other))
        }
    }

    /// Single rows at random, DRAM full: by many clients, many at a time, and one by one.
    fn at_random(&self, number: u32, db: &Database, round: &mut Round) -> Result<(), Failure> {
        let (rows, seed, time) = (self.rows, u64::from(number), self.time);
        let frames = db.statistics().buffer.frames;
        let warm = Length { rows: 2 * frames / CLIENTS, time: WARM_TIMES * time, ..self.length() };
        work::points(db, rows, CLIENTS, seed + 1000, warm)?;
        let raw = || {
            let rate = self.raw.random(DEPTH, time, seed)?.requests_per_second;
            self.step();
            Ok(rate)
        };
        let firn = || {
            let points = work::points(db, rows, CLIENTS, seed, self.length())?;
            self.step();
            let many = work::many(db, rows, EACH, seed, self.length())?;
            self.step();
            Ok((points.missed_per_second(), many.missed_per_second()))
        };
        (round.raw_random, (round.points, round.many)) = self.pair(number, raw, firn)?;
        let raw = || Ok(self.raw.random(1, time, seed + 1)?.latency.quantile_us(0.5));
        let firn = || work::latency_us(db, rows, seed + 1, self.length());
        (round.raw_us, round.get_us) = self.pair(number, raw, firn)?;
        self.step();
        self.bench.cells.check_interrupt()
    }

    fn round(&self, number: u32) -> Result<Round, Failure> {
        let (mut round, seed) = (Round::default(), u64::from(number));
        self.cold(ReadAhead::On, |db| self.at_random(number, db, &mut round))?;
        let raw = || {
            let rate = self.raw.sequential(self.time, seed)?.bytes_per_second;
            self.step();
            Ok(rate)
        };
        // The whole table, however long it takes.
        let whole = Length { time: Duration::MAX, ..self.length() };
        let bytes = |done: Done| self.rows.bytes_of(done.rows) / done.seconds;
        let scan = || self.cold(ReadAhead::On, |db| work::scan(db, whole)).map(bytes);
        (round.raw_sequential, round.scan) = self.pair(number, raw, scan)?;
        let plain = || self.cold(ReadAhead::Off, |db| work::scan(db, self.length()));
        round.scan_plain = bytes(plain()?);
        let fetch = || self.cold(ReadAhead::On, |db| work::fetch(db, seed, whole));
        let plain = || self.cold(ReadAhead::Off, |db| work::fetch(db, seed, self.length()));
        let (fetched, plain) = self.pair(number, fetch, plain)?;
        (round.fetch, round.fetch_plain) = (fetched.per_second(), plain.per_second());
        self.bench.cells.check_interrupt()?;
        Ok(round)
    }
}

/// Runs `body` with a directory that is removed afterwards.
fn in_dir<T>(args: &BenchReads, body: impl FnOnce(&Path) -> Result<T, Failure>) -> Result<T, Failure> {
    let dir = args.dir.as_ref().ok_or_else(|| Failure::bad_argument("--real needs --dir"))?;
    let dir = dir.join(format!("firn-bench-reads-{}", std::process::id()));
    std::fs::create_dir_all(&dir).map_err(|error| Failure::new(format!("{}: {error}", dir.display())))?;
    let outcome = body(&dir);
    let _ = std::fs::remove_dir_all(&dir);
    outcome
}

/// The figure `real`.
pub fn on_drive(bench: &Bench) -> Result<Figure, Failure> {
    in_dir(bench.args, |dir| {
        let drive = Drive::load(bench, dir)?;
        let all = (0..rounds(bench.args)).map(|number| drive.round(number));
        let all = all.collect::<Result<Vec<Round>, Failure>>()?;
        drive.bar.finish_and_clear();
        Ok(of_rounds(bench, &drive, &all))
    })
}

fn of_rounds(bench: &Bench, drive: &Drive, rounds: &[Round]) -> Figure {
    let mut figure = figure("real");
    let of = |value: fn(&Round) -> f64| Sampled::new(rounds.iter().map(value).collect(), None, None);
    POINTS.judge(&mut figure, &of(|it| it.points / it.raw_random));
    MANY.judge(&mut figure, &of(|it| it.many / it.raw_random));
    COLD_GET.judge(&mut figure, &of(|it| it.get_us / it.raw_us));
    SCAN.judge(&mut figure, &of(|it| it.scan / it.raw_sequential));
    SCAN_AHEAD.judge(&mut figure, &of(|it| it.scan / it.scan_plain));
    FETCH_AHEAD.judge(&mut figure, &of(|it| it.fetch / it.fetch_plain));
    for (at, (key, title, unit, values)) in [
        (
            "random",
            "Pages read at random",
            "pages a second",
            vec![
                ("drive, depth 32", of(|it| it.raw_random)),
                ("32 clients", of(|it| it.points)),
                ("get_many of 64", of(|it| it.many)),
            ],
        ),
        (
            "latency",
            "One page at random",
            "us, p50",
            vec![("drive", of(|it| it.raw_us)), ("cold get", of(|it| it.get_us))],
        ),
        (
            "scan",
            "Everything in order",
            "MB a second",
            vec![
                ("drive", of(|it| it.raw_sequential / 1e6)),
                ("full scan", of(|it| it.scan / 1e6)),
                ("without read-ahead", of(|it| it.scan_plain / 1e6)),
            ],
        ),
        (
            "fetch",
            "1 % of the rows by an index",
            "rows a second",
            vec![("fetch", of(|it| it.fetch)), ("row by row", of(|it| it.fetch_plain))],
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let mut panel = Panel::of_bars(&format!("reads-real-{key}"), title, "", unit);
        panel.digits = usize::from(at == 1);
        for (at, (name, value)) in values.into_iter().enumerate() {
            panel.add(unit, Point::new(at as f64, name, &value));
        }
        figure.panels.push(panel);
    }
    figure.rows = rounds.iter().enumerate().map(|(number, round)| row(number, round)).collect();
    figure.notes.push(notes(bench, drive));
    figure
}

fn row(number: usize, round: &Round) -> serde_json::Value {
    json!({
        "figure": "real", "round": number,
        "raw_random_per_second": rounded(round.raw_random), "raw_us": rounded(round.raw_us),
        "raw_sequential_mb_s": rounded(round.raw_sequential / 1e6),
        "points_missed_per_second": rounded(round.points), "many_missed_per_second": rounded(round.many),
        "get_us": rounded(round.get_us), "scan_mb_s": rounded(round.scan / 1e6),
        "scan_plain_mb_s": rounded(round.scan_plain / 1e6),
        "fetched_rows_per_second": rounded(round.fetch),
        "fetched_plain_rows_per_second": rounded(round.fetch_plain),
    })
}

fn notes(bench: &Bench, drive: &Drive) -> String {
    let direct = if drive.raw.device.info().direct { "past" } else { "through" };
    format!(
        "{} rows on {} of pages, {} of DRAM; files are read {direct} the system's page cache. Of reads of \
         single rows those count whose pages had to be read.",
        drive.rows.rows,
        size::show(drive.rows.pages * drive.rows.page_bytes),
        size::show(bench.size().buffer),
    )
}
