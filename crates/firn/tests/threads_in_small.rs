//! A whole database in memory, few threads, few transactions: small enough for Miri, which finds races, weak orders and
//! undefined behaviour that the processor at hand does not show. How to run it: `docs/testing.md`.

use firn::{Database, Devices, Isolation, Options, TransactionOptions};
use firn_base::sync::Arc;
use firn_device::MemoryDevice;

const THREADS: u64 = 3;
const ROWS: u64 = 6;

fn devices() -> Devices {
    let device = |name: &str| Arc::new(MemoryDevice::new(name)) as Arc<dyn firn_device::Device>;
    Devices {
        superblock: device("superblock"),
        logs: vec![device("log.0"), device("log.1")],
        store: device("store"),
        cache: None,
    }
}

fn options() -> Options {
    Options::new().page_size(1024).buffer_bytes(256 << 10).log_bytes(512 << 10)
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
