//! While threads commit, a device fails, another joins, one leaves: commits continue, and all of
//! them are found without the devices that are gone.

use crate::support::{before_writes, device_with, identity_with};
use firndb_base::{Epoch, Lsn};
use firndb_device::{Calls, Device, DeviceError, DeviceErrorKind, Fault, FaultPlan, FaultRule, Faulty, When};
use firndb_log::testing::options;
use firndb_log::{
    DeviceContents, Hiding, Kind, Left, Log, LogClass, LogError, LogErrorKind, LogIdentity, LogOptions,
    LogScan, Loss, LossHandler, MemberId, MemberState, OutlierOptions, Record, Redundancy,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const FIRST: [(Epoch, Lsn); 1] = [(Epoch(1), Lsn::FIRST)];

fn devices(count: usize) -> Vec<Arc<dyn Device>> {
    (0..count).map(|i| device_with(&format!("log {i}"), 512, 2 << 20) as Arc<dyn Device>).collect()
}

/// Commits from `threads` threads, `count` each. Returns the LSNs of all records that were flushed.
fn commits(log: &Arc<Log>, threads: usize, count: usize) -> Vec<Lsn> {
    let flushed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let flushed = &flushed;
            scope.spawn(move || {
                for i in 0..count {
                    let body = vec![thread as u8; 40 + i % 700];
                    let at = log.append(LogClass::Normal, Record { kind: Kind(0x20), body: &body }).unwrap();
                    log.flush(at.end).unwrap();
                    flushed.lock().unwrap().push(at.first);
                }
            });
        }
    });
    flushed.into_inner().unwrap()
}

fn found(devices: Vec<Arc<dyn Device>>, identity: LogIdentity) -> Vec<Lsn> {
    let scan = LogScan::new(devices, identity, Lsn::FIRST, &mut |_, _| {}).unwrap();
    let (mut records, mut lsns) = (scan.records(Lsn::FIRST), Vec::new());
    while let Some((lsn, _)) = records.next().unwrap() {
        lsns.push(lsn);
    }
    lsns
}

fn assert_all_there(mut flushed: Vec<Lsn>, found: &[Lsn]) {
    flushed.sort_unstable();
    let missing: Vec<&Lsn> = flushed.iter().filter(|lsn| found.binary_search(lsn).is_err()).collect();
    assert!(missing.is_empty(), "{} commits are missing: {missing:?}", missing.len());
}

fn failing(inner: &Arc<dyn Device>, from: u64) -> Arc<dyn Device> {
    let plan = FaultPlan::new(1);
    plan.add(FaultRule {
        calls: Calls::Writes,
        device: None,
        when: When::From(from),
        fault: Fault::Fail(DeviceErrorKind::Failed),
    });
    Arc::new(Faulty::new(inner.clone(), &plan))
}

/// One of `count` devices fails while threads commit. With `copies`, it is dropped at once.
fn one_fails(count: usize, copies: usize, threads: usize, workers: bool) {
    let plain = devices(count);
    let identity = LogIdentity {
        redundancy: if copies > 1 {
            Redundancy::since(Lsn::FIRST, copies as u8)
        } else {
            Redundancy::default()
        },
        ..identity_with(count as u32, &FIRST)
    };
    let mut given = plain.clone();
    // Formatting writes to it, too: seventeen times.
    given[1] = failing(&plain[1], 22);
    let options = LogOptions { copies, workers, ..options() };
    let log = Log::create(given, identity.clone(), Epoch(1), options).unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let dropped = copies > 1;
    log.on_device_lost(LossHandler::new(move |lost| {
        assert_eq!(lost.member, MemberId(1));
        assert_eq!((lost.left)(), Left { devices: count - 1, copies: copies.min(count - 1) });
        counted.fetch_add(1, Ordering::SeqCst);
        Ok(if dropped { Loss::Dropped } else { Loss::Kept })
    }));
    let flushed = commits(&log, threads, 60);
    assert_eq!(calls.load(Ordering::SeqCst), 1, "one failure, one message");
    let state = log.member_statuses().into_iter().find(|s| s.member == MemberId(1)).map(|s| s.state);
    assert_eq!(state, (!dropped).then_some(MemberState::Failed));
    log.close().unwrap();
    if dropped {
        // Without the failed device.
        let mut left = plain.clone();
        left.remove(1);
        let members = identity.members.iter().copied().filter(|id| *id != MemberId(1)).collect();
        let redundancy = Redundancy::default();
        assert_all_there(
            flushed.clone(),
            &found(left, LogIdentity { members, redundancy, ..identity.clone() }),
        );
    }
    // With it, as long as it is a member.
    assert_all_there(flushed, &found(plain, identity));
}

#[test]
fn a_device_that_fails_drops_out_and_commits_go_on() {
    for (count, copies) in [(2, 1), (3, 1), (2, 2), (3, 2), (3, 3), (4, 2)] {
        for (threads, workers) in [(1, false), (1, true), (4, false), (4, true)] {
            one_fails(count, copies, threads, workers);
        }
    }
}

