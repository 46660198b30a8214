//! Log devices are added and removed while the database is in use. At every moment of that the
//! power may fail, or a call; whatever was acknowledged is there afterwards.

use super::support::{commit, options, reopened, verify, without};
use crate::support::bed::Bed;
use crate::support::walks::{Cut, Worked, failing_calls, power_cuts};
use firndb::device::{CrashPlan, Device, FaultPlan};
use firndb::{Database, Error};
use firndb_base::rng::Rng;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Adds the third log device, works, removes the first, works. Marks each acknowledged commit.
fn exchange(db: &Database, third: Arc<dyn Device>, acknowledged: &mut dyn FnMut(u64)) -> Result<(), Error> {
    let mut n = 0;
    let mut work = |count: u64| {
        (0..count).try_for_each(|_| {
            commit(db, n)?;
            n += 1;
            acknowledged(n);
            Ok::<(), Error>(())
        })
    };
    work(12)?;
    let id = db.add_log_device_on(third)?;
    assert_eq!(id, 3);
    work(8)?;
    db.remove_log_device(1)?;
    work(8)
}

fn crash_walk(copies: usize, every: u64) {
    let bed = Bed::new(3);
    let plan = CrashPlan::new();
    let mut devices = bed.crashing(&plan);
    let third = devices.logs.pop().unwrap();
    let db = options(2, copies).create_on(devices).unwrap();
    plan.settle();
    exchange(&db, third, &mut |n| plan.mark(n)).unwrap();
    let ids: Vec<u32> = db.log_array().members.iter().map(|member| member.id).collect();
    assert_eq!(ids, [2, 3]);
    drop(db);
    let (mut images, mut memberships) = (0, BTreeSet::new());
    power_cuts(&plan, &mut Rng::new(copies as u64), every, |Cut { bed: image, acknowledged, place }, _| {
        for lost in 0..if copies > 1 { 4 } else { 1 } {
            let bed = image.duplicate();
            let devices = if lost == 3 || copies == 1 { bed.plain() } else { without(&bed.plain(), lost) };
            let db = reopened()
                .open_on(devices)
                .unwrap_or_else(|error| panic!("{place}, without {lost}: {error}"));
            memberships.insert(db.log_array().members.iter().map(|m| m.id).collect::<Vec<u32>>());
            verify(&db, acknowledged);
            images += 1;
        }
    });
    assert!(images > 20 && memberships.len() >= 3, "{images} images, {memberships:?}");
}

#[test]
fn a_power_cut_while_devices_are_exchanged() {
    crash_walk(1, 4);
}

#[test]
fn a_power_cut_and_a_lost_device_while_devices_are_exchanged() {
    crash_walk(2, 25);
}

/// `cargo test --release -p firndb --test all log_devices::come_and_go -- --ignored`
#[test]
#[ignore = "takes minutes"]
fn every_power_cut_while_devices_are_exchanged() {
    crash_walk(1, 1);
    crash_walk(2, 1);
    crash_walk(3, 1);
}

/// Calls of the exchange fail.
fn nth_walk(copies: usize, every: u64) {
    let work = |plan: &FaultPlan, begins: &dyn Fn()| {
        let bed = Bed::new(3);
        let mut devices = bed.failing(plan);
        let third = devices.logs.pop().unwrap();
        let db = options(2, copies).create_on(devices).unwrap();
        begins();
        let mut acknowledged = 0;
        let outcome = exchange(&db, third, &mut |n| acknowledged = n);
        drop(db);
        Worked { bed, acknowledged, outcome }
    };
    let failed = failing_calls(every, work, |place, Worked { bed, acknowledged, .. }| {
        let opened = reopened().open_on(bed.plain());
        verify(&opened.unwrap_or_else(|error| panic!("{place}; opened again: {error}")), acknowledged);
    });
    assert!(failed.refused > 0 && failed.survived > 0, "{failed:?}");
}

#[test]
fn a_call_fails_while_devices_are_exchanged() {
    nth_walk(1, 30);
    nth_walk(2, 30);
}
