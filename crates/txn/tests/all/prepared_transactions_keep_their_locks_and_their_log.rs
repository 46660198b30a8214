//! Prepared transactions: a checkpoint never takes one for a loser, its preparing wakes the waiters
//! for what it only read, what it read for update stays locked, and its decision never lacks space
//! in the log.

use crate::common::World;
use firndb_base::{Progress, TxnId};
use firndb_log::LogClass;
use firndb_txn::{Isolation, ManagerOptions, TxnErrorKind, TxnOptions};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Says that its thread has ended, however it ended.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// `commit_prepared` once took the transaction out of the prepared ones before its commit record
/// was appended. A checkpoint in between named it as open and not prepared; after a crash it was
/// rolled back, if its prepare record lay before the redo start.
#[test]
fn a_checkpoint_while_a_prepared_transaction_is_committed_names_it_prepared_or_not_at_all() {
    let world = World::new(ManagerOptions::default());
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ended = Ended(&ended);
            let until = Instant::now() + Duration::from_secs(2);
            // No more than the log has space for, however fast the machine.
            for i in 0u32..15_000 {
                if Instant::now() > until {
                    break;
                }
                let mut txn = world.begin();
                txn.put(&world.tree, &(i % 50).to_be_bytes(), b"value").expect("written");
                let gid = i.to_be_bytes();
                txn.prepare(&gid).expect("prepared");
                world.manager.commit_prepared(&gid).expect("committed");
            }
        });
        let mut prepared: Option<TxnId> = None;
        while !ended.load(Ordering::SeqCst) {
            for open in world.manager.checkpoint_state().active {
                let id = open.id;
                assert!(
                    open.prepared.is_some() || prepared != Some(id),
                    "{id} was prepared, and a checkpoint forgot it"
                );
                if open.prepared.is_some() {
                    prepared = Some(id);
                }
            }
        }
    });
}

/// The locks for reading fall when a transaction is prepared, but their waiters were once not
/// woken, and slept until its fate was decided.
#[test]
fn preparing_wakes_the_waiters_for_a_lock_for_reading() {
    let world = World::new(ManagerOptions::default());
    let mut reader = world.begin_at(Isolation::Serializable);
    reader.get(&world.tree, b"read", &mut Vec::new()).expect("read");
    reader.put(&world.tree, b"written", b"value").expect("written");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = world.begin();
            writer.put(&world.tree, b"read", b"value").expect("written once no transaction reads");
            writer.commit().expect("committed");
            done.store(true, Ordering::SeqCst);
        });
        while world.manager.statistics().lock_waits == 0 {
            std::thread::yield_now();
        }
        assert!(!done.load(Ordering::SeqCst), "the row is locked for reading");
        reader.prepare(b"gid").expect("prepared");
        let limit = Instant::now() + Duration::from_secs(10);
        while !done.load(Ordering::SeqCst) && Instant::now() < limit {
            std::thread::yield_now();
        }
        let woken = done.load(Ordering::SeqCst);
        world.manager.commit_prepared(b"gid").expect("committed; and every waiter is woken");
        assert!(woken, "the writer slept although no transaction held the row");
    });
}

/// As above, with the writer arriving at every moment around the prepare.
#[test]
fn no_waiter_sleeps_over_a_lock_that_a_prepare_releases() {
    let world = World::new(ManagerOptions::default());
    for round in 0u32..300 {
        let (key, gid) = (round.to_be_bytes(), round.to_be_bytes());
        let mut reader = world.begin_at(Isolation::Serializable);
        reader.get(&world.tree, &key, &mut Vec::new()).expect("read");
        reader.put(&world.tree, b"written", b"value").expect("written");
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut writer = world.manager.begin(firndb_txn::TxnOptions {
                    lock_deadline: Some(Duration::from_secs(5)),
                    ..firndb_txn::TxnOptions::default()
                });
                writer.put(&world.tree, &key, b"value").map(|()| drop(writer))
            });
            for _ in 0..round * 10 {
                std::hint::spin_loop();
            }
            reader.prepare(&gid).expect("prepared");
            writer.join().expect("no panic").expect("woken before its deadline");
        });
        world.manager.commit_prepared(&gid).expect("committed");
    }
}

fn impatient() -> TxnOptions {
    TxnOptions { lock_deadline: Some(Duration::ZERO), ..TxnOptions::default() }
}

