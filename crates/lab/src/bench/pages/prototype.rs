//! The paper's two prototypes as its text describes them (sections 2 and 3), on an emulated drive:
//! what Firn's `log` mode has a cleaner, undo in memory and other means against.
//!
//! As there: a clock over the buffer's pages, nothing cleans but steals and commits; a log in
//! memory that is written when a transaction commits, a dirty page is stolen, or it is full; ARIES
//! logs before and after images; hybrid writes whole pages to the file's end before the log, one
//! translation page for a thousand pages lies in the buffer. Aborts read the log on the drive
//! backwards, record by record. Not printed, so chosen: records have a header of 32 bytes; what an
//! abort changes is not logged again; each write is durable by itself, as Firn's are, and shadows
//! at adjacent places are one.

use super::machine::PAGE;
use super::work::{Kind, Operation, Work};
use firndb_base::sync::Arc;
use firndb_device::{Device, DeviceError, Durability, Fill, MemoryDevice};
use firndb_emulate::Emulated;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const PAGE_BYTES: u64 = PAGE as u64;
/// Of a log record.
const HEADER: u64 = 32;
/// Before and after of a translation.
const TRANSLATION: u64 = 8;
/// Pages that one translation page is of.
const TRANSLATED: u64 = 1000;
/// Where the log's file begins, and where the drive ends.
const LOG_AT: u64 = 1 << 30;
const DRIVE_BYTES: u64 = 2 << 30;

/// Requests that the drive saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requests {
    pub reads: u64,
    pub writes: u64,
    pub write_bytes: u64,
}

