//! Pages that are read with a delta page again and again: written whole when they leave DRAM, even
//! if they did not change.
//!
//! Each second read costs what it costs; after as many as a page written costs, writing it once
//! would have been as cheap. No count is kept of them: each read draws, with the probability of one
//! in that number ([`policy::merges`]), whether it is the last. A page that changed meanwhile pays
//! for its reads when it is offered as a delta (`take.rs`).

use super::super::segments::Stream;
use super::super::state::{Store, count};
use super::super::write::Seal;
use super::policy;
use crate::page_tier::{DeltaRead, PageWrite, Written};
use firndb_base::sync::atomic::Ordering::Relaxed;
use firndb_log::Kind;

impl Store {
    /// Counts a page read with a delta page, and draws whether it is to be written whole.
    pub(crate) fn delta_read(&self) -> DeltaRead {
        let number = self.counters.reads_with_delta.fetch_add(1, Relaxed);
        let deltas = self.policy.deltas;
        if deltas.enabled && policy::merges(deltas.read_cost_percent, number) {
            DeltaRead::Merge
        } else {
            DeltaRead::Yes
        }
    }

    /// Writes those of the unchanged pages whole that are to be, while there is log to spare: reads
    /// alone must not fill it. What fails is declined: the store has the page.
    pub(crate) fn merge_unchanged(&self, writes: &mut [PageWrite<'_>], seal: Seal) {
        let wanted = |write: &PageWrite<'_>| {
            !write.dirty
                && write.delta_read == DeltaRead::Merge
                && self.delta_version(write.page) == Some(write.version)
        };
        let chosen: Vec<usize> = (0..writes.len()).filter(|i| wanted(&writes[*i])).collect();
        let has_spare = || self.journal().is_ok_and(|journal| journal.has_spare());
        if chosen.is_empty() || self.poison.check().is_err() || !has_spare() {
            return;
        }
        for chunk in chosen.chunks(self.policy.batch_pages) {
            self.write_chunk(writes, chunk, Kind::PAGES_MOVED, Stream::New, seal);
        }
        let mut merged = 0;
        for index in chosen {
            let write = &mut writes[index];
            if write.is_taken() {
                merged += 1;
            } else {
                write.outcome = Ok(Written::Declined);
            }
        }
        count(&self.counters.deltas_merged_for_reads, merged);
    }
}
