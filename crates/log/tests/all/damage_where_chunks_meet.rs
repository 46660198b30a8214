//! The scan reads the log in chunks. A bad place, or the log's end, beside any border of a chunk (a
//! section header, the ring's first or last block) means the same as elsewhere, whether threads
//! read ahead or not.

use crate::support::{device_with, log_blocks};
use firndb_base::rng::Rng;
use firndb_base::{Epoch, Lsn};
use firndb_device::{Device, FaultPlan, Faulty, MemoryDevice};
use firndb_log::testing::{identity, options};
use firndb_log::{
    Hiding, Kind, Log, LogClass, LogError, LogErrorKind, LogIdentity, LogOptions, LogScan, LogSources,
    Record, Redundancy,
};
use firndb_testkit::bytes::{contents, flip, overwrite};
use firndb_testkit::hooked::{Call, Hooked};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// Bytes of a block's payload.
const PAYLOAD: u64 = 472;
/// The shortest read by a chunk; all others are of section headers.
const CHUNK: usize = 64 << 10;

/// A log that has gone around its devices' rings, and is closed.
struct Bed {
    media: Vec<Arc<MemoryDevice>>,
    identity: LogIdentity,
    /// Where the log is read from.
    from: Lsn,
    /// End of each group, the first after `from`.
    ends: Vec<Lsn>,
    /// What the devices hold.
    images: Vec<Vec<u8>>,
}

impl Bed {
    fn new(count: usize, copies: usize) -> Bed {
        let media: Vec<_> = (0..count).map(|i| device_with(&format!("log {i}"), 512, 512 << 10)).collect();
        let mut identity = identity(count as u32);
        if copies > 1 {
            identity.redundancy = Redundancy::since(Lsn::FIRST, copies as u8);
        }
        let options = LogOptions { hiding: Hiding::Off, copies, section_bytes: 96 << 10, ..options() };
        let devices = media.iter().map(|device| device.clone() as Arc<dyn Device>).collect();
        let log = Log::create(devices, identity.clone(), Epoch(1), options).unwrap();
        let (mut rng, mut ends) = (Rng::new(count as u64), vec![Lsn::FIRST]);
        // Somewhat more than a lap; what is kept is most of one.
        let (all, kept) = ((640 << 10) * (count / copies) as u64, (300 << 10) * (count / copies) as u64);
        while log.end().0 < all {
            let body = vec![rng.next_u64() as u8; rng.between(100, 12_000) as usize];
            ends.push(log.append(LogClass::Normal, Record { kind: Kind(0x20), body: &body }).unwrap().end);
            log.flush(log.end()).unwrap();
            let first = ends.partition_point(|end| end.0 + kept < log.end().0);
            ends.drain(..first);
            log.truncate(ends[0]);
        }
        log.close().unwrap();
        let images = media.iter().map(|device| contents(&**device)).collect();
        Bed { media, identity, from: ends[0], ends: ends.split_off(1), images }
    }

    fn end(&self) -> Lsn {
        *self.ends.last().unwrap()
    }

    fn scan(&self, devices: Vec<Arc<dyn Device>>, threads: bool) -> Result<LogScan, LogError> {
        let sources = LogSources::new(devices, self.identity.clone(), self.from).with_threads(threads);
        LogScan::find(sources.with_read_ahead_bytes(0), &mut |_, _| {})
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.media.iter().map(|device| device.clone() as Arc<dyn Device>).collect()
    }

    /// End of the last group that ends at or before `lsn`; where reading begins, if there is none.
    fn last_end(&self, lsn: Lsn) -> Lsn {
        let groups = self.ends.partition_point(|end| *end <= lsn);
        if groups == 0 { self.from } else { self.ends[groups - 1] }
    }

