//! A place that a device cannot read is as a rotten block: copies and the archive make up for it, and without them it is
//! named with its LSN. It is never taken for the log's end, and neither are bytes that one read spoilt.

use crate::support;
use crate::support::{Model, as_records, contents, identity_with, log_blocks, random_group, scan};
use firndb_base::rng::Rng;
use firndb_base::sync::atomic::{AtomicBool, Ordering};
use firndb_base::{Epoch, Lsn};
use firndb_device::{Device, DeviceError, Durability, FaultPlan, Faulty, Fill, MemoryDevice};
use firndb_log::testing::{identity, options};
use firndb_log::{
    ArchiveUse, KeptReads, Kind, Log, LogClass, LogError, LogErrorKind, LogIdentity, LogOptions, LogScan,
    LogSources, LogTail, Record, Redundancy,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

const EPOCHS: [(Epoch, Lsn); 1] = [(Epoch(1), Lsn::FIRST)];

/// Devices of which places can be made unreadable, and what is beneath them.
struct Bed {
    media: Vec<Arc<MemoryDevice>>,
    faulty: Vec<Arc<Faulty>>,
}

impl Bed {
    fn new(count: usize, block: usize, bytes: u64) -> Bed {
        let media: Vec<Arc<MemoryDevice>> = (0..count)
            .map(|i| {
                let device = MemoryDevice::with(&format!("log {i}"), block, u64::MAX);
                device.grow(bytes, Fill::Written).unwrap();
                Arc::new(device)
            })
            .collect();
        let faulty = media.iter().map(|d| Arc::new(Faulty::new(d.clone(), &FaultPlan::new(0)))).collect();
        Bed { media, faulty }
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.faulty.iter().map(|device| device.clone() as Arc<dyn Device>).collect()
    }

    /// The log blocks of a device: offset, LSN, fill, epoch.
    fn blocks(&self, device: usize) -> Vec<(usize, Lsn, u16, u32)> {
        log_blocks(&contents(&*self.media[device]))
    }

    /// Makes all blocks unreadable that hold `lsn`, and answers how many.
    fn lose(&self, lsn: Lsn) -> usize {
        let mut lost = 0;
        for (device, faulty) in self.faulty.iter().enumerate() {
            for (at, ..) in self.blocks(device).into_iter().filter(|b| b.1.0 <= lsn.0 && lsn.0 < b.1.0 + 472)
            {
                faulty.make_unreadable(at as u64, 512);
                lost += 1;
            }
        }
        lost
    }
}

fn create(bed: &Bed, options: LogOptions) -> Arc<Log> {
    let identity = with_copies(bed.media.len() as u32, &EPOCHS, options.copies);
    Log::create(bed.devices(), identity, Epoch(1), options).unwrap()
}

fn with_copies(members: u32, epochs: &[(Epoch, Lsn)], copies: usize) -> LogIdentity {
    let redundancy =
        if copies > 1 { Redundancy::since(Lsn::FIRST, copies as u8) } else { Redundancy::default() };
    LogIdentity { redundancy, ..identity_with(members, epochs) }
}

fn find(bed: &Bed, copies: usize) -> Result<LogScan, LogError> {
    let identity = with_copies(bed.media.len() as u32, &EPOCHS, copies);
    LogScan::new(bed.devices(), identity, Lsn::FIRST, &mut |_, _| {})
}

fn add(log: &Log, len: usize) -> Lsn {
    let end = log.append(LogClass::Normal, Record { kind: Kind(0x20), body: &vec![5; len] }).unwrap().end;
    log.flush(end).unwrap();
    end
}

fn add_many(log: &Log, count: usize, len: usize) {
    (0..count).for_each(|_| {
        add(log, len);
    });
}

fn lsn_in(error: &LogError) -> u64 {
    error.message.split("LSN ").nth(1).unwrap().split([' ', ',']).next().unwrap().parse().unwrap()
}

/// Cause: either copy of the member header was read with an error passed on. Effect: one bad sector, and no opening.
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

/// An epoch of which no block can be read may have had one. Its first request follows what was written before on its device, with
/// nothing behind it.
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

/// What was never written, or is older than the log that is kept, is no log, readable or not; but right behind the last
/// block nothing shows that.
#[test]
fn a_bad_place_elsewhere_on_the_device_is_in_nobodys_way() {
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
            // What comes after the new epoch might be where the device cannot be read, and on the other.
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
    let header = |b: &(usize, &[u8])| b.1[4..6] == [0x46, 0x4c] && b.1[6] == 2;
    let headers: Vec<usize> =
        bytes.chunks_exact(512).enumerate().filter(header).map(|(i, _)| i * 512).collect();
    assert!(headers.len() > 10);
    // One of them, or several that follow one another: then no header tells that there are newer sections.
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

/// Spoils what is read of a place, once or each time, and keeps what was read, if it is to.
#[derive(Debug)]
struct SpoilsReads {
    inner: Arc<dyn Device>,
    place: (u64, u64),
    done: AtomicBool,
    always: bool,
    kept: Option<Mutex<BTreeMap<u64, Vec<u8>>>>,
}

impl SpoilsReads {
    fn new(inner: &Arc<MemoryDevice>, place: (u64, u64), always: bool, keeps: bool) -> Arc<SpoilsReads> {
        let inner = inner.clone() as Arc<dyn Device>;
        let kept = keeps.then(Mutex::default);
        Arc::new(SpoilsReads { inner, place, done: AtomicBool::new(false), always, kept })
    }
}

impl Device for SpoilsReads {
    firndb_device::forward!(inner: info, len, write, sync, grow, shrink, discard);
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        let end = offset + buf.len() as u64;
        if let Some(kept) = &self.kept {
            let kept = kept.lock().unwrap();
            if let Some((&start, bytes)) = kept.range(..=offset).next_back()
                && end <= start + bytes.len() as u64
            {
                buf.copy_from_slice(&bytes[(offset - start) as usize..(end - start) as usize]);
                return Ok(());
            }
        }
        self.inner.read(offset, buf)?;
        let (from, len) = self.place;
        if from < end && offset < from + len && (self.always || !self.done.swap(true, Ordering::Relaxed)) {
            let range = from.max(offset) - offset..(from + len).min(end) - offset;
            buf[range.start as usize..range.end as usize].iter_mut().for_each(|byte| *byte ^= 0x40);
        }
        if let Some(kept) = &self.kept {
            kept.lock().unwrap().insert(offset, buf.to_vec());
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Forgets(Vec<Arc<SpoilsReads>>);

impl KeptReads for Forgets {
    fn forget(&self, device: usize, range: std::ops::Range<u64>) {
        if let Some(kept) = &self.0[device].kept {
            kept.lock()
                .unwrap()
                .retain(|&at, bytes| at >= range.end || at + bytes.len() as u64 <= range.start);
        }
    }
}

/// Cause: bytes right behind log that are no log were believed at once, and kept for the second pass. Effect: a read that
/// was spoilt on its way, of the last request, made the log shorter, without a word. Mend: they are read once more.
#[test]
fn what_one_read_spoilt_at_the_end_is_read_again_before_it_is_believed() {
    for (count, keeps) in [(1, false), (1, true), (3, false), (3, true)] {
        let bed = Bed::new(count, 512, 256 << 10);
        let log = create(&bed, options());
        add_many(&log, 20, 300);
        let before = log.end();
        let end = add(&log, 900);
        drop(log);
        let lost = |b: &(usize, Lsn, u16, u32)| b.1.0 + 472 > before.0;
        // The one that has the log's last block.
        let last = |device: &usize| bed.blocks(*device).iter().map(|block| (block.1, block.2)).max();
        let device = (0..count).max_by_key(last).unwrap();
        let first = bed.blocks(device).iter().find(|block| lost(block)).unwrap().0 as u64;
        // All blocks of the request, once or for ever.
        for always in [false, true] {
            let spoiling: Vec<Arc<SpoilsReads>> = (0..count)
                .map(|i| {
                    let place = if i == device { (first, 4 * 512) } else { (0, 0) };
                    SpoilsReads::new(&bed.media[i], place, always, keeps)
                })
                .collect();
            let devices = spoiling.iter().map(|d| d.clone() as Arc<dyn Device>).collect();
            let sources = LogSources::new(devices, identity(count as u32), Lsn::FIRST);
            let found =
                LogScan::find(sources.with_kept_reads(Arc::new(Forgets(spoiling))), &mut |_, _| {}).unwrap();
            match always {
                false => assert_eq!(found.end(), end, "{count} devices, reads are kept: {keeps}"),
                true => assert!(found.end() <= before, "nobody was promised it"),
            }
            let mut records = found.records(Lsn::FIRST);
            let mut read = 0;
            while records.next().unwrap().is_some() {
                read += 1;
            }
            assert!(if always { read <= 20 } else { read == 21 }, "{read} records");
        }
    }
}

/// The same of log before the end: one spoilt read is no damage.
#[test]
fn what_one_read_spoilt_before_the_end_is_no_damage() {
    let bed = Bed::new(1, 512, 256 << 10);
    let log = create(&bed, options());
    add_many(&log, 50, 700);
    let (at, ..) = bed.blocks(0)[40];
    for (always, keeps) in [(false, true), (false, false), (true, true)] {
        let spoiling = SpoilsReads::new(&bed.media[0], (at as u64, 512), always, keeps);
        let sources = LogSources::new(vec![spoiling.clone()], identity(1), Lsn::FIRST);
        let found = LogScan::find(sources.with_kept_reads(Arc::new(Forgets(vec![spoiling]))), &mut |_, _| {});
        match always {
            false => assert_eq!(found.unwrap().end(), log.end()),
            true => assert_eq!(found.unwrap_err().kind, LogErrorKind::Damaged),
        }
    }
}
