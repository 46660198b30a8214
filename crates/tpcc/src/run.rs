//! The run itself: loads, measures, checks and reports.

use crate::args::{CommitName, IsolationName, TpccArgs};
use crate::backup;
use crate::load::{load, load_tables, refuse_before_creation};
use crate::machine::Machine;
use crate::report;
use crate::tables;
use crate::tape::Tapes;
use firndb::{CacheKind, CachePolicy, CacheSettings, Database, Face, IoCounts, Isolation, Options};
use firndb_adapter::OnFirn;
use firndb_base::clock;
use firndb_console::output::write_json;
use firndb_console::{Failure, commit_of_source, interrupt, progress, say, size};
use firndb_workloads::results::{Conditions, ConsistencyResult, TierIo, TpccResult};
use firndb_workloads::tpcc::{self, ClientOptions, Condition, Population, Terminals, When};
use firndb_workloads::{CommitMode, DriverOptions, Length, LiveRate, RunReport};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Commits that an asynchronous client may have in flight.
const ASYNC_WINDOW: usize = 1024;

/// Runs on files, in real time, behind the emulated devices of `machine` if there is one. `kinds`:
/// the flash caches beside Firn's own that the database may have.
pub fn run_on_files(
    args: &TpccArgs,
    machine: Option<Arc<dyn Machine>>,
    kinds: Vec<Arc<dyn CacheKind>>,
) -> Result<(), Failure> {
    let stop = interrupt::install()?;
    let tapes = args.trace.as_deref().map(Tapes::in_directory).transpose()?;
    let mut options = options(args, kinds)?;
    if let Some(tapes) = &tapes {
        options = tapes.record(options);
    }
    if let Some(machine) = machine.clone() {
        options = options.log(|log| log.devices(machine.log_devices()));
        options = options.wrap_devices(move |name, device| machine.wrap(name, device));
    }
    let may_load = !args.no_load && !args.check_only;
    if may_load && !args.dir.join("superblock").exists() {
        refuse_before_creation(args)?;
    }
    let opening = clock::now();
    let db = options.open(&args.dir)?;
    report_recovery(&db, opening);
    let mut engine = tables::open(db, isolation(args))?;
    let loads = Population::of(&engine)?.is_none() && may_load;
    let mut loaded = Ok(false);
    if loads {
        let db = engine.into_database();
        loaded = load_tables(&db, args, stop).map(|()| true);
        engine = tables::open(db, isolation(args))?;
    }
    let prepared = loaded.and_then(|loaded| prepare(&engine, args, loaded, stop));
    let outcome = prepared.and_then(|population| match population {
        Some(population) => measure_and_report(&engine, args, stop, population, machine.as_deref()),
        None => Ok(()),
    });
    // After a failure, too, the database is closed: what is committed is written out before the
    // process ends.
    let closing = progress::spinner("writing what is dirty");
    let closed = engine.into_database().close();
    closing.finish_and_clear();
    let taped = tapes.map_or(Ok(()), |tapes| tapes.finish());
    outcome?;
    closed?;
    taped?;
    say!(
        "\nThe database is in {}. Next: firn stat {0}, firn check {0}, or run the same command again.",
        args.dir.display()
    );
    Ok(())
}

fn options(args: &TpccArgs, kinds: Vec<Arc<dyn CacheKind>>) -> Result<Options, Failure> {
    let mut options =
        Options::new().create(!args.no_load && !args.check_only).on_recovery(progress::recovery());
    options = with_memory(options, args)?;
    if let Some(count) = args.log_devices {
        options = options.log(|log| log.devices(count as usize));
    }
    if let Some(directory) = &args.archive {
        let directory = backup::absolute(directory)?;
        options = options.archive(|archive| archive.directory(directory));
    }
    if !args.log_path.is_empty() {
        let paths = args.log_path.iter().map(|path| backup::absolute(path)).collect::<Result<_, _>>()?;
        options = options.log(|log| log.paths(paths));
    }
    options = with_cache(options, args, kinds)?;
    if !args.store_path.is_empty() {
        let paths =
            args.store_path.iter().map(|path| backup::absolute(path)).collect::<Result<Vec<_>, _>>()?;
        options = options.store_paths(paths).store_survives(args.store_survives);
        if let Some((needed, written)) = args.store_code {
            options = options.store_code(needed, written);
        }
    }
    Ok(options)
}

