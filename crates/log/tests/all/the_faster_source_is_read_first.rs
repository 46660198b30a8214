//! Log that the archive has, too, is read from the faster source; the archive replaces damaged log
//! of the devices. Neither makes the log longer, or shorter, than the devices indicate.

use crate::support::archive_bed::{Bed, small, without};
use crate::support::device_with;
use firndb_base::rng::Rng;
use firndb_base::{Epoch, Lsn};
use firndb_device::{Counting, Device};
use firndb_log::archive::ArchiveFiles;
use firndb_log::{ArchiveUse, LogErrorKind, LogOptions, LogScan, LogSources};
use firndb_testkit::bytes::contents;
use std::sync::Arc;

/// A log of some 300 KB, in many sections, all on the devices, of which the archive has all but the
/// last groups.
fn written(seed: u64) -> Bed {
    let mut bed = Bed::with(LogOptions { section_bytes: 32 << 10, ..small() });
    let mut rng = Rng::new(seed);
    for _ in 0..40 {
        bed.append(&mut rng, 50);
        bed.log.flush(bed.log.end()).unwrap();
        bed.archive(rng.between(2_000, 40_000) as usize);
    }
    bed.append(&mut rng, 50);
    bed.log.flush_to_devices(bed.log.end()).unwrap();
    bed
}

fn copy(bed: &Bed) -> ArchiveUse {
    ArchiveUse::Copy(ArchiveFiles::new(bed.directory.path()))
}

/// Scans. Returns the scan and the bytes that it, and reading all its records, read from the
/// devices.
fn scanned(bed: &Bed, devices: &[Arc<dyn Device>], first: Option<Lsn>) -> (LogScan, u64) {
    let counted: Vec<Arc<Counting>> =
        devices.iter().map(|device| Arc::new(Counting::new(device.clone()))).collect();
    let given = counted.iter().map(|device| device.clone() as Arc<dyn Device>).collect();
    let sources = LogSources::new(given, bed.identity.clone(), Lsn::FIRST).with_archive(copy(bed));
    let scan = LogScan::find(sources.with_archive_first(first), &mut |_, _| {}).unwrap();
    bed.check(&scan);
    let read = counted.iter().map(|device| device.snapshot().reads.bytes).sum();
    (scan, read)
}

#[test]
fn a_fast_archive_is_read_and_the_devices_only_from_where_it_ends() {
    let bed = written(1);
    let archived = bed.writer.end().unwrap();
    let (scan, all) = scanned(&bed, &bed.devices, None);
    assert_eq!((scan.archive_first(), scan.from_archive()), (0, 0), "the archive was not asked");
    let (first, few) = scanned(&bed, &bed.devices, Some(Lsn::MAX));
    assert_eq!((first.end(), first.next_epoch_start()), (scan.end(), scan.next_epoch_start()));
    assert!(first.archive_first() > archived.since(Lsn::FIRST) - 1000, "{}", first.archive_first());
    assert_eq!(first.from_archive(), 0, "the devices have it all, too");
    // The rest are the newest sections, and their headers, twice.
    assert!(few * 4 < all, "{few} bytes of the devices beside {all}");
}

#[test]
fn log_from_an_lsn_on_is_read_from_the_devices_whatever_the_archive_has() {
    let bed = written(2);
    let half = Lsn(bed.log.end().0 / 2);
    let (scan, _) = scanned(&bed, &bed.devices, Some(half));
    assert!(scan.archive_first() <= half.since(Lsn::FIRST));
    assert!(scan.archive_first() > half.since(Lsn::FIRST) - 2000, "{}", scan.archive_first());
}

#[test]
fn where_the_archive_has_a_hole_the_devices_are_read_instead() {
    let bed = written(3);
    let mut files: Vec<_> =
        std::fs::read_dir(bed.directory.path()).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 4, "the archive has several segments");
    let all = scanned(&bed, &bed.devices, Some(Lsn::MAX)).0.archive_first();
    let mut last = 0;
    for file in &files[..3] {
        let whole = std::fs::read(file).unwrap();
        let mut bytes = whole.clone();
        let at = bytes.iter().rposition(|&byte| byte != 0).unwrap() / 2;
        // More than a unit, so that it is not padding alone.
        bytes[at..at + 5000].fill(0xA5);
        std::fs::write(file, &bytes).unwrap();
        let (scan, _) = scanned(&bed, &bed.devices, Some(Lsn::MAX));
        let before = scan.archive_first();
        assert!(last < before && before + 500 < all, "{file:?}: {before}");
        last = before;
        std::fs::write(file, &whole).unwrap();
    }
    // An archive that is gone, or another's, is not used.
    files.iter().for_each(|file| std::fs::write(file, b"nothing").unwrap());
    let (scan, _) = scanned(&bed, &bed.devices, Some(Lsn::MAX));
    assert_eq!(scan.archive_first(), 0);
}

