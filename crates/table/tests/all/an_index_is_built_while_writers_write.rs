//! An index built while threads insert, update, delete and roll back is complete and exact.

use crate::common::*;
use firndb_base::rng::Rng;
use firndb_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use firndb_btree::Direction;
use firndb_table::*;
use firndb_txn::{CancelToken, Isolation, TxnErrorKind};
use std::ops::Bound;

const ROWS: i64 = 600;

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

/// Random transactions on ids of one parity until `stop` is set; returns how many committed. Each
/// thread uses its own mail addresses: the unique index must be possible.
fn write(world: &World, typed: &TypedTable, seed: u64, parity: i64, stop: &AtomicBool, done: &AtomicU64) {
    let mut rng = Rng::new(seed);
    while !stop.load(Ordering::SeqCst) {
        let mut txn = world.begin();
        let mut outcome = Ok(());
        for _ in 0..rng.between(1, 4) {
            let id = rng.below(ROWS as u64) as i64 / 2 * 2 + parity;
            let mail = format!("m{id}");
            let step = match rng.below(3) {
                0 => typed.delete(&mut txn, &[id.into()]).map(drop),
                _ => typed.put(&mut txn, &person(id, "n", Some(&mail), rng.below(9) as i32)).map(drop),
            };
            if step.is_err() {
                outcome = step;
                break;
            }
            if rng.one_in(4) {
                std::thread::yield_now();
            }
        }
        match outcome {
            Ok(()) if rng.one_in(4) => txn.rollback().unwrap(),
            Ok(()) => {
                txn.commit().unwrap();
                done.fetch_add(1, Ordering::SeqCst);
            }
            Err(error) => assert!(error.is_retryable(), "{error:?}"),
        }
    }
}

#[test]
fn with_writers_at_work() {
    let world = World::new(1024);
    let table = plain_people(&world, ROWS);
    let typed = table.typed().unwrap();
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for parity in 0..2 {
            let (world, typed, stop, done) = (&world, &typed, &stop, &done);
            scope.spawn(move || write(world, typed, 77 + parity as u64, parity, stop, done));
        }
        let _stop = Stop(&stop);
        let mut during = 0;
        for round in 0..10 {
            for spec in people_indexes() {
                let before = done.load(Ordering::SeqCst);
                world.catalog.create_index(&table, spec, &BuildLimits::default()).unwrap();
                during += done.load(Ordering::SeqCst) - before;
                world.assert_sound_quietly(&table);
            }
            if round < 9 {
                world.catalog.drop_index(&table, "by_name").unwrap();
                world.catalog.drop_index(&table, "by_mail").unwrap();
                world.catalog.drop_step().unwrap();
            }
        }
        assert!(during > 0, "no thread wrote while an index was being built: the test shows nothing");
    });
    world.drop_all();
    world.assert_sound(&table);
}

/// Stops the writers, also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl World {
    /// The check of the rows alone: pages change under the check of a tree.
    fn assert_sound_quietly(&self, table: &Table) {
        assert_eq!(self.catalog.check_table(table).unwrap().damage, Vec::<String>::new());
    }
}

/// Blocks until `count` waits for locks have begun since the manager was made, one of them by
/// `thread`.
fn until_waits<T>(world: &World, count: u64, thread: &std::thread::ScopedJoinHandle<'_, T>) {
    while world.manager.statistics().lock_waits < count {
        assert!(!thread.is_finished(), "it should have waited for a lock");
        std::thread::yield_now();
    }
}

#[test]
fn a_row_written_but_not_committed_when_the_index_is_defined_is_waited_for() {
    let world = World::new(1024);
    let table = plain_people(&world, 50);
    let typed = table.typed().unwrap();
    let mut writer = world.begin();
    typed.insert(&mut writer, &person(1000, "late", None, 1)).unwrap();
    typed.update(&mut writer, &person(7, "changed", None, 1)).unwrap();
    let waits = world.manager.statistics().lock_waits;
    std::thread::scope(|scope| {
        let build = scope.spawn(|| {
            world.catalog.create_index(&table, people_indexes()[0].clone(), &BuildLimits::default())
        });
        until_waits(&world, waits + 1, &build);
        writer.commit().unwrap();
        build.join().unwrap().unwrap();
    });
    world.assert_sound(&table);
}

#[test]
fn a_writer_that_waits_for_its_row_through_the_whole_build_keeps_the_index() {
    let world = World::new(1024);
    let table = plain_people(&world, 50);
    let typed = table.typed().unwrap();
    let mut holder = world.begin();
    typed.get_for_update(&mut holder, &[7i64.into()], &mut Vec::new()).unwrap();
    let waits = world.manager.statistics().lock_waits;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut txn = world.begin_at(Isolation::ReadCommitted);
            typed.put(&mut txn, &person(7, "changed", None, 1)).unwrap();
            txn.commit().unwrap();
        });
        until_waits(&world, waits + 1, &writer);
        world.catalog.create_index(&table, people_indexes()[0].clone(), &BuildLimits::default()).unwrap();
        holder.rollback().unwrap();
        writer.join().unwrap();
    });
    world.assert_sound(&table);
}

