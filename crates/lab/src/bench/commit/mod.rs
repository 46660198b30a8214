//! `firn lab bench commit`: small durable commits beside the raw device's synchronous writes, in
//! turn.
//!
//! In every round each client count is measured on Firn and on raw files, one right after the other
//! and in alternating order; ratios are taken within a round, then their median over rounds. The
//! raw writes are as many in flight as the log has at most for that number of clients, and as large
//! as the log's median write (rounded down to a power of two, which can only favour the raw
//! device).

use firndb_adapter::FirnEngine;
mod raw_device;
mod report;

use clap::Args;
use firndb::{IoCounts, Isolation, Options};
use firndb_console::{Failure, interrupt, progress};
use firndb_workloads::commit_bench::{self, CommitOptions};
use firndb_workloads::{DriverOptions, Length, RunReport};
use raw_device::{RawFiles, RawRun};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// `firn lab bench commit`.
#[derive(Args, Clone, Debug)]
pub struct BenchCommit {
    /// Where the database and the raw file are made, and removed again
    #[arg(long, default_value = ".")]
    pub dir: PathBuf,
    /// Client counts, in turn
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16, 32])]
    pub clients: Vec<u32>,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 3.0)]
    pub seconds: f64,
    /// How often each measurement is made; medians are shown
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Log devices [as many as the device's latency asks for]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub log_devices: Option<u32>,
    /// Measure 8 clients also beside N threads that spin [2 if N is not given]
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "2",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub spinners: Option<u32>,
    /// Write the results to this file as JSON, too
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Keys that commits are drawn from.
const KEYS: u64 = 100_000;
/// The client count that is measured beside spinning threads.
pub const SPINNING_CLIENTS: u32 = 8;

/// One client count, measured once on Firn.
pub struct Run {
    /// What the clients did.
    pub report: RunReport,
    /// Bytes that the log grew by for a commit.
    pub log_bytes: f64,
    /// Writes to the log's files for a commit.
    pub writes_per_commit: f64,
    /// Bytes that these writes were of, for a commit.
    pub written_per_commit: f64,
    /// The median write, rounded down to a power of two.
    pub write_bytes: usize,
}

impl Run {
    pub fn p50_us(&self) -> f64 {
        self.report.kinds[0].latency.p50
    }
}

/// One client count in one round.
pub struct Round {
    /// With nothing else running.
    pub idle: Run,
    pub raw: RawRun,
    /// Beside spinning threads, if that was asked for.
    pub spinning: Option<Run>,
}

pub fn run(args: &BenchCommit) -> Result<(), Failure> {
    if !(args.seconds > 0.0 && args.seconds < 1e6) {
        return Err(Failure::bad_argument("--seconds must be a positive number below a million"));
    }
    if args.clients.iter().any(|clients| !(1..=1024).contains(clients)) {
        return Err(Failure::bad_argument("--clients must be numbers from 1 to 1024"));
    }
    if args.spinners.is_some() && !args.clients.contains(&SPINNING_CLIENTS) {
        return Err(Failure::bad_argument(format!(
            "--spinners measures {SPINNING_CLIENTS} clients: name them in --clients"
        )));
    }
    let stop = interrupt::install()?;
    let dir = args.dir.join(format!("firn-bench-commit-{}", std::process::id()));
    let outcome = Bench::new(args, &dir, stop).and_then(|mut bench| bench.all());
    let _ = std::fs::remove_dir_all(&dir);
    let Measured { head, rounds, interrupted } = outcome?;
    if rounds.iter().all(Vec::is_empty) {
        return Err(Failure::interrupted("stopped before a round was measured: there is nothing to show"));
    }
    report::report(args, head, &rounds)?;
    match interrupted {
        true => Err(Failure::interrupted(
            "stopped before all was measured: the figures are of the rounds that were complete",
        )),
        false => Ok(()),
    }
}

/// What was measured until the end, or until Ctrl-C.
pub struct Measured {
    head: firndb_workloads::results::Conditions,
    rounds: Rounds,
    interrupted: bool,
}

/// A database on the device, and raw files beside it.
pub struct Bench<'a> {
    args: &'a BenchCommit,
    stop: &'a AtomicBool,
    engine: FirnEngine,
    /// Of the database: as many writes can be in flight.
    log_devices: u32,
    raw: RawFiles,
    time: Duration,
}

/// By client count, what each round measured.
pub type Rounds = Vec<Vec<Round>>;

