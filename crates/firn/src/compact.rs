//! Compaction: what deleted rows, dropped tables and moved pages have left is removed, and space
//! goes back to the file system.
//!
//! All of it is background work that goes on anyway, as far as it pays (`engine/maintenance.rs`,
//! the store's `vacate.rs`); compaction does it now and to the end. So transactions may run beside
//! it, a crash in it is a crash beside background work, and it may be stopped anywhere: what was
//! done stays.

use crate::database::Database;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind};
use firndb_base::{PageId, Progress, clock};
use firndb_tier::store::Vacancy;
use firndb_tier::{PageTier, TierError, TierErrorKind};
use std::ops::ControlFlow;
use std::time::Duration;

/// Steps in a row without work after which rows that wait for something are left: for the log to
/// have space, or for another thread that does maintenance.
const IDLE_MAX: u32 = 100;
const IDLE_NAP: Duration = Duration::from_millis(2);
/// How long it rests after a step beside transactions, at most: as long as the step took.
const NAP_MAX: Duration = Duration::from_millis(20);
/// Sweeps of all trees, at most, and of one in how many pages the last must have made one free for
/// another.
const SWEEPS_MAX: u32 = 6;
const SWEEP_SHARE: u64 = 16;
/// Steps of one sweep, at most, for each page that is allocated: transactions that go on may leave
/// rows to be removed without end, which are theirs.
const STEPS_A_PAGE: u64 = 2;
/// Checkpoints taken in a row for the sake of one step.
const CHECKPOINTS_MAX: u32 = 8;

/// What [`Database::compact`] is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompactProgress {
    /// Compaction removes deleted rows, frees dropped trees and merges small pages. With the number
    /// of pages that are allocated.
    Rows(u64),
    /// Compaction gives pages at the file's end lower numbers, so that it can be cut off. With the
    /// number of pages that were moved, and how many have such numbers, about.
    Numbers(u64, u64),
    /// Compaction packs the slots of delta pages together. With the number of delta pages.
    Deltas(u64),
    /// Compaction moves images out of sparse parts of the store's file. With the pages of the page
    /// map that it has walked, and how many it walks in all.
    Moving(u64, u64),
}

/// What [`Database::compact`] would give back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactPlan {
    /// Bytes of pages that have space on the store's device now.
    pub bytes: u64,
    /// Of these, what would come back if only sparse parts of the file were emptied. What deleted
    /// rows and small pages hold comes in addition.
    pub bytes_back: u64,
    /// Bytes of pages to be copied for that.
    pub bytes_copied: u64,
    /// Bytes of the page map to be read for that.
    pub bytes_of_map: u64,
    /// Tables and indexes that were dropped and are not freed yet.
    pub dropped: u64,
    /// Length of the store's file, with its metadata and holes.
    pub file_bytes: u64,
    /// By how much that would become shorter. Without deleted rows and small pages it may become
    /// shorter still.
    pub file_bytes_back: u64,
    /// Pages that would get lower numbers for that.
    pub pages_renumbered: u64,
    /// Pages that keep numbers which are higher than the shortest file would have: roots of trees,
    /// pages of large values and page files, and those of what is being loaded.
    pub pages_left: u64,
}

/// What [`Database::compact`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactReport {
    /// It was not stopped.
    pub complete: bool,
    /// Bytes of pages that had space on the store's device, before and after.
    pub bytes: (u64, u64),
    /// Length of the store's file or device.
    pub file_bytes: (u64, u64),
    /// Pages allocated.
    pub pages: (u64, u64),
    /// Deleted rows that were removed meanwhile.
    pub rows_removed: u64,
    /// Pages that got lower numbers.
    pub pages_renumbered: u64,
    /// Pages copied to other parts of the file.
    pub pages_copied: u64,
    /// Parts of the file that were emptied.
    pub groups_emptied: u64,
    /// Changes of pages that were packed together.
    pub deltas_gathered: u64,
}

pub(crate) type Told<'a> = &'a mut dyn FnMut(CompactProgress) -> ControlFlow<()>;

