//! Fixing pages: finding them in DRAM, and bringing them in.

use crate::counters::Counters;
use crate::error::{BufferError, BufferErrorKind, Fixed};
use crate::frame::state::{Frame, can_be_held};
use crate::frame::{ExclusiveHold, Filled, FrameId, Frames};
use crate::guard::{ExclusiveGuard, OptimisticRef, SharedGuard};
use crate::page_use::{PageUse, Uses};
use crate::pool::BufferPool;
use crate::read_ahead::KeptOut;
use crate::replacement::Incoming;
use firndb_base::{Lsn, PageId};
use firndb_tier::{Found, PageRead, TierError};

/// The result of a lookup in DRAM alone.
pub enum InMemory<'a> {
    Latched(ExclusiveGuard<'a>),
    /// It is in no frame.
    Absent(KeptOut<'a>),
    /// Another thread is reading it just now, or, for a call that does not wait, has it latched.
    BeingRead,
}

/// Where a page is that the first lookup did not find.
enum Located<'a> {
    /// In this frame, brought in by another thread.
    Resident(FrameId),
    /// Just read, latched exclusively.
    Read(ExclusiveHold<'a>),
}

impl BufferPool {
    /// Latches a page for reading, reading it from the tier if need be.
    #[inline]
    pub fn shared(&self, page: PageId) -> Fixed<SharedGuard<'_>> {
        self.shared_for(page, PageUse::Working)
    }

    /// As [`BufferPool::shared`], for a use that may be a scan's.
    #[inline]
    pub fn shared_for(&self, page: PageId, page_use: PageUse) -> Fixed<SharedGuard<'_>> {
        loop {
            let id = match self.table.find(&self.frames, page) {
                Some(id) => id,
                None => match self.locate(page, None, page_use)? {
                    Located::Resident(id) => id,
                    Located::Read(hold) => return Ok(SharedGuard::new(hold.downgrade())),
                },
            };
            if let Some(hold) = self.frames.shared(id, page) {
                self.note_hit(hold.frame(), page_use);
                return Ok(SharedGuard::new(hold));
            }
        }
    }

    /// Latches a page for reading without waiting for a device, if it is in DRAM and not just being
    /// read. For callers that hold other latches. A hit costs what it does in
    /// [`BufferPool::shared`]; `None` is a hint.
    #[inline]
    pub fn shared_in_memory(&self, page: PageId) -> Option<SharedGuard<'_>> {
        self.shared_in_memory_for(page, PageUse::Working)
    }

    /// As [`BufferPool::shared_in_memory`], for a use that may be a scan's.
    #[inline]
    pub fn shared_in_memory_for(&self, page: PageId, page_use: PageUse) -> Option<SharedGuard<'_>> {
        let id = self.table.find(&self.frames, page)?;
        let Filled::Latched(hold) = self.frames.shared_filled(id, page) else { return None };
        self.note_hit(hold.frame(), page_use);
        Some(SharedGuard::new(hold))
    }

    /// As [`BufferPool::shared_in_memory_for`], if the latch is free: for callers that cannot tell
    /// whether it is the page they take it for.
    #[inline]
    pub fn try_shared_in_memory_for(&self, page: PageId, page_use: PageUse) -> Option<SharedGuard<'_>> {
        let hold = self.frames.try_shared(self.table.find(&self.frames, page)?)?;
        hold.frame().holds(page).then(|| {
            self.note_hit(hold.frame(), page_use);
            SharedGuard::new(hold)
        })
    }

    /// As [`BufferPool::try_shared_in_memory_for`], for changing. `None` is a hint.
    pub fn try_exclusive_if_in_memory(&self, page: PageId) -> Option<ExclusiveGuard<'_>> {
        let hold = self.frames.try_exclusive(self.table.find(&self.frames, page)?)?;
        hold.frame().holds(page).then(|| {
            self.note_hit(hold.frame(), PageUse::Working);
            ExclusiveGuard::new(self, hold)
        })
    }

    /// Latches a page for changing.
    pub fn exclusive(&self, page: PageId) -> Fixed<ExclusiveGuard<'_>> {
        loop {
            let id = match self.table.find(&self.frames, page) {
                Some(id) => id,
                None => match self.locate(page, None, PageUse::Working)? {
                    Located::Resident(id) => id,
                    Located::Read(hold) => return Ok(ExclusiveGuard::new(self, hold)),
                },
            };
            if let Some(hold) = self.frames.exclusive(id, page) {
                self.note_hit(hold.frame(), PageUse::Working);
                return Ok(ExclusiveGuard::new(self, hold));
            }
        }
    }

    /// As [`BufferPool::exclusive`], for redo of the record at `lsn`, which writes the page whole:
    /// if the stored image cannot be had, and is older, the page comes as zeros in version zero.
    pub fn exclusive_to_overwrite(&self, page: PageId, lsn: Lsn) -> Fixed<ExclusiveGuard<'_>> {
        loop {
            let id = match self.locate(page, Some(lsn), PageUse::Working)? {
                Located::Resident(id) => id,
                Located::Read(hold) => return Ok(ExclusiveGuard::new(self, hold)),
            };
            if let Some(hold) = self.frames.exclusive(id, page) {
                return Ok(ExclusiveGuard::new(self, hold));
            }
        }
    }

    /// Latches a page for changing without waiting for a device: nothing is read, and a page that
    /// is just being read is not waited for. For callers that hold other latches. A page that is
    /// [`InMemory::Absent`] stays absent as long as that is kept and no other thread can fix it.
    pub fn exclusive_in_memory(&self, page: PageId) -> InMemory<'_> {
        self.in_memory(page, Frames::exclusive_filled)
    }

    /// As [`BufferPool::exclusive_in_memory`], waiting for no latch either: for callers that cannot
    /// tell where the page comes in the order of latches.
    pub fn try_exclusive_in_memory(&self, page: PageId) -> InMemory<'_> {
        self.in_memory(page, Frames::try_exclusive_filled)
    }

    fn in_memory<'a>(
        &'a self,
        page: PageId,
        latch: impl Fn(&'a Frames, FrameId, PageId) -> Filled<ExclusiveHold<'a>>,
    ) -> InMemory<'a> {
        loop {
            let found = self.table.find(&self.frames, page);
            let Some(id) = found.or_else(|| self.table.lock(page).find(&self.frames)) else {
                let kept_out = self.keep_out(page);
                if self.is_resident(page) {
                    continue;
                }
                return InMemory::Absent(kept_out);
            };
            match latch(&self.frames, id, page) {
                Filled::Latched(hold) => {
                    self.note_hit(hold.frame(), PageUse::Working);
                    return InMemory::Latched(ExclusiveGuard::new(self, hold));
                }
                Filled::Filling => return InMemory::BeingRead,
                Filled::Gone => {}
            }
        }
    }

    /// Forgets the page's frame if there is one: of a page that was taken into use without content,
    /// while only its owner knows of it. May wait for a thread that reads it; the caller holds no
    /// latch.
    pub fn forget_unwritten(&self, page: PageId) {
        loop {
            let resident = self.table.lock(page).find(&self.frames);
            let Some(id) = resident else { return };
            if let Some(hold) = self.frames.exclusive(id, page) {
                return ExclusiveGuard::new(self, hold).discard();
            }
        }
    }

    /// Whether the page is in DRAM. True only for a moment.
    pub(crate) fn is_resident(&self, page: PageId) -> bool {
        self.table.lock(page).find(&self.frames).is_some()
    }

    /// Latches a page seen before, for reading, if it has not changed since and is still in its
    /// frame.
    pub fn shared_if_unchanged(&self, seen: OptimisticRef) -> Option<SharedGuard<'_>> {
        let hold = self.frames.shared(seen.frame, seen.page)?;
        (hold.frame().counter() == seen.counter).then(|| {
            self.note_hit(hold.frame(), PageUse::Working);
            SharedGuard::new(hold)
        })
    }
    /// As [`BufferPool::shared_if_unchanged`], if that needs no waiting: for a thread that holds a
    /// latch which comes after this one. Not a use of the page.
    pub fn try_shared_if_unchanged(&self, seen: OptimisticRef) -> Option<SharedGuard<'_>> {
        let hold = self.frames.try_shared(seen.frame)?;
        let frame = hold.frame();
        (frame.holds(seen.page) && frame.counter() == seen.counter).then(|| SharedGuard::new(hold))
    }
    /// As [`BufferPool::shared_if_unchanged`], for changing.
    pub fn exclusive_if_unchanged(&self, seen: OptimisticRef) -> Option<ExclusiveGuard<'_>> {
        let hold = self.frames.exclusive(seen.frame, seen.page)?;
        (hold.frame().counter() == seen.counter).then(|| {
            self.note_hit(hold.frame(), PageUse::Working);
            ExclusiveGuard::new(self, hold)
        })
    }

    /// Latches a page seen before, for changing, if it has stayed in its frame ever since: then it
    /// was not freed either. It may have changed, so the caller checks whether it is still the page
    /// it wants.
    pub fn exclusive_seen(&self, seen: OptimisticRef) -> Option<ExclusiveGuard<'_>> {
        let hold = self.frames.exclusive(seen.frame, seen.page)?;
        if hold.frame().arrivals() != seen.arrivals {
            return None;
        }
        self.note_hit(hold.frame(), PageUse::Working);
        Some(ExclusiveGuard::new(self, hold))
    }

    /// Whether a page seen before had neither changed nor left its frame when the caller latched a
    /// page that a change of this one would have latched, too. Latches nothing; counts as a hit.
    #[inline]
    pub fn is_unchanged(&self, seen: OptimisticRef) -> bool {
        let frame = self.frames.get(seen.frame);
        let is_same = frame.arrivals() == seen.arrivals && frame.counter() == seen.counter;
        if is_same {
            self.note_hit(frame, PageUse::Working);
        }
        is_same
    }

    #[inline]
    fn note_hit(&self, frame: &Frame, page_use: PageUse) {
        if !frame.is_referenced() {
            self.note_rarer_hit(frame, page_use);
        }
        self.counters.hits.add_one();
    }

    /// Not the common hit of a page that is referenced already.
    #[inline(never)]
    fn note_rarer_hit(&self, frame: &Frame, page_use: PageUse) {
        if frame.note_use(page_use) {
            self.counters.ahead_used.add(1);
        }
    }

    /// A zeroed frame for a page just reserved, latched for changing. Nothing is read, but pages
    /// may have to be written to have a frame: the caller holds no latch exclusively but those of
    /// pages made by this call. A page of an earlier incarnation of that page number is dropped
    /// from DRAM.
    pub fn create(&self, page: PageId) -> Fixed<ExclusiveGuard<'_>> {
        loop {
            let resident = self.table.lock(page).find(&self.frames);
            if let Some(id) = resident {
                if let Some(hold) = self.frames.exclusive(id, page) {
                    ExclusiveGuard::new(self, hold).discard();
                }
            } else if let Some(mut incoming) = self.claim(PageUse::Working)?.install(page, Uses::COLD) {
                incoming.bytes_mut().fill(0);
                let guard = ExclusiveGuard::new(self, incoming.finish(Found::without_base(Lsn::ZERO)));
                guard.allow_devices();
                return Ok(guard);
            }
        }
    }

    /// Finds a page with certainty, reading it if it is not there. A record at `overwritten`, if
    /// that is given, is about to write it whole.
    #[cold]
    fn locate(&self, page: PageId, overwritten: Option<Lsn>, page_use: PageUse) -> Fixed<Located<'_>> {
        if !can_be_held(page) {
            let message = format!("{page:?} cannot be allocated: whatever points to it is damaged");
            return Err(BufferError::new(BufferErrorKind::NotAllocated, message));
        }
        loop {
            let resident = self.table.lock(page).find(&self.frames);
            if let Some(id) = resident {
                return Ok(Located::Resident(id));
            }
            self.check_usable()?;
            let Some(mut incoming) = self.claim(page_use)?.install(page, Uses::of(page_use)) else {
                continue;
            };
            let found = match self.read_one(&mut incoming) {
                Err(error)
                    if error.concerns_the_page()
                        && (self.is_made_anew(page)
                            || overwritten.is_some_and(|lsn| self.is_stored_before(page, lsn))) =>
                {
                    incoming.bytes_mut().fill(0);
                    Found::without_base(Lsn::ZERO)
                }
                found => found?,
            };
            match self.arrive(incoming, found)? {
                Some(hold) => {
                    self.give_memory_down();
                    return Ok(Located::Read(hold));
                }
                None => self.fetch_pending(page)?,
            }
        }
    }

    /// Whether the tier is known to have the page in a version before `lsn`. Where only a read
    /// would tell, it is not: a page must not go back to a version that the tier has left behind.
    fn is_stored_before(&self, page: PageId, lsn: Lsn) -> bool {
        matches!(self.tier.version_of(page), Ok(Some(version)) if version < lsn)
    }

    /// Reads a page into its frame.
    pub(crate) fn read_one(&self, incoming: &mut Incoming<'_>) -> Fixed<Found> {
        let mut reads = [incoming.tier_read()];
        self.read_from_tier(&mut reads);
        let [PageRead { page, outcome, .. }] = reads;
        self.check_found(page, outcome, self.log.end())
    }

    fn read_from_tier(&self, reads: &mut [PageRead<'_>]) {
        if reads.is_empty() {
            return;
        }
        let pages = reads.len() as u64;
        self.counters.misses.add(pages);
        let _counted = BeingRead::count(&self.counters, pages);
        reads.iter().for_each(|read| self.followed_pages.missed(read.page));
        self.tier.read_batch(reads);
    }

    /// What the tier returned of a page, while the log ended at `end` or before.
    pub(crate) fn check_found(
        &self,
        page: PageId,
        outcome: Result<Found, TierError>,
        end: Lsn,
    ) -> Fixed<Found> {
        match outcome {
            Ok(found) if found.version >= end => Err(self.version_past_log(page, found.version)),
            outcome => outcome.map_err(BufferError::from),
        }
    }
}

/// Pages that the tier is reading, counted until it is dropped.
struct BeingRead<'a> {
    counters: &'a Counters,
    pages: u64,
}

impl<'a> BeingRead<'a> {
    fn count(counters: &'a Counters, pages: u64) -> BeingRead<'a> {
        counters.note_reading(pages);
        BeingRead { counters, pages }
    }
}

impl Drop for BeingRead<'_> {
    fn drop(&mut self) {
        self.counters.reading.subtract(self.pages);
    }
}
