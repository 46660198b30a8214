//! Replacement: finding a frame for an incoming page.
//!
//! Free frames first, then the clock: its hand passes over the frames; a frame that was used since
//! the hand's last visit loses its reference bit, a clean one that was not used is evicted. Pages
//! come in *without* the bit and earn it by their second use. Pages that only a scan wants take the
//! frames of earlier such pages (`scan_frames.rs`), and are not offered to the flash cache.
//!
//! Cold dirty frames that the hand passes are collected; if a batch of them comes together before a
//! clean frame, the cleaners have fallen behind: they get the batch, to write it and free it all,
//! the group replacement of the FaCE paper (section 3.3) seen from DRAM. The thread that misses
//! waits for the end of a batch, and lets the hand stand while the cleaners have more than a batch
//! to do. It writes the batch itself where no cleaner is able to.
//!
//! A page that cannot be written because of damage (a part of the page map that names its place
//! cannot be read) stays in its frame, and the search for a victim goes on. Only if there is none
//! is it an error, and never one that is taken for damage to the page that comes in.
//!
//! No deadlock: the caller may hold latches, so frames are only *tried* here, and what is waited
//! for (a batch being written) ends without any latch. No hang: attempts are bounded and end in an
//! error that says why; and a cleaner that begins no batch is not waited for long.

use crate::error::{BufferError, BufferErrorKind, Fixed};
use crate::frame::{ExclusiveHold, FrameId};
use crate::page_use::{PageUse, Uses};
use crate::pool::BufferPool;
use crate::write_back::{Added, Batch};
use firndb_base::sync::{before_device, thread};
use firndb_base::{PageId, clock};
use firndb_device::AlignedBuf;
use firndb_tier::{DeltaRead, Found, PageRead, TierError};
use std::collections::BTreeSet;
use std::time::Duration;

/// Attempts that found every frame in use, before the pool is called too small. The later ones wait
/// [`IDLE_PAUSE`] each: together about a quarter of a second.
const IDLE_ATTEMPTS_MAX: u32 = 256;
/// Of these, attempts that only let other threads run.
const IDLE_YIELDS: u32 = 32;
/// Pause of the other attempts.
const IDLE_PAUSE: Duration = Duration::from_millis(1);
/// Attempts in all: other threads may take the frames that this thread frees, but not for ever.
const ATTEMPTS_MAX: u32 = 10_000;
/// Batches whose end one claim waits for before it stops relying on cleaners: other threads took
/// the frames that these freed, or there were none.
const CLEANER_WAITS_MAX: u32 = 256;
/// How long a cleaner that was called may take to begin a batch.
const CLEANER_START_MAX: Duration = Duration::from_millis(50);
/// Free frames tried before the clock: one that a thread still waits for cannot be taken yet.
const FREE_TRIES_MAX: usize = 4;
/// Frames of scans tried before the others: those whose page is still to be used are passed over.
const SCAN_TRIES_MAX: usize = 8;

/// Frames that one claim found to hold pages that cannot be written, because of damage.
#[derive(Default)]
struct Stuck {
    frames: BTreeSet<FrameId>,
    /// Of the first such frame.
    error: Option<BufferError>,
}

impl Stuck {
    /// Why a frame cannot be had. It is not the fault of the page that comes in: not a kind that
    /// would say so.
    fn into_error(self) -> Option<BufferError> {
        let count = self.frames.len();
        self.error.map(|error| {
            let message = format!(
                "no frame of the buffer can be freed: all are in use, or hold pages that damage keeps from being written \
                 ({count} found), the first of them: {}",
                error.message
            );
            BufferError::new(BufferErrorKind::NoFrame, message)
        })
    }
}

/// A frame without a page, latched exclusively; freed again unless it is installed.
pub(crate) struct Claimed<'a> {
    pool: &'a BufferPool,
    hold: Option<ExclusiveHold<'a>>,
}

