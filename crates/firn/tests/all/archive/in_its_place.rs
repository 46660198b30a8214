//! What is in the archive's place is not the archive: an empty directory, as where a volume is not
//! mounted, or an older copy. The superblock says how far the archive was, so it is noticed.

use crate::archive::support::{commit_one, go_on, rows_of};
use crate::page_files::tiny;
use crate::support::bed::Bed;
use firndb::device::{CrashPlan, Survival};
use firndb::{
    ArchiveStatistics, Database, Devices, ErrorKind, LogEvent, LogEventKind, Lsn, Options, Progress,
    RestoreTo,
};
use firndb_base::rng::Rng;
use firndb_testkit::gate::{Gate, Mode};
use firndb_testkit::hooked::{Call, Hooked};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A database in a directory, with an archive beside it.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn options(&self) -> Options {
        let archive = self.path("archive");
        tiny().archive(|options| options.directory(archive).segment_bytes(128 << 10).delay(Duration::ZERO))
    }

    /// Opens it, commits rows that the log does not hold twice, and closes it.
    fn work(&self, from: u64) {
        let db = self.options().open(self.path("db")).unwrap();
        if db.table_names().is_empty() {
            db.create_table("rows").unwrap();
        }
        write(&db, from, 100);
        db.close().unwrap();
    }

    /// One with a backup, an archive, a copy of it (`older`), and more in the archive.
    fn new() -> Place {
        let place = Place { dir: tempfile::tempdir().unwrap() };
        place.work(0);
        let db = place.options().open(place.path("db")).unwrap();
        db.backup(place.path("backup"), &mut go_on).unwrap();
        db.close().unwrap();
        put_files(&place.path("older"), &files_of(&place.path("archive")));
        place.work(100);
        place
    }

    /// Puts an empty directory, or a copy of `older`, in the archive's place; the archive is
    /// `away`.
    fn replace_archive(&self, by_empty: bool) {
        std::fs::rename(self.path("archive"), self.path("away")).unwrap();
        let files = if by_empty { BTreeMap::new() } else { files_of(&self.path("older")) };
        put_files(&self.path("archive"), &files);
    }

    /// The archive's state, as a look at the closed database shows it.
    fn look(&self) -> ArchiveStatistics {
        let db = tiny().open_read_only(self.path("db")).unwrap();
        db.archive_statistics().unwrap()
    }

    /// All that was committed is restored from this backup.
    fn assert_restores(&self, backup: &str) {
        let (archive, to) = (self.path("archive"), self.path(&format!("{backup} restored")));
        tiny().restore(self.path(backup), Some(&archive), RestoreTo::End, &to).unwrap();
        let db = tiny().open_read_only(self.path("db")).unwrap();
        assert_eq!(rows_of(&tiny().open(to).unwrap(), "rows"), rows_of(&db, "rows"));
    }
}

fn write(db: &Database, from: u64, count: u64) -> Lsn {
    let table = db.table("rows").unwrap();
    (from..from + count).fold(Lsn::ZERO, |_, i| {
        let lsn = commit_one(db, &table, i);
        (0..2).for_each(|_| _ = db.step().unwrap());
        lsn
    })
}

