//! Write-back of pages to the tier: the WAL rule is here, and nowhere else.
//!
//! A batch *copies* images under shared latches, has the log flushed up to the newest of them,
//! checks the rule, and hands them to the tier; pages can be read and changed all the while.
//! Afterwards, per page that the tier took:
//! 1. the tier's version is noted,
//! 2. the recovery LSN is raised to the bound noted at the copy (every change that is not in the
//!    image is later than that),
//! 3. if the latch is free and the page did not change since the copy, the recovery LSN is cleared:
//!    the frame is clean. If the latch is not free the frame stays marked dirty; the next batch
//!    that meets it finds the tier has its version and clears it without a write.
//!
//! After a failure nothing is changed: the frame is as dirty as it was.
//!
//! A frame knows its page's base and what differs from it, in two sets: what the image differs by
//! that was read or copied last, and what was changed *since*.
//! * A read sets base and first set as the tier returned them; the second is empty. Without a base
//!   (never written, made anew, or unreadable and to be redone) the first is everything. Redo is a
//!   change like any other.
//! * A change adds to the second, under the exclusive latch.
//! * A copy moves the second into the first, under a shared latch and the writing flag, and offers
//!   that. So the image, its version and its set are of one moment.
//! * If the tier takes the image, its outcome replaces base and first set: what it says is of just
//!   that image. What was changed meanwhile is in the second set and stays. If the tier declines
//!   it, or fails, the sets stay: the next copy names all of it again.
//! * Only a page that another comes in for loses its sets.
//!
//! Order: shared latch (tried; or blocking with no batch held) → writing flag → staging buffer →
//! log, tier. A thread with a batch never blocks on a latch.

use crate::error::{BufferError, BufferErrorKind, Fixed};
use crate::frame::state::WritingFlag;
use crate::frame::{FrameId, SharedHold};
use crate::pool::BufferPool;
use crate::ranks;
use firndb_base::sync::RankHold;
use firndb_base::{Lsn, PageId};
use firndb_device::AlignedBuf;
use firndb_tier::{Base, Changes, DeltaRead, PageWrite, TierError, TierErrorKind, Written};

/// What became of a frame offered to a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    /// Its image is in the batch.
    Copied,
    /// There is nothing to write.
    NotNeeded,
    /// Another thread holds it exclusively, or another batch is writing it.
    Busy,
}

/// One page as it was when it was copied.
struct Image<'a> {
    writing: WritingFlag<'a>,
    id: FrameId,
    page: PageId,
    version: Lsn,
    dirty: bool,
    recovery_lsn: Lsn,
    /// At or before the first change that the image does not have.
    later_changes: Lsn,
    base: Option<Base>,
    /// What the image differs from the base by.
    changes: Changes,
    delta_read: DeltaRead,
}

/// Images to be written together. Holds a staging buffer and the writing flags of its frames.
pub(crate) struct Batch<'a> {
    pool: &'a BufferPool,
    /// The thread never blocks on a latch from here on.
    _held: RankHold,
    /// Present until the batch is dropped.
    buffer: Option<AlignedBuf>,
    images: Vec<Image<'a>>,
    pages_max: usize,
}

