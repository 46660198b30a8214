//! The section headers of a stream: found by binary search, each read at most once (3.6).
//!
//! Sequence numbers grow by one per section around the ring, so the newest section is where they
//! stop growing, and the LSNs at which sections begin never decrease with them. So a log of
//! thousands of sections is opened with a few dozen reads of one block. Headers that a scan passes
//! are remembered and never read again.
//!
//! Damage. The search skips an unreadable header, towards its neighbours; if all are unreadable,
//! all are read. A header that a device claimed to have written and did not (an older one is in its
//! place, intact) could hide all newer sections from a binary search. Therefore, after the search,
//! the headers 1, 2, 4, 8, … places further on are read in one batch, and if any is newer than the
//! result, all are read.
//!
//! Memory: 40 bytes for each header that was read.

use crate::block::{BLOCK, BlockHeader, Owner};
use crate::error::LogError;
use crate::layout::{Geometry, SectionHeader};
use crate::read::medium::Medium;
use firndb_base::Lsn;
use firndb_base::sync::{Arc, Mutex};
use firndb_device::{AlignedBuf, Device, Io, IoOp};
use std::collections::BTreeMap;

/// Headers read by one batch.
const BATCH: usize = 32;
/// Most bytes of a section read at once.
const SECTION_PART_BYTES: u64 = 256 << 10;

/// What is remembered of a header; ordered by sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark {
    pub sequence: u64,
    /// LSN of the section's first block.
    pub first: Lsn,
}

impl Mark {
    fn of(header: &SectionHeader) -> Mark {
        Mark { sequence: header.sequence, first: header.first }
    }
}

/// The section headers of a stream on its device.
#[derive(Debug)]
pub(crate) struct Sections {
    medium: Arc<Medium>,
    owner: Owner,
    geometry: Geometry,
    /// By place on the device; `None` for an invalid header. A leaf in the lock order; not held
    /// during I/O.
    known: Mutex<BTreeMap<u64, Option<Mark>>>,
}

impl Sections {
    pub fn new(device: Arc<dyn Device>, owner: Owner, geometry: Geometry) -> Sections {
        let medium = Arc::new(Medium::new(device, geometry.unit));
        Sections { medium, owner, geometry, known: Mutex::default() }
    }

    /// The device as the whole stream is read from it.
    pub fn medium(&self) -> &Arc<Medium> {
        &self.medium
    }

    fn place(&self, sequence: u64) -> u64 {
        (sequence - 1) % self.geometry.sections
    }

    /// Reads the header at a place.
    fn read(&self, place: u64) -> Result<Option<SectionHeader>, LogError> {
        let mut buf = AlignedBuf::zeroed(self.geometry.unit as usize);
        // An unreadable unit is returned as zeros, which are no header.
        self.medium.read(self.offset(place), &mut buf)?;
        let header = SectionHeader::decode(self.owner, &self.geometry, place, &buf[..BLOCK]);
        self.known.lock().insert(place, header.as_ref().map(Mark::of));
        Ok(header)
    }

    fn offset(&self, place: u64) -> u64 {
        self.geometry.offset(self.geometry.linear(place + 1))
    }

    /// The header at a place, read if it is not known.
    fn at(&self, place: u64) -> Result<Option<Mark>, LogError> {
        let known = self.known.lock().get(&place).copied();
        match known {
            Some(mark) => Ok(mark),
            None => Ok(self.read(place)?.as_ref().map(Mark::of)),
        }
    }

    /// Remembers the header of a section that a scan passes.
    pub fn pass(&self, linear: u64, block: &[u8]) -> Option<Lsn> {
        let sequence = linear / self.geometry.section_bytes() + 1;
        let place = self.place(sequence);
        let header = SectionHeader::decode(self.owner, &self.geometry, place, block)?;
        if header.sequence != sequence {
            return None;
        }
        self.known.lock().insert(place, Some(Mark::of(&header)));
        Some(header.first)
    }

