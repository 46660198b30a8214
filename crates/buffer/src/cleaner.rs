//! The cleaners: the threads that write cold dirty pages, and what misses know of them.
//!
//! Several cleaners are a pipeline: each takes other frames (`to_clean.rs`) and goes with its batch
//! through the same stages, copy, flush of the log, writes, sync, record of the moves; the log and
//! the store let batches that wait at the same stage share a flush or a sync. There are as many
//! cleaners as staging buffers, less one for checkpoints.
//!
//! A miss that finds no clean frame hands the frames that it passed to the cleaners and waits for
//! the end of a batch. It writes a batch itself only if no cleaner is able to: none runs, each that
//! runs has failed, or none begins a batch in time.

use crate::error::BufferError;
use crate::pool::BufferPool;
use firndb_base::Progress;
use firndb_base::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A cleaner of a pool, on the thread that made it. Misses rely on it until it is dropped.
pub struct Cleaner<'a> {
    pool: &'a BufferPool,
    /// Whether it counts as able to write.
    is_able: bool,
}

impl BufferPool {
    /// Most cleaners that find a staging buffer at the same time.
    pub fn cleaners_max(&self) -> usize {
        self.staging.count() - 1
    }

    /// A cleaner for the calling thread, which calls [`Cleaner::step`] until it ends.
    pub fn cleaner(&self) -> Cleaner<'_> {
        let mut cleaner = Cleaner { pool: self, is_able: false };
        cleaner.set_able(true);
        cleaner
    }

    /// Wakes the cleaners so that they end; none waits any more.
    pub fn end_cleaning(&self) {
        self.cleaner_call.end();
    }

    /// Whether a miss may leave writing to a cleaner. A hint.
    pub(crate) fn has_able_cleaner(&self) -> bool {
        self.able_cleaners.load(Relaxed) > 0
    }
}

impl Cleaner<'_> {
    /// As [`BufferPool::clean_step`]. While the last step failed, misses do not wait for this
    /// cleaner: they write themselves and meet the error.
    pub fn step(&mut self) -> Result<Progress, BufferError> {
        let outcome = self.pool.clean_step();
        self.set_able(outcome.is_ok());
        outcome
    }

    /// Blocks until a miss calls for cleaners, for at most `time`.
    pub fn wait(&self, time: Duration) {
        self.pool.wait_for_cleaning(time);
    }

    fn set_able(&mut self, able: bool) {
        if able != self.is_able {
            self.is_able = able;
            if able {
                self.pool.able_cleaners.fetch_add(1, Relaxed);
            } else {
                self.pool.able_cleaners.fetch_sub(1, Relaxed);
            }
        }
    }
}

impl Drop for Cleaner<'_> {
    fn drop(&mut self) {
        self.set_able(false);
    }
}
