//! Writing back ahead of the front, so that the thread that replaces a group finds little to write.
//!
//! The step is background work. It holds `ring` only briefly, never during I/O.
//!
//! Why it loses nothing:
//! * only images of durable groups are written back; until the store's record of an image is
//!   durable the image is in its group, dirty by that group's header, and a restart after a crash
//!   finds it so;
//! * an image counts as clean in the directory only after `written_back_end` covers the record: so
//!   a header that passes the image, or repeats it as clean, is written after the record is
//!   durable;
//! * a group that was replaced meanwhile, and perhaps overwritten, has other seals, and the step
//!   leaves it alone; of an image that became invalid meanwhile the store gets a version older than
//!   the valid one, which stays dirty.

use super::geometry::{SEAL_BYTES, Serial, Slot};
use super::group::Seal;
use super::policy::{Fate, choose};
use super::state::FlashCache;
use super::word::Word;
use crate::error::{TierError, TierErrorKind};
use crate::page_cache::statistics::add;
use crate::page_tier::PageWrite;
use firndb_base::sync::atomic::Ordering::Relaxed;
use firndb_base::{Lsn, Progress};

/// How far ahead of the front the step reads, in groups (`GROUPS_AHEAD`), or as a fraction of all
/// groups if that is fewer (`1 / SHARE_AHEAD`): far enough that the front does not pass all of it
/// while one batch is on its way to slow disks, and near enough that few of the images would have
/// become invalid. The first `GROUPS_LEFT` groups are left alone: a foreground thread may be
/// replacing them, and would write their images a second time.
const GROUPS_AHEAD: u64 = 16;
const SHARE_AHEAD: u64 = 8;
const GROUPS_LEFT: u64 = 2;
/// Images that suffice for one write.
const IMAGES_TOGETHER: usize = 48;

/// An image to be written back.
struct Ahead {
    slot: Slot,
    word: Word,
    seal: Seal,
}

impl FlashCache {
    /// Writes back some of the images that would be written back if their groups were replaced now.
    pub(crate) fn step(&self) -> Result<Progress, TierError> {
        let refuses = self.is_write_through() || self.is_lost() || self.is_leaving();
        if refuses || self.poison.check().is_err() {
            return Ok(Progress::Idle);
        }
        let (front, rear) = {
            let ring = self.ring.lock();
            (ring.front, ring.rear)
        };
        // While the ring is not full, nothing is replaced.
        if front.0 + self.geometry.groups > rear.0 + 2 + GROUPS_AHEAD {
            return Ok(Progress::Idle);
        }
        let ahead = (self.geometry.groups / SHARE_AHEAD).clamp(1, GROUPS_AHEAD);
        let from = front.0 + GROUPS_LEFT;
        let (mut images, mut data) = (Vec::new(), Vec::new());
        for serial in (from..from + ahead).map(Serial) {
            if serial.0 > self.durable.load(Relaxed) || images.len() >= IMAGES_TOGETHER {
                break;
            }
            let leaving = self.would_be_written(serial);
            if !leaving.is_empty() {
                self.read_ahead(serial, leaving, &mut images, &mut data);
            }
        }
        if images.is_empty() { Ok(Progress::Idle) } else { self.write_ahead(&images, &data) }
    }

    fn would_be_written(&self, serial: Serial) -> Vec<(Slot, Word)> {
        let slots: Vec<Slot> =
            (0..self.geometry.group_pages).map(|index| self.geometry.slot(serial, index)).collect();
        let words: Vec<Word> = slots.iter().map(|slot| self.directory.word(*slot)).collect();
        let fates = choose(&words, self.chances(), self.geometry.group_pages - 1);
        let all = slots.into_iter().zip(words).zip(fates);
        all.filter(|(_, fate)| *fate == Fate::WriteBack).map(|(found, _)| found).collect()
    }

