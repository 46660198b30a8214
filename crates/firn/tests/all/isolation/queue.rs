//! Requests for locks that are passed over, and what a transaction may do while others wait for it.

use crate::isolation::support::{LEVELS, LIMIT};
use crate::support::small::{create, quiet, scan};
use firndb::{
    Database, Direction, Error, ErrorKind, Isolation, KeyRange, Rows, Table, Transaction, TransactionOptions,
};
use firndb_testkit::watchdog::within;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

fn begin(db: &Database, isolation: Isolation, wait: Duration) -> Transaction {
    db.begin_with(TransactionOptions { isolation, lock_deadline: Some(wait), ..Default::default() })
}

fn wait_until_asleep(db: &Database, before: u64) {
    while db.statistics().txn.lock_waits == before {
        std::thread::yield_now();
    }
}

/// Cause: the one that waited for the row had locked its key, or a range around it. Effect: the
/// row's writer, which read it for update, closed a circle: `Deadlock`.
#[test]
fn a_transactions_own_row_is_locked_while_others_wait_for_it() {
    type Waits = fn(&mut Transaction, &Table) -> Result<(), Error>;
    let waits: [(Isolation, Waits); 6] = [
        (Isolation::ReadCommitted, |tx, table| tx.get_for_update(table, b"k").map(drop)),
        (Isolation::ReadCommitted, |tx, table| {
            tx.get_many_for_update_into(table, &[b"a", b"k"], &mut Rows::new())
        }),
        (Isolation::Serializable, |tx, table| tx.get(table, b"k").map(drop)),
        (Isolation::Serializable, |tx, table| tx.get_for_update(table, b"k").map(drop)),
        (Isolation::Serializable, |tx, table| tx.put(table, b"k", b"other").map(drop)),
        (Isolation::Serializable, |tx, table| {
            scan(tx, table, KeyRange::all(), Direction::Forward);
            Ok(())
        }),
    ];
    for (which, (isolation, wait)) in waits.into_iter().enumerate() {
        for own in LEVELS {
            within(LIMIT, move || {
                let db = create(quiet());
                let table = db.create_table("t").expect("created");
                let mut writer = begin(&db, own, Duration::from_secs(20));
                writer.put(&table, b"k", b"1").expect("free");
                let before = db.statistics().txn.lock_waits;
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        let mut tx = begin(&db, isolation, Duration::from_secs(20));
                        wait(&mut tx, &table).unwrap_or_else(|error| panic!("{which}: {error}"));
                    });
                    wait_until_asleep(&db, before);
                    let row = writer.get_for_update(&table, b"k");
                    assert_eq!(row, Ok(Some(b"1".to_vec())), "{which}, {own:?}");
                    writer.commit().expect("committed");
                });
                assert_eq!(db.statistics().txn.deadlocks, 0);
            });
        }
    }
}

/// Locks have a queue: those that share a lock, one beginning before the other ends, once kept a
/// writer waiting for ever.
#[test]
fn a_writer_does_not_wait_for_ever_new_readers() {
    type Shares = fn(&mut Transaction, &Table) -> Result<(), Error>;
    let shares: [Shares; 2] = [
        |tx, table| tx.get(table, b"k").map(drop),
        |tx, table| {
            let mut cursor = tx.scan(table, KeyRange::all(), Direction::Forward);
            while cursor.next(tx)?.is_some() {}
            Ok(())
        },
    ];
    for share in shares {
        within(LIMIT, move || {
            let db = create(quiet());
            let table = db.create_table("t").expect("created");
            db.transact(|tx| tx.put(&table, b"k", b"0")).expect("committed");
            let reader = || {
                let mut tx = begin(&db, Isolation::Serializable, Duration::from_millis(100));
                share(&mut tx, &table).map(|()| tx)
            };
            let mut holder = reader().expect("free");
            let mut passed = 0;
            std::thread::scope(|scope| {
                let mut before = db.statistics().txn.lock_waits;
                let writer = scope.spawn(|| {
                    let mut tx = begin(&db, Isolation::ReadCommitted, Duration::from_secs(20));
                    tx.put(&table, b"k", b"1").expect("let go first");
                    tx.commit().expect("committed");
                });
                let refused = loop {
                    wait_until_asleep(&db, before);
                    match reader() {
                        Ok(next) => {
                            before = db.statistics().txn.lock_waits;
                            passed += 1;
                            std::mem::replace(&mut holder, next).commit().expect("committed");
                        }
                        Err(error) => break error,
                    }
                };
                assert_eq!(refused.kind(), ErrorKind::Timeout);
                holder.commit().expect("committed");
                writer.join().expect("no panic");
            });
            assert!((1..10).contains(&passed), "{passed} readers passed the writer");
            assert_eq!(db.snapshot().get(&table, b"k"), Ok(Some(b"1".to_vec())));
        });
    }
}

