//! Replies that wait for their time.
//!
//! Requests take effect when they arrive, in the session's threads; their replies wait here, in the
//! order of their times, for one thread that sends them. So a slow request delays no other request,
//! however many are in flight.
//!
//! The thread sleeps until [`SPIN`] before a reply is due and spins the rest: kernels wake sleepers
//! tens of microseconds late. At most [`WAITING_LIMIT`] replies wait; beyond that, back-pressure:
//! session threads take no request until the queue has space.

use firndb_base::sync::{Arc, Condvar, Mutex};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU64;
use std::time::Duration;

/// The last part of a wait, in which the thread spins.
pub const SPIN: Duration = Duration::from_micros(60);

/// Most replies that may wait.
pub const WAITING_LIMIT: usize = 4096;

type Job = Box<dyn FnOnce() + Send>;

struct Waiting {
    at: Duration,
    /// Order of scheduling: of two replies due at the same moment, the older is sent first.
    number: u64,
    job: Job,
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Waiting) -> bool {
        self.number == other.number
    }
}
impl Eq for Waiting {}
impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Waiting) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Waiting {
    fn cmp(&self, other: &Waiting) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

#[derive(Default)]
struct State {
    waiting: BinaryHeap<Reverse<Waiting>>,
    scheduled: u64,
    ended: bool,
}

/// The queue of replies.
#[derive(Default)]
pub struct Completions {
    state: Mutex<State>,
    changed: Condvar,
    space: Condvar,
}

impl Completions {
    /// Schedules `job` to run at `at`. Never blocks, so jobs may schedule others.
    pub fn schedule(&self, at: Duration, job: impl FnOnce() + Send + 'static) {
        let mut state = self.state.lock();
        let number = state.scheduled;
        state.scheduled += 1;
        let first = state.waiting.peek().is_none_or(|Reverse(first)| at < first.at);
        state.waiting.push(Reverse(Waiting { at, number, job: Box::new(job) }));
        drop(state);
        if first {
            self.changed.notify_one();
        }
    }

    /// Blocks while too many replies wait. Session threads call it before they take a request.
    pub fn wait_for_space(&self) {
        let mut state = self.state.lock();
        while state.waiting.len() >= WAITING_LIMIT && !state.ended {
            self.space.wait(&mut state);
        }
    }

    /// Ends the thread, and drops the waiting replies.
    pub fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        let dropped = std::mem::take(&mut state.waiting);
        drop(state);
        self.changed.notify_all();
        self.space.notify_all();
        // Dropping a reply may send an error, so it is done outside the lock.
        drop(dropped);
    }

    /// Sends replies until [`Completions::end`]; `now` is the clock of their times.
    pub fn run(self: Arc<Completions>, now: impl Fn() -> Duration) {
        // By default the kernel may wake a thread up to 50 us late, to save power.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut state = self.state.lock();
        while !state.ended {
            let Some(Reverse(first)) = state.waiting.peek() else {
                self.changed.wait(&mut state);
                continue;
            };
            let left = first.at.saturating_sub(now());
            if left > SPIN {
                self.changed.wait_for(&mut state, left - SPIN);
                continue;
            }
            let Some(Reverse(due)) = state.waiting.pop() else { continue };
            if state.waiting.len() + 1 >= WAITING_LIMIT {
                self.space.notify_all();
            }
            drop(state);
            while now() < due.at {
                std::hint::spin_loop();
            }
            (due.job)();
            state = self.state.lock();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn replies_come_in_the_order_of_their_times_and_not_before() {
        let completions = Arc::new(Completions::default());
        let (begun, given) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
        let running = completions.clone();
        let thread = std::thread::spawn(move || running.run(move || begun.elapsed()));
        for ms in [30, 10, 20, 0, 10] {
            let given = given.clone();
            completions.schedule(Duration::from_millis(ms), move || given.lock().push((ms, begun.elapsed())));
        }
        let (again, nested) = (completions.clone(), given.clone());
        completions.schedule(Duration::from_millis(5), move || {
            again.schedule(Duration::from_millis(15), move || nested.lock().push((15, begun.elapsed())));
        });
        while given.lock().len() < 6 && begun.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(1));
        }
        completions.end();
        thread.join().expect("it ends");
        let given = given.lock();
        assert_eq!(given.iter().map(|(ms, _)| *ms).collect::<Vec<u64>>(), [0, 10, 10, 15, 20, 30]);
        assert!(given.iter().all(|(ms, at)| *at >= Duration::from_millis(*ms)), "{given:?}");
    }
}
