//! Threads read long streams ahead: the log is the same as without them, and a device that fails
//! meanwhile is reported.

use crate::support::device_with;
use firndb_base::{Epoch, Lsn};
use firndb_device::{Calls, Device, DeviceErrorKind, Fault, FaultPlan, FaultRule, Faulty, When};
use firndb_log::testing::{identity, options};
use firndb_log::{Hiding, Kind, Log, LogClass, LogErrorKind, LogOptions, LogScan, LogSources, Record};
use std::sync::Arc;

/// Two devices with some 3 MB of log each, and where it ends.
fn written() -> (Vec<Arc<dyn Device>>, Lsn) {
    let devices: Vec<Arc<dyn Device>> =
        (0..2).map(|i| device_with(&format!("log {i}"), 512, 16 << 20) as Arc<dyn Device>).collect();
    let options = LogOptions { hiding: Hiding::Off, ..options() };
    let log = Log::create(devices.clone(), identity(2), Epoch(1), options).unwrap();
    for i in 0..3000u32 {
        let body = [i as u8; 2000];
        let end = log.append(LogClass::Normal, Record { kind: Kind(0x20), body: &body }).unwrap().end;
        log.flush(end).unwrap();
    }
    let end = log.end();
    (devices, end)
}

fn scan(devices: Vec<Arc<dyn Device>>, threads: bool) -> Result<LogScan, firndb_log::LogError> {
    let sources = LogSources::new(devices, identity(2), Lsn::FIRST).with_threads(threads);
    LogScan::find(sources, &mut |_, _| {})
}

fn records(scan: &LogScan) -> Vec<(Lsn, u8)> {
    let (mut records, mut found) = (scan.records(Lsn::FIRST), Vec::new());
    while let Some((lsn, record)) = records.next().unwrap() {
        found.push((lsn, record.body[0]));
    }
    found
}

#[test]
fn with_threads_and_without_the_log_is_the_same() {
    let (devices, end) = written();
    let (ahead, in_turn) = (scan(devices.clone(), true).unwrap(), scan(devices, false).unwrap());
    assert_eq!((ahead.end(), in_turn.end()), (end, end));
    assert_eq!(ahead.next_epoch_start(), in_turn.next_epoch_start());
    let found = records(&ahead);
    assert_eq!((found.len(), &found), (3000, &records(&in_turn)));
    // A reader that stops early does not wait for a thread that waits for it.
    let mut few = ahead.records(Lsn::FIRST);
    assert!(few.next().unwrap().is_some());
}

#[test]
fn a_device_that_fails_while_it_is_read_ahead_is_told_at_whichever_read() {
    let (devices, end) = written();
    let mut failed = 0;
    for nth in 0..60 {
        let plan = FaultPlan::new(1);
        plan.add(FaultRule {
            calls: Calls::Reads,
            device: Some("log 1".to_owned()),
            when: When::From(nth),
            fault: Fault::Fail(DeviceErrorKind::Failed),
        });
        let faulty: Vec<Arc<dyn Device>> =
            devices.iter().map(|d| Arc::new(Faulty::new(d.clone(), &plan)) as Arc<dyn Device>).collect();
        match scan(faulty, true) {
            Ok(scan) => assert_eq!(scan.end(), end, "all was read before read {nth}"),
            Err(error) => {
                assert_eq!(error.kind, LogErrorKind::Failed, "read {nth}: {error}");
                failed += 1;
            }
        }
    }
    assert!((10..60).contains(&failed), "{failed} of 60 scans met the fault");
}
