//! How much log a restart would read, and whether a checkpoint is due so that reading it takes no
//! longer than `recovery_time`.
//!
//! Log is counted as what its devices were written, framing and padding included: that is what a
//! restart reads, several times the log's own bytes where commits are short. A checkpoint is due
//! when what a restart would read, and what will be appended while the checkpoint runs, reach goal
//! × rate. The rate is the first known of: what this opening's recovery took to read the log, the
//! profile of the log's device, a few timed reads at the first checkpoint, [`RATE_ASSUMED`].
//!
//! What a checkpoint costs decides the least distance. Each writes the pages that changed since the
//! one before (a hot page once more, to the store or into a group of the cache) and makes store,
//! page map, record and superblock durable: some ten durable writes. So none begins before
//! [`LEAST_BYTES`] since the last began (less where the log is small), nor before as much was
//! appended after the last as while it ran; and where the last freed no log, not before half of the
//! budget.

use firndb_base::Lsn;
use firndb_base::sync::Mutex;
use firndb_log::Log;
use std::collections::VecDeque;
use std::time::Duration;

/// Bytes written to the log's devices between the begins of two checkpoints, at least; but not more
/// than the interval by the log's space over [`LEAST_SHARE`].
pub(crate) const LEAST_BYTES: u64 = 1 << 20;
const LEAST_SHARE: u64 = 4;
/// The rate while none is known, in bytes a second: a slow disk's.
const RATE_ASSUMED: f64 = 64e6;
/// A processor merges and analyses log at this rate at most, in bytes a second.
const RATE_MAX: f64 = 400e6;
/// The slowest drives that a log is kept on read about so, in bytes a second: less was measured
/// beside other work, or while the machine slept.
const RATE_MIN: f64 = 4e6;
/// Bytes of log from which on what recovery took tells the rate.
const MEASURED_LEAST: u64 = 4 << 20;
/// Checkpoints whose begin is remembered: the redo start is at one of the last, as a rule.
const MARKS: usize = 16;

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
    /// It freed log.
    has_freed: bool,
    /// Goal × rate.
    budget: u64,
    /// Between two checkpoints, whatever they cost.
    least: u64,
}

impl Situation {
    fn least_distance(self) -> u64 {
        self.least.max(2 * self.grown)
    }

    fn is_due(self) -> bool {
        self.to_read.saturating_add(self.grown) >= self.budget
            && self.since_last >= self.least_distance()
            && (self.has_freed || self.since_last >= self.budget / 2)
    }