#[test]
fn an_unfinished_build_is_dropped_by_the_next_opening() {
    let world = World::new(4096);
    let table = plain_people(&world, 50);
    world.drop_all();
    let pages = world.pages();
    world.catalog.create_index(&table, people_indexes()[0].clone(), &BuildLimits::default()).unwrap();
    unfinish(&world, &table);
    drop(table);
    let world = world.reopened();
    let table = world.catalog.table("people").unwrap();
    let typed = table.typed().unwrap();
    let mut txn = world.begin();
    typed.delete(&mut txn, &[7i64.into()]).unwrap();
    typed.insert(&mut txn, &person(7, "again", None, 1)).unwrap();
    txn.commit().unwrap();
    let cursor = table
        .index("by_name")
        .unwrap()
        .scan(KeyRange::all(), Direction::Forward)
        .next(&mut world.begin())
        .err();
    assert_eq!(cursor.unwrap().kind, TableErrorKind::Stale, "writers keep it, readers may not use it");
    world.drop_all();
    assert!(table.index("by_name").is_err());
    assert_eq!(world.pages(), pages);
    world.assert_sound(&table);
}

/// Makes the catalog say that the table's only index, by_name, is still being built, with notes, as
/// a crash would leave it; and removes its entries.
fn unfinish(world: &World, table: &Table) {
    let index = table.index("by_name").unwrap().definition().unwrap();
    let trees = world.catalog.trees();
    let (system, by_name) = (&trees[0].1, &trees.iter().find(|(_, tree)| tree.id() == index.tree).unwrap().1);
    let key = [b"object/".as_slice(), &table.id().0.to_be_bytes(), &[0, 0]].concat();
    let (mut txn, mut bytes) = (world.begin(), Vec::new());
    assert!(txn.get(system, &key, &mut bytes).unwrap());
    // See docs/format/rows.md: before the checksum, the index's columns, uniqueness, name and
    // state.
    let state = bytes.len() - 4 - (1 + 1 + 2 * 2) - 1 - (1 + "by_name".len()) - 1;
    assert_eq!(bytes[state], 2, "ready");
    let notes = txn.create_tree().unwrap();
    let building = [&[1][..], &notes.id().0.to_le_bytes(), &notes.root().0.to_le_bytes()].concat();
    bytes.splice(state..=state, building);
    let end = bytes.len() - 4;
    let checksum = firndb_base::crc32c(&bytes[..end]);
    bytes[end..].copy_from_slice(&checksum.to_le_bytes());
    txn.put(system, &key, &bytes).unwrap();
    let mut entries = table.index("by_name").unwrap().scan(KeyRange::all(), Direction::Forward);
    while let Some((key, _)) = entries.next_entry(&mut txn).unwrap() {
        let key = key.to_vec();
        txn.remove(by_name, &key, &mut Vec::new()).unwrap();
    }
    txn.commit().unwrap();
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
    let error = world.catalog.create_index(&table, by_mail.clone(), &BuildLimits::default()).unwrap_err();
    assert_eq!(error.kind, TableErrorKind::Duplicate);
    assert!(table.index("by_mail").is_err());
    world.drop_all();
    assert_eq!((world.pages(), world.catalog.pending_drops()), (pages, 0));

    let mut txn = world.begin();
    typed.update(&mut txn, &person(150, "n", Some("m150"), 1)).unwrap();
    txn.commit().unwrap();
    world.catalog.create_index(&table, by_mail.clone(), &BuildLimits::default()).unwrap();
    world.assert_sound(&table);
}

#[test]
fn a_snapshot_from_before_the_build_may_not_read_the_index() {
    let world = World::new(1024);
    let table = plain_people(&world, 50);
    let typed = table.typed().unwrap();
    let mut old = world.begin();
    typed.get(&mut old, &[1i64.into()], &mut Vec::new()).unwrap();
    let index =
        world.catalog.create_index(&table, people_indexes()[0].clone(), &BuildLimits::default()).unwrap();
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
    let error = world
        .catalog
        .create_index(
            &table,
            people_indexes()[0].clone(),
            &BuildLimits { cancel: Some(token), ..BuildLimits::default() },
        )
        .unwrap_err();
    assert_eq!(error.kind, TableErrorKind::Transaction(TxnErrorKind::Cancelled));
    assert!(table.definition().unwrap().indexes.is_empty());
    world.assert_sound(&table);
}
