//! Rows that an index cursor reads together are the rows that it would have read one by one: beside
//! other writers, and after the transaction's own writes between two rows.

use crate::common::World;
use firndb_base::Progress;
use firndb_base::rng::Rng;
use firndb_btree::Direction;
use firndb_table::*;
use firndb_txn::{Isolation, Transaction};
use std::collections::{BTreeMap, BTreeSet};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const LEVELS: [Isolation; 3] = [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable];

fn key(number: u64) -> Vec<u8> {
    number.to_be_bytes()[6..].to_vec()
}

/// The second byte is what the index is made of. Some are large.
fn value(rng: &mut Rng) -> Vec<u8> {
    let len = if rng.one_in(20) { 2000 } else { rng.between(2, 90) };
    let mut value = vec![rng.next_u64() as u8; len as usize];
    value[1] = rng.below(4) as u8;
    value
}

fn filled(rng: &mut Rng) -> (World, Table, Model) {
    let world = World::with_memory(1024, 300 << 10);
    let by_class = IndexSpec::ranges("by_class", false, vec![IndexPart::Value(1..2)]);
    let table = world.catalog.create_table("t", TableKind::Raw, vec![by_class]).unwrap();
    let mut model = Model::new();
    for first in (0..3000).step_by(500) {
        let mut txn = world.begin();
        for number in first..first + 500 {
            let value = value(rng);
            table.put(&mut txn, &key(number), &value).unwrap();
            model.insert(key(number), value);
        }
        txn.commit().unwrap();
    }
    (world, table, model)
}

