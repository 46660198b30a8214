//! Transactions that stay open long: they do not pin the log, they keep what they need, and they
//! can be ended well in any way.

use crate::support::bed::Bed;
use crate::support::small::{quiet, scan};
use firndb::{Database, Direction, KeyRange, Options, Table};
use firndb_testkit::watchdog::within;
use std::time::Duration;

/// Half a megabyte of log.
fn tiny_log() -> Options {
    quiet()
        .log(|log| log.bytes(512 << 10))
        .tuning(|tuning| tuning.checkpoint_log_bytes(64 << 10))
        .buffer_bytes(256 << 10)
}

fn rows_of_t(db: &Database) -> Vec<(Vec<u8>, Vec<u8>)> {
    let table = db.table("t").expect("there");
    scan(&mut db.snapshot(), &table, KeyRange::all(), Direction::Forward)
}

/// Writes several times the log's size, a transaction a row, with whatever steps that needs.
fn write_log_over(db: &Database, table: &Table, times: u64) {
    let begin = db.statistics().log_end.0;
    let mut number = 0u32;
    while db.statistics().log_end.0 - begin < times * (512 << 10) {
        number += 1;
        let key = (number % 100).to_be_bytes();
        db.transact(|tx| tx.put(table, &key, &number.to_be_bytes().repeat(20)).map(|_| ()))
            .unwrap_or_else(|error| panic!("write {number}: {error}"));
        db.step().expect("a step");
    }
}

/// A transaction that writes while the log wraps around several times, ended by `end`, which
/// returns the database that is left and whether the transaction should be in it.
fn long_transaction(
    version_bytes: usize,
    end: impl FnOnce(Database, Bed, firndb::Transaction) -> (Database, bool),
) {
    let disks = Bed::new(1);
    let db = tiny_log()
        .tuning(|tuning| tuning.version_bytes(version_bytes))
        .create_on(disks.devices())
        .expect("created");
    let table = db.create_table("t").expect("created");
    let noise = db.create_table("noise").expect("created");
    db.transact(|tx| (0..50u32).try_for_each(|i| tx.insert(&table, &i.to_be_bytes(), &[b'a'; 30])))
        .expect("committed");
    let before = rows_of_t(&db);
    let mut snapshot = db.snapshot();
    assert_eq!(scan(&mut snapshot, &table, KeyRange::all(), Direction::Forward), before);

    let mut tx = db.begin();
    for round in 0..4u8 {
        for i in (0..50u32).filter(|i| i % 4 == u32::from(round)) {
            match i % 3 {
                0 => tx.put(&table, &i.to_be_bytes(), &[b'b' + round; 50]).map(|_| ()),
                1 => tx.delete(&table, &i.to_be_bytes()).map(|_| ()),
                _ => tx.insert(&table, &(1000 + i).to_be_bytes(), &[b'c'; 10]),
            }
            .expect("written");
        }
        write_log_over(&db, &noise, 2);
    }
    let own = scan(&mut tx, &table, KeyRange::all(), Direction::Forward);
    assert_ne!(own, before);
    assert_eq!(rows_of_t(&db), before, "others see what was before");
    assert_eq!(scan(&mut snapshot, &table, KeyRange::all(), Direction::Backward).len(), before.len());
    snapshot.commit().expect("committed");
    let (db, committed) = end(db, disks, tx);
    assert_eq!(rows_of_t(&db), if committed { own } else { before });
    let report = db.check(&mut |_| {}).expect("can be checked");
    assert_eq!(report.damage, Vec::<String>::new());
    db.close().expect("closed");
}

#[test]
fn it_does_not_pin_the_log_and_commits() {
    within(Duration::from_secs(120), || {
        for version_bytes in [0, 16 << 20] {
            long_transaction(version_bytes, |db, disks, tx| {
                tx.commit().expect("committed");
                let crashed = disks.duplicate();
                drop(db);
                (tiny_log().open_on(crashed.devices()).expect("opens"), true)
            });
        }
    });
}

