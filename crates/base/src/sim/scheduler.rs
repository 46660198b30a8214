//! Passing the turn: the operations at which a simulated thread can lose it.
//!
//! Exactly one simulated thread has the turn at any moment. It gives it up only in here: it draws
//! the next thread, grants it the turn through that thread's parker, and waits at its own. If it
//! draws itself, as a thread that sleeps while no other can run does, nothing is handed over.

use super::event::{Action, Event};
use super::options::SimOptions;
use super::outcome::SimFailure;
use super::parker::{Parker, park_for_ever};
use super::state::{End, Held, Key, Mode, Standstill, State, Status, Wait};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

type At = &'static Location<'static>;
type Guard<'a> = MutexGuard<'a, State>;

/// What a thread waits for while it holds a lock.
pub(crate) struct Waiting {
    /// The condition variable's address.
    pub condvar: usize,
    /// The lock's.
    pub lock: usize,
    /// The virtual moment at which the wait ends at the latest.
    pub deadline: Option<u64>,
}

pub(super) struct Simulation {
    state: Mutex<State>,
    /// The virtual clock, a copy of the state's for reading without its lock. Written by the thread
    /// that has the turn.
    now: AtomicU64,
    /// Wakes the thread that waits for the end. Goes with `state`.
    ended: Condvar,
}

impl Simulation {
    pub fn new(options: SimOptions) -> Simulation {
        Simulation { state: Mutex::new(State::new(options)), now: AtomicU64::new(0), ended: Condvar::new() }
    }

    pub fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// Reads or changes the state without a scheduling point.
    pub fn look<R>(&self, look: impl FnOnce(&mut State) -> R) -> R {
        look(&mut self.state.lock())
    }

    /// A new thread, which runs when it is `begin`ned. Numbers are given in order.
    pub fn register(&self, name: &str, at: At) -> (usize, Arc<Parker>) {
        let mut state = self.state.lock();
        let thread = state.add_thread(name, at);
        (thread, state.threads[thread].parker.clone())
    }

    /// Lets the body's thread run, when its parker knows it.
    pub fn begin_first(&self) {
        let mut state = self.state.lock();
        state.make_runnable(0);
        let first = state.choose().ok();
        assert_eq!(first, Some(0), "there is only one");
        let parker = state.threads[0].parker.clone();
        drop(state);
        parker.grant();
    }

    /// Lets a thread started by `me` run, or forgets it if the system refused it.
    pub fn begin(&self, me: usize, thread: usize, started: bool, at: At) {
        let mut state = self.state.lock();
        if started {
            state.make_runnable(thread);
        } else {
            state.threads[thread].status = Status::Ended;
            state.live -= 1;
        }
        drop(self.point(state, me, Action::Spawn, at));
    }

    /// The thread `me` has ended, by a panic with this message if there is one.
    pub fn finish(&self, me: usize, panic: Option<String>, at: At) {
        let mut state = self.step(self.state.lock(), me, Action::End, at);
        state.threads[me].status = Status::Ended;
        state.live -= 1;
        state.notify_all(Key::EndOf(me));
        if me == 0 {
            state.body_ended = Some(state.now);
        }
        if let Some(message) = panic {
            let thread = state.title(me);
            return self.end(&mut state, |report| {
                End::Failed(SimFailure::Panicked { thread, message, report: Box::new(report) })
            });
        }
        if state.live == 0 {
            return self.end(&mut state, |_| End::AllEnded);
        }
        match state.choose() {
            Ok(next) => {
                let parker = self.elect(&mut state, next);
                drop(state);
                parker.grant();
            }
            Err(standstill) => self.stand_still(&mut state, &standstill),
        }
    }

    /// Asks for a lock; `attempt` takes it if it is free.
    pub fn acquire(&self, me: usize, address: usize, mode: Mode, at: At, attempt: impl Fn() -> bool) {
        let mut state = self.point(self.state.lock(), me, Action::Acquire, at);
        let key = Key::Lock(address);
        let mut queued = false;
        loop {
            if !(mode == Mode::Shared && state.exclusive_is_ahead(address, me)) && attempt() {
                if queued {
                    state.leave(key, me);
                }
                state.threads[me].held.push(Held { address, mode, since: at });
                return;
            }
            if !queued {
                state.enter(key, me, mode);
                queued = true;
            }
            state = self.block(state, me, Wait::Queue(key, mode), None);
        }
    }

