//! Log that was archived before the devices had it is durable with that, and survives a crash.

use crate::support::archive_bed::{Bed, without, writer_in};
use crate::support::device_with;
use firndb_base::rng::Rng;
use firndb_base::{Epoch, Lsn};
use firndb_device::{Calls, Device, Fault, FaultPlan, FaultRule, Faulty, When};
use firndb_log::archive::{ArchiveLog, ArchiveRecords, survey};
use firndb_log::testing::{identity, memory_log, options};
use firndb_log::{ArchiveUse, Hiding, Log, LogClass, LogErrorKind, LogOptions, LogScan, LogTail, Record};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn what_is_archived_is_durable_though_no_device_has_it() {
    let mut bed = Bed::new(1);
    bed.append(&mut Rng::new(1), 10);
    let end = bed.log.end();
    assert_eq!(bed.archive(1000), end);
    assert_eq!((bed.log.durable(), bed.log.on_devices()), (end, Lsn::FIRST));
    bed.log.flush(end).unwrap();
    assert_eq!(bed.log.statistics().requests, 0, "no device was written");
    // Truncation and seals depend on the devices alone.
    bed.log.truncate(end);
    assert_eq!(bed.log.space().oldest, Lsn::FIRST);
    bed.log.flush_to_devices(end).unwrap();
    assert_eq!((bed.log.durable(), bed.log.on_devices()), (end, end));
    bed.append(&mut Rng::new(2), 300);
    assert!(bed.log.on_devices() > end, "what is archived makes no room in the buffer");
}

#[test]
fn with_two_copies_one_device_must_have_it_as_well() {
    let mut bed = Bed::new(2);
    bed.append(&mut Rng::new(1), 10);
    assert_eq!(bed.archive(1000), Lsn::FIRST, "one copy is not two");
    bed.log.flush(bed.log.end()).unwrap();
    assert_eq!(bed.log.durable(), bed.log.end(), "one device and the archive have it");
    bed.log.flush_to_devices(bed.log.end()).unwrap();
    assert_eq!(bed.log.on_devices(), bed.log.end());
}

/// Epochs of a log that end with a crash, at any moment: acknowledged log is found, once with the
/// archive, and from then on without it.
#[test]
fn what_only_the_archive_has_survives_a_crash_and_is_on_the_devices_afterwards() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let mut bed = Bed::new(1);
        let mut saved = 0;
        for life in 0..5 {
            for _ in 0..rng.between(1, 6) {
                let groups = rng.between(1, 20);
                bed.append(&mut rng, groups);
                match rng.below(3) {
                    0 => bed.log.flush(bed.log.end()).unwrap(),
                    1 => drop(bed.archive(rng.between(60, 5000) as usize)),
                    _ => {}
                }
            }
            // Before its first acknowledgement nothing of an epoch is durable but its name.
            let begun = bed.log.epoch_mark().start;
            let acknowledged = Some(bed.log.durable()).filter(|&lsn| lsn > begun).unwrap_or(Lsn::FIRST);
            // The crash: memory is lost, and a piece may have been archived that was not reported
            // yet.
            let mut bytes = Vec::new();
            if rng.one_in(2)
                && let Some(piece) = bed.tail.next_appended(700, Lsn::MAX, &mut bytes).unwrap()
            {
                bed.writer.append(piece, &bytes, 1).unwrap();
            }
            if bed.writer.end().is_none() {
                let mut bytes = Vec::new();
                bed.log.flush(bed.log.end()).unwrap();
                let piece = bed.tail.next(100, Lsn::MAX, &mut bytes).unwrap().unwrap();
                bed.writer.append(piece, &bytes, 1).unwrap();
            }
            let scan = bed.scan(true).unwrap();
            assert!(scan.end() >= acknowledged, "seed {seed}, life {life}: {} < {acknowledged}", scan.end());
            saved += u64::from(scan.from_archive() > 0);
            bed.go_on(&scan);
            assert!(bed.log.is_covered(), "what only the archive had is copied");
            let again = bed.scan(false).unwrap();
            bed.check(&again);
        }
        assert!(saved > 0 || seed % 8 != 0, "seed {seed} saved nothing");
        // The archive has the same history, without the log that crashes cut off.
        bed.archive(4000);
        let log = ArchiveLog::open(&[bed.directory.path()], None, Lsn::FIRST).unwrap();
        let mut records = ArchiveRecords::new(log, Lsn::MAX);
        let mut expected = bed.model.records.iter();
        while let Some((lsn, record)) = records.next().unwrap() {
            let (at, (kind, body)) = expected.next().expect("one too many");
            assert_eq!((lsn, record.kind, record.body), (*at, *kind, &body[..]), "seed {seed}");
        }
        assert!(expected.next().is_none() && records.gap().is_none(), "seed {seed}");
        let found = survey(bed.directory.path(), Some(&|_, _| Ok(Vec::new())), &mut |_, _| {}).unwrap();
        assert_eq!((found.damage, found.stretches.len()), (Vec::new(), 1), "seed {seed}");
    }
}

