//! What is locked, by which level, and for how long.

use crate::isolation::script::two_rows;
use crate::isolation::support::{LEVELS, LIMIT, even_numbers, impatient, is_timeout, key, serializable};
use crate::support::small::{busy, create, quiet, scan};
use firndb::{
    Direction, Error, ErrorKind, IndexPart, IndexSpec, Isolation, KeyRange, Table, TableSpec, Transaction,
    TransactionOptions,
};
use firndb_testkit::watchdog::within;
use std::ops::Bound;

#[test]
fn readers_do_not_wait_for_writers_unless_they_are_serializable() {
    let (db, table) = two_rows();
    let mut writer = db.begin();
    writer.put(&table, b"x", b"11").expect("free");
    writer.delete(&table, b"y").expect("free");
    writer.insert(&table, b"z", b"30").expect("free");
    writer.get_for_update(&table, b"w").expect("free");
    let waits = db.statistics().txn.lock_waits;
    for level in [Isolation::ReadCommitted, Isolation::Snapshot] {
        let mut tx = impatient(&db, level);
        assert_eq!(tx.get(&table, b"x"), Ok(Some(b"10".to_vec())));
        assert_eq!(tx.get(&table, b"y"), Ok(Some(b"20".to_vec())));
        assert_eq!(tx.get(&table, b"z"), Ok(None));
        assert_eq!(tx.get(&table, b"w"), Ok(None));
        for direction in [Direction::Forward, Direction::Backward] {
            assert_eq!(scan(&mut tx, &table, KeyRange::all(), direction).len(), 2);
            let index = table.index("value").expect("there");
            let mut cursor = tx.scan_index(&index, KeyRange::all(), direction);
            let mut found = 0;
            while cursor.next(&mut tx).expect("no wait").is_some() {
                found += 1;
            }
            assert_eq!(found, 2);
        }
        tx.commit().expect("committed");
    }
    assert_eq!(db.statistics().txn.lock_waits, waits, "no transaction waited");
    is_timeout(serializable(&db).get(&table, b"x"));
    is_timeout(serializable(&db).get(&table, b"z"));
    is_timeout(serializable(&db).get(&table, b"w"));
    writer.commit().expect("committed");
    assert_eq!(serializable(&db).get(&table, b"y"), Ok(None));
}

#[test]
fn writers_do_not_wait_for_readers_unless_they_are_serializable() {
    let (db, table) = two_rows();
    for level in [Isolation::ReadCommitted, Isolation::Snapshot] {
        let mut reader = db.begin_with(TransactionOptions { isolation: level, ..Default::default() });
        reader.get(&table, b"x").expect("readable");
        scan(&mut reader, &table, KeyRange::all(), Direction::Forward);
        let mut writer = impatient(&db, Isolation::Snapshot);
        writer.put(&table, b"x", b"11").expect("free");
        writer.put(&table, b"a", b"12").expect("free");
        writer.commit().expect("committed");
    }
}

#[test]
fn a_serializable_scan_locks_its_range_and_what_lies_far_from_it_stays_free() {
    let db = create(quiet());
    let table = even_numbers(&db, 2000);
    for direction in [Direction::Forward, Direction::Backward] {
        let mut reader = serializable(&db);
        let range = KeyRange::new(Bound::Included(b"0500"), Bound::Excluded(b"0700"));
        assert_eq!(scan(&mut reader, &table, range, direction).len(), 100);
        for number in 500..700 {
            let mut writer = impatient(&db, Isolation::Snapshot);
            is_timeout(writer.put(&table, &key(number), b"x"));
            is_timeout(writer.insert(&table, &[key(number), b"x".to_vec()].concat(), b"x"));
            is_timeout(writer.delete(&table, &key(number)));
            is_timeout(writer.get_for_update(&table, &key(number)));
        }
        for number in (0..400).chain(800..2000) {
            let mut writer = impatient(&db, Isolation::Snapshot);
            writer.put(&table, &key(number), b"x").unwrap_or_else(|error| panic!("{number}: {error}"));
            writer.rollback().expect("rolled back");
        }
        // Another reader of the range is no hindrance.
        assert_eq!(serializable(&db).get(&table, &key(600)).expect("shared").map(|row| row.len()), Some(40));
        reader.commit().expect("committed");
        let mut writer = impatient(&db, Isolation::Snapshot);
        writer.put(&table, &key(601), b"x").expect("free again");
    }
}

