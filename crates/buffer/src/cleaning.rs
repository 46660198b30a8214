//! Writing dirty pages before a miss has to wait for it: by cleaners, and for checkpoints.

use crate::error::{BufferError, Fixed};
use crate::frame::FrameId;
use crate::pool::BufferPool;
use crate::to_clean::{Look, Picked};
use crate::write_back::{Added, Batch};
use firndb_base::{Lsn, Progress};
use std::time::Duration;

impl BufferPool {
    /// Writes some cold dirty pages to the tier, so that misses find clean frames. A background
    /// step, which several threads may take at once: to be called again at once after `Worked`, and
    /// after [`BufferPool::wait_for_cleaning`] after `Idle`.
    ///
    /// Keeps about half of the frames that the clock's hand comes to next free, or clean and
    /// unused. The caller holds no latch.
    pub fn clean_step(&self) -> Result<Progress, BufferError> {
        let called = self.cleaner_call.take();
        let frames = self.frames.count();
        // Misses need frames and all that is dirty is in use. Without misses the working set fits,
        // and writing its pages again and again would be wasted.
        let used_ones = || {
            let ahead = self.hand.ahead(frames, self.to_clean.window_frames()).filter(|_| called);
            let made = ahead.filter(|id| id.0 < self.frames.made());
            made.filter(|id| self.must_be_offered(*id)).take(self.batch_pages).collect()
        };
        let free = self.free_frames();
        let Some(mut picked) = self.to_clean.pick(&self.hand, frames, free, |id| self.look(id), used_ones)
        else {
            return Ok(Progress::Idle);
        };
        if picked.is_more {
            self.cleaner_call.wake_another();
        }
        let outcome = self.write_picked(&mut picked);
        // Damaged pages are tried again when the hand comes round.
        if outcome.as_ref().is_err_and(|error| !error.concerns_the_page()) {
            self.to_clean.start_again();
        }
        outcome.map(|()| Progress::Worked)
    }

    /// Writes what it can of the frames as one batch, and frees those that misses handed over
    /// before it returns the staging buffer, which wakes the misses that wait.
    fn write_picked(&self, picked: &mut Picked<'_>) -> Fixed<()> {
        let mut batch = Batch::new(self);
        let mut tried = 0;
        for &id in &picked.frames {
            if batch.is_full() {
                break;
            }
            tried += 1;
            // A busy one is in use; others will do.
            let _ = batch.try_add(id);
        }
        picked.put_back(tried);
        let outcome = batch.write(&mut Vec::new());
        for &id in &picked.frames[..picked.handed_over] {
            if !self.frames.get(id).is_referenced() {
                drop(self.evict(id));
            }
        }
        outcome
    }

    /// Blocks until a miss found too few clean frames, for at most `time`.
    pub fn wait_for_cleaning(&self, time: Duration) {
        self.cleaner_call.wait(time);
    }

    /// What the clock would do with the frame. A hint.
    fn look(&self, id: FrameId) -> Look {
        if id.0 >= self.frames.made() {
            return Look::Other;
        }
        let frame = self.frames.get(id);
        if frame.page().is_none() || frame.is_referenced() || frame.is_writing() {
            Look::Other
        } else if self.must_be_offered(id) {
            Look::Cold
        } else {
            Look::Ready
        }
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
            drop(batch);
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