/// A reader that only lets a writer go first is not what the writer waits for: that the writer's
/// blocker waits for the reader in turn is no deadlock.
#[test]
fn the_queue_makes_no_deadlock() {
    for newcomer_sleeps_first in [true, false] {
        within(LIMIT, move || {
            let db = create(quiet());
            let table = db.create_table("t").expect("created");
            db.transact(|tx| tx.put(&table, b"k", b"0")).expect("committed");
            let long = Duration::from_secs(20);
            let reader = |wait| {
                let mut tx = begin(&db, Isolation::Serializable, wait);
                tx.get(&table, b"k").map(|_| tx)
            };
            let mut newcomer = begin(&db, Isolation::Serializable, long);
            newcomer.put(&table, b"other", b"1").expect("free");
            let mut holder = reader(long).expect("free");
            std::thread::scope(|scope| {
                let mut before = db.statistics().txn.lock_waits;
                let writer = scope.spawn(|| {
                    let mut tx = begin(&db, Isolation::ReadCommitted, long);
                    tx.put(&table, b"k", b"1").expect("let go first");
                    tx.commit().expect("committed");
                });
                loop {
                    wait_until_asleep(&db, before);
                    let Ok(next) = reader(Duration::from_millis(50)) else { break };
                    before = db.statistics().txn.lock_waits;
                    std::mem::replace(&mut holder, next).commit().expect("committed");
                }
                // The holder waits for the newcomer, the newcomer lets the writer go first, and the
                // writer waits for the holder.
                let before = db.statistics().txn.lock_waits;
                let read = |table: &Table, mut tx: Transaction| {
                    let value = tx.get(table, b"k").expect("no deadlock");
                    assert_eq!(value, Some(b"0".to_vec()), "the writer comes later");
                    tx.commit().expect("committed");
                };
                let write = |table: &Table, mut tx: Transaction| {
                    tx.put(table, b"other", b"2").expect("no deadlock");
                    tx.commit().expect("committed");
                };
                let (db, table) = (&db, &table);
                if newcomer_sleeps_first {
                    scope.spawn(move || read(table, newcomer));
                    wait_until_asleep(db, before);
                    write(table, holder);
                } else {
                    scope.spawn(move || write(table, holder));
                    wait_until_asleep(db, before);
                    read(table, newcomer);
                }
                writer.join().expect("no panic");
            });
            assert_eq!(db.statistics().txn.deadlocks, 0);
            assert_eq!(db.snapshot().get(&table, b"other"), Ok(Some(b"2".to_vec())));
        });
    }
}

/// What the queue holds up goes on when the one ahead gives up.
#[test]
fn those_behind_a_request_that_gives_up_go_on() {
    within(LIMIT, move || {
        let db = create(quiet());
        let table = db.create_table("t").expect("created");
        db.transact(|tx| tx.put(&table, b"k", b"0")).expect("committed");
        let reader = |wait| {
            let mut tx = begin(&db, Isolation::Serializable, wait);
            tx.get(&table, b"k").map(|_| tx)
        };
        let mut holder = reader(Duration::ZERO).expect("free");
        std::thread::scope(|scope| {
            let mut before = db.statistics().txn.lock_waits;
            let writer = scope.spawn(|| {
                let mut tx = begin(&db, Isolation::ReadCommitted, Duration::from_secs(2));
                let error = tx.put(&table, b"k", b"1").expect_err("it is never free");
                assert_eq!(error.kind(), ErrorKind::Timeout);
                // The transaction has not ended.
                tx
            });
            loop {
                wait_until_asleep(&db, before);
                let Ok(next) = reader(Duration::from_millis(20)) else { break };
                before = db.statistics().txn.lock_waits;
                std::mem::replace(&mut holder, next).commit().expect("committed");
            }
            let behind = reader(Duration::from_secs(30)).expect("the writer has given up");
            let tx = writer.join().expect("no panic");
            assert!(db.statistics().txn.deadlocks == 0);
            drop((behind, tx));
        });
    });
}

/// Cause: the call's snapshot was released at its end only. Effect: under read committed the next
/// statement read by it, if the caller went on.
#[test]
fn a_panic_in_a_closure_ends_the_statement() {
    let db = create(quiet());
    let table = db.create_table("t").expect("created");
    db.transact(|tx| tx.put(&table, b"k", b"0")).expect("committed");
    let mut tx = begin(&db, Isolation::ReadCommitted, Duration::ZERO);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        tx.update_with(&table, b"k", &mut Vec::new(), |_| panic!("by the closure"))
    }));
    assert!(outcome.is_err());
    assert_eq!(db.statistics().txn.snapshots, 0);
    db.transact(|tx| tx.put(&table, b"k", b"1")).expect("the row is not locked");
    assert_eq!(tx.get(&table, b"k"), Ok(Some(b"1".to_vec())));
    tx.put(&table, b"k", b"2").expect("the transaction goes on");
    tx.commit().expect("committed");
    assert_eq!(db.snapshot().get(&table, b"k"), Ok(Some(b"2".to_vec())));
}
