//! `compare tpcc`.

use crate::child::{self, Task, Work};
use crate::command::{
    Common, LOOK, end_progress, median, settings_json, show_progress, source_commit, write_json,
};
use crate::job::{Job, Peer};
use crate::process_io::{ProcessIo, json_for_each};
use crate::targets::{self, Figures};
use clap::{Args, ValueEnum};
use firndb_workloads::results::{BenchResult, Conditions, ConsistencyResult, Target, TpccResult};
use firndb_workloads::tpcc::{self, ClientOptions, LoadOptions, Mix, Population, Scale, Terminals, When};
use firndb_workloads::{DriverOptions, Engine, EngineError, Outcome};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Approximate size of one warehouse on a device, in MiB.
const WAREHOUSE_MIB: u64 = 100;

/// Settings that targets require.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Setting {
    /// Caches that hold everything; two clients a core.
    InMemory,
    /// Caches of a tenth of the data, and a limit on all memory; two clients a core.
    TenTimes,
}

/// Arguments of `compare tpcc`.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
pub struct TpccArgs {
    #[command(flatten)]
    common: Common,
    /// Warehouses; each is about 100 MB.
    #[arg(long, default_value_t = 2)]
    warehouses: u32,
    /// Clients [8, or as the setting says].
    #[arg(long)]
    clients: Option<usize>,
    /// A setting that a target is about; it sets --memory-mib, --memory-limit-mib and --clients.
    #[arg(long, value_enum)]
    setting: Option<Setting>,
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

    fn clients(&self) -> usize {
        self.clients.unwrap_or(8)
    }

    /// These arguments with the values of the setting filled in.
    pub fn resolved(mut self) -> TpccArgs {
        let Some(setting) = self.setting else { return self };
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        self.clients = self.clients.or(Some(2 * processors));
        let data = u64::from(self.warehouses) * WAREHOUSE_MIB;
        match setting {
            // A run adds to the loaded data.
            Setting::InMemory => self.common.memory_mib = 4 * data,
            Setting::TenTimes => {
                self.common.memory_mib = (data / 10).max(8);
                // Space for what engines keep beside their caches, above all memtables; the other
                // engines also gain page cache by it.
                let limit = 2 * self.common.memory_mib + 128;
                self.common.memory_limit_mib = self.common.memory_limit_mib.or(Some(limit));
                if self.common.engines.is_empty() {
                    self.common.engines = self.common.peers();
                    self.common.engines.extend([Peer::FirnOff, Peer::FirnOn]);
                }
            }
        }
        self
    }

    /// The configuration that a result depends on.
    fn config(&self, engine: &str, settings: Value) -> Value {
        json!({
            "engine": engine, "settings": settings, "warehouses": self.warehouses, "tiny": self.tiny,
            "clients": self.clients(), "pinned": self.pinned, "seconds": self.common.seconds,
            "memory_mib": self.common.memory_mib, "memory_limit_mib": self.common.memory_limit_mib,
            "setting": self.setting, "seed": self.common.seed, "mix": Mix::default().0,
        })
    }
}

