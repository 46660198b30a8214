//! `firn tpcc --sim`: TPC-C in virtual time, on emulated devices that keep their bytes in memory.

use crate::adapter::FirnEngine;
use crate::args::{IsolationName, Tpcc};
use crate::output::say;
use crate::{Failure, interrupt, tpcc, whole_tables};
use firn::{Devices, Isolation, Options};
use firn_base::sim::{self, SimOptions};
use firn_base::sync::Arc;
use firn_device::{Device, MemoryDevice};
use firn_emulate::{Emulated, profiles};
use firn_profile::DeviceProfile;
use firn_workloads::{Charged, CostModel};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The profile of this name, or in this file.
pub fn profile(name: &str) -> Result<DeviceProfile, Failure> {
    profiles::find(name).map_err(|error| Failure::bad_argument(error.to_string()))
}

/// Runs the command.
pub fn run(args: &Tpcc) -> Result<(), Failure> {
    let stop = interrupt::install()?;
    if !(args.simulated.cpu.is_finite() && args.simulated.cpu >= 0.0) {
        return Err(Failure::bad_argument("--cpu must be zero or more"));
    }
    let logs: Vec<DeviceProfile> =
        args.simulated.profile_log.iter().map(|name| profile(name)).collect::<Result<_, _>>()?;
    let data = profile(&args.simulated.profile_data)?;
    let buffer = usize::try_from(args.buffer).map_err(|_| Failure::bad_argument("--buffer is too large"))?;
    let isolation = match args.isolation {
        IsolationName::Snapshot => Isolation::Snapshot,
        IsolationName::Serializable => Isolation::Serializable,
    };
    let options = SimOptions {
        time_limit: Duration::from_secs(1000 * 3600),
        step_limit: u64::MAX,
        ..SimOptions::measuring(args.seed, args.simulated.sim_cores as usize)
    };
    let began = Instant::now();
    // The simulation's threads end when its body does, before this function.
    let outcome: std::sync::Arc<Mutex<Result<(), Failure>>> = std::sync::Arc::new(Mutex::new(Ok(())));
    let (for_body, args_of_body) = (outcome.clone(), args.clone());
    let ran = sim::run(options, move || {
        let args = args_of_body;
        let result = (|| {
            let emulated = |name: &str, profile: &DeviceProfile, seed: u64| {
                let memory = Arc::new(MemoryDevice::new(name));
                let device = Emulated::new(memory, profile, seed);
                let device = device.map_err(|error| Failure::bad_argument(error.to_string()))?;
                Ok::<_, Failure>(Arc::new(device) as Arc<dyn Device>)
            };
            let devices = Devices {
                superblock: Arc::new(MemoryDevice::new("superblock")),
                logs: logs
                    .iter()
                    .enumerate()
                    .map(|(at, profile)| emulated(&format!("log.{at}"), profile, args.seed + at as u64))
                    .collect::<Result<_, _>>()?,
                store: emulated("store", &data, args.seed + 1000)?,
                cache: None,
            };
            let db = Options::new().buffer_bytes(buffer).create_on(devices)?;
            let engine: FirnEngine = whole_tables::open(db, isolation)?;
            let engine = Charged::new(engine, CostModel::FIRN.times(args.simulated.cpu));
            let outcome = tpcc::run_on(&engine, &args, stop);
            let closed = engine.into_inner().into_database().close();
            outcome?;
            closed?;
            Ok(())
        })();
        *for_body.lock().expect("only the body locks it") = result;
    });
    let ran = ran.map_err(|failure| Failure::new(failure.to_string()))?;
    std::mem::replace(&mut *outcome.lock().expect("the body has ended"), Ok(()))?;
    say!(
        "\nsimulated {:.1} s in {:.1} s: {:.0} steps a second, trace {:016x}",
        ran.virtual_time.as_secs_f64(),
        began.elapsed().as_secs_f64(),
        ran.steps as f64 / began.elapsed().as_secs_f64(),
        ran.trace_hash
    );
    Ok(())
}
