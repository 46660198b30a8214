//! A transaction that goes back to savepoints again and again holds neither memory nor log space
//! for what it has taken back.

use crate::common::World;
use firndb_txn::ManagerOptions;
use std::sync::atomic::Ordering;

fn small_budget() -> World {
    World::new(ManagerOptions { version_budget_bytes: 64 << 10, ..ManagerOptions::default() })
}

/// Used entries once stayed listed. When they were more than the budget, every write of every
/// transaction spilled its own before-images, and those of the commits that were kept.
#[test]
fn and_makes_no_other_transaction_spill() {
    let world = small_budget();
    let mut repeating = world.begin();
    for i in 0..5_000u32 {
        let savepoint = repeating.savepoint();
        repeating.put(&world.tree, b"taken back", &i.to_be_bytes()).expect("written");
        repeating.rollback_to(&savepoint).expect("undone");
    }
    assert!(world.manager.statistics().version_bytes < 4 << 10, "{:?}", world.manager.statistics());
    let mut other = world.begin();
    for i in 0..10u32 {
        other.put(&world.tree, &i.to_be_bytes(), b"other").expect("written");
    }
    assert_eq!(world.manager.statistics().spilled, 0);
    world.manager.check();
    other.commit().expect("committed");
    repeating.put(&world.tree, b"kept", b"kept").expect("written");
    repeating.commit().expect("committed");
    let mut value = Vec::new();
    let mut reader = world.begin();
    assert!(!reader.get(&world.tree, b"taken back", &mut value).expect("read"));
    assert!(reader.get(&world.tree, b"kept", &mut value).expect("read"));
}

/// What undoing takes once stayed promised for the entries that were spilled before they were used,
/// until the transaction ended: up to half of the log was kept from others.
#[test]
fn and_keeps_no_log_from_others() {
    let world = small_budget();
    let mut loading = world.begin();
    for i in 0..800u32 {
        loading.put(&world.tree, &i.to_be_bytes(), &[1; 140]).expect("written");
    }
    loading.commit().expect("committed");
    let promise = || world.manager.log().undo_promise().load(Ordering::Relaxed);
    let mut repeating = world.begin();
    for round in 0..5 {
        let (savepoint, spilled) = (repeating.savepoint(), world.manager.statistics().spilled);
        for i in 0..800u32 {
            repeating.put(&world.tree, &i.to_be_bytes(), &[2; 140]).expect("written");
        }
        assert!(promise() > 100_000, "{} for what is not undone", promise());
        assert!(world.manager.statistics().spilled > spilled, "more than the budget");
        repeating.rollback_to(&savepoint).expect("undone");
        assert_eq!(promise(), 0, "in round {round}");
        world.manager.check();
    }
    repeating.commit().expect("committed");
}
