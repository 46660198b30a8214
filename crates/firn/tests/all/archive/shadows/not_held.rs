//! Shadows whose images the archive cannot have, or lost: it goes on behind their records, and its
//! verification names them.

use super::{Shop, archive_all, archiving, assert_restores, backup, files_of, shadows_and_logged};
use crate::page_files::{recovering, settle};
use crate::support::bed::Bed;
use firndb::Database;
use firndb_testkit::gate::{Gate, Mode};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The archive is verified, with the images that its records name.
fn assert_verified(dir: &Path) {
    let survey = firndb::survey_archive(dir.join("archive"), true, &mut |_, _| {}).unwrap();
    assert_eq!(survey.damage, Vec::<String>::new());
}

/// Cause: a hold begins anew with each opening, and recovery noted no record of shadows that were
/// not held. Effect: the archive went on over such records, without the images, and its gap was
/// said to end before them; one begun at an opening began before them.
#[test]
fn after_a_restart_the_archive_goes_on_behind_shadows_that_are_not_held() {
    for had_archive in [true, false] {
        let (dir, gate) = (tempfile::tempdir().unwrap(), Gate::default());
        let options = |named: bool| {
            let behind = gate.clone();
            let options = if named { archiving(dir.path()) } else { recovering(0) };
            let options = options.log(|log| log.bytes(512 << 10));
            let options = options.archive(|archive| archive.patience(Duration::from_millis(1)));
            options.wrap_archive(Arc::new(move |inner| behind.over(inner)))
        };
        let mut bed = Bed::new(1);
        let db = options(had_archive).create_on(bed.devices()).unwrap();
        let mut shop = Shop::new(&db, 11);
        settle(&db);
        gate.set(Mode::Failing);
        let is_given_up =
            |db: &Database| db.archive_statistics().is_none_or(|archive| !archive.gaps.is_empty());
        while !is_given_up(&db) && shop.commits.len() < 5000 {
            shop.press(&db, 1);
        }
        let before = shadows_and_logged(&db).0;
        (0..3).for_each(|_| shop.commit(&db));
        assert!(shadows_and_logged(&db).0 > before, "shadows that are not held");
        let last = shop.commits.last().unwrap().0;
        bed = bed.duplicate();
        drop(db);
        gate.set(Mode::Open);
        let db = options(true).open_on(bed.devices()).unwrap();
        shop.press(&db, 3);
        archive_all(&db);
        let archive = db.archive_statistics().unwrap();
        match had_archive {
            true => assert!(archive.gaps.last().unwrap().1 > last, "{last}: {archive:?}"),
            false => assert_eq!(archive.gaps, []),
        }
        assert_verified(dir.path());
        let first = shop.commits.len();
        backup(&db, dir.path().join("backup"));
        shop.press(&db, 5);
        archive_all(&db);
        db.close().unwrap();
        assert_restores(dir.path(), &shop.commits[first..], 3);
    }
}

/// Leaves the devices, which are returned, and the archive as a crash now does.
fn crash(db: Database, bed: &Bed, archive: &Path) -> Bed {
    let (left, files) = (bed.duplicate(), files_of(archive));
    drop(db);
    std::fs::remove_dir_all(archive).unwrap();
    std::fs::create_dir(archive).unwrap();
    files.iter().for_each(|(name, bytes)| std::fs::write(archive.join(name), bytes).unwrap());
    left
}

