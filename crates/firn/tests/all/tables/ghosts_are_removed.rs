//! Every deleted row is taken out of its page in bounded time, whatever happened in between, and
//! its pages come back.
//!
//! The steps are driven until none has anything to do: that is the bounded time.

use crate::support::bed::Bed;
use crate::support::small::{busy, quiet, scan};
use firndb::device::Device;
use firndb::{
    Database, Direction, IndexPart, IndexSpec, KeyRange, Options, Progress, Table, TableSpec, Transaction,
};
use firndb_testkit::bytes::{contents, flip};
use firndb_testkit::watchdog::within;
use firndb_txn::TxnManager;
use std::time::{Duration, Instant};

const GHOST_BYTES_MAX: usize = TxnManager::GHOST_BYTES_MAX;

const LIMIT: Duration = Duration::from_secs(300);

fn options() -> Options {
    quiet().log(|log| log.bytes(4 << 20)).buffer_bytes(4 << 20)
}

/// All background work until nothing is left to do.
fn settle(db: &Database) {
    for _ in 0..1_000_000 {
        if db.step().expect("a step") == Progress::Idle {
            return;
        }
    }
    panic!("background work does not come to an end");
}

fn pages(db: &Database) -> u64 {
    db.statistics().store.pages_allocated
}

fn entries(db: &Database) -> u64 {
    let report = db.check(&mut |_| {}).expect("can be checked");
    assert_eq!(report.damage, Vec::<String>::new());
    report.entries
}

/// A table with an index over the first byte of its values.
fn indexed_table(db: &Database) -> Table {
    let by_first = IndexSpec::ranges("by_first", false, vec![IndexPart::Value(0..1)]);
    db.create_table_with("t", TableSpec::raw().with_index(by_first)).expect("created")
}

/// Scattered over the index, ascending in the table.
fn value(number: u32) -> [u8; 40] {
    [(number.wrapping_mul(2_654_435_761) >> 24) as u8; 40]
}

fn load(db: &Database, table: &Table, rows: std::ops::Range<u32>) {
    for start in rows.clone().step_by(500) {
        db.transact(|tx| {
            (start..(start + 500).min(rows.end))
                .try_for_each(|i| tx.insert(table, &i.to_be_bytes(), &value(i)))
        })
        .expect("committed");
        db.step().expect("a step");
    }
}

fn delete(db: &Database, table: &Table, rows: std::ops::Range<u32>, a_transaction: u32) {
    for start in rows.clone().step_by(a_transaction as usize) {
        db.transact(|tx| {
            (start..(start + a_transaction).min(rows.end)).try_for_each(|i| {
                assert!(tx.delete(table, &i.to_be_bytes())?);
                Ok::<_, firndb::Error>(())
            })
        })
        .expect("committed");
    }
}

/// Pages and entries of a database before rows came and after they went again.
struct Emptied {
    empty: (u64, u64),
    full: u64,
}

impl Emptied {
    fn load(db: &Database, rows: u32) -> (Emptied, Table) {
        let table = indexed_table(db);
        settle(db);
        let empty = (pages(db), entries(db));
        load(db, &table, 0..rows);
        (Emptied { empty, full: pages(db) }, table)
    }

    /// At least 95 % of what the rows took is free, and nothing of them is left.
    fn assert(&self, db: &Database) {
        let (pages, entries) = (pages(db), entries(db));
        assert_eq!(entries, self.empty.1, "entries of deleted rows are left");
        let taken = self.full - self.empty.0;
        let left = pages.saturating_sub(self.empty.0);
        assert!(left * 20 <= taken, "{left} of {taken} pages are left");
        let table = db.table("t").expect("there");
        assert_eq!(scan(&mut db.snapshot(), &table, KeyRange::all(), Direction::Forward), []);
    }
}

/// A database, its devices, and a table of `rows` rows.
fn loaded(options: &Options, rows: u32) -> (Bed, Database, Emptied, Table) {
    let disks = Bed::new(1);
    let db = options.clone().create_on(disks.devices()).expect("created");
    let (emptied, table) = Emptied::load(&db, rows);
    (disks, db, emptied, table)
}

