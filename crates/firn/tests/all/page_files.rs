//! Page files: a model under snapshots, savepoints and prepared transactions; threads; what is
//! refused; what they cost; backups.

use crate::support::bed::Bed;
use firndb::{
    Database, DumpWhat, Error, ErrorKind, Isolation, Options, PageFile, PageRecovery, Progress, RestoreTo,
    Transaction, TransactionOptions,
};
use firndb_base::rng::Rng;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The pages of a file; those that are `None` are zeros.
type Model = Vec<Option<Vec<u8>>>;

pub const PAGE: usize = 1024;

pub fn tiny() -> Options {
    let options = Options::new().page_size(PAGE).buffer_bytes(64 << 10).background_threads(false);
    let options = options.tuning(|tuning| tuning.version_bytes(4 << 10));
    options.lock_deadline(Duration::from_millis(20)).log(|log| log.devices(1).bytes(512 << 10))
}

/// In turn: logged, as shadows, by cost; with images that stay private, and ones that do not fit.
pub fn recovering(seed: u64) -> Options {
    let kinds = [PageRecovery::Shadow, PageRecovery::Hybrid, PageRecovery::Log, PageRecovery::Adaptive];
    let (recovery, bytes) = (kinds[seed as usize % 4], [64 << 10, 4 << 10, 0][seed as usize / 4 % 3]);
    tiny().tuning(|tuning| tuning.page_recovery(recovery).page_file_bytes(bytes))
}

fn image(rng: &mut Rng) -> Vec<u8> {
    let byte = rng.between(1, 255) as u8;
    let len = rng.between(1, PAGE as u64) as usize;
    (0..PAGE).map(|at| if at < len { byte ^ (at % 251) as u8 } else { 0 }).collect()
}

fn assert_shows(tx: &mut Transaction, file: &PageFile, model: &Model, when: &str) {
    assert_eq!(file.pages(tx).unwrap(), model.len() as u64, "{when}");
    for page in 0..model.len() + 2 {
        let found = tx.read_page(file, page as u64).unwrap();
        let zeros = vec![0; PAGE];
        let expected = model.get(page).and_then(Option::as_ref).unwrap_or(&zeros);
        if let Some(at) = (0..PAGE).find(|at| found[*at] != expected[*at]) {
            panic!("page {page}, {when}: byte {at} is {}, not {}", found[at], expected[at]);
        }
    }
}

/// One statement, on both.
fn change(tx: &mut Transaction, file: &PageFile, model: &mut Model, rng: &mut Rng) -> Result<(), Error> {
    let page = rng.below(40);
    let at = page as usize;
    let grown = |model: &mut Model| model.resize(model.len().max(at + 1), None);
    match rng.below(10) {
        0..=4 => {
            let image = image(rng);
            tx.put_page(file, page, &image)?;
            grown(model);
            model[at] = image.iter().any(|byte| *byte != 0).then_some(image);
        }
        5..=7 => {
            let offset = rng.below(PAGE as u64) as usize;
            let bytes = vec![rng.next_u64() as u8; rng.between(1, (PAGE - offset) as u64) as usize];
            tx.write_page(file, page, offset, &bytes)?;
            grown(model);
            let mut image = model[at].clone().unwrap_or_else(|| vec![0; PAGE]);
            image[offset..offset + bytes.len()].copy_from_slice(&bytes);
            model[at] = image.iter().any(|byte| *byte != 0).then_some(image);
        }
        8 => {
            tx.free_page(file, page)?;
            if let Some(found) = model.get_mut(at) {
                *found = None;
            }
        }
        _ => {
            tx.set_pages(file, page)?;
            model.resize(at, None);
        }
    }
    Ok(())
}

/// Background work until there is none.
pub fn settle(db: &Database) {
    for _ in 0..2000 {
        // A step that takes a fence has done nothing yet.
        if (0..3).all(|_| db.step().unwrap() == Progress::Idle) {
            return;
        }
    }
    panic!("background work does not end");
}