    /// LSN at which section `sequence` begins; `None` if its header is missing or cannot be read.
    /// Callers then assume that the section may hold anything.
    pub fn first(&self, sequence: u64) -> Option<Lsn> {
        let mark = self.at(self.place(sequence)).ok().flatten()?;
        (mark.sequence == sequence).then_some(mark.first)
    }

    /// The whole header of section `sequence`, under the same conditions as [`Sections::first`].
    pub fn header(&self, sequence: u64) -> Option<SectionHeader> {
        let header = self.read(self.place(sequence)).ok().flatten()?;
        (header.sequence == sequence).then_some(header)
    }

    /// Whether the place of section `sequence` holds a valid header of any section.
    pub fn is_readable(&self, sequence: u64) -> Result<bool, LogError> {
        Ok(self.at(self.place(sequence))?.is_some())
    }

    /// The section with the greatest LSN, for a ring without any valid header, numbered as if it
    /// were of the second lap; `None` if there is no block. Reads the whole ring.
    pub fn newest_by_blocks(&self) -> Result<Option<u64>, LogError> {
        let mut newest = None;
        for place in 0..self.geometry.sections {
            newest = newest.max(self.greatest_lsn(place)?.map(|lsn| (lsn, place)));
        }
        Ok(newest.map(|(_, place)| self.geometry.sections + place + 1))
    }

    /// The greatest LSN of the blocks at a place; `None` if there is no block.
    fn greatest_lsn(&self, place: u64) -> Result<Option<Lsn>, LogError> {
        let Geometry { unit, section_units, .. } = self.geometry;
        let most_units = (SECTION_PART_BYTES / unit).max(1);
        let mut buf = AlignedBuf::zeroed((most_units.min(section_units) * unit) as usize);
        let mut greatest = None;
        let mut done = 1;
        while done < section_units {
            let units = most_units.min(section_units - done);
            let part = &mut buf[..(units * unit) as usize];
            // An unreadable unit is returned as zeros, which are no block.
            self.medium.read(self.offset(place) + done * unit, part)?;
            let blocks = part.chunks_exact(BLOCK).filter_map(|block| BlockHeader::decode(self.owner, block));
            greatest = greatest.max(blocks.map(|block| block.lsn).max());
            done += units;
        }
        Ok(greatest)
    }

    /// The newest section whose header is valid; `None` if none was ever used.
    pub fn newest(&self) -> Result<Option<Mark>, LogError> {
        let count = self.geometry.sections;
        let found = self.search()?;
        let newest = found.map_or(0, |(_, mark)| mark.sequence);
        let from = found.map_or(0, |(place, _)| place);
        let steps = (0..u64::BITS).map(|shift| 1u64 << shift).take_while(|step| *step < count);
        let places: Vec<u64> = steps.map(|step| (from + step) % count).collect();
        if self.read_all(&places)?.is_some_and(|mark| mark.sequence > newest) {
            return self.newest_of_all();
        }
        Ok(found.map(|(_, mark)| mark).filter(|mark| mark.sequence > 0))
    }

