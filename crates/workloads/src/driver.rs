//! Closed-loop clients on threads of their own, counted and timed.
//!
//! Each client draws an input, runs it until it commits (running it again after a conflict,
//! deadlock or refusal, within the same latency), and continues with the next. A commit counts if
//! it became *known durable* within the measured interval; so a client with asynchronous commits
//! counts only commits that are on the device. Aborts that the input requests are counted
//! separately and are not commits.

use crate::engine::{Commit, CommitMode, EngineError, Outcome, PendingCommit, Retry};
use crate::latency::LatencyRecorder;
use crate::random::Random;
use crate::report::{KindReport, RetryCounts, RunReport};
use firndb_base::clock::{self, Moment};
use firndb_base::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use firndb_base::sync::{Condvar, Mutex, thread};
use std::collections::VecDeque;
use std::time::Duration;

/// The work of one client. Made on the client's own thread and used only there.
pub trait Client {
    /// Draws the next transaction's input; returns its kind, an index into the list given to
    /// [`drive`].
    fn draw(&mut self) -> usize;
    /// Runs the transaction once, to its commit. After [`EngineError::Retry`] it is called again.
    fn attempt(&mut self, mode: CommitMode) -> Outcome<Attempt>;
}

/// The result of an attempt that need not be repeated.
#[derive(Debug)]
pub enum Attempt {
    /// Committed.
    Committed(Commit),
    /// Rolled back because the input requests it.
    UserAbort,
}

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// After this time, the warm-up not counted.
    Time(Duration),
    /// After each client has run this many transactions, all of them counted; there is no warm-up.
    TransactionsPerClient(u64),
}

/// How to drive.
#[derive(Clone, Debug)]
pub struct DriverOptions {
    /// Clients, each a thread.
    pub clients: usize,
    /// Time before anything is counted.
    pub warm_up: Duration,
    /// When to end.
    pub length: Length,
    /// Whether clients wait for each commit.
    pub commit_mode: CommitMode,
    /// Most commits that a client has outstanding in [`CommitMode::Async`]; at the limit it waits
    /// for the oldest.
    pub window: usize,
    /// Time between calls of the progress callback.
    pub report_every: Duration,
}

impl DriverOptions {
    /// Clients that wait for each commit, for `time` after a warm-up of a tenth of it.
    #[must_use]
    pub fn new(clients: usize, time: Duration) -> DriverOptions {
        DriverOptions {
            clients,
            warm_up: time / 10,
            length: Length::Time(time),
            commit_mode: CommitMode::Wait,
            window: 64,
            report_every: Duration::from_secs(1),
        }
    }
}

/// The progress of a run, for a live display.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LiveRate {
    /// Time since the clients started, the warm-up included.
    pub elapsed: Duration,
    /// Whether nothing is counted yet.
    pub warming_up: bool,
    /// Durable commits since the clients started.
    pub commits: u64,
    /// Durable commits a second since the last call.
    pub commits_per_second: f64,
    /// Attempts repeated since the clients started.
    pub retries: u64,
}

/// Attempts at one transaction before the run fails.
const ATTEMPTS_MAX: u32 = 100_000;
/// How often the main thread checks whether the run is over.
const TICK: Duration = Duration::from_millis(20);

