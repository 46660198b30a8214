//! A scan shows the same rows whatever its batches are, beside writers, splits and merges; a
//! serializable one locks what it has delivered, and nothing that lies behind.

use crate::common::World;
use firndb_base::rng::Rng;
use firndb_btree::{Direction, Position};
use firndb_txn::{Course, Isolation, ManagerOptions, RowBatch, Transaction, TxnErrorKind, TxnOptions};
use std::collections::BTreeMap;
use std::time::Duration;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(number: u64) -> Vec<u8> {
    (number as u16).to_be_bytes().to_vec()
}

fn value(rng: &mut Rng) -> Vec<u8> {
    vec![rng.below(250) as u8; rng.below(60) as usize]
}

fn filled(rng: &mut Rng) -> (World, Rows) {
    let world = World::new(ManagerOptions::default());
    let mut rows = Rows::new();
    let mut txn = world.begin();
    for number in 0..400 {
        let value = value(rng);
        txn.put(&world.tree, &key(3 * number), &value).expect("free");
        rows.insert(key(3 * number), value);
    }
    txn.commit().expect("committed");
    (world, rows)
}

/// Commits a few changes, as far as the rows are free; sometimes whole stretches go, so that leaves
/// are merged.
fn disturb(world: &World, rows: &mut Rows, rng: &mut Rng) {
    let options = TxnOptions { lock_deadline: Some(Duration::from_millis(1)), ..TxnOptions::default() };
    for _ in 0..rng.below(4) {
        let mut txn = world.manager.begin(options.clone());
        let (first, count) = (rng.below(1200), if rng.one_in(6) { 60 } else { 3 });
        let mut changed = rows.clone();
        let deletes = rng.one_in(2);
        let outcome = (first..first + count).try_for_each(|number| match deletes {
            true => {
                changed.remove(&key(number));
                txn.remove(&world.tree, &key(number), &mut Vec::new()).map(drop)
            }
            false => {
                let value = value(rng);
                changed.insert(key(number), value.clone());
                txn.put(&world.tree, &key(number), &value)
            }
        });
        match outcome {
            Ok(()) => {
                txn.commit().expect("committed");
                *rows = changed;
            }
            Err(error) => assert_eq!(error.kind, TxnErrorKind::Timeout),
        }
    }
    if rng.one_in(3) {
        world.manager.maintenance_step().expect("a step");
    }
}

/// All rows from `low` on below `high` for which `keep` holds, in batches of random sizes, with
/// `between` after each.
fn scan(
    txn: &mut Transaction,
    world: &World,
    (low, high): (&[u8], &[u8]),
    direction: Direction,
    keep: impl Fn(&[u8]) -> bool,
    mut between: impl FnMut(&[u8]) -> usize,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mut at, to) = match direction {
        Direction::Forward => (Position::At(low.to_vec()), high),
        Direction::Backward => (Position::Past(high.to_vec()), low),
    };
    let keep = |_: &[u8], row: &[u8], _: bool| keep(row);
    let (mut batch, mut found) = (RowBatch::new(), Vec::new());
    let (mut most, mut more) = (1, true);
    while more {
        let course = Course { direction, to: Some(to), most, page_use: firndb_buffer::PageUse::Once };
        more = txn.scan_on(&world.tree, &mut at, course, Some(&keep), &mut batch).expect("readable");
        let exact = txn.isolation() != Isolation::Serializable;
        assert!(batch.len() <= most || !exact, "{} rows in a batch of {most}", batch.len());
        found.extend(batch.iter().map(|(key, row)| (key.to_vec(), row.to_vec())));
        most = between(batch.iter().last().map_or(b"", |(key, _)| key));
    }
    found
}

#[test]
fn scans_agree_with_a_model_beside_writers() {
    for seed in 0..20 {
        let rng = &mut Rng::new(seed);
        let (world, mut rows) = filled(rng);
        for isolation in [Isolation::Snapshot, Isolation::Serializable] {
            for direction in [Direction::Forward, Direction::Backward] {
                let mut reader = world.begin_at(isolation);
                reader.get(&world.tree, b"", &mut Vec::new()).expect("readable");
                let (low, high) = (key(rng.below(500)), key(600 + rng.below(700)));
                let at_first = rows.clone();
                let keep = |row: &[u8]| seed % 2 == 0 || row.len() < 20;
                let found = scan(&mut reader, &world, (&low, &high), direction, keep, |_| {
                    disturb(&world, &mut rows, rng);
                    [1, 4, 16, usize::MAX][rng.below(4) as usize]
                });
                // What a serializable reader has been shown has not changed since.
                let model = if isolation == Isolation::Snapshot { &at_first } else { &rows };
                let expected = model.range(low..high).filter(|(_, row)| keep(row));
                let mut expected: Vec<_> = expected.map(|(key, row)| (key.clone(), row.clone())).collect();
                if direction == Direction::Backward {
                    expected.reverse();
                }
                assert_eq!(found, expected, "seed {seed}, {isolation:?}, {direction:?}");
                reader.commit().expect("committed");
            }
        }
        world.manager.check();
    }
}

/// A leaf's rows were once locked for the sake of its first.
#[test]
fn a_serializable_batch_locks_up_to_its_last_row() {
    let rng = &mut Rng::new(1);
    let (world, _) = filled(rng);
    for direction in [Direction::Forward, Direction::Backward] {
        let mut reader = world.begin_at(Isolation::Serializable);
        let mut batches = 0;
        let range = (&key(300)[..], &key(900)[..]);
        scan(
            &mut reader,
            &world,
            range,
            direction,
            |_| true,
            |last| {
                // The last one found nothing ahead in its leaf.
                let Ok(last) = last.try_into() else { return 4 };
                let number = u64::from(u16::from_be_bytes(last));
                let (inside, behind) = match direction {
                    Direction::Forward => (number - 1, number + 1),
                    Direction::Backward => (number + 1, number - 1),
                };
                let write = |number| {
                    let limit = Some(Duration::from_millis(1));
                    let mut writer =
                        world.manager.begin(TxnOptions { lock_deadline: limit, ..TxnOptions::default() });
                    writer.put(&world.tree, &key(number), b"")
                };
                batches += 1;
                if batches <= 3 {
                    assert_eq!(write(behind), Ok(()), "{direction:?}, batch {batches}");
                    let held = [number, inside].map(|number| write(number).map_err(|error| error.kind));
                    assert_eq!(held[0], Err(TxnErrorKind::Timeout), "{direction:?}, batch {batches}");
                    assert!(batches == 1 || held[1].is_err(), "{direction:?}, batch {batches}");
                }
                4
            },
        );
        assert!(batches > 20);
    }
}
