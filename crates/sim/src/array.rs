//! What a seed draws of the log's array and of the archive: copies, devices that come, go and are
//! lost, an archive that is slow, fails, is full or missing, and backups to restore from.
//!
//! Drawn from a generator of its own, so that the rest of a scenario is what it was before there
//! was this.

use crate::scenario::Round;
use crate::shelf::ARCHIVE;
use firndb::ArchiveFull;
use firndb::device::{Calls, DeviceErrorKind, Fault, FaultRule, When};
use firndb_base::rng::Rng;
use std::time::Duration;

/// Trouble after which nothing reaches the archive any more.
pub(crate) const ARCHIVE_GONE: &str = "the archive is gone";

/// The archive of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveSetup {
    /// Longest time of a call.
    pub slowest: Duration,
    /// Log is archived as soon as there is this much.
    pub eager_bytes: u64,
    pub segment_bytes: u64,
    /// Bytes that it can take in a round.
    pub limit: u64,
    /// Whether its writes acknowledge commits.
    pub completes: bool,
    /// When the log is full for its sake.
    pub when_full: ArchiveFull,
}

/// The log's array and the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArraySetup {
    /// Copies of all log.
    pub copies: usize,
    /// Devices that are given up when they fail; else all must be there.
    pub lenient: bool,
    /// Empty devices that may join.
    pub spares: usize,
    pub archive: Option<ArchiveSetup>,
    /// The round in which a backup is taken, to be restored from at the end.
    pub backup: Option<usize>,
    /// What is restored from it.
    pub restores: Vec<RestoreWhat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreWhat {
    /// The state after some commit.
    Commit,
    /// The state just before one.
    BeforeCommit,
    /// The earliest state that can be.
    BackupEnd,
    End,
    /// The state at some moment.
    Moment,
}

/// A change of the log's members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A spare joins.
    Add,
    /// A member leaves.
    Remove,
    /// A spare takes a member's place.
    Replace,
}

/// What a round does to them.
#[derive(Clone, Debug, Default)]
pub struct ArrayRound {
    /// Changes of members, each so long after the one before.
    pub changes: Vec<(Duration, Change)>,
    /// What goes wrong with the archive.
    pub troubles: Vec<(&'static str, FaultRule)>,
    /// The round begins with an opening without the archive.
    pub archive_missing: bool,
    /// Steps of the wall clock in microseconds, each at its time after the step before.
    pub clock: Vec<(Duration, i64)>,
    /// A log device is lost while the power is off, of which others have all that it had.
    pub lost_device: Option<usize>,
}

fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.below(from.len() as u64) as usize]
}

impl ArchiveSetup {
    fn draw(rng: &mut Rng) -> ArchiveSetup {
        ArchiveSetup {
            slowest: Duration::from_micros(pick(rng, &[50, 400, 5000, 40_000])),
            eager_bytes: pick(rng, &[1 << 10, 4 << 10, 32 << 10]),
            segment_bytes: pick(rng, &[64 << 10, 256 << 10]),
            limit: pick(rng, &[1 << 20, 64 << 20, 64 << 20]),
            completes: !rng.one_in(5),
            when_full: pick(rng, &[ArchiveFull::Gap, ArchiveFull::Gap, ArchiveFull::Refuse]),
        }
    }
}

impl ArraySetup {
    /// A round without any of it.
    #[must_use]
    pub fn plain() -> ArraySetup {
        ArraySetup { copies: 1, lenient: false, spares: 0, archive: None, backup: None, restores: Vec::new() }
    }

    /// Draws it for a log of `devices` devices, and into its rounds.
    pub(crate) fn draw(seed: u64, devices: usize, rounds: &mut [Round]) -> ArraySetup {
        let rng = &mut Rng::new(seed ^ 0xA66A_0F1A);
        let mut setup = ArraySetup::plain();
        // A third of the seeds is as it always was.
        if rng.one_in(3) {
            return setup;
        }
        setup.copies = pick(rng, &[1, 1, 2, 3]).min(devices);
        setup.lenient = rng.one_in(2);
        setup.archive = (!rng.one_in(3)).then(|| ArchiveSetup::draw(rng));
        setup.spares = if rng.one_in(3) { rng.between(1, 2) as usize } else { 0 };
        setup.backup = rng.one_in(4).then(|| rng.below(rounds.len() as u64) as usize);
        setup.draw_restores(seed, rounds);
        for round in rounds.iter_mut() {
            if setup.spares > 0 {
                round.array.changes = (0..rng.below(4)).map(|_| change(rng)).collect();
            }
            if setup.archive.is_some() {
                round.array.archive_missing = rng.one_in(5);
                round.array.troubles = (0..pick(rng, &[0, 0, 1, 2])).map(|_| trouble(rng)).collect();
            }
        }
        let healthy = rounds.iter().all(|round| round.troubles.is_empty() && round.rot.is_none());
        if setup.copies > 1 && setup.lenient && setup.spares == 0 && healthy {
            let place = rng.below(rounds.len() as u64) as usize;
            rounds[place].array.lost_device = Some(rng.below(devices as u64) as usize);
            // One thing at a time.
            rounds.iter_mut().for_each(|round| round.array.archive_missing = false);
        }
        setup
    }
}

