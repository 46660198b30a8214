//! Threads read long streams ahead: the log is the same as without them, whatever memory they have,
//! and a device that fails meanwhile is reported.

use crate::support::device_with;
use firndb_base::sim::{self, SimOptions};
use firndb_base::{Epoch, Lsn, clock};
use firndb_device::{
    Calls, Device, DeviceError, DeviceErrorKind, Durability, Fault, FaultPlan, FaultRule, Faulty,
    MemoryDevice, When,
};
use firndb_log::testing::{identity, options};
use firndb_log::{
    Hiding, Kind, Log, LogClass, LogErrorKind, LogOptions, LogScan, LogSources, Loss, LossHandler, Record,
};
use firndb_testkit::bytes::contents;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

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

/// One device with 8 MB of log in groups that are longer than the smallest chunk.
fn long_groups() -> (Arc<MemoryDevice>, Lsn) {
    let device = device_with("log 0", 512, 16 << 20);
    let log = Log::create(vec![device.clone()], identity(1), Epoch(1), options()).unwrap();
    for i in 0..30u32 {
        let bodies: Vec<Vec<u8>> = (0..5).map(|at| vec![(5 * i + at) as u8; 60_000]).collect();
        let group: Vec<Record<'_>> = bodies.iter().map(|body| Record { kind: Kind(0x20), body }).collect();
        log.append_group(LogClass::Normal, &group).unwrap();
        log.flush(log.end()).unwrap();
    }
    (device, log.end())
}

/// Counts the reads of a device that are in flight, each of which takes a moment of virtual time,
/// and the longest.
#[derive(Debug, Default)]
struct InFlight {
    now: AtomicUsize,
    most: AtomicUsize,
    longest: AtomicUsize,
}

#[derive(Debug)]
struct Slow(Arc<dyn Device>, Arc<InFlight>);

impl Device for Slow {
    firndb_device::forward!(0: info, len, write, sync, grow, shrink, discard);
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        let now = self.1.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.1.most.fetch_max(now, Ordering::Relaxed);
        self.1.longest.fetch_max(buf.len(), Ordering::Relaxed);
        clock::sleep(Duration::from_millis(1));
        self.1.now.fetch_sub(1, Ordering::Relaxed);
        self.0.read(offset, buf)
    }
}

fn scan_within(devices: Vec<Arc<dyn Device>>, bytes: usize) -> Result<LogScan, firndb_log::LogError> {
    let sources = LogSources::new(devices.clone(), identity(devices.len() as u32), Lsn::FIRST);
    LogScan::find(sources.with_read_ahead_bytes(bytes), &mut |_, _| {})
}

fn scan(devices: Vec<Arc<dyn Device>>, threads: bool) -> Result<LogScan, firndb_log::LogError> {
    let identity = identity(devices.len() as u32);
    let sources = LogSources::new(devices, identity, Lsn::FIRST).with_threads(threads);
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
fn the_log_is_the_same_wherever_chunks_end_and_however_little_memory_there_is() {
    let (device, end) = long_groups();
    let expected = records(&scan(vec![device.clone()], false).unwrap_or_else(|error| panic!("{error}")));
    assert_eq!(expected.len(), 150);
    for bytes in [0, 400 << 10, 1 << 20, 2 << 20, 32 << 20] {
        let found = scan_within(vec![device.clone()], bytes).unwrap();
        assert_eq!((found.end(), records(&found)), (end, expected.clone()), "{bytes} bytes");
    }
}

#[test]
fn a_stream_that_ends_long_before_the_others_holds_up_nothing() {
    let plain: Vec<Arc<dyn Device>> =
        (0..2).map(|i| device_with(&format!("log {i}"), 512, 16 << 20) as Arc<dyn Device>).collect();
    let plan = FaultPlan::new(1);
    let faulty = plain.iter().map(|d| Arc::new(Faulty::new(d.clone(), &plan)) as Arc<dyn Device>).collect();
    let options = LogOptions { hiding: Hiding::Off, ..options() };
    let log = Log::create(faulty, identity(2), Epoch(1), options).unwrap();
    log.on_device_lost(LossHandler::new(|_| Ok(Loss::Kept)));
    for i in 0..3000u32 {
        if i == 100 {
            plan.add(FaultRule {
                calls: Calls::Writes,
                device: Some("log 1".to_owned()),
                when: When::From(0),
                fault: Fault::Fail(DeviceErrorKind::Failed),
            });
        }
        log.append(LogClass::Normal, Record { kind: Kind(0x20), body: &[i as u8; 2000] }).unwrap();
        log.flush(log.end()).unwrap();
    }
    for bytes in [0, 32 << 20] {
        let found = scan_within(plain.clone(), bytes).unwrap();
        assert_eq!((found.end(), records(&found).len()), (log.end(), 3000), "{bytes} bytes");
    }
    assert_eq!(scan(plain, false).unwrap().end(), log.end());
}

#[test]
fn several_reads_of_a_device_are_in_flight_and_no_longer_than_memory_allows() {
    let (device, end) = long_groups();
    let bytes = contents(&*device);
    for (budget, longest) in [(0, 64 << 10), (1 << 20, 192 << 10), (32 << 20, LogSources::READ_BYTES)] {
        let bytes = bytes.clone();
        let body = move || {
            let counted = Arc::new(InFlight::default());
            let memory = device_with("log 0", 512, 16 << 20);
            memory.write(0, &bytes, Durability::Later).unwrap();
            let found = scan_within(vec![Arc::new(Slow(memory, counted.clone()))], budget).unwrap();
            assert_eq!(found.end(), end);
            let most = counted.most.load(Ordering::Relaxed);
            assert_eq!(most, LogSources::READS_IN_FLIGHT, "{budget} bytes");
            assert_eq!(counted.longest.load(Ordering::Relaxed), longest, "{budget} bytes");
        };
        sim::run(SimOptions::seeded(3), body).unwrap_or_else(|failure| panic!("{failure}"));
    }
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
