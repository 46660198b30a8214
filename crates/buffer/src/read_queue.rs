//! The queue of pages to read ahead, and how many frames may be filled for it.
//!
//! Invariant: there are no more pages in the queue, nor frames being filled for them, than an
//! eighth of the pool's frames.

use crate::hints::{Hint, Hints};
use crate::ranks;
use firndb_base::PageId;
use firndb_base::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{AcqRel, Acquire, Release},
};
use firndb_base::sync::{Condvar, Mutex};
use firndb_tier::PageReads;
use std::collections::VecDeque;
use std::time::Duration;

/// Most pages of a window: what a batch can have in flight on a file, and 256 KiB of adjacent pages
/// of 4 KiB. Not fewer for a device that does less at once: adjacent pages are one request.
const WINDOW_PAGES: usize = 64;
/// Most reader threads, and what a device gets that is not known.
const READERS_MAX: usize = 4;
/// Fewest: the device has the pages of one while the other hands its own out.
const READERS_MIN: usize = 2;
/// Page reads that a device has in flight at its best, for each reader.
const READS_A_READER: usize = 8;

/// Readers' and callers' reads that are kept to be used again.
const READS_KEPT: usize = 16;

/// How many frames may be filled at once for one purpose.
pub(crate) struct Share {
    most: usize,
    taken: AtomicUsize,
}

/// Frames of a share, until it is dropped.
pub(crate) struct Portion<'a> {
    share: &'a Share,
    pub(crate) frames: usize,
}

impl Share {
    fn of(frames: u32) -> Share {
        Share { most: (frames as usize / 8).max(1), taken: AtomicUsize::new(0) }
    }
    pub(crate) fn most(&self) -> usize {
        self.most
    }
    /// Up to `wanted` frames, as many as are left.
    pub(crate) fn take(&self, wanted: usize) -> Portion<'_> {
        let left = |taken: usize| Some(taken + wanted.min(self.most - taken));
        let before = self.taken.fetch_update(AcqRel, Acquire, left).expect("the new count is always given");
        Portion { share: self, frames: wanted.min(self.most - before) }
    }
}

impl Drop for Portion<'_> {
    fn drop(&mut self) {
        let before = self.share.taken.fetch_sub(self.frames, AcqRel);
        assert!((self.frames..=self.share.most).contains(&before), "a share of the frames is never exceeded");
    }
}

/// What is to be read ahead.
pub(crate) struct ReadAhead {
    /// Every hint is dropped, for as long as the pool lives.
    off: bool,
    /// Reader threads.
    pub(crate) readers: usize,
    /// The device reads in one stream.
    pub(crate) one_stream: bool,
    /// Whether readers run; without them nothing is queued.
    open: AtomicBool,
    queue: Mutex<VecDeque<Hint>>,
    /// Notified when pages are queued, and when the readers are to end.
    called: Condvar,
    /// To be used again.
    reads: Mutex<Vec<PageReads>>,
    /// Pages that are not read ahead.
    kept_out: Mutex<Vec<PageId>>,
    pub(crate) for_readers: Share,
    pub(crate) for_callers: Share,
}

impl ReadAhead {
    pub(crate) fn new(frames: u32) -> ReadAhead {
        ReadAhead {
            off: false,
            readers: READERS_MAX,
            one_stream: false,
            open: AtomicBool::new(false),
            queue: ranks::AHEAD.mutex(VecDeque::new()),
            called: Condvar::new(),
            reads: ranks::AHEAD.mutex(Vec::new()),
            kept_out: ranks::AHEAD.mutex(Vec::new()),
            for_readers: Share::of(frames),
            for_callers: Share::of(frames),
        }
    }

    pub(crate) fn keep_out(&self, page: PageId) {
        self.kept_out.lock().push(page);
    }
    pub(crate) fn end_keeping_out(&self, page: PageId) {
        let mut kept_out = self.kept_out.lock();
        let at = kept_out.iter().position(|kept| *kept == page).expect("it was kept out until now");
        kept_out.swap_remove(at);
    }
    /// Whether a page is kept out. Asked once it has its frame, where a thread that keeps it out
    /// later finds it.
    pub(crate) fn is_kept_out(&self, page: PageId) -> bool {
        self.kept_out.lock().contains(&page)
    }

    /// All windows together are no more than the readers' share.
    pub(crate) fn window(&self) -> usize {
        (self.for_readers.most / self.readers).clamp(1, WINDOW_PAGES)
    }

    /// The device has `reads` page reads in flight at its best: the more, the more readers, so that
    /// it stays busy while some of them take their pages over or wait for a slow one. Before they
    /// run.
    pub(crate) fn set_depth(&mut self, reads: usize) {
        assert!(!self.is_open(), "windows keep their size while readers run");
        self.readers = reads.div_ceil(READS_A_READER).clamp(READERS_MIN, READERS_MAX);
    }

