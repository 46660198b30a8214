//! Shadows beside archives and backups: no log has their content, so both copy their images, and
//! their places are held until then. Any commit is restored.

mod not_held;

use crate::page_files::{PAGE, recovering, settle, tiny};
use crate::support::bed::Bed;
use firndb::device::{CrashPlan, Survival};
use firndb::{Database, ErrorKind, Lsn, Options, Progress, RestoreTo};
use firndb_base::rng::Rng;
use firndb_testkit::gate::{Gate, Mode};
use firndb_testkit::hooked::{Call, Hooked};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What pages of the file `f` and rows of the table `t` are filled with.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    pages: BTreeMap<u64, u8>,
    values: BTreeMap<u8, u8>,
}

const VALUE: usize = 9 * PAGE;

fn archiving(dir: &Path) -> Options {
    let options = recovering(0).log(|log| log.bytes(4 << 20));
    let dir = dir.join("archive");
    options.archive(|archive| archive.directory(dir).segment_bytes(256 << 10).delay(Duration::ZERO))
}

/// A database with its model at each commit.
struct Shop {
    model: Model,
    commits: Vec<(Lsn, Model)>,
    rng: Rng,
}

impl Shop {
    fn new(db: &Database, seed: u64) -> Shop {
        db.create_page_file("f").unwrap();
        db.create_table("t").unwrap();
        Shop { model: Model::default(), commits: Vec::new(), rng: Rng::new(seed) }
    }

    /// Puts and frees some pages, and perhaps a large value, with one commit.
    fn commit(&mut self, db: &Database) {
        let (file, table, rng) = (db.page_file("f").unwrap(), db.table("t").unwrap(), &mut self.rng);
        let mut tx = db.begin();
        for _ in 0..rng.between(1, 12) {
            let (page, byte) = (rng.below(40), rng.between(1, 255) as u8);
            match rng.below(6) {
                0 => {
                    if self.model.pages.remove(&page).is_some() {
                        tx.free_page(&file, page).unwrap();
                    }
                }
                1 => {
                    tx.put(&table, &[page as u8], &[byte; VALUE]).unwrap();
                    self.model.values.insert(page as u8, byte);
                }
                _ => {
                    tx.put_page(&file, page, &[byte; PAGE]).unwrap();
                    self.model.pages.insert(page, byte);
                }
            }
        }
        let commit = tx.commit_async().unwrap();
        commit.wait().unwrap();
        // One that changed nothing has no LSN.
        if commit.lsn() > Lsn::ZERO {
            self.commits.push((commit.lsn(), self.model.clone()));
        }
    }

    /// Work that takes free places, in pages that are logged because they are parts.
    fn press(&mut self, db: &Database, rounds: usize) {
        for _ in 0..rounds {
            self.commit(db);
            settle(db);
        }
    }
}

fn assert_is(db: &Database, model: &Model, when: &str) {
    let (file, table, mut tx) = (db.page_file("f").unwrap(), db.table("t").unwrap(), db.snapshot());
    for page in 0..40u64 {
        let expected = [model.pages.get(&page).copied().unwrap_or(0); PAGE];
        assert_eq!(tx.read_page(&file, page).unwrap(), expected, "{when}: page {page}");
    }
    for key in 0..40u8 {
        let expected = model.values.get(&key).map(|byte| vec![*byte; VALUE]);
        assert_eq!(tx.get(&table, &[key]).unwrap(), expected, "{when}: value {key}");
    }
    drop(tx);
    let report = db.check(&mut |_| {}).unwrap();
    assert_eq!(report.damage, Vec::<String>::new(), "{when}");
}

/// Restores each of `commits`, one in `one_in`.
fn assert_restores(dir: &Path, commits: &[(Lsn, Model)], one_in: usize) {
    for (index, (lsn, model)) in commits.iter().enumerate().filter(|(index, _)| index % one_in == 0) {
        let to = dir.join(format!("restored {index}"));
        let archive = dir.join("archive");
        tiny()
            .restore(dir.join("backup"), Some(&archive), RestoreTo::Lsn(*lsn), &to)
            .unwrap_or_else(|error| panic!("commit {index} at LSN {lsn}: {error}"));
        assert_is(&tiny().open(&to).unwrap(), model, &format!("commit {index} at LSN {lsn}"));
        std::fs::remove_dir_all(&to).unwrap();
    }
}

