//! Pages that cannot be redone because of damage cannot be read, and everything else goes on, in
//! this incarnation of the database and in every later one. A file that is restored in place is as
//! if nothing had been.

use crate::damage::support::{
    ROWS, all, assert_damaged, assert_sound, filled, get, heal, key, look_into, nodes_of, opened, places_of,
    push_out_but, put, put_all, quiet, recovered, rot, value,
};
use crate::support::bed::Bed;
use firndb::Progress;
use firndb_testkit::bytes::contents;

/// A database that crashed with changes of table `a` that the store does not have, and a place on
/// the page of row 700, which is among them.
fn crashed_with_redo() -> (Bed, Vec<usize>) {
    let bed = Bed::new(1);
    let (db, a, _) = filled(&quiet(), &bed);
    put_all(&db, &a, (0..ROWS).step_by(10), "new");
    let left = bed.duplicate();
    let places = places_of(&left, &value(700, "first"));
    (left, places)
}

#[test]
fn a_page_that_cannot_be_redone_stays_as_it_is_until_it_can() {
    let (bed, places) = crashed_with_redo();
    rot(&bed, &places);
    look_into(&quiet(), &bed);
    // Within the budget, over it, and before the opening returns.
    let ways = [
        quiet(),
        quiet().tuning(|tuning| tuning.recovery_bytes(0)),
        quiet().tuning(|tuning| tuning.eager_recovery(true)),
    ];
    for (options, threads) in ways.iter().flat_map(|options| [(options, false), (options, true)]) {
        let bed = bed.duplicate();
        let options = options.clone().background_threads(threads);
        let db = opened(&options, &bed);
        recovered(&db, threads);
        assert_eq!(db.recovery_report().redo.pages_set_aside, 1, "{:?}", db.recovery_report());
        assert!(db.work_set_aside().0[0].cause.contains("page"), "{:?}", db.work_set_aside());
        assert_damaged(get(&db, "a", 700));
        assert_damaged(put(&db, "a", 700, "mine"));
        assert_eq!(get(&db, "a", 0).expect("readable"), Some(value(0, "new")));
        put(&db, "a", 0, "mine").expect("committed");
        put(&db, "b", 0, "mine").expect("committed");
        let directory = tempfile::tempdir().expect("a directory");
        let copy = directory.path().join("copy");
        assert_damaged(db.backup(&copy, &mut |_| std::ops::ControlFlow::Continue(())));
        db.close().expect("closed");
        let again = opened(&options, &bed);
        recovered(&again, threads);
        assert_damaged(get(&again, "a", 700));
        again.close().expect("closed");

        rot(&bed, &places);
        let db = opened(&quiet(), &bed);
        assert_eq!(get(&db, "a", 700).expect("readable"), Some(value(700, "new")));
        assert_eq!(get(&db, "a", 0).expect("readable"), Some(value(0, "mine")));
        db.finish_recovery().expect("finished");
        assert_sound(&db);
        db.close().expect("closed");
        assert!(opened(&quiet(), &bed).recovery_report().clean);
    }
}

/// The image can be read again while the database runs: readers of the page get it redone, from
/// memory, or if its changes took more than recovery may use, from the log.
#[test]
fn a_page_that_can_be_read_again_is_redone_when_it_is_asked_for() {
    let (bed, places) = crashed_with_redo();
    for options in [quiet(), quiet().tuning(|tuning| tuning.recovery_bytes(0))] {
        let bed = bed.duplicate();
        rot(&bed, &places);
        let db = opened(&options, &bed);
        recovered(&db, false);
        assert_damaged(get(&db, "a", 700));
        // What it needs of the log stays there, whatever is written meanwhile.
        for round in 0..3 {
            put(&db, "b", 1, &format!("round {round}")).expect("committed");
            db.checkpoint().expect("taken");
        }
        rot(&bed, &places);
        assert_eq!(get(&db, "a", 700).expect("readable"), Some(value(700, "new")));
        assert_eq!(db.recovery_report().redo.pages_left, 0);
        assert_sound(&db);
        db.close().expect("closed");
        let db = opened(&quiet(), &bed);
        assert!(db.recovery_report().clean);
        assert_eq!(get(&db, "a", 700).expect("readable"), Some(value(700, "new")));
    }
}

