//! Threads. All of the engine's own are started in `firndb::threads` and in the log.

use crate::sim::{self, Started};
use parking_lot::Mutex;
use std::io;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};

mod side_by_side;

pub use side_by_side::{each, each_beside};
pub use std::thread::panicking;

/// A thread that can be waited for.
pub struct JoinHandle<T> {
    handle: std::thread::JoinHandle<T>,
    /// Its other half, if it is simulated.
    simulated: Option<Started>,
}

impl<T> JoinHandle<T> {
    /// Waits for the thread's end; returns its result, or what it panicked with.
    #[track_caller]
    pub fn join(self) -> std::thread::Result<T> {
        if let Some(simulated) = &self.simulated {
            simulated.join(Location::caller());
        }
        self.handle.join()
    }

    /// Whether `join` would not wait.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        match &self.simulated {
            Some(simulated) => simulated.has_ended(),
            None => self.handle.is_finished(),
        }
    }
}

impl<T> std::fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.handle.fmt(f)
    }
}

/// Starts a named thread.
///
/// # Errors
/// The system has no more threads to give.
#[track_caller]
pub fn spawn<F, T>(name: &str, body: F) -> io::Result<JoinHandle<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let at = Location::caller();
    let builder = std::thread::Builder::new().name(name.to_owned());
    if !sim::is_active() {
        return Ok(JoinHandle { handle: builder.spawn(body)?, simulated: None });
    }
    let started = sim::current(|context| {
        context.start(name, at, body, |body| builder.spawn(body), |handle| handle.thread().clone())
    });
    let (handle, simulated) = started.expect("it is simulated, as was just asked")?;
    Ok(JoinHandle { handle, simulated: Some(simulated) })
}

/// Runs `body`, which may start threads that borrow from its surroundings; returns when all have
/// ended.
///
/// # Panics
/// With the body's panic, or if a thread that was not joined has panicked.
#[track_caller]
pub fn scope<'env, F, T>(body: F) -> T
where
    F: for<'scope> FnOnce(&Scope<'scope, 'env>) -> T,
{
    let at = Location::caller();
    std::thread::scope(|inner| {
        let scope = Scope { inner, simulated: Mutex::default() };
        // The standard library's scope waits at its end without passing the turn: simulated threads
        // have to have ended before.
        let outcome = catch_unwind(AssertUnwindSafe(|| body(&scope)));
        for simulated in scope.simulated.into_inner() {
            simulated.join(at);
        }
        outcome.unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// Where threads are started that end before their surroundings do; see [`scope`].
pub struct Scope<'scope, 'env: 'scope> {
    inner: &'scope std::thread::Scope<'scope, 'env>,
    simulated: Mutex<Vec<Started>>,
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a thread. Panics if the system has none to give.
    #[track_caller]
    pub fn spawn<F, T>(&self, body: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        self.try_spawn(body).expect("the system has a thread to give")
    }

    /// As `spawn`.
    ///
    /// # Errors
    /// The system has no more threads to give.
    #[track_caller]
    pub(crate) fn try_spawn<F, T>(&self, body: F) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let at = Location::caller();
        let builder = std::thread::Builder::new();
        if !sim::is_active() {
            let handle = builder.spawn_scoped(self.inner, body)?;
            return Ok(ScopedJoinHandle { handle, simulated: None });
        }
        let started = sim::current(|context| {
            context.start(
                "scoped",
                at,
                body,
                |body| builder.spawn_scoped(self.inner, body),
                |handle| handle.thread().clone(),
            )
        });
        let (handle, simulated) = started.expect("it is simulated, as was just asked")?;
        self.simulated.lock().push(simulated.clone());
        Ok(ScopedJoinHandle { handle, simulated: Some(simulated) })
    }
}

/// A thread of a [`scope`] that can be waited for.
pub struct ScopedJoinHandle<'scope, T> {
    handle: std::thread::ScopedJoinHandle<'scope, T>,
    simulated: Option<Started>,
}