/// A snapshot that keeps what is deleted from now on.
fn snapshot_with_row_0(db: &Database, table: &Table) -> Transaction {
    let mut snapshot = db.snapshot();
    assert!(snapshot.get(table, &0u32.to_be_bytes()).expect("read").is_some());
    snapshot
}

#[test]
fn beyond_what_one_transaction_remembers_row_by_row() {
    within(LIMIT, || {
        let (_, db, emptied, table) = loaded(&options(), 12_000);
        delete(&db, &table, 0..12_000, 12_000);
        settle(&db);
        emptied.assert(&db);
    });
}

#[test]
fn after_the_database_was_closed_at_once() {
    within(LIMIT, || {
        let (disks, db, emptied, table) = loaded(&options(), 6_000);
        delete(&db, &table, 0..6_000, 100);
        db.close().expect("closed");
        let db = options().open_on(disks.devices()).expect("opens");
        settle(&db);
        emptied.assert(&db);
    });
}

/// Some of the deletions are older than the last checkpoint, some are only in the log, one is
/// prepared.
#[test]
fn after_a_crash() {
    within(LIMIT, || {
        let (disks, db, emptied, table) = loaded(&options(), 6_000);
        let snapshot = snapshot_with_row_0(&db, &table);
        delete(&db, &table, 0..3_000, 100);
        let mut tx = db.begin();
        for i in 3_000..3_500u32 {
            assert!(tx.delete(&table, &i.to_be_bytes()).expect("deleted"));
        }
        tx.prepare(b"half").expect("prepared");
        settle(&db);
        // Twice: what was dirty at the first is written by the second, and redo starts after the
        // deletions.
        db.checkpoint().expect("a checkpoint");
        db.checkpoint().expect("a checkpoint");
        delete(&db, &table, 3_500..6_000, 100);
        let crashed = disks.duplicate();
        drop((snapshot, db));
        let db = options().open_on(crashed.devices()).expect("opens");
        settle(&db);
        db.commit_prepared(b"half").expect("committed");
        settle(&db);
        emptied.assert(&db);
    });
}

/// A table that grows at one end and is emptied at the other: no insert ever comes back to the old
/// leaves.
#[test]
fn of_a_queue_across_crashes() {
    within(LIMIT, || {
        let mut disks = Bed::new(1);
        let db = options().create_on(disks.devices()).expect("created");
        let table = db.create_table("queue").expect("created");
        load(&db, &table, 0..1_000);
        settle(&db);
        let (full, held) = (pages(&db), entries(&db));
        let mut db = Some(db);
        for round in 1..8u32 {
            let database = db.take().expect("open");
            let table = database.table("queue").expect("there");
            load(&database, &table, round * 1_000..(round + 1) * 1_000);
            delete(&database, &table, (round - 1) * 1_000..round * 1_000, 10);
            let crashed = disks.duplicate();
            drop((table, database));
            disks = crashed;
            let database = options().open_on(disks.devices()).expect("opens");
            settle(&database);
            assert_eq!(entries(&database), held, "round {round}");
            assert!(pages(&database) <= full + full / 10 + 8, "{} pages in round {round}", pages(&database));
            db = Some(database);
        }
    });
}

#[test]
fn when_the_lock_on_its_key_has_fallen() {
    within(LIMIT, || {
        let (_, db, emptied, table) = loaded(&options(), 500);
        delete(&db, &table, 0..500, 500);
        let mut tx = db.begin();
        for i in (0..500u32).step_by(50) {
            assert_eq!(tx.get_for_update(&table, &i.to_be_bytes()).expect("locked"), None);
        }
        settle(&db);
        assert_eq!(entries(&db), emptied.empty.1 + 10, "locked ghosts stay, all others go");
        tx.rollback().expect("rolled back");
        settle(&db);
        emptied.assert(&db);
    });
}

