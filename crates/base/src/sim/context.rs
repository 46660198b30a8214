//! Which thread of which simulation the calling thread is: how the wrappers of `sync` and `clock`
//! get in.
//!
//! Outside of any simulation all that is paid is [`simulating`]: a relaxed load of a counter that
//! is never written then.

use super::event::Action;
use super::scheduler::{Simulation, Waiting};
use super::state::Mode;
use std::cell::{Cell, OnceCell};
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

type At = &'static Location<'static>;

/// Simulations under way in this process.
static SIMULATING: AtomicUsize = AtomicUsize::new(0);

/// Whether any simulation is under way. If not, no thread is simulated; if so, the calling one may
/// be.
#[inline(always)]
pub(crate) fn simulating() -> bool {
    SIMULATING.load(Ordering::Relaxed) != 0
}

/// Counts one simulation as under way.
pub(super) struct UnderWay;

impl UnderWay {
    pub fn begin() -> UnderWay {
        SIMULATING.fetch_add(1, Ordering::Relaxed);
        UnderWay
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        SIMULATING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What doing nothing useful at one virtual moment adds up to before the thread is put to sleep for
/// a moment. A thread that only waits for time to pass must let it pass.
const IDLE_MAX: u32 = 1000;
const IDLE_YIELD: u32 = 300;
const IDLE_REFUSED: u32 = 15;
const IDLE_CLOCK: u32 = 1;

pub(crate) struct Context {
    pub(super) simulation: Arc<Simulation>,
    pub(super) thread: usize,
    /// It has given up its turn for good and only leaves.
    ended: Cell<bool>,
    /// Idleness added up since the clock showed `idle_since`.
    idle: Cell<u32>,
    idle_since: Cell<u64>,
}

thread_local! {
    static CONTEXT: OnceCell<Context> = const { OnceCell::new() };
}

/// Makes the calling thread the given one.
pub(super) fn enter(simulation: Arc<Simulation>, thread: usize) {
    CONTEXT.with(|context| {
        let new = Context {
            simulation,
            thread,
            ended: Cell::new(false),
            idle: Cell::new(0),
            idle_since: Cell::new(0),
        };
        assert!(context.set(new).is_ok(), "a thread is in one simulation, once");
    });
}

/// Makes the calling thread an ordinary one again, for what little it still does.
pub(super) fn retire() {
    CONTEXT.with(|context| {
        if let Some(context) = context.get() {
            context.ended.set(true);
        }
    });
}

/// Does `work` as the simulated thread that calls; nothing if none does.
#[cold]
pub(crate) fn current<R>(work: impl FnOnce(&Context) -> R) -> Option<R> {
    // The thread's locals may be gone already: then the thread is ending.
    CONTEXT.try_with(|context| context.get().filter(|context| !context.ended.get()).map(work)).ok().flatten()
}

impl Context {
    /// Adds up idleness; true when it is time to sleep for a moment.
    fn idles(&self, weight: u32) -> bool {
        let now = self.simulation.now();
        if self.idle_since.replace(now) != now {
            self.idle.set(0);
        }
        self.idle.set(self.idle.get() + weight);
        let enough = self.idle.get() > IDLE_MAX;
        if enough {
            self.idle.set(0);
        }
        enough
    }

    pub fn now(&self, at: At) -> u64 {
        if self.idles(IDLE_CLOCK) {
            self.simulation.give_way(self.thread, true, at);
        }
        self.simulation.now()
    }

    pub fn sleep_until(&self, moment: u64, at: At) {
        if moment > self.simulation.now() {
            self.simulation.sleep_until(self.thread, moment, at);
        } else {
            self.yield_now(at);
        }
    }

    pub fn charge(&self, cpu_ns: u64, at: At) {
        self.simulation.charge(self.thread, cpu_ns, at);
    }

    pub fn yield_now(&self, at: At) {
        self.simulation.give_way(self.thread, self.idles(IDLE_YIELD), at);
    }

    pub fn acquire(&self, address: usize, mode: Mode, at: At, attempt: impl Fn() -> bool) {
        self.simulation.acquire(self.thread, address, mode, at, attempt);
    }

    pub fn try_acquire(&self, address: usize, mode: Mode, at: At, attempt: impl Fn() -> bool) -> bool {
        let taken = self.simulation.try_acquire(self.thread, address, mode, at, attempt);
        if !taken && self.idles(IDLE_REFUSED) {
            self.simulation.give_way(self.thread, true, at);
        }
        taken
    }

    pub fn release(&self, address: usize, at: At, unlock: impl FnOnce() -> bool) {
        self.simulation.release(self.thread, address, at, unlock);
    }

    pub fn downgrade(&self, address: usize, at: At, downgrade: impl FnOnce()) {
        self.simulation.downgrade(self.thread, address, at, downgrade);
    }

    pub fn wait(&self, what: Waiting, at: At, unlock: impl FnOnce(), attempt: impl Fn() -> bool) -> bool {
        self.simulation.wait(self.thread, what, at, unlock, attempt)
    }

    pub fn notify(&self, condvar: usize, all: bool, at: At) {
        self.simulation.notify(self.thread, condvar, all, at);
    }
}

const _: () = assert!(Action::End as u64 <= u8::MAX as u64, "an action fits beside the thread in the hash");
