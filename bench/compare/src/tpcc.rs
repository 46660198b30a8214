//! `compare tpcc`.

use crate::command::{Common, median, settings_json, show_progress, source_commit, write_json};
use crate::job::{Job, Peer};
use clap::Args;
use firn_workloads::results::{BenchResult, Conditions, ConsistencyResult, TpccResult};
use firn_workloads::tpcc::{self, ClientOptions, LoadOptions, Mix, Population, Scale, Terminals, When};
use firn_workloads::{DriverOptions, Engine, Outcome};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Arguments of `compare tpcc`.
#[derive(Debug, Args)]
pub struct TpccArgs {
    #[command(flatten)]
    common: Common,
    /// Warehouses; each is about 80 MB.
    #[arg(long, default_value_t = 2)]
    warehouses: u32,
    /// Clients.
    #[arg(long, default_value_t = 8)]
    clients: usize,
    /// A population of a few hundred rows, to try the program out; its figures mean nothing.
    #[arg(long)]
    tiny: bool,
    /// Give each client a terminal of its own instead of drawing one for each transaction.
    #[arg(long)]
    pinned: bool,
}

impl TpccArgs {
    fn scale(&self) -> Scale {
        if self.tiny { Scale::tiny(self.warehouses) } else { Scale::full(self.warehouses) }
    }

    /// The configuration that a result depends on.
    fn config(&self, engine: &str, settings: Value) -> Value {
        json!({
            "engine": engine, "settings": settings, "warehouses": self.warehouses, "tiny": self.tiny,
            "clients": self.clients, "pinned": self.pinned, "seconds": self.common.seconds,
            "memory_mib": self.common.memory_mib, "seed": self.common.seed, "mix": Mix::default().0,
        })
    }
}

/// Loads every engine, runs them in turn, and shows and writes what came out.
pub fn run(args: &TpccArgs, stop: &AtomicBool) -> Outcome<()> {
    let peers: Vec<Peer> = args.common.peers();
    let config = args.config("all", Value::Null);
    let mut conditions = Conditions::now("firn-bench/1", source_commit(), config, args.common.seed);
    conditions.seconds = args.common.seconds as f64;
    for &peer in &peers {
        let settings = args.common.fresh(peer, args.clients + 1)?;
        if peer != Peer::Memory {
            peer.with(&settings, &tpcc::schema(), Load { args, peer })?;
        }
    }
    let mut rows: Vec<TpccResult> = Vec::new();
    'rounds: for round in 0..args.common.rounds {
        for &peer in &peers {
            let settings = args.common.settings(peer, args.clients + 1);
            let last = round + 1 == args.common.rounds;
            let mut row = peer.with(&settings, &tpcc::schema(), Run { args, peer, round, last, stop })?;
            row.database_bytes = Some(bytes_under(&settings.dir));
            println!("{row}");
            rows.push(row);
            if stop.load(Ordering::Relaxed) {
                break 'rounds;
            }
        }
    }
    show_medians(&rows);
    let results = BenchResult { conditions, bench: "tpcc".into(), rows, targets: vec![], paper: vec![] };
    write_json(args.common.json.as_deref(), &results)?;
    args.common.clean_up(&peers)
}

fn show_medians(rows: &[TpccResult]) {
    let mut by_engine: BTreeMap<&str, Vec<&TpccResult>> = BTreeMap::new();
    rows.iter().for_each(|row| by_engine.entry(&row.engine).or_default().push(row));
    println!("{:<10}{:>7}{:>12}{:>14}{:>14}", "medians", "rounds", "tpmC", "NO p50 us", "NO p99 us");
    for (engine, rows) in by_engine {
        let of = |value: fn(&TpccResult) -> f64| median(rows.iter().map(|row| value(row)).collect());
        println!(
            "{engine:<10}{:>7}{:>12.0}{:>14.0}{:>14.0}",
            rows.len(),
            of(|row| row.tpm_c),
            of(|row| row.transactions["new_order"].latency_us.p50),
            of(|row| row.transactions["new_order"].latency_us.p99)
        );
    }
}

struct Load<'a> {
    args: &'a TpccArgs,
    peer: Peer,
}

impl Job for Load<'_> {
    type Output = ();

    fn run<E: Engine>(self, engine: &E) -> Outcome<()> {
        let mut options = LoadOptions::new(self.args.scale(), self.args.common.seed);
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        options.threads = if self.peer.single_writer() { 1 } else { processors };
        let name = engine.name();
        let shown = AtomicU64::new(0);
        tpcc::load(engine, &options, &|progress| {
            let percent = (progress.rows * 100 / progress.rows_expected).min(100);
            if shown.swap(percent, Ordering::Relaxed) != percent {
                eprint!("\r{name:<10} loading    {percent:>3} %  {:>10} rows   ", progress.rows);
                let _ = std::io::stderr().flush();
            }
        })?;
        eprintln!();
        Ok(())
    }
}

struct Run<'a> {
    args: &'a TpccArgs,
    peer: Peer,
    round: usize,
    /// Whether consistency is checked after it.
    last: bool,
    stop: &'a AtomicBool,
}

impl Job for Run<'_> {
    type Output = TpccResult;

    fn run<E: Engine>(self, engine: &E) -> Outcome<TpccResult> {
        let Run { args, peer, round, last, stop } = self;
        if Population::of(engine)?.is_none() {
            // The memory engine keeps nothing between rounds.
            Load { args, peer }.run(engine)?;
        }
        let config = args.config(engine.name(), settings_json(engine.settings()));
        let conditions = Conditions::now("firn-tpcc/1", source_commit(), config, args.common.seed);
        let driver = DriverOptions::new(args.clients, args.common.time());
        let clients = ClientOptions {
            mix: Mix::default(),
            terminals: if args.pinned { Terminals::Pinned } else { Terminals::Drawn },
            seed: args.common.seed + round as u64,
        };
        let report = tpcc::run(engine, &driver, &clients, stop, &mut show_progress(engine.name()))?;
        eprintln!();
        let names = (engine.name(), engine.isolation());
        let mut result = TpccResult::new(conditions, names, (args.scale(), args.clients), &report);
        if last || stop.load(Ordering::Relaxed) {
            result.consistency = ConsistencyResult::of(&tpcc::check(engine, When::AfterRun)?);
        }
        Ok(result)
    }
}

/// Bytes of all files under a directory; what cannot be read counts as nothing.
fn bytes_under(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_under(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    sizes.sum()
}
