//! Tables that are created with their rows.

use crate::support::bed::Bed;
use std::ops::ControlFlow;

use firndb::{
    Column, ColumnType, Database, Direction, Error, ErrorKind, IndexPart, IndexSpec, KeyRange, Options,
    PageRecovery, Progress, Schema, TableSpec, Value,
};

use firndb::device::{Calls, DeviceErrorKind, Fault, FaultPlan, FaultRule, When};

type Row = Result<(Vec<u8>, Vec<u8>), Error>;

fn options(recovery: PageRecovery) -> Options {
    let options = Options::new().page_size(4096).buffer_bytes(2 << 20).background_threads(false);
    let options = options.log(|log| log.devices(1).bytes(8 << 20));
    options.tuning(|tuning| tuning.page_recovery(recovery))
}

fn rows(count: u64) -> impl Iterator<Item = Row> {
    (0..count).map(|n| Ok((n.to_be_bytes().to_vec(), value(n))))
}

/// Of a hundred bytes; each thousandth of some pages.
fn value(n: u64) -> Vec<u8> {
    let len = if n % 1000 == 3 { 20_000 } else { 100 };
    [&n.to_le_bytes()[..], &vec![n as u8; len]].concat()
}

fn by_number() -> IndexSpec {
    IndexSpec::ranges("number", true, vec![IndexPart::Value(0..8)])
}

fn settle(db: &Database) {
    let mut idle = 0;
    while idle < 3 {
        idle = if db.step().unwrap() == Progress::Idle { idle + 1 } else { 0 };
    }
}

/// No damage, and no page that belongs to nothing; how many pages there are.
fn assert_clean(db: &Database) -> u64 {
    settle(db);
    let report = db.check(&mut |_| {}).unwrap();
    assert!(report.is_clean() && report.leaked_pages == 0, "{report:?}");
    report.pages
}

fn assert_has(db: &Database, count: u64) {
    let (table, mut tx) = (db.table("t").unwrap(), db.snapshot());
    let mut cursor = tx.scan(&table, KeyRange::all(), Direction::Forward);
    for n in 0..count {
        let found = cursor.next(&mut tx).unwrap().map(|(key, value)| (key.to_vec(), value.to_vec()));
        assert_eq!(found, Some((n.to_be_bytes().to_vec(), value(n))), "row {n}");
    }
    assert!(cursor.next(&mut tx).unwrap().is_none());
    let (index, mut key, mut row) = (table.index("number").unwrap(), Vec::new(), Vec::new());
    for n in (0..count).step_by(97) {
        assert!(tx.get_by_index(&index, &n.to_le_bytes(), &mut key, &mut row).unwrap());
        assert!(key == n.to_be_bytes() && row == value(n));
    }
}

#[test]
fn a_table_is_loaded_whole_and_each_page_written_once() {
    const COUNT: u64 = 40_000;
    for recovery in [PageRecovery::Shadow, PageRecovery::Log, PageRecovery::Adaptive] {
        let disks = Bed::new(1);
        let db = options(recovery).create_on(disks.devices()).unwrap();
        db.checkpoint().unwrap();
        let before = db.statistics();
        db.load_table("t", TableSpec::raw().with_index(by_number()), rows(COUNT)).unwrap();
        db.checkpoint().unwrap();
        let (after, pages) = (db.statistics(), assert_clean(&db));
        let io = after.io.since(&before.io);
        let (log, store) = (io.logs[0].writes.bytes, io.store.writes.bytes);
        let bytes = pages * 4096;
        assert!(store < bytes * 110 / 100, "{recovery:?}: {store} bytes for {bytes} of pages");
        if recovery == PageRecovery::Shadow {
            assert!(log < bytes / 10, "{log} bytes of log for {bytes} of pages");
            assert!(after.txn.shadows > COUNT / 40, "{}", after.txn.shadows);
        }
        assert_has(&db, COUNT);
        // It is a table like any other.
        let table = db.table("t").unwrap();
        db.transact(|tx| tx.put(&table, &7u64.to_be_bytes(), &value(7)).map(drop)).unwrap();
        db.transact(|tx| tx.delete(&table, &(COUNT - 1).to_be_bytes()).map(drop)).unwrap();
        drop((table, db));
        let db = options(recovery).open_on(disks.duplicate().devices()).unwrap();
        assert_has(&db, COUNT - 1);
        assert_clean(&db);
    }
}

