//! Metadata pages in memory: found by name, replaced by clock.
//!
//! Invariants:
//! * a page is in at most one frame, and not while it is being loaded;
//! * only a page that is clean, not being written and not pinned is dropped;
//! * `dirty_since` is the LSN of the first change that no write under way or completed contains,
//!   `writing_since` of the first change that the write under way would make durable: the log is
//!   needed from the lesser of the two.

use super::geometry::Slot;
use super::meta_page::{MetaId, MetaImage};
use firndb_base::Lsn;
use firndb_base::hash::FixedMap;
use std::collections::BTreeSet;

/// Bytes of DRAM that a cached page takes beyond its body, tables included.
const FRAME_OVERHEAD_BYTES: usize = 160;
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
    dirty_since: Option<Lsn>,
    writing_since: Option<Lsn>,
}

impl MetaPage {
    fn evictable(&self) -> bool {
        self.pins == 0 && self.dirty_since.is_none() && self.writing_since.is_none()
    }
    fn needed_from(&self) -> Option<Lsn> {
        match (self.dirty_since, self.writing_since) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (one, other) => one.or(other),
        }
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
}

/// State of a page's version on the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    pub sequence: u64,
    /// Whether a write is replacing it.
    writing: bool,
    /// Whether the page in memory was changed since it was read or written.
    pub changed: bool,
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
    budget_pages: usize,
    /// Number of pages with a `dirty_since`.
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
            budget_pages: (budget_bytes / (meta_bytes + FRAME_OVERHEAD_BYTES)).max(8),
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
        self.budget_pages
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
        if page.dirty_since.is_none() {
            page.dirty_since = Some(lsn);
            self.dirty += 1;
        }
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
            assert!(page.dirty_since.is_none_or(|since| since <= page.lsn));
            if let (Some(writing), Some(dirty)) = (page.writing_since, page.dirty_since) {
                assert!(writing < dirty, "{:?}: what came after the copy is newer", page.id);
            }
            dirty += usize::from(page.dirty_since.is_some());
        }
        assert_eq!(dirty, self.dirty, "changed pages are counted");
    }

    /// Inserts a page that was just read, clean. Evicts another if the budget requires it and one
    /// can be evicted.
    pub(crate) fn insert(&mut self, id: MetaId, image: MetaImage) {
        while self.index.len() >= self.budget_pages && self.evict_one() {}
        let page = MetaPage {
            id,
            lsn: image.lsn,
            body: image.body,
            sequence: image.sequence,
            slot: image.slot,
            pins: 0,
            referenced: true,
            dirty_since: None,
            writing_since: None,
        };
        let frame = self.empty.pop().unwrap_or_else(|| {
            self.frames.push(None);
            self.frames.len() - 1
        });
        self.frames[frame] = Some(page);
        assert!(self.index.insert(id, frame).is_none(), "{id:?} is cached once");
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
            self.drop_frame(self.hand);
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
    /// Every page's id and the LSN of the last record it contains.
    pub(crate) fn lsns(&self) -> impl Iterator<Item = (MetaId, Lsn)> {
        self.frames.iter().flatten().map(|page| (page.id, page.lsn))
    }
    /// Whether the page is held and was changed since it was read or written.
    pub(crate) fn is_changed(&self, id: MetaId) -> bool {
        self.stamp(id).is_some_and(|stamp| stamp.changed)
    }
    /// The state of the version on the device of a page that is held.
    pub(crate) fn stamp(&self, id: MetaId) -> Option<Stamp> {
        let page = self.index.get(&id).and_then(|frame| self.frames[*frame].as_ref())?;
        Some(Stamp {
            sequence: page.sequence,
            writing: page.writing_since.is_some(),
            changed: page.dirty_since.is_some() || page.writing_since.is_some(),
        })
    }
    /// Whether any of the pages is pinned, loading, changed or being written.
    pub(crate) fn in_use(&self, mut ids: impl Iterator<Item = MetaId>) -> bool {
        ids.any(|id| {
            let page = self.index.get(&id).and_then(|frame| self.frames[*frame].as_ref());
            self.loading.contains(&id) || page.is_some_and(|page| !page.evictable())
        })
    }

    /// Number of changed pages that are not being written.
    pub(crate) fn dirty(&self) -> usize {
        self.dirty
    }
    /// The LSN from which the log is needed for pages not written yet.
    pub(crate) fn needed_from(&self) -> Option<Lsn> {
        self.frames.iter().flatten().filter_map(MetaPage::needed_from).min()
    }

    /// Copies up to `limit` changed pages for writing, first those that need the log from the
    /// oldest LSN.
    pub(crate) fn begin_write(&mut self, limit: usize) -> Vec<WriteOut> {
        if cfg!(debug_assertions) {
            self.check();
        }
        let mut dirty: Vec<(Lsn, MetaId)> =
            self.frames.iter().flatten().filter_map(|page| Some((page.dirty_since?, page.id))).collect();
        dirty.sort_unstable();
        dirty.truncate(limit);
        dirty.sort_unstable_by_key(|(_, id)| *id);
        let mut out = Vec::with_capacity(dirty.len());
        for (_, id) in dirty {
            let page = self.get(id).expect("it was just seen");
            assert!(page.writing_since.is_none(), "{id:?} is written by one thread at a time");
            page.writing_since = page.dirty_since.take();
            let (lsn, sequence, slot) = (page.lsn, page.sequence + 1, page.slot.other());
            let body = page.body.clone();
            self.dirty -= 1;
            out.push(WriteOut { id, lsn, sequence, slot, body });
        }
        out
    }

    /// Ends a write: the written slot is the current one now, or nothing has changed.
    pub(crate) fn end_write(&mut self, written: &WriteOut, done: bool) {
        let page = self.get(written.id).expect("a page being written is not dropped");
        let since = page.writing_since.take().expect("a write was begun");
        debug_assert!(written.slot == page.slot.other() && written.sequence == page.sequence + 1);
        if done {
            (page.sequence, page.slot) = (written.sequence, written.slot);
        } else if page.dirty_since.replace(since).is_none() {
            self.dirty += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache_with(pages: u64) -> MetaCache {
        let mut cache = MetaCache::new(0, 512);
        for number in 0..pages {
            let body = vec![0; 8].into_boxed_slice();
            cache.insert(MetaId::Map(number), MetaImage { lsn: Lsn(1), sequence: 1, slot: Slot::A, body });
        }
        cache
    }

    #[test]
    fn the_log_is_needed_from_the_first_change_until_a_write_is_done() {
        let mut cache = cache_with(2);
        assert_eq!(cache.needed_from(), None);
        cache.changed(MetaId::Map(0), Lsn(10));
        cache.changed(MetaId::Map(0), Lsn(11));
        let round = cache.begin_write(9);
        assert_eq!((round.len(), round[0].sequence, round[0].slot), (1, 2, Slot::B));
        cache.changed(MetaId::Map(0), Lsn(12));
        assert_eq!(cache.needed_from(), Some(Lsn(10)), "the write may still fail");
        cache.end_write(&round[0], false);
        assert_eq!(cache.needed_from(), Some(Lsn(10)));
        let round = cache.begin_write(9);
        assert_eq!((round[0].lsn, round[0].slot), (Lsn(12), Slot::B), "the same slot again");
        cache.changed(MetaId::Map(0), Lsn(13));
        cache.end_write(&round[0], true);
        assert_eq!(cache.needed_from(), Some(Lsn(13)), "what came after the copy");
        assert_eq!(cache.begin_write(9)[0].slot, Slot::A);
    }

    #[test]
    fn only_clean_unpinned_pages_make_room() {
        let mut cache = cache_with(8);
        assert!(cache.pin(MetaId::Map(0)));
        cache.changed(MetaId::Map(1), Lsn(5));
        for number in 8..40 {
            let body = vec![0; 8].into_boxed_slice();
            cache.insert(MetaId::Map(number), MetaImage { lsn: Lsn(1), sequence: 1, slot: Slot::A, body });
        }
        assert_eq!(cache.len(), 8, "the budget is kept");
        assert!(
            cache.contains(MetaId::Map(0))
                && cache.contains(MetaId::Map(1))
                && cache.contains(MetaId::Map(39))
        );
        cache.unpin(MetaId::Map(0));
    }
}
