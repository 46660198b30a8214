//! Metadata pages of which one slot is bad.
//!
//! A crash may tear the write of a metadata page: its slot is then bad, the other one holds the
//! version before, and the map log has all that the version before lacks. But a bad slot may also
//! be one that was written long ago and was damaged since, and if it was the newer one, the other
//! is *stale*: its entries name old places, with old images that have right checksums. It must not
//! be used.
//!
//! The totals page distinguishes the two: it names the pages that are being written, and is durable
//! before the first of them is touched. A page with a bad slot that it does not name is damaged.
//! Those that it names are written again, whole, before it names others.
//!
//! The totals page itself, if it has a bad slot, is recounted; the map log is then found by looking
//! for its newest block. A header with a bad slot is compared with the group that follows those it
//! counts, which growth would overwrite.

use super::bitmap::{self, Which};
use super::meta_page::MetaId;
use super::state::Store;
use super::totals::Totals;
use crate::error::{TierError, TierErrorKind};
use firndb_base::Lsn;

/// The error for a page of which one slot is bad and nothing tells which is the newer.
pub(crate) fn ambiguous(id: MetaId) -> TierError {
    damaged(format!(
        "{id:?} is damaged in one of its slots, and what the other holds may be older: run a check, then \
         restore the database from a backup"
    ))
}

/// The error for a page of which the device holds another version than was read or written last.
pub(crate) fn lost_write(id: MetaId) -> TierError {
    damaged(format!(
        "{id:?} is not as it was written last: a write was lost, or the newest version is damaged. Run a check, then \
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

/// The error for metadata that was synced with everything up to LSN `at_least`, and has less.
pub(crate) fn too_old(name: &str, found: Lsn, at_least: Lsn) -> TierError {
    damaged(format!(
        "{name} is older than the rest of the database: it ends at LSN {found}, and had everything up to LSN \
         {at_least} at the last checkpoint. Put the newest copy in place, or restore a backup"
    ))
}

fn damaged(message: String) -> TierError {
    TierError::new(TierErrorKind::Damaged, message)
}

impl Store {
    /// See [`Store::finish_redo`].
    pub(crate) fn judge_totals(&self, log_end: Lsn) -> Result<(), TierError> {
        let (lsn, recount) = {
            let mut state = self.state.lock();
            let lsn = state.cache.get(MetaId::Totals).expect("the totals page is pinned").lsn;
            (lsn.max(state.map_log.last()).max(state.carried.newest()), state.recount)
        };
        if lsn >= log_end {
            return Err(beyond_the_log(MetaId::Totals, lsn, log_end));
        }
        if recount { self.recount() } else { Ok(()) }
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

    /// Recounts the totals. Redo has given every bitmap page what it lacked.
    fn recount(&self) -> Result<(), TierError> {
        let (ids, together): (Vec<MetaId>, usize) = {
            let state = self.state.lock();
            ((0..state.space.groups()).map(MetaId::Bitmap).collect(), state.cache.read_together())
        };
        let mut totals = Totals::default();
        for some in ids.chunks(together) {
            let _pins = self.pin(some)?;
            let mut state = self.state.lock();
            for id in some {
                let body = &state.cache.get(*id).expect("just pinned").body;
                totals.pages += bitmap::count(&self.geometry, body, Which::Pages);
                totals.places += bitmap::count(&self.geometry, body, Which::Places);
                totals.delta_pages += bitmap::count(&self.geometry, body, Which::Deltas);
                totals.unbacked_groups += u64::from(!bitmap::is_backed(body));
            }
        }
        // Page 0 is set in its bitmap and not counted.
        totals.pages -= 1;
        let mut state = self.state.lock();
        totals.write(&mut state.cache.get(MetaId::Totals).expect("the totals page is pinned").body);
        state.recount = false;
        let (last, found) = (state.map_log.last(), state.cache.peek(MetaId::Totals).map(|page| page.lsn));
        if found < Some(last) {
            state.cache.changed(MetaId::Totals, last);
        }
        Ok(())
    }
}
