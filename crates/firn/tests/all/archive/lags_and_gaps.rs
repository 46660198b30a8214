//! An archive that is slow, full or gone: commits go on; what it lacks is reported, and made up for
//! while that can be.

use crate::archive::support::{commit_one, go_on, rows_of, small, small_behind, wait_for_archive};
use firndb::device::{Calls, Device, DeviceErrorKind, Fault, FaultPlan, FaultRule, Faulty, When};
use firndb::{ArchiveFull, Database, ErrorKind, LogEvent, LogEventKind, Lsn, Options, RestoreTo, Table};
use firndb_testkit::gate::{Gate, Mode};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Restores a backup and the archive beside it up to `last`, the last commit: every row is there.
fn assert_restores(db: &Database, dir: &Path, backup: &str, last: Lsn) {
    let (archive, restored) = (dir.join("archive"), dir.join(format!("{backup} restored")));
    small().restore(dir.join(backup), Some(&archive), RestoreTo::Lsn(last), &restored).unwrap();
    assert_eq!(rows_of(&small().open(restored).unwrap(), "rows"), rows_of(db, "rows"));
}

/// After a gap the archive is whole again from a new backup on.
fn assert_whole_from_a_new_backup(db: &Database, table: &Table, dir: &Path) {
    db.backup(dir.join("new backup"), &mut go_on).unwrap();
    let last = commit_one(db, table, 7777);
    wait_for_archive(db);
    assert_restores(db, dir, "new backup", last);
}

/// Slow, full and gone: while the log has space, commits go on, and the archive catches up
/// afterwards.
#[test]
fn an_archive_that_lags_is_reported_and_catches_up() {
    for mode in [Mode::Shut, Mode::Failing, Mode::Full] {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let gate = Gate::default();
        let db = small_behind(&gate)
            .archive(|archive| archive.directory(path("archive")))
            .open(path("db"))
            .unwrap();
        let table = db.create_table("rows").unwrap();
        wait_for_archive(&db);
        db.backup(path("backup"), &mut go_on).unwrap();
        gate.set(mode);
        // Less than the log holds, more than a segment and than the log's buffer.
        let mut last = Lsn::ZERO;
        for i in 0..300 {
            last = commit_one(&db, &table, i);
        }
        let lagging = db.archive_statistics().unwrap();
        assert!(lagging.behind_bytes > 200 << 10, "{mode:?}: {lagging:?}");
        if mode != Mode::Shut {
            assert!(lagging.failing.is_some(), "{mode:?}: {lagging:?}");
        }
        gate.set(Mode::Open);
        wait_for_archive(&db);
        let caught_up = db.archive_statistics().unwrap();
        assert!(caught_up.gaps.is_empty() && caught_up.failing.is_none(), "{mode:?}: {caught_up:?}");
        assert_restores(&db, dir.path(), "backup", last);
    }
}

/// Cause: after a failed write the archiver followed the log again, and read it from the devices,
/// which may take long while they take commits. Effect: it fell behind the log's buffer.
#[test]
fn a_failed_write_of_the_archive_costs_no_read_of_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let gate = Gate::default();
    let open = || {
        let options = small_behind(&gate).archive(|archive| archive.directory(path("archive")));
        options.open(path("db")).unwrap()
    };
    let db = open();
    let table = db.create_table("rows").unwrap();
    wait_for_archive(&db);
    gate.set(Mode::Failing);
    for i in 0..8 {
        commit_one(&db, &table, i);
    }
    drop(table);
    db.close().unwrap();
    // The end of the epoch before comes from recovery, and is kept until it is archived.
    let db = open();
    let read = db.io_counts().log_total().read_ops;
    let behind = db.archive_statistics().unwrap();
    assert!(behind.behind_bytes > 0, "{behind:?}");
    while db.archive_statistics().unwrap().failing.is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    commit_one(&db, &db.table("rows").unwrap(), 8);
    gate.set(Mode::Open);
    wait_for_archive(&db);
    let archived = db.archive_statistics().unwrap();
    assert!(archived.gaps.is_empty() && archived.bytes > behind.behind_bytes, "{archived:?}");
    assert_eq!(db.io_counts().log_total().read_ops, read);
}

