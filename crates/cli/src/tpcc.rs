//! `firn tpcc`: the main job. Loads, runs, checks and reports.

use crate::adapter::FirnEngine;
use crate::args::{CommitName, IsolationName, Tpcc};
use crate::{Failure, commit_of_source, interrupt, progress, size, tpcc_table};
use firn::{Database, IoCounts, Isolation, Options};
use firn_workloads::results::{Conditions, ConsistencyResult, TierIo, TpccResult};
use firn_workloads::tpcc::{self, ClientOptions, Condition, LoadOptions, Population, Scale, Terminals, When};
use firn_workloads::{CommitMode, DriverOptions, Length, LiveRate, RunReport};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Commits that an asynchronous client may have outstanding.
const ASYNC_WINDOW: usize = 1024;

/// Runs the command.
pub fn run(args: &Tpcc) -> Result<(), Failure> {
    let stop = interrupt::install()?;
    let mut options =
        Options::new().create(!args.no_load && !args.check_only).on_recovery(progress::recovery());
    options = options.buffer_bytes(
        usize::try_from(args.buffer).map_err(|_| Failure::bad_argument("--buffer is too large"))?,
    );
    options = options.log_devices(args.log_devices as usize);
    let opening = Instant::now();
    let db = options.open(&args.dir)?;
    report_recovery(&db, opening);
    let isolation = match args.isolation {
        IsolationName::Snapshot => Isolation::Snapshot,
        IsolationName::Serializable => Isolation::Serializable,
    };
    let engine = FirnEngine::new(db, tpcc::schema(), isolation)?;
    let outcome = run_on(&engine, args, stop);
    // Whatever happened, what is committed is written out before the process ends.
    let closing = progress::spinner("writing what is dirty");
    let closed = engine.into_database().close();
    closing.finish_and_clear();
    outcome?;
    closed?;
    println!(
        "\nThe database is in {}. Next: firn stat {0}, firn check {0}, or run the same command again.",
        args.dir.display()
    );
    Ok(())
}

fn report_recovery(db: &Database, since: Instant) {
    let recovery = db.recovery_report();
    if !recovery.clean {
        println!(
            "recovered in {:.2} s: {} of log, {} changes repeated, {} transactions rolled back",
            since.elapsed().as_secs_f64(),
            size::show(recovery.log_bytes),
            recovery.redone,
            recovery.losers
        );
    }
}

fn run_on(engine: &FirnEngine, args: &Tpcc, stop: &AtomicBool) -> Result<(), Failure> {
    let (population, fresh) = match Population::of(engine)? {
        Some(found) => {
            if found.scale.warehouses != args.warehouses && !args.check_only {
                println!(
                    "{} holds {} warehouses; going on with these",
                    args.dir.display(),
                    found.scale.warehouses
                );
            }
            (found, false)
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
    if args.load_only || args.check_only {
        return report_consistency(&consistency(engine, when)?).map(|_| ());
    }
    if fresh {
        report_consistency(&consistency(engine, when)?)?;
    }
    if stop.load(Ordering::SeqCst) {
        return Ok(());
    }
    let before = engine.database().io_counts();
    let (report, io) = measure(engine, args, stop, &before)?;
    let conditions = consistency(engine, When::AfterRun)?;
    let result = result_of(engine, args, population, &report, &io, &conditions);
    println!("\n{}", tpcc_table::of(&result, engine.database(), &io, &report));
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&result).map_err(|error| Failure::new(error.to_string()))?;
        std::fs::write(path, text + "\n")
            .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    }
    report_consistency(&conditions).map(|_| ())
}

fn load(engine: &FirnEngine, args: &Tpcc, stop: &AtomicBool) -> Result<Population, Failure> {
    let mut options = LoadOptions::new(Scale::full(args.warehouses), args.seed);
    options.threads = std::thread::available_parallelism().map_or(1, usize::from);
    let bar = progress::bar("loading", 1);
    let started = Instant::now();
    let population = tpcc::load(engine, &options, &|step| {
        bar.set_length(step.rows_expected);
        bar.set_position(step.rows);
        bar.set_message(format!("{} rows", step.rows));
        if stop.load(Ordering::SeqCst) {
            // Nothing of a load that was cut off is taken for a whole one.
            std::process::exit(130);
        }
    })?;
    bar.finish_and_clear();
    println!(
        "loaded {} warehouses in {:.1} s, {} on devices",
        args.warehouses,
        started.elapsed().as_secs_f64(),
        size::show(engine.database().size_on_devices())
    );
    Ok(population)
}

