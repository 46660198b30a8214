//! The log that pending redo needs, and the memory.

use crate::recovery::redo_on_demand::support::{ROWS, all, assert_sound, crashed, key, opened, quiet, value};
use crate::support::bed::Bed;
use crate::support::caches;
use firndb::{Options, Progress};

#[test]
fn a_checkpoint_in_the_middle_keeps_the_log_of_what_is_pending() {
    for cache in [false, true] {
        let options = if cache { caches::roomy(quiet()) } else { quiet() };
        let (bed, mut rows) = crashed(&options);
        let (db, table) = opened(&options, &bed);
        let redo_start = db.statistics().checkpoint.1;
        let mut at = redo_start;
        let mut lives = 0;
        for round in 0u32.. {
            for i in 0..20 {
                let i = round * 31 + i * 7 % ROWS;
                db.transact(|tx| tx.put(&table, &key(i), &value(i, 9)).map(drop)).expect("committed");
                rows.insert(key(i), value(i, 9));
            }
            db.checkpoint().expect("taken");
            let now = db.statistics().checkpoint.1;
            assert!(now >= at, "the redo start never goes back");
            at = now;
            // What a crash leaves now is recovered from that checkpoint.
            let left = bed.duplicate();
            let (again, table_again) = opened(&options, &left);
            assert_eq!(all(&again, &table_again), rows, "round {round}");
            drop(table_again);
            drop(again);
            lives += 1;
            if db.recovery_report().complete {
                break;
            }
            let left = db.recovery_report().redo.pages_left;
            assert!(
                left == 0 || at < db.statistics().checkpoint.0,
                "what is pending lies before the checkpoint"
            );
            db.step().expect("a step");
        }
        assert!(lives > 4, "recovery took several steps");
        assert!(at > redo_start);
        assert_sound(&db);
    }
}

#[test]
fn log_that_fills_meanwhile_is_freed_by_redoing_what_holds_it() {
    let options =
        quiet().log(|log| log.bytes(3 << 20)).tuning(|tuning| tuning.checkpoint_log_bytes(512 << 10));
    let (bed, mut rows) = crashed(&options);
    let (db, table) = opened(&options, &bed);
    assert!(db.recovery_report().redo.pages_pending > 0);
    // Several times the log, and no background step.
    let begin = db.statistics().log_end;
    let mut i = 0;
    while db.statistics().log_end.since(begin) < 9 << 20 {
        i += 1;
        let (k, v) = (key(i % 500), value(i, 2).repeat(4));
        db.transact(|tx| tx.put(&table, &k, &v).map(drop))
            .unwrap_or_else(|error| panic!("write {i}: {error}"));
        rows.insert(k, v);
    }
    assert_eq!(db.recovery_report().redo.pages_left, 0);
    assert_eq!(all(&db, &table), rows);
    assert_sound(&db);
}

#[test]
fn what_does_not_fit_into_memory_is_redone_before_the_answer() {
    let (bed, rows) = crashed(&quiet());
    for bytes in [0, 4 << 10, 30 << 10] {
        let options = quiet().tuning(|tuning| tuning.recovery_bytes(bytes));
        let (db, table) = opened(&options, &bed.duplicate());
        let report = db.recovery_report();
        assert!(report.redone > 0, "{report:?}");
        assert!(report.redo.pages_pending <= bytes as u64 / 128, "{report:?}");
        assert!(bytes == 0 || report.redo.pages_pending > 0, "{report:?}");
        assert_eq!(all(&db, &table), rows, "{bytes} bytes");
        assert_sound(&db);
    }
}

#[test]
fn all_of_it_comes_before_the_answer_if_it_is_asked_for() {
    let (bed, rows) = crashed(&quiet());
    let (db, table) = opened(&quiet().tuning(|tuning| tuning.eager_recovery(true)), &bed);
    let report = db.recovery_report();
    assert!(
        report.complete && report.losers == 2 && report.losers_left == 0 && report.redone > 300,
        "{report:?}"
    );
    assert_eq!(report.redo.pages_left, 0);
    assert_eq!(db.step().expect("a step"), Progress::Worked, "of maintenance");
    assert_eq!(all(&db, &table), rows);
    assert_sound(&db);
}

/// A recovery that is never completed is begun again and again, from the same place.
#[test]
fn crashes_one_after_the_other_find_the_same_log_and_in_the_end_recovery_is_completed_first() {
    let (mut bed, mut rows) = crashed(&quiet());
    for life in 0u32..18 {
        let (db, table) = opened(&quiet(), &bed);
        let report = db.recovery_report();
        assert_eq!(report.losers, 2, "life {life}: {report:?}");
        assert_eq!(report.complete, life == 17, "life {life}: {report:?}");
        let (k, v) = (key(life * 100), value(life, 3));
        db.transact(|tx| tx.put(&table, &k, &v).map(drop)).expect("committed");
        rows.insert(k, v);
        let left = bed.duplicate();
        drop((table, db));
        bed = left;
    }
    let (db, table) = opened(&quiet(), &bed);
    assert_eq!(all(&db, &table), rows);
    assert_sound(&db);
}

/// Finding the log's end reads it; analysis has it from memory, as far as the budget goes.
#[test]
fn the_log_is_read_once_if_it_fits_into_memory() {
    let (bed, rows) = crashed(&quiet());
    let (db, table) = opened(&quiet(), &bed.duplicate());
    let report = db.recovery_report();
    assert!(report.scan.log_reads > 1 && report.records > 400, "{report:?}");
    assert_eq!(report.analysis.log_reads, 0, "{report:?}");
    assert_eq!(all(&db, &table), rows);
    drop((db, table));

    let small = quiet().tuning(|tuning| tuning.recovery_bytes(16 << 10));
    let (db, table) = opened(&small, &bed);
    let report = db.recovery_report();
    assert!(report.analysis.log_reads > 0, "{report:?}");
    assert_eq!(all(&db, &table), rows);
    assert_sound(&db);
}

/// Takes the checkpoint that is due: returns the log's end before it, and where redo would start
/// after it.
fn after_a_checkpoint(options: &Options) -> (firndb_base::Lsn, firndb_base::Lsn) {
    let bed = Bed::new(1);
    let options = options.clone().tuning(|tuning| tuning.checkpoint_log_bytes(256 << 10));
    let db = options.create_on(bed.plain()).expect("created");
    let table = db.create_table("t").expect("created");
    let mut checkpoints = 0;
    for i in 0.. {
        let (last, end) = (db.statistics().checkpoint.0, db.statistics().log_end);
        while db.step().expect("works") == Progress::Worked {}
        if db.statistics().checkpoint.0 != last {
            checkpoints += 1;
        }
        if checkpoints == 3 {
            return (end, db.statistics().checkpoint.1);
        }
        db.transact(|tx| tx.put(&table, &key(i % 300), &value(i, 1)).map(drop)).expect("committed");
    }
    unreachable!("a checkpoint becomes due");
}

#[test]
fn a_checkpoint_into_a_flash_cache_leaves_nothing_to_redo_and_one_without_an_interval() {
    let (end, redo_start) = after_a_checkpoint(&caches::roomy(quiet()).cache(|cache| cache.bytes(4 << 20)));
    assert!(redo_start >= end, "redo would start at {redo_start}, and {end} was the end before");
    for options in [quiet(), caches::through(quiet())] {
        let (end, redo_start) = after_a_checkpoint(&options);
        assert!(redo_start.0 + (200 << 10) < end.0, "a page changed all the time is written once in two");
    }
}
