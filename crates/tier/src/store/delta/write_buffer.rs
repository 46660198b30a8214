//! Deltas in memory, between their pages' eviction and the delta page that takes them.
//!
//! Invariants:
//! * An entry's delta counts from the image that the page's map entry names, under the same hold of
//!   `state`: a whole image that replaces it, or a free of the page, removes the entry. So the
//!   place of that image is known here, and the map page is not needed to name a slot over it.
//! * The log is needed from an entry's recovery LSN until a slot of its version is in the map and
//!   that record durable. A version that is taken while an older one is being flushed keeps its own
//!   recovery LSN apart, and has only that one once the flush is done.
//! * Later versions replace earlier ones; the changes add up, so that nothing an earlier delta had
//!   is missing from a later one, whatever its sender knew.
//!
//! Pure: no I/O and no lock of its own; the store's `state` protects it.

use super::super::geometry::Place;
use super::slot::Delta;
use crate::granules::{Base, Changes};
use firndb_base::hash::FixedMap;
use firndb_base::{Lsn, PageId};
use std::collections::BTreeSet;

/// Bytes of memory that an entry counts for beside those of its granules: its share of a hash table
/// that is two thirds full, and of the set by age.
const ENTRY_BYTES: usize = 180;

/// A page's newest version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Buffered {
    pub delta: Delta,
    /// The place of the image that the delta counts from.
    pub place: Place,
    /// The log is needed from here; `Lsn::MAX` if the version is durable elsewhere.
    pub recovery: Lsn,
    /// Rent of second reads that no slot's record has yet (`policy.rs`). Lost with a crash, and
    /// with a flush that fails.
    pub reads: u8,
    /// While a flush is under way: recovery LSN of what was taken since it began.
    later: Option<Lsn>,
}

/// A version to take.
#[derive(Clone, Copy)]
pub(crate) struct Offer<'a> {
    pub page: PageId,
    pub version: Lsn,
    pub recovery: Lsn,
    pub base: Base,
    /// The place of the base.
    pub place: Place,
    pub changes: Changes,
    /// As in [`Buffered`], those that are known included.
    pub reads: u8,
    pub image: &'a [u8],
}

#[derive(Debug, Default)]
pub(crate) struct WriteBuffer {
    entries: FixedMap<PageId, Buffered>,
    /// Pages by recovery LSN: those that hold the log longest come first.
    by_age: BTreeSet<(Lsn, PageId)>,
    bytes: usize,
}

