//! TPC-C in virtual time, on emulated devices that keep their bytes in memory.

use super::Tpcc;
use super::machine::EmulatedMachine;
use crate::caches::cache_kinds;
use crate::cost::charged::Charged;
use firndb::{Devices, Options};
use firndb_adapter::FirnEngine;
use firndb_base::sim::{self, SimOptions};
use firndb_console::{Failure, interrupt, say};
use firndb_device::{Device, MemoryDevice};
use firndb_tpcc::{Machine, tables};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// No run is longer: 41 days of virtual time.
const TIME_LIMIT: Duration = Duration::from_secs(1000 * 3600);

/// Runs the command on `machine`.
pub fn run(args: &Tpcc, machine: EmulatedMachine) -> Result<(), Failure> {
    let stop = interrupt::install()?;
    let options = SimOptions {
        time_limit: TIME_LIMIT,
        step_limit: u64::MAX,
        // A twentieth of the simulator's time. What threads wait for is reported without it, and a
        // run can be repeated.
        history: 0,
        ..SimOptions::measuring(args.run.seed, args.machine.sim_cores as usize)
    };
    let began = Instant::now();
    // Not the body's value: that would be lost with a simulation whose other threads fail.
    let outcome = Arc::new(Mutex::new(Ok(())));
    let (for_body, args_of_body) = (outcome.clone(), args.clone());
    let ran = sim::run(options, move || {
        let result = body(&args_of_body, &machine, stop);
        *for_body.lock().unwrap_or_else(PoisonError::into_inner) = result;
    });
    let failed = std::mem::replace(&mut *outcome.lock().unwrap_or_else(PoisonError::into_inner), Ok(()));
    failed?;
    let ran = ran.map_err(|failure| Failure::new(failure.to_string()))?;
    let real = began.elapsed().as_secs_f64();
    say!(
        "\nsimulated {:.1} s in {real:.1} s of real time: {} steps, {} of them to another thread, trace {:016x}",
        ran.virtual_time.as_secs_f64(),
        ran.steps,
        ran.switches,
        ran.trace_hash
    );
    Ok(())
}

/// What runs inside the simulation.
fn body(args: &Tpcc, machine: &EmulatedMachine, stop: &AtomicBool) -> Result<(), Failure> {
    let memory = |name: &str| -> Arc<dyn Device> { Arc::new(MemoryDevice::new(name)) };
    let wrapped = |name: &str| machine.wrap(name, memory(name)).map_err(firndb::Error::from);
    let logs: Result<Vec<_>, _> =
        (0..machine.log_devices()).map(|at| wrapped(&format!("log.{at}"))).collect();
    let store = wrapped("store")?;
    let cache = args.run.cache.map(|_| wrapped("cache")).transpose()?;
    let devices =
        Devices { superblock: memory("superblock"), logs: logs?, store, store_others: Vec::new(), cache };
    let options = firndb_tpcc::with_memory(Options::new(), &args.run)?;
    let options = firndb_tpcc::with_cache(options, &args.run, cache_kinds())?;
    let dir = tempfile::tempdir()?;
    let options = match args.machine.profiled {
        true => {
            let path = dir.path().join("store.toml");
            machine.data_profile().save(&path).map_err(|error| Failure::new(error.to_string()))?;
            options.tuning(|tuning| tuning.store_profile(path))
        }
        false => options,
    };
    let db = options.create_on(devices)?;
    let engine: FirnEngine = tables::open(db, firndb_tpcc::isolation(&args.run))?;
    let measured = (|| {
        let Some(population) = firndb_tpcc::prepare(&engine, &args.run, false, stop)? else {
            return Ok(engine);
        };
        let engine = Charged::new(engine, machine.cpu().model(args.machine.sim_cores));
        let outcome = firndb_tpcc::measure_and_report(&engine, &args.run, stop, population, Some(machine));
        let engine = engine.into_inner();
        outcome.map(|()| engine)
    })();
    measured?.into_database().close()?;
    Ok(())
}
