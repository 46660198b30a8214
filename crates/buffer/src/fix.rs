//! Fixing pages: finding them in DRAM, and bringing them in.

use crate::error::{BufferError, BufferErrorKind, Fixed};
use crate::frame::state::{Frame, can_be_held};
use crate::frame::{ExclusiveHold, Filled, FrameId};
use crate::guard::{ExclusiveGuard, OptimisticRef, SharedGuard};
use crate::pool::BufferPool;
use crate::replacement::Incoming;
use firndb_base::{Lsn, PageId};
use firndb_tier::{Found, PageRead, TierError, TierErrorKind};

/// The result of a lookup in DRAM alone.
pub enum InMemory<'a> {
    Latched(ExclusiveGuard<'a>),
    /// It is in no frame.
    Absent,
    /// Another thread is reading it just now.
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
    pub fn shared(&self, page: PageId) -> Fixed<SharedGuard<'_>> {
        loop {
            let id = match self.table.find(&self.frames, page) {
                Some(id) => id,
                None => match self.locate(page, None)? {
                    Located::Resident(id) => id,
                    Located::Read(hold) => return Ok(SharedGuard::new(hold.downgrade())),
                },
            };
            if let Some(hold) = self.frames.shared(id, page) {
                self.note_hit(hold.frame());
                return Ok(SharedGuard::new(hold));
            }
        }
    }

    /// Latches a page for changing.
    pub fn exclusive(&self, page: PageId) -> Fixed<ExclusiveGuard<'_>> {
        loop {
            let id = match self.table.find(&self.frames, page) {
                Some(id) => id,
                None => match self.locate(page, None)? {
                    Located::Resident(id) => id,
                    Located::Read(hold) => return Ok(ExclusiveGuard::new(self, hold)),
                },
            };
            if let Some(hold) = self.frames.exclusive(id, page) {
                self.note_hit(hold.frame());
                return Ok(ExclusiveGuard::new(self, hold));
            }
        }
    }

    /// As [`BufferPool::exclusive`], for redo of the record at `lsn`, which writes the page whole:
    /// if the stored image cannot be had, and is older, the page comes as zeros in version zero.
    pub fn exclusive_to_overwrite(&self, page: PageId, lsn: Lsn) -> Fixed<ExclusiveGuard<'_>> {
        loop {
            let id = match self.locate(page, Some(lsn))? {
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
    /// [`InMemory::Absent`] stays absent at least as long as no other thread can fix it.
    pub fn exclusive_in_memory(&self, page: PageId) -> InMemory<'_> {
        loop {
            let Some(id) = self.table.lock(page).find(&self.frames) else { return InMemory::Absent };
            match self.frames.exclusive_filled(id, page) {
                Filled::Latched(hold) => {
                    self.note_hit(hold.frame());
                    return InMemory::Latched(ExclusiveGuard::new(self, hold));
                }
                Filled::Filling => return InMemory::BeingRead,
                Filled::Gone => {}
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
            self.note_hit(hold.frame());
            SharedGuard::new(hold)
        })
    }
    /// As [`BufferPool::shared_if_unchanged`], for changing.
    pub fn exclusive_if_unchanged(&self, seen: OptimisticRef) -> Option<ExclusiveGuard<'_>> {
        let hold = self.frames.exclusive(seen.frame, seen.page)?;
        (hold.frame().counter() == seen.counter).then(|| {
            self.note_hit(hold.frame());
            ExclusiveGuard::new(self, hold)
        })
    }

    /// Latches a page seen before, for changing, if it is still in that frame; it may have changed,
    /// so the caller checks whether it is still the page it wants.
    pub fn exclusive_seen(&self, seen: OptimisticRef) -> Option<ExclusiveGuard<'_>> {
        let hold = self.frames.exclusive(seen.frame, seen.page)?;
        self.note_hit(hold.frame());
        Some(ExclusiveGuard::new(self, hold))
    }

    fn note_hit(&self, frame: &Frame) {
        frame.reference();
        self.counters.hits.add_one();
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
            } else if let Some(mut incoming) = self.claim()?.install(page) {
                incoming.bytes_mut().fill(0);
                let guard = ExclusiveGuard::new(self, incoming.finish(Lsn::ZERO));
                guard.forget_base();
                guard.allow_devices();
                return Ok(guard);
            }
        }
    }

    /// Brings in those of `pages` that are not in DRAM, as one read of the tier, without latching
    /// them for the caller; returns how many were brought in. A hint: stops early if frames are
    /// short, and leaves errors to the fix that meets them. At most an eighth of the pool is
    /// brought in by one call.
    pub fn prefetch(&self, pages: &[PageId]) -> usize {
        let most = (self.frames.count() as usize / 8).min(4 * self.batch_pages).max(1);
        let mut incoming: Vec<Incoming<'_>> = Vec::with_capacity(pages.len().min(most));
        for &page in pages {
            if incoming.len() == most || self.check_usable().is_err() {
                break;
            }
            if !can_be_held(page) || self.table.find(&self.frames, page).is_some() {
                continue;
            }
            // Latches of pages that come in are held here; a claim only ever tries latches.
            let Ok(claimed) = self.claim() else { break };
            incoming.extend(claimed.install(page));
        }
        let found = self.read(&mut incoming);
        let mut came = 0;
        for (incoming, found) in incoming.into_iter().zip(found) {
            if let Ok(found) = found
                && self.arrive(incoming, found).is_ok_and(|hold| hold.is_some())
            {
                came += 1;
            }
        }
        came
    }

    /// Finds a page with certainty, reading it if it is not there. A record at `overwritten`, if
    /// that is given, is about to write it whole.
    #[cold]
    fn locate(&self, page: PageId, overwritten: Option<Lsn>) -> Fixed<Located<'_>> {
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
            let Some(incoming) = self.claim()?.install(page) else { continue };
            let mut incoming = [incoming];
            let found = self.read(&mut incoming).pop().expect("a result for each page");
            let [mut incoming] = incoming;
            let found = match found {
                Err(error)
                    if error.concerns_the_page()
                        && (self.is_made_anew(page)
                            || overwritten.is_some_and(|lsn| self.is_stored_before(page, lsn))) =>
                {
                    incoming.bytes_mut().fill(0);
                    Found { version: Lsn::ZERO, dirty: false, cached: false }
                }
                found => found?,
            };
            match self.arrive(incoming, found)? {
                Some(hold) => return Ok(Located::Read(hold)),
                None => self.fetch_pending(page)?,
            }
        }
    }

    /// Whether the tier is known to have the page in a version before `lsn`. Where only a read
    /// would tell, it is not: a page must not go back to a version that the tier has left behind.
    fn is_stored_before(&self, page: PageId, lsn: Lsn) -> bool {
        matches!(self.tier.version_of(page), Ok(Some(version)) if version < lsn)
    }

    /// Reads pages into their frames.
    pub(crate) fn read(&self, incoming: &mut [Incoming<'_>]) -> Vec<Fixed<Found>> {
        if incoming.is_empty() {
            return Vec::new();
        }
        self.counters.misses.add(incoming.len() as u64);
        let mut reads: Vec<PageRead<'_>> = Vec::with_capacity(incoming.len());
        for incoming in incoming {
            self.followed_pages.missed(incoming.page());
            reads.push(PageRead {
                page: incoming.page(),
                buf: incoming.bytes_mut(),
                outcome: Err(TierError::new(TierErrorKind::Failed, "the tier returned no result")),
            });
        }
        self.tier.read_batch(&mut reads);
        let end = self.log.end();
        let check = |read: PageRead<'_>| match read.outcome {
            Ok(found) if found.version >= end => Err(self.version_past_log(read.page, found.version)),
            outcome => outcome.map_err(BufferError::from),
        };
        reads.into_iter().map(check).collect()
    }
}
