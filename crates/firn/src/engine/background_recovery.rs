//! The background part of recovery, while transactions run: undo of the losers, redo of pages that
//! no transaction has touched, a checkpoint.
//!
//! Invariants:
//! * Until redo is complete, the redo start is at most the oldest pending change (`checkpoint.rs`
//!   asks for it).
//! * Recovery is complete only when no page is pending, no loser is left, and a checkpoint has been
//!   taken after that, or none is needed since the log ends with one; from then on a crash has
//!   nothing of this recovery to repeat. The exception is work that was *set aside* because of
//!   damage, which the next opening tries again: pages ([`crate::engine::pending`]) stay pending
//!   and retain their log, losers (`firndb_txn`'s `losers.rs`) stay open transactions. The database
//!   is not marked as closed cleanly with either.
//!
//! Any thread may take a step, several at once. Each step begins and ends without latches and
//! locks.

use crate::engine::Engine;
use crate::engine::pending::Pending;
use crate::engine::recovery_report::RecoveryReport;
use crate::engine::recovery_time::Opened;
use crate::error::Error;
use crate::options::Options;
use crate::options::callbacks::{ProgressFn, RecoveryPhase, RecoveryProgress};
use crate::ranks;
use firndb_base::clock::{self, Moment};
use firndb_base::sync::atomic::{AtomicBool, Ordering};
use firndb_base::sync::{Arc, Mutex};
use firndb_base::{Lsn, PageId, Progress};
use firndb_buffer::BufferError;
use firndb_txn::{SetAside, TxnError, TxnErrorKind};

/// What is left of recovery.
pub(crate) struct BackgroundRecovery {
    /// The report when transactions could begin.
    report: RecoveryReport,
    pending: Option<Arc<Pending>>,
    opened: Option<Opened>,
    began: Moment,
    complete: AtomicBool,
    /// Held by the thread that takes the last checkpoint.
    ending: Mutex<()>,
    /// When it was complete.
    ended: Mutex<Option<Moment>>,
    progress: Option<ProgressFn>,
    /// Whether transactions run meanwhile.
    in_background: bool,
}

impl BackgroundRecovery {
    /// For a database that had nothing to recover.
    pub fn nothing() -> BackgroundRecovery {
        let report = RecoveryReport { clean: true, complete: true, ..RecoveryReport::default() };
        BackgroundRecovery::of(report, None, &Options::default())
    }

    /// What `report` and `pending` leave to do.
    pub fn of(
        report: RecoveryReport,
        pending: Option<Arc<Pending>>,
        options: &Options,
    ) -> BackgroundRecovery {
        let began = clock::now();
        BackgroundRecovery {
            complete: AtomicBool::new(report.complete),
            report,
            pending,
            opened: None,
            began,
            ending: ranks::REST.mutex(()),
            ended: Mutex::new(report.complete.then_some(began)),
            progress: options.progress.clone(),
            in_background: !options.tuning.eager_recovery,
        }
    }

    /// Notes what the opening knows of its log.
    pub fn of_log(mut self, opened: Opened) -> BackgroundRecovery {
        self.opened = Some(opened);
        self
    }

    /// What the opening knows of its log; `None` if that is new.
    pub fn opened(&self) -> Option<Opened> {
        self.opened
    }

    /// Whether nothing is left to be done.
    pub fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    /// The log is needed from this LSN on, for pages that are not redone yet. To be called before
    /// the buffer's function of this kind.
    pub fn oldest_needed(&self) -> Option<Lsn> {
        self.pending.as_ref()?.oldest()
    }

    /// A page that lacks changes which only the log has, and why, if there is one: once the
    /// background has nothing to do, because of damage.
    pub fn unredone(&self) -> Option<TxnError> {
        let (page, error) = self.pending.as_ref()?.first_left()?;
        Some(damage(page, &error))
    }

    /// The pages that are set aside at present.
    pub fn set_aside(&self) -> Vec<SetAside> {
        let pages = self.pending.as_ref().map_or_else(Vec::new, |pending| pending.set_aside());
        pages.iter().map(|(page, error)| page_set_aside(*page, error)).collect()
    }

    fn report_progress(&self, phase: RecoveryPhase, left: u64, total: u64) {
        if let Some(progress) = &self.progress {
            let done = total.saturating_sub(left);
            progress(RecoveryProgress { phase, done, total, in_background: self.in_background });
        }
    }

    fn left_to_redo(&self) -> Option<&Pending> {
        self.pending.as_deref().filter(|pending| !pending.is_at_rest())
    }
}

/// A page that could not be redone, for reports.
fn page_set_aside(page: PageId, error: &BufferError) -> SetAside {
    let work = "repeating the changes that the log has of a page".to_owned();
    SetAside::new(work, damage(page, error).message)
}

/// Why a page was not redone.
fn damage(page: PageId, error: &BufferError) -> TxnError {
    let name = format!("{page:?}");
    let message = match error.message.contains(&name) {
        true => error.message.clone(),
        false => format!("{name}: {}", error.message),
    };
    TxnError::new(TxnErrorKind::Damaged, message)
}

