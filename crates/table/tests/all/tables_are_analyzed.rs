//! What is known of a table for planning agrees with the table, survives reopening, and is gone
//! with the table.

use crate::common::*;
use firndb_base::rng::Rng;
use firndb_table::*;
use firndb_txn::TxnOptions;

const COLOUR: usize = 0;

/// Rows of 60 bytes: their first two are a colour, drawn from 200 or as the rows are ordered.
fn filled(world: &World, rows: u32, is_clustered: bool) -> Table {
    let index = IndexSpec::ranges("colour", false, vec![IndexPart::Value(COLOUR..COLOUR + 2)]);
    let table = world.catalog.create_table("t", TableKind::Raw, vec![index]).unwrap();
    let mut rng = Rng::new(11);
    for first in (0..rows).step_by(500) {
        let mut txn = world.begin();
        for key in first..(first + 500).min(rows) {
            let colour = if is_clustered { key * 200 / rows } else { rng.below(200) as u32 };
            let mut row = [7; 60];
            row[..2].copy_from_slice(&(colour as u16).to_be_bytes());
            table.insert(&mut txn, &key.to_be_bytes(), &row).unwrap();
        }
        txn.commit().unwrap();
    }
    table
}

fn analyze(world: &World, table: &Table) -> TableStatistics {
    let statistics = world.catalog.survey(table, TxnOptions::default(), &mut |_| {}).unwrap();
    world.catalog.keep_statistics(table, &statistics).unwrap();
    statistics
}

#[test]
fn statistics_agree_with_the_table_and_survive_reopening() {
    let world = World::new(1024);
    let table = filled(&world, 20_000, false);
    assert_eq!(world.catalog.table_statistics(&table).unwrap(), None, "never analyzed");
    let statistics = analyze(&world, &table);
    assert_eq!((statistics.rows, statistics.row_bytes), (20_000, 20_000 * 64));
    // All but what does not fit 64 KiB.
    assert!((900..=SAMPLE_ROWS).contains(&statistics.sample.len()), "{}", statistics.sample.len());
    assert_eq!(statistics.sample_left_out, 0);
    // Between 7 and 14 rows of 64 bytes with their headers fit a page of 1 KiB.
    assert!((20_000 / 14..20_000 / 6).contains(&statistics.leaves), "{}", statistics.leaves);
    assert!((2..6).contains(&statistics.height), "{}", statistics.height);
    let kept = world.catalog.table_statistics(&table).unwrap();
    assert_eq!(kept.as_ref(), Some(&statistics));
    drop(table);
    let world = world.reopened();
    let table = world.catalog.table("t").unwrap();
    assert_eq!(world.catalog.table_statistics(&table).unwrap(), kept);
}

#[test]
fn the_sample_is_uniform_and_its_rows_are_the_tables() {
    let world = World::new(4096);
    let table = filled(&world, 20_000, true);
    let statistics = analyze(&world, &table);
    let (share, of) =
        statistics.share(|row| statistics.sample[row].row[..2] < 50u16.to_be_bytes()[..]).unwrap();
    // A quarter of the rows; the standard error is below 1.7 %.
    assert!(of > 600 && (share - 0.25).abs() < 0.06, "{share} of {of}");
    let mut txn = world.begin();
    let mut keys = std::collections::BTreeSet::new();
    for sampled in &statistics.sample {
        let mut row = Vec::new();
        assert!(table.get(&mut txn, &sampled.key, &mut row).unwrap());
        assert_eq!(row, sampled.row);
        assert!(keys.insert(&sampled.key), "a row is drawn once");
    }
}

