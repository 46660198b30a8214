//! A check beside threads that create, load, and drop tables, and drop their indexes: none of their
//! pages is called leaked, since all of them are some tree's at every moment. In simulated threads,
//! so that each seed is another interleaving.

use crate::support::small::{busy, create};
use firndb::{CheckPhase, Database, TableSpec};
use firndb_base::rng::Rng;
use firndb_base::sim::{self, SimOptions};
use firndb_base::sync::atomic::{AtomicU64, Ordering};
use firndb_base::sync::thread;

const SEEDS: u64 = 60;
const CHECKS: usize = 4;
const TABLES: usize = 3;

fn fill(db: &Database, name: &str, rows: u32) {
    let table = db.create_table(name).expect("created");
    for from in (0..rows).step_by(100) {
        let put = db.transact(|tx| {
            (from..rows.min(from + 100)).try_for_each(|row| {
                // Some values are large.
                let len = if row % 100 == 7 { 5000 } else { 60 };
                tx.put(&table, &row.to_be_bytes(), &vec![3; len]).map(drop)
            })
        });
        put.expect("filled");
    }
}

fn load(db: &Database, name: &str) {
    let rows = (0..120u32).map(|row| Ok((row.to_be_bytes().to_vec(), vec![5; 70])));
    db.load_table(name, TableSpec::raw(), rows).expect("loaded");
}

/// How far a check has come: 1 when it begins to read images, 2 with the last of them, then one
/// more with each tree.
fn progressed(phase: &CheckPhase, before: u64) -> u64 {
    match phase {
        CheckPhase::Pages(done, total) => {
            if done < total {
                1
            } else {
                2
            }
        }
        CheckPhase::Tree(_) => before.max(2) + 1,
        _ => before,
    }
}

/// Waits until the check has come so far, and drops tables, or makes others.
fn change(db: &Database, walked: &AtomicU64, mut rng: Rng) {
    let wanted = rng.below(5);
    while walked.load(Ordering::SeqCst) < wanted {
        thread::yield_now();
    }
    for at in 0..TABLES {
        (0..rng.below(30)).for_each(|_| thread::yield_now());
        db.drop_table(&format!("t{at}")).expect("dropped");
        match rng.below(4) {
            0 => fill(db, &format!("t{at}"), 20),
            1 => load(db, &format!("t{at}")),
            _ => {}
        }
    }
}

/// What checks called leaked, beside that.
fn leaked(seed: u64) -> Vec<u64> {
    let options = SimOptions { preempt_one_in: [2, 4, 8, 20][seed as usize % 4], ..SimOptions::seeded(seed) };
    let outcome = sim::run(options, move || {
        let db = create(busy());
        let mut leaked = Vec::new();
        for round in 0..CHECKS as u64 {
            for name in (0..TABLES).map(|at| format!("t{at}")) {
                if db.table_names().contains(&name) {
                    db.drop_table(&name).expect("dropped");
                }
                fill(&db, &name, 600);
            }
            db.checkpoint().expect("a checkpoint");
            let walked = AtomicU64::new(0);
            let report = thread::scope(|scope| {
                let (db, walked) = (&db, &walked);
                let changing = scope.spawn(move || change(db, walked, Rng::new(seed * 100 + round)));
                let mut walks = |phase: CheckPhase| {
                    let before = walked.load(Ordering::SeqCst);
                    walked.store(progressed(&phase, before), Ordering::SeqCst);
                };
                let report = db.check(&mut walks).expect("checked");
                walked.store(u64::MAX, Ordering::SeqCst);
                changing.join().expect("no panic");
                report
            });
            assert_eq!(report.damage, Vec::<String>::new());
            leaked.push(report.leaked_pages);
        }
        let report = db.check(&mut |_| {}).expect("checked");
        assert!(report.is_clean() && report.leaked_pages == 0, "nothing is leaked: {report:?}");
        leaked
    });
    match outcome {
        Ok(outcome) => outcome.value,
        Err(failure) => panic!("{failure}"),
    }
}

/// What is listed at every moment is seen to in `check/listed.rs`; here by whole checks, beside
/// larger trees that take several steps to be freed.
#[test]
fn no_page_is_called_leaked_beside_tables_that_come_and_go() {
    let wrong: Vec<(u64, Vec<u64>)> = (0..SEEDS)
        .map(|seed| (seed, leaked(seed)))
        .filter(|(_, found)| found.iter().any(|n| *n > 0))
        .collect();
    assert_eq!(wrong, []);
}