#[test]
fn a_serializable_scan_that_was_not_finished_locks_what_it_has_read() {
    let db = create(quiet());
    let table = even_numbers(&db, 2000);
    for (direction, read, far) in [(Direction::Forward, 1, 1999), (Direction::Backward, 1997, 1)] {
        let mut reader = serializable(&db);
        let mut cursor = reader.scan(&table, KeyRange::all(), direction);
        for _ in 0..2 {
            cursor.next(&mut reader).expect("readable").expect("a row");
        }
        let mut writer = impatient(&db, Isolation::Snapshot);
        is_timeout(writer.insert(&table, &key(read), b"x"));
        writer.insert(&table, &key(far), b"x").expect("no transaction has been there");
    }
}

#[test]
fn serializable_reads_lock_what_is_not_there() {
    let db = create(quiet());
    let spec = TableSpec::raw().with_index(IndexSpec::ranges("unique", true, vec![IndexPart::Value(0..2)]));
    let table = db.create_table_with("t", spec).expect("created");
    let index = table.index("unique").expect("there");
    let others = |key: &[u8], value: &[u8]| impatient(&db, Isolation::Snapshot).put(&table, key, value);

    // A key, in an empty table, and then beside others.
    for _ in 0..2 {
        let mut reader = serializable(&db);
        assert_eq!(reader.get(&table, b"k"), Ok(None));
        is_timeout(others(b"k", b"11"));
        others(b"j", b"11").expect("another key");
        // An empty range, in both directions.
        for (low, high, direction) in [(b"m", b"p", Direction::Forward), (b"r", b"t", Direction::Backward)] {
            let range = KeyRange::new(Bound::Included(low), Bound::Excluded(high));
            assert_eq!(scan(&mut reader, &table, range, direction), []);
        }
        is_timeout(others(b"n", b"11"));
        is_timeout(others(b"m", b"11"));
        is_timeout(others(b"r", b"11"));
        is_timeout(others(b"s", b"11"));
        others(b"z", b"11").expect("outside");
        // A value of a unique index that no row has.
        let (mut primary, mut row) = (Vec::new(), Vec::new());
        assert_eq!(reader.get_by_index(&index, b"77", &mut primary, &mut row), Ok(false));
        is_timeout(others(b"z", b"77"));
        reader.commit().expect("committed");
        db.transact(|tx| tx.put(&table, b"k0", b"22")).expect("committed");
    }

    // Statements that found nothing to do have read.
    let mut reader = serializable(&db);
    assert_eq!(reader.delete(&table, b"k"), Ok(false));
    assert_eq!(reader.update(&table, b"l", b"33"), Ok(false));
    assert_eq!(reader.insert(&table, b"k0", b"44").expect_err("there").kind(), ErrorKind::Duplicate);
    assert_eq!(reader.insert(&table, b"a", b"22").expect_err("taken").kind(), ErrorKind::Duplicate);
    is_timeout(others(b"k", b"11"));
    is_timeout(others(b"l", b"11"));
    is_timeout(impatient(&db, Isolation::Snapshot).delete(&table, b"k0"));
    reader.rollback().expect("rolled back");
    others(b"l", b"11").expect("free again");
}

#[test]
fn a_row_read_for_update_is_locked_even_if_it_is_not_there() {
    for level in LEVELS {
        let (db, table) = two_rows();
        let mut holder = db.begin_with(TransactionOptions { isolation: level, ..Default::default() });
        assert_eq!(holder.get_for_update(&table, b"a"), Ok(None));
        assert_eq!(holder.get_for_update(&table, b"x"), Ok(Some(b"10".to_vec())));
        for other in LEVELS {
            for key in [b"a", b"x"] {
                let mut tx = impatient(&db, other);
                is_timeout(tx.put(&table, key, b"11"));
                is_timeout(tx.delete(&table, key));
                is_timeout(tx.get_for_update(&table, key));
            }
            impatient(&db, other).put(&table, b"b", b"11").expect("free");
        }
        holder.insert(&table, b"a", b"01").expect("its own");
        holder.commit().expect("committed");
        assert_eq!(impatient(&db, level).get_for_update(&table, b"a"), Ok(Some(b"01".to_vec())));
    }
}