#[test]
fn clustering_tells_an_index_in_the_order_of_the_table_from_one_that_is_not() {
    let leaves_of = |is_clustered| {
        let world = World::new(1024);
        let table = filled(&world, 30_000, is_clustered);
        let statistics = analyze(&world, &table);
        let index = &statistics.indexes[0];
        assert!(index.leaves > 10 && index.height >= 2, "{index:?}");
        (index.table_leaves, statistics.leaves as f64)
    };
    let (clustered, leaves) = leaves_of(true);
    let rows_of_a_leaf = 30_000.0 / leaves;
    assert_eq!(clustered[0], 1.0);
    for (window, found) in WINDOWS.into_iter().zip(clustered).skip(1) {
        let expected = window as f64 / rows_of_a_leaf;
        assert!((0.8..1.4).contains(&(found / expected)), "{window}: {found}, not {expected}");
    }
    // Distinct leaves of as many rows drawn at random (Cardenas).
    let (random, leaves) = leaves_of(false);
    for (window, found) in WINDOWS.into_iter().zip(random) {
        let expected = leaves * (1.0 - (1.0 - 1.0 / leaves).powf(window as f64));
        // Entries of one colour are in the order of the table: two rows of a colour share a leaf
        // no more often than others.
        assert!((0.85..1.1).contains(&(found / expected)), "{window}: {found}, not {expected}");
    }
}

#[test]
fn small_empty_and_long_rows_are_analyzed() {
    let world = World::new(4096);
    let index = IndexSpec::ranges("first", false, vec![IndexPart::Value(0..1)]);
    let table = world.catalog.create_table("t", TableKind::Raw, vec![index]).unwrap();
    let empty = analyze(&world, &table);
    assert_eq!((empty.rows, empty.leaves, empty.height, empty.sample.len()), (0, 1, 1, 0));
    assert_eq!(empty.indexes[0].table_leaves, [0.0; 4]);
    let mut txn = world.begin();
    for key in 0..40u8 {
        let len = if key < 10 { 20_000 } else { 50 };
        table.insert(&mut txn, &[key], &vec![key; len]).unwrap();
    }
    txn.commit().unwrap();
    let statistics = analyze(&world, &table);
    assert_eq!((statistics.rows, statistics.sample.len(), statistics.sample_left_out), (40, 30, 10));
    assert_eq!(statistics.indexes[0].table_leaves[0], 1.0);
    assert_eq!(statistics.indexes[0].table_leaves[3], statistics.leaves as f64, "all entries are one window");
}

#[test]
fn rows_of_the_snapshot_are_counted_while_writers_write() {
    let world = World::new(1024);
    let table = filled(&world, 12_000, false);
    let mut next = 1_000_000u32;
    let statistics = world.catalog.survey(&table, TxnOptions::default(), &mut |_| {
        let mut txn = world.begin();
        for _ in 0..50 {
            table.insert(&mut txn, &next.to_be_bytes(), &[1; 60]).unwrap();
            next += 1;
        }
        assert!(table.delete(&mut txn, &(next % 1000).to_be_bytes()).unwrap());
        txn.commit().unwrap();
    });
    assert_eq!(statistics.unwrap().rows, 12_000);
    assert!(next > 1_000_100, "there were reports of progress");
    assert!(analyze(&world, &table).rows > 12_000);
}

#[test]
fn rows_that_committed_transactions_change_are_counted() {
    let world = World::new(1024);
    let table = filled(&world, 100, false);
    let changed = || world.catalog.rows_changed(&table).unwrap();
    assert_eq!(changed(), 100, "never analyzed: all have changed");
    analyze(&world, &table);
    let change = |txn: &mut firndb_txn::Transaction| {
        let (row, key) = ([7; 60], |number: u32| number.to_be_bytes());
        table.insert(txn, &key(200), &row).unwrap();
        table.insert(txn, &key(1), &row).unwrap_err();
        table.put(txn, &key(2), &row).unwrap();
        table.put(txn, &key(201), &row).unwrap();
        assert!(table.update(txn, &key(3), &row).unwrap());
        assert!(!table.update(txn, &key(300), &row).unwrap());
        assert!(table.update_with(txn, &key(4), &mut Vec::new(), &mut |row| row[9] = 1).unwrap());
        assert!(table.delete(txn, &key(5)).unwrap());
        assert!(!table.delete(txn, &key(301)).unwrap());
        table.update_many_with(txn, &[key(6), key(7), key(8)], &mut |_, _| {}).unwrap();
        table.get(txn, &key(9), &mut Vec::new()).unwrap();
    };
    let mut txn = world.begin();
    change(&mut txn);
    txn.rollback().unwrap();
    let mut txn = world.begin();
    change(&mut txn);
    drop(txn);
    let mut txn = world.begin();
    change(&mut txn);
    assert_eq!(changed(), 0);
    txn.commit().unwrap();
    assert_eq!(changed(), 9);
}

