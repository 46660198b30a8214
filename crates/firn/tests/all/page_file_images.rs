//! Private images of page files: what of them is written, and how.

use crate::page_files::{PAGE, assert_holds, recovering, settle, tiny};
use crate::support::bed::Bed;
use firndb::{Database, PageRecovery, Progress, Transaction};

/// What of the pages of a transaction is logged, and what is not.
fn shadows_and_logged(db: &Database) -> (u64, u64) {
    let counts = db.statistics().txn;
    (counts.shadows, counts.images_logged)
}

fn put_forty(db: &Database, byte: u8) {
    let file = db.page_file("f").unwrap();
    db.transact(|tx| (0..40).try_for_each(|page| tx.put_page(&file, page, &[byte; PAGE]))).unwrap();
}

fn assert_all(db: &Database, byte: u8) {
    let (file, mut tx) = (db.page_file("f").unwrap(), db.snapshot());
    for page in 0..40 {
        assert_eq!(tx.read_page(&file, page).unwrap(), [byte; PAGE], "page {page}");
    }
}

/// An older image of a page with the same number must not be found in the cache, now or after a
/// restart.
#[test]
fn over_a_flash_cache_shadows_are_written_past_it() {
    let dir = tempfile::tempdir().unwrap();
    let options = || recovering(0).cache(|cache| cache.bytes(256 << 10).group_pages(4));
    let mut db = options().open(dir.path()).unwrap();
    db.create_page_file("f").unwrap();
    for byte in 1..20 {
        put_forty(&db, byte);
        assert_all(&db, byte);
        if byte % 5 == 0 {
            settle(&db);
            db.close().unwrap();
            db = options().open(dir.path()).unwrap();
            assert_all(&db, byte);
        }
    }
    assert_eq!(shadows_and_logged(&db), (160, 0));
    db.detach_cache(&mut |_| {}).unwrap();
    assert_all(&db, 19);
    db.close().unwrap();
    assert_all(&options().open(dir.path()).unwrap(), 19);
}

/// Ten parts of one page are one image, and what a transaction writes over is never written.
#[test]
fn a_page_that_a_transaction_puts_again_and_again_is_written_once() {
    for (recovery, expected) in [(PageRecovery::Shadow, (2, 0)), (PageRecovery::Log, (0, 2))] {
        let db = tiny()
            .tuning(|tuning| tuning.page_recovery(recovery).page_file_bytes(64 << 10))
            .create_on(Bed::new(1).plain())
            .unwrap();
        let file = db.create_page_file("f").unwrap();
        let log_end = db.statistics().log_end.0;
        let mut tx = db.begin();
        (0..10).for_each(|at| tx.write_page(&file, 0, 100 * at, b"a part").unwrap());
        tx.put_page(&file, 1, &[1; PAGE]).unwrap();
        let before = tx.savepoint();
        tx.put_page(&file, 1, &[2; PAGE]).unwrap();
        tx.put_page(&file, 2, &[2; PAGE]).unwrap();
        tx.rollback_to(&before).unwrap();
        assert_eq!(tx.read_page(&file, 1).unwrap(), [1; PAGE]);
        tx.put_page(&file, 1, &[3; PAGE]).unwrap();
        tx.put_page(&file, 5, &[3; PAGE]).unwrap();
        tx.free_page(&file, 5).unwrap();
        let log = db.statistics().log_end.0 - log_end;
        assert!(log < 2048, "{log} bytes of log, and no content");
        tx.commit().unwrap();
        assert_eq!(shadows_and_logged(&db), expected);
        assert_eq!(db.snapshot().read_page(&file, 1).unwrap(), [3; PAGE]);
        assert_eq!(db.snapshot().read_page(&file, 0).unwrap()[900..906], *b"a part");
        assert_eq!(db.statistics().txn.image_bytes, 0);
        // An abort writes no page.
        let mut tx = db.begin();
        (0..40).for_each(|page| tx.put_page(&file, page, &[9; PAGE]).unwrap());
        tx.rollback().unwrap();
        assert_eq!(shadows_and_logged(&db), expected);
        assert_eq!(db.statistics().txn.image_bytes, 0);
        settle(&db);
        assert_holds(&db, 2);
    }
}

/// What the choice by cost knows before anything was measured: that a durable write of the store
/// takes as long as logging some dozens of pages, and that a page put again and again need not be
/// written to the store each time.
#[test]
fn by_cost_many_images_become_shadows_and_few_and_hot_ones_are_logged() {
    let create = || {
        let options = tiny().buffer_bytes(4 << 20);
        let options = options.tuning(|tuning| tuning.page_recovery(PageRecovery::Adaptive));
        let db = options.create_on(Bed::new(1).plain()).unwrap();
        db.create_page_file("f").unwrap();
        db
    };
    let db = create();
    let file = db.page_file("f").unwrap();
    let above = db.statistics().txn.shadows_above;
    assert!(above.is_some_and(|images| (10..100).contains(&images)), "{above:?}");
    let put = |db: &Database, pages, byte| {
        let file = db.page_file("f").unwrap();
        db.transact(|tx| (0..pages).try_for_each(|page| tx.put_page(&file, page, &[byte; PAGE]))).unwrap();
    };
    db.transact(|tx| tx.put_page(&file, 150, &[1; PAGE])).unwrap();
    assert_eq!(shadows_and_logged(&db), (0, 1));
    put(&db, 100, 1);
    assert_eq!(shadows_and_logged(&db), (100, 1));
    assert_all(&db, 1);
    let hot = create();
    let file = hot.page_file("f").unwrap();
    for byte in 1..200 {
        hot.transact(|tx| tx.put_page(&file, 0, &[byte; PAGE])).unwrap();
    }
    assert_eq!(shadows_and_logged(&hot), (0, 199));
    for byte in 1..10 {
        put(&hot, 100, byte);
    }
    let (shadows, _) = shadows_and_logged(&hot);
    assert!(shadows <= 300, "{shadows}: pages came back while they were in memory");
    put(&hot, 100, 11);
    assert_eq!(shadows_and_logged(&hot), (shadows, 1099 - shadows + 100));
    assert_all(&hot, 11);
}

/// Cause: a search for marks began again at once when it had found none that was committed. Effect:
/// while a transaction was open that had replaced thousands of pages, one round followed another
/// without a rest.
#[test]
fn background_work_rests_while_an_open_transaction_holds_all_marks() {
    const PAGES: u64 = 4000;
    let options = recovering(0).log(|log| log.devices(1).bytes(8 << 20));
    let db = options.create_on(Bed::new(1).plain()).unwrap();
    let file = db.create_page_file("f").unwrap();
    let put_all =
        |tx: &mut Transaction, byte| (0..PAGES).try_for_each(|page| tx.put_page(&file, page, &[byte; PAGE]));
    db.transact(|tx| put_all(tx, 1)).unwrap();
    settle(&db);
    let mut open = db.begin();
    put_all(&mut open, 2).unwrap();
    let worked = (0..100).filter(|_| db.step().unwrap() == Progress::Worked).count();
    assert!(worked < 50, "{worked} of 100 steps did something");
    open.commit().unwrap();
    (0..100).for_each(|_| settle(&db));
    assert_holds(&db, PAGES);
}
