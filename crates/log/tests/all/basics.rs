//! Appended records are read back in order, with their LSNs, and group boundaries are kept.

use firndb_base::{Epoch, Lsn};
use firndb_log::testing::{identity, memory_device, memory_log, options};
use firndb_log::{Kind, Log, LogClass, LogErrorKind, LogOptions, LogScan, Record};

fn record(body: &[u8]) -> Record<'_> {
    Record { kind: Kind(0x20), body }
}

fn read_all(scan: &LogScan, from: Lsn) -> Vec<(Lsn, Vec<u8>)> {
    let mut records = scan.records(from);
    let mut all = Vec::new();
    while let Some((lsn, record)) = records.next().unwrap() {
        all.push((lsn, record.body.to_vec()));
    }
    all
}

#[test]
fn records_come_back_with_their_lsn_and_unflushed_ones_do_not() {
    let device = memory_device("a", 1 << 20);
    let log = Log::create(vec![device.clone()], identity(1), Epoch(1), options()).unwrap();
    assert_eq!((log.end(), log.durable()), (Lsn::FIRST, Lsn::FIRST));
    let mut expected = Vec::new();
    for i in 0..300usize {
        let body = vec![i as u8; i * 7 % 1500];
        let appended = log.append(LogClass::Normal, record(&body)).unwrap();
        assert_eq!(appended.end.since(appended.first), Log::framed_len(body.len()));
        expected.push((appended.first, body));
        if i % 3 == 0 {
            log.flush(appended.end).unwrap();
            assert_eq!(log.durable(), appended.end);
        }
    }
    assert_eq!(expected[0].0, Lsn::FIRST);
    log.flush(log.end()).unwrap();
    let end = log.end();
    log.append(LogClass::Normal, record(b"never flushed")).unwrap();
    drop(log);
    let scan = LogScan::new(vec![device], identity(1), Lsn::FIRST, &mut |_, _| {}).unwrap();
    assert_eq!(scan.end(), end);
    assert!(scan.next_epoch_start() >= end);
    assert_eq!(read_all(&scan, Lsn::FIRST), expected);
    assert_eq!(read_all(&scan, expected[100].0), expected[100..]);
    assert_eq!(read_all(&scan, end), vec![]);
}

#[test]
fn lsns_within_a_group_follow_from_framed_len() {
    let log = memory_log();
    log.append(LogClass::Normal, record(b"before")).unwrap();
    let appended =
        log.append_group(LogClass::Normal, &[record(b"one"), record(b""), record(&[7; 1000])]).unwrap();
    let total = Log::framed_len(3) + Log::framed_len(0) + Log::framed_len(1000);
    assert_eq!(appended.end, appended.first.advance(total));
    assert_eq!(log.end(), appended.end);
}

#[test]
fn a_flush_of_what_is_durable_writes_nothing() {
    let log = memory_log();
    let end = log.append(LogClass::Normal, record(b"x")).unwrap().end;
    log.flush(end).unwrap();
    log.flush(end).unwrap();
    log.flush(Lsn::FIRST).unwrap();
    assert_eq!(log.statistics().requests, 1);
}

#[test]
fn bad_arguments_are_refused() {
    let log = memory_log();
    let kind = |outcome: Result<_, firndb_log::LogError>| outcome.unwrap_err().kind;
    let huge = vec![0; log.group_max() as usize];
    assert_eq!(kind(log.append(LogClass::Normal, record(&huge))), LogErrorKind::BadArgument);
    assert_eq!(kind(log.append_group(LogClass::Normal, &[])), LogErrorKind::BadArgument);
    assert_eq!(log.flush(Lsn(1 << 40)).unwrap_err().kind, LogErrorKind::BadArgument);
    log.append(LogClass::Normal, record(&huge[6..])).unwrap();
    let small = LogOptions { buffer_bytes: 100, ..options() };
    let devices = vec![memory_device("a", 1 << 20)];
    assert_eq!(
        Log::create(devices, identity(1), Epoch(1), small).unwrap_err().kind,
        LogErrorKind::BadArgument
    );
    let tiny = vec![memory_device("a", 4096)];
    assert_eq!(
        Log::create(tiny, identity(1), Epoch(1), options()).unwrap_err().kind,
        LogErrorKind::BadArgument
    );
    assert_eq!(
        Log::create(vec![], identity(0), Epoch(1), options()).unwrap_err().kind,
        LogErrorKind::BadArgument
    );
}

#[test]
fn after_close_nothing_is_appended_and_all_is_durable() {
    let log = memory_log();
    let end = log.append(LogClass::Normal, record(b"x")).unwrap().end;
    log.close().unwrap();
    log.close().unwrap();
    assert_eq!(log.durable(), end);
    assert_eq!(log.append(LogClass::System, record(b"y")).unwrap_err().kind, LogErrorKind::Closed);
    assert_eq!(log.statistics().seals, 1);
    log.flush(end).unwrap();
}

#[test]
fn a_group_larger_than_the_request_buffer_is_durable_as_a_whole() {
    let devices = vec![memory_device("a", 1 << 20), memory_device("b", 1 << 20)];
    let options = LogOptions { request_bytes: 4096, ..options() };
    let log = Log::create(devices.clone(), identity(2), Epoch(1), options).unwrap();
    let body = vec![3; 50_000];
    let end = log.append_group(LogClass::Normal, &[record(&body), record(&body)]).unwrap().end;
    log.flush(end).unwrap();
    assert!(log.statistics().requests >= 25);
    drop(log);
    let scan = LogScan::new(devices, identity(2), Lsn::FIRST, &mut |_, _| {}).unwrap();
    assert_eq!(scan.end(), end);
    assert_eq!(read_all(&scan, Lsn::FIRST).len(), 2);
}

#[test]
fn request_flush_is_served_by_step_and_by_workers() {
    let log = memory_log();
    let end = log.append(LogClass::Normal, record(b"x")).unwrap().end;
    log.request_flush(end);
    assert!(log.durable() < end);
    assert_eq!(log.step(), firndb_base::Progress::Worked);
    assert_eq!(log.durable(), end);

    let options = LogOptions { workers: true, ..options() };
    let log = Log::create(vec![memory_device("a", 1 << 20)], identity(1), Epoch(1), options).unwrap();
    let end = log.append(LogClass::Normal, record(b"x")).unwrap().end;
    log.request_flush(end);
    while log.durable() < end {
        std::thread::yield_now();
    }
    // An idle log seals itself.
    while log.statistics().seals == 0 {
        std::thread::yield_now();
    }
    log.close().unwrap();
}
