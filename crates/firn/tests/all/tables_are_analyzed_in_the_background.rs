//! Tables are analyzed in the background when a tenth of their rows have changed: in virtual time,
//! by the database's own threads.

use crate::support::bed::Bed;
use firndb::device::{Calls, DeviceErrorKind, Fault, FaultPlan, FaultRule, When};
use firndb::{Database, IndexPart, IndexSpec, Options, SetAside, TableSpec, TableStatistics};
use firndb_base::clock;
use firndb_base::sim::{self, SimOptions};
use firndb_testkit::bytes::{contents, flip};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Rows of most tables here.
const ROWS: u32 = 20_000;
/// Longer than it takes until tables are looked at.
const LONG: Duration = Duration::from_secs(12);
/// Longer than a table rests after its analysis.
const LONGER: Duration = Duration::from_secs(40);

fn options() -> Options {
    Options::new().page_size(1024).buffer_bytes(512 << 10).log(|log| log.devices(1).bytes(8 << 20))
}

fn simulate(run: impl FnOnce() + Send + 'static) {
    let options = SimOptions { time_limit: Duration::from_secs(3600), ..SimOptions::measuring(1, 4) };
    sim::run(options, run).unwrap_or_else(|failure| panic!("{failure}"));
}

fn put(db: &Database, table: &str, rows: std::ops::Range<u32>, what: u8) {
    let table = db.table(table).unwrap();
    for first in rows.clone().step_by(500) {
        db.transact(|tx| {
            (first..rows.end.min(first + 500))
                .try_for_each(|row| tx.put(&table, &row.to_be_bytes(), &[what; 40]).map(drop))
        })
        .unwrap();
    }
}

/// Creates a table with an index.
fn filled(db: &Database, name: &str) {
    let index = IndexSpec::ranges("index", false, vec![IndexPart::Value(0..2)]);
    db.create_table_with(name, TableSpec::raw().with_index(index)).unwrap();
    put(db, name, 0..ROWS, 1);
}

fn statistics(db: &Database, table: &str) -> Option<TableStatistics> {
    db.table_statistics(&db.table(table).unwrap()).unwrap()
}

fn when_analyzed(db: &Database, table: &str) -> Option<u64> {
    statistics(db, table).map(|statistics| statistics.unix_us)
}

fn changed(db: &Database, table: &str) -> u64 {
    db.rows_changed(&db.table(table).unwrap()).unwrap()
}

/// Those that [`Database::analyze`] makes now are the same, but for the time.
fn assert_as_analyzed(db: &Database, table: &str) {
    let found = statistics(db, table).expect("analyzed");
    let again = db.analyze(&db.table(table).unwrap()).unwrap();
    assert!(again.unix_us > found.unix_us);
    assert!(TableStatistics { unix_us: found.unix_us, ..again } == found);
}

#[test]
fn a_table_is_analyzed_after_a_tenth_of_its_rows_changed_and_not_before() {
    simulate(|| {
        let db = options().create_on(Bed::new(1).devices()).unwrap();
        filled(&db, "rows");
        clock::sleep(LONG);
        let first = when_analyzed(&db, "rows").expect("one that never was has changed wholly");
        assert_as_analyzed(&db, "rows");
        assert_eq!((statistics(&db, "rows").unwrap().rows, changed(&db, "rows")), (u64::from(ROWS), 0));
        let table = db.table("rows").unwrap();
        let second = when_analyzed(&db, "rows").unwrap();
        assert!(second > first, "by the call");
        // One short of a tenth; what is rolled back does not count.
        put(&db, "rows", 0..1000, 2);
        db.transact(|tx| (1000..1999u32).try_for_each(|row| tx.delete(&table, &row.to_be_bytes()).map(drop)))
            .unwrap();
        let mut tx = db.begin();
        (2000..4000u32).for_each(|row| _ = tx.delete(&table, &row.to_be_bytes()).unwrap());
        tx.rollback().unwrap();
        clock::sleep(LONGER);
        assert_eq!((when_analyzed(&db, "rows"), changed(&db, "rows")), (Some(second), 1999));
        db.transact(|tx| tx.insert(&table, &ROWS.to_be_bytes(), &[3; 40])).unwrap();
        clock::sleep(LONGER);
        assert!(when_analyzed(&db, "rows").unwrap() > second);
        assert_eq!((statistics(&db, "rows").unwrap().rows, changed(&db, "rows")), (19_002, 0));
        assert_as_analyzed(&db, "rows");
        db.close().unwrap();
    });
}