/// Cause: a page whose changes took more memory than recovery may use was damaged until the next
/// opening if the one read of it failed. Effect: a device that was away for a moment when the
/// database was opened took all such pages with it.
#[test]
fn reads_that_failed_at_the_opening_damage_nothing() {
    let (bed, _) = crashed_with_redo();
    let leaves = nodes_of(&bed, 16, 0..=0);
    for threads in [false, true] {
        let bed = bed.duplicate();
        let before = contents(&*bed.store);
        rot(&bed, &leaves);
        let options = quiet().tuning(|tuning| tuning.recovery_bytes(0)).background_threads(threads);
        let db = opened(&options, &bed);
        recovered(&db, threads);
        let set_aside = db.recovery_report().redo.pages_set_aside;
        assert!(set_aside > 50 && set_aside == db.work_set_aside().1, "{:?}", db.recovery_report());
        heal(&bed, &leaves, &before);
        let reads = || db.io_counts().logs.iter().map(|log| log.reads.ops).sum::<u64>();
        let before = reads();
        // All at once, each from another end.
        std::thread::scope(|scope| {
            for part in 0..4 {
                let db = &db;
                scope.spawn(move || {
                    for i in (0..ROWS).map(|i| (i + part * ROWS / 4) % ROWS) {
                        let what = if i.is_multiple_of(10) { "new" } else { "first" };
                        assert_eq!(get(db, "a", i).expect("readable"), Some(value(i, what)));
                    }
                });
            }
        });
        assert!(
            reads() - before < 10 * set_aside,
            "the log was read once for many pages: {}",
            reads() - before
        );
        assert_eq!((db.recovery_report().redo.pages_left, db.work_set_aside()), (0, (Vec::new(), 0)));
        assert_sound(&db);
        db.close().expect("closed");
        let db = opened(&quiet(), &bed);
        assert!(db.recovery_report().clean, "{:?}", db.recovery_report());
        assert_eq!(all(&db, "a").len() as u32, ROWS);
    }
}

/// Cause: what was pending of a page did not end when the page was freed. Effect: backups were
/// refused, and the database was not closed cleanly, because of a page that no table had any more.
#[test]
fn a_page_that_is_freed_keeps_nothing_waiting() {
    let (bed, places) = crashed_with_redo();
    rot(&bed, &places);
    for options in [quiet(), quiet().tuning(|tuning| tuning.recovery_bytes(0))] {
        let bed = bed.duplicate();
        let db = opened(&options, &bed);
        recovered(&db, false);
        assert_eq!(db.recovery_report().redo.pages_set_aside, 1);
        db.drop_table("a").expect("dropped");
        while db.step().expect("a step") == Progress::Worked {}
        let redo = db.recovery_report().redo;
        assert_eq!((redo.pages_set_aside, redo.pages_left), (0, 0), "{redo:?}");
        assert!(db.work_set_aside().0.iter().all(|entry| !entry.work.contains("repeating")), "{redo:?}");
        // A crash now finds the page freed.
        let left = bed.duplicate();
        let directory = tempfile::tempdir().expect("a directory");
        let copy = directory.path().join("copy");
        db.backup(&copy, &mut |_| std::ops::ControlFlow::Continue(())).expect("nothing is in its way");
        assert_sound(&db);
        db.close().expect("closed");
        let db = opened(&quiet(), &bed);
        assert!(db.recovery_report().clean, "{:?}", db.recovery_report());
        db.close().expect("closed");
        let db = opened(&options, &left);
        recovered(&db, false);
        assert_eq!(db.recovery_report().redo.pages_left, 0, "{:?}", db.recovery_report());
        assert_sound(&db);
    }
}

