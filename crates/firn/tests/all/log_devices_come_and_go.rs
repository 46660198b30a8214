//! The log's devices while a database is in use: they are added, removed and replaced, they fail,
//! they are missing. At every moment of that the power may fail, or a call; whatever was
//! acknowledged is there afterwards.

use crate::support::bed::Bed;
use firndb::device::{
    Calls, CrashPlan, Device, DeviceErrorKind, Fault, FaultPlan, FaultRule, Faulty, MemoryDevice, Survival,
    When,
};
use firndb::{
    Database, Devices, Error, ErrorKind, LogEvent, LogEventKind, LogMemberState, Options, log_status,
};
use firndb_base::rng::Rng;
use firndb_base::sim::{self, SimOptions};
use firndb_base::sync::thread;
use std::sync::{Arc, Mutex};

fn options(logs: usize, copies: usize) -> Options {
    Options::new()
        .page_size(1024)
        .buffer_bytes(256 << 10)
        .log(|log| log.bytes(logs as u64 * (256 << 10)).devices(logs).copies(copies))
        .background_threads(false)
}

/// As `options`, for a database that is there.
fn reopened() -> Options {
    let options = Options::new().page_size(1024).buffer_bytes(256 << 10).background_threads(false);
    options.log(|log| log.bytes(1 << 20))
}

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

fn commit(db: &Database, n: u64) -> Result<(), Error> {
    let table = db.open_table("rows")?;
    db.transact(|tx| tx.put(&table, &key(n), &vec![n as u8; 30 + (n as usize * 37) % 400]).map(drop))
}

/// All rows below `acknowledged` are there, nothing is damaged; what is open is worked on.
fn verify(db: &Database, acknowledged: u64) {
    let table = db.open_table("rows").unwrap();
    let tx = &mut db.snapshot();
    for n in 0..acknowledged {
        assert!(tx.get(&table, &key(n)).unwrap().is_some(), "commit {n} of {acknowledged} is lost");
    }
    let report = db.check(&mut |_| {}).unwrap();
    assert!(report.is_clean(), "{:?}", report.damage);
    commit(db, acknowledged + 1000).unwrap();
}

fn without(devices: &Devices, lost: usize) -> Devices {
    let mut devices = devices.clone();
    devices.logs.remove(lost);
    devices
}

