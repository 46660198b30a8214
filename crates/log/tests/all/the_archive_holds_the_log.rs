//! The archive equals the log, byte for byte; missing and damaged log is reported by its LSN.

use crate::support::Model;
use crate::support::archive_bed::{Bed, writer_in};
use firndb_base::Lsn;
use firndb_base::rng::Rng;
use firndb_device::{
    Calls, Counting, CrashPlan, Device, DeviceErrorKind, Fault, FaultPlan, FaultRule, Faulty, MemoryDevice,
    Survival, When,
};
use firndb_log::archive::{
    ArchiveFiles, ArchiveLog, ArchiveRecords, ArchiveWriter, Next, SEGMENT_BYTES_MIN, survey,
};
use firndb_log::testing::identity;
use firndb_log::{ArchiveUse, LogErrorKind, LogTail};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Archives all that is durable.
fn drain(tail: &mut LogTail, writer: &mut ArchiveWriter, max: usize, now_us: u64) {
    let mut bytes = Vec::new();
    while let Some(piece) = tail.next(max, Lsn::MAX, &mut bytes).unwrap() {
        writer.append(piece, &bytes, now_us).unwrap();
        assert_eq!((writer.end(), writer.resume()), (Some(tail.pos()), Some(tail.needed())));
    }
}

/// Asserts that the archive delivers exactly the model's groups that end in `from..=until`.
fn check(directory: &Path, model: &Model, from: Lsn, until: Lsn) -> Lsn {
    let log = ArchiveLog::open(&[directory], None, from).unwrap();
    let mut records = ArchiveRecords::new(log, until);
    let last = model.ends.iter().copied().filter(|&end| end <= until).max().unwrap_or(from);
    let mut expected = model.records.range(from..last);
    while let Some((lsn, record)) = records.next().unwrap() {
        let (at, (kind, body)) = expected.next().unwrap_or_else(|| panic!("{lsn:?} is one too many"));
        assert_eq!((lsn, record.kind, record.body), (*at, *kind, &body[..]));
    }
    assert_eq!(expected.next().map(|(lsn, _)| *lsn), None, "records are missing");
    records.end()
}

#[test]
fn every_record_of_every_epoch_is_there_up_to_any_lsn() {
    for seed in 0..4 {
        let directory = tempfile::tempdir().unwrap();
        let mut rng = Rng::new(seed);
        let mut bed = Bed::new(1);
        let mut now = 1_000_000;
        for life in 0..4 {
            let mut archive = writer_in(directory.path());
            let mut tail = bed.tail_from(archive.end().unwrap_or(Lsn::FIRST));
            for _ in 0..4 {
                let groups = rng.between(1, 40);
                bed.append_durably(&mut rng, groups);
                // A clock that goes backwards now and then.
                now = now + 1000 - rng.below(1500);
                drain(&mut tail, &mut archive, rng.between(100, 9000) as usize, now);
            }
            if rng.one_in(2) {
                archive.seal().unwrap();
            }
            // Some log of the older epoch that is archived only in the next one.
            bed.append_durably(&mut rng, life);
            bed.crash();
        }
        let mut archive = writer_in(directory.path());
        drain(&mut bed.tail_from(archive.end().unwrap()), &mut archive, 4096, now);
        check(directory.path(), &bed.model, Lsn::FIRST, Lsn::MAX);
        for _ in 0..40 {
            let ends = &bed.model.ends;
            let (a, b) =
                (ends[rng.below(ends.len() as u64) as usize], ends[rng.below(ends.len() as u64) as usize]);
            // An LSN within a group ends before it.
            check(directory.path(), &bed.model, a.min(b), Lsn(a.max(b).0 + rng.below(3)));
        }
        let found = survey(directory.path(), Some(&|_, _| Ok(Vec::new())), &mut |_, _| {}).unwrap();
        assert_eq!(found.damage, Vec::<String>::new());
        assert_eq!(found.stretches.len(), 1);
        assert_eq!(found.stretches[0].0, Lsn::FIRST);
        assert_eq!(found.records, bed.model.records.len() as u64);
        assert!(found.segments.len() > 3);
        assert!(found.segments.is_sorted_by_key(|segment| segment.times_us), "times never go backwards");
    }
}

#[test]
fn a_tail_delivers_the_same_bytes_from_the_buffer_and_from_the_devices() {
    let mut rng = Rng::new(9);
    let mut bed = Bed::new(1);
    let mut near = bed.tail_from(Lsn::FIRST);
    let mut stream = Vec::new();
    let mut bytes = Vec::new();
    for _ in 0..50 {
        bed.append_durably(&mut rng, 20);
        while let Some(piece) = near.next(1000, Lsn::MAX, &mut bytes).unwrap() {
            assert_eq!(piece.first.since(Lsn::FIRST) as usize, stream.len());
            stream.extend_from_slice(&bytes);
        }
    }
    assert!(stream.len() > 64 << 10, "more than the buffer holds");
    let mut far = bed.tail_from(Lsn::FIRST);
    let mut again = Vec::new();
    while far.next(777, Lsn::MAX, &mut bytes).unwrap().is_some() {
        again.extend_from_slice(&bytes);
    }
    assert!(stream == again);
    assert_eq!((far.behind(), far.pos()), (0, bed.log.durable()));
}

