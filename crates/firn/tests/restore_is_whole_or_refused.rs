//! A restore that was interrupted is never taken for a database; two histories of one database are never joined.

mod backup_support;

use backup_support::{commit_one, go_on, rows_of, small, wait_for_archive};
use firn::device::{Calls, DeviceErrorKind, Fault, FaultPlan, FaultRule, Faulty, When};
use firn::{ErrorKind, RestoreTo};
use std::path::Path;
use std::sync::Arc;

/// Before, `open` took the mark of an interrupted restore for that of an interrupted creation, and made an empty database
/// in place of the one that was wanted.
#[test]
fn a_directory_in_which_restoring_was_interrupted_is_not_opened_and_restored_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let db = small().archive(path("archive")).open(path("db")).unwrap();
    let table = db.create_table("rows").unwrap();
    for i in 0..40 {
        commit_one(&db, &table, i);
    }
    db.backup(path("backup"), &mut go_on).unwrap();
    let rows = rows_of(&db, "rows");
    db.close().unwrap();
    let mut interrupted = 0;
    for nth in [0, 1, 3, 8, 20] {
        let plan = FaultPlan::new(nth);
        plan.add(FaultRule {
            calls: Calls::Writes,
            device: None,
            when: When::From(nth),
            fault: Fault::Fail(DeviceErrorKind::Failed),
        });
        let wrapped = small().wrap_devices(move |_, device| Ok(Arc::new(Faulty::new(device, &plan))));
        if wrapped.restore(path("backup"), None, RestoreTo::End, path("new")).is_err() {
            interrupted += 1;
            for create in [false, true] {
                let error = small().create(create).open(path("new")).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unusable, "write {nth}: {error}");
                assert!(error.to_string().contains("restore it again"), "{error}");
            }
        }
        // Into the same directory, which holds nothing that is worth anything.
        small().restore(path("backup"), None, RestoreTo::End, path("new")).unwrap();
        assert_eq!(rows_of(&small().open(path("new")).unwrap(), "rows"), rows);
        std::fs::remove_dir_all(path("new")).unwrap();
    }
    assert!(interrupted >= 4, "{interrupted}");
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// A copy of the files was opened, too, and has gone on by itself: same id, same LSNs, other log.
#[test]
fn the_archive_of_another_history_is_not_restored_from() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let db = small().archive(path("archive")).open(path("db")).unwrap();
    let table = db.create_table("rows").unwrap();
    commit_one(&db, &table, 1);
    drop(table);
    db.close().unwrap();
    copy_dir(&path("db"), &path("copy"));

    let db = small().open(path("db")).unwrap();
    let table = db.table("rows").unwrap();
    for i in 0..30 {
        commit_one(&db, &table, i);
    }
    let backup = db.backup(path("backup"), &mut go_on).unwrap();
    let rows = rows_of(&db, "rows");
    db.close().unwrap();

    // The copy has one life more, and more log.
    small().archive(path("other")).open(path("copy")).unwrap().close().unwrap();
    let copy = small().open(path("copy")).unwrap();
    let table = copy.table("rows").unwrap();
    for i in 1000..1200 {
        commit_one(&copy, &table, i);
    }
    wait_for_archive(&copy);
    copy.close().unwrap();

    let other = path("other");
    // Where an epoch begins is drawn, so that the other history may lie behind or before this one.
    match small().restore(path("backup"), Some(&other), RestoreTo::End, path("mixed")) {
        Err(error) => assert_eq!(error.kind(), ErrorKind::Damaged, "{error}"),
        Ok(report) => {
            assert_eq!(report.lsn, backup.end, "nothing of the other");
            assert_eq!(rows_of(&small().open(path("mixed")).unwrap(), "rows"), rows);
        }
    }
    let end = backup.end;
    small().restore(path("backup"), Some(&other), RestoreTo::Lsn(end), path("whole")).unwrap();
    assert_eq!(rows_of(&small().open(path("whole")).unwrap(), "rows"), rows);
}