/// Runs clients made by `make` (from their number, on their own thread). Ends early once `stop` is
/// set. If a client fails, the others stop and `drive` returns the first failure.
pub fn drive<C: Client>(
    options: &DriverOptions,
    kinds: &[&'static str],
    stop: &AtomicBool,
    make: impl Fn(usize) -> Outcome<C> + Sync,
    progress: &mut dyn FnMut(LiveRate),
) -> Outcome<RunReport> {
    assert!(options.clients > 0, "a run needs a client");
    assert!(options.window > 0 || options.commit_mode == CommitMode::Wait, "a window of no commits");
    let run = Run {
        options,
        stop,
        failed: AtomicBool::new(false),
        started: StartGate::default(),
        ready: AtomicUsize::new(0),
        gone: AtomicUsize::new(0),
        live: (0..options.clients).map(|_| LiveCounts::default()).collect(),
    };
    let tallies = thread::scope(|scope| {
        let make = &make;
        let threads: Vec<_> = (0..options.clients)
            .map(|number| {
                let run = &run;
                scope.spawn(move || run.client(number, kinds.len(), make))
            })
            .collect();
        run.watch(progress);
        let mut tallies = Vec::with_capacity(threads.len());
        for thread in threads {
            match thread.join() {
                Ok(tally) => tallies.push(tally),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        tallies
    });
    let ended = clock::now();
    let mut total = Tally::new(kinds.len());
    for tally in tallies {
        total.merge(&tally?);
    }
    Ok(run.report(total, kinds, ended))
}

/// Blocks the clients until all are ready.
#[derive(Default)]
struct StartGate {
    /// When it was opened.
    opened: Mutex<Option<Moment>>,
    wake: Condvar,
}

impl StartGate {
    /// Opens the gate; returns the moment.
    fn open(&self) -> Moment {
        let now = *self.opened.lock().get_or_insert_with(clock::now);
        self.wake.notify_all();
        now
    }
    /// Waits until the gate is open; returns the moment at which it opened.
    fn wait(&self) -> Moment {
        let mut opened = self.opened.lock();
        loop {
            match *opened {
                Some(moment) => return moment,
                None => self.wake.wait(&mut opened),
            }
        }
    }
}

/// State that the clients of a run share.
struct Run<'a> {
    options: &'a DriverOptions,
    /// Set by the caller to end the run.
    stop: &'a AtomicBool,
    /// Set by a client that failed.
    failed: AtomicBool,
    /// Opens when all clients are ready; they wait for it.
    started: StartGate,
    /// Clients that were made or could not be made.
    ready: AtomicUsize,
    /// Client threads that are done.
    gone: AtomicUsize,
    /// Live counters of each client.
    live: Vec<LiveCounts>,
}

/// A client's counters for the live display; on cache lines of their own.
#[derive(Default)]
#[repr(align(128))]
struct LiveCounts {
    commits: AtomicU64,
    retries: AtomicU64,
}

/// Counts a thread when dropped, whether it returns or panics.
struct Departure<'a>(&'a AtomicUsize);
impl Drop for Departure<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

/// A transaction that is committed and not yet known durable.
struct Outstanding {
    kind: usize,
    began: Moment,
    pending: Box<dyn PendingCommit>,
}

/// Counts of one client.
struct Tally {
    kinds: Vec<KindTally>,
}
#[derive(Default)]
struct KindTally {
    user_aborts: u64,
    retries: RetryCounts,
    latency: LatencyRecorder,
}

impl Tally {
    fn new(kinds: usize) -> Tally {
        Tally { kinds: (0..kinds).map(|_| KindTally::default()).collect() }
    }
    fn merge(&mut self, other: &Tally) {
        for (mine, theirs) in self.kinds.iter_mut().zip(&other.kinds) {
            mine.user_aborts += theirs.user_aborts;
            mine.retries.add(theirs.retries);
            mine.latency.merge(&theirs.latency);
        }
    }
}

impl Run<'_> {
    fn client<C: Client>(
        &self,
        number: usize,
        kinds: usize,
        make: &(impl Fn(usize) -> Outcome<C> + Sync),
    ) -> Outcome<Tally> {
        let _gone = Departure(&self.gone);
        let client = {
            let _ready = Departure(&self.ready);
            make(number)
        };
        let result = client.and_then(|client| {
            let started = self.started.wait();
            let mut loop_ = ClientLoop {
                run: self,
                live: &self.live[number],
                client,
                tally: Tally::new(kinds),
                outstanding: VecDeque::new(),
                backoff: Random::stream(0, number as u64),
                measured: self.interval(started),
            };
            loop_.run().map(|()| loop_.tally)
        });
        if result.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        result
    }

    /// When counting begins and ends.
    fn interval(&self, started: Moment) -> (Moment, Option<Moment>) {
        match self.options.length {
            Length::Time(time) => {
                let from = started.after(self.options.warm_up).unwrap_or(started);
                (from, from.after(time))
            }
            Length::TransactionsPerClient(_) => (started, None),
        }
    }

    fn over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.failed.load(Ordering::Relaxed)
    }

    /// Starts the clients once all are ready, and reports until all are gone.
    fn watch(&self, progress: &mut dyn FnMut(LiveRate)) {
        while self.ready.load(Ordering::Acquire) < self.options.clients {
            clock::sleep(Duration::from_micros(200));
        }
        let started = self.started.open();
        let (from, _) = self.interval(started);
        let (mut reported, mut reported_commits) = (started, 0);
        while self.gone.load(Ordering::Acquire) < self.options.clients {
            clock::sleep(TICK.min(self.options.report_every));
            let now = clock::now();
            if now.since(reported) < self.options.report_every {
                continue;
            }
            let commits: u64 = self.live.iter().map(|live| live.commits.load(Ordering::Relaxed)).sum();
            progress(LiveRate {
                elapsed: now.since(started),
                warming_up: now < from,
                commits,
                commits_per_second: (commits - reported_commits) as f64 / now.since(reported).as_secs_f64(),
                retries: self.live.iter().map(|live| live.retries.load(Ordering::Relaxed)).sum(),
            });
            (reported, reported_commits) = (now, commits);
        }
    }

    fn report(&self, total: Tally, kinds: &[&'static str], ended: Moment) -> RunReport {
        let (from, until) = self.interval(self.started.wait());
        let until = until.map_or(ended, |until| until.min(ended));
        let kinds = total.kinds.into_iter().zip(kinds).map(|(tally, name)| KindReport {
            name,
            commits: tally.latency.count(),
            user_aborts: tally.user_aborts,
            retries: tally.retries,
            latency: tally.latency.summary(),
        });
        RunReport {
            seconds: until.since(from).as_secs_f64(),
            stopped: self.stop.load(Ordering::Relaxed),
            kinds: kinds.collect(),
        }
    }
}

