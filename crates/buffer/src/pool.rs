//! The pool. SKELETON.

use crate::guard::Fixed;
use crate::{BufferError, ExclusiveGuard, OptimisticRef, SharedGuard};
use firn_base::sync::Arc;
use firn_base::{Lsn, PageId, Progress};
use firn_log::Log;
use firn_tier::PageTier;

/// How the pool uses memory.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// DRAM for frames and their tables together; kept.
    pub budget_bytes: usize,
}

/// Counters since opening.
#[derive(Clone, Copy, Debug, Default)]
pub struct BufferStatistics {
    /// Frames in all.
    pub frames: u64,
    /// Frames that hold a page.
    pub resident: u64,
    /// Frames whose page is newer than the tier's.
    pub dirty: u64,
    /// Fixes answered from DRAM.
    pub hits: u64,
    /// Fixes that read from the tier.
    pub misses: u64,
    /// Pages dropped or written to make room.
    pub evictions: u64,
    /// Bytes of DRAM in use.
    pub memory_bytes: u64,
}

/// Pages in DRAM.
pub struct BufferPool {}

impl BufferPool {
    /// A pool over `tier`.
    pub fn new(_tier: Arc<dyn PageTier>, _log: Arc<Log>, _options: PoolOptions) -> Result<BufferPool, BufferError> {
        todo!()
    }
    /// The tier below: page allocation goes there directly.
    pub fn tier(&self) -> &Arc<dyn PageTier> {
        todo!()
    }
    /// The log that changes of pages go to.
    pub fn log(&self) -> &Arc<Log> {
        todo!()
    }
    /// Bytes.
    pub fn page_size(&self) -> usize {
        todo!()
    }
    /// Latches a page for reading, reading it from the tier if need be.
    pub fn shared(&self, _page: PageId) -> Fixed<SharedGuard<'_>> {
        todo!()
    }
    /// Latches a page for changing.
    pub fn exclusive(&self, _page: PageId) -> Fixed<ExclusiveGuard<'_>> {
        todo!()
    }
    /// Latches a page seen before, for reading, if nobody changed it since and it is still there.
    pub fn shared_if_unchanged(&self, _seen: OptimisticRef) -> Option<SharedGuard<'_>> {
        todo!()
    }
    /// As [`BufferPool::shared_if_unchanged`], for changing.
    pub fn exclusive_if_unchanged(&self, _seen: OptimisticRef) -> Option<ExclusiveGuard<'_>> {
        todo!()
    }
    /// A zeroed frame for a page just reserved, latched for changing. Nothing is read.
    pub fn create(&self, _page: PageId) -> Fixed<ExclusiveGuard<'_>> {
        todo!()
    }
    /// Writes some cold dirty pages to the tier, so that misses find clean frames. A background step.
    pub fn clean_step(&self) -> Result<Progress, BufferError> {
        todo!()
    }
    /// Writes every page that was dirty with a recovery LSN before `lsn`. For checkpoints.
    pub fn write_older_than(&self, _lsn: Lsn) -> Result<(), BufferError> {
        todo!()
    }
    /// Least recovery LSN of a dirty (or about to be changed) page. Read `log.end()` *before* the call:
    /// every change appended before that moment is covered.
    pub fn oldest_recovery_lsn(&self) -> Option<Lsn> {
        todo!()
    }
    /// Counters.
    pub fn statistics(&self) -> BufferStatistics {
        todo!()
    }
}
