//! Two-phase commit: a prepared transaction survives closing and crashes, keeps its rows locked,
//! shows others the versions before, and is ended by its id from any thread, in any life of the
//! database.

use crate::support::bed::Bed;
use crate::support::small::{quiet, scan};
use firndb::{
    Database, Direction, ErrorKind, IndexPart, IndexSpec, Isolation, KeyRange, Table, TableSpec, Transaction,
    TransactionOptions,
};
use firndb_testkit::watchdog::within;
use std::time::Duration;

type Found = Vec<(Vec<u8>, Vec<u8>)>;

fn rows(pairs: &[(&str, &str)]) -> Found {
    pairs.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec())).collect()
}

const BEFORE: &[(&str, &str)] = &[("a", "10"), ("b", "20"), ("c", "30")];
const AFTER: &[(&str, &str)] = &[("a", "11"), ("c", "30"), ("d", "40")];

struct World {
    disks: Bed,
    db: Database,
    table: Table,
}

impl World {
    fn new() -> World {
        let disks = Bed::new(1);
        let db = quiet().create_on(disks.devices()).expect("created");
        let unique = IndexSpec::ranges("unique", true, vec![IndexPart::Value(0..2)]);
        let table = db.create_table_with("t", TableSpec::raw().with_index(unique)).expect("created");
        db.transact(|tx| {
            BEFORE.iter().try_for_each(|(key, value)| tx.insert(&table, key.as_bytes(), value.as_bytes()))
        })
        .expect("committed");
        World { disks, db, table }
    }

    /// A transaction that has made `AFTER` of `BEFORE`, a savepoint's undoing included.
    fn changed(&self) -> Transaction {
        let mut tx = self.db.begin();
        tx.put(&self.table, b"a", b"11").expect("free");
        let savepoint = tx.savepoint();
        tx.put(&self.table, b"c", b"33").expect("free");
        tx.insert(&self.table, b"e", b"50").expect("free");
        tx.rollback_to(&savepoint).expect("rolled back");
        tx.delete(&self.table, b"b").expect("free");
        tx.insert(&self.table, b"d", b"40").expect("free");
        tx
    }

    fn crash(self) -> World {
        World::open(self.disks.duplicate())
    }

    fn close_and_open(self) -> World {
        self.db.close().expect("closed");
        World::open(self.disks)
    }

    fn open(disks: Bed) -> World {
        let db = quiet().open_on(disks.devices()).expect("opens");
        let table = db.table("t").expect("there");
        World { disks, db, table }
    }

    fn rows(&self) -> Found {
        let mut tx = self.db.snapshot();
        let forward = scan(&mut tx, &self.table, KeyRange::all(), Direction::Forward);
        let index = self.table.index("unique").expect("there");
        let mut cursor = tx.scan_index(&index, KeyRange::all(), Direction::Forward);
        let mut by_index = Found::new();
        while let Some(row) = cursor.next(&mut tx).expect("readable") {
            by_index.push((row.primary_key.to_vec(), row.row.to_vec()));
        }
        // The values ascend as the keys do.
        assert_eq!(by_index, forward);
        forward
    }

    fn impatient(&self, isolation: Isolation) -> Transaction {
        let lock_deadline = Some(Duration::ZERO);
        self.db.begin_with(TransactionOptions { isolation, lock_deadline, ..Default::default() })
    }

    /// The rows it has changed are locked, their index entries too, and others see what was before.
    fn assert_prepared(&self, gids: &[&[u8]]) {
        assert_eq!(self.db.prepared(), gids);
        assert_eq!(self.rows(), rows(BEFORE));
        for isolation in [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable] {
            let mut tx = self.impatient(isolation);
            for key in ["a", "b", "d"] {
                let error = tx.put(&self.table, key.as_bytes(), b"99").expect_err("it is locked");
                assert_eq!(error.kind(), ErrorKind::Timeout, "{key}: {error}");
                let error = tx.get_for_update(&self.table, key.as_bytes()).expect_err("it is locked");
                assert_eq!(error.kind(), ErrorKind::Timeout, "{key}: {error}");
            }
            // Of unique values: those it gives up, and those it takes.
            for value in [b"20", b"40"] {
                let error = tx.insert(&self.table, b"f", value).expect_err("it is locked");
                assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
            }
            // What it has undone is free.
            tx.put(&self.table, b"c", b"30").expect("free");
            tx.insert(&self.table, b"e", b"50").expect("free");
            tx.rollback().expect("rolled back");
        }
        let mut serializable = self.impatient(Isolation::Serializable);
        assert_eq!(serializable.get(&self.table, b"a").expect_err("locked").kind(), ErrorKind::Timeout);
        assert_eq!(serializable.get(&self.table, b"c"), Ok(Some(b"30".to_vec())));
    }

    fn assert_sound(&self) {
        let report = self.db.check(&mut |_| {}).expect("can be checked");
        assert_eq!(report.damage, Vec::<String>::new());
    }
}

