//! The pool: its parts, and what they cost.

use crate::cleaner_call::CleanerCall;
use crate::clock_hand::ClockHand;
use crate::counters::Counters;
use crate::error::{BufferError, BufferErrorKind, Fixed};
use crate::frame::Frames;
use crate::free_frames::FreeFrames;
use crate::given_up::GivenUp;
use crate::layout::Layout;
use crate::miss_curve::{FollowedPages, MissCurve};
use crate::page_table::PageTable;
use crate::pending::Pending;
use crate::read_queue::ReadAhead;
use crate::recovery_lsns::RecoveryLsns;
use crate::scan_frames::ScanFrames;
use crate::staging::Staging;
use crate::to_clean::ToClean;
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use firndb_log::Log;
use firndb_tier::PageTier;

/// How the pool uses memory.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// DRAM for frames and their tables together; kept.
    pub budget_bytes: usize,
}

/// Counters since opening.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct BufferStatistics {
    /// Frames in all.
    pub frames: u64,
    /// Frames that hold a page.
    pub resident: u64,
    /// Frames whose page is newer than the tier's.
    pub dirty: u64,
    /// Fixes served from DRAM.
    pub hits: u64,
    /// Fixes that read from the tier.
    pub misses: u64,
    /// Pages evicted from their frames.
    pub evictions: u64,
    /// Dirty pages that the tier took.
    pub pages_written: u64,
    /// Batches offered to the tier.
    pub batches_written: u64,
    /// Of these, batches that a miss had to write itself, the background step having fallen behind.
    pub batches_written_by_misses: u64,
    /// Pages brought in before any thread fixed them.
    pub pages_ahead: u64,
    /// Of these, pages that were fixed since.
    pub pages_ahead_used: u64,
    /// Of these, pages that were evicted or freed before any thread fixed them.
    pub pages_ahead_wasted: u64,
    /// Most pages that were being read from the tier at one time.
    pub reads_at_once_max: u64,
    /// For each page read from the tier, the pages being read just then, itself included; all
    /// added up.
    pub reads_at_once_sum: u64,
    /// Most batches that were under way at once.
    pub batches_under_way_max: u64,
    /// Frames that cleaners looked at to find pages to write.
    pub cleaner_looks: u64,
    /// Bytes of DRAM in use.
    pub memory_bytes: u64,
}

impl BufferStatistics {
    /// Pages being read from the tier when one is, on average.
    #[must_use]
    pub fn reads_at_once_mean(&self) -> f64 {
        if self.misses == 0 { 0.0 } else { self.reads_at_once_sum as f64 / self.misses as f64 }
    }
}

/// Pages in DRAM.
pub struct BufferPool {
    pub(crate) tier: Arc<dyn PageTier>,
    pub(crate) log: Arc<Log>,
    pub(crate) frames: Frames,
    pub(crate) table: PageTable,
    pub(crate) recovery: RecoveryLsns,
    pub(crate) free: FreeFrames,
    pub(crate) hand: ClockHand,
    pub(crate) scan_frames: ScanFrames,
    pub(crate) read_ahead: ReadAhead,
    pub(crate) staging: Staging,
    pub(crate) to_clean: ToClean,
    pub(crate) cleaner_call: CleanerCall,
    /// Cleaners that can write: running, and the last batch did not fail.
    pub(crate) able_cleaners: AtomicU32,
    pub(crate) pending: Pending,
    pub(crate) counters: Counters,
    pub(crate) given_up: GivenUp,
    pub(crate) followed_pages: FollowedPages,
    /// Pages of a staging buffer: most of one batch.
    pub(crate) batch_pages: usize,
    /// Whether the WAL rule is broken on purpose.
    pub(crate) skips_wal: bool,
    /// Set when a panic left a page half changed: nothing is read or written any more.
    poisoned: AtomicBool,
    memory_bytes: usize,
    serial: u64,
}

/// Counts the pools of this process.
static POOLS: AtomicU64 = AtomicU64::new(0);

impl BufferPool {
    /// A pool over `tier`. Fails with kind `BadArgument` if the budget is too small for a pool at
    /// all.
    pub fn new(
        tier: Arc<dyn PageTier>,
        log: Arc<Log>,
        options: PoolOptions,
    ) -> Result<BufferPool, BufferError> {
        BufferPool::build(tier, log, &options, false)
    }