#[test]
fn a_small_table_is_left_alone_and_nothing_is_done_if_it_is_switched_off() {
    simulate(|| {
        let db = options().create_on(Bed::new(1).devices()).unwrap();
        for (name, rows) in [("small", 999), ("enough", 1000)] {
            db.create_table(name).unwrap();
            put(&db, name, 0..rows, 1);
        }
        clock::sleep(LONG);
        assert_eq!((when_analyzed(&db, "small"), changed(&db, "small")), (None, 999));
        assert!(when_analyzed(&db, "enough").is_some());
        let off = options().tuning(|tuning| tuning.analyze_in_background(false));
        let db = off.create_on(Bed::new(1).devices()).unwrap();
        filled(&db, "rows");
        clock::sleep(LONGER);
        assert_eq!((when_analyzed(&db, "rows"), changed(&db, "rows")), (None, u64::from(ROWS)));
    });
}

/// The count is in memory; growth is seen all the same.
#[test]
fn what_a_table_grew_by_before_it_was_opened_counts() {
    simulate(|| {
        let bed = Bed::new(1);
        let off = || options().tuning(|tuning| tuning.analyze_in_background(false));
        let db = off().create_on(bed.devices()).unwrap();
        filled(&db, "rows");
        db.analyze(&db.table("rows").unwrap()).unwrap();
        db.close().unwrap();
        let db = options().open_on(bed.devices()).unwrap();
        let first = when_analyzed(&db, "rows");
        clock::sleep(LONG);
        assert_eq!((when_analyzed(&db, "rows"), changed(&db, "rows")), (first, 0));
        db.close().unwrap();
        let db = off().open_on(bed.devices()).unwrap();
        put(&db, "rows", ROWS..2 * ROWS, 1);
        db.close().unwrap();
        let db = options().open_on(bed.devices()).unwrap();
        assert!(changed(&db, "rows") > u64::from(ROWS) / 2, "{}", changed(&db, "rows"));
        clock::sleep(LONG);
        assert!(when_analyzed(&db, "rows") > first);
        assert_as_analyzed(&db, "rows");
        db.close().unwrap();
    });
}

/// An analysis takes three slices, with rests between them.
const IN_THE_MIDDLE: Duration = Duration::from_millis(10_015);

#[test]
fn a_table_is_dropped_or_the_database_closed_in_the_middle() {
    simulate(|| {
        let bed = Bed::new(1);
        let reported = Arc::new(Mutex::new(Vec::<SetAside>::new()));
        let list = reported.clone();
        let options = options().on_set_aside(move |work| list.lock().unwrap().push(work.clone()));
        let db = options.clone().tuning(|tuning| tuning.analyze_in_background(false));
        let db = db.create_on(bed.devices()).unwrap();
        filled(&db, "a");
        filled(&db, "b");
        db.close().unwrap();
        let db = options.clone().open_on(bed.devices()).unwrap();
        let opened = clock::now();
        clock::sleep(IN_THE_MIDDLE);
        db.drop_table("a").unwrap();
        clock::sleep(LONG);
        assert!(reported.lock().unwrap().is_empty(), "{reported:?}");
        assert!(when_analyzed(&db, "b").is_some(), "others are analyzed");
        put(&db, "b", 0..ROWS, 2);
        db.close().unwrap();
        assert!(opened.elapsed() < LONGER);

        let db = options.clone().open_on(bed.devices()).unwrap();
        db.create_table("c").unwrap();
        put(&db, "c", 0..ROWS, 1);
        drop(db.table("b").unwrap());
        let closing = clock::now();
        db.close().unwrap();
        assert!(closing.elapsed() < Duration::from_secs(1), "{:?}", closing.elapsed());
        let db = options.open_on(bed.devices()).unwrap();
        clock::sleep(IN_THE_MIDDLE);
        db.close().unwrap();
        let db = firndb::Options::new().open_on(bed.devices()).unwrap();
        assert_eq!(when_analyzed(&db, "c"), None);
    });
}

