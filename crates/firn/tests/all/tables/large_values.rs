//! Values of up to many MiB: larger than the log, crashed at random places, on a volume that fills
//! up, and freed when no snapshot can see them any more.

use crate::support::bed::Bed;
use firndb::{Database, Direction, ErrorKind, IndexPart, IndexSpec, KeyRange, Options, Progress, TableSpec};
use firndb_base::rng::Rng;
use std::collections::BTreeMap;

fn options() -> Options {
    Options::new().buffer_bytes(2 << 20).log(|log| log.devices(1).bytes(1 << 20)).background_threads(false)
}

fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut bytes = vec![0; len];
    bytes.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&rng.next_u64().to_le_bytes()[..chunk.len()]));
    bytes
}

fn assert_clean(db: &Database) {
    let report = db.check(&mut |_| {}).expect("a check");
    assert_eq!(report.damage, Vec::<String>::new());
}

/// Background work until nothing is left to do. Freeing waits for a fence: it is idle once in
/// between.
fn settle(db: &Database) {
    let mut idle = 0;
    while idle < 5 {
        match db.step().expect("a step") {
            Progress::Worked => idle = 0,
            Progress::Idle => idle += 1,
        }
    }
}

#[test]
fn a_value_may_be_larger_than_the_log() {
    let disks = Bed::new(1);
    let db = options().create_on(disks.devices()).unwrap();
    let table = db.create_table("t").unwrap();
    let value = bytes(4 << 20, 1);
    let mut tx = db.begin();
    tx.put(&table, b"k", &value).unwrap();
    tx.commit().unwrap();
    let mut old = db.snapshot();
    assert!(old.get(&table, b"k").unwrap().unwrap() == value);

    // A rollback of more than the log holds leaves what was there.
    let mut tx = db.begin();
    tx.put(&table, b"k", &bytes(3 << 20, 2)).unwrap();
    tx.put(&table, b"other", &bytes(1 << 20, 3)).unwrap();
    tx.rollback().unwrap();
    assert!(old.get(&table, b"k").unwrap().unwrap() == value);

    let shorter = bytes(1_500_000, 4);
    let mut tx = db.begin();
    tx.put(&table, b"k", &shorter).unwrap();
    tx.commit().unwrap();
    settle(&db);
    assert!(old.get(&table, b"k").unwrap().unwrap() == value, "an old snapshot keeps what it sees");
    assert!(db.snapshot().get(&table, b"k").unwrap().unwrap() == shorter);
    drop(old);
    settle(&db);
    assert_clean(&db);

    let again = options().open_on(disks.duplicate().devices()).unwrap();
    let table = again.open_table("t").unwrap();
    assert!(again.snapshot().get(&table, b"k").unwrap().unwrap() == shorter);
    assert_clean(&again);
}

#[test]
fn crashes_at_random_moments_keep_exactly_what_was_committed() {
    for seed in 0..4 {
        let mut rng = Rng::new(100 + seed);
        let mut disks = Bed::new(1);
        let mut db = options().create_on(disks.devices()).unwrap();
        let unique = IndexSpec::ranges("unique", true, vec![IndexPart::Value(0..8)]);
        db.create_table_with("t", TableSpec::raw().with_index(unique)).unwrap();
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for round in 0..12 {
            let table = db.open_table("t").unwrap();
            for _ in 0..rng.below(4) {
                let mut tx = db.begin();
                let mut new = model.clone();
                for _ in 0..rng.between(1, 4) {
                    let key = vec![b'k', rng.below(6) as u8];
                    if rng.one_in(3) {
                        assert_eq!(tx.delete(&table, &key).unwrap(), new.remove(&key).is_some());
                    } else {
                        let len = [8, 900, 5000, 60_000][rng.below(4) as usize] + rng.below(900) as usize;
                        let value = bytes(len, rng.next_u64());
                        tx.put(&table, &key, &value).unwrap();
                        new.insert(key, value);
                    }
                }
                match rng.below(4) {
                    0 => tx.rollback().unwrap(),
                    _ => {
                        tx.commit().unwrap();
                        model = new;
                    }
                }
                for _ in 0..rng.below(6) {
                    db.step().unwrap();
                }
            }
            // Something is always under way when the crash comes.
            let mut open = db.begin();
            open.put(&table, b"kx", &bytes(100_000, round)).unwrap();
            if rng.one_in(2) {
                for key in model.keys() {
                    open.delete(&table, key).unwrap();
                }
            }
            if rng.one_in(2) {
                db.checkpoint().unwrap();
            }
            disks = disks.duplicate();
            drop((open, table));
            db = options().open_on(disks.devices()).unwrap();
            let table = db.open_table("t").unwrap();
            let mut tx = db.snapshot();
            let mut cursor = tx.scan(&table, KeyRange::all(), Direction::Forward);
            for (key, value) in &model {
                let (found_key, found) = cursor.next(&mut tx).unwrap().expect("a row");
                assert!(found_key == key && found == value, "seed {seed} round {round}");
            }
            assert!(cursor.next(&mut tx).unwrap().is_none());
            drop(tx);
            assert_clean(&db);
        }
    }
}

