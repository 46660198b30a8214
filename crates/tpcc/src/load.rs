//! Loading TPC-C: tables created with their rows, or rows inserted.

use crate::args::{ScaleName, TpccArgs};
use crate::report;
use firndb::Database;
use firndb_adapter::{OnFirn, load_table};
use firndb_base::clock;
use firndb_base::sync::thread;
use firndb_console::{Failure, interrupt, progress, say, size};
use firndb_workloads::TableId;
use firndb_workloads::tpcc::{self, LoadOptions, Population, Scale};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Inserts a population into the engine's empty tables.
pub fn load(engine: &impl OnFirn, args: &TpccArgs, stop: &AtomicBool) -> Result<Population, Failure> {
    let options = load_options(engine.database(), args)?;
    let bar = progress::bar("loading", options.expected_rows());
    let started = clock::now();
    let population = tpcc::load(engine, &options, &|step| show_loaded(&bar, step.rows, stop));
    let population = population.map_err(|error| ended_early(&error))?;
    bar.finish_and_clear();
    say_loaded(engine.database(), args, started);
    Ok(population)
}

/// Creates the tables with their rows instead of the empty ones, several side by side; that of the
/// population last.
pub fn load_tables(db: &Database, args: &TpccArgs, stop: &AtomicBool) -> Result<(), Failure> {
    let options = load_options(db, args)?;
    let bar = progress::bar("loading", options.expected_rows());
    let started = clock::now();
    let tables = tpcc::schema().tables;
    tables.iter().try_for_each(|table| db.drop_table(&table.name))?;
    let (next, rows) = (AtomicUsize::new(0), AtomicU64::new(0));
    let load_one = |at: usize| {
        let counted = options.rows_of(TableId(at)).inspect(|_| {
            let rows = rows.fetch_add(1, Ordering::Relaxed) + 1;
            if rows.is_multiple_of(1000) {
                show_loaded(&bar, rows, stop);
            }
        });
        load_table(db, &tables[at], counted)
    };
    let work = || {
        while let Some(table) = LARGE_FIRST.get(next.fetch_add(1, Ordering::Relaxed)) {
            load_one(table.0)?;
        }
        Ok::<(), firndb::Error>(())
    };
    thread::scope(|scope| {
        let loaders: Vec<_> = (0..options.threads).map(|_| scope.spawn(work)).collect();
        loaders.into_iter().try_for_each(|loader| match loader.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })
    .and_then(|()| load_one(tpcc::tables::POPULATION.0))
    .map_err(|error| ended_early(&error))?;
    bar.finish_and_clear();
    say_loaded(db, args, started);
    Ok(())
}

/// The tables but that of the population: those that take long are begun first.
const LARGE_FIRST: [TableId; 9] = [
    tpcc::tables::ORDER_LINE,
    tpcc::tables::STOCK,
    tpcc::tables::CUSTOMER,
    tpcc::tables::HISTORY,
    tpcc::tables::ORDER,
    tpcc::tables::ITEM,
    tpcc::tables::NEW_ORDER,
    tpcc::tables::DISTRICT,
    tpcc::tables::WAREHOUSE,
];

fn load_options(db: &Database, args: &TpccArgs) -> Result<LoadOptions, Failure> {
    if let Some(directory) = db.directory() {
        let statistics = db.statistics();
        let held = statistics.store.places * statistics.page_size as u64;
        refuse_more_than_there_is(args, directory, held)?;
    }
    if let Some(to) = &args.backup_to {
        // Before hours of loading.
        db.check_backup_directory(to)?;
    }
    let mut options = LoadOptions::new(scale(args), args.seed);
    options.threads = thread::available_parallelism().map_or(1, usize::from);
    Ok(options)
}

fn show_loaded(bar: &progress::ProgressBar, rows: u64, stop: &AtomicBool) {
    bar.set_position(rows);
    bar.set_message(format!("{rows} rows"));
    if stop.load(Ordering::SeqCst) {
        // What is loaded so far is never taken for a whole population; the next run drops it.
        eprintln!("firn: the load was cut off; the next run begins it anew");
        interrupt::end();
    }
}

fn ended_early(error: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!("the load ended early, and the next run begins it anew: {error}"))
}

fn say_loaded(db: &Database, args: &TpccArgs, started: clock::Moment) {
    say!(
        "loaded {} in {:.1} s, {} on devices",
        report::count(args.warehouses.into(), "warehouse"),
        started.elapsed().as_secs_f64(),
        size::show(db.size_on_devices())
    );
}

/// Bytes of a full warehouse on its device, at least.
const WAREHOUSE_BYTES: u64 = 80 << 20;

/// Refuses a population that is sure not to fit where a database is to be created.
pub fn refuse_before_creation(args: &TpccArgs) -> Result<(), Failure> {
    refuse_more_than_there_is(args, &args.dir, 0)
}

/// Refuses a population that is sure not to fit where the store is, rather than filling that up
/// first. `held`: bytes that the store of the database in `directory` has there already. An
/// interrupted load has left them, and they are used again.
fn refuse_more_than_there_is(args: &TpccArgs, directory: &Path, held: u64) -> Result<(), Failure> {
    let scale = scale(args);
    if !scale.is_full() {
        return Ok(());
    }
    let store = args.store_path.first().and_then(|path| path.parent()).unwrap_or(directory);
    let is_there = |path: &&Path| path.as_os_str().is_empty() || path.exists();
    let at = store.ancestors().find(is_there).filter(|at| !at.as_os_str().is_empty());
    let free = firndb::device::available_bytes(at.unwrap_or(Path::new("."))).unwrap_or(u64::MAX);
    let free = free.saturating_add(held);
    let needed = u64::from(scale.warehouses) * WAREHOUSE_BYTES;
    if free >= needed {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{} need at least {}, and the file system of {} has {} for them: load fewer, or name another directory",
        report::count(scale.warehouses.into(), "warehouse"),
        size::show(needed),
        store.display(),
        size::show(free)
    )))
}

fn scale(args: &TpccArgs) -> Scale {
    match args.scale {
        ScaleName::Full => Scale::full(args.warehouses),
        ScaleName::Tiny => Scale::tiny(args.warehouses),
    }
}
