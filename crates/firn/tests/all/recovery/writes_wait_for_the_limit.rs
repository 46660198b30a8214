//! `recovery_time_limit`: writes wait for a checkpoint while a restart would take longer.

use super::emulated::{Bed, run};
use firndb::{Options, RestartEstimate};
use firndb_base::clock;
use firndb_base::sync::thread;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const CLIENTS: u64 = 8;
const ROWS: u64 = 4000;
const GOAL: Duration = Duration::from_millis(40);
/// The default: half as much again.
const LIMIT: Duration = Duration::from_millis(60);

/// The longest restart in half a second of writes, as Firn estimates it, and the last estimate.
fn longest(options: Options) -> (Duration, RestartEstimate) {
    let found = Arc::new(std::sync::Mutex::new(None));
    let to = found.clone();
    run(1, move || {
        let bed = Bed::new(["network-volume", "microsd"]);
        let db = Arc::new(options.recovery_time(GOAL).create_on(bed.devices(true)).expect("created"));
        let table = db.create_table("t").expect("created");
        let stop = Arc::new(AtomicBool::new(false));
        let client = |client: u64| {
            let (db, table, stop) = (db.clone(), table.clone(), stop.clone());
            let body = move || {
                for round in (0..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                    let rows = (0..20).map(|row| (round * 20 + row) % (ROWS / CLIENTS) * CLIENTS + client);
                    let put = |tx: &mut firndb::Transaction| {
                        rows.clone().try_for_each(|row| {
                            tx.put(&table, &row.to_be_bytes(), &[round as u8; 300]).map(drop)
                        })
                    };
                    db.transact(put).expect("committed");
                }
            };
            thread::spawn("client", body).expect("a thread")
        };
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        // The first checkpoint times what log devices read: by then the rate is known.
        clock::sleep(Duration::from_millis(300));
        let mut longest = Duration::ZERO;
        for _ in 0..500 {
            longest = longest.max(db.statistics().restart.time);
            clock::sleep(Duration::from_millis(1));
        }
        stop.store(true, Ordering::Relaxed);
        clients.into_iter().for_each(|client| client.join().expect("no panic"));
        *to.lock().unwrap() = Some((longest, db.statistics().restart));
    });
    let found = found.lock().unwrap().take();
    found.expect("it ran to its end")
}

#[test]
fn writes_wait_while_a_restart_would_take_longer_than_the_limit() {
    let (without, of_without) = longest(Options::new().recovery_time_limit(Duration::MAX));
    assert!(without > 2 * LIMIT, "{without:?}: else the limit changes nothing");
    assert_eq!((of_without.writes_wait_from, of_without.writes_waited), (None, Duration::ZERO));
    let (with, of_with) = longest(Options::new());
    // Transactions that had begun write on.
    assert!(with < LIMIT + LIMIT / 2, "{with:?}");
    assert_eq!(of_with.writes_wait_from, Some(LIMIT));
    assert!(of_with.writes_waited > Duration::ZERO);
}

/// Cause: an open transaction retains the log. Effect, if writes waited for checkpoints that free
/// none: each would wait for its full patience.
#[test]
fn writes_do_not_wait_for_checkpoints_that_free_nothing() {
    run(2, || {
        let bed = Bed::new(["nvme", "nvme"]);
        let options = Options::new().recovery_time(GOAL);
        let db = options.create_on(bed.devices(true)).expect("created");
        let table = db.create_table("t").expect("created");
        let mut open = db.begin();
        open.put(&table, b"open", &[1; 300]).expect("put");
        let begun = clock::now();
        for round in 0..400_u64 {
            let put = |tx: &mut firndb::Transaction| {
                (0..20_u64).try_for_each(|row| {
                    tx.put(&table, &(round * 20 + row).to_be_bytes(), &[round as u8; 3000]).map(drop)
                })
            };
            db.transact(put).expect("committed");
        }
        let waited = db.statistics().restart.writes_waited;
        assert!(waited < begun.elapsed() / 2, "{waited:?} of {:?}", begun.elapsed());
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        open.commit().expect("committed");
    });
}

#[test]
fn a_limit_below_the_goal_is_refused() {
    let bed = Bed::new(["nvme", "nvme"]);
    let options = Options::new().recovery_time(2 * LIMIT).recovery_time_limit(LIMIT);
    let error = options.create_on(bed.devices(false)).expect_err("refused");
    assert!(error.to_string().contains("recovery_time_limit is 60ms"), "{error}");
}