#[test]
fn on_a_full_volume_the_statement_fails_whole_and_the_rest_goes_on() {
    // The store grows by 16 MiB at a time.
    let disks = Bed::with_store_of(1, 17 << 20);
    let db = options().log(|log| log.bytes(8 << 20)).create_on(disks.devices()).unwrap();
    let table = db.create_table("t").unwrap();
    let mut tx = db.begin();
    tx.put(&table, b"first", &bytes(300_000, 1)).unwrap();
    tx.commit().unwrap();
    let mut tx = db.begin();
    tx.put(&table, b"second", b"short").unwrap();
    let error = tx.put(&table, b"huge", &bytes(30 << 20, 2)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    assert_eq!(tx.get(&table, b"huge").unwrap(), None);
    tx.put(&table, b"third", &bytes(50_000, 3)).unwrap();
    tx.commit().unwrap();
    settle(&db);
    let mut tx = db.snapshot();
    assert!(tx.get(&table, b"first").unwrap().unwrap() == bytes(300_000, 1));
    assert_eq!(tx.get(&table, b"second").unwrap().unwrap(), b"short");
    assert!(tx.get(&table, b"third").unwrap().unwrap() == bytes(50_000, 3));
    drop(tx);
    assert_clean(&db);
}

#[test]
fn replacing_a_value_over_and_over_does_not_grow_the_store() {
    let disks = Bed::new(1);
    let db = options().create_on(disks.devices()).unwrap();
    let table = db.create_table("t").unwrap();
    let mut pages = 0;
    for round in 0..30 {
        let mut tx = db.begin();
        tx.put(&table, b"k", &bytes(200_000, round)).unwrap();
        tx.commit().unwrap();
        settle(&db);
        let now = db.check(&mut |_| {}).unwrap().pages;
        if round == 2 {
            pages = now;
        }
        assert!(round <= 2 || now <= pages + 20, "round {round}: {now} pages, {pages} before");
    }
}

#[test]
fn what_was_marked_before_a_crash_is_freed_after_it() {
    let disks = Bed::new(1);
    let db = options().create_on(disks.devices()).unwrap();
    let table = db.create_table("t").unwrap();
    let empty = db.check(&mut |_| {}).unwrap().pages;
    let mut tx = db.begin();
    tx.put(&table, b"k", &bytes(800_000, 1)).unwrap();
    tx.commit().unwrap();
    let mut tx = db.begin();
    tx.delete(&table, b"k").unwrap();
    tx.commit().unwrap();
    // Some of it is freed before the crash.
    for _ in 0..3 {
        db.step().unwrap();
    }
    let again = options().open_on(disks.duplicate().devices()).unwrap();
    assert_clean(&again);
    settle(&again);
    let report = again.check(&mut |_| {}).unwrap();
    assert!(report.is_clean() && report.pages < empty + 20, "{} pages of {empty}", report.pages);
}

/// With threads in the background: readers see whole values while others replace, delete and free
/// them.
#[test]
fn readers_see_whole_values_while_others_replace_them() {
    let disks = Bed::new(1);
    let db =
        options().background_threads(true).log(|log| log.bytes(4 << 20)).create_on(disks.devices()).unwrap();
    let table = db.create_table("t").unwrap();
    // A value says in its first bytes how long it is and what it is made of.
    let make = |n: u64| {
        let len = 2000 + (n as usize * 7919) % 40_000;
        let mut value = vec![n as u8; len];
        value[..8].copy_from_slice(&(len as u64).to_le_bytes());
        value
    };
    let check = |value: &[u8]| {
        assert_eq!(value[..8], (value.len() as u64).to_le_bytes());
        assert!(value[8..].iter().all(|byte| *byte == value[8]));
    };
    std::thread::scope(|scope| {
        for writer in 0..2u64 {
            let (db, table) = (&db, &table);
            scope.spawn(move || {
                for n in 0..150 {
                    let key = [(n % 5) as u8];
                    db.transact(|tx| {
                        if n % 7 == 3 {
                            tx.delete(table, &key)?;
                        } else {
                            tx.put(table, &key, &make(n * 2 + writer))?;
                        }
                        Ok::<_, firndb::Error>(())
                    })
                    .unwrap();
                }
            });
        }
        for isolation in
            [firndb::Isolation::Snapshot, firndb::Isolation::ReadCommitted, firndb::Isolation::Serializable]
        {
            let (db, table) = (&db, &table);
            scope.spawn(move || {
                for n in 0..150u8 {
                    let options = firndb::TransactionOptions { isolation, ..Default::default() };
                    db.transact_with(options, |tx| {
                        if let Some(value) = tx.get(table, &[n % 5])? {
                            check(&value);
                        }
                        let mut cursor = tx.scan(table, KeyRange::all(), Direction::Forward);
                        while let Some((_, value)) = cursor.next(tx)? {
                            check(value);
                        }
                        Ok::<_, firndb::Error>(())
                    })
                    .unwrap();
                }
            });
        }
    });
    db.close().unwrap();
    let db = options().open_on(disks.devices()).unwrap();
    settle(&db);
    assert_clean(&db);
}