impl Database {
    /// What [`Database::compact`] would give back, without doing it. Reads the bitmap pages of the
    /// store that were not read since opening.
    ///
    /// Errors: those of devices; `Damaged`.
    pub fn compact_plan(&self) -> Result<CompactPlan, Error> {
        let engine = self.engine();
        engine.check_open()?;
        let Vacancy { bytes, places_used, maps, .. } = engine.store.vacancy()?;
        let length = engine.store.file_length()?;
        let (mut left, mut end) = (0, length.limit());
        if length.pages_beyond > 0 {
            engine.catalog.immovable_pages(length.limit(), &mut |page| {
                left += 1;
                end = end.max(PageId(page.0 + 1));
            })?;
        }
        let page_bytes = engine.pool.page_size() as u64;
        Ok(CompactPlan {
            bytes: engine.store_bytes(),
            bytes_back: bytes,
            bytes_copied: places_used * page_bytes,
            bytes_of_map: maps.1 * engine.store.map_page_bytes(),
            dropped: engine.catalog.pending_drops() as u64,
            file_bytes: self.statistics().store_device.1,
            file_bytes_back: length.bytes_back(end),
            pages_renumbered: length.pages_beyond.saturating_sub(left),
            pages_left: left.min(length.pages_beyond),
        })
    }

    /// Makes the store as small as what it holds: removes deleted rows that no snapshot needs,
    /// merges small pages, frees what was dropped, packs changes of pages together, moves pages out
    /// of sparse parts of the file, and gives their space back to the file system: by holes, and at
    /// the end of the file by making it shorter. As many places stay free as the store aims at for
    /// writing. Transactions may run meanwhile. `progress` may stop it: what was done stays.
    ///
    /// Errors: `ReadOnly`, and those of devices and of space; `InUse` while another compaction of
    /// the database runs: each would use again what the other empties. Damaged pages stay where
    /// they are.
    pub fn compact(
        &self,
        progress: &mut dyn FnMut(CompactProgress) -> ControlFlow<()>,
    ) -> Result<CompactReport, Error> {
        let engine = self.engine();
        engine.check_writable()?;
        // Refused, rather than delayed: a caller that waits could not stop it by `progress`, and
        // one that is called by `progress` would wait for itself.
        let Some(_compacting) = engine.compacting.try_lock() else {
            return Err(Error::new(
                ErrorKind::InUse,
                "a compaction of this database is running: wait until it has ended, or stop it",
            ));
        };
        let before = (engine.store_bytes(), self.statistics());
        let mut renumbered = 0;
        let running = Running::begin(engine);
        let complete = engine.compact(progress, &mut renumbered)?;
        drop(running);
        // What was freed is durable then, and the log short.
        engine.checkpoint_all()?;
        let after = (engine.store_bytes(), self.statistics());
        let ((bytes, before), (bytes_after, after)) = (before, after);
        Ok(CompactReport {
            complete,
            bytes: (bytes, bytes_after),
            file_bytes: (before.store_device.1, after.store_device.1),
            pages: (before.store.pages_allocated, after.store.pages_allocated),
            rows_removed: after.txn.ghosts_removed - before.txn.ghosts_removed,
            pages_renumbered: renumbered,
            pages_copied: after.store.images_moved - before.store.images_moved,
            groups_emptied: after.store.groups_emptied - before.store.groups_emptied,
            deltas_gathered: after.store.deltas_gathered - before.store.deltas_gathered,
        })
    }
}

/// A compaction that runs. However it ends, also by a panic of its caller, groups that it was
/// emptying are in use again then, and pages are moved to the layouts of their tables.
struct Running<'e>(&'e Engine);

impl Running<'_> {
    fn begin(engine: &Engine) -> Running<'_> {
        engine.devices.store_array.iter().for_each(|it| it.layouts.set_waiting(true));
        Running(engine)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.store.abandon_compaction();
        self.0.devices.store_array.iter().for_each(|it| it.layouts.set_waiting(false));
    }
}

