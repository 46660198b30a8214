//! Writers of parts that wait for others, or must not.

use super::{GRANULE, ISOLATIONS, PAGE, begin, database, options};
use crate::support::bed::Bed;
use firndb::{Error, ErrorKind, Isolation, PageFile, Transaction, TransactionOptions};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Cause: the statement reads the page's row before another transaction changes a granule. Effect:
/// a transaction that had been shown nothing got a conflict when its first statement had waited.
#[test]
fn a_first_statement_that_waits_for_a_part_has_no_conflict() {
    let options = options().lock_deadline(Duration::from_secs(20));
    type First = fn(&mut Transaction, &PageFile) -> Result<(), Error>;
    let statements: [First; 4] = [
        |tx, file| tx.write_page(file, 0, 1000, &[4; 10]),
        |tx, file| tx.put_page(file, 0, &[4; PAGE]),
        |tx, file| tx.free_page(file, 0),
        |tx, file| tx.set_pages(file, 0),
    ];
    for (which, statement) in statements.into_iter().enumerate() {
        let (_bed, db, file) = database(&options, 1);
        db.transact(|tx| tx.write_page(&file, 0, 0, &[2])).unwrap();
        let mut one = db.begin();
        one.write_page(&file, 0, 1000, &[3; 10]).unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let mut tx = db.begin();
                statement(&mut tx, &file).unwrap_or_else(|error| panic!("statement {which}: {error}"));
                tx.commit().unwrap();
            });
            std::thread::sleep(Duration::from_millis(50));
            one.commit().unwrap();
            waiter.join().unwrap();
        });
        assert_ne!(db.snapshot().read_page(&file, 0).unwrap()[1000], 3, "statement {which}");
    }
}

/// Cause: the other transaction has locked the granule, and waits for the one that has written it.
/// Effect: the latter could not write it again: `Deadlock`.
#[test]
fn a_granule_is_written_again_while_another_transaction_waits_for_it() {
    let options = options().lock_deadline(Duration::from_secs(20));
    for (first, second) in [(128, 128), (128, 12), (100, 100)] {
        let (_bed, db, file) = database(&options, 1);
        db.transact(|tx| tx.write_page(&file, 0, 0, &[2])).unwrap();
        let mut one = db.begin();
        one.write_page(&file, 0, 1280, &vec![3; first]).unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| db.transact(|tx| tx.write_page(&file, 0, 1290, &[4])).unwrap());
            std::thread::sleep(Duration::from_millis(50));
            one.write_page(&file, 0, 1280, &vec![5; second]).unwrap();
            one.commit().unwrap();
            waiter.join().unwrap();
        });
        assert_eq!(db.snapshot().read_page(&file, 0).unwrap()[1288..1292], [5, 5, 4, 5]);
    }
}

/// Cause: the reader shared the lock of writers of parts, and locked the range of the granules.
/// Effect: the writer's next part made a deadlock with the reader that waited for it.
#[test]
fn a_serializable_reader_waits_for_a_writer_of_two_parts() {
    let options = options().lock_deadline(Duration::from_secs(20));
    for isolation in ISOLATIONS {
        let (_bed, db, file) = database(&options, 1);
        db.transact(|tx| tx.write_page(&file, 0, 0, &[2])).unwrap();
        let mut writer = begin(&db, isolation);
        writer.write_page(&file, 0, 1000, &[3]).unwrap();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| begin(&db, Isolation::Serializable).read_page(&file, 0).unwrap());
            std::thread::sleep(Duration::from_millis(50));
            writer.write_page(&file, 0, 2000, &[3]).unwrap();
            writer.commit().unwrap();
            let image = reader.join().unwrap();
            assert_eq!((image[1000], image[2000]), (3, 3), "all of it or nothing");
        });
    }
}

/// Cause: more than 4,096 shared locks become one on the file, those of writers of parts did, too.
/// Effect: two of them could not write parts of different pages.
#[test]
fn writers_of_parts_of_many_pages_do_not_lock_the_file() {
    const EACH: u64 = 4200;
    let options = options().page_size(1024).buffer_bytes(32 << 20).log(|log| log.devices(1).bytes(64 << 20));
    let db = options.tuning(|tuning| tuning.version_bytes(32 << 20)).create_on(Bed::new(1).plain()).unwrap();
    let file = db.create_page_file("f").unwrap();
    for byte in [1, 2] {
        // The second time beside what is there.
        db.transact(|tx| {
            (0..2 * EACH).try_for_each(|page| match byte {
                1 => tx.put_page(&file, page, &[1; 1024]),
                _ => tx.write_page(&file, page, 0, &[2]),
            })
        })
        .unwrap();
    }
    for isolation in ISOLATIONS {
        let (mut one, mut other) = (begin(&db, isolation), begin(&db, isolation));
        for page in 0..EACH {
            one.write_page(&file, page, 200, &[3]).unwrap();
            other.write_page(&file, EACH + page, 200, &[3]).unwrap();
        }
        one.rollback().unwrap();
        other.rollback().unwrap();
    }
}

