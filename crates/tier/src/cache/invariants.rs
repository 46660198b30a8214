//! The cache's invariants, as assertions.

use super::geometry::Slot;
use super::lacking::NOTHING;
use super::open_group::OpenGroup;
use super::state::{FlashCache, Ring};
use super::word::Word;
use firndb_base::sync::atomic::Ordering::Relaxed;

/// Debug builds check after the replacement of one group of this number.
const CHECKED_OF: u64 = 32;

impl FlashCache {
    /// In debug builds, asserts the invariants once in many replacements of a group.
    pub(super) fn check_replaced(&self, ring: &Ring) {
        if cfg!(debug_assertions) && ring.front.0.is_multiple_of(CHECKED_OF) {
            self.check_ring(ring);
        }
    }

    /// Asserts what the heads of `cache.rs` and `directory.rs` state, as far as memory shows it.
    /// The caller holds `ring` and none of the locks behind it.
    pub(super) fn check_ring(&self, ring: &Ring) {
        let (front, rear) = (ring.front.0, ring.rear.0);
        let groups = self.geometry.groups;
        assert!(
            front <= rear && rear < front + groups,
            "the ring holds groups {front} to {rear} of {groups}"
        );
        assert_eq!(self.rear(), ring.rear, "readers know the group being filled");
        assert_eq!(
            self.durable.load(Relaxed) + 1,
            rear,
            "the groups before the one being filled are durable"
        );
        assert_eq!(
            ring.segment.number(),
            self.geometry.segment_of(ring.rear),
            "its segment collects headers"
        );
        let open = self.open.read();
        assert_eq!(open.serial, ring.rear);
        assert!(open.entries.len() <= self.geometry.group_pages, "the group being filled fits");
        let pending = self.pending.lock().has_images();
        assert!(!pending || !open.entries.is_empty(), "log is kept for images that are there");
        self.directory.check(&mut |slot, word| self.check_slot(ring, &open, slot, word));
    }

    /// Asserts that a valid image lies in a group that is needed, and agrees with the open group.
    fn check_slot(&self, ring: &Ring, open: &OpenGroup, slot: Slot, word: Word) {
        let serial = self.geometry.serial_of(slot, ring.rear);
        assert!(serial.is_some_and(|serial| serial >= ring.front), "{slot:?} is of a group that is given up");
        if serial == Some(ring.rear) {
            let entry = open.entries.get(self.geometry.index_of(slot));
            let same = |page, version| page == word.page() && word.may_be(version);
            let entry = entry.filter(|entry| same(entry.page, entry.version));
            assert!(
                entry.is_some_and(|entry| entry.dirty || !word.is_dirty()),
                "{slot:?} is of the open group"
            );
        }
        if word.is_dirty()
            && let Some(lacking) = self.lacking.get()
        {
            assert!(
                lacking.of(slot) != NOTHING,
                "what the store lacks of {slot:?} is known, or known not to be"
            );
        }
    }
}