    /// Moves the queue's first pages, `most` at most, to the end of `pages`.
    fn take(&self, most: usize, pages: &mut VecDeque<Hint>) {
        let mut queue = self.queue.lock();
        let most = most.min(queue.len());
        pages.extend(queue.drain(..most));
    }

    /// For one thread's reads; to be given back, so that what they own is used again.
    pub(crate) fn take_reads(&self) -> PageReads {
        self.reads.lock().pop().unwrap_or_default()
    }
    pub(crate) fn keep_reads(&self, reads: PageReads) {
        assert_eq!(reads.under_way(), 0, "what was begun has come");
        let mut kept = self.reads.lock();
        if kept.len() < READS_KEPT {
            kept.push(reads);
        }
    }

    /// Puts pages in front that the next window begins with; what does not fit is dropped.
    pub(crate) fn push_front(&self, pages: &[Hint]) {
        let mut queue = self.queue.lock();
        if self.is_open() {
            for page in pages.iter().rev() {
                queue.push_front(*page);
            }
            queue.truncate(self.for_readers.most);
            self.called.notify_one();
        }
    }

    /// Whether readers run.
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Acquire)
    }

    /// Queues pages while there is space and readers run; returns how many.
    pub(crate) fn push(&self, pages: impl Iterator<Item = Hint>) -> usize {
        let mut queue = self.queue.lock();
        if !self.is_open() {
            return 0;
        }
        let before = queue.len();
        queue.extend(pages.take(self.for_readers.most - before));
        let queued = queue.len() - before;
        if queue.len() > self.window() {
            self.called.notify_all();
        } else if queued > 0 {
            self.called.notify_one();
        }
        queued
    }

    /// Blocks until there is a page in the queue, for at most `time`; not at all when closed.
    pub(crate) fn wait(&self, time: Duration) {
        let mut queue = self.queue.lock();
        if queue.is_empty() && self.is_open() {
            self.called.wait_for(&mut queue, time);
        }
    }

    /// Drops every hint from now on; before readers run.
    pub(crate) fn turn_off(&mut self) {
        assert!(!self.is_open(), "a pool that drops hints never queued one");
        self.off = true;
    }
    pub(crate) fn is_off(&self) -> bool {
        self.off
    }

    /// Readers run from now on, unless hints are dropped.
    pub(crate) fn open(&self) -> bool {
        self.open.store(!self.off, Release);
        !self.off
    }
    /// Drops what is queued and whatever comes, and wakes the readers.
    pub(crate) fn close(&self) {
        let mut queue = self.queue.lock();
        self.open.store(false, Release);
        queue.clear();
        self.called.notify_all();
    }
}

/// The queue, for a reader: a window of it is taken at a time, and what is left of that put back.
pub(crate) struct Queued<'a> {
    ahead: &'a ReadAhead,
    taken: VecDeque<Hint>,
    /// Pages that were looked at.
    passed: usize,
}

impl Queued<'_> {
    pub(crate) fn new(ahead: &ReadAhead) -> Queued<'_> {
        let mut taken = VecDeque::new();
        ahead.take(ahead.window(), &mut taken);
        Queued { ahead, taken, passed: 0 }
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }
    /// Puts back what is left, since frames were short: the next reader may wait for one. If there
    /// was none at all, it is dropped.
    pub(crate) fn put_back_the_rest(mut self) {
        if self.passed > 0 && !self.taken.is_empty() {
            self.ahead.push_front(self.taken.make_contiguous());
        }
    }
}

impl Hints for Queued<'_> {
    fn next(&mut self, more: usize) -> Option<Hint> {
        if self.taken.is_empty() {
            self.ahead.take(more, &mut self.taken);
        }
        let next = self.taken.pop_front();
        self.passed += usize::from(next.is_some());
        next
    }
    fn put_back(&mut self, hint: Hint) {
        self.passed -= 1;
        self.taken.push_front(hint);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_as_deep_as_the_device_and_the_pool_allow() {
        for (frames, reads, wanted) in [
            (4096, None, (4, 64)),
            (4096, Some(1), (2, 64)),
            (4096, Some(20), (3, 64)),
            (4096, Some(29), (4, 64)),
            (4096, Some(500), (4, 64)),
            (256, Some(64), (4, 8)),
            (16, Some(64), (4, 1)),
        ] {
            let mut ahead = ReadAhead::new(frames);
            if let Some(reads) = reads {
                ahead.set_depth(reads);
            }
            assert_eq!((ahead.readers, ahead.window()), wanted, "{frames} frames, {reads:?} reads");
        }
    }
}
