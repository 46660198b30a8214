//! Parts of pages: locked and logged by themselves; a model; threads.

use crate::page_files::{assert_holds, settle, tiny};
use crate::support::bed::Bed;
use firndb::{
    Database, Error, ErrorKind, Isolation, Options, PageFile, PageRecovery, Transaction, TransactionOptions,
};
use firndb_base::rng::Rng;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

mod waits;

const PAGE: usize = 4096;
const GRANULE: usize = 128;
const ISOLATIONS: [Isolation; 3] = [Isolation::Snapshot, Isolation::ReadCommitted, Isolation::Serializable];

fn options() -> Options {
    tiny().page_size(PAGE).buffer_bytes(256 << 10).log(|log| log.devices(1).bytes(2 << 20))
}

fn begin(db: &Database, isolation: Isolation) -> Transaction {
    db.begin_with(TransactionOptions { isolation, ..TransactionOptions::default() })
}

/// A database with a page file of `pages` pages, each of the byte 1.
fn database(options: &Options, pages: u64) -> (Bed, Database, PageFile) {
    let bed = Bed::new(1);
    let db = options.clone().create_on(bed.plain()).unwrap();
    let file = db.create_page_file("f").unwrap();
    db.transact(|tx| (0..pages).try_for_each(|page| tx.put_page(&file, page, &[1; PAGE]))).unwrap();
    (bed, db, file)
}

fn logged(db: &Database, run: impl FnOnce()) -> u64 {
    let before = db.statistics().log_end.0;
    run();
    db.statistics().log_end.0 - before
}

#[test]
fn a_part_is_logged_without_its_page() {
    let (_bed, db, file) = database(&options(), 50);
    let write = |page: u64, at: usize, byte: u8| {
        db.transact(|tx| tx.write_page(&file, page, at, &[byte; 100])).unwrap();
    };
    let first = logged(&db, || (0..50).for_each(|page| write(page, 1000, 2))) / 50;
    let again = logged(&db, || (0..50).for_each(|page| write(page, 1000, 3))) / 50;
    eprintln!("{first} bytes of log for the first part of a page, {again} for the same again");
    assert!(first < 480, "a granule or two, the flag of the row, a commit: {first} bytes");
    assert!(again < 350, "what differs, before and after, and a commit: {again} bytes");
    assert_eq!(db.statistics().txn.images_logged + db.statistics().txn.shadows, 50, "no image but the first");
    for page in 0..50 {
        let image = db.snapshot().read_page(&file, page).unwrap();
        assert_eq!((image[999], image[1000], image[1099], image[1100]), (1, 3, 3, 1));
    }
}

#[test]
fn a_page_of_which_much_is_in_parts_is_put_whole() {
    let (_bed, db, file) = database(&options(), 1);
    let images = |db: &Database| db.statistics().txn.images_logged + db.statistics().txn.shadows;
    let before = images(&db);
    let quarter = PAGE / GRANULE / 4;
    for granule in 0..=quarter {
        db.transact(|tx| tx.write_page(&file, 0, granule * GRANULE, &[5; GRANULE])).unwrap();
        let whole = u64::from(granule == quarter);
        assert_eq!(images(&db), before + whole, "granule {granule}");
        assert_eq!(db.snapshot().read_page(&file, 0).unwrap()[..(granule + 1) * GRANULE].last(), Some(&5));
    }
    // At once, too, without any granule first.
    db.transact(|tx| tx.write_page(&file, 0, 10, &[6; PAGE / 2])).unwrap();
    assert_eq!(images(&db), before + 2);
    settle(&db);
    assert_holds(&db, 1);
}