/// Cause: the devices left were counted when a device failure was detected, and several handlers
/// run in any order. Effect: the handler that came last made a count durable that was older than
/// the others'. Fix: the count is taken when the handler asks for it.
#[test]
fn handlers_of_devices_that_fail_together_learn_what_is_left_by_then() {
    for (count, first) in [(3, 0), (3, 1), (4, 0), (4, 1)] {
        let broken = Arc::new(AtomicUsize::new(0));
        let plain = devices(count);
        let mut given = plain.clone();
        for (place, device) in given.iter_mut().enumerate().take(2) {
            let broken = broken.clone();
            *device = before_writes(device.clone(), move |_, _| match broken.load(Ordering::SeqCst) {
                0 => Ok(()),
                _ => Err(DeviceError::new(DeviceErrorKind::Failed, format!("log {place}: gone"))),
            });
        }
        let identity = LogIdentity {
            redundancy: Redundancy::since(Lsn::FIRST, count as u8),
            ..identity_with(count as u32, &FIRST)
        };
        let options = LogOptions { copies: count, workers: true, ..options() };
        let log = Log::create(given, identity, Epoch(1), options).unwrap();
        // Handlers that have begun, and those that have ended.
        let (begun, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let told = Arc::new(Mutex::new(Vec::new()));
        let heard = told.clone();
        log.on_device_lost(LossHandler::new(move |lost| {
            begun.fetch_add(1, Ordering::SeqCst);
            let turn = usize::from(lost.member.0 != first);
            while begun.load(Ordering::SeqCst) < 2 || ended.load(Ordering::SeqCst) < turn {
                std::thread::sleep(Duration::from_millis(1));
            }
            heard.lock().unwrap().push((lost.member, (lost.left)(), lost.requested));
            ended.fetch_add(1, Ordering::SeqCst);
            Ok(Loss::Dropped)
        }));
        let commit = || {
            let at = log.append(LogClass::Normal, Record { kind: Kind(0x20), body: &[7; 100] }).unwrap();
            log.flush(at.end).unwrap();
        };
        commit();
        let requested = log.end();
        broken.store(1, Ordering::SeqCst);
        commit();
        let left = Left { devices: count - 2, copies: count - 2 };
        let told = told.lock().unwrap().clone();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].0 == MemberId(first) && told.iter().all(|told| told.1 == left), "{told:?}");
        assert!(told[0].2 == told[1].2 && told[0].2 > requested, "nothing is requested meanwhile: {told:?}");
        assert_eq!(log.copies_from_here().1, count - 2);
        log.close().unwrap();
    }
}

#[test]
fn the_last_device_that_fails_ends_the_log() {
    let plain = devices(2);
    let given = vec![failing(&plain[0], 40), failing(&plain[1], 40)];
    let log = Log::create(given, identity_with(2, &FIRST), Epoch(1), options()).unwrap();
    log.on_device_lost(LossHandler::new(|_| Ok(Loss::Kept)));
    let error = loop {
        let at = log.append(LogClass::Normal, Record { kind: Kind(0x20), body: &[7; 100] }).unwrap();
        if let Err(error) = log.flush(at.end) {
            break error;
        }
    };
    assert_eq!(error.kind, LogErrorKind::Failed);
    assert!(error.message.contains("unknown until the database is opened again"), "{error}");
}