/// Steps until all is archived, or the archive fails.
fn archive_all(db: &Database) -> ArchiveStatistics {
    for _ in 0..100_000 {
        let archive = db.archive_statistics().unwrap();
        if archive.behind_bytes == 0 || archive.failing.is_some() {
            return archive;
        }
        if db.step().unwrap() == Progress::Idle {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    panic!("the archive does not keep up: {:?}", db.archive_statistics());
}

/// Steps until the archive works again, and has all log.
fn until_it_works(db: &Database) {
    for _ in 0..5000 {
        if archive_all(db).failing.is_none() {
            break;
        }
        _ = db.step().unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    let archive = archive_all(db);
    assert_eq!((archive.failing, archive.gaps), (None, Vec::new()));
}

type Files = BTreeMap<std::ffi::OsString, Vec<u8>>;

fn files_of(dir: &Path) -> Files {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.file_name().unwrap().to_owned(), std::fs::read(&path).unwrap())).collect()
}

fn put_files(dir: &Path, files: &Files) {
    std::fs::create_dir_all(dir).unwrap();
    files.iter().for_each(|(name, bytes)| std::fs::write(dir.join(name), bytes).unwrap());
}

/// Cause: nothing said how far the archive was. Effect: an empty directory was taken for a new
/// archive, and an older copy got a gap, both for good, while the archive itself was only away.
#[test]
fn what_is_not_the_archive_is_left_alone_until_the_archive_is_back() {
    for by_empty in [true, false] {
        let place = Place::new();
        place.replace_archive(by_empty);
        let before = files_of(&place.path("archive"));
        let sentence = if by_empty { "is not mounted" } else { "an older copy" };
        let says = |archive: &ArchiveStatistics| {
            let failing = archive.failing.as_ref().expect("it fails");
            assert!(failing.contains(sentence) && failing.contains("firn archive forget"), "{failing}");
            assert_eq!(archive.gaps, [], "{archive:?}");
        };
        says(&place.look());
        let db = place.options().open(place.path("db")).unwrap();
        write(&db, 200, 20);
        says(&archive_all(&db));
        db.close().unwrap();
        says(&place.look());
        let db = place.options().open(place.path("db")).unwrap();
        write(&db, 220, 20);
        assert_eq!(files_of(&place.path("archive")), before, "nothing is written there");
        std::fs::remove_dir_all(place.path("archive")).unwrap();
        std::fs::rename(place.path("away"), place.path("archive")).unwrap();
        // Without another opening.
        until_it_works(&db);
        db.close().unwrap();
        place.assert_restores("backup");
    }
}

/// Leaves the files of the database and of its archive as a crash now does.
fn crash(place: &Place, db: Database, archive: &str) {
    let paths = [place.path("db"), place.path(archive)];
    let left = paths.each_ref().map(|path| files_of(path));
    drop(db);
    for (path, files) in paths.iter().zip(left) {
        std::fs::remove_dir_all(path).unwrap();
        put_files(path, &files);
    }
}

/// Cause: an archive that was moved was not noted before it was written. Effect: after a crash an
/// empty directory in its new place was a new archive.
#[test]
fn an_archive_that_was_moved_is_known_at_once() {
    let place = Place::new();
    std::fs::rename(place.path("archive"), place.path("new")).unwrap();
    let options = place.options().archive(|archive| archive.directory(place.path("new")));
    let db = options.open(place.path("db")).unwrap();
    assert_eq!(archive_all(&db).failing, None);
    crash(&place, db, "new");
    std::fs::remove_dir_all(place.path("new")).unwrap();
    std::fs::create_dir(place.path("new")).unwrap();
    let failing = place.look().failing.expect("it fails");
    assert!(failing.contains("is not mounted"), "{failing}");
}

/// Cause: an archive that lacked log failed, though that log was retained. Effect: one that lost
/// its end with a crash, or to damage, failed for good.
#[test]
fn an_archive_that_lacks_only_log_that_is_retained_goes_on() {
    let place = Place::new();
    let db = place.options().open(place.path("db")).unwrap();
    write(&db, 200, 5);
    assert_eq!(archive_all(&db).failing, None);
    let shorter = files_of(&place.path("archive"));
    write(&db, 205, 5);
    archive_all(&db);
    crash(&place, db, "archive");
    // It notes how far the archive is, and frees no log.
    crash(&place, place.options().open(place.path("db")).unwrap(), "archive");
    std::fs::remove_dir_all(place.path("archive")).unwrap();
    put_files(&place.path("archive"), &shorter);
    assert_eq!(place.look().failing, None);
    let db = place.options().open(place.path("db")).unwrap();
    write(&db, 210, 5);
    let archive = archive_all(&db);
    assert_eq!((archive.failing, archive.gaps), (None, Vec::new()));
    db.close().unwrap();
    place.assert_restores("backup");
}

/// Cause: a segment was begun whatever the directory held. Effect: the log went on in the directory
/// below a volume that was unmounted.
#[test]
fn no_segment_is_begun_where_the_others_are_not_any_more() {
    let place = Place::new();
    let db = place.options().open(place.path("db")).unwrap();
    write(&db, 200, 5);
    assert_eq!(archive_all(&db).failing, None);
    std::fs::rename(place.path("archive"), place.path("away")).unwrap();
    std::fs::create_dir(place.path("archive")).unwrap();
    // More than a segment.
    write(&db, 205, 75);
    assert!(archive_all(&db).failing.is_some());
    assert_eq!(files_of(&place.path("archive")), Files::new());
    std::fs::remove_dir(place.path("archive")).unwrap();
    std::fs::rename(place.path("away"), place.path("archive")).unwrap();
    until_it_works(&db);
    db.close().unwrap();
    place.assert_restores("backup");
}

/// The ways to begin anew that the sentence names, and another directory.
#[test]
fn an_archive_that_is_lost_is_begun_anew_on_purpose() {
    let ways = ["lost", "forget", "another"];
    for (way, by_empty) in ways.iter().flat_map(|way| [true, false].map(|empty| (*way, empty))) {
        let place = Place::new();
        place.replace_archive(by_empty);
        let mut options = place.options();
        match way {
            "lost" => options = options.archive(|archive| archive.lost(true)),
            "another" => {
                std::fs::rename(place.path("archive"), place.path("new")).unwrap();
                std::os::unix::fs::symlink(place.path("new"), place.path("archive")).unwrap();
                options = options.archive(|archive| archive.directory(place.path("new")));
            }
            _ => {
                let forgetting = tiny().archive(|archive| archive.forget().lost(true));
                forgetting.open(place.path("db")).unwrap().close().unwrap();
            }
        }
        let db = options.open(place.path("db")).unwrap();
        write(&db, 200, 20);
        let archive = archive_all(&db);
        assert_eq!(archive.failing, None, "{way}");
        assert_eq!(archive.gaps.is_empty(), by_empty, "{way}: {archive:?}");
        db.backup(place.path("new backup"), &mut go_on).unwrap();
        drop(db);
        // It has no need of the option any more.
        let reopened = if way == "another" { tiny() } else { place.options() };
        let db = reopened.open(place.path("db")).unwrap();
        write(&db, 220, 20);
        let archive = archive_all(&db);
        assert_eq!((archive.failing, archive.gaps), (None, Vec::new()), "{way}");
        db.close().unwrap();
        assert_eq!(place.look().failing, None);
        place.assert_restores("new backup");
        let (archive, to) = (place.path("archive"), place.path("no"));
        let error = tiny().restore(place.path("backup"), Some(&archive), RestoreTo::End, to).unwrap_err();
        assert!([ErrorKind::Damaged, ErrorKind::Unusable].contains(&error.kind()), "{way}: {error}");
    }
}

/// A database that had no archive, or one that had none of its log yet, begins one anywhere; so
/// does a database that was restored.
#[test]
fn an_archive_that_had_nothing_is_not_missed() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    let db = tiny().open(place.path("db")).unwrap();
    db.create_table("rows").unwrap();
    write(&db, 0, 50);
    db.close().unwrap();
    let gate = Gate::default();
    gate.set(Mode::Failing);
    let behind = gate.clone();
    let failing = place.options().wrap_archive(Arc::new(move |inner| behind.over(inner)));
    let db = failing.open(place.path("db")).unwrap();
    write(&db, 50, 20);
    assert_eq!(db.archive_statistics().unwrap().archived, None);
    db.close().unwrap();
    std::fs::remove_dir_all(place.path("archive")).unwrap();
    place.work(70);
    assert_eq!((place.look().failing, place.look().gaps), (None, Vec::new()));
    let db = place.options().open(place.path("db")).unwrap();
    db.backup(place.path("backup"), &mut go_on).unwrap();
    db.close().unwrap();
    tiny().restore(place.path("backup"), None, RestoreTo::End, place.path("copy")).unwrap();
    let options = tiny().archive(|archive| archive.directory(place.path("archive of the copy")));
    let copy = options.open(place.path("copy")).unwrap();
    write(&copy, 100, 20);
    let archive = archive_all(&copy);
    assert_eq!((archive.failing, archive.gaps), (None, Vec::new()));
}

