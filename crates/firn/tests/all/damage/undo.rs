//! Transactions that cannot be rolled back because of damage keep their rows locked; everything
//! else goes on, in this incarnation of the database and in every later one. A file that is
//! restored in place is as if nothing had been.

use crate::damage::support::{
    ROWS, Reported, all, assert_damaged, assert_sound, filled, get, key, look_into, nodes_of, opened,
    places_of, push_out_but, put, put_all, quiet, recovered, rot, value,
};
use crate::support::bed::Bed;
use firndb::device::{Calls, DeviceErrorKind, Fault, FaultPlan, FaultRule, When};
use firndb::{Database, ErrorKind, Options, Progress};
use firndb_base::clock;
use firndb_base::sim::{self, SimOptions};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// A transaction that never ends changes rows of both tables, on some twenty pages, which the store
/// has; then a crash. What it leaves, a place on the page of row 705 of `a`, and the log's end.
fn crashed_with_a_loser() -> (Bed, Vec<usize>, firndb::Lsn) {
    let bed = Bed::new(1);
    let (db, a, b) = filled(&quiet(), &bed);
    let mut loser = db.begin();
    for i in (5..ROWS).step_by(100) {
        loser.put(&a, &key(i), &value(i, "lost")).expect("written");
        loser.put(&b, &key(i), &value(i, "gone")).expect("written");
    }
    loser.delete(&a, &key(805)).expect("deleted");
    db.checkpoint().expect("taken");
    put_all(&db, &b, 0..1, "third");
    let (left, end) = (bed.duplicate(), db.statistics().log_end);
    drop(loser);
    let places = places_of(&left, &value(705, "lost"));
    (left, places, end)
}

#[test]
fn a_loser_on_a_damaged_page_keeps_what_is_on_it_and_nothing_else() {
    let (bed, places, crash_end) = crashed_with_a_loser();
    for threads in [false, true] {
        let bed = bed.duplicate();
        rot(&bed, &places);
        look_into(&quiet(), &bed);
        let reported = Reported::default();
        let options = reported.listen(quiet().background_threads(threads));
        let db = opened(&options, &bed);
        recovered(&db, threads);
        let report = db.recovery_report();
        assert_eq!((report.losers, report.losers_left, report.losers_set_aside), (1, 1, 1), "{report:?}");
        assert_damaged(get(&db, "a", 705));
        assert_damaged(put(&db, "a", 705, "mine"));
        assert_the_loser_holds_nothing_else(&db, crash_end);
        let set_aside = db.work_set_aside();
        assert!(
            set_aside.0.iter().any(|entry| entry.work.contains("rolling back transaction")),
            "{set_aside:?}"
        );
        assert!(set_aside.0.iter().all(|entry| entry.cause.contains("page")), "{set_aside:?}");
        assert_eq!(reported.list(), set_aside.0, "each was reported once");
        if threads {
            assert_idle(&db);
        }
        db.close().expect("closed");

        // The next incarnation finds it again, with all that it needs.
        let db = opened(&options, &bed);
        recovered(&db, threads);
        let report = db.recovery_report();
        assert_eq!((report.losers, report.losers_set_aside, report.clean), (1, 1, false), "{report:?}");
        put(&db, "b", 2, "once more").expect("committed");
        db.close().expect("closed");

        assert_undone_once_healed(&bed.duplicate(), &places);
        assert_gone_with_its_table(&bed, &options, threads);
    }
}

fn assert_the_loser_holds_nothing_else(db: &Database, crash_end: firndb::Lsn) {
    for i in (5..ROWS).step_by(100).filter(|i| *i != 705) {
        assert_eq!(get(db, "a", i).expect("readable"), Some(value(i, "first")));
        put(db, "a", i, "mine").expect("what could be undone is free");
        put(db, "b", i, "mine").expect("free");
    }
    // It holds no log.
    for round in 0..3 {
        put(db, "b", 1, &format!("round {round}")).expect("committed");
        db.checkpoint().expect("taken");
    }
    assert!(db.statistics().checkpoint.1 > crash_end, "{:?} > {crash_end:?}", db.statistics().checkpoint);
}

