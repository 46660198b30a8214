//! Under read committed a statement sees one moment, though it reads an index and then the table,
//! or a leaf after the other: a row that is always there is found, whatever happens to its indexed
//! column meanwhile.

use crate::common::*;
use firndb_base::clock;
use firndb_base::rng::Rng;
use firndb_base::sim::{self, SimOptions};
use firndb_base::sync::{Arc, thread};
use firndb_btree::Direction;
use firndb_table::*;
use firndb_txn::{Isolation, StatementView, Transaction, TxnOptions};
use std::time::Duration;

const LEVEL: Isolation = Isolation::ReadCommitted;

/// A raw table whose values begin with two indexed bytes.
fn table(world: &World, unique: bool) -> (Table, Index) {
    let spec = IndexSpec::ranges("by_value", unique, vec![IndexPart::Value(0..2)]);
    let table = world.catalog.create_table("rows", TableKind::Raw, vec![spec]).expect("a table");
    let index = table.index("by_value").expect("just created");
    (table, index)
}

fn value(first: u16) -> [u8; 60] {
    let mut value = [b'.'; 60];
    value[..2].copy_from_slice(&first.to_be_bytes());
    value
}

fn change(world: &World, work: impl FnOnce(&mut Transaction) -> Result<bool, TableError>) {
    let mut txn = world.begin();
    assert!(work(&mut txn).expect("nothing is in the way"), "the row is there");
    txn.commit().expect("committed");
}

/// The keys that are left of a scan.
fn keys(cursor: &mut IndexCursor, txn: &mut Transaction) -> Vec<u16> {
    let mut keys = Vec::new();
    while let Some(row) = cursor.next(txn).expect("a row or the end") {
        keys.push(u16::from_be_bytes(row.primary_key.try_into().expect("two bytes")));
    }
    keys
}

/// Entry and row were once read at two moments: a row whose entry moved from before its leaf was
/// read to behind the place of the scan, or from a later leaf to an earlier one, was skipped.
#[test]
fn a_row_whose_entry_moves_behind_the_scan_is_found_once() {
    for unique in [false, true] {
        for for_update in [false, true] {
            // Of one leaf, and of many.
            for count in [3u16, 400] {
                let world = World::new(1024);
                let (table, index) = table(&world, unique);
                let mut txn = world.begin();
                for number in 0..count {
                    table.insert(&mut txn, &number.to_be_bytes(), &value(1000 + number)).expect("free");
                }
                txn.commit().expect("committed");
                let mut reader = world.begin_at(LEVEL);
                let mut cursor = index.scan(KeyRange::all(), Direction::Forward);
                if for_update {
                    cursor = cursor.for_update();
                }
                let first = cursor.next(&mut reader).expect("read").expect("a row").primary_key.to_vec();
                assert_eq!(first, 0u16.to_be_bytes());
                // The last row, not read yet, gets the first entry of all.
                change(&world, |txn| table.update(txn, &(count - 1).to_be_bytes(), &value(1)));
                assert_eq!(keys(&mut cursor, &mut reader), (1..count).collect::<Vec<_>>());
                // The next statement sees it where it is.
                let mut cursor = index.scan(KeyRange::all(), Direction::Forward);
                assert_eq!(keys(&mut cursor, &mut reader)[0], count - 1);
            }
        }
    }
}

