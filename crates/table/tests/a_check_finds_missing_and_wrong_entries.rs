//! A check that cannot see damage shows nothing: here the damage is made, and must be seen.

mod common;

use common::*;
use firn_btree::{Direction, Position, Tree};
use firn_table::*;
use firn_txn::RowBatch;

fn tree_of(world: &World, what: &str) -> Tree {
    world.catalog.trees().into_iter().find(|(name, _)| name.contains(what)).expect("a tree of this name").1
}

fn first_key(world: &World, tree: &Tree) -> Vec<u8> {
    let mut batch = RowBatch::new();
    world.begin().scan(tree, &Position::Start, None, Direction::Forward, &mut batch).unwrap();
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
    // An entry lost, an entry of no row, a unique entry that leads to another row, an entry that is none.
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