#[test]
fn what_cannot_be_loaded_leaves_no_table() {
    for recovery in [PageRecovery::Shadow, PageRecovery::Log] {
        let db = options(recovery).create_on(Bed::new(1).devices()).unwrap();
        db.create_table("other").unwrap();
        let empty = assert_clean(&db);
        let spec = || TableSpec::raw().with_index(by_number());
        let refused = |rows: &mut dyn Iterator<Item = Row>, kind: ErrorKind, words: &str| {
            let error = db.load_table("t", spec(), rows).map(drop).unwrap_err();
            assert!(error.kind() == kind && error.to_string().contains(words), "{error}");
            assert_eq!(db.table("t").map(drop).unwrap_err().kind(), ErrorKind::NotFound);
            assert_eq!(assert_clean(&db), empty, "{words}");
        };
        let again = |n: u64| rows(5000).chain([Ok((n.to_be_bytes().to_vec(), value(9000)))]);
        refused(&mut again(4999), ErrorKind::BadArgument, "ascend strictly");
        refused(&mut again(3), ErrorKind::BadArgument, "ascend strictly");
        let same = rows(5000).chain([Ok((9000u64.to_be_bytes().to_vec(), value(17)))]);
        refused(&mut { same }, ErrorKind::Duplicate, "in unique index \"number\"");
        let broken = db.table("missing").map(drop).unwrap_err();
        let message = broken.to_string();
        let failing = rows(5000).chain([Err(broken)]);
        refused(&mut { failing }, ErrorKind::NotFound, &message);
        let error = db.load_table("other", spec(), rows(5)).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Exists);
    }
}

/// Rows are loaded as if they had always been there, which an older snapshot must not see.
#[test]
fn a_transaction_from_before_cannot_use_the_table() {
    let db = options(PageRecovery::Shadow).create_on(Bed::new(1).devices()).unwrap();
    let other = db.create_table("other").unwrap();
    let (mut old, mut unused) = (db.begin(), db.begin());
    assert!(old.get(&other, b"k").unwrap().is_none());
    let table = db.load_table("t", TableSpec::raw().with_index(by_number()), rows(100)).unwrap();
    let index = table.index("number").unwrap();
    for error in [
        old.get(&table, &1u64.to_be_bytes()).map(drop).unwrap_err(),
        old.put(&table, b"k", &value(200)).map(drop).unwrap_err(),
        old.scan(&table, KeyRange::all(), Direction::Forward).next(&mut old).map(drop).unwrap_err(),
        old.get_by_index(&index, &1u64.to_le_bytes(), &mut Vec::new(), &mut Vec::new())
            .map(drop)
            .unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Stale, "{error}");
        assert!(error.to_string().contains("begin a new one"), "{error}");
    }
    assert!(old.get(&other, b"k").unwrap().is_none(), "it goes on otherwise");
    old.commit().unwrap();
    // Its snapshot is taken by its first read.
    assert!(unused.get(&table, &1u64.to_be_bytes()).unwrap().is_some());
    assert!(db.snapshot().get(&table, &1u64.to_be_bytes()).unwrap().is_some());
}

#[test]
fn typed_rows_are_loaded_by_their_values() {
    let db = options(PageRecovery::Adaptive).create_on(Bed::new(1).devices()).unwrap();
    let columns = vec![Column::new("id", ColumnType::I64), Column::new("name", ColumnType::Text)];
    let schema = Schema::with_key(columns, &["id"]).unwrap();
    let row = |n: i64| Ok(vec![Value::I64(n), Value::Text(format!("name {n}"))]);
    let table = db.load_typed("t", TableSpec::typed(schema.clone()), (-500..500).map(row)).unwrap();
    let typed = table.typed().unwrap();
    let mut found = Vec::new();
    assert!(typed.get(&mut db.snapshot(), &[(-3i64).into()], &mut found).unwrap());
    assert_eq!(found, [Value::I64(-3), Value::Text("name -3".into())]);
    assert_eq!(
        db.load_typed("u", TableSpec::raw(), std::iter::empty()).map(drop).unwrap_err().kind(),
        ErrorKind::BadArgument
    );
    let short = db.load_typed("u", TableSpec::typed(schema), [Ok(vec![Value::I64(1)])]).map(drop);
    assert_eq!(short.unwrap_err().kind(), ErrorKind::BadArgument);
    assert_clean(&db);
}

/// Cause: parts of large values were passed over with their unknown tree, which is cleared whole
/// but frees no page that its rows name. Effect: a crash within a load leaked all of these.
#[test]
fn a_crash_within_a_load_leaves_nothing() {
    for recovery in [PageRecovery::Shadow, PageRecovery::Log] {
        let disks = Bed::new(1);
        let db = options(recovery).create_on(disks.devices()).unwrap();
        let empty = assert_clean(&db);
        let mut images = Vec::new();
        let watched = rows(20_000).enumerate().map(|(n, row)| {
            if n == 9_000 || n == 15_000 {
                db.checkpoint().unwrap();
                images.push(disks.duplicate());
            }
            row
        });
        db.load_table("t", TableSpec::raw(), watched).unwrap();
        for image in images {
            let db = options(recovery).open_on(image.devices()).unwrap();
            db.finish_recovery().unwrap();
            assert!(db.table_names().is_empty());
            assert_eq!(assert_clean(&db), empty, "{recovery:?}");
        }
    }
}

