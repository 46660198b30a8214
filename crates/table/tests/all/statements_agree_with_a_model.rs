//! Random statements on a typed table with a plain and a unique index return the results of a
//! `BTreeMap`, through commits, rollbacks, savepoints and reopening, at every isolation level.

use crate::common::*;
use firndb_base::rng::Rng;
use firndb_btree::Direction;
use firndb_table::*;
use firndb_txn::{Isolation, Transaction};
use std::collections::BTreeMap;
use std::ops::Bound;

type Model = BTreeMap<i64, Vec<Value>>;

fn random_row(rng: &mut Rng, id: i64) -> Vec<Value> {
    let mail = if rng.one_in(3) { Value::Null } else { format!("m{}", rng.below(40)).into() };
    let name = ["", "a", "ann", "ann\0", "bob"][rng.below(5) as usize];
    vec![id.into(), name.into(), mail, (rng.below(4) as i32 - 2).into()]
}

fn mail_taken(model: &Model, row: &[Value]) -> bool {
    let id = |row: &[Value]| row[0].clone();
    row[2] != Value::Null && model.values().any(|other| other[2] == row[2] && id(other) != id(row))
}

/// What the statement should return: `None` for a duplicate.
fn expect(model: &mut Model, kind: u64, id: i64, row: &[Value]) -> Option<bool> {
    let existed = model.contains_key(&id);
    let writes = match kind {
        0 if existed => return None,
        0 | 1 => true,
        2 => existed,
        _ => return Some(model.remove(&id).is_some()),
    };
    if writes {
        if mail_taken(model, row) {
            return None;
        }
        model.insert(id, row.to_vec());
    }
    Some(existed)
}

fn statement(table: &TypedTable, txn: &mut Transaction, model: &mut Model, rng: &mut Rng) {
    let id = rng.below(60) as i64 - 30;
    let row = random_row(rng, id);
    let kind = rng.below(4);
    let values = borrowed(&row);
    let result = match kind {
        0 => table.insert(txn, &values).map(|()| false),
        1 => table.put(txn, &values),
        2 => table.update(txn, &values),
        _ => table.delete(txn, &[id.into()]),
    };
    match expect(model, kind, id, &row) {
        Some(existed) => assert_eq!(result, Ok(existed), "statement {kind} of {row:?}"),
        None => {
            assert_eq!(result.unwrap_err().kind, TableErrorKind::Duplicate, "statement {kind} of {row:?}")
        }
    }
}

fn compare(table: &TypedTable, txn: &mut Transaction, model: &Model, rng: &mut Rng) {
    let (low, high) = (rng.below(60) as i64 - 30, rng.below(60) as i64 - 30);
    let inside: Vec<Vec<Value>> =
        model.iter().filter(|(id, _)| low < **id && **id <= high).map(|(_, row)| row.clone()).collect();
    let (low, high) = ([low.into()], [high.into()]);
    let bounds = (Bound::Excluded(&low[..]), Bound::Included(&high[..]));
    let mut forward = table.scan(bounds.0, bounds.1, Direction::Forward).unwrap();
    assert_eq!(rest(&mut forward, txn), inside);
    let mut backward = table.scan(bounds.0, bounds.1, Direction::Backward).unwrap();
    assert_eq!(rest(&mut backward, txn), inside.iter().rev().cloned().collect::<Vec<_>>());

    let by_name = table.table().index("by_name").unwrap();
    let mut sorted: Vec<Vec<Value>> = model.values().cloned().collect();
    sorted.sort_by(|a, b| a[1].cmp(&b[1]).then(b[3].cmp(&a[3])).then(a[0].cmp(&b[0])));
    let mut cursor =
        table.scan_index(&by_name, Bound::Unbounded, Bound::Unbounded, Direction::Forward).unwrap();
    assert_eq!(rest(&mut cursor, txn), sorted);
    let ann = [ValueRef::Text("ann")];
    let mut cursor = table
        .scan_index(&by_name, Bound::Included(&ann), Bound::Included(&ann), Direction::Backward)
        .unwrap();
    let anns = sorted.iter().rev().filter(|row| row[1] == Value::from("ann")).cloned().collect::<Vec<_>>();
    assert_eq!(rest(&mut cursor, txn), anns);

    let by_mail = table.table().index("by_mail").unwrap();
    let mail = Value::from(format!("m{}", rng.below(40)));
    let mut row = Vec::new();
    let found = table.get_by(txn, &by_mail, &[mail.as_ref()], &mut row).unwrap();
    let expected = model.values().find(|row| row[2] == mail);
    assert_eq!(found.then_some(&row), expected);
}

fn run(seed: u64, page_size: usize, isolation: Isolation) {
    let mut rng = Rng::new(seed);
    let mut world = World::new(page_size);
    people(&world);
    let mut committed = Model::new();
    for round in 0..60 {
        let table = world.catalog.table("people").unwrap();
        let typed = table.typed().unwrap();
        let mut model = committed.clone();
        let mut txn = world.begin_at(isolation);
        for _ in 0..rng.below(25) {
            if rng.one_in(6) {
                let (savepoint, before) = (txn.savepoint(), model.clone());
                (0..rng.below(8)).for_each(|_| statement(&typed, &mut txn, &mut model, &mut rng));
                if rng.one_in(2) {
                    txn.rollback_to(&savepoint).unwrap();
                    model = before;
                }
            }
            statement(&typed, &mut txn, &mut model, &mut rng);
        }
        compare(&typed, &mut txn, &model, &mut rng);
        if rng.one_in(3) {
            txn.rollback().unwrap();
        } else {
            txn.commit().unwrap();
            committed = model;
        }
        compare(&typed, &mut world.begin_at(isolation), &committed, &mut rng);
        if round % 10 == 9 {
            world.assert_sound(&table);
            world = world.reopened();
        }
    }
}

#[test]
fn under_snapshot_isolation() {
    (0..8).for_each(|seed| run(seed, 4096, Isolation::Snapshot));
}

#[test]
fn under_read_committed() {
    (10..14).for_each(|seed| run(seed, 1024, Isolation::ReadCommitted));
}

#[test]
fn under_serializable_isolation() {
    (20..24).for_each(|seed| run(seed, 1024, Isolation::Serializable));
}
