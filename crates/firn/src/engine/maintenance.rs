//! Background work in steps: cleaning, purging, freeing what was dropped, upkeep of store and
//! cache.

use crate::engine::Engine;
use crate::engine::checkpointer::Pressure;
use crate::error::Error;
use firndb_base::Progress;
use firndb_base::clock;
use std::time::Duration;

/// The kinds of maintenance.
#[derive(Clone, Copy)]
pub(crate) enum Upkeep {
    Versions,
    Drops,
    FreeSpace,
    GivingBack,
    Cache,
    Filling,
    Layouts,
}

impl Upkeep {
    pub const KINDS: usize = Upkeep::Layouts as usize + 1;

    /// As a phrase for reports.
    fn name(self) -> &'static str {
        match self {
            Upkeep::Versions => "removing versions and deleted rows that no snapshot sees",
            Upkeep::Drops => "freeing dropped tables and large values",
            Upkeep::FreeSpace => "looking for free space in the store",
            Upkeep::GivingBack => "giving free space of the store back",
            Upkeep::Cache => "upkeep of the flash cache",
            Upkeep::Filling => "filling a new device of the store",
            Upkeep::Layouts => "moving pages to the layouts of their tables",
        }
    }
}

/// Groups of pages of dropped tables freed by one step of maintenance, each of some 32 pages and
/// half a kilobyte of log: the other work of a step may wait for devices, this hardly does.
const DROP_STEPS: u32 = 16;
/// How long upkeep that met damage rests before it is tried again.
const DAMAGE_REST: Duration = Duration::from_secs(5);

impl Engine {
    /// One small step of each kind of background work; for databases without threads of their own.
    ///
    /// Errors: that of the first kind that failed, after the others had their turn: checkpoints and
    /// the archive may be what helps. A full log is no error: the delayed work is tried again by a
    /// later step.
    pub fn step(&self) -> Result<Progress, Error> {
        self.check_open()?;
        let recovered = self.recovery_step()?;
        if self.is_read_only() {
            // Only what recovery needs to write is worth space in the overlay.
            return Ok(recovered);
        }
        let cleaned = self.pool.clean_step().map_err(Error::from);
        let maintained = self.maintenance_step(true, true);
        let checkpointed = match self.checkpointer.is_due(&self.log) {
            true => self.checkpoint_if_due().map(|()| Progress::Worked),
            false => Ok(Progress::Idle),
        };
        let mut progress = recovered.or(self.archive_step());
        for outcome in [cleaned, maintained, checkpointed] {
            match outcome {
                Err(error) if error.is_log_full() => {}
                outcome => progress = progress.or(outcome?),
            }
        }
        if progress == Progress::Idle {
            // Without threads the log has no workers to seal it when it falls idle.
            progress = self.log.step();
        }
        Ok(progress)
    }

    /// Purges versions and ghost records, frees dropped tables, learns free space and returns some,
    /// moves pages, analyzes tables.
    /// Does nothing if another thread is at it. With `empties` false no groups of the store are
    /// emptied, with `sweeps` false no leaves swept.
    pub fn maintenance_step(&self, empties: bool, sweeps: bool) -> Result<Progress, Error> {
        self.txns.check_usable()?;
        let Some(_maintaining) = self.maintaining.try_lock() else { return Ok(Progress::Idle) };
        // Every step is taken, whatever the outcome of those before it.
        let outcomes = [
            self.upkeep(Upkeep::Versions, || match sweeps {
                true => Ok(self.txns.maintenance_step()?),
                false => Ok(self.txns.purge_step()?),
            }),
            self.undo_put_off(),
            self.upkeep(Upkeep::Drops, || self.drop_steps()),
            self.upkeep(Upkeep::FreeSpace, || Ok(self.store.learn_step(empties && self.may_vacate())?)),
            self.upkeep(Upkeep::GivingBack, || Ok(self.store.give_back_step()?)),
            self.upkeep(Upkeep::Cache, || Ok(self.tier.step()?)),
            self.upkeep(Upkeep::Filling, || self.fill_store_member()),
            self.upkeep(Upkeep::Layouts, || self.layout_step()),
            Ok(self.analysis_step()),
        ];
        self.consider_checkpoint();
        outcomes.into_iter().try_fold(Progress::Idle, |all, outcome| Ok(all.or(outcome?)))
    }

    /// Whether groups of the store may be emptied: not while leaves are to be swept or trees to be
    /// freed, since their pages would be moved for nothing.
    pub fn may_vacate(&self) -> bool {
        !self.txns.has_sweeps() && !self.catalog.has_drops_to_free()
    }

    /// Frees some of what was dropped, while there is enough log. Returns what the last step did:
    /// one that waits for transactions to end leaves nothing to do, whatever those before it did.
    fn drop_steps(&self) -> Result<Progress, Error> {
        let mut progress = Progress::Idle;
        // A loser may still have changes to undo in a tree that has been dropped.
        if self.losers_to_undo() {
            return Ok(progress);
        }
        for _ in 0..DROP_STEPS {
            if !self.has_log_for_housekeeping() {
                break;
            }
            match self.catalog.drop_step().map_err(Error::from) {
                Ok(done) => progress = done,
                Err(error) if error.is_log_full() => {
                    self.ask_for_log_space(Pressure::Short);
                    break;
                }
                Err(error) => return Err(error),
            }
            if progress == Progress::Idle {
                break;
            }
        }
        Ok(progress)
    }

    /// Whether losers are left to be rolled back before the next opening.
    fn losers_to_undo(&self) -> bool {
        self.txns.losers_left() > self.txns.losers_set_aside()
    }

    /// One step of one kind of upkeep. A kind that met damage which it could not pass over rests
    /// for a while, so that the same page is not read over and over; the others go on.
    fn upkeep(
        &self,
        kind: Upkeep,
        step: impl FnOnce() -> Result<Progress, Error>,
    ) -> Result<Progress, Error> {
        let resting = self.resting.lock()[kind as usize];
        if resting.is_some_and(|until| clock::now() < until) {
            return Ok(Progress::Idle);
        }
        match step() {
            Err(error) if error.concerns_a_page() => {
                self.resting.lock()[kind as usize] = clock::now().after(DAMAGE_REST);
                self.background_failed(kind.name(), &error);
                Ok(Progress::Idle)
            }
            outcome => outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::testing::{memory_devices, small};
    use firndb_base::Progress;

    /// Cause: that one thread at a time does maintenance was a comment. Effect: a step freed a
    /// dropped table beside a thread that removed ghosts from it.
    #[test]
    fn a_step_leaves_maintenance_to_the_thread_that_is_at_it() {
        let db = small(1).create_on(memory_devices(1)).expect("created");
        let table = db.create_table("t").expect("a table");
        db.transact(|tx| tx.put(&table, b"k", b"v")).expect("committed");
        drop(table);
        db.drop_table("t").expect("dropped");
        let engine = db.engine();
        let dropped = engine.catalog.pending_drops();
        assert!(dropped > 0);
        let step_until_idle = || while db.step().expect("a step") == Progress::Worked {};
        let maintaining = engine.maintaining.lock();
        std::thread::scope(|scope| scope.spawn(step_until_idle).join().expect("no panic"));
        assert_eq!(engine.catalog.pending_drops(), dropped, "the other thread frees them");
        drop(maintaining);
        step_until_idle();
        assert_eq!(engine.catalog.pending_drops(), 0);
    }
}