impl<'a> Claimed<'a> {
    fn new(pool: &'a BufferPool, hold: ExclusiveHold<'a>) -> Claimed<'a> {
        assert!(hold.frame().page().is_none(), "a claimed frame holds no page");
        hold.frame().allow_devices();
        Claimed { pool, hold: Some(hold) }
    }

    /// Keeps the frame from ever holding a page again; its memory goes back to the system. Returns
    /// false, and frees the frame, if the system does not take it.
    pub(crate) fn give_up(mut self) -> bool {
        let hold = self.hold.as_mut().expect("a claimed frame is held until it is installed");
        let is_taken = AlignedBuf::give_back(hold.bytes_mut());
        if is_taken {
            // Or the list of scans' frames would keep it.
            hold.frame().set_uses(Uses::COLD);
            self.hold = None;
        }
        is_taken
    }

    /// Lets the frame hold `page`, which comes in with these uses; `None` if another frame does
    /// already.
    pub(crate) fn install(mut self, page: PageId, uses: Uses) -> Option<Incoming<'a>> {
        let pool = self.pool;
        let chain = pool.table.lock(page);
        if chain.find(&pool.frames).is_some() {
            return None;
        }
        let hold = self.hold.take().expect("a claimed frame is held until it is installed");
        hold.frame().set_filling(true);
        hold.frame().set_uses(uses);
        chain.insert(&pool.frames, hold.id());
        drop(chain);
        hold.frame().count_change();
        pool.counters.resident.add(1);
        if uses.is_once() {
            pool.scan_frames.push(hold.id());
        }
        Some(Incoming { pool, page, hold: Some(hold) })
    }
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take() {
            let id = hold.id();
            drop(hold);
            self.pool.free.push(id);
        }
    }
}

/// A frame that names its page already and whose bytes are still to come; latched exclusively, so
/// that other threads that fix the page wait. The frame is freed again unless it is finished.
pub(crate) struct Incoming<'a> {
    pool: &'a BufferPool,
    page: PageId,
    hold: Option<ExclusiveHold<'a>>,
}

impl<'a> Incoming<'a> {
    pub(crate) fn page(&self) -> PageId {
        self.page
    }
    /// Its read by the tier. Nothing is allocated for it.
    pub(crate) fn tier_read(&mut self) -> PageRead<'_> {
        PageRead { page: self.page, buf: self.bytes_mut(), outcome: Err(TierError::unset()) }
    }
    /// Where its bytes go.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.hold.as_mut().expect("held until it is finished").bytes_mut()
    }
    /// The bytes are there, as the tier found them.
    pub(crate) fn finish(mut self, found: Found) -> ExclusiveHold<'a> {
        let hold = self.hold.take().expect("held until it is finished");
        let frame = hold.frame();
        assert!(self.pool.recovery.get(hold.id()).is_none(), "a page comes in clean");
        assert!(!frame.is_writing(), "a frame is given away only when no image of it is on its way");
        frame.set_base(found.base, found.changes);
        frame.forget_changes_since();
        frame.set_version(found.version);
        frame.set_tier_version(found.version);
        frame.set_offered(false);
        frame.set_delta_read(found.delta_read);
        frame.set_redone(false);
        if frame.uses().is_ahead() {
            self.pool.counters.pages_ahead.add(1);
        }
        frame.set_filling(false);
        hold
    }
}

impl Drop for Incoming<'_> {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take() {
            hold.frame().set_filling(false);
            hold.frame().set_uses(Uses::COLD);
            self.pool.vacate(hold, self.page);
        }
    }
}

impl BufferPool {
    /// Removes `page` from a clean or discarded frame and frees the frame.
    pub(crate) fn vacate(&self, hold: ExclusiveHold<'_>, page: PageId) {
        self.table.lock(page).remove(&self.frames, hold.id());
        hold.frame().count_change();
        self.counters.resident.subtract(1);
        self.note_waste(hold.frame().uses());
        drop(Claimed::new(self, hold));
    }