/// A device hangs, the other continues with later log, then the first one fails: its request can
/// follow on no main stream. It is written to an area; without areas the log fails, and no thread
/// waits for ever.
#[test]
fn a_request_whose_device_failed_late_finds_an_area_or_ends_the_log() {
    for (hiding, workers) in
        [(Hiding::TwoStream, false), (Hiding::TwoStream, true), (Hiding::Off, false), (Hiding::Off, true)]
    {
        let plain = devices(2);
        let stuck = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
        let hook = stuck.clone();
        let hooked = before_writes(plain[0].clone(), move |_, data| {
            let (armed, released) = &*hook;
            if armed.load(Ordering::SeqCst) == 0 || data.is_empty() {
                return Ok(());
            }
            armed.store(2, Ordering::SeqCst);
            while released.load(Ordering::SeqCst) == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(DeviceError::new(DeviceErrorKind::Failed, "log 0: gone after a long while"))
        });
        let given = vec![hooked, plain[1].clone()];
        let identity = identity_with(2, &FIRST);
        // No outlier may be hidden before the device fails.
        let outliers = OutlierOptions { stall_after: Duration::from_secs(60), ..OutlierOptions::default() };
        let options = LogOptions { hiding, workers, outliers, ..options() };
        let log = Log::create(given, identity.clone(), Epoch(1), options).unwrap();
        log.on_device_lost(LossHandler::new(|_| Ok(Loss::Kept)));
        stuck.0.store(1, Ordering::SeqCst);
        let commit = || {
            let at = log.append(LogClass::Normal, Record { kind: Kind(0x20), body: &[7; 100] }).unwrap();
            log.flush(at.end).map(|()| at.first)
        };
        let outcomes: Vec<Result<Lsn, LogError>> = std::thread::scope(|scope| {
            let mut clients = vec![scope.spawn(commit)];
            while stuck.0.load(Ordering::SeqCst) < 2 {
                // The first request may have gone to the other device.
                std::thread::sleep(Duration::from_millis(1));
                if clients[0].is_finished() {
                    clients.push(scope.spawn(commit));
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            let before = log.statistics().requests;
            clients.push(scope.spawn(commit));
            while log.statistics().requests == before {
                std::thread::sleep(Duration::from_millis(1));
            }
            stuck.1.store(1, Ordering::SeqCst);
            clients.into_iter().map(|client| client.join().unwrap()).collect()
        });
        let flushed: Vec<Lsn> =
            outcomes.iter().filter_map(|outcome| outcome.as_ref().ok().copied()).collect();
        if hiding == Hiding::Off {
            let error = outcomes.iter().find_map(|outcome| outcome.as_ref().err()).expect("no place for it");
            assert!(error.message.contains("no other log device can take"), "{error}");
        } else {
            assert_eq!(flushed.len(), outcomes.len(), "{outcomes:?}");
            log.close().unwrap();
        }
        drop(log);
        assert_all_there(flushed, &found(plain, identity));
    }
}

#[test]
fn too_few_devices_left_end_the_log_if_that_was_asked_for() {
    let plain = devices(2);
    let given = vec![plain[0].clone(), failing(&plain[1], 40)];
    let options = LogOptions { copies: 2, copies_required: 2, ..options() };
    let log = Log::create(given, identity_with(2, &FIRST), Epoch(1), options).unwrap();
    log.on_device_lost(LossHandler::new(|_| panic!("the handler is called")));
    let error = loop {
        let at = log.append(LogClass::Normal, Record { kind: Kind(0x20), body: &[7; 100] }).unwrap();
        if let Err(error) = log.flush(at.end) {
            break error;
        }
    };
    assert_eq!(error.kind, LogErrorKind::Failed);
}

#[test]
fn devices_join_and_leave_while_threads_commit() {
    for copies in [1, 2] {
        let mut plain = devices(2);
        let options = LogOptions { copies, workers: true, ..options() };
        let log = Log::create(plain.clone(), identity_with(2, &FIRST), Epoch(1), options).unwrap();
        let new = device_with("new", 512, 2 << 20) as Arc<dyn Device>;
        commits(&log, 2, 10);
        let flushed = std::thread::scope(|scope| {
            let clients = scope.spawn(|| commits(&log, 4, 150));
            let member = log.prepare_member(new.clone(), MemberId(7)).unwrap();
            log.use_member(member).unwrap();
            assert_eq!(log.devices(), 3);
            log.stop_using(MemberId(0)).unwrap();
            assert_eq!(log.devices(), 2);
            clients.join().unwrap()
        });
        let more = commits(&log, 2, 20);
        // All log on the device that leaves is before this.
        let durable = log.durable();
        assert!(!log.is_drained(MemberId(0), Lsn::FIRST), "it held log");
        assert!(log.is_drained(MemberId(0), durable));
        plain.push(new);
        let members = vec![MemberId(0), MemberId(1), MemberId(7)];
        let identity = LogIdentity { members, ..identity_with(2, &FIRST) };
        log.forget_member(MemberId(0));
        log.close().unwrap();
        let retired = DeviceContents::of(&*plain[0]).unwrap();
        assert!(matches!(retired, DeviceContents::Member { member: MemberId(0), retired: true, .. }));
        // Log from after it left is on the others.
        let rest = LogIdentity { members: identity.members[1..].to_vec(), ..identity };
        let from = *more.iter().min().unwrap();
        let scan = LogScan::new(plain[1..].to_vec(), rest, from, &mut |_, _| {}).unwrap();
        let (mut records, mut lsns) = (scan.records(from), Vec::new());
        while let Some((lsn, _)) = records.next().unwrap() {
            lsns.push(lsn);
        }
        assert_all_there(more, &lsns);
        assert!(flushed.len() == 600);
    }
}

#[test]
fn what_cannot_join_or_leave_is_told_why() {
    let log = Log::create(devices(1), identity_with(1, &FIRST), Epoch(1), options()).unwrap();
    let error = log.stop_using(MemberId(0)).unwrap_err();
    assert!(
        error.kind == LogErrorKind::BadArgument && error.message.contains("add another first"),
        "{error}"
    );
    let coarse = device_with("coarse", 4096, 1 << 20) as Arc<dyn Device>;
    let error = log.prepare_member(coarse, MemberId(1)).err().unwrap();
    assert!(error.kind == LogErrorKind::BadArgument && error.message.contains("4096"), "{error}");
    let tiny = device_with("tiny", 512, 2048) as Arc<dyn Device>;
    assert_eq!(log.prepare_member(tiny, MemberId(1)).err().unwrap().kind, LogErrorKind::BadArgument);
    assert_eq!(log.stop_using(MemberId(9)).unwrap_err().kind, LogErrorKind::BadArgument);
}
