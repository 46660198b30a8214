//! The directory: which slot holds the valid image of a page. 16 bytes of DRAM a slot.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | slot's *word*: page (bits 0–39), version tag (40–59), linked, dirty, referenced (60–62) |
//! | 4 | next slot of the chain in which it is |
//! | 4 | first slot of some chain; as many chains as slots |
//!
//! What does not fit into the word is in the image's seal on the device: the whole version, the
//! group's serial and a checksum, which the one read of a hit returns with the image. A reader
//! accepts the image only if the seal names the page and the serial that arithmetic gives for the
//! slot, its checksum over seal and image is right, and the version's low 20 bits are the tag. A
//! slot that was reused has another serial; serials are never reused (except for a torn last group,
//! all of which is written again). So a wrong image would have to come from a group of the same
//! serial, of the same page: that is the same image, or a first, torn, attempt at that group that
//! the second write silently failed to replace, and then the tag still distinguishes the versions
//! except once in 2^20.
//!
//! Invariants: a chain holds the *valid* image of each page that hashes to it, at most one for each
//! page: linking a new image unlinks the old one. A slot is linked in at most one chain.
//!
//! Locks: a stripe protects its chains, and the words and next slots of what is linked in them. A
//! thread holds one stripe at a time, briefly, never during I/O. There is no lock over all of the
//! directory.

use super::geometry::Slot;
use super::word::{DIRTY, LINKED, PAGE_MASK, REFERENCED, Word};
use crate::ranks;
use firndb_base::sync::Mutex;
use firndb_base::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use firndb_base::{Lsn, PageId};
use std::ops::Range;

const NONE: u32 = u32::MAX;
const STRIPES: usize = 256;

/// An image found while the directory is restored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RestoredImage {
    pub page: PageId,
    pub slot: Slot,
    pub version: Lsn,
    pub dirty: bool,
    /// It was invalid when written: it only makes older images of its page invalid.
    pub killed: bool,
}

/// A contiguous range of chains.
#[derive(Clone, Debug)]
pub(crate) struct Share(Range<usize>);

/// A slot's word and link, and the head of one chain, which is unrelated to that slot. One
/// processor cache line holds all that following a chain over a slot needs.
#[repr(C, align(16))]
struct Place {
    word: AtomicU64,
    next: AtomicU32,
    head: AtomicU32,
}

/// The directory of one cache.
pub(crate) struct Directory {
    places: Box<[Place]>,
    stripes: Box<[Mutex<()>]>,
    valid: AtomicU64,
    dirty: AtomicU64,
}

impl Directory {
    /// A directory of `slots` empty slots.
    pub(crate) fn new(slots: usize) -> Directory {
        assert!(slots > 0 && slots < NONE as usize);
        Directory {
            places: (0..slots)
                .map(|_| Place {
                    word: AtomicU64::new(0),
                    next: AtomicU32::new(NONE),
                    head: AtomicU32::new(NONE),
                })
                .collect(),
            stripes: (0..STRIPES).map(|_| ranks::STRIPE.mutex(())).collect(),
            valid: AtomicU64::new(0),
            dirty: AtomicU64::new(0),
        }
    }

    /// Bytes of DRAM for `slots` slots.
    pub(crate) fn memory_bytes(slots: usize) -> usize {
        slots * size_of::<Place>() + STRIPES * size_of::<Mutex<()>>()
    }