/// What is locked is the newest version: it is delivered if it still lies in the range, as it is
/// now.
#[test]
fn a_scan_for_update_delivers_what_is_in_its_range_now() {
    let world = World::new(4096);
    let (table, index) = table(&world, false);
    let mut txn = world.begin();
    for number in 0..4u16 {
        table.insert(&mut txn, &number.to_be_bytes(), &value(10 + number)).expect("free");
    }
    txn.commit().expect("committed");
    let mut reader = world.begin_at(LEVEL);
    let range = KeyRange::prefix(&[0]);
    let mut cursor = index.scan(range, Direction::Forward).for_update();
    cursor.next(&mut reader).expect("read").expect("a row");
    change(&world, |txn| table.update(txn, &1u16.to_be_bytes(), &value(200)));
    change(&world, |txn| table.update(txn, &2u16.to_be_bytes(), &value(300)));
    change(&world, |txn| table.delete(txn, &3u16.to_be_bytes()));
    let found = cursor.next(&mut reader).expect("read").expect("it is in the range still");
    assert_eq!((found.primary_key, &found.index_key[..2]), (&[0, 1][..], &[0, 200][..]));
    assert_eq!(found.row, value(200));
    assert!(cursor.next(&mut reader).expect("read").is_none(), "one has left the range, one is deleted");
    // What this transaction itself has moved is delivered at its new place alone.
    table.update(&mut reader, &1u16.to_be_bytes(), &value(201)).expect("its own");
    let mut cursor = index.scan(KeyRange::all(), Direction::Forward).for_update();
    let mut seen = Vec::new();
    while let Some(found) = cursor.next(&mut reader).expect("read") {
        let key = found.primary_key.to_vec();
        if key == [0, 0] {
            table.update(&mut reader, &[0, 1], &value(5)).expect("its own");
        }
        seen.push(key);
    }
    assert_eq!(seen, [vec![0, 0], vec![0, 2]], "moved behind itself: passed over");
}

