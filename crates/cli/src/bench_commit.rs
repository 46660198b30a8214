//! `firn bench commit`: small durable commits beside the raw device's synchronous writes, in turn.

use crate::adapter::FirnEngine;
use crate::args::BenchCommit;
use crate::commit_of_source;
use crate::raw_device::{self, RawRun};
use crate::{Failure, interrupt, progress, size};
use comfy_table::{CellAlignment, Table, presets};
use firn::{Isolation, Options};
use firn_workloads::commit_bench::{self, CommitOptions};
use firn_workloads::results::{BenchResult, CommitRow, Conditions, Target};
use firn_workloads::{DriverOptions, Length, RunReport};
use serde_json::json;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Keys that commits are drawn from.
const KEYS: u64 = 100_000;

/// One client count, measured once.
struct Round {
    report: RunReport,
    raw: RawRun,
    log_bytes: f64,
    writes_per_commit: f64,
    write_bytes: usize,
}

/// Runs the command.
pub fn run(args: &BenchCommit) -> Result<(), Failure> {
    if !(args.seconds > 0.0 && args.seconds < 1e6) {
        return Err(Failure::bad_argument("--seconds must be positive"));
    }
    let stop = interrupt::install()?;
    let dir = args.dir.join(format!("firn-bench-commit-{}", std::process::id()));
    let outcome = measure(args, &dir, stop);
    let _ = std::fs::remove_dir_all(&dir);
    outcome
}

fn measure(args: &BenchCommit, dir: &PathBuf, stop: &AtomicBool) -> Result<(), Failure> {
    std::fs::create_dir_all(dir).map_err(|error| Failure::new(format!("{}: {error}", dir.display())))?;
    let options = Options::new().log_devices(args.log_devices as usize).buffer_bytes(256 << 20);
    let db = options.open(dir.join("db"))?;
    let engine = FirnEngine::new(db, commit_bench::schema(), Isolation::Snapshot)?;
    let spinning = AtomicBool::new(true);
    let mut rounds: Vec<Vec<Round>> = args.clients.iter().map(|_| Vec::new()).collect();
    std::thread::scope(|scope| {
        if args.spinners {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            for _ in 0..cores {
                scope.spawn(|| {
                    while spinning.load(Ordering::Relaxed) {
                        std::hint::spin_loop()
                    }
                });
            }
        }
        let total = u64::from(args.rounds) * args.clients.len() as u64;
        let bar = progress::bar("measuring", total);
        let mut work = || -> Result<(), Failure> {
            for _ in 0..args.rounds {
                for (place, &clients) in args.clients.iter().enumerate() {
                    rounds[place].push(round(&engine, args, dir, clients as usize, stop)?);
                    bar.inc(1);
                    if stop.load(Ordering::SeqCst) {
                        return Err(Failure::new("stopped before all was measured"));
                    }
                }
            }
            Ok(())
        };
        let outcome = work();
        bar.finish_and_clear();
        spinning.store(false, Ordering::Relaxed);
        outcome
    })?;
    engine.into_database().close()?;
    report(args, &rounds)
}

fn round(
    engine: &FirnEngine,
    args: &BenchCommit,
    dir: &PathBuf,
    clients: usize,
    stop: &AtomicBool,
) -> Result<Round, Failure> {
    let time = Duration::from_secs_f64(args.seconds);
    let mut driver = DriverOptions::new(clients, time);
    driver.length = Length::Time(time);
    driver.warm_up = time / 5;
    let before = engine.database().io_counts();
    let log_before = engine.database().statistics().log.appended_bytes;
    let commits_before = engine.database().statistics().txn.commits;
    let run = commit_bench::run(engine, &CommitOptions { driver, keys: KEYS, seed: 1 }, stop, &mut |_| ())?;
    let io = engine.database().io_counts().since(&before).log_total();
    let commits = (engine.database().statistics().txn.commits - commits_before).max(1) as f64;
    let log_bytes = (engine.database().statistics().log.appended_bytes - log_before) as f64 / commits;
    // The raw writes are as large as the log's were, and as many are in flight as the log can have.
    let write_bytes = (io.write_bytes / io.write_ops.max(1)) as usize;
    let streams = clients.min(args.log_devices as usize);
    let raw = raw_device::run(&dir.join("raw"), streams, write_bytes.max(512), time)?;
    Ok(Round { report: run, raw, log_bytes, writes_per_commit: io.write_ops as f64 / commits, write_bytes })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn report(args: &BenchCommit, rounds: &[Vec<Round>]) -> Result<(), Failure> {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header([
        "clients",
        "commits/s",
        "p50 us",
        "p99 us",
        "log B/commit",
        "writes/commit",
        "write size",
        "raw writes/s",
        "raw p50 us",
        "p50 : raw p50",
    ]);
    let mut rows: Vec<CommitRow> = Vec::new();
    let mut targets = Vec::new();
    for (&clients, rounds) in args.clients.iter().zip(rounds) {
        let of = |value: &dyn Fn(&Round) -> f64| median(rounds.iter().map(value).collect());
        let rate = of(&|round| round.report.per_second(round.report.commits()));
        let p50 = of(&|round| round.report.kinds[0].latency.p50 as f64);
        let ratio = of(&|round| round.report.kinds[0].latency.p50 as f64 / round.raw.p50_us);
        table.add_row([
            clients.to_string(),
            format!("{rate:.0}"),
            format!("{p50:.0}"),
            format!("{:.0}", of(&|round| round.report.kinds[0].latency.p99 as f64)),
            format!("{:.0}", of(&|round| round.log_bytes)),
            format!("{:.2}", of(&|round| round.writes_per_commit)),
            size::show(of(&|round| round.write_bytes as f64) as u64),
            format!("{:.0}", of(&|round| round.raw.writes_per_second)),
            format!("{:.0}", of(&|round| round.raw.p50_us)),
            format!("{ratio:.2}"),
        ]);
        rows.extend(rounds.iter().map(|round| {
            let mut row = commit_bench::row("firn", clients as usize, &round.report);
            row.log_bytes_per_commit = Some(round.log_bytes);
            row
        }));
        if clients == 1 {
            targets.push(Target {
                name: "commit p50 over raw sync write p50, 1 client".into(),
                value: Some(ratio),
                target: 1.15,
                better: "lower",
                met: ratio <= 1.15,
                reason: None,
            });
        }
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!(
        "durable commits of one 100-byte value; medians of {} rounds of {} s, each beside the raw device",
        args.rounds, args.seconds
    );
    println!("{table}");
    for target in &targets {
        println!(
            "{}: {:.2}, wanted at most {}: {}",
            target.name,
            target.value.unwrap_or(f64::NAN),
            target.target,
            if target.met { "met" } else { "missed" }
        );
    }
    if let Some(path) = &args.json {
        let config = json!({
            "clients": args.clients, "seconds": args.seconds, "rounds": args.rounds,
            "log_devices": args.log_devices, "spinners": args.spinners,
        });
        let conditions = Conditions::now("firn-bench/1", commit_of_source(), config, 1);
        let result = BenchResult { conditions, bench: "commit".into(), rows, targets, paper: Vec::new() };
        let text = serde_json::to_string_pretty(&result).map_err(|error| Failure::new(error.to_string()))?;
        std::fs::write(path, text + "\n")
            .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    }
    Ok(())
}
