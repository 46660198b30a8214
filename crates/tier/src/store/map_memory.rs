//! The map's memory, which may grow: a page of the map serves the reads of more than a hundred
//! pages, so a map that does not fit makes better use of memory than the buffer's frames do.
//!
//! The map asks for the bytes of pages that it dropped and read again. The buffer looks, gives up
//! frames, and says so; nothing is given back.

use super::state::Store;
use firndb_base::sync::atomic::Ordering::Relaxed;

impl Store {
    /// Lets the map's budget grow up to this number of bytes, as far as the buffer gives up frames.
    pub fn let_map_grow(&self, budget_most: usize) {
        self.state.lock().cache.may_grow(budget_most);
    }

    /// As [`crate::PageTier::wants_memory`].
    pub(super) fn map_wants_memory(&self) -> usize {
        self.map_wants.load(Relaxed)
    }

    /// As [`crate::PageTier::take_memory`].
    pub(super) fn take_map_memory(&self, bytes: usize) {
        let mut state = self.state.lock();
        state.cache.grow(bytes);
        self.map_wants.store(state.cache.wanted_bytes(), Relaxed);
    }
}