impl Engine {
    /// What recovery did, and what is left of it.
    pub fn recovery_report(&self) -> RecoveryReport {
        let rest = &self.recovery;
        let mut report = rest.report;
        let ended = *rest.ended.lock();
        report.complete = ended.is_some();
        report.losers_left = self.txns.losers_left() as u64;
        report.losers_set_aside = self.txns.losers_set_aside() as u64;
        if let Some(pending) = &rest.pending {
            report.redo = pending.counts();
            report.redone += pending.changes_redone();
        }
        report.rest_time = ended.unwrap_or_else(clock::now).since(rest.began);
        report
    }

    /// Background work that met damage and is left until the next opening: the first pieces, and
    /// how many in all. Pages that were redone or freed since they were set aside are none.
    pub fn work_set_aside(&self) -> (Vec<SetAside>, u64) {
        let (mut listed, count) = self.txns.work_set_aside();
        let pages = self.recovery.set_aside();
        let count = count + pages.len() as u64;
        listed.extend(pages);
        listed.truncate(SetAside::LISTED_MAX);
        (listed, count)
    }

    /// Whether no page is pending and no transaction is to be rolled back.
    pub fn has_nothing_to_recover(&self) -> bool {
        self.recovery.left_to_redo().is_none() && self.txns.losers_found() == 0
    }

    /// Does one step of background recovery: losers first, since transactions wait for their rows.
    ///
    /// Work that damage prevents is set aside.
    ///
    /// Errors: those of devices and of space. What is left stays so, and is as well protected as
    /// before.
    pub fn recovery_step(&self) -> Result<Progress, Error> {
        let rest = &self.recovery;
        if rest.is_complete() {
            return Ok(Progress::Idle);
        }
        self.txns.check_usable()?;
        if self.txns.rollback_loser()? {
            rest.report_progress(RecoveryPhase::Undo, self.txns.losers_left() as u64, rest.report.losers);
            return Ok(Progress::Worked);
        }
        if let Some(pending) = rest.left_to_redo() {
            self.redo_step(pending)?;
            rest.report_progress(RecoveryPhase::Redo, pending.left(), pending.counts().pages_pending);
            return Ok(Progress::Worked);
        }
        let _ending = rest.ending.lock();
        if !rest.is_complete() {
            if rest.pending.as_ref().is_none_or(|pending| pending.is_empty()) {
                self.pool.end_redo();
            }
            if !self.is_read_only() {
                self.checkpoint_all()?;
            }
            debug_assert!(rest.left_to_redo().is_none(), "what is pending is set aside");
            *rest.ended.lock() = Some(clock::now());
            rest.complete.store(true, Ordering::Release);
        }
        Ok(Progress::Worked)
    }

    /// Ends a recovery that has found nothing to do, and the log as its last checkpoint left it:
    /// another checkpoint would be equal.
    pub fn end_recovery(&self) {
        let _ending = self.recovery.ending.lock();
        self.pool.end_redo();
        // The next checkpoint is due an interval from here, however many LSNs this epoch skipped.
        self.checkpointer.last.store(self.log.end().0, Ordering::Relaxed);
        *self.recovery.ended.lock() = Some(clock::now());
        self.recovery.complete.store(true, Ordering::Release);
    }

    /// Completes recovery in this thread.
    pub fn finish_recovery(&self) -> Result<(), Error> {
        while self.recovery_step()? == Progress::Worked {}
        Ok(())
    }

    fn redo_step(&self, pending: &Pending) -> Result<(), Error> {
        let (set_aside, outcome) = pending.step(&self.pool);
        for (page, error) in set_aside {
            self.txns.report_set_aside(&page_set_aside(page, &error));
        }
        outcome
    }

    /// Redoes all pages that are pending and not set aside, since they retain log.
    pub fn redo_all(&self) -> Result<(), Error> {
        while let Some(pending) = self.recovery.left_to_redo() {
            self.redo_step(pending)?;
        }
        Ok(())
    }

    /// As [`Engine::redo_all`]; pages that cannot be redone are given up, if that frees log.
    pub fn redo_to_free_log(&self) -> Result<(), Error> {
        self.redo_all()?;
        // Where an archive or a backup retains older log, giving up would free none.
        if self.is_held_by_others() { Ok(()) } else { self.give_up_to_free_log() }
    }

    /// Gives up the changes of pages that were set aside if these retain the oldest log.
    fn give_up_to_free_log(&self) -> Result<(), Error> {
        let Some(pending) = &self.recovery.pending else { return Ok(()) };
        let redo_start = self.superblock.lock().redo_start;
        if pending.oldest().is_none_or(|oldest| oldest > redo_start) {
            return Ok(());
        }
        // Only as far as it helps; pages behind that may be readable again before they are in the
        // way.
        let enough = redo_start.advance(self.log.space().capacity_bytes / 4);
        let (given_up, outcome) = pending.give_up(&self.pool, &self.store, enough);
        for (page, error) in given_up {
            self.txns.set_aside(
                "keeping the log for a damaged page: the log was full, and it is given up",
                &damage(page, &error),
            );
        }
        outcome
    }
}
