//! Rebuilding without the cache, should its device be lost: from where the log must be kept so that
//! redo on the store's images rebuilds every page.
//!
//! If this is enabled, the cache keeps for each slot the LSN of the first change in its dirty image
//! that the store lacks: 8 bytes of DRAM a slot. A newer image of a page that was already dirty
//! here inherits it. For images that a restart finds only a bound is known, which the superblock
//! recorded; for those from before it was enabled, nothing.
//!
//! The oldest dirty pages would hold the log for ever: a page that is changed again and again never
//! reaches the front as the valid image. So the caller that bounds the log has pages that lack
//! changes from before the bound written to the store, wherever in the ring they lie.
//!
//! The holder of `ring` reads and changes everything here, so that no image is on its way between
//! two slots.

use super::geometry::{SEAL_BYTES, Slot};
use super::group::Seal;
use super::lacking::{Lacking, NOTHING, UNKNOWN};
use super::read::Hit;
use super::state::{FlashCache, Ring};
use crate::error::{TierError, TierErrorKind};
use crate::page_cache::RebuildFrom;
use crate::page_cache::statistics::add;
use crate::page_tier::PageWrite;
use firndb_base::Lsn;

impl FlashCache {
    /// Starts tracking what the store lacks. `from` is a bound for the images that are dirty
    /// already. Called before any other thread uses the cache.
    pub(crate) fn keep_rebuildable(&self, from: Option<Lsn>) {
        if self.is_write_through() {
            return;
        }
        let _ring = self.ring.try_lock().expect("no other thread uses the cache yet");
        let lacking = Lacking::new(self.geometry.slots());
        self.directory.for_each_valid(|slot, word| {
            if word.is_dirty() {
                lacking.set(slot, from.map_or(UNKNOWN, |lsn| lsn.0));
            }
        });
        let _ = self.lacking.set(lacking);
    }

    pub(crate) fn is_rebuildable(&self) -> bool {
        self.lacking.get().is_some()
    }

    /// Notes that an image entered `slot`, in place of the one in `old`, which was its page's valid
    /// image.
    pub(crate) fn note_lacking(&self, slot: Slot, old: Option<Slot>, dirty: bool, recovery_lsn: Lsn) {
        let Some(lacking) = self.lacking.get() else { return };
        let before = old.map_or(NOTHING, |old| lacking.of(old));
        lacking.set(slot, if dirty { before.min(recovery_lsn.0) } else { NOTHING });
    }
    /// Notes that an image moved.
    pub(crate) fn move_lacking(&self, from: Slot, to: Slot) {
        if let Some(lacking) = self.lacking.get() {
            lacking.set(to, lacking.of(from));
        }
    }
    /// Notes that the slot has no dirty image any more.
    pub(crate) fn forget_lacking(&self, slot: Slot) {
        if let Some(lacking) = self.lacking.get() {
            lacking.set(slot, NOTHING);
        }
    }

    pub(crate) fn rebuild_from(&self) -> RebuildFrom {
        let Some(lacking) = self.lacking.get() else { return RebuildFrom { kept: None, complete: true } };
        let _ring = self.ring.lock();
        let (mut oldest, mut complete) = (NOTHING, true);
        self.directory.for_each_valid(|slot, word| {
            if word.is_dirty() {
                match lacking.of(slot) {
                    UNKNOWN => complete = false,
                    lsn => oldest = oldest.min(lsn),
                }
            }
        });
        RebuildFrom { kept: (oldest != NOTHING).then_some(Lsn(oldest)), complete }
    }

    /// Writes to the store the images of which it lacks changes from before `lsn`.
    pub(crate) fn write_back_before(&self, lsn: Lsn) -> Result<(), TierError> {
        let Some(lacking) = self.lacking.get() else { return Ok(()) };
        let mut slots: Vec<Slot> = Vec::new();
        {
            let mut ring = self.ring.lock();
            let rear = self.geometry.first_slot(ring.rear).0;
            let open = rear..rear + self.geometry.group_pages as u32;
            self.directory.for_each_valid(|slot, word| {
                if word.is_dirty() && lacking.of(slot) < lsn.0 {
                    slots.push(slot);
                }
            });
            if slots.iter().any(|slot| open.contains(&slot.0)) {
                // Written first, so that they are read from the device like the others.
                self.poison.check()?;
                self.make_space(&mut ring)?;
                if !self.open.read().entries.is_empty() {
                    self.write_group(&mut ring)?;
                }
            }
        }
        for slots in slots.chunks(self.geometry.group_pages) {
            let mut ring = self.ring.lock();
            self.poison.check()?;
            self.write_back_slots(&mut ring, slots, lsn)?;
        }
        self.write_segments();
        Ok(())
    }

    /// Writes back those of `slots` that still lack changes from before `lsn`.
    fn write_back_slots(&self, ring: &mut Ring, slots: &[Slot], lsn: Lsn) -> Result<(), TierError> {
        let lacking = self.lacking.get().expect("the caller has it");
        let mut hits: Vec<(usize, Hit)> = Vec::new();
        for slot in slots {
            let word = self.directory.word(*slot);
            if !word.is_valid() || !word.is_dirty() || lacking.of(*slot) >= lsn.0 {
                continue;
            }
            // (The page may have been freed since.)
            let hit = self.hit(word.page()).filter(|hit| hit.slot == *slot && hit.serial != ring.rear);
            hits.extend(hit.map(|hit| (0, hit)));
        }
        if hits.is_empty() {
            return Ok(());
        }
        let (bufs, outcomes) = self.read_images(&hits);
        let mut writes: Vec<PageWrite<'_>> = Vec::with_capacity(hits.len());
        let (mut offered, mut stored) = (Vec::with_capacity(hits.len()), Vec::new());
        for (((_, hit), buf), outcome) in hits.iter().zip(&bufs).zip(outcomes) {
            let skip = self.reach(*hit).skip;
            let sealed = &buf[skip..skip + SEAL_BYTES + self.geometry.page_size];
            let seal = outcome.map_err(TierError::from);
            match seal.and_then(|()| self.verify(hit.word.page(), *hit, sealed)) {
                Ok(Seal { page, version, since, .. }) => {
                    // The image is durable here until the store's record of it is.
                    let write = PageWrite::back(page, version, Lsn::MAX, &sealed[SEAL_BYTES..]);
                    writes.push(write.changed_since(since.base, since.changes));
                    offered.push(*hit);
                }
                Err(_) if self.is_recorded(hit.word.page(), *hit) => stored.push(*hit),
                Err(error) => return Err(error),
            }
        }
        self.store.write_batch(&mut writes);
        ring.written_back_end = ring.written_back_end.max(self.store.records_end());
        for hit in stored {
            self.directory.clean(hit.word.page(), hit.slot, hit.word);
            lacking.set(hit.slot, NOTHING);
        }
        let (mut written, mut outcome) = (0, Ok(()));
        for (write, hit) in writes.iter().zip(offered) {
            match &write.outcome {
                // Its map page is damaged, so redo could not rebuild it either: no log is held for
                // it, and the next call tries again.
                Err(error) if error.concerns_the_page() => lacking.set(hit.slot, UNKNOWN),
                Err(error) if error.kind != TierErrorKind::NotAllocated => outcome = Err(error.clone()),
                _ => {
                    self.directory.clean(write.page, hit.slot, hit.word);
                    lacking.set(hit.slot, NOTHING);
                    written += 1;
                }
            }
        }
        add(&self.counters.write_backs, written);
        drop(writes);
        self.keep_scratch(bufs);
        outcome
    }
}