#[test]
fn prepared_transactions_survive_any_number_of_lives() {
    for commit in [true, false] {
        let mut world = World::new();
        world.changed().prepare(b"gid").expect("prepared");
        world.assert_prepared(&[b"gid"]);
        for life in 0..6 {
            world = if life % 2 == 0 { world.crash() } else { world.close_and_open() };
            assert_eq!(world.db.recovery_report().prepared, 1);
            world.assert_prepared(&[b"gid"]);
            if life > 2 {
                world.db.checkpoint().expect("a checkpoint");
                while world.db.step().expect("a step") == firndb::Progress::Worked {}
                world.assert_prepared(&[b"gid"]);
            }
        }
        let expected = if commit {
            world.db.commit_prepared(b"gid").expect("committed");
            AFTER
        } else {
            world.db.rollback_prepared(b"gid").expect("rolled back");
            BEFORE
        };
        assert_eq!(world.rows(), rows(expected));
        assert_eq!(world.db.prepared(), Vec::<Vec<u8>>::new());
        world.impatient(Isolation::Snapshot).put(&world.table, b"a", b"77").expect("free again");
        world.assert_sound();
        world.db.checkpoint().expect("a checkpoint");
        let world = world.crash();
        assert_eq!(world.rows(), rows(expected));
        assert_eq!(world.db.recovery_report().prepared, 0);
        world.assert_sound();
    }
}

#[test]
fn a_commit_of_a_prepared_transaction_survives_a_crash_right_after_it() {
    let world = World::new();
    world.changed().prepare(b"gid").expect("prepared");
    let world = world.crash();
    world.db.commit_prepared(b"gid").expect("committed");
    let world = world.crash();
    assert_eq!(world.rows(), rows(AFTER));
    assert_eq!(world.db.prepared(), Vec::<Vec<u8>>::new());
}

/// It once came back prepared: nothing had waited for the log, and a caller that was told of a
/// rollback had no reason to decide again.
#[test]
fn a_rollback_of_a_prepared_transaction_survives_a_crash_right_after_it() {
    let world = World::new();
    world.changed().prepare(b"gid").expect("prepared");
    let world = world.crash();
    world.db.rollback_prepared(b"gid").expect("rolled back");
    let world = world.crash();
    assert_eq!(world.db.prepared(), Vec::<Vec<u8>>::new());
    assert_eq!(world.rows(), rows(BEFORE));
}

#[test]
fn ids_are_checked_and_told() {
    let world = World::new();
    let refused = |tx: Transaction, gid: &[u8]| {
        let error = tx.prepare(gid).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
        assert_eq!(world.rows(), rows(BEFORE), "a transaction that cannot be prepared is rolled back");
    };
    refused(world.changed(), b"");
    refused(world.changed(), &[7; 257]);
    refused(world.db.begin(), b"nothing written");
    world.changed().prepare(&[7; 256]).expect("prepared");
    let mut other = world.db.begin();
    other.insert(&world.table, b"x", b"90").expect("free");
    refused(other, &[7; 256]);
    let mut other = world.db.begin();
    other.insert(&world.table, b"x", b"90").expect("free");
    other.prepare(b"another").expect("prepared");
    world.assert_prepared(&[&[7; 256], b"another"]);
    assert_eq!(world.db.commit_prepared(b"none").expect_err("none").kind(), ErrorKind::BadArgument);
    assert_eq!(world.db.rollback_prepared(b"none").expect_err("none").kind(), ErrorKind::BadArgument);
    let world = world.crash();
    world.assert_prepared(&[&[7; 256], b"another"]);
    world.db.rollback_prepared(b"another").expect("rolled back");
    world.db.commit_prepared(&[7; 256]).expect("committed");
    assert_eq!(world.rows(), rows(AFTER));
}

#[test]
fn waiters_go_on_when_the_prepared_transaction_ends_in_another_thread() {
    within(Duration::from_secs(60), || {
        for commit in [true, false] {
            let world = World::new();
            world.changed().prepare(b"gid").expect("prepared");
            let world = world.crash();
            let waits = world.db.statistics().txn.lock_waits;
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| {
                    let mut tx = world.db.begin();
                    let was = tx.get_for_update(&world.table, b"a").expect("the wait ends");
                    tx.put(&world.table, b"a", b"12").expect("its own");
                    tx.commit().expect("committed");
                    was
                });
                while world.db.statistics().txn.lock_waits == waits {
                    std::thread::yield_now();
                }
                if commit {
                    world.db.commit_prepared(b"gid").expect("committed");
                } else {
                    world.db.rollback_prepared(b"gid").expect("rolled back");
                }
                let was = waiter.join().expect("no panic");
                let expected: &[u8] = if commit { b"11" } else { b"10" };
                assert_eq!(was.as_deref(), Some(expected));
            });
        }
    });
}

#[test]
fn snapshots_from_before_the_end_go_on_seeing_what_was_before() {
    let world = World::new();
    world.changed().prepare(b"gid").expect("prepared");
    let mut snapshot = world.db.snapshot();
    assert_eq!(snapshot.get(&world.table, b"a"), Ok(Some(b"10".to_vec())));
    world.db.commit_prepared(b"gid").expect("committed");
    while world.db.step().expect("a step") == firndb::Progress::Worked {}
    let found = scan(&mut snapshot, &world.table, KeyRange::all(), Direction::Forward);
    assert_eq!(found, rows(BEFORE));
    assert_eq!(world.rows(), rows(AFTER));
}