/// Cause: the log before the current epoch was followed by scanning the devices, while they took
/// commits. Effect: the scan took so long that newer log left the buffer, and had to be scanned,
/// too.
#[test]
fn what_recovery_has_read_is_followed_without_a_read_of_the_devices() {
    for seed in 0..6 {
        let (mut rng, mut bed) = (Rng::new(seed), Bed::new(1));
        for _ in 0..3 {
            bed.append_durably(&mut rng, 60);
            bed.crash();
        }
        bed.append_durably(&mut rng, 60);
        let counted: Vec<_> =
            bed.devices.iter().map(|device| Arc::new(Counting::new(device.clone()))).collect();
        let reads = || counted.iter().map(|device| device.snapshot().reads.ops).sum::<u64>();
        let devices = counted.iter().map(|device| device.clone() as Arc<dyn Device>).collect();
        let scan = bed.scan_of(devices, ArchiveUse::None).unwrap();
        // From a record's LSN, or from where an epoch ended.
        let ends = &bed.model.ends;
        let from = if seed == 0 { Lsn::FIRST } else { ends[rng.below(ends.len() as u64) as usize] };
        let len = scan.end().since(from) as usize;
        assert!(scan.read_log(from, len - 1).unwrap().is_none(), "it is more than that");
        let read = scan.read_log(from, len).unwrap().unwrap();
        bed.go_on(&scan);
        let read_before = reads();
        bed.append(&mut rng, 10);
        bed.log.flush(bed.log.end()).unwrap();
        let mut near = bed.tail_from(from).with_read(read);
        let mut far = bed.tail_from(from);
        let (mut pieces, mut bytes) = (Vec::new(), Vec::new());
        while let Some(piece) = near.next(rng.between(100, 9000) as usize, Lsn::MAX, &mut bytes).unwrap() {
            pieces.push((piece.mark, piece.first, bytes.clone()));
        }
        assert_eq!(reads(), read_before, "seed {seed}: the devices were read");
        assert_eq!((near.pos(), near.behind()), (bed.log.durable(), 0));
        // The same as from the devices, however it is cut.
        let mut pieces = pieces.into_iter().flat_map(|(mark, first, bytes)| {
            (first.0..).zip(bytes).map(move |(lsn, byte)| (mark.epoch, lsn, byte))
        });
        while let Some(piece) = far.next(777, Lsn::MAX, &mut bytes).unwrap() {
            for (lsn, &byte) in (piece.first.0..).zip(&bytes) {
                assert_eq!(pieces.next(), Some((piece.mark.epoch, lsn, byte)), "seed {seed}");
            }
        }
        assert_eq!(pieces.next(), None);
    }
}

#[test]
fn another_databases_archive_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut bed = Bed::new(1);
    bed.append_durably(&mut Rng::new(1), 5);
    drain(&mut bed.tail_from(Lsn::FIRST), &mut writer_in(directory.path()), 4096, 1);
    let other = firndb_base::DatabaseId([3; 16]);
    let error =
        ArchiveWriter::open(ArchiveFiles::new(directory.path()), other, SEGMENT_BYTES_MIN).unwrap_err();
    assert_eq!(error.kind, LogErrorKind::BadArgument);
    assert!(error.message.contains("a directory of its own"), "{error}");
    let error = ArchiveLog::open(&[directory.path()], Some(other), Lsn::FIRST).unwrap_err();
    assert_eq!(error.kind, LogErrorKind::BadArgument);
}

