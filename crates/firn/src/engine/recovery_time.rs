//! How much log a restart would read, and whether a checkpoint is due so that reading it takes no
//! longer than `recovery_time`.
//!
//! Log is counted as what its devices were written, framing and padding included: that is what a
//! restart reads, several times the log's own bytes where commits are short. A checkpoint is due
//! when what a restart would read, and what will be appended while the checkpoint runs, reach the
//! budget: goal × rate. The rate is the first known of: what this opening's recovery took to read
//! the log, the profile of the log's device, a few timed reads at the first checkpoint,
//! [`RATE_ASSUMED`].
//!
//! Such a checkpoint is a *step*, unless a flash cache absorbs what it writes: it writes the pages
//! that have been dirty for longest, and moves the redo start by an eighth of the budget
//! ([`STEPS`]). So a page stays dirty for most of a budget, and is written once in that time
//! however often it changes. Where the devices do not take pages as fast as they become dirty,
//! steps follow each other, and the log to be read is what comes while all dirty pages are written.
//!
//! The goal holds no write back: where devices take pages more slowly than they become dirty, the
//! log to be read grows beyond it. Transactions wait before their first write while reading it
//! would take longer than `recovery_time_limit`, and it is longer than some least distances.
//!
//! What a checkpoint costs decides the least distance. Each makes store, page map, record and
//! superblock durable: some ten durable writes. So none begins before [`LEAST_BYTES`] since the
//! last began (less where the log is small), nor before twice as much has come since as during
//! those writes (with such a cache: as while the last one ran); and where the last freed no log,
//! not before half of the budget.

use firndb_base::Lsn;
use firndb_base::sync::Mutex;
use firndb_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use firndb_log::Log;
use std::collections::VecDeque;
use std::time::Duration;

/// Bytes written to the log's devices between the begins of two checkpoints, at least; but not more
/// than the interval by the log's space over [`LEAST_SHARE`].
pub(crate) const LEAST_BYTES: u64 = 1 << 20;
const LEAST_SHARE: u64 = 4;
/// The rate while none is known, in bytes a second: a slow disk's.
pub(crate) const RATE_ASSUMED: f64 = 64e6;
/// A processor merges and analyses log at this rate at most, in bytes a second.
const RATE_MAX: f64 = 400e6;
/// The slowest drives that a log is kept on read about so, in bytes a second: less was measured
/// beside other work, or while the machine slept.
const RATE_MIN: f64 = 4e6;
/// Writes wait for no log of fewer than this many of the least distances: checkpoints would follow
/// each other, and those cost more than that log.
const LIMIT_LEAST: u64 = 4;
/// Bytes of log from which on what recovery took tells the rate.
const MEASURED_LEAST: u64 = 4 << 20;
/// A step moves the redo start by the budget over this, unless the least distance is more.
const STEPS: u64 = 8;
/// Checkpoints whose begin is remembered: the redo start is at one of the last, as a rule.
const MARKS: usize = 64;

/// Where the rate comes from at which a restart would read the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadRateOrigin {
    /// What this opening's recovery took to read the log.
    Recovery,
    /// The profile of the log's device.
    Profile,
    /// A few timed reads of the log's devices.
    Timed,
    /// Nothing is known yet.
    Assumed,
}

/// What decides when the next automatic checkpoint is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckpointLimit {
    /// [`crate::Options::recovery_time`].
    RecoveryTime,
    /// [`crate::Tuning::checkpoint_log_bytes`], or the log's space.
    LogBytes,
    /// The least distance of two checkpoints: they cost too much to come nearer to the goal.
    LeastDistance,
}

/// What a restart after a crash would take now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestartEstimate {
    /// [`crate::Options::recovery_time`].
    pub goal: Duration,
    /// Bytes of log that would be read.
    pub log_bytes: u64,
    /// At this rate, in bytes a second.
    pub bytes_per_second: u64,
    /// Where the rate comes from.
    pub rate_from: ReadRateOrigin,
    /// The time that takes.
    pub time: Duration,
    /// What decides when the next automatic checkpoint is due.
    pub limit: CheckpointLimit,
    /// [`crate::Options::recovery_time_limit`]; `None` if writes never wait.
    pub writes_wait_from: Option<Duration>,
    /// How long transactions have waited for that since the opening, all of them together.
    pub writes_waited: Duration,
}

