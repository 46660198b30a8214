//! What happens when the log is nearly full: checkpoints, and then whoever else holds it.
//!
//! Invariant: what is refused for lack of room leaves the log as it was. No checkpoint is taken that cannot free any, and
//! housekeeping (`firn_txn`'s purge) waits: the log's reserve is for undoing what is open, and for checkpoints that help.
//! What cannot be undone within it is put off until there is room.

use crate::archive::Archive;
use crate::archive_options::ArchiveFull;
use crate::engine::Engine;
use crate::{Error, ErrorKind};
use firn_base::sync::atomic::Ordering;
use firn_base::{Lsn, Progress, clock};
use firn_log::LogSpace;
use std::time::Duration;

/// How long writes wait for a running backup that does not copy any log, before it is given up.
const BACKUP_PATIENCE: Duration = Duration::from_secs(5);
/// How often they look.
const BACKUP_LOOK: Duration = Duration::from_millis(1);

impl Engine {
    /// Waits for (or performs) checkpoints; then makes those let go who hold log that recovery does not need. Fails if
    /// that did not free any log.
    pub fn make_log_space(&self) -> Result<(), Error> {
        let before = self.log.space();
        // No checkpoint frees log that pages need which are not redone yet.
        self.redo_for_room()?;
        let enough = |after: LogSpace| {
            after.normal_bytes > before.normal_bytes || after.normal_bytes >= after.capacity_bytes / 16
        };
        // A checkpoint writes what was dirty at the one before it: the second frees what the first, after
        // a long time without any, could not. One that cannot free anything has records of its own all the same, and
        // these would use up the room in which what is open is undone.
        let checkpoints = if self.is_held_by_others() { 0 } else { 2 };
        for _ in 0..checkpoints {
            self.wait_for_checkpoint()?;
            if enough(self.log.space()) {
                return Ok(());
            }
        }
        // Bounded: a backup and the archive are each revoked once, and the archive moves or is.
        while self.loosen()? {
            self.wait_for_checkpoint()?;
            if enough(self.log.space()) {
                return Ok(());
            }
        }
        let after = self.log.space();
        Err(Error::new(
            ErrorKind::Full,
            format!(
                "the log is full ({} of {} bytes) and a checkpoint could not free any of it: {}; roll back, or make the log larger",
                after.used_bytes,
                after.capacity_bytes,
                self.log_pinned_by(after.oldest)
            ),
        ))
    }

    /// Whether the oldest log is kept for the archive or a backup alone, so that no checkpoint frees any.
    pub fn is_held_by_others(&self) -> bool {
        let redo_start = self.superblock.lock().redo_start;
        let oldest = self.log.space().oldest;
        self.keep.oldest().is_some_and(|held| held < redo_start && held <= oldest)
    }

    /// Undoes a transaction that could not be undone because the log was full, if there may be room again.
    pub fn undo_put_off(&self) -> Result<Progress, Error> {
        if !self.txns.has_put_off() {
            return Ok(Progress::Idle);
        }
        if self.log.space().normal_bytes == 0 {
            // Whoever held the log has moved since: a checkpoint, once, frees what it let go.
            let held = self.keep.oldest().map_or(u64::MAX, |held| held.0);
            if !self.is_held_by_others() && self.put_off_at.swap(held, Ordering::Relaxed) != held {
                self.checkpointer.want();
            }
            return Ok(Progress::Idle);
        }
        Ok(self.txns.undo_put_off()?)
    }

    fn wait_for_checkpoint(&self) -> Result<(), Error> {
        // During recovery the thread that takes checkpoints has not started yet.
        if self.checkpointer.is_served() {
            self.checkpointer.wait_for_next(Duration::from_secs(60))
        } else {
            self.checkpoint()
        }
    }

    /// Has the archive, or a backup, need less log; whether any of them was in the way.
    fn loosen(&self) -> Result<bool, Error> {
        let redo_start = self.superblock.lock().redo_start;
        if self.keep.oldest().is_none_or(|held| held >= redo_start) {
            return Ok(false);
        }
        let target = self.enough_to_free(redo_start);
        if self.keep.oldest().is_none_or(|held| held >= target) {
            // They have moved since the last checkpoint: the next one frees what they let go.
            return Ok(true);
        }
        if self.keep.oldest_backup().is_some_and(|held| held < target) {
            // A backup that does not move can be taken again.
            return Ok(self.backups_move(target) || self.keep.revoke_backups());
        }
        let Some(archive) = &self.archive else { return Ok(false) };
        if self.archive_moves(archive, target) {
            return Ok(true);
        }
        match archive.options().when_full {
            ArchiveFull::Gap => {
                self.keep.revoke_archive();
                Ok(true)
            }
            ArchiveFull::Refuse => Err(Error::new(
                ErrorKind::Full,
                format!(
                    "the log is full because it is kept until it is archived, and {}: make room there or mend it, or \
                     allow a gap",
                    archive.trouble()
                ),
            )),
        }
    }

    /// Up to where others must let go of the log that recovery does not need, for a checkpoint to be worth it.
    fn enough_to_free(&self, redo_start: Lsn) -> Lsn {
        let space = self.log.space();
        redo_start.min(space.oldest.advance(space.capacity_bytes / 8))
    }

    /// Whether running backups copy log up to `target`, within [`BACKUP_PATIENCE`] each time.
    fn backups_move(&self, target: Lsn) -> bool {
        let Some(begun) = self.keep.oldest_backup() else { return false };
        let mut seen = begun;
        let mut since = clock::now();
        while seen < target && since.elapsed() < BACKUP_PATIENCE {
            clock::sleep(BACKUP_LOOK);
            match self.keep.oldest_backup() {
                Some(held) if held > seen => (seen, since) = (held, clock::now()),
                Some(_) => {}
                // It has ended.
                None => return true,
            }
        }
        seen > begun
    }

    /// Whether the archive takes log, within its patience, up to `target`.
    fn archive_moves(&self, archive: &Archive, target: Lsn) -> bool {
        let begun: Option<Lsn> = archive.archived();
        if !self.threads_run() {
            while archive.step(self, true) == Progress::Worked {}
            return archive.archived() > begun;
        }
        let mut seen = begun;
        while self.keep.archive().is_some_and(|held| held < target) && archive.wait_beyond(seen) {
            seen = archive.archived();
        }
        seen > begun
    }

    fn log_pinned_by(&self, oldest: Lsn) -> String {
        let mut holders = Vec::new();
        if self.rest.oldest_needed().is_some_and(|lsn| lsn <= oldest) {
            holders.push("pages that are not redone yet");
        }
        if self.pool.oldest_recovery_lsn().is_some_and(|lsn| lsn <= oldest) {
            holders.push("pages that are not written yet");
        }
        if self.txns.oldest_needed_lsn().is_some_and(|lsn| lsn <= oldest) {
            holders.push("open transactions");
        }
        if self.pool.tier().oldest_needed_lsn().is_some_and(|lsn| lsn <= oldest) {
            holders.push("the page map and the flash cache");
        }
        if holders.is_empty() {
            "nothing holds it".to_owned()
        } else {
            format!("{} hold it", holders.join(" and "))
        }
    }
}