/// With the flash cache that the arguments ask for.
pub fn with_cache(
    options: Options,
    args: &TpccArgs,
    kinds: Vec<Arc<dyn CacheKind>>,
) -> Result<Options, Failure> {
    let name = args.cache_policy.as_str();
    let other = kinds.iter().find(|kind| kind.name() == name).cloned();
    let options = options.cache(|cache| kinds.into_iter().fold(cache, CacheSettings::kind));
    let mut options = match (CachePolicy::named(name), other) {
        (Some(policy), _) => options.cache(|cache| cache.kind(Arc::new(Face)).policy(policy)),
        (None, Some(kind)) => options.cache(|cache| cache.kind(kind)),
        (None, None) => {
            return Err(Failure::bad_argument(format!(
                "there is no cache policy {name:?}; docs/guide/cache.md lists them"
            )));
        }
    };
    if let Some(bytes) = args.cache {
        options = options.cache(|cache| cache.bytes(bytes));
    }
    if let Some(path) = &args.cache_path {
        let path = backup::absolute(path)?;
        options = options.cache(|cache| cache.path(path));
    }
    Ok(options)
}

/// With the DRAM that the arguments give.
pub fn with_memory(options: Options, args: &TpccArgs) -> Result<Options, Failure> {
    let bytes = |name: &str, bytes: u64| {
        usize::try_from(bytes).map_err(|_| Failure::bad_argument(format!("{name} is too large")))
    };
    let options = options.buffer_bytes(bytes("--buffer", args.buffer)?);
    let writes = |tuning: firndb::Tuning| tuning.deltas(args.deltas.into()).placement(args.placement.into());
    let options = options.tuning(writes);
    let options = match args.delta_buffer {
        Some(size) => {
            let size = bytes("--delta-buffer", size)?;
            options.tuning(|tuning| tuning.delta_bytes(size))
        }
        None => options,
    };
    let Some(map) = args.map else { return Ok(options) };
    let map = bytes("--map", map)?;
    Ok(options.tuning(|tuning| tuning.map_bytes(map)))
}

/// The isolation level that the arguments name.
pub fn isolation(args: &TpccArgs) -> Isolation {
    match args.isolation {
        IsolationName::Snapshot => Isolation::Snapshot,
        IsolationName::Serializable => Isolation::Serializable,
    }
}

fn report_recovery(db: &Database, since: clock::Moment) {
    let recovery = db.recovery_report();
    if !recovery.clean {
        say!(
            "recovery took {:.2} s: {} of log read, {} pages to be redone, {} transactions to be rolled back",
            since.elapsed().as_secs_f64(),
            size::show(recovery.log_bytes),
            recovery.redo.pages_pending,
            recovery.losers
        );
    }
}

/// Loads, unless that is done, and checks, as far as the arguments ask for it; returns the
/// population to run on, if a run is asked for.
pub fn prepare(
    engine: &impl OnFirn,
    args: &TpccArgs,
    loaded: bool,
    stop: &AtomicBool,
) -> Result<Option<Population>, Failure> {
    if let Some(to) = &args.backup_to {
        engine.database().check_backup_directory(to)?;
    }
    let (population, fresh) = match Population::of(engine)? {
        Some(found) => {
            if found.scale.warehouses != args.warehouses && !args.check_only {
                say!(
                    "{} holds {}; going on with that",
                    args.dir.display(),
                    report::count(found.scale.warehouses.into(), "warehouse")
                );
            }
            (found, loaded)
        }
        None if args.no_load || args.check_only => {
            return Err(Failure::new(format!(
                "{} holds no loaded TPC-C database; run without --no-load",
                args.dir.display()
            )));
        }
        None => (load(engine, args, stop)?, true),
    };
    let when = if fresh { When::AfterLoad } else { When::AfterRun };
    if (args.load_only || args.check_only || fresh) && !args.no_check {
        report_consistency(&consistency(engine, when)?)?;
    }
    if args.load_only || args.check_only {
        return Ok(None);
    }
    if stop.load(Ordering::SeqCst) {
        return Err(Failure::interrupted("stopped before the run; the database can be used"));
    }
    Ok(Some(population))
}

