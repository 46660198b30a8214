//! When checkpoints are due, and how threads request them and wait for them. What a checkpoint does
//! is in `checkpoint.rs`.

use crate::engine::recovery_time::RecoveryTime;
use crate::engine::superblock::Superblock;
use crate::error::{Error, ErrorKind};
use crate::options::Options;
use crate::options::limits::{INTERVAL_LEAST, INTERVAL_SHARE};
use crate::ranks;
use firndb_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use firndb_base::sync::{Condvar, Mutex};
use firndb_base::{Lsn, clock};
use firndb_log::Log;
use std::time::Duration;

/// Requests for checkpoints, and their outcomes.
pub(crate) struct Checkpointer {
    interval: Interval,
    /// The time that a restart may take.
    pub(crate) time: RecoveryTime,
    /// The log's end at the beginning of the last checkpoint.
    pub(crate) last: AtomicU64,
    /// Held while a checkpoint is taken.
    pub(crate) running: Mutex<()>,
    state: Mutex<State>,
    changed: Condvar,
    /// A checkpoint was requested, however little log there is.
    wanted: AtomicBool,
}

/// Bytes of log between the begins of two checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    /// From here on a checkpoint is due if the log is filling, or will be when it ends.
    pub least: u64,
    /// Here one is due in any case.
    pub most: u64,
}

impl Interval {
    /// Half of the log is two of the longest intervals, which is what a checkpoint that writes what
    /// was dirty at the one before leaves to be read. The other half is for what is appended while
    /// it runs, for long transactions, and for the reserves.
    fn of_log(bytes: u64) -> Interval {
        Interval { least: bytes / (2 * INTERVAL_SHARE), most: bytes / INTERVAL_SHARE }
    }

    /// As chosen, or by the log's space: its copies leave less of it.
    pub fn chosen(options: &Options, superblock: &Superblock) -> Interval {
        let by_space = Interval::of_log(superblock.log_bytes() / u64::from(superblock.copies()));
        let most = by_space.most.max(INTERVAL_LEAST);
        options.tuning.checkpoint_log_bytes.map_or(by_space, |bytes| Interval::exactly(bytes.min(most)))
    }

    fn exactly(bytes: u64) -> Interval {
        Interval { least: bytes, most: bytes }
    }
}

/// How urgently background work needs log to be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pressure {
    /// There is enough for now: after a checkpoint that freed nothing, no other is requested before
    /// the log's beginning has moved.
    Filling,
    /// It cannot go on: a checkpoint is requested whenever anything has changed.
    Short,
}

/// The state of the log when background work last requested a checkpoint.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// The log's end, its oldest byte, and the LSN that archive or backups held.
    pub seen: Option<(Lsn, Lsn, Option<Lsn>)>,
    /// Requests in that state.
    pub times: u32,
    /// Checkpoints that had ended then.
    pub ended: u64,
}

/// What the checkpoint thread is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Request {
    /// A checkpoint if one is due still: a client may have asked while the last one began.
    Due,
    /// A checkpoint.
    Demanded,
}

#[derive(Default)]
struct State {
    /// Whether a thread serves requests.
    served: bool,
    requested: Option<Request>,
    stopped: bool,
    /// Checkpoints that have ended, successfully or not.
    ended: u64,
    /// How the last one ended.
    failure: Option<Error>,
}

impl Checkpointer {
    pub fn new(interval: Interval, time: RecoveryTime, last: Lsn) -> Checkpointer {
        Checkpointer {
            interval,
            time,
            last: AtomicU64::new(last.0),
            running: ranks::CHECKPOINT.mutex(()),
            state: Mutex::default(),
            changed: Condvar::new(),
            wanted: AtomicBool::new(false),
        }
    }

    /// Bytes of log between two checkpoints, at most.
    pub fn interval(&self) -> u64 {
        self.interval.most
    }

    /// Whether enough log has been appended since the last checkpoint for another one, or a restart
    /// would take too long.
    pub fn is_due(&self, log: &Log) -> bool {
        let will_fill = || log.space().fills_within(self.time.grown());
        self.wanted.load(Ordering::Relaxed)
            || self.since_last(log) >= self.interval.most
            || self.since_last(log) >= self.interval.least && will_fill()
            || self.time.is_due(log.written())
    }

    /// Bytes of log since the last checkpoint began.
    fn since_last(&self, log: &Log) -> u64 {
        log.end().since(Lsn(self.last.load(Ordering::Relaxed)))
    }

    /// If reading the log would take too long, and its space is no cause for a checkpoint: a step
    /// writes what was dirty before this LSN. So none is while archive or backups hold half of it.
    pub fn step(&self, log: &Log) -> Option<Lsn> {
        let by_space =
            self.since_last(log) >= self.interval.most || log.space().fills_within(self.time.grown());
        if by_space { None } else { self.time.step(log.written()) }
    }

    /// Whether a checkpoint is being taken: it frees log when it ends.
    pub fn is_running(&self) -> bool {
        self.running.is_locked()
    }