/// No log is kept for it for ever; and what is given up is not taken for the older version that is
/// stored.
#[test]
fn a_page_that_cannot_be_redone_is_given_up_when_the_log_is_full() {
    let (bed, places) = crashed_with_redo();
    rot(&bed, &places);
    for (options, threads) in
        [(quiet(), false), (quiet(), true), (quiet().tuning(|tuning| tuning.recovery_bytes(0)), false)]
    {
        let bed = bed.duplicate();
        let options = options.background_threads(threads);
        let db = opened(&options, &bed);
        recovered(&db, threads);
        let begin = db.statistics().log_end;
        let b = db.table("b").expect("there");
        let long = vec![7; 600];
        let mut i = 0;
        while db.statistics().log_end.since(begin) < 20 << 20 {
            i += 1;
            let rows = (i * 20..i * 20 + 20).map(|row| key(row % 400));
            db.transact(|tx| rows.clone().try_for_each(|key| tx.put(&b, &key, &long).map(drop)))
                .unwrap_or_else(|error| panic!("write {i}: {error}"));
        }
        drop(b);
        assert_eq!(db.recovery_report().redo.pages_set_aside, 0, "{:?}", db.recovery_report());
        assert_damaged(get(&db, "a", 700));
        db.close().expect("closed");
        // The stored image is whole once more. It is the one from before the changes that were
        // given up.
        rot(&bed, &places);
        let db = opened(&options, &bed);
        assert!(db.recovery_report().clean, "{:?}", db.recovery_report());
        let sentence = assert_damaged(get(&db, "a", 700));
        assert!(sentence.contains("given up") || sentence.contains("give them up"), "{sentence}");
        assert_eq!(get(&db, "a", 0).expect("readable"), Some(value(0, "new")));
        let report = db.check(&mut |_| {}).expect("can be checked");
        assert!(!report.is_clean());
        db.close().expect("closed");
    }
}

/// A page made since the last checkpoint is in the log as a whole.
#[test]
fn a_page_that_the_log_has_whole_needs_no_image() {
    let bed = Bed::new(1);
    let (db, a, _) = filled(&quiet(), &bed);
    put_all(&db, &a, ROWS..ROWS + 300, "new");
    // Written, but not by a checkpoint.
    push_out_but(&db, "b");
    let left = bed.duplicate();
    let places = places_of(&left, &value(ROWS + 100, "new"));
    rot(&left, &places);
    // Within the budget, and over it.
    for options in [quiet(), quiet().tuning(|tuning| tuning.recovery_bytes(0))] {
        let db = opened(&options, &left.duplicate());
        assert_eq!(get(&db, "a", ROWS + 100).expect("readable"), Some(value(ROWS + 100, "new")));
        recovered(&db, false);
        assert_eq!(db.recovery_report().redo.pages_left, 0);
        assert_eq!(all(&db, "a").len() as u32, ROWS + 300);
        assert_sound(&db);
    }
}

/// The root of a tree that grows is written whole by one record. What came before that is not
/// needed.
#[test]
fn a_page_that_is_overwritten_needs_no_image() {
    let bed = Bed::new(1);
    let (db, ..) = filled(&quiet(), &bed);
    let c = db.create_table("c").expect("created");
    put_all(&db, &c, 0..3, "first");
    db.checkpoint().expect("taken");
    db.checkpoint().expect("taken");
    put_all(&db, &c, 3..200, "new");
    let left = bed.duplicate();
    rot(&left, &nodes_of(&left, 20, 0..=9));
    // Within the budget, and over it.
    for options in [quiet(), quiet().tuning(|tuning| tuning.recovery_bytes(0))] {
        let left = left.duplicate();
        let db = opened(&options, &left);
        recovered(&db, false);
        assert_eq!(db.work_set_aside().0, []);
        assert_eq!(get(&db, "c", 0).expect("readable"), Some(value(0, "first")));
        assert_eq!(all(&db, "c").len(), 200);
        assert_sound(&db);
        db.close().expect("closed");
        assert_eq!(all(&opened(&quiet(), &left), "c").len(), 200);
    }
}