/// Cause: a transaction that had locked the file for reading took the lock of writers of parts as
/// included. Effect: another put the page whole between, without its part: a lost update.
#[test]
fn a_reader_of_the_whole_file_writes_parts_beside_pages_put_whole() {
    let options = options()
        .background_threads(true)
        .lock_deadline(Duration::from_secs(20))
        .buffer_bytes(4 << 20)
        .log(|log| log.devices(1).bytes(16 << 20));
    for isolation in [Isolation::Serializable, Isolation::ReadCommitted] {
        let (_bed, db, file) = database(&options, 1);
        let (done, mut commits) = (AtomicBool::new(false), 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for granule in (1..13).cycle() {
                    let mut tx = begin(&db, isolation);
                    match tx.write_page(&file, 0, granule * GRANULE + 3, &[granule as u8; 20]) {
                        Ok(()) => tx.commit().unwrap(),
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Deadlock, "{error}"),
                    }
                    if done.load(Ordering::SeqCst) {
                        break;
                    }
                }
            });
            for number in 1..=150u64 {
                let mut tx = begin(&db, Isolation::Serializable);
                let read = (0..4100).try_for_each(|page| tx.read_page(&file, 1000 + page).map(drop));
                if read.and_then(|()| tx.write_page(&file, 0, 30 * GRANULE, &number.to_le_bytes())).is_err() {
                    continue;
                }
                tx.commit().unwrap();
                commits += 1;
                std::thread::sleep(Duration::from_micros(300));
                let image = db.snapshot().read_page(&file, 0).unwrap();
                assert_eq!(image[30 * GRANULE..30 * GRANULE + 8], number.to_le_bytes(), "{isolation:?}");
            }
            done.store(true, Ordering::SeqCst);
        });
        assert!(commits > 0, "{isolation:?}");
    }
}

/// Cause: the page was locked before it was known that it would not be put whole.
#[test]
fn a_page_that_is_not_put_whole_is_not_locked() {
    let (_bed, db, file) = database(&options(), 1);
    db.transact(|tx| tx.write_page(&file, 0, 0, &[2])).unwrap();
    let mut one = db.begin();
    one.write_page(&file, 0, 30 * GRANULE, &[3]).unwrap();
    for granule in 1..10 {
        db.transact(|tx| tx.write_page(&file, 0, granule * GRANULE, &[3])).unwrap();
    }
    // There are more than a quarter, of which its snapshot does not see all.
    one.write_page(&file, 0, 29 * GRANULE, &[3]).unwrap();
    db.begin().write_page(&file, 0, 20 * GRANULE, &[3]).unwrap();
}

/// Locks had no queue: ever new writers of parts, one beginning before the other ends, kept one
/// that puts the page whole waiting for ever.
#[test]
fn a_page_is_put_whole_beside_ever_new_writers_of_parts() {
    let (_bed, db, file) = database(&options().lock_deadline(Duration::from_secs(20)), 1);
    db.transact(|tx| tx.write_page(&file, 0, 0, &[2])).unwrap();
    let part = |number: usize| {
        let wait = Some(Duration::from_millis(100));
        let mut tx = db.begin_with(TransactionOptions { lock_deadline: wait, ..Default::default() });
        tx.write_page(&file, 0, GRANULE * number, &[3]).map(|()| tx)
    };
    let mut holder = part(1).unwrap();
    let mut passed = 1;
    std::thread::scope(|scope| {
        let mut before = db.statistics().txn.lock_waits;
        let putter = scope.spawn(|| db.transact(|tx| tx.put_page(&file, 0, &[4; PAGE])).unwrap());
        let refused = loop {
            while db.statistics().txn.lock_waits == before {
                std::thread::yield_now();
            }
            match part(1 + passed % 3) {
                Ok(next) => {
                    before = db.statistics().txn.lock_waits;
                    passed += 1;
                    std::mem::replace(&mut holder, next).commit().unwrap();
                }
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), ErrorKind::Timeout);
        holder.write_page(&file, 0, GRANULE * 20, &[3]).expect("it is among the holders");
        holder.commit().unwrap();
        putter.join().unwrap();
    });
    assert!((2..10).contains(&passed), "{passed} writers of parts passed");
    assert_eq!(db.snapshot().read_page(&file, 0).unwrap(), [4; PAGE]);
    assert_eq!(db.statistics().txn.deadlocks, 0);
}