/// Loads every engine, runs them in turn, and shows and writes the results.
pub fn run(args: TpccArgs, stop: &AtomicBool) -> Outcome<()> {
    let peers: Vec<Peer> = args.common.peers();
    let config = args.config("all", Value::Null);
    let mut conditions = Conditions::now("firn-bench/1", source_commit(), config, args.common.seed);
    conditions.seconds = args.common.seconds as f64;
    let limit = args.common.limit()?;
    let group = || limit.as_ref().map(|limit| limit.dir().to_owned());
    let mut failed: BTreeMap<Peer, EngineError> = BTreeMap::new();
    let mut fail = |peer: Peer, error: EngineError| {
        eprintln!("{error}");
        failed.insert(peer, error);
    };
    let mut running = Vec::new();
    for &peer in &peers {
        args.common.fresh(peer, args.clients() + 1)?;
        if stop.load(Ordering::Relaxed) {
            return Err(EngineError::Fatal("stopped while loading".into()));
        }
        let load = Task { peer, group: group(), work: Work::TpccLoad(args.clone()) };
        match if peer == Peer::Memory { Ok(Value::Null) } else { child::spawn(&load) } {
            Ok(_) => running.push(peer),
            Err(error) => fail(peer, error),
        }
    }
    let mut rows: Vec<Value> = Vec::new();
    'rounds: for round in 0..args.common.rounds {
        for peer in running.clone() {
            let last = round + 1 == args.common.rounds;
            let work = Work::TpccRun(args.clone(), round, last);
            match child::spawn(&Task { peer, group: group(), work }) {
                Ok(row) => rows.push(row),
                Err(error) => {
                    running.retain(|other| *other != peer);
                    fail(peer, error);
                }
            }
            if stop.load(Ordering::Relaxed) {
                break 'rounds;
            }
        }
    }
    show_medians(&peers, &rows);
    let targets = targets_of(&args, &peers, &rows);
    targets::show(&targets);
    let broken = rows.iter().any(|row| row["consistency"]["failed"] != json!([]));
    let results = BenchResult { conditions, bench: "tpcc".into(), rows, targets, paper: vec![] };
    write_json(args.common.json.as_deref(), &results)?;
    args.common.clean_up(&peers)?;
    if broken {
        return Err(EngineError::Fatal("TPC-C's consistency conditions do not hold: see above".into()));
    }
    failed.into_values().next().map_or(Ok(()), Err)
}

fn rows_of(rows: &[Value], peer: Peer) -> impl Iterator<Item = &Value> {
    rows.iter().filter(move |row| row["engine"] == peer.name())
}

fn targets_of(args: &TpccArgs, peers: &[Peer], rows: &[Value]) -> Vec<Target> {
    let rate = |row: &Value| row["tpmC"].as_f64();
    let figures: Figures =
        peers.iter().map(|&peer| (peer, rows_of(rows, peer).filter_map(rate).collect())).collect();
    let wanted = [
        (
            Setting::InMemory,
            "TPC-C in memory, durable commits, 2 clients per core: tpmC over the best of four",
            3.0,
        ),
        (Setting::TenTimes, "TPC-C, data 10 times the buffer: tpmC over the best of four", 1.7),
    ];
    let target = |(setting, name, limit): (Setting, &str, f64)| {
        let value = match args.setting {
            _ if args.tiny => Err("figures of --tiny mean nothing".to_owned()),
            Some(found) if found == setting => targets::over_best(&figures),
            _ => Err("run with the --setting that it is about".to_owned()),
        };
        targets::at_least(name, value, limit)
    };
    let written = |row: &Value| row.pointer("/process_io/write_bytes_per_transaction")?.as_f64();
    let written: Figures =
        peers.iter().map(|&peer| (peer, rows_of(rows, peer).filter_map(written).collect())).collect();
    let bytes = |(other, name, limit): (&str, &str, f64)| {
        let value = match args.setting {
            Some(Setting::TenTimes) if !args.tiny => targets::ratio(&written, "firn-on", other),
            _ => Err("run with --setting ten-times".to_owned()),
        };
        targets::at_most(name, value, limit)
    };
    let fewer = [
        ("firn-off", "TPC-C, data 10 times the buffer: bytes written a transaction, deltas on over off", 0.6),
        (
            "rocksdb",
            "TPC-C, data 10 times the buffer: bytes written a transaction, deltas on, over RocksDB",
            0.9,
        ),
    ];
    wanted.into_iter().map(target).chain(fewer.into_iter().map(bytes)).collect()
}

