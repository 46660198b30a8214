//! Which log is retained for others than recovery: the archive and running backups.
//!
//! Truncation asks here, under the superblock's lock, each time it moves; so a holder that takes
//! its hold under that lock, at or after the redo start, finds its log. A hold can be revoked when
//! the log is nearly full: commits go on, and the holder finds out when it moves its hold. Of the
//! archive's hold it is remembered from which LSN on log was given up, until the archive has noted
//! the gap (`Extensions::archive_gap`).
//!
//! Lock order: `superblock` → `holds`.

use crate::ranks;
use firndb_base::Lsn;
use firndb_base::sync::Mutex;
use std::collections::BTreeMap;

/// The holds on the log.
#[derive(Debug)]
pub(crate) struct LogHolds {
    holds: Mutex<Holds>,
}

#[derive(Debug, Default)]
struct Holds {
    archive: Option<Lsn>,
    /// From this LSN on log was given up that the archive had not taken, as far as is known.
    archive_gap: Option<Lsn>,
    /// The archive has all log before this LSN, gaps apart: it is durable there.
    archived: Option<Lsn>,
    backups: BTreeMap<u64, Lsn>,
    next_backup: u64,
}

impl Holds {
    fn advance_archive(&mut self, lsn: Lsn) -> bool {
        if let Some(held) = &mut self.archive {
            *held = lsn.max(*held);
        }
        self.archive.is_some()
    }
}

impl Default for LogHolds {
    fn default() -> LogHolds {
        LogHolds { holds: ranks::KEEP.mutex(Holds::default()) }
    }
}

impl LogHolds {
    /// The log is to be retained from this LSN on; `None` if there is no hold.
    pub fn oldest(&self) -> Option<Lsn> {
        let holds = self.holds.lock();
        holds.backups.values().copied().chain(holds.archive).min()
    }

    /// Where the archive holds the log.
    pub fn archive(&self) -> Option<Lsn> {
        self.holds.lock().archive
    }

    /// Lets the archive hold the log from `lsn` on.
    pub fn hold_archive(&self, lsn: Lsn) {
        self.holds.lock().archive = Some(lsn);
    }

    /// Moves the archive's hold forward; false if it was revoked.
    pub fn advance_archive(&self, lsn: Lsn) -> bool {
        self.holds.lock().advance_archive(lsn)
    }

    /// The archive has taken the log before `lsn`, and its segment says what is missing before
    /// that. If the hold was revoked meanwhile, log from `lsn` on was given up.
    pub fn archived(&self, lsn: Lsn) {
        let mut holds = self.holds.lock();
        let is_held = holds.advance_archive(lsn);
        holds.archive_gap = holds.archive_gap.filter(|_| !is_held).map(|from| from.max(lsn));
        holds.archived = holds.archived.max(Some(lsn));
    }

    /// The LSN up to which the archive has all log, gaps apart; `None` while that is not known.
    pub fn archive_end(&self) -> Option<Lsn> {
        self.holds.lock().archived
    }

    /// Sets what an earlier opening has archived.
    pub fn set_archive_end(&self, end: Option<Lsn>) {
        self.holds.lock().archived = end;
    }

    /// Revokes the archive's hold.
    pub fn revoke_archive(&self) {
        let mut holds = self.holds.lock();
        let held = holds.archive.take();
        holds.archive_gap = holds.archive_gap.into_iter().chain(held).min();
    }

    /// From which LSN on log was given up that the archive had not taken, if it has not noted that
    /// yet.
    pub fn archive_gap(&self) -> Option<Lsn> {
        self.holds.lock().archive_gap
    }

    /// Sets what an earlier opening gave up.
    pub fn set_archive_gap(&self, from: Option<Lsn>) {
        self.holds.lock().archive_gap = from;
    }

    /// Holds the log from `lsn` on for a backup; returns the hold's number.
    pub fn begin_backup(&self, lsn: Lsn) -> u64 {
        let mut holds = self.holds.lock();
        holds.next_backup += 1;
        let number = holds.next_backup;
        holds.backups.insert(number, lsn);
        number
    }

    /// Moves a backup's hold forward; false if it was revoked.
    pub fn advance_backup(&self, number: u64, lsn: Lsn) -> bool {
        let mut holds = self.holds.lock();
        match holds.backups.get_mut(&number) {
            Some(held) => {
                *held = lsn.max(*held);
                true
            }
            None => false,
        }
    }

    /// Where the backups hold the log, if any runs.
    pub fn oldest_backup(&self) -> Option<Lsn> {
        self.holds.lock().backups.values().copied().min()
    }

    /// Ends a backup's hold, revoked or not.
    pub fn end_backup(&self, number: u64) {
        self.holds.lock().backups.remove(&number);
    }

    /// Revokes all backups' holds; returns whether there were any.
    pub fn revoke_backups(&self) -> bool {
        let mut holds = self.holds.lock();
        let any = !holds.backups.is_empty();
        holds.backups.clear();
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_hold_counts_until_it_is_revoked() {
        let keep = LogHolds::default();
        assert_eq!(keep.oldest(), None);
        keep.hold_archive(Lsn(50));
        let backup = keep.begin_backup(Lsn(40));
        assert_eq!(keep.oldest(), Some(Lsn(40)));
        assert!(keep.advance_backup(backup, Lsn(60)) && keep.advance_archive(Lsn(55)));
        assert_eq!(keep.oldest(), Some(Lsn(55)));
        assert_eq!(keep.oldest_backup(), Some(Lsn(60)));
        assert!(keep.revoke_backups() && !keep.revoke_backups());
        assert!(!keep.advance_backup(backup, Lsn(70)));
        assert_eq!(keep.archive_gap(), None);
        keep.revoke_archive();
        assert_eq!(keep.archive_gap(), Some(Lsn(55)));
        keep.revoke_archive();
        assert_eq!(keep.archive_gap(), Some(Lsn(55)), "it is not forgotten before the archive knows");
        assert!(!keep.advance_archive(Lsn(70)), "a hold that was revoked does not come back by itself");
        assert_eq!((keep.oldest(), keep.archive()), (None, None));
    }

    #[test]
    fn a_gap_is_forgotten_once_the_archive_has_noted_it_but_not_one_that_comes_while_it_writes() {
        let keep = LogHolds::default();
        keep.set_archive_gap(Some(Lsn(10)));
        keep.hold_archive(Lsn(50));
        keep.archived(Lsn(60));
        assert_eq!((keep.archive(), keep.archive_gap()), (Some(Lsn(60)), None));
        // Revoked while the archive writes the log from 60 to 70.
        keep.revoke_archive();
        keep.archived(Lsn(70));
        assert_eq!((keep.archive(), keep.archive_gap()), (None, Some(Lsn(70))));
    }
}
