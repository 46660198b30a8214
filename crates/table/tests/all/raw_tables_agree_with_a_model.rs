//! Random statements on a raw table, indexed by ranges of its keys and values, return the results
//! of a `BTreeMap`.

use crate::common::*;
use firndb_base::rng::Rng;
use firndb_btree::Direction;
use firndb_table::*;
use firndb_txn::Transaction;
use std::collections::BTreeMap;
use std::ops::Bound;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A plain index by two bytes of the value and the key's last, and a unique one by four of the
/// value.
fn create(world: &World) -> Table {
    let plain = IndexSpec::ranges("plain", false, vec![IndexPart::Value(1..3), IndexPart::Key(2..3)]);
    let unique = IndexSpec::ranges("unique", true, vec![IndexPart::Value(4..8)]);
    world.catalog.create_table("raw", TableKind::Raw, vec![plain, unique]).unwrap()
}

fn plain_key(key: &[u8], value: &[u8]) -> Vec<u8> {
    [&value[1..3], &key[2..3], key].concat()
}

fn random_key(rng: &mut Rng) -> Vec<u8> {
    let len = rng.between(3, 6);
    (0..len).map(|_| [0, b'a', 0xff][rng.below(3) as usize]).collect()
}

fn random_value(rng: &mut Rng) -> Vec<u8> {
    let mut value = vec![b'v'; rng.between(8, 30) as usize];
    value[1] = rng.below(3) as u8;
    value[7] = rng.below(250) as u8;
    value
}

fn statement(table: &Table, txn: &mut Transaction, model: &mut Model, rng: &mut Rng) {
    let (key, value) = (random_key(rng), random_value(rng));
    let existed = model.contains_key(&key);
    let taken = model.iter().any(|(other, row)| *other != key && row[4..8] == value[4..8]);
    let (kind, in_place) = (rng.below(4), rng.one_in(2));
    let result = match kind {
        0 => table.insert(txn, &key, &value).map(|()| false),
        1 => table.put(txn, &key, &value),
        2 if in_place => change(table, txn, &key, &value, model.get(&key)),
        2 => table.update(txn, &key, &value),
        _ => table.delete(txn, &key),
    };
    let writes = [!existed, true, existed][..].get(kind as usize).copied();
    let duplicate = (kind == 0 && existed) || (writes == Some(true) && taken);
    match result {
        Err(error) => {
            assert!(duplicate && error.kind == TableErrorKind::Duplicate, "{kind} {key:?}: {error:?}")
        }
        Ok(result) => {
            assert!(!duplicate, "{kind} {key:?} should have been refused");
            assert_eq!(result, existed, "{kind} {key:?}");
            match writes {
                Some(true) => drop(model.insert(key, value)),
                Some(false) => {}
                None => drop(model.remove(&key)),
            }
        }
    }
}

/// Replaces a row, which is as the model says, by a change in place.
fn change(
    table: &Table,
    txn: &mut Transaction,
    key: &[u8],
    value: &[u8],
    before: Option<&Vec<u8>>,
) -> Result<bool, TableError> {
    let mut row = b"what was in it".to_vec();
    let outcome = table.update_with(txn, key, &mut row, &mut |row| {
        assert_eq!(Some(&*row), before, "the row as it was");
        row.clear();
        row.extend_from_slice(value);
    });
    assert!(outcome != Ok(true) || row == value, "the row as it became");
    outcome
}

/// Changes some rows by one statement, their keys in any order and some more than once: none of the
/// bytes of the unique index.
fn change_many(table: &Table, txn: &mut Transaction, model: &mut Model, rng: &mut Rng) {
    let keys: Vec<Vec<u8>> = (0..rng.below(12)).map(|_| random_key(rng)).collect();
    let mut seen = vec![None; keys.len()];
    table
        .update_many_with(txn, &keys, &mut |number, row| {
            seen[number] = Some(row.as_ref().map(|row| row.to_vec()));
            if let Some(row) = row {
                row[2] = row[2].wrapping_add(number as u8 + 1);
                row.push(b'+');
                row.truncate(60);
            }
        })
        .unwrap();
    let mut numbers: Vec<usize> = (0..keys.len()).collect();
    numbers.sort_by_key(|number| &keys[*number]);
    for number in numbers {
        let row = model.get_mut(&keys[number]);
        assert_eq!(seen[number].take().expect("shown"), row.as_ref().map(|row| row.to_vec()));
        if let Some(row) = row {
            row[2] = row[2].wrapping_add(number as u8 + 1);
            row.push(b'+');
            row.truncate(60);
        }
    }
}

fn compare(table: &Table, txn: &mut Transaction, model: &Model, rng: &mut Rng) {
    let (low, high) = (random_key(rng), random_key(rng));
    let range = KeyRange::new(Bound::Excluded(&low), Bound::Included(&high));
    let inside = |key: &[u8]| low.as_slice() < key && key <= high.as_slice();
    let mut expected: Vec<_> = model.iter().filter(|(key, _)| inside(key)).collect();
    for direction in [Direction::Forward, Direction::Backward] {
        let (mut cursor, mut found) = (table.scan(range.clone(), direction), Vec::new());
        while let Some((key, value)) = cursor.next(txn).unwrap() {
            found.push((key.to_vec(), value.to_vec()));
        }
        assert!(found.iter().map(|(key, value)| (key, value)).eq(expected.iter().copied()));
        expected.reverse();
    }
    let mut expected: Vec<_> = model.iter().filter(|(_, value)| value[1] == 1).collect();
    expected.sort_by_key(|(key, value)| plain_key(key, value));
    let (mut cursor, mut found) =
        (table.index("plain").unwrap().scan(KeyRange::prefix(&[1]), Direction::Forward), Vec::new());
    while let Some(row) = cursor.next(txn).unwrap() {
        assert_eq!(row.index_key, plain_key(row.primary_key, row.row));
        found.push((row.primary_key.to_vec(), row.row.to_vec()));
    }
    assert!(found.iter().map(|(key, value)| (key, value)).eq(expected.iter().copied()));
}

#[test]
fn through_commits_and_rollbacks() {
    for seed in 0..6 {
        let mut rng = Rng::new(seed);
        let world = World::new(1024);
        let table = create(&world);
        let mut committed = Model::new();
        for _ in 0..40 {
            let (mut model, mut txn) = (committed.clone(), world.begin());
            for _ in 0..rng.below(40) {
                statement(&table, &mut txn, &mut model, &mut rng);
                if rng.one_in(8) {
                    change_many(&table, &mut txn, &mut model, &mut rng);
                }
            }
            compare(&table, &mut txn, &model, &mut rng);
            if rng.one_in(3) {
                txn.rollback().unwrap();
            } else {
                txn.commit().unwrap();
                committed = model;
            }
            while world.manager.maintenance_step().unwrap() == firndb_base::Progress::Worked {}
        }
        compare(&table, &mut world.begin(), &committed, &mut rng);
        world.assert_sound(&table);
    }
}
