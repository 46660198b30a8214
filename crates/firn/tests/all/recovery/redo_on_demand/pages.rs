//! Pages are redone as they are touched, in any order, by any number of threads, and damage that is
//! found then concerns its page.

use crate::recovery::redo_on_demand::support::{ROWS, all, assert_sound, crashed, key, opened, quiet, value};
use crate::support::bed::Bed;
use crate::support::caches;
use firndb::{ErrorKind, Options};
use firndb_base::rng::Rng;
use firndb_testkit::bytes::{contents, flip};
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn the_first_commit_comes_before_any_background_redo() {
    let (bed, mut rows) = crashed(&quiet());
    let (db, table) = opened(&quiet(), &bed);
    let answered = db.recovery_report();
    assert!(answered.redo.pages_pending > 300, "{answered:?}");
    db.transact(|tx| tx.put(&table, &key(3000), b"first").map(drop)).expect("committed");
    rows.insert(key(3000), b"first".to_vec());
    let report = db.recovery_report();
    assert!(!report.complete && report.losers_left == 2, "{report:?}");
    assert_eq!(report.redo.pages_in_background, 0);
    // The catalog's page, the table's root and the way down from there.
    assert!(report.redo.pages_on_demand <= 6, "{report:?}");
    assert!(report.redo.pages_left > 300, "{report:?}");
    // And it survives a crash at this moment, with redo as far as it was.
    let (again, table_again) = opened(&quiet(), &bed.duplicate());
    assert_eq!(all(&again, &table_again), rows);
    drop((again, table_again));

    db.finish_recovery().expect("finished");
    let report = db.recovery_report();
    assert!(report.complete && report.losers_left == 0 && report.redo.pages_left == 0, "{report:?}");
    assert!(report.redo.pages_in_background > 250, "{report:?}");
    let redo = report.redo;
    assert_eq!(redo.pages_on_demand + redo.pages_in_background + redo.pages_obsolete, redo.pages_pending);
    assert_eq!(redo.pages_from_store, redo.pages_on_demand + redo.pages_in_background, "there is no cache");
    assert_eq!(all(&db, &table), rows);
    assert_sound(&db);
}

#[test]
fn a_page_touched_in_any_order_shows_what_was_committed() {
    let few_frames = |options: Options| options.buffer_bytes(64 << 10);
    let ways: [fn(Options) -> Options; 4] = [
        |options| options,
        few_frames,
        |options| caches::roomy(few(options)),
        |options| caches::small(few(options)),
    ];
    fn few(options: Options) -> Options {
        options.buffer_bytes(64 << 10)
    }
    for (way, options) in ways.into_iter().map(|change| change(quiet())).enumerate() {
        let (bed, rows) = crashed(&options);
        for seed in 0..3u64 {
            let (mut rows, bed) = (rows.clone(), bed.duplicate());
            let (db, table) = opened(&options, &bed);
            let mut rng = Rng::new(seed);
            for turn in 0..1500 {
                let i = rng.below(u64::from(ROWS)) as u32;
                match rng.below(20) {
                    0 => {
                        db.transact(|tx| tx.put(&table, &key(i), &value(i, turn)).map(drop))
                            .expect("committed");
                        rows.insert(key(i), value(i, turn));
                    }
                    1 if rng.one_in(8) => drop(db.step().expect("a step")),
                    _ => {
                        let found = db.snapshot().get(&table, &key(i)).expect("readable");
                        assert_eq!(
                            found.as_ref(),
                            rows.get(&key(i)),
                            "way {way}, seed {seed}, turn {turn}, row {i}"
                        );
                    }
                }
            }
            let report = db.recovery_report();
            assert!(report.redo.pages_on_demand > if way == 0 { 50 } else { 5 }, "{report:?}");
            assert_eq!(all(&db, &table), rows, "way {way}, seed {seed}");
            assert_sound(&db);
            drop(table);
            db.close().expect("closed");
            let (db, table) = opened(&options, &bed);
            assert!(db.recovery_report().clean);
            assert_eq!(all(&db, &table), rows, "way {way}, seed {seed}, in the next life");
        }
    }
}

#[test]
fn closing_finishes_recovery() {
    let (bed, rows) = crashed(&quiet());
    let (db, table) = opened(&quiet(), &bed);
    drop(table);
    db.close().expect("closed");
    let (db, table) = opened(&quiet(), &bed);
    let report = db.recovery_report();
    assert!(report.clean && report.complete && report.losers == 0, "{report:?}");
    assert!(report.log_bytes < 4096, "{report:?}");
    assert_eq!(all(&db, &table), rows);
}