/// Runs the clients, checks what they left, and reports. `machine` is what it takes place on, if
/// not this one.
pub fn measure_and_report(
    engine: &impl OnFirn,
    args: &TpccArgs,
    stop: &AtomicBool,
    population: Population,
    machine: Option<&dyn Machine>,
) -> Result<(), Failure> {
    let time = match args.transactions {
        Some(count) => format!("{count} transactions each"),
        None => format!("{} s after {} s of warm-up", args.seconds, args.warmup),
    };
    say!("running {}: {time}", report::count(args.clients.into(), "client"));
    let began = Instant::now();
    let config = config(engine, args, population, machine);
    let mut head = Conditions::now("firn-tpcc/1", commit_of_source(), config, args.seed);
    if let Some(machine) = machine {
        (head.device_profile, head.simulated) = (Some(machine.profiles()), machine.is_simulated());
        // What loading left dirty was written while devices were free.
        engine.database().checkpoint()?;
        machine.measure(true);
    }
    let before = engine.database().memory_use().curve;
    let measured = backup::beside(engine, args, stop, || measure(engine, args, stop));
    if let Some(machine) = machine {
        machine.measure(false);
    }
    let (report, counts) = measured?;
    // Of the run: loading and checking read other pages.
    let mut memory = engine.database().memory_use();
    memory.curve = memory.curve.since(&before);
    let conditions = if args.no_check { Vec::new() } else { consistency(engine, When::AfterRun)? };
    let mut result = result_of(engine, (head, args, population), &report, &counts, &conditions);
    result.simulation = machine.and_then(|machine| machine.simulation(began.elapsed().as_secs_f64()));
    say!("\n{}", report::of(&result, engine.database(), &counts.io, &report));
    if let Some(machine) = machine {
        machine.paragraphs(engine.database(), &memory).iter().for_each(|text| say!("\n{text}"));
    }
    if let Some(path) = &args.json {
        write_json(path, &result)?;
    }
    if !args.no_check {
        report_consistency(&conditions)?;
    }
    if stop.load(Ordering::SeqCst) {
        return Err(Failure::interrupted("stopped before its time; the figures are of the time it ran"));
    }
    Ok(())
}

/// What the engine counted in the measured interval.
struct Counts {
    io: IoCounts,
    buffer_hits: u64,
    buffer_misses: u64,
    /// Of what DRAM missed; nothing if there is no flash cache.
    cache_hits: u64,
    cache_misses: u64,
    /// Of the page map; the store's counts contain it.
    map: TierIo,
    delta: TierIo,
}

impl Counts {
    /// Since the opening.
    fn now(db: &Database) -> Counts {
        let statistics = db.statistics();
        let buffer = statistics.buffer;
        let (cache_hits, cache_misses) = statistics.cache.map_or((0, 0), |cache| (cache.hits, cache.misses));
        let (buffer_hits, buffer_misses) = (buffer.hits, buffer.misses);
        let store = statistics.store;
        let map = TierIo {
            write_ops: store.metadata_pages_written,
            write_bytes: store.metadata_bytes_written,
            read_ops: store.metadata_pages_read,
            read_bytes: store.metadata_bytes_read,
        };
        let page_bytes = statistics.page_size as u64;
        let delta = TierIo {
            write_ops: store.delta_pages_written,
            write_bytes: store.delta_pages_written * page_bytes,
            read_ops: store.delta_pages_read,
            read_bytes: store.delta_pages_read * page_bytes,
        };
        Counts { io: db.io_counts(), buffer_hits, buffer_misses, cache_hits, cache_misses, map, delta }
    }
    fn since(&self, earlier: &Counts) -> Counts {
        Counts {
            io: self.io.since(&earlier.io),
            buffer_hits: self.buffer_hits - earlier.buffer_hits,
            buffer_misses: self.buffer_misses - earlier.buffer_misses,
            cache_hits: self.cache_hits - earlier.cache_hits,
            cache_misses: self.cache_misses - earlier.cache_misses,
            map: between(&earlier.map, &self.map),
            delta: between(&earlier.delta, &self.delta),
        }
    }
    /// Share of page accesses that were hits in DRAM.
    fn hit_rate(&self) -> f64 {
        let all = self.buffer_hits + self.buffer_misses;
        if all == 0 { 1.0 } else { self.buffer_hits as f64 / all as f64 }
    }
    /// Share of what DRAM missed that the flash cache had; `None` if nothing was asked of one.
    fn cache_hit_rate(&self) -> Option<f64> {
        let all = self.cache_hits + self.cache_misses;
        (all > 0).then(|| self.cache_hits as f64 / all as f64)
    }
}

/// What was counted between two moments.
fn between(earlier: &TierIo, later: &TierIo) -> TierIo {
    TierIo {
        write_ops: later.write_ops - earlier.write_ops,
        write_bytes: later.write_bytes - earlier.write_bytes,
        read_ops: later.read_ops - earlier.read_ops,
        read_bytes: later.read_bytes - earlier.read_bytes,
    }
}

/// How closely the counters' start follows the end of the warm-up.
const LOOK: Duration = Duration::from_millis(20);
/// How often the bar's rate is renewed.
const SHOW: Duration = Duration::from_millis(500);

fn driver_options(args: &TpccArgs) -> DriverOptions {
    let time = Duration::from_secs(args.seconds);
    let mut driver = DriverOptions::new(args.clients as usize, time);
    (driver.warm_up, driver.length) = match args.transactions {
        Some(count) => (Duration::ZERO, Length::TransactionsPerClient(count)),
        None => (Duration::from_secs(args.warmup), Length::Time(time)),
    };
    driver.commit_mode = match args.commit {
        CommitName::Wait => CommitMode::Wait,
        CommitName::Async => CommitMode::Async,
    };
    driver.window = ASYNC_WINDOW;
    driver.report_every = LOOK;
    driver
}

