//! Prepared transactions: a checkpoint never takes one for a loser, and its preparing wakes those who waited
//! for what it only read.

mod common;

use common::World;
use firn_base::TxnId;
use firn_txn::{Isolation, ManagerOptions};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Says that its thread has ended, however it ended.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// `commit_prepared` once took the transaction out of the prepared ones before its commit record was appended.
/// A checkpoint in between named it as open and not prepared; after a crash it was rolled back, if its prepare
/// record lay before the redo start.
#[test]
fn a_checkpoint_while_a_prepared_transaction_is_committed_names_it_prepared_or_not_at_all() {
    let world = World::new(ManagerOptions::default());
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ended = Ended(&ended);
            let until = Instant::now() + Duration::from_secs(2);
            // No more than the log has room for, however fast the machine.
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
            for (id, _, gid) in world.manager.checkpoint_state().active {
                assert!(
                    gid.is_some() || prepared != Some(id),
                    "{id} was prepared, and a checkpoint forgot it"
                );
                if gid.is_some() {
                    prepared = Some(id);
                }
            }
        }
    });
}

/// The locks for reading fall when a transaction is prepared, but those who waited for them were once not told,
/// and slept until its fate was decided.
#[test]
fn preparing_wakes_those_who_waited_for_a_lock_for_reading() {
    let world = World::new(ManagerOptions::default());
    let mut reader = world.begin_at(Isolation::Serializable);
    reader.get(&world.tree, b"read", &mut Vec::new()).expect("read");
    reader.put(&world.tree, b"written", b"value").expect("written");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = world.begin();
            writer.put(&world.tree, b"read", b"value").expect("written once nobody reads");
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
        world.manager.commit_prepared(b"gid").expect("committed; and whoever sleeps is woken");
        assert!(woken, "the writer slept although nobody held the row");
    });
}

/// As above, with the writer arriving at every moment around the prepare.
#[test]
fn nobody_falls_asleep_over_a_lock_that_a_prepare_gives_back() {
    let world = World::new(ManagerOptions::default());
    for round in 0u32..300 {
        let (key, gid) = (round.to_be_bytes(), round.to_be_bytes());
        let mut reader = world.begin_at(Isolation::Serializable);
        reader.get(&world.tree, &key, &mut Vec::new()).expect("read");
        reader.put(&world.tree, b"written", b"value").expect("written");
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut writer = world.manager.begin(firn_txn::TxnOptions {
                    lock_deadline: Some(Duration::from_secs(5)),
                    ..firn_txn::TxnOptions::default()
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
