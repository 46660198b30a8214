//! What is known of a frame but its bytes: the fields of the table in `frame.rs`, and what may be
//! done to each.

use crate::changed::ChangesCell;
use crate::page_use::{PageUse, Uses};
use crate::ranks;
use firndb_base::sync::RawLatch;
use firndb_base::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};
use firndb_base::{Lsn, PageId};
use firndb_tier::{Base, Changes, DeltaRead};

/// The page word of a frame that holds no page. Not a page's number: see [`can_be_held`].
const NO_PAGE: u64 = u64::MAX;

/// Numbers of [`DeltaRead`] in a frame.
const YES: u8 = 1;
const MERGE: u8 = 2;

/// Whether a number can be a page's. All but the greatest can; page ids come from devices, too.
pub(crate) fn can_be_held(page: PageId) -> bool {
    page.0 != NO_PAGE
}

/// All that is known of a frame but its bytes. Two cache lines: the adjacent-line prefetcher would
/// let neighbours of 64 bytes share.
#[repr(align(128))]
pub(crate) struct Frame {
    pub(super) latch: RawLatch,
    page: AtomicU64,
    counter: AtomicU64,
    version: AtomicU64,
    tier_version: AtomicU64,
    /// Next frame in the page table's chain; the table gives it its meaning.
    pub(crate) next: AtomicU32,
    waiters: AtomicU32,
    /// Pages that came into the frame, and left it.
    arrivals: AtomicU32,
    uses: AtomicU8,
    writing: AtomicBool,
    offered: AtomicBool,
    /// A [`DeltaRead`], by its number.
    delta_read: AtomicU8,
    redone: AtomicBool,
    /// Whether its page's bytes are still to come.
    filling: AtomicBool,
    /// Whether the page has a base; its version and checksum.
    has_base: AtomicBool,
    base_checksum: AtomicU32,
    base_version: AtomicU64,
    /// What of the image that was read, or copied last for the tier, differs from the base.
    copied: ChangesCell,
    /// What was changed since that image.
    since: ChangesCell,
}

const _: () = assert!(size_of::<Frame>() == 128);

impl Frame {
    pub(super) fn new() -> Frame {
        Frame {
            latch: RawLatch::ranked(&ranks::LATCH),
            page: AtomicU64::new(NO_PAGE),
            counter: AtomicU64::new(0),
            version: AtomicU64::new(0),
            tier_version: AtomicU64::new(0),
            next: AtomicU32::new(u32::MAX),
            waiters: AtomicU32::new(0),
            arrivals: AtomicU32::new(0),
            uses: AtomicU8::new(Uses::COLD.byte()),
            writing: AtomicBool::new(false),
            offered: AtomicBool::new(false),
            delta_read: AtomicU8::new(0),
            redone: AtomicBool::new(false),
            filling: AtomicBool::new(false),
            has_base: AtomicBool::new(false),
            base_checksum: AtomicU32::new(0),
            base_version: AtomicU64::new(0),
            copied: ChangesCell::new(Changes::ALL),
            since: ChangesCell::new(Changes::NONE),
        }
    }

    /// The calling thread, as far as can be seen, holds the frame exclusively.
    fn debug_assert_exclusive(&self) {
        debug_assert!(self.latch.is_locked_exclusive(), "a frame is changed under its exclusive latch");
    }

