//! A check that cannot see damage shows nothing: here the damage is made, and must be seen.

use crate::common::*;
use firndb_btree::{Direction, Position, Tree};
use firndb_table::*;
use firndb_txn::RowBatch;

fn tree_of(world: &World, what: &str) -> Tree {
    world.catalog.trees().into_iter().find(|(name, _)| name.contains(what)).expect("a tree of this name").1
}

fn first_key(world: &World, tree: &Tree) -> Vec<u8> {
    let mut batch = RowBatch::new();
    world.begin().scan(tree, &Position::Start, firndb_txn::Course::forward(None), &mut batch).unwrap();
    batch.get(0).expect("a row").0.to_vec()
}

#[test]
fn both_ways() {
    let world = World::new(4096);
    let table = people(&world);
    let typed = table.typed().unwrap();
    let mut txn = world.begin();
    for id in 0..10 {
        typed.insert(&mut txn, &person(id, "ann", Some(&format!("m{id}")), 30)).unwrap();
    }
    txn.commit().unwrap();
    world.assert_sound(&table);

    let (by_name, by_mail) = (tree_of(&world, "by_name"), tree_of(&world, "by_mail"));
    let mut txn = world.begin();
    // An entry lost, an entry of no row, a unique entry that leads to another row, an entry that is
    // none.
    txn.remove(&by_name, &first_key(&world, &by_name), &mut Vec::new()).unwrap();
    let mut stray = Vec::new();
    table.index("by_name").unwrap().encode(&["eve".into(), 1i32.into()], &mut stray).unwrap();
    typed.schema().unwrap().encode_key(&[99i64.into()], &mut stray).unwrap();
    txn.put(&by_name, &stray, b"").unwrap();
    let mut other = Vec::new();
    typed.schema().unwrap().encode_key(&[5i64.into()], &mut other).unwrap();
    txn.put(&by_mail, &first_key(&world, &by_mail), &other).unwrap();
    txn.put(&by_name, b"\xfe", b"").unwrap();
    txn.commit().unwrap();

    let report = world.catalog.check_table(&table).unwrap();
    let found =
        |words: &[&str]| report.damage.iter().any(|line| words.iter().all(|word| line.contains(word)));
    assert!(found(&["lacks its entry", "by_name"]), "{report:?}");
    assert!(found(&["no row of table", "by_name"]), "{report:?}");
    assert!(found(&["leads to", "and not to row", "by_mail"]), "{report:?}");
    assert!(found(&["is not that of row", "by_mail"]), "{report:?}");
    assert!(found(&["cannot be read", "by_name"]), "{report:?}");
    assert_eq!(report.findings, 5);

    let error = typed.delete(&mut world.begin(), &[0i64.into()]).unwrap_err();
    assert_eq!(error.kind, TableErrorKind::Damaged, "a missing entry is met by writers too");
}

#[test]
fn of_large_values() {
    let world = World::new(4096);
    let table = world.catalog.create_table("big", TableKind::Raw, vec![]).unwrap();
    let mut txn = world.begin();
    for key in [b"a", b"b", b"c"] {
        table.insert(&mut txn, key, &vec![key[0]; 10_000]).unwrap();
    }
    txn.commit().unwrap();
    world.assert_sound(&table);
    let chunks = tree_of(&world, "large values of table \"big\"");
    let mut keys = Vec::new();
    let mut batch = RowBatch::new();
    let mut from = Some(Position::Start);
    let mut txn = world.begin();
    while let Some(position) = from {
        from = txn.scan(&chunks, &position, firndb_txn::Course::forward(None), &mut batch).unwrap();
        keys.extend(batch.iter().map(|(key, _)| key.to_vec()));
    }
    let of_one = keys.iter().filter(|key| key[..13] == keys[0][..13]).count();
    // Two pages, and four chunks.
    assert!(of_one == 6 && keys.len() == 3 * of_one);

    // A byte of "a", a whole page of "b", and "c" has lost its row.
    let mut bytes = Vec::new();
    assert!(txn.get(&chunks, &keys[2], &mut bytes).unwrap());
    bytes[7] ^= 1;
    txn.put(&chunks, &keys[2], &bytes).unwrap();
    assert!(txn.remove(&chunks, &keys[of_one + 1], &mut bytes).unwrap());
    assert!(txn.remove(&tree_of(&world, "table \"big\""), b"c", &mut bytes).unwrap());
    // A mark for a value that a row has.
    let mut mark = keys[0][..13].to_vec();
    mark[0] = 1;
    txn.put(&chunks, &mark, b"").unwrap();
    // A key that says nothing.
    txn.put(&chunks, b"\x07", b"").unwrap();
    txn.commit().unwrap();

    let report = world.catalog.check_table(&table).unwrap();
    assert_eq!((report.rows, report.large_values, report.findings), (2, 2, 5), "{:?}", report.damage);
    for (found, expected) in report.damage.iter().zip([
        "row \"a\" of table \"big\" is not whole",
        "row \"b\" of table \"big\" is not whole",
        "is a row's and is to be freed",
        "is no row's",
        "an unknown key",
    ]) {
        assert!(found.contains(expected), "{found}");
    }
    let mut value = Vec::new();
    for key in [b"a", b"b"] {
        let error = table.get(&mut world.begin(), key, &mut value).unwrap_err();
        assert_eq!(error.kind, TableErrorKind::Damaged, "{error}");
        let mut cursor = table.scan(KeyRange::prefix(key), Direction::Forward);
        assert_eq!(cursor.next(&mut world.begin()).unwrap_err().kind, TableErrorKind::Damaged);
        // Such a row can still be replaced.
        let mut txn = world.begin();
        assert!(table.put(&mut txn, key, b"short").unwrap());
        txn.commit().unwrap();
    }
}
