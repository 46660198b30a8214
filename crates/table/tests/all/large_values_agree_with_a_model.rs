//! Values longer than a page: written, replaced, deleted, rolled back and read by old snapshots,
//! beside a map.

use crate::common::World;
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_btree::Direction;
use firndb_table::*;
use firndb_txn::{Isolation, RowValue, Transaction, TxnErrorKind};
use std::collections::BTreeMap;

const PAGE: usize = 1024;
const KEYS: u64 = 24;

type Model = BTreeMap<Vec<u8>, Arc<Vec<u8>>>;

fn table(world: &World) -> Table {
    // The same eight bytes of two rows are never equal: they hold a counter.
    let indexes = vec![
        IndexSpec::ranges("unique", true, vec![IndexPart::Value(0..8)]),
        IndexSpec::ranges("tail", false, vec![IndexPart::Value(8..10), IndexPart::Key(0..1)]),
    ];
    world.catalog.create_table("t", TableKind::Raw, indexes).unwrap()
}

fn random_key(rng: &mut Rng) -> Vec<u8> {
    let number = rng.below(KEYS) as u8;
    vec![number; 1 + usize::from(number) * 5]
}

/// Lengths at the limit of a row and around multiples of a chunk and of a page are frequent; some
/// pages are zeros.
fn random_value(rng: &mut Rng, key: &[u8], counter: &mut u64) -> Vec<u8> {
    let limit = firndb_txn::max_row_len(PAGE) - key.len();
    let len = match rng.below(10) {
        0 => 10,
        8 | 9 => PAGE * rng.between(1, 9) as usize + rng.below(3) as usize - 1,
        1 | 2 => limit + rng.below(3) as usize - 1,
        3 => 80 * rng.between(1, 20) as usize + rng.below(3) as usize - 1,
        4 => 20, // as long as a reference
        5 => rng.below(40_000) as usize,
        _ => rng.below(3000) as usize,
    };
    *counter += 1;
    let mut value = counter.to_le_bytes().to_vec();
    let seed = rng.next_u64() as u8;
    value.extend((8..len.max(10)).map(|at| (at as u8).wrapping_mul(7) ^ seed));
    if value.len() > 3 * PAGE {
        value[PAGE..2 * PAGE].fill(0);
    }
    value
}

fn assert_same(txn: &mut Transaction, table: &Table, model: &Model) {
    let mut value = Vec::new();
    for number in 0..KEYS as u8 {
        let key = vec![number; 1 + usize::from(number) * 5];
        let found = table.get(txn, &key, &mut value).unwrap();
        assert_eq!(found.then_some(&value), model.get(&key).map(|value| &**value), "key {number}");
    }
    let mut forward = table.scan(KeyRange::all(), Direction::Forward);
    for (key, value) in model {
        assert_eq!(forward.next(txn).unwrap(), Some((&key[..], &value[..])));
    }
    assert_eq!(forward.next(txn).unwrap(), None);
    let mut by_index: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let mut cursor = table.index("tail").unwrap().scan(KeyRange::all(), Direction::Backward);
    while let Some(row) = cursor.next(txn).unwrap() {
        by_index.push((row.primary_key.to_vec(), row.row.to_vec()));
    }
    by_index.sort();
    assert!(by_index.iter().map(|(k, v)| (k, v)).eq(model.iter().map(|(k, v)| (k, &**v))));
    let unique = table.index("unique").unwrap();
    let (mut pk, mut row) = (Vec::new(), Vec::new());
    for (key, value) in model.iter().take(5) {
        assert!(unique.get(txn, &value[..8], &mut pk, &mut row).unwrap());
        assert!(pk == *key && row == **value);
    }
}

