//! The scheduler's state: which thread runs, which can, which waits for what, and the virtual
//! clock.
//!
//! All of it belongs to the thread that has the turn; the mutex around it is for the hand-over and
//! for the thread that waits for the end of the run. No map here is ever walked: what is drawn or
//! taken first comes from vectors and queues in the order of events, so that nothing depends on
//! addresses.
//!
//! Invariants:
//! * `runnable` holds exactly the threads with [`Status::Runnable`], each once, in the order of
//!   becoming so;
//! * a thread has an entry in `timers` only while it is blocked, and at most one;
//! * a thread that waits for a lock stays in its queue, woken or not, until it has it: later
//!   threads find it there, so no writer starves;
//! * the clock only moves while `runnable` is empty.

use super::event::Event;
use super::options::SimOptions;
use super::outcome::SimFailure;
use super::parker::Parker;
use super::policy::Chooser;
use crate::hash::FixedMap;
use crate::rng::generator::Rng;
use std::collections::{BTreeMap, VecDeque};
use std::panic::Location;
use std::sync::Arc;

/// How a lock is held or asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Shared,
    Exclusive,
}

/// What threads queue for. Addresses tell queues apart and decide nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Lock(usize),
    Condvar(usize),
    EndOf(usize),
}

/// What a blocked thread waits for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wait {
    Queue(Key, Mode),
    Time,
    Core,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Status {
    /// Known, but its thread is not there yet.
    Starting,
    Runnable,
    Running,
    Blocked(Wait),
    Ended,
}

/// A lock that a thread has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub address: usize,
    pub mode: Mode,
    pub since: &'static Location<'static>,
}

pub(super) struct Thread {
    pub name: String,
    pub status: Status,
    pub parker: Arc<Parker>,
    /// In `timers`, while it waits with a deadline.
    timer: Option<(u64, u64)>,
    /// Whether its last wait ended by its deadline.
    pub timed_out: bool,
    /// Where its last scheduling point was.
    pub at: &'static Location<'static>,
    pub held: Vec<Held>,
}

/// Why no thread can get the turn.
pub(super) enum Standstill {
    /// All wait for each other, or no thread is left.
    NothingRuns,
    /// The next timer is behind the time that threads get after the body's end.
    LingerOver,
    /// The next timer is behind the time limit.
    TimeLimit,
}

/// How a run ended.
pub(super) enum End {
    AllEnded,
    Leaked(Vec<String>),
    Failed(SimFailure),
}

pub(super) struct State {
    pub options: SimOptions,
    pub chooser: Chooser,
    pub threads: Vec<Thread>,
    pub runnable: Vec<usize>,
    /// Nanoseconds since the run began.
    pub now: u64,
    /// By time and order of setting.
    timers: BTreeMap<(u64, u64), usize>,
    timers_set: u64,
    queues: FixedMap<Key, VecDeque<(usize, Mode)>>,
    /// When each modelled core becomes free.
    cores: Vec<u64>,
    pub entropy: Rng,
    pub steps: u64,
    pub switches: u64,
    pub hash: u64,
    pub history: VecDeque<Event>,
    /// Threads that have not ended.
    pub live: usize,
    /// When the body returned.
    pub body_ended: Option<u64>,
    /// The run is over; a thread that still reaches a scheduling point is parked for good.
    pub halted: bool,
    /// How it ended; taken by the thread that waits for it.
    pub end: Option<End>,
}

/// Steps for each of which debug builds check the invariants once.
const CHECKED_ONE_IN: u64 = 64;

impl State {
    pub fn new(options: SimOptions) -> State {
        assert!(options.cores > 0, "a machine has a core");
        State {
            chooser: Chooser::new(&options),
            threads: Vec::new(),
            runnable: Vec::new(),
            now: 0,
            timers: BTreeMap::new(),
            timers_set: 0,
            queues: FixedMap::default(),
            cores: vec![0; options.cores],
            entropy: Rng::new(options.seed ^ 0x656E_7472_6F70_7921),
            steps: 0,
            switches: 0,
            hash: options.seed,
            history: VecDeque::new(),
            live: 0,
            body_ended: None,
            halted: false,
            end: None,
            options,
        }
    }

