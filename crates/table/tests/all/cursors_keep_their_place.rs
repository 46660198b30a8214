//! Cursors stand between rows by key: whatever happens around them, they continue at the right
//! place.

use crate::common::*;
use firndb_btree::Direction;
use firndb_table::*;
use firndb_txn::{Isolation, TxnErrorKind, TxnOptions};
use std::ops::Bound;
use std::time::Duration;

fn numbers(world: &World, count: u32) -> Table {
    let table = world.catalog.create_table("numbers", TableKind::Raw, vec![by_parity()]).unwrap();
    let mut txn = world.begin();
    for number in 0..count {
        table.insert(&mut txn, &number.to_be_bytes(), &[(number % 2) as u8; 40]).unwrap();
    }
    txn.commit().unwrap();
    table
}

fn by_parity() -> IndexSpec {
    IndexSpec::ranges("by_parity", false, vec![IndexPart::Value(0..1)])
}

fn number(key: &[u8]) -> u32 {
    u32::from_be_bytes(key.try_into().expect("four bytes"))
}

#[test]
fn a_scan_that_deletes_behind_itself_and_inserts_ahead_ends() {
    for direction in [Direction::Forward, Direction::Backward] {
        let world = World::new(1024);
        let table = numbers(&world, 300);
        let mut txn = world.begin();
        let mut cursor = table.scan(KeyRange::all(), direction);
        let mut seen = Vec::new();
        while let Some((key, _)) = cursor.next(&mut txn).unwrap() {
            let at = number(key);
            seen.push(at);
            table.delete(&mut txn, &at.to_be_bytes()).unwrap();
            cursor.refresh();
        }
        let mut expected: Vec<u32> = (0..300).collect();
        if direction == Direction::Backward {
            expected.reverse();
        }
        assert_eq!(seen, expected);
        assert!(table.scan(KeyRange::all(), direction).next(&mut txn).unwrap().is_none());
        txn.commit().unwrap();
        world.assert_sound(&table);
    }
}

#[test]
fn a_refreshed_cursor_sees_what_was_written_ahead_of_it() {
    let world = World::new(4096);
    let table = numbers(&world, 3);
    let mut txn = world.begin();
    let mut cursor = table.scan(KeyRange::all(), Direction::Forward);
    cursor.next(&mut txn).unwrap();
    table.insert(&mut txn, &[0, 0, 0, 0, 1], &[9; 40]).unwrap();
    cursor.refresh();
    assert_eq!(cursor.next(&mut txn).unwrap().unwrap().0, [0, 0, 0, 0, 1]);
    assert_eq!(cursor.next(&mut txn).unwrap().unwrap().0, 1u32.to_be_bytes());
}

/// What lay between the last row returned and the end of its leaf was once skipped, the end of the
/// scan included: a refreshed cursor continued at the next leaf.
#[test]
fn a_refreshed_cursor_goes_on_right_behind_its_last_row() {
    for (direction, new) in [(Direction::Forward, 9u32), (Direction::Backward, 0)] {
        let world = World::new(4096);
        let table = world.catalog.create_table("t", TableKind::Raw, vec![]).unwrap();
        let mut txn = world.begin();
        table.insert(&mut txn, &5u32.to_be_bytes(), b"").unwrap();
        let mut cursor = table.scan(KeyRange::all(), direction);
        assert_eq!(number(cursor.next(&mut txn).unwrap().unwrap().0), 5);
        table.insert(&mut txn, &new.to_be_bytes(), b"").unwrap();
        cursor.refresh();
        assert_eq!(number(cursor.next(&mut txn).unwrap().unwrap().0), new);
        assert!(cursor.next(&mut txn).unwrap().is_none());
        // Also when the end has been reached, and when no row has been returned yet.
        let mut at_end = table.scan(KeyRange::prefix(&[1]), direction);
        assert!(at_end.next(&mut txn).unwrap().is_none());
        table.insert(&mut txn, &[1, 1], b"").unwrap();
        at_end.refresh();
        assert_eq!(at_end.next(&mut txn).unwrap().unwrap().0, [1, 1]);
    }
}