/// It was once said to be nothing.
#[test]
fn before_anything_is_archived_all_log_is_behind() {
    let dir = tempfile::tempdir().unwrap();
    let delay = Duration::from_millis(1);
    let options = small()
        .archive(|archive| archive.directory(dir.path().join("archive")).delay(delay))
        .background_threads(false);
    let db = options.open(dir.path().join("db")).unwrap();
    let table = db.create_table("rows").unwrap();
    let first = commit_one(&db, &table, 0);
    let last = (1..100).fold(first, |_, i| commit_one(&db, &table, i));
    let archive = db.archive_statistics().unwrap();
    assert_eq!(archive.archived, None, "nothing has taken a step");
    assert!(archive.behind_bytes >= last.0 - first.0, "{archive:?}");
    assert!(archive.behind_bytes <= db.statistics().log_end.0, "{archive:?}");
    while db.archive_statistics().unwrap().behind_bytes > 0 {
        db.step().unwrap();
    }
    assert!(db.archive_statistics().unwrap().archived.is_some_and(|archived| archived >= last));
}

/// When the log is full for the archive's sake, commits go on and the gap is final, reported, and
/// closed by a new backup.
#[test]
fn a_gap_is_final_reported_and_closed_by_a_new_backup() {
    for mode in [Mode::Shut, Mode::Failing] {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let gate = Gate::default();
        let options = small_behind(&gate).archive(|archive| {
            archive.directory(path("archive")).patience(std::time::Duration::from_millis(200))
        });
        let db = options.open(path("db")).unwrap();
        let table = db.create_table("rows").unwrap();
        wait_for_archive(&db);
        db.backup(path("backup"), &mut go_on).unwrap();
        gate.set(mode);
        let mut last = Lsn::ZERO;
        for i in 0..3000 {
            last = commit_one(&db, &table, i);
        }
        gate.set(Mode::Open);
        wait_for_archive(&db);
        last = last.max(commit_one(&db, &table, 6666));
        wait_for_archive(&db);
        let after = db.archive_statistics().unwrap();
        assert!(!after.gaps.is_empty(), "{mode:?}: {after:?}");
        let (from, to) = after.gaps[0];
        let error = small()
            .restore(path("backup"), Some(&path("archive")), RestoreTo::Lsn(last), path("restored"))
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged);
        assert!(error.to_string().contains(&format!("from LSN {from} to LSN {to}")), "{error} {after:?}");
        // Up to the gap it works, and from a new backup on.
        small()
            .restore(path("backup"), Some(&path("archive")), RestoreTo::Lsn(from), path("before"))
            .unwrap();
        assert_whole_from_a_new_backup(&db, &table, dir.path());
    }
}

/// Log rots before it is archived. That is a gap, whatever was asked for: it was once read again
/// and again, for ever, and the log filled up meanwhile.
#[test]
fn log_that_is_damaged_before_it_is_archived_is_a_gap() {
    for then in [ArchiveFull::Gap, ArchiveFull::Refuse] {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let gate = Gate::default();
        let db = small_behind(&gate)
            .archive(|archive| {
                archive
                    .directory(path("archive"))
                    .when_full(then)
                    .patience(std::time::Duration::from_millis(200))
            })
            .open(path("db"))
            .unwrap();
        let table = db.create_table("rows").unwrap();
        wait_for_archive(&db);
        gate.set(Mode::Failing);
        // More than the log's buffer holds.
        for i in 0..350 {
            commit_one(&db, &table, i);
        }
        for log in ["log.0", "log.1"] {
            use std::os::unix::fs::FileExt;
            let file = std::fs::OpenOptions::new().write(true).open(path("db").join(log)).unwrap();
            file.write_all_at(&[0xa5; 200 << 10], 64 << 10).unwrap();
        }
        gate.set(Mode::Open);
        let begun = std::time::Instant::now();
        let archive = loop {
            let archive = db.archive_statistics().unwrap();
            if archive.failing.is_none() && !archive.gaps.is_empty() {
                break archive;
            }
            assert!(begun.elapsed().as_secs() < 60, "{then:?}: {archive:?}");
            // What comes behind the gap is archived again.
            commit_one(&db, &table, 601);
            std::thread::sleep(std::time::Duration::from_millis(5));
        };
        let (from, to) = archive.gaps[0];
        assert!(from < to, "{archive:?}");
        commit_one(&db, &table, 601);
        wait_for_archive(&db);
        assert_eq!(db.archive_statistics().unwrap().gaps.len(), 1);
        assert_eq!(rows_of(&db, "rows").len(), 51);
    }
}