/// `prepare` once gave back the locks of reads for update, too, though they are promised until the
/// transaction ends.
#[test]
fn what_was_read_for_update_stays_locked_until_the_end() {
    for isolation in [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable] {
        for commit in [true, false] {
            let world = World::new(ManagerOptions::default());
            let tree = &world.tree;
            let mut txn = world.begin_at(isolation);
            txn.get_for_update(tree, b"kept", &mut Vec::new()).expect("free");
            txn.get_for_update(tree, b"written", &mut Vec::new()).expect("free");
            txn.get(tree, b"read", &mut Vec::new()).expect("free");
            txn.put(tree, b"written", b"value").expect("its own");
            txn.prepare(b"gid").expect("prepared");
            let mut other = world.manager.begin(impatient());
            for key in [&b"kept"[..], b"written"] {
                let error = other.put(tree, key, b"other").expect_err("it is locked");
                assert_eq!(error.kind, TxnErrorKind::Timeout);
                let error = other.get_for_update(tree, key, &mut Vec::new()).expect_err("it is locked");
                assert_eq!(error.kind, TxnErrorKind::Timeout);
            }
            other.put(tree, b"read", b"other").expect("locks for reading have ended");
            drop(other);
            // What it wrote is locked by its row: only the other key is listed.
            let listed = world.manager.checkpoint_state().active;
            let keys = listed[0].prepared.as_ref().map(|(_, keys)| keys.clone());
            assert_eq!(keys, Some(vec![(tree.id(), b"kept".to_vec())]));
            match commit {
                true => world.manager.commit_prepared(b"gid").expect("committed"),
                false => world.manager.rollback_prepared(b"gid").expect("rolled back"),
            };
            let mut other = world.manager.begin(impatient());
            other.put(tree, b"kept", b"other").expect("free");
            other.put(tree, b"written", b"other").expect("free");
            other.commit().expect("committed");
        }
    }
}

/// A waiter for such a lock sleeps through the prepare and is woken at the end.
#[test]
fn who_waits_for_what_was_read_for_update_waits_for_the_end() {
    let world = World::new(ManagerOptions::default());
    let mut txn = world.begin();
    txn.get_for_update(&world.tree, b"kept", &mut Vec::new()).expect("free");
    txn.put(&world.tree, b"written", b"value").expect("free");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let mut other = world.begin();
            other.put(&world.tree, b"kept", b"other").expect("its turn comes");
            done.store(true, Ordering::SeqCst);
            other.commit().expect("committed");
        });
        while world.manager.statistics().lock_waits == 0 {
            std::thread::yield_now();
        }
        txn.prepare(b"gid").expect("prepared");
        // It checks again, and waits again.
        while world.manager.statistics().lock_waits == 1 && !done.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        assert!(!done.load(Ordering::SeqCst));
        world.manager.commit_prepared(b"gid").expect("committed");
        waiter.join().expect("no panic");
    });
}

/// `prepare` failed where a commit waits for space.
#[test]
fn preparing_waits_for_space_in_the_log_as_a_commit_does() {
    let world = std::sync::Arc::new(World::with_log(2 << 20, ManagerOptions::default()));
    let weak = std::sync::Arc::downgrade(&world);
    world.manager.make_log_space_with(move |refused| {
        if let (true, Some(world)) = (refused, weak.upgrade()) {
            world.empty_log();
        }
        Ok(())
    });
    let mut txn = world.begin();
    txn.put(&world.tree, b"key", b"value").expect("free");
    world.fill_log(LogClass::Rollback);
    txn.prepare(b"gid").expect("space is made");
    world.manager.commit_prepared(b"gid").expect("committed");
}