#[test]
fn index_scans_answer_rows_by_range_both_ways() {
    let world = World::new(1024);
    let table = numbers(&world, 200);
    let index = table.index("by_parity").unwrap();
    let mut txn = world.begin();
    for direction in [Direction::Forward, Direction::Backward] {
        let mut cursor = index.scan(KeyRange::prefix(&[1]), direction);
        let mut seen = Vec::new();
        while let Some(found) = cursor.next(&mut txn).unwrap() {
            assert_eq!(found.row, [1; 40]);
            seen.push(number(found.primary_key));
        }
        let mut expected: Vec<u32> = (0..100).map(|i| 2 * i + 1).collect();
        if direction == Direction::Backward {
            expected.reverse();
        }
        assert_eq!(seen, expected);
    }
    let mut entries =
        index.scan(KeyRange::new(Bound::Excluded(&[0, 0, 0, 0, 196]), Bound::Unbounded), Direction::Forward);
    assert_eq!(number(entries.next_entry(&mut txn).unwrap().unwrap().1), 198);
    assert_eq!(number(entries.next_entry(&mut txn).unwrap().unwrap().1), 1);
    assert!(index.get(&mut txn, &[1], &mut Vec::new(), &mut Vec::new()).is_err(), "the index is not unique");
}

#[test]
fn rows_returned_for_update_are_locked_and_a_failed_step_can_be_repeated() {
    let world = World::new(4096);
    let table = numbers(&world, 3);
    let mut holder = world.begin();
    table.get_for_update(&mut holder, &1u32.to_be_bytes(), &mut Vec::new()).unwrap();
    let short = TxnOptions {
        isolation: Isolation::ReadCommitted,
        lock_deadline: Some(Duration::from_millis(5)),
        ..TxnOptions::default()
    };
    let mut txn = world.manager.begin(short);
    let mut cursor = table.scan(KeyRange::all(), Direction::Forward).for_update();
    assert_eq!(number(cursor.next(&mut txn).unwrap().unwrap().0), 0);
    let error = cursor.next(&mut txn).unwrap_err();
    assert_eq!(error.kind, TableErrorKind::Transaction(TxnErrorKind::Timeout));
    table.delete(&mut holder, &1u32.to_be_bytes()).unwrap();
    holder.commit().unwrap();
    assert_eq!(number(cursor.next(&mut txn).unwrap().unwrap().0), 2, "the row that went is passed over");
    assert!(cursor.next(&mut txn).unwrap().is_none());
}

#[test]
fn estimates_are_near() {
    let world = World::new(1024);
    let table = numbers(&world, 2000);
    let rows = table.approximate_rows().unwrap();
    assert!((1000..4000).contains(&rows), "{rows}");
    let half = KeyRange::new(Bound::Included(&500u32.to_be_bytes()), Bound::Excluded(&1500u32.to_be_bytes()));
    let rows = table.estimate(&half, None).unwrap();
    assert!((500..2000).contains(&rows), "{rows}");
    let odd = table.index("by_parity").unwrap().estimate(&KeyRange::prefix(&[1]), None).unwrap();
    assert!((500..2000).contains(&odd), "{odd}");
    assert_eq!(table.estimate(&KeyRange::new(Bound::Included(b"b"), Bound::Excluded(b"a")), None), Ok(0));
}

/// A cursor once continued with whatever transaction it was given.
#[test]
fn a_cursor_goes_on_only_with_the_transaction_it_began_with() {
    for isolation in [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable] {
        let world = World::new(1024);
        let table = numbers(&world, 100);
        let index = table.index("by_parity").unwrap();
        // Neither has an id: they have only read.
        let (mut one, mut two) = (world.begin_at(isolation), world.begin_at(isolation));
        let mut cursor = table.scan(KeyRange::all(), Direction::Forward);
        let mut entries = index.scan(KeyRange::all(), Direction::Forward);
        cursor.next(&mut one).unwrap().unwrap();
        entries.next(&mut one).unwrap().unwrap();
        assert_eq!(cursor.next(&mut two).unwrap_err().kind, TableErrorKind::BadArgument);
        assert_eq!(entries.next(&mut two).unwrap_err().kind, TableErrorKind::BadArgument);
        assert_eq!(entries.next_entry(&mut two).unwrap_err().kind, TableErrorKind::BadArgument);
        assert_eq!(number(cursor.next(&mut one).unwrap().unwrap().0), 1, "it stands where it stood");
        one.commit().unwrap();
        cursor.refresh();
        entries.refresh();
        assert_eq!(number(cursor.next(&mut two).unwrap().unwrap().0), 2);
        assert_eq!(number(entries.next(&mut two).unwrap().unwrap().primary_key), 2);
    }
}