/// One statement, on both sides.
fn statement(txn: &mut Transaction, table: &Table, model: &mut Model, rng: &mut Rng, counter: &mut u64) {
    let key = random_key(rng);
    let value = random_value(rng, &key, counter);
    let there = model.contains_key(&key);
    match rng.below(8) {
        0..3 => {
            assert_eq!(table.put(txn, &key, &value).unwrap(), there);
            model.insert(key, value.into());
        }
        3 => match table.insert(txn, &key, &value) {
            Ok(()) => assert!(!there && model.insert(key, value.into()).is_none()),
            Err(error) => assert!(there && error.kind == TableErrorKind::Duplicate, "{error}"),
        },
        4 => {
            if rng.one_in(2) {
                assert_eq!(table.update(txn, &key, &value).unwrap(), there);
            } else {
                let (before, mut row) = (model.get(&key), Vec::new());
                let replaced = table.update_with(txn, &key, &mut row, &mut |row| {
                    assert!(before.is_some_and(|before| **before == **row), "the row as it was");
                    row.clear();
                    row.extend_from_slice(&value);
                });
                assert_eq!(replaced.unwrap(), there);
                assert!(!there || row == value, "the row as it became");
            }
            if there {
                model.insert(key, value.into());
            }
        }
        5 => {
            // Refused by the unique index after the row was written: nothing of it stays.
            let Some(other) = model.iter().find(|(other, _)| **other != key) else { return };
            let mut value = value;
            value[..8].copy_from_slice(&other.1[..8]);
            let error = table.put(txn, &key, &value).unwrap_err();
            assert_eq!(error.kind, TableErrorKind::Duplicate);
        }
        _ => {
            assert_eq!(table.delete(txn, &key).unwrap(), there);
            model.remove(&key);
        }
    }
}

fn run(seed: u64, isolation: Isolation) {
    let mut rng = Rng::new(seed);
    let mut world = World::new(PAGE);
    let mut table = table(&world);
    let (mut model, mut counter) = (Model::new(), 0);
    let mut old: Option<(Transaction, Model)> = None;
    for round in 0..120 {
        let mut txn = world.begin_at(isolation);
        let mut new = model.clone();
        for _ in 0..rng.below(6) {
            statement(&mut txn, &table, &mut new, &mut rng, &mut counter);
            if rng.one_in(4) {
                let (savepoint, kept) = (txn.savepoint(), new.clone());
                statement(&mut txn, &table, &mut new, &mut rng, &mut counter);
                txn.rollback_to(&savepoint).unwrap();
                new = kept;
            }
        }
        if round % 8 == 0 {
            assert_same(&mut txn, &table, &new);
        }
        if rng.one_in(4) {
            txn.rollback().unwrap();
        } else {
            txn.commit().unwrap();
            model = new;
        }
        if let Some((txn, then)) = &mut old {
            let (_, _) = (world.catalog.drop_step().unwrap(), world.manager.maintenance_step().unwrap());
            if round % 4 == 0 {
                assert_same(txn, &table, then);
            }
            if rng.one_in(10) {
                old = None;
            }
        } else if rng.one_in(3) {
            let mut txn = world.begin();
            assert_same(&mut txn, &table, &model);
            old = Some((txn, model.clone()));
        }
        if round % 16 == 0 {
            world.assert_sound(&table);
        }
        if round == 60 {
            old = None;
            drop(table);
            world = world.reopened();
            table = world.catalog.table("t").unwrap();
        }
    }
    drop(old);
    assert_same(&mut world.begin_at(isolation), &table, &model);
    let report = world.catalog.check_table(&table).unwrap();
    let large =
        |(key, value): &(&Vec<u8>, &Arc<Vec<u8>>)| key.len() + value.len() > firndb_txn::max_row_len(PAGE);
    assert_eq!(report.large_values, model.iter().filter(large).count() as u64);

    let mut txn = world.begin();
    for key in model.keys() {
        assert!(table.delete(&mut txn, key).unwrap());
    }
    txn.commit().unwrap();
    free_all(&world);
    world.assert_sound(&table);
    let trees = world.catalog.trees();
    let (_, values) = trees.iter().find(|(what, _)| what.starts_with("large values")).unwrap();
    assert_eq!(values.check().unwrap().entries, 0, "everything that was replaced or deleted is freed");
}

/// Frees what can be freed: marks are found, then wait for their fence, then go.
fn free_all(world: &World) {
    for _ in 0..3 {
        world.drop_all();
    }
    for _ in 0..200 {
        for _ in 0..3 {
            world.drop_all();
        }
    }
}

#[test]
fn under_snapshot_isolation() {
    run(1, Isolation::Snapshot);
    run(2, Isolation::Snapshot);
}

#[test]
fn under_read_committed() {
    run(3, Isolation::ReadCommitted);
}

#[test]
fn under_serializable_isolation() {
    run(4, Isolation::Serializable);
}