#[test]
fn a_cursor_for_update_locks_the_rows_it_answers() {
    let db = create(quiet());
    let table = even_numbers(&db, 20);
    let mut holder = db.begin();
    let mut cursor = holder.scan(&table, KeyRange::all(), Direction::Forward).for_update();
    for _ in 0..3 {
        cursor.next(&mut holder).expect("readable").expect("a row");
    }
    for number in [0, 2, 4] {
        is_timeout(impatient(&db, Isolation::Snapshot).put(&table, &key(number), b"x"));
    }
    impatient(&db, Isolation::Snapshot).put(&table, &key(6), b"x").expect("not answered yet");
}

#[test]
fn rows_given_back_at_a_savepoint_can_be_written_by_others() {
    let (db, table) = two_rows();
    for (level, free) in LEVELS.into_iter().zip([true, true, false]) {
        let mut tx = impatient(&db, level);
        tx.put(&table, b"a", b"01").expect("free");
        let savepoint = tx.savepoint();
        tx.put(&table, b"x", b"11").expect("free");
        tx.get_for_update(&table, b"y").expect("free");
        tx.rollback_to(&savepoint).expect("rolled back");
        let mut other = impatient(&db, Isolation::Snapshot);
        assert_eq!(other.put(&table, b"x", b"12").is_ok(), free, "{level:?}");
        is_timeout(other.put(&table, b"y", b"22"));
        is_timeout(other.put(&table, b"a", b"02"));
        other.rollback().expect("rolled back");
        // Its own writes are not in its way.
        tx.put(&table, b"x", b"13").expect("free");
        tx.rollback().expect("rolled back");
    }
}

#[test]
fn thousands_of_locks_become_one_and_still_lock() {
    let db = create(quiet().page_size(4096).buffer_bytes(4 << 20));
    let table = even_numbers(&db, 2);
    let mut reader = serializable(&db);
    for number in 0..5000u32 {
        reader.get(&table, &number.to_be_bytes()).expect("readable");
    }
    is_timeout(impatient(&db, Isolation::Snapshot).insert(&table, &77u32.to_be_bytes(), b"x"));
    is_timeout(impatient(&db, Isolation::Snapshot).insert(&table, b"anything", b"x"));
    // Writes of its own, and going on reading, are possible.
    reader.insert(&table, &77u32.to_be_bytes(), b"x").expect("its own");
    assert_eq!(reader.get(&table, &77u32.to_be_bytes()), Ok(Some(b"x".to_vec())));
    reader.commit().expect("committed");
    impatient(&db, Isolation::Snapshot).insert(&table, &78u32.to_be_bytes(), b"x").expect("free");
}

/// A commit of a transaction that only read is acknowledged when what it saw is durable. A
/// serializable one once was at once.
#[test]
fn readers_wait_until_what_they_saw_is_durable() {
    for level in LEVELS {
        let (db, table) = two_rows();
        let mut writer = db.begin();
        writer.put(&table, b"x", b"11").expect("free");
        let commit = writer.commit_async().expect("ordered");
        type Read = fn(&mut Transaction, &Table) -> Result<(), Error>;
        let reads: [Read; 5] = [
            |tx, table| tx.get(table, b"x").map(|_| ()),
            |tx, table| tx.get_for_update(table, b"x").map(|_| ()),
            |tx, table| tx.scan(table, KeyRange::all(), Direction::Forward).next(tx).map(|_| ()),
            |tx, table| tx.delete(table, b"none").map(|_| ()),
            |tx, table| tx.insert(table, b"x", b"12").map(|_| ()).or(Ok(())),
        ];
        for (which, read) in reads.into_iter().enumerate() {
            let mut reader = db.begin_with(TransactionOptions { isolation: level, ..Default::default() });
            read(&mut reader, &table).expect("readable");
            let seen = reader.commit_async().expect("ordered").lsn();
            assert_eq!(seen, commit.lsn(), "read {which} under {level:?}");
        }
    }
}

/// A checkpoint in the middle of a table's creation once made it panic.
#[test]
fn tables_are_created_while_checkpoints_are_taken() {
    within(LIMIT, || {
        let db = create(busy());
        let table = db.create_table("t").expect("created");
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for at in 0..150 {
                    db.create_table(&format!("table {at}")).expect("created");
                }
                done.store(true, std::sync::atomic::Ordering::SeqCst);
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(std::sync::atomic::Ordering::SeqCst) {
                        db.transact(|tx| tx.put(&table, b"k", &[b'v'; 50]).map(|_| ())).expect("committed");
                        db.checkpoint().expect("a checkpoint");
                    }
                });
            }
        });
        assert_eq!(db.table_names().len(), 151);
    });
}
