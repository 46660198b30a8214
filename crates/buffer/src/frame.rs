//! Frames: the bytes of pages in DRAM and the latches that guard them.
//!
//! All `unsafe` code of the pool is here. It rests on one rule: *a frame's bytes are touched only
//! through a [`SharedHold`] or an [`ExclusiveHold`]*, which hold the frame's latch as long as they
//! exist and lend the bytes no longer than themselves.
//!
//! What protects each field of a [`Frame`]:
//!
//! | field | written | read |
//! |---|---|---|
//! | bytes, version, redone | exclusive latch | any latch |
//! | page, next | exclusive latch and the page table's lock | a hint; certain under either |
//! | counter | exclusive latch | any latch |
//! | tier version | exclusive latch, or the writing flag | any latch |
//! | base, copied changes | exclusive latch (a page comes in) or writing flag | the writing flag |
//! | changes since | exclusive latch, or shared latch and the writing flag | the same |
//! | uses | exclusive latch; anywhere, as hints | anywhere |
//! | offered | anywhere: a hint | anywhere |
//! | delta read | exclusive latch (a page comes in) or writing flag | anywhere: a hint |
//! | waiters | threads about to block on the latch, [`Pin`]s | the thread that frees the frame |
//! | filling | exclusive latch | anywhere: certain for threads that count as waiters |
//!
//! Frames are made as they are first needed, in the order of their numbers, so that a pool costs no
//! more memory than it uses: the bytes and the frames' own table are mapped and touched late.
//! `made` says how many there are; no thread knows a frame's number before the frame is made.
//!
//! The *writing flag* is held by the one thread that writes an image of the frame to the tier. Its
//! holder never blocks on a latch, so a thread that holds latches may wait for it.
//!
//! No thread waits for the latch of a page it did not fix: a thread that must block counts itself
//! as a waiter, then checks again whether the frame still holds its page; a frame is given to
//! another page only after its old page number was removed and no waiter was seen after that.
//! Otherwise a thread could wait against the latch order of the trees, for a page that it never
//! fixed.

pub(crate) mod state;

use crate::frame::state::{Frame, Pin};
use firndb_base::PageId;
use firndb_base::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Release},
};
use firndb_base::sync::{Mutex, RawLatch};
use firndb_device::AlignedBuf;
use std::ptr::NonNull;

/// A frame's number in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FrameId(pub(crate) u32);

/// The result of latching a page's frame without waiting for a device.
pub(crate) enum Filled<H> {
    Latched(H),
    /// The frame holds another page by now.
    Gone,
    /// Its bytes are still being read.
    Filling,
}

/// The frames of a pool.
pub(crate) struct Frames {
    start: NonNull<u8>,
    page_size: usize,
    table: NonNull<Frame>,
    count: u32,
    /// Frames made so far: those before it in `table` are there.
    made: AtomicU32,
    /// Held to make a frame.
    making: Mutex<()>,
    /// Owns the memory at `start`; never dereferenced while the pool exists.
    memory: AlignedBuf,
    /// Owns the memory at `table`; as above. A frame has nothing that must be dropped.
    _table_memory: AlignedBuf,
}

const _: () = assert!(!std::mem::needs_drop::<Frame>() && align_of::<Frame>() <= AlignedBuf::ALIGNMENT);
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Frame>()
};

// SAFETY: `start` and `table` point into memory that is owned here and may be freed from any
// thread; the bytes are reached only through holds of the frames' latches, and a `Frame` may be
// sent and shared, as asserted above.
unsafe impl Send for Frames {}
// SAFETY: as above; shared references lend bytes through latches only.
unsafe impl Sync for Frames {}

impl Frames {
    /// Space for `count` frames of `page_size` bytes; none is made yet.
    pub(crate) fn new(count: u32, page_size: usize) -> Frames {
        assert!(count > 0 && count < u32::MAX && page_size > 0);
        let mut memory = AlignedBuf::zeroed(count as usize * page_size);
        let start = NonNull::new(memory.as_mut_ptr()).expect("a slice's pointer is never null");
        let mut table_memory = AlignedBuf::zeroed(count as usize * size_of::<Frame>());
        let table = NonNull::new(table_memory.as_mut_ptr()).expect("a slice's pointer is never null").cast();
        Frames {
            start,
            page_size,
            table,
            count,
            made: AtomicU32::new(0),
            making: Mutex::new(()),
            memory,
            _table_memory: table_memory,
        }
    }