fn archive_all(db: &Database) {
    for _ in 0..100_000 {
        if db.archive_statistics().unwrap().behind_bytes == 0 {
            return;
        }
        // After failures it pauses.
        if db.step().unwrap() == Progress::Idle {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    panic!("the archive does not keep up: {:?}", db.archive_statistics());
}

fn backup(db: &Database, path: PathBuf) {
    db.backup(path, &mut |_| ControlFlow::Continue(())).unwrap();
}

fn shadows_and_logged(db: &Database) -> (u64, u64) {
    let counts = db.statistics().txn;
    (counts.shadows, counts.images_logged)
}

#[test]
fn every_commit_of_shadows_is_restored() {
    let dir = tempfile::tempdir().unwrap();
    let db = archiving(dir.path()).open(dir.path().join("db")).unwrap();
    let mut shop = Shop::new(&db, 1);
    (0..5).for_each(|_| shop.commit(&db));
    backup(&db, dir.path().join("backup"));
    let first = shop.commits.len();
    for _ in 0..40 {
        shop.commit(&db);
        (0..shop.rng.below(6)).for_each(|_| _ = db.step().unwrap());
    }
    let (shadows, logged) = shadows_and_logged(&db);
    assert!(shadows > 300 && logged == 0, "{shadows} {logged}");
    let rows = (0..200u64).map(|n| Ok((n.to_be_bytes().to_vec(), vec![n as u8; 100])));
    db.load_table("loaded", firndb::TableSpec::raw(), rows).unwrap();
    archive_all(&db);
    assert_eq!(db.statistics().store.shadows_held, 0);
    let survey = firndb::survey_archive(dir.path().join("archive"), true, &mut |_, _| {}).unwrap();
    assert_eq!(survey.damage, Vec::<String>::new());
    assert!(survey.segments.iter().map(|segment| segment.images).sum::<u64>() >= shadows - 60);
    db.close().unwrap();
    assert_restores(dir.path(), &shop.commits[first..], 3);
    let (all, archive) = (dir.path().join("all"), dir.path().join("archive"));
    tiny().restore(dir.path().join("backup"), Some(&archive), RestoreTo::End, &all).unwrap();
    let all = tiny().open(all).unwrap();
    let (table, mut tx) = (all.table("loaded").unwrap(), all.snapshot());
    for n in 0..200u64 {
        assert_eq!(tx.get(&table, &n.to_be_bytes()).unwrap(), Some(vec![n as u8; 100]));
    }
}

/// Without an archive: the backup holds the places itself.
#[test]
fn a_backup_beside_commits_of_shadows_has_their_images() {
    for seed in 0..4 {
        let dir = tempfile::tempdir().unwrap();
        let db = recovering(0).log(|log| log.bytes(4 << 20)).open(dir.path().join("db")).unwrap();
        let mut shop = Shop::new(&db, seed);
        (0..10).for_each(|_| shop.commit(&db));
        let (before, mut held) = (shadows_and_logged(&db), 0);
        db.backup(dir.path().join("backup"), &mut |_| {
            (0..3).for_each(|_| shop.commit(&db));
            held = held.max(db.statistics().store.shadows_held);
            (0..3).for_each(|_| _ = db.step().unwrap());
            ControlFlow::Continue(())
        })
        .unwrap();
        let after = shadows_and_logged(&db);
        assert!(held > 0 && after.0 > before.0 && after.1 == 0, "{held} held, {before:?} {after:?}");
        assert_eq!(db.statistics().store.shadows_held, 0, "its holds end with it");
        let alone = dir.path().join("alone");
        tiny().restore(dir.path().join("backup"), None, RestoreTo::End, &alone).unwrap();
        // Commits go on while the backup is read back.
        let restored = tiny().open(alone).unwrap();
        let (file, mut tx) = (restored.page_file("f").unwrap(), restored.snapshot());
        let found: Vec<u8> = (0..40).map(|page| tx.read_page(&file, page).unwrap()[0]).collect();
        let shows =
            |model: &Model| (0..40).map(|page| model.pages.get(&page).copied().unwrap_or(0)).collect();
        drop(tx);
        let is_found = |(_, model): &&(Lsn, Model)| found == Vec::<u8>::from_iter::<Vec<u8>>(shows(model));
        let (_, model) = shop.commits.iter().rev().find(is_found).expect("the state at some commit");
        assert_is(&restored, model, "the backup alone");
        firndb::verify_backup(dir.path().join("backup"), &mut |_| ControlFlow::Continue(())).unwrap();
    }
}

/// The archive fails. Beyond an eighth of the places images are logged; when it is back, nothing is
/// lost.
#[test]
fn beyond_a_bound_of_held_places_images_are_logged() {
    let (dir, gate) = (tempfile::tempdir().unwrap(), Gate::default());
    let behind = gate.clone();
    let options = archiving(dir.path()).log(|log| log.bytes(16 << 20));
    let options = options.wrap_archive(Arc::new(move |inner| behind.over(inner)));
    let db = options.open(dir.path().join("db")).unwrap();
    let mut shop = Shop::new(&db, 3);
    archive_all(&db);
    backup(&db, dir.path().join("backup"));
    gate.set(Mode::Failing);
    while shadows_and_logged(&db).1 < 100 && shop.commits.len() < 2000 {
        shop.press(&db, 1);
    }
    let store = db.statistics().store;
    assert!(store.shadows_held * 16 > store.places && store.shadows_held * 8 <= store.places, "{store:?}");
    assert!(shadows_and_logged(&db).1 >= 100);
    gate.set(Mode::Open);
    archive_all(&db);
    let store = db.statistics().store;
    assert_eq!((store.shadows_held, db.archive_statistics().unwrap().gaps), (0, Vec::new()));
    let logged = shadows_and_logged(&db).1;
    shop.press(&db, 5);
    assert_eq!(shadows_and_logged(&db).1, logged, "and then they are shadows again");
    archive_all(&db);
    db.close().unwrap();
    let some = shop.commits.len().div_ceil(8);
    assert_restores(dir.path(), &shop.commits, some);
}

/// Restarts, and a crash, while the archive lacks images whose pages are then written elsewhere or
/// freed. Checkpoints pass their records.
#[test]
fn a_restart_finds_the_holds_again() {
    let (dir, gate) = (tempfile::tempdir().unwrap(), Gate::default());
    let options = || {
        let behind = gate.clone();
        let options = archiving(dir.path()).log(|log| log.bytes(16 << 20)).store_layout(1024, 4);
        options.wrap_archive(Arc::new(move |inner| behind.over(inner)))
    };
    let mut bed = Bed::new(1);
    let mut db = options().create_on(bed.devices()).unwrap();
    let mut shop = Shop::new(&db, 4);
    archive_all(&db);
    backup(&db, dir.path().join("backup"));
    gate.set(Mode::Failing);
    for round in 0..6 {
        shop.press(&db, 12);
        let held = db.statistics().store.shadows_held;
        assert!(held > 0);
        match round % 2 {
            0 => db.close().unwrap(),
            _ => {
                let left = bed.duplicate();
                drop(db);
                bed = left;
            }
        }
        db = options().open_on(bed.devices()).unwrap();
        assert_eq!(db.statistics().store.shadows_held, held, "round {round}");
        settle(&db);
    }
    gate.set(Mode::Open);
    archive_all(&db);
    assert_eq!(db.statistics().store.shadows_held, 0);
    db.close().unwrap();
    assert_restores(dir.path(), &shop.commits, 7);
}

/// That the tests here see failure.
#[test]
fn a_held_place_that_is_reused_is_noticed() {
    let (dir, gate) = (tempfile::tempdir().unwrap(), Gate::default());
    let behind = gate.clone();
    let options = archiving(dir.path()).log(|log| log.bytes(16 << 20)).store_layout(1024, 4);
    let options = options.wrap_archive(Arc::new(move |inner| behind.over(inner)));
    let db = options.unsafe_reuse_held_places().create_on(Bed::new(1).devices()).unwrap();
    let mut shop = Shop::new(&db, 9);
    archive_all(&db);
    backup(&db, dir.path().join("backup"));
    gate.set(Mode::Failing);
    shop.press(&db, 40);
    gate.set(Mode::Open);
    archive_all(&db);
    let refused = shop.commits.iter().step_by(4).enumerate().filter(|(index, (lsn, _))| {
        let to = dir.path().join(format!("restored {index}"));
        let archive = dir.path().join("archive");
        let outcome = tiny().restore(dir.path().join("backup"), Some(&archive), RestoreTo::Lsn(*lsn), to);
        outcome.is_err_and(|error| error.to_string().contains("no content of page"))
    });
    assert!(refused.count() > 0, "every commit was restored");
}

/// When the log is full for the archive's sake it gets a gap, and no place is held for it any more.
#[test]
fn a_gap_ends_the_holds_and_a_new_backup_restores_what_follows() {
    let (dir, gate) = (tempfile::tempdir().unwrap(), Gate::default());
    let behind = gate.clone();
    let options = archiving(dir.path()).log(|log| log.bytes(512 << 10));
    let options = options.archive(|archive| archive.patience(Duration::from_millis(1)));
    let db =
        options.wrap_archive(Arc::new(move |inner| behind.over(inner))).open(dir.path().join("db")).unwrap();
    let mut shop = Shop::new(&db, 5);
    archive_all(&db);
    gate.set(Mode::Failing);
    while db.archive_statistics().unwrap().gaps.is_empty() && shop.commits.len() < 5000 {
        shop.press(&db, 1);
    }
    assert_eq!(db.statistics().store.shadows_held, 0, "{:?}", db.archive_statistics());
    gate.set(Mode::Open);
    shop.press(&db, 5);
    archive_all(&db);
    let first = shop.commits.len();
    backup(&db, dir.path().join("backup"));
    shop.press(&db, 10);
    archive_all(&db);
    db.close().unwrap();
    assert_restores(dir.path(), &shop.commits[first..], 3);
}

/// An image that is damaged in the archive is named with its page and file, by a restore that needs
/// it, and by none that does not; so is one that was begun too late.
#[test]
fn a_damaged_or_missing_image_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let db = recovering(0).log(|log| log.bytes(4 << 20)).open(path("db")).unwrap();
    let mut shop = Shop::new(&db, 6);
    shop.commit(&db);
    backup(&db, path("early"));
    shop.commit(&db);
    db.close().unwrap();
    let db = archiving(dir.path()).open(path("db")).unwrap();
    backup(&db, path("backup"));
    shop.commit(&db);
    archive_all(&db);
    db.close().unwrap();
    let error =
        tiny().restore(path("early"), Some(&path("archive")), RestoreTo::End, path("no")).unwrap_err();
    assert!(
        error.to_string().contains("begin with a backup") || error.kind() == ErrorKind::Unusable,
        "{error}"
    );
    // The last byte of each run of content that a page has alone.
    for entry in std::fs::read_dir(path("archive")).unwrap() {
        let file = entry.unwrap().path();
        let mut bytes = std::fs::read(&file).unwrap();
        for at in (0..bytes.len() - 7).step_by(4096) {
            if bytes[at + 4..at + 7] == [0x46, 0x41, 4] {
                let images = u32::from_le_bytes(bytes[at + 68..at + 72].try_into().unwrap()) as usize;
                bytes[at + 64 + 16 + images * 24 + 5] ^= 1;
            }
        }
        std::fs::write(&file, bytes).unwrap();
    }
    let survey = firndb::survey_archive(path("archive"), true, &mut |_, _| {}).unwrap();
    assert!(!survey.damage.is_empty() && survey.stretches.len() == 1, "{survey:?}");
    let error =
        tiny().restore(path("backup"), Some(&path("archive")), RestoreTo::End, path("bad")).unwrap_err();
    let message = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Damaged, "{message}");
    assert!(message.contains("the image of page") && message.contains("log-0000"), "{message}");
    tiny().restore(path("backup"), None, RestoreTo::End, path("alone")).unwrap();
    assert_is(&tiny().open(path("alone")).unwrap(), &shop.commits[1].1, "the backup alone");
}