/// No thread reads the damaged page over and over.
fn assert_idle(db: &Database) {
    std::thread::sleep(Duration::from_millis(100));
    let reads = || db.io_counts().store.reads.ops;
    let before = reads();
    std::thread::sleep(Duration::from_millis(400));
    assert!(reads() - before < 10, "{} reads in an idle database", reads() - before);
}

/// The page is as it was, and nothing is left of it all.
fn assert_undone_once_healed(bed: &Bed, places: &[usize]) {
    rot(bed, places);
    let db = opened(&quiet(), bed);
    assert_eq!(get(&db, "a", 705).expect("readable"), Some(value(705, "first")));
    recovered(&db, false);
    assert_eq!((db.recovery_report().losers, db.recovery_report().losers_left), (1, 0));
    let a = all(&db, "a");
    assert_eq!((a.len() as u32, &a[&key(705)], &a[&key(5)]), (ROWS, &value(705, "first"), &value(5, "mine")));
    assert_sound(&db);
}

/// Or the table is dropped: the next opening has nothing left to undo.
fn assert_gone_with_its_table(bed: &Bed, options: &Options, threads: bool) {
    let db = opened(options, bed);
    db.drop_table("a").expect("dropped");
    db.close().expect("closed");
    let db = opened(options, bed);
    recovered(&db, threads);
    assert_eq!((db.recovery_report().losers, db.recovery_report().losers_left), (1, 0));
    put(&db, "b", 3, "without it").expect("committed");
    // Until the drop is done, a check finds the damaged page in the dropped tree.
    while db.step().expect("a step") == Progress::Worked {}
    db.close().expect("closed");
    let db = opened(&quiet(), bed);
    assert!(db.recovery_report().clean, "{:?}", db.recovery_report());
    assert_eq!(db.table("a").expect_err("gone").kind(), ErrorKind::NotFound);
    assert_sound(&db);
}

/// Pushes everything out of the buffer but table `b`.
fn push_out(db: &Database) {
    db.checkpoint().expect("taken");
    push_out_but(db, "b");
}

#[test]
fn a_rollback_that_meets_damage_is_set_aside() {
    let bed = Bed::new(1);
    let reported = Reported::default();
    let (db, a, _) = filled(&reported.listen(quiet()), &bed);
    let mut tx = db.begin();
    tx.put(&a, &key(705), &value(705, "doomed")).expect("written");
    tx.put(&a, &key(5), &value(5, "doomed")).expect("written");
    push_out(&db);
    let places = places_of(&bed, &value(705, "doomed"));
    rot(&bed, &places);
    tx.rollback().expect("it has no effect any more");
    assert_eq!(reported.list().len(), 1, "{:?}", reported.list());
    assert_damaged(get(&db, "a", 705));
    put(&db, "a", 5, "mine").expect("it was undone there");
    put(&db, "b", 5, "mine").expect("committed");
    while db.step().expect("a step") == Progress::Worked {}
    db.checkpoint().expect("taken");
    drop(a);
    db.close().expect("closed");
    rot(&bed, &places);
    let db = opened(&quiet(), &bed);
    assert_eq!(get(&db, "a", 705).expect("readable"), Some(value(705, "first")));
    recovered(&db, false);
    assert_eq!((db.recovery_report().losers, db.recovery_report().losers_left), (1, 0));
    assert_sound(&db);
}

#[test]
fn after_a_return_to_a_savepoint_that_met_damage_a_transaction_can_be_rolled_back_only() {
    let bed = Bed::new(1);
    let (db, a, b) = filled(&quiet(), &bed);
    let mut tx = db.begin();
    tx.put(&b, &key(7), &value(7, "doomed")).expect("written");
    let savepoint = tx.savepoint();
    tx.put(&a, &key(705), &value(705, "doomed")).expect("written");
    push_out(&db);
    let places = places_of(&bed, &value(705, "doomed"));
    rot(&bed, &places);
    assert_damaged(tx.rollback_to(&savepoint));
    let sentence = assert_damaged(tx.put(&b, &key(8), b"no"));
    assert!(sentence.contains("can only be rolled back"), "{sentence}");
    assert_damaged(tx.get(&b, &key(8)));
    assert_damaged(tx.commit());
    assert_eq!(db.work_set_aside().1, 1);
    put(&db, "b", 7, "mine").expect("it was undone there");
    rot(&bed, &places);
    drop((a, b));
    db.close().expect("closed");
    let db = opened(&quiet(), &bed);
    recovered(&db, false);
    assert_eq!(get(&db, "a", 705).expect("readable"), Some(value(705, "first")));
    assert_eq!(get(&db, "b", 7).expect("readable"), Some(value(7, "mine")));
    assert_sound(&db);
}