impl ArraySetup {
    /// A backup in the first round, an archive with space for everything, and four states to
    /// restore.
    pub fn take_backup(&mut self, seed: u64, rounds: &mut [Round]) {
        use RestoreWhat::{BeforeCommit, Commit, End, Moment};
        let rng = &mut Rng::new(seed ^ 0xBAC0_0BAC);
        let archive = self.archive.unwrap_or_else(|| ArchiveSetup::draw(rng));
        self.archive = Some(ArchiveSetup { limit: 64 << 20, ..archive });
        self.backup = Some(0);
        self.restores = vec![Commit, pick(rng, &[Commit, BeforeCommit]), Moment, End];
        for round in rounds {
            // A gap cannot be restored over.
            round.array.archive_missing = false;
            round.array.troubles.retain(|(_, rule)| matches!(rule.when, When::Nth(_)));
            round.array.clock = (0..rng.below(4)).map(|_| set_clock(rng)).collect();
        }
    }

    /// What is restored, and what becomes of the clock: of their own, so that what else a seed
    /// stands for stays.
    fn draw_restores(&mut self, seed: u64, rounds: &mut [Round]) {
        use RestoreWhat::{BackupEnd, BeforeCommit, Commit, End, Moment};
        let rng = &mut Rng::new(seed ^ 0x4E57_04E5);
        if self.backup.is_some() {
            // Without an archive there is but one state.
            let of: &[RestoreWhat] = match self.archive {
                Some(_) => &[Commit, Commit, Commit, BeforeCommit, BackupEnd, End, Moment, Moment],
                None => &[BackupEnd],
            };
            self.restores = (0..rng.between(1, 4)).map(|_| pick(rng, of)).collect();
        }
        if rng.one_in(3) {
            for round in rounds {
                round.array.clock = (0..rng.below(4)).map(|_| set_clock(rng)).collect();
            }
        }
    }
}

fn set_clock(rng: &mut Rng) -> (Duration, i64) {
    let after = Duration::from_micros(rng.between(10, 20_000));
    // A millisecond, a second, a day; mostly back.
    let by = pick(rng, &[1_000, 1_000_000, 86_400_000_000]) * rng.between(1, 10) as i64;
    (after, if rng.one_in(4) { by } else { -by })
}

fn change(rng: &mut Rng) -> (Duration, Change) {
    let after = Duration::from_micros(rng.between(10, 20_000));
    (after, pick(rng, &[Change::Add, Change::Remove, Change::Replace]))
}

fn trouble(rng: &mut Rng) -> (&'static str, FaultRule) {
    let device = Some(ARCHIVE.to_owned());
    let nth = When::Nth(rng.below(30));
    let (name, calls, fault, when) = match rng.below(5) {
        0 => (
            "the archive stalls",
            Calls::Writes,
            Fault::Stall(Duration::from_millis(pick(rng, &[5, 500, 20_000]))),
            nth,
        ),
        1 => ("EIO once", Calls::Writes, Fault::Fail(DeviceErrorKind::Failed), nth),
        2 => (ARCHIVE_GONE, Calls::Any, Fault::Fail(DeviceErrorKind::Failed), When::From(rng.below(30))),
        3 => ("done, and EIO", Calls::Writes, Fault::FailLate(DeviceErrorKind::Failed), nth),
        _ => (
            "the archive is full",
            Calls::Grows,
            Fault::Fail(DeviceErrorKind::NoSpace),
            When::From(rng.below(4)),
        ),
    };
    (name, FaultRule { calls, device, when, fault })
}