/// What decides whether a checkpoint is due for the goal, in bytes on the log's devices.
#[derive(Clone, Copy, Debug)]
struct Situation {
    /// A restart would read these.
    to_read: u64,
    /// Written since the last checkpoint began.
    since_last: u64,
    /// Written while it ran.
    grown: u64,
    /// Of that, what the least distance counts.
    settling: u64,
    /// It freed log.
    has_freed: bool,
    /// Goal × rate.
    budget: u64,
    /// Writes wait while there is more to read.
    limit: u64,
    /// Between two checkpoints, whatever they cost.
    least: u64,
}

impl Situation {
    fn least_distance(self) -> u64 {
        self.least.max(2 * self.settling)
    }

    /// How far a checkpoint for the goal moves the redo start.
    fn step(self) -> u64 {
        self.least_distance().max(self.budget / STEPS)
    }

    /// Over the limit whatever checkpoints cost.
    fn is_due(self) -> bool {
        let is_due = self.to_read.saturating_add(self.grown) >= self.budget
            && self.since_last >= self.least_distance()
            && (self.has_freed || self.since_last >= self.budget / 2);
        is_due || self.is_over_limit()
    }

    /// Whether writes have to wait: not if the last checkpoint freed no log, and so the next will
    /// hardly either.
    fn is_over_limit(self) -> bool {
        self.has_freed && self.to_read > self.limit
    }

    /// What decides, if log of `interval` makes a checkpoint due in any case. Such a checkpoint
    /// writes what was dirty at the one before it: a restart reads two intervals, or one
    /// (`absorbs`) where it writes all.
    fn limit(self, interval: u64, absorbs: bool) -> CheckpointLimit {
        let read_by_interval = if absorbs { interval } else { interval.saturating_mul(2) };
        match self.budget.saturating_sub(self.grown) {
            _ if self.least_distance() >= interval => CheckpointLimit::LogBytes,
            by_time if by_time >= read_by_interval => CheckpointLimit::LogBytes,
            by_time if by_time <= self.least_distance() => CheckpointLimit::LeastDistance,
            _ => CheckpointLimit::RecoveryTime,
        }
    }
}

/// The log of one opening as a restart would read it.
#[derive(Debug)]
struct Exposed {
    /// LSN and bytes written so far, when each of the last checkpoints began; the first is where
    /// this opening's epoch began.
    marks: VecDeque<(Lsn, u64)>,
    /// End of the log before this epoch, and bytes read for one of its bytes.
    before: (Lsn, f64),
    redo_start: Lsn,
    grown: u64,
    settling: u64,
    /// What was written when the running checkpoint had written its pages.
    pages_written: Option<u64>,
    has_freed: bool,
    rate: (f64, ReadRateOrigin),
}

impl Exposed {
    /// Bytes written before `lsn`, negative before this epoch; `now` is the log's end and what was
    /// written so far.
    fn written_before(&self, lsn: Lsn, now: (Lsn, u64)) -> f64 {
        let points = || self.marks.iter().copied().chain([now]);
        let Some((from, base)) = points().take_while(|(mark, _)| *mark <= lsn).last() else {
            let (end, factor) = self.before;
            return -(end.0.saturating_sub(lsn.0) as f64) * factor;
        };
        let Some((to, top)) = points().find(|(mark, _)| *mark > lsn) else { return base as f64 };
        let part = lsn.since(from) as f64 / to.since(from) as f64;
        base as f64 + top.saturating_sub(base) as f64 * part
    }

    /// The LSN before which about these bytes were written: the inverse of
    /// [`Exposed::written_before`].
    fn lsn_after(&self, bytes: f64, now: (Lsn, u64)) -> Lsn {
        let points = || self.marks.iter().copied().chain([now]);
        let Some((from, base)) = points().take_while(|(_, written)| *written as f64 <= bytes).last() else {
            let (end, factor) = self.before;
            return Lsn(end.0.saturating_sub((-bytes / factor) as u64));
        };
        let Some((to, top)) = points().find(|(_, written)| *written as f64 > bytes) else { return now.0 };
        let part = (bytes - base as f64) / (top - base) as f64;
        from.advance((to.since(from) as f64 * part) as u64)
    }
}