/// Adds the third log device, works, removes the first, works. Marks each acknowledged commit.
fn exchange(db: &Database, third: Arc<dyn Device>, told: &mut dyn FnMut(u64)) -> Result<(), Error> {
    let mut n = 0;
    let mut work = |count: u64| {
        (0..count).try_for_each(|_| {
            commit(db, n)?;
            n += 1;
            told(n);
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

fn crash_walk(copies: usize, every: usize) {
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
    let (mut replay, mut rng) = (plan.replay(), Rng::new(copies as u64));
    let (mut images, mut memberships) = (0, std::collections::BTreeSet::new());
    loop {
        if rng.one_in(every as u64) {
            let survival = Survival::ALL[rng.below(Survival::ALL.len() as u64) as usize];
            let acknowledged = replay.marks().last().copied().unwrap_or(0);
            let image = Bed::of_image(replay.image(survival, &mut rng));
            for lost in 0..if copies > 1 { 4 } else { 1 } {
                let bed = image.duplicate();
                let devices =
                    if lost == 3 || copies == 1 { bed.plain() } else { without(&bed.plain(), lost) };
                let db = reopened().open_on(devices).unwrap_or_else(|error| {
                    panic!("{survival:?} at event {}, without {lost}: {error}", replay.position())
                });
                memberships.insert(db.log_array().members.iter().map(|m| m.id).collect::<Vec<u32>>());
                verify(&db, acknowledged);
                images += 1;
            }
        }
        if replay.step().is_none() {
            break;
        }
    }
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

/// `cargo test --release -p firndb --test all log_devices_come_and_go -- --ignored`
#[test]
#[ignore = "takes minutes"]
fn every_power_cut_while_devices_are_exchanged() {
    crash_walk(1, 1);
    crash_walk(2, 1);
    crash_walk(3, 1);
}

/// Every call of the exchange fails, once or for ever from there on.
fn nth_walk(copies: usize, every: u64) {
    let run = |rule: Option<(u64, bool)>| {
        let bed = Bed::new(3);
        let plan = FaultPlan::new(1);
        let wrap = |device: Arc<dyn Device>| Arc::new(Faulty::new(device, &plan)) as Arc<dyn Device>;
        let mut plain = bed.plain();
        let third = wrap(plain.logs.pop().unwrap());
        let devices = Devices {
            superblock: wrap(plain.superblock),
            logs: plain.logs.into_iter().map(wrap).collect(),
            store: wrap(plain.store),
            cache: None,
        };
        let db = options(2, copies).create_on(devices).unwrap();
        let before = plan.calls();
        if let Some((n, for_ever)) = rule {
            let when = if for_ever { When::From(n) } else { When::Nth(n) };
            let fault = Fault::Fail(DeviceErrorKind::Failed);
            plan.add(FaultRule { calls: Calls::Any, device: None, when, fault });
        }
        let mut acknowledged = 0;
        let outcome = exchange(&db, third, &mut |n| acknowledged = n);
        let calls = plan.calls() - before;
        drop(db);
        (bed, acknowledged, calls, outcome)
    };
    let (_, _, calls, outcome) = run(None);
    outcome.unwrap();
    let mut rng = Rng::new(9);
    let (mut refused, mut survived) = (0, 0);
    for n in 0..calls {
        if !rng.one_in(every) {
            continue;
        }
        for for_ever in [false, true] {
            let (bed, acknowledged, _, outcome) = run(Some((n, for_ever)));
            match &outcome {
                Ok(()) => survived += 1,
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    refused += 1;
                }
            }
            let db = reopened().open_on(bed.plain()).unwrap_or_else(|error| {
                panic!("call {n} failed ({outcome:?}); opened again: {error}");
            });
            verify(&db, acknowledged);
        }
    }
    assert!(refused > 0 && survived > 0, "{refused} and {survived} of {calls} calls");
}

#[test]
fn a_call_fails_while_devices_are_exchanged() {
    nth_walk(1, 30);
    nth_walk(2, 30);
}

/// A database with threads, of whose three log devices the second fails while four clients commit.
fn one_fails(copies: usize) -> (Bed, Database, Vec<LogEvent>, Vec<u64>) {
    let bed = Bed::new(3);
    let plan = FaultPlan::new(1);
    let mut devices = bed.plain();
    devices.logs[1] = Arc::new(Faulty::new(devices.logs[1].clone(), &plan));
    let events = Arc::new(Mutex::new(Vec::new()));
    let told = events.clone();
    let db = options(3, copies)
        .background_threads(true)
        .log(|log| log.on_event(move |event| told.lock().unwrap().push(event.clone())))
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
        let (mut replay, mut rng) = (plan.replay(), Rng::new(logs as u64));
        let mut images = 0;
        while replay.step().is_some() {
            if !rng.one_in(12) {
                continue;
            }
            images += 1;
            let survival = Survival::ALL[rng.below(Survival::ALL.len() as u64) as usize];
            let acknowledged = replay.marks().last().copied().unwrap_or(0);
            let bed = Bed::of_image(replay.image(survival, &mut rng));
            let faults = FaultPlan::new(1);
            let mut devices = bed.plain();
            devices.logs[1] = Arc::new(Faulty::new(devices.logs[1].clone(), &faults));
            faults.fail_from(0, Calls::Writes, DeviceErrorKind::Failed);
            let events = Arc::new(Mutex::new(Vec::new()));
            let told = events.clone();
            let opened = reopened()
                .background_threads(rng.one_in(2))
                .tuning(|tuning| tuning.eager_recovery(rng.one_in(2)))
                .log(|log| log.on_event(move |event| told.lock().unwrap().push(event.clone())))
                .open_on(devices);
            let db = opened.unwrap_or_else(|error| panic!("{survival:?} at {}: {error}", replay.position()));
            failed_while_opening += usize::from(!events.lock().unwrap().is_empty());
            (0..4).for_each(|n| commit(&db, 500 + n).unwrap());
            verify(&db, acknowledged);
            let lost: Vec<LogEvent> = events.lock().unwrap().clone();
            let lost = lost.iter().filter(|event| event.kind == LogEventKind::Lost);
            assert_eq!(lost.map(|event| event.member).collect::<Vec<_>>(), [Some(2)]);
            assert!(db.log_events().iter().any(|event| event.message.contains("failed on purpose")));
            let left: Vec<u32> = if logs == 2 { vec![1] } else { vec![1, 3] };
            assert_eq!(db.log_array().members.iter().map(|member| member.id).collect::<Vec<_>>(), left);
            // The superblock says so, too: after a power cut the others are enough, and it is not
            // asked for.
            let image = bed.duplicate();
            drop(db);
            let db = reopened().open_on(without(&image.plain(), 1)).unwrap();
            verify(&db, acknowledged);
            assert_eq!(db.log_array().members.iter().map(|member| member.id).collect::<Vec<_>>(), left);
        }
        assert!(images > 10, "{images} images of {logs} devices");
    }
    assert!(failed_while_opening > 5, "{failed_while_opening} openings met the failure");
}

/// Whenever an event reports that all log is on a number of devices again, it is. If one `joins`, it is
/// added while the two fail.
fn two_fail_at_once(seed: u64, logs: usize, copies: usize, joins: bool) {
    let bed = Bed::new(logs);
    let plan = FaultPlan::new(seed);
    let mut devices = bed.plain();
    for log in &mut devices.logs {
        *log = Arc::new(Faulty::new(log.clone(), &plan));
    }
    let events = Arc::new(Mutex::new(Vec::new()));
    let told = events.clone();
    let db = options(logs, copies)
        .background_threads(true)
        .log(|log| log.on_event(move |event| told.lock().unwrap().push(event.clone())))
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

/// Cause: what is left was counted before the superblock's lock was taken. Effect: written after the
/// count of a handler that ran meanwhile, it promised copies that there were not.
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

#[test]
fn too_few_devices_are_refused_if_that_was_asked_for() {
    let bed = Bed::new(2);
    drop(options(2, 2).create_on(bed.plain()).unwrap());
    let both = reopened().log(|log| log.copies_required(2));
    let error = both.open_on(without(&bed.duplicate().plain(), 1)).unwrap_err();
    assert!(error.kind() == ErrorKind::Unusable && error.to_string().contains("log.1"), "{error}");
    reopened().open_on(without(&bed.plain(), 1)).unwrap();
    let error = options(2, 3).create_on(Bed::new(2).plain()).unwrap_err();
    assert!(error.kind() == ErrorKind::BadArgument && error.to_string().contains("log.copies"), "{error}");
}

/// What was asked for holds at openings that do not ask; asked otherwise, from then on.
#[test]
fn how_many_devices_are_required_is_kept_with_the_database() {
    let bed = Bed::new(2);
    drop(options(2, 2).log(|log| log.copies_required(2)).create_on(bed.plain()).unwrap());
    let error = reopened().open_on(without(&bed.duplicate().plain(), 1)).unwrap_err();
    assert!(error.kind() == ErrorKind::Unusable && error.to_string().contains("log.1"), "{error}");
    drop(reopened().log(|log| log.copies_required(1)).open_on(bed.plain()).unwrap());
    reopened().open_on(without(&bed.plain(), 1)).unwrap();
}

fn in_files(copies: usize) -> (tempfile::TempDir, Options) {
    let dir = tempfile::tempdir().unwrap();
    let db = options(2, copies).open(dir.path().join("db")).unwrap();
    for n in 0..6 {
        commit(&db, n).unwrap();
    }
    db.close().unwrap();
    (dir, reopened())
}

#[test]
fn a_device_that_comes_back_under_its_old_name_is_not_what_it_was() {
    let (dir, options) = in_files(1);
    let path = dir.path().join("db");
    std::fs::copy(path.join("log.0"), dir.path().join("old")).unwrap();
    let db = options.clone().open(&path).unwrap();
    let new = db.replace_log_device(1, "log.new").unwrap();
    assert_eq!(new, 3);
    for n in 6..12 {
        commit(&db, n).unwrap();
    }
    // As it was as a member, under the name that it had: whole blocks of this database, of LSNs
    // that are gone.
    std::fs::copy(dir.path().join("old"), path.join("log.0")).unwrap();
    assert_eq!(db.add_log_device("log.0").unwrap(), 4);
    for n in 12..16 {
        commit(&db, n).unwrap();
    }
    drop(db);
    let db = options.clone().open(&path).unwrap();
    verify(&db, 16);
    db.close().unwrap();
    // A stranger in a member's place is named.
    std::fs::copy(dir.path().join("old"), path.join("log.0")).unwrap();
    let error = options.open(&path).unwrap_err();
    assert!(error.to_string().contains("member 1") && error.to_string().contains("member 4"), "{error}");
}

#[test]
fn a_missing_device_is_named_unless_copies_cover_it() {
    let (dir, options) = in_files(1);
    let path = dir.path().join("db");
    std::fs::remove_file(path.join("log.1")).unwrap();
    let error = options.open(&path).unwrap_err();
    assert!(error.to_string().contains("log.1"), "{error}");
    let status = log_status(&path).unwrap();
    let missing: Vec<u32> =
        status.members.iter().filter(|m| m.state == LogMemberState::Missing).map(|m| m.id).collect();
    assert_eq!(missing, [2]);

    let (dir, options) = in_files(2);
    let path = dir.path().join("db");
    let status = log_status(&path).unwrap();
    assert!(status.may_lose == 1 && status.members.iter().all(|m| m.written_bytes > 0), "{status:?}");
    std::fs::remove_file(path.join("log.1")).unwrap();
    let db = options.clone().open(&path).unwrap();
    let events = db.log_events();
    assert!(events[0].kind == LogEventKind::Lost && events[0].message.contains("log.1"), "{events:?}");
    verify(&db, 6);
    assert_eq!(db.add_log_device("log.1").unwrap(), 3);
    db.checkpoint().unwrap();
    db.close().unwrap();
    let status = log_status(&path).unwrap();
    assert!(!status.is_degraded() && status.may_lose == 1, "{status:?}");
    std::fs::remove_file(path.join("log.0")).unwrap();
    verify(&options.open(&path).unwrap(), 6);
}

#[test]
fn what_cannot_be_added_or_removed_is_refused() {
    let (dir, options) = in_files(1);
    let path = dir.path().join("db");
    let db = options.open(&path).unwrap();
    std::fs::write(path.join("precious"), vec![7; 8192]).unwrap();
    let error = db.add_log_device("precious").unwrap_err();
    assert!(error.kind() == ErrorKind::BadArgument && error.to_string().contains("precious"), "{error}");
    assert_eq!(std::fs::read(path.join("precious")).unwrap(), vec![7; 8192]);
    for own in ["log.0", "store", "superblock", "../db/log.1"] {
        let error = db.add_log_device(own).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadArgument, "{own}: {error}");
    }
    assert_eq!(db.remove_log_device(9).unwrap_err().kind(), ErrorKind::NotFound);
    db.remove_log_device(1).unwrap();
    let error = db.remove_log_device(2).unwrap_err();
    assert!(error.kind() == ErrorKind::BadArgument && error.to_string().contains("add another"), "{error}");
    verify(&db, 6);
}