#[test]
fn a_prepared_transaction_on_a_damaged_page_is_decided_and_undone_when_it_is_mended() {
    let bed = Bed::new(1);
    let (db, a, b) = filled(&quiet(), &bed);
    let mut tx = db.begin();
    tx.put(&a, &key(705), &value(705, "doomed")).expect("written");
    tx.put(&b, &key(7), &value(7, "doomed")).expect("written");
    tx.prepare(b"gid").expect("prepared");
    push_out(&db);
    let places = places_of(&bed, &value(705, "doomed"));
    rot(&bed, &places);
    db.rollback_prepared(b"gid").expect("the decision is one record, and needs no page");
    assert!(db.prepared().is_empty(), "it is decided");
    assert_eq!(db.work_set_aside().1, 1, "what is on the damaged page: {:?}", db.work_set_aside());
    put(&db, "b", 7, "mine").expect("it was undone there");
    drop((a, b));
    db.close().expect("closed");
    rot(&bed, &places);
    let db = opened(&quiet(), &bed);
    assert_eq!((db.recovery_report().prepared, db.recovery_report().losers), (0, 1));
    recovered(&db, false);
    assert_eq!(get(&db, "a", 705).expect("readable"), Some(value(705, "first")));
    assert_eq!(get(&db, "b", 7).expect("readable"), Some(value(7, "mine")));
    assert_sound(&db);
}

#[test]
fn a_rollback_whose_read_fails_is_tried_again() {
    for failures in [1, u64::MAX] {
        let bed = Bed::new(1);
        drop(filled(&quiet(), &bed));
        let plan = FaultPlan::new(0);
        let db = quiet().open_on(bed.faulty(&plan, &Arc::new(AtomicBool::new(false)))).expect("opened");
        recovered(&db, false);
        let a = db.table("a").expect("there");
        let mut tx = db.begin();
        tx.put(&a, &key(705), &value(705, "doomed")).expect("written");
        push_out(&db);
        let when = if failures == 1 { When::Nth(0) } else { When::From(0) };
        let fault = Fault::Fail(DeviceErrorKind::Failed);
        plan.add(FaultRule { calls: Calls::Reads, device: Some("store".to_owned()), when, fault });
        tx.rollback().expect("it has no effect any more");
        assert!(plan.fired() > 0, "a read failed");
        if failures > 1 {
            // A transaction that needs the row tries in vain. Nothing else is refused.
            let error = put(&db, "a", 705, "mine").expect_err("cannot be read");
            assert_eq!(error.kind(), ErrorKind::Failed, "{error}");
            assert!(!error.to_string().contains("opened again"), "{error}");
            put(&db, "b", ROWS - 1, "mine").expect("it is in the buffer");
            plan.heal();
        }
        assert_eq!(get(&db, "a", 705).expect("readable"), Some(value(705, "first")));
        put(&db, "a", 705, "mine").expect("the waiter undoes it");
        assert_eq!(db.work_set_aside().1, 0, "{:?}", db.work_set_aside());
        drop(a);
        db.close().expect("closed");
        let db = opened(&quiet(), &bed);
        assert!(db.recovery_report().clean, "{:?}", db.recovery_report());
        assert_sound(&db);
    }
}

