//! Shadows (`shadows.rs`) for those who need more than the newest version of each page: the archive
//! and running backups, which find the record of a shadow in the log, and its content nowhere but
//! at its place.
//!
//! Invariants:
//! * A place named by a record at or after [`Store::hold_shadows`]' LSN keeps its image until that
//!   LSN passes the record, whatever becomes of the page: a rewritten or moved page goes elsewhere
//!   as always, and the place that it leaves is not given out, cut off or discarded.
//! * Held places are counted like pages: a page once allocated can be written all the same. At most
//!   one in [`SHARE`] places is held, and [`MOST`]. What would be beyond is not taken, and so its
//!   writer logs it.
//! * Which places are held is in memory only. Recovery passes the same records to
//!   [`Store::redo_held_shadows`] before anything is written.

use super::entry::image_checksum;
use super::records::{self, Change};
use super::space::shadows::ShadowImage;
use super::state::{SLACK_BATCHES_NORMAL, Store};
use crate::error::{TierError, TierErrorKind};
use crate::merged_reads::{Piece, read_pieces};
use firndb_base::Lsn;
use firndb_base::codec::Malformed;
use firndb_log::{Kind, Record};
use std::ops::Range;

/// One in this many places is held at most.
const SHARE: u64 = 8;
/// Most places held: about 100 bytes of DRAM each.
const MOST: u64 = 1 << 16;

/// A write of shadows under way, counted until it is dropped.
pub(super) struct ShadowsUnderWay<'s> {
    store: &'s Store,
    /// Places that will be held; `None` if none will be.
    coming: Option<u64>,
}

impl Drop for ShadowsUnderWay<'_> {
    fn drop(&mut self) {
        let shadows = &mut self.store.state.lock().space.shadows;
        match self.coming {
            Some(places) => shadows.coming -= places,
            None => shadows.unheld -= 1,
        }
        self.store.progress.notify_all();
    }
}

impl Store {
    /// From now on, until it is called anew, holds the places that records of shadows at or after
    /// `from` name; none without an LSN, which moves forward only. Returns the log's end: no shadow
    /// of a later record is missing, and those of earlier ones that are not held are in the page
    /// map. Not to be called by two threads at once.
    pub fn hold_shadows(&self, from: Option<Lsn>) -> Lsn {
        {
            let mut state = self.state.lock();
            let begins = state.space.shadows.from.is_none();
            state.space.hold_shadows_from(&self.geometry, from);
            self.progress.notify_all();
            while begins && from.is_some() && state.space.shadows.unheld > 0 {
                self.progress.wait(&mut state);
            }
        }
        // Under `order`: a record that was appended before has been applied.
        let _order = self.order.lock();
        self.journal.get().map_or(Lsn::ZERO, |journal| journal.end())
    }

    /// From now on gives held places out all the same. Shows that tests of restores notice.
    #[doc(hidden)]
    pub fn reuse_held_places(&self) {
        self.state.lock().space.shadows.is_broken = true;
    }

    /// The shadows held whose records lie in this part of the log, which has been appended.
    #[must_use]
    pub fn held_shadows(&self, records: Range<Lsn>) -> Vec<ShadowImage> {
        let _order = self.order.lock();
        self.state.lock().space.shadows.of_records(records)
    }

    /// LSN of the newest record of a shadow that was not held when it was appended, or of those
    /// before the opening that recovery has passed here.
    #[must_use]
    pub fn newest_shadow_not_held(&self) -> Option<Lsn> {
        self.state.lock().space.shadows.newest_not_held
    }

    /// LSN of the oldest record of a shadow that is held.
    #[must_use]
    pub fn oldest_held_shadow(&self) -> Option<Lsn> {
        let _order = self.order.lock();
        self.state.lock().space.shadows.oldest()
    }

    /// Sets how many bytes of images may be kept in DRAM until they are taken: a device that is
    /// written to its limits would be slowed down by reading them back.
    pub fn keep_shadow_images(&self, bytes: usize) {
        self.state.lock().space.shadows.keep_bytes = bytes;
    }

    /// Whether images should be taken soon: the places held, or the images kept, near their bound.
    #[must_use]
    pub fn holds_many_shadows(&self) -> bool {
        let mut state = self.state.lock();
        let backed = self.backed_places(&mut state);
        let shadows = &state.space.shadows;
        shadows.keeps_many() || shadows.count() > (backed / SHARE).min(MOST) / 4
    }