impl<'a> Bench<'a> {
    /// Makes both in a directory of its own.
    pub fn new(args: &'a BenchCommit, dir: &Path, stop: &'a AtomicBool) -> Result<Bench<'a>, Failure> {
        std::fs::create_dir_all(dir).map_err(|error| Failure::new(format!("{}: {error}", dir.display())))?;
        let mut options = Options::new().buffer_bytes(256 << 20);
        if let Some(count) = args.log_devices {
            options = options.log(|log| log.devices(count as usize));
        }
        let db = options.open(dir.join("db"))?;
        let log_devices = db.statistics().log_devices.len() as u32;
        let engine = FirnEngine::new(db, commit_bench::schema(), Isolation::Snapshot)?;
        let most = args.clients.iter().copied().max().unwrap_or(1).min(log_devices);
        let raw = RawFiles::create(dir, most as usize)?;
        Ok(Bench { args, stop, engine, log_devices, raw, time: Duration::from_secs_f64(args.seconds) })
    }

    /// Log devices of the database.
    pub fn log_devices(&self) -> u32 {
        self.log_devices
    }

    fn all(&mut self) -> Result<Measured, Failure> {
        let mut head = report::head(self.args, &self.engine);
        let started = std::time::Instant::now();
        let mut rounds: Rounds = self.args.clients.iter().map(|_| Vec::new()).collect();
        let bar = progress::bar("measuring", u64::from(self.args.rounds) * self.args.clients.len() as u64);
        let mut interrupted = false;
        'all: for number in 0..self.args.rounds {
            for (place, &clients) in self.args.clients.iter().enumerate() {
                let before = rounds[place].last().map(|round: &Round| round.idle.write_bytes);
                let round = self.round(number, clients, before)?;
                interrupted = self.stop.load(Ordering::SeqCst);
                if interrupted {
                    // This one may have been cut short; what was measured before counts.
                    break 'all;
                }
                rounds[place].push(round);
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        head.seconds = started.elapsed().as_secs_f64();
        Ok(Measured { head, rounds, interrupted })
    }

    /// One client count. Every second round the order is the other one; `write_bytes` is what the
    /// round before found.
    pub fn round(&mut self, number: u32, clients: u32, write_bytes: Option<usize>) -> Result<Round, Failure> {
        let streams = clients.min(self.log_devices) as usize;
        let spinners = self.args.spinners.filter(|_| clients == SPINNING_CLIENTS);
        if let Some(bytes) = write_bytes.filter(|_| number % 2 == 1) {
            let raw = self.raw.run(streams, bytes, self.time, self.stop)?;
            let spinning = spinners.map(|count| self.beside_spinners(count, clients)).transpose()?;
            return Ok(Round { raw, spinning, idle: self.commits(clients)? });
        }
        let idle = self.commits(clients)?;
        let spinning = spinners.map(|count| self.beside_spinners(count, clients)).transpose()?;
        let raw = self.raw.run(streams, idle.write_bytes, self.time, self.stop)?;
        Ok(Round { idle, raw, spinning })
    }

    /// Beside this number of threads of equal priority that spin.
    fn beside_spinners(&self, count: u32, clients: u32) -> Result<Run, Failure> {
        let spinning = AtomicBool::new(true);
        std::thread::scope(|scope| {
            for _ in 0..count {
                scope.spawn(|| {
                    while spinning.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let run = self.commits(clients);
            spinning.store(false, Ordering::Relaxed);
            run
        })
    }

    fn commits(&self, clients: u32) -> Result<Run, Failure> {
        let mut driver = DriverOptions::new(clients as usize, self.time);
        driver.length = Length::Time(self.time);
        driver.warm_up = self.time / 5;
        let db = self.engine.database();
        let (before, statistics) = (db.io_counts(), db.statistics());
        let options = CommitOptions { driver, keys: KEYS, seed: 1 };
        let report = commit_bench::run(&self.engine, &options, self.stop, &mut |_| ())?;
        let (io, after) = (db.io_counts().since(&before), db.statistics());
        let commits = (after.txn.commits - statistics.txn.commits).max(1) as f64;
        Ok(Run {
            report,
            log_bytes: (after.log.appended_bytes - statistics.log.appended_bytes) as f64 / commits,
            writes_per_commit: io.log_total().write_ops as f64 / commits,
            written_per_commit: io.log_total().write_bytes as f64 / commits,
            write_bytes: median_write(&io),
        })
    }
}

/// The least size of the class that the log's median write is in.
fn median_write(io: &IoCounts) -> usize {
    let mut counts = [0u64; firndb::device::DeviceCounts::SIZES];
    for log in &io.logs {
        counts.iter_mut().zip(log.writes_by_size).for_each(|(sum, count)| *sum += count);
    }
    let all: u64 = counts.iter().sum();
    let mut below = 0;
    for (class, count) in counts.iter().enumerate() {
        below += count;
        if below * 2 >= all {
            return 512 << class;
        }
    }
    512
}