#[test]
fn rows_that_change_while_a_table_is_analyzed_count_afterwards() {
    let world = World::new(1024);
    let table = filled(&world, 12_000, false);
    let mut survey = Survey::new(&table, true);
    let mut slices = 0;
    let mut on = || world.catalog.survey_on(&mut survey, 1, || false);
    while on() == Surveyed::Some {
        slices += 1;
        if slices > 150 {
            continue;
        }
        // Behind the survey, and before it.
        for key in [slices, 20_000 - slices] {
            let mut txn = world.begin();
            table.put(&mut txn, &u32::to_be_bytes(key), &[1; 60]).unwrap();
            txn.commit().unwrap();
        }
    }
    assert!(slices > 200, "{slices}");
    assert_eq!(world.catalog.rows_changed(&table).unwrap(), 300);
    let statistics = world.catalog.table_statistics(&table).unwrap().expect("kept");
    assert_eq!(statistics.rows, 12_150);
    assert_eq!(world.catalog.survey_on(&mut Survey::new(&table, true), 301, || true), Surveyed::All);
    assert_eq!(world.catalog.table_statistics(&table).unwrap().as_ref(), Some(&statistics));
}

/// No snapshot is held while an analysis in the background rests.
#[test]
fn an_analysis_in_the_background_holds_no_versions_back() {
    let world = World::new(1024);
    let table = filled(&world, 12_000, false);
    let mut survey = Survey::new(&table, true);
    for _ in 0..20 {
        assert_eq!(world.catalog.survey_on(&mut survey, 1, || false), Surveyed::Some);
        assert!(world.manager.is_past(world.manager.fence()), "a snapshot is left");
    }
}

#[test]
fn a_dropped_table_takes_its_statistics_along_and_another_of_its_name_has_none() {
    let world = World::new(1024);
    let table = filled(&world, 3000, false);
    let statistics = analyze(&world, &table);
    world.catalog.drop_table("t").unwrap();
    assert_eq!(world.catalog.table_statistics(&table).unwrap_err().kind, TableErrorKind::Dropped);
    let refused = world.catalog.survey(&table, TxnOptions::default(), &mut |_| {});
    assert_eq!(refused.unwrap_err().kind, TableErrorKind::Dropped);
    let refused = world.catalog.keep_statistics(&table, &statistics);
    assert_eq!(refused.unwrap_err().kind, TableErrorKind::Dropped);
    let rows = |world: &World| {
        let system = world.catalog.trees().remove(0).1;
        let mut keys = Vec::new();
        let mut from = Some(firndb_btree::Position::Start);
        let mut batch = firndb_txn::RowBatch::new();
        let mut txn = world.begin();
        while let Some(position) = from {
            from = txn.scan(&system, &position, firndb_txn::Course::forward(None), &mut batch).unwrap();
            keys.extend(batch.iter().map(|(key, _)| key.to_vec()));
        }
        keys.iter().filter(|key| key.starts_with(b"table-statistics/")).count()
    };
    assert_eq!(rows(&world), 0);
    let table = filled(&world, 3000, false);
    assert_eq!(world.catalog.table_statistics(&table).unwrap(), None);
    analyze(&world, &table);
    assert!(rows(&world) > 10, "the sample has many chunks");
}

#[test]
fn a_dropped_index_is_not_among_the_statistics_nor_is_another_of_its_name() {
    let world = World::new(1024);
    let table = filled(&world, 3000, false);
    let mut statistics = analyze(&world, &table);
    assert_eq!(statistics.indexes.len(), 1);
    world.catalog.drop_index(&table, "colour").unwrap();
    statistics.indexes.clear();
    assert_eq!(world.catalog.table_statistics(&table).unwrap().as_ref(), Some(&statistics));
    let index = IndexSpec::ranges("colour", false, vec![IndexPart::Value(COLOUR..COLOUR + 2)]);
    world.catalog.create_index(&table, index, &BuildLimits::default()).unwrap();
    assert_eq!(world.catalog.table_statistics(&table).unwrap(), Some(statistics));
    assert_eq!(analyze(&world, &table).indexes.len(), 1);
}