    /// As [`Frames::new`], with every frame made.
    #[cfg(test)]
    pub(crate) fn all(count: u32, page_size: usize) -> Frames {
        let frames = Frames::new(count, page_size);
        while frames.make().is_some() {}
        frames
    }

    /// Frames there can be.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }
    /// Frames that there are: all numbers below this one.
    pub(crate) fn made(&self) -> u32 {
        self.made.load(Acquire)
    }
    /// Makes one more frame, without a page; `None` if there are all.
    pub(crate) fn make(&self) -> Option<FrameId> {
        if self.made() == self.count {
            return None;
        }
        let _one_at_a_time = self.making.lock();
        let id = self.made();
        if id == self.count {
            return None;
        }
        // SAFETY: `id` is below `count`, so the entry lies within `_table_memory`, aligned; no
        // other reference to it exists, since `get` lends only what is below `made`, and the lock
        // keeps others from writing it.
        unsafe { self.table.add(id as usize).write(Frame::new()) };
        self.made.store(id + 1, Release);
        Some(FrameId(id))
    }
    pub(crate) fn page_size(&self) -> usize {
        self.page_size
    }
    /// Keeps huge pages of the system from lying under the frames from `id` on.
    pub(crate) fn use_small_pages(&self, id: FrameId) {
        self.memory.use_small_pages(id.0 as usize * self.page_size);
    }
    #[inline]
    pub(crate) fn get(&self, id: FrameId) -> &Frame {
        assert!(id.0 < self.made(), "a frame is made before its number is known");
        // SAFETY: the frame was written before `made` passed its number, and is only lent shared
        // from then on; it lies within `_table_memory`, which `self` owns.
        unsafe { self.table.add(id.0 as usize).as_ref() }
    }

    /// Start of a frame's bytes.
    fn bytes(&self, id: FrameId) -> NonNull<u8> {
        debug_assert!(id.0 < self.count);
        // SAFETY: ids are below `count`, so the offset lies within the `count * page_size` bytes of
        // `_memory`.
        unsafe { self.start.add(id.0 as usize * self.page_size) }
    }

    /// Latches a frame shared if it holds `page`; `None` if it holds another page by now.
    pub(crate) fn shared(&self, id: FrameId, page: PageId) -> Option<SharedHold<'_>> {
        let frame = self.get(id);
        frame.before_waiting(page);
        if !frame.latch.try_lock_shared() && !frame.wait_latched(page, RawLatch::lock_shared) {
            return None;
        }
        let hold = SharedHold { frames: self, id, frame };
        frame.holds(page).then_some(hold)
    }
    /// Latches a frame exclusively if it holds `page`; `None` if it holds another page by now.
    pub(crate) fn exclusive(&self, id: FrameId, page: PageId) -> Option<ExclusiveHold<'_>> {
        let frame = self.get(id);
        frame.before_waiting(page);
        if !frame.latch.try_lock_exclusive() && !frame.wait_latched(page, RawLatch::lock_exclusive) {
            return None;
        }
        let hold = ExclusiveHold { frames: self, id, frame };
        frame.holds(page).then_some(hold)
    }
    /// As [`Frames::shared`], unless the page's bytes are still being read: the latch may be waited
    /// for, but not for as long as a device takes to fill the frame.
    pub(crate) fn shared_filled(&self, id: FrameId, page: PageId) -> Filled<SharedHold<'_>> {
        let frame = self.get(id);
        frame.before_waiting(page);
        if !frame.latch.try_lock_shared()
            && let Some(missing) = Self::wait_filled(frame, page, RawLatch::lock_shared)
        {
            return missing;
        }
        let hold = SharedHold { frames: self, id, frame };
        if frame.holds(page) { Filled::Latched(hold) } else { Filled::Gone }
    }
    /// As [`Frames::shared_filled`], latching exclusively.
    pub(crate) fn exclusive_filled(&self, id: FrameId, page: PageId) -> Filled<ExclusiveHold<'_>> {
        let frame = self.get(id);
        frame.before_waiting(page);
        if !frame.latch.try_lock_exclusive()
            && let Some(missing) = Self::wait_filled(frame, page, RawLatch::lock_exclusive)
        {
            return missing;
        }
        let hold = ExclusiveHold { frames: self, id, frame };
        if frame.holds(page) { Filled::Latched(hold) } else { Filled::Gone }
    }
    /// As [`Frames::exclusive_filled`], if that needs no waiting; a frame that another thread has
    /// latched counts as one being filled.
    pub(crate) fn try_exclusive_filled(&self, id: FrameId, page: PageId) -> Filled<ExclusiveHold<'_>> {
        let hold = self.try_exclusive(id);
        match hold {
            _ if !self.get(id).holds(page) => Filled::Gone,
            Some(hold) => Filled::Latched(hold),
            None => Filled::Filling,
        }
    }
    /// Runs `lock` unless the frame is being filled or holds another page by now; `None` once it is
    /// latched.
    #[cold]
    fn wait_filled<H>(frame: &Frame, page: PageId, lock: fn(&RawLatch)) -> Option<Filled<H>> {
        let mut filling = false;
        let holds = frame.wait_latched(page, |latch| {
            // This thread counts as a waiter now: a frame that is filled keeps its page until it is
            // latched.
            filling = frame.is_filling();
            if !filling {
                lock(latch);
            }
        });
        match (holds, filling) {
            (true, false) => None,
            (true, true) => Some(Filled::Filling),
            (false, _) => Some(Filled::Gone),
        }
    }
    /// Latches a frame shared, whatever it holds, if that needs no waiting.
    pub(crate) fn try_shared(&self, id: FrameId) -> Option<SharedHold<'_>> {
        let frame = self.get(id);
        frame.latch.try_lock_shared().then(|| SharedHold { frames: self, id, frame })
    }
    /// Latches a frame exclusively, whatever it holds, if that needs no waiting.
    pub(crate) fn try_exclusive(&self, id: FrameId) -> Option<ExclusiveHold<'_>> {
        let frame = self.get(id);
        frame.latch.try_lock_exclusive().then(|| ExclusiveHold { frames: self, id, frame })
    }
}