/// What an opening knows of its log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Opened {
    pub redo_start: Lsn,
    /// End of the log before this epoch.
    pub previous_end: Lsn,
    /// Where this epoch begins.
    pub start: Lsn,
    /// Bytes that recovery read of the log's devices, and the time of what grows with them.
    pub read: (u64, Duration),
    /// Bytes of log that it delivered.
    pub log_bytes: u64,
    /// The rate by the device's profile, in bytes a second.
    pub profiled: Option<f64>,
}

impl Opened {
    /// Of a log that is new.
    pub fn created(log: &Log) -> Opened {
        let start = log.epoch_mark().start;
        Opened { redo_start: start, previous_end: start, start, ..Opened::default() }
    }
}

/// A rate that a checkpoint's distance may be computed from, whatever was measured.
fn bounded(rate: f64) -> f64 {
    rate.clamp(RATE_MIN, RATE_MAX)
}

/// The goal, and what decides whether it is in danger.
#[derive(Debug)]
pub(crate) struct RecoveryTime {
    goal: Duration,
    /// From here on writes wait.
    limit: Duration,
    /// How long they did, in microseconds.
    waited: AtomicU64,
    /// Whether they had to, when that was looked at last.
    was_over: AtomicBool,
    /// Bytes between two checkpoints, at least.
    least: u64,
    /// Locked alone.
    exposed: Mutex<Exposed>,
}

impl RecoveryTime {
    /// Of a log whose space makes a checkpoint due after `interval` bytes.
    pub fn new(goal: Duration, interval: u64, opened: &Opened) -> RecoveryTime {
        let (bytes, time) = opened.read;
        let bytes = bytes.max(opened.log_bytes);
        let measured = (opened.log_bytes >= MEASURED_LEAST && !time.is_zero())
            .then(|| (bytes as f64 / time.as_secs_f64(), ReadRateOrigin::Recovery));
        let profiled = opened.profiled.map(|rate| (rate, ReadRateOrigin::Profile));
        let (rate, from) = measured.or(profiled).unwrap_or((RATE_ASSUMED, ReadRateOrigin::Assumed));
        let exposed = Exposed {
            marks: VecDeque::from([(opened.start, 0)]),
            before: (opened.previous_end, bytes as f64 / opened.log_bytes.max(1) as f64),
            redo_start: opened.redo_start,
            grown: 0,
            settling: 0,
            pages_written: None,
            has_freed: true,
            rate: (bounded(rate), from),
        };
        RecoveryTime {
            goal,
            limit: goal.saturating_add(goal / 2),
            waited: AtomicU64::new(0),
            was_over: AtomicBool::new(false),
            least: LEAST_BYTES.min(interval / LEAST_SHARE),
            exposed: Mutex::new(exposed),
        }
    }

    /// The same with writes that wait from `limit` on, not from half as much again as the goal.
    pub fn limited_to(self, limit: Duration) -> RecoveryTime {
        RecoveryTime { limit, ..self }
    }

    /// Notes and returns whether a restart takes so long that writes have to wait.
    pub fn look_at_limit(&self, now: (Lsn, u64)) -> bool {
        let is_over = self.situation(&self.exposed.lock(), now).is_over_limit();
        self.was_over.store(is_over, Ordering::Relaxed);
        is_over
    }

    /// What [`RecoveryTime::look_at_limit`] found last.
    pub fn was_over_limit(&self) -> bool {
        self.was_over.load(Ordering::Relaxed)
    }

    /// A transaction has waited for the limit.
    pub fn waited(&self, time: Duration) {
        self.waited.fetch_add(time.as_micros() as u64, Ordering::Relaxed);
    }