    /// What decides, if log of `interval` makes a checkpoint due in any case. A checkpoint writes
    /// what was dirty at the one before it: a restart reads two intervals, or one (`absorbs`) where
    /// it writes all.
    fn limit(self, interval: u64, absorbs: bool) -> CheckpointLimit {
        let by_time = self.budget.saturating_sub(self.grown) / if absorbs { 1 } else { 2 };
        match by_time.max(self.least_distance()) {
            distance if distance >= interval => CheckpointLimit::LogBytes,
            _ if by_time < self.least_distance() => CheckpointLimit::LeastDistance,
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

    fn situation(&self, now: (Lsn, u64), (goal, least): (Duration, u64)) -> Situation {
        let last = self.marks.back().map_or(0, |(_, written)| *written);
        Situation {
            to_read: (now.1 as f64 - self.written_before(self.redo_start, now)).max(0.0) as u64,
            since_last: now.1.saturating_sub(last),
            grown: self.grown,
            has_freed: self.has_freed,
            budget: (goal.as_secs_f64() * self.rate.0) as u64,
            least,
        }
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
            has_freed: true,
            rate: (bounded(rate), from),
        };
        RecoveryTime { goal, least: LEAST_BYTES.min(interval / LEAST_SHARE), exposed: Mutex::new(exposed) }
    }

    fn situation(&self, exposed: &Exposed, now: (Lsn, u64)) -> Situation {
        exposed.situation(now, (self.goal, self.least))
    }

    /// Whether a checkpoint is due; `now` is the log's end and what was written so far.
    pub fn is_due(&self, now: (Lsn, u64)) -> bool {
        self.situation(&self.exposed.lock(), now).is_due()
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

    /// A checkpoint has ended: redo would start at `redo_start`.
    pub fn ended(&self, now: (Lsn, u64), redo_start: Lsn) {
        let mut exposed = self.exposed.lock();
        exposed.grown = exposed.marks.back().map_or(0, |(_, written)| now.1.saturating_sub(*written));
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_checkpoint_is_due_when_reading_the_log_would_take_the_goal() {
        let usual =
            Situation { to_read: 0, since_last: 0, grown: 0, has_freed: true, budget: 40 * MIB, least: MIB };
        let cases = [
            ("little to read", Situation { to_read: 39 * MIB, since_last: 20 * MIB, ..usual }, false),
            ("enough to read", Situation { to_read: 40 * MIB, since_last: 20 * MIB, ..usual }, true),
            (
                "what comes while it runs counts",
                Situation { to_read: 35 * MIB, since_last: 20 * MIB, grown: 5 * MIB, ..usual },
                true,
            ),
            (
                "the last one has just begun",
                Situation { to_read: 90 * MIB, since_last: MIB - 1, ..usual },
                false,
            ),
            (
                "the last one took long",
                Situation { to_read: 90 * MIB, since_last: 29 * MIB, grown: 15 * MIB, ..usual },
                false,
            ),
            (
                "the last one freed nothing",
                Situation { to_read: 90 * MIB, since_last: 19 * MIB, has_freed: false, ..usual },
                false,
            ),
            (
                "it freed nothing long ago",
                Situation { to_read: 90 * MIB, since_last: 20 * MIB, has_freed: false, ..usual },
                true,
            ),
            ("a tiny goal", Situation { to_read: 2 * MIB, since_last: MIB, budget: 1, ..usual }, true),
            ("a tiny goal, too early", Situation { to_read: 2 * MIB, budget: 1, ..usual }, false),
            (
                "no goal",
                Situation { to_read: 1 << 40, since_last: 1 << 40, budget: u64::MAX, ..usual },
                false,
            ),
        ];
        for (what, situation, due) in cases {
            assert_eq!(situation.is_due(), due, "{what}: {situation:?}");
        }
    }

    #[test]
    fn what_limits_is_the_goal_the_log_bytes_or_what_checkpoints_cost() {
        let none = Situation { to_read: 0, since_last: 0, grown: 0, has_freed: true, budget: 0, least: MIB };
        let of = |budget, grown| Situation { grown, budget, ..none };
        assert_eq!(of(200 * MIB, 0).limit(32 * MIB, false), CheckpointLimit::LogBytes);
        assert_eq!(of(40 * MIB, 0).limit(32 * MIB, false), CheckpointLimit::RecoveryTime);
        assert_eq!(of(40 * MIB, 0).limit(32 * MIB, true), CheckpointLimit::LogBytes);
        assert_eq!(of(MIB, 0).limit(32 * MIB, false), CheckpointLimit::LeastDistance);
        assert_eq!(of(20 * MIB, 10 * MIB).limit(32 * MIB, false), CheckpointLimit::LeastDistance);
        assert_eq!(of(MIB, 0).limit(MIB / 2, false), CheckpointLimit::LogBytes, "a small log");
    }

    #[test]
    fn no_measured_rate_makes_checkpoints_follow_each_other_or_fail_to_come() {
        let usual = Opened { redo_start: Lsn(1000), start: Lsn(1000), ..Opened::default() };
        // A machine that slept for an hour while it recovered; a profile of zero.
        let slept = Opened { log_bytes: 8 * MIB, read: (8 * MIB, Duration::from_secs(3600)), ..usual };
        let nothing = Opened { profiled: Some(0.0), ..usual };
        let of = |opened: &Opened| RecoveryTime::new(Duration::from_millis(500), 1 << 30, opened);
        let slow = |time: &RecoveryTime| {
            let estimate = time.estimate((Lsn(1000), 0), 1 << 30, true);
            assert_eq!(estimate.bytes_per_second, RATE_MIN as u64);
            // Two MB of log are read within the goal at this rate: half as much is too early.
            assert!(!time.is_due((Lsn(1000), MIB)) && time.is_due((Lsn(1000 + MIB), 2 * MIB)));
        };
        slow(&of(&slept));
        slow(&of(&nothing));
        let timed = of(&usual);
        for (measured, taken) in [(1.0, RATE_MIN), (1e300, RATE_MAX), (f64::INFINITY, RATE_MAX)] {
            timed.timed(measured);
            let estimate = timed.estimate((Lsn(1000), 0), 1, false);
            assert_eq!(
                (estimate.bytes_per_second, estimate.rate_from),
                (taken as u64, ReadRateOrigin::Timed)
            );
        }
        // A small log: not a mebibyte lies between two checkpoints.
        let small = RecoveryTime::new(Duration::from_millis(1), 256 << 10, &usual);
        assert!(!small.is_due((Lsn(1000), (64 << 10) - 1)) && small.is_due((Lsn(1000), 64 << 10)));
        let before = timed.estimate((Lsn(1000), 0), 1, false);
        for failed in [0.0, -1.0, f64::NAN] {
            timed.timed(failed);
            assert_eq!(timed.estimate((Lsn(1000), 0), 1, false), before);
        }
    }

    #[test]
    fn what_a_restart_reads_follows_the_redo_start() {
        let opened = Opened {
            redo_start: Lsn(1000),
            previous_end: Lsn(2000),
            start: Lsn(10_000),
            read: (3000, Duration::from_secs(1)),
            log_bytes: 1000,
            profiled: Some(1e6),
        };
        let time = RecoveryTime::new(Duration::from_secs(1), 1 << 30, &opened);
        let to_read = |now| time.estimate(now, 1 << 30, false).log_bytes;
        assert_eq!(
            time.estimate((Lsn(10_000), 0), 1, false).rate_from,
            ReadRateOrigin::Profile,
            "too little"
        );
        assert_eq!(to_read((Lsn(10_000), 0)), 3000, "what recovery has read");
        assert_eq!(to_read((Lsn(11_000), 5000)), 8000);
        time.begun((Lsn(11_000), 5000));
        time.ended((Lsn(11_100), 5400), Lsn(1500));
        assert_eq!(to_read((Lsn(11_100), 5400)), 1500 + 5400);
        time.begun((Lsn(12_000), 7000));
        time.ended((Lsn(12_000), 7000), Lsn(11_500));
        assert_eq!(to_read((Lsn(12_000), 7000)), 1000, "half of what came between the two");
        for more in 1..100 {
            time.begun((Lsn(12_000 + more), 7000 + 2 * more));
        }
        time.ended((Lsn(12_100), 7200), Lsn(12_099));
        assert_eq!(to_read((Lsn(12_200), 7400)), 202);
        // What recovery took tells the rate once there was enough of it.
        let opened = Opened { log_bytes: 8 << 20, read: (10_000_000, Duration::from_millis(100)), ..opened };
        let estimate =
            RecoveryTime::new(Duration::from_secs(1), 1 << 30, &opened).estimate((Lsn(10_000), 0), 1, false);
        assert_eq!((estimate.rate_from, estimate.bytes_per_second), (ReadRateOrigin::Recovery, 100_000_000));
        assert_eq!((estimate.log_bytes, estimate.time.as_micros()), (1192, 11), "a fifth is padding");
    }
}
