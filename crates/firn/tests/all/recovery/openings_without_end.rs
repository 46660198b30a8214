//! A database may be opened any number of times while its archive is away, and recovered any number
//! of times without getting to the end: it opens the next time, too, with all its data, and its
//! superblock stays small.
//!
//! The long ones: `cargo test --release -p firndb --test all openings_without_end -- --ignored`

use crate::support::bed::Bed;
use crate::support::examine::examine_reads;
use crate::support::sample::{Model, change, create_tables, quiet, try_change};
use firndb::device::{Calls, DeviceErrorKind, Fault, FaultPlan, FaultRule, When};
use firndb::{ArchiveFull, Database, ErrorKind, Options};
use firndb_base::rng::Rng;
use std::path::PathBuf;

/// Openings in the gate: more than there would be place for, one epoch each, in a superblock.
const OPENINGS: u64 = 3_000;
/// Where the limits are met earlier.
const FEWER: u64 = 1_000;
const OPENINGS_LONG: u64 = 10_000;
/// Logs that fill up before the superblock would, and that do not.
const SMALL_LOG: u64 = 512 << 10;
const LARGE_LOG: u64 = 16 << 20;

/// A closed database that had an archive, which has been moved away.
struct Away {
    disks: Bed,
    dir: tempfile::TempDir,
    model: Model,
}

impl Away {
    /// With a log of `log_bytes`.
    fn new(log_bytes: u64, then: ArchiveFull) -> Away {
        let dir = tempfile::tempdir().expect("a directory");
        let disks = Bed::new(2);
        let options = quiet()
            .log(|log| log.bytes(log_bytes))
            .archive(|archive| archive.directory(dir.path().join("archive")).when_full(then));
        let db = options.create_on(disks.devices()).expect("created");
        let mut model = create_tables(&db);
        let mut rng = Rng::new(1);
        for _ in 0..20 {
            change(&db, &mut model, &mut rng);
        }
        db.close().expect("closed");
        let away = Away { disks, dir, model };
        std::fs::rename(away.archive(), away.moved()).expect("moved away");
        away
    }

    fn archive(&self) -> PathBuf {
        self.dir.path().join("archive")
    }
    fn moved(&self) -> PathBuf {
        self.dir.path().join("moved")
    }
    fn open(&self, options: Options) -> Database {
        options.open_on(self.disks.devices()).expect("it opens")
    }
}

fn verify(db: &Database, model: &Model) {
    assert_eq!(examine_reads(db, &[model]), [], "all data can be read");
}

/// Opens and closes; with the archive back at the end, it has all or says what it lacks.
fn open_and_close(openings: u64, then: ArchiveFull) {
    let away = Away::new(SMALL_LOG, then);
    for opening in 0..openings {
        let db = away.open(quiet());
        if opening % 500 == 0 {
            verify(&db, &away.model);
        }
        db.close().unwrap_or_else(|error| panic!("closing number {opening}: {error}"));
    }
    std::fs::rename(away.moved(), away.archive()).expect("moved back");
    let db = away.open(quiet());
    verify(&db, &away.model);
    let mut model = away.model.clone();
    let mut rng = Rng::new(2);
    change(&db, &mut model, &mut rng);
    while db.step().expect("a step") == firndb::Progress::Worked {}
    let archive = db.archive_statistics().expect("it has an archive");
    assert!(archive.archived.is_some() && archive.failing.is_none(), "{archive:?}");
    if then == ArchiveFull::Refuse {
        assert_eq!(archive.gaps, [], "nothing was given up");
    }
    db.close().expect("closed");
    verify(&away.open(quiet()), &model);
}

#[test]
fn opened_and_closed_while_the_archive_is_away() {
    open_and_close(OPENINGS, ArchiveFull::Gap);
}

#[test]
fn opened_and_closed_while_the_archive_is_away_and_no_gap_is_allowed() {
    open_and_close(OPENINGS, ArchiveFull::Refuse);
}

#[test]
#[ignore = "takes minutes: cargo test --release -p firndb --test all openings_without_end -- --ignored"]
fn opened_ten_thousand_times_while_the_archive_is_away() {
    for then in [ArchiveFull::Gap, ArchiveFull::Refuse] {
        open_and_close(OPENINGS_LONG, then);
        open_change_and_close(OPENINGS_LONG, SMALL_LOG, then);
        open_change_and_close(OPENINGS_LONG, LARGE_LOG, then);
    }
}