    /// Reads the images of shadows into `out`, one behind the other, and verifies them. An outcome
    /// for each; `NotAllocated` if its place is not held any more.
    pub fn read_held_shadows(&self, images: &[ShadowImage], out: &mut [u8]) -> Vec<Result<(), TierError>> {
        let page_size = self.geometry.page_size;
        let mut outcomes = vec![Err(TierError::unset()); images.len()];
        let mut pieces: Vec<Piece<'_>> = Vec::with_capacity(images.len());
        for (tag, (image, bytes)) in images.iter().zip(out.chunks_exact_mut(page_size)).enumerate() {
            let kept = self.state.lock().space.shadows.kept(image);
            if let Some(kept) = kept {
                bytes.copy_from_slice(&kept);
                outcomes[tag] = self.verify_shadow(image, bytes);
                continue;
            }
            let offset = self.geometry.place_offset(image.place);
            pieces.push(Piece { offset, len: page_size, into: Some(bytes), tag });
        }
        pieces.sort_unstable_by_key(|piece| piece.offset);
        read_pieces(&*self.device, &self.read_staging, &mut pieces, &mut |tag, bytes| {
            let bytes = bytes.map_err(TierError::of_read);
            outcomes[tag] = bytes.and_then(|bytes| self.verify_shadow(&images[tag], bytes));
        });
        drop(pieces);
        for ((image, bytes), outcome) in images.iter().zip(out.chunks_exact_mut(page_size)).zip(&mut outcomes)
        {
            let offset = self.geometry.place_offset(image.place);
            let is_right = &mut |bytes: &[u8]| self.verify_shadow(image, bytes).is_ok();
            if outcome.is_err() && self.device.read_otherwise(offset, bytes, is_right) {
                *outcome = Ok(());
            }
            if outcome.is_err() && !self.state.lock().space.shadows.holds(image) {
                *outcome = Err(self.not_allocated(image.page));
            }
        }
        outcomes
    }

    fn verify_shadow(&self, image: &ShadowImage, bytes: &[u8]) -> Result<(), TierError> {
        if image_checksum(image.page, image.version, bytes) == image.checksum {
            return Ok(());
        }
        let message = format!(
            "the first image of {} (version {}), at {:?} of {} (offset {}), is damaged",
            image.page,
            image.version,
            image.place,
            self.device.info().name,
            self.geometry.place_offset(image.place)
        );
        Err(TierError::new(TierErrorKind::Damaged, message))
    }

    /// Holds the places that the record at `lsn` names, and those of earlier ones no more that were
    /// not held when it was appended: for recovery, before the log is attached, of each record of
    /// shadows that archive or backups may lack, in the order of the log.
    ///
    /// Errors: the record is malformed.
    pub fn redo_held_shadows(&self, lsn: Lsn, record: Record<'_>) -> Result<(), Malformed> {
        if record.kind != Kind::PAGES_SHADOWED {
            return Ok(());
        }
        let images = shadows_of(lsn, record)?;
        let state = &mut *self.state.lock();
        let from = records::held_from(record)?;
        state.space.shadows.forget_before(from);
        if from.is_none() {
            state.space.shadows.newest_not_held = Some(lsn);
            return Ok(());
        }
        // The others were cut off since: their images are gone.
        let exists = |image: &ShadowImage| self.geometry.group_of_place(image.place) < state.space.groups();
        let images: Vec<ShadowImage> = images.into_iter().filter(exists).collect();
        state.space.hold_shadows(&self.geometry, &images);
        // No more were held, and those the newest: archive and backups move forward.
        state.space.shadows.forget_oldest(MOST);
        images.iter().for_each(|image| state.space.unlearn(self.geometry.group_of_place(image.place)));
        Ok(())
    }

    /// Notes that the places that the record at `lsn` names are not held, if it is one of shadows:
    /// for recovery, instead of [`Store::redo_held_shadows`].
    pub fn redo_shadows_not_held(&self, lsn: Lsn, record: Record<'_>) {
        if record.kind == Kind::PAGES_SHADOWED {
            self.state.lock().space.shadows.newest_not_held = Some(lsn);
        }
    }

    /// Counts a write of `count` shadows; `None` if as many places may not be held as that takes.
    pub(super) fn begin_shadows(&self, count: usize) -> Option<ShadowsUnderWay<'_>> {
        let mut state = self.state.lock();
        if state.space.shadows.from.is_none() {
            state.space.shadows.unheld += 1;
            return Some(ShadowsUnderWay { store: self, coming: None });
        }
        let (places, backed) = (count as u64, self.backed_places(&mut state));
        // Pages are still to be allocated while places are held: what is almost full holds none.
        let slack = SLACK_BATCHES_NORMAL * self.policy.batch_pages as u64 + backed / SHARE;
        if state.space.shadows.count() + places > (backed / SHARE).min(MOST)
            || state.places_needed(slack + places) > backed
        {
            return None;
        }
        state.space.shadows.coming += places;
        Some(ShadowsUnderWay { store: self, coming: Some(places) })
    }
}

/// The images of a record of shadows; none of another map record.
pub fn shadows_of(lsn: Lsn, record: Record<'_>) -> Result<Vec<ShadowImage>, Malformed> {
    if record.kind != Kind::PAGES_SHADOWED {
        return Ok(Vec::new());
    }
    Ok(images_of(lsn, &records::decode(record)?))
}

/// The images that the changes of a record of shadows name.
pub(super) fn images_of(record: Lsn, changes: &[Change]) -> Vec<ShadowImage> {
    let image = |change: &Change| match *change {
        Change::Move { page, version, place, checksum, .. } => {
            Some(ShadowImage { record, page, version, checksum, place })
        }
        _ => None,
    };
    changes.iter().filter_map(image).collect()
}