#[test]
fn by_option_writes_are_refused_rather_than_a_gap_made() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let gate = Gate::default();
    let options = small_behind(&gate).archive(|archive| {
        archive
            .directory(path("archive"))
            .when_full(ArchiveFull::Refuse)
            .patience(std::time::Duration::from_millis(100))
    });
    let db = options.open(path("db")).unwrap();
    let table = db.create_table("rows").unwrap();
    wait_for_archive(&db);
    gate.set(Mode::Failing);
    let mut i = 0i32;
    let refused = loop {
        i += 1;
        assert!(i < 20_000, "the log is never full");
        let outcome = db.transact(|tx| tx.put(&table, &i.to_be_bytes(), &[1; 900]));
        if let Err(error) = outcome {
            break error;
        }
    };
    assert_eq!(refused.kind(), ErrorKind::Full);
    assert!(refused.to_string().contains("archive"), "{refused}");
    assert_eq!(db.snapshot().get(&table, &1i32.to_be_bytes()).unwrap().map(|row| row.len()), Some(900));
    gate.set(Mode::Open);
    wait_for_archive(&db);
    db.transact(|tx| tx.put(&table, b"again", b"")).unwrap();
    assert!(db.archive_statistics().unwrap().gaps.is_empty());
}

/// The second log device, to go wrong.
#[derive(Clone)]
struct Second {
    plan: FaultPlan,
    device: Arc<Mutex<Option<Arc<Faulty>>>>,
}

impl Second {
    fn new() -> Second {
        Second { plan: FaultPlan::new(1), device: Arc::default() }
    }

    fn within(&self, options: Options) -> Options {
        let second = self.clone();
        options.wrap_devices(move |name, inner| {
            if name != "log.1" {
                return Ok(inner);
            }
            let faulty = Arc::new(Faulty::new(inner, &second.plan));
            *second.device.lock().unwrap() = Some(faulty.clone());
            Ok(faulty as Arc<dyn Device>)
        })
    }

    fn fail(&self, calls: Calls) {
        let fault = Fault::Fail(DeviceErrorKind::Failed);
        self.plan.add(FaultRule { calls, device: None, when: When::From(0), fault });
    }
}

fn members(db: &Database) -> Vec<u32> {
    db.log_array().members.iter().map(|member| member.id).collect()
}

/// Cause: a device that failed was dropped once recovery needed nothing on it. Effect: log that the
/// archive still lacked could never be read again. Mend: it is kept for the archive, as long as it
/// can be read.
#[test]
fn a_log_device_that_failed_is_kept_while_the_archive_needs_what_is_on_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let (gate, second) = (Gate::default(), Second::new());
    let db = second
        .within(small_behind(&gate))
        .archive(|archive| archive.directory(path("archive")))
        .open(path("db"))
        .unwrap();
    let table = db.create_table("rows").unwrap();
    wait_for_archive(&db);
    db.backup(path("backup"), &mut go_on).unwrap();
    gate.set(Mode::Failing);
    // More than the log's buffer holds.
    (0..300).for_each(|i| _ = commit_one(&db, &table, i));
    second.fail(Calls::Writes);
    let last = (300..340).fold(Lsn::ZERO, |_, i| commit_one(&db, &table, i));
    (0..3).for_each(|_| db.checkpoint().unwrap());
    assert_eq!(members(&db), [1, 2], "{:?}", db.log_events());
    gate.set(Mode::Open);
    wait_for_archive(&db);
    let archive = db.archive_statistics().unwrap();
    assert!(archive.gaps.is_empty() && archive.failing.is_none(), "{archive:?}");
    db.checkpoint().unwrap();
    assert_eq!(members(&db), [1], "{:?}", db.log_events());
    assert_restores(&db, dir.path(), "backup", last);
}

