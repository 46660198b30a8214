//! What happens when the log is nearly full: checkpoints, and then revoking the holds of others.
//!
//! Invariant: a write that is refused for lack of space leaves the log as it was. No checkpoint is
//! taken that cannot free any log, and housekeeping (`firndb_txn`'s purge) waits: the log's reserve
//! is for undoing open transactions, and for checkpoints that help. What cannot be undone within it
//! is put off until there is space.

use crate::engine::Engine;
use crate::engine::archiver::Archiver;
use crate::engine::checkpointer::Asked;
use crate::engine::checkpointer::Pressure;
use crate::engine::superblock::EPOCHS_WRITING_MAX;
use crate::error::Error;
use crate::options::archive::ArchiveFull;
use firndb_base::sync::atomic::Ordering;
use firndb_base::{Lsn, Progress, clock};
use firndb_log::LogSpace;
use std::time::Duration;

/// How long writes wait for the transactions of others whose log is the oldest: those that are
/// about to commit do so within that.
const TRANSACTION_PATIENCE: Duration = Duration::from_millis(100);
/// How long writes wait for a running backup that does not copy any log, before it is given up.
const BACKUP_PATIENCE: Duration = Duration::from_secs(5);
/// How long a transaction waits at most for `recovery_time_limit`, and how often it looks while no
/// checkpoint ends.
const LIMIT_PATIENCE: Duration = Duration::from_secs(1);
const LIMIT_LOOK: Duration = Duration::from_millis(20);
/// How often the waiting writes look.
const LOOK: Duration = Duration::from_millis(1);

/// Requests for checkpoints in vain, before only a change of the log's state allows another one: a
/// checkpoint writes what was dirty at the one before it, and one that frees nothing may leave its
/// record out.
const ASKED_MAX: u32 = 3;

impl Engine {
    /// Requests a checkpoint if one is due or the log is filling. The log of background work may be
    /// all that is logged, and then no client requests the checkpoint that frees space for more.
    /// Does not wait.
    pub fn consider_checkpoint(&self) {
        if self.checkpointer.is_served() {
            self.checkpointer.consider(&self.log);
        }
        // While one runs, a request would have another follow at once.
        if self.log.space().is_filling() && !self.checkpointer.is_running() {
            self.ask_for_log_space(Pressure::Filling);
        }
    }

    /// Whether housekeeping (freeing dropped tables and large values) may write to the log now:
    /// users come first where there is little. Requests checkpoints on the way, since in an
    /// otherwise idle database no client does. Does not wait.
    pub fn has_log_for_housekeeping(&self) -> bool {
        self.consider_checkpoint();
        let has_space = !self.log.space().is_tight();
        if !has_space {
            self.ask_for_log_space(Pressure::Short);
        }
        has_space
    }

    /// Requests a checkpoint on behalf of background work, unless none can free any log. The holds
    /// of a backup or the archive are respected: only users' writes revoke them.
    pub fn ask_for_log_space(&self, pressure: Pressure) {
        if self.is_held_by_others() {
            return;
        }
        let seen = (self.log.end(), self.log.space().oldest, self.retention.oldest());
        let ended = self.checkpointer.ended_so_far();
        let mut asked = self.asked.lock();
        if pressure == Pressure::Filling && asked.seen.is_some_and(|(_, oldest, _)| oldest == seen.1) {
            return;
        }
        if asked.seen != Some(seen) {
            *asked = Asked { seen: Some(seen), times: 0, ended: ended.wrapping_sub(1) };
        }
        if asked.times < ASKED_MAX && asked.ended != ended {
            (asked.times, asked.ended) = (asked.times + 1, ended);
            drop(asked);
            self.checkpointer.want();
        }
    }

