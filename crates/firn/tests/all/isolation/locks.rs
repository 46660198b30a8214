//! Locks: which transaction waits for which, how waits end, and which never waits.

use crate::histories_support::{busy, create, quiet, scan, within};
use crate::isolation::script::{End, run, run_on, two_rows};
use firndb::{
    CancelToken, Database, Direction, Error, ErrorKind, IndexPart, IndexSpec, Isolation, KeyRange, Table,
    TableSpec, Transaction, TransactionOptions,
};
use std::ops::Bound;
use std::time::{Duration, Instant};

const LEVELS: [Isolation; 3] = [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable];
const LIMIT: Duration = Duration::from_secs(60);

/// A transaction that does not wait at all: a lock that is not free is a timeout.
fn impatient(db: &Database, isolation: Isolation) -> Transaction {
    db.begin_with(TransactionOptions { isolation, lock_deadline: Some(Duration::ZERO), ..Default::default() })
}

fn serializable(db: &Database) -> Transaction {
    impatient(db, Isolation::Serializable)
}

fn is_timeout<T: std::fmt::Debug>(answer: Result<T, Error>) {
    assert_eq!(answer.expect_err("it is locked").kind(), ErrorKind::Timeout);
}

fn key(number: u32) -> Vec<u8> {
    format!("{number:04}").into_bytes()
}

/// A table with the even numbers below `end`, in many leaves.
fn even_numbers(db: &Database, end: u32) -> Table {
    let table = db.create_table("even").expect("created");
    db.transact(|tx| (0..end).step_by(2).try_for_each(|number| tx.insert(&table, &key(number), &[b'.'; 40])))
        .expect("committed");
    table
}

#[test]
fn a_deadlock_has_one_victim_and_the_others_go_on() {
    for level in LEVELS {
        let outcome = run(level, "1 put x 11; 2 put y 22; 1 put y 21; 2 put x 12; 1 commit; 2 commit");
        assert!(outcome.waited(1, "put y 21"), "{outcome:?}");
        assert_eq!(
            outcome.ends[&2],
            End::Refused(ErrorKind::Deadlock),
            "the transaction that closes the circle is the victim"
        );
        assert_eq!(outcome.ends[&1], End::Committed);
        assert_eq!(outcome.rows, "x=11 y=21");
        let outcome = run(
            level,
            "1 lock x; 2 lock y; 3 lock z; 1 lock y; 2 lock z; 3 lock x; 2 put z 30; 1 put y 22; 2 commit; 1 commit",
        );
        assert_eq!(outcome.ends[&3], End::Refused(ErrorKind::Deadlock), "{outcome:?}");
        assert!(outcome.committed(&[1, 2]), "{outcome:?}");
    }
}

#[test]
fn readers_that_both_want_to_write_are_a_deadlock() {
    let outcome =
        run(Isolation::Serializable, "1 get x; 2 get x; 1 put x 11; 2 put x 12; 1 commit; 2 commit");
    assert_eq!(outcome.ends[&2], End::Refused(ErrorKind::Deadlock), "{outcome:?}");
    assert_eq!(outcome.rows, "x=11 y=20");
    // The same by ranges.
    let outcome =
        run(Isolation::Serializable, "1 all; 2 back; 1 insert a 11; 2 insert b 12; 1 commit; 2 commit");
    assert_eq!(outcome.ends[&2], End::Refused(ErrorKind::Deadlock), "{outcome:?}");
    assert_eq!(outcome.rows, "a=11 x=10 y=20");
}

#[test]
fn the_error_of_a_deadlock_names_the_circle_and_transact_runs_the_victim_again() {
    within(LIMIT, || {
        let db = create(busy());
        let table = db.create_table("t").expect("created");
        let (a, b) = (b"a".as_slice(), b"b".as_slice());
        // Rows locked in opposite orders, by as many threads as like.
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let (db, table) = (&db, &table);
                scope.spawn(move || {
                    let (first, second) = if thread % 2 == 0 { (a, b) } else { (b, a) };
                    for _ in 0..40 {
                        db.transact(|tx| {
                            for key in [first, second] {
                                let count = tx.get_for_update(table, key)?.map_or(0, |old| old[0]);
                                std::thread::yield_now();
                                tx.put(table, key, &[count + 1])?;
                            }
                            Ok::<_, Error>(())
                        })
                        .expect("it comes through");
                    }
                });
            }
        });
        let mut tx = db.snapshot();
        assert_eq!(tx.get(&table, a), Ok(Some(vec![160])));
        assert_eq!(tx.get(&table, b), Ok(Some(vec![160])));
        drop(tx);

        let (mut one, mut two) = (db.begin(), db.begin());
        one.put(&table, a, b"1").expect("free");
        two.put(&table, b, b"2").expect("free");
        let id = two.id().expect("it has written");
        let waits = db.statistics().txn.lock_waits;
        std::thread::scope(|scope| {
            scope.spawn(|| one.put(&table, b, b"1").expect("the victim goes"));
            while db.statistics().txn.lock_waits == waits {
                std::thread::yield_now();
            }
            let error = two.put(&table, a, b"2").expect_err("a deadlock");
            assert!(error.is_retry() && error.to_string().contains(&id.to_string()), "{error}");
            two.rollback().expect("rolled back");
        });
        assert!(db.statistics().txn.deadlocks > 0);
    });
}

