//! Metadata pages in memory: found by name, replaced by clock.
//!
//! Invariants:
//! * a page is in at most one frame, and not while it is being loaded;
//! * only a page that is clean, not being written and not pinned is dropped;
//! * a page is `dirty` if a record has changed it since its last write was begun. Map pages never
//!   are: what changes of them is in the overlay until a sweep writes them.

use super::dropped::Dropped;
use super::entry::Entry;
use super::geometry::{Geometry, Slot};
use super::meta_page::{MetaId, MetaImage};
use super::overlay::Overlay;
use firndb_base::hash::FixedMap;
use firndb_base::{Lsn, PageId};
use std::collections::BTreeSet;

/// Bytes of DRAM that a cached page takes beyond its body, tables included.
const FRAME_OVERHEAD_BYTES: usize = 160;
/// Pages held, however small the budget.
const PAGES_LEAST: usize = 8;
/// Pages that are read together, at most.
const READ_TOGETHER: usize = 64;
/// Frames examined for eviction when most pages are changed.
const CROWDED_STEPS: usize = 64;

/// A cached metadata page.
#[derive(Debug)]
pub(crate) struct MetaPage {
    pub id: MetaId,
    pub lsn: Lsn,
    pub body: Box<[u8]>,
    sequence: u64,
    slot: Slot,
    pins: u32,
    referenced: bool,
    dirty: bool,
    writing: bool,
}

impl MetaPage {
    fn evictable(&self) -> bool {
        self.pins == 0 && !self.dirty && !self.writing
    }
}

/// A copy of a page to be written, with its slot and sequence.
#[derive(Debug)]
pub(crate) struct WriteOut {
    pub id: MetaId,
    pub lsn: Lsn,
    pub sequence: u64,
    pub slot: Slot,
    pub body: Box<[u8]>,
    /// The entries of the overlay that were put into the copy.
    pub merged: Vec<(PageId, Entry)>,
}

/// State of a page's version on the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    pub sequence: u64,
    /// Whether a write is replacing it.
    writing: bool,
}

impl Stamp {
    /// Whether the device held one and the same version from this moment to `later`.
    pub(crate) fn is_same_version(self, later: Stamp) -> bool {
        !self.writing && !later.writing && self.sequence == later.sequence
    }
}

#[derive(Debug)]
pub(crate) struct MetaCache {
    index: FixedMap<MetaId, usize>,
    frames: Vec<Option<MetaPage>>,
    empty: Vec<usize>,
    hand: usize,
    budget_bytes: usize,
    budget_at_opening: usize,
    /// Up to which the budget may grow, and by how much it should.
    budget_most: usize,
    wanted_bytes: usize,
    dropped: Dropped,
    /// Of the budget, what the rest of the map takes.
    others_bytes: usize,
    page_bytes: usize,
    /// Number of dirty pages.
    dirty: usize,
    /// Pages that some thread is reading; only that thread may insert them.
    pub loading: BTreeSet<MetaId>,
}

impl MetaCache {
    /// A cache of as many pages with bodies of `meta_bytes` as the budget holds, eight at least.
    pub(crate) fn new(budget_bytes: usize, meta_bytes: usize) -> MetaCache {
        MetaCache {
            index: FixedMap::default(),
            frames: Vec::new(),
            empty: Vec::new(),
            hand: 0,
            budget_bytes,
            budget_at_opening: budget_bytes,
            budget_most: budget_bytes,
            wanted_bytes: 0,
            dropped: Dropped::default(),
            others_bytes: 0,
            page_bytes: meta_bytes + FRAME_OVERHEAD_BYTES,
            dirty: 0,
            loading: BTreeSet::new(),
        }
    }

