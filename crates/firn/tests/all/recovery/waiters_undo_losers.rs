//! After a crash a transaction that would wait for a row of a loser rolls that one back itself: it
//! waits for no other loser.
//!
//! In virtual time, on a disk: clients have changed rows all over a table and not committed when
//! the process is killed. Then as many clients each change a row that one of them had changed.

use super::emulated::{Bed, run};
use firndb::Options;
use firndb_base::clock;
use firndb_base::sync::thread;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const ROWS: u64 = 20_000;
const LOSERS: u64 = 16;
const CHANGES: u64 = 40;

/// The `nth` row that a loser changes: on a page of its own, as a rule.
fn row(loser: u64, nth: u64) -> [u8; 8] {
    ((nth * LOSERS + loser) * (ROWS / (LOSERS * CHANGES))).to_be_bytes()
}

/// The times from the opening's end to the commit of each client.
fn commits(seed: u64) -> Vec<Duration> {
    let times = Arc::new([const { AtomicU64::new(0) }; LOSERS as usize]);
    let found = times.clone();
    run(seed, move || {
        let bed = Bed::new(["disk-7200", "disk-7200"]);
        let db = Options::new().create_on(bed.devices(false)).expect("created");
        let table = db.create_table("t").expect("created");
        for from in (0..ROWS).step_by(500) {
            let put = |row: u64| (row.to_be_bytes(), [1; 300]);
            db.transact(|tx| {
                (from..from + 500)
                    .map(put)
                    .try_for_each(|(key, value)| tx.put(&table, &key, &value).map(drop))
            })
            .expect("committed");
        }
        db.checkpoint().expect("a checkpoint");
        let open: Vec<_> = (0..LOSERS)
            .map(|loser| {
                let mut tx = db.begin();
                for nth in 0..CHANGES {
                    tx.put(&table, &row(loser, nth), &[2; 300]).expect("changed");
                }
                tx
            })
            .collect();
        // What they logged is durable with it.
        db.transact(|tx| tx.put(&table, &ROWS.to_be_bytes(), b"last").map(drop)).expect("committed");
        let left = bed.cut();
        drop((open, table, db));
        let db = Arc::new(Options::new().open_on(left.devices(true)).expect("opens"));
        assert_eq!(db.recovery_report().losers, LOSERS);
        let begun = clock::now();
        let clients: Vec<_> = (0..LOSERS)
            .map(|loser| {
                let (db, found) = (db.clone(), found.clone());
                let body = move || {
                    let table = db.table("t").expect("there");
                    db.transact(|tx| tx.put(&table, &row(loser, CHANGES / 2), &[3; 300]).map(drop))
                        .expect("committed");
                    found[loser as usize].store(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
                };
                thread::spawn("client", body).expect("a thread")
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().expect("no panic"));
        assert_eq!(db.recovery_report().losers_left, 0, "each was some client's");
        let table = db.table("t").expect("there");
        for (loser, nth) in (0..LOSERS).flat_map(|loser| (0..CHANGES).map(move |nth| (loser, nth))) {
            let now = db.transact(|tx| tx.get(&table, &row(loser, nth))).expect("read").expect("there");
            assert_eq!(now[..], [if nth == CHANGES / 2 { 3 } else { 1 }; 300], "{loser}, {nth}");
        }
    });
    times.iter().map(|time| Duration::from_nanos(time.load(Ordering::Relaxed))).collect()
}

/// Cause: one thread undid the losers, one after the other, and read their rows one by one. Effect:
/// the first commit waited for half of them, for seconds on a disk.
#[test]
fn a_transaction_waits_for_the_undoing_of_no_loser_but_its_own() {
    for seed in 1..=3 {
        let mut times = commits(seed);
        times.sort();
        println!("seed {seed}: {times:?}");
        let median = times[times.len() / 2];
        assert!(median < Duration::from_secs(1), "seed {seed}: {times:?}");
    }
}
