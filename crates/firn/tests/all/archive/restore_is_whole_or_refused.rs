//! A restore that was interrupted is never taken for a database; two histories of one database are
//! never joined.

use crate::archive::support::{commit_one, go_on, rows_of, small, wait_for_archive};
use firndb::device::{Calls, DeviceErrorKind, Fault, FaultPlan, FaultRule, Faulty, When};
use firndb::{Database, ErrorKind, RestoreTo};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Before, `open` took the mark of an interrupted restore for that of an interrupted creation, and
/// made an empty database in place of the one that was wanted.
#[test]
fn a_directory_in_which_restoring_was_interrupted_is_not_opened_and_restored_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let db = small().archive(|archive| archive.directory(path("archive"))).open(path("db")).unwrap();
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
    let db = small().archive(|archive| archive.directory(path("archive"))).open(path("db")).unwrap();
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
    small().archive(|archive| archive.directory(path("other"))).open(path("copy")).unwrap().close().unwrap();
    let copy = small().open(path("copy")).unwrap();
    let table = copy.table("rows").unwrap();
    for i in 1000..1200 {
        commit_one(&copy, &table, i);
    }
    wait_for_archive(&copy);
    copy.close().unwrap();

    let other = path("other");
    // Where an epoch begins is drawn, so that the other history may lie behind or before this one.
    let error = small().restore(path("backup"), Some(&other), RestoreTo::End, path("mixed")).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Damaged | ErrorKind::Unusable), "{error}");
    assert!(!path("mixed").exists());
    let end = backup.end;
    small().restore(path("backup"), Some(&other), RestoreTo::Lsn(end), path("whole")).unwrap();
    assert_eq!(rows_of(&small().open(path("whole")).unwrap(), "rows"), rows);
}

/// Before, an archive without a word of this database was ignored: later commits were missing, and
/// nothing said so.
#[test]
fn an_archive_that_adds_nothing_is_refused_and_says_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let db = small().archive(|archive| archive.directory(path("archive"))).open(path("db")).unwrap();
    let table = db.create_table("rows").unwrap();
    (0..20).for_each(|i| _ = commit_one(&db, &table, i));
    wait_for_archive(&db);
    copy_dir(&path("archive"), &path("older"));
    (20..40).for_each(|i| _ = commit_one(&db, &table, i));
    let backup = db.backup(path("backup"), &mut go_on).unwrap();
    (40..60).for_each(|i| _ = commit_one(&db, &table, i));
    wait_for_archive(&db);
    db.close().unwrap();
    let other =
        small().archive(|archive| archive.directory(path("other archive"))).open(path("other")).unwrap();
    other.create_table("t").unwrap();
    other.close().unwrap();
    std::fs::create_dir(path("empty")).unwrap();
    for (name, sentence) in [
        ("nowhere", "there is no such directory"),
        ("empty", "holds no archived log"),
        ("backup", "holds no archived log"),
        ("other archive", "holds no log of database"),
        ("older", "before the backup's end"),
    ] {
        for target in [RestoreTo::End, RestoreTo::Time(u64::MAX / 2)] {
            let error =
                small().restore(path("backup"), Some(&path(name)), target, path("new")).expect_err(name);
            assert!(matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Unusable), "{name}: {error}");
            assert!(error.to_string().contains(sentence), "{name}: {error}");
            assert!(error.to_string().contains("or restore without one"), "{name}: {error}");
            assert!(!path("new").exists(), "{name}");
        }
    }
    // What the archive lacks after the backup's end is named, too.
    let beyond = RestoreTo::Lsn(firndb::Lsn(backup.end.0 + 1));
    let error = small().restore(path("backup"), Some(&path("older")), beyond, path("new")).unwrap_err();
    assert!(error.to_string().contains("was not archived: the archive ends at LSN"), "{error}");
    // The right one takes it further.
    let report =
        small().restore(path("backup"), Some(&path("archive")), RestoreTo::End, path("new")).unwrap();
    assert!(report.lsn > backup.end);
}

fn archived(to: PathBuf) -> firndb::Options {
    small().archive(|archive| archive.directory(to))
}