    /// Frames without a page, those not made yet included.
    pub(crate) fn free_frames(&self) -> usize {
        (self.frames.count() - self.frames.made()) as usize + self.free.len()
    }

    /// A page with these uses is dropped.
    fn note_waste(&self, uses: Uses) {
        if uses.is_ahead() {
            self.counters.ahead_wasted.add(1);
        }
    }

    /// A frame for a page that comes in for `page_use`. It may have to write pages first: the
    /// caller may hold latches, shared or of frames that are being filled, but no lock and no
    /// writing flag.
    pub(crate) fn claim(&self, page_use: PageUse) -> Fixed<Claimed<'_>> {
        before_device();
        let mut cold = Vec::new();
        let mut stuck = Stuck::default();
        let mut idle_attempts = 0;
        let mut waits_left = CLEANER_WAITS_MAX;
        for _ in 0..ATTEMPTS_MAX {
            // Before the search, so that no end is missed: it may free a frame at once.
            let ended = self.staging.ended();
            let relies = waits_left > 0 && self.has_able_cleaner();
            if let Some(claimed) = self.try_claim(page_use, relies, &mut cold, &stuck.frames) {
                return Ok(claimed);
            }
            if relies && (!cold.is_empty() || self.to_clean.is_backlogged()) {
                let has_ended = self.staging.wait_for_end(ended, CLEANER_START_MAX);
                waits_left = if has_ended { waits_left - 1 } else { 0 };
                continue;
            }
            if cold.is_empty() || !self.write_and_free(&cold, &mut stuck)? {
                if idle_attempts == IDLE_ATTEMPTS_MAX {
                    break;
                }
                // A batch in flight ends in clean frames; else this thread depends on latches of
                // others.
                if !self.staging.wait_for_a_batch() {
                    idle_attempts += 1;
                    if idle_attempts < IDLE_YIELDS { thread::yield_now() } else { clock::sleep(IDLE_PAUSE) }
                }
            }
        }
        Err(stuck.into_error().unwrap_or_else(|| self.no_frame()))
    }

    /// A frame for a page that comes in, if one is free or clean and unused: waits for nothing.
    pub(crate) fn claim_at_hand(&self, page_use: PageUse) -> Option<Claimed<'_>> {
        self.try_claim(page_use, self.has_able_cleaner(), &mut Vec::new(), &BTreeSet::new())
    }

    /// One attempt of [`BufferPool::claim`]; `cold` gets the frames that must be written first. If
    /// the thread relies on cleaners, it hands these over, and lets the hand stand while they have
    /// enough.
    fn try_claim(
        &self,
        page_use: PageUse,
        relies: bool,
        cold: &mut Vec<FrameId>,
        stuck: &BTreeSet<FrameId>,
    ) -> Option<Claimed<'_>> {
        cold.clear();
        let turns = 2 * self.frames.count();
        let mut claimed = match page_use {
            // As long as no page has to go for it, a scan fills DRAM as anything else does.
            PageUse::Once => self.claim_unmade().or_else(|| self.claim_spent()),
            PageUse::Working => None,
        };
        claimed = claimed.or_else(|| self.claim_free());
        if claimed.is_none() && !(relies && self.to_clean.is_backlogged()) {
            claimed = self.sweep(turns, self.batch_pages, cold, stuck);
        }
        if claimed.is_none() && relies && !cold.is_empty() {
            self.to_clean.hand_over(cold);
        }
        if claimed.is_none() || !cold.is_empty() {
            // Dirty frames have come under the hand: the cleaners are behind.
            self.cleaner_call.raise();
        }
        claimed
    }

    /// The frame of a page that a scan has used, and no other thread since.
    fn claim_spent(&self) -> Option<Claimed<'_>> {
        for _ in 0..SCAN_TRIES_MAX {
            let id = self.scan_frames.pop()?;
            let uses = self.frames.get(id).uses();
            if uses == Uses::ONCE
                && let Some(claimed) = self.evict(id)
            {
                return Some(claimed);
            }
            if uses.is_once() {
                // Still to be used, or in use.
                self.scan_frames.push(id);
            }
        }
        None
    }

    fn no_frame(&self) -> BufferError {
        BufferError::new(
            BufferErrorKind::NoFrame,
            format!(
                "all {} frames of the buffer are latched or cannot be written: give the buffer a larger budget",
                self.frames.count()
            ),
        )
    }

    fn claim_free(&self) -> Option<Claimed<'_>> {
        for _ in 0..FREE_TRIES_MAX {
            let Some(id) = self.free.pop() else { break };
            // A frame that some thread still waits for under its old name must not get a new one
            // yet.
            match self.frames.try_exclusive(id).filter(|hold| !hold.frame().has_waiters()) {
                Some(hold) => return Some(Claimed::new(self, hold)),
                None => self.free.put_off(id),
            }
        }
        self.claim_unmade()
    }

    /// A frame that never held a page.
    fn claim_unmade(&self) -> Option<Claimed<'_>> {
        let id = self.frames.make()?;
        match self.frames.try_exclusive(id) {
            Some(hold) => Some(Claimed::new(self, hold)),
            None => {
                // The cleaner is inspecting it, as it does every frame that was made.
                self.free.put_off(id);
                None
            }
        }
    }

    /// Moves the clock's hand by `steps` at most to a frame that can be given away. Collects cold
    /// frames that must be written first, other than `stuck` ones, and stops when there are
    /// `cold_max` of them.
    fn sweep(
        &self,
        steps: u32,
        cold_max: usize,
        cold: &mut Vec<FrameId>,
        stuck: &BTreeSet<FrameId>,
    ) -> Option<Claimed<'_>> {
        for _ in 0..steps {
            let id = self.hand.pass(self.frames.count());
            if id.0 >= self.frames.made() {
                continue;
            }
            let frame = self.frames.get(id);
            if frame.page().is_none() || frame.is_writing() {
                continue;
            }
            if frame.is_referenced() {
                frame.forget_reference();
            } else if !self.must_be_offered(id) {
                if let Some(claimed) = self.evict(id) {
                    return Some(claimed);
                }
            } else if cold_max > 0 && !stuck.contains(&id) {
                cold.push(id);
                if cold.len() == cold_max {
                    return None;
                }
            }
        }
        None
    }

    /// Whether the tier has to be asked before the frame's page may be dropped. A hint without a
    /// latch.
    pub(crate) fn must_be_offered(&self, id: FrameId) -> bool {
        let frame = self.frames.get(id);
        let may_be_offered = !frame.is_offered() && !frame.uses().is_once();
        let is_wanted = || frame.delta_read() == DeltaRead::Merge || self.tier.wants_clean();
        self.recovery.get(id).is_some() || (may_be_offered && is_wanted())
    }

    /// Evicts a page that the tier has, if no thread uses it.
    pub(crate) fn evict(&self, id: FrameId) -> Option<Claimed<'_>> {
        let hold = self.frames.try_exclusive(id)?;
        let frame = hold.frame();
        let page = frame.page()?;
        if self.must_be_offered(id) || frame.is_writing() {
            return None;
        }
        assert!(!frame.is_newer_than_tier(), "{page:?} is newer than the tier's and has no recovery LSN");
        let chain = self.table.lock(page);
        chain.remove(&self.frames, id);
        if frame.has_waiters() {
            chain.insert(&self.frames, id);
            return None;
        }
        drop(chain);
        frame.count_change();
        self.counters.resident.subtract(1);
        self.counters.evictions.add(1);
        let uses = frame.uses();
        self.note_waste(uses);
        if !uses.is_once() {
            // More memory would not keep a scan's page: it takes a part of any pool.
            self.followed_pages.evicted(page);
        }
        Some(Claimed::new(self, hold))
    }

    /// Writes what it can of these cold frames as one batch and frees those written; returns
    /// whether any frame was freed or may be now. If damage keeps all of them from being written
    /// they are `stuck`, and other frames may do. Fails only if the tier refuses for another reason
    /// and no clean frame is left in the whole pool.
    fn write_and_free(&self, cold: &[FrameId], stuck: &mut Stuck) -> Fixed<bool> {
        let Some(mut batch) = Batch::try_new(self) else {
            return Ok(self.staging.wait_for_a_batch());
        };
        let mut tried = Vec::with_capacity(cold.len());
        for &id in cold {
            if batch.is_full() {
                break;
            }
            // Busy frames are in use right now: not cold after all.
            if batch.try_add(id) == Added::Copied {
                tried.push(id);
            }
        }
        self.counters.helped.add(1);
        let mut written = Vec::with_capacity(cold.len());
        let outcome = batch.write(&mut written);
        let mut freed = false;
        for id in &written {
            if !self.frames.get(*id).is_referenced() {
                freed |= self.evict(*id).is_some();
            }
        }
        // Wakes the threads that wait for the end of a batch: the frames are free by now.
        drop(batch);
        match outcome {
            Err(error) if error.concerns_the_page() => {
                stuck.frames.extend(tried.into_iter().filter(|id| !written.contains(id)));
                stuck.error.get_or_insert(error);
                // The search goes on with other frames at once.
                Ok(true)
            }
            Err(error) if !freed => {
                match self.sweep(2 * self.frames.count(), 0, &mut Vec::new(), &BTreeSet::new()) {
                    Some(_goes_to_the_free_ones) => Ok(true),
                    None => Err(error),
                }
            }
            _ => Ok(freed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::PoolOptions;
    use firndb_base::sync::Arc;
    use firndb_log::LogClass;
    use firndb_tier::testing::MemoryTier;
    use firndb_tier::{Allocation, PageTier};

    fn pool_with_a_page() -> (BufferPool, PageId) {
        let tier = Arc::new(MemoryTier::new(512));
        let log = firndb_log::testing::memory_log_with(1 << 20);
        let page = tier.reserve(LogClass::Normal).expect("a memory tier is never full");
        let change = Allocation { allocate: &[page], free: &[] };
        tier.publish(change, &mut |record| log.append(LogClass::Normal, record)).expect("the log has space");
        (BufferPool::new(tier, log, PoolOptions { budget_bytes: 64 << 10 }).expect("a large budget"), page)
    }

    #[test]
    fn a_frame_with_a_waiter_keeps_its_page() {
        let (pool, page) = pool_with_a_page();
        drop(pool.shared(page).expect("read"));
        let id = pool.table.find(&pool.frames, page).expect("resident");
        let waited = pool.frames.get(id).wait_latched(page, |_| {
            assert!(pool.evict(id).is_none(), "waited for");
            assert_eq!(pool.table.find(&pool.frames, page), Some(id), "and it can still be found");
        });
        assert!(waited && !pool.frames.get(id).has_waiters());
        assert!(pool.evict(id).is_some(), "no thread waits any more");
        assert!(!pool.frames.get(id).wait_latched(page, |_| unreachable!("it holds the page no more")));
    }

    #[test]
    fn a_free_frame_gets_no_new_page_while_a_thread_waits_for_its_old_one() {
        let (pool, page) = pool_with_a_page();
        let guard = pool.exclusive(page).expect("read");
        let id = pool.table.find(&pool.frames, page).expect("resident");
        pool.frames.get(id).wait_latched(page, |_| {
            guard.discard();
            let claims: Vec<_> = std::iter::from_fn(|| pool.claim_free()).collect();
            let frames = pool.frames.count() as usize;
            assert_eq!(claims.len(), frames - 1, "all but the frame that is waited for");
            assert!(claims.iter().all(|claimed| claimed.hold.as_ref().is_some_and(|hold| hold.id() != id)));
        });
        assert_eq!(pool.free_frames(), pool.frames.count() as usize);
    }
}