    /// Offsets of the blocks on both sides of each chunk's borders, by device.
    fn borders(&self) -> Vec<(usize, usize)> {
        let borders = Arc::new(Mutex::new(BTreeSet::new()));
        let watched = self.media.iter().enumerate().map(|(i, device)| {
            let borders = Arc::clone(&borders);
            Hooked::over(device.clone(), move |call| {
                if let Call::Read { offset, len } = call
                    && len > 512
                {
                    assert!(len <= CHUNK);
                    let around = |at: usize| (at.saturating_sub(4 * 512)..at + 4 * 512).step_by(512);
                    let both = around(offset as usize).chain(around(offset as usize + len));
                    borders.lock().unwrap().extend(both.map(|at| (i, at)));
                }
                Ok(())
            })
        });
        self.scan(watched.collect(), true).unwrap();
        let borders = std::mem::take(&mut *borders.lock().unwrap());
        borders.into_iter().filter(|&(i, at)| at < self.images[i].len()).collect()
    }

    /// Full blocks beside the borders, except the last block of all, of which the log's seal is a
    /// copy: device, offset, LSN.
    fn full_blocks(&self) -> Vec<(usize, usize, Lsn)> {
        let blocks: Vec<_> = self.images.iter().map(|image| log_blocks(image)).collect();
        let found = self.borders().into_iter().filter_map(|(i, offset)| {
            let place = blocks[i].binary_search_by_key(&offset, |&(at, ..)| at).ok()?;
            let (_, lsn, fill, _) = blocks[i][place];
            (u64::from(fill) == PAYLOAD && lsn.0 + PAYLOAD < self.end().0).then_some((i, offset, lsn))
        });
        found.collect()
    }

    fn restore(&self, i: usize) {
        overwrite(&*self.media[i], 0, &self.images[i]);
    }

    /// What a scan finds, with threads and without, if the block at this offset cannot be read, or
    /// is rotten.
    fn with_bad_place(&self, (bad, offset): (usize, usize), unreadable: bool) -> [Outcome; 2] {
        let devices = || {
            let faulty = |(i, device): (usize, &Arc<MemoryDevice>)| {
                let faulty = Faulty::new(device.clone(), &FaultPlan::new(0));
                if unreadable && i == bad {
                    faulty.make_unreadable(offset as u64, 512);
                }
                Arc::new(faulty) as Arc<dyn Device>
            };
            self.media.iter().enumerate().map(faulty).collect()
        };
        if !unreadable {
            flip(&*self.media[bad], offset as u64 + 300, 3);
        }
        let found = [true, false].map(|threads| outcome(self.scan(devices(), threads), self.from));
        self.restore(bad);
        found
    }
}

/// End and records of a log with a sum of their bodies' bytes, or the error.
type Outcome = Result<(Lsn, Vec<(Lsn, usize, u64)>), (LogErrorKind, String)>;

fn outcome(found: Result<LogScan, LogError>, from: Lsn) -> Outcome {
    let told = |error: LogError| (error.kind, error.message);
    let scan = found.map_err(told)?;
    let (mut all, mut records) = (Vec::new(), scan.records(from));
    while let Some((lsn, record)) = records.next().map_err(told)? {
        all.push((lsn, record.body.len(), record.body.iter().map(|&byte| u64::from(byte)).sum()));
    }
    Ok((scan.end(), all))
}