    /// Requests a checkpoint unless one runs.
    pub fn hurry(&self) {
        if !self.is_running() {
            self.request();
        }
    }

    /// Requests a checkpoint if one is due. While one runs, it is due still: whether another is due
    /// is decided once that one has ended, successfully or not.
    pub fn consider(&self, log: &Log) {
        if !self.is_running() && self.is_due(log) {
            self.ask(Request::Due);
        }
    }

    /// Called when a checkpoint begins, which serves all requests so far; returns whether one was
    /// wanted however little log there is.
    pub fn begun(&self) -> bool {
        self.wanted.swap(false, Ordering::Relaxed)
    }

    /// Requests a checkpoint, and makes one due.
    pub fn want(&self) {
        self.wanted.store(true, Ordering::Relaxed);
        self.request();
    }

    /// Requests a checkpoint.
    pub fn request(&self) {
        self.ask(Request::Demanded);
    }

    fn ask(&self, request: Request) {
        self.note(&mut self.state.lock(), request);
    }

    /// Only once: a notification also wakes those that wait for a checkpoint's end, and these would
    /// wake each other.
    fn note(&self, state: &mut State, request: Request) {
        if state.requested < Some(request) {
            state.requested = Some(request);
            self.changed.notify_all();
        }
    }

    /// Ends the thread that waits in [`Checkpointer::wait_for_request`].
    pub fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }

    /// No checkpoint thread any more: callers take checkpoints inline.
    pub fn run_inline(&self) {
        self.state.lock().served = false;
    }

    /// Whether a thread serves requests.
    pub fn is_served(&self) -> bool {
        self.state.lock().served
    }

    /// Blocks until a checkpoint is requested; `None` when the thread should end.
    pub fn wait_for_request(&self) -> Option<Request> {
        let mut state = self.state.lock();
        state.served = true;
        while state.requested.is_none() && !state.stopped {
            self.changed.wait(&mut state);
        }
        state.requested.take().filter(|_| !state.stopped)
    }

    /// Requests a checkpoint and blocks until one that began after the call has ended.
    pub fn wait_for_next(&self, limit: Duration) -> Result<(), Error> {
        let deadline = clock::now().after(limit);
        let mut state = self.state.lock();
        // The running one may have begun too early to help.
        let target = state.ended + if self.is_running() { 2 } else { 1 };
        while state.ended < target && !state.stopped {
            self.note(&mut state, Request::Demanded);
            match deadline {
                Some(deadline) if !self.changed.wait_until(&mut state, deadline) => {
                    return Err(Error::full(format!(
                        "the log is full, and a checkpoint did not end within {} s",
                        limit.as_secs()
                    )));
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

    /// Blocks until a checkpoint ends, or for `limit`; false if none will, as no thread takes any.
    pub fn wait_for_end(&self, limit: Duration) -> bool {
        let deadline = clock::now().after(limit);
        let mut state = self.state.lock();
        let target = state.ended + 1;
        while state.served && !state.stopped && state.ended < target {
            if !deadline.is_some_and(|deadline| self.changed.wait_until(&mut state, deadline)) {
                break;
            }
        }
        state.served && !state.stopped
    }

    /// Checkpoints that have ended, successfully or not.
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
    use crate::engine::recovery_time::Opened;
    use crate::engine::testing::{memory_devices, small};
    use firndb_base::sim::{self, SimOptions};
    use firndb_base::sync::{Arc, thread};

    /// Cause: the log that makes a checkpoint due does so until the checkpoint has ended, and
    /// clients requested another meanwhile. Effect: each automatic checkpoint was followed by a
    /// second one at once, and background recovery waited for both.
    #[test]
    fn what_made_the_running_checkpoint_due_requests_no_other() {
        let db = small(1).create_on(memory_devices(1)).expect("created");
        let log = &db.engine().log;
        let time = RecoveryTime::new(Duration::MAX, 1, &Opened::default());
        let checkpointer = Checkpointer::new(Interval::exactly(1), time, Lsn(0));
        let requested = || checkpointer.state.lock().requested.take().is_some();
        checkpointer.consider(log);
        assert!(requested(), "it is due");
        let running = checkpointer.running.lock();
        checkpointer.consider(log);
        assert!(!requested(), "the running one is what was due");
        checkpointer.want();
        assert!(requested(), "a request that asks for a new one stays");
        drop(running);
        checkpointer.consider(log);
        assert!(requested(), "it ended without effect, and one is due still");
    }

    #[test]
    fn those_who_wait_for_a_checkpoint_do_not_wake_each_other() {
        for seed in 0..20 {
            let options = SimOptions { step_limit: 100_000, ..SimOptions::seeded(seed) };
            let outcome = sim::run(options, || {
                let time = RecoveryTime::new(Duration::MAX, 1, &Opened::default());
                let checkpointer = Arc::new(Checkpointer::new(Interval::exactly(1), time, Lsn(0)));
                let served = checkpointer.clone();
                let server = thread::spawn("server", move || {
                    while served.wait_for_request().is_some() {
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
