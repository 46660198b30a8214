//! A cursor that met an error, or whose filter panicked, stands where it stood before: no row is
//! missing then, none is returned twice, and the transaction's next statements are whole ones.

use crate::common::World;
use firndb_btree::Direction;
use firndb_table::*;
use firndb_txn::{Isolation, Transaction, TxnErrorKind, TxnOptions};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

const ROWS: u8 = 40;

fn filled() -> (World, Table) {
    let world = World::new(1024);
    let by_value = IndexSpec::ranges("by_value", false, vec![IndexPart::Value(0..1)]);
    let table = world.catalog.create_table("t", TableKind::Raw, vec![by_value]).unwrap();
    let mut txn = world.begin();
    (0..ROWS).for_each(|number| table.put(&mut txn, &[number], &[7; 60]).map(drop).unwrap());
    txn.commit().unwrap();
    (world, table)
}

/// The numbers of all rows in a direction.
fn numbers(direction: Direction) -> Vec<u8> {
    match direction {
        Direction::Forward => (0..ROWS).collect(),
        Direction::Backward => (0..ROWS).rev().collect(),
    }
}

/// Rows of a batch that could not be read were once returned, and then read again.
#[test]
fn after_a_wait_that_ended() {
    let (world, table) = filled();
    for direction in [Direction::Forward, Direction::Backward] {
        for locked in 0..ROWS {
            let mut writer = world.begin();
            table.put(&mut writer, &[locked], &[7; 61]).unwrap();
            let mut writer = Some(writer);
            let mut txn = world.manager.begin(TxnOptions {
                isolation: Isolation::Serializable,
                lock_deadline: Some(Duration::from_micros(100)),
                ..TxnOptions::default()
            });
            let mut cursor = table.scan(KeyRange::all(), direction);
            let (mut found, mut failed) = (Vec::new(), 0);
            loop {
                match cursor.next(&mut txn) {
                    Ok(Some((key, _))) => found.push(key[0]),
                    Ok(None) => break,
                    Err(error) => {
                        assert_eq!(error.kind, TableErrorKind::Transaction(TxnErrorKind::Timeout));
                        failed += 1;
                        if failed == 3 {
                            writer.take().unwrap().commit().unwrap();
                        }
                    }
                }
            }
            assert_eq!((found, failed), (numbers(direction), 3), "{direction:?}, row {locked} is locked");
        }
    }
}

/// The next row's number, or `None` if the filter panicked.
fn try_next(cursor: &mut Cursor, txn: &mut Transaction) -> Option<Option<u8>> {
    let next = || cursor.next(txn).unwrap().map(|(key, _)| key[0]);
    catch_unwind(AssertUnwindSafe(next)).ok()
}

/// The statement once went on for ever, and with it its snapshot.
#[test]
fn after_a_filter_that_panicked() {
    let (world, table) = filled();
    for isolation in [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable] {
        for bad in [0, 3, 20, ROWS - 1] {
            let panics = std::sync::Arc::new(AtomicBool::new(true));
            let mut txn = world.begin_at(isolation);
            let (told, mut found) = (panics.clone(), Vec::new());
            let mut cursor = table.scan(KeyRange::all(), Direction::Forward).filter(move |key, _| {
                assert!(key[0] != bad || !told.load(SeqCst), "the filter panics, as it should here");
                true
            });
            while let Some(number) = try_next(&mut cursor, &mut txn) {
                found.push(number.expect("it panics before the end"));
            }
            assert_eq!(try_next(&mut cursor, &mut txn), None);
            let mut value = Vec::new();
            for len in [50, 60].into_iter().filter(|_| isolation != Isolation::Serializable) {
                let mut writer = world.begin();
                table.put(&mut writer, &[0], &vec![7; len]).unwrap();
                writer.commit().unwrap();
                assert!(table.get(&mut txn, &[0], &mut value).unwrap());
                let seen = if isolation == Isolation::ReadCommitted { len } else { 60 };
                assert_eq!(value.len(), seen, "{isolation:?}");
            }
            panics.store(false, SeqCst);
            while let Some(number) = try_next(&mut cursor, &mut txn).expect("no panic any more") {
                found.push(number);
            }
            assert_eq!(found, numbers(Direction::Forward), "{isolation:?}, {bad}");
            txn.commit().unwrap();
        }
    }
}
