//! `compare commit`.

use crate::child::{self, Task, Work};
use crate::command::{
    Common, LOOK, end_progress, median, settings_json, show_progress, source_commit, write_json,
};
use crate::job::{Job, Peer};
use crate::process_io::{ProcessIo, json_for_each};
use crate::targets::{self, Figures};
use clap::Args;
use firndb_workloads::commit_bench::{self, CommitOptions};
use firndb_workloads::results::{BenchResult, Conditions, Target};
use firndb_workloads::{DriverOptions, Engine, EngineError, Outcome, wall};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Arguments of `compare commit`.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
pub struct CommitArgs {
    #[command(flatten)]
    common: Common,
    /// Numbers of clients, one after the other.
    #[arg(long, value_delimiter = ',', default_value = "1,8,32")]
    clients: Vec<usize>,
    /// Keys that rows are drawn from.
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
}

/// Number of clients of the targets.
const TARGET_CLIENTS: usize = 32;
/// Names of the targets, engines, and the ratios that Firn must reach.
const TARGETS: [(&str, &str, f64); 3] =
    [("RocksDB", "rocksdb", 3.0), ("redb", "redb", 6.0), ("SQLite", "sqlite", 8.0)];

impl CommitArgs {
    fn sessions(&self) -> usize {
        self.clients.iter().copied().max().unwrap_or(1)
    }
}

/// Runs every engine at every number of clients, in turn, and shows and writes the results.
pub fn run(args: &CommitArgs, stop: &AtomicBool) -> Outcome<()> {
    let peers = args.common.peers();
    let limit = args.common.limit()?;
    for &peer in &peers {
        args.common.fresh(peer, args.sessions())?;
    }
    let started_at = wall::iso8601(wall::now_us());
    let mut rows: Vec<Value> = Vec::new();
    let mut failed: BTreeMap<Peer, EngineError> = BTreeMap::new();
    'rounds: for round in 0..args.common.rounds {
        for &clients in &args.clients {
            for &peer in &peers {
                if failed.contains_key(&peer) {
                    continue;
                }
                let group = limit.as_ref().map(|limit| limit.dir().to_owned());
                match child::spawn(&Task { peer, group, work: Work::Commit(args.clone(), clients, round) }) {
                    Ok(row) => rows.push(row),
                    Err(error) => {
                        eprintln!("{error}");
                        failed.insert(peer, error);
                    }
                }
                if stop.load(Ordering::Relaxed) {
                    break 'rounds;
                }
            }
        }
    }
    show_medians(&peers, &args.clients, &rows);
    let targets = targets_of(args, &peers, &rows);
    targets::show(&targets);
    let settings: Map<String, Value> =
        rows.iter().map(|row| (text(&row["engine"]), row["settings"].clone())).collect();
    let config = json!({
        "settings": settings, "clients": args.clients, "keys": args.keys, "seconds": args.common.seconds,
        "rounds": args.common.rounds, "memory_mib": args.common.memory_mib,
        "memory_limit_mib": args.common.memory_limit_mib, "seed": args.common.seed,
    });
    let mut conditions = Conditions::now("firn-bench/1", source_commit(), config, args.common.seed);
    conditions.started_at = started_at;
    conditions.seconds = args.common.seconds as f64;
    let results = BenchResult { conditions, bench: "commit".into(), rows, targets, paper: vec![] };
    write_json(args.common.json.as_deref(), &results)?;
    args.common.clean_up(&peers)?;
    failed.into_values().next().map_or(Ok(()), Err)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The rows of one engine and number of clients.
fn rows_of(rows: &[Value], peer: Peer, clients: usize) -> impl Iterator<Item = &Value> {
    rows.iter().filter(move |row| row["engine"] == peer.name() && row["clients"] == clients)
}

fn targets_of(args: &CommitArgs, peers: &[Peer], rows: &[Value]) -> Vec<Target> {
    let rate = |row: &Value| row["commits_per_second"].as_f64();
    let figures: Figures = peers
        .iter()
        .map(|&peer| (peer, rows_of(rows, peer, TARGET_CLIENTS).filter_map(rate).collect()))
        .collect();
    let target = |(title, name, limit): (&str, &str, f64)| {
        let value = if args.clients.contains(&TARGET_CLIENTS) {
            targets::over(&figures, name)
        } else {
            Err(format!("{TARGET_CLIENTS} is not among --clients"))
        };
        targets::at_least(format!("{TARGET_CLIENTS} clients: commits/s over {title}"), value, limit)
    };
    TARGETS.into_iter().map(target).collect()
}

fn show_medians(peers: &[Peer], clients: &[usize], rows: &[Value]) {
    println!(
        "{:<10}{:>8}{:>7}{:>13}{:>10}{:>10}{:>11}{:>15}{:>12}",
        "medians",
        "clients",
        "rounds",
        "commits/s",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "B written/txn",
        "B read/txn"
    );
    for &clients in clients {
        for &peer in peers {
            let middle = |at: &str| {
                median(rows_of(rows, peer, clients).filter_map(|row| row.pointer(at)?.as_f64()).collect())
            };
            println!(
                "{:<10}{clients:>8}{:>7}{:>13.0}{:>10.0}{:>10.0}{:>11.0}{:>15.0}{:>12.0}",
                peer.name(),
                rows_of(rows, peer, clients).count(),
                middle("/commits_per_second"),
                middle("/latency_us/p50"),
                middle("/latency_us/p99"),
                middle("/latency_us/p999"),
                middle("/process_io/write_bytes_per_transaction"),
                middle("/process_io/read_bytes_per_transaction"),
            );
        }
    }
}

/// One run of one engine, in this process.
pub fn run_once(
    args: &CommitArgs,
    peer: Peer,
    (clients, round): (usize, usize),
    stop: &AtomicBool,
) -> Outcome<Value> {
    let opened = args.common.settings(peer, args.sessions());
    peer.with(&opened, &commit_bench::schema(), Run { args, peer, clients, round, stop })
}

struct Run<'a> {
    args: &'a CommitArgs,
    peer: Peer,
    clients: usize,
    round: usize,
    stop: &'a AtomicBool,
}

impl Job for Run<'_> {
    type Output = Value;

    fn run<E: Engine>(self, engine: &E) -> Outcome<Value> {
        let mut driver = DriverOptions::new(self.clients, self.args.common.time());
        driver.report_every = LOOK;
        let options =
            CommitOptions { driver, keys: self.args.keys, seed: self.args.common.seed + self.round as u64 };
        let mut before = ProcessIo::now();
        let report = {
            let mut progress = show_progress(self.peer.name(), &mut before);
            commit_bench::run(engine, &options, self.stop, &mut progress)?
        };
        let io = json_for_each(before, ProcessIo::now(), report.commits());
        end_progress();
        let row = commit_bench::row(self.peer.name(), self.clients, &report);
        let mut row = serde_json::to_value(row).map_err(EngineError::fatal)?;
        row["round"] = json!(self.round);
        row["process_io"] = io;
        row["settings"] = settings_json(engine.settings());
        Ok(row)
    }
}