/// A device fails every read for longer than a minute. The rollback returns `Ok`, since no other
/// transaction sees its changes; what cannot be undone is reported, and the next opening undoes it.
#[test]
fn a_rollback_whose_reads_go_on_failing_is_set_aside_and_reported() {
    let run = sim::run(SimOptions::seeded(11), || {
        let bed = Bed::new(1);
        drop(filled(&quiet(), &bed));
        let plan = FaultPlan::new(0);
        let reported = Reported::default();
        let options = reported.listen(quiet());
        let db = options.open_on(bed.faulty(&plan, &Arc::new(AtomicBool::new(false)))).expect("opened");
        recovered(&db, false);
        let a = db.table("a").expect("there");
        let mut tx = db.begin();
        tx.put(&a, &key(705), &value(705, "doomed")).expect("written");
        push_out(&db);
        let fault = Fault::Fail(DeviceErrorKind::Failed);
        let device = Some("store".to_owned());
        plan.add(FaultRule { calls: Calls::Reads, device, when: When::From(0), fault });
        tx.rollback().expect("it has no effect any more");
        assert_eq!(reported.list(), [], "it is tried again");
        for _ in 0..70 {
            clock::sleep(Duration::from_secs(1));
            while db.step().expect("no other work needs the pages") == Progress::Worked {}
        }
        let list = reported.list();
        assert_eq!(list.len(), 1, "{list:?}");
        assert!(list[0].work.contains("rolling back transaction"), "{list:?}");
        // A writer is refused at once, though the device reads again by now.
        plan.heal();
        assert_eq!(get(&db, "a", 705).expect("readable"), Some(value(705, "first")));
        let error = put(&db, "a", 705, "mine").expect_err("locked until the next opening");
        assert!(error.to_string().contains("cannot be rolled back before the next opening"), "{error}");
        put(&db, "a", 5, "mine").expect("committed");
        drop(a);
        db.close().expect("closed");
        let db = opened(&quiet(), &bed);
        recovered(&db, false);
        assert_eq!((db.recovery_report().losers, db.recovery_report().losers_left), (1, 0));
        put(&db, "a", 705, "mine").expect("it was undone");
        assert_sound(&db);
    });
    run.expect("it ends without a panic");
}

const UNDO_TREE: u32 = 2;

/// Before-images that lie on rotten pages of the undo tree: so readers of their rows get an error,
/// and so do waiters.
#[test]
fn rotten_before_images_concern_the_rows_they_belong_to() {
    let options = quiet().tuning(|tuning| tuning.version_bytes(0));
    let bed = Bed::new(1);
    let (db, a, b) = filled(&options, &bed);
    let mut loser = db.begin();
    for i in 0..200 {
        loser.put(&a, &key(i), &value(i, "lost")).expect("written");
    }
    put_all(&db, &b, 0..1, "third");
    // Twice: what was dirty at the last one, and the log before it, are done with.
    db.checkpoint().expect("taken");
    db.checkpoint().expect("taken");
    let bed = {
        let left = bed.duplicate();
        drop(loser);
        left
    };
    let places = nodes_of(&bed, UNDO_TREE, 0..=0);
    rot(&bed, &places);
    for threads in [false, true] {
        let bed = bed.duplicate();
        look_into(&options, &bed);
        let db = opened(&options.clone().background_threads(threads), &bed);
        let waiting = db.clone();
        // It waits before recovery comes to the loser, or comes when it is set aside.
        let waiter = std::thread::spawn(move || put(&waiting, "a", 0, "mine"));
        recovered(&db, threads);
        let sentence = assert_damaged(waiter.join().expect("no panic"));
        assert!(sentence.contains("locked by transaction"), "{sentence}");
        assert_eq!(db.recovery_report().losers_set_aside, 1, "{:?}", db.recovery_report());
        let sentence = assert_damaged(put(&db, "a", 0, "mine"));
        assert!(sentence.contains("locked by transaction"), "{sentence}");
        assert_damaged(get(&db, "a", 0));
        assert_eq!(get(&db, "a", 700).expect("readable"), Some(value(700, "first")));
        put(&db, "a", 700, "mine").expect("committed");
        for i in 0..300 {
            put(&db, "b", i, "mine").expect("committed");
            if i % 100 == 0 {
                db.checkpoint().expect("taken");
            }
        }
        while !threads && db.step().expect("a step") == Progress::Worked {}
        db.close().expect("closed");

        rot(&bed, &places);
        let db = opened(&options, &bed);
        recovered(&db, false);
        assert_eq!((db.recovery_report().losers, db.recovery_report().losers_left), (1, 0));
        assert_eq!(get(&db, "a", 0).expect("readable"), Some(value(0, "first")));
        assert_sound(&db);
    }
}
