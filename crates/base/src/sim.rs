//! A deterministic scheduler with virtual time, for running the whole engine from a seed.
//!
//! ```
//! use firndb_base::{clock, sim, sync::{Arc, Mutex, thread}};
//! use std::time::Duration;
//!
//! let outcome = sim::run(sim::SimOptions::seeded(7), || {
//!     let order = Arc::new(Mutex::new(Vec::new()));
//!     let other = order.clone();
//!     let handle = thread::spawn("other", move || other.lock().push("other")).expect("a thread");
//!     order.lock().push("body");
//!     handle.join().expect("no panic");
//!     clock::sleep(Duration::from_secs(3600)); // Takes no time.
//!     order.lock().clone()
//! });
//! println!("{:?}", outcome.expect("no deadlock").value);
//! ```
//!
//! [`run`] runs a closure, and every thread that it starts through [`crate::sync::thread`], as
//! *simulated* threads: real threads of which exactly one has the turn. The wrappers in
//! [`crate::sync`] and [`crate::clock`] are where they lose it. Which thread continues is drawn
//! from the seed; the clock is virtual and moves to the next timer when no thread can run;
//! [`charge`] says what computing costs. One seed and one binary give one run, to the byte.
//!
//! What is deterministic, what is not, and how to write code that runs in here:
//! `docs/internals/determinism.md`.
//!
//! # How a run ends
//!
//! When the body has returned, the other threads get [`SimOptions::linger`] of virtual time to end.
//! A deadlock, a panic that reaches the top of a thread, a limit that is passed end the run at once
//! with [`SimFailure`], which names every thread and what it waits for. The threads of a run that
//! did not come to its end, and leaked ones, stay *parked for the rest of the process*, with all
//! they hold: unwinding them would run destructors that write to devices and wait for each other,
//! after the state that is to be examined. They cost memory, no time. This is why the body must own
//! what it uses (`'static`): share what is to be examined afterwards by `Arc`.

mod context;
mod event;
mod options;
mod outcome;
mod parker;
mod policy;
mod report;
mod scheduler;
mod state;

#[cfg(test)]
mod tests;

pub use options::{Policy, SimOptions};
pub use outcome::{Report, SimFailure, SimOutcome};

pub(crate) use context::{Context, current, simulating};
pub(crate) use scheduler::Waiting;
pub(crate) use state::Mode;

use crate::rng::generator::Rng;
use context::UnderWay;
use event::Event;
use parking_lot::Mutex;
use scheduler::Simulation;
use state::End;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Runs `body` and all threads that it starts as a simulation; returns when it has ended. See the
/// module.
///
/// The body runs on a new thread, so that nothing in the caller's thread-local storage differs
/// between runs. Several simulations may run at the same time, each started by its own thread.
///
/// # Errors
/// [`SimFailure`] if the run did not come to its end.
///
/// # Panics
/// When called by a simulated thread: simulations do not nest.
#[track_caller]
pub fn run<R, F>(options: SimOptions, body: F) -> Result<SimOutcome<R>, SimFailure>
where
    R: Send + 'static,
    F: FnOnce() -> R + Send + 'static,
{
    assert!(!is_active(), "simulations do not nest");
    let at = Location::caller();
    let seed = options.seed;
    let processor = options.pin.then(current_processor).flatten();
    let simulation = Arc::new(Simulation::new(options));
    let under_way = UnderWay::begin();

    let (thread, parker) = simulation.register("body", at);
    let value = Arc::new(Mutex::new(None));
    let (inside, answer) = (simulation.clone(), value.clone());
    let first = std::thread::Builder::new().name("sim-body".to_owned()).spawn(move || {
        if let Some(processor) = processor {
            pin(processor);
        }
        live(inside, thread, at, move || *answer.lock() = Some(body()));
    });
    let first = match first {
        Ok(first) => first,
        Err(error) => return Err(SimFailure::NotStarted(error.to_string())),
    };
    parker.belongs_to(first.thread().clone());
    simulation.begin_first();
    let end = simulation.await_end();
    drop(under_way);

    let leaked = match end {
        End::AllEnded => Vec::new(),
        End::Leaked(leaked) => leaked,
        End::Failed(failure) => return Err(failure),
    };
    let value = value.lock().take().expect("the body has returned");
    Ok(simulation.look(|state| SimOutcome {
        value,
        seed,
        steps: state.steps,
        switches: state.switches,
        virtual_time: Duration::from_nanos(state.now),
        trace_hash: state.hash,
        leaked,
    }))
}

/// Whether the calling thread is simulated.
#[must_use]
pub fn is_active() -> bool {
    simulating() && current(|_| ()).is_some()
}

/// Occupies one of the modelled cores for `cpu` of virtual time, first come, first served: the
/// caller continues when a core is free and the work on it is done. Does nothing outside of a
/// simulation.
#[track_caller]
pub fn charge(cpu: Duration) {
    if simulating() {
        let at = Location::caller();
        current(|context| context.charge(cpu.as_nanos() as u64, at));
    }
}

/// The seed of the simulation that the calling thread is in.
#[must_use]
pub fn seed() -> Option<u64> {
    look(|state| state.options.seed)
}

