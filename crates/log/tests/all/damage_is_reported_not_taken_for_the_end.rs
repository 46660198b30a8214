//! Missing log that was durable is reported with its LSN; where log was not acknowledged, the log
//! ends.

use crate::support::{device_with, identity_with, log_blocks, scan};
use firndb_base::{DatabaseId, Epoch, Lsn};
use firndb_device::{Device, Durability};
use firndb_log::testing::{identity, options};
use firndb_log::{Kind, Log, LogClass, LogErrorKind, LogIdentity, LogOptions, LogScan, MemberId, Record};
use firndb_testkit::bytes::contents;
use std::sync::Arc;
use std::time::{Duration, Instant};

const EPOCHS: [(Epoch, Lsn); 1] = [(Epoch(1), Lsn::FIRST)];

fn devices(count: usize) -> Vec<Arc<dyn Device>> {
    (0..count).map(|i| device_with(&format!("log {i}"), 512, 256 << 10) as Arc<dyn Device>).collect()
}

fn create(devices: &[Arc<dyn Device>]) -> Arc<Log> {
    Log::create(devices.to_vec(), identity(devices.len() as u32), Epoch(1), options()).unwrap()
}

fn add(log: &Log, len: usize) -> Lsn {
    let end = log.append(LogClass::Normal, Record { kind: Kind(0x20), body: &vec![5; len] }).unwrap().end;
    log.flush(end).unwrap();
    end
}

fn spoil(device: &dyn Device, offset: usize) {
    device.write(offset as u64, &[0xee; 512], Durability::Later).unwrap();
}

/// The block with the highest LSN, and its device.
fn last_block(devices: &[Arc<dyn Device>]) -> (usize, usize) {
    let all = devices.iter().enumerate().flat_map(|(d, device)| {
        log_blocks(&contents(&**device)).into_iter().map(move |(at, lsn, fill, _)| (lsn, fill, d, at))
    });
    let (_, _, device, at) = all.max().unwrap();
    (device, at)
}

