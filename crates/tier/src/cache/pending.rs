//! What the cache holds in volatile memory only, as far as the log must know of it.

use super::geometry::Position;
use firn_base::Lsn;

/// An image that became invalid without a newer one, by the log record at `lsn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tombstone {
    pub position: Position,
    pub lsn: Lsn,
}

/// Images and tombstones of groups that are not durable yet.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// The least recovery LSN of a changed page in the group being filled.
    images_from: Option<Lsn>,
    /// Oldest first.
    tombstones: Vec<Tombstone>,
    /// End of the newest log record that made an image invalid. The next group's front may pass that image, so
    /// the group is not written before the log is durable to here.
    log_end: Lsn,
}

impl Pending {
    /// The log must be kept from here on.
    pub(crate) fn needed_from(&self) -> Option<Lsn> {
        self.tombstones.iter().map(|tombstone| tombstone.lsn).chain(self.images_from).min()
    }
    /// Whether anything is lost if the cache's memory is.
    pub(crate) fn is_empty(&self) -> bool {
        self.images_from.is_none() && self.tombstones.is_empty()
    }

    /// A version newer than those in durable groups joined the group being filled.
    pub(crate) fn add_image(&mut self, recovery_lsn: Lsn) {
        self.images_from = Some(self.images_from.map_or(recovery_lsn, |from| from.min(recovery_lsn)));
    }
    /// An image became invalid, by a record at `lsn` in a group of records that ends at `end`.
    pub(crate) fn add_tombstone(&mut self, tombstone: Tombstone, end: Lsn) {
        self.tombstones.push(tombstone);
        self.log_end = self.log_end.max(end);
    }
    /// Nothing of what records said of invalid images before `end` is to be seen before that is durable.
    pub(crate) fn log_end(&self) -> Lsn {
        self.log_end
    }
    pub(crate) fn tombstones(&self) -> &[Tombstone] {
        &self.tombstones
    }
    /// The group being filled is durable, with the first `tombstones` tombstones.
    pub(crate) fn written(&mut self, tombstones: usize) {
        self.images_from = None;
        self.tombstones.drain(..tombstones);
    }
}
