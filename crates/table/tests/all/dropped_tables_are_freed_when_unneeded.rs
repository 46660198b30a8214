//! A dropped table's pages come back, but not before the last transaction that might touch them has
//! ended.

use crate::common::*;
use firndb_base::Progress;
use firndb_btree::Direction;
use firndb_table::*;

fn filled(world: &World) -> Table {
    let table = people(world);
    let typed = table.typed().unwrap();
    let mut txn = world.begin();
    for id in 0..500 {
        typed.insert(&mut txn, &person(id, "ann", None, 30)).unwrap();
    }
    txn.commit().unwrap();
    table
}

#[test]
fn all_pages_come_back() {
    let world = World::new(1024);
    let empty = world.pages();
    filled(&world);
    assert!(world.pages() > empty + 50);
    world.catalog.drop_table("people").unwrap();
    assert_eq!(world.catalog.pending_drops(), 4);
    world.drop_all();
    assert_eq!(world.pages(), empty);
    filled(&world);
}

#[test]
fn handles_of_a_dropped_table_fail_clearly_even_if_its_name_is_taken_again() {
    let world = World::new(1024);
    let old = filled(&world);
    let index = old.index("by_name").unwrap();
    let mut txn = world.begin();
    let mut cursor = old.scan(KeyRange::all(), Direction::Forward);
    assert!(cursor.next(&mut txn).unwrap().is_some());
    world.catalog.drop_table("people").unwrap();
    people(&world);
    let mut out = Vec::new();
    assert_eq!(cursor.next(&mut txn).unwrap_err().kind, TableErrorKind::Dropped);
    assert_eq!(old.get(&mut txn, b"k", &mut out).unwrap_err().kind, TableErrorKind::Dropped);
    assert_eq!(old.delete(&mut txn, b"k").unwrap_err().kind, TableErrorKind::Dropped);
    assert_eq!(old.index("by_name").unwrap_err().kind, TableErrorKind::Dropped);
    let mut entries = index.scan(KeyRange::all(), Direction::Forward);
    assert_eq!(entries.next(&mut txn).unwrap_err().kind, TableErrorKind::Dropped);
    txn.rollback().unwrap();
}

#[test]
fn a_transaction_that_wrote_to_it_can_still_roll_back() {
    let world = World::new(1024);
    let typed = filled(&world).typed().unwrap();
    let mut writer = world.begin();
    typed.delete(&mut writer, &[7i64.into()]).unwrap();
    world.catalog.drop_table("people").unwrap();
    assert_eq!(world.catalog.drop_step().unwrap(), Progress::Idle, "the writer could roll back into it");
    writer.rollback().unwrap();
    assert_eq!(world.catalog.drop_step().unwrap(), Progress::Worked);
}

#[test]
fn a_snapshot_holds_the_pages_until_it_ends() {
    let world = World::new(1024);
    let typed = filled(&world).typed().unwrap();
    let mut reader = world.begin();
    typed.get(&mut reader, &[7i64.into()], &mut Vec::new()).unwrap();
    world.catalog.drop_table("people").unwrap();
    assert_eq!(world.catalog.drop_step().unwrap(), Progress::Idle);
    drop(reader);
    world.drop_all();
    assert_eq!(world.catalog.pending_drops(), 0);
}