/// Scheduling points that this simulation has passed; 0 outside of one.
#[must_use]
pub fn steps() -> u64 {
    look(|state| state.steps).unwrap_or(0)
}

/// The hash over this simulation's scheduling points so far; 0 outside of one.
#[must_use]
pub fn trace_hash() -> u64 {
    look(|state| state.hash).unwrap_or(0)
}

/// Adds a note: the last notes are part of a failure's report. Outside of a simulation `text` is
/// not called.
pub fn note(text: impl FnOnce() -> String) {
    if !simulating() {
        return;
    }
    current(|context| {
        // Made before the state is locked: it may read the clock.
        let text = text();
        context.simulation.look(|state| {
            let now = state.now;
            state.remember(Event::Note { now, thread: context.thread, text });
        });
    });
}

fn look<R>(look: impl FnOnce(&mut state::State) -> R) -> Option<R> {
    if simulating() { current(|context| context.simulation.look(look)) } else { None }
}

/// Bytes that look random and follow from the seed.
pub(crate) fn entropy() -> Option<[u8; 16]> {
    look(|state| {
        let rng: &mut Rng = &mut state.entropy;
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&rng.next_u64().to_le_bytes());
        bytes[8..].copy_from_slice(&rng.next_u64().to_le_bytes());
        bytes
    })
}

/// Moves the wall clock forward, or back, by `by_us` microseconds, as an operator or a time server
/// may. The monotonic clock is not affected. Outside of a simulation nothing happens.
pub fn set_wall_clock(by_us: i64) {
    look(|state| {
        let start = &mut state.options.unix_start_us;
        *start = start.saturating_add_signed(by_us);
    });
}

/// Microseconds since the Unix epoch, in virtual time.
pub(crate) fn unix_time_us() -> Option<u64> {
    look(|state| state.options.unix_start_us + state.now / 1000)
}

/// Modelled processors.
pub(crate) fn cores() -> Option<usize> {
    look(|state| state.options.cores)
}

/// Modelled memory.
pub(crate) fn memory_bytes() -> Option<u64> {
    look(|state| state.options.memory_bytes)
}

/// The calling thread's number.
pub(crate) fn thread_number() -> Option<usize> {
    current(|context| context.thread)
}

/// A simulated thread, as seen by the thread that started it.
#[derive(Clone)]
pub(crate) struct Started {
    simulation: Arc<Simulation>,
    thread: usize,
}

impl Started {
    /// Waits in virtual time until the thread has ended. A caller from outside waits for the real
    /// end only.
    pub fn join(&self, at: &'static Location<'static>) {
        current(|context| {
            if Arc::ptr_eq(&context.simulation, &self.simulation) {
                self.simulation.join(context.thread, self.thread, at);
            }
        });
    }

    /// Whether the thread has ended.
    pub fn has_ended(&self) -> bool {
        self.simulation.look(|state| matches!(state.threads[self.thread].status, state::Status::Ended))
    }
}

impl Context {
    /// Starts a simulated thread. `spawn` gets what the thread is to run, and starts it.
    pub fn start<'a, T, H>(
        &self,
        name: &str,
        at: &'static Location<'static>,
        body: impl FnOnce() -> T + Send + 'a,
        spawn: impl FnOnce(Box<dyn FnOnce() -> T + Send + 'a>) -> std::io::Result<H>,
        thread_of: impl FnOnce(&H) -> std::thread::Thread,
    ) -> std::io::Result<(H, Started)> {
        let (thread, parker) = self.simulation.register(name, at);
        let inside = self.simulation.clone();
        let spawned = spawn(Box::new(move || live(inside, thread, at, body)));
        if let Ok(handle) = &spawned {
            parker.belongs_to(thread_of(handle));
        }
        self.simulation.begin(self.thread, thread, spawned.is_ok(), at);
        Ok((spawned?, Started { simulation: self.simulation.clone(), thread }))
    }
}

/// The main function of a simulated thread, on its own thread.
fn live<T>(
    simulation: Arc<Simulation>,
    thread: usize,
    at: &'static Location<'static>,
    body: impl FnOnce() -> T,
) -> T {
    let parker = simulation.look(|state| state.threads[thread].parker.clone());
    context::enter(simulation.clone(), thread);
    parker.wait();
    let outcome = catch_unwind(AssertUnwindSafe(body));
    // From here on the thread is no longer simulated; it has the turn until `finish` passes it on.
    context::retire();
    simulation.finish(thread, outcome.as_ref().err().map(|panic| said(panic.as_ref())), at);
    outcome.unwrap_or_else(|panic| resume_unwind(panic))
}

fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "something that is no text".to_owned())
}

#[cfg(target_os = "linux")]
fn current_processor() -> Option<usize> {
    // Miri has no such call.
    (!cfg!(miri)).then(rustix::thread::sched_getcpu)
}

#[cfg(target_os = "linux")]
fn pin(processor: usize) {
    let mut only = rustix::thread::CpuSet::new();
    only.set(processor);
    // Where the system refuses, the run is slower and no different.
    let _ = rustix::thread::sched_setaffinity(None, &only);
}

#[cfg(not(target_os = "linux"))]
fn current_processor() -> Option<usize> {
    None
}

#[cfg(not(target_os = "linux"))]
fn pin(_: usize) {}