#[test]
fn databases_backups_and_archives_do_not_mix() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::create_dir(path("home")).unwrap();
    let db = small().archive(|archive| archive.directory(path("archive"))).open(path("home/db")).unwrap();
    let table = db.create_table("rows").unwrap();
    commit_one(&db, &table, 1);
    wait_for_archive(&db);
    drop(table);
    db.backup(path("backup"), &mut go_on).unwrap();
    std::os::unix::fs::symlink(path("home/db"), path("link")).unwrap();
    std::os::unix::fs::symlink(path("home"), path("home link")).unwrap();
    std::os::unix::fs::symlink(path("nothing"), path("dangling")).unwrap();

    no_backup_is_made_where_something_else_is(&db, &path);
    db.close().unwrap();
    no_archive_is_made_where_something_else_is(&path);
    nothing_is_restored_where_something_else_is(&path);
}

/// While the database is open.
fn no_backup_is_made_where_something_else_is(db: &Database, path: &dyn Fn(&str) -> PathBuf) {
    for (name, sentence) in [
        ("home/db", "it is the database's"),
        ("link", "it is the database's"),
        ("home/db/backup", "it lies in the database's"),
        ("link/below/backup", "it lies in the database's"),
        ("home link/db/backup", "it lies in the database's"),
        ("home", "the database's lies in it"),
        ("home link", "the database's lies in it"),
        ("archive/backup", "which holds an archive"),
        ("backup/second", "which holds a backup"),
        ("backup", "is not empty"),
        ("archive", "is not empty"),
    ] {
        let error = db.backup(path(name), &mut go_on).expect_err(name);
        assert!(error.to_string().contains(sentence), "{name}: {error}");
    }
    assert!(
        !path("home/db/backup").exists()
            && !path("home/db/below").exists()
            && !path("backup/second").exists()
    );
}

/// An archive of the database, and of one that is being created.
fn no_archive_is_made_where_something_else_is(path: &dyn Fn(&str) -> PathBuf) {
    for (name, sentence) in [
        ("home/db", "it is the database's"),
        ("home/db/archive", "it lies in the database's"),
        ("link/archive", "it lies in the database's"),
        ("home", "the database's lies in it"),
        ("backup", "it holds a backup"),
        ("backup/archive", "which holds a backup"),
        ("archive/second", "which holds an archive"),
    ] {
        let error = archived(path(name)).open(path("home/db")).expect_err(name);
        assert_eq!(error.kind(), ErrorKind::Unusable, "{name}: {error}");
        assert!(error.to_string().contains(sentence), "{name}: {error}");
    }
    for (name, sentence) in [
        ("home/db", "it holds a database"),
        ("link/archive", "which holds a database"),
        ("new/archive", "it lies in the database's"),
    ] {
        let error = archived(path(name)).open(path("new")).expect_err(name);
        assert!(error.to_string().contains(sentence), "{name}: {error}");
        assert!(!path("new").exists());
    }
    // Relative to the database's directory.
    small().archive(|archive| archive.directory("archive")).open(path("home/db")).expect_err("within");
    small()
        .archive(|archive| archive.directory("../../archive"))
        .open(path("home/db"))
        .unwrap()
        .close()
        .unwrap();
}

fn nothing_is_restored_where_something_else_is(path: &dyn Fn(&str) -> PathBuf) {
    std::fs::create_dir(path("full")).unwrap();
    std::fs::write(path("full/letter"), "dear").unwrap();
    for (name, sentence) in [
        ("home/db", "holds a database"),
        ("link", "holds a database"),
        ("home/db/new", "which holds a database"),
        ("backup/new", "which holds a backup"),
        ("archive/new", "which holds an archive"),
        ("full", "is not empty, it holds letter"),
        ("full/letter", "is a file"),
        ("dangling", "is a symbolic link to"),
    ] {
        let error = small().restore(path("backup"), None, RestoreTo::End, path(name)).expect_err(name);
        assert!(error.to_string().contains(sentence), "{name}: {error}");
    }
    assert_eq!(std::fs::read_dir(path("full")).unwrap().count(), 1);
    // Settings may be there first.
    std::fs::create_dir(path("set")).unwrap();
    std::fs::write(path("set/firn.toml"), "").unwrap();
    small().restore(path("backup"), None, RestoreTo::End, path("set")).unwrap();
}