/// Where each chunk lies, by flipping: every acknowledged byte is either there or reported.
#[test]
fn damaged_and_cut_segments_are_reported_with_the_lsn_and_never_shorten_the_archive_silently() {
    let directory = tempfile::tempdir().unwrap();
    let mut rng = Rng::new(4);
    let mut bed = Bed::new(1);
    let mut archive = writer_in(directory.path());
    let mut tail = bed.tail_from(Lsn::FIRST);
    for _ in 0..60 {
        bed.append_durably(&mut rng, 4);
        drain(&mut tail, &mut archive, 4096, 1);
    }
    archive.seal().unwrap();
    let whole = survey(directory.path(), Some(&|_, _| Ok(Vec::new())), &mut |_, _| {}).unwrap();
    assert!(whole.segments.len() >= 4 && whole.damage.is_empty());
    let end = whole.stretches[0].1;
    for (place, segment) in whole.segments.iter().enumerate() {
        let last = place + 1 == whole.segments.len();
        let bytes = std::fs::read(&segment.path).unwrap();
        for _ in 0..12 {
            let mut broken = bytes.clone();
            let at = rng.below(bytes.len() as u64) as usize;
            let cut = rng.one_in(3);
            if cut {
                broken.truncate(at / 512 * 512);
            } else {
                broken[at] ^= 1 << rng.below(8);
            }
            std::fs::write(&segment.path, &broken).unwrap();
            let found = survey(directory.path(), Some(&|_, _| Ok(Vec::new())), &mut |_, _| {}).unwrap();
            let intact = found.stretches == whole.stretches && found.records == whole.records;
            let sealed = found.segments.iter().all(|segment| segment.sealed)
                && found.segments.len() == whole.segments.len();
            // In the newest segment a cut end looks like a crash, unless it is sealed.
            assert!(
                intact || !found.damage.is_empty() || (last && !sealed),
                "segment {place}, byte {at}, cut {cut}: {:?}",
                found.stretches
            );
            // Delivered log is correct, up to a gap that is reported.
            let log = ArchiveLog::open(&[directory.path()], None, Lsn::FIRST);
            let mut records = ArchiveRecords::new(log.unwrap(), Lsn::MAX);
            while let Some((lsn, record)) = records.next().unwrap() {
                assert_eq!(record.body, &bed.model.records[&lsn].1[..]);
            }
            if records.end() < end && !last {
                assert!(records.gap().is_some_and(|gap| gap > records.end()));
            }
        }
        std::fs::write(&segment.path, &bytes).unwrap();
    }
}

/// A writer that finds its newest segment damaged archives from there again.
#[test]
fn what_is_damaged_in_the_newest_segment_is_archived_once_more() {
    let directory = tempfile::tempdir().unwrap();
    let mut rng = Rng::new(5);
    let mut bed = Bed::new(1);
    let mut archive = ArchiveWriter::open(
        ArchiveFiles::new(directory.path()),
        identity(1).database,
        16 * SEGMENT_BYTES_MIN,
    )
    .unwrap();
    bed.append_durably(&mut rng, 60);
    drain(&mut bed.tail_from(Lsn::FIRST), &mut archive, 4096, 1);
    drop(archive);
    let path = directory.path().join("log-0000000001.firn");
    let mut bytes = std::fs::read(&path).unwrap();
    // A byte of the second chunk's payload.
    let len = u32::from_le_bytes(bytes[4096 + 12..4096 + 16].try_into().unwrap()) as usize;
    bytes[4096 + (64 + len).next_multiple_of(4096) + 64] ^= 4;
    std::fs::write(&path, &bytes).unwrap();
    let mut archive = writer_in(directory.path());
    assert!(archive.end().unwrap() < bed.log.durable());
    drain(&mut bed.tail_from(archive.end().unwrap()), &mut archive, 4096, 1);
    assert_eq!(check(directory.path(), &bed.model, Lsn::FIRST, Lsn::MAX), bed.log.durable());
}

#[test]
fn a_gap_that_was_declared_is_told_from_damage() {
    let directory = tempfile::tempdir().unwrap();
    let mut rng = Rng::new(6);
    let mut bed = Bed::new(1);
    let mut archive = writer_in(directory.path());
    bed.append_durably(&mut rng, 10);
    let mut tail = bed.tail_from(Lsn::FIRST);
    drain(&mut tail, &mut archive, 4096, 1);
    let lost_from = bed.log.durable();
    bed.append_durably(&mut rng, 10);
    let lost_to = bed.log.durable();
    tail.skip_to(lost_to);
    archive.skip_to(lost_to);
    bed.append_durably(&mut rng, 10);
    drain(&mut tail, &mut archive, 4096, 1);
    let found = survey(directory.path(), Some(&|_, _| Ok(Vec::new())), &mut |_, _| {}).unwrap();
    assert_eq!(found.stretches, [(Lsn::FIRST, lost_from), (lost_to, bed.log.durable())]);
    assert_eq!(found.damage, Vec::<String>::new(), "declared, hence no damage");
    assert_eq!(check(directory.path(), &bed.model, Lsn::FIRST, lost_from), lost_from);
    let mut log = ArchiveLog::open(&[directory.path()], None, lost_from).unwrap();
    assert_eq!(log.next_piece().unwrap(), Next::Gap(lost_to));
    check(directory.path(), &bed.model, lost_to, Lsn::MAX);
}