#[test]
fn a_bad_block_before_durable_log_is_damage_with_its_lsn() {
    let devices = devices(1);
    let log = create(&devices);
    for _ in 0..50 {
        add(&log, 700);
    }
    let blocks = log_blocks(&contents(&*devices[0]));
    let (at, lsn, ..) = blocks[blocks.len() / 2];
    // Every copy of that block.
    for block in blocks.iter().filter(|b| b.1 == lsn) {
        spoil(&*devices[0], block.0);
    }
    assert!(at > 1024);
    let error = scan(&devices, &EPOCHS, Lsn::FIRST).unwrap_err();
    assert_eq!(error.kind, LogErrorKind::Damaged);
    let named: u64 = error.message.split("LSN ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(named <= lsn.0 && named + 1500 > lsn.0, "{error}");
    // A start behind the damage is fine.
    let later = blocks.iter().map(|b| b.1).find(|l| l.0 > lsn.0 + 5000).unwrap();
    let record = (0..).map(|i| Lsn(4096 + 706 * i)).find(|l| *l > later).unwrap();
    assert_eq!(scan(&devices, &EPOCHS, record).unwrap().end(), log.end());
}

#[test]
fn the_unpromised_last_request_is_the_end_and_a_seal_promises_it() {
    for (sealed, count) in [(false, 1), (true, 2), (false, 3), (true, 3)] {
        let devices = devices(count);
        let log = create(&devices);
        let before = add(&log, 900);
        let end = add(&log, 900);
        let (device, at) = last_block(&devices);
        if sealed {
            log.close().unwrap();
        }
        spoil(&*devices[device], at);
        // Its other blocks go, too: the whole write was lost.
        for (at, lsn, _, _) in log_blocks(&contents(&*devices[device])) {
            if lsn.0 + 472 > before.0 {
                spoil(&*devices[device], at);
            }
        }
        let found = scan(&devices, &EPOCHS, Lsn::FIRST);
        if sealed {
            let error = found.unwrap_err();
            assert_eq!(error.kind, LogErrorKind::Damaged);
            assert!(error.message.contains(&end.0.to_string()), "{error}");
        } else {
            assert!(found.unwrap().end() <= before);
        }
    }
}

/// Cause: a seal needs all log to be durable, and background work appends records that no thread
/// waits for. Effect: the log was never sealed, and no block recorded that the last commit was
/// durable. Fix: an idle log is flushed.
#[test]
fn an_idle_log_is_sealed_though_its_end_was_not_waited_for() {
    let devices = devices(2);
    let options = LogOptions { workers: true, seal_after: Duration::from_millis(10), ..options() };
    let log = Log::create(devices, identity(2), Epoch(1), options).unwrap();
    add(&log, 900);
    log.append(LogClass::Normal, Record { kind: Kind(0x20), body: &[6; 40] }).unwrap();
    let began = Instant::now();
    while log.durable() < log.end() || log.statistics().seals == 0 {
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", log.statistics());
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_later_request_that_survives_a_lost_one_is_not_log() {
    // Device 0 never writes its second request; device 1 writes later log.
    let devices = devices(2);
    let log = create(&devices);
    let first = add(&log, 100);
    let second = add(&log, 2000);
    let third = add(&log, 2000);
    drop(log);
    // As if the second had still been in flight when the third was written: no block may claim it.
    for (d, device) in devices.iter().enumerate() {
        for (at, lsn, _, _) in log_blocks(&contents(&**device)) {
            let bytes = contents(&**device);
            let mut block = bytes[at..at + 512].to_vec();
            let durable = u64::from_le_bytes(block[32..40].try_into().unwrap());
            if durable == second.0 {
                block[32..40].copy_from_slice(&first.0.to_le_bytes());
                let crc = firndb_base::crc32c(&block[4..]);
                block[..4].copy_from_slice(&crc.to_le_bytes());
                device.write(at as u64, &block, Durability::Later).unwrap();
            } else if durable == first.0 && lsn.0 > first.0 {
                spoil(&**device, at);
            }
        }
        assert!(d < 2);
    }
    let found = scan(&devices, &EPOCHS, Lsn::FIRST).unwrap();
    assert_eq!(found.end(), first);
    assert!(found.next_epoch_start() >= third, "past what the ghost could claim");
    let start = found.next_epoch_start();
    let log = found.open_log(Epoch(2), start, options()).unwrap();
    log.flush(log.end()).unwrap();
    let epochs = [EPOCHS[0], (Epoch(2), start)];
    let again = scan(&devices, &epochs, Lsn::FIRST).unwrap();
    let mut records = again.records(Lsn::FIRST);
    assert_eq!(records.next().unwrap().unwrap().0, Lsn::FIRST);
    assert!(records.next().unwrap().is_none(), "ghosts stay away");
}

#[test]
fn an_epoch_that_wrote_nothing_is_skipped() {
    let devices = devices(2);
    let log = create(&devices);
    let end = add(&log, 1000);
    drop(log);
    let mut epochs = EPOCHS.to_vec();
    for epoch in 2..5 {
        let found = scan(&devices, &epochs, Lsn::FIRST).unwrap();
        assert_eq!(found.end(), end);
        epochs.push((Epoch(epoch), found.next_epoch_start()));
    }
    let found = scan(&devices, &epochs, Lsn::FIRST).unwrap();
    let log = found.open_log(Epoch(9), found.next_epoch_start(), options()).unwrap();
    epochs.push((Epoch(9), found.next_epoch_start()));
    let end = add(&log, 10);
    assert_eq!(scan(&devices, &epochs, Lsn::FIRST).unwrap().end(), end);
    assert_eq!(scan(&devices, &epochs, epochs[4].1).unwrap().end(), end);
}

#[test]
fn missing_foreign_and_swapped_devices_are_named() {
    let three = devices(3);
    let log = create(&three);
    add(&log, 1000);
    let check = |given: Vec<Arc<dyn Device>>, identity: LogIdentity, words: &[&str]| {
        let error = LogScan::new(given, identity, Lsn::FIRST, &mut |_, _| {}).unwrap_err();
        assert_eq!(error.kind, LogErrorKind::Damaged);
        assert!(words.iter().all(|w| error.message.contains(w)), "{error}");
    };
    let blank = device_with("blank", 512, 256 << 10) as Arc<dyn Device>;
    check(vec![three[0].clone(), blank, three[2].clone()], identity(3), &["blank", "not a log device"]);
    let swapped = vec![three[1].clone(), three[0].clone(), three[2].clone()];
    check(swapped, identity(3), &["log 1", "member 1", "member 0"]);
    let other = LogIdentity { database: DatabaseId([9; 16]), ..identity(3) };
    check(three.clone(), other, &["log 0", "database"]);
    let renamed = LogIdentity { members: vec![MemberId(7), MemberId(1), MemberId(2)], ..identity(3) };
    check(three.clone(), renamed, &["log 0", "member 7"]);
}

#[test]
fn an_old_superblock_is_noticed_by_blocks_of_an_unknown_epoch() {
    let devices = devices(1);
    let log = create(&devices);
    add(&log, 10);
    let found = scan(&devices, &EPOCHS, Lsn::FIRST).unwrap();
    let log = found.open_log(Epoch(2), found.next_epoch_start(), options()).unwrap();
    add(&log, 10);
    let error = scan(&devices, &EPOCHS, Lsn::FIRST).unwrap_err();
    assert!(error.kind == LogErrorKind::Damaged && error.message.contains("superblock"), "{error}");
}

#[test]
fn either_copy_of_the_member_header_is_enough() {
    for block in [512, 4096] {
        for copy in 0..2 {
            let device = device_with("log", block, 512 << 10) as Arc<dyn Device>;
            let log = create(std::slice::from_ref(&device));
            let end = add(&log, 10);
            device.write((copy * block) as u64, &vec![1; block], Durability::Later).unwrap();
            assert_eq!(scan(&[device], &EPOCHS, Lsn::FIRST).unwrap().end(), end);
        }
    }
}

#[test]
fn a_bad_section_header_hides_no_log() {
    let device = device_with("log", 512, 64 << 10) as Arc<dyn Device>;
    let small = LogOptions { section_bytes: 4096, ..options() };
    let log = Log::create(vec![device.clone()], identity(1), Epoch(1), small).unwrap();
    for _ in 0..40 {
        add(&log, 300);
    }
    let (end, whole) = (log.end(), contents(&*device));
    let headers: Vec<usize> = whole
        .chunks_exact(512)
        .enumerate()
        .filter(|(_, b)| b[4..6] == [0x46, 0x4c] && b[6] == 2)
        .map(|(i, _)| i * 512)
        .collect();
    assert!(headers.len() > 10);
    for header in headers {
        spoil(&*device, header);
        let found = scan(std::slice::from_ref(&device), &EPOCHS, Lsn::FIRST).unwrap();
        assert_eq!(found.end(), end);
        // And the log can continue from there.
        let start = found.next_epoch_start();
        let log = found.open_log(Epoch(2), start, options()).unwrap();
        let more = add(&log, 100);
        let epochs = [EPOCHS[0], (Epoch(2), start)];
        assert_eq!(scan(std::slice::from_ref(&device), &epochs, Lsn::FIRST).unwrap().end(), more);
        device.write(0, &whole, Durability::Later).unwrap();
    }
}

#[test]
fn a_foreign_log_with_the_same_members_leaves_nothing_behind() {
    let devices = devices(1);
    let log = create(&devices);
    for _ in 0..20 {
        add(&log, 3000);
    }
    let fresh = LogIdentity { database: DatabaseId(*b"another database"), ..identity_with(1, &EPOCHS) };
    let log = Log::create(devices.clone(), fresh.clone(), Epoch(1), options()).unwrap();
    let end = add(&log, 10);
    let found = LogScan::new(devices, fresh, Lsn::FIRST, &mut |_, _| {}).unwrap();
    assert_eq!(found.end(), end);
}

#[test]
fn a_section_of_which_only_the_header_survived_does_not_hide_what_follows() {
    let device = device_with("log", 512, 64 << 10) as Arc<dyn Device>;
    let small = LogOptions { section_bytes: 2048, ..options() };
    let log = Log::create(vec![device.clone()], identity(1), Epoch(1), small).unwrap();
    let first = add(&log, 100);
    // One request: the rest of the first section, the second's header, and two blocks behind it.
    add(&log, 1500);
    drop(log);
    for (at, lsn, ..) in log_blocks(&contents(&*device)) {
        if lsn.0 + 472 > first.0 && at > 1536 {
            spoil(&*device, at);
        }
    }
    let found = scan(std::slice::from_ref(&device), &EPOCHS, Lsn::FIRST).unwrap();
    assert_eq!(found.end(), first);
    let start = found.next_epoch_start();
    let log = found.open_log(Epoch(2), start, options()).unwrap();
    let end = add(&log, 100);
    assert_eq!(scan(&[device], &[EPOCHS[0], (Epoch(2), start)], Lsn::FIRST).unwrap().end(), end);
}