impl<T> ScopedJoinHandle<'_, T> {
    /// Waits for the thread's end; returns its result, or what it panicked with.
    #[track_caller]
    pub fn join(self) -> std::thread::Result<T> {
        if let Some(simulated) = &self.simulated {
            simulated.join(Location::caller());
        }
        self.handle.join()
    }

    /// Whether `join` would not wait.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        match &self.simulated {
            Some(simulated) => simulated.has_ended(),
            None => self.handle.is_finished(),
        }
    }
}

/// Lets other threads run. A simulated thread that does nothing else sleeps for a moment now and
/// then, so that the virtual clock can move.
#[track_caller]
pub fn yield_now() {
    if sim::simulating() && yield_simulated() {
        return;
    }
    std::thread::yield_now();
}

#[cold]
#[track_caller]
pub(super) fn yield_simulated() -> bool {
    let at = Location::caller();
    sim::current(|context| context.yield_now(at)).is_some()
}

/// How many threads can run at the same time; in a simulation, on its modelled cores.
///
/// # Errors
/// The system does not say.
pub fn available_parallelism() -> io::Result<NonZeroUsize> {
    match sim::cores().and_then(NonZeroUsize::new) {
        Some(cores) => Ok(cores),
        None => std::thread::available_parallelism(),
    }
}

/// A small number that stays the same for the calling thread and differs between threads that run
/// at the same time, for striped counters; that of a thread that has ended goes to a new one. Never
/// to decide anything by.
#[must_use]
pub fn stripe() -> usize {
    STRIPE.with(|stripe| match stripe.get() {
        usize::MAX => {
            // A simulated thread keeps its number: it is a new thread that ends with its run.
            let simulated = if sim::simulating() { sim::thread_number() } else { None };
            stripe.set(simulated.unwrap_or_else(own_stripe));
            stripe.get()
        }
        number => number,
    })
}

std::thread_local! {
    /// The calling thread's number; `usize::MAX` before it has one.
    static STRIPE: std::cell::Cell<usize> = const { std::cell::Cell::new(usize::MAX) };
}

/// What destructors see that run after their thread has given its number back.
const ENDED: usize = usize::MAX - 1;

/// Numbers of threads that have ended, and the next one that no thread has had.
static FREE_STRIPES: std::sync::Mutex<(Vec<usize>, usize)> = std::sync::Mutex::new((Vec::new(), 0));

/// A thread's number, until it ends.
struct OwnStripe(usize);

impl OwnStripe {
    fn taken() -> OwnStripe {
        let (free, next) = &mut *FREE_STRIPES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        OwnStripe(free.pop().unwrap_or_else(|| {
            *next += 1;
            *next - 1
        }))
    }
}

impl Drop for OwnStripe {
    fn drop(&mut self) {
        STRIPE.set(ENDED);
        FREE_STRIPES.lock().unwrap_or_else(std::sync::PoisonError::into_inner).0.push(self.0);
    }
}

#[cold]
fn own_stripe() -> usize {
    std::thread_local! {
        static OWN: OwnStripe = OwnStripe::taken();
    }
    OWN.with(|own| own.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cause: the number was free as soon as its own destructor had run, and later destructors of
    /// the thread used it still. Effect: two threads added to one stripe by plain stores, and some
    /// counts were lost.
    #[test]
    fn destructors_that_run_after_the_number_is_free_do_not_use_it() {
        struct Seen(std::sync::Arc<Mutex<Vec<usize>>>);
        impl Drop for Seen {
            fn drop(&mut self) {
                self.0.lock().push(stripe());
            }
        }
        // They are destroyed in the order of their first use, or in the opposite one.
        std::thread_local! {
            static BEFORE: std::cell::RefCell<Option<Seen>> = const { std::cell::RefCell::new(None) };
            static AFTER: std::cell::RefCell<Option<Seen>> = const { std::cell::RefCell::new(None) };
        }
        let seen = std::sync::Arc::new(Mutex::new(Vec::new()));
        let probe = || Some(Seen(seen.clone()));
        let (before, after) = (probe(), probe());
        let mine = std::thread::spawn(move || {
            BEFORE.set(before);
            let mine = stripe();
            AFTER.set(after);
            mine
        });
        let mine = mine.join().expect("no panic");
        let mut seen = std::mem::take(&mut *seen.lock());
        seen.sort_unstable();
        assert_eq!(seen, [mine, ENDED]);
    }
}
