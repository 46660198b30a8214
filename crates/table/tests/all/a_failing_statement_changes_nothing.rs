//! A statement that fails in its last index has changed neither the row nor the indexes before.

use crate::common::*;
use firndb_btree::Direction;
use firndb_table::*;
use firndb_txn::{TxnErrorKind, TxnOptions};
use std::ops::Bound;

fn everything(table: &TypedTable, txn: &mut firndb_txn::Transaction) -> Vec<Vec<Value>> {
    rest(&mut table.scan(Bound::Unbounded, Bound::Unbounded, Direction::Forward).unwrap(), txn)
}

#[test]
fn duplicates_of_a_unique_index_name_it_and_leave_the_rest_alone() {
    let world = World::new(4096);
    let table = people(&world);
    let typed = table.typed().unwrap();
    let mut txn = world.begin();
    typed.insert(&mut txn, &person(1, "ann", Some("ann@x"), 30)).unwrap();
    typed.insert(&mut txn, &person(2, "bob", Some("bob@x"), 40)).unwrap();
    let before = everything(&typed, &mut txn);

    let error = typed.insert(&mut txn, &person(3, "eve", Some("ann@x"), 50)).unwrap_err();
    assert_eq!(error.kind, TableErrorKind::Duplicate);
    assert!(error.message.contains("by_mail") && error.message.contains("people"), "{error}");
    let error = typed.update(&mut txn, &person(2, "bobby", Some("ann@x"), 41)).unwrap_err();
    assert_eq!(error.kind, TableErrorKind::Duplicate);
    let error = typed.put(&mut txn, &person(2, "bobby", Some("ann@x"), 41)).unwrap_err();
    assert_eq!(error.kind, TableErrorKind::Duplicate);
    let error = typed.insert(&mut txn, &person(1, "eve", None, 50)).unwrap_err();
    assert!(error.message.contains("primary key"), "{error}");

    assert_eq!(everything(&typed, &mut txn), before);
    txn.commit().unwrap();
    world.assert_sound(&table);
    assert_eq!(everything(&typed, &mut world.begin()), before);
}

#[test]
fn an_update_of_a_row_that_is_not_there_leaves_no_trace() {
    let world = World::new(4096);
    let table = people(&world);
    let typed = table.typed().unwrap();
    let mut txn = world.begin();
    assert_eq!(typed.update(&mut txn, &person(1, "ann", Some("ann@x"), 30)), Ok(false));
    assert_eq!(typed.delete(&mut txn, &[1i64.into()]), Ok(false));
    assert_eq!(everything(&typed, &mut txn), Vec::<Vec<Value>>::new());
    txn.commit().unwrap();
    world.assert_sound(&table);
}

#[test]
fn nulls_of_a_unique_index_do_not_collide() {
    let world = World::new(4096);
    let table = people(&world);
    let typed = table.typed().unwrap();
    let mut txn = world.begin();
    for id in 0..20 {
        typed.insert(&mut txn, &person(id, "ann", None, 30)).unwrap();
    }
    txn.commit().unwrap();
    world.assert_sound(&table);
}

#[test]
fn bytes_that_are_no_row_are_refused() {
    let world = World::new(4096);
    let table = people(&world);
    let mut txn = world.begin();
    let error = table.insert(&mut txn, b"12345678", b"\x03\x00").unwrap_err();
    assert_eq!(error.kind, TableErrorKind::BadArgument);
    let raw = IndexSpec::ranges("by_part", false, vec![IndexPart::Value(4..8)]);
    let table = world.catalog.create_table("raw", TableKind::Raw, vec![raw]).unwrap();
    let error = table.put(&mut txn, b"key", b"short").unwrap_err();
    assert_eq!(error.kind, TableErrorKind::BadArgument);
    let mut out = Vec::new();
    assert_eq!(table.get(&mut txn, b"key", &mut out), Ok(false));
    assert!(table.typed().is_err());
    txn.rollback().unwrap();
}

/// It once said, too, that what the statement had done could not be undone.
#[test]
fn a_write_of_a_transaction_that_only_reads_is_refused_in_one_sentence() {
    let world = World::new(4096);
    let table = world.catalog.create_table("raw", TableKind::Raw, Vec::new()).unwrap();
    let mut txn = world.manager.begin(TxnOptions { read_only: true, ..TxnOptions::default() });
    let errors = [
        table.insert(&mut txn, b"key", b"value").unwrap_err(),
        table.put(&mut txn, b"key", b"value").unwrap_err(),
        table.update(&mut txn, b"key", b"value").unwrap_err(),
        table.delete(&mut txn, b"key").unwrap_err(),
        table.get_for_update(&mut txn, b"key", &mut Vec::new()).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind, TableErrorKind::Transaction(TxnErrorKind::ReadOnly));
        assert_eq!(error.message, "the transaction was begun read-only");
    }
    assert_eq!(table.get(&mut txn, b"key", &mut Vec::new()), Ok(false), "it goes on reading");
}