    /// Waits for (or takes) checkpoints; then revokes the holds on log that recovery does not need.
    /// Fails if that did not free any log.
    pub fn make_log_space(&self) -> Result<(), Error> {
        let before = self.log.space();
        // No checkpoint frees log that pages need which are not redone yet.
        self.redo_to_free_log()?;
        // Others may have taken what a checkpoint freed: that it did is enough, too.
        let enough = |after: LogSpace| {
            after.normal_bytes > before.normal_bytes || !after.is_tight() || after.oldest > before.oldest
        };
        // A checkpoint writes what was dirty at the one before it: the second frees what the first,
        // after a long time without any, could not. One that cannot free anything appends records
        // all the same, and these would use up the space for undoing open transactions.
        let checkpoints = if self.is_held_by_others() { 0 } else { 2 };
        for _ in 0..checkpoints {
            self.wait_for_checkpoint()?;
            if enough(self.log.space()) {
                return Ok(());
            }
        }
        if checkpoints > 0 && self.transactions_end() {
            self.wait_for_checkpoint()?;
            if enough(self.log.space()) {
                return Ok(());
            }
        }
        // Bounded: a backup and the archive are each revoked once, and the archive either moves or
        // is revoked.
        while self.loosen()? {
            self.wait_for_checkpoint()?;
            if enough(self.log.space()) {
                return Ok(());
            }
        }
        let after = self.log.space();
        Err(Error::full(format!(
            "the log is full ({} of {} bytes) and a checkpoint could not free any of it: {}; roll back, or make the log larger",
            after.used_bytes,
            after.capacity_bytes,
            self.log_pinned_by(after.oldest)
        )))
    }

    /// Before a transaction's first write, when it holds no locks: waits while a restart would take
    /// longer than `recovery_time_limit`, for the checkpoints that shorten it.
    pub fn keep_recovery_time_limit(&self) {
        if self.checkpointer.time.was_over_limit() {
            self.wait_for_shorter_restart();
        }
    }

    #[cold]
    fn wait_for_shorter_restart(&self) {
        let time = &self.checkpointer.time;
        let since = clock::now();
        let may_wait = || {
            self.recovery.is_complete()
                && self.txns.check_usable().is_ok()
                && since.elapsed() < LIMIT_PATIENCE
        };
        while time.look_at_limit(self.log.written()) && may_wait() {
            self.checkpointer.consider(&self.log);
            if !self.checkpointer.wait_for_end(LIMIT_LOOK) {
                break;
            }
        }
        time.waited(since.elapsed());
    }

    /// Waits a little for the transactions that hold the oldest log; whether none does then, so
    /// that another checkpoint frees some.
    fn transactions_end(&self) -> bool {
        let (oldest, since) = (self.log.space().oldest, clock::now());
        while self.txns.oldest_needed_lsn().is_some_and(|lsn| lsn <= oldest) {
            if since.elapsed() >= TRANSACTION_PATIENCE {
                return false;
            }
            clock::sleep(LOOK);
        }
        true
    }

    /// Refuses writes while log of very many openings is retained for an archive that must not have
    /// a gap: each opening that writes log occupies an entry in the superblock. Once the archive
    /// has caught up, a checkpoint frees entries.
    pub fn refuse_too_many_epochs(&self) -> Result<(), Error> {
        let count = || {
            let superblock = self.superblock.lock();
            (superblock.epochs.len(), superblock.log_start())
        };
        let (epochs, log_start) = count();
        if epochs <= EPOCHS_WRITING_MAX {
            return Ok(());
        }
        if let Some(archive) = self.archive.as_ref().filter(|_| !self.threads_run()) {
            while archive.step(self, true) == Progress::Worked {}
        }
        if self.retention.oldest().is_none_or(|held| held > log_start) {
            self.wait_for_checkpoint()?;
        }
        match (count().0, &self.archive) {
            (epochs, _) if epochs <= EPOCHS_WRITING_MAX => Ok(()),
            (_, archive) => Err(Error::full(format!(
                "nothing can be written: log of {epochs} openings is kept, until it is archived, and {}: mend that, \
                     or allow a gap; what there is can be read",
                archive.as_ref().map_or("it is needed still".to_owned(), |archive| archive.trouble())
            ))),
        }
    }