    /// The page it holds: certain under a latch, else a hint.
    pub(crate) fn page(&self) -> Option<PageId> {
        let page = self.page.load(Acquire);
        (page != NO_PAGE).then_some(PageId(page))
    }
    /// Whether it holds `page`: certain under a latch, else a hint.
    pub(crate) fn holds(&self, page: PageId) -> bool {
        self.page.load(Acquire) == page.0
    }
    /// Names its page. The caller holds the exclusive latch and the page's shard lock.
    pub(crate) fn set_page(&self, page: Option<PageId>) {
        assert!(page.is_none_or(can_be_held), "the greatest number is not a page");
        self.debug_assert_exclusive();
        self.arrivals.store(self.arrivals().wrapping_add(1), Relaxed);
        self.page.store(page.map_or(NO_PAGE, |page| page.0), SeqCst);
    }
    /// Changes when a page comes into the frame or leaves it: as long as it is the same, so is the
    /// page, in the same incarnation. The caller holds a latch.
    pub(crate) fn arrivals(&self) -> u32 {
        self.arrivals.load(Relaxed)
    }
    /// Whether a thread is about to block on the latch. Certain only after the page number was
    /// removed.
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiters.load(SeqCst) > 0
    }

    /// Grows with every change of the bytes and of the page.
    pub(crate) fn counter(&self) -> u64 {
        self.counter.load(Relaxed)
    }
    pub(crate) fn count_change(&self) {
        self.debug_assert_exclusive();
        self.counter.store(self.counter.load(Relaxed) + 1, Relaxed);
    }

    /// LSN of the last change in the bytes.
    pub(crate) fn version(&self) -> Lsn {
        Lsn(self.version.load(Relaxed))
    }
    pub(crate) fn set_version(&self, version: Lsn) {
        self.debug_assert_exclusive();
        self.version.store(version.0, Relaxed);
    }
    /// The version that the tier returned or took last.
    pub(crate) fn tier_version(&self) -> Lsn {
        Lsn(self.tier_version.load(Acquire))
    }
    pub(crate) fn set_tier_version(&self, version: Lsn) {
        debug_assert!(self.latch.is_locked_exclusive() || self.is_writing(), "the writer or the changer");
        debug_assert!(version <= self.version(), "the tier has {version}, and DRAM {}", self.version());
        self.tier_version.store(version.0, Release);
    }
    /// Whether the bytes are newer than the tier's: certain under a latch.
    pub(crate) fn is_newer_than_tier(&self) -> bool {
        self.version() != self.tier_version()
    }

    /// Notes the base of the image that was just read, or that the tier took, and what that image
    /// differs from it by. The caller has read the page, or holds the writing flag.
    pub(crate) fn set_base(&self, base: Option<Base>, changes: Changes) {
        debug_assert!(self.is_writing() || self.latch.is_locked_exclusive(), "the writer or the reader");
        assert!(base.is_some() || changes.is_all(), "without a base everything is changed");
        self.has_base.store(base.is_some(), Relaxed);
        if let Some(base) = base {
            self.base_version.store(base.version.0, Relaxed);
            self.base_checksum.store(base.checksum, Relaxed);
        }
        self.copied.set(changes);
    }
    /// The image that was read, or copied last, is the frame's: nothing was changed since.
    pub(crate) fn forget_changes_since(&self) {
        self.debug_assert_exclusive();
        self.since.set(Changes::NONE);
    }
    /// Adds what was changed just now.
    #[inline]
    pub(crate) fn note_changes(&self, changes: Changes) {
        self.debug_assert_exclusive();
        self.since.add(changes);
    }
    /// The base and what the frame differs from it by; what is changed from now on counts as
    /// changed since. The caller copies the page, latched shared, and holds the writing flag.
    pub(crate) fn copy_changes(&self) -> (Option<Base>, Changes) {
        debug_assert!(self.is_writing() && self.latch.is_locked(), "the writer, while it copies");
        self.copied.add(self.since.get());
        self.since.set(Changes::NONE);
        let base = || Base {
            version: Lsn(self.base_version.load(Relaxed)),
            checksum: self.base_checksum.load(Relaxed),
        };
        (self.has_base.load(Relaxed).then(base), self.copied.get())
    }

    pub(crate) fn uses(&self) -> Uses {
        Uses::from_byte(self.uses.load(Relaxed))
    }
    pub(crate) fn is_referenced(&self) -> bool {
        self.uses() == Uses::REFERENCED
    }
    /// Notes a use other than the common one, of a page that is referenced already; returns whether
    /// it is the first of a page that was read ahead. The caller holds a latch.
    pub(crate) fn note_use(&self, page_use: PageUse) -> bool {
        let before = self.uses();
        let after = before.after(page_use);
        if before.is_ahead() {
            // Of the threads that share the latch one is the first.
            return self.uses.compare_exchange(before.byte(), after.byte(), Relaxed, Relaxed).is_ok();
        }
        // Stores only if it must, so that scans that share a page do not write its line.
        if after != before {
            self.uses.store(after.byte(), Relaxed);
        }
        false
    }
    /// For the page that comes in. The caller holds the exclusive latch.
    pub(crate) fn set_uses(&self, uses: Uses) {
        self.debug_assert_exclusive();
        self.uses.store(uses.byte(), Relaxed);
    }
    /// The hand passes: no latch is held, and the frame may have got another page meanwhile.
    pub(crate) fn forget_reference(&self) {
        let _ = self.uses.compare_exchange(Uses::REFERENCED.byte(), Uses::COLD.byte(), Relaxed, Relaxed);
    }

    /// Whether the tier was offered this page, clean or dirty, since it was read.
    pub(crate) fn is_offered(&self) -> bool {
        self.offered.load(Relaxed)
    }
    pub(crate) fn set_offered(&self, offered: bool) {
        self.offered.store(offered, Relaxed);
    }

    /// Whether the page's read took a delta page, and the tier wants it back. No once it was copied
    /// for the tier.
    pub(crate) fn delta_read(&self) -> DeltaRead {
        match self.delta_read.load(Relaxed) {
            YES => DeltaRead::Yes,
            MERGE => DeltaRead::Merge,
            _ => DeltaRead::No,
        }
    }
    pub(crate) fn set_delta_read(&self, delta_read: DeltaRead) {
        let number = match delta_read {
            DeltaRead::No => 0,
            DeltaRead::Yes => YES,
            DeltaRead::Merge => MERGE,
        };
        self.delta_read.store(number, Relaxed);
    }

    /// Whether the last change was made by redo, and more of it may come, with LSNs before the
    /// log's end.
    pub(crate) fn is_redone(&self) -> bool {
        self.redone.load(Relaxed)
    }
    pub(crate) fn set_redone(&self, redone: bool) {
        self.debug_assert_exclusive();
        self.redone.store(redone, Relaxed);
    }

    /// Whether an image of it is in flight to the tier.
    pub(crate) fn is_writing(&self) -> bool {
        self.writing.load(Acquire)
    }
    /// Takes the writing flag, if it is free. The caller holds a latch, and a staging buffer whose
    /// return wakes the threads that wait for the flag.
    pub(crate) fn try_start_writing(&self) -> Option<WritingFlag<'_>> {
        debug_assert!(self.latch.is_locked(), "an image is copied under a latch");
        let free = !self.writing.load(Relaxed)
            && self.writing.compare_exchange(false, true, Acquire, Relaxed).is_ok();
        free.then(|| WritingFlag(self))
    }

    /// Whether its page's bytes are still being read, so that its latch is held until the device
    /// completes the read.
    pub(crate) fn is_filling(&self) -> bool {
        self.filling.load(Acquire)
    }
    /// Under the exclusive latch; before the frame names its page, if the bytes are to come.
    pub(crate) fn set_filling(&self, filling: bool) {
        self.debug_assert_exclusive();
        debug_assert!(!filling || self.page().is_none(), "it is filling before others find it");
        self.filling.store(filling, Release);
        // Only threads that fix the incoming page wait for this frame, and they wait for the device
        // anyhow.
        if filling { self.latch.allow_devices() } else { self.latch.bar_devices() }
    }
    /// No other thread can reach the frame: its holder may wait for devices.
    pub(crate) fn allow_devices(&self) {
        self.latch.allow_devices();
    }

    /// Counts as a waiter and runs `lock`, unless the frame holds another page by now; returns
    /// whether it did.
    pub(crate) fn wait_latched(&self, page: PageId, lock: impl FnOnce(&RawLatch)) -> bool {
        // With `set_page` and `has_waiters` all of these are sequentially consistent: either this
        // thread sees that the page number is gone, or the thread that removed it sees this waiter.
        self.waiters.fetch_add(1, SeqCst);
        let holds = self.page.load(SeqCst) == page.0;
        if holds {
            lock(&self.latch);
        }
        self.uncount_waiter();
        holds
    }

    /// Keeps its page in it. The caller holds its latch.
    pub(super) fn pin(&self) -> Pin<'_> {
        self.waiters.fetch_add(1, SeqCst);
        Pin(self)
    }

    fn uncount_waiter(&self) {
        let before = self.waiters.fetch_sub(1, SeqCst);
        debug_assert!(before > 0, "a waiter was counted before");
    }

    /// Before a thread latches the frame that it takes for that of `page`, and waits if need be.
    #[track_caller]
    pub(super) fn before_waiting(&self, page: PageId) {
        self.latch.before_waiting();
        if cfg!(debug_assertions) && self.holds(page) {
            self.latch.assert_not_held();
        }
    }
}

/// The writing flag of a frame, held; released when dropped.
pub(crate) struct WritingFlag<'a>(&'a Frame);

impl<'a> WritingFlag<'a> {
    pub(crate) fn frame(&self) -> &'a Frame {
        self.0
    }
}

impl Drop for WritingFlag<'_> {
    fn drop(&mut self) {
        let was_held = self.0.writing.swap(false, Release);
        debug_assert!(was_held, "only the holder of the writing flag gives it back");
    }
}

/// Keeps a frame's page in it, without a latch; whether the page is changed or forgotten meanwhile
/// is no matter.
pub(crate) struct Pin<'a>(&'a Frame);

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.0.uncount_waiter();
    }
}