#[test]
fn a_wait_ends_at_its_deadline_and_the_transaction_can_go_on() {
    let (db, table) = two_rows();
    let mut holder = db.begin();
    holder.put(&table, b"x", b"11").expect("free");
    for level in LEVELS {
        let limit = Duration::from_millis(30);
        let options =
            TransactionOptions { isolation: level, lock_deadline: Some(limit), ..Default::default() };
        let mut tx = db.begin_with(options);
        tx.put(&table, b"a", b"01").expect("free");
        let began = Instant::now();
        is_timeout(tx.put(&table, b"x", b"12"));
        assert!(began.elapsed() >= limit);
        is_timeout(tx.get_for_update(&table, b"x"));
        is_timeout(tx.insert(&table, b"x", b"12"));
        is_timeout(tx.delete(&table, b"x"));
        // Nothing but the statement was lost.
        assert_eq!(tx.get(&table, b"a"), Ok(Some(b"01".to_vec())));
        tx.delete(&table, b"a").expect("its own");
        tx.commit().expect("committed");
    }
    holder.rollback().expect("rolled back");
    let mut tx = db.snapshot();
    let rows = scan(&mut tx, &table, KeyRange::all(), Direction::Forward);
    assert_eq!(rows, [(b"x".to_vec(), b"10".to_vec()), (b"y".to_vec(), b"20".to_vec())]);
}

#[test]
fn the_databases_deadline_is_for_transactions_without_one() {
    let db = create(quiet().lock_deadline(Duration::ZERO));
    let table = db.create_table("t").expect("created");
    let mut holder = db.begin();
    holder.put(&table, b"k", b"1").expect("free");
    is_timeout(db.begin().put(&table, b"k", b"2"));
    let own = TransactionOptions { lock_deadline: Some(Duration::from_millis(20)), ..Default::default() };
    let began = Instant::now();
    is_timeout(db.begin_with(own).put(&table, b"k", b"2"));
    assert!(began.elapsed() >= Duration::from_millis(20));
}

#[test]
fn a_cancelled_wait_ends_at_once() {
    within(LIMIT, || {
        let (db, table) = two_rows();
        let mut holder = db.begin();
        holder.put(&table, b"x", b"11").expect("free");
        let token = CancelToken::new();
        let options = TransactionOptions { cancel: Some(token.clone()), ..Default::default() };
        let waits = db.statistics().txn.lock_waits;
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let mut tx = db.begin_with(options.clone());
                let error = tx.put(&table, b"x", b"12").expect_err("cancelled");
                assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
                // What needs no wait still works, and what does is cancelled again.
                tx.put(&table, b"y", b"21").expect("free");
                let error = tx.delete(&table, b"x").expect_err("cancelled");
                assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
                tx.rollback().expect("rolled back");
            });
            while db.statistics().txn.lock_waits == waits {
                std::thread::yield_now();
            }
            token.cancel();
            waiter.join().expect("no panic");
        });
        // The cancelled waiter holds nothing.
        impatient(&db, Isolation::Snapshot).put(&table, b"y", b"22").expect("free");
        holder.commit().expect("committed");
    });
}

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
fn a_first_statement_that_waited_goes_on_with_what_it_waited_for() {
    // No conflict: the transaction had not been shown anything by its snapshot.
    for script in [
        "1 put x 11; 2 put x 12; 1 commit; 2 get x; 2 commit",
        "1 put x 11; 2 lock x; 1 commit; 2 put x 12; 2 get x; 2 commit",
        "1 put x 11; 2 delete x; 1 commit; 2 put x 12; 2 get x; 2 commit",
        "1 lock x; 2 lock x; 1 put x 11; 1 commit; 2 put x 12; 2 get x; 2 commit",
    ] {
        let outcome = run(Isolation::Snapshot, script);
        assert!(outcome.committed(&[1, 2]), "{script}: {outcome:?}");
        assert_eq!(outcome.of(2, "get"), ["12"], "{script}");
        assert!(!outcome.waited.is_empty(), "{script}");
    }
    // It had been shown something: a conflict, as soon as the other has committed. If it rolls
    // back, none.
    let outcome = run(Isolation::Snapshot, "2 get y; 1 put x 11; 2 put x 12; 1 commit; 2 commit");
    assert_eq!(outcome.ends[&2], End::Refused(ErrorKind::Conflict), "{outcome:?}");
    let outcome = run(Isolation::Snapshot, "2 get y; 1 put x 11; 2 put x 12; 1 rollback; 2 commit");
    assert_eq!(outcome.rows, "x=12 y=20");
    for script in [
        "2 get y; 1 put x 11; 1 commit; 2 lock x; 2 commit",
        "2 get y; 1 insert a 11; 1 commit; 2 lock a; 2 commit",
        "2 get y; 1 delete x; 1 commit; 2 lock x; 2 commit",
    ] {
        let outcome = run(Isolation::Snapshot, script);
        assert_eq!(outcome.ends[&2], End::Refused(ErrorKind::Conflict), "{script}: {outcome:?}");
    }
    // Its writes are no obstacle to itself, and a conflict leaves nothing behind.
    let outcome = run(Isolation::Snapshot, "2 put y 22; 1 put x 11; 1 commit; 2 put x 12; 2 commit");
    assert_eq!(outcome.ends[&2], End::Refused(ErrorKind::Conflict), "{outcome:?}");
    assert_eq!(outcome.rows, "x=11 y=20");
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
fn who_waits_for_several_readers_waits_for_all_of_them() {
    let (db, table) = two_rows();
    let options = TransactionOptions { isolation: Isolation::Serializable, ..Default::default() };
    let outcome = run_on(&db, &table, &options, "1 get x; 2 all; 3 put x 11; 1 commit; 2 commit; 3 commit");
    assert!(outcome.waited(3, "put x 11") && outcome.committed(&[1, 2, 3]), "{outcome:?}");
    let position =
        |who: usize, what: &str| outcome.answers.iter().position(|(by, step, _)| *by == who && step == what);
    assert!(position(3, "put x 11") > position(2, "commit"), "{outcome:?}");
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
