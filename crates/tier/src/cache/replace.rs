//! Replacing groups, to make space for the next.
//!
//! The images of a replaced group stay where they are until a header that names a front past them
//! is durable (`write_group`); readers that found them in the directory before may read them
//! meanwhile.
//!
//! An image that the store cannot take, since the page's map page is damaged, stays in the ring: it
//! goes to the group being filled again, and other images are not held up by it. A cache that is
//! leaving cannot keep it, and reports the error.

use super::geometry::{SEAL_BYTES, Slot};
use super::group::{Entry, Since};
use super::lost::Reread;
use super::policy::{Fate, choose};
use super::state::{FlashCache, Ring};
use super::word::Word;
use crate::error::{TierError, TierErrorKind};
use crate::page_cache::statistics::add;
use crate::page_tier::PageWrite;
use firndb_base::sync::atomic::Ordering::Relaxed;
use firndb_base::{Lsn, PageId};
use firndb_device::AlignedBuf;

/// One image of the group being replaced.
pub(crate) struct Leaving {
    pub slot: Slot,
    pub word: Word,
    pub fate: Fate,
    /// Known once the image was read.
    pub version: Lsn,
    pub since: Since,
    /// The image cannot be read, and there is no other copy.
    pub lost: bool,
}

impl FlashCache {
    /// Replaces groups until the group being filled, and the one after it, have their places.
    pub(crate) fn make_space(&self, ring: &mut Ring) -> Result<(), TierError> {
        let mut replaced = 0;
        while ring.front.0 + self.geometry.groups < ring.rear.0 + 2 {
            if replaced > self.geometry.groups {
                let message = "every page in the flash cache waits for a damaged page of the store's map: run a \
                               check, then restore the database from a backup";
                return Err(TierError::new(TierErrorKind::Damaged, message));
            }
            let mut scratch = std::mem::replace(&mut ring.scratch, AlignedBuf::zeroed(self.geometry.block));
            let outcome = self.replace_front(ring, &mut scratch);
            ring.scratch = scratch;
            outcome?;
            replaced += 1;
            // Of images that the store cannot take.
            if self.open.read().entries.len() == self.geometry.group_pages {
                self.write_group(ring)?;
            }
        }
        Ok(())
    }

    /// Decides on the front group and carries the decision out. If it fails, the group stays.
    pub(crate) fn replace_front(&self, ring: &mut Ring, scratch: &mut AlignedBuf) -> Result<(), TierError> {
        self.weigh_again(ring);
        let mut leaving = self.decide(ring);
        self.read_leaving(ring, &mut leaving, scratch)?;
        self.write_back(ring, &mut leaving, scratch)?;
        for image in leaving.iter().filter(|image| image.lost) {
            self.give_up_image(ring, image)?;
        }
        for image in &leaving {
            if image.fate == Fate::Again {
                self.enqueue_again(ring, image, scratch);
            }
        }
        for image in &leaving {
            match (image.word.is_valid(), image.fate) {
                (false, _) if image.word.page() != PageId(0) => add(&self.counters.discarded_invalid, 1),
                (true, Fate::Discard) if !image.lost => add(&self.counters.discarded_clean, 1),
                _ => {}
            }
            if let Some(shadow) =
                ring.shadow.as_mut().filter(|_| image.word.is_valid() && image.fate != Fate::Again)
            {
                shadow.remember(image.word.page());
            }
            self.directory.retire(image.slot);
            self.forget_lacking(image.slot);
        }
        ring.front = ring.front.next();
        self.front.store(ring.front.0, Relaxed);
        self.check_replaced(ring);
        Ok(())
    }

    fn decide(&self, ring: &Ring) -> Vec<Leaving> {
        let slots: Vec<Slot> =
            (0..self.geometry.group_pages).map(|index| self.geometry.slot(ring.front, index)).collect();
        let words: Vec<Word> = slots.iter().map(|slot| self.directory.word(*slot)).collect();
        // At least one place stays free for the page that needs the space.
        let again_max = self.geometry.group_pages.saturating_sub(self.open.read().entries.len() + 1);
        let fates = choose(&words, self.chances(), again_max);
        let all = slots.into_iter().zip(words).zip(fates);
        let leaving = |((slot, word), fate)| {
            let (version, since) = (Lsn::ZERO, Since::UNKNOWN);
            Leaving { slot, word, fate, version, since, lost: false }
        };
        all.map(leaving).collect()
    }