#[test]
fn damaged_statistics_are_an_error_of_theirs_only_until_the_table_is_analyzed_again() {
    let world = World::new(1024);
    let table = filled(&world, 3000, false);
    let statistics = analyze(&world, &table);
    let key =
        |chunk: u16| [b"table-statistics/".as_slice(), &table_id(&table), &chunk.to_be_bytes()].concat();
    let system = world.catalog.trees().remove(0).1;
    let damages: [(&str, Option<&[u8]>); 3] =
        [("missing", None), ("other bytes", Some(b"x")), ("none", Some(b""))];
    for (what, bytes) in damages {
        let mut txn = world.begin();
        match bytes {
            Some(bytes) => txn.put(&system, &key(1), bytes).unwrap(),
            None => assert!(txn.remove(&system, &key(1), &mut Vec::new()).unwrap()),
        }
        txn.commit().unwrap();
        let error = world.catalog.table_statistics(&table).unwrap_err();
        assert_eq!(error.kind, TableErrorKind::Damaged, "{what}");
        let again = analyze(&world, &table);
        let unix_us = again.unix_us;
        assert_eq!(again, TableStatistics { unix_us, ..statistics.clone() }, "{what}");
        assert_eq!(world.catalog.table_statistics(&table).unwrap(), Some(again), "{what}");
    }
    // Damage is no obstacle to opening the database, nor to dropping the table.
    let mut txn = world.begin();
    txn.remove(&system, &key(0), &mut Vec::new()).unwrap();
    txn.commit().unwrap();
    drop((table, system));
    let world = world.reopened();
    world.catalog.drop_table("t").unwrap();
}

fn table_id(table: &Table) -> [u8; 4] {
    table.definition().unwrap().tree.0.to_be_bytes()
}

#[test]
fn where_sampled_leaves_are_is_found_out_each_time() {
    // 500 leaves and 100 of the index, of which memory holds all; not beside another table.
    let world = World::with_memory(1024, 1 << 20);
    let table = filled(&world, 5000, false);
    assert!(world.catalog.planning_statistics(&table).unwrap().is_none(), "never analyzed");
    analyze(&world, &table);
    let index = table.index("colour").unwrap();
    let statistics = world.catalog.planning_statistics(&table).unwrap().unwrap();
    let in_dram = || (table.residency(&statistics).unwrap().dram, index.residency(&statistics).unwrap().dram);
    let read = |rows: u32| {
        let (mut txn, mut row) = (world.begin(), Vec::new());
        (0..rows).for_each(|key| assert!(table.get(&mut txn, &key.to_be_bytes(), &mut row).unwrap()));
    };
    let other = world.catalog.create_table("other", TableKind::Raw, Vec::new()).unwrap();
    let mut txn = world.begin();
    (0..20_000u32).for_each(|key| other.insert(&mut txn, &key.to_be_bytes(), &[1; 60]).unwrap());
    txn.commit().unwrap();
    let cold = in_dram();
    assert!(cold.0 < 0.1 && cold.1 < 0.1, "{cold:?}");
    read(2500);
    // A half; the standard error of 64 rows is 6 %.
    let half = in_dram();
    assert!((0.3..0.7).contains(&half.0) && half.1 < 0.1, "{half:?}");
    read(5000);
    world.assert_sound(&table);
    let warm = in_dram();
    assert!(warm.0 > 0.9 && warm.1 > 0.3, "{warm:?}");
    let again = world.catalog.planning_statistics(&table).unwrap().unwrap();
    assert!(firndb_base::sync::Arc::ptr_eq(&statistics, &again), "kept until there are others");
    analyze(&world, &table);
    let other = world.catalog.planning_statistics(&table).unwrap().unwrap();
    assert!(!firndb_base::sync::Arc::ptr_eq(&statistics, &other));
}
