//! `get_many` returns what as many calls of `get` return: in any order of keys, of rows in memory
//! and not, beside writers, with values of any length.

use crate::common::World;
use firndb_base::rng::Rng;
use firndb_table::*;
use firndb_txn::{CancelToken, Isolation, Transaction, TxnErrorKind, TxnOptions};
use std::time::Duration;

const LEVELS: [Isolation; 3] = [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable];

fn key(number: u64) -> Vec<u8> {
    number.to_be_bytes()[6..].to_vec()
}

/// Short ones, and some that need chunks.
fn value(rng: &mut Rng) -> Vec<u8> {
    if rng.one_in(12) { vec![rng.next_u64() as u8; rng.below(4000) as usize] } else { short_value(rng) }
}

fn short_value(rng: &mut Rng) -> Vec<u8> {
    vec![rng.next_u64() as u8; rng.below(80) as usize]
}

/// A table of some thousand pages, in memory for a twentieth of them.
fn filled(rng: &mut Rng) -> (World, Table) {
    filled_with(rng, value)
}

fn filled_with(rng: &mut Rng, value: fn(&mut Rng) -> Vec<u8>) -> (World, Table) {
    let world = World::with_memory(1024, 300 << 10);
    let table = world.catalog.create_table("t", TableKind::Raw, vec![]).unwrap();
    for first in (0..12_000).step_by(600) {
        let mut txn = world.begin();
        for number in (first..first + 600).step_by(2) {
            table.put(&mut txn, &key(number), &value(rng)).unwrap();
        }
        txn.commit().unwrap();
    }
    (world, table)
}

fn random_keys(rng: &mut Rng) -> Vec<Vec<u8>> {
    let (count, first) = ([0, 1, 10, 64, 700][rng.below(5) as usize], rng.below(11_000));
    let spread = if rng.one_in(2) { 12_100 } else { 200 };
    (0..count).map(|_| key((first + rng.below(spread)) % 12_100)).collect()
}

fn assert_same(table: &Table, txn: &mut Transaction, keys: &[Vec<u8>], rows: &mut Rows) {
    table.get_many(txn, keys, rows).unwrap();
    assert_eq!(rows.len(), keys.len());
    let mut row = Vec::new();
    for (key, found) in keys.iter().zip(rows.iter()) {
        let is_there = table.get(txn, key, &mut row).unwrap();
        assert_eq!(found, is_there.then_some(&row[..]), "{key:?}");
    }
}

#[test]
fn as_by_as_many_calls() {
    for seed in 0..3 {
        let rng = &mut Rng::new(seed);
        let (world, table) = filled(rng);
        world.with_reader(|| {
            let mut rows = Rows::new();
            for isolation in LEVELS {
                for _ in 0..12 {
                    let mut txn = world.begin_at(isolation);
                    table.get(&mut txn, &key(0), &mut Vec::new()).unwrap();
                    // Another transaction changes, adds and deletes rows; so does this one.
                    let mut writers = [world.begin(), world.begin()];
                    let keys = random_keys(rng);
                    for key in keys.iter().filter(|_| isolation != Isolation::Serializable) {
                        let writer = &mut writers[0];
                        if rng.one_in(3) {
                            table.delete(writer, key).unwrap();
                        } else if rng.one_in(3) {
                            table.put(writer, key, &value(rng)).unwrap();
                        }
                    }
                    table.put(&mut txn, &key(7), b"own").unwrap();
                    let [one, two] = writers;
                    one.commit().unwrap();
                    assert_same(&table, &mut txn, &keys, &mut rows);
                    assert_same(&table, &mut txn, &[key(7), key(9), key(7)], &mut rows);
                    assert_eq!((rows.get(0), rows.get(2)), (Some(&b"own"[..]), Some(&b"own"[..])));
                    txn.rollback().unwrap();
                    two.rollback().unwrap();
                }
            }
        });
        assert!(world.pool().statistics().misses > 1000, "most leaves were not in memory");
        world.assert_sound(&table);
    }
}

