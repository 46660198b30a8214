//! Two transactions never both commit a row with one key of a unique index, and a snapshot never
//! hides the other's row: it surfaces as a conflict.

use crate::common::*;
use firndb_base::rng::Rng;
use firndb_table::*;
use firndb_txn::{Isolation, TxnErrorKind};

#[test]
fn a_row_committed_after_the_snapshot_surfaces_as_a_conflict() {
    let world = World::new(4096);
    let typed = people(&world).typed().unwrap();
    let mut late = world.begin();
    assert_eq!(typed.get(&mut late, &[9i64.into()], &mut Vec::new()), Ok(false), "takes its snapshot");
    let mut early = world.begin();
    typed.insert(&mut early, &person(1, "ann", Some("x"), 1)).unwrap();
    early.commit().unwrap();
    let error = typed.insert(&mut late, &person(2, "bob", Some("x"), 2)).unwrap_err();
    assert_eq!(error.kind, TableErrorKind::Transaction(TxnErrorKind::Conflict));
    assert!(error.is_retryable());
    late.rollback().unwrap();
    let mut again = world.begin();
    let error = typed.insert(&mut again, &person(2, "bob", Some("x"), 2)).unwrap_err();
    assert_eq!(error.kind, TableErrorKind::Duplicate);
}

#[test]
fn threads_that_take_each_others_keys_leave_one_row_a_key() {
    for isolation in [Isolation::Snapshot, Isolation::ReadCommitted, Isolation::Serializable] {
        let world = World::new(1024);
        let table = people(&world);
        let typed = table.typed().unwrap();
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let (world, typed) = (&world, &typed);
                scope.spawn(move || {
                    let mut rng = Rng::new(thread);
                    for _ in 0..150 {
                        let mut txn = world.begin_at(isolation);
                        let mut outcome = Ok(());
                        for _ in 0..3 {
                            let mail = format!("m{}", rng.below(12));
                            let id = rng.below(20) as i64;
                            let result = if rng.one_in(4) {
                                typed.delete(&mut txn, &[id.into()]).map(drop)
                            } else {
                                typed.put(&mut txn, &person(id, "x", Some(&mail), thread as i32)).map(drop)
                            };
                            match result {
                                Err(error) if error.kind == TableErrorKind::Duplicate => {}
                                other => outcome = outcome.and(other),
                            }
                            if outcome.is_err() {
                                break;
                            }
                        }
                        match outcome {
                            Ok(()) => txn.commit().unwrap(),
                            Err(error) => assert!(error.is_retryable(), "{error:?}"),
                        }
                    }
                });
            }
        });
        world.assert_sound(&table);
    }
}
