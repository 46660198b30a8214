//! Waits for locks: deadlocks, deadlines, cancellations, and what a statement sees that has waited.

use crate::isolation::script::{End, run, run_on, two_rows};
use crate::isolation::support::{LEVELS, LIMIT, impatient, is_timeout};
use crate::support::small::{busy, create, quiet, scan};
use firndb::{CancelToken, Direction, Error, ErrorKind, Isolation, KeyRange, TransactionOptions};
use firndb_testkit::watchdog::within;
use std::time::{Duration, Instant};

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
fn a_change_in_place_waits_for_the_writer_and_is_made_of_what_that_leaves() {
    for level in LEVELS {
        let outcome = run(level, "1 add x 1; 2 add x 5; 1 add y 1; 1 commit; 2 add z 1; 2 commit");
        assert!(outcome.waited(2, "add x 5"), "{outcome:?}");
        assert!(outcome.committed(&[1, 2]), "{outcome:?}");
        assert_eq!(outcome.rows, "x=16 y=21");
        let outcome = run(level, "1 put x 99; 2 add x 5; 1 rollback; 2 commit");
        assert!(outcome.waited(2, "add x 5"), "{outcome:?}");
        assert_eq!(outcome.rows, "x=15 y=20");
    }
    // What a snapshot does not show is not changed, once something was shown by it.
    let outcome = run(Isolation::Snapshot, "2 get y; 1 add x 1; 1 commit; 2 add x 5; 2 commit");
    assert_eq!(outcome.ends[&2], End::Refused(ErrorKind::Conflict), "{outcome:?}");
    assert_eq!(outcome.rows, "x=11 y=20");
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
fn who_waits_for_several_readers_waits_for_all_of_them() {
    let (db, table) = two_rows();
    let options = TransactionOptions { isolation: Isolation::Serializable, ..Default::default() };
    let outcome = run_on(&db, &table, &options, "1 get x; 2 all; 3 put x 11; 1 commit; 2 commit; 3 commit");
    assert!(outcome.waited(3, "put x 11") && outcome.committed(&[1, 2, 3]), "{outcome:?}");
    let position =
        |who: usize, what: &str| outcome.answers.iter().position(|(by, step, _)| *by == who && step == what);
    assert!(position(3, "put x 11") > position(2, "commit"), "{outcome:?}");
}
