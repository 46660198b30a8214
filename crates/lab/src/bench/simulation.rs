//! Measurements in virtual time.

use firndb_base::sim::{self, SimOptions};
use firndb_base::sync::Arc;
use firndb_console::Failure;
use firndb_device::MemoryDevice;
use firndb_emulate::Emulated;
use firndb_profile::DeviceProfile;
use std::sync::Mutex;
use std::time::Duration;

/// Runs `body` as a simulation of `cores` processors; returns its value and the run's trace hash.
pub fn simulate<T: Send + 'static>(
    seed: u64,
    cores: usize,
    body: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<(T, u64), Failure> {
    let options = SimOptions {
        time_limit: Duration::from_secs(100 * 3600),
        step_limit: u64::MAX,
        // A twentieth of the simulator's time; a run that fails can be had again.
        history: 0,
        ..SimOptions::measuring(seed, cores)
    };
    // The body's thread has ended before this function goes on: the lock is never waited for.
    let outcome: std::sync::Arc<Mutex<Option<Result<T, Failure>>>> = std::sync::Arc::default();
    let for_body = outcome.clone();
    let ran = sim::run(options, move || {
        let result = body();
        *for_body.lock().expect("only the body locks it") = Some(result);
    });
    let ran = ran.map_err(|failure| Failure::new(failure.to_string()))?;
    let result = outcome.lock().expect("the body has ended").take();
    let value = result.ok_or_else(|| Failure::new("the simulation ended without a value"))??;
    Ok((value, ran.trace_hash))
}

/// A device that behaves as the profile says, over bytes in memory.
pub fn emulated(
    memory: Arc<MemoryDevice>,
    profile: &DeviceProfile,
    seed: u64,
) -> Result<Arc<Emulated>, Failure> {
    let device = Emulated::new(memory, profile, seed);
    device.map(Arc::new).map_err(|error| Failure::bad_argument(error.to_string()))
}