/// Whatever a power cut leaves: the archive is never taken for an older copy, and an empty
/// directory in its place is either noticed, or no log of it has been freed.
#[test]
fn after_a_crash_at_any_moment_the_archive_is_known_and_an_empty_directory_is_not_it() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    let archive = place.path("archive");
    let (plan, snapshots) = (CrashPlan::new(), Arc::new(Mutex::new(vec![Files::new()])));
    let options = || place.options().log(|log| log.bytes(256 << 10));
    let (marks, taken, files) = (plan.clone(), snapshots.clone(), archive.clone());
    let hooked = options().wrap_archive(Arc::new(move |inner| {
        let (marks, taken, files) = (marks.clone(), taken.clone(), files.clone());
        Hooked::over(inner, move |call| {
            if matches!(call, Call::Write { .. }) {
                // What the archive holds before this write.
                let mut taken = taken.lock().unwrap();
                taken.push(files_of(&files));
                marks.mark(taken.len() as u64 - 1);
            }
            Ok(())
        })
    }));
    let db = hooked.create_on(Devices { cache: None, ..Bed::new(1).crashing(&plan) }).unwrap();
    db.create_table("rows").unwrap();
    write(&db, 0, 150);
    db.close().unwrap();
    let (mut replay, mut rng) = (plan.replay(), Rng::new(8));
    let mut positions: Vec<usize> = (0..40).map(|_| rng.below(plan.event_count() as u64) as usize).collect();
    positions.sort_unstable();
    let (mut noticed, mut begun) = (0, 0);
    for position in positions {
        replay.advance_to(position);
        let files = replay.marks().last().map_or(0, |mark| *mark as usize);
        let survival = Survival::ALL[rng.below(Survival::ALL.len() as u64) as usize];
        let bed = Bed::of_image(replay.image(survival, &mut rng));
        for is_there in [true, false] {
            std::fs::remove_dir_all(&archive).unwrap();
            let found = if is_there { snapshots.lock().unwrap()[files].clone() } else { Files::new() };
            put_files(&archive, &found);
            let Ok(db) = options().open_on(bed.duplicate().devices()) else {
                // The creation was cut off.
                assert!(position < plan.event_count() / 4);
                continue;
            };
            let state = archive_all(&db);
            assert_eq!(state.gaps, [], "{position}");
            if is_there {
                assert_eq!(state.failing, None, "{position}");
                continue;
            }
            let survey = firndb::survey_archive(&archive, false, &mut |_, _| {});
            match state.failing {
                Some(_) => noticed += 1,
                None => {
                    begun += 1;
                    assert!(survey.is_err() || survey.unwrap().segments[0].first == Lsn::FIRST, "{position}");
                }
            }
        }
    }
    assert!(noticed > 10 && begun > 0, "{noticed} {begun}");
}

/// Cause: no event said that an archive takes nothing, and a look at a closed database did not try.
/// Effect: a volume with less space than a segment was seen as a lag, without a reason.
#[test]
fn a_volume_with_less_space_than_a_segment_is_the_reason_that_is_shown() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    let options = place.options().archive(|archive| archive.segment_bytes(1 << 60));
    let db = options.open(place.path("db")).unwrap();
    db.create_table("rows").unwrap();
    write(&db, 0, 5);
    let failing = archive_all(&db).failing.expect("it fails");
    assert!(failing.contains("free"), "{failing}");
    let fails = |event: &&LogEvent| event.kind == LogEventKind::ArchiveFails;
    std::thread::sleep(Duration::from_millis(100));
    write(&db, 5, 5);
    let events = db.log_events();
    assert_eq!(events.iter().filter(fails).count(), 1, "once until it works again: {events:?}");
    db.close().unwrap();
    let failing = place.look().failing.expect("it fails");
    assert!(failing.contains("a segment takes"), "{failing}");
}