#[test]
fn rows_are_changed_with_one_call_also_where_most_leaves_are_not_in_memory() {
    let rng = &mut Rng::new(8);
    let (world, table) = filled(rng);
    world.with_reader(|| {
        for isolation in LEVELS {
            for round in 0..8 {
                let (keys, mut txn) = (random_keys(rng), world.begin_at(isolation));
                let (mut before, mut after) = (Rows::new(), Rows::new());
                table.get_many(&mut world.begin(), &keys, &mut before).unwrap();
                let mut changes = vec![0; keys.len()];
                table
                    .update_many_with(&mut txn, &keys, &mut |number, row| {
                        assert_eq!(row.is_some(), before.get(number).is_some(), "{:?}", keys[number]);
                        if let Some(row) = row {
                            row.push(round);
                            changes[number] = row.len();
                        }
                    })
                    .unwrap();
                txn.commit().unwrap();
                table.get_many(&mut world.begin(), &keys, &mut after).unwrap();
                for (number, key) in keys.iter().enumerate() {
                    let times = keys.iter().filter(|other| *other == key).count();
                    let expected = before.get(number).map(|row| [row, &vec![round; times]].concat());
                    assert_eq!(after.get(number), expected.as_deref(), "{key:?}");
                    assert!(changes[number] <= after.get(number).map_or(0, <[u8]>::len));
                }
            }
        }
    });
    world.assert_sound(&table);
}

#[test]
fn rows_for_update_are_locked_there_or_not() {
    let rng = &mut Rng::new(5);
    let (world, table) = filled(rng);
    let keys: Vec<Vec<u8>> = [300, 1, 4000, 5, 300].map(key).to_vec();
    let limit = |isolation| TxnOptions {
        isolation,
        lock_deadline: Some(Duration::from_millis(2)),
        ..TxnOptions::default()
    };
    for isolation in LEVELS {
        let mut txn = world.begin_at(isolation);
        let (mut rows, mut row) = (Rows::new(), Vec::new());
        table.get_many_for_update(&mut txn, &keys, &mut rows).unwrap();
        let there: Vec<bool> = rows.iter().map(|row| row.is_some()).collect();
        assert_eq!(there, [true, false, true, false, true]);
        assert_eq!(rows.get(0), rows.get(4));
        let mut other = world.manager.begin(limit(isolation));
        for key in &keys {
            let error = table.get_for_update(&mut other, key, &mut row).unwrap_err();
            assert_eq!(error.kind, TableErrorKind::Transaction(TxnErrorKind::Timeout));
        }
        table.put(&mut txn, &keys[1], b"new").unwrap();
        txn.commit().unwrap();
        // One that had begun before meets a conflict if it has seen anything: as `get_for_update`.
        let mut late = world.begin_at(isolation);
        table.get(&mut late, &key(2), &mut row).unwrap();
        let mut writer = world.begin();
        table.put(&mut writer, &keys[2], b"newer").unwrap();
        let mut impatient = world.manager.begin(limit(isolation));
        let error = table.get_many_for_update(&mut impatient, &keys, &mut rows).unwrap_err();
        assert_eq!(error.kind, TableErrorKind::Transaction(TxnErrorKind::Timeout), "a writer has it");
        drop(impatient);
        writer.commit().unwrap();
        let outcome = table.get_many_for_update(&mut late, &keys, &mut rows);
        if isolation == Isolation::Snapshot {
            assert_eq!(outcome.unwrap_err().kind, TableErrorKind::Transaction(TxnErrorKind::Conflict));
        } else {
            outcome.unwrap();
            assert_eq!((rows.get(1), rows.get(2)), (Some(&b"new"[..]), Some(&b"newer"[..])));
        }
        drop(late);
        let mut clean = world.begin();
        table.delete(&mut clean, &keys[1]).unwrap();
        clean.commit().unwrap();
    }
}

