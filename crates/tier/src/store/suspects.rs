//! Metadata pages of which one slot is bad.
//!
//! A crash may tear the write of a metadata page: its slot is then bad, the other one holds the
//! version before, and the log since the redo start has all that the version before lacks. But a
//! bad slot may also be one that was written long ago and was damaged since, and if it was the
//! newer one, the other is *stale*: its entries name old places, with old images that have right
//! checksums. It must not be used.
//!
//! Redo distinguishes the two. A page with a write that could have been torn was changed by a
//! record since the redo start, so redo changes it again. Hence, of the pages with a bad slot:
//! * those loaded after recovery, or not changed by redo, are damaged;
//! * those changed by redo are compared with the pages that must agree with them.
//!
//! The totals page is recounted instead. A header with a bad slot is compared with the group that
//! follows those it counts, which growth would overwrite.
//!
//! Not detected: a bitmap page that is damaged in its newer slot, and changed by redo, if its lost
//! changes concern only places of pages of other groups.

use super::bitmap::{self, Which};
use super::meta_page::MetaId;
use super::state::Store;
use super::totals::Totals;
use crate::error::{TierError, TierErrorKind};
use firndb_base::{Lsn, PageId};

/// The error for a page of which one slot is bad and nothing tells which is the newer.
pub(crate) fn ambiguous(id: MetaId) -> TierError {
    damaged(format!(
        "{id:?} is damaged in one of its slots, and what the other holds may be older: run a check, then \
         restore the database from a backup"
    ))
}

/// The error for a page that contains a record which the log lacks. Metadata is written after the
/// log it depends on is durable: so the log lost its end.
pub(crate) fn beyond_the_log(id: MetaId, lsn: Lsn, log_end: Lsn) -> TierError {
    damaged(format!(
        "{id:?} contains the log record at LSN {lsn}, but the log ends at LSN {log_end}: its end was lost. Restore \
         the log device from a copy, or restore a backup"
    ))
}

fn damaged(message: String) -> TierError {
    TierError::new(TierErrorKind::Damaged, message)
}

impl Store {
    /// See [`Store::finish_redo`].
    pub(crate) fn judge_suspects(&self, log_end: Lsn) -> Result<(), TierError> {
        {
            let state = self.state.lock();
            if let Some((id, lsn)) = state.cache.lsns().find(|(_, lsn)| *lsn >= log_end) {
                return Err(beyond_the_log(id, lsn, log_end));
            }
        }
        // Comparing loads more pages, which may be suspects, too.
        loop {
            let Some(id) = self.state.lock().suspects.pop_first() else { return Ok(()) };
            let changed = self.state.lock().cache.is_changed(id);
            match id {
                MetaId::Totals => self.recount(log_end)?,
                // The next load refuses it.
                _ if !changed => self.state.lock().cache.forget(std::iter::once(id)),
                MetaId::Map(map) => self.compare_map(map)?,
                MetaId::Bitmap(group) => {
                    let maps = self.geometry.maps_per_group;
                    (group * maps..(group + 1) * maps).try_for_each(|map| self.compare_map(map))?;
                }
            }
        }
    }

    /// For a header with a bad slot: verifies that the other one is not the older. If a crash tore
    /// the bad one, the groups that it would have counted are not in use yet.
    pub(crate) fn check_header(&self, groups: u64) -> Result<(), TierError> {
        if self.geometry.group_offset(groups + 1).is_none_or(|end| end > self.device.len()) {
            return Ok(());
        }
        let beyond = self.load(&[MetaId::Bitmap(groups)]).pop().expect("one was asked for");
        let in_use = beyond.is_ok_and(|loaded| {
            let count = |which| bitmap::count(&self.geometry, &loaded.image.body, which);
            count(Which::Pages) + count(Which::Places) > 0
        });
        if in_use {
            return Err(damaged(format!(
                "a header slot of {} is damaged, and the other counts {groups} groups although there are more: restore \
                 the database from a backup",
                self.device.info().name
            )));
        }
        Ok(())
    }

    /// Compares a map page with the bitmap pages of its own group and of the places that it names.
    fn compare_map(&self, map: u64) -> Result<(), TierError> {
        let geometry = &self.geometry;
        let first = map * geometry.entries_per_map;
        let differs = |what: String| {
            damaged(format!(
                "{what}: a metadata page lost changes that the log no longer has; restore the database from a backup"
            ))
        };
        for page in (first..first + geometry.entries_per_map).map(PageId) {
            let own = geometry.bitmap_of_page(page);
            let _pins = self.pin(&[MetaId::Map(map), own])?;
            let entry = {
                let mut state = self.state.lock();
                let entry = state.entry(self, page)?;
                let body = &state.cache.get(own).expect("just pinned").body;
                let bit = bitmap::get(geometry, body, Which::Pages, geometry.index_of_page(page));
                if bit != (entry.version().is_some() || page.0 == 0) {
                    return Err(differs(format!("map page {map} and {own:?} differ about {page:?}")));
                }
                entry
            };
            let image = entry.place().map(|place| (place, Which::Places));
            let delta = entry.slot().map(|at| (at.place, Which::Deltas));
            for (place, which) in image.into_iter().chain(delta) {
                let bits = geometry.bitmap_of_place(place);
                let _pins = self.pin(&[bits])?;
                let mut state = self.state.lock();
                let body = &state.cache.get(bits).expect("just pinned").body;
                if !bitmap::get(geometry, body, which, geometry.index_of_place(place)) {
                    return Err(differs(format!("{page:?} lies at {place:?}, which is free in {bits:?}")));
                }
            }
        }
        Ok(())
    }

    /// Recounts the totals, as containing all log before `log_end`.
    fn recount(&self, log_end: Lsn) -> Result<(), TierError> {
        let groups = self.state.lock().space.groups();
        let mut totals = Totals::default();
        for group in 0..groups {
            let id = MetaId::Bitmap(group);
            let _pins = self.pin(&[id])?;
            let mut state = self.state.lock();
            let body = &state.cache.get(id).expect("just pinned").body;
            totals.pages += bitmap::count(&self.geometry, body, Which::Pages);
            totals.places += bitmap::count(&self.geometry, body, Which::Places);
            totals.delta_pages += bitmap::count(&self.geometry, body, Which::Deltas);
            totals.unbacked_groups += u64::from(!bitmap::is_backed(body));
        }
        // Page 0 is set in its bitmap and not counted.
        totals.pages -= 1;
        let mut state = self.state.lock();
        if state.totals() != totals {
            totals.write(&mut state.cache.get(MetaId::Totals).expect("the totals page is pinned").body);
        }
        // No record lies at the end: if the next crash comes before there is one, this must not be
        // taken for metadata of log that was lost.
        state.cache.changed(MetaId::Totals, Lsn(log_end.0.saturating_sub(1)));
        Ok(())
    }
}
