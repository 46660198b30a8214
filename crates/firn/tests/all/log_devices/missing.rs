//! Log devices that are missing, of too small a number, or not what they were, are named and
//! refused.

use crate::log_devices::support::{commit, options, reopened, verify, without};
use crate::support::bed::Bed;
use firndb::{ErrorKind, LogEventKind, LogMemberState, Options, log_status};

#[test]
fn too_few_devices_are_refused_if_that_was_asked_for() {
    let bed = Bed::new(2);
    drop(options(2, 2).create_on(bed.plain()).unwrap());
    let error = reopened()
        .log(|log| log.copies_required(2))
        .open_on(without(&bed.duplicate().plain(), 1))
        .unwrap_err();
    assert!(error.kind() == ErrorKind::Unusable && error.to_string().contains("log.1"), "{error}");
    reopened().open_on(without(&bed.plain(), 1)).unwrap();
    let error = options(2, 3).create_on(Bed::new(2).plain()).unwrap_err();
    assert!(error.kind() == ErrorKind::BadArgument && error.to_string().contains("log.copies"), "{error}");
}

/// What was asked for holds at openings that do not ask; asked otherwise, from then on.
#[test]
fn how_many_devices_are_required_is_kept_with_the_database() {
    let bed = Bed::new(2);
    drop(options(2, 2).log(|log| log.copies_required(2)).create_on(bed.plain()).unwrap());
    let error = reopened().open_on(without(&bed.duplicate().plain(), 1)).unwrap_err();
    assert!(error.kind() == ErrorKind::Unusable && error.to_string().contains("log.1"), "{error}");
    drop(reopened().log(|log| log.copies_required(1)).open_on(bed.plain()).unwrap());
    reopened().open_on(without(&bed.plain(), 1)).unwrap();
}

fn in_files(copies: usize) -> (tempfile::TempDir, Options) {
    let dir = tempfile::tempdir().unwrap();
    let db = options(2, copies).open(dir.path().join("db")).unwrap();
    for n in 0..6 {
        commit(&db, n).unwrap();
    }
    db.close().unwrap();
    (dir, reopened())
}

#[test]
fn a_device_that_comes_back_under_its_old_name_is_not_what_it_was() {
    let (dir, options) = in_files(1);
    let path = dir.path().join("db");
    std::fs::copy(path.join("log.0"), dir.path().join("old")).unwrap();
    let db = options.clone().open(&path).unwrap();
    let new = db.replace_log_device(1, "log.new").unwrap();
    assert_eq!(new, 3);
    for n in 6..12 {
        commit(&db, n).unwrap();
    }
    // As it was as a member, under the name that it had: whole blocks of this database, of LSNs
    // that are gone.
    std::fs::copy(dir.path().join("old"), path.join("log.0")).unwrap();
    assert_eq!(db.add_log_device("log.0").unwrap(), 4);
    for n in 12..16 {
        commit(&db, n).unwrap();
    }
    drop(db);
    let db = options.clone().open(&path).unwrap();
    verify(&db, 16);
    db.close().unwrap();
    // A stranger in a member's place is named.
    std::fs::copy(dir.path().join("old"), path.join("log.0")).unwrap();
    let error = options.open(&path).unwrap_err();
    assert!(error.to_string().contains("member 1") && error.to_string().contains("member 4"), "{error}");
}

#[test]
fn a_missing_device_is_named_unless_copies_cover_it() {
    let (dir, options) = in_files(1);
    let path = dir.path().join("db");
    std::fs::remove_file(path.join("log.1")).unwrap();
    let error = options.open(&path).unwrap_err();
    assert!(error.to_string().contains("log.1"), "{error}");
    let status = log_status(&path).unwrap();
    let missing: Vec<u32> =
        status.members.iter().filter(|m| m.state == LogMemberState::Missing).map(|m| m.id).collect();
    assert_eq!(missing, [2]);

    let (dir, options) = in_files(2);
    let path = dir.path().join("db");
    let status = log_status(&path).unwrap();
    assert!(status.may_lose == 1 && status.members.iter().all(|m| m.written_bytes > 0), "{status:?}");
    std::fs::remove_file(path.join("log.1")).unwrap();
    let db = options.clone().open(&path).unwrap();
    let events = db.log_events();
    assert!(events[0].kind == LogEventKind::Lost && events[0].message.contains("log.1"), "{events:?}");
    verify(&db, 6);
    assert_eq!(db.add_log_device("log.1").unwrap(), 3);
    db.checkpoint().unwrap();
    db.close().unwrap();
    let status = log_status(&path).unwrap();
    assert!(!status.is_degraded() && status.may_lose == 1, "{status:?}");
    std::fs::remove_file(path.join("log.0")).unwrap();
    verify(&options.open(&path).unwrap(), 6);
}

#[test]
fn what_cannot_be_added_or_removed_is_refused() {
    let (dir, options) = in_files(1);
    let path = dir.path().join("db");
    let db = options.open(&path).unwrap();
    std::fs::write(path.join("precious"), vec![7; 8192]).unwrap();
    let error = db.add_log_device("precious").unwrap_err();
    assert!(error.kind() == ErrorKind::BadArgument && error.to_string().contains("precious"), "{error}");
    assert_eq!(std::fs::read(path.join("precious")).unwrap(), vec![7; 8192]);
    for own in ["log.0", "store", "superblock", "../db/log.1"] {
        let error = db.add_log_device(own).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadArgument, "{own}: {error}");
    }
    assert_eq!(db.remove_log_device(9).unwrap_err().kind(), ErrorKind::NotFound);
    db.remove_log_device(1).unwrap();
    let error = db.remove_log_device(2).unwrap_err();
    assert!(error.kind() == ErrorKind::BadArgument && error.to_string().contains("add another"), "{error}");
    verify(&db, 6);
}