#[test]
fn when_a_rolled_back_insert_has_brought_it_back() {
    within(LIMIT, || {
        let (_, db, emptied, table) = loaded(&options(), 100);
        let snapshot = snapshot_with_row_0(&db, &table);
        delete(&db, &table, 0..100, 100);
        let mut tx = db.begin();
        (0..100u32).for_each(|i| tx.insert(&table, &i.to_be_bytes(), &value(i)).expect("inserted"));
        drop(snapshot);
        settle(&db);
        tx.rollback().expect("rolled back");
        settle(&db);
        emptied.assert(&db);
    });
}

/// Cause: a transaction found by recovery has no list of its keys any more, and a sweep that passes
/// its rows, which are no ghosts then, forgot their ranges. Effect: ghosts that its rollback put
/// back were in no range after another crash, and stayed for ever.
#[test]
fn when_one_that_recovery_found_has_brought_it_back() {
    within(LIMIT, || {
        let options = options().tuning(|tuning| tuning.version_bytes(0));
        let (disks, db, emptied, table) = loaded(&options, 100);
        let snapshot = snapshot_with_row_0(&db, &table);
        delete(&db, &table, 0..100, 100);
        let mut tx = db.begin();
        (0..100u32).for_each(|i| tx.insert(&table, &i.to_be_bytes(), &value(i)).expect("inserted"));
        tx.prepare(b"over ghosts").expect("prepared");
        drop(snapshot);
        settle(&db);
        // Redo starts after what it wrote.
        let checkpoints = |db: &Database| (0..2).for_each(|_| db.checkpoint().expect("a checkpoint"));
        checkpoints(&db);
        let crashed = disks.duplicate();
        drop((table, db));

        let db = options.clone().open_on(crashed.devices()).expect("opens");
        settle(&db);
        checkpoints(&db);
        let redo_start = db.statistics().checkpoint.1;
        db.rollback_prepared(b"over ghosts").expect("rolled back");
        // Has the log of the rollback flushed.
        let other = db.table("t").expect("there");
        db.transact(|tx| tx.insert(&other, b"last", &value(7))).expect("committed");
        assert_eq!(db.statistics().checkpoint.1, redo_start, "no checkpoint knows of the rollback");
        let crashed = crashed.duplicate();
        drop((other, db));

        let db = options.clone().open_on(crashed.devices()).expect("opens");
        assert!(db.prepared().is_empty() && db.recovery_report().losers == 0, "{:?}", db.recovery_report());
        settle(&db);
        assert_eq!(entries(&db), emptied.empty.1 + 2, "the last row and its entry in the index are left");
    });
}

/// Rows are deleted all over a table while a snapshot is open, much more than is remembered one by
/// one.
#[test]
fn with_a_bounded_memory_of_where_they_are() {
    within(LIMIT, || {
        let (_, db, emptied, table) = loaded(&options(), 20_000);
        let snapshot = snapshot_with_row_0(&db, &table);
        for i in 0..20_000u32 {
            let key = (i.wrapping_mul(7_919) % 20_000).to_be_bytes();
            assert!(db.transact(|tx| tx.delete(&table, &key)).expect("committed"));
            if i % 64 == 0 {
                db.step().expect("a step");
            }
            let bytes = db.statistics().txn.ghost_bytes;
            assert!(bytes <= GHOST_BYTES_MAX as u64 + (64 << 10), "{bytes} bytes after {i} deletions");
        }
        drop(snapshot);
        settle(&db);
        emptied.assert(&db);
    });
}

