//! Log devices fail, one or two, while clients commit or while the database is opened: commits go
//! on, and no copy is promised that there is not.

use crate::log_devices::support::{commit, options, reopened, verify, without};
use crate::support::bed::Bed;
use crate::support::walks::{Cut, power_cuts};
use firndb::device::{
    Calls, CrashPlan, DeviceErrorKind, Fault, FaultPlan, FaultRule, Faulty, MemoryDevice, When,
};
use firndb::{Database, ErrorKind, LogEvent, LogEventKind};
use firndb_base::rng::Rng;
use firndb_base::sim::{self, SimOptions};
use firndb_base::sync::thread;
use std::sync::{Arc, Mutex};

/// A database with threads, of whose three log devices the second fails while four clients commit.
fn one_fails(copies: usize) -> (Bed, Database, Vec<LogEvent>, Vec<u64>) {
    let bed = Bed::new(3);
    let plan = FaultPlan::new(1);
    let mut devices = bed.plain();
    devices.logs[1] = Arc::new(Faulty::new(devices.logs[1].clone(), &plan));
    let events = Arc::new(Mutex::new(Vec::new()));
    let heard = events.clone();
    let db = options(3, copies)
        .background_threads(true)
        .log(|log| log.on_event(move |event| heard.lock().unwrap().push(event.clone())))
        .create_on(devices)
        .unwrap();
    commit(&db, 0).unwrap();
    let fault = Fault::Fail(DeviceErrorKind::Failed);
    plan.add(FaultRule { calls: Calls::Writes, device: None, when: When::From(10), fault });
    let acknowledged = Mutex::new(vec![0]);
    std::thread::scope(|scope| {
        for client in 1..5 {
            let (db, acknowledged) = (&db, &acknowledged);
            scope.spawn(move || {
                for n in (0..60).map(|i| i * 4 + client) {
                    commit(db, n).unwrap();
                    acknowledged.lock().unwrap().push(n);
                }
            });
        }
    });
    db.checkpoint().unwrap();
    db.checkpoint().unwrap();
    let events = events.lock().unwrap().clone();
    (bed, db, events, acknowledged.into_inner().unwrap())
}

#[test]
fn a_log_device_fails_and_commits_go_on_without_it() {
    for copies in [1, 2] {
        let (bed, db, events, acknowledged) = one_fails(copies);
        assert_eq!(acknowledged.len(), 241);
        let of = |kind: LogEventKind| events.iter().filter(|event| event.kind == kind).count();
        assert_eq!(of(LogEventKind::Lost), 1, "one clear message: {events:?}");
        assert!(events[0].message.contains("log.1") && events[0].member == Some(2), "{events:?}");
        assert_eq!(of(LogEventKind::Dropped), usize::from(copies == 1), "{events:?}");
        assert_eq!(of(LogEventKind::Redundant), usize::from(copies == 2), "{events:?}");
        assert_eq!(db.log_events(), events);
        let array = db.log_array();
        assert_eq!(array.members.iter().map(|m| m.id).collect::<Vec<_>>(), [1, 3]);
        assert_eq!((array.copies, array.copies_now, array.may_lose), (copies, copies, copies - 1));
        assert!(!array.is_degraded());
        drop(db);
        // As after a crash, without the device.
        let db = reopened().open_on(without(&bed.duplicate().plain(), 1)).unwrap();
        verify(&db, 241);
        if copies == 2 {
            drop(db);
            let db = reopened().open_on(without(&without(&bed.duplicate().plain(), 1), 0)).unwrap();
            verify(&db, 241);
            assert!(db.log_array().is_degraded());
        }
    }
}

/// Cause: what decides about a failed log device was installed once recovery was done. Effect: a
/// device that can be read and not written, as a worn-out SSD, failed every opening after a crash,
/// though others had copies of all it held. Mend: it is there from the new epoch's first write on.
#[test]
fn a_log_device_that_cannot_be_written_is_dropped_by_the_opening() {
    let mut failed_while_opening = 0;
    for logs in [2, 3] {
        let bed = Bed::new(logs);
        let plan = CrashPlan::new();
        let db = options(logs, 2).create_on(bed.crashing(&plan)).unwrap();
        plan.settle();
        for n in 0..30 {
            commit(&db, n).unwrap();
            plan.mark(n + 1);
            if n == 15 {
                db.checkpoint().unwrap();
            }
        }
        drop(db);
        let images = power_cuts(&plan, &mut Rng::new(logs as u64), 12, |cut, rng| {
            failed_while_opening += usize::from(open_with_a_device_that_cannot_be_written(logs, cut, rng));
        });
        assert!(images > 10, "{images} images of {logs} devices");
    }
    assert!(failed_while_opening > 5, "{failed_while_opening} openings met the failure");
}

