//! Counts the copies of each block that a scan passes.

use crate::members::redundancy::Redundancy;
use crate::read::underreplicated::UnderReplicated;
use firndb_base::{Epoch, Lsn};

/// Counts copies, and collects the blocks with too few.
pub(crate) struct Audit {
    redundancy: Redundancy,
    /// Members that are missing and cannot be counted.
    absent: usize,
    /// Of the block being sought: the members that have its fullest copy.
    holders: Vec<u32>,
    /// Blocks with too few copies, with the indexes of their epochs.
    pub underreplicated: Vec<(usize, UnderReplicated)>,
    /// There are more of them than are recorded.
    pub overflowed: bool,
}

/// Most blocks with too few copies that are recorded: what the devices may have been writing at a
/// crash.
const UNDERREPLICATED_MAX: usize = 16 << 10;

impl Audit {
    /// An audit of log that is to be as redundant as `redundancy` says.
    pub fn new(redundancy: Redundancy, absent: usize) -> Audit {
        Audit { redundancy, absent, holders: Vec::new(), underreplicated: Vec::new(), overflowed: false }
    }

    /// Another block is sought, or it was found elsewhere than on a member.
    pub fn no_holder(&mut self) {
        self.holders.clear();
    }

    /// Records that `member` has a copy of the block being sought: one that is `fuller` than all
    /// before, or as full as the fullest.
    pub fn holder(&mut self, member: u32, fuller: bool) {
        if fuller {
            self.holders.clear();
        }
        if !self.holders.contains(&member) {
            self.holders.push(member);
        }
    }

    /// Records the block at `lsn` if too few members have it.
    pub fn note(&mut self, (place, epoch): (usize, Epoch), lsn: Lsn, bytes: &[u8]) {
        let last = Lsn(lsn.0 + (bytes.len() as u64).max(1) - 1);
        let promised = self.redundancy.at(lsn).max(self.redundancy.at(last));
        let members = self.holders.len();
        // Log that only the archive has is on no device, whatever the missing members hold.
        if members > 0 && members + self.absent >= usize::from(promised) {
            return;
        }
        if self.underreplicated.len() < UNDERREPLICATED_MAX {
            self.underreplicated.push((place, UnderReplicated { epoch, lsn, bytes: bytes.to_vec() }));
        } else {
            self.overflowed = true;
        }
    }
}