    pub(crate) fn contains(&self, id: MetaId) -> bool {
        self.index.contains_key(&id)
    }
    /// Number of pages held.
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }
    pub(crate) fn budget_pages(&self) -> usize {
        (self.budget_bytes.saturating_sub(self.others_bytes) / self.page_bytes).max(PAGES_LEAST)
    }
    /// Pages to be read together by a caller that wants many: they take half of the budget at most.
    pub(crate) fn read_together(&self) -> usize {
        (self.budget_pages() / 2).clamp(1, READ_TOGETHER)
    }
    pub(crate) fn budget_bytes(&self) -> usize {
        self.budget_bytes
    }
    /// The budget before it grew, which the next opening has to do with.
    pub(crate) fn budget_at_opening(&self) -> usize {
        self.budget_at_opening
    }
    /// Lets the budget grow up to this number of bytes.
    pub(crate) fn may_grow(&mut self, budget_most: usize) {
        self.budget_most = budget_most.max(self.budget_bytes);
    }
    /// Bytes by which the budget should grow: those of pages that were read again soon after they
    /// had been dropped.
    pub(crate) fn wanted_bytes(&self) -> usize {
        self.wanted_bytes
    }
    /// Adds bytes to the budget.
    pub(crate) fn grow(&mut self, bytes: usize) {
        self.budget_bytes += bytes;
        self.wanted_bytes = self.wanted_bytes.saturating_sub(bytes);
    }
    fn growth_left(&self) -> usize {
        self.budget_most.saturating_sub(self.budget_bytes)
    }
    /// Leaves `others_bytes` of the budget to the rest of the map.
    pub(crate) fn leave(&mut self, others_bytes: usize) {
        self.others_bytes = others_bytes;
    }
    pub(crate) fn get(&mut self, id: MetaId) -> Option<&mut MetaPage> {
        let frame = *self.index.get(&id)?;
        let page = self.frames[frame].as_mut().expect("indexed frames hold pages");
        page.referenced = true;
        Some(page)
    }
    /// As `get`, but does not count as a use.
    pub(crate) fn peek(&self, id: MetaId) -> Option<&MetaPage> {
        self.frames[*self.index.get(&id)?].as_ref()
    }
    /// Pins the page in memory, once for each call until `unpin`; returns false if it is not there.
    pub(crate) fn pin(&mut self, id: MetaId) -> bool {
        self.get(id).map(|page| page.pins += 1).is_some()
    }
    pub(crate) fn unpin(&mut self, id: MetaId) {
        let page = self.get(id).expect("a pinned page is cached");
        page.pins = page.pins.checked_sub(1).expect("unpinned as often as pinned");
    }

    /// Notes that the record at `lsn` changed the page's body.
    pub(crate) fn changed(&mut self, id: MetaId, lsn: Lsn) {
        let page = self.get(id).expect("only a cached page is changed");
        assert!(lsn > page.lsn, "{id:?} goes back from {:?} to {lsn:?}", page.lsn);
        page.lsn = lsn;
        self.dirty += usize::from(!std::mem::replace(&mut page.dirty, true));
    }

    /// Asserts the invariants that the module's head states, as far as memory shows them.
    fn check(&self) {
        assert_eq!(self.index.len() + self.empty.len(), self.frames.len(), "a frame is empty or indexed");
        let mut dirty = 0;
        for page in self.frames.iter().flatten() {
            let frame =
                self.index.get(&page.id).map(|&frame| self.frames[frame].as_ref().map(|page| page.id));
            assert_eq!(frame, Some(Some(page.id)), "{:?} is cached once", page.id);
            assert!(!self.loading.contains(&page.id), "{:?} is cached, and being loaded", page.id);
            assert!(!page.dirty || !matches!(page.id, MetaId::Map(_)), "{:?} is changed by sweeps", page.id);
            dirty += usize::from(page.dirty);
        }
        assert_eq!(dirty, self.dirty, "changed pages are counted");
    }

    /// Inserts a page that was just read, clean. Evicts another if the budget requires it and one
    /// can be evicted.
    pub(crate) fn insert(&mut self, id: MetaId, image: MetaImage) {
        while self.index.len() >= self.budget_pages() && self.evict_one() {}
        let page = MetaPage {
            id,
            lsn: image.lsn,
            body: image.body,
            sequence: image.sequence,
            slot: image.slot,
            pins: 0,
            referenced: true,
            dirty: false,
            writing: false,
        };
        let frame = self.empty.pop().unwrap_or_else(|| {
            self.frames.push(None);
            self.frames.len() - 1
        });
        self.frames[frame] = Some(page);
        assert!(self.index.insert(id, frame).is_none(), "{id:?} is cached once");
        if self.dropped.take(id) {
            self.wanted_bytes = (self.wanted_bytes + self.page_bytes).min(self.growth_left());
        }
    }

    fn evict_one(&mut self) -> bool {
        // Two rounds clear every reference bit. Where hardly any page is clean, as during recovery,
        // that would be spent in vain for every insertion: the search is cut short and continues at
        // the next insertion.
        let crowded = self.dirty * 4 > self.frames.len() * 3;
        let steps = if crowded { CROWDED_STEPS } else { 2 * self.frames.len() };
        for _ in 0..steps {
            self.hand = (self.hand + 1) % self.frames.len();
            let Some(page) = self.frames[self.hand].as_mut() else { continue };
            if !page.evictable() {
                continue;
            }
            if std::mem::take(&mut page.referenced) {
                continue;
            }
            let id = page.id;
            self.drop_frame(self.hand);
            // What a budget grown to its most would still drop is not worth remembering.
            self.dropped.note(id, self.growth_left() / self.page_bytes);
            return true;
        }
        false
    }

    fn drop_frame(&mut self, frame: usize) {
        let page = self.frames[frame].take().expect("the frame holds a page");
        self.index.remove(&page.id);
        self.empty.push(frame);
    }

    /// Drops pages of a group that no longer exists. No thread uses them, and they are not changed.
    pub(crate) fn forget(&mut self, ids: impl Iterator<Item = MetaId>) {
        for id in ids {
            if let Some(&frame) = self.index.get(&id) {
                let page = self.frames[frame].as_ref().expect("indexed frames hold pages");
                assert!(page.evictable(), "{id:?} is in use");
                self.drop_frame(frame);
            }
        }
    }
    /// Whether a record has changed the page since its last write was begun.
    pub(crate) fn is_dirty(&self, id: MetaId) -> bool {
        self.peek(id).is_some_and(|page| page.dirty)
    }
    /// The state of the version on the device of a page that is held.
    pub(crate) fn stamp(&self, id: MetaId) -> Option<Stamp> {
        self.peek(id).map(|page| Stamp { sequence: page.sequence, writing: page.writing })
    }
    /// Whether any of the pages is pinned, loading, changed or being written.
    pub(crate) fn in_use(&self, mut ids: impl Iterator<Item = MetaId>) -> bool {
        ids.any(|id| {
            let page = self.index.get(&id).and_then(|frame| self.frames[*frame].as_ref());
            self.loading.contains(&id) || page.is_some_and(|page| !page.evictable())
        })
    }

    /// Number of dirty pages.
    pub(crate) fn dirty(&self) -> usize {
        self.dirty
    }

    /// Copies pages, which are held, for writing; map pages with their entries of the overlay, as
    /// containing all records up to `upto`.
    pub(crate) fn begin_write(
        &mut self,
        geometry: &Geometry,
        overlay: &Overlay,
        upto: Lsn,
        ids: &[MetaId],
    ) -> Vec<WriteOut> {
        if cfg!(debug_assertions) {
            self.check();
        }
        let mut out = Vec::with_capacity(ids.len());
        for &id in ids {
            let page = self.get(id).expect("the caller pinned it");
            assert!(!std::mem::replace(&mut page.writing, true), "{id:?} is written by one thread at a time");
            let was_dirty = std::mem::take(&mut page.dirty);
            let (sequence, slot) = (page.sequence + 1, page.slot.other());
            let (mut lsn, mut body, mut merged) = (page.lsn, page.body.clone(), Vec::new());
            if let MetaId::Map(map) = id {
                lsn = lsn.max(upto);
                for (page, entry) in overlay.of_map(map) {
                    entry.write(&mut body, geometry.slot_of_page(page));
                    merged.push((page, entry));
                }
            }
            self.dirty -= usize::from(was_dirty);
            out.push(WriteOut { id, lsn, sequence, slot, body, merged });
        }
        out
    }

    /// Ends a write: the written slot is the current one now, or nothing has changed.
    pub(crate) fn end_write(&mut self, written: &WriteOut, done: bool) {
        let page = self.get(written.id).expect("a page being written is not dropped");
        assert!(std::mem::take(&mut page.writing), "a write was begun");
        debug_assert!(written.slot == page.slot.other() && written.sequence == page.sequence + 1);
        let is_map = matches!(written.id, MetaId::Map(_));
        if done {
            (page.sequence, page.slot) = (written.sequence, written.slot);
        }
        if done && is_map {
            page.lsn = written.lsn;
            page.body.clone_from(&written.body);
        }
        if !done && !is_map {
            self.dirty += usize::from(!std::mem::replace(&mut page.dirty, true));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::options::Layout;

    fn cache_with(pages: u64) -> MetaCache {
        let mut cache = MetaCache::new(0, 512);
        for number in 0..pages {
            let body = vec![0; 8].into_boxed_slice();
            cache.insert(MetaId::Map(number), MetaImage { lsn: Lsn(1), sequence: 1, slot: Slot::A, body });
        }
        cache
    }

    #[test]
    fn a_write_that_fails_leaves_the_page_dirty_and_its_slot_to_be_written_again() {
        let geometry = Geometry::new(512, Layout { meta_bytes: 512, maps_per_group: 2 }).unwrap();
        let (mut cache, mut overlay) = (cache_with(2), Overlay::new(&geometry));
        let (bits, map) = (MetaId::Bitmap(0), MetaId::Map(0));
        let body = vec![0; 448].into_boxed_slice();
        for id in [bits, map] {
            cache.forget(std::iter::once(id));
            cache.insert(id, MetaImage { lsn: Lsn(1), sequence: 1, slot: Slot::A, body: body.clone() });
        }
        cache.changed(bits, Lsn(10));
        let entry = Entry::Allocated { version: Lsn(10) };
        overlay.set(PageId(3), entry);
        let round = cache.begin_write(&geometry, &overlay, Lsn(11), &[bits, map]);
        let of = |index: usize| (round[index].lsn, round[index].sequence, round[index].slot);
        assert_eq!((of(0), of(1)), ((Lsn(10), 2, Slot::B), (Lsn(11), 2, Slot::B)));
        assert_eq!(Entry::read(&round[1].body, 3), Ok(entry));
        cache.changed(bits, Lsn(12));
        round.iter().for_each(|page| cache.end_write(page, false));
        assert!(cache.is_dirty(bits) && cache.dirty() == 1);
        assert_eq!(Entry::read(&cache.get(map).unwrap().body, 3), Ok(Entry::Free));
        let round = cache.begin_write(&geometry, &overlay, Lsn(13), &[bits, map]);
        assert_eq!((round[0].lsn, round[0].slot), (Lsn(12), Slot::B), "the same slot again");
        round.iter().for_each(|page| cache.end_write(page, true));
        assert_eq!((cache.dirty(), cache.get(map).unwrap().lsn), (0, Lsn(13)));
        assert_eq!(Entry::read(&cache.get(map).unwrap().body, 3), Ok(entry));
        assert_eq!(cache.begin_write(&geometry, &overlay, Lsn(13), &[bits])[0].slot, Slot::A);
    }

    #[test]
    fn only_clean_unpinned_pages_make_room() {
        let mut cache = cache_with(8);
        assert!(cache.pin(MetaId::Map(0)));
        let body = vec![0; 8].into_boxed_slice();
        cache.insert(MetaId::Bitmap(0), MetaImage { lsn: Lsn(1), sequence: 1, slot: Slot::A, body });
        cache.changed(MetaId::Bitmap(0), Lsn(5));
        for number in 8..40 {
            let body = vec![0; 8].into_boxed_slice();
            cache.insert(MetaId::Map(number), MetaImage { lsn: Lsn(1), sequence: 1, slot: Slot::A, body });
        }
        assert_eq!(cache.len(), 8, "the budget is kept");
        assert!(
            cache.contains(MetaId::Map(0))
                && cache.contains(MetaId::Bitmap(0))
                && cache.contains(MetaId::Map(39))
        );
        cache.unpin(MetaId::Map(0));
    }
}
