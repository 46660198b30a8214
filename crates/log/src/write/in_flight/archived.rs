//! Log that the archive has (`archive/archived_early.rs`).

use crate::write::in_flight::{Flight, Moved};
use firndb_base::Lsn;

impl Flight {
    /// Records that the archive has all log before `lsn`.
    pub fn archived_up_to(&mut self, lsn: Lsn, end: Lsn) -> Moved {
        self.archived = self.archived.max(lsn);
        let mut moved = Moved::default();
        self.acknowledge(None, end, &mut moved);
        moved
    }

    /// The end of what the archive has; [`Lsn::ZERO`] while archiving does not count.
    pub fn archived(&self) -> Lsn {
        self.archived
    }

    /// Sets whether archiving counts towards durability.
    pub fn expect_archived(&mut self, archive_completes: bool) {
        self.archive_completes = archive_completes;
    }
}