/// Damage of every kind, found in one pass over the rows or in many.
#[test]
fn a_check_finds_the_same_in_little_memory() {
    let world = World::new(PAGE);
    let table = world.catalog.create_table("t", TableKind::Raw, vec![]).unwrap();
    let mut txn = world.begin();
    for n in 0..12u64 {
        table.put(&mut txn, &n.to_be_bytes(), &[n as u8; 3000]).unwrap();
    }
    txn.commit().unwrap();
    world.assert_sound(&table);
    let trees = world.catalog.trees();
    let tree = |what: &str| trees.iter().find(|(name, _)| name.starts_with(what)).unwrap().1.clone();
    let (rows, values) = (tree("table"), tree("large values"));
    let mut txn = world.begin();
    let mut reference = Vec::new();
    for n in [0u64, 5, 11] {
        assert!(txn.get(&rows, &n.to_be_bytes(), &mut reference).unwrap());
        let name = &reference[..12].iter().rev().copied().collect::<Vec<u8>>();
        // As `ValueId::key`: transaction and sequence, big-endian.
        let name = [&name[4..], &name[..4]].concat();
        // Of another row, too.
        let shared = RowValue { payload: &reference, flag: true };
        assert!(txn.insert_flagged(&rows, &(100 + n).to_be_bytes(), shared).unwrap());
        // To be freed although it is a row's.
        assert!(txn.insert(&values, &[&[1], &name[..]].concat(), &[]).unwrap());
        // And a chunk of a value right behind it that is no row's.
        let mut orphan = [&[2], &name[..], &[0, 0, 0, 0]].concat();
        orphan[12] ^= 0x80;
        assert!(txn.insert(&values, &orphan, &[1]).unwrap());
    }
    assert!(txn.insert(&values, b"\x03what is this", &[1]).unwrap());
    txn.commit().unwrap();
    let sorted = |mut report: firndb_table::TableReport| {
        report.damage.sort();
        report
    };
    let whole = sorted(world.catalog.check_table(&table).unwrap());
    assert_eq!(whole.findings, 3 * 3 + 1, "{:?}", whole.damage);
    for names_max in [2, 3, 5, 11, 12, 13] {
        let found = sorted(world.catalog.check_table_within(&table, names_max).unwrap());
        assert_eq!(found, whole, "with {names_max} names in memory");
    }
}

#[test]
fn every_length_around_the_limits_reads_back() {
    for page_size in [1024, 4096] {
        let world = World::new(page_size);
        let table = world.catalog.create_table("t", TableKind::Raw, vec![]).unwrap();
        let limit = firndb_txn::max_row_len(page_size) - 3;
        let mut txn = world.begin();
        let mut found = Vec::new();
        let lengths = (limit - 3..limit + 4).chain((page_size - 40)..(page_size + 40)).chain([0, 1, 20]);
        for len in lengths {
            let value: Vec<u8> = (0..len).map(|at| at as u8).collect();
            table.put(&mut txn, b"key", &value).unwrap();
            assert!(table.get(&mut txn, b"key", &mut found).unwrap());
            assert_eq!(found, value, "{len} bytes");
        }
        txn.commit().unwrap();
        world.assert_sound(&table);
    }
}

#[test]
fn mebibytes_and_no_more_than_the_limit() {
    let world = World::new(4096);
    let table = world.catalog.create_table("t", TableKind::Raw, vec![]).unwrap();
    let mut rng = Rng::new(5);
    let value: Vec<u8> = (0..3 << 20).map(|_| rng.next_u64() as u8).collect();
    let mut txn = world.begin();
    table.insert(&mut txn, b"k", &value).unwrap();
    let too_long = vec![0; MAX_VALUE_LEN + 1];
    let error = table.put(&mut txn, b"k", &too_long).unwrap_err();
    assert_eq!(error.kind, TableErrorKind::Transaction(TxnErrorKind::TooLarge));
    assert!(error.message.contains("67108864 is the limit"), "{error}");
    let error = table.put(&mut txn, &[0; 600], &value).unwrap_err();
    assert_eq!(error.kind, TableErrorKind::Transaction(TxnErrorKind::TooLarge));
    txn.commit().unwrap();
    let pages = world.pages();
    let payload = value.len() as u64 / 4096;
    assert!(pages < payload * 103 / 100 + 20, "{pages} pages for {payload} pages of bytes");
    let mut found = Vec::new();
    assert!(table.get(&mut world.begin(), b"k", &mut found).unwrap());
    assert!(found == value);
    world.assert_sound(&table);

    let mut txn = world.begin();
    table.put(&mut txn, b"k", b"short").unwrap();
    txn.commit().unwrap();
    free_all(&world);
    assert!(world.pages() < 40, "its pages are free again");
}