#[test]
fn log_that_only_a_lost_archive_had_is_given_up_only_if_asked() {
    let mut bed = Bed::new(1);
    let mut rng = Rng::new(3);
    bed.append(&mut rng, 10);
    bed.log.flush(bed.log.end()).unwrap();
    let kept = bed.log.end();
    bed.append(&mut rng, 10);
    let acknowledged = bed.archive(5000);
    bed.append(&mut rng, 10);
    bed.log.flush_to_devices(bed.log.end()).unwrap();
    let left = without(&bed.devices, kept..acknowledged);
    let error = bed.scan_of(left.clone(), ArchiveUse::None).unwrap_err();
    assert_eq!(error.kind, LogErrorKind::Damaged, "a block says that the log was durable: {error}");
    let given_up = bed.scan_of(left.clone(), ArchiveUse::Lost(kept)).unwrap();
    // The block that holds `kept` was left as it is.
    assert!(given_up.end() < kept.advance(472), "{} {kept}", given_up.end());
    let all = bed.scan_of(left, ArchiveUse::Needed(bed.archived())).unwrap();
    assert!(all.end() >= acknowledged && all.from_archive() > 0);
    bed.model.check(&all, Lsn::FIRST);
}

#[test]
fn damage_in_the_last_part_of_the_archive_is_told_if_more_was_archived_behind_it() {
    let mut bed = Bed::new(1);
    let mut rng = Rng::new(4);
    bed.append(&mut rng, 4);
    bed.archive(1 << 20);
    bed.append(&mut rng, 4);
    bed.archive(1 << 20);
    bed.append(&mut rng, 4);
    bed.archive(1 << 20);
    let path = bed.directory.path().join("log-0000000001.firn");
    let mut bytes = std::fs::read(&path).unwrap();
    let first = u32::from_le_bytes(bytes[4096 + 12..4096 + 16].try_into().unwrap()) as usize;
    let second = 4096 + (64 + first).next_multiple_of(4096);
    bytes[second + 70] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let error = bed.scan(true).unwrap_err();
    assert_eq!(error.kind, LogErrorKind::Damaged);
    assert!(error.message.contains("durable up to LSN"), "{error}");
}

/// Commits that wait for a device that stalls are acknowledged by the archive; the device gets the
/// same log later.
#[test]
fn a_commit_does_not_wait_for_a_stalled_device_if_it_is_archived() {
    let plan = FaultPlan::new(1);
    let stall = Duration::from_secs(4);
    let inner = device_with("log", 512, 8 << 20);
    let device: Arc<dyn Device> = Arc::new(Faulty::new(inner.clone(), &plan));
    let options = LogOptions { workers: true, hiding: Hiding::Off, ..options() };
    let log = Log::create(vec![device.clone()], identity(1), Epoch(1), options).unwrap();
    log.expect_archived(true);
    let append = |body: &[u8]| {
        let record = Record { kind: firndb_log::Kind(0x30), body };
        log.append(LogClass::Normal, record).unwrap()
    };
    log.flush(append(b"first").end).unwrap();
    plan.add(FaultRule {
        calls: Calls::Writes,
        device: None,
        when: When::From(0),
        fault: Fault::Stall(stall),
    });
    let directory = tempfile::tempdir().unwrap();
    let mut writer = writer_in(directory.path());
    let mut tail = LogTail::new(log.clone(), identity(1), Lsn::FIRST);
    std::thread::scope(|scope| {
        let commits: Vec<_> = (0..4)
            .map(|i: u8| {
                scope.spawn({
                    let log = &log;
                    move || {
                        let record = Record { kind: firndb_log::Kind(0x30), body: &[i; 100] };
                        let end = log.append(LogClass::Normal, record).unwrap().end;
                        log.flush(end).unwrap();
                        log.on_devices() < end
                    }
                })
            })
            .collect();
        while log.end().since(Lsn::FIRST) < 400 {
            std::thread::yield_now();
        }
        log.wait_for_log(log.end(), Duration::from_secs(1));
        let mut waited = 0;
        while !log.is_awaited() && waited < 1000 {
            std::thread::sleep(Duration::from_millis(1));
            waited += 1;
        }
        let mut bytes = Vec::new();
        while let Some(piece) = tail.next_appended(1 << 20, Lsn::MAX, &mut bytes).unwrap() {
            writer.append(piece, &bytes, 1).unwrap();
            log.archived(tail.boundary());
        }
        // One of them may be inside the device: the log does not know yet that the device is slow.
        let early = commits.into_iter().map(|commit| commit.join().unwrap()).filter(|&early| early).count();
        assert!(early >= 3, "{early} commits were answered before the device had them");
    });
    plan.heal();
    let durable = log.durable();
    log.close().unwrap();
    assert!(log.on_devices() >= durable);
    let scan = LogScan::new(vec![inner], identity(1), Lsn::FIRST, &mut |_, _| {}).unwrap();
    assert_eq!(scan.end(), log.end());
}

/// Cause: a limit beyond the clock's range gave no deadline, and no deadline ended the wait.
/// Effect: the archiver that was to wait until there was log returned at once, again and again.
#[test]
fn a_wait_for_log_with_a_limit_beyond_the_clocks_range_lasts_until_there_is_log() {
    let log = memory_log();
    let waited_for = log.end().advance(1);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            log.wait_for_log(waited_for, Duration::MAX);
            assert!(log.end() >= waited_for, "it waited for log");
            ended.store(true, Ordering::SeqCst);
        });
        std::thread::sleep(Duration::from_millis(50));
        assert!(!ended.load(Ordering::SeqCst), "there is no log yet");
        log.append(LogClass::Normal, Record { kind: firndb_log::Kind(0x30), body: &[1; 10] }).unwrap();
    });
}
