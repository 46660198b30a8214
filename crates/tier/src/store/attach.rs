//! Attaching the log, without which the store writes nothing.

use super::journal::{Journal, Presumed};
use super::state::Store;
use firndb_base::sync::Arc;
use firndb_log::Log;

impl Store {
    /// Attaches the opened log, for map records and the durable LSN. Called once.
    pub fn attach(&self, log: Arc<Log>) {
        self.attach_journal(log);
    }

    /// As [`Store::attach`], but the store treats all log as durable: it writes map pages before
    /// the records they contain. Shows that crash tests detect the resulting damage.
    #[doc(hidden)]
    pub fn attach_breaking_the_wal_rule(&self, log: Arc<Log>) {
        self.attach_journal(Arc::new(Presumed(log)));
    }

    /// As [`Store::attach`], for tests with a log of their own.
    #[doc(hidden)]
    pub fn attach_journal(&self, journal: Arc<dyn Journal>) {
        assert!(self.journal.set(journal).is_ok(), "a log is attached once");
        let header_is_alone = {
            let mut state = self.state.lock();
            state.recovering = false;
            state.overlay_found = state.overlay.bytes();
            std::mem::take(&mut state.header_is_alone)
        };
        if header_is_alone {
            let header = &mut *self.growth.lock();
            // The newer slot may be in the drive's memory only; a failed sync poisons the store. If
            // the write fails the slots are as they were, and the next change writes both.
            if self.sync_device().is_ok()
                && let Ok(newest) = header.store_beside(&*self.device)
            {
                *header = newest;
            }
        }
    }
}
