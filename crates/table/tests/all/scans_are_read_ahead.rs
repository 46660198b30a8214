//! Long scans are read ahead and short ones are not; what is read ahead is used.

use crate::common::World;
use firndb_base::Progress;
use firndb_base::rng::Rng;
use firndb_btree::Direction;
use firndb_table::*;
use firndb_txn::Transaction;
use std::ops::Bound;

const ROWS: u32 = 30_000;

/// The next row, once the readers have read all that is queued.
fn next<'c>(world: &World, cursor: &'c mut Cursor, txn: &mut Transaction) -> Option<KeyAndValue<'c>> {
    while world.pool().read_ahead_step() == Progress::Worked {}
    cursor.next(txn).unwrap()
}

fn filled() -> (World, Table) {
    let world = World::with_memory(1024, 800 << 10);
    let table = world.catalog.create_table("t", TableKind::Raw, vec![]).unwrap();
    for first in (0..ROWS).step_by(1000) {
        let mut txn = world.begin();
        for number in first..first + 1000 {
            table.put(&mut txn, &number.to_be_bytes(), &[number as u8; 80]).unwrap();
        }
        txn.commit().unwrap();
    }
    (world, table)
}

#[test]
fn a_whole_scan_shows_every_row_and_wastes_few_reads() {
    let (world, table) = filled();
    world.pool().begin_read_ahead();
    for direction in [Direction::Forward, Direction::Backward] {
        let before = world.pool().statistics();
        let mut txn = world.begin();
        let mut cursor = table.scan(KeyRange::all(), direction);
        let mut expected: Vec<u32> = (0..ROWS).collect();
        if direction == Direction::Backward {
            expected.reverse();
        }
        for number in expected {
            let (key, row) = next(&world, &mut cursor, &mut txn).expect("every row");
            assert_eq!((key, row), (&number.to_be_bytes()[..], &[number as u8; 80][..]));
        }
        assert_eq!(next(&world, &mut cursor, &mut txn), None);
        let after = world.pool().statistics();
        let ahead = after.pages_ahead - before.pages_ahead;
        let wasted = after.pages_ahead_wasted - before.pages_ahead_wasted;
        assert!(ahead > 300, "{ahead} pages read ahead");
        assert!(wasted * 20 <= ahead, "{wasted} of {ahead} pages wasted");
    }
}

/// Ranges with an end, read to it, and ranges without, given up after a few rows.
#[test]
fn random_short_ranges_waste_at_most_one_read_in_twenty() {
    let (world, table) = filled();
    world.pool().begin_read_ahead();
    let rng = &mut Rng::new(3);
    for number in 0..3000 {
        let mut txn = world.begin();
        let first = rng.below(u64::from(ROWS) - 400) as u32;
        let rows = if rng.one_in(10) { 400 } else { 1 + rng.below(60) as u32 };
        let low = first.to_be_bytes();
        let high = (first + rows).to_be_bytes();
        let bound = if number % 2 == 0 { Bound::Excluded(&high[..]) } else { Bound::Unbounded };
        let mut cursor = table.scan(KeyRange::new(Bound::Included(&low), bound), Direction::Forward);
        for at in 0..rows {
            let (key, _) = next(&world, &mut cursor, &mut txn).expect("a row");
            assert_eq!(key, (first + at).to_be_bytes());
        }
    }
    let statistics = world.pool().statistics();
    let (ahead, wasted) = (statistics.pages_ahead, statistics.pages_ahead_wasted);
    assert!(ahead > 100, "{ahead} pages read ahead");
    assert!(wasted * 20 <= statistics.misses, "{wasted} wasted of {} pages read", statistics.misses);
}

/// A range of few leaves, and the first rows of a large one, have nothing read ahead.
#[test]
fn first_rows_are_read_alone() {
    let (world, table) = filled();
    world.pool().begin_read_ahead();
    let rng = &mut Rng::new(4);
    for _ in 0..300 {
        let mut txn = world.begin();
        let low = (rng.below(u64::from(ROWS) - 10) as u32).to_be_bytes();
        let range = KeyRange::new(Bound::Included(&low), Bound::Unbounded);
        let mut cursor = table.scan(range, Direction::Forward);
        for _ in 0..10 {
            next(&world, &mut cursor, &mut txn).expect("a row");
        }
    }
    assert_eq!(world.pool().statistics().pages_ahead, 0);
}

/// In memory a scan queues nothing.
#[test]
fn a_scan_in_memory_reads_nothing() {
    let world = World::new(1024);
    let table = world.catalog.create_table("t", TableKind::Raw, vec![]).unwrap();
    let mut txn = world.begin();
    for number in 0..3000u32 {
        table.put(&mut txn, &number.to_be_bytes(), &[7; 80]).unwrap();
    }
    world.pool().begin_read_ahead();
    let mut cursor = table.scan(KeyRange::all(), Direction::Forward);
    while next(&world, &mut cursor, &mut txn).is_some() {}
    let statistics = world.pool().statistics();
    assert_eq!((statistics.pages_ahead, statistics.misses), (0, 0));
}

/// Its pages come in as those of the working set do, until a scan has brought in an eighth of DRAM.
#[test]
fn a_small_table_that_is_read_whole_again_stays_in_memory() {
    let (world, large) = filled();
    let small = world.catalog.create_table("s", TableKind::Raw, vec![]).unwrap();
    let mut txn = world.begin();
    for number in 0..400_u32 {
        small.put(&mut txn, &number.to_be_bytes(), &[7; 80]).unwrap();
    }
    txn.commit().unwrap();
    let misses_of = |table: &Table| {
        let before = world.pool().statistics().misses;
        let mut txn = world.begin();
        let mut cursor = table.scan(KeyRange::all(), Direction::Forward);
        while cursor.next(&mut txn).unwrap().is_some() {}
        world.pool().statistics().misses - before
    };
    world.pool().write_older_than(world.pool().log().end()).expect("written");
    assert!(misses_of(&large) > 1000, "it is several times the pool");
    let (mut txn, mut row) = (world.begin(), Vec::new());
    for number in (0..ROWS).step_by(5) {
        assert!(large.get(&mut txn, &number.to_be_bytes(), &mut row).unwrap());
    }
    let misses = [misses_of(&small), misses_of(&small)];
    assert!(misses[0] > 20 && misses[1] == 0, "{misses:?}: read once more, it is in memory");
}
