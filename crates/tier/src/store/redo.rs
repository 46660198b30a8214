//! Redo of map records, before the log is attached.

use super::apply::{apply, concerned};
use super::meta_page::MetaId;
use super::{Store, records};
use crate::{TierError, TierErrorKind};
use firn_base::Lsn;
use firn_log::Record;

impl Store {
    pub(crate) fn redo_record(&self, lsn: Lsn, record: Record<'_>) -> Result<(), TierError> {
        assert!(self.journal.get().is_none(), "redo comes before the log is attached");
        let damaged = |error| {
            TierError::new(
                TierErrorKind::Damaged,
                format!("the map record at {lsn:?} cannot be redone: {error}"),
            )
        };
        let changes = records::decode(record).map_err(damaged)?;
        let (groups, shrunk_at) = {
            let header = self.growth.lock();
            (header.groups, header.shrunk_at)
        };
        let exists = |id: &MetaId| self.geometry.group_of_meta(*id).is_none_or(|group| group < groups);
        let (present, missing): (Vec<MetaId>, Vec<MetaId>) =
            concerned(&self.geometry, &changes).into_iter().partition(exists);
        if let Some(id) = missing.first().filter(|_| lsn >= shrunk_at) {
            // A group is counted in the header before a record can speak of it, and a record that speaks of
            // a group given back is older than that.
            return Err(TierError::new(
                TierErrorKind::Damaged,
                format!("the map record at {lsn:?} speaks of {id:?}, but the store has {groups} groups only"),
            ));
        }
        let _pins = self.pin(&present)?;
        let mut state = self.state.lock();
        apply(&self.geometry, &mut state.cache, groups, lsn, &changes).map_err(damaged)
    }
}