    /// At opening: if the log is nearly full because of an archive that is away and may have a gap,
    /// revokes its hold at once. Otherwise openings that write too little to request space would
    /// use up the reserve for checkpoints.
    pub fn revoke_hold_of_absent_archive(&self) {
        let space = self.log.space();
        let Some(archive) = &self.archive else { return };
        if space.is_tight()
            && archive.when_full() == ArchiveFull::Gap
            && archive.is_away()
            && self.is_held_by_others()
        {
            self.revoke_archive_hold();
        }
    }

    /// Whether the oldest log is retained for the archive or a backup alone, so that no checkpoint
    /// frees any.
    pub fn is_held_by_others(&self) -> bool {
        let redo_start = self.superblock.lock().redo_start;
        let oldest = self.log.space().oldest;
        self.retention.oldest().is_some_and(|held| held < redo_start && held <= oldest)
    }

    /// Undoes a transaction that could not be undone because the log was full, if there may be
    /// space again.
    pub fn undo_put_off(&self) -> Result<Progress, Error> {
        if !self.txns.has_put_off() {
            return Ok(Progress::Idle);
        }
        if self.log.space().normal_bytes == 0 {
            // The holder has moved since: one checkpoint frees what it released.
            let held = self.retention.oldest().map_or(u64::MAX, |held| held.0);
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

    /// Makes the archive, or a backup, need less log; returns whether one of them was in the way.
    fn loosen(&self) -> Result<bool, Error> {
        let redo_start = self.superblock.lock().redo_start;
        if self.retention.oldest().is_none_or(|held| held >= redo_start) {
            return Ok(false);
        }
        let target = self.enough_to_free(redo_start);
        if self.retention.oldest().is_none_or(|held| held >= target) {
            // They have moved since the last checkpoint: the next one frees what they released.
            return Ok(true);
        }
        if self.retention.oldest_backup().is_some_and(|held| held < target) {
            // A backup that does not move can be taken again.
            return Ok(self.backups_move(target) || self.revoke_backup_holds());
        }
        let Some(archive) = &self.archive else { return Ok(false) };
        if self.archive_moves(&**archive, target) {
            return Ok(true);
        }
        if archive.is_closing() {
            // No gap for that: the next opening archives what is kept.
            return Err(Error::full(
                "the log is full because it is kept until it is archived, and the database is being closed",
            ));
        }
        match archive.when_full() {
            ArchiveFull::Gap => {
                self.revoke_archive_hold();
                Ok(true)
            }
            ArchiveFull::Refuse => Err(Error::full(format!(
                "the log is full because it is kept until it is archived, and {}: free space there or repair it, or \
                     allow a gap",
                archive.trouble()
            ))),
        }
    }

    /// Up to which LSN other holders must release log that recovery does not need, for a checkpoint
    /// to pay.
    fn enough_to_free(&self, redo_start: Lsn) -> Lsn {
        let space = self.log.space();
        redo_start.min(space.oldest.advance(space.capacity_bytes / 8))
    }

    /// Whether running backups copy log up to `target`, within [`BACKUP_PATIENCE`] each time.
    fn backups_move(&self, target: Lsn) -> bool {
        let Some(begun) = self.retention.oldest_backup() else { return false };
        let mut seen = begun;
        let mut since = clock::now();
        while seen < target && since.elapsed() < BACKUP_PATIENCE {
            clock::sleep(LOOK);
            match self.retention.oldest_backup() {
                Some(held) if held > seen => (seen, since) = (held, clock::now()),
                Some(_) => {}
                // It has ended.
                None => return true,
            }
        }
        seen > begun
    }

    /// Whether the archive takes log, within its patience, up to `target`.
    fn archive_moves(&self, archive: &dyn Archiver, target: Lsn) -> bool {
        let begun: Option<Lsn> = archive.archived();
        if !self.threads_run() {
            while archive.step(self, true) == Progress::Worked {}
            return archive.archived() > begun;
        }
        let mut seen = begun;
        while self.retention.archive().is_some_and(|held| held < target) && archive.wait_beyond(seen) {
            seen = archive.archived();
        }
        seen > begun
    }

    fn log_pinned_by(&self, oldest: Lsn) -> String {
        let mut holders = Vec::new();
        if self.recovery.oldest_needed().is_some_and(|lsn| lsn <= oldest) {
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
