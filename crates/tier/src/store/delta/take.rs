//! Taking pages as deltas, when they leave the buffer.

use super::super::entry::Entry;
use super::super::state::{State, Store, count};
use super::policy::{self, Choice};
use super::slot::slot_bytes;
use super::write_buffer::{Buffered, Offer};
use crate::error::{TierError, TierErrorKind};
use crate::granules::Base;
use crate::page_tier::{DeltaRead, PageWrite, Written};
use firndb_base::{Lsn, PageId};

/// Flushes of the write buffer that one call waits for to have records of its pages.
const RECORD_ATTEMPTS: usize = 8;

impl Entry {
    /// Whether the page's image on the device is `base`.
    pub(crate) fn has_base(self, base: Base) -> bool {
        match self {
            Entry::Placed { version, checksum, .. } => (Base { version, checksum }) == base,
            // Its version is in the slot; the checksum has it mixed in.
            Entry::Delta { version, checksum, .. } => checksum == base.checksum && base.version <= version,
            Entry::Free | Entry::Allocated { .. } => false,
        }
    }
    /// What was spent on slots since the image.
    pub(crate) fn rent(self) -> u8 {
        if let Entry::Delta { rent, .. } = self { rent } else { 0 }
    }
}

impl Store {
    /// Takes those of `writes` that are to be deltas and sets their outcomes; returns for each
    /// write whether it was one.
    pub(crate) fn take_deltas(&self, writes: &mut [PageWrite<'_>]) -> Vec<bool> {
        let mut taken = vec![false; writes.len()];
        let is_candidate =
            |write: &PageWrite<'_>| write.dirty && write.base.is_some() && !write.changes.is_all();
        if !self.policy.deltas.enabled || !writes.iter().any(is_candidate) || self.poison.check().is_err() {
            return taken;
        }
        let groups = self.state.lock().space.groups();
        let exists = |page: PageId| self.geometry.group_of_page(page) < groups;
        let chosen: Vec<usize> =
            (0..writes.len()).filter(|i| is_candidate(&writes[*i]) && exists(writes[*i].page)).collect();
        for chunk in chosen.chunks(self.policy.batch_pages) {
            let unknown = self.unknown(&self.state.lock(), chunk.iter().map(|i| writes[*i].page));
            // A page whose map page cannot be read is written whole (`lost_sight.rs`).
            let Ok(_pins) = self.pin_readable(&unknown) else { continue };
            // A failure does not concern these pages: they are written whole, or wait for the next.
            let _ = self.flush_if_crowded();
            let mut at_once = Vec::new();
            {
                // Under `order`, too: between a record's append and its apply, `state` is free, and
                // a version taken then would be removed with what the record supersedes.
                let _order = self.order.lock();
                let mut state = self.state.lock();
                for index in chunk {
                    let write = &mut writes[*index];
                    taken[*index] = self.take_delta(&mut state, write);
                    if taken[*index]
                        && (write.recovery_lsn == Lsn::MAX || self.policy.deltas.buffer_bytes == 0)
                    {
                        at_once.push((*index, write.page, write.version));
                    }
                }
            }
            self.flush_at_once(writes, &at_once);
        }
        taken
    }

    /// A tier above that keeps a version until the store has it durably, by a record, cannot wait.
    fn flush_at_once(&self, writes: &mut [PageWrite<'_>], at_once: &[(usize, PageId, Lsn)]) {
        let pages: Vec<PageId> = at_once.iter().map(|(_, page, _)| *page).collect();
        if let Err(error) = self.flush_deltas(&pages) {
            let state = self.state.lock();
            for (index, page, version) in at_once {
                let waits = state.deltas.buffer.get(*page).is_some_and(|held| held.delta.version <= *version);
                if waits && writes[*index].recovery_lsn == Lsn::MAX {
                    writes[*index].outcome = Err(error.clone());
                }
            }
        }
    }

    /// Gives map records to those of `writes` that only the write buffer has, or that were declined
    /// for a newer version that only it has. If that fails, it is their outcome.
    pub(crate) fn record_deltas(&self, writes: &mut [PageWrite<'_>], which: impl Fn(&PageWrite<'_>) -> bool) {
        let none = !writes.iter().any(|write| write.dirty && which(write));
        if none || self.state.lock().deltas.buffer.is_empty() {
            return;
        }
        let message = "newer versions of a page came faster than older ones got records";
        let mut outcome = Ok(());
        // More than one attempt if newer versions come meanwhile.
        for attempt in 0..=RECORD_ATTEMPTS {
            let left: Vec<usize> = (0..writes.len())
                .filter(|i| writes[*i].dirty && writes[*i].outcome.is_ok() && which(&writes[*i]))
                .filter(|i| self.is_unrecorded(writes[*i].page, writes[*i].version))
                .collect();
            if attempt == RECORD_ATTEMPTS && outcome.is_ok() {
                outcome = Err(TierError::new(TierErrorKind::Failed, message));
            }
            if let Err(error) = outcome {
                return left.iter().for_each(|i| writes[*i].outcome = Err(TierError::clone(&error)));
            }
            let pages: Vec<PageId> = left.iter().map(|i| writes[*i].page).collect();
            if pages.is_empty() {
                return;
            }
            outcome = self.flush_deltas(&pages);
        }
    }

    /// Whether neither this version of a page nor a later one is in the map.
    fn is_unrecorded(&self, page: PageId, version: Lsn) -> bool {
        let waits = self.state.lock().deltas.buffer.get(page).is_some();
        let is_newer = |entry: Entry| entry.version().is_none_or(|recorded| recorded >= version);
        waits && !self.entry_of(page).is_ok_and(is_newer)
    }

    fn take_delta(&self, state: &mut State, write: &mut PageWrite<'_>) -> bool {
        let Some(base) = write.base else { return false };
        // (None: it was settled into its map page since it was looked for.)
        let Some(Ok(entry)) = state.entry_in_memory(self, write.page) else { return false };
        let Some(place) = entry.place() else { return false };
        let held = state.deltas.buffer.get(write.page);
        let newest = newest(entry, held);
        if !entry.has_base(base) || newest.is_none_or(|newest| newest > write.version) {
            return false;
        }
        // What waits counts from the same image, but for a version of the base that only it knows.
        if held.is_some_and(|held| held.delta.base != base) {
            return false;
        }
        let changes = held.map_or(write.changes, |held| held.delta.changes.union(write.changes));
        let mut reads = held.map_or(0, |held| held.reads);
        let bytes = slot_bytes(changes, self.geometry.page_size);
        let limit = match self.policy.deltas.buffer_bytes {
            // For what calls have under way. What cannot be written waits, too.
            0 => self.policy.batch_pages * self.geometry.page_size,
            bytes => bytes,
        };
        if state.deltas.buffer.bytes() + bytes > limit {
            return false;
        }
        let (page, version, recovery) = (write.page, write.version, write.recovery_lsn);
        if write.delta_read != DeltaRead::No {
            reads = policy::rent_after_read(reads, self.policy.deltas.read_cost_percent, version);
        }
        let rent = entry.rent().saturating_add(reads);
        match policy::choose(self.geometry.page_size, rent, bytes) {
            Choice::WholeForSize => {
                count(&self.counters.whole_for_size, 1);
                return false;
            }
            Choice::WholeForRent => {
                count(&self.counters.whole_for_rent, 1);
                return false;
            }
            Choice::Delta => {}
        }
        let offer = Offer { page, version, recovery, base, place, changes, reads, image: write.data };
        state.deltas.buffer.take(&offer);
        count(&self.counters.deltas_taken, 1);
        write.outcome = Ok(Written::Taken { base: Some(base), changes });
        true
    }
}

impl State {
    /// The newest version of a page whose entry is `entry`: what waits in the write buffer is
    /// newer.
    pub(crate) fn newest_version(&self, page: PageId, entry: Entry) -> Option<Lsn> {
        newest(entry, self.deltas.buffer.get(page))
    }
}

fn newest(entry: Entry, held: Option<&Buffered>) -> Option<Lsn> {
    entry.version().max(held.map(|held| held.delta.version))
}