/// One row, whose indexed bytes change all the time, and readers.
fn beside_changes(seed: u64, unique: bool) {
    let options = SimOptions { preempt_one_in: 4, ..SimOptions::seeded(seed) };
    let outcome = sim::run(options, move || {
        let world = Arc::new(World::new(1024));
        let (table, index) = table(&world, unique);
        change(&world, |txn| table.insert(txn, &[0, 1], &value(0)).map(|()| true));
        let mut threads = Vec::new();
        {
            let (world, table) = (world.clone(), table.clone());
            let writer = move || {
                let mut rng = Rng::new(seed);
                for _ in 0..40 {
                    let new = value(rng.below(3) as u16);
                    if rng.one_in(4) {
                        // The same indexed bytes, under another primary key.
                        let mut txn = world.begin();
                        for (old, new) in [([0, 1], [0, 2]), ([0, 2], [0, 1])] {
                            let mut row = Vec::new();
                            if table.get(&mut txn, &old, &mut row).expect("read") {
                                table.delete(&mut txn, &old).expect("deleted");
                                table.insert(&mut txn, &new, &row).expect("free");
                                break;
                            }
                        }
                        txn.commit().expect("committed");
                    } else {
                        let mut txn = world.begin();
                        let there = table.update(&mut txn, &[0, 1], &new).expect("alone");
                        if !there {
                            assert!(table.update(&mut txn, &[0, 2], &new).expect("alone"));
                        }
                        txn.commit().expect("committed");
                    }
                    clock::sleep(Duration::from_micros(3));
                }
            };
            threads.push(thread::spawn("writer", writer).expect("a thread"));
        }
        for _ in 0..2 {
            let (world, index) = (world.clone(), index.clone());
            let reader = move || {
                let mut txn = world.begin_at(LEVEL);
                for turn in 0..40 {
                    let direction = if turn % 2 == 0 { Direction::Forward } else { Direction::Backward };
                    let mut cursor = index.scan(KeyRange::all(), direction);
                    assert_eq!(keys(&mut cursor, &mut txn).len(), 1, "the row is always there, once");
                }
            };
            threads.push(thread::spawn("reader", reader).expect("a thread"));
        }
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
    outcome.unwrap_or_else(|failure| panic!("seed {seed}, unique {unique}: {failure}"));
}

#[test]
fn a_row_whose_indexed_column_changes_is_never_missed() {
    for seed in 0..40 {
        beside_changes(seed, seed % 2 == 0);
    }
}

/// The row of one unique key moves from one primary key to another and back, in one transaction
/// each: there is always one, and its look-up once found none.
#[test]
fn a_unique_key_that_is_always_there_is_always_found() {
    for seed in 0..20 {
        let options = SimOptions { preempt_one_in: 4, ..SimOptions::seeded(seed) };
        let outcome = sim::run(options, move || {
            let world = Arc::new(World::new(1024));
            let (table, index) = table(&world, true);
            change(&world, |txn| table.insert(txn, &[0, 1], &value(7)).map(|()| true));
            let (other, rows) = (world.clone(), table.clone());
            let writer = thread::spawn("writer", move || {
                let (mut at, mut next) = ([0, 1], [0, 2]);
                for _ in 0..40 {
                    change(&other, |txn| {
                        rows.delete(txn, &at)?;
                        rows.insert(txn, &next, &value(7)).map(|()| true)
                    });
                    (at, next) = (next, at);
                    clock::sleep(Duration::from_micros(3));
                }
            });
            let mut txn = world.begin_at(LEVEL);
            let (mut key, mut row) = (Vec::new(), Vec::new());
            for _ in 0..80 {
                assert!(
                    index.get(&mut txn, &[0, 7], &mut key, &mut row).expect("read"),
                    "it is always there"
                );
            }
            writer.expect("a thread").join().expect("no panic");
        });
        outcome.unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
    }
}

/// Between statements a transaction at this level holds nothing back; a cursor does, to its end.
#[test]
fn an_idle_transaction_keeps_no_snapshot_and_an_open_cursor_does() {
    let world = World::new(4096);
    let (table, index) = table(&world, true);
    let mut txn = world.begin();
    for number in 0..3u16 {
        table.insert(&mut txn, &number.to_be_bytes(), &value(number)).expect("free");
    }
    txn.commit().expect("committed");
    let snapshots = || world.manager.statistics().snapshots;
    let mut txn = world.begin_at(LEVEL);
    let (mut key, mut row) = (Vec::new(), Vec::new());
    assert!(table.get(&mut txn, &[0, 1], &mut row).expect("read"));
    assert_eq!(snapshots(), 0, "a read");
    assert!(index.get(&mut txn, &[0, 1], &mut key, &mut row).expect("read"));
    assert_eq!(snapshots(), 0, "a look-up");
    assert!(table.update(&mut txn, &[0, 1], &value(9)).expect("free"));
    assert!(table.get_for_update(&mut txn, &[0, 2], &mut row).expect("free"));
    assert!(table.insert(&mut txn, &[0, 2], &value(8)).is_err());
    assert_eq!(snapshots(), 0, "writes, one that failed among them");

    let mut cursor = index.scan(KeyRange::all(), Direction::Forward);
    cursor.next(&mut txn).expect("read").expect("a row");
    assert_eq!(snapshots(), 1, "an index cursor under way");
    assert_eq!(keys(&mut cursor, &mut txn).len(), 2);
    assert_eq!(snapshots(), 0, "and at its end");
    let mut cursor = table.scan(KeyRange::all(), Direction::Forward);
    cursor.next(&mut txn).expect("read").expect("a row");
    assert_eq!(snapshots(), 1, "a cursor under way");
    cursor.refresh();
    assert_eq!(snapshots(), 0, "refreshed");
    cursor.next(&mut txn).expect("read").expect("a row");
    drop(cursor);
    assert_eq!(snapshots(), 0, "dropped");
    txn.commit().expect("committed");
}

/// A transaction that has dropped its snapshots has still seen what it saw: its commit waits for
/// that.
#[test]
fn a_commit_waits_for_what_statements_before_have_seen() {
    let world = World::new(4096);
    let (table, _) = table(&world, false);
    let mut writer = world.begin();
    table.insert(&mut writer, &[0, 1], &value(1)).expect("free");
    let written = writer.commit_order().expect("ordered");
    let mut reader = world.begin_at(LEVEL);
    assert!(table.get(&mut reader, &[0, 1], &mut Vec::new()).expect("read"));
    assert!(table.get(&mut reader, &[0, 1], &mut Vec::new()).expect("read"));
    let seen = reader.commit_order().expect("ordered");
    assert!(seen.lsn() >= written.lsn());
}

/// Adds `count` columns to the table of people, one at a time, and writes the row with each.
fn add_columns(world: &World, people: &Table, count: i32) {
    let typed = people.typed().expect("typed");
    for number in 0..count {
        let column = Column::new(format!("more{number}"), ColumnType::I32).with_default(0);
        world.catalog.add_column(people, column).expect("added");
        let mut row = person(1, "ann", Some("mail"), 30).to_vec();
        row.extend((0..=number).map(ValueRef::I32));
        change(world, |txn| typed.update(txn, &row));
    }
}

/// A statement takes the table's state and then reads: a row that was written with a new column in
/// between was once said to be damaged.
#[test]
fn a_column_added_in_between_is_no_damage() {
    for seed in 0..30 {
        let options = SimOptions { preempt_one_in: 4, ..SimOptions::seeded(seed) };
        let outcome = sim::run(options, move || {
            let world = Arc::new(World::new(4096));
            let people = people(&world);
            let typed = people.typed().expect("typed");
            change(&world, |txn| typed.insert(txn, &person(1, "ann", Some("mail"), 30)).map(|()| true));
            let (other, table) = (world.clone(), people.clone());
            let writer = thread::spawn("writer", move || add_columns(&other, &table, 6));
            let (by_name, by_mail) = (people.index("by_name"), people.index("by_mail"));
            let (by_name, by_mail) = (by_name.expect("there"), by_mail.expect("there"));
            let mut row = Vec::new();
            for turn in 0..60 {
                let level = [LEVEL, Isolation::Snapshot, Isolation::Serializable][turn % 3];
                let mut txn = world.begin_at(level);
                assert!(typed.get_by(&mut txn, &by_mail, &["mail".into()], &mut row).expect("no damage"));
                drop(txn);
                let mut txn = world.begin_at(level);
                let mut cursor = by_name.scan(KeyRange::all(), Direction::Forward);
                assert!(cursor.next(&mut txn).expect("no damage").is_some());
            }
            writer.expect("a thread").join().expect("no panic");
        });
        outcome.unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
    }
}

/// An analysis takes the table's state before its snapshot, too.
#[test]
fn a_column_added_while_a_table_is_analyzed_is_no_damage() {
    for seed in 0..60 {
        let options = SimOptions { preempt_one_in: 4, ..SimOptions::seeded(seed) };
        let outcome = sim::run(options, move || {
            let world = Arc::new(World::new(4096));
            let people = people(&world);
            let typed = people.typed().expect("typed");
            change(&world, |txn| typed.insert(txn, &person(1, "ann", Some("mail"), 30)).map(|()| true));
            let (other, table) = (world.clone(), people.clone());
            let analysis = thread::spawn("analysis", move || {
                for _ in 0..4 {
                    let found = other.catalog.survey(&table, TxnOptions::default(), &mut |_| {});
                    assert_eq!(found.expect("no damage").rows, 1);
                }
            });
            add_columns(&world, &people, 2);
            analysis.expect("a thread").join().expect("no panic");
        });
        outcome.unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
    }
}

/// Only the level `Snapshot` was checked. A statement of several reads, a query, that had taken its
/// snapshot before an index was complete then read the index without an error, and found none of
/// the rows in it.
#[test]
fn an_index_completed_after_the_snapshot_of_the_statement_is_refused_not_empty() {
    let world = World::new(1024);
    let rows = world.catalog.create_table("rows", TableKind::Raw, vec![]).expect("a table");
    change(&world, |txn| rows.insert(txn, b"k", &value(7)).map(|()| true));
    let mut reader = world.begin_at(LEVEL);
    let mut view = StatementView::default();
    let mut found = Vec::new();
    assert!(reader.in_statement(&mut view, |txn| rows.get(txn, b"k", &mut found)).expect("read"));
    let spec = IndexSpec::ranges("by_value", true, vec![IndexPart::Value(0..2)]);
    let index = world.catalog.create_index(&rows, spec, &BuildLimits::default()).expect("built");
    let (mut key, mut row) = (Vec::new(), Vec::new());
    let entry = 7u16.to_be_bytes();
    let scan = |txn: &mut Transaction| {
        let mut cursor = index.scan(KeyRange::all(), Direction::Forward);
        cursor.next(txn).map(|row| row.is_some())
    };
    for read in [
        reader.in_statement(&mut view, |txn| index.get(txn, &entry, &mut key, &mut row)),
        reader.in_statement(&mut view, scan),
    ] {
        assert_eq!(read.expect_err("the snapshot is older").kind, TableErrorKind::Stale);
    }
    drop(view);
    // The next statement sees it.
    assert!(index.get(&mut reader, &entry, &mut key, &mut row).expect("read"));
    let mut view = StatementView::default();
    assert!(reader.in_statement(&mut view, scan).expect("read"));
}
