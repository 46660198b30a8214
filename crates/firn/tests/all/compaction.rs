//! Compaction leaves what the database holds, and no more space than that needs.

use firndb::device::{Device, MemoryDevice};
use firndb::{
    CompactProgress, Database, Deltas, Devices, Direction, ErrorKind, KeyRange, Options, Progress, Table,
};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

mod page_numbers;

const PAGE: usize = 1024;

fn devices() -> Devices {
    let device = |name: &str| Arc::new(MemoryDevice::new(name)) as Arc<dyn Device>;
    Devices {
        superblock: device("superblock"),
        logs: vec![device("log")],
        store: device("store"),
        store_others: Vec::new(),
        cache: None,
    }
}

fn options() -> Options {
    let options = Options::new().page_size(PAGE).buffer_bytes(1 << 20).background_threads(false);
    options.log(|log| log.devices(1).bytes(8 << 20))
}

fn key(number: u32) -> [u8; 4] {
    number.wrapping_mul(0x9E37_79B1).to_be_bytes()
}

/// A database of which nine in ten rows were deleted; and the rows that are left. The background
/// has done nothing about it.
fn sparse(db: &Database, rows: u32) -> (Table, BTreeMap<Vec<u8>, Vec<u8>>) {
    let table = db.create_table("t").expect("a table");
    let mut left = BTreeMap::new();
    let value = |number: u32| vec![number as u8; 200];
    for from in (0..rows).step_by(500) {
        db.transact(|tx| (from..from + 500).try_for_each(|i| tx.put(&table, &key(i), &value(i)).map(drop)))
            .expect("committed");
    }
    db.checkpoint().expect("a checkpoint");
    for from in (0..rows).step_by(500) {
        db.transact(|tx| {
            let gone = (from..from + 500).filter(|i| i % 10 != 3);
            gone.into_iter().try_for_each(|i| tx.delete(&table, &key(i)).map(drop))
        })
        .expect("committed");
    }
    (0..rows).filter(|i| i % 10 == 3).for_each(|i| _ = left.insert(key(i).to_vec(), value(i)));
    (table, left)
}

fn rows(db: &Database, table: &Table) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut tx = db.snapshot();
    let mut cursor = tx.scan(table, KeyRange::all(), Direction::Forward);
    while let Some((key, value)) = cursor.next(&mut tx).expect("a row") {
        found.insert(key.to_vec(), value.to_vec());
    }
    found
}