/// Steps until the archive works, and has all log.
fn until_it_works(db: &Database) {
    while db.archive_statistics().unwrap().failing.is_some() {
        _ = db.step().unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    archive_all(db);
}

/// Cause: an archive that was away was taken to lack all log that is retained, of which the oldest
/// names images that are not held. Effect: it got a gap at that opening.
#[test]
fn an_archive_that_is_away_at_an_opening_gets_no_gap_by_what_it_has() {
    let (dir, mut bed) = (tempfile::tempdir().unwrap(), Bed::new(1));
    let archive = dir.path().join("archive");
    let db = recovering(0).log(|log| log.bytes(4 << 20)).create_on(bed.devices()).unwrap();
    let mut shop = Shop::new(&db, 13);
    (0..3).for_each(|_| shop.commit(&db));
    bed = bed.duplicate();
    drop(db);
    let db = archiving(dir.path()).open_on(bed.devices()).unwrap();
    shop.press(&db, 1);
    archive_all(&db);
    backup(&db, dir.path().join("backup"));
    let first = shop.commits.len();
    shop.press(&db, 3);
    archive_all(&db);
    bed = crash(db, &bed, &archive);
    // It notes how far the archive is, and frees no log.
    bed = crash(archiving(dir.path()).open_on(bed.devices()).unwrap(), &bed, &archive);
    std::fs::rename(&archive, dir.path().join("away")).unwrap();
    let db = archiving(dir.path()).open_on(bed.devices()).unwrap();
    shop.press(&db, 3);
    let away = db.archive_statistics().unwrap();
    assert!(away.failing.is_some() && away.gaps.is_empty(), "{away:?}");
    std::fs::remove_dir(&archive).unwrap();
    std::fs::rename(dir.path().join("away"), &archive).unwrap();
    until_it_works(&db);
    assert_eq!(db.archive_statistics().unwrap().gaps, []);
    assert_verified(dir.path());
    db.close().unwrap();
    assert_restores(dir.path(), &shop.commits[first..], 2);
}

/// Cause: after a crash the shadows behind what the superblock said was archived were held for an
/// archive that was declared lost, though it had had them. Effect: their places had been given out,
/// and the new archive took other images from there.
#[test]
fn nothing_before_a_crash_is_held_for_an_archive_that_is_declared_lost() {
    let (dir, mut bed) = (tempfile::tempdir().unwrap(), Bed::new(1));
    let db = archiving(dir.path()).create_on(bed.devices()).unwrap();
    let mut shop = Shop::new(&db, 14);
    shop.press(&db, 3);
    archive_all(&db);
    db.checkpoint().unwrap();
    shop.press(&db, 10);
    archive_all(&db);
    assert_eq!(db.statistics().store.shadows_held, 0);
    bed = bed.duplicate();
    drop(db);
    std::fs::remove_dir_all(dir.path().join("archive")).unwrap();
    let options = archiving(dir.path()).archive(|archive| archive.lost(true));
    let db = options.open_on(bed.devices()).unwrap();
    assert_eq!(db.statistics().store.shadows_held, 0);
    archive_all(&db);
    backup(&db, dir.path().join("backup"));
    let first = shop.commits.len();
    shop.press(&db, 5);
    archive_all(&db);
    assert_verified(dir.path());
    db.close().unwrap();
    assert_restores(dir.path(), &shop.commits[first..], 2);
}

/// Cause: the verification read records and images apart. Effect: an image that the archive gave up
/// was found by a restore that needed it.
#[test]
fn verifying_an_archive_names_the_images_that_it_lacks() {
    let dir = tempfile::tempdir().unwrap();
    let db = archiving(dir.path()).open(dir.path().join("db")).unwrap();
    let mut shop = Shop::new(&db, 12);
    (0..10).for_each(|_| shop.commit(&db));
    archive_all(&db);
    db.close().unwrap();
    assert_verified(dir.path());
    // The first image listed gets another version, with right checksums: one named is missing.
    let segment = dir.path().join("archive/log-0000000001.firn");
    let mut bytes = std::fs::read(&segment).unwrap();
    let is_of_images = |at: &usize| bytes[at + 4..at + 7] == [0x46, 0x41, 4];
    let at = (0..bytes.len() - 7).step_by(4096).find(is_of_images).unwrap();
    let count = u32::from_le_bytes(bytes[at + 68..at + 72].try_into().unwrap()) as usize;
    bytes[at + 64 + 16 + 8] ^= 1;
    let head = 16 + count * 24;
    let list = firndb_base::crc32c(&bytes[at + 68..at + 64 + head]);
    bytes[at + 64..at + 68].copy_from_slice(&list.to_le_bytes());
    let len = u32::from_le_bytes(bytes[at + 12..at + 16].try_into().unwrap()) as usize;
    let chunk = firndb_base::crc32c(&bytes[at + 4..at + 64 + len]);
    bytes[at..at + 4].copy_from_slice(&chunk.to_le_bytes());
    std::fs::write(&segment, bytes).unwrap();
    let survey = firndb::survey_archive(dir.path().join("archive"), true, &mut |_, _| {}).unwrap();
    let [sentence] = &survey.damage[..] else { panic!("{:?}", survey.damage) };
    assert!(sentence.contains("the image of page") && sentence.contains("is not there"), "{sentence}");
    let listed = firndb::survey_archive(dir.path().join("archive"), false, &mut |_, _| {}).unwrap();
    assert_eq!(listed.damage, Vec::<String>::new());
}

/// Images lie before the log that names them: those of the oldest segment that is kept may have
/// been deleted with the one before.
#[test]
fn verifying_an_archive_whose_oldest_segments_were_deleted_finds_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let options = archiving(dir.path()).archive(|archive| archive.segment_bytes(128 << 10));
    let db = options.open(dir.path().join("db")).unwrap();
    let mut shop = Shop::new(&db, 12);
    for _ in 0..40 {
        shop.commit(&db);
        archive_all(&db);
    }
    db.close().unwrap();
    assert_verified(dir.path());
    let segment = |number: u64| dir.path().join(format!("archive/log-{number:010}.firn"));
    let mut deleted = 0;
    while segment(deleted + 2).exists() {
        deleted += 1;
        std::fs::remove_file(segment(deleted)).unwrap();
        let survey = firndb::survey_archive(dir.path().join("archive"), true, &mut |_, _| {}).unwrap();
        let missing = survey.damage.iter().filter(|sentence| sentence.contains("image of page")).count();
        assert_eq!(missing, 0, "{deleted} deleted: {:?}", survey.damage);
    }
    assert!(deleted > 3, "{deleted} segments were deleted");
}