/// Runs the clients; returns what they did, and what the engine counted meanwhile.
fn measure(engine: &impl OnFirn, args: &TpccArgs, stop: &AtomicBool) -> Result<(RunReport, Counts), Failure> {
    let clients = ClientOptions { mix: tpcc::Mix::default(), terminals: Terminals::Drawn, seed: args.seed };
    let total = match args.transactions {
        Some(count) => count * u64::from(args.clients),
        None => (args.warmup + args.seconds) * 1000,
    };
    let bar = progress::bar("running", total);
    let mut base = Counts::now(engine.database());
    let (mut shown, mut shown_commits) = (Duration::ZERO, 0);
    let report = tpcc::run(engine, &driver_options(args), &clients, stop, &mut |rate: LiveRate| {
        if rate.warming_up {
            base = Counts::now(engine.database());
        }
        if rate.elapsed - shown < SHOW {
            return;
        }
        let done = if args.transactions.is_some() { rate.commits } else { rate.elapsed.as_millis() as u64 };
        bar.set_position(done.min(total));
        let state = if rate.warming_up { "warming up, " } else { "" };
        let per_second = (rate.commits - shown_commits) as f64 / (rate.elapsed - shown).as_secs_f64();
        bar.set_message(format!("{state}{per_second:.0} transactions/s"));
        (shown, shown_commits) = (rate.elapsed, rate.commits);
    })?;
    let counts = Counts::now(engine.database()).since(&base);
    bar.finish_and_clear();
    Ok((report, counts))
}

fn consistency(engine: &impl OnFirn, when: When) -> Result<Vec<Condition>, Failure> {
    let spinner = progress::spinner("checking TPC-C's consistency conditions");
    let conditions = tpcc::check(engine, when)?;
    spinner.finish_and_clear();
    Ok(conditions)
}

fn report_consistency(conditions: &[Condition]) -> Result<ConsistencyResult, Failure> {
    let result = ConsistencyResult::of(conditions);
    if result.failed.is_empty() {
        let numbers: Vec<String> =
            result.checked.iter().filter(|number| **number > 0).map(ToString::to_string).collect();
        say!("consistency: conditions {} of clause 3.3.2 hold, and every row is whole", numbers.join(", "));
        return Ok(result);
    }
    result.failures.iter().for_each(|sentence| eprintln!("{sentence}"));
    Err(Failure::new(format!("{} of the consistency conditions do not hold", result.failed.len())))
}

fn config(
    engine: &impl OnFirn,
    args: &TpccArgs,
    population: Population,
    machine: Option<&dyn Machine>,
) -> Value {
    let settings: serde_json::Map<String, Value> =
        engine.settings().into_iter().map(|(name, value)| (name, Value::String(value))).collect();
    json!({
        "warehouses": population.scale.warehouses, "full_scale": population.scale.is_full(),
        "clients": args.clients, "seconds": args.seconds, "warmup": args.warmup,
        "transactions_per_client": args.transactions, "buffer_bytes": args.buffer, "map_bytes": args.map,
        "deltas": format!("{:?}", args.deltas).to_lowercase(), "delta_bytes": args.delta_buffer,
        "cache_bytes": args.cache, "cache_policy": args.cache.map(|_| &args.cache_policy),
        "isolation": engine.isolation(), "commit": format!("{:?}", args.commit).to_lowercase(),
        "engine": settings, "machine": machine.map(|machine| machine.config()),
    })
}

fn result_of(
    engine: &impl OnFirn,
    (head, args, population): (Conditions, &TpccArgs, Population),
    report: &RunReport,
    counts: &Counts,
    conditions: &[Condition],
) -> TpccResult {
    let scale = (population.scale, args.clients as usize);
    let mut result = TpccResult::new(head, ("firn", engine.isolation()), scale, report);
    let cache = counts.io.cache.map(|_| ("cache", counts.io.cache_total()));
    let tiers = [("log", counts.io.log_total()), ("store", counts.io.store_total())];
    for (tier, total) in tiers.into_iter().chain(cache) {
        let counts = TierIo {
            write_ops: total.write_ops,
            write_bytes: total.write_bytes,
            read_ops: total.read_ops,
            read_bytes: total.read_bytes,
        };
        result.io.insert(tier.to_owned(), counts);
    }
    result.io.insert("map".to_owned(), counts.map);
    result.io.insert("delta".to_owned(), counts.delta);
    result.buffer.insert("budget_bytes".into(), json!(args.buffer));
    result.buffer.insert("hit_rate".into(), json!(counts.hit_rate()));
    result.cache.insert("hit_rate".into(), json!(counts.cache_hit_rate()));
    result.database_bytes = Some(engine.database().size_on_devices());
    result.consistency = ConsistencyResult::of(conditions);
    result
}
