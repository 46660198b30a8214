//! Reading ahead: bringing pages in before a thread fixes them, many with one read of the tier.
//!
//! [`BufferPool::bring_in`] reads a batch in the calling thread. [`BufferPool::read_ahead`] queues
//! page numbers for the reader threads; each of them keeps a window of the queue under way, hands
//! over each page as it comes, and begins others in their place (`bringing.rs`). There are several
//! readers, so that the device has the pages of some while others hand theirs out.
//!
//! Invariants:
//! * All of this is a hint. What is queued may be dropped, by a full queue, for want of a frame, or
//!   because no reader runs; an error is left to the fix that meets it. A page in the queue that a
//!   thread fixes first is read by that thread.
//! * A thread that fills several frames waits for nothing but the device: it waits for a frame only
//!   while it has none, and takes more only if they are at hand. So a thread that holds latches and
//!   wants a page that is being filled never waits for a thread that waits for it.
//! * A page that a thread frees while it is in no frame is kept out ([`KeptOut`]) until the tier
//!   knows that it is free: hints come from nodes read earlier, and no frame outlives its page.
//! * The frames being filled are at most an eighth of the pool for the readers, and as many for
//!   the callers of `bring_in` (`read_queue.rs`).

use crate::frame::state::can_be_held;
use crate::hints::{Hint, Listed};
use crate::page_use::PageUse;
use crate::pool::BufferPool;
use crate::read_queue::Queued;
use firndb_base::sync::thread;
use firndb_base::{PageId, Progress};
use firndb_tier::Whereabouts;
use std::time::Duration;

/// Most pages of one batch that is brought in.
const BATCH_PAGES_MAX: usize = 256;

impl BufferPool {
    /// Brings in those of `pages` that are not in DRAM, without latching them for the caller, and
    /// returns how many it has brought in itself: the others are there, are being read, or could
    /// not be read. A hint: stops early if frames are short, `None` if it had none at all or hints
    /// are dropped, and leaves errors to the fix that meets them. The caller may hold latches as
    /// for [`BufferPool::shared`].
    ///
    /// Pages that first wait for something else than most of them do, as for the map page that says
    /// where they are, are left to the readers meanwhile.
    pub fn bring_in(&self, pages: &[PageId], page_use: PageUse) -> Option<usize> {
        if self.read_ahead.is_off() {
            return None;
        }
        let absent: Vec<PageId> = pages.iter().copied().filter(|page| !self.seems_resident(*page)).collect();
        if absent.is_empty() {
            return Some(0);
        }
        let (now, beside) = self.divide(absent, page_use);
        let portion = self.read_ahead.for_callers.take(pages.len().min(BATCH_PAGES_MAX));
        let mut came = 0;
        for part in [&now, &beside] {
            // What no reader has taken by then is read here.
            let left = portion.frames - came.min(portion.frames);
            let mut listed = Listed { hints: part, passed: 0 };
            came += self.bring(&mut listed, left, left);
            if listed.passed < part.len() {
                return (came > 0).then_some(came);
            }
        }
        Some(came)
    }

    /// Divides pages that are not in DRAM into those that the calling thread reads, and those that
    /// it has put in front of the readers' queue.
    fn divide(&self, absent: Vec<PageId>, page_use: PageUse) -> (Vec<Hint>, Vec<Hint>) {
        let hints = absent.iter().map(|page| (*page, page_use));
        if absent.len() == 1 || !self.read_ahead.is_open() {
            return (hints.collect(), Vec::new());
        }
        let mut found = Vec::with_capacity(absent.len());
        self.tier.whereabouts(&absent, &mut found);
        let kind = |found: &Whereabouts| match found {
            Whereabouts::Cache => 0,
            Whereabouts::Store { .. } | Whereabouts::Unwritten => 1,
            Whereabouts::Unknown => 2,
        };
        let mut counts = [0; 3];
        found.iter().for_each(|found| counts[kind(found)] += 1);
        let most = (0..3).max_by_key(|kind| counts[*kind]).expect("there are three kinds");
        let (now, beside): (Vec<_>, Vec<_>) = hints.zip(&found).partition(|(_, found)| kind(found) == most);
        let [now, beside] =
            [now, beside].map(|part| part.into_iter().map(|(hint, _)| hint).collect::<Vec<_>>());
        if !beside.is_empty() {
            self.read_ahead.push_front(&beside);
            // They have two reads to wait for: the first is to begin before those of this thread.
            thread::yield_now();
        }
        (now, beside)
    }

    /// As [`BufferPool::read_ahead`], in front of all that is queued: for nodes that must be read
    /// before it is known what to read next. What does not fit is dropped at the queue's end.
    pub fn read_ahead_first(&self, pages: &[PageId]) {
        let absent = pages.iter().filter(|page| can_be_held(**page) && !self.seems_resident(**page));
        let hints: Vec<Hint> = absent.map(|page| (*page, PageUse::Working)).collect();
        if !hints.is_empty() {
            self.read_ahead.push_front(&hints);
        }
    }