/// What marks pages as given up after damage is a value's bytes like any other.
#[test]
fn a_value_may_hold_what_a_page_given_up_holds() {
    let world = World::new(PAGE);
    let table = world.catalog.create_table("t", TableKind::Raw, vec![]).unwrap();
    let mut value = vec![5; 4 * PAGE + 100];
    value[PAGE..2 * PAGE].fill(0);
    value[PAGE..PAGE + 16].copy_from_slice(b"FIRN GIVEN UP   ");
    assert!(firndb_btree::is_given_up(&value[PAGE..2 * PAGE]));
    let mut txn = world.begin();
    table.put(&mut txn, b"k", &value).unwrap();
    txn.commit().unwrap();
    let mut found = Vec::new();
    assert!(table.get(&mut world.begin(), b"k", &mut found).unwrap());
    assert!(found == value);
    world.assert_sound(&table);
}

#[test]
fn a_dropped_table_takes_the_pages_of_its_values_along() {
    let world = World::new(PAGE);
    let pages = world.pages();
    let table = world.catalog.create_table("t", TableKind::Raw, vec![]).unwrap();
    let mut txn = world.begin();
    for n in 0..20u8 {
        table.insert(&mut txn, &[n], &vec![n; 300 * usize::from(n)]).unwrap();
    }
    txn.commit().unwrap();
    assert!(world.pages() > pages + 40);
    drop(table);
    world.catalog.drop_table("t").unwrap();
    free_all(&world);
    assert_eq!(world.pages(), pages);
}

/// Cause: a page that cannot be read ended the check of the table. Effect: it said nothing of the
/// other rows.
#[test]
fn a_damaged_page_of_a_value_is_named_and_the_others_are_checked() {
    let world = World::with_memory(PAGE, 64 << 10);
    let table = world.catalog.create_table("t", TableKind::Raw, vec![]).unwrap();
    for n in 0..60u8 {
        let mut txn = world.begin();
        table.put(&mut txn, &[b'a' + n % 26, n], &[n + 1; 5 * PAGE]).unwrap();
        txn.commit().unwrap();
    }
    world.pool().write_older_than(world.manager.log().end()).unwrap();
    let owner = world.catalog.page_owners().into_iter().find(|owner| owner.is_of_large_values()).unwrap();
    let mut pages = Vec::new();
    owner.pages(&mut |page| pages.push(page)).unwrap();
    assert_eq!(pages.len(), 300);
    for n in 20..60u8 {
        assert!(table.get(&mut world.begin(), &[b'a' + n % 26, n], &mut Vec::new()).unwrap());
    }
    world.tier.damage(pages[7]);
    let report = world.catalog.check_table(&table).unwrap();
    assert_eq!((report.rows, report.large_values, report.findings), (60, 60, 1), "{:?}", report.damage);
    assert!(report.damage[0].contains("large value of row \"b\\x01\""), "{:?}", report.damage);
    let error = table.get(&mut world.begin(), &[b'b', 1], &mut Vec::new()).unwrap_err();
    assert_eq!(error.kind, TableErrorKind::Damaged);
}

#[test]
fn a_rolled_back_value_leaves_nothing() {
    let world = World::new(4096);
    let table = world.catalog.create_table("t", TableKind::Raw, vec![]).unwrap();
    let pages = world.pages();
    let mut txn = world.begin();
    table.insert(&mut txn, b"k", &vec![7; 500_000]).unwrap();
    assert!(world.pages() > pages + 100);
    txn.rollback().unwrap();
    assert!(world.pages() < pages + 10);
    world.assert_sound(&table);
}