    pub fn try_acquire(
        &self,
        me: usize,
        address: usize,
        mode: Mode,
        at: At,
        attempt: impl Fn() -> bool,
    ) -> bool {
        let mut state = self.point(self.state.lock(), me, Action::Try, at);
        let taken = !(mode == Mode::Shared && state.exclusive_is_ahead(address, me)) && attempt();
        if taken {
            state.threads[me].held.push(Held { address, mode, since: at });
        }
        taken
    }

    /// Releases a lock; `unlock` does it and returns whether the lock is free now.
    pub fn release(&self, me: usize, address: usize, at: At, unlock: impl FnOnce() -> bool) {
        let mut state = self.state.lock();
        let free = unlock();
        state.drop_hold(me, address);
        state.wake_for_lock(address, free);
        drop(self.point(state, me, Action::Release, at));
    }

    /// Turns an exclusive hold into a shared one.
    pub fn downgrade(&self, me: usize, address: usize, at: At, downgrade: impl FnOnce()) {
        let mut state = self.state.lock();
        downgrade();
        state.drop_hold(me, address);
        state.threads[me].held.push(Held { address, mode: Mode::Shared, since: at });
        state.wake_for_lock(address, false);
        drop(self.point(state, me, Action::Release, at));
    }

    /// Releases the lock and waits for a notification in one step, then takes the lock again. False
    /// if the deadline passed first.
    pub fn wait(
        &self,
        me: usize,
        Waiting { condvar, lock, deadline }: Waiting,
        at: At,
        unlock: impl FnOnce(),
        attempt: impl Fn() -> bool,
    ) -> bool {
        let mut state = self.step(self.state.lock(), me, Action::Wait, at);
        unlock();
        state.drop_hold(me, lock);
        state.wake_for_lock(lock, true);
        let spurious = state.chooser.wakes_without_cause();
        let state = if spurious {
            let now = state.now;
            self.block(state, me, Wait::Time, Some(now))
        } else {
            let key = Key::Condvar(condvar);
            state.enter(key, me, Mode::Exclusive);
            self.block(state, me, Wait::Queue(key, Mode::Exclusive), deadline)
        };
        let notified = spurious || !state.threads[me].timed_out;
        drop(state);
        self.acquire(me, lock, Mode::Exclusive, at, attempt);
        notified
    }

    /// Wakes one or all waiters of the condition variable.
    pub fn notify(&self, me: usize, condvar: usize, all: bool, at: At) {
        let mut state = self.state.lock();
        if all {
            state.notify_all(Key::Condvar(condvar))
        } else {
            state.notify_one(condvar)
        }
        drop(self.point(state, me, Action::Notify, at));
    }

    /// Waits until another thread has ended.
    pub fn join(&self, me: usize, thread: usize, at: At) {
        let mut state = self.point(self.state.lock(), me, Action::Join, at);
        while !matches!(state.threads[thread].status, Status::Ended) {
            let key = Key::EndOf(thread);
            state.enter(key, me, Mode::Exclusive);
            state = self.block(state, me, Wait::Queue(key, Mode::Exclusive), None);
        }
    }

    /// Sleeps until the virtual clock shows `moment`.
    pub fn sleep_until(&self, me: usize, moment: u64, at: At) {
        let state = self.step(self.state.lock(), me, Action::Sleep, at);
        drop(self.block(state, me, Wait::Time, Some(moment)));
    }

    /// Occupies a modelled core for `cpu` nanoseconds.
    pub fn charge(&self, me: usize, cpu: u64, at: At) {
        let mut state = self.step(self.state.lock(), me, Action::Charge, at);
        let done = state.occupy_core(cpu);
        drop(self.block(state, me, Wait::Core, Some(done)));
    }

    /// Stands behind all others that can run, or sleeps for a moment if `idle`, so that the clock
    /// can move.
    pub fn give_way(&self, me: usize, idle: bool, at: At) {
        let mut state = self.step(self.state.lock(), me, Action::Yield, at);
        state.chooser.yields(me);
        let pause = if idle { state.options.yield_pause.as_nanos() as u64 } else { 0 };
        let until = state.now.saturating_add(pause);
        drop(self.block(state, me, Wait::Time, Some(until)));
    }