fn all(_: CompactProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Cause: two compactions emptied groups at once, and one that ended opened what the other had
/// closed. Effect: neither came to an end while the other ran.
#[test]
fn a_second_compaction_is_refused_while_one_runs() {
    let db = options().create_on(devices()).expect("created");
    let (table, left) = sparse(&db, 30_000);
    let (mut refused, mut is_moving) = (0, false);
    let report = db.compact(&mut |at| {
        is_moving |= matches!(at, CompactProgress::Moving(..));
        std::thread::scope(|scope| {
            let second = scope.spawn(|| db.compact(&mut all));
            let error = second.join().expect("no panic").expect_err("one runs");
            assert_eq!(error.kind(), ErrorKind::InUse, "{error}");
        });
        assert_eq!(db.compact(&mut all).expect_err("one runs").kind(), ErrorKind::InUse);
        refused += 1;
        ControlFlow::Continue(())
    });
    let report = report.expect("compacted");
    assert!(report.complete && report.groups_emptied > 0 && is_moving && refused > 10, "{report:?}");
    let again = db.compact(&mut all).expect("the first has ended");
    assert_eq!((again.groups_emptied, again.bytes.0), (0, again.bytes.1), "nothing was left to do");
    // One that is stopped, or fails, lets the next one begin.
    let stopped = db.compact(&mut |_| ControlFlow::Break(())).expect("stopped");
    assert!(!stopped.complete && db.compact(&mut all).expect("compacted").complete);
    assert_eq!(rows(&db, &table), left);
}

#[test]
fn space_of_deleted_rows_comes_back_and_what_is_left_stays() {
    for deltas in [Deltas::Off, Deltas::On] {
        let devices = devices();
        let options = options().tuning(|tuning| tuning.deltas(deltas));
        let db = options.clone().create_on(devices.clone()).expect("created");
        let (table, left) = sparse(&db, 30_000);
        let report = db.compact(&mut all).expect("compacted");
        assert!(report.complete && report.rows_removed > 0, "{report:?}");
        assert!(report.pages.1 * 4 < report.pages.0, "thin pages are merged: {report:?}");
        assert!(report.bytes.1 * 2 < report.bytes.0, "{report:?}");
        let live = report.pages.1 * PAGE as u64;
        let groups = 4032 * PAGE as u64;
        assert!(report.bytes.1 <= (live * 5 / 4).next_multiple_of(groups) + groups, "{report:?}");
        assert!(
            report.pages_renumbered > 0 && report.file_bytes.1 * 100 < report.bytes.1 * 115,
            "{report:?}"
        );
        assert_eq!(rows(&db, &table), left);
        let again = db.compact(&mut all).expect("compacted");
        assert_eq!((again.groups_emptied, again.bytes.0), (0, again.bytes.1), "nothing is left to do");
        drop(table);
        db.close().expect("closed");
        let db = options.open_on(devices).expect("opened");
        assert_eq!(rows(&db, &db.table("t").expect("a table")), left);
        assert_eq!(db.check(&mut |_| {}).expect("checked").faults, 0);
    }
}

/// The background removes rows and merges pages first: what a merge frees is not moved before.
#[test]
fn the_background_moves_no_more_pages_than_are_left() {
    let db = options().create_on(devices()).expect("created");
    let (table, left) = sparse(&db, 60_000);
    let before = db.statistics().store;
    while db.step().expect("a step") == Progress::Worked {}
    let after = db.statistics().store;
    assert!(after.groups_emptied > 0 && after.places < before.places, "{before:?} {after:?}");
    let moved = after.images_moved - before.images_moved;
    assert!(moved <= after.pages_allocated, "{moved} of {} pages", after.pages_allocated);
    assert_eq!(rows(&db, &table), left);
}

#[test]
fn the_plan_says_what_comes_back_and_changes_nothing() {
    let db = options().create_on(devices()).expect("created");
    let (table, left) = sparse(&db, 30_000);
    // Rows and thin pages first: what is left is what the plan is about.
    let mut moving = 0;
    let stopped = db.compact(&mut |at| match at {
        CompactProgress::Moving(..) => {
            moving += 1;
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    });
    assert!(!stopped.expect("stopped").complete && moving == 1);
    let plan = db.compact_plan().expect("a plan");
    assert_eq!(db.compact_plan().expect("a plan"), plan);
    assert!(plan.bytes_copied <= plan.bytes && plan.bytes_back < plan.bytes, "{plan:?}");
    let report = db.compact(&mut all).expect("compacted");
    assert!(report.bytes.0 - report.bytes.1 >= plan.bytes_back, "{plan:?}, {report:?}");
    assert_eq!(plan.file_bytes, report.file_bytes.0);
    assert!(report.file_bytes.0 - report.file_bytes.1 >= plan.file_bytes_back, "{plan:?}, {report:?}");
    assert_eq!(rows(&db, &table), left);
}

#[test]
fn it_runs_beside_transactions() {
    let db = options().background_threads(true).create_on(devices()).expect("created");
    let (table, left) = sparse(&db, 30_000);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut written = 0u32;
            while !stop.load(Ordering::Relaxed) {
                let key = [9, 9, 9, (written % 200) as u8, 1];
                db.transact(|tx| tx.put(&table, &key, &written.to_be_bytes())).expect("committed");
                written += 1;
            }
            written
        });
        let report = db.compact(&mut all).expect("compacted");
        stop.store(true, Ordering::Relaxed);
        // (The background may have done all of it before.)
        assert!(report.complete && report.bytes.1 <= report.bytes.0, "{report:?}");
        assert!(writer.join().expect("no panic") > 0);
    });
    let mut found = rows(&db, &table);
    found.retain(|key, _| key.len() == 4);
    assert_eq!(found, left);
    db.close().expect("closed");
}

#[test]
fn a_database_opened_for_reading_is_not_compacted() {
    let devices = devices();
    options().create_on(devices.clone()).expect("created").close().expect("closed");
    let db = Options::new().open_read_only_on(devices).expect("opened");
    assert_eq!(db.compact(&mut all).expect_err("it would write").kind(), ErrorKind::ReadOnly);
    assert_eq!(db.compact_plan().expect("a plan").bytes_back, 0);
}