#[test]
fn of_the_tables_that_are_due_the_smallest_is_analyzed_first() {
    simulate(|| {
        let bed = Bed::new(1);
        let off = options().tuning(|tuning| tuning.analyze_in_background(false));
        let db = off.create_on(bed.devices()).unwrap();
        let tables = [("a", 2 * ROWS), ("b", 999), ("c", ROWS), ("d", ROWS / 10)];
        for (name, rows) in tables {
            db.create_table(name).unwrap();
            put(&db, name, 0..rows, 1);
        }
        db.close().unwrap();
        let db = options().open_on(bed.devices()).unwrap();
        clock::sleep(LONG);
        let [a, b, c, d] = tables.map(|(name, _)| when_analyzed(&db, name));
        assert!(d.is_some() && d < c && c < a, "{d:?} {c:?} {a:?}");
        assert_eq!(b, None, "it is not due");
        db.close().unwrap();
    });
}

/// Fails the reads of the store with these numbers, from now on.
fn fail_reads(plan: &FaultPlan, when: When) {
    let fault = Fault::Fail(DeviceErrorKind::Failed);
    plan.add(FaultRule { calls: Calls::Reads, device: Some("store".to_owned()), when, fault });
}

#[test]
fn a_read_that_fails_is_made_again() {
    for nth in [1, 2, 5, 20, 100, 300] {
        simulate(move || {
            let (bed, plan) = (Bed::new(1), FaultPlan::new(nth));
            let db = options().create_on(bed.devices()).unwrap();
            filled(&db, "rows");
            db.close().unwrap();
            let db = options().open_on(bed.failing(&plan)).unwrap();
            // What else is done after an opening.
            clock::sleep(Duration::from_secs(5));
            fail_reads(&plan, When::Nth(nth));
            clock::sleep(LONGER);
            assert!(plan.fired() > 0, "the read of number {nth} failed");
            let (works, _) = db.work_set_aside();
            assert!(works.is_empty(), "read {nth}: {works:?}");
            assert_as_analyzed(&db, "rows");
        });
    }
}

#[test]
fn damage_is_reported_once_and_the_table_is_left_until_the_next_opening() {
    simulate(|| {
        let bed = Bed::new(1);
        let db = options().create_on(bed.devices()).unwrap();
        filled(&db, "rows");
        db.create_table("other").unwrap();
        put(&db, "other", 0..ROWS, 1);
        db.transact(|tx| tx.put(&db.table("rows")?, &7777u32.to_be_bytes(), b"to be damaged here").map(drop))
            .unwrap();
        db.close().unwrap();
        let wanted = b"to be damaged here";
        let bytes = contents(&*bed.store);
        let places = bytes.windows(wanted.len()).enumerate().filter(|(_, window)| window == wanted);
        let places: Vec<u64> = places.map(|(at, _)| at as u64).collect();
        assert!(!places.is_empty());
        places.iter().for_each(|at| flip(&*bed.store, *at, 0));

        let db = options().open_on(bed.devices()).unwrap();
        clock::sleep(LONGER);
        let (works, count) = db.work_set_aside();
        assert!(count == 1 && works[0].work.contains("analyzing table \"rows\""), "{works:?}");
        assert_eq!(when_analyzed(&db, "rows"), None);
        assert!(when_analyzed(&db, "other").is_some(), "others are analyzed");
        let reads = db.io_counts().store_total().read_ops;
        clock::sleep(10 * LONGER);
        assert_eq!(db.io_counts().store_total().read_ops, reads, "it is not tried again");
        assert_eq!(db.work_set_aside().1, 1);
        assert!(db.analyze(&db.table("rows").unwrap()).is_err());
        db.close().unwrap();

        places.iter().for_each(|at| flip(&*bed.store, *at, 0));
        let db = options().open_on(bed.devices()).unwrap();
        clock::sleep(LONGER);
        assert!(when_analyzed(&db, "rows").is_some());
    });
}