    /// Counts a step and may preempt.
    fn point<'a>(&'a self, state: Guard<'a>, me: usize, action: Action, at: At) -> Guard<'a> {
        let mut state = self.step(state, me, action, at);
        let State { chooser, runnable, steps, .. } = &mut *state;
        if !chooser.preempts(me, runnable, *steps) || state.runnable.is_empty() {
            return state;
        }
        state.make_runnable(me);
        self.pass(state, me)
    }

    /// Counts a step.
    fn step<'a>(&'a self, mut state: Guard<'a>, me: usize, action: Action, at: At) -> Guard<'a> {
        if state.halted {
            drop(state);
            park_for_ever();
        }
        debug_assert!(
            matches!(state.threads[me].status, Status::Running),
            "only the running thread gets here"
        );
        state.steps += 1;
        state.threads[me].at = at;
        let (step, now) = (state.steps, state.now);
        state.mix((me as u64) << 8 | action as u64);
        state.remember(Event::Point { step, now, thread: me, action, at });
        if step > state.options.step_limit {
            self.end(&mut state, |report| End::Failed(SimFailure::StepLimit(Box::new(report))));
            drop(state);
            park_for_ever();
        }
        state
    }

    fn block<'a>(&'a self, mut state: Guard<'a>, me: usize, wait: Wait, deadline: Option<u64>) -> Guard<'a> {
        state.block(me, wait, deadline);
        self.pass(state, me)
    }

    /// Passes the turn to the thread that is drawn, and returns when `me` has it again.
    fn pass<'a>(&'a self, mut state: Guard<'a>, me: usize) -> Guard<'a> {
        let next = match state.choose() {
            Ok(next) => next,
            Err(standstill) => {
                self.stand_still(&mut state, &standstill);
                drop(state);
                park_for_ever();
            }
        };
        let parker = self.elect(&mut state, next);
        if next == me {
            return state;
        }
        state.switches += 1;
        let mine = state.threads[me].parker.clone();
        drop(state);
        parker.grant();
        mine.wait();
        self.state.lock()
    }

    /// Notes which thread runs next and when.
    fn elect(&self, state: &mut State, next: usize) -> Arc<Parker> {
        self.now.store(state.now, Ordering::Relaxed);
        let now = state.now;
        state.mix(next as u64);
        state.mix(now);
        state.threads[next].parker.clone()
    }

    fn stand_still(&self, state: &mut State, standstill: &Standstill) {
        let leaked = state.body_ended.is_some().then(|| {
            let alive = |thread: &usize| !matches!(state.threads[*thread].status, Status::Ended);
            (0..state.threads.len()).filter(alive).map(|thread| state.title(thread)).collect()
        });
        self.end(state, |report| match (standstill, leaked) {
            (Standstill::NothingRuns | Standstill::LingerOver, Some(leaked)) => End::Leaked(leaked),
            (Standstill::TimeLimit, _) => End::Failed(SimFailure::TimeLimit(Box::new(report))),
            (_, None) => End::Failed(SimFailure::Deadlock(Box::new(report))),
        });
    }

    /// Ends the run. Only the first end counts.
    fn end(&self, state: &mut State, end: impl FnOnce(super::outcome::Report) -> End) {
        if !state.halted {
            state.halted = true;
            state.end = Some(end(state.report()));
            self.ended.notify_all();
        }
    }

    /// Waits, outside of the simulation, for its end.
    pub fn await_end(&self) -> End {
        let mut state = self.state.lock();
        let patience = state.options.stuck_after.max(Duration::from_millis(1));
        loop {
            let before = state.steps;
            let waited =
                if state.end.is_none() { Some(self.ended.wait_for(&mut state, patience)) } else { None };
            if let Some(end) = state.end.take() {
                return end;
            }
            if waited.is_some_and(|waited| waited.timed_out()) && state.steps == before {
                self.end(&mut state, |report| End::Failed(SimFailure::Stuck(Box::new(report))));
            }
        }
    }
}
