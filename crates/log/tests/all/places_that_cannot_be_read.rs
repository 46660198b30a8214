//! A place that a device cannot read is as a rotten block: copies and the archive make up for it,
//! and without them it is named with its LSN. It is never taken for the log's end.

use crate::support::bad_places::{Bed, EPOCHS, add, add_many, create, find, with_copies};
use crate::support::{self, Model, as_records, is_section_header, log_blocks, random_group, scan};
use firndb_base::rng::Rng;
use firndb_base::{Epoch, Lsn};
use firndb_device::{Device, DeviceError, Durability, FaultPlan, Faulty};
use firndb_log::testing::{identity, options};
use firndb_log::{
    ArchiveUse, Kind, LogClass, LogError, LogErrorKind, LogOptions, LogScan, LogSources, LogTail, Record,
};
use firndb_testkit::bytes::contents;
use std::sync::Arc;

fn lsn_in(error: &LogError) -> u64 {
    error.message.split("LSN ").nth(1).unwrap().split([' ', ',']).next().unwrap().parse().unwrap()
}

/// Cause: either copy of the member header was read with an error passed on. Effect: one bad
/// sector, and no opening.
#[test]
fn one_unreadable_copy_of_the_member_header_is_survived_and_mended() {
    for block in [512, 4096] {
        for copy in 0..2 {
            let bed = Bed::new(1, block, 512 << 10);
            let log = create(&bed, options());
            let end = add(&log, 10);
            drop(log);
            bed.faulty[0].make_unreadable((copy * block) as u64, 512);
            let found = scan(&bed.devices(), &EPOCHS, Lsn::FIRST).unwrap();
            assert_eq!(found.end(), end);
            assert_eq!(bed.faulty[0].unreadable_blocks(), 1, "a look changes nothing");
            let start = found.next_epoch_start();
            let log = found.open_log(Epoch(2), start, options()).unwrap();
            log.flush(log.end()).unwrap();
            assert_eq!(bed.faulty[0].unreadable_blocks(), 0, "it is mended");
            // From now on it stands in for the other one.
            bed.faulty[0].make_unreadable(((1 - copy) * block) as u64, 512);
            let epochs = [EPOCHS[0], (Epoch(2), start)];
            assert!(scan(&bed.devices(), &epochs, Lsn::FIRST).unwrap().end() > end);
        }
        // Without either it is no device of the log.
        let bed = Bed::new(1, block, 512 << 10);
        drop(create(&bed, options()));
        bed.faulty[0].make_unreadable(0, 2 * block as u64);
        let error = scan(&bed.devices(), &EPOCHS, Lsn::FIRST).unwrap_err();
        assert!(error.kind == LogErrorKind::Failed && error.message.contains("cannot be read"), "{error}");
    }
}

#[test]
fn a_damaged_copy_of_the_member_header_is_mended_too() {
    let bed = Bed::new(1, 512, 512 << 10);
    drop(create(&bed, options()));
    let whole = contents(&*bed.media[0]);
    for copy in 0..2 {
        bed.media[0].write(copy * 512, &[1; 512], Durability::Later).unwrap();
        let found = scan(&bed.devices(), &EPOCHS, Lsn::FIRST).unwrap();
        drop(found.open_log(Epoch(2), found.next_epoch_start(), options()).unwrap());
        assert!(contents(&*bed.media[0])[..1024] == whole[..1024], "copy {copy}");
    }
}

/// In a short log, and in one that is read ahead by threads.
#[test]
fn log_that_cannot_be_read_before_the_end_is_damage_with_its_lsn() {
    for (len, bytes) in [(700, 256 << 10), (60_000, 8 << 20)] {
        let bed = Bed::new(1, 512, bytes);
        let log = create(&bed, options());
        for _ in 0..50 {
            add(&log, len);
        }
        let lost = Lsn(log.end().0 / 2);
        assert!(bed.lose(lost) >= 1);
        let error = find(&bed, 1).unwrap_err();
        assert_eq!(error.kind, LogErrorKind::Damaged, "{error}");
        let named = lsn_in(&error);
        assert!(named <= lost.0 && named + len as u64 + 1000 > lost.0, "{lost}: {error}");
    }
}