    /// Queues those of `pages` that are not in DRAM for the reader threads, in this order, and
    /// returns how many it has queued: none where no reader runs, fewer when the queue is full.
    /// Waits for nothing; the caller may hold latches.
    pub fn read_ahead(&self, pages: &[PageId], page_use: PageUse) -> usize {
        if pages.is_empty() || !self.read_ahead.is_open() || self.check_usable().is_err() {
            return 0;
        }
        let absent = pages.iter().filter(|page| can_be_held(**page) && !self.seems_resident(**page));
        self.read_ahead.push(absent.map(|page| (*page, page_use)))
    }

    /// Pages that a scan brings in as part of the working set: a table that is read whole again and
    /// again stays in DRAM if it is small, and a scan of a large one pushes out no more than these.
    /// What it reads after them is [`PageUse::Once`].
    pub fn working_set_of_a_scan(&self) -> usize {
        self.frames.count() as usize / 8
    }

    /// Pages that one scan should have queued or unused at most: windows for all readers and half
    /// as many again, so that they never run dry; and at most half of the frames that scans fill,
    /// so that the other half are of pages which have been used and can be replaced. More would be
    /// evicted before their use where other threads miss often and the scan has been held up.
    pub fn read_ahead_pages(&self) -> usize {
        let windows = self.read_ahead.readers * self.read_ahead.window();
        (windows + windows / 2).min(self.scan_frames.most() / 2).max(1)
    }

    /// Pages that a reader takes at a time: a scan queues as many, so that neighbours become one
    /// request.
    pub fn read_window(&self) -> usize {
        self.read_ahead.window()
    }

    /// Pages that [`BufferPool::bring_in`] reads at most.
    pub fn bring_in_pages(&self) -> usize {
        self.read_ahead.for_callers.most().min(BATCH_PAGES_MAX)
    }

    /// Threads that should call [`BufferPool::read_ahead_step`].
    pub fn readers(&self) -> usize {
        self.read_ahead.readers
    }

    /// The same pool over devices that have `reads` page reads in flight at their best.
    #[must_use]
    pub fn with_read_depth(mut self, reads: usize) -> BufferPool {
        self.read_ahead.set_depth(reads);
        self
    }

    /// The same pool over a device that reads one thing at a time, the sooner the less it has to
    /// move for it.
    #[must_use]
    pub fn with_one_stream(mut self) -> BufferPool {
        self.read_ahead.one_stream = true;
        self
    }

    /// Whether a client should read what it needs itself, in the order of places.
    pub fn reads_in_one_stream(&self) -> bool {
        self.read_ahead.one_stream
    }

    /// The same pool, which drops all hints: each page is read when a thread fixes it.
    #[must_use]
    pub fn without_read_ahead(mut self) -> BufferPool {
        self.read_ahead.turn_off();
        self
    }

    /// Lets hints be queued, for reader threads that start now; false if this pool drops all hints,
    /// so that readers have nothing to do.
    pub fn begin_read_ahead(&self) -> bool {
        self.read_ahead.open()
    }
    /// Drops what is queued and whatever comes; wakes the reader threads so that they end.
    pub fn end_read_ahead(&self) {
        self.read_ahead.close();
    }

    /// Reads what is queued, a window at one time, until the queue is empty or frames are short. A
    /// step of a reader thread: to be called again at once after `Worked`, and after
    /// [`BufferPool::wait_for_read_ahead`] after `Idle`. The caller holds no latch.
    pub fn read_ahead_step(&self) -> Progress {
        let mut queued = Queued::new(&self.read_ahead);
        if queued.is_empty() {
            return Progress::Idle;
        }
        let portion = self.read_ahead.for_readers.take(self.read_window());
        self.bring(&mut queued, portion.frames, usize::MAX);
        queued.put_back_the_rest();
        Progress::Worked
    }

    /// Blocks until there is something to read ahead, for at most `time`; not at all when reading
    /// ahead has ended.
    pub fn wait_for_read_ahead(&self, time: Duration) {
        self.read_ahead.wait(time);
    }

    /// Whether each of `pages` is in DRAM, or just being read. Hints: no latch is taken.
    pub fn resident(&self, pages: &[PageId], found: &mut Vec<bool>) {
        found.clear();
        found.extend(pages.iter().map(|page| self.seems_resident(*page)));
    }

    pub(crate) fn seems_resident(&self, page: PageId) -> bool {
        self.table.find(&self.frames, page).is_some()
    }
}

/// A page that is in no frame and is not read ahead, until this is dropped.
#[must_use = "dropping it lets the page be read ahead"]
pub struct KeptOut<'a> {
    pool: &'a BufferPool,
    page: PageId,
}

impl BufferPool {
    /// No hint brings the page in from now on; one that came before is found in its frame.
    pub fn keep_out(&self, page: PageId) -> KeptOut<'_> {
        self.read_ahead.keep_out(page);
        KeptOut { pool: self, page }
    }
}

impl KeptOut<'_> {
    pub fn page(&self) -> PageId {
        self.page
    }
}

impl Drop for KeptOut<'_> {
    fn drop(&mut self) {
        self.pool.read_ahead.end_keeping_out(self.page);
    }
}