#[test]
fn by_the_threads_of_a_database() {
    within(LIMIT, || {
        let db = busy().log(|log| log.bytes(4 << 20)).create_on(Bed::new(2).devices()).expect("created");
        let table = indexed_table(&db);
        let empty = pages(&db);
        for start in (0..8_000u32).step_by(500) {
            db.transact(|tx| {
                (start..start + 500).try_for_each(|i| tx.insert(&table, &i.to_be_bytes(), &value(i)))
            })
            .expect("committed");
        }
        let full = pages(&db);
        delete(&db, &table, 0..8_000, 8_000);
        let began = Instant::now();
        let removed = || db.statistics().txn.ghosts_removed;
        // Of the table and of its index.
        while (pages(&db) - empty) * 20 > full - empty || removed() < 16_000 {
            let left = pages(&db) - empty;
            assert!(began.elapsed() < LIMIT / 2, "{left} of {} pages are left", full - empty);
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(removed(), 16_000);
        db.close().expect("closed");
    });
}

/// The scan itself changes nothing; but what it met is done next, whatever else there is to do.
#[test]
fn first_where_a_scan_met_many() {
    within(LIMIT, || {
        let db = options().create_on(Bed::new(1).devices()).expect("created");
        let (large, small) =
            (db.create_table("large").expect("created"), db.create_table("small").expect("created"));
        load(&db, &large, 0..8_000);
        load(&db, &small, 0..60);
        settle(&db);
        let removed = || db.statistics().txn.ghosts_removed;
        delete(&db, &large, 0..8_000, 8_000);
        delete(&db, &small, 0..60, 60);
        // One step, which does not come far in the large table.
        db.step().expect("a step");
        let before = removed();
        assert!(before < 2_000, "{before} are gone after one step");
        for _ in 0..2 {
            // Once to meet them, once to see that they are gone.
            let mut tx = db.snapshot();
            assert_eq!(scan(&mut tx, &small, KeyRange::all(), Direction::Forward), []);
            drop(tx);
            // Every other step is one for a scan's.
            for _ in 0..10 {
                db.step().expect("a step");
            }
        }
        let left = small.estimate(&KeyRange::all()).expect("an estimate");
        assert!(left < 16, "{left} of 60 are left, fewer than are worth it");
        assert!(removed() - before < 6_000, "the large table is not done yet");
    });
}

/// One leaf is damaged: its ghosts stay, reported, and all others go.
#[test]
fn but_those_on_a_damaged_page() {
    within(LIMIT, || {
        let disks = Bed::new(1);
        let db = options().create_on(disks.devices()).expect("created");
        let table = db.create_table("t").expect("created");
        load(&db, &table, 0..4_000);
        let marker = *b"here the medium will lie about a bit";
        db.transact(|tx| tx.put(&table, &2_001u32.to_be_bytes(), &marker)).expect("committed");
        settle(&db);
        let full = entries(&db);
        for i in (0..4_000u32).step_by(2) {
            assert!(db.transact(|tx| tx.delete(&table, &i.to_be_bytes())).expect("committed"));
        }
        db.close().expect("closed");
        assert!(damage(&*disks.store, &marker) > 0, "the marker is in the store");

        for opening in 0..2 {
            let db = options().open_on(disks.devices()).expect("opens");
            settle(&db);
            let (works, count) = db.work_set_aside();
            assert_eq!(count, 1, "{works:?}");
            assert!(works[0].work.starts_with("removing deleted rows from"), "{works:?}");
            let removed = db.statistics().txn.ghosts_removed;
            let expected = if opening == 0 { 1_950..2_000 } else { 0..1 };
            assert!(expected.contains(&removed), "{removed} removed in opening {opening}");
            let table = db.table("t").expect("there");
            db.transact(|tx| tx.put(&table, &1u32.to_be_bytes(), b"usable")).expect("all else goes on");
            let report = db.check(&mut |_| {}).expect("can be checked");
            assert!(!report.is_clean() && report.entries < full - 1_950);
            // The next opening tries again, and says so again.
            db.close().expect("closed");
        }
    });
}

/// Flips a bit of every copy of `marker`. Returns how many there were.
fn damage(store: &dyn Device, marker: &[u8]) -> usize {
    let bytes = contents(store);
    let places = (0..bytes.len()).filter(|&at| bytes[at..].starts_with(marker));
    places.inspect(|&at| flip(store, at as u64, 0)).count()
}