type Files = BTreeMap<std::ffi::OsString, Vec<u8>>;

fn files_of(dir: &Path) -> Files {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.file_name().unwrap().to_owned(), std::fs::read(&path).unwrap())).collect()
}

/// Whatever a power cut leaves of the database and of the archive: the database opens, goes on, and
/// every commit that it had is restored.
#[test]
fn after_a_crash_at_any_moment_every_commit_is_restored() {
    let dir = tempfile::tempdir().unwrap();
    let (plan, snapshots) = (CrashPlan::new(), Arc::new(Mutex::new(vec![Files::new()])));
    let archive = dir.path().join("archive");
    let options = |wrap: bool| {
        let (plan, snapshots, archive) = (plan.clone(), snapshots.clone(), archive.clone());
        let options = archiving(dir.path()).log(|log| log.bytes(1 << 20)).store_layout(1024, 8);
        if !wrap {
            return options;
        }
        options.wrap_archive(Arc::new(move |inner| {
            let (plan, snapshots, archive) = (plan.clone(), snapshots.clone(), archive.clone());
            Hooked::over(inner, move |call| {
                if matches!(call, Call::Write { .. }) {
                    // What the archive holds before this write.
                    let mut snapshots = snapshots.lock().unwrap();
                    snapshots.push(files_of(&archive));
                    plan.mark(2 * (snapshots.len() as u64 - 1));
                }
                Ok(())
            })
        }))
    };
    let db = options(true).create_on(Bed::new(1).crashing(&plan)).unwrap();
    let mut shop = Shop::new(&db, 7);
    archive_all(&db);
    backup(&db, dir.path().join("backup"));
    let begin = plan.event_count();
    for _ in 0..12 {
        shop.commit(&db);
        plan.mark(2 * shop.commits.len() as u64 + 1);
        (0..shop.rng.below(12)).for_each(|_| _ = db.step().unwrap());
    }
    drop(db);
    let (mut replay, mut rng) = (plan.replay(), Rng::new(8));
    let mut positions: Vec<usize> =
        (0..24).map(|_| begin + rng.below((plan.event_count() - begin) as u64) as usize).collect();
    positions.sort_unstable();
    for position in positions {
        replay.advance_to(position);
        let of = |odd| {
            replay.marks().iter().rev().find(|mark| **mark % 2 == odd).map_or(0, |mark| *mark as usize / 2)
        };
        let (files, acknowledged) = (of(0), of(1));
        let survival = Survival::ALL[rng.below(Survival::ALL.len() as u64) as usize];
        let bed = Bed::of_image(replay.image(survival, &mut rng));
        std::fs::remove_dir_all(&archive).unwrap();
        std::fs::create_dir(&archive).unwrap();
        for (name, bytes) in &snapshots.lock().unwrap()[files] {
            std::fs::write(archive.join(name), bytes).unwrap();
        }
        let db = options(false).open_on(bed.devices()).unwrap();
        // The newest state that is there, and all before it.
        let mut left = shop.commits.clone();
        left.truncate((acknowledged + 1).min(left.len()));
        let shows = |model: &Model| caught_equal(&db, model);
        if left.len() > acknowledged && !shows(&left[acknowledged].1) {
            left.truncate(acknowledged);
        }
        let model = left.last().map_or_else(Model::default, |(_, model)| model.clone());
        let mut after = Shop { model, commits: left, rng: Rng::new(rng.next_u64()) };
        after.press(&db, 8);
        archive_all(&db);
        db.close().unwrap();
        let one_in = after.commits.len().div_ceil(4).max(1);
        assert_restores(dir.path(), &after.commits, one_in);
    }
}

/// Whether all pages and values are as the model has them.
fn caught_equal(db: &Database, model: &Model) -> bool {
    let (file, table, mut tx) = (db.page_file("f").unwrap(), db.table("t").unwrap(), db.snapshot());
    let pages = |tx: &mut firndb::Transaction, page: u64| tx.read_page(&file, page).unwrap()[0];
    (0..40u64).all(|page| pages(&mut tx, page) == model.pages.get(&page).copied().unwrap_or(0))
        && (0..40u8).all(|key| {
            tx.get(&table, &[key]).unwrap().map(|value| value[0]) == model.values.get(&key).copied()
        })
}