/// Whether the second log device, which cannot be written, was noticed by the opening.
fn open_with_a_device_that_cannot_be_written(logs: usize, cut: Cut, rng: &mut Rng) -> bool {
    let Cut { bed, acknowledged, place } = cut;
    let faults = FaultPlan::new(1);
    let mut devices = bed.plain();
    devices.logs[1] = Arc::new(Faulty::new(devices.logs[1].clone(), &faults));
    faults.fail_from(0, Calls::Writes, DeviceErrorKind::Failed);
    let events = Arc::new(Mutex::new(Vec::new()));
    let heard = events.clone();
    let opened = reopened()
        .background_threads(rng.one_in(2))
        .tuning(|tuning| tuning.eager_recovery(rng.one_in(2)))
        .log(|log| log.on_event(move |event| heard.lock().unwrap().push(event.clone())))
        .open_on(devices);
    let db = opened.unwrap_or_else(|error| panic!("{place}: {error}"));
    let failed_while_opening = !events.lock().unwrap().is_empty();
    (0..4).for_each(|n| commit(&db, 500 + n).unwrap());
    verify(&db, acknowledged);
    let lost: Vec<LogEvent> = events.lock().unwrap().clone();
    let lost = lost.iter().filter(|event| event.kind == LogEventKind::Lost);
    assert_eq!(lost.map(|event| event.member).collect::<Vec<_>>(), [Some(2)]);
    assert!(db.log_events().iter().any(|event| event.message.contains("failed on purpose")));
    let left: Vec<u32> = if logs == 2 { vec![1] } else { vec![1, 3] };
    assert_eq!(db.log_array().members.iter().map(|member| member.id).collect::<Vec<_>>(), left);
    // The superblock says so, too: after a power cut the others are enough, and it is not asked
    // for.
    let image = bed.duplicate();
    drop(db);
    let db = reopened().open_on(without(&image.plain(), 1)).unwrap();
    verify(&db, acknowledged);
    assert_eq!(db.log_array().members.iter().map(|member| member.id).collect::<Vec<_>>(), left);
    failed_while_opening
}

/// Whenever an event reports that all log is on a number of devices again, it is. If one `joins`,
/// it is added while the two fail.
fn two_fail_at_once(seed: u64, logs: usize, copies: usize, joins: bool) {
    let bed = Bed::new(logs);
    let plan = FaultPlan::new(seed);
    let mut devices = bed.plain();
    for log in &mut devices.logs {
        *log = Arc::new(Faulty::new(log.clone(), &plan));
    }
    let events = Arc::new(Mutex::new(Vec::new()));
    let heard = events.clone();
    let db = options(logs, copies)
        .background_threads(true)
        .log(|log| log.on_event(move |event| heard.lock().unwrap().push(event.clone())))
        .create_on(devices)
        .unwrap();
    let clients = |from: u64| {
        thread::scope(|scope| {
            for client in 0..3 {
                let db = &db;
                scope.spawn(move || (from..from + 8).for_each(|n| commit(db, n * 3 + client).unwrap()));
            }
        });
    };
    clients(0);
    for log in ["log.0", "log.1"] {
        let (device, fault) = (Some(log.to_owned()), Fault::Fail(DeviceErrorKind::Failed));
        plan.add(FaultRule { calls: Calls::Writes, device, when: When::From(0), fault });
    }
    let joining = Arc::new(MemoryDevice::new("joining"));
    thread::scope(|scope| {
        if joins {
            scope.spawn(|| db.add_log_device_on(joining.clone()).unwrap());
        }
        clients(8);
    });
    let left = logs - 2 + usize::from(joins);
    let redundant = |array: &firndb::LogArrayStatus| {
        assert_eq!((array.copies, array.copies_now), (copies, copies.min(left)), "{array:?}");
        assert!(array.may_lose < copies.min(left), "{array:?}");
        if left < copies {
            assert!(array.is_degraded(), "{array:?}");
        }
    };
    let lost = |events: &[LogEvent]| events.iter().filter(|event| event.kind == LogEventKind::Lost).count();
    if lost(&events.lock().unwrap()) == 2 {
        redundant(&db.log_array());
    }
    db.checkpoint().unwrap();
    db.checkpoint().unwrap();
    clients(16);
    redundant(&db.log_array());
    let events = events.lock().unwrap().clone();
    assert_eq!(lost(&events), 2, "{events:?}");
    if left < copies {
        let second = events.iter().rposition(|event| event.kind == LogEventKind::Lost).unwrap();
        let again = events[second..].iter().find(|event| event.kind == LogEventKind::Redundant);
        assert!(again.is_none(), "{left} devices are left: {again:?}");
    }
    // A power cut now: what is left is enough.
    let mut devices = bed.duplicate().plain();
    if joins {
        devices.logs.push(Arc::new(joining.duplicate()));
    }
    drop(db);
    devices.logs.drain(..2);
    let db = reopened().open_on(devices).unwrap();
    verify(&db, 72);
}