impl Engine {
    /// Bytes of pages that have space on the store's device.
    fn store_bytes(&self) -> u64 {
        self.store.statistics().places * self.pool.page_size() as u64
    }

    /// Returns false if it was stopped.
    fn compact(&self, progress: Told<'_>, renumbered: &mut u64) -> Result<bool, Error> {
        Ok(self.compact_rows(progress)?.is_continue()
            && self.compact_numbers(progress, renumbered)?.is_continue()
            && self.compact_deltas(progress)?.is_continue()
            && self.compact_store(progress)?.is_continue())
    }

    /// Sweeps as long as that frees pages: a sweep merges a small page with one neighbour.
    fn compact_rows(&self, progress: Told<'_>) -> Result<ControlFlow<()>, Error> {
        for _ in 0..SWEEPS_MAX {
            let before = self.store.statistics().pages_allocated;
            if self.sweep_rows(progress)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            let after = self.store.statistics().pages_allocated;
            if after * SWEEP_SHARE > before * (SWEEP_SHARE - 1) {
                break;
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn sweep_rows(&self, progress: Told<'_>) -> Result<ControlFlow<()>, Error> {
        self.txns.sweep_every_tree();
        let mut idle = 0;
        let mut left = STEPS_A_PAGE * self.store.statistics().pages_allocated + u64::from(IDLE_MAX);
        let waits = || self.txns.has_sweeps() || self.catalog.pending_drops() > 0;
        while idle < IDLE_MAX && left > 0 && waits() {
            left -= 1;
            let pages = self.store.statistics().pages_allocated;
            if progress(CompactProgress::Rows(pages)).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            let begun = clock::now();
            match self.step()? {
                Progress::Worked => {
                    idle = 0;
                    self.rest_beside_transactions(begun.elapsed());
                }
                Progress::Idle => {
                    idle += 1;
                    clock::sleep(IDLE_NAP);
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn compact_deltas(&self, progress: Told<'_>) -> Result<ControlFlow<()>, Error> {
        let (mut sparse, mut checkpoints) = (self.store.sparse_deltas(), 0);
        loop {
            if progress(CompactProgress::Deltas(self.store.statistics().delta_pages)).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            let mut step = || self.store.compact_deltas_step(&mut sparse);
            if self.step_that_moves(&mut checkpoints, &mut step)? == Progress::Idle {
                return Ok(ControlFlow::Continue(()));
            }
        }
    }

    fn compact_store(&self, progress: Told<'_>) -> Result<ControlFlow<()>, Error> {
        self.store.begin_compaction();
        let mut checkpoints = 0;
        loop {
            let (done, total) = self.store.vacancy()?.maps;
            if progress(CompactProgress::Moving(done, total)).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            let step = self.step_that_moves(&mut checkpoints, &mut || self.store.compact_step())?;
            if step == Progress::Idle {
                return Ok(ControlFlow::Continue(()));
            }
        }
    }

    /// Takes a step that moves pages, and then leaves the devices to transactions for a while.
    /// Where the log has no space for it, takes a checkpoint instead; `checkpoints` counts those in
    /// a row.
    pub(crate) fn step_that_moves(
        &self,
        checkpoints: &mut u32,
        step: &mut dyn FnMut() -> Result<Progress, TierError>,
    ) -> Result<Progress, Error> {
        let begun = clock::now();
        match step() {
            Ok(Progress::Worked) => *checkpoints = 0,
            Ok(Progress::Idle) => return Ok(Progress::Idle),
            Err(error) if error.kind == TierErrorKind::LogFull && *checkpoints < CHECKPOINTS_MAX => {
                *checkpoints += 1;
                self.checkpoint()?;
            }
            Err(error) => return Err(error.into()),
        }
        self.checkpoint_if_due()?;
        self.rest_beside_transactions(begun.elapsed());
        Ok(Progress::Worked)
    }

    /// Leaves the devices to transactions half of the time, if there are any.
    pub(crate) fn rest_beside_transactions(&self, step: Duration) {
        if self.txns.statistics().active > 0 {
            clock::sleep(step.min(NAP_MAX));
        }
    }
}