/// Each opening commits a little. The archive loses its hold at last, and says so; or, where it
/// must not, writes are refused, and reading goes on.
fn open_change_and_close(openings: u64, log_bytes: u64, then: ArchiveFull) {
    let away = Away::new(log_bytes, then);
    let mut model = away.model.clone();
    let mut rng = Rng::new(3);
    let (mut refused, mut gaps) = (0, 0);
    for opening in 0..openings {
        let db = away.open(quiet());
        match try_change(&db, &mut model, &mut rng) {
            Ok(()) => {}
            Err(error) if then == ArchiveFull::Refuse => {
                assert_eq!(error.kind(), ErrorKind::Full, "{error}");
                assert!(error.to_string().contains("archive"), "it says what is to be done: {error}");
                refused += 1;
            }
            Err(error) => panic!("opening {opening}: {error}"),
        }
        if opening % 500 == 0 {
            verify(&db, &model);
        }
        gaps += db.archive_statistics().expect("it has an archive").gaps.len();
        // A log that is full for the archive's sake may have no place for the checkpoint at the
        // end.
        match db.close() {
            Err(error) if then == ArchiveFull::Gap || error.kind() != ErrorKind::Full => {
                panic!("closing number {opening}: {error}")
            }
            _ => {}
        }
    }
    match then {
        ArchiveFull::Gap => assert!(gaps > 0, "a gap is reported"),
        ArchiveFull::Refuse => assert!(refused > 0 && gaps == 0, "{refused} refused, {gaps} gaps"),
    }
    std::fs::rename(away.moved(), away.archive()).expect("moved back");
    let db = away.open(quiet());
    verify(&db, &model);
    while db.step().expect("a step") == firndb::Progress::Worked {}
    let archive = db.archive_statistics().expect("it has an archive");
    assert_eq!((archive.gaps.is_empty(), archive.failing), (then == ArchiveFull::Refuse, None));
    db.checkpoint().expect("a checkpoint");
    change(&db, &mut model, &mut rng);
    db.close().expect("closed");
    verify(&away.open(quiet()), &model);
}

#[test]
fn opened_and_changed_while_the_archive_is_away() {
    open_change_and_close(FEWER, SMALL_LOG, ArchiveFull::Gap);
}

#[test]
fn opened_and_changed_while_the_archive_is_away_with_a_log_that_does_not_fill() {
    open_change_and_close(FEWER, LARGE_LOG, ArchiveFull::Gap);
}

#[test]
fn opened_and_changed_while_the_archive_is_away_and_no_gap_is_allowed() {
    open_change_and_close(FEWER, SMALL_LOG, ArchiveFull::Refuse);
}

#[test]
fn opened_and_changed_while_the_archive_is_away_and_no_gap_is_allowed_with_a_log_that_does_not_fill() {
    open_change_and_close(FEWER, LARGE_LOG, ArchiveFull::Refuse);
}

/// The power fails at one of the first writes of each recovery, so that hardly one ends.
fn interrupt(recoveries: u64, archive: Option<ArchiveFull>) {
    let dir = tempfile::tempdir().expect("a directory");
    let disks = Bed::new(2);
    let options = match archive {
        Some(then) => {
            quiet().archive(|archive| archive.directory(dir.path().join("archive")).when_full(then))
        }
        None => quiet(),
    };
    let db = options.create_on(disks.devices()).expect("created");
    let mut model = create_tables(&db);
    let mut rng = Rng::new(4);
    for _ in 0..60 {
        change(&db, &mut model, &mut rng);
    }
    db.checkpoint().expect("a checkpoint");
    for _ in 0..20 {
        change(&db, &mut model, &mut rng);
    }
    let mut left = disks.duplicate();
    drop(db);
    if archive.is_some() {
        std::fs::rename(dir.path().join("archive"), dir.path().join("moved")).expect("moved away");
    }
    let mut interrupted = 0;
    for recovery in 0..recoveries {
        let plan = FaultPlan::new(recovery);
        let from = |call, calls| FaultRule {
            calls,
            device: None,
            when: When::From(call),
            fault: Fault::Fail(DeviceErrorKind::Failed),
        };
        plan.add(from(rng.below(40), Calls::Writes));
        match quiet().open_on(left.failing(&plan)) {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Failed, "recovery {recovery}: {error}"),
            Ok(db) => {
                let _ = db.finish_recovery();
                // Without closing: the power fails now.
                plan.add(from(0, Calls::Any));
            }
        }
        interrupted += u64::from(plan.fired() > 0);
        left = left.duplicate();
    }
    assert!(interrupted > recoveries / 2, "{interrupted} were interrupted");
    let db = quiet().open_on(left.devices()).expect("it opens");
    verify(&db, &model);
    db.finish_recovery().expect("recovered");
    db.close().expect("closed");
    verify(&quiet().open_on(left.devices()).expect("it opens"), &model);
}

#[test]
fn recoveries_that_are_interrupted() {
    interrupt(FEWER, None);
}

#[test]
fn recoveries_that_are_interrupted_while_the_archive_is_away() {
    interrupt(OPENINGS, Some(ArchiveFull::Gap));
}

#[test]
fn recoveries_that_are_interrupted_while_the_archive_is_away_and_no_gap_is_allowed() {
    interrupt(FEWER, Some(ArchiveFull::Refuse));
}

#[test]
#[ignore = "takes minutes: cargo test --release -p firndb --test all openings_without_end -- --ignored"]
fn ten_thousand_recoveries_that_are_interrupted() {
    for archive in [None, Some(ArchiveFull::Gap), Some(ArchiveFull::Refuse)] {
        interrupt(OPENINGS_LONG, archive);
    }
}