#[test]
fn serializable_reads_lock_every_key_and_wait_for_writers() {
    let rng = &mut Rng::new(6);
    let (world, table) = filled(rng);
    let keys = [8, 3, 9000].map(key);
    let limit = TxnOptions { lock_deadline: Some(Duration::from_millis(2)), ..TxnOptions::default() };
    let mut rows = Rows::new();
    let mut reader = world.begin_at(Isolation::Serializable);
    table.get_many(&mut reader, &keys, &mut rows).unwrap();
    for key in &keys {
        assert!(table.put(&mut world.manager.begin(limit.clone()), key, b"x").is_err(), "{key:?}");
    }
    table.put(&mut world.manager.begin(limit.clone()), &key(5), b"x").unwrap();
    drop(reader);
    let mut writer = world.begin();
    table.put(&mut writer, &keys[1], b"written").unwrap();
    let serializable = TxnOptions { isolation: Isolation::Serializable, ..limit };
    let error = table.get_many(&mut world.manager.begin(serializable), &keys, &mut rows).unwrap_err();
    assert_eq!(error.kind, TableErrorKind::Transaction(TxnErrorKind::Timeout));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut txn = world.begin_at(Isolation::Serializable);
            let mut rows = Rows::new();
            table.get_many(&mut txn, &keys, &mut rows).unwrap();
            rows.get(1).map(<[u8]>::to_vec)
        });
        std::thread::sleep(Duration::from_millis(5));
        writer.commit().unwrap();
        assert_eq!(reader.join().unwrap(), Some(b"written".to_vec()));
    });
}

