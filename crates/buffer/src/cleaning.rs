//! Writing dirty pages before a miss has to wait for it: by the background cleaner, and for
//! checkpoints.

use crate::error::{BufferError, Fixed};
use crate::frame::FrameId;
use crate::pool::BufferPool;
use crate::write_back::{Added, Batch};
use firndb_base::{Lsn, Progress};
use std::time::Duration;

/// Most frames inspected ahead of the clock's hand: about what misses consume between two steps.
const WINDOW_FRAMES_MAX: u32 = 4096;

impl BufferPool {
    /// Writes some cold dirty pages to the tier, so that misses find clean frames. A background
    /// step: to be called again at once after `Worked`, and after [`BufferPool::wait_for_cleaning`]
    /// after `Idle`.
    ///
    /// Keeps about half of the frames that the clock's hand comes to next free, or clean and
    /// unused. The caller holds no latch.
    pub fn clean_step(&self) -> Result<Progress, BufferError> {
        let called = self.cleaner_call.take();
        let count = self.frames.count();
        let window = (count / 8).max(self.batch_pages as u32).min(WINDOW_FRAMES_MAX);
        let ready =
            self.hand.ahead(count, window).filter(|&id| self.is_ready(id)).count() + self.free_frames();
        if ready >= (window / 2) as usize {
            return Ok(Progress::Idle);
        }
        let mut picked = self.pick(self.hand.ahead(count, count.min(4 * window)), false);
        if picked.is_empty() && called {
            // Misses need frames and all that is dirty is in use. Without misses the working set
            // fits, and writing its pages again and again would be wasted.
            picked = self.pick(self.hand.ahead(count, window), true);
        }
        if picked.is_empty() {
            return Ok(Progress::Idle);
        }
        let mut batch = Batch::new(self);
        for id in picked {
            if !batch.is_full() {
                // A busy one is in use; others will do.
                let _ = batch.try_add(id);
            }
        }
        if batch.is_empty() {
            return Ok(Progress::Idle);
        }
        batch.write(&mut Vec::new())?;
        Ok(Progress::Worked)
    }

    /// Blocks until a miss found too few clean frames, for at most `time`.
    pub fn wait_for_cleaning(&self, time: Duration) {
        self.cleaner_call.wait(time);
    }

    /// Whether the clock would take the frame at once. A hint.
    fn is_ready(&self, id: FrameId) -> bool {
        if id.0 >= self.frames.made() {
            return false;
        }
        let frame = self.frames.get(id);
        frame.page().is_some() && !frame.is_referenced() && !frame.is_writing() && !self.must_be_offered(id)
    }

    /// Up to a batch of those frames that must be written. A hint.
    fn pick(&self, frames: impl Iterator<Item = FrameId>, used_too: bool) -> Vec<FrameId> {
        let wanted =
            |id: &FrameId| self.must_be_offered(*id) && (used_too || !self.frames.get(*id).is_referenced());
        let frames = frames.filter(|id| id.0 < self.frames.made());
        frames.filter(wanted).take(self.batch_pages).collect()
    }

    /// Writes every page that was dirty with a recovery LSN before `lsn`. For checkpoints.
    ///
    /// Pages may be read and changed meanwhile; each is written once, however often it changes.
    /// When the call succeeds, [`BufferPool::oldest_recovery_lsn`] is at least `lsn` (if `lsn` was
    /// at most the log's end). The first error is returned after all pages were tried. The caller
    /// holds no latch.
    pub fn write_older_than(&self, lsn: Lsn) -> Result<(), BufferError> {
        self.check_usable()?;
        let mut first_error = None;
        let mut busy = Vec::with_capacity(self.batch_pages);
        let mut old =
            (0..self.frames.made()).map(FrameId).filter(|&id| self.is_older_than(id, lsn)).peekable();
        while old.peek().is_some() {
            let mut batch = Batch::new(self);
            while !batch.is_full() && busy.len() < self.batch_pages {
                let Some(id) = old.next() else { break };
                if batch.try_add(id) == Added::Busy {
                    busy.push(id);
                }
            }
            first_error = first_error.or(batch.write(&mut Vec::new()).err());
            for id in busy.drain(..) {
                first_error = first_error.or(self.write_busy(id, lsn).err());
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    fn is_older_than(&self, id: FrameId, lsn: Lsn) -> bool {
        self.recovery.get(id).is_some_and(|recovery_lsn| recovery_lsn < lsn)
    }

    /// Writes one page that others hold, waiting for its latch, with no batch held meanwhile.
    fn write_busy(&self, id: FrameId, lsn: Lsn) -> Fixed<()> {
        while let Some(page) = self.frames.get(id).page() {
            // Once latched, no announcement is pending: what is not old now does not become old.
            let Some(hold) = self.frames.shared(id, page) else { continue };
            if !self.is_older_than(id, lsn) {
                return Ok(());
            }
            let mut batch = Batch::new(self);
            let added = batch.add(&hold);
            drop(hold);
            if added != Added::Busy {
                return batch.write(&mut Vec::new());
            }
            drop(batch);
            self.staging.wait_for(self.frames.get(id));
        }
        Ok(())
    }

    /// Least recovery LSN of a dirty (or about to be changed) page. Read `log.end()` *before* the
    /// call: every change appended before that moment is covered.
    ///
    /// A page that the tier has taken leaves this minimum after the tier's own `oldest_needed_lsn`
    /// has come to cover it: so ask the pool first and the tier after it.
    pub fn oldest_recovery_lsn(&self) -> Option<Lsn> {
        self.recovery.oldest()
    }
}