#[test]
fn recovery_tells_what_it_does() {
    let (bed, _) = crashed(&quiet());
    let told = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let listener = told.clone();
    let options = quiet().on_recovery(move |step| listener.lock().expect("no panic").push(step));
    let (db, _table) = opened(&options, &bed);
    let before = told.lock().expect("no panic").len();
    assert!(told.lock().expect("no panic").iter().all(|step| !step.in_background));
    db.finish_recovery().expect("finished");
    let told = &told.lock().expect("no panic")[before..];
    let of = |phase| told.iter().filter(|step| step.phase == phase).copied().collect::<Vec<_>>();
    assert!(told.iter().all(|step| step.in_background && step.done <= step.total));
    let undo = of(firndb::RecoveryPhase::Undo);
    assert_eq!(undo.iter().map(|step| (step.done, step.total)).collect::<Vec<_>>(), [(1, 2), (2, 2)]);
    let redo = of(firndb::RecoveryPhase::Redo);
    assert!(redo.len() > 3 && redo.is_sorted_by_key(|step| step.done), "{redo:?}");
    assert!(redo.last().is_some_and(|step| step.done == step.total), "{redo:?}");
}

/// Turns a bit of the store where it has these bytes.
fn rot(bed: &Bed, wanted: &[u8]) {
    let bytes = contents(&*bed.store);
    let at = bytes.windows(wanted.len()).position(|window| window == wanted).expect("the store has them");
    flip(&*bed.store, at as u64, 0);
}

/// Turns a bit of the row as it was at the checkpoint.
fn rot_page_of(bed: &Bed, row: u32) {
    rot(bed, &value(row, 0));
}

#[test]
fn damage_found_late_concerns_its_page_and_serves_nothing_wrong() {
    let (bed, rows) = crashed(&quiet());
    rot_page_of(&bed, 2110);
    // Before the opening returns, if the option says so.
    let db = quiet()
        .tuning(|tuning| tuning.eager_recovery(true))
        .open_on(bed.duplicate().plain())
        .expect("it opens all the same");
    assert!(db.recovery_report().complete && db.recovery_report().redo.pages_set_aside == 1);
    drop(db);

    let (db, table) = opened(&quiet(), &bed);
    for i in (0..1000).step_by(10) {
        assert_eq!(db.snapshot().get(&table, &key(i)).expect("readable").as_ref(), rows.get(&key(i)));
    }
    let error = db.snapshot().get(&table, &key(2110)).expect_err("damaged");
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    assert!(error.to_string().contains("page "), "no page is named: {error}");
    db.finish_recovery().expect("but for that page");
    let report = db.recovery_report();
    assert!(report.complete && report.redo.pages_left == 1 && report.redo.pages_set_aside == 1, "{report:?}");
    assert_eq!(db.work_set_aside().1, 1, "{:?}", db.work_set_aside());
    let redo_start = db.statistics().checkpoint.1;
    db.transact(|tx| tx.put(&table, &key(1), &value(1, 0)).map(drop)).expect("everything else goes on");
    db.checkpoint().expect("taken");
    assert_eq!(db.statistics().checkpoint.1, redo_start, "its log is kept");
    drop(table);
    db.close().expect("closed");
    // Nothing of the log was given up, so a mended page can be redone.
    let (db, table) = opened(&quiet().tuning(|tuning| tuning.eager_recovery(true)), &bed.duplicate());
    let error = db.snapshot().get(&table, &key(2110)).expect_err("damaged");
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    rot_back(&bed, 2110);
    let (db, table) = opened(&quiet(), &bed);
    assert_eq!(all(&db, &table), rows);
    assert_sound(&db);
}

/// Turns the bit back.
fn rot_back(bed: &Bed, row: u32) {
    let mut turned = value(row, 0);
    turned[0] ^= 1;
    rot(bed, &turned);
}

/// A flash cache that survived: most pages to be redone are found there.
#[test]
fn pages_are_redone_from_the_flash_cache() {
    let options = caches::roomy(quiet().buffer_bytes(64 << 10)).cache(|cache| cache.bytes(4 << 20));
    let (bed, rows) = crashed(&options);
    let (db, table) = opened(&options, &bed);
    db.finish_recovery().expect("finished");
    let redo = db.recovery_report().redo;
    assert!(redo.pages_from_cache > 0, "{redo:?}");
    assert!(redo.pages_from_cache * 100 >= 98 * (redo.pages_from_cache + redo.pages_from_store), "{redo:?}");
    assert_eq!(all(&db, &table), rows);
    assert_sound(&db);
}

/// No thread sees a page between its read and its redo, however many read it at the same moment.
#[test]
fn threads_that_ask_for_one_page_at_once_all_see_it_redone() {
    for round in 0..4 {
        let (bed, rows) = crashed(&quiet().buffer_bytes(64 << 10));
        let (db, table) = opened(&quiet().buffer_bytes(128 << 10), &bed);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (db, table, over, rows) = (&db, &table, &over, &rows);
            let readers: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(move || {
                        let mut rng = Rng::new(round);
                        for _ in 0..1000 {
                            let i = rng.below(u64::from(ROWS)) as u32;
                            let found = db.snapshot().get(table, &key(i)).expect("readable");
                            assert_eq!(found.as_ref(), rows.get(&key(i)), "row {i}");
                        }
                    })
                })
                .collect();
            scope.spawn(move || {
                while !over.load(Ordering::SeqCst) {
                    db.step().expect("a step");
                }
            });
            readers.into_iter().for_each(|reader| reader.join().expect("no panic"));
            over.store(true, Ordering::SeqCst);
        });
        assert_sound(&db);
    }
}