#[test]
fn a_cancelled_list_ends_at_its_next_piece() {
    let rng = &mut Rng::new(7);
    let (world, table) = filled(rng);
    let token = CancelToken::new();
    let options = TxnOptions { cancel: Some(token.clone()), ..TxnOptions::default() };
    let mut txn = world.manager.begin(options);
    let (keys, mut rows): (Vec<_>, _) = ((0..5000).map(key).collect(), Rows::new());
    table.get_many(&mut txn, &keys, &mut rows).unwrap();
    token.cancel();
    let error = table.get_many(&mut txn, &keys, &mut rows).unwrap_err();
    assert_eq!(error.kind, TableErrorKind::Transaction(TxnErrorKind::Cancelled));
    // A short one waits for nothing that could be cancelled.
    table.get_many(&mut txn, &keys[..4], &mut rows).unwrap();
    let mut cursor = table.scan(KeyRange::all(), firndb_btree::Direction::Forward);
    let error = loop {
        match cursor.next(&mut txn) {
            Ok(row) => assert!(row.is_some(), "the scan ends before its range does"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind, TableErrorKind::Transaction(TxnErrorKind::Cancelled));
}

/// A list as long as the table holds as much of the pool as a short one.
#[test]
fn a_long_list_leaves_hot_pages_in_memory() {
    let rng = &mut Rng::new(8);
    let (world, table) = filled_with(rng, short_value);
    let (mut txn, mut rows) = (world.begin(), Rows::new());
    let hot: Vec<Vec<u8>> = (0..40).map(|number| key(2 * number)).collect();
    for _ in 0..5 {
        table.get_many(&mut txn, &hot, &mut rows).unwrap();
    }
    let all: Vec<Vec<u8>> = (2000..12_000).map(key).collect();
    table.get_many(&mut txn, &all, &mut rows).unwrap();
    assert_eq!(rows.iter().flatten().count(), 5000);
    let before = world.pool().statistics().misses;
    let mut row = Vec::new();
    for key in &hot {
        table.get(&mut txn, key, &mut row).unwrap();
    }
    let missed = world.pool().statistics().misses - before;
    assert!(missed <= 8, "{missed} pages of the hot rows had gone");
}

/// Pages that were used but once stay, too: the list's pages take each other's frames.
#[test]
fn a_long_list_fills_few_frames() {
    let rng = &mut Rng::new(10);
    let (world, table) = filled_with(rng, short_value);
    let (mut txn, mut rows) = (world.begin(), Rows::new());
    let used: Vec<Vec<u8>> = (0..3000).step_by(30).map(key).collect();
    let use_all = |txn: &mut Transaction| {
        used.iter().for_each(|key| assert!(table.get(txn, key, &mut Vec::new()).unwrap()));
    };
    // A page that must be written first is written in a batch, which frees more than one frame.
    world.pool().write_older_than(world.manager.log().end()).unwrap();
    use_all(&mut txn);
    let all: Vec<Vec<u8>> = (3000..12_000).map(key).collect();
    for for_update in [false, true] {
        match for_update {
            false => table.get_many(&mut txn, &all, &mut rows).unwrap(),
            true => table.get_many_for_update(&mut txn, &all, &mut rows).unwrap(),
        }
        assert_eq!(rows.iter().flatten().count(), 4500);
        let before = world.pool().statistics().misses;
        use_all(&mut txn);
        let missed = world.pool().statistics().misses - before;
        assert!(missed <= 40, "{missed} of {} pages had gone, for update: {for_update}", used.len());
    }
}

/// Damage in one leaf concerns the calls that want a row of it.
#[test]
fn a_damaged_leaf_is_an_error_for_its_own_rows() {
    let rng = &mut Rng::new(9);
    let (world, table) = filled_with(rng, short_value);
    let index = IndexSpec::ranges("by_key", false, vec![IndexPart::Key(0..2)]);
    let index = world.catalog.create_index(&table, index, &BuildLimits::default()).unwrap();
    let tree = world.manager.tree(table.id()).unwrap();
    let mut leaves = Vec::new();
    tree.leaves(&[&key(6000)], &mut leaves).unwrap();
    world.pool().write_older_than(world.manager.log().end()).unwrap();
    let (mut txn, mut rows) = (world.begin(), Rows::new());
    // Out of memory with it.
    let far: Vec<Vec<u8>> = (0..4000).chain(8000..12_000).map(key).collect();
    for _ in 0..2 {
        for key in &far {
            table.get(&mut txn, key, &mut Vec::new()).unwrap();
        }
    }
    world.tier.damage(leaves[0]);
    let error = table.get_many(&mut txn, &[key(10), key(6000), key(9000)], &mut rows).unwrap_err();
    let damaged = TableErrorKind::Transaction(TxnErrorKind::Damaged);
    assert_eq!(error.kind, damaged);
    assert!(rows.is_empty(), "no rows are left that were read before the error");
    assert!(table.get(&mut txn, &key(6000), &mut Vec::new()).is_err());
    table.get_many(&mut txn, &far, &mut rows).unwrap();
    assert_eq!(rows.iter().flatten().count(), 4000);
    // Cursors come up to it, and no further; the rows before it are returned whatever was read with
    // them.
    let mut by_scan = table.scan(KeyRange::all(), firndb_btree::Direction::Forward);
    let mut by_index = index.scan(KeyRange::all(), firndb_btree::Direction::Forward);
    let (mut scanned, mut found) = (0, 0);
    let error = loop {
        match by_scan.next(&mut txn) {
            Ok(row) => scanned += u64::from(row.is_some()),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind, damaged);
    for _ in 0..2 {
        while by_index.next(&mut txn).is_ok_and(|row| row.is_some()) {
            found += 1;
        }
        assert_eq!(by_index.next(&mut txn).unwrap_err().kind, damaged);
    }
    assert_eq!(scanned, found);
    assert!((2950..=3000).contains(&scanned), "{scanned} rows lie before row 6000's leaf");
}

/// Large values are read as far as the caller has memory for them, which it is asked before.
#[test]
fn rows_are_read_as_far_as_they_fit() {
    let world = World::new(4096);
    let table = world.catalog.create_table("t", TableKind::Raw, vec![]).unwrap();
    let len = |key: u8| if key.is_multiple_of(3) { 100_000 } else { 50 };
    let mut txn = world.begin();
    (0..30u8).for_each(|key| table.insert(&mut txn, &[key], &vec![key; len(key)]).unwrap());
    // Of the last one there is no row.
    let keys: Vec<[u8; 1]> = (0..31).rev().map(|key| [key]).collect();
    let mut rows = Rows::new();
    for limit in [0, 1000, 150_000, 250_000, 500_000, usize::MAX] {
        rows = if limit == 500_000 { rows } else { Rows::new() };
        let (mut asked, mut allowed) = (0, 0);
        let read = table.get_many_that_fit(&mut txn, &keys, &mut rows, |number, bytes| {
            assert_eq!(number, asked, "one after the other");
            asked += 1;
            allowed = if bytes <= limit { bytes } else { allowed };
            bytes <= limit
        });
        let read = read.unwrap();
        assert!(read == asked || read + 1 == asked);
        assert_eq!(rows.len(), read);
        for (row, key) in rows.iter().zip(&keys) {
            let expected = (key[0] < 30).then(|| vec![key[0]; len(key[0])]);
            assert_eq!(row.map(<[u8]>::to_vec), expected);
        }
        // The references come first, then values, the longest of them twice: keys 29, 28 and 27 …
        match limit {
            0 | 1000 => assert_eq!(read, 0, "{limit}"),
            usize::MAX => assert_eq!(read, 31),
            _ => assert!(read > 0 && rows.memory() <= allowed, "{limit}: {read}, {allowed}"),
        }
    }
}