/// The log is used up to the last byte that others may take, and nothing makes space. A decision
/// was once refused then.
#[test]
fn no_decision_is_refused_for_lack_of_space() {
    let world = World::with_log(2 << 20, ManagerOptions::default());
    let most = world.manager.log().decisions_max();
    assert!(most >= 10, "{most}");
    let mut prepared = 0u32;
    let refused = loop {
        let mut txn = world.begin();
        txn.put(&world.tree, &prepared.to_be_bytes(), b"value").expect("free");
        match txn.prepare(&prepared.to_be_bytes()) {
            Ok(_) => prepared += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind, TxnErrorKind::TooMany, "{refused}");
    assert_eq!(u64::from(prepared), most);
    assert_eq!(world.manager.prepared().len() as u64, most, "the one refused is rolled back");
    let mut txn = world.begin();
    txn.put(&world.tree, &prepared.to_be_bytes(), b"free").expect("rolled back");
    txn.commit().expect("committed");
    world.fill_log(LogClass::System);
    for number in 0..prepared {
        let gid = number.to_be_bytes();
        // Each is made durable alone, which takes the most space.
        let handle = match number % 2 {
            0 => world.manager.commit_prepared(&gid),
            _ => world.manager.rollback_prepared(&gid),
        };
        handle.expect("decided").wait().expect("durable");
    }
    assert!(world.manager.prepared().is_empty());
    let gone = world.manager.rollback_prepared(&1u32.to_be_bytes()).expect_err("it is decided");
    assert_eq!(gone.kind, TxnErrorKind::BadArgument);
    // What found no space to be undone in is undone when there is some; until then its rows are
    // locked.
    let mut other = world.manager.begin(impatient());
    if world.manager.has_put_off() {
        assert!(other.put(&world.tree, &1u32.to_be_bytes(), b"other").is_err());
    }
    world.empty_log();
    while world.manager.undo_put_off().expect("there is space") == Progress::Worked {}
    let mut value = Vec::new();
    for number in 0..prepared {
        let found = world.begin().get(&world.tree, &number.to_be_bytes(), &mut value).expect("read");
        assert_eq!(found, number % 2 == 0, "row {number}");
    }
    // The space that was set aside is free again.
    assert_eq!(world.manager.log().kept_for_decisions(), 0);
    let mut txn = world.begin();
    txn.put(&world.tree, b"one more", b"value").expect("free");
    txn.prepare(b"one more").expect("prepared");
}

/// Keys that are locked and not written go into each checkpoint's list: there is a limit, and a
/// sentence.
#[test]
fn too_many_locked_keys_are_refused_before_anything_is_written() {
    let world = World::with_log(2 << 20, ManagerOptions::default());
    let lock = |count: u32, gid: &[u8]| {
        let mut txn = world.begin();
        for number in 0..count {
            let key = [&number.to_be_bytes()[..], gid, &[7; 100]].concat();
            txn.get_for_update(&world.tree, &key, &mut Vec::new()).expect("free");
        }
        txn.put(&world.tree, gid, b"value").expect("free");
        let before = world.manager.log().end();
        let outcome = txn.prepare(gid).map(|_| ());
        (outcome, before)
    };
    let (outcome, _) = lock(200, b"fits");
    outcome.expect("prepared");
    let (outcome, _) = lock(200, b"more than is left");
    assert_eq!(outcome.expect_err("refused").kind, TxnErrorKind::TooMany);
    assert_eq!(world.manager.prepared().len(), 1);
    assert!(!world.begin().get(&world.tree, b"more than is left", &mut Vec::new()).expect("read"));
    world.manager.commit_prepared(b"fits").expect("committed");
    let (outcome, _) = lock(200, b"fits again");
    outcome.expect("prepared");
}

/// Each open transaction is listed in each checkpoint.
#[test]
fn there_is_a_limit_to_open_transactions() {
    let world = World::with_log(2 << 20, ManagerOptions::default());
    let mut open = Vec::new();
    let refused = loop {
        let mut txn = world.begin();
        match txn.put(&world.tree, &(open.len() as u32).to_be_bytes(), b"value") {
            Ok(()) => open.push(txn),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind, TxnErrorKind::TooMany, "{refused}");
    assert!((1000..2048).contains(&open.len()), "{}", open.len());
    assert!(
        world.begin().get(&world.tree, b"read", &mut Vec::new()).is_ok(),
        "those that read are not counted"
    );
    let listed = world.manager.checkpoint_state();
    assert_eq!(listed.active.len(), open.len());
    assert!(listed.list(usize::MAX)[0].len() < 32 << 10, "a sixty-fourth of the log");
    open.pop().expect("there are some").commit().expect("committed");
    let mut txn = world.begin();
    txn.put(&world.tree, b"again", b"value").expect("there is a place");
}

/// A serializable reader once found a row as it was before a prepared transaction that had been
/// rolled back, and its commit did not wait until that decision was durable. After a power cut the
/// transaction was prepared again, and its commit came before transactions that the reader had
/// come after.
#[test]
fn a_reader_waits_until_the_rollback_that_it_saw_is_durable() {
    let world = World::new(ManagerOptions::default());
    let mut txn = world.begin();
    txn.put(&world.tree, b"row", b"value").expect("written");
    txn.prepare(b"gid").expect("prepared").wait().expect("durable");
    let rolled_back = world.manager.rollback_prepared(b"gid").expect("decided");
    let mut reader = world.begin_at(Isolation::Serializable);
    assert!(!reader.get(&world.tree, b"row", &mut Vec::new()).expect("unlocked again"));
    let seen = reader.commit_order().expect("read");
    assert!(seen.lsn() >= rolled_back.lsn(), "{} comes before {}", seen.lsn(), rolled_back.lsn());
}