#[test]
fn parts_of_different_granules_are_written_side_by_side() {
    for isolation in ISOLATIONS {
        let (_bed, db, file) = database(&options(), 2);
        let write = |tx: &mut Transaction, at: usize| tx.write_page(&file, 0, at, &[7; 10]);
        // The first part of a page is written alone: it sets the flag of the page's row.
        db.transact(|tx| write(tx, 0)).unwrap();
        let (mut one, mut other) = (begin(&db, isolation), begin(&db, isolation));
        write(&mut one, 200).unwrap();
        write(&mut other, 300).unwrap();
        write(&mut other, 1000).unwrap();
        let refused = |outcome: Result<(), Error>| outcome.unwrap_err().kind();
        assert_eq!(refused(write(&mut other, 250)), ErrorKind::Timeout, "the same granule");
        assert_eq!(refused(begin(&db, isolation).put_page(&file, 0, &[9; PAGE])), ErrorKind::Timeout);
        assert_eq!(refused(begin(&db, isolation).free_page(&file, 0)), ErrorKind::Timeout);
        assert_eq!(refused(begin(&db, isolation).set_pages(&file, 0)), ErrorKind::Timeout);
        assert_eq!(db.snapshot().read_page(&file, 0).unwrap()[200], 1, "readers do not wait");
        one.commit().unwrap();
        other.commit().unwrap();
        let image = db.snapshot().read_page(&file, 0).unwrap();
        for at in [0, 200, 300, 1000] {
            assert_eq!((image[at], image[at + 9], image[at + 10]), (7, 7, 1), "{isolation:?}");
        }
        db.transact(|tx| tx.put_page(&file, 0, &[9; PAGE])).unwrap();
        assert_eq!(db.snapshot().read_page(&file, 0).unwrap(), [9; PAGE]);
    }
}

/// More than a quarter of a page in granules, but by several transactions: none waits for the
/// others to put it whole.
#[test]
fn writers_of_parts_of_one_page_do_not_wait_to_put_it_whole() {
    let (_bed, db, file) = database(&options(), 1);
    db.transact(|tx| tx.write_page(&file, 0, 0, &[2])).unwrap();
    let (mut one, mut other) = (db.begin(), db.begin());
    for granule in 1..16 {
        let tx = if granule % 2 == 0 { &mut one } else { &mut other };
        tx.write_page(&file, 0, granule * GRANULE, &[3]).unwrap();
    }
    one.commit().unwrap();
    // Its snapshot does not see what the other wrote: the page is not put whole without it.
    other.write_page(&file, 0, 20 * GRANULE, &[3]).unwrap();
    other.commit().unwrap();
    let image = db.snapshot().read_page(&file, 0).unwrap();
    assert!(
        (1..16).chain([20]).all(|granule| image[granule * GRANULE] == 3 && image[granule * GRANULE + 1] == 1)
    );
}

#[test]
fn a_page_put_whole_since_its_snapshot_is_a_conflict_for_a_part_and_so_the_other_way_round() {
    let (_bed, db, file) = database(&options(), 1);
    db.transact(|tx| tx.write_page(&file, 0, 0, &[2])).unwrap();
    let seen = |db: &Database| {
        let mut tx = db.begin();
        tx.read_page(&file, 0).unwrap();
        tx
    };
    let mut older = seen(&db);
    db.transact(|tx| tx.write_page(&file, 0, 700, &[3])).unwrap();
    let kind = |outcome: Result<(), Error>| outcome.unwrap_err().kind();
    assert_eq!(kind(older.write_page(&file, 0, 701, &[4])), ErrorKind::Conflict, "the same granule");
    assert_eq!(kind(older.put_page(&file, 0, &[4; PAGE])), ErrorKind::Conflict);
    assert_eq!(kind(older.free_page(&file, 0)), ErrorKind::Conflict);
    older.write_page(&file, 0, 2000, &[5]).unwrap();
    older.commit().unwrap();
    let mut older = seen(&db);
    db.transact(|tx| tx.put_page(&file, 0, &[6; PAGE])).unwrap();
    assert_eq!(kind(older.write_page(&file, 0, 3000, &[4])), ErrorKind::Conflict);
    drop(older);
    // Under read committed the newest counts.
    let mut latest = begin(&db, Isolation::ReadCommitted);
    latest.read_page(&file, 0).unwrap();
    db.transact(|tx| tx.write_page(&file, 0, 700, &[7])).unwrap();
    latest.write_page(&file, 0, 701, &[8]).unwrap();
    latest.commit().unwrap();
    assert_eq!(db.snapshot().read_page(&file, 0).unwrap()[699..703], [6, 7, 8, 6]);
}

