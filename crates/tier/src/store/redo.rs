//! Redo of map records, before the log is attached: first those of the map log, when the store is
//! opened, then those of the database's log.
//!
//! Invariants:
//! * Records are applied in the order of their LSNs, each once: those that were redone are left
//!   out.
//! * Every record that a map or bitmap page may lack is redone. So what the last record says of an
//!   entry or a bit holds, whatever the page has, and no page is read ([`super::apply::redo`]).
//! * The records of the database's log are taken into the map log, which lacks them.
//!
//! Memory: within the map's budget. 64 bytes for each page that the records name, and for each 64
//! places or pages of which they change a bit. The sweep bounds the records in the map log: those
//! of a full circle name twice the pages that the overlay has a share of the budget for. What is in
//! no block is bounded by a share of its own.

use super::carried::CARRIED;
use super::map_block::Frame;
use super::map_replay::{Blocks, replay};
use super::meta_page::MetaId;
use super::records::{self, Change};
use super::state::Store;
use super::suspects;
use super::sweep_state::Sweep;
use super::totals;
use crate::error::{TierError, TierErrorKind};
use firndb_base::Lsn;
use firndb_base::codec::Malformed;
use firndb_log::{Kind, Record};

fn damaged(lsn: Lsn, error: Malformed) -> TierError {
    TierError::new(TierErrorKind::Damaged, format!("the map record at {lsn:?} cannot be redone: {error}"))
}

impl Store {
    /// Finds the map log and redoes its records.
    pub(crate) fn read_map_log(&self) -> Result<(), TierError> {
        let (mut anchor, mut torn, recount, groups) = {
            let state = &mut *self.state.lock();
            let body = &state.cache.get(MetaId::Totals).expect("the totals page is pinned").body;
            (totals::anchor(body), totals::announced(body), state.recount, state.space.groups())
        };
        if recount {
            torn.insert(MetaId::Totals);
        }
        self.state.lock().sweep = Sweep::opened(torn);
        let mut blocks = Blocks::new(&*self.device, &self.geometry, groups);
        if recount {
            // The bad slot may have had a newer anchor: some block knows it, unless none was
            // written since.
            let newest = blocks.newest_anchor(self.database);
            anchor = newest.filter(|found| newer(found, &anchor)).unwrap_or(anchor);
        }
        let shrunk_at = self.growth.lock().shrunk_at;
        let redo = &mut |frame: Frame<'_>| {
            if frame.kind == CARRIED {
                let outcome = self.state.lock().redo_carried(&self.geometry, frame, shrunk_at);
                return outcome.map_err(|error| damaged(frame.lsn, error));
            }
            let record = Record { kind: Kind(frame.kind), body: frame.body };
            self.redo_changes(frame.lsn, record, (groups, shrunk_at))
        };
        let map_log = replay(&mut blocks, self.database, anchor, redo)?;
        *self.redo.lock() = map_log.last();
        self.state.lock().map_log = map_log;
        Ok(())
    }

    pub(crate) fn redo_record(&self, lsn: Lsn, record: Record<'_>) -> Result<(), TierError> {
        assert!(self.journal.get().is_none(), "redo comes before the log is attached");
        let mut redone = self.redo.lock();
        if lsn <= *redone {
            return Ok(());
        }
        let (groups, shrunk_at) = {
            let header = self.growth.lock();
            (header.groups, header.shrunk_at)
        };
        self.redo_changes(lsn, record, (groups, shrunk_at))?;
        *redone = lsn;
        self.state.lock().map_log.push(lsn, record);
        Ok(())
    }

    fn redo_changes(
        &self,
        lsn: Lsn,
        record: Record<'_>,
        (groups, shrunk_at): (u64, Lsn),
    ) -> Result<(), TierError> {
        let changes = records::decode(record).map_err(|error| damaged(lsn, error))?;
        let exists = |id: &MetaId| self.geometry.group_of_meta(*id).is_none_or(|group| group < groups);
        let named = changes.iter().flat_map(|change| self.named(change));
        if let Some(id) = named.into_iter().find(|id| !exists(id)).filter(|_| lsn >= shrunk_at) {
            // The header counts a group before any record can name it, and a record that names a
            // group that was cut off since is older than that.
            return Err(TierError::new(
                TierErrorKind::Damaged,
                format!("the map record at {lsn:?} speaks of {id:?}, but the store has {groups} groups only"),
            ));
        }
        self.state.lock().redo(&self.geometry, lsn, &changes).map_err(|error| damaged(lsn, error))
    }

    /// The metadata pages that a change is about.
    fn named(&self, change: &Change) -> Vec<MetaId> {
        let mut ids = super::apply::concerned(&self.geometry, std::slice::from_ref(change));
        ids.extend(change.page().map(|page| self.geometry.map_of_page(page)));
        ids
    }

    /// See [`Store::expect_metadata`].
    pub(crate) fn expect_redone(&self, at_least: Lsn) -> Result<(), TierError> {
        let found = *self.redo.lock();
        if found >= at_least {
            return Ok(());
        }
        if let Some(error) = self.state.lock().map_log.unread() {
            return Err(error);
        }
        Err(suspects::too_old(&self.device.info().name, found, at_least))
    }
}

/// Whether `found` is a later anchor than `known`.
fn newer(found: &super::map_block::Anchor, known: &super::map_block::Anchor) -> bool {
    found.first.sequence > known.first.sequence
}