/// Epochs of a log that end with a crash; after each it is read with the archive first, as far as
/// allowed, and without.
#[test]
fn over_many_lives_both_sources_tell_the_same_log() {
    let mut jumped = 0;
    for seed in 0..16 {
        let mut rng = Rng::new(seed);
        let mut bed = Bed::new(1);
        for life in 0..6 {
            let life_begins = bed.log.end();
            for _ in 0..rng.between(1, 6) {
                let groups = rng.between(1, 60);
                bed.append(&mut rng, groups);
                bed.log.flush_to_devices(bed.log.end()).unwrap();
                if rng.one_in(2) {
                    bed.archive(rng.between(60, 9000) as usize);
                }
            }
            // Appended, and lost with the crash.
            let groups = rng.below(5);
            bed.append(&mut rng, groups);
            let (scan, first) = {
                let sources = LogSources::new(bed.devices.clone(), bed.identity.clone(), Lsn::FIRST);
                let sources = sources.with_archive(copy(&bed)).with_threads(rng.one_in(2));
                let alone = LogScan::find(sources.clone(), &mut |_, _| {}).unwrap();
                (alone, LogScan::find(sources.with_archive_first(Some(Lsn::MAX)), &mut |_, _| {}).unwrap())
            };
            assert_eq!(first.end(), scan.end(), "seed {seed}, life {life}");
            assert_eq!(first.next_epoch_start(), scan.next_epoch_start(), "seed {seed}, life {life}");
            assert_eq!(first.from_archive(), 0);
            jumped += u64::from(life > 0 && first.archive_first() > life_begins.since(Lsn::FIRST));
            // Continuing after either is the same.
            let found = if rng.one_in(2) { &first } else { &scan };
            bed.go_on(found);
            bed.check(found);
        }
    }
    assert!(jumped > 15, "{jumped} archives were read over the beginning of an epoch");
}

#[test]
fn damage_on_the_devices_is_made_up_for_and_copied_to_them() {
    for seed in 0..10 {
        let mut bed = written(seed);
        let archived = bed.writer.end().unwrap();
        let mut rng = Rng::new(seed);
        let from = Lsn(rng.between(1, archived.0 - 20_000));
        let lost = from..from.advance(rng.between(500, 15_000));
        bed.devices = without(&bed.devices, lost.clone());
        let error = bed.scan(false).unwrap_err();
        assert_eq!(error.kind, LogErrorKind::Damaged, "seed {seed}: {error}");
        let (scan, _) = scanned(&bed, &bed.devices, None);
        let had = scan.from_archive();
        assert!((1..=lost.end.since(lost.start) + 1000).contains(&had), "seed {seed}: {had}");
        assert!(scan.from_archive_until() <= lost.end.advance(500), "seed {seed}");
        bed.go_on(&scan);
        assert!(bed.log.is_covered(), "what only the archive had is copied");
        // From now on the archive is not needed for it.
        bed.check(&bed.scan(false).unwrap());
    }
}

#[test]
fn damage_beyond_the_archive_is_told_as_ever() {
    let mut bed = written(4);
    let archived = bed.writer.end().unwrap();
    bed.devices = without(&bed.devices, archived.advance(500)..archived.advance(1500));
    for first in [None, Some(Lsn::MAX)] {
        let sources = LogSources::new(bed.devices.clone(), bed.identity.clone(), Lsn::FIRST);
        let sources = sources.with_archive(copy(&bed)).with_archive_first(first);
        let error = LogScan::find(sources, &mut |_, _| {}).unwrap_err();
        assert_eq!(error.kind, LogErrorKind::Damaged, "{error}");
    }
}

/// Devices that are an older copy of themselves have an older log: the archive's later log must not
/// be added to it.
#[test]
fn an_older_copy_of_the_devices_keeps_its_end() {
    let mut bed = Bed::new(1);
    let mut rng = Rng::new(7);
    bed.append(&mut rng, 200);
    bed.log.flush_to_devices(bed.log.end()).unwrap();
    bed.archive(8000);
    let end = bed.log.end();
    let older: Vec<Arc<dyn Device>> = bed
        .devices
        .iter()
        .map(|device| {
            let older = device_with("older", 512, device.len());
            older.write(0, &contents(&**device), firndb_device::Durability::Durable).unwrap();
            older as Arc<dyn Device>
        })
        .collect();
    bed.append(&mut rng, 200);
    bed.log.flush_to_devices(bed.log.end()).unwrap();
    bed.archive(8000);
    bed.model.cut(end);
    for first in [None, Some(Lsn::MAX)] {
        let (scan, _) = scanned(&bed, &older, first);
        assert_eq!((scan.end(), scan.from_archive(), scan.archive_first()), (end, 0, 0), "{first:?}");
    }
}

/// The same epoch number, begun elsewhere: a copy of the database continued by itself, and wrote
/// this archive.
#[test]
fn another_history_in_the_archive_is_not_read() {
    let mut bed = written(8);
    let scan = bed.scan(false).unwrap();
    let (end, start) = (scan.end(), scan.next_epoch_start());
    bed.go_on(&scan);
    drop(scan);
    bed.append(&mut Rng::new(9), 100);
    bed.log.flush_to_devices(bed.log.end()).unwrap();
    bed.archive(8000);
    let ours = bed.identity.clone();
    // The other history: the devices as they were, and the epoch a little later.
    let kept: Vec<Arc<dyn Device>> = without(&bed.devices, start..Lsn::MAX);
    bed.devices = kept;
    bed.identity.epochs.pop();
    let scan = bed.scan(false).unwrap();
    assert_eq!(scan.end(), end);
    let later = Lsn(scan.next_epoch_start().0 + 472 * 8);
    bed.identity.epochs.push((Epoch(2), later));
    bed.log = scan.open_log(Epoch(2), later, bed.options.clone()).unwrap();
    bed.model.cut(end);
    bed.append(&mut Rng::new(10), 100);
    bed.log.flush_to_devices(bed.log.end()).unwrap();
    assert_ne!(ours.epochs, bed.identity.epochs);
    let (scan, _) = scanned(&bed, &bed.devices, Some(Lsn::MAX));
    assert!(scan.archive_first() <= end.since(Lsn::FIRST));
    assert_eq!(scan.end(), bed.log.end());
}
