//! What names a log and its devices.

use crate::members::redundancy::Redundancy;
use firndb_base::{DatabaseId, Epoch, Lsn};

/// The id of one log device within its database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberId(pub u32);

/// What the superblock records of the log, durably.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogIdentity {
    /// The database that the log belongs to.
    pub database: DatabaseId,
    /// All members, in the order in which the devices are passed.
    pub members: Vec<MemberId>,
    /// Each epoch that log still in use may carry, with the LSN at which it starts; ascending. The
    /// first epoch of a database starts at [`Lsn::FIRST`].
    pub epochs: Vec<(Epoch, Lsn)>,
    /// Number of members that hold each part of the log.
    pub redundancy: Redundancy,
}