fn in_class(model: &Model, class: u8) -> Vec<(Vec<u8>, Vec<u8>)> {
    let rows = model.iter().filter(|(_, value)| value[1] == class);
    rows.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Either cursor.
enum Rows {
    Ordered(IndexCursor),
    Unordered(UnorderedIndexCursor),
}

impl Rows {
    fn of(table: &Table, class: u8, direction: Direction, is_ordered: bool) -> Rows {
        let cursor = table.index("by_class").unwrap().scan(KeyRange::prefix(&[class]), direction);
        if is_ordered { Rows::Ordered(cursor) } else { Rows::Unordered(cursor.unordered()) }
    }

    fn next(&mut self, txn: &mut Transaction) -> Option<(Vec<u8>, Vec<u8>)> {
        let found = match self {
            Rows::Ordered(cursor) => cursor.next(txn),
            Rows::Unordered(cursor) => cursor.next(txn),
        };
        found.unwrap().map(|found| {
            assert_eq!(found.index_key[1..], *found.primary_key);
            (found.primary_key.to_vec(), found.row.to_vec())
        })
    }
}

/// Commits a few changes of rows drawn from all.
fn disturb(world: &World, table: &Table, rng: &mut Rng) {
    let mut writer = world.begin();
    for _ in 0..rng.below(6) {
        let key = key(rng.below(3100));
        if rng.one_in(3) {
            table.delete(&mut writer, &key).unwrap();
        } else {
            table.put(&mut writer, &key, &value(rng)).unwrap();
        }
    }
    writer.commit().unwrap();
}

#[test]
fn beside_other_writers() {
    for seed in 0..4 {
        let rng = &mut Rng::new(seed);
        let (world, table, _) = filled(rng);
        world.with_reader(|| {
            for isolation in LEVELS {
                for is_ordered in [true, false] {
                    for direction in [Direction::Forward, Direction::Backward] {
                        let mut txn = world.begin_at(isolation);
                        // What the cursor's statement sees: its first row is read at once.
                        let mut rows = Rows::of(&table, 2, direction, is_ordered);
                        let mut model = Model::new();
                        let mut all = table.scan(KeyRange::all(), Direction::Forward);
                        while let Some((key, row)) = all.next(&mut txn).unwrap() {
                            model.insert(key.to_vec(), row.to_vec());
                        }
                        let mut found = Vec::new();
                        while let Some(row) = rows.next(&mut txn) {
                            found.push(row);
                            if isolation != Isolation::Serializable && rng.one_in(3) {
                                disturb(&world, &table, rng);
                            }
                        }
                        if is_ordered && direction == Direction::Backward {
                            found.reverse();
                        } else if !is_ordered {
                            found.sort();
                        }
                        assert_eq!(found, in_class(&model, 2), "seed {seed}, {isolation:?}, {is_ordered}");
                        txn.commit().unwrap();
                    }
                }
            }
        });
        world.assert_sound(&table);
    }
}

/// What the transaction does to rows that were read already counts when they are returned.
#[test]
fn after_own_writes_between_two_rows() {
    for seed in 0..24 {
        let rng = &mut Rng::new(100 + seed);
        let (world, table, mut model) = filled(rng);
        let (is_ordered, isolation) = (seed % 2 == 0, LEVELS[seed as usize % 3]);
        let mut txn = world.begin_at(isolation);
        let mut rows = Rows::of(&table, 1, Direction::Forward, is_ordered);
        let untouched: BTreeSet<Vec<u8>> = in_class(&model, 1).into_iter().map(|(key, _)| key).collect();
        let (mut untouched, mut returned) = (untouched, BTreeSet::new());
        while let Some((key, row)) = rows.next(&mut txn) {
            assert_eq!(model.get(&key), Some(&row), "seed {seed}: the row as it is now");
            returned.insert(key);
            if !rng.one_in(7) {
                continue;
            }
            let before = (txn.savepoint(), model.clone());
            for _ in 0..rng.below(30) {
                let key = self::key(rng.below(3100));
                untouched.remove(&key);
                if rng.one_in(3) {
                    table.delete(&mut txn, &key).unwrap();
                    model.remove(&key);
                } else {
                    let mut value = value(rng);
                    // Often the entry stays.
                    value[1] = model.get(&key).filter(|_| rng.one_in(2)).map_or(value[1], |row| row[1]);
                    table.put(&mut txn, &key, &value).unwrap();
                    model.insert(key, value);
                }
            }
            if rng.one_in(3) {
                txn.rollback_to(&before.0).unwrap();
                model = before.1;
            }
        }
        let missed: Vec<_> = untouched.difference(&returned).collect();
        assert!(missed.is_empty(), "seed {seed}: {missed:?} were not returned");
        txn.commit().unwrap();
        world.assert_sound(&table);
    }
}

/// Rows of some hundred entries are read in the order in which they lie: a page is latched once for
/// several of them.
#[test]
fn rows_in_no_order_are_read_page_by_page() {
    let world = World::new(1024);
    let by_last = IndexSpec::ranges("by_last", false, vec![IndexPart::Key(1..2)]);
    let table = world.catalog.create_table("t", TableKind::Raw, vec![by_last]).unwrap();
    let mut txn = world.begin();
    (0..1000).for_each(|number| table.insert(&mut txn, &key(number), &[7; 60]).unwrap());
    let read = |txn: &mut Transaction, is_ordered: bool| {
        let before = world.pool().statistics().hits;
        let cursor = table.index("by_last").unwrap().scan(KeyRange::all(), Direction::Forward);
        let mut rows = if is_ordered { Rows::Ordered(cursor) } else { Rows::Unordered(cursor.unordered()) };
        let mut found = Vec::new();
        while let Some((key, _)) = rows.next(txn) {
            found.push(key);
        }
        found.sort();
        assert!(found.into_iter().eq((0..1000).map(key)));
        world.pool().statistics().hits - before
    };
    let (ordered, unordered) = (read(&mut txn, true), read(&mut txn, false));
    assert!(3 * unordered < 2 * ordered, "{unordered} and {ordered} pages latched");
}

/// While the rows of some entries are read, readers bring in those of the next ones: most of them,
/// and few that the cursor does not come to.
#[test]
fn rows_of_the_next_entries_are_read_ahead() {
    let world = World::with_memory(1024, 700 << 10);
    let by_class = IndexSpec::ranges("by_class", false, vec![IndexPart::Value(0..1)]);
    let table = world.catalog.create_table("t", TableKind::Raw, vec![by_class]).unwrap();
    let class = |number: u32| (number.wrapping_mul(0x9e37_79b9) >> 24) as u8 % 12;
    for first in (0..24_000_u32).step_by(500) {
        let mut txn = world.begin();
        for number in first..first + 500 {
            table.put(&mut txn, &number.to_be_bytes(), &[class(number); 90]).unwrap();
        }
        txn.commit().unwrap();
    }
    // Clean pages would be evicted in place of the changed ones, as long as there are any.
    world.pool().write_older_than(world.pool().log().end()).expect("written");
    world.pool().begin_read_ahead();
    for (class_read, (is_ordered, for_update)) in
        [(true, false), (true, true), (false, false)].into_iter().enumerate()
    {
        let is_own = |number: &u32| class(*number) == class_read as u8;
        let mut txn = world.begin();
        let range = KeyRange::prefix(&[class_read as u8]);
        let cursor = table.index("by_class").unwrap().scan(range, Direction::Forward);
        let cursor = if for_update { cursor.for_update() } else { cursor };
        let mut rows = if is_ordered { Rows::Ordered(cursor) } else { Rows::Unordered(cursor.unordered()) };
        let (begun, mut by_readers, mut found) = (world.pool().statistics(), 0, Vec::new());
        loop {
            let before = world.pool().misses();
            while world.pool().read_ahead_step() == Progress::Worked {}
            by_readers += world.pool().misses() - before;
            let Some((key, _)) = rows.next(&mut txn) else { break };
            found.push(u32::from_be_bytes(key.try_into().unwrap()));
        }
        found.sort_unstable();
        assert!(found.into_iter().eq((0..24_000).filter(is_own)));
        let ended = world.pool().statistics();
        let (read, at_once) =
            (ended.misses - begun.misses, ended.reads_at_once_sum - begun.reads_at_once_sum);
        let wasted = ended.pages_ahead_wasted - begun.pages_ahead_wasted;
        assert!(read > 1000 && 20 * wasted <= read, "{wasted} of {read} pages wasted, class {class_read}");
        assert!(at_once > 6 * read, "{} pages at once", at_once / read);
        assert!(!is_ordered || 2 * by_readers > read, "{by_readers} of {read} pages by readers");
    }
}

/// A query that stops after some rows has not read many more: batches of entries grow step by step,
/// and not to the hundreds that a leaf of the index has.
#[test]
fn few_rows_are_read_that_are_not_returned() {
    let world = World::new(8192);
    let by_last = IndexSpec::ranges("by_last", false, vec![IndexPart::Key(1..2)]);
    let table = world.catalog.create_table("t", TableKind::Raw, vec![by_last]).unwrap();
    let mut txn = world.begin();
    (0..2000).for_each(|number| table.insert(&mut txn, &key(number), &[7; 1900]).unwrap());
    for wanted in [1, 2, 6, 22, 90] {
        let before = world.pool().statistics().hits;
        let cursor = table.index("by_last").unwrap().scan(KeyRange::all(), Direction::Forward);
        let mut rows = Rows::Ordered(cursor);
        let wanted = (0..wanted).filter_map(|_| rows.next(&mut txn)).count() as u64;
        let latched = world.pool().statistics().hits - before;
        // Root and leaf of each row, at most.
        assert!(latched <= 2 * 4 * (wanted + 4), "{latched} pages latched for {wanted} rows");
    }
}