impl<'a> Batch<'a> {
    /// An empty batch; waits for a staging buffer. The caller may hold latches.
    pub(crate) fn new(pool: &'a BufferPool) -> Batch<'a> {
        Batch::with(pool, pool.staging.take())
    }
    /// An empty batch, if a staging buffer is idle.
    pub(crate) fn try_new(pool: &'a BufferPool) -> Option<Batch<'a>> {
        pool.staging.try_take().map(|buffer| Batch::with(pool, buffer))
    }
    fn with(pool: &'a BufferPool, buffer: AlignedBuf) -> Batch<'a> {
        // Made before the tier is asked, so that the buffer comes back even if the tier panics.
        let held = ranks::STAGING.hold(buffer.as_ptr().addr());
        let mut batch = Batch {
            pool,
            _held: held,
            buffer: Some(buffer),
            images: Vec::new(),
            pages_max: pool.batch_pages,
        };
        // The tier makes space for as many pages as it returns.
        batch.pages_max = pool.tier.make_batch_space().clamp(1, pool.batch_pages);
        batch.images.reserve_exact(batch.pages_max);
        batch
    }

    pub(crate) fn is_full(&self) -> bool {
        self.images.len() == self.pages_max
    }

    /// Copies a frame's page if it must be written and can be latched at once.
    pub(crate) fn try_add(&mut self, id: FrameId) -> Added {
        match self.pool.frames.try_shared(id) {
            Some(hold) => self.add(&hold),
            None => Added::Busy,
        }
    }

    /// Copies a latched frame's page if it must be written.
    pub(crate) fn add(&mut self, hold: &SharedHold<'_>) -> Added {
        assert!(!self.is_full());
        let (pool, id) = (self.pool, hold.id());
        let frame = pool.frames.get(id);
        let Some(page) = frame.page() else { return Added::NotNeeded };
        let Some(writing) = frame.try_start_writing() else { return Added::Busy };
        let recovery_lsn = pool.recovery.get(id);
        let dirty = frame.is_newer_than_tier();
        assert!(
            !dirty || recovery_lsn.is_some(),
            "{page:?} is newer than the tier's and has no recovery LSN"
        );
        if !dirty && recovery_lsn.is_some() {
            // The latch was not free when the tier took it. No change is in flight now: it is
            // latched shared.
            pool.recovery.clear(id);
        }
        if !dirty && !pool.must_be_offered(id) {
            return Added::NotNeeded;
        }
        let page_size = pool.frames.page_size();
        let start = self.images.len() * page_size;
        let buffer = self.buffer.as_mut().expect("there until dropped");
        buffer[start..start + page_size].copy_from_slice(hold.bytes());
        let version = frame.version();
        let recovery_lsn = if dirty { recovery_lsn.expect("asserted above") } else { version };
        assert!(recovery_lsn <= version, "{page:?}: recovery LSN {recovery_lsn} is after version {version}");
        let (base, changes) = frame.copy_changes();
        // Offered once, whatever becomes of it: a tier that fails must not keep the frame.
        let delta_read = frame.delta_read();
        frame.set_delta_read(DeltaRead::No);
        self.images.push(Image {
            writing,
            id,
            page,
            version,
            dirty,
            recovery_lsn,
            // Latched: no change is in flight. Redo has LSNs before the log's end; its next one is
            // only known to be later than its last one, where a record begins for sure: the bound
            // may become a redo start.
            later_changes: if frame.is_redone() { version } else { pool.log.end() },
            base,
            changes,
            delta_read,
        });
        Added::Copied
    }

    /// Writes the batch, which is empty then, and keeps its staging buffer; `written` gets the
    /// frames that the tier has been offered. The first error of a page is returned after all pages
    /// were tried, and names it: a thread that needs a frame for another page may get this error.
    pub(crate) fn write(&mut self, written: &mut Vec<FrameId>) -> Fixed<()> {
        if self.images.is_empty() {
            return Ok(());
        }
        self.pool.check_usable()?;
        self.flush_log()?;
        let outcomes = self.offer();
        let mut first_error = None;
        for (image, outcome) in std::mem::take(&mut self.images).into_iter().zip(outcomes) {
            let finished = self.finish(&image, outcome);
            let Image { writing, id, page, version, .. } = image;
            drop(writing);
            match finished {
                Ok(()) => written.push(id),
                Err(error) if error.kind == TierErrorKind::NotAllocated => {
                    self.forget_freed(id, page, version)
                }
                Err(error) => first_error = first_error.or_else(|| Some(could_not_write(page, error))),
            }
        }
        self.pool.counters.batches_written.add(1);
        first_error.map_or(Ok(()), Err)
    }

    /// Makes the log durable up to the newest image, on its devices: what only the archive has may
    /// be lost with it, and no page may know more than the log.
    fn flush_log(&self) -> Fixed<()> {
        let newest = self.images.iter().filter(|image| image.dirty).max_by_key(|image| image.version);
        let Some(newest) = newest else { return Ok(()) };
        if newest.version >= self.pool.log.end() {
            return Err(self.pool.version_past_log(newest.page, newest.version));
        }
        if !self.pool.skips_wal {
            self.pool.log.flush_to_devices(newest.version.advance(1))?;
        }
        Ok(())
    }

    /// Hands the images to the tier.
    fn offer(&self) -> Vec<Result<Written, TierError>> {
        let durable = self.pool.log.on_devices();
        let buffer = self.buffer.as_ref().expect("there until dropped");
        let mut writes: Vec<PageWrite<'_>> = Vec::with_capacity(self.images.len());
        for (image, data) in self.images.iter().zip(buffer.chunks_exact(self.pool.frames.page_size())) {
            assert!(
                !image.dirty || image.version < durable || self.pool.skips_wal,
                "WAL rule: {:?} at version {} must not be written, the log is on its devices to {durable} only",
                image.page,
                image.version,
            );
            writes.push(PageWrite {
                page: image.page,
                version: image.version,
                recovery_lsn: image.recovery_lsn,
                dirty: image.dirty,
                data,
                base: image.base,
                changes: image.changes,
                delta_read: image.delta_read,
                outcome: Err(TierError::new(TierErrorKind::Failed, "the tier returned no result")),
            });
        }
        self.pool.tier.write_batch(&mut writes);
        writes.into_iter().map(|write| write.outcome).collect()
    }

    /// Notes what became of an image. Its writing flag is held.
    fn finish(&self, image: &Image<'_>, outcome: Result<Written, TierError>) -> Result<(), TierError> {
        let (pool, frame) = (self.pool, image.writing.frame());
        let outcome = outcome?;
        frame.set_offered(true);
        if let Written::Taken { base, changes } = outcome {
            frame.set_base(base, changes);
        }
        if image.dirty {
            assert!(outcome.is_taken(), "the tier declined a dirty page: {:?}", image.page);
            pool.counters.pages_written.add(1);
            frame.set_tier_version(image.version);
            pool.recovery.raise(image.id, &image.writing, image.later_changes);
            if let Some(hold) = pool.frames.try_shared(image.id)
                && !hold.frame().is_newer_than_tier()
            {
                pool.recovery.clear(image.id);
            }
        }
        Ok(())
    }

    /// The page was freed after it was copied, or before by redo: the frame's content belongs to no
    /// page any more. If another thread holds it, that thread is about to discard it, or the next
    /// batch gets here again.
    fn forget_freed(&self, id: FrameId, page: PageId, version: Lsn) {
        let Some(hold) = self.pool.frames.try_exclusive(id) else { return };
        let frame = hold.frame();
        if frame.holds(page) && frame.version() == version && !frame.is_writing() {
            self.pool.recovery.clear(id);
            self.pool.vacate(hold, page);
        }
    }
}

/// Why a page was not written.
fn could_not_write(page: PageId, error: TierError) -> BufferError {
    let mut error = BufferError::from(error);
    if !error.message.contains(&format!("{page:?}")) {
        error.message = format!("{page:?} cannot be written: {}", error.message);
    }
    error
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        // The flags first: returning the buffer wakes the threads that wait for them.
        self.images.clear();
        self.pool.staging.put_back(self.buffer.take().expect("given back once"));
    }
}

impl BufferPool {
    /// The error for a version that the log cannot have given.
    pub(crate) fn version_past_log(&self, page: PageId, version: Lsn) -> BufferError {
        let end = self.log.end();
        BufferError::new(
            BufferErrorKind::Damaged,
            format!(
                "{page:?} has version {version}, which is not before the log's end at {end}: restore it from a backup"
            ),
        )
    }
}
