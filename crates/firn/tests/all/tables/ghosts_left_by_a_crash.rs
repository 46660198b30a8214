//! What a crash leaves of ranges in which rows were deleted, swept beside other work. In virtual
//! time.

use crate::support::bed::Bed;
use crate::support::small::{busy, quiet};
use firndb::device::Device;
use firndb_base::clock;
use firndb_base::sim::{self, SimOptions};
use firndb_emulate::{Emulated, profiles};
use std::sync::Arc;
use std::time::Duration;

const ROWS: u32 = 64_000;

/// Long keys: few ranges of them fit into a checkpoint record.
fn key(number: u32) -> [u8; 100] {
    let mut key = [0; 100];
    key[..4].copy_from_slice(&number.to_be_bytes());
    key
}

/// Every 300th row is deleted: too many for a checkpoint record to name each, which names all
/// leaves between them instead.
fn crashed() -> Bed {
    let bed = Bed::new(1);
    let db = quiet().log(|log| log.bytes(8 << 20)).create_on(bed.devices()).unwrap();
    let table = db.create_table("t").unwrap();
    for first in (0..ROWS).step_by(500) {
        let mut rows = first..first + 500;
        db.transact(|tx| rows.try_for_each(|n| tx.put(&table, &key(n), &[1; 20]).map(drop))).unwrap();
        db.step().unwrap();
    }
    let mut snapshot = db.snapshot();
    assert!(snapshot.get(&table, &key(0)).unwrap().is_some());
    db.transact(|tx| (0..ROWS).step_by(300).try_for_each(|n| tx.delete(&table, &key(n)).map(drop))).unwrap();
    // What was dirty at the first is written by the second: redo starts behind the deletions.
    db.checkpoint().unwrap();
    db.checkpoint().unwrap();
    let crashed = bed.duplicate();
    drop((snapshot, table, db));
    crashed
}

/// Cause: a sweep rested for as long as a step had taken, 20 ms at most, whatever it found. Effect:
/// it kept a disk busy for half of the time or more, until it had read all of a table (2,350 reads
/// in these 20 s; now 1,040).
#[test]
fn are_swept_beside_other_work_where_there_is_little() {
    let bed = crashed();
    sim::run(SimOptions::measuring(1, 4), move || {
        let mut devices = bed.devices();
        let disk = profiles::get("disk-7200").expect("shipped");
        devices.store = Arc::new(Emulated::new(devices.store, &disk, 1).unwrap()) as Arc<dyn Device>;
        let db = busy().tuning(|tuning| tuning.analyze_in_background(false)).open_on(devices).unwrap();
        let (before, removed) = (db.io_counts(), db.statistics().txn.ghosts_removed);
        clock::sleep(Duration::from_secs(20));
        let reads = db.io_counts().since(&before).store.reads.ops;
        let removed = db.statistics().txn.ghosts_removed - removed;
        assert!(reads < 1600, "{reads} reads in 20 s, {removed} rows removed");
        assert!(removed > 3, "{removed} rows removed");
        db.close().unwrap();
    })
    .unwrap_or_else(|failure| panic!("{failure}"));
}
