//! What it takes to do without the cache, should its device be lost: from where on the log must be kept so that redo upon the
//! store makes every page anew.
//!
//! For each slot the LSN is kept of the first change that the store lacks of the dirty image in it: 8 bytes of DRAM a slot,
//! if it is asked for. A newer image of a page that was dirty here already inherits it. Of images that a restart finds only a
//! bound is known, what the superblock remembered; of those from before it was asked for, nothing.
//!
//! The oldest dirty pages would hold the log for ever: a page that is changed again and again never comes to the front as the valid
//! image. So who bounds the log has what lacks changes from before that bound written to the store, from wherever it lies.
//!
//! Everything here is read and changed by the holder of `ring`, so that no image is on its way between two slots.

use super::geometry::{SEAL_BYTES, Slot};
use super::read::Hit;
use super::statistics::add;
use super::{FlashCache, Ring};
use crate::{PageTier, PageWrite, RebuildFrom, TierError, TierErrorKind};
use firn_base::Lsn;
use firn_base::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Of an image that may lack anything.
const UNKNOWN: u64 = 0;
/// Of a slot without a dirty image.
const NOTHING: u64 = u64::MAX;

/// First changes that the store lacks, by slot.
pub(crate) struct Lacking(Box<[AtomicU64]>);

impl Lacking {
    fn new(slots: usize) -> Lacking {
        Lacking((0..slots).map(|_| AtomicU64::new(NOTHING)).collect())
    }
    fn of(&self, slot: Slot) -> u64 {
        self.0[slot.0 as usize].load(Relaxed)
    }
    fn set(&self, slot: Slot, lsn: u64) {
        self.0[slot.0 as usize].store(lsn, Relaxed);
    }
}

impl FlashCache {
    /// From now on it is known what the store lacks. `from` is a bound for what is dirty already. Called before anybody else
    /// uses the cache.
    pub(crate) fn begin_lacking(&self, from: Option<Lsn>) {
        if self.is_write_through() {
            return;
        }
        let _ring = self.ring.try_lock().expect("nobody uses the cache yet");
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

    /// An image came into `slot`, instead of that in `old`, which was its page's valid one.
    pub(crate) fn note_lacking(&self, slot: Slot, old: Option<Slot>, dirty: bool, recovery_lsn: Lsn) {
        let Some(lacking) = self.lacking.get() else { return };
        let before = old.map_or(NOTHING, |old| lacking.of(old));
        lacking.set(slot, if dirty { before.min(recovery_lsn.0) } else { NOTHING });
    }
    /// An image moved.
    pub(crate) fn move_lacking(&self, from: Slot, to: Slot) {
        if let Some(lacking) = self.lacking.get() {
            lacking.set(to, lacking.of(from));
        }
    }
    /// The slot has no dirty image any more.
    pub(crate) fn forget_lacking(&self, slot: Slot) {
        if let Some(lacking) = self.lacking.get() {
            lacking.set(slot, NOTHING);
        }
    }

    pub(crate) fn lacking_from(&self) -> RebuildFrom {
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

    /// Writes to the store what lacks changes from before `lsn` there.
    pub(crate) fn write_back_lacking(&self, lsn: Lsn) -> Result<(), TierError> {
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
                // Read from the device like the others.
                self.check_poison()?;
                self.make_room(&mut ring)?;
                if !self.open.read().entries.is_empty() {
                    self.write_group(&mut ring)?;
                }
            }
        }
        for slots in slots.chunks(self.geometry.group_pages) {
            let mut ring = self.ring.lock();
            self.check_poison()?;
            self.write_back_slots(&mut ring, slots, lsn)?;
        }
        self.write_segments();
        Ok(())
    }

    /// Those of `slots` that still are what they were looked up for.
    fn write_back_slots(&self, ring: &mut Ring, slots: &[Slot], lsn: Lsn) -> Result<(), TierError> {
        let lacking = self.lacking.get().expect("the caller has it");
        let mut hits: Vec<(usize, Hit)> = Vec::new();
        for slot in slots {
            let word = self.directory.word(*slot);
            if !word.is_valid() || !word.is_dirty() || lacking.of(*slot) >= lsn.0 {
                continue;
            }
            // (It may have been freed since.)
            let hit = self.hit(word.page()).filter(|hit| hit.slot == *slot && hit.serial != ring.rear);
            hits.extend(hit.map(|hit| (0, hit)));
        }
        if hits.is_empty() {
            return Ok(());
        }
        let (bufs, outcomes) = self.read_images(&hits);
        let mut writes: Vec<PageWrite<'_>> = Vec::with_capacity(hits.len());
        for (((_, hit), buf), outcome) in hits.iter().zip(&bufs).zip(outcomes) {
            outcome?;
            let skip = self.reach(*hit).skip;
            let sealed = &buf[skip..skip + SEAL_BYTES + self.geometry.page_size];
            let version = self.verify(hit.word.page(), *hit, sealed)?.version;
            // Here it is durable until the store's record of it is.
            writes.push(PageWrite::back(hit.word.page(), version, Lsn::MAX, &sealed[SEAL_BYTES..]));
        }
        self.store.write_batch(&mut writes);
        for (write, (_, hit)) in writes.iter().zip(&hits) {
            match &write.outcome {
                Err(error) if error.kind != TierErrorKind::NotAllocated => return Err(error.clone()),
                _ => {}
            }
            self.directory.clean(write.page, hit.slot, hit.word);
            lacking.set(hit.slot, NOTHING);
        }
        add(&self.counters.write_backs, writes.len());
        ring.written_back_end = ring.written_back_end.max(self.store.records_end());
        drop(writes);
        self.keep_scratch(bufs);
        Ok(())
    }
}