/// `prepare` once gave them back, and its documentation said "until this transaction ends".
#[test]
fn rows_read_for_update_stay_locked_through_crashes_and_checkpoints() {
    // Enough of them that checkpoints list them in more than one record.
    let others: Vec<Vec<u8>> =
        (0..110u32).map(|number| [&number.to_be_bytes()[..], &[b'k'; 110]].concat()).collect();
    for commit in [true, false] {
        let mut world = World::new();
        let mut tx = world.changed();
        assert_eq!(tx.get_for_update(&world.table, b"c"), Ok(Some(b"30".to_vec())));
        for key in &others {
            assert_eq!(tx.get_for_update(&world.table, key), Ok(None));
        }
        tx.prepare(b"gid").expect("prepared");
        let assert_locked = |world: &World| {
            assert_eq!(world.db.prepared(), [b"gid"]);
            for isolation in [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable] {
                let mut tx = world.impatient(isolation);
                for key in others.iter().map(Vec::as_slice).chain([&b"a"[..], b"c"]) {
                    let error = tx.put(&world.table, key, b"99").expect_err("it is locked");
                    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
                    let error = tx.get_for_update(&world.table, key).expect_err("it is locked");
                    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
                }
            }
            assert_eq!(world.rows(), rows(BEFORE));
        };
        assert_locked(&world);
        for life in 0..4 {
            world = if life % 2 == 0 { world.crash() } else { world.close_and_open() };
            assert_locked(&world);
            world.db.checkpoint().expect("a checkpoint");
            while world.db.step().expect("a step") == firndb::Progress::Worked {}
            assert_locked(&world);
        }
        match commit {
            true => world.db.commit_prepared(b"gid").expect("committed"),
            false => world.db.rollback_prepared(b"gid").expect("rolled back"),
        }
        let world = world.crash();
        assert_eq!(world.rows(), rows(if commit { AFTER } else { BEFORE }));
        let mut tx = world.impatient(Isolation::Snapshot);
        tx.put(&world.table, b"c", b"33").expect("free");
        others.iter().for_each(|key| {
            tx.get_for_update(&world.table, key).expect("free");
        });
        tx.rollback().expect("rolled back");
        world.assert_sound();
    }
}

/// 200 of them once had a list that no group of a small log could hold: the checkpoint failed and
/// poisoned the database, after each opening again.
#[test]
fn as_many_are_prepared_as_checkpoints_can_list_and_the_next_one_is_refused() {
    let mut world = World::new();
    let gid = |number: u32| [&number.to_be_bytes()[..], &[b'g'; 252]].concat();
    let mut prepared = 0u32;
    let refused = loop {
        let mut tx = world.db.begin();
        tx.insert(&world.table, &prepared.to_be_bytes(), &(1000 + prepared as u16).to_be_bytes())
            .expect("free");
        match tx.prepare(&gid(prepared)) {
            Ok(()) => prepared += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), ErrorKind::Full, "{refused}");
    // By their number, or by the bytes of their ids.
    let sentence = refused.to_string();
    assert!(
        sentence.contains("transactions are prepared") || sentence.contains("in each checkpoint"),
        "{refused}"
    );
    assert!(sentence.contains("or make the log larger"), "{refused}");
    assert!((10..200).contains(&prepared), "{prepared}");
    // Beside as many as may be open.
    let mut open = Vec::new();
    let refused = loop {
        let mut tx = world.db.begin();
        match tx.get_for_update(&world.table, format!("open {}", open.len()).as_bytes()) {
            Ok(_) => open.push(tx),
            Err(error) => break error,
        }
        assert!(open.len() < 10_000);
    };
    assert_eq!(refused.kind(), ErrorKind::Full, "{refused}");
    assert!(refused.to_string().contains("open"), "{refused}");
    for (number, tx) in open.iter_mut().enumerate().take(200) {
        let value = (20_000 + number as u16).to_be_bytes();
        tx.put(&world.table, format!("open {number}").as_bytes(), &value).expect("locked");
    }
    for _ in 0..3 {
        world.db.checkpoint().expect("a checkpoint");
    }
    let disks = world.disks.duplicate();
    drop((open, world));
    world = World::open(disks);
    assert_eq!(world.db.prepared().len() as u32, prepared);
    world.db.finish_recovery().expect("recovered");
    world.db.checkpoint().expect("a checkpoint");
    world = world.close_and_open();
    for number in 0..prepared {
        match number % 2 {
            0 => world.db.commit_prepared(&gid(number)).expect("committed"),
            _ => world.db.rollback_prepared(&gid(number)).expect("rolled back"),
        }
    }
    let mut tx = world.db.snapshot();
    for number in 0..prepared {
        let found = tx.get(&world.table, &number.to_be_bytes()).expect("read");
        assert_eq!(found.is_some(), number % 2 == 0);
    }
    drop(tx);
    world.assert_sound();
}
