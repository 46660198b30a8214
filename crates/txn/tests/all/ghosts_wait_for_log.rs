//! A full log delays the removal of ghosts and the merging of emptied leaves; nothing of either is
//! forgotten.

use crate::common::World;
use firndb_base::Progress;
use firndb_log::{Kind, LogClass, Record};
use firndb_txn::{ManagerOptions, TxnErrorKind};

fn settle(world: &World) {
    while world.manager.maintenance_step().expect("usable") == Progress::Worked {}
}

/// Appends until there is no space for another small record.
fn fill_log(world: &World) {
    for len in [4096, 256, 16, 0] {
        let body = vec![0; len];
        loop {
            match world.manager.log().append(LogClass::Normal, Record { kind: Kind(0x60), body: &body }) {
                Ok(_) => {}
                Err(error) => {
                    assert_eq!(error.kind, firndb_log::LogErrorKind::Full, "{error}");
                    break;
                }
            }
        }
    }
}

/// What a checkpoint does for the log.
fn empty_log(world: &World) {
    let log = world.manager.log();
    let end = log.end();
    log.flush(end).expect("flushed");
    log.truncate(end);
}

fn load(world: &World, rows: u32) {
    let mut txn = world.begin();
    for i in 0..rows {
        assert!(txn.insert(&world.tree, &i.to_be_bytes(), &[7; 60]).expect("inserted"));
    }
    txn.commit().expect("committed");
}

fn delete(world: &World, rows: std::ops::Range<u32>) {
    let mut txn = world.begin();
    let mut old = Vec::new();
    for i in rows {
        assert!(txn.remove(&world.tree, &i.to_be_bytes(), &mut old).expect("deleted"));
    }
    txn.commit().expect("committed");
}

#[test]
fn until_there_is_some() {
    let world = World::with_log(2 << 20, ManagerOptions::default());
    settle(&world);
    load(&world, 1_000);
    delete(&world, 0..1_000);
    fill_log(&world);
    for _ in 0..2_000 {
        // Each try once forgot a ghost.
        assert_eq!(world.manager.maintenance_step().expect("a full log is no error"), Progress::Idle);
    }
    let report = world.tree.check().expect("readable");
    assert_eq!(report.entries, 1_000, "nothing could be logged");
    empty_log(&world);
    settle(&world);
    let report = world.tree.check().expect("readable").into_result().expect("sound");
    assert_eq!((report.entries, report.pages.len()), (0, 1), "all are gone, and all pages but the root");
}

/// The log fills in the midst of it, again and again.
#[test]
fn however_often_it_fills() {
    let world = World::with_log(2 << 20, ManagerOptions::default());
    settle(&world);
    load(&world, 3_000);
    for start in (0..3_000).step_by(500) {
        delete(&world, start..start + 500);
        empty_log(&world);
    }
    let mut waits = 0;
    for _ in 0..100_000 {
        // A little log at a time, so that steps are refused at every one of their records.
        match world.manager.maintenance_step().expect("a full log is no error") {
            Progress::Worked => {
                fill_log(&world);
            }
            Progress::Idle if world.manager.log().space().normal_bytes < 4096 => {
                waits += 1;
                empty_log(&world);
                let space = world.manager.log().space().normal_bytes;
                let left = 64 * (waits % 40);
                let body = vec![0; space.saturating_sub(left).min(1 << 16) as usize];
                while world.manager.log().space().normal_bytes > left + (1 << 17)
                    && world
                        .manager
                        .log()
                        .append(LogClass::Normal, Record { kind: Kind(0x60), body: &body })
                        .is_ok()
                {}
            }
            Progress::Idle => break,
        }
    }
    assert!(waits > 10, "it had to wait {waits} times");
    let report = world.tree.check().expect("readable").into_result().expect("sound");
    assert_eq!((report.entries, report.pages.len()), (0, 1));
}

/// A rollback empties leaves, too, and is not stopped by a merge that finds no space.
#[test]
fn with_the_leaves_that_a_rollback_has_emptied() {
    let world = World::with_log(2 << 20, ManagerOptions::default());
    settle(&world);
    let mut txn = world.begin();
    for i in 0..1_000u32 {
        assert!(txn.insert(&world.tree, &i.to_be_bytes(), &[7; 60]).expect("inserted"));
    }
    let pages = world.tree.check().expect("readable").pages.len();
    assert!(pages > 50);
    fill_log(&world);
    match txn.rollback() {
        Ok(()) => {}
        Err(error) => assert_eq!(error.kind, TxnErrorKind::LogFull, "{error}"),
    }
    empty_log(&world);
    while world.manager.undo_put_off().expect("undone") == Progress::Worked {}
    settle(&world);
    let report = world.tree.check().expect("readable").into_result().expect("sound");
    assert_eq!((report.entries, report.pages.len()), (0, 1));
}