/// Cause: the trees were known to what removes deleted rows. Effect: it met leaves that had no
/// content yet, and an intact database said that it was damaged.
#[test]
fn background_work_leaves_a_table_alone_that_is_being_loaded() {
    let db = options(PageRecovery::Shadow).create_on(Bed::new(1).devices()).unwrap();
    let beside = db.create_table("beside").unwrap();
    let watched = rows(20_000).enumerate().map(|(n, row)| {
        if n == 15_000 {
            db.transact(|tx| tx.put(&beside, b"k", b"v").map(drop)).unwrap();
            db.transact(|tx| tx.delete(&beside, b"k").map(drop)).unwrap();
            db.compact(&mut |_| ControlFlow::Continue(())).unwrap();
            settle(&db);
            assert!(db.check(&mut |_| {}).unwrap().is_clean());
        }
        row
    });
    db.load_table("t", TableSpec::raw().with_index(by_number()), watched).unwrap();
    assert_has(&db, 20_000);
    let before = assert_clean(&db);
    // Now it is known to it.
    let table = db.table("t").unwrap();
    db.transact(|tx| (0..5000u64).try_for_each(|n| tx.delete(&table, &n.to_be_bytes()).map(drop))).unwrap();
    db.compact(&mut |_| ControlFlow::Continue(())).unwrap();
    assert!(assert_clean(&db) < before - 50);
}

/// Cause: entries were only held to what fits a page. Effect: their before-images did not fit the
/// undo tree, so checkpoints failed while a transaction had one.
#[test]
fn rows_and_entries_are_as_long_as_inserted_ones_at_most() {
    let db = options(PageRecovery::Shadow).create_on(Bed::new(1).devices()).unwrap();
    let long = IndexSpec::ranges("long", true, vec![IndexPart::Value(0..400)]);
    let row = |key: usize| Ok((vec![7; key], vec![1; 400]));
    let limit = db.max_key_len();
    let spec = || TableSpec::raw().with_index(long.clone());
    let of_inserts = |name: &str, key: usize| {
        let table = db.create_table_with(name, spec()).unwrap();
        db.transact(|tx| tx.insert(&table, &vec![7; key], &[1; 400]))
    };
    for key in [100, limit - 40, limit - 5, limit, limit + 1] {
        let inserted = of_inserts(&format!("inserted {key}"), key).map_err(|error| error.kind());
        let loaded = db.load_table(&format!("loaded {key}"), spec(), [row(key)]);
        assert_eq!(loaded.map(drop).map_err(|error| error.kind()), inserted, "keys of {key} bytes");
    }
    assert_clean(&db);
}

/// The database's threads help: several writes are under way when one of them fails.
#[test]
fn a_write_of_several_that_fails_leaves_all_that_was_acknowledged_and_nothing_else() {
    let threads = || options(PageRecovery::Shadow).background_threads(true);
    let (mut failed, long) = (0, vec![7; 2 << 20]);
    for nth in [0, 1, 3, 6, 10, 15, 25, 40] {
        for kind in [DeviceErrorKind::Failed, DeviceErrorKind::NoSpace] {
            let (bed, plan) = (Bed::new(1), FaultPlan::new(nth));
            let db = threads().create_on(bed.failing(&plan)).unwrap();
            let values = db.create_table("values").unwrap();
            let (calls, device) = (Calls::Writes, Some("store".to_owned()));
            plan.add(FaultRule { calls, device, when: When::Nth(nth), fault: Fault::Fail(kind) });
            let put = db.transact(|tx| tx.put(&values, b"long", &long).map(drop));
            let loaded = db.load_table("t", TableSpec::raw().with_index(by_number()), rows(30_000));
            failed += usize::from(put.is_err()) + usize::from(loaded.is_err());
            drop(values);
            let is_loaded = loaded.is_ok();
            drop((loaded, db));
            let db = threads().open_on(bed.devices()).unwrap();
            let values = db.table("values").unwrap();
            let found = db.snapshot().get(&values, b"long").unwrap();
            assert!(found == put.is_ok().then(|| long.clone()), "{nth} {kind:?}: {put:?}");
            assert_eq!(db.table("t").is_ok(), is_loaded, "{nth} {kind:?}");
            if is_loaded {
                assert_has(&db, 30_000);
            }
            drop(values);
            let report = db.check(&mut |_| {}).unwrap();
            assert!(report.is_clean(), "{report:?}");
        }
    }
    assert!(failed > 3, "{failed}");
}

/// The leaves of its trees may lack content, and nothing else leads to their pages.
#[test]
fn a_check_beside_it_finds_its_pages() {
    for recovery in [PageRecovery::Log, PageRecovery::Shadow] {
        let dir = tempfile::tempdir().unwrap();
        let db = options(recovery).open(dir.path().join("db")).unwrap();
        let checked = rows(9000).inspect(|row| {
            let number = u64::from_be_bytes(row.as_ref().unwrap().0[..].try_into().unwrap());
            if number % 4000 == 3999 {
                let report = db.check(&mut |_| {}).unwrap();
                assert!(report.is_clean() && report.leaked_pages == 0, "{number}: {report:?}");
            }
        });
        db.load_table("t", TableSpec::raw().with_index(by_number()), checked).unwrap();
        assert_has(&db, 9000);
        assert_clean(&db);
    }
}