struct ClientLoop<'a, C> {
    run: &'a Run<'a>,
    live: &'a LiveCounts,
    client: C,
    tally: Tally,
    /// Outstanding commits, the oldest first.
    outstanding: VecDeque<Outstanding>,
    backoff: Random,
    /// The measured interval; without an end if the run ends by count.
    measured: (Moment, Option<Moment>),
}

impl<C: Client> ClientLoop<'_, C> {
    fn run(&mut self) -> Outcome<()> {
        let limit = match self.run.options.length {
            Length::Time(_) => u64::MAX,
            Length::TransactionsPerClient(count) => count,
        };
        for _ in 0..limit {
            let began = clock::now();
            if self.run.over() || self.measured.1.is_some_and(|until| began >= until) {
                break;
            }
            self.transaction(began)?;
            self.settle()?;
        }
        while let Some(oldest) = self.outstanding.pop_front() {
            self.wait_for(oldest)?;
        }
        Ok(())
    }

    fn transaction(&mut self, began: Moment) -> Outcome<()> {
        let kind = self.client.draw();
        for attempt in 1..=ATTEMPTS_MAX {
            match self.client.attempt(self.run.options.commit_mode) {
                Ok(Attempt::Committed(Commit::Durable)) => {
                    self.committed(kind, began);
                    return Ok(());
                }
                Ok(Attempt::Committed(Commit::Pending(pending))) => {
                    self.outstanding.push_back(Outstanding { kind, began, pending });
                    return Ok(());
                }
                Ok(Attempt::UserAbort) => {
                    self.tally.kinds[kind].user_aborts += u64::from(self.counts(clock::now()));
                    return Ok(());
                }
                Err(EngineError::Retry(cause)) => self.retried(kind, cause, attempt),
                Err(error) => return Err(error),
            }
            if self.run.over() {
                return Ok(());
            }
        }
        Err(EngineError::Fatal(format!("a transaction did not commit in {ATTEMPTS_MAX} attempts")))
    }

    fn counts(&self, now: Moment) -> bool {
        now >= self.measured.0 && self.measured.1.is_none_or(|until| now < until)
    }

    fn committed(&mut self, kind: usize, began: Moment) {
        let now = clock::now();
        self.live.commits.fetch_add(1, Ordering::Relaxed);
        if self.counts(now) {
            self.tally.kinds[kind].latency.record(now.since(began));
        }
    }

    fn retried(&mut self, kind: usize, cause: Retry, attempt: u32) {
        self.live.retries.fetch_add(1, Ordering::Relaxed);
        if self.counts(clock::now()) {
            self.tally.kinds[kind].retries.count(cause);
        }
        // The first retry is immediate; later ones follow a random pause that doubles up to some
        // milliseconds.
        if attempt > 1 {
            let longest_us = 50 << attempt.min(8);
            clock::sleep(Duration::from_micros(self.backoff.between(0, longest_us)));
        }
    }

    /// Counts outstanding commits that are durable by now, and waits while there are more than the
    /// window allows.
    fn settle(&mut self) -> Outcome<()> {
        while let Some(oldest) = self.outstanding.front_mut() {
            if oldest.pending.is_durable()? {
                let (kind, began) = (oldest.kind, oldest.began);
                self.outstanding.pop_front();
                self.committed(kind, began);
            } else if self.outstanding.len() >= self.run.options.window {
                let oldest = self.outstanding.pop_front().expect("the window is full");
                self.wait_for(oldest)?;
            } else {
                break;
            }
        }
        Ok(())
    }

    fn wait_for(&mut self, commit: Outstanding) -> Outcome<()> {
        commit.pending.wait()?;
        self.committed(commit.kind, commit.began);
        Ok(())
    }
}
