//! The store as what lies below a flash cache.

use super::Store;
use crate::error::TierError;
use crate::page_cache::BackingStore;
use crate::page_tier::PageWrite;
use firndb_base::{Lsn, PageId};

impl BackingStore for Store {
    fn recorded_version_of(&self, page: PageId) -> Result<Option<Lsn>, TierError> {
        self.look(page).map(|looked| looked.entry.version())
    }
    fn records_end(&self) -> Lsn {
        self.state.lock().space.pending_end().unwrap_or(Lsn::ZERO)
    }
    fn log_end(&self) -> Lsn {
        self.journal.get().map_or(Lsn::ZERO, |journal| journal.end())
    }
    fn write_recorded(&self, writes: &mut [PageWrite<'_>]) {
        self.write_batch(writes);
        self.record_deltas(writes, |_| true);
    }
    fn flush_records(&self, end: Lsn) -> Result<(), TierError> {
        if end == Lsn::ZERO { Ok(()) } else { self.flush_log(end) }
    }
    fn write_lost(&self, page: PageId, version: Lsn, sentence: &str) -> Result<bool, TierError> {
        self.write_notice(page, version, sentence)
    }
}