/// A prepared transaction keeps its granules, and no lock on the page, across a restart.
#[test]
fn parts_of_prepared_transactions_are_waited_for() {
    for commit in [true, false] {
        let (bed, db, file) = database(&options(), 1);
        db.transact(|tx| tx.write_page(&file, 0, 0, &[2])).unwrap();
        let mut tx = db.begin();
        tx.write_page(&file, 0, 1000, b"prepared").unwrap();
        tx.prepare(b"gid").unwrap();
        drop(file);
        db.close().unwrap();
        let db = options().open_on(bed.plain()).unwrap();
        let file = db.page_file("f").unwrap();
        let put = || db.begin().put_page(&file, 0, &[4; PAGE]).unwrap_err().kind();
        assert_eq!(put(), ErrorKind::Timeout);
        for granule in 16..31 {
            db.transact(|tx| tx.write_page(&file, 0, granule * GRANULE, &[5])).unwrap();
        }
        let mut older = db.begin();
        older.read_page(&file, 0).unwrap();
        match commit {
            true => db.commit_prepared(b"gid").unwrap(),
            false => db.rollback_prepared(b"gid").unwrap(),
        }
        let outcome = older.put_page(&file, 0, &[4; PAGE]).map_err(|error| error.kind());
        assert_eq!(outcome, if commit { Err(ErrorKind::Conflict) } else { Ok(()) });
        drop(older);
        let image = db.snapshot().read_page(&file, 0).unwrap();
        assert_eq!(&image[1000..1008] == b"prepared", commit);
        assert!((16..31).all(|granule| image[granule * GRANULE] == 5));
    }
}

/// Statements on the pages of the model, with a return to a savepoint; each is read back.
fn change_pages(tx: &mut Transaction, file: &PageFile, own: &mut Vec<Vec<u8>>, rng: &mut Rng) {
    let mut saved = None;
    for _ in 0..rng.between(1, 16) {
        let page = rng.below(6) as usize;
        match rng.below(12) {
            0 => {
                own[page] = vec![rng.between(1, 255) as u8; PAGE];
                tx.put_page(file, page as u64, &own[page]).unwrap();
            }
            1 => {
                own[page] = vec![0; PAGE];
                tx.free_page(file, page as u64).unwrap();
            }
            2 => saved = Some((tx.savepoint(), own.clone())),
            3 => {
                if let Some((savepoint, before)) = &saved {
                    tx.rollback_to(savepoint).unwrap();
                    own.clone_from(before);
                }
            }
            _ => {
                let longest = [8, 200, 1500][rng.below(3) as usize];
                let at = rng.below(PAGE as u64) as usize;
                let part = vec![rng.between(1, 255) as u8; rng.between(1, longest) as usize];
                let part = &part[..part.len().min(PAGE - at)];
                own[page][at..at + part.len()].copy_from_slice(part);
                tx.write_page(file, page as u64, at, part).unwrap();
            }
        }
        let page = rng.below(6) as usize;
        assert!(tx.read_page(file, page as u64).unwrap() == own[page], "page {page}");
    }
}