#[test]
fn typed_rows_may_be_long_too() {
    let world = World::new(4096);
    let schema = Schema::with_key(
        vec![
            Column::new("id", ColumnType::I64),
            Column::new("a", ColumnType::Text).nullable(),
            Column::new("n", ColumnType::I32),
            Column::new("b", ColumnType::Bytes),
        ],
        &["id"],
    )
    .unwrap();
    let by_n = IndexSpec::columns("by_n", true, vec![KeyColumn::ascending(2)]);
    let table = world.catalog.create_table("t", TableKind::Typed(schema), vec![by_n]).unwrap();
    let typed = table.typed().unwrap();
    let long = "ä".repeat(100_000);
    let lengths = [0usize, 1000, 65_534, 65_535, 65_536, 70_000];
    let mut txn = world.begin();
    for (n, len) in lengths.into_iter().enumerate() {
        let bytes = vec![n as u8; len];
        let text = if n % 2 == 0 { ValueRef::Null } else { ValueRef::Text(&long) };
        typed.insert(&mut txn, &[(n as i64).into(), text, (n as i32).into(), bytes[..].into()]).unwrap();
    }
    txn.commit().unwrap();
    let mut txn = world.begin();
    let mut row = Vec::new();
    for (n, len) in lengths.into_iter().enumerate() {
        let index = table.index("by_n").unwrap();
        assert!(typed.get_by(&mut txn, &index, &[(n as i32).into()], &mut row).unwrap());
        assert_eq!(row[1], if n % 2 == 0 { Value::Null } else { Value::Text(long.clone()) });
        assert_eq!(row[3], Value::Bytes(vec![n as u8; len]));
    }
    let two_same = [9i64.into(), ValueRef::Text(&long), 3i32.into(), ValueRef::Bytes(b"")];
    let error = typed.insert(&mut txn, &two_same).unwrap_err();
    assert_eq!(error.kind, TableErrorKind::Duplicate);
    txn.commit().unwrap();
    world.assert_sound(&table);
    // A column added later: short and long rows from before read its default.
    world.catalog.add_column(&table, Column::new("c", ColumnType::I32).with_default(5)).unwrap();
    let mut txn = world.begin();
    assert!(typed.get(&mut txn, &[5i64.into()], &mut row).unwrap());
    assert_eq!(row[4], Value::I32(5));
    drop(txn);
    world.assert_sound(&table);
}

/// The old value, of up to 64 MiB, was once read for each update of a row in a table with any
/// index. A table whose first chunk is gone shows which statements read it.
#[test]
fn a_replaced_value_is_read_only_for_indexes_that_are_made_of_it() {
    let columns = || {
        let key = Column::new("id", ColumnType::I32);
        vec![key, Column::new("n", ColumnType::I32), Column::new("b", ColumnType::Bytes)]
    };
    let typed = || TableKind::Typed(Schema::with_key(columns(), &["id"]).unwrap());
    let key_part = || IndexSpec::ranges("part", false, vec![IndexPart::Key(0..2)]);
    let cases = [
        (TableKind::Raw, key_part(), false),
        (TableKind::Raw, IndexSpec::ranges("part", false, vec![IndexPart::Value(0..2)]), true),
        (typed(), IndexSpec::columns("part", true, vec![KeyColumn::descending(0)]), false),
        (typed(), IndexSpec::columns("part", true, vec![KeyColumn::ascending(1)]), true),
    ];
    for ((kind, index, needs_value), delete) in
        cases.into_iter().flat_map(|case| [(case.clone(), false), (case, true)])
    {
        let world = World::new(PAGE);
        let (key, mut value) = (vec![0x80, 0, 0, 7], vec![5; 50_000]);
        if let TableKind::Typed(schema) = &kind {
            let values = [7i32.into(), 1i32.into(), ValueRef::Bytes(&[5; 50_000])];
            schema.encode(&values, &mut Vec::new(), &mut value).unwrap();
        }
        let table = world.catalog.create_table("t", kind, vec![index]).unwrap();
        let mut txn = world.begin();
        table.put(&mut txn, &key, &value).unwrap();
        txn.commit().unwrap();
        let trees = world.catalog.trees();
        let (_, chunks) =
            trees.iter().find(|(name, _)| name.starts_with("large values")).expect("there is one");
        let mut txn = world.begin();
        let mut batch = firndb_txn::RowBatch::new();
        txn.scan(chunks, &firndb_btree::Position::Start, firndb_txn::Course::forward(None), &mut batch)
            .unwrap();
        let first = batch.iter().next().expect("a chunk").0.to_vec();
        assert!(txn.remove(chunks, &first, &mut Vec::new()).unwrap());
        txn.commit().unwrap();
        let mut txn = world.begin();
        let outcome = match delete {
            true => table.delete(&mut txn, &key),
            false => table.update(&mut txn, &key, &value),
        };
        match needs_value {
            true => assert_eq!(outcome.unwrap_err().kind, TableErrorKind::Damaged),
            false => {
                assert_eq!(outcome, Ok(true), "the value is not looked at");
                txn.commit().unwrap();
            }
        }
    }
}
