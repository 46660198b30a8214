//! A transaction that goes back to savepoints again and again holds no memory for what it has taken
//! back.

use crate::common::World;
use firndb_txn::ManagerOptions;

/// Used entries once stayed listed. When they were more than the budget, every write of every
/// transaction spilled its own before-images, and those of the commits that were kept.
#[test]
fn and_makes_no_other_transaction_spill() {
    let world = World::new(ManagerOptions { version_budget_bytes: 64 << 10, ..ManagerOptions::default() });
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
