//! Large values that are read in the order in which they were written are read ahead, others are
//! not; and none before it is committed.

use crate::common::World;
use firndb_base::Progress;
use firndb_table::*;

const PAGE: usize = 1024;
/// Two leaves of parts.
const PAGES: usize = 40;
const VALUES: u64 = 60;

fn value(number: u64) -> Vec<u8> {
    (0..PAGES * PAGE + 100).map(|at| (at / 64) as u8 ^ number as u8).collect()
}

/// More values than DRAM has.
fn filled() -> (World, Table) {
    let world = World::with_memory(PAGE, 800 << 10);
    let table = world.catalog.create_table("t", TableKind::Raw, vec![]).unwrap();
    for number in 0..VALUES {
        let mut txn = world.begin();
        table.put(&mut txn, &number.to_be_bytes(), &value(number)).unwrap();
        txn.commit().unwrap();
    }
    world.pool().begin_read_ahead();
    (world, table)
}

/// Reads a value, once the readers have read all that is queued; returns how many pages were read
/// for it.
fn read(world: &World, table: &Table, number: u64) -> u64 {
    while world.pool().read_ahead_step() == Progress::Worked {}
    let (before, mut found) = (world.pool().statistics().misses, Vec::new());
    assert!(table.get(&mut world.begin(), &number.to_be_bytes(), &mut found).unwrap());
    assert!(found == value(number), "value {number}");
    world.pool().statistics().misses - before
}

#[test]
fn a_value_behind_the_one_before_waits_for_few_pages_and_others_for_all() {
    let (world, table) = filled();
    let in_order: Vec<u64> = (0..VALUES / 2).map(|number| read(&world, &table, number)).collect();
    assert!(in_order[0] >= PAGES as u64, "{in_order:?}");
    let missed: u64 = in_order[3..].iter().sum();
    assert!(missed * 8 <= (in_order.len() * PAGES) as u64, "{in_order:?}");
    let statistics = world.pool().statistics();
    let (ahead, wasted) = (statistics.pages_ahead, statistics.pages_ahead_wasted);
    assert!(ahead > 1000 && wasted * 20 <= ahead, "{wasted} wasted of {ahead}");
    let (_, before) = (read(&world, &table, VALUES - 1), world.pool().statistics().pages_ahead);
    for number in (0..VALUES).rev().step_by(2) {
        read(&world, &table, number);
    }
    let ahead = world.pool().statistics().pages_ahead - before;
    assert!(ahead <= 30 * PAGES as u64, "only a value's own pages: {ahead}");
}

#[test]
fn pages_of_a_value_that_is_not_committed_are_not_read_ahead() {
    let (world, table) = filled();
    let mut writer = world.begin();
    table.put(&mut writer, &VALUES.to_be_bytes(), &value(VALUES)).unwrap();
    (VALUES - 5..VALUES).for_each(|number| _ = read(&world, &table, number));
    while world.pool().read_ahead_step() == Progress::Worked {}
    writer.commit().unwrap();
    read(&world, &table, VALUES);
    read(&world, &table, VALUES - 20);
}
