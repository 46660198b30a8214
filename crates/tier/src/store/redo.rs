//! Redo of map records, before the log is attached.
//!
//! Records are collected until there are enough of them, or no more. Then the metadata pages that
//! they concern are read in batches, each page once, and the records are applied in their order.
//!
//! Invariants:
//! * Records are applied in the order of their LSNs.
//! * A record is left out only if every metadata page that was synced contains it: it is not
//!   younger than a version of the metadata that was read before a sync that completed
//!   ([`Store::expect_metadata`]). A slot that a crash tears was being written after that sync, so
//!   its page was changed by a younger record, and its other slot contains the older ones.
//! * No record waits when the log is attached.

use super::apply::{apply, concerned};
use super::meta_page::MetaId;
use super::records::{self, Change};
use super::state::Store;
use crate::error::{TierError, TierErrorKind};
use firndb_base::Lsn;
use firndb_base::codec::Malformed;
use firndb_log::Record;
use std::collections::BTreeSet;

/// Most changes that wait, not counting those of the last record: 3 MiB.
const CHANGES_MAX: usize = 1 << 16;
/// Most pages with waiting records, if the budget of the map is less. (The pages that redo changes
/// stay in memory, whatever the budget: they cannot be written before the log is attached.)
const PAGES_LEAST: usize = 1024;

/// Records that wait to be applied.
#[derive(Default)]
pub(crate) struct Redo {
    /// Everything that was synced contains the records up to here.
    contained: Lsn,
    records: Vec<(Lsn, Vec<Change>)>,
    changes: usize,
    /// The metadata pages that the records concern, in groups that exist.
    pages: BTreeSet<MetaId>,
}

impl Redo {
    /// Makes redo skip records up to and including `contained`.
    pub(crate) fn begin_after(&mut self, contained: Lsn) {
        assert!(self.is_empty(), "said before the first record");
        self.contained = contained;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    fn is_full(&self, pages_max: usize) -> bool {
        self.changes >= CHANGES_MAX || self.pages.len() >= pages_max
    }
}

fn damaged(lsn: Lsn, error: Malformed) -> TierError {
    TierError::new(TierErrorKind::Damaged, format!("the map record at {lsn:?} cannot be redone: {error}"))
}

impl Store {
    pub(crate) fn redo_record(&self, lsn: Lsn, record: Record<'_>) -> Result<(), TierError> {
        assert!(self.journal.get().is_none(), "redo comes before the log is attached");
        let mut redo = self.redo.lock();
        if lsn <= redo.contained {
            return Ok(());
        }
        let changes = records::decode(record).map_err(|error| damaged(lsn, error))?;
        let (groups, shrunk_at) = {
            let header = self.growth.lock();
            (header.groups, header.shrunk_at)
        };
        let exists = |id: &MetaId| self.geometry.group_of_meta(*id).is_none_or(|group| group < groups);
        let (present, missing): (Vec<MetaId>, Vec<MetaId>) =
            concerned(&self.geometry, &changes).into_iter().partition(exists);
        if let Some(id) = missing.first().filter(|_| lsn >= shrunk_at) {
            // The header counts a group before any record can name it, and a record that names a
            // group that was cut off since is older than that.
            return Err(TierError::new(
                TierErrorKind::Damaged,
                format!("the map record at {lsn:?} speaks of {id:?}, but the store has {groups} groups only"),
            ));
        }
        debug_assert!(redo.records.last().is_none_or(|(last, _)| *last < lsn), "records come in order");
        redo.changes += changes.len();
        redo.records.push((lsn, changes));
        redo.pages.extend(present);
        let pages_max = self.state.lock().cache.budget_pages().max(PAGES_LEAST);
        if redo.is_full(pages_max) { self.apply_waiting(&mut redo) } else { Ok(()) }
    }

    /// Applies the waiting records.
    pub(crate) fn redo_waiting(&self) -> Result<(), TierError> {
        self.apply_waiting(&mut self.redo.lock())
    }

    fn apply_waiting(&self, redo: &mut Redo) -> Result<(), TierError> {
        let pages: Vec<MetaId> = std::mem::take(&mut redo.pages).into_iter().collect();
        let records = std::mem::take(&mut redo.records);
        redo.changes = 0;
        let groups = self.growth.lock().groups;
        let _pins = self.pin(&pages)?;
        for (lsn, changes) in records {
            let mut state = self.state.lock();
            apply(&self.geometry, &mut state.cache, groups, lsn, &changes)
                .map_err(|error| damaged(lsn, error))?;
        }
        Ok(())
    }
}
