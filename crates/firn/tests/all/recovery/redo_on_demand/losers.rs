//! Rows of transactions that recovery has not rolled back yet.

use crate::recovery::redo_on_demand::support::{ROWS, all, assert_sound, crashed, key, opened, quiet};
use firndb_base::rng::Rng;

#[test]
fn rows_of_losers_show_the_version_before_and_are_locked_until_it_is_back() {
    let (bed, rows) = crashed(&quiet());
    let (db, table) = opened(&quiet(), &bed);
    assert_eq!(all(&db, &table), rows);
    assert_eq!(db.recovery_report().losers_left, 2, "a read waits for no rollback");
    // A transaction that would wait for a loser rolls it back.
    db.transact(|tx| tx.put(&table, &key(15), b"mine").map(drop)).expect("committed");
    assert_eq!(db.recovery_report().losers_left, 1);
    assert_eq!(db.snapshot().get(&table, b"key of a loser").expect("readable"), None);
    db.transact(|tx| tx.insert(&table, b"key of a loser", b"mine")).expect("the key is free");
    db.transact(|tx| tx.delete(&table, &key(2005)).map(drop)).expect("committed");
    let report = db.recovery_report();
    assert_eq!((report.losers, report.losers_left), (2, 0));
    assert_sound(&db);
}

/// With threads: a writer waits as for any lock.
#[test]
fn writers_get_the_rows_of_losers_when_these_are_rolled_back() {
    let (bed, mut rows) = crashed(&quiet());
    let (db, table) = opened(&quiet().background_threads(true), &bed);
    std::thread::scope(|scope| {
        for i in [15u32, 25, 2005] {
            let (db, table) = (&db, &table);
            scope.spawn(move || {
                db.transact(|tx| tx.put(table, &key(i), b"after it").map(drop)).expect("committed")
            });
        }
        for seed in 0..2 {
            let (db, table, rows) = (&db, &table, &rows);
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                for _ in 0..500 {
                    let i = 10 * rng.below(u64::from(ROWS) / 10) as u32;
                    let found = db.snapshot().get(table, &key(i)).expect("readable");
                    assert_eq!(found.as_ref(), rows.get(&key(i)));
                }
            });
        }
    });
    rows.extend([15u32, 25, 2005].map(|i| (key(i), b"after it".to_vec())));
    db.finish_recovery().expect("finished");
    assert_eq!(all(&db, &table), rows);
    assert!(db.recovery_report().complete);
    assert_sound(&db);
}