fn show_medians(peers: &[Peer], rows: &[Value]) {
    println!(
        "{:<10}{:>7}{:>12}{:>14}{:>14}{:>15}{:>12}{:>12}{:>14}",
        "medians",
        "rounds",
        "tpmC",
        "NO p50 us",
        "NO p99 us",
        "B written/txn",
        "B read/txn",
        "peak MiB",
        "database MiB"
    );
    for &peer in peers {
        let middle =
            |at: &str| median(rows_of(rows, peer).filter_map(|row| row.pointer(at)?.as_f64()).collect());
        println!(
            "{:<10}{:>7}{:>12.0}{:>14.0}{:>14.0}{:>15.0}{:>12.0}{:>12.0}{:>14.0}",
            peer.name(),
            rows_of(rows, peer).count(),
            middle("/tpmC"),
            middle("/transactions/new_order/latency_us/p50"),
            middle("/transactions/new_order/latency_us/p99"),
            middle("/process_io/write_bytes_per_transaction"),
            middle("/process_io/read_bytes_per_transaction"),
            middle("/memory_peak_bytes") / 1_048_576.0,
            middle("/database_bytes") / 1_048_576.0,
        );
    }
}

/// Loads one engine, in this process.
pub fn load(args: &TpccArgs, peer: Peer) -> Outcome<Value> {
    let settings = args.common.settings(peer, args.clients() + 1);
    peer.with(&settings, &tpcc::schema(), Load { args, peer }).map(|()| Value::Null)
}

/// One run of one engine, in this process.
pub fn run_once(
    args: &TpccArgs,
    peer: Peer,
    (round, last): (usize, bool),
    stop: &AtomicBool,
) -> Outcome<Value> {
    let settings = args.common.settings(peer, args.clients() + 1);
    let mut row = peer.with(&settings, &tpcc::schema(), Run { args, peer, round, last, stop })?;
    row["database_bytes"] = json!(bytes_under(&settings.dir));
    Ok(row)
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
        let name = self.peer.name();
        let shown = AtomicU64::new(0);
        tpcc::load(engine, &options, &|progress| {
            let percent = (progress.rows * 100 / progress.rows_expected).min(100);
            if shown.swap(percent, Ordering::Relaxed) != percent && std::io::stderr().is_terminal() {
                eprint!("\r{name:<10} loading    {percent:>3} %  {:>10} rows   ", progress.rows);
                let _ = std::io::stderr().flush();
            }
        })?;
        end_progress();
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
    type Output = Value;

    fn run<E: Engine>(self, engine: &E) -> Outcome<Value> {
        let Run { args, peer, round, last, stop } = self;
        if Population::of(engine)?.is_none() {
            // The memory engine keeps nothing between rounds.
            Load { args, peer }.run(engine)?;
        }
        let config = args.config(peer.name(), settings_json(engine.settings()));
        let conditions = Conditions::now("firn-tpcc/1", source_commit(), config, args.common.seed);
        let mut driver = DriverOptions::new(args.clients(), args.common.time());
        driver.report_every = LOOK;
        let clients = ClientOptions {
            mix: Mix::default(),
            terminals: if args.pinned { Terminals::Pinned } else { Terminals::Drawn },
            seed: args.common.seed + round as u64,
        };
        let mut before = ProcessIo::now();
        let report = {
            let mut progress = show_progress(peer.name(), &mut before);
            tpcc::run(engine, &driver, &clients, stop, &mut progress)?
        };
        let io = json_for_each(before, ProcessIo::now(), report.commits());
        end_progress();
        let names = (peer.name(), engine.isolation());
        let mut result = TpccResult::new(conditions, names, (args.scale(), args.clients()), &report);
        if last || stop.load(Ordering::Relaxed) {
            result.consistency = ConsistencyResult::of(&tpcc::check(engine, When::AfterRun)?);
        }
        eprintln!("{result}");
        let mut row = serde_json::to_value(result).map_err(EngineError::fatal)?;
        row["round"] = json!(round);
        row["process_io"] = io;
        Ok(row)
    }
}

/// Bytes of all files under a directory; files that cannot be read count as 0.
fn bytes_under(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_under(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    sizes.sum()
}