/// Asserts that nothing is damaged or lost, and that page files hold these pages and no other.
pub fn assert_holds(db: &Database, pages: u64) {
    let report = db.check(&mut |_| {}).unwrap();
    assert_eq!((report.damage, report.leaked_pages), (Vec::new(), 0));
    assert_eq!(report.file_pages, pages);
}

fn pages_of(model: &Model) -> u64 {
    model.iter().flatten().count() as u64
}

/// The statements of one transaction, with returns to savepoints.
fn work(tx: &mut Transaction, file: &PageFile, own: &mut Model, rng: &mut Rng) {
    for _ in 0..rng.between(1, 12) {
        if rng.one_in(4) {
            let (savepoint, before) = (tx.savepoint(), own.clone());
            for _ in 0..rng.between(1, 5) {
                change(tx, file, own, rng).unwrap();
            }
            if rng.one_in(2) {
                tx.rollback_to(&savepoint).unwrap();
                *own = before;
            }
        }
        change(tx, file, own, rng).unwrap();
    }
}

#[test]
fn they_agree_with_a_model_under_snapshots_savepoints_and_prepared_transactions() {
    for seed in 0..12 {
        let mut rng = Rng::new(seed);
        let bed = Bed::new(1);
        let mut db = recovering(seed).create_on(bed.plain()).unwrap();
        let mut file = db.create_page_file("f").unwrap();
        let mut model = Model::new();
        let mut snapshots: Vec<(Transaction, Model)> = Vec::new();
        for round in 0..40 {
            let when = format!("seed {seed}, round {round}");
            let isolation = [Isolation::Snapshot, Isolation::ReadCommitted, Isolation::Serializable]
                [rng.below(3) as usize];
            let mut tx = db.begin_with(TransactionOptions { isolation, ..TransactionOptions::default() });
            let mut own = model.clone();
            work(&mut tx, &file, &mut own, &mut rng);
            assert_shows(&mut tx, &file, &own, &when);
            match rng.below(6) {
                0 => tx.rollback().unwrap(),
                1 if isolation != Isolation::Serializable => {
                    tx.prepare(b"gid").unwrap();
                    assert_shows(&mut db.snapshot(), &file, &model, &when);
                    settle(&db);
                    if rng.one_in(2) {
                        snapshots.clear();
                        drop(file);
                        db.close().unwrap();
                        db = recovering(seed).open_on(bed.plain()).unwrap();
                        file = db.page_file("f").unwrap();
                        assert_shows(&mut db.snapshot(), &file, &model, &when);
                    }
                    match rng.one_in(2) {
                        true => {
                            db.commit_prepared(b"gid").unwrap();
                            model = own;
                        }
                        false => db.rollback_prepared(b"gid").unwrap(),
                    }
                }
                _ => {
                    tx.commit().unwrap();
                    model = own;
                }
            }
            if rng.one_in(3) {
                let mut snapshot = db.snapshot();
                assert_shows(&mut snapshot, &file, &model, &when);
                snapshots.push((snapshot, model.clone()));
            }
            (0..rng.below(4)).for_each(|_| _ = db.step().unwrap());
            if rng.one_in(4) && !snapshots.is_empty() {
                let at = rng.below(snapshots.len() as u64) as usize;
                let (mut snapshot, seen) = snapshots.swap_remove(at);
                assert_shows(&mut snapshot, &file, &seen, &when);
            }
        }
        for (mut snapshot, seen) in snapshots.drain(..) {
            assert_shows(&mut snapshot, &file, &seen, "at the end");
        }
        settle(&db);
        assert_holds(&db, pages_of(&model));
        drop(file);
        db.close().unwrap();
        let db = tiny().open_on(bed.plain()).unwrap();
        assert_shows(&mut db.snapshot(), &db.page_file("f").unwrap(), &model, "reopened");
        assert_holds(&db, pages_of(&model));
        db.drop_page_file("f").unwrap();
        settle(&db);
        assert_holds(&db, 0);
    }
}