#[test]
fn it_does_not_pin_the_log_and_rolls_back() {
    within(Duration::from_secs(120), || {
        for version_bytes in [0, 16 << 20] {
            long_transaction(version_bytes, |db, _, tx| {
                tx.rollback().expect("rolled back");
                (db, false)
            });
        }
    });
}

#[test]
fn a_crash_rolls_it_back() {
    within(Duration::from_secs(120), || {
        for version_bytes in [0, 16 << 20] {
            long_transaction(version_bytes, |db, disks, tx| {
                let crashed = disks.duplicate();
                drop((tx, db));
                let db = tiny_log().open_on(crashed.devices()).expect("opens");
                assert_eq!(db.recovery_report().losers, 1);
                (db, false)
            });
        }
    });
}

#[test]
fn it_is_prepared_and_committed_in_a_later_life() {
    within(Duration::from_secs(120), || {
        for version_bytes in [0, 16 << 20] {
            long_transaction(version_bytes, |db, disks, tx| {
                tx.prepare(b"long").expect("prepared");
                let crashed = disks.duplicate();
                drop(db);
                let db = tiny_log().open_on(crashed.devices()).expect("opens");
                let noise = db.table("noise").expect("there");
                write_log_over(&db, &noise, 2);
                db.commit_prepared(b"long").expect("committed");
                (db, true)
            });
        }
    });
}

/// Rows that change all the time under an old snapshot: their old versions go to undo pages and
/// come back.
#[test]
fn an_old_snapshot_sees_through_many_versions() {
    within(Duration::from_secs(120), || {
        let db = tiny_log()
            .tuning(|tuning| tuning.version_bytes(4096))
            .create_on(Bed::new(1).devices())
            .expect("created");
        let table = db.create_table("t").expect("created");
        let mut snapshots = Vec::new();
        for round in 0..300u32 {
            if round % 60 == 0 {
                let mut tx = db.snapshot();
                let seen = scan(&mut tx, &table, KeyRange::all(), Direction::Forward);
                snapshots.push((tx, seen));
            }
            for key in 0..5u8 {
                db.transact(|tx| match (round + u32::from(key)) % 7 {
                    0 => tx.delete(&table, &[key]).map(|_| ()),
                    len => tx.put(&table, &[key], &round.to_be_bytes().repeat(len as usize)).map(|_| ()),
                })
                .expect("committed");
            }
            db.step().expect("a step");
        }
        assert!(db.statistics().txn.spilled > 0, "the budget was passed");
        for (tx, seen) in &mut snapshots {
            assert_eq!(&scan(tx, &table, KeyRange::all(), Direction::Forward), seen);
        }
        snapshots.clear();
        while db.step().expect("a step") == firndb::Progress::Worked {}
        let txn = db.statistics().txn;
        assert_eq!((txn.version_bytes, txn.kept), (0, 0), "no snapshot needs them any more");
        let report = db.check(&mut |_| {}).expect("can be checked");
        assert_eq!(report.damage, Vec::<String>::new());
    });
}