    /// A pool that breaks the WAL rule: it writes pages whose log is not durable. For showing that
    /// crash tests see the damage that this does.
    #[doc(hidden)]
    pub fn new_breaking_the_wal_rule(
        tier: Arc<dyn PageTier>,
        log: Arc<Log>,
        options: PoolOptions,
    ) -> Result<BufferPool, BufferError> {
        BufferPool::build(tier, log, &options, true)
    }

    fn build(
        tier: Arc<dyn PageTier>,
        log: Arc<Log>,
        options: &PoolOptions,
        skips_wal: bool,
    ) -> Result<BufferPool, BufferError> {
        let page_size = tier.page_size();
        let layout = Layout::fit(options.budget_bytes, page_size)?;
        Ok(BufferPool {
            tier,
            log,
            frames: Frames::new(layout.frames, page_size),
            table: PageTable::new(layout.frames),
            recovery: RecoveryLsns::new(layout.frames),
            free: FreeFrames::new(),
            hand: ClockHand::default(),
            scan_frames: ScanFrames::new(layout.frames),
            read_ahead: ReadAhead::new(layout.frames),
            staging: Staging::new(layout.staging_buffers, layout.batch_pages * page_size),
            to_clean: ToClean::new(layout.frames, layout.batch_pages),
            cleaner_call: CleanerCall::default(),
            able_cleaners: AtomicU32::new(0),
            pending: Pending::default(),
            counters: Counters::default(),
            given_up: GivenUp::new(layout.frames),
            followed_pages: FollowedPages::default(),
            batch_pages: layout.batch_pages,
            skips_wal,
            poisoned: AtomicBool::new(false),
            memory_bytes: layout.memory_bytes,
            serial: POOLS.fetch_add(1, Relaxed),
        })
    }

    /// The tier below: page allocation goes there directly.
    pub fn tier(&self) -> &Arc<dyn PageTier> {
        &self.tier
    }
    /// The log that changes of pages go to.
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }
    /// In bytes.
    pub fn page_size(&self) -> usize {
        self.frames.page_size()
    }

    /// A number that no other pool of this process has.
    #[must_use]
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// A panic left a page half changed: what is in DRAM must not reach the tier, and what is in
    /// the tier may be older than what this pool has shown.
    pub(crate) fn poison(&self) {
        self.poisoned.store(true, Release);
    }
    pub(crate) fn check_usable(&self) -> Fixed<()> {
        if self.poisoned.load(Acquire) {
            return Err(BufferError::new(
                BufferErrorKind::Failed,
                "a panic left a page half changed: open the database again",
            ));
        }
        Ok(())
    }

    /// Pages read from the tier so far.
    pub fn misses(&self) -> u64 {
        self.counters.misses.get()
    }

    /// How many of the misses since opening more memory would have avoided.
    pub fn miss_curve(&self) -> MissCurve {
        self.followed_pages.curve()
    }

    /// Pages that fit into DRAM.
    pub fn frame_count(&self) -> u64 {
        u64::from(self.frames.count()) - self.given_up.count()
    }

    /// Pages written to the tier since opening, and the batches that carried them.
    pub fn written(&self) -> (u64, u64) {
        (self.counters.pages_written.get(), self.counters.batches_written.get())
    }

    pub fn statistics(&self) -> BufferStatistics {
        BufferStatistics {
            frames: self.frame_count(),
            resident: self.counters.resident.get(),
            dirty: self.recovery.count(),
            hits: self.counters.hits.total(),
            misses: self.counters.misses.get(),
            evictions: self.counters.evictions.get(),
            pages_written: self.counters.pages_written.get(),
            batches_written: self.counters.batches_written.get(),
            batches_written_by_misses: self.counters.helped.get(),
            pages_ahead: self.counters.pages_ahead.get(),
            pages_ahead_used: self.counters.ahead_used.get(),
            pages_ahead_wasted: self.counters.ahead_wasted.get(),
            reads_at_once_max: self.counters.reading_max.get(),
            reads_at_once_sum: self.counters.depths.get(),
            batches_under_way_max: self.staging.deepest(),
            cleaner_looks: self.to_clean.looks.load(Relaxed),
            memory_bytes: self.memory_bytes as u64 - self.given_up.count() * self.page_size() as u64,
        }
    }
}

impl std::fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BufferPool").field("statistics", &self.statistics()).finish_non_exhaustive()
    }
}
