//! How many rows a table has: counted where it is small, within 10 % where it is large, whatever
//! shape its tree has.

use crate::common::*;
use firndb_base::rng::Rng;
use firndb_table::*;

fn insert(world: &World, table: &Table, rows: impl Iterator<Item = (u32, usize)>) {
    let mut rows = rows.peekable();
    while rows.peek().is_some() {
        let mut txn = world.begin();
        for (key, bytes) in rows.by_ref().take(500) {
            table.insert(&mut txn, &key.to_be_bytes(), &vec![7; bytes]).unwrap();
        }
        txn.commit().unwrap();
    }
}

fn delete(world: &World, table: &Table, keys: impl Iterator<Item = u32>) {
    let mut keys = keys.peekable();
    while keys.peek().is_some() {
        let mut txn = world.begin();
        for key in keys.by_ref().take(500) {
            assert!(table.delete(&mut txn, &key.to_be_bytes()).unwrap());
        }
        txn.commit().unwrap();
    }
}

fn count(world: &World, table: &Table) -> RowCount {
    let mut txn = world.begin();
    let count = table.count_rows(&mut txn).unwrap();
    txn.rollback().unwrap();
    count
}

#[track_caller]
fn assert_within_ten_percent(found: RowCount, rows: u64) {
    let off = found.rows.abs_diff(rows) as f64 / rows as f64;
    assert!(off <= 0.1, "{found:?} of {rows} rows, {:.1} % off", off * 100.0);
}

#[test]
fn small_tables_are_counted() {
    let world = World::new(1024);
    let table = world.catalog.create_table("t", TableKind::Raw, Vec::new()).unwrap();
    assert_eq!(count(&world, &table), RowCount { rows: 0, is_exact: true });
    insert(&world, &table, (0..3000).map(|key| (key, 40)));
    assert_eq!(count(&world, &table), RowCount { rows: 3000, is_exact: true });
    // What is deleted leaves ghosts, which are entries of the tree and no rows.
    let reader = world.begin();
    delete(&world, &table, (0..3000).filter(|key| key % 10 != 0));
    assert_eq!(count(&world, &table), RowCount { rows: 300, is_exact: true });
    drop(reader);
    // Rows of a transaction that has not committed are not seen.
    let mut open = world.begin();
    table.insert(&mut open, b"open", b"").unwrap();
    assert_eq!(count(&world, &table).rows, 300);
    assert_eq!(table.count_rows(&mut open).unwrap().rows, 301);
}

/// Three stretches of the tree have rows of quite different lengths, two of them random in between.
#[test]
fn skewed_trees_are_estimated_within_ten_percent() {
    let world = World::new(1024);
    let table = world.catalog.create_table("t", TableKind::Raw, Vec::new()).unwrap();
    let mut rng = Rng::new(7);
    // Longer ones would be kept apart from their rows.
    let long = (0..9_000).map(|key| (key, 130));
    let short = (100_000..140_000).map(|key| (key, 4));
    let mixed = (200_000..208_000).map(|key| (key, if rng.one_in(3) { 130 } else { 8 }));
    insert(&world, &table, long.chain(short).chain(mixed));
    let found = count(&world, &table);
    assert!(!found.is_exact, "not all of that many leaves are read: {found:?}");
    assert_within_ten_percent(found, 57_000);

    // A reader of old versions keeps the ghosts where they are: all but a tenth of the long rows
    // go, and all but a few of the short ones in one half.
    let mut reader = world.begin();
    let mut value = Vec::new();
    assert!(table.get(&mut reader, &0u32.to_be_bytes(), &mut value).unwrap());
    delete(&world, &table, (0..9_000).filter(|key| key % 10 != 0));
    delete(&world, &table, (100_000..120_000).filter(|key| key % 500 != 0));
    let rows = 900 + 40 + 20_000 + 8_000;
    let found = count(&world, &table);
    assert_within_ten_percent(found, rows);
    let trees = world.catalog.trees();
    let (_, tree) = trees.iter().find(|(_, tree)| tree.id() == table.id()).expect("the table has a tree");
    let entries = tree.check().unwrap().entries;
    assert!(entries > rows * 3 / 2, "{entries} entries: the ghosts are still there");
    // The reader's own snapshot has them all, which an estimate does not know; counting does.
    drop(reader);
}

#[test]
fn a_table_of_almost_nothing_but_ghosts_is_not_guessed_at() {
    let world = World::new(1024);
    let table = world.catalog.create_table("t", TableKind::Raw, Vec::new()).unwrap();
    insert(&world, &table, (0..12_000).map(|key| (key, 130)));
    let mut reader = world.begin();
    let mut value = Vec::new();
    assert!(table.get(&mut reader, &0u32.to_be_bytes(), &mut value).unwrap());
    delete(&world, &table, (0..12_000).filter(|key| *key != 7_777));
    assert_eq!(count(&world, &table), RowCount { rows: 1, is_exact: true });
    delete(&world, &table, [7_777].into_iter());
    assert_eq!(count(&world, &table), RowCount { rows: 0, is_exact: true });
    drop(reader);
}
