//! A checkpoint may spill a transaction's before-images while that transaction returns to a
//! savepoint or ends: what has been used or forgotten does not come back, and nothing stays behind
//! in the undo tree.

use crate::common::World;
use firndb_base::Lsn;
use firndb_btree::{Direction, Position, Visit};
use firndb_txn::ManagerOptions;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn spilled_now(world: &World) -> usize {
    let mut count = 0;
    let mut position = Some(Position::Start);
    while let Some(from) = position {
        position = world
            .manager
            .undo_tree()
            .visit_leaf(&from, Direction::Forward, |_, _| {
                count += 1;
                Visit::Continue
            })
            .expect("readable");
    }
    count
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Spills all the time beside `work`, for a while.
fn beside_spilling(world: &World, mut work: impl FnMut(u32)) {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Ends the other thread if this one fails, too.
        let _guard = SetOnDrop(&ended);
        scope.spawn(|| {
            while !ended.load(Ordering::SeqCst) {
                world.manager.spill_older_than(Lsn::MAX).expect("the log has space");
            }
        });
        let until = Instant::now() + Duration::from_secs(2);
        for i in 0.. {
            work(i);
            if i % 64 == 0 {
                world.manager.check();
            }
            // No checkpoints run here: the log only fills.
            let space = world.manager.log().space();
            if Instant::now() > until || space.used_bytes > space.capacity_bytes / 2 {
                break;
            }
        }
    });
    while world.manager.maintenance_step().expect("usable") == firndb_base::Progress::Worked {}
    world.manager.check();
}

#[test]
fn used_entries_do_not_come_back_and_forgotten_ones_do_not_stay() {
    let world = World::new(ManagerOptions::default());
    // An earlier epoch's entries are swept once; what is left after that stays until the next
    // opening.
    while world.manager.maintenance_step().expect("usable") == firndb_base::Progress::Worked {}
    beside_spilling(&world, |i| {
        let mut txn = world.begin();
        let key = (i % 50).to_be_bytes();
        txn.put(&world.tree, &key, &i.to_be_bytes()).expect("written");
        let savepoint = txn.savepoint();
        txn.put(&world.tree, &key, b"other").expect("written");
        drop(txn.create_tree().expect("created"));
        txn.rollback_to(&savepoint).expect("undone");
        if i % 2 == 0 {
            txn.commit().expect("committed");
        } else {
            txn.rollback().expect("rolled back");
        }
    });
    assert_eq!(spilled_now(&world), 0, "no transaction is open, and nothing will ever remove these");
}