impl WriteBuffer {
    pub(crate) fn get(&self, page: PageId) -> Option<&Buffered> {
        self.entries.get(&page)
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
    /// The LSN from which the log is needed for what is here only.
    pub(crate) fn needed_from(&self) -> Option<Lsn> {
        self.by_age.first().map(|(recovery, _)| *recovery).filter(|recovery| *recovery < Lsn::MAX)
    }

    /// Takes a version, no older than the one held; returns its changes. `offer.image` is the whole
    /// page.
    pub(crate) fn take(&mut self, offer: &Offer<'_>) -> Changes {
        let (mut recovery, mut later) = (offer.recovery, None);
        let mut changes = offer.changes;
        if let Some(held) = self.remove(offer.page) {
            let page = offer.page;
            assert_eq!(
                (held.delta.base, held.place),
                (offer.base, offer.place),
                "{page:?}: a new image removes the deltas of the old one"
            );
            assert!(held.delta.version <= offer.version, "{page:?}: a version never goes back");
            changes = changes.union(held.delta.changes);
            recovery = recovery.min(held.recovery);
            later = held.later.map(|later| later.min(offer.recovery));
        }
        let delta = Delta::of(offer.version, offer.base, changes, offer.image);
        self.insert(offer.page, Buffered { delta, place: offer.place, recovery, reads: offer.reads, later });
        changes
    }

    /// Puts back a delta that the map has, over the image at `place`, unless one waits.
    pub(crate) fn put(&mut self, page: PageId, delta: Delta, place: Place) {
        if !self.entries.contains_key(&page) {
            self.insert(page, Buffered { delta, place, recovery: Lsn::MAX, reads: 0, later: None });
        }
    }

    fn insert(&mut self, page: PageId, entry: Buffered) {
        self.bytes += ENTRY_BYTES + entry.delta.bytes.len();
        assert!(self.by_age.insert((entry.recovery, page)));
        assert!(self.entries.insert(page, entry).is_none());
    }
    /// Removes a page's entry: the page was freed, or written whole in this version or a later one.
    pub(crate) fn remove(&mut self, page: PageId) -> Option<Buffered> {
        let entry = self.entries.remove(&page)?;
        self.bytes -= ENTRY_BYTES + entry.delta.bytes.len();
        assert!(self.by_age.remove(&(entry.recovery, page)));
        Some(entry)
    }

    /// The pages that hold the log longest, until their entries have `bytes` bytes; at most
    /// `pages_max`, and only those with a recovery LSN before `before`.
    pub(crate) fn oldest(&self, bytes: usize, pages_max: usize, before: Lsn) -> Vec<PageId> {
        let mut sum = 0;
        let wanted = |(recovery, page): &&(Lsn, PageId)| {
            let more = sum < bytes && *recovery < before;
            sum += ENTRY_BYTES + self.entries[page].delta.bytes.len();
            more
        };
        self.by_age.iter().take_while(wanted).take(pages_max).map(|(_, page)| *page).collect()
    }

    /// Begins the flush of a page's entry; returns its version. The slot's record gets the rent of
    /// the reads.
    pub(crate) fn begin_flush(&mut self, page: PageId) -> Option<Lsn> {
        let entry = self.entries.get_mut(&page)?;
        (entry.later, entry.reads) = (Some(Lsn::MAX), 0);
        Some(entry.delta.version)
    }

    /// Ends the flush of a page's entry in `version`: with `done` the map has it, else nothing has
    /// changed.
    pub(crate) fn end_flush(&mut self, page: PageId, version: Lsn, done: bool) {
        let Some(mut entry) = self.remove(page) else { return };
        let later = entry.later.take();
        match (done, later) {
            // All of it is in the map.
            (true, _) if entry.delta.version <= version => return,
            (true, Some(later)) => entry.recovery = later,
            // Removed and taken anew meanwhile: the flush was of another entry.
            (true, None) | (false, _) => {}
        }
        self.insert(page, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::delta::slot::tests::some_changes;
    use firndb_base::rng::Rng;
    use std::collections::BTreeMap;

    const BASE: Base = Base { version: Lsn(5), checksum: 77 };
    const PAGE_BYTES: usize = 512;

    /// What reads cost goes with the slot, once.
    #[test]
    fn the_rent_of_reads_is_known_until_a_flush_takes_it() {
        let (mut buffer, image) = (WriteBuffer::default(), [0; PAGE_BYTES]);
        let offer = offer(1, 20, 10, Changes::NONE, &image);
        buffer.take(&Offer { reads: 7, ..offer });
        assert_eq!(buffer.get(PageId(1)).unwrap().reads, 7);
        buffer.begin_flush(PageId(1));
        buffer.take(&Offer { version: Lsn(30), reads: 2, ..offer });
        buffer.end_flush(PageId(1), Lsn(20), true);
        assert_eq!(buffer.get(PageId(1)).unwrap().reads, 2);
    }

    fn offer(page: u64, version: u64, recovery: u64, changes: Changes, image: &[u8]) -> Offer<'_> {
        let (version, recovery) = (Lsn(version), Lsn(recovery));
        let place = Place(page);
        Offer { page: PageId(page), version, recovery, base: BASE, place, changes, reads: 0, image }
    }

    #[test]
    fn what_is_taken_during_a_flush_holds_the_log_from_its_own_changes() {
        let image = [1; PAGE_BYTES];
        let mut buffer = WriteBuffer::default();
        buffer.take(&offer(1, 20, 10, Changes::NONE, &image));
        assert_eq!(buffer.begin_flush(PageId(1)), Some(Lsn(20)));
        buffer.take(&offer(1, 40, 30, Changes::NONE, &image));
        assert_eq!(buffer.needed_from(), Some(Lsn(10)), "the flush may still fail");
        buffer.end_flush(PageId(1), Lsn(20), true);
        assert_eq!(buffer.needed_from(), Some(Lsn(30)));
        assert!(buffer.begin_flush(PageId(1)).is_some());
        buffer.end_flush(PageId(1), Lsn(40), false);
        assert_eq!(buffer.needed_from(), Some(Lsn(30)));
        assert!(buffer.begin_flush(PageId(1)).is_some());
        buffer.end_flush(PageId(1), Lsn(40), true);
        assert_eq!((buffer.needed_from(), buffer.len(), buffer.bytes()), (None, 0, 0));
        buffer.take(&offer(2, 50, u64::MAX, Changes::NONE, &image));
        assert_eq!(buffer.needed_from(), None, "a tier above has it");
    }

    /// A page of the model: its bytes, the granules changed, the recovery LSNs of its versions that
    /// the map lacks.
    struct Known {
        version: u64,
        image: Vec<u8>,
        changes: Changes,
        recovery: Vec<(u64, u64)>,
    }

    #[test]
    fn the_buffer_does_what_a_map_does() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let mut buffer = WriteBuffer::default();
            let mut known: BTreeMap<u64, Known> = BTreeMap::new();
            let mut flushing: Option<(u64, u64)> = None;
            for lsn in 100..2_000u64 {
                let page = rng.below(12);
                match rng.below(10) {
                    0..6 => {
                        let changes = some_changes(&mut rng, 3);
                        let entry = known.entry(page).or_insert_with(|| Known {
                            version: 0,
                            image: Vec::new(),
                            changes: Changes::NONE,
                            recovery: Vec::new(),
                        });
                        entry.image = (0..PAGE_BYTES).map(|at| (at as u64 ^ lsn) as u8).collect();
                        entry.changes = entry.changes.union(changes);
                        entry.version = lsn;
                        entry.recovery.push((lsn, lsn - 1));
                        let changes = buffer.take(&offer(page, lsn, lsn - 1, changes, &entry.image));
                        assert_eq!(changes, entry.changes);
                    }
                    6 => {
                        known.remove(&page);
                        buffer.remove(PageId(page));
                        flushing.take_if(|(flushed, _)| *flushed == page);
                    }
                    7 if flushing.is_none() => {
                        flushing = buffer.begin_flush(PageId(page)).map(|version| (page, version.0));
                    }
                    8 => {
                        let Some((page, version)) = flushing.take() else { continue };
                        let done = rng.one_in(2);
                        buffer.end_flush(PageId(page), Lsn(version), done);
                        let entry = known.get_mut(&page).expect("it was not removed");
                        if done {
                            entry.recovery.retain(|(later, _)| *later > version);
                        }
                        if entry.recovery.is_empty() {
                            known.remove(&page);
                        }
                    }
                    _ => {
                        let oldest = buffer.oldest(600, 3, Lsn(lsn - 20));
                        assert!(oldest.len() <= 3);
                        let recovery: Vec<Lsn> =
                            oldest.iter().map(|page| buffer.get(*page).expect("held").recovery).collect();
                        assert!(recovery.is_sorted() && recovery.iter().all(|lsn_| *lsn_ < Lsn(lsn - 20)));
                        assert!(recovery.is_empty() || Some(recovery[0]) == buffer.needed_from());
                    }
                }
                let needed =
                    known.values().flat_map(|entry| entry.recovery.iter()).map(|(_, lsn)| Lsn(*lsn)).min();
                assert_eq!(buffer.needed_from(), needed);
                assert_eq!(buffer.len(), known.len());
                for (page, entry) in &known {
                    let held = buffer.get(PageId(*page)).expect("it was taken");
                    let wanted = Delta::of(Lsn(entry.version), BASE, entry.changes, &entry.image);
                    assert_eq!(held.delta, wanted);
                }
                let bytes = known.values().map(|entry| ENTRY_BYTES + entry.changes.bytes(PAGE_BYTES));
                assert_eq!(buffer.bytes(), bytes.sum::<usize>());
            }
        }
    }
}