/// Log that the archive lacks and that cannot be read: a gap, at once where the device is gone, and
/// after its patience where places are bad, even where a full log is refused rather than a gap
/// made: it would be full for ever.
#[test]
fn log_that_cannot_be_read_any_more_is_a_gap_and_stops_no_writes() {
    for gone in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let (gate, second) = (Gate::default(), Second::new());
        let options =
            second.within(small_behind(&gate)).archive(|archive| archive.directory(path("archive")));
        // Where the device is gone, its patience plays no part.
        let patience = Duration::from_millis(if gone { 60_000 } else { 300 });
        let options = options.archive(|archive| archive.when_full(ArchiveFull::Refuse).patience(patience));
        let db = options.open(path("db")).unwrap();
        let table = db.create_table("rows").unwrap();
        wait_for_archive(&db);
        gate.set(Mode::Failing);
        (0..300).for_each(|i| _ = commit_one(&db, &table, i));
        if gone {
            second.fail(Calls::Any);
            (300..340).for_each(|i| _ = commit_one(&db, &table, i));
            (0..3).for_each(|_| db.checkpoint().unwrap());
            assert_eq!(members(&db), [1], "{:?}", db.log_events());
            let told = |event: &LogEvent| event.kind == LogEventKind::Unarchived;
            assert!(db.log_events().iter().any(told), "at once: {:?}", db.log_events());
        } else {
            // Some of what is not archived yet, and not in the log's buffer any more.
            let faulty = second.device.lock().unwrap().clone().unwrap();
            faulty.make_unreadable(48 << 10, 64 << 10);
        }
        gate.set(Mode::Open);
        let begun = Instant::now();
        for i in 340..4000 {
            while let Err(error) =
                db.transact(|tx| tx.put(&table, &(i % 50u64).to_be_bytes(), &[i as u8; 700]))
            {
                assert_eq!(error.kind(), ErrorKind::Full, "{error}");
                assert!(begun.elapsed() < Duration::from_secs(60), "writes stopped: {error}");
            }
        }
        wait_for_archive(&db);
        let archive = db.archive_statistics().unwrap();
        assert!(!archive.gaps.is_empty() && archive.failing.is_none(), "gone: {gone}: {archive:?}");
        let events = db.log_events();
        let told: Vec<_> = events.iter().filter(|event| event.kind == LogEventKind::Unarchived).collect();
        // A second gap, where the archiver was slow enough to go on behind the first one only after
        // more log had become unreadable.
        assert!((1..=2).contains(&told.len()), "{events:?}");
        assert!(told.iter().all(|event| event.message.contains("gap")), "{events:?}");
        assert_whole_from_a_new_backup(&db, &table, dir.path());
    }
}

/// Cause: a thread that waited for the archive to let go of log knew nothing of a closing, and no
/// archiver came any more. Effect: closing waited for it as long as the archive's patience, or gave
/// up (seed 313889 of the simulator, where recovery was rolling a transaction back).
#[test]
fn no_thread_waits_for_the_archive_of_a_database_that_is_being_closed() {
    for then in [ArchiveFull::Refuse, ArchiveFull::Gap] {
        let dir = tempfile::tempdir().unwrap();
        let gate = Gate::default();
        let options = small_behind(&gate)
            .archive(|archive| archive.directory(dir.path().join("archive")).when_full(then));
        let options = options.archive(|archive| archive.patience(Duration::from_secs(3600)));
        let db = options.open(dir.path().join("db")).unwrap();
        let table = db.create_table("rows").unwrap();
        wait_for_archive(&db);
        gate.set(Mode::Failing);
        let begun = Instant::now();
        let commits = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                (0u64..).find_map(|i| {
                    let put = db.transact(|tx| tx.put(&table, &(i % 50).to_be_bytes(), &[i as u8; 700]));
                    commits.fetch_add(1, Ordering::Relaxed);
                    put.err()
                })
            });
            // It has filled the log and waits for the archive.
            let mut seen = 0;
            while seen < 100 || commits.load(Ordering::Relaxed) > seen {
                assert!(begun.elapsed() < Duration::from_secs(60), "the log does not fill");
                seen = commits.load(Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(300));
            }
            db.clone().close().unwrap();
            let error = writer.join().unwrap().expect("it ends with an error");
            assert!(matches!(error.kind(), ErrorKind::Full | ErrorKind::Closed), "{error}");
        });
        assert!(begun.elapsed() < Duration::from_secs(120));
        drop((table, db));
        // What is not archived yet is kept for the next opening, under both rules.
        gate.set(Mode::Open);
        let db = options_of(&gate, &dir)
            .archive(|archive| archive.when_full(then))
            .open(dir.path().join("db"))
            .unwrap();
        wait_for_archive(&db);
        assert!(db.archive_statistics().unwrap().gaps.is_empty(), "{then:?}");
    }
}

fn options_of(gate: &Gate, dir: &tempfile::TempDir) -> Options {
    small_behind(gate).archive(|archive| archive.directory(dir.path().join("archive")))
}