#[test]
fn a_full_block_lost_beside_a_border_is_damage() {
    for count in [1, 2, 4] {
        let bed = Bed::new(count, 1);
        let whole = outcome(bed.scan(bed.devices(), false), bed.from);
        assert_eq!(whole.as_ref().unwrap().0, bed.end());
        let (mut damaged, mut before, mut behind) = (0, 0, 0);
        for (i, offset, lsn) in bed.full_blocks() {
            for unreadable in [false, true] {
                let [found, in_turn] = bed.with_bad_place((i, offset), unreadable);
                let place =
                    format!("{count} devices, log {i}, byte {offset}, {lsn}, unreadable: {unreadable}");
                assert_eq!(found, in_turn, "{place}");
                let needed = lsn.0 + PAYLOAD > bed.from.0;
                let Err((kind, message)) = found else {
                    assert!(!needed && found == whole, "{place}");
                    before += 1;
                    continue;
                };
                assert_eq!(kind, LogErrorKind::Damaged, "{place}: {message}");
                if !needed {
                    // Right behind the log's end: a later lap may have been written there.
                    assert!(unreadable, "{place}: {message}");
                    assert!(message.contains(&format!("may go on at LSN {}", bed.end())), "{message}");
                    behind += 1;
                    continue;
                }
                let named: u64 =
                    message.split("LSN ").nth(1).unwrap().split([' ', ',']).next().unwrap().parse().unwrap();
                let last = bed.last_end(lsn);
                assert!((last.0..=lsn.0 + PAYLOAD).contains(&named), "{place}, {last}: {message}");
                damaged += 1;
            }
        }
        let told = format!("{count} devices: {damaged} {before} {behind}");
        assert!(damaged > 40 * count && before > 10 * count && behind <= count, "{told}");
    }
}

#[test]
fn with_copies_a_block_lost_beside_a_border_is_found_elsewhere() {
    for count in [2, 4] {
        let bed = Bed::new(count, 2);
        let whole = outcome(bed.scan(bed.devices(), false), bed.from);
        assert_eq!(whole.as_ref().unwrap().0, bed.end());
        let blocks = bed.full_blocks();
        assert!(blocks.len() > 25 * count, "{}", blocks.len());
        for (n, (i, offset, lsn)) in blocks.into_iter().enumerate() {
            let found = bed.with_bad_place((i, offset), n % 2 == 0);
            assert_eq!(
                found,
                [whole.clone(), whole.clone()],
                "{count} devices, log {i}, byte {offset}, {lsn}"
            );
        }
    }
}

/// Section headers, blocks that are not full, padding, the ends of the ring.
#[test]
fn with_threads_and_without_any_bad_place_beside_a_border_means_the_same() {
    for count in [1, 2, 4] {
        let bed = Bed::new(count, 1);
        let (mut same, mut damage) = (0, 0);
        for (n, (i, offset)) in bed.borders().into_iter().enumerate() {
            let [found, in_turn] = bed.with_bad_place((i, offset), n % 2 == 0);
            assert_eq!(found, in_turn, "{count} devices, log {i}, byte {offset}");
            match found {
                Ok((end, _)) => {
                    assert_eq!(end, bed.end(), "log {i}, byte {offset}");
                    same += 1;
                }
                Err((kind, message)) => {
                    assert_eq!(kind, LogErrorKind::Damaged, "{message}");
                    damage += 1;
                }
            }
        }
        assert!(same > 5 && damage > 10, "{same} {damage}");
    }
}

#[test]
fn log_that_ends_beside_a_border_ends_after_its_last_whole_group() {
    for count in [1, 2, 4] {
        let bed = Bed::new(count, 1);
        let all: BTreeSet<Lsn> = bed.full_blocks().into_iter().map(|(.., lsn)| lsn).collect();
        let all: Vec<Lsn> = all.into_iter().filter(|lsn| *lsn > bed.ends[0]).collect();
        assert!(all.len() > 20, "{}", all.len());
        for lsn in all {
            for (device, image) in bed.media.iter().zip(&bed.images) {
                let mut torn = image.clone();
                for (at, ..) in log_blocks(image).into_iter().filter(|block| block.1 >= lsn) {
                    torn[at..at + 512].fill(0);
                }
                overwrite(&**device, 0, &torn);
            }
            let [found, in_turn] = [true, false].map(|t| outcome(bed.scan(bed.devices(), t), bed.from));
            assert_eq!(found, in_turn, "{count} devices, {lsn}");
            let (end, records) = found.unwrap_or_else(|error| panic!("{count} devices, {lsn}: {error:?}"));
            assert_eq!(end, bed.last_end(lsn), "{count} devices, {lsn}");
            assert_eq!(records.len(), bed.ends.partition_point(|group| *group <= lsn));
        }
    }
}