    /// By binary search for the end of the run of rising numbers that begins at the ring's first
    /// place.
    fn search(&self) -> Result<Option<(u64, Mark)>, LogError> {
        let count = self.geometry.sections;
        let Some((mut low, mut newest)) = self.next_valid(0, count)? else { return Ok(None) };
        let oldest = newest.sequence.max(1);
        let mut high = count;
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match self.next_valid(middle, high)? {
                Some((place, mark)) if mark.sequence >= oldest => (low, newest) = (place, mark),
                // All headers from the middle to `high` are unreadable, or of an earlier lap.
                _ => high = middle,
            }
        }
        Ok(Some((low, newest)))
    }

    /// The first valid header of the places from `from` up to `to`.
    fn next_valid(&self, from: u64, to: u64) -> Result<Option<(u64, Mark)>, LogError> {
        for place in from..to {
            if let Some(mark) = self.at(place)? {
                return Ok(Some((place, mark)));
            }
        }
        Ok(None)
    }

    /// By reading every header.
    fn newest_of_all(&self) -> Result<Option<Mark>, LogError> {
        let places: Vec<u64> = (0..self.geometry.sections).collect();
        Ok(self.read_all(&places)?.filter(|mark| mark.sequence > 0))
    }

    /// Reads the headers at these places that are not known yet, in batches. Returns the newest of
    /// all.
    fn read_all(&self, places: &[u64]) -> Result<Option<Mark>, LogError> {
        let unit = self.geometry.unit as usize;
        // Each header is aligned in memory as devices require.
        let step = unit.max(AlignedBuf::ALIGNMENT);
        let mut buf = AlignedBuf::zeroed(step * BATCH.min(places.len()));
        let (mut newest, mut unread) = (None::<Mark>, Vec::new());
        for &place in places {
            match self.known.lock().get(&place) {
                Some(&mark) => newest = newest.max(mark),
                None => unread.push(place),
            }
        }
        for places in unread.chunks(BATCH) {
            let parts = buf.chunks_exact_mut(step).zip(places);
            let mut batch: Vec<Io<'_>> = parts
                .map(|(part, place)| Io {
                    offset: self.offset(*place),
                    op: IoOp::Read(&mut part[..unit]),
                    outcome: Ok(()),
                })
                .collect();
            self.medium.device().submit(&mut batch);
            let failed: Vec<usize> = (0..batch.len()).filter(|&i| batch[i].outcome.is_err()).collect();
            for i in failed {
                self.medium.read(self.offset(places[i]), &mut buf[i * step..i * step + unit])?;
            }
            let mut known = self.known.lock();
            for (part, &place) in buf.chunks_exact(step).zip(places) {
                let header = SectionHeader::decode(self.owner, &self.geometry, place, &part[..BLOCK]);
                let mark = header.as_ref().map(Mark::of);
                known.insert(place, mark);
                newest = newest.max(mark);
            }
        }
        Ok(newest)
    }

    /// The newest of the sections from `oldest` to `last` that is known to begin before `lsn`;
    /// `None` if there is none.
    pub fn last_before(&self, oldest: u64, last: u64, lsn: Lsn) -> Option<u64> {
        // All sections before `low` begin before `lsn` or are unreadable; all from `high` on do not
        // begin before it.
        let (mut low, mut high) = (oldest, last + 1);
        let mut found = None;
        while low < high {
            let middle = low + (high - low) / 2;
            let readable = (low..=middle).rev().find_map(|sequence| Some((sequence, self.first(sequence)?)));
            match readable {
                Some((sequence, first)) if first < lsn => {
                    found = Some(sequence);
                    low = middle + 1;
                }
                Some((sequence, _)) => high = sequence,
                // No header up to the middle can be read.
                None => low = middle + 1,
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block;
    use firndb_base::Epoch;
    use firndb_base::rng::Rng;
    use firndb_device::{Counting, Durability, Fill, MemoryDevice};

    const COUNT: u64 = 1000;

    fn geometry() -> Geometry {
        Geometry { start: 1024, unit: 512, section_units: 4, sections: COUNT }
    }

    /// A ring on which `newest` sections were begun, section `s` at LSN `s * 944`, without the
    /// headers at `spoilt` places.
    fn ring(newest: u64, spoilt: impl Fn(u64) -> bool) -> (Arc<Counting>, Sections) {
        let device = Arc::new(Counting::new(Arc::new(MemoryDevice::new("ring"))));
        let geometry = geometry();
        device.grow(1024 + geometry.ring_bytes(), Fill::Written).expect("memory grows");
        let owner = Owner::main(7, 1);
        let write = |place: u64, header: SectionHeader| {
            let mut block = AlignedBuf::zeroed(BLOCK);
            header.encode(owner, &mut block);
            block::seal(&mut block);
            if !spoilt(place) {
                let at = geometry.offset(geometry.linear(place + 1));
                device.write(at, &block, Durability::Later).expect("written");
            }
        };
        (0..COUNT).for_each(|place| write(place, SectionHeader::unused(Epoch(1))));
        for sequence in (newest + 1).saturating_sub(COUNT).max(1)..=newest {
            let unused = SectionHeader::unused(Epoch(1));
            let header = SectionHeader { sequence, first: Lsn(sequence * 944), ..unused };
            write((sequence - 1) % COUNT, header);
        }
        let inner: Arc<dyn Device> = device.clone();
        (device, Sections::new(inner, owner, geometry))
    }

    fn reads(device: &Counting) -> u64 {
        device.snapshot().reads.ops
    }

    #[test]
    fn the_newest_section_and_an_lsn_are_found_with_few_reads() {
        for newest in [0, 1, 2, 499, 500, 999, 1000, 1001, 1500, 1999, 2000, 7777] {
            let (device, sections) = ring(newest, |_| false);
            let mark = sections.newest().expect("readable");
            assert_eq!(mark.map_or(0, |mark| mark.sequence), newest);
            assert!(reads(&device) <= 2 * COUNT.ilog2() as u64 + 3, "{newest}: {} reads", reads(&device));
            let oldest = (newest + 1).saturating_sub(COUNT).max(1);
            for sought in [oldest, (oldest + newest) / 2, newest] {
                let before = reads(&device);
                let found = sections.last_before(oldest, newest, Lsn(sought * 944 + 1));
                assert_eq!(found, (newest > 0).then_some(sought.max(1)), "{newest} {sought}");
                assert!(reads(&device) - before <= COUNT.ilog2() as u64 + 2);
            }
            assert_eq!(sections.last_before(oldest, newest, Lsn(oldest * 944)), None);
        }
    }

    #[test]
    fn unreadable_headers_are_passed_over() {
        let mut rng = Rng::new(5);
        for round in 0..60 {
            let newest = rng.between(1, 3 * COUNT);
            let share = rng.between(2, 9);
            let bad: Vec<bool> = (0..COUNT).map(|_| rng.one_in(share)).collect();
            let (_, sections) = ring(newest, |place| bad[place as usize]);
            let oldest = (newest + 1).saturating_sub(COUNT).max(1);
            let readable = |sequence: &u64| !bad[((sequence - 1) % COUNT) as usize];
            let expected = (oldest..=newest).rev().find(readable);
            let found = sections.newest().expect("readable").map(|mark| mark.sequence);
            assert_eq!(found, expected, "round {round}: {newest}");
            let sought = rng.between(oldest, newest);
            let expected = (oldest..=sought).rev().find(readable);
            assert_eq!(
                sections.last_before(oldest, newest, Lsn(sought * 944 + 1)),
                expected,
                "round {round}"
            );
        }
    }

    #[test]
    fn a_header_whose_write_was_lost_hides_no_newer_section() {
        for newest in [1300, 1999, 2400] {
            for lost in [newest - 1, newest - 2, newest - 5, newest - 30] {
                let (device, sections) = ring(newest, |_| false);
                // The header of the previous lap is in its place.
                let unused = SectionHeader::unused(Epoch(1));
                let stale = SectionHeader { sequence: lost - COUNT, first: Lsn(1), ..unused };
                let mut block = AlignedBuf::zeroed(BLOCK);
                stale.encode(Owner::main(7, 1), &mut block);
                block::seal(&mut block);
                let geometry = geometry();
                let at = geometry.offset(geometry.linear((lost - 1) % COUNT + 1));
                device.write(at, &block, Durability::Later).expect("written");
                let found = sections.newest().expect("readable").map(|mark| mark.sequence);
                assert_eq!(found, Some(newest), "{lost} of {newest}");
            }
        }
    }

    #[test]
    fn a_damaged_ring_is_read_whole_and_a_header_that_was_passed_never_again() {
        let (device, sections) = ring(500, |_| true);
        assert_eq!(sections.newest().expect("readable"), None);
        assert_eq!(reads(&device), COUNT, "every place once");
        let (device, sections) = ring(500, |_| false);
        let geometry = geometry();
        let mut block = AlignedBuf::zeroed(BLOCK);
        device.read(geometry.offset(geometry.linear(77)), &mut block).expect("readable");
        assert_eq!(sections.pass(geometry.linear(77), &block), Some(Lsn(77 * 944)));
        let before = reads(&device);
        assert_eq!((sections.first(77), reads(&device)), (Some(Lsn(77 * 944)), before));
    }
}
