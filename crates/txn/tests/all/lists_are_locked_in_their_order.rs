//! Lists of keys are locked in the order of the keys, each once the row before it is free: beside
//! transactions that write in that order, nothing waits in a circle.

use crate::common::World;
use firndb_base::clock;
use firndb_base::sim::{self, SimOptions};
use firndb_base::sync::Arc;
use firndb_base::sync::thread;
use firndb_txn::{Isolation, ManagerOptions, Transaction, TxnError, TxnErrorKind};
use std::time::Duration;

const LEVELS: [Isolation; 3] = [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable];

/// What a list read, by the numbers of its keys.
type Found = Result<Vec<Option<Vec<u8>>>, TxnError>;

fn read(txn: &mut Transaction, world: &World, keys: &[&str], for_update: bool) -> Found {
    let mut found = vec![None; keys.len()];
    let each = |number: usize, row: Option<(&[u8], bool)>| found[number] = row.map(|row| row.0.to_vec());
    match for_update {
        true => txn.get_many_for_update(&world.tree, keys, each)?,
        false => txn.get_many(&world.tree, keys, each)?,
    }
    Ok(found)
}

/// Reads a list in a thread of its own, at a level, for update or not, while `work` runs. Threads
/// change only where one waits, so a second is enough for the other to come as far as it can.
fn beside(isolation: Isolation, for_update: bool, work: fn(&World)) -> Found {
    let options = SimOptions { preempt_one_in: 0, ..SimOptions::seeded(1) };
    let outcome = sim::run(options, move || {
        let world = Arc::new(World::new(ManagerOptions::default()));
        let other = world.clone();
        let list = thread::spawn("list", move || {
            clock::sleep(Duration::from_secs(1));
            let mut txn = other.begin_at(isolation);
            let found = read(&mut txn, &other, &["b", "c", "a", "b"], for_update);
            drop(txn);
            found
        });
        work(&world);
        list.expect("a thread").join().expect("no panic")
    });
    outcome.expect("no thread waits for ever").value
}

fn rows(a: &str, b: &str, c: &str) -> Found {
    Ok([b, c, a, b].map(|row| Some(row.as_bytes().to_vec())).to_vec())
}

/// All keys were once locked before the first row was read: then a writer of the first row, for
/// which the list waited, waited for the list when it came to the second.
#[test]
fn a_list_waits_for_a_writer_that_has_more_to_write() {
    for (isolation, for_update) in
        LEVELS.map(|level| (level, true)).into_iter().chain([(Isolation::Serializable, false)])
    {
        let found = beside(isolation, for_update, |world| {
            let mut writer = world.begin();
            writer.put(&world.tree, b"a", b"1").expect("free");
            clock::sleep(Duration::from_secs(3));
            for key in [b"b", b"c"] {
                writer.put(&world.tree, key, b"2").expect("the list has not come to it");
            }
            writer.commit().expect("committed");
        });
        assert_eq!(found, rows("1", "2", "2"), "{isolation:?}, for update: {for_update}");
    }
}

/// The first row waited for counted as shown, and the snapshot could not be exchanged for the
/// second.
#[test]
fn a_first_list_waits_for_several_writers_without_a_conflict() {
    for isolation in LEVELS {
        let found = beside(isolation, true, |world| {
            let [mut first, mut second, mut third] = [(); 3].map(|()| world.begin());
            first.put(&world.tree, b"a", b"1").expect("free");
            second.put(&world.tree, b"b", b"2").expect("free");
            third.put(&world.tree, b"c", b"3").expect("free");
            for writer in [first, second, third] {
                clock::sleep(Duration::from_secs(3));
                writer.commit().expect("committed");
            }
        });
        assert_eq!(found, rows("1", "2", "3"), "{isolation:?}");
    }
}

/// Rows that have been shown are not shown anew, and those behind are locked when it comes to them.
#[test]
fn a_list_that_fails_has_locked_what_it_has_shown() {
    let world = World::new(ManagerOptions::default());
    let mut setup = world.begin();
    for key in [b"a", b"b", b"c"] {
        setup.put(&world.tree, key, b"0").expect("free");
    }
    setup.commit().expect("committed");
    let limit = |isolation| firndb_txn::TxnOptions {
        isolation,
        lock_deadline: Some(Duration::from_millis(1)),
        ..firndb_txn::TxnOptions::default()
    };
    for isolation in LEVELS {
        let mut writer = world.begin();
        writer.put(&world.tree, b"b", b"1").expect("free");
        let mut list = world.manager.begin(limit(isolation));
        let (mut shown, keys) = (Vec::new(), ["c", "a", "b"]);
        let each = |number: usize, _: Option<(&[u8], bool)>| shown.push(keys[number]);
        let error = list.get_many_for_update(&world.tree, &keys, each).expect_err("b is being written");
        assert_eq!(error.kind, firndb_txn::TxnErrorKind::Timeout);
        assert_eq!(shown, ["a"], "{isolation:?}");
        let write = |key: &str| {
            let mut other = world.manager.begin(limit(isolation));
            other.put(&world.tree, key.as_bytes(), b"0").is_ok()
        };
        assert_eq!(["a", "b", "c"].map(write), [false, false, true], "{isolation:?}");
        writer.rollback().expect("rolled back");
        assert_eq!(read(&mut list, &world, &keys, true), Ok(vec![Some(b"0".to_vec()); 3]));
        list.commit().expect("committed");
        world.manager.check();
    }
}

/// Cause: keys were locked one by one up to the limit. Effect: a list that is too long left most of
/// its keys locked, and failed after all that work.
#[test]
fn a_list_of_more_keys_than_may_be_locked_locks_none() {
    const MOST: u32 = 1 << 18;
    let world = World::new(ManagerOptions::default());
    let keys: Vec<[u8; 4]> = (0..=MOST).map(u32::to_be_bytes).collect();
    let mut txn = world.begin();
    let mut shown = 0;
    let error = txn.get_many_for_update(&world.tree, &keys, |_, _| shown += 1).expect_err("too many");
    assert_eq!((error.kind, shown), (TxnErrorKind::TooMany, 0));
    let mut other = world.begin();
    other.put(&world.tree, &keys[0], b"free").expect("it is not locked");
    other.rollback().expect("undone");
    // Two keys, often.
    let keys: Vec<[u8; 4]> = (0..=MOST).map(|number| (number % 2).to_be_bytes()).collect();
    txn.get_many_for_update(&world.tree, &keys, |_, _| shown += 1).expect("two locks");
    assert_eq!(shown, keys.len());
}
