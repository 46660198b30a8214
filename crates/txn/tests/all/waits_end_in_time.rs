//! Waits end when what they wait for is free, at their deadline, and when they are cancelled: also
//! where a rollback is put off, and where the waiter itself undoes what it would wait for.

use crate::common::World;
use firndb_base::clock;
use firndb_base::sim::{self, Policy, SimOptions};
use firndb_base::sync::atomic::{AtomicBool, Ordering};
use firndb_base::sync::{Arc, thread};
use firndb_btree::Position;
use firndb_log::LogClass;
use firndb_txn::{
    CancelToken, Course, Isolation, ManagerOptions, RowBatch, RowValue, TxnErrorKind, TxnOptions,
};
use std::time::Duration;

/// A rollback that is put off gives its explicit locks back, and a waiter that came to sleep just
/// then slept until it was undone.
#[test]
fn no_waiter_sleeps_over_a_lock_that_a_put_off_rollback_releases() {
    for seed in 0..120 {
        let policy = match seed % 2 {
            0 => Policy::Random,
            _ => Policy::Priorities { changes: 2, over_steps: 60 },
        };
        let options = SimOptions { policy, preempt_one_in: 5, ..SimOptions::seeded(seed) };
        let outcome = sim::run(options, move || {
            let world = Arc::new(World::with_log(2 << 20, ManagerOptions::default()));
            let mut loser = world.begin();
            loser.get_for_update(&world.tree, b"locked", &mut Vec::new()).expect("free");
            loser.put(&world.tree, b"written", b"value").expect("free");
            let other = world.clone();
            world.fill_log(LogClass::System);
            let waiter = thread::spawn("waiter", move || {
                let deadline = Some(Duration::from_secs(60));
                loop {
                    let mut txn =
                        other.manager.begin(TxnOptions { lock_deadline: deadline, ..TxnOptions::default() });
                    match txn.get_for_update(&other.tree, b"locked", &mut Vec::new()) {
                        // It met the loser after it was put off and before it knew that the lock is
                        // free.
                        Err(error) if error.kind == TxnErrorKind::LogFull => {}
                        outcome => return outcome.map(|_| ()),
                    }
                }
            });
            loser.rollback().expect("put off");
            assert!(world.manager.has_put_off());
            waiter.expect("a thread").join().expect("no panic").expect("the lock is free");
        });
        outcome.unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
    }
}

/// A transaction whose rollback is put off, with space in the log again: a waiter undoes it.
fn with_a_loser() -> World {
    let world = World::with_log(2 << 20, ManagerOptions::default());
    let mut loser = world.begin();
    for number in 0..100u32 {
        loser.put(&world.tree, &number.to_be_bytes(), b"value").expect("free");
    }
    world.fill_log(LogClass::System);
    loser.rollback().expect("put off");
    world.empty_log();
    assert_eq!(world.manager.losers_left(), 1);
    world
}

/// A waiter once undid all of another's transaction before it checked its deadline, or its token.
#[test]
fn a_transaction_that_may_not_wait_does_not_undo_either() {
    let cancelled = CancelToken::new();
    cancelled.cancel();
    let limits = [
        (Some(Duration::ZERO), None, TxnErrorKind::Timeout),
        (None, Some(cancelled), TxnErrorKind::Cancelled),
    ];
    for isolation in [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable] {
        let world = with_a_loser();
        for (lock_deadline, cancel, kind) in limits.clone() {
            let mut txn =
                world.manager.begin(TxnOptions { isolation, lock_deadline, cancel, ..TxnOptions::default() });
            let key = 50u32.to_be_bytes();
            assert_eq!(txn.put(&world.tree, &key, b"other").expect_err("locked").kind, kind);
            let error = txn.get_for_update(&world.tree, &key, &mut Vec::new()).expect_err("locked");
            assert_eq!(error.kind, kind);
            if isolation == Isolation::Serializable {
                assert_eq!(txn.get(&world.tree, &key, &mut Vec::new()).expect_err("locked").kind, kind);
            }
        }
        assert_eq!(world.manager.losers_left(), 1, "nothing is undone");
        // With time to wait, it is undone.
        let mut txn = world.manager.begin(TxnOptions {
            isolation,
            lock_deadline: Some(Duration::from_secs(60)),
            ..TxnOptions::default()
        });
        txn.put(&world.tree, &50u32.to_be_bytes(), b"other").expect("undone");
        assert_eq!(world.manager.losers_left(), 0);
        txn.commit().expect("committed");
        let mut txn = world.begin();
        assert!(!txn.get(&world.tree, &49u32.to_be_bytes(), &mut Vec::new()).expect("read"));
    }
}

/// What `wait` returns, in a thread of its own, beside transactions that write the row `hot` one
/// after the other, a second each: the first, and `times` more.
fn beside_holders_in_turn<T: Send + 'static>(
    times: usize,
    wait: impl FnOnce(&World) -> T + Send + 'static,
) -> T {
    // Threads change only where one waits: the waiter is always late.
    let options = SimOptions { preempt_one_in: 0, ..SimOptions::seeded(3) };
    let outcome = sim::run(options, move || {
        let world = Arc::new(World::new(ManagerOptions::default()));
        let mut first = world.begin();
        first.put(&world.tree, b"hot", b"value").expect("free");
        let other = world.clone();
        let waiter = thread::spawn("waiter", move || wait(&other)).expect("a thread");
        // The holder commits, and its next transaction has the row again before a waiter can wake.
        for _ in 0..times {
            clock::sleep(Duration::from_secs(1));
            first.commit().expect("committed");
            first = world.begin_at(Isolation::ReadCommitted);
            first.put(&world.tree, b"hot", b"value").expect("its own, or waited for");
        }
        world.manager.check();
        waiter.join().expect("no panic")
    });
    outcome.expect("no deadlock").value
}