/// Cause: each of the two noted what was left when it failed, and wrote that down whenever its turn
/// came. Effect: the superblock promised a copy more than there was. Mend: what is left is counted
/// under the superblock's lock.
#[test]
fn two_log_devices_that_fail_together_leave_no_promise_that_is_not_kept() {
    for (logs, copies) in [(3, 2), (4, 2), (4, 3)] {
        for seed in 0..12 {
            let run = sim::run(SimOptions::seeded(seed), move || two_fail_at_once(seed, logs, copies, false));
            run.unwrap_or_else(|failure| panic!("{copies} copies on {logs}, seed {seed}: {failure}"));
        }
    }
}

/// Cause: what is left was counted before the superblock's lock was taken. Effect: written after
/// the count of a handler that ran meanwhile, it promised copies that there were not.
#[test]
fn a_log_device_that_joins_while_two_fail_promises_no_more_than_is_left() {
    for seed in 0..24 {
        let run = sim::run(SimOptions::seeded(seed), move || two_fail_at_once(seed, 3, 3, true));
        run.unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
    }
}

#[test]
fn what_was_committed_with_too_few_copies_is_never_silently_lost() {
    let bed = Bed::new(2);
    let plan = FaultPlan::new(1);
    let mut devices = bed.plain();
    devices.logs[1] = Arc::new(Faulty::new(devices.logs[1].clone(), &plan));
    let db = options(2, 2).create_on(devices).unwrap();
    for n in 0..10 {
        commit(&db, n).unwrap();
    }
    plan.fail_from(0, Calls::Writes, DeviceErrorKind::Failed);
    for n in 10..20 {
        commit(&db, n).unwrap();
    }
    let array = db.log_array();
    assert_eq!((array.copies, array.copies_now, array.redundant_from), (2, 1, None));
    assert!(array.is_degraded() && array.may_lose == 0);
    // The power fails. The device that was lost is back, and the other is gone: it alone has the
    // last commits.
    let image = bed.duplicate();
    let error = reopened().open_on(without(&image.duplicate().plain(), 0)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    let db = reopened().open_on(without(&image.duplicate().plain(), 1)).unwrap();
    verify(&db, 20);
    // Both are there: the one that was lost is not believed.
    let db = reopened().open_on(image.plain()).unwrap();
    verify(&db, 20);
    // Another joins: redundant again after the next checkpoint.
    let third = Arc::new(MemoryDevice::new("third"));
    assert_eq!(db.add_log_device_on(third.clone()).unwrap(), 3);
    assert!(db.log_array().is_degraded() && db.log_array().copies_now == 2);
    db.checkpoint().unwrap();
    db.checkpoint().unwrap();
    assert!(!db.log_array().is_degraded(), "{:?}", db.log_array());
    for n in 20..30 {
        commit(&db, n).unwrap();
    }
    drop(db);
    let mut alone = image.plain();
    alone.logs = vec![third];
    verify(&reopened().open_on(alone).unwrap(), 30);
}