    /// Reads those of the group's images that are needed, and verifies them.
    fn read_leaving(
        &self,
        ring: &mut Ring,
        leaving: &mut [Leaving],
        scratch: &mut AlignedBuf,
    ) -> Result<(), TierError> {
        let needed = leaving.iter().filter(|image| image.fate != Fate::Discard);
        let needed: Vec<(Slot, Word)> = needed.map(|image| (image.slot, image.word)).collect();
        let kept = self.kept.lock().take(ring.front);
        let read = match kept {
            Some(group) => {
                self.kept.lock().give_back(std::mem::replace(scratch, group));
                Ok(())
            }
            None => self.read_transfer(ring.front, &needed, scratch),
        };
        for (index, image) in leaving.iter_mut().enumerate().filter(|(_, image)| image.fate != Fate::Discard)
        {
            let at = self.geometry.image_at(index);
            let sealed = &scratch[at..at + SEAL_BYTES + self.geometry.page_size];
            let seal = if read.is_ok() { self.seal_of(image.word, ring.front, sealed) } else { None };
            match seal {
                Some(seal) => (image.version, image.since) = (seal.version, seal.since),
                // The store has this version.
                None if !image.word.is_dirty() => {
                    add(&self.counters.faults, 1);
                    image.fate = Fate::Discard;
                }
                // The page was freed before a restart, which found the image again.
                None if self.is_unallocated(image.word.page()) => image.fate = Fate::Discard,
                None => {
                    let cause = self.cause_of(read.clone(), image);
                    let sealed = &mut scratch[at..at + SEAL_BYTES + self.geometry.page_size];
                    match self.reread(ring.front, index, image, sealed, cause)? {
                        Reread::Found(seal) => (image.version, image.since) = (seal.version, seal.since),
                        Reread::Stored => {
                            add(&self.counters.faults, 1);
                            image.fate = Fate::Discard;
                            // No header passes the image before the store's record is durable.
                            ring.written_back_end = ring.written_back_end.max(self.store.records_end());
                        }
                        Reread::Lost(version) => {
                            (image.version, image.lost, image.fate) = (version, true, Fate::Discard);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes images to the store. Those that it cannot take are enqueued again, or it fails.
    fn write_back(
        &self,
        ring: &mut Ring,
        leaving: &mut [Leaving],
        scratch: &AlignedBuf,
    ) -> Result<(), TierError> {
        let indexes: Vec<usize> =
            (0..leaving.len()).filter(|index| leaving[*index].fate == Fate::WriteBack).collect();
        if indexes.is_empty() {
            return Ok(());
        }
        let write = |index: &usize| {
            let (image, data) = (&leaving[*index], self.image_of(*index, scratch));
            // The image is durable here until the store's record of it is: the log is not needed
            // for it.
            PageWrite::back(image.word.page(), image.version, Lsn::MAX, data)
                .changed_since(image.since.base, image.since.changes)
        };
        let mut writes: Vec<PageWrite<'_>> = indexes.iter().map(write).collect();
        self.store.write_batch(&mut writes);
        let (mut stay, mut error) = (Vec::new(), None);
        for (index, write) in indexes.iter().zip(writes) {
            match write.outcome {
                // Freed, or the store knows a newer incarnation of the page: this image is never
                // read again.
                Err(found) if found.kind == TierErrorKind::NotAllocated => {}
                Err(found) if found.concerns_the_page() => {
                    stay.push(*index);
                    error = error.or(Some(found));
                }
                outcome => drop(outcome?),
            }
        }
        ring.written_back_end = ring.written_back_end.max(self.store.records_end());
        add(&self.counters.write_backs, indexes.len() - stay.len());
        match error {
            Some(error) if !self.let_stay(leaving, &stay) => Err(error),
            _ => Ok(()),
        }
    }

    /// Has the images at these indexes enqueued again, before clean ones that were to be; false if
    /// the group being filled has no space for them.
    fn let_stay(&self, leaving: &mut [Leaving], stay: &[usize]) -> bool {
        let space = self.geometry.group_pages.saturating_sub(self.open.read().entries.len());
        let again = |leaving: &[Leaving]| leaving.iter().filter(|image| image.fate == Fate::Again).count();
        let mut over = (again(leaving) + stay.len()).saturating_sub(space);
        for image in leaving.iter_mut().filter(|image| image.fate == Fate::Again && !image.word.is_dirty()) {
            if over == 0 {
                break;
            }
            image.fate = Fate::Discard;
            over -= 1;
        }
        if over > 0 || self.is_leaving() {
            return false;
        }
        stay.iter().for_each(|index| leaving[*index].fate = Fate::Again);
        true
    }

    fn enqueue_again(&self, ring: &Ring, image: &Leaving, scratch: &AlignedBuf) {
        let page = image.word.page();
        let entry = Entry { page, version: image.version, dirty: image.word.is_dirty(), killed: false };
        let data = self.image_of(self.geometry.index_of(image.slot), scratch);
        let index = self.open.write().push(&self.geometry, self.header.cache, (entry, image.since), data);
        if self.directory.requeue(page, image.slot, self.geometry.slot(ring.rear, index)) {
            self.move_lacking(image.slot, self.geometry.slot(ring.rear, index));
            add(&self.counters.second_chances, 1);
        } else {
            // It was freed meanwhile.
            self.open.write().pop();
        }
    }

    fn image_of<'a>(&self, index: usize, group: &'a [u8]) -> &'a [u8] {
        let at = self.geometry.image_at(index) + SEAL_BYTES;
        &group[at..at + self.geometry.page_size]
    }
}
