//! A rollback frees the trees that its transaction has created, wherever the log fills in the midst
//! of that.

use crate::common::World;
use firndb_base::{Lsn, Progress};
use firndb_log::{Kind, LogClass, Record};
use firndb_txn::ManagerOptions;

/// Fills the log with large records and `small` small ones, or as many as there is space for.
/// Returns how many these were.
fn fill_log(world: &World, small: usize) -> usize {
    let append = |len| {
        let body = vec![0; len];
        world.manager.log().append(LogClass::Rollback, Record { kind: Kind(0x60), body: &body }).is_ok()
    };
    while append(4000) {}
    (0..small).take_while(|_| append(4)).count()
}

/// Rolls back when the log has space for all but `small` of the small records that would fill it;
/// then goes on when it is empty. Whether the rollback had to be put off.
fn roll_back(spilled: bool, small: usize) -> bool {
    let world = World::with_log(2 << 20, ManagerOptions::default());
    let mut txn = world.begin();
    let tree = txn.create_tree().expect("created");
    if spilled {
        world.manager.spill_older_than(Lsn::MAX).expect("spilled");
        assert_eq!(world.manager.statistics().spilled, 1);
    }
    fill_log(&world, small);
    txn.rollback().expect("undone, or put off");
    let put_off = world.manager.has_put_off();
    world.manager.check();
    world.empty_log();
    while world.manager.undo_put_off().expect("undone") == Progress::Worked {}
    assert_eq!(world.manager.losers_left(), 0);
    assert!(world.manager.tree(tree.id()).is_none(), "with {small}, the tree is known");
    let root = world.manager.pool().tier().version_of(tree.root()).expect("in memory");
    assert_eq!(root, None, "with {small}, its root is allocated");
    put_off
}

fn roll_back_at_each_record(spilled: bool) {
    let most = fill_log(&World::with_log(2 << 20, ManagerOptions::default()), usize::MAX);
    let put_off = (0..most).rev().take_while(|small| roll_back(spilled, *small)).count();
    assert!(put_off > 1 && put_off + 1 < most, "put off {put_off} times of {most}");
}

/// The entry was once forgotten before the root was freed. When the log had no space for that, the
/// next attempt found nothing to undo.
#[test]
fn their_undo_entries_being_in_memory() {
    roll_back_at_each_record(false);
}

#[test]
fn their_undo_entries_being_in_the_undo_tree() {
    roll_back_at_each_record(true);
}
