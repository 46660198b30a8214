//! A whole database in memory, few threads, few transactions: small enough for Miri, which finds
//! races, weak orders and undefined behaviour that the processor at hand does not show. How to run
//! it: `docs/testing.md`.

use firndb::{Database, Devices, Isolation, Options, TransactionOptions};
use firndb_base::sync::Arc;
use firndb_device::MemoryDevice;

const THREADS: u64 = 3;
const ROWS: u64 = 6;

fn devices() -> Devices {
    let device = |name: &str| Arc::new(MemoryDevice::new(name)) as Arc<dyn firndb_device::Device>;
    Devices {
        superblock: device("superblock"),
        logs: vec![device("log.0"), device("log.1")],
        store: device("store"),
        store_others: Vec::new(),
        cache: None,
    }
}

fn options() -> Options {
    Options::new().page_size(1024).buffer_bytes(256 << 10).log(|log| log.bytes(512 << 10))
}

fn sum(db: &Database) -> u64 {
    let table = db.table("counters").expect("there");
    let mut snapshot = db.snapshot();
    (0..ROWS)
        .filter_map(|row| snapshot.get(&table, &row.to_be_bytes()).expect("readable"))
        .map(|value| u64::from_be_bytes(value[..8].try_into().expect("eight bytes")))
        .sum()
}

#[test]
fn no_increment_is_lost_and_all_are_there_after_opening() {
    let (devices, turns) = (devices(), if cfg!(miri) { 3 } else { 60 });
    let db = options().create_on(devices.clone()).expect("created");
    let table = db.create_table("counters").expect("a table");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (db, table) = (&db, &table);
            scope.spawn(move || {
                for turn in 0..turns {
                    let key = ((thread + turn) % ROWS).to_be_bytes();
                    let isolation = [Isolation::Snapshot, Isolation::Serializable][(turn % 2) as usize];
                    let options = TransactionOptions { isolation, ..TransactionOptions::default() };
                    db.transact_with(options, |tx| {
                        let old = tx.get_for_update(table, &key)?;
                        let count =
                            old.map_or(0, |v| u64::from_be_bytes(v[..8].try_into().expect("eight bytes")));
                        tx.put(table, &key, &(count + 1).to_be_bytes()).map(drop)
                    })
                    .expect("committed");
                }
            });
        }
    });
    assert_eq!(sum(&db), THREADS * turns);
    drop(table);
    db.close().expect("closed");
    let db = options().open_on(devices).expect("opened");
    assert_eq!(sum(&db), THREADS * turns);
}

/// That tables are freed by one thread at a time, which removes no ghosts meanwhile, was once a
/// comment: `step` of two threads did both.
#[test]
fn steps_of_several_threads_do_not_meet() {
    // A log that is never full: steps of a full one may say so.
    let db = options()
        .log(|log| log.bytes(4 << 20))
        .background_threads(false)
        .create_on(devices())
        .expect("created");
    let turns = if cfg!(miri) { 2 } else { 30 };
    let ended = firndb_base::sync::atomic::AtomicBool::new(false);
    let began = std::time::Instant::now();
    let is_over = || ended.load(firndb_base::sync::atomic::Ordering::SeqCst);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                // Bounded, so that a failure of the other thread is one of the test and no hang.
                while !is_over() && began.elapsed() < std::time::Duration::from_secs(120) {
                    db.step().expect("a step");
                }
            });
        }
        for turn in 0..turns {
            let table = db.create_table("short").expect("a table");
            for rows in 0..3u8 {
                db.transact(|tx| {
                    (0..40u8).try_for_each(|row| tx.put(&table, &[rows, row], &[turn; 60]).map(drop))?;
                    (0..40u8).try_for_each(|row| tx.delete(&table, &[rows, row]).map(drop))
                })
                .expect("committed");
            }
            drop(table);
            db.drop_table("short").expect("dropped");
        }
        ended.store(true, firndb_base::sync::atomic::Ordering::SeqCst);
    });
    while db.step().expect("a step") == firndb::Progress::Worked {}
    let report = db.check(&mut |_| {}).expect("can be checked");
    assert_eq!(report.damage, Vec::<String>::new());
}
