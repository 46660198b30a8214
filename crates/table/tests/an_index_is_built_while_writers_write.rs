//! An index built while threads insert, update, delete and roll back is complete and exact.

mod common;

use common::*;
use firn_base::rng::Rng;
use firn_base::sync::atomic::{AtomicBool, Ordering};
use firn_btree::Direction;
use firn_table::*;
use firn_txn::{CancelToken, TxnErrorKind};
use std::ops::Bound;

fn plain_people(world: &World, rows: i64) -> Table {
    let table = people(world);
    world.catalog.drop_index(&table, "by_name").unwrap();
    world.catalog.drop_index(&table, "by_mail").unwrap();
    let typed = table.typed().unwrap();
    let mut txn = world.begin();
    for id in 0..rows {
        typed.insert(&mut txn, &person(id, "n", Some(&format!("m{id}")), 1)).unwrap();
    }
    txn.commit().unwrap();
    table
}

#[test]
fn with_writers_at_work() {
    for seed in 0..3 {
        let world = World::new(1024);
        let table = plain_people(&world, 400);
        let typed = table.typed().unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..2i64 {
                let (world, typed, stop) = (&world, &typed, &stop);
                scope.spawn(move || {
                    let mut rng = Rng::new(seed * 10 + thread as u64);
                    while !stop.load(Ordering::SeqCst) {
                        let mut txn = world.begin();
                        let mut outcome = Ok(());
                        for _ in 0..rng.between(1, 4) {
                            // Each thread has mails of its own: the unique index must be possible.
                            let id = rng.below(300) as i64 * 2 + thread;
                            let mail = format!("m{id}");
                            outcome = outcome.and(match rng.below(3) {
                                0 => typed.delete(&mut txn, &[id.into()]).map(drop),
                                _ => typed
                                    .put(&mut txn, &person(id, "n", Some(&mail), rng.below(9) as i32))
                                    .map(drop),
                            });
                        }
                        match outcome {
                            Ok(()) if rng.one_in(4) => txn.rollback().unwrap(),
                            Ok(()) => txn.commit().unwrap(),
                            Err(error) => assert!(error.is_retryable(), "{error:?}"),
                        }
                    }
                });
            }
            for spec in people_indexes() {
                world.catalog.create_index(&table, spec, None).unwrap();
                world.assert_sound_quietly(&table);
            }
            stop.store(true, Ordering::SeqCst);
        });
        world.assert_sound(&table);
    }
}

impl World {
    /// The check of the rows alone: pages change under the check of a tree.
    fn assert_sound_quietly(&self, table: &Table) {
        assert_eq!(self.catalog.check_table(table).unwrap().damage, Vec::<String>::new());
    }
}

#[test]
fn rows_that_violate_a_unique_index_stop_its_build_and_leave_the_table_as_it_was() {
    let world = World::new(1024);
    let table = plain_people(&world, 200);
    world.drop_all();
    let pages = world.pages();
    let typed = table.typed().unwrap();
    let mut txn = world.begin();
    typed.update(&mut txn, &person(150, "n", Some("m3"), 1)).unwrap();
    txn.commit().unwrap();
    let [_, by_mail] = &people_indexes()[..] else { unreachable!() };
    let error = world.catalog.create_index(&table, by_mail.clone(), None).unwrap_err();
    assert_eq!(error.kind, TableErrorKind::Duplicate);
    assert!(table.index("by_mail").is_err());
    world.drop_all();
    assert_eq!((world.pages(), world.catalog.pending_drops()), (pages, 0));

    let mut txn = world.begin();
    typed.update(&mut txn, &person(150, "n", Some("m150"), 1)).unwrap();
    txn.commit().unwrap();
    world.catalog.create_index(&table, by_mail.clone(), None).unwrap();
    world.assert_sound(&table);
}

#[test]
fn a_snapshot_from_before_the_build_may_not_read_the_index() {
    let world = World::new(1024);
    let table = plain_people(&world, 50);
    let typed = table.typed().unwrap();
    let mut old = world.begin();
    typed.get(&mut old, &[1i64.into()], &mut Vec::new()).unwrap();
    let index = world.catalog.create_index(&table, people_indexes()[0].clone(), None).unwrap();
    let scan = || typed.scan_index(&index, Bound::Unbounded, Bound::Unbounded, Direction::Forward).unwrap();
    let error = scan().next(&mut old).unwrap_err();
    assert_eq!(error.kind, TableErrorKind::Stale);
    assert!(error.is_retryable());
    old.rollback().unwrap();
    assert_eq!(rest(&mut scan(), &mut world.begin()).len(), 50);
}

#[test]
fn a_cancelled_build_leaves_the_table_as_it_was() {
    let world = World::new(1024);
    let table = plain_people(&world, 50);
    let token = CancelToken::new();
    token.cancel();
    let error = world.catalog.create_index(&table, people_indexes()[0].clone(), Some(token)).unwrap_err();
    assert_eq!(error.kind, TableErrorKind::Transaction(TxnErrorKind::Cancelled));
    assert!(table.definition().unwrap().indexes.is_empty());
    world.assert_sound(&table);
}