#[test]
fn after_a_failed_write_the_log_goes_on_in_another_segment() {
    for nth in 0..12 {
        let directory = tempfile::tempdir().unwrap();
        let plan = FaultPlan::new(nth);
        let torn = nth % 2 == 0;
        plan.add(FaultRule {
            calls: Calls::Writes,
            device: None,
            when: When::Nth(nth),
            fault: if torn {
                Fault::Torn { blocks: 1, error: Some(DeviceErrorKind::Failed) }
            } else {
                Fault::FailLate(DeviceErrorKind::Failed)
            },
        });
        let wrap_plan = plan.clone();
        let wrap: firndb_log::archive::WrapDevice =
            Arc::new(move |device| Arc::new(Faulty::new(device, &wrap_plan)) as Arc<dyn Device>);
        let files = ArchiveFiles::new(directory.path()).wrapped(Some(wrap));
        let mut archive = ArchiveWriter::open(files, identity(1).database, SEGMENT_BYTES_MIN).unwrap();
        let mut rng = Rng::new(nth);
        let mut bed = Bed::new(1);
        let mut failures = 0;
        for _ in 0..10 {
            bed.append_durably(&mut rng, 60);
            let mut tail = bed.tail_from(archive.end().unwrap_or(Lsn::FIRST));
            let mut bytes = Vec::new();
            while let Some(piece) = tail.next(6000, Lsn::MAX, &mut bytes).unwrap() {
                if archive.append(piece, &bytes, 1).is_err() {
                    failures += 1;
                    archive.rewind();
                    break;
                }
            }
        }
        let mut tail = bed.tail_from(archive.end().unwrap());
        drain(&mut tail, &mut archive, 6000, 1);
        assert!(failures > 0, "the fault was met");
        assert_eq!(check(directory.path(), &bed.model, Lsn::FIRST, Lsn::MAX), bed.log.durable());
        let found = survey(directory.path(), Some(&|_, _| Ok(Vec::new())), &mut |_, _| {}).unwrap();
        assert!(found.damage.is_empty(), "{:?}", found.damage);
    }
}

/// A power cut at every event of archiving: acknowledged log is there, and the next writer
/// continues.
#[test]
fn a_power_cut_at_any_moment_keeps_what_was_archived() {
    let directory = tempfile::tempdir().unwrap();
    let mut rng = Rng::new(8);
    let mut bed = Bed::new(1);
    let plan = CrashPlan::new();
    // Segment files as the crash plan knows them: memory devices in the order of their creation.
    let created = Arc::new(Mutex::new(0usize));
    let (wrap_plan, wrap_created) = (plan.clone(), created.clone());
    let wrap: firndb_log::archive::WrapDevice = Arc::new(move |_| {
        let memory = Arc::new(MemoryDevice::new("segment"));
        *wrap_created.lock().unwrap() += 1;
        wrap_plan.device_holding(&memory)
    });
    let files = ArchiveFiles::new(directory.path()).wrapped(Some(wrap));
    let mut archive = ArchiveWriter::open(files, identity(1).database, SEGMENT_BYTES_MIN).unwrap();
    let mut tail = bed.tail_from(Lsn::FIRST);
    let mut bytes = Vec::new();
    for _ in 0..6 {
        bed.append_durably(&mut rng, 60);
        while let Some(piece) = tail.next(5000, Lsn::MAX, &mut bytes).unwrap() {
            archive.append(piece, &bytes, 1).unwrap();
            plan.mark(archive.resume().unwrap().0);
        }
    }
    let segments = *created.lock().unwrap();
    assert!(segments >= 2);
    let mut replay = plan.replay();
    for event in 0..=plan.event_count() {
        replay.advance_to(event);
        if rng.one_in(2) {
            continue; // half of the events, which the seed chooses
        }
        let acknowledged = replay.marks().last().map_or(Lsn::FIRST, |&lsn| Lsn(lsn));
        for survival in [Survival::Everything, Survival::Sectors, Survival::Torn] {
            let image = replay.image(survival, &mut rng);
            let left = tempfile::tempdir().unwrap();
            for (i, device) in image.iter().enumerate() {
                let mut bytes = vec![0; device.len() as usize];
                if bytes.is_empty() {
                    continue; // its creation did not survive, or it is an empty file; both are met elsewhere
                }
                device.read(0, &mut bytes).unwrap();
                std::fs::write(left.path().join(format!("log-{:010}.firn", i + 1)), bytes).unwrap();
            }
            let found = writer_in(left.path());
            assert!(found.end().unwrap_or(Lsn::FIRST) >= acknowledged, "event {event}, {survival:?}");
            let mut found = found;
            let from = found.end().unwrap_or(Lsn::FIRST);
            drain(&mut bed.tail_from(from), &mut found, 9000, 1);
            assert_eq!(check(left.path(), &bed.model, Lsn::FIRST, Lsn::MAX), bed.log.durable());
        }
    }
}