/// Runs the clients; answers what they did, and the I/O of the measured interval.
fn measure(
    engine: &FirnEngine,
    args: &Tpcc,
    stop: &AtomicBool,
    before: &IoCounts,
) -> Result<(RunReport, IoCounts), Failure> {
    let mut driver = DriverOptions::new(args.clients as usize, Duration::from_secs(args.seconds));
    driver.warm_up = Duration::from_secs(args.warmup);
    driver.length = Length::Time(Duration::from_secs(args.seconds));
    driver.commit_mode = match args.commit {
        CommitName::Wait => CommitMode::Wait,
        CommitName::Async => CommitMode::Async,
    };
    driver.window = ASYNC_WINDOW;
    driver.report_every = Duration::from_millis(500);
    let clients = ClientOptions { mix: tpcc::Mix::default(), terminals: Terminals::Drawn, seed: args.seed };
    let bar = progress::bar("running", args.warmup + args.seconds);
    let mut base = before.clone();
    let report = tpcc::run(engine, &driver, &clients, stop, &mut |rate: LiveRate| {
        bar.set_position(rate.elapsed.as_secs());
        let state = if rate.warming_up { "warming up, " } else { "" };
        bar.set_message(format!("{state}{:.0} transactions/s", rate.commits_per_second));
        if rate.warming_up {
            base = engine.database().io_counts();
        }
    })?;
    let io = engine.database().io_counts().since(&base);
    bar.finish_and_clear();
    Ok((report, io))
}

fn consistency(engine: &FirnEngine, when: When) -> Result<Vec<Condition>, Failure> {
    let spinner = progress::spinner("checking TPC-C's consistency conditions");
    let conditions = tpcc::check(engine, when)?;
    spinner.finish_and_clear();
    Ok(conditions)
}

fn report_consistency(conditions: &[Condition]) -> Result<ConsistencyResult, Failure> {
    let result = ConsistencyResult::of(conditions);
    let numbers: Vec<String> = result.checked.iter().map(ToString::to_string).collect();
    if result.failed.is_empty() {
        println!("consistency conditions 3.3.2.{} hold", numbers.join(", "));
        return Ok(result);
    }
    result.failures.iter().for_each(|sentence| eprintln!("{sentence}"));
    Err(Failure::new(format!("{} of the consistency conditions do not hold", result.failed.len())))
}

fn result_of(
    engine: &FirnEngine,
    args: &Tpcc,
    population: Population,
    report: &RunReport,
    io: &IoCounts,
    conditions: &[Condition],
) -> TpccResult {
    use firn_workloads::Engine;
    let settings: serde_json::Map<String, Value> =
        engine.settings().into_iter().map(|(name, value)| (name, Value::String(value))).collect();
    let config = json!({
        "warehouses": population.scale.warehouses, "clients": args.clients, "seconds": args.seconds,
        "warmup": args.warmup, "buffer_bytes": args.buffer, "isolation": engine.isolation(),
        "commit": format!("{:?}", args.commit).to_lowercase(), "engine": settings,
    });
    let head = Conditions::now("firn-tpcc/1", commit_of_source(), config, args.seed);
    let scale = (population.scale, args.clients as usize);
    let mut result = TpccResult::new(head, ("firn", engine.isolation()), scale, report);
    for (tier, total) in [("log", io.log_total()), ("store", io.store_total())] {
        let counts = TierIo {
            write_ops: total.write_ops,
            write_bytes: total.write_bytes,
            read_ops: total.read_ops,
            read_bytes: total.read_bytes,
        };
        result.io.insert(tier.to_owned(), counts);
    }
    let statistics = engine.database().statistics();
    result.buffer.insert("budget_bytes".into(), json!(args.buffer));
    result.buffer.insert("hit_rate".into(), json!(tpcc_table::hit_rate(&statistics.buffer)));
    result.database_bytes = Some(engine.database().size_on_devices());
    result.consistency = ConsistencyResult::of(conditions);
    result
}