#[test]
fn the_last_request_is_not_the_end_because_it_cannot_be_read() {
    for count in [1, 3] {
        let bed = Bed::new(count, 512, 256 << 10);
        let log = create(&bed, options());
        add_many(&log, 20, 300);
        let before = log.end();
        add(&log, 900);
        drop(log);
        for (device, faulty) in bed.faulty.iter().enumerate() {
            for (at, lsn, ..) in bed.blocks(device) {
                if lsn.0 + 472 > before.0 {
                    faulty.make_unreadable(at as u64, 512);
                }
            }
        }
        let error = find(&bed, 1).unwrap_err();
        assert_eq!(error.kind, LogErrorKind::Damaged, "{error}");
        assert!(lsn_in(&error) <= before.0 && lsn_in(&error) + 472 > before.0, "{before}: {error}");
        assert!(error.message.contains("bytes of log ") && error.message.contains("write zeros"), "{error}");
        // As it says: given up, it is the end.
        for faulty in &bed.faulty {
            for at in (0..faulty.len()).step_by(512) {
                if faulty.read(at, &mut [0; 512]).is_err() {
                    faulty.write(at, &[0; 512], Durability::Durable).unwrap();
                }
            }
        }
        assert!(find(&bed, 1).unwrap().end() <= before);
    }
}

/// An epoch of which no block can be read may have had one. Its first request follows what was
/// written before on its device, with nothing behind it.
#[test]
fn the_first_request_of_an_epoch_is_not_overlooked_because_it_cannot_be_read() {
    for count in [1, 2] {
        let bed = Bed::new(count, 512, 256 << 10);
        let log = create(&bed, options());
        add_many(&log, 20, 300);
        log.close().unwrap();
        let found = find(&bed, 1).unwrap();
        let (end, start) = (found.end(), found.next_epoch_start());
        let epochs = [EPOCHS[0], (Epoch(2), start)];
        let look = || {
            let identity = with_copies(count as u32, &epochs, 1);
            LogScan::new(bed.devices(), identity, Lsn::FIRST, &mut |_, _| {})
        };
        // Nothing of the epoch was written yet: it is empty, and there is no doubt.
        assert_eq!(look().unwrap().end(), end);
        let log = found.open_log(Epoch(2), start, options()).unwrap();
        let acknowledged = add(&log, 100);
        drop(log);
        assert!(end < start && look().unwrap().end() >= acknowledged);
        let mut lost = 0;
        for (device, faulty) in bed.faulty.iter().enumerate() {
            for (at, lsn, ..) in bed.blocks(device).into_iter().filter(|block| block.3 == 2) {
                assert!(lsn >= start);
                faulty.make_unreadable(at as u64, 512);
                lost += 1;
            }
        }
        assert!(lost >= 1, "the epoch has a request");
        let error = look().map(|found| found.end()).expect_err("it was acknowledged");
        assert_eq!(error.kind, LogErrorKind::Damaged, "{error}");
        assert!(lsn_in(&error) >= end.0 && lsn_in(&error) <= start.0, "{end} to {start}: {error}");
    }
}

/// The epoch's first request begins a section, whose header can be read and says that log before
/// the epoch does not go on behind it.
#[test]
fn the_first_request_of_an_epoch_is_not_overlooked_behind_the_header_of_its_section() {
    let mut begun = 0;
    for count in 1..30 {
        let bed = Bed::new(1, 512, 64 << 10);
        let options = LogOptions { section_bytes: 4096, ..options() };
        let log = create(&bed, options.clone());
        add_many(&log, count, 300);
        log.close().unwrap();
        let found = find(&bed, 1).unwrap();
        let (end, start) = (found.end(), found.next_epoch_start());
        let log = found.open_log(Epoch(2), start, options).unwrap();
        add(&log, 100);
        drop(log);
        let bytes = contents(&*bed.media[0]);
        let (at, ..) = bed.blocks(0).into_iter().find(|block| block.3 == 2).expect("the epoch has a request");
        if bytes[at - 512 + 6] != 2 {
            continue;
        }
        begun += 1;
        bed.faulty[0].make_unreadable(at as u64, 512);
        let error = scan(&bed.devices(), &[EPOCHS[0], (Epoch(2), start)], Lsn::FIRST)
            .map(|found| found.end())
            .expect_err("it was acknowledged");
        assert_eq!(error.kind, LogErrorKind::Damaged, "{error}");
        assert!(lsn_in(&error) >= end.0 && lsn_in(&error) <= start.0, "{end} to {start}: {error}");
    }
    assert!(begun >= 2, "{begun} epochs begin with a section");
}

