//! Shadows: the first content of pages, which no log has.
//!
//! A page was taken into use by an atomic group of the log that holds no content for it. Its image
//! goes to a free place as any image does, and is named by a record of a kind of its own, by which
//! an archive or a restore that reads the log sees that the content is not there. In the map it is
//! a move from no place; `write.rs` argues why a crash at any point loses nothing of the old state.
//! What is different here:
//! * the archive and backups need the content, too, so its place is held (`held_shadows.rs`);
//! * no redo could make the image anew, so it must be durable before anything that needs it is
//!   appended: it is durable before its record, which the caller waits for;
//! * no log is kept for it: until its record is durable nothing that can become durable needs it.

use super::segments::Stream;
use super::state::Store;
use super::write::Seal;
use crate::page_tier::{PageWrite, Written};
use firndb_base::Lsn;
use firndb_log::Kind;

impl Store {
    /// Writes pages that were allocated and never written. Those taken are durable, and their
    /// records appended, when this returns. Declines those whose places would have to be held when
    /// too many are.
    pub(crate) fn write_shadows(&self, writes: &mut [PageWrite<'_>]) {
        assert!(
            writes.iter().all(|write| write.dirty && write.recovery_lsn == Lsn::MAX),
            "no log has the content of a shadow"
        );
        let all: Vec<usize> = (0..writes.len()).collect();
        for chunk in all.chunks(self.policy.batch_pages) {
            match self.begin_shadows(chunk.len()) {
                Some(_counted) => {
                    self.write_chunk(writes, chunk, Kind::PAGES_SHADOWED, Stream::New, Seal::IMAGE);
                }
                None => chunk.iter().for_each(|index| writes[*index].outcome = Ok(Written::Declined)),
            }
        }
        // A failure here does not concern these pages; the next call meets it.
        let _ = self.write_back_if_crowded();
    }
}