    /// Number of pages with a valid image, and how many of these are dirty.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.valid.load(Relaxed), self.dirty.load(Relaxed))
    }

    fn chain_of(&self, page: PageId) -> usize {
        // Fibonacci hashing spreads neighbours far apart. The high bits choose, evenly for any
        // number of chains.
        let hash = page.0.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((u128::from(hash) * self.places.len() as u128) >> 64) as usize
    }
    fn stripe(&self, chain: usize) -> &Mutex<()> {
        &self.stripes[chain % STRIPES]
    }

    /// The word of a slot. A hint, unless it cannot change.
    pub(crate) fn word(&self, slot: Slot) -> Word {
        Word(self.places[slot.0 as usize].word.load(Relaxed))
    }

    /// Finds `page` in a chain; the caller holds its stripe (or no other thread uses it). Returns
    /// the slot, and the link that leads to it.
    fn find(&self, chain: usize, page: PageId) -> Option<(u32, &AtomicU32)> {
        let mut link = &self.places[chain].head;
        loop {
            let slot = link.load(Relaxed);
            if slot == NONE {
                return None;
            }
            if self.places[slot as usize].word.load(Relaxed) & PAGE_MASK == page.0 {
                return Some((slot, link));
            }
            link = &self.places[slot as usize].next;
        }
    }

    /// The slot of the page's valid image.
    pub(crate) fn lookup(&self, page: PageId) -> Option<(Slot, Word)> {
        let chain = self.chain_of(page);
        let _stripe = self.stripe(chain).lock();
        let (slot, _) = self.find(chain, page)?;
        Some((Slot(slot), self.word(Slot(slot))))
    }

    /// Notes that the image was used, if it is still the page's.
    pub(crate) fn reference(&self, page: PageId, slot: Slot) {
        if self.word(slot).is_referenced() {
            return;
        }
        let chain = self.chain_of(page);
        let _stripe = self.stripe(chain).lock();
        let word = self.word(slot);
        if word.is_valid() && word.page() == page {
            self.places[slot.0 as usize].word.store(word.0 | REFERENCED, Relaxed);
        }
    }

    /// Makes `slot` the page's valid image; the older one becomes invalid, and its slot is
    /// returned. If `inherits`, the new image counts as referenced if there was an older one.
    pub(crate) fn enqueue(
        &self,
        page: PageId,
        slot: Slot,
        version: Lsn,
        dirty: bool,
        inherits: bool,
    ) -> Option<Slot> {
        let chain = self.chain_of(page);
        let _stripe = self.stripe(chain).lock();
        let referenced = if inherits && self.find(chain, page).is_some() { REFERENCED } else { 0 };
        self.replace(chain, page, slot, Word(Word::new(page, version, dirty).0 | referenced))
    }

    fn replace(&self, chain: usize, page: PageId, slot: Slot, word: Word) -> Option<Slot> {
        let old = self.remove(chain, page);
        self.link(chain, slot, word);
        self.valid.fetch_add(1, Relaxed);
        self.dirty.fetch_add(u64::from(word.is_dirty()), Relaxed);
        old
    }
    fn remove(&self, chain: usize, page: PageId) -> Option<Slot> {
        let (slot, word) = self.unlink(chain, page)?;
        self.valid.fetch_sub(1, Relaxed);
        self.dirty.fetch_sub(u64::from(word.is_dirty()), Relaxed);
        Some(slot)
    }

    fn link(&self, chain: usize, slot: Slot, word: Word) {
        assert!(!self.word(slot).is_valid(), "{slot:?} is in use");
        self.places[slot.0 as usize].word.store(word.0, Relaxed);
        self.places[slot.0 as usize].next.store(self.places[chain].head.load(Relaxed), Relaxed);
        self.places[chain].head.store(slot.0, Relaxed);
    }
    fn unlink(&self, chain: usize, page: PageId) -> Option<(Slot, Word)> {
        let (slot, link) = self.find(chain, page)?;
        link.store(self.places[slot as usize].next.load(Relaxed), Relaxed);
        let word = self.word(Slot(slot));
        assert!(word.is_valid(), "what is in a chain is valid");
        self.places[slot as usize].word.store(word.0 & !(LINKED | REFERENCED), Relaxed);
        Some((Slot(slot), word))
    }

    /// Moves the page's valid image from one slot to another with its flags, except that it is not
    /// referenced any more. Returns false, and does nothing, if `from` is not its valid image any
    /// more.
    pub(crate) fn requeue(&self, page: PageId, from: Slot, to: Slot) -> bool {
        let chain = self.chain_of(page);
        let _stripe = self.stripe(chain).lock();
        let word = self.word(from);
        if !word.is_valid() || word.page() != page {
            return false;
        }
        let old = self.replace(chain, page, to, Word(word.0 & !REFERENCED));
        assert!(old == Some(from), "one valid image a page");
        true
    }

    /// Invalidates the page's image, if it has one. Calls `note` under the stripe's lock: a thread
    /// that finds the image gone also finds what was noted.
    pub(crate) fn invalidate<T>(&self, page: PageId, note: impl FnOnce(Slot) -> T) -> Option<T> {
        let chain = self.chain_of(page);
        let _stripe = self.stripe(chain).lock();
        self.remove(chain, page).map(note)
    }

    /// Invalidates the image in `slot` if it is still the page's valid image and the same one: an
    /// image that entered since is another. Returns whether it was.
    pub(crate) fn forget(&self, page: PageId, slot: Slot, word: Word) -> bool {
        let chain = self.chain_of(page);
        let _stripe = self.stripe(chain).lock();
        let now = self.word(slot);
        let same = now.is_valid() && now.is_same_image(word);
        if same {
            let unlinked = self.remove(chain, page);
            assert!(unlinked == Some(slot), "one valid image a page");
        }
        same
    }

    /// Marks the image in `slot` clean after the store took it, if it is still the page's and the
    /// same. Returns whether it was, and was dirty until now.
    pub(crate) fn clean(&self, page: PageId, slot: Slot, word: Word) -> bool {
        let chain = self.chain_of(page);
        let _stripe = self.stripe(chain).lock();
        let now = self.word(slot);
        let same = now.is_valid() && now.is_dirty() && now.is_same_image(word);
        if same {
            self.places[slot.0 as usize].word.store(now.0 & !DIRTY, Relaxed);
            self.dirty.fetch_sub(1, Relaxed);
        }
        same
    }

    /// Removes the slot's image from the cache, valid or not. The caller replaces its group: no
    /// thread puts anything into the slot meanwhile.
    pub(crate) fn retire(&self, slot: Slot) {
        let page = self.word(slot).page();
        let chain = self.chain_of(page);
        let _stripe = self.stripe(chain).lock();
        if self.word(slot).is_valid() {
            let unlinked = self.remove(chain, page);
            assert!(unlinked == Some(slot), "one valid image a page");
        }
        self.places[slot.0 as usize].word.store(0, Relaxed);
    }

    /// Share `part` of `parts` equal shares of the chains.
    pub(crate) fn share(&self, part: usize, parts: usize) -> Share {
        let bound = |part: usize| part * self.places.len() / parts;
        Share(bound(part)..bound(part + 1))
    }
    /// Whether the page's chain is in the share.
    pub(crate) fn is_in(&self, share: &Share, page: PageId) -> bool {
        share.0.contains(&self.chain_of(page))
    }

    /// As [`Directory::enqueue`] for each image, in order, while the directory is restored: called
    /// by the one thread that uses these pages' chains. Not counted before [`Directory::restored`].
    pub(crate) fn restore(&self, images: &[RestoredImage]) {
        /// The number of cache misses that a processor has under way at a time, and some to spare.
        const TOGETHER: usize = 32;
        /// Steps prefetched together; few chains are longer.
        const STEPS: usize = 2;
        for images in images.chunks(TOGETHER) {
            // Every step along a chain is a processor cache miss. The loop starts the same step of
            // all of a chunk's chains before it waits for the first, which is several times as
            // fast.
            let mut chains = [0; TOGETHER];
            let mut slots = [NONE; TOGETHER];
            for ((image, chain), slot) in images.iter().zip(&mut chains).zip(&mut slots) {
                *chain = self.chain_of(image.page);
                *slot = self.places[*chain].head.load(Relaxed);
            }
            for _ in 0..STEPS {
                for (image, slot) in images.iter().zip(&mut slots).filter(|(_, slot)| **slot != NONE) {
                    let place = &self.places[*slot as usize];
                    let found = place.word.load(Relaxed) & PAGE_MASK == image.page.0;
                    *slot = if found { NONE } else { place.next.load(Relaxed) };
                }
            }
            std::hint::black_box(&slots);
            for (image, &chain) in images.iter().zip(&chains) {
                self.unlink(chain, image.page);
                if !image.killed {
                    self.link(chain, image.slot, Word::new(image.page, image.version, image.dirty));
                }
            }
        }
    }
    /// As `restore`, for a tombstone of `page`, if that is in `share`.
    pub(crate) fn restore_tombstone(&self, page: PageId, share: &Share) {
        if self.is_in(share, page) {
            self.unlink(self.chain_of(page), page);
        }
    }
    /// Ends a restoration: counts the valid and the dirty images.
    pub(crate) fn restored(&self) {
        let (mut valid, mut dirty) = (0, 0);
        self.for_each_valid(|_, word| {
            valid += 1;
            dirty += u64::from(word.is_dirty());
        });
        self.valid.store(valid, Relaxed);
        self.dirty.store(dirty, Relaxed);
    }

    /// Asserts the invariants at the head of this file, and calls `each` with every valid image,
    /// under its stripe's lock. No image enters meanwhile: the caller holds the cache's `ring`.
    pub(crate) fn check(&self, each: &mut dyn FnMut(Slot, Word)) {
        let (most, mut valid, mut dirty) = (self.counts(), 0, 0);
        for chain in 0..self.places.len() {
            let _stripe = self.stripe(chain).lock();
            let mut at = self.places[chain].head.load(Relaxed);
            while at != NONE {
                let word = self.word(Slot(at));
                assert!(
                    word.is_valid() && self.chain_of(word.page()) == chain,
                    "{at} is in its page's chain"
                );
                let first = self.find(chain, word.page()).map(|(slot, _)| slot);
                assert_eq!(first, Some(at), "one valid image a page");
                (valid, dirty) = (valid + 1, dirty + u64::from(word.is_dirty()));
                each(Slot(at), word);
                at = self.places[at as usize].next.load(Relaxed);
            }
        }
        // Images may become invalid or clean meanwhile.
        let least = self.counts();
        assert!(
            (least.0..=most.0).contains(&valid),
            "{valid} images are valid, {least:?} to {most:?} counted"
        );
        assert!(
            (least.1..=most.1).contains(&dirty),
            "{dirty} images are dirty, {least:?} to {most:?} counted"
        );
    }

    /// Visits every valid image. A hint: changes made meanwhile may be seen or not.
    pub(crate) fn for_each_valid(&self, mut visit: impl FnMut(Slot, Word)) {
        for slot in (0..self.places.len() as u32).map(Slot) {
            let word = self.word(slot);
            if word.is_valid() {
                visit(slot, word);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_base::rng::Rng;
    use std::collections::BTreeMap;

    #[test]
    fn a_slot_takes_sixteen_bytes() {
        assert_eq!(Directory::memory_bytes(1 << 20) - Directory::memory_bytes(0), 16 << 20);
    }

    #[test]
    fn random_work_agrees_with_a_map() {
        for seed in 0..50 {
            let mut rng = Rng::new(seed);
            let slots = rng.between(4, 200) as u32;
            let directory = Directory::new(slots as usize);
            let mut model: BTreeMap<PageId, (Slot, bool)> = BTreeMap::new();
            let mut free: Vec<Slot> = (0..slots).map(Slot).collect();
            for _ in 0..2000 {
                let page = PageId(rng.between(1, 60) << rng.below(34));
                let dirty = rng.one_in(2);
                match rng.below(4) {
                    0 | 1 if !free.is_empty() => {
                        let slot = free.swap_remove(rng.below(free.len() as u64) as usize);
                        let old = directory.enqueue(page, slot, Lsn(9), dirty, rng.one_in(2));
                        assert_eq!(old, model.insert(page, (slot, dirty)).map(|(slot, _)| slot));
                        free.extend(old);
                    }
                    2 => {
                        let killed = directory.invalidate(page, |slot| slot);
                        assert_eq!(killed, model.remove(&page).map(|(slot, _)| slot));
                        free.extend(killed);
                    }
                    _ => {
                        let slot = Slot(rng.below(u64::from(slots)) as u32);
                        directory.retire(slot);
                        let before = model.len();
                        model.retain(|_, (held, _)| *held != slot);
                        if model.len() < before {
                            free.push(slot);
                        }
                    }
                }
                let dirty = model.values().filter(|(_, dirty)| *dirty).count();
                assert_eq!(directory.counts(), (model.len() as u64, dirty as u64));
                let found = directory.lookup(page).map(|(slot, word)| {
                    assert!(word.is_valid() && word.page() == page && word.may_be(Lsn(9)));
                    (slot, word.is_dirty())
                });
                assert_eq!(found, model.get(&page).copied(), "seed {seed}");
            }
        }
    }

    #[test]
    fn every_page_belongs_to_one_share() {
        let mut rng = Rng::new(1);
        for (slots, parts) in [(1, 1), (7, 8), (64, 3), (1000, 8), (4096, 2)] {
            let directory = Directory::new(slots);
            let shares: Vec<Share> = (0..parts).map(|part| directory.share(part, parts)).collect();
            let mut pages = vec![0; parts];
            for _ in 0..2000 {
                let page = PageId(rng.between(1, 1 << 38));
                let of: Vec<usize> =
                    (0..parts).filter(|part| directory.is_in(&shares[*part], page)).collect();
                assert_eq!(of.len(), 1, "{page:?} of {slots} slots in {parts} shares: {of:?}");
                pages[of[0]] += 1;
            }
            let (least, most) = (pages.iter().min().unwrap(), pages.iter().max().unwrap());
            assert!(slots < 64 || most - least < 400, "{pages:?}");
        }
    }

    #[test]
    fn what_came_in_since_is_not_forgotten() {
        let directory = Directory::new(8);
        directory.enqueue(PageId(5), Slot(1), Lsn(7), false, false);
        let (slot, seen) = directory.lookup(PageId(5)).unwrap();
        directory.reference(PageId(5), slot);
        let newer = directory.enqueue(PageId(5), Slot(2), Lsn(8), true, false);
        assert_eq!(newer, Some(Slot(1)));
        assert!(!directory.forget(PageId(5), slot, seen), "it was another image");
        let (slot, word) = directory.lookup(PageId(5)).unwrap();
        assert!(slot == Slot(2) && word.is_dirty(), "the newer version, which nothing else has, stays");
        directory.reference(PageId(5), slot);
        assert!(directory.forget(PageId(5), slot, word));
        assert_eq!((directory.lookup(PageId(5)), directory.counts()), (None, (0, 0)));
    }

    #[test]
    fn a_page_moves_only_from_where_it_is() {
        let directory = Directory::new(8);
        directory.enqueue(PageId(5), Slot(1), Lsn(7), true, false);
        directory.reference(PageId(5), Slot(1));
        assert!(directory.word(Slot(1)).is_referenced());
        assert!(!directory.requeue(PageId(5), Slot(2), Slot(3)));
        assert!(directory.requeue(PageId(5), Slot(1), Slot(3)));
        let (slot, word) = directory.lookup(PageId(5)).unwrap();
        assert!(slot == Slot(3) && word.is_dirty() && !word.is_referenced() && word.may_be(Lsn(7)));
        assert!(!directory.word(Slot(1)).is_valid());
        assert_eq!(directory.counts(), (1, 1));
    }
}
