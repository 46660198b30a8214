//! When checkpoints are due, and who waits for one. What a checkpoint does is in `checkpoint.rs`.

use crate::error::{Error, ErrorKind};
use crate::ranks;
use firn_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use firn_base::sync::{Condvar, Mutex};
use firn_base::{Lsn, clock};
use std::time::Duration;

/// When checkpoints happen, and who waits for one.
pub(crate) struct Checkpointer {
    /// Bytes of log between two.
    interval: u64,
    /// Log end at the beginning of the last one.
    pub(crate) last: AtomicU64,
    /// Held while one is being taken.
    pub(crate) running: Mutex<()>,
    state: Mutex<State>,
    changed: Condvar,
    /// Somebody wants one, however little log there is.
    wanted: AtomicBool,
}

/// How much background work wants log to be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pressure {
    /// There is enough for now: a checkpoint that freed nothing is not asked for again before something else has moved the log's
    /// beginning.
    Filling,
    /// It cannot go on: a checkpoint is asked for whenever anything has changed.
    Short,
}

/// What a checkpoint was asked for to change.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// The log's end, its oldest byte, and from where on others held it.
    pub seen: Option<(Lsn, Lsn, Option<Lsn>)>,
    /// How often with that.
    pub times: u32,
    /// Checkpoints that had ended then.
    pub ended: u64,
}

#[derive(Default)]
struct State {
    /// Whether a thread takes checkpoints when they are asked for.
    served: bool,
    requested: bool,
    stopped: bool,
    /// How many have ended, well or not.
    ended: u64,
    /// How the last one ended.
    failure: Option<Error>,
}

impl Checkpointer {
    pub fn new(interval: u64, last: Lsn) -> Checkpointer {
        Checkpointer {
            interval,
            last: AtomicU64::new(last.0),
            running: ranks::CHECKPOINT.mutex(()),
            state: Mutex::default(),
            changed: Condvar::new(),
            wanted: AtomicBool::new(false),
        }
    }

    /// Bytes of log between two checkpoints.
    pub fn interval(&self) -> u64 {
        self.interval
    }

    /// Whether so much log has been written since the last one that another should follow.
    pub fn is_due(&self, log_end: Lsn) -> bool {
        self.wanted.load(Ordering::Relaxed)
            || log_end.since(Lsn(self.last.load(Ordering::Relaxed))) >= self.interval
    }

    /// Asks for one if it is due.
    pub fn consider(&self, log_end: Lsn) {
        if self.is_due(log_end) {
            self.request();
        }
    }

    /// One begins, which serves whoever wanted one.
    pub fn begun(&self) {
        self.wanted.store(false, Ordering::Relaxed);
    }

    /// Asks for one, and says that one is due.
    pub fn want(&self) {
        self.wanted.store(true, Ordering::Relaxed);
        self.request();
    }

    /// Asks for one.
    pub fn request(&self) {
        let mut state = self.state.lock();
        if !state.requested {
            state.requested = true;
            self.changed.notify_all();
        }
    }

    /// Ends the thread that waits in [`Checkpointer::wait_for_request`].
    pub fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }

    /// The thread that took checkpoints has ended: who needs one takes it.
    pub fn run_inline(&self) {
        self.state.lock().served = false;
    }

    /// Whether a thread takes checkpoints when they are asked for.
    pub fn is_served(&self) -> bool {
        self.state.lock().served
    }

    /// Blocks until one is asked for; false when the thread should end.
    pub fn wait_for_request(&self) -> bool {
        let mut state = self.state.lock();
        state.served = true;
        while !state.requested && !state.stopped {
            self.changed.wait(&mut state);
        }
        state.requested = false;
        !state.stopped
    }

    /// Asks for one and blocks until one that began after the call has ended.
    pub fn wait_for_next(&self, limit: Duration) -> Result<(), Error> {
        let deadline = clock::now().after(limit);
        let mut state = self.state.lock();
        // The one under way may have begun too early to help.
        let target = state.ended + if self.running.is_locked() { 2 } else { 1 };
        while state.ended < target && !state.stopped {
            // Only once: a notification wakes the others who wait in here, too, and they would wake this one.
            if !state.requested {
                state.requested = true;
                self.changed.notify_all();
            }
            match deadline {
                Some(deadline) if !self.changed.wait_until(&mut state, deadline) => {
                    return Err(Error::new(
                        ErrorKind::Full,
                        format!("the log is full, and a checkpoint did not end within {} s", limit.as_secs()),
                    ));
                }
                Some(_) => {}
                None => self.changed.wait(&mut state),
            }
        }
        if state.stopped {
            return Err(Error::new(ErrorKind::Closed, "the database has been closed"));
        }
        match &state.failure {
            Some(failure) => Err(failure.clone().within("the log is full and a checkpoint failed")),
            None => Ok(()),
        }
    }

    /// How many have ended, well or not.
    pub fn ended_so_far(&self) -> u64 {
        self.state.lock().ended
    }

    pub fn ended(&self, outcome: &Result<(), Error>) {
        let mut state = self.state.lock();
        state.ended += 1;
        state.failure = outcome.as_ref().err().cloned();
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::sim::{self, SimOptions};
    use firn_base::sync::{Arc, thread};

    #[test]
    fn those_who_wait_for_a_checkpoint_do_not_wake_each_other() {
        for seed in 0..20 {
            let options = SimOptions { step_limit: 100_000, ..SimOptions::seeded(seed) };
            let outcome = sim::run(options, || {
                let checkpointer = Arc::new(Checkpointer::new(1, Lsn(0)));
                let served = checkpointer.clone();
                let server = thread::spawn("server", move || {
                    while served.wait_for_request() {
                        let running = served.running.lock();
                        clock::sleep(Duration::from_millis(10));
                        served.ended(&Ok(()));
                        drop(running);
                    }
                });
                thread::scope(|scope| {
                    for _ in 0..4 {
                        scope.spawn(|| checkpointer.wait_for_next(Duration::from_secs(1)).expect("it ends"));
                    }
                });
                checkpointer.stop();
                server.expect("a thread").join().expect("no panic");
            });
            let outcome = outcome.unwrap_or_else(|failure| panic!("{failure}"));
            assert!(outcome.steps < 1000, "seed {seed}: {} steps for four waits", outcome.steps);
        }
    }
}
