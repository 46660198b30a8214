//! What was created, renamed, extended and dropped is so after a reopening; what was not committed
//! is not.

use crate::common::*;
use firndb_btree::Direction;
use firndb_table::*;
use std::ops::Bound;

#[test]
fn tables_indexes_and_names() {
    let world = World::new(4096);
    let table = people(&world);
    let typed = table.typed().unwrap();
    let mut txn = world.begin();
    typed.insert(&mut txn, &person(1, "ann", Some("x"), 30)).unwrap();
    txn.commit().unwrap();
    world.catalog.create_table("raw", TableKind::Raw, vec![]).unwrap();
    world.catalog.create_table("gone", TableKind::Raw, vec![]).unwrap();
    world.catalog.rename_table("people", "persons").unwrap();
    world.catalog.drop_table("gone").unwrap();
    world.catalog.drop_index(&table, "by_name").unwrap();
    let before = table.definition().unwrap();
    assert_eq!(before.name, "persons");
    drop((table, typed));

    let world = world.reopened();
    assert_eq!(world.catalog.names(), ["persons", "raw"]);
    let table = world.catalog.table("persons").unwrap();
    assert_eq!(table.definition().unwrap(), before);
    let mut row = Vec::new();
    assert!(table.typed().unwrap().get(&mut world.begin(), &[1i64.into()], &mut row).unwrap());
    assert_eq!(borrowed(&row), person(1, "ann", Some("x"), 30));
    assert_eq!(world.catalog.pending_drops(), 3, "drops are resumed");
    world.drop_all();
    let world = world.reopened();
    assert_eq!(world.catalog.pending_drops(), 0);
    world.assert_sound(&world.catalog.table("persons").unwrap());
}

#[test]
fn names_are_given_once_and_checked() {
    let world = World::new(4096);
    world.catalog.create_table("a", TableKind::Raw, vec![]).unwrap();
    world.catalog.create_table("b", TableKind::Raw, vec![]).unwrap();
    let kind = |answer: Result<Table, TableError>| answer.unwrap_err().kind;
    assert_eq!(kind(world.catalog.create_table("a", TableKind::Raw, vec![])), TableErrorKind::Exists);
    assert_eq!(kind(world.catalog.create_table("", TableKind::Raw, vec![])), TableErrorKind::BadArgument);
    let long = "ß".repeat(128);
    assert_eq!(kind(world.catalog.create_table(&long, TableKind::Raw, vec![])), TableErrorKind::BadArgument);
    assert_eq!(kind(world.catalog.table("c")), TableErrorKind::NotFound);
    assert_eq!(world.catalog.rename_table("a", "b").unwrap_err().kind, TableErrorKind::Exists);
    let longest = "x".repeat(255);
    world.catalog.rename_table("a", &longest).unwrap();
    assert_eq!(world.catalog.names(), ["b", &longest]);
}

#[test]
fn a_definition_larger_than_a_page_survives() {
    let world = World::new(1024);
    let columns: Vec<Column> = (0..300)
        .map(|at| {
            Column::new(format!("column number {at} with a name to fill pages"), ColumnType::Bool).nullable()
        })
        .chain([Column::new("id", ColumnType::U64)])
        .collect();
    let schema = Schema::with_key(columns, &["id"]).unwrap();
    let table = world.catalog.create_table("wide", TableKind::Typed(schema), vec![]).unwrap();
    let before = table.definition().unwrap();
    drop(table);
    let world = world.reopened();
    assert_eq!(world.catalog.table("wide").unwrap().definition().unwrap(), before);
    world.catalog.drop_table("wide").unwrap();
    world.drop_all();
    assert_eq!(world.reopened().catalog.names(), Vec::<String>::new());
}

#[test]
fn rows_from_before_a_column_was_added_read_its_default_and_can_be_indexed_by_it() {
    let world = World::new(1024);
    let table = people(&world);
    let typed = table.typed().unwrap();
    let mut txn = world.begin();
    for id in 0..100 {
        typed.insert(&mut txn, &person(id, "ann", None, 30)).unwrap();
    }
    txn.commit().unwrap();
    let error = world.catalog.add_column(&table, Column::new("city", ColumnType::Text)).unwrap_err();
    assert_eq!(error.kind, TableErrorKind::BadArgument);
    world.catalog.add_column(&table, Column::new("city", ColumnType::Text).with_default("here")).unwrap();
    let mut txn = world.begin();
    let there = [200i64.into(), "bob".into(), ValueRef::Null, 1i32.into(), "there".into()];
    typed.insert(&mut txn, &there).unwrap();
    txn.commit().unwrap();
    drop((table, typed));

    let world = world.reopened();
    let table = world.catalog.table("people").unwrap();
    let typed = table.typed().unwrap();
    let spec = IndexSpec::columns("by_city", false, vec![KeyColumn::ascending(4)]);
    let index = world.catalog.create_index(&table, spec, &BuildLimits::default()).unwrap();
    let count = |city: &str| {
        let bound = [city.into()];
        let mut cursor = typed
            .scan_index(&index, Bound::Included(&bound), Bound::Included(&bound), Direction::Forward)
            .unwrap();
        rest(&mut cursor, &mut world.begin()).len()
    };
    assert_eq!((count("here"), count("there"), count("nowhere")), (100, 1, 0));
    world.assert_sound(&table);
}