/// The deadline once restarted with each holder that was there before: a lock that passed from
/// holder to holder was waited for without end.
#[test]
fn a_deadline_holds_however_many_get_the_lock_before() {
    // As often as the row is written before a waiter is let go first.
    let (outcome, took) = beside_holders_in_turn(4, |world| {
        let mut txn = world.manager.begin(TxnOptions {
            isolation: Isolation::ReadCommitted,
            lock_deadline: Some(Duration::from_millis(3500)),
            ..TxnOptions::default()
        });
        let began = clock::now();
        let outcome = txn.put(&world.tree, b"hot", b"waiter");
        (outcome, began.elapsed())
    });
    assert_eq!(outcome.expect_err("it was never free").kind, TxnErrorKind::Timeout);
    assert!((Duration::from_millis(3500)..Duration::from_secs(4)).contains(&took), "{took:?}");
}

/// There was no queue: a lock that passed from holder to holder was never got.
#[test]
fn a_writer_that_is_passed_over_again_and_again_is_let_go_first() {
    let took = beside_holders_in_turn(20, |world| {
        let mut txn = world.begin_at(Isolation::ReadCommitted);
        let began = clock::now();
        txn.put(&world.tree, b"hot", b"waiter").expect("let go first");
        let took = began.elapsed();
        clock::sleep(Duration::from_secs(1));
        txn.commit().expect("committed");
        took
    });
    assert!((Duration::from_secs(4)..Duration::from_secs(6)).contains(&took), "{took:?}");
}

/// Cause: both had the intention lock of a row that a third had meanwhile put without its flag, and
/// then locked it for update. Effect: a deadlock of two that wrote one row each.
#[test]
fn those_that_meant_to_share_a_row_lock_it_one_after_the_other() {
    let outcome = sim::run(SimOptions { preempt_one_in: 0, ..SimOptions::seeded(5) }, || {
        let world = Arc::new(World::new(ManagerOptions::default()));
        let mut first = world.begin();
        let flagged = RowValue { payload: b"row", flag: true };
        assert!(first.insert_flagged(&world.tree, b"k", flagged).expect("free"));
        first.commit().expect("committed");
        let mut third = world.begin_at(Isolation::ReadCommitted);
        third.get_for_update(&world.tree, b"k", &mut Vec::new()).expect("free");
        let sharers: Vec<_> = (0..2)
            .map(|_| {
                let other = world.clone();
                thread::spawn("sharer", move || {
                    let mut txn = other.begin_at(Isolation::ReadCommitted);
                    let mut row = Vec::new();
                    let flag = txn.get_with_intent_flagged(&other.tree, b"k", &mut row).expect("waited");
                    clock::sleep(Duration::from_secs(1));
                    let found = txn.get_for_update(&other.tree, b"k", &mut row).expect("no deadlock");
                    txn.put(&other.tree, b"k", b"row of its own").expect("locked");
                    txn.commit().expect("committed");
                    (flag, found)
                })
                .expect("a thread")
            })
            .collect();
        clock::sleep(Duration::from_secs(1));
        third.put(&world.tree, b"k", b"without the flag").expect("locked");
        third.commit().expect("committed");
        sharers.into_iter().map(|sharer| sharer.join().expect("no panic")).collect::<Vec<_>>()
    });
    assert_eq!(outcome.expect("it ends").value, [(Some(false), true); 2]);
}

/// A scan is not in the queue: it once waited for each request that joined while it waited.
#[test]
fn a_scan_waits_for_the_requests_that_were_in_the_queue_before_it_and_no_others() {
    let outcome = sim::run(SimOptions::seeded(11), || {
        let world = Arc::new(World::new(ManagerOptions::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..48u8)
            .map(|number| {
                let (world, stop) = (world.clone(), stop.clone());
                thread::spawn("writer", move || {
                    while !stop.load(Ordering::SeqCst) {
                        let mut txn = world.begin_at(Isolation::ReadCommitted);
                        txn.put(&world.tree, &[b'h', number % 4], b"value").expect("waited");
                        clock::sleep(Duration::from_millis(1));
                        txn.commit().expect("committed");
                    }
                })
                .expect("a thread")
            })
            .collect();
        clock::sleep(Duration::from_millis(100));
        let mut scanner = world.manager.begin(TxnOptions {
            isolation: Isolation::Serializable,
            lock_deadline: Some(Duration::from_secs(5)),
            ..TxnOptions::default()
        });
        let mut batch = RowBatch::new();
        let outcome = scanner.scan(&world.tree, &Position::Start, Course::forward(None), &mut batch);
        drop(scanner);
        stop.store(true, Ordering::SeqCst);
        writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
        world.manager.check();
        outcome.map(|_| batch.len())
    });
    let rows = outcome.expect("it ends").value;
    assert_eq!(rows.expect("its turn comes"), 4);
}