/// What was never written, or is older than the log that is kept, is no log, readable or not; but
/// right behind the last block nothing shows that.
#[test]
fn a_bad_place_elsewhere_on_the_device_hinders_no_read() {
    let bed = Bed::new(1, 512, 256 << 10);
    let log = create(&bed, options());
    add_many(&log, 30, 300);
    let end = log.end();
    let last = log.append(LogClass::Normal, Record { kind: Kind(0x20), body: &[5; 100] }).unwrap();
    log.flush(last.end).unwrap();
    log.close().unwrap();
    drop(log);
    let (last_at, ..) = bed.blocks(0).pop().unwrap();
    let far = &bed.faulty[0];
    far.make_unreadable(last_at as u64 + 1024, 4096);
    assert_eq!(find(&bed, 1).unwrap().end(), last.end);
    // Log before the one that is asked for.
    far.make_unreadable(bed.blocks(0)[5].0 as u64, 512);
    assert_eq!(scan(&bed.devices(), &EPOCHS, end).unwrap().end(), last.end);
    // Right behind the end.
    let bed = Bed { faulty: vec![Arc::new(Faulty::new(bed.media[0].clone(), &FaultPlan::new(0)))], ..bed };
    bed.faulty[0].make_unreadable(last_at as u64 + 512, 512);
    assert_eq!(find(&bed, 1).unwrap_err().kind, LogErrorKind::Damaged);
    // If it is known that the log was closed with its last group, there is nothing.
    let sources = LogSources::new(bed.devices(), identity(1), Lsn::FIRST);
    let closed = LogScan::find(sources.clone().closed_after(Some(last.first)), &mut |_, _| {}).unwrap();
    assert_eq!(closed.end(), last.end);
    assert!(LogScan::find(sources.closed_after(Some(last.end)), &mut |_, _| {}).is_err());
}

/// Any places of one of three devices, the very last request included, and the headers of sections.
#[test]
fn what_one_device_cannot_read_is_on_another_and_is_copied() {
    let mut rng = Rng::new(5);
    let mut bad = 0;
    for round in 0..30 {
        let bed = Bed::new(3, 512, 160 << 10);
        let options = LogOptions { copies: 2, section_bytes: 8192, ..options() };
        let log = create(&bed, options.clone());
        let mut model = Model::default();
        for _ in 0..rng.between(5, 60) {
            let group = random_group(&mut rng, 900);
            let appended = log.append_group(LogClass::Normal, &as_records(&group)).unwrap();
            model.add(appended, &group);
            log.flush(appended.end).unwrap();
        }
        let end = log.end();
        drop(log);
        let spoilt = rng.below(3) as usize;
        let last = bed.blocks(spoilt).iter().max_by_key(|block| block.1).map_or(0, |block| block.0 as u64);
        // The last request included, or log before that.
        let at_end = round % 2 == 0;
        let places = 1024..if at_end { bed.media[spoilt].len() } else { last };
        for at in places.step_by(512) {
            if at == last || rng.one_in(4) {
                bed.faulty[spoilt].make_unreadable(at, 512);
            }
        }
        bad += bed.faulty[spoilt].unreadable_blocks();
        let found = find(&bed, 2).unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert_eq!(found.end(), end, "round {round}: device {spoilt} was spoilt");
        assert!(found.lost().is_empty(), "it is a device with bad places, not a lost one");
        model.check(&found, Lsn::FIRST);
        // The new epoch begins with copies of what the device cannot read: then another may go.
        let start = found.next_epoch_start();
        let log = found.open_log(Epoch(2), start, options).unwrap();
        assert!(log.is_covered());
        log.flush(log.end()).unwrap();
        drop(log);
        if at_end {
            // What comes after the new epoch might be where the device cannot be read, and on the
            // other.
            continue;
        }
        let gone = (spoilt + 1) % 3;
        let why = DeviceError::new(firndb_device::DeviceErrorKind::Failed, "unplugged");
        let mut devices = bed.devices();
        devices[gone] = Arc::new(firndb_device::AbsentDevice::new("log", why));
        let mut identity = with_copies(3, &[EPOCHS[0], (Epoch(2), start)], 2);
        identity.redundancy.set_from(start, 2);
        let again = LogScan::new(devices, identity, Lsn::FIRST, &mut |_, _| {});
        let again = again.unwrap_or_else(|error| panic!("round {round}, without {gone} as well: {error}"));
        assert!(again.end() > end);
    }
    assert!(bad > 1000);
}