/// A frame latched shared.
pub(crate) struct SharedHold<'a> {
    frames: &'a Frames,
    id: FrameId,
    /// Looked up once: a hold is asked for it several times.
    frame: &'a Frame,
}

impl<'a> SharedHold<'a> {
    /// Keeps the page in its frame when the latch is released.
    pub(crate) fn pin(&self) -> Pin<'a> {
        self.frame.pin()
    }
    pub(crate) fn id(&self) -> FrameId {
        self.id
    }
    #[inline]
    pub(crate) fn frame(&self) -> &Frame {
        self.frame
    }
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the frame's bytes are valid and initialised; the latch is held shared while
        // `self` is borrowed, so no mutable slice of them exists.
        unsafe { std::slice::from_raw_parts(self.frames.bytes(self.id).as_ptr(), self.frames.page_size) }
    }
}

impl Drop for SharedHold<'_> {
    fn drop(&mut self) {
        // SAFETY: `self` is the hold and ends here; no borrow of the bytes outlives it.
        unsafe { self.frame.latch.unlock_shared() }
    }
}

/// A frame latched exclusively.
pub(crate) struct ExclusiveHold<'a> {
    frames: &'a Frames,
    id: FrameId,
    /// Looked up once: a hold is asked for it several times.
    frame: &'a Frame,
}

impl<'a> ExclusiveHold<'a> {
    pub(crate) fn id(&self) -> FrameId {
        self.id
    }
    #[inline]
    pub(crate) fn frame(&self) -> &Frame {
        self.frame
    }
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the frame's bytes are valid and initialised; the latch is held exclusively by
        // `self`, which is borrowed, so no mutable slice of them exists.
        unsafe { std::slice::from_raw_parts(self.frames.bytes(self.id).as_ptr(), self.frames.page_size) }
    }
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed mutably: no other slice of these bytes exists.
        unsafe { std::slice::from_raw_parts_mut(self.frames.bytes(self.id).as_ptr(), self.frames.page_size) }
    }
    /// Converts the latch to shared; no other thread gets it exclusively in between.
    pub(crate) fn downgrade(self) -> SharedHold<'a> {
        let ExclusiveHold { frames, id, frame } = self;
        std::mem::forget(self);
        // SAFETY: the exclusive hold was `self`, which ends without unlocking; the shared hold is
        // returned.
        unsafe { frame.latch.downgrade() }
        SharedHold { frames, id, frame }
    }
}

impl Drop for ExclusiveHold<'_> {
    fn drop(&mut self) {
        // SAFETY: `self` is the hold and ends here; no borrow of the bytes outlives it.
        unsafe { self.frame.latch.unlock_exclusive() }
    }
}

#[cfg(test)]
mod tests;