/// A page read by a snapshot is neither freed nor used for anything else before that ends.
#[test]
fn superseded_pages_are_kept_for_snapshots_and_freed_after_them() {
    let db = tiny().create_on(Bed::new(1).plain()).unwrap();
    let file = db.create_page_file("f").unwrap();
    let pages = |db: &Database| db.statistics().store.pages_allocated;
    let put =
        |byte: u8| db.transact(|tx| (0..10).try_for_each(|page| tx.put_page(&file, page, &[byte; PAGE])));
    put(1).unwrap();
    settle(&db);
    let before = pages(&db);
    let mut snapshot = db.snapshot();
    assert_eq!(snapshot.read_page(&file, 0).unwrap(), [1; PAGE]);
    (2..6).for_each(|byte| put(byte).unwrap());
    settle(&db);
    assert!(pages(&db) >= before + 40, "every superseded page is there: the snapshot may need it");
    for page in 0..10 {
        assert_eq!(snapshot.read_page(&file, page).unwrap(), [1; PAGE]);
    }
    drop(snapshot);
    settle(&db);
    assert_eq!(pages(&db), before);
    // Rolled back, new pages are freed at once.
    let mut tx = db.begin();
    (0..10).for_each(|page| tx.put_page(&file, page, &[9; PAGE]).unwrap());
    assert!(pages(&db) >= before + 10);
    tx.rollback().unwrap();
    assert_eq!(pages(&db), before);
    assert_holds(&db, 10);
}