impl Requests {
    pub fn all(self) -> u64 {
        self.reads + self.writes
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Page {
    Data(u64),
    /// The translations of this thousand of pages.
    Translation(u64),
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    page: Page,
    is_dirty: bool,
    /// Its content goes to a new place, before the log.
    is_shadow: bool,
    is_referenced: bool,
}

/// An update, for its undo.
#[derive(Clone, Copy, Debug)]
struct Record {
    page: u64,
    /// Where it begins in the log, and its bytes.
    at: u64,
    bytes: u64,
    /// The place before a shadow.
    before: Option<u64>,
}

/// A prototype in the middle of its work.
pub struct Prototype {
    drive: Arc<Emulated>,
    is_hybrid: bool,
    frames: Vec<Frame>,
    by_page: BTreeMap<Page, usize>,
    capacity: usize,
    hand: usize,
    /// Where each page lies, in pages.
    places: Vec<u64>,
    /// The file's end, in pages.
    end: u64,
    /// Bytes of the log: all, and those on the drive.
    appended: u64,
    flushed: u64,
    log_capacity: u64,
    /// The block of the log that an abort has in hand.
    block: Option<u64>,
    pub requests: Requests,
    image: Vec<u8>,
}

type Outcome = Result<(), DeviceError>;

impl Prototype {
    /// A prototype over `pages` data pages on the drive; its buffer pool has `memory` frames, and
    /// its log buffer as many pages.
    pub fn new(drive: Arc<Emulated>, is_hybrid: bool, pages: u64, memory: usize) -> Prototype {
        // The translation pages lie before the data.
        let first = pages.div_ceil(TRANSLATED);
        Prototype {
            drive,
            is_hybrid,
            frames: Vec::new(),
            by_page: BTreeMap::new(),
            capacity: memory,
            hand: 0,
            places: (first..first + pages).collect(),
            end: first + pages,
            appended: 0,
            flushed: 0,
            log_capacity: memory as u64 * PAGE_BYTES,
            block: None,
            requests: Requests::default(),
            image: Vec::new(),
        }
    }

    /// What it needs of a device in memory.
    pub fn memory() -> Result<Arc<MemoryDevice>, DeviceError> {
        let memory = Arc::new(MemoryDevice::new("drive"));
        memory.grow(DRIVE_BYTES, Fill::Sparse)?;
        Ok(memory)
    }

    fn place(&self, page: Page) -> u64 {
        match page {
            Page::Data(page) => self.places[page as usize],
            Page::Translation(number) => number,
        }
    }

    fn read(&mut self, offset: u64, bytes: u64) -> Outcome {
        self.requests.reads += 1;
        self.image.resize(bytes as usize, 0);
        self.drive.read(offset, &mut self.image)
    }

    fn write(&mut self, offset: u64, bytes: u64) -> Outcome {
        self.requests.writes += 1;
        self.requests.write_bytes += bytes;
        self.image.resize(bytes as usize, 0);
        self.drive.write(offset, &self.image, Durability::Durable)
    }

    /// Has the page in a frame; returns which.
    fn pin(&mut self, page: Page) -> Result<usize, DeviceError> {
        if let Some(&frame) = self.by_page.get(&page) {
            self.frames[frame].is_referenced = true;
            return Ok(frame);
        }
        let frame = self.free_frame()?;
        self.read(self.place(page) * PAGE_BYTES, PAGE_BYTES)?;
        let content = Frame { page, is_dirty: false, is_shadow: false, is_referenced: true };
        match self.frames.get_mut(frame) {
            Some(old) => *old = content,
            None => self.frames.push(content),
        }
        self.by_page.insert(page, frame);
        Ok(frame)
    }

    /// A frame without a page: a new one, or the clock's victim, which is stolen.
    fn free_frame(&mut self) -> Result<usize, DeviceError> {
        if self.frames.len() < self.capacity {
            return Ok(self.frames.len());
        }
        while std::mem::take(&mut self.frames[self.hand].is_referenced) {
            self.hand = (self.hand + 1) % self.capacity;
        }
        let victim = self.hand;
        self.hand = (self.hand + 1) % self.capacity;
        if self.frames[victim].is_dirty {
            self.flush()?;
        }
        // Shadows are clean now.
        let Frame { page, is_dirty, .. } = self.frames[victim];
        if is_dirty {
            self.write(self.place(page) * PAGE_BYTES, PAGE_BYTES)?;
        }
        // Another frame may have the page by now, where this one's content was undone.
        if self.by_page.get(&page) == Some(&victim) {
            self.by_page.remove(&page);
        }
        Ok(victim)
    }

    /// Flushes shadows, then the log.
    fn flush(&mut self) -> Outcome {
        let mut shadows: Vec<(u64, usize)> = Vec::new();
        for (at, frame) in self.frames.iter().enumerate() {
            if frame.is_dirty && frame.is_shadow {
                shadows.push((self.place(frame.page), at));
            }
        }
        shadows.sort_unstable();
        for run in shadows.chunk_by(|one, next| one.0 + 1 == next.0) {
            self.write(run[0].0 * PAGE_BYTES, run.len() as u64 * PAGE_BYTES)?;
            for (_, frame) in run {
                let frame = &mut self.frames[*frame];
                (frame.is_dirty, frame.is_shadow) = (false, false);
            }
        }
        if self.appended > self.flushed {
            // Whole blocks; the last one, not full, is written again.
            let from = self.flushed / PAGE_BYTES * PAGE_BYTES;
            let to = self.appended.next_multiple_of(PAGE_BYTES);
            self.write(LOG_AT + from, to - from)?;
            self.flushed = self.appended;
        }
        Ok(())
    }

    fn append(&mut self, bytes: u64) -> Result<u64, DeviceError> {
        if self.appended - self.flushed + bytes > self.log_capacity {
            self.flush()?;
        }
        let at = self.appended;
        self.appended += bytes;
        Ok(at)
    }

    fn update(&mut self, page: u64, bytes: u64) -> Result<Record, DeviceError> {
        self.translate(page)?;
        let frame = self.pin(Page::Data(page))?;
        let is_shadow = self.is_hybrid && bytes == PAGE_BYTES;
        let logged = if is_shadow { TRANSLATION } else { 2 * bytes };
        let at = self.append(HEADER + logged)?;
        let mut before = None;
        if is_shadow {
            before = Some(std::mem::replace(&mut self.places[page as usize], self.end));
            self.end += 1;
            let translation = self.pin(Page::Translation(page / TRANSLATED))?;
            self.frames[translation].is_dirty = true;
        }
        let frame = &mut self.frames[frame];
        (frame.is_dirty, frame.is_shadow) = (true, is_shadow);
        Ok(Record { page, at, bytes: HEADER + logged, before })
    }

    fn translate(&mut self, page: u64) -> Outcome {
        if self.is_hybrid {
            self.pin(Page::Translation(page / TRANSLATED))?;
        }
        Ok(())
    }

    fn undo(&mut self, record: Record) -> Outcome {
        if record.at < self.flushed {
            // The record's blocks in one request, but for the one that the record behind it has in
            // hand, or both share.
            let (first, last) = (record.at / PAGE_BYTES, (record.at + record.bytes - 1) / PAGE_BYTES);
            let blocks = (first..=last).filter(|block| self.block != Some(*block)).count() as u64;
            if blocks > 0 {
                self.read(LOG_AT + first * PAGE_BYTES, blocks * PAGE_BYTES)?;
            }
            self.block = Some(first);
        }
        match record.before {
            Some(place) => {
                self.translate(record.page)?;
                self.places[record.page as usize] = place;
                if let Some(frame) = self.by_page.remove(&Page::Data(record.page)) {
                    // What is in the frame is of no place any more.
                    let frame = &mut self.frames[frame];
                    (frame.is_dirty, frame.is_shadow, frame.is_referenced) = (false, false, false);
                }
            }
            None => {
                self.translate(record.page)?;
                let frame = self.pin(Page::Data(record.page))?;
                self.frames[frame].is_dirty = true;
            }
        }
        Ok(())
    }

    /// Does the work from its beginning to the end of its last transaction.
    pub fn perform(&mut self, work: Work, operations: &[Operation]) -> Outcome {
        for batch in operations.chunks(work.each as usize) {
            let mut records = Vec::new();
            for operation in batch {
                if work.kind == Kind::Read {
                    self.translate(operation.page)?;
                    self.pin(Page::Data(operation.page))?;
                } else {
                    records.push(self.update(operation.page, work.bytes())?);
                }
            }
            match work.kind {
                Kind::Read => {}
                Kind::Commit => {
                    self.append(HEADER)?;
                    self.flush()?;
                }
                Kind::Abort => {
                    records.into_iter().rev().try_for_each(|record| self.undo(record))?;
                    self.append(HEADER)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::simulation::{emulated, simulate};
    use firndb_console::Failure;

    const PAGES: u64 = 100;
    const MEMORY: usize = 10;
    /// The clock's first round finds every page referenced, and takes the first one: the
    /// translation page.
    const TRANSLATION_READS: u64 = 2;

    fn requests(is_hybrid: bool, work: Work) -> Requests {
        let body = move || {
            let failed = |error: DeviceError| Failure::new(error.to_string());
            let profile = crate::tpcc::machine::profile("nvme")?;
            let drive = emulated(Prototype::memory().map_err(failed)?, &profile, 1)?;
            let mut prototype = Prototype::new(drive, is_hybrid, PAGES, MEMORY);
            prototype.perform(work, &work.operations(1)).map_err(failed)?;
            Ok(prototype.requests)
        };
        simulate(1, 1, body).unwrap().0
    }

    fn work(kind: Kind, part: bool, each: u64) -> Work {
        Work { kind, part, random: false, pages: PAGES, operations: PAGES, each }
    }

    #[test]
    fn aries_flushes_at_every_steal_and_hybrid_once_a_pool() {
        let all = work(Kind::Commit, false, PAGES);
        let aries = requests(false, all);
        assert_eq!(aries.reads, PAGES);
        // The first steal flushes what the pool has; each later one its own record.
        let steals = PAGES - MEMORY as u64;
        assert!((2 * steals - 20..2 * steals + 20).contains(&aries.writes), "{aries:?}");
        assert!(aries.write_bytes > (8192 * PAGES + 4096 * steals), "{aries:?}");
        let hybrid = requests(true, all);
        assert_eq!(hybrid.reads, PAGES + TRANSLATION_READS);
        assert!(hybrid.writes < 30 && hybrid.write_bytes < 4096 * (PAGES + 30), "{hybrid:?}");
    }

    #[test]
    fn aries_reads_its_log_backwards_to_undo_and_hybrid_hardly_anything() {
        let all = work(Kind::Abort, false, PAGES);
        let (aries, hybrid) = (requests(false, all), requests(true, all));
        // Pages to update, then records, and pages that were stolen since.
        assert!(aries.reads > 2 * PAGES + PAGES / 2, "{aries:?}");
        assert!(hybrid.reads < PAGES + 5, "{hybrid:?}");
        assert!(aries.all() > 3 * hybrid.all(), "{aries:?} {hybrid:?}");
    }

    #[test]
    fn parts_cost_both_alike_but_for_the_translation_page() {
        let parts = work(Kind::Commit, true, 1);
        let (aries, hybrid) = (requests(false, parts), requests(true, parts));
        assert_eq!(hybrid.reads, aries.reads + TRANSLATION_READS);
        assert!(hybrid.writes.abs_diff(aries.writes) <= 2, "{aries:?} {hybrid:?}");
        let read = requests(true, work(Kind::Read, false, 1));
        assert_eq!((read.reads, read.writes), (PAGES + TRANSLATION_READS, 0));
    }
}
