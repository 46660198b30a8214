//! The driver with scripted clients: what it counts, and how it ends.

use firndb_workloads::{
    Attempt, Client, Commit, CommitMode, DriverOptions, EngineError, Length, Outcome, PendingCommit, Retry,
    drive,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Commits at once, after the first attempts were refused.
struct Refused {
    attempts: u32,
    drawn: usize,
}

impl Client for Refused {
    fn draw(&mut self) -> usize {
        self.attempts = 0;
        self.drawn += 1;
        self.drawn % 2
    }
    fn attempt(&mut self, mode: CommitMode) -> Outcome<Attempt> {
        assert_eq!(mode, CommitMode::Wait);
        self.attempts += 1;
        match (self.drawn % 2, self.attempts) {
            (0, _) => Ok(Attempt::UserAbort),
            (_, 1) => Err(EngineError::Retry(Retry::Conflict)),
            (_, 2) => Err(EngineError::Retry(Retry::Deadlock)),
            _ => {
                std::thread::sleep(Duration::from_millis(2));
                Ok(Attempt::Committed(Commit::Durable))
            }
        }
    }
}

fn by_count(clients: usize, count: u64) -> DriverOptions {
    let mut options = DriverOptions::new(clients, Duration::ZERO);
    options.length = Length::TransactionsPerClient(count);
    options
}

#[test]
fn retries_are_counted_by_cause_and_lie_within_the_latency_and_user_aborts_are_no_commits() {
    let make = |_| Ok(Refused { attempts: 0, drawn: 0 });
    let report =
        drive(&by_count(2, 10), &["aborted", "refused"], &AtomicBool::new(false), make, &mut |_| ()).unwrap();
    assert_eq!((report.commits(), report.user_aborts()), (10, 10));
    let refused = &report.kinds[1];
    assert_eq!((refused.name, refused.commits, refused.user_aborts), ("refused", 10, 0));
    assert_eq!((refused.retries.conflict, refused.retries.deadlock, refused.retries.busy), (10, 10, 0));
    assert!(refused.latency.p50 >= 2000.0);
    assert_eq!(report.kinds[0].latency.max, 0.0);
    assert!(report.per_second(report.commits()) > 0.0);
}

/// Commits that become durable when `limit` of them wait, as a group.
#[derive(Default)]
struct Group {
    outstanding: AtomicUsize,
    most: AtomicUsize,
    durable: AtomicUsize,
}
struct GroupCommit(Arc<Group>);
impl PendingCommit for GroupCommit {
    fn is_durable(&mut self) -> Outcome<bool> {
        Ok(false)
    }
    fn wait(self: Box<Self>) -> Outcome<()> {
        self.0.outstanding.fetch_sub(1, Ordering::Relaxed);
        self.0.durable.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
struct Asynchronous(Arc<Group>);
impl Client for Asynchronous {
    fn draw(&mut self) -> usize {
        0
    }
    fn attempt(&mut self, mode: CommitMode) -> Outcome<Attempt> {
        assert_eq!(mode, CommitMode::Async);
        let outstanding = self.0.outstanding.fetch_add(1, Ordering::Relaxed) + 1;
        self.0.most.fetch_max(outstanding, Ordering::Relaxed);
        Ok(Attempt::Committed(Commit::Pending(Box::new(GroupCommit(self.0.clone())))))
    }
}

#[test]
fn asynchronous_commits_keep_to_their_window_and_are_all_waited_for() {
    let group = Arc::new(Group::default());
    let mut options = by_count(1, 100);
    (options.commit_mode, options.window) = (CommitMode::Async, 8);
    let make = |_| Ok(Asynchronous(group.clone()));
    let report = drive(&options, &["grouped"], &AtomicBool::new(false), make, &mut |_| ()).unwrap();
    assert_eq!(report.commits(), 100);
    assert_eq!(group.durable.load(Ordering::Relaxed), 100);
    assert_eq!(group.most.load(Ordering::Relaxed), 8);
}

/// Commits for ever.
struct Endless;
impl Client for Endless {
    fn draw(&mut self) -> usize {
        0
    }
    fn attempt(&mut self, _mode: CommitMode) -> Outcome<Attempt> {
        std::thread::sleep(Duration::from_micros(100));
        Ok(Attempt::Committed(Commit::Durable))
    }
}

#[test]
fn time_is_measured_after_the_warm_up_and_progress_is_shown() {
    let mut options = DriverOptions::new(2, Duration::from_millis(300));
    options.warm_up = Duration::from_millis(100);
    options.report_every = Duration::from_millis(40);
    let mut shown = Vec::new();
    let report = drive(&options, &["endless"], &AtomicBool::new(false), |_| Ok(Endless), &mut |live| {
        shown.push(live);
    })
    .unwrap();
    assert!((report.seconds - 0.3).abs() < 1e-9 && !report.stopped);
    assert!(shown.len() >= 3 && shown[0].warming_up && !shown[shown.len() - 1].warming_up);
    assert!(report.commits() < shown[shown.len() - 1].commits + 10_000);
    assert!(shown.windows(2).all(|pair| pair[0].commits <= pair[1].commits));
}

#[test]
fn the_stop_flag_ends_a_run_early() {
    let stop = AtomicBool::new(false);
    let mut options = DriverOptions::new(2, Duration::from_secs(3600));
    options.warm_up = Duration::ZERO;
    options.report_every = Duration::from_millis(10);
    let report = drive(&options, &["endless"], &stop, |_| Ok(Endless), &mut |live| {
        stop.store(live.commits > 10, Ordering::Relaxed);
    })
    .unwrap();
    assert!(report.stopped && report.commits() > 10 && report.seconds < 60.0);
}

/// Fails permanently.
struct Broken;
impl Client for Broken {
    fn draw(&mut self) -> usize {
        0
    }
    fn attempt(&mut self, _mode: CommitMode) -> Outcome<Attempt> {
        Err(EngineError::Fatal("the disk is gone".into()))
    }
}

#[test]
fn a_client_that_fails_or_cannot_be_made_ends_the_run_with_its_error() {
    let options = DriverOptions::new(3, Duration::from_secs(3600));
    let stop = AtomicBool::new(false);
    let error = drive(&options, &["broken"], &stop, |_| Ok(Broken), &mut |_| ()).unwrap_err();
    assert_eq!(error.to_string(), "the disk is gone");
    let make = |number| match number {
        1 => Err(EngineError::Fatal("no more sessions".into())),
        _ => Ok(Endless),
    };
    let error = drive(&options, &["endless"], &stop, make, &mut |_| ()).unwrap_err();
    assert_eq!(error.to_string(), "no more sessions");
}
