//! `compare commit`.

use crate::command::{Common, median, settings_json, show_progress, source_commit, write_json};
use crate::job::{Job, Peer};
use clap::Args;
use firn_workloads::commit_bench::{self, CommitOptions};
use firn_workloads::results::{BenchResult, CommitRow, Conditions};
use firn_workloads::{DriverOptions, Engine, Outcome, wall};
use serde_json::{Map, Value, json};
use std::sync::atomic::{AtomicBool, Ordering};

/// Arguments of `compare commit`.
#[derive(Debug, Args)]
pub struct CommitArgs {
    #[command(flatten)]
    common: Common,
    /// Numbers of clients, one after the other.
    #[arg(long, value_delimiter = ',', default_value = "1,4,16")]
    clients: Vec<usize>,
    /// Keys that rows are drawn from.
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
}

/// Runs every engine at every number of clients, in turn, and shows and writes what came out.
pub fn run(args: &CommitArgs, stop: &AtomicBool) -> Outcome<()> {
    let peers = args.common.peers();
    let sessions = args.clients.iter().copied().max().unwrap_or(1);
    for &peer in &peers {
        args.common.fresh(peer, sessions)?;
    }
    let started_at = wall::iso8601(wall::now_us());
    let mut rows: Vec<CommitRow> = Vec::new();
    let mut settings = Map::new();
    'rounds: for round in 0..args.common.rounds {
        for &clients in &args.clients {
            for &peer in &peers {
                let opened = args.common.settings(peer, sessions);
                let job = Run { args, clients, round, stop, settings: &mut settings };
                rows.push(peer.with(&opened, &commit_bench::schema(), job)?);
                if stop.load(Ordering::Relaxed) {
                    break 'rounds;
                }
            }
        }
    }
    show_medians(&peers, &args.clients, &rows);
    let config = json!({
        "settings": settings, "clients": args.clients, "keys": args.keys, "seconds": args.common.seconds,
        "rounds": args.common.rounds, "memory_mib": args.common.memory_mib, "seed": args.common.seed,
    });
    let mut conditions = Conditions::now("firn-bench/1", source_commit(), config, args.common.seed);
    conditions.started_at = started_at;
    conditions.seconds = args.common.seconds as f64;
    let results = BenchResult { conditions, bench: "commit".into(), rows, targets: vec![], paper: vec![] };
    write_json(args.common.json.as_deref(), &results)?;
    args.common.clean_up(&peers)
}

fn show_medians(peers: &[Peer], clients: &[usize], rows: &[CommitRow]) {
    println!(
        "{:<10}{:>8}{:>7}{:>13}{:>10}{:>10}{:>11}",
        "medians", "clients", "rounds", "commits/s", "p50 us", "p99 us", "p99.9 us"
    );
    for &clients in clients {
        for peer in peers {
            let of: Vec<&CommitRow> =
                rows.iter().filter(|row| row.engine == peer.name() && row.clients == clients).collect();
            let middle = |value: fn(&CommitRow) -> f64| median(of.iter().map(|row| value(row)).collect());
            println!(
                "{:<10}{clients:>8}{:>7}{:>13.0}{:>10.0}{:>10.0}{:>11.0}",
                peer.name(),
                of.len(),
                middle(|row| row.commits_per_second),
                middle(|row| row.latency_us.p50),
                middle(|row| row.latency_us.p99),
                middle(|row| row.latency_us.p999)
            );
        }
    }
}

struct Run<'a> {
    args: &'a CommitArgs,
    clients: usize,
    round: usize,
    stop: &'a AtomicBool,
    /// Of each engine, filled in here because only an open one knows them.
    settings: &'a mut Map<String, Value>,
}

impl Job for Run<'_> {
    type Output = CommitRow;

    fn run<E: Engine>(self, engine: &E) -> Outcome<CommitRow> {
        self.settings.insert(engine.name().to_owned(), settings_json(engine.settings()));
        let options = CommitOptions {
            driver: DriverOptions::new(self.clients, self.args.common.time()),
            keys: self.args.keys,
            seed: self.args.common.seed + self.round as u64,
        };
        let report = commit_bench::run(engine, &options, self.stop, &mut show_progress(engine.name()))?;
        eprintln!();
        Ok(commit_bench::row(engine.name(), self.clients, &report))
    }
}