    fn situation(&self, exposed: &Exposed, now: (Lsn, u64)) -> Situation {
        let last = exposed.marks.back().map_or(0, |(_, written)| *written);
        let read_in = |time: Duration| (time.as_secs_f64() * exposed.rate.0) as u64;
        Situation {
            to_read: (now.1 as f64 - exposed.written_before(exposed.redo_start, now)).max(0.0) as u64,
            since_last: now.1.saturating_sub(last),
            grown: exposed.grown,
            settling: exposed.settling,
            has_freed: exposed.has_freed,
            budget: read_in(self.goal),
            limit: read_in(self.limit).max(LIMIT_LEAST * self.least),
            least: self.least,
        }
    }

    /// Whether a checkpoint is due; `now` is the log's end and what was written so far.
    pub fn is_due(&self, now: (Lsn, u64)) -> bool {
        self.situation(&self.exposed.lock(), now).is_due()
    }

    /// If a step is due: it moves the redo start far enough by writing what was dirty before this
    /// LSN. None is after a checkpoint that did not move it at all: something else than dirty pages
    /// retains the log, a page set aside for instance, and those that become dirty later would
    /// never be written.
    pub fn step(&self, now: (Lsn, u64)) -> Option<Lsn> {
        let exposed = self.exposed.lock();
        let situation = self.situation(&exposed, now);
        let from = exposed.written_before(exposed.redo_start, now);
        let is_due = situation.has_freed && situation.is_due();
        is_due.then(|| exposed.lsn_after(from + situation.step() as f64, now))
    }

    /// Bytes written while the last checkpoint ran.
    pub fn grown(&self) -> u64 {
        self.exposed.lock().grown
    }

    /// A checkpoint has begun.
    pub fn begun(&self, now: (Lsn, u64)) {
        let mut exposed = self.exposed.lock();
        if exposed.marks.len() == MARKS {
            // The epoch's begin stays: log before it is counted otherwise.
            exposed.marks.remove(1);
        }
        exposed.marks.push_back(now);
    }

    /// The running checkpoint has written its pages: only what comes from now on counts for the
    /// distance of the next.
    pub fn pages_written(&self, now: (Lsn, u64)) {
        self.exposed.lock().pages_written = Some(now.1);
    }

    /// A checkpoint has ended: redo would start at `redo_start`.
    pub fn ended(&self, now: (Lsn, u64), redo_start: Lsn) {
        let mut exposed = self.exposed.lock();
        exposed.grown = exposed.marks.back().map_or(0, |(_, written)| now.1.saturating_sub(*written));
        let written = exposed.pages_written.take();
        exposed.settling = written.map_or(exposed.grown, |before| now.1.saturating_sub(before));
        exposed.has_freed = redo_start > exposed.redo_start;
        exposed.redo_start = redo_start;
    }

    /// Whether the rate is only assumed.
    pub fn is_rate_assumed(&self) -> bool {
        self.exposed.lock().rate.1 == ReadRateOrigin::Assumed
    }

    /// Sets the rate, in bytes a second, that timed reads have shown; nothing if they failed.
    pub fn timed(&self, rate: f64) {
        if rate > 0.0 {
            self.exposed.lock().rate = (bounded(rate), ReadRateOrigin::Timed);
        }
    }

    /// The estimate, if log of `interval` makes a checkpoint due in any case.
    pub fn estimate(&self, now: (Lsn, u64), interval: u64, absorbs: bool) -> RestartEstimate {
        let exposed = self.exposed.lock();
        let (situation, (rate, rate_from)) = (self.situation(&exposed, now), exposed.rate);
        let seconds = situation.to_read as f64 / rate.max(1.0);
        let appended = now.0.since(exposed.marks[0].0).max(1);
        // The interval counts the log's own bytes.
        let interval = interval as f64 * (now.1 as f64 / appended as f64).max(1.0);
        RestartEstimate {
            goal: self.goal,
            log_bytes: situation.to_read,
            bytes_per_second: rate as u64,
            rate_from,
            time: Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX),
            limit: situation.limit(interval as u64, absorbs),
            writes_wait_from: (self.limit < Duration::MAX).then_some(self.limit),
            writes_waited: Duration::from_micros(self.waited.load(Ordering::Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests;