    /// Reads the group, unless it is kept. Appends those of its images that match the directory to
    /// `images`, and their bytes to `data`.
    fn read_ahead(
        &self,
        serial: Serial,
        leaving: Vec<(Slot, Word)>,
        images: &mut Vec<Ahead>,
        data: &mut Vec<u8>,
    ) {
        let (keeps, mut group) = {
            let mut kept = self.kept.lock();
            if let Some(group) = kept.get(serial) {
                return self.collect_ahead(serial, leaving, group, images, data);
            }
            // Nothing of it stays while the drive is short: it is not read again.
            (kept.has_space() && !self.is_short(), kept.buffer())
        };
        let read = match keeps {
            true => self.read_transfer(serial, &self.valid_images(serial), &mut group),
            false => self.read_transfer(serial, &leaving, &mut group),
        };
        // If it cannot be read, the thread that replaces the group reports it.
        if read.is_ok() {
            self.collect_ahead(serial, leaving, &group, images, data);
        }
        let mut kept = self.kept.lock();
        if keeps && read.is_ok() { kept.keep(serial, group) } else { kept.give_back(group) }
    }

    fn valid_images(&self, serial: Serial) -> Vec<(Slot, Word)> {
        let slots = (0..self.geometry.group_pages).map(|index| self.geometry.slot(serial, index));
        slots.map(|slot| (slot, self.directory.word(slot))).filter(|(_, word)| word.is_valid()).collect()
    }

    fn collect_ahead(
        &self,
        serial: Serial,
        leaving: Vec<(Slot, Word)>,
        group: &[u8],
        images: &mut Vec<Ahead>,
        data: &mut Vec<u8>,
    ) {
        for (slot, word) in leaving {
            let at = self.geometry.image_at(self.geometry.index_of(slot));
            let sealed = &group[at..at + SEAL_BYTES + self.geometry.page_size];
            // The page moved to the rear since an earlier group was read: one batch holds a page
            // once.
            if images.iter().any(|image| image.word.page() == word.page()) {
                continue;
            }
            if let Some(seal) = self.seal_of(word, serial, sealed) {
                images.push(Ahead { slot, word, seal });
                data.extend_from_slice(&sealed[SEAL_BYTES..]);
            }
        }
    }

    fn write_ahead(&self, images: &[Ahead], data: &[u8]) -> Result<Progress, TierError> {
        // The image is durable here until the store's record of it is: the log is not needed for
        // it.
        let write = |(Ahead { seal, .. }, data): (&Ahead, _)| {
            PageWrite::back(seal.page, seal.version, Lsn::MAX, data)
                .changed_since(seal.since.base, seal.since.changes)
        };
        let mut writes: Vec<PageWrite<'_>> =
            images.iter().zip(data.chunks_exact(self.geometry.page_size)).map(write).collect();
        self.store.write_batch(&mut writes);
        let mut ring = self.ring.lock();
        ring.written_back_end = ring.written_back_end.max(self.store.records_end());
        let (mut written, mut outcome) = (0, Ok(()));
        for (image, write) in images.iter().zip(&writes) {
            match &write.outcome {
                Ok(_) => {
                    written += 1;
                    if self.directory.clean(image.word.page(), image.slot, image.word) {
                        self.forget_lacking(image.slot);
                    }
                }
                // Freed meanwhile; or freed before a restart that found the image again: every
                // later step would find it again.
                Err(error) if error.kind == TierErrorKind::NotAllocated => {
                    // The slot may hold another image by now, which lacks what it lacks.
                    if self.directory.forget(image.word.page(), image.slot, image.word) {
                        self.forget_lacking(image.slot);
                    }
                }
                // The thread that replaces the group has it stay (`replace.rs`).
                Err(error) if error.concerns_the_page() => {}
                Err(error) => outcome = Err(error.clone()),
            }
        }
        add(&self.counters.write_backs, written);
        outcome.map(|()| if written > 0 { Progress::Worked } else { Progress::Idle })
    }
}
