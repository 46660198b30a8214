//! The store's counters.

use super::state::Store;
use crate::page_tier::TierStatistics;
use firndb_base::sync::atomic::{AtomicU64, Ordering};

impl Store {
    pub(crate) fn read_statistics(&self) -> TierStatistics {
        let (syncs, syncs_shared) = self.syncs.counts();
        let mut state = self.state.lock();
        let totals = state.totals();
        let places = (state.space.groups() - totals.unbacked_groups) * self.geometry.places_per_group;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TierStatistics {
            pages_read: read(&self.counters.pages_read),
            read_requests: read(&self.counters.read_requests),
            pages_written: read(&self.counters.pages_written),
            write_runs: read(&self.counters.write_runs),
            metadata_pages_read: read(&self.counters.metadata_pages_read),
            metadata_bytes_read: read(&self.counters.metadata_bytes_read),
            metadata_pages_written: read(&self.counters.metadata_pages_written),
            metadata_bytes_written: read(&self.counters.metadata_bytes_written),
            map_memory_bytes: state.cache.budget_bytes() as u64,
            deltas_taken: read(&self.counters.deltas_taken),
            deltas_waiting: state.deltas.buffer.len() as u64,
            delta_pages: totals.delta_pages,
            delta_pages_written: read(&self.counters.delta_pages_written),
            delta_pages_read: read(&self.counters.delta_pages_read),
            deltas_gathered: read(&self.counters.deltas_gathered),
            deltas_merged: read(&self.counters.deltas_merged),
            reads_with_delta: read(&self.counters.reads_with_delta),
            deltas_merged_for_reads: read(&self.counters.deltas_merged_for_reads),
            whole_for_size: read(&self.counters.whole_for_size),
            whole_for_rent: read(&self.counters.whole_for_rent),
            segments_whole: state.space.segments.whole(),
            segments_opened: u64::from(state.space.segments.clock()),
            segments_emptied: read(&self.counters.segments_emptied),
            images_moved: read(&self.counters.images_moved),
            places_scattered: read(&self.counters.places_scattered),
            groups_emptied: read(&self.counters.groups_emptied),
            discards_failed: read(&self.counters.discards_failed),
            groups_kept: state.discards.refused(),
            syncs,
            syncs_shared,
            pages_allocated: totals.pages,
            places,
            // Held places freed by a record are free in the totals.
            places_free: places.saturating_sub(totals.places),
            places_held: state.space.held(),
            shadows_held: state.space.shadows.count(),
            places_dead: totals.unnamed + state.deltas.live.empty_count(),
            places_unnamed: totals.unnamed,
            places_returned: totals.unbacked_groups * self.geometry.places_per_group,
        }
    }
}