/// Writers move amounts between pages; every snapshot shows the same sum, and none is lost.
#[test]
fn threads_share_a_page_file() {
    const PAGES: u64 = 24;
    const WRITERS: u64 = 3;
    const TRANSFERS: u64 = 120;
    let options = recovering(0).background_threads(true).lock_deadline(Duration::from_secs(20));
    let db = options.log(|log| log.devices(1).bytes(2 << 20)).create_on(Bed::new(1).plain()).unwrap();
    let file = db.create_page_file("f").unwrap();
    let amount = |image: &[u8]| u64::from_le_bytes(*image.first_chunk().unwrap());
    db.transact(|tx| (0..PAGES).try_for_each(|page| tx.write_page(&file, page, 0, &1000u64.to_le_bytes())))
        .unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (db, file) = (&db, &file);
                scope.spawn(move || {
                    let mut rng = Rng::new(writer);
                    for _ in 0..TRANSFERS {
                        let (from, to) = (rng.below(PAGES), rng.below(PAGES));
                        db.transact(|tx| {
                            let taken = amount(&tx.read_page(file, from)?) - 1;
                            tx.write_page(file, from, 0, &taken.to_le_bytes())?;
                            let given = amount(&tx.read_page(file, to)?) + 1;
                            tx.put_page(file, to, &[&given.to_le_bytes()[..], &[7; PAGE - 8]].concat())
                        })
                        .unwrap();
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                let mut tx = db.snapshot();
                let sum: u64 = (0..PAGES).map(|page| tx.with_page(&file, page, amount).unwrap()).sum();
                assert_eq!(sum, PAGES * 1000);
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::SeqCst);
    });
    let limit = std::time::Instant::now() + Duration::from_secs(60);
    loop {
        let report = db.check(&mut |_| {}).unwrap();
        assert_eq!((report.damage, report.leaked_pages), (Vec::new(), 0));
        if report.file_pages == PAGES {
            break;
        }
        assert!(std::time::Instant::now() < limit, "{} pages are not freed", report.file_pages - PAGES);
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    let db = tiny().create_on(Bed::new(1).plain()).unwrap();
    let file = db.create_page_file("f").unwrap();
    let mut tx = db.begin();
    tx.put_page(&file, 1, &[1; PAGE]).unwrap();
    let kind = |outcome: Result<(), Error>| outcome.unwrap_err().kind();
    for bad in [1 << 40, u64::MAX] {
        assert_eq!(kind(tx.put_page(&file, bad, &[1; PAGE])), ErrorKind::BadArgument);
        assert_eq!(kind(tx.write_page(&file, bad, 0, &[1])), ErrorKind::BadArgument);
        assert_eq!(kind(tx.free_page(&file, bad)), ErrorKind::BadArgument);
        assert_eq!(kind(tx.read_page(&file, bad).map(drop)), ErrorKind::BadArgument);
    }
    assert_eq!(kind(tx.set_pages(&file, (1 << 40) + 1)), ErrorKind::BadArgument);
    for len in [0, PAGE - 1, PAGE + 1] {
        assert_eq!(kind(tx.put_page(&file, 0, &vec![1; len])), ErrorKind::BadArgument);
    }
    for (offset, len) in [(0, PAGE + 1), (PAGE, 1), (PAGE + 1, 0), (usize::MAX, 1), (1, PAGE)] {
        let outcome = tx.write_page(&file, 0, offset, &vec![1; len]);
        assert_eq!(kind(outcome), ErrorKind::BadArgument, "{offset} {len}");
    }
    tx.write_page(&file, 9, PAGE, &[]).unwrap();
    assert_eq!(file.pages(&mut tx).unwrap(), 2, "nothing was written");
    tx.commit().unwrap();

    assert_eq!(db.create_page_file("f").unwrap_err().kind(), ErrorKind::Exists);
    assert_eq!(db.create_page_file("").unwrap_err().kind(), ErrorKind::BadArgument);
    assert_eq!(db.page_file("g").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(db.drop_page_file("g").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(db.table("f").unwrap_err().kind(), ErrorKind::NotFound, "names of tables are others");
    let other = tiny().create_on(Bed::new(1).plain()).unwrap();
    assert_eq!(kind(other.begin().put_page(&file, 0, &[1; PAGE])), ErrorKind::BadArgument);
    assert_eq!(kind(db.snapshot().put_page(&file, 0, &[1; PAGE])), ErrorKind::ReadOnly);

    let mut open = db.begin();
    open.put_page(&file, 0, &[2; PAGE]).unwrap();
    db.drop_page_file("f").unwrap();
    assert_eq!(kind(open.put_page(&file, 0, &[3; PAGE])), ErrorKind::Stale);
    assert_eq!(kind(open.read_page(&file, 0).map(drop)), ErrorKind::Stale);
    open.commit().unwrap();
    settle(&db);
    assert_holds(&db, 0);
}

#[test]
fn a_transaction_that_waits_for_a_page_sees_a_conflict_or_the_newest() {
    let db = tiny().create_on(Bed::new(1).plain()).unwrap();
    let file = db.create_page_file("f").unwrap();
    db.transact(|tx| tx.put_page(&file, 0, &[1; PAGE])).unwrap();
    let mut older = db.begin();
    assert_eq!(older.read_page(&file, 0).unwrap()[0], 1);
    db.transact(|tx| tx.put_page(&file, 0, &[2; PAGE])).unwrap();
    let error = older.write_page(&file, 0, 5, &[3]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "what it saw is not the newest");
    drop(older);
    let mut holder = db.begin();
    holder.put_page(&file, 0, &[4; PAGE]).unwrap();
    let error = db.begin().put_page(&file, 0, &[5; PAGE]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "the page is locked");
    assert_eq!(db.snapshot().read_page(&file, 0).unwrap()[0], 2, "readers do not wait");
    db.transact(|tx| tx.put_page(&file, 1, &[6; PAGE])).unwrap();
    holder.commit().unwrap();
    assert_eq!(db.snapshot().read_page(&file, 0).unwrap()[0], 4);
}

/// A page, a little log and a commit each.
#[test]
fn thousands_of_page_files_cost_little() {
    const FILES: u64 = 1500;
    let options = || tiny().page_size(4096).buffer_bytes(1 << 20).log(|log| log.devices(1).bytes(4 << 20));
    let bed = Bed::new(1);
    let db = options().create_on(bed.plain()).unwrap();
    db.create_page_file("first").unwrap();
    let (pages, log) = (db.statistics().store.pages_allocated, db.statistics().log_end);
    let name = |i: u64| format!("{:04}", (i * 7919) % FILES);
    for i in 0..FILES {
        db.create_page_file(&name(i)).unwrap();
    }
    let pages = db.statistics().store.pages_allocated - pages;
    let log = db.statistics().log_end.0 - log.0;
    eprintln!("{} B of log and {} pages for {FILES} page files", log, pages);
    assert!(pages < FILES + FILES / 20, "{pages} pages");
    assert!(log < FILES * 700, "{log} bytes of log");
    let mut expected: Vec<String> = (0..FILES).map(|i| format!("{i:04}")).collect();
    expected.push("first".to_owned());
    assert_eq!(db.page_file_names(), expected);
    db.close().unwrap();
    let db = options().open_on(bed.plain()).unwrap();
    assert_eq!(db.page_file_names(), expected);
    db.transact(|tx| tx.put_page(&db.page_file("0777")?, 3, &[1; 4096])).unwrap();
    (0..FILES - 1).for_each(|i| db.drop_page_file(&format!("{i:04}")).unwrap());
    settle(&db);
    assert_eq!(db.page_file_names(), [format!("{:04}", FILES - 1), "first".to_owned()]);
    assert_holds(&db, 0);
}

#[test]
fn backups_and_restores_have_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let archived = tiny().archive(|archive| archive.directory(path("archive")).delay(Duration::ZERO));
    let db = archived.open(path("db")).unwrap();
    let file = db.create_page_file("f").unwrap();
    let put = |from: u64, byte: u8| -> firndb::Lsn {
        let mut tx = db.begin();
        (from..from + 40).for_each(|page| tx.put_page(&file, page, &[byte; PAGE]).unwrap());
        tx.write_page(&file, from, 10, b"part").unwrap();
        let commit = tx.commit_async().unwrap();
        commit.wait().unwrap();
        commit.lsn()
    };
    put(0, 1);
    settle(&db);
    db.backup(path("backup"), &mut |_| ControlFlow::Continue(())).unwrap();
    let wanted = put(20, 2);
    put(30, 3);
    settle(&db);
    drop(file);
    db.close().unwrap();
    let target = RestoreTo::Lsn(wanted);
    tiny().restore(path("backup"), Some(&path("archive")), target, path("restored")).unwrap();
    tiny().restore(path("backup"), None, RestoreTo::End, path("alone")).unwrap();
    let page = |db: &Database, page: u64| db.snapshot().read_page(&db.page_file("f").unwrap(), page).unwrap();
    let restored = tiny().open(path("restored")).unwrap();
    assert_eq!(page(&restored, 20)[8..16], *b"\x02\x02part\x02\x02");
    assert_eq!((page(&restored, 19)[0], page(&restored, 35)[0], page(&restored, 60)[0]), (1, 2, 0));
    settle(&restored);
    assert_holds(&restored, 60);
    let alone = tiny().open(path("alone")).unwrap();
    assert_eq!((page(&alone, 0)[10..14].to_vec(), page(&alone, 35)[0]), (b"part".to_vec(), 1));
    settle(&alone);
    assert_holds(&alone, 40);
}

#[test]
fn dumps_show_them() {
    let db = tiny().create_on(Bed::new(1).plain()).unwrap();
    let file = db.create_page_file("a file").unwrap();
    db.transact(|tx| tx.put_page(&file, 4, &[0x77; PAGE])).unwrap();
    let dump = |what: DumpWhat| {
        let mut out = Vec::new();
        db.dump(&what, &mut out).map(|()| String::from_utf8(out).unwrap())
    };
    assert!(dump(DumpWhat::Catalog).unwrap().contains("page file \"a file\": tree"));
    assert!(dump(DumpWhat::Log).unwrap().contains("kind 0x2c"));
    let page =
        (1..100).find_map(|page| dump(DumpWhat::Page(page)).ok().filter(|text| text.contains("77 77 77")));
    assert!(page.expect("its page").contains("a page of page file \"a file\""));
}