/// What is kept for a snapshot moves to the undo tree as a whole. It once left its buffers behind,
/// and a state for each commit, which nothing counted: 833 bytes a commit, for as long as the
/// snapshot was open.
#[test]
fn the_memory_that_an_old_snapshot_costs_does_not_grow_with_the_commits() {
    within(Duration::from_secs(300), || {
        const BUDGET: u64 = 128 << 10;
        let options =
            quiet().log(|log| log.bytes(4 << 20)).tuning(|tuning| tuning.version_bytes(BUDGET as usize));
        let db = options.create_on(Bed::new(1).devices()).expect("created");
        let table = db.create_table("t").expect("created");
        db.transact(|tx| (0..100u32).try_for_each(|i| tx.insert(&table, &i.to_be_bytes(), &[b'a'; 60])))
            .expect("committed");
        let steps = || while db.step().expect("a step") == firndb::Progress::Worked {};
        steps();
        let empty = db.check(&mut |_| {}).expect("can be checked").entries;
        let mut snapshot = db.snapshot();
        let seen = scan(&mut snapshot, &table, KeyRange::all(), Direction::Forward);
        let mut younger = None;
        let mut most = [(0, 0); 4];
        for number in 0..12_000u32 {
            let key = (number % 100).to_be_bytes();
            db.transact(|tx| tx.put(&table, &key, &number.to_be_bytes().repeat(15))).expect("committed");
            if number % 64 == 0 {
                db.step().expect("a step");
            }
            if number == 6_000 {
                let mut tx = db.snapshot();
                let seen = scan(&mut tx, &table, KeyRange::all(), Direction::Forward);
                younger = Some((tx, seen));
            }
            let txn = db.statistics().txn;
            let most = &mut most[number as usize / 3_000];
            *most = (txn.version_bytes.max(most.0), txn.kept.max(most.1));
        }
        for (bytes, kept) in most {
            assert!(bytes <= BUDGET + 4096, "{bytes} bytes");
            assert!((10..BUDGET / 300).contains(&kept), "{kept} transactions are kept");
        }
        assert!(most[3].1 <= most[0].1 + 16, "it does not grow: {most:?}");
        assert_eq!(scan(&mut snapshot, &table, KeyRange::all(), Direction::Forward), seen);
        let spilled = db.check(&mut |_| {}).expect("can be checked").entries - empty;
        assert!(spilled > 11_000, "{spilled} before-images are in the undo tree");
        drop(snapshot);
        steps();
        let (mut tx, seen) = younger.expect("it was taken");
        let left = db.check(&mut |_| {}).expect("can be checked").entries - empty;
        assert!((5_000..6_500).contains(&left), "{left} are left for the younger snapshot");
        assert_eq!(scan(&mut tx, &table, KeyRange::all(), Direction::Forward), seen);
        drop(tx);
        steps();
        let txn = db.statistics().txn;
        assert_eq!((txn.version_bytes, txn.kept), (0, 0));
        let report = db.check(&mut |_| {}).expect("can be checked");
        assert_eq!((report.damage, report.entries), (Vec::<String>::new(), empty), "the undo tree is empty");
    });
}

/// The same with files, threads and the memory of the process. Run it alone, in release:
/// `cargo test --release -p firndb --test all isolation::long_transactions::resident -- --ignored`.
#[test]
#[ignore = "writes two million transactions: minutes"]
fn resident_memory_is_the_same_after_ten_times_the_commits() {
    let directory = tempfile::tempdir().expect("a directory");
    let db = Options::new().buffer_bytes(16 << 20).open(directory.path().join("db")).expect("created");
    let table = db.create_table("t").expect("created");
    db.transact(|tx| (0..1_000u32).try_for_each(|i| tx.insert(&table, &i.to_be_bytes(), &[b'a'; 100])))
        .expect("committed");
    let mut snapshot = db.snapshot();
    let seen = scan(&mut snapshot, &table, KeyRange::all(), Direction::Forward);
    let mut sizes = Vec::new();
    for number in 0..2_000_000u32 {
        let mut tx = db.begin();
        tx.put(&table, &(number % 1_000).to_be_bytes(), &[number as u8; 100]).expect("written");
        let commit = tx.commit_async().expect("ordered");
        if number + 1 == 200_000 || number + 1 == 2_000_000 {
            commit.wait().expect("durable");
            let (resident, txn) = (resident_bytes(), db.statistics().txn);
            eprintln!("{} commits: {} KiB resident, {txn:?}", number + 1, resident >> 10);
            sizes.push(resident);
        }
    }
    assert_eq!(scan(&mut snapshot, &table, KeyRange::all(), Direction::Forward), seen);
    assert!(sizes[1] <= sizes[0] + (16 << 20), "{sizes:?}");
}

/// Bytes of this process in memory, as the system says.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it is listed");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}
