//! The walk that counts what lives on doubtful delta pages.
//!
//! It goes through the map pages in order, once for all pages that are doubtful when it begins. No
//! entry can come to name such a page meanwhile, for its place is in use: entries only cease to
//! name it, and where the map page was walked already that is subtracted. So when the walk has
//! ended, each count is what the map says at that moment.
//!
//! A map page that cannot be read just now makes the walk rest where it is; a damaged one ends it.

use super::super::entry::Entry;
use super::super::meta_page::MetaId;
use super::super::state::Store;
use crate::error::{TierError, TierErrorKind};
use firndb_base::PageId;

/// Map pages walked in a step.
const MAPS_A_STEP: u64 = 32;

impl Store {
    /// Walks the map to its end, or to a page that cannot be read.
    pub(crate) fn walk_all(&self) -> Result<(), TierError> {
        while self.state.lock().deltas.live.doubtful() > 0 && self.walk_step()? {}
        Ok(())
    }

    /// Walks some map pages further, or begins a walk. False if the walk rests.
    pub(crate) fn walk_step(&self) -> Result<bool, TierError> {
        let _flushing = self.flushing.lock();
        let from = self.state.lock().deltas.live.walk_from();
        for map in from..from + MAPS_A_STEP {
            let _pins = match self.pin(&[MetaId::Map(map)]) {
                Ok(pins) => pins,
                Err(error) if error.kind == TierErrorKind::Unreadable => {
                    self.state.lock().deltas.live.walk_rests();
                    return Ok(false);
                }
                Err(error) if error.concerns_the_page() => {
                    self.state.lock().deltas.live.walk_ended(&self.geometry, false);
                    return Ok(true);
                }
                // Beyond the last group: each was walked.
                Err(error) if error.kind == TierErrorKind::NotAllocated => {
                    self.state.lock().deltas.live.walk_ended(&self.geometry, true);
                    return Ok(true);
                }
                Err(error) => return Err(error),
            };
            let state = &mut *self.state.lock();
            let first = map * self.geometry.entries_per_map;
            let pages = (first..first + self.geometry.entries_per_map).map(PageId);
            let mut named = Vec::new();
            for page in pages {
                match state.entry(self, page).map(Entry::slot) {
                    Ok(slot) => named.extend(slot.map(|at| at.place)),
                    Err(_) => {
                        state.deltas.live.walk_ended(&self.geometry, false);
                        return Ok(true);
                    }
                }
            }
            state.deltas.live.walked(named.into_iter());
        }
        Ok(true)
    }
}
