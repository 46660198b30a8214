//! Reading a log while it is written, and a log on files.

use crate::support::{device_with, scan};
use firndb_base::{Epoch, Lsn};
use firndb_device::{Device, FileDevice, FileOptions, Fill};
use firndb_log::testing::{identity, options};
use firndb_log::{Kind, Log, LogClass, LogErrorKind, LogOptions, LogScan, Record};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const EPOCHS: [(Epoch, Lsn); 1] = [(Epoch(1), Lsn::FIRST)];

fn add(log: &Log, i: u32) -> Lsn {
    let body = i.to_le_bytes().repeat(i as usize % 200);
    let end = log.append(LogClass::Normal, Record { kind: Kind(0x20), body: &body }).unwrap().end;
    log.flush(end).unwrap();
    end
}

#[test]
fn what_was_durable_when_a_scan_begins_is_found_while_others_write() {
    let devices: Vec<Arc<dyn Device>> =
        (0..3).map(|i| device_with(&format!("log {i}"), 512, 32 << 20) as Arc<dyn Device>).collect();
    let log = Log::create(devices.clone(), identity(3), Epoch(1), options()).unwrap();
    let writing = AtomicUsize::new(3);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                (0..4000).for_each(|i| _ = add(&log, i));
                writing.fetch_sub(1, Ordering::SeqCst);
            });
        }
        while writing.load(Ordering::SeqCst) > 0 {
            let until = log.durable();
            let found =
                LogScan::up_to(devices.clone(), identity(3), Lsn::FIRST, until, &mut |_, _| {}).unwrap();
            assert_eq!(found.end(), until);
            let mut records = found.records(Lsn::FIRST);
            let mut end = Lsn::FIRST;
            while let Some((lsn, record)) = records.next().unwrap() {
                assert_eq!(lsn, end);
                end = end.advance(Log::framed_len(record.body.len()));
            }
            assert_eq!(end, until);
            let error = found.open_log(Epoch(2), found.next_epoch_start(), options()).unwrap_err();
            assert_eq!(error.kind, LogErrorKind::BadArgument);
        }
    });
}

#[test]
fn a_log_on_files_comes_back() {
    let directory = tempfile::tempdir().unwrap();
    let paths: Vec<_> = (0..2).map(|i| directory.path().join(format!("log{i}"))).collect();
    let devices: Vec<Arc<dyn Device>> = paths
        .iter()
        .map(|path| {
            let device = FileDevice::create(path, &FileOptions::default()).unwrap();
            device.grow(1 << 20, Fill::Written).unwrap();
            Arc::new(device) as Arc<dyn Device>
        })
        .collect();
    let options = LogOptions { workers: true, ..options() };
    let log = Log::create(devices, identity(2), Epoch(1), options.clone()).unwrap();
    for i in 0..200 {
        add(&log, i);
    }
    let end = log.end();
    log.close().unwrap();
    drop(log);
    let devices: Vec<Arc<dyn Device>> =
        paths.iter().map(|p| Arc::new(FileDevice::open(p, &FileOptions::default()).unwrap()) as _).collect();
    let found = scan(&devices, &EPOCHS, Lsn::FIRST).unwrap();
    assert_eq!(found.end(), end);
    let start = found.next_epoch_start();
    let log = found.open_log(Epoch(2), start, options).unwrap();
    let end = add(&log, 7);
    log.close().unwrap();
    let again = scan(&devices, &[EPOCHS[0], (Epoch(2), start)], Lsn::FIRST).unwrap();
    assert_eq!(again.end(), end);
}