/// A device with too many bad places is as one that is gone.
#[test]
fn a_device_that_can_hardly_be_read_is_lost() {
    let bed = Bed::new(2, 512, 1 << 20);
    let log = create(&bed, LogOptions { copies: 2, ..options() });
    add_many(&log, 40, 9000);
    let end = log.end();
    drop(log);
    for (at, ..) in bed.blocks(0) {
        bed.faulty[0].make_unreadable(at as u64, 512);
    }
    let found = find(&bed, 2).unwrap();
    assert_eq!((found.end(), found.lost().len()), (end, 1));
    let error = find(&bed, 1).unwrap_err();
    assert!(error.kind == LogErrorKind::Failed && error.message.contains("places"), "{error}");
}

#[test]
fn unreadable_section_headers_hide_no_log() {
    let bed = Bed::new(1, 512, 64 << 10);
    let log = create(&bed, LogOptions { section_bytes: 4096, ..options() });
    add_many(&log, 40, 300);
    let end = log.end();
    drop(log);
    let bytes = contents(&*bed.media[0]);
    let headers: Vec<usize> =
        (0..bytes.len()).step_by(512).filter(|&at| is_section_header(&bytes[at..])).collect();
    assert!(headers.len() > 10);
    // One of them, or several that follow one another: then no header tells that there are newer
    // sections.
    for together in 1..4 {
        for bad in headers.windows(together) {
            let faulty = Arc::new(Faulty::new(bed.media[0].clone(), &FaultPlan::new(0)));
            bad.iter().for_each(|&at| faulty.make_unreadable(at as u64, 512));
            let found = scan(&[faulty as Arc<dyn Device>], &EPOCHS, Lsn::FIRST).unwrap();
            assert_eq!(found.end(), end, "headers at {bad:?}");
        }
    }
}

#[test]
fn the_archive_makes_up_for_places_that_cannot_be_read() {
    let mut rng = Rng::new(3);
    let mut bed = support::archive_bed::Bed::new(1);
    let faulty: Vec<Arc<Faulty>> =
        bed.devices.iter().map(|d| Arc::new(Faulty::new(d.clone(), &FaultPlan::new(0)))).collect();
    bed.append(&mut rng, 300);
    bed.log.flush_to_devices(bed.log.end()).unwrap();
    bed.archive(8000);
    let lost = bed.log.end().0 / 2;
    for (device, faulty) in bed.devices.iter().zip(&faulty) {
        for (at, lsn, ..) in log_blocks(&contents(&**device)) {
            if (lost..lost + 5000).contains(&lsn.0) {
                faulty.make_unreadable(at as u64, 512);
            }
        }
    }
    let devices: Vec<Arc<dyn Device>> = faulty.iter().map(|d| d.clone() as Arc<dyn Device>).collect();
    let error = bed.scan_of(devices.clone(), ArchiveUse::None).unwrap_err();
    assert_eq!(error.kind, LogErrorKind::Damaged, "{error}");
    let files = firndb_log::archive::ArchiveFiles::new(bed.directory.path());
    let found = bed.scan_of(devices, ArchiveUse::Copy(files)).unwrap();
    assert_eq!(found.end(), bed.log.end());
    assert!(found.from_archive() >= 5000 - 472, "{}", found.from_archive());
    bed.check(&found);
}

/// What feeds the archive and backups reads an open log in the same way.
#[test]
fn an_open_log_is_read_around_bad_places() {
    for copies in [1, 2] {
        let bed = Bed::new(2, 512, 1 << 20);
        let small = LogOptions { copies, buffer_bytes: 16 << 10, request_bytes: 4096, ..options() };
        let log = create(&bed, small);
        add_many(&log, 100, 900);
        let lost = 20_000;
        // With copies, those on one of the devices.
        let holds = |b: &(usize, Lsn, u16, u32)| b.1.0 <= lost && lost < b.1.0 + 472;
        let holder = (0..2).find(|&device| bed.blocks(device).iter().any(holds)).unwrap();
        for device in if copies == 2 { holder..holder + 1 } else { 0..2 } {
            for (at, ..) in bed.blocks(device).into_iter().filter(holds) {
                bed.faulty[device].make_unreadable(at as u64, 512);
            }
        }
        let mut tail = LogTail::new(log.clone(), with_copies(2, &EPOCHS, copies), Lsn::FIRST);
        let (mut bytes, mut read) = (Vec::new(), 0);
        let outcome = loop {
            match tail.next(4000, Lsn::MAX, &mut bytes) {
                Ok(Some(_)) => read += bytes.len() as u64,
                other => break other.map(drop),
            }
        };
        match copies {
            2 => assert_eq!((outcome, read), (Ok(()), log.end().since(Lsn::FIRST))),
            _ => assert_eq!(outcome.unwrap_err().kind, LogErrorKind::Damaged),
        }
    }
}