    pub fn add_thread(&mut self, name: &str, at: &'static Location<'static>) -> usize {
        self.threads.push(Thread {
            name: name.to_owned(),
            status: Status::Starting,
            parker: Arc::default(),
            timer: None,
            timed_out: false,
            at,
            held: Vec::new(),
        });
        self.chooser.add_thread();
        self.live += 1;
        self.threads.len() - 1
    }

    pub fn mix(&mut self, word: u64) {
        self.hash = (self.hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }

    pub fn make_runnable(&mut self, thread: usize) {
        assert!(
            !matches!(self.threads[thread].status, Status::Runnable | Status::Ended),
            "a thread stands in line once"
        );
        self.threads[thread].status = Status::Runnable;
        self.runnable.push(thread);
    }

    /// Marks `thread` as blocked, until `deadline` at the latest. A deadline that has passed still
    /// lets the others run first, but no time pass.
    pub fn block(&mut self, thread: usize, wait: Wait, deadline: Option<u64>) {
        self.threads[thread].status = Status::Blocked(wait);
        self.threads[thread].timed_out = false;
        match deadline {
            Some(at) if at <= self.now => self.expire(thread),
            Some(at) => {
                let timer = (at, self.timers_set);
                self.timers_set += 1;
                self.timers.insert(timer, thread);
                self.threads[thread].timer = Some(timer);
            }
            None => {}
        }
    }

    /// Ends the wait of `thread` by its deadline.
    fn expire(&mut self, thread: usize) {
        self.threads[thread].timer = None;
        // A notification that arrives before the thread runs must go to a thread that still waits.
        if let Status::Blocked(Wait::Queue(key @ Key::Condvar(_), _)) = self.threads[thread].status {
            self.leave(key, thread);
        }
        self.threads[thread].timed_out = true;
        self.make_runnable(thread);
    }

    /// Ends the wait of `thread`, if it still waits.
    pub fn wake(&mut self, thread: usize) {
        if let Status::Blocked(_) = self.threads[thread].status {
            if let Some(timer) = self.threads[thread].timer.take() {
                self.timers.remove(&timer);
            }
            self.make_runnable(thread);
        }
    }

    /// Asserts the invariants that the module's head states. No thread has the turn just now.
    fn check(&self) {
        let with =
            |status: fn(&Status) -> bool| self.threads.iter().filter(move |t| status(&t.status)).count();
        assert_eq!(with(|status| matches!(status, Status::Running)), 0, "one thread has the turn at most");
        let runnable = with(|status| matches!(status, Status::Runnable));
        assert_eq!(runnable, self.runnable.len(), "what can run stands in line once");
        for (number, thread) in self.threads.iter().enumerate() {
            let is_blocked = matches!(thread.status, Status::Blocked(_));
            let in_line = self.runnable.contains(&number);
            assert_eq!(matches!(thread.status, Status::Runnable), in_line, "what can run stands in line");
            assert!(is_blocked || thread.timer.is_none(), "only a thread that is blocked has a timer");
            assert!(thread.timer.is_none_or(|timer| self.timers.get(&timer) == Some(&number)));
            if let Status::Blocked(Wait::Queue(key, _)) = thread.status {
                let queue = self.queues.get(&key);
                let places = queue.map_or(0, |queue| queue.iter().filter(|(t, _)| *t == number).count());
                assert_eq!(places, 1, "a thread that waits stands in its queue");
            }
        }
        let timers = self.threads.iter().filter(|thread| thread.timer.is_some()).count();
        assert_eq!(timers, self.timers.len(), "a thread has one timer at most");
    }

    /// Removes the thread that runs next from `runnable`, moving the clock if no thread can run.
    pub fn choose(&mut self) -> Result<usize, Standstill> {
        if cfg!(debug_assertions) && self.steps.is_multiple_of(CHECKED_ONE_IN) {
            self.check();
        }
        while self.runnable.is_empty() {
            let Some((&(at, _), _)) = self.timers.first_key_value() else {
                return Err(Standstill::NothingRuns);
            };
            let linger = self.options.linger.as_nanos();
            if self.body_ended.is_some_and(|ended| u128::from(at - ended) > linger) {
                return Err(Standstill::LingerOver);
            }
            if u128::from(at) > self.options.time_limit.as_nanos() {
                return Err(Standstill::TimeLimit);
            }
            assert!(at > self.now, "timers lie in the future");
            self.now = at;
            while let Some(entry) = self.timers.first_entry().filter(|entry| entry.key().0 == at) {
                let thread = entry.remove();
                self.expire(thread);
            }
        }
        let place = self.chooser.next(&self.runnable);
        let next = self.runnable.remove(place);
        self.threads[next].status = Status::Running;
        Ok(next)
    }

    pub fn enter(&mut self, key: Key, thread: usize, mode: Mode) {
        self.queues.entry(key).or_default().push_back((thread, mode));
    }

    pub fn leave(&mut self, key: Key, thread: usize) {
        if let Some(queue) = self.queues.get_mut(&key) {
            queue.retain(|(waiting, _)| *waiting != thread);
            if queue.is_empty() {
                self.queues.remove(&key);
            }
        }
    }

    /// Whether a thread that wants the lock exclusively is queued before `thread`, which wants it
    /// shared.
    pub fn exclusive_is_ahead(&self, address: usize, thread: usize) -> bool {
        self.queues.get(&Key::Lock(address)).is_some_and(|queue| {
            let ahead = queue.iter().take_while(|(waiting, _)| *waiting != thread);
            ahead.into_iter().any(|(_, mode)| *mode == Mode::Exclusive)
        })
    }

    /// Wakes the threads that can have the lock now: all that want it shared up to the first that
    /// wants it exclusively, or that one if the lock is free. They compete for it with newly
    /// arriving threads.
    pub fn wake_for_lock(&mut self, address: usize, free: bool) {
        let Some(queue) = self.queues.get(&Key::Lock(address)) else { return };
        let shared = queue.iter().take_while(|(_, mode)| *mode == Mode::Shared).count();
        let count = if shared == 0 { usize::from(free) } else { shared };
        for place in 0..count {
            let waiting = self.queues[&Key::Lock(address)][place].0;
            self.wake(waiting);
        }
    }

    /// Wakes one thread that waits for the condition variable.
    pub fn notify_one(&mut self, condvar: usize) {
        let key = Key::Condvar(condvar);
        let Some(waiting) = self.queues.get(&key).map(VecDeque::len) else { return };
        let place = self.chooser.woken(waiting);
        let thread = self.queues[&key][place].0;
        self.leave(key, thread);
        self.wake(thread);
    }

    /// Wakes all threads queued for `key`.
    pub fn notify_all(&mut self, key: Key) {
        for (thread, _) in self.queues.remove(&key).unwrap_or_default() {
            self.wake(thread);
        }
    }

    pub fn drop_hold(&mut self, thread: usize, address: usize) {
        // Nearly always its own and its last; another thread may release a latch.
        let of = |thread: &Thread| thread.held.iter().rposition(|held| held.address == address);
        let found = of(&self.threads[thread])
            .map(|place| (thread, place))
            .or_else(|| self.threads.iter().enumerate().find_map(|(no, thread)| Some((no, of(thread)?))));
        if let Some((thread, place)) = found {
            self.threads[thread].held.remove(place);
        }
    }

    /// The moment at which `cpu` nanoseconds of work are done on the core that becomes free first.
    pub fn occupy_core(&mut self, cpu: u64) -> u64 {
        let earliest = self.cores.iter_mut().min_by_key(|free| **free).expect("there is a core");
        *earliest = (*earliest).max(self.now).saturating_add(cpu);
        *earliest
    }
}
