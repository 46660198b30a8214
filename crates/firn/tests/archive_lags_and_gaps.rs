//! An archive that is slow, full or gone: commits go on; what it lacks is reported, and made up for while that can be.

mod backup_support;

use backup_support::{Gate, Mode, commit_one, go_on, rows_of, small, wait_for_archive};
use firn::{ArchiveFull, ErrorKind, Lsn, RestoreTo};

/// Slow, full and gone: while the log has room, commits go on, and the archive catches up afterwards.
#[test]
fn an_archive_that_lags_is_reported_and_catches_up() {
    for mode in [Mode::Shut, Mode::Failing, Mode::Full] {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let gate = Gate::default();
        let db = gate.options().archive(path("archive")).open(path("db")).unwrap();
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
        small()
            .restore(path("backup"), Some(&path("archive")), RestoreTo::Lsn(last), path("restored"))
            .unwrap();
        let restored = small().open(path("restored")).unwrap();
        assert_eq!(rows_of(&restored, "rows"), rows_of(&db, "rows"), "{mode:?}");
    }
}

/// When the log is full for the archive's sake, commits go on and the gap is final, reported, and closed by a new backup.
#[test]
fn a_gap_is_final_reported_and_closed_by_a_new_backup() {
    for mode in [Mode::Shut, Mode::Failing] {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let gate = Gate::default();
        let options =
            gate.options().archive(path("archive")).archive_patience(std::time::Duration::from_millis(200));
        let db = options.open(path("db")).unwrap();
        let table = db.create_table("rows").unwrap();
        wait_for_archive(&db);
        db.backup(path("backup"), &mut go_on).unwrap();
        gate.set(mode);
        let mut last = Lsn::ZERO;
        for i in 0..5000 {
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
        db.backup(path("second"), &mut go_on).unwrap();
        let last = commit_one(&db, &table, 7777);
        wait_for_archive(&db);
        small().restore(path("second"), Some(&path("archive")), RestoreTo::Lsn(last), path("after")).unwrap();
        assert_eq!(rows_of(&small().open(path("after")).unwrap(), "rows"), rows_of(&db, "rows"));
    }
}

#[test]
fn by_option_writes_are_refused_rather_than_a_gap_made() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let gate = Gate::default();
    let options = gate
        .options()
        .archive(path("archive"))
        .archive_when_full(ArchiveFull::Refuse)
        .archive_patience(std::time::Duration::from_millis(100));
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