#[test]
fn they_agree_with_a_model_under_savepoints_and_snapshots() {
    for seed in 0..8 {
        let mut rng = Rng::new(seed);
        let kind = [PageRecovery::Adaptive, PageRecovery::Hybrid, PageRecovery::Log, PageRecovery::Shadow];
        // The last opens its predecessor's granules as shadows.
        let opened = |round: usize| {
            let recovery = kind[(seed as usize + round / 30) % 4];
            options().tuning(|tuning| tuning.page_recovery(recovery).page_file_bytes(16 << 10))
        };
        let (bed, mut db, mut file) = database(&opened(0), 6);
        let mut model = vec![vec![1; PAGE]; 6];
        let mut snapshots: Vec<(Transaction, Vec<Vec<u8>>)> = Vec::new();
        for round in 0..120 {
            if round % 30 == 29 {
                snapshots.clear();
                drop(file);
                db.close().unwrap();
                db = opened(round + 1).open_on(bed.plain()).unwrap();
                file = db.page_file("f").unwrap();
            }
            let mut tx = begin(&db, ISOLATIONS[rng.below(3) as usize]);
            let mut own = model.clone();
            change_pages(&mut tx, &file, &mut own, &mut rng);
            match rng.one_in(4) {
                true => tx.rollback().unwrap(),
                false => {
                    tx.commit().unwrap();
                    model = own;
                }
            }
            if rng.one_in(4) {
                let mut snapshot = db.snapshot();
                // The first read takes it.
                file.pages(&mut snapshot).unwrap();
                snapshots.push((snapshot, model.clone()));
            }
            if rng.one_in(4) && !snapshots.is_empty() {
                let (mut snapshot, seen) = snapshots.swap_remove(0);
                for (page, image) in seen.iter().enumerate() {
                    let found = snapshot.read_page(&file, page as u64).unwrap();
                    assert!(found == *image, "page {page}, seed {seed}, round {round}, in a snapshot");
                }
            }
            (0..rng.below(3)).for_each(|_| _ = db.step().unwrap());
        }
        snapshots.clear();
        settle(&db);
        assert_holds(&db, model.iter().filter(|page| page.iter().any(|byte| *byte != 0)).count() as u64);
        db.drop_page_file("f").unwrap();
        drop(file);
        settle(&db);
        assert_holds(&db, 0);
    }
}

/// Writers move amounts between counters of pages; every snapshot, and every serializable reader,
/// shows the same sum, though pages are put whole in between, and counters share granules.
#[test]
fn threads_write_parts_of_the_same_pages() {
    const PAGES: u64 = 3;
    const COUNTERS: u64 = 20;
    const TRANSFERS: u64 = 150;
    let options = options().background_threads(true).lock_deadline(Duration::from_secs(20));
    let (_bed, db, file) = database(&options, 0);
    // Two and a half counters a granule.
    let at = |counter: u64| counter as usize * 50 + 3;
    let number = |bytes: &[u8], counter: u64| {
        u64::from_le_bytes(bytes[at(counter)..at(counter) + 8].try_into().unwrap())
    };
    let mut image = vec![9; PAGE];
    (0..COUNTERS)
        .for_each(|counter| image[at(counter)..at(counter) + 8].copy_from_slice(&1000u64.to_le_bytes()));
    db.transact(|tx| (0..PAGES).try_for_each(|page| tx.put_page(&file, page, &image))).unwrap();
    let sum = |tx: &mut Transaction| -> Result<u64, Error> {
        (0..PAGES).try_fold(0, |sum, page| {
            let image = tx.read_page(&file, page)?;
            Ok(sum + (0..COUNTERS).map(|counter| number(&image, counter)).sum::<u64>())
        })
    };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4u64)
            .map(|writer| {
                let (db, file) = (&db, &file);
                scope.spawn(move || {
                    let mut rng = Rng::new(writer);
                    let isolation = [Isolation::Snapshot, Isolation::Serializable][writer as usize % 2];
                    let options = TransactionOptions { isolation, ..TransactionOptions::default() };
                    for _ in 0..TRANSFERS {
                        let spots = [(); 2].map(|()| (rng.below(PAGES), rng.below(COUNTERS)));
                        let whole = rng.one_in(10);
                        db.transact_with(options.clone(), |tx| {
                            for ((page, counter), more) in spots.into_iter().zip([1, u64::MAX]) {
                                let mut image = tx.read_page(file, page)?;
                                let bytes = number(&image, counter).wrapping_add(more).to_le_bytes();
                                image[at(counter)..at(counter) + 8].copy_from_slice(&bytes);
                                match whole {
                                    true => tx.put_page(file, page, &image)?,
                                    false => tx.write_page(file, page, at(counter), &bytes)?,
                                }
                            }
                            Ok::<(), Error>(())
                        })
                        .unwrap();
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                assert_eq!(sum(&mut db.snapshot()).unwrap(), PAGES * COUNTERS * 1000);
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::SeqCst);
    });
    assert_eq!(sum(&mut db.snapshot()).unwrap(), PAGES * COUNTERS * 1000);
    let report = db.check(&mut |_| {}).unwrap();
    assert_eq!((report.damage, report.leaked_pages), (Vec::new(), 0));
}
