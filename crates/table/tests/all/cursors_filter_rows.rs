//! A filter returns the rows that a loop over all rows would choose.

use crate::common::*;
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::{AtomicU64, Ordering};
use firndb_btree::Direction;
use firndb_table::*;
use firndb_txn::Isolation;
use std::ops::Bound;

#[test]
fn of_raw_tables_whatever_their_values_length() {
    let world = World::new(1024);
    let table = world.catalog.create_table("t", TableKind::Raw, vec![]).unwrap();
    let rng = &mut Rng::new(1);
    let mut txn = world.begin();
    for number in 0..800u32 {
        let len = if rng.one_in(10) { rng.below(4000) } else { rng.below(90) };
        table.put(&mut txn, &number.to_be_bytes(), &vec![number as u8; len as usize]).unwrap();
    }
    txn.commit().unwrap();
    let is_even = |key: &[u8], _: &[u8]| key[3].is_multiple_of(2);
    let is_long = |_: &[u8], row: &[u8]| row.len() > 80;
    for isolation in [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable] {
        for direction in [Direction::Forward, Direction::Backward] {
            for for_update in [false, true] {
                let mut txn = world.begin_at(isolation);
                let cursor = || {
                    let cursor = table.scan(KeyRange::all(), direction);
                    if for_update { cursor.for_update() } else { cursor }
                };
                let (mut all, mut filtered) = (cursor(), cursor().filter(is_even).filter(is_long));
                let mut chosen = 0;
                while let Some((key, row)) = all.next(&mut txn).unwrap() {
                    if is_even(key, row) && is_long(key, row) {
                        assert_eq!(filtered.next(&mut txn).unwrap(), Some((key, row)));
                        chosen += 1;
                    }
                }
                assert_eq!(filtered.next(&mut txn).unwrap(), None);
                assert!(chosen > 30);
            }
        }
    }
}

/// Under read committed a row may have changed since the cursor's snapshot: it is locked as it is
/// now, and the filter is asked again.
#[test]
fn of_rows_that_are_read_for_update_as_they_are_now() {
    let world = World::new(1024);
    let table = world.catalog.create_table("t", TableKind::Raw, vec![]).unwrap();
    let put = |key: &[u8], row: &[u8]| {
        let mut txn = world.begin();
        table.put(&mut txn, key, row).unwrap();
        txn.commit().unwrap();
    };
    (0..5u8).for_each(|number| put(&[number], b"yes"));
    let mut txn = world.begin_at(Isolation::ReadCommitted);
    let mut cursor =
        table.scan(KeyRange::all(), Direction::Forward).filter(|_, row| row == b"yes").for_update();
    cursor.next(&mut txn).unwrap().expect("the first");
    put(&[1], b"no");
    assert_eq!(cursor.next(&mut txn).unwrap().expect("the third").0, [2]);
}

#[test]
fn of_typed_tables_by_columns_of_key_and_row() {
    let world = World::new(1024);
    let people = people(&world).typed().unwrap();
    let mut txn = world.begin();
    for id in 0..300 {
        let (name, mail) = (["Ada", "Grace", "Edsger"][id as usize % 3], format!("{id}@example.org"));
        let mail = (id % 4 != 0).then_some(mail.as_str());
        people.insert(&mut txn, &person(id, name, mail, (id % 50) as i32)).unwrap();
    }
    let unbounded = std::ops::Bound::Unbounded;
    let by_name = people.table().index("by_name").unwrap();
    for kind in 0..3 {
        let cursor = match kind {
            0 => people.scan(unbounded, unbounded, Direction::Forward),
            1 => people.scan_index(&by_name, unbounded, unbounded, Direction::Forward),
            _ => people
                .scan_index(&by_name, unbounded, unbounded, Direction::Forward)
                .map(|rows| rows.unordered()),
        };
        let mut chosen = cursor
            .unwrap()
            .filter(0, |id| id > ValueRef::I64(100))
            .and_then(|rows| rows.filter(1, |name| name == ValueRef::Text("Grace")))
            .and_then(|rows| rows.filter(2, |mail| mail.is_null()))
            .unwrap();
        let mut found: Vec<i64> = rest(&mut chosen, &mut txn)
            .into_iter()
            .map(|row| match row[0] {
                Value::I64(id) => id,
                _ => panic!("an id is a number"),
            })
            .collect();
        found.sort_unstable();
        let expected: Vec<i64> = (101..300).filter(|id| id % 3 == 1 && id % 4 == 0).collect();
        assert_eq!(found, expected, "kind {kind}");
    }
    let cursor = people.scan(unbounded, unbounded, Direction::Forward).unwrap();
    assert_eq!(cursor.filter(4, |_| true).err().map(|error| error.kind), Some(TableErrorKind::BadArgument));
    // By many keys, too.
    let rows = people.get_many(&mut txn, &[[7i64.into()], [999i64.into()], [3i64.into()]]).unwrap();
    let ids: Vec<Option<Value>> = rows.into_iter().map(|row| row.map(|row| row[0].clone())).collect();
    assert_eq!(ids, [Some(Value::I64(7)), None, Some(Value::I64(3))]);
}

/// The filter is asked for each row that a batch visits: a query for a few rows visits no more than
/// the first batch and the second, wherever leaves end.
#[test]
fn of_few_rows_without_visiting_a_leaf_more() {
    let world = World::new(1024);
    let table = world.catalog.create_table("t", TableKind::Raw, vec![]).unwrap();
    let mut txn = world.begin();
    for number in 0..400u32 {
        table.put(&mut txn, &number.to_be_bytes(), &[number as u8; 20]).unwrap();
    }
    txn.commit().unwrap();
    let mut txn = world.begin();
    for first in 0..380u32 {
        for (wanted, most) in [(1, 1), (10, 17)] {
            let visited = Arc::new(AtomicU64::new(0));
            let counter = visited.clone();
            let range = KeyRange::new(Bound::Included(&first.to_be_bytes()), Bound::Unbounded);
            let mut cursor = table.scan(range, Direction::Forward).filter(move |_, _| {
                counter.fetch_add(1, Ordering::Relaxed);
                true
            });
            for number in first..first + wanted {
                let (key, _) = cursor.next(&mut txn).unwrap().expect("a row");
                assert_eq!(key, number.to_be_bytes());
            }
            let visited = visited.load(Ordering::Relaxed);
            assert!(visited <= most, "{visited} rows from {first} on for {wanted}");
        }
    }
}
