//! Reading pages: from the group being filled, from flash, or from the store.
//!
//! A reader consults the directory before the read and, if the image it read is not the one that
//! the directory named, again: the page may have moved and its slot been reused. A page that is in
//! no group is in the store, because a page leaves the directory only after the store has it; if a
//! newer version enters the cache after that lookup, the store's version was the newest at the time
//! of the lookup.

use super::geometry::{Geometry, SEAL_BYTES, Serial, Slot};
use super::group::{Seal, Since};
use super::state::FlashCache;
use super::word::Word;
use crate::error::{TierError, TierErrorKind};
use crate::merged_reads::{Piece, read_pieces};
use crate::page_cache::read_below;
use crate::page_cache::statistics::add;
use crate::page_reads::PageReads;
use crate::page_tier::{DeltaRead, Found, PageRead};
use firndb_base::{Lsn, PageId};
use firndb_device::{AlignedBuf, Io, IoOp};

/// An image found in the directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hit {
    pub slot: Slot,
    pub word: Word,
    pub serial: Serial,
}

/// A read of an image on the device: the whole blocks that contain it.
pub(crate) struct Reach {
    pub offset: u64,
    pub len: usize,
    /// Where the seal begins.
    pub skip: usize,
}

/// What became of the read of an image.
enum Settled {
    /// The read has its outcome.
    Done,
    /// The page moved meanwhile: it must be looked up again.
    Again,
    /// The store has the page.
    Missed,
}

impl FlashCache {
    /// The page's valid image.
    pub(crate) fn hit(&self, page: PageId) -> Option<Hit> {
        if self.is_lost() || !Geometry::can_hold(page) {
            return None;
        }
        let (slot, word) = self.directory.lookup(page)?;
        let serial = self.geometry.serial_of(slot, self.rear()).expect("a valid image has a group");
        Some(Hit { slot, word, serial })
    }

    pub(crate) fn read_batch(&self, reads: &mut [PageRead<'_>]) {
        for read in reads.iter() {
            assert_eq!(read.buf.len(), self.geometry.page_size, "a page is read whole");
        }
        if let [read] = reads {
            return self.read_one(read);
        }
        let mut left: Vec<usize> = (0..reads.len()).collect();
        let mut missed = Vec::new();
        while !left.is_empty() {
            left = self.read_round(reads, &left, &mut missed);
        }
        add(&self.counters.misses, missed.len());
        add(&self.counters.hits, reads.len() - missed.len());
        missed.sort_unstable();
        read_below(&*self.store, reads, &missed);
    }

    /// Begins to read pages that are not in the cache; then reads those that are, as one batch.
    pub(crate) fn begin_reads(&self, reads: &mut PageReads, pages: &[(usize, PageId)]) {
        let (here, below): (Vec<_>, Vec<_>) = pages.iter().partition(|(_, page)| self.hit(*page).is_some());
        add(&self.counters.misses, below.len());
        self.store.begin_reads(reads, &below);
        reads.begin(here.len(), self.geometry.page_size);
        reads.read_now(self.geometry.page_size, &here, |batch| self.read_batch(batch));
    }

    /// Reads one page, without an allocation.
    fn read_one(&self, read: &mut PageRead<'_>) {
        loop {
            let settled = match self.hit(read.page) {
                None => Settled::Missed,
                Some(hit) => match self.read_open(hit, read.page, read.buf) {
                    Some((version, since)) => {
                        read.outcome = Ok(self.found(read.page, hit, version, since));
                        Settled::Done
                    }
                    None => self.read_image(read, hit),
                },
            };
            match settled {
                Settled::Done => return add(&self.counters.hits, 1),
                Settled::Missed => {
                    add(&self.counters.misses, 1);
                    return self.store.read_batch(std::slice::from_mut(read));
                }
                Settled::Again => {}
            }
        }
    }

    /// Reads one image from the device.
    fn read_image(&self, read: &mut PageRead<'_>, hit: Hit) -> Settled {
        let reach = self.reach(hit);
        let mut buf = self.take_scratch(self.reach_bytes_max());
        let outcome = self.device.read(reach.offset, &mut buf[..reach.len]);
        add(&self.counters.read_requests, 1);
        let settled = self.settle(read, hit, outcome.map(|()| self.sealed(hit, &buf)));
        self.keep_scratch([buf]);
        settled
    }

    /// Reads those of `left` that are in the cache, adjacent images as one request; returns those
    /// to be looked up again.
    fn read_round(&self, reads: &mut [PageRead<'_>], left: &[usize], missed: &mut Vec<usize>) -> Vec<usize> {
        let mut on_flash: Vec<(usize, Hit)> = Vec::new();
        for &index in left {
            let read = &mut reads[index];
            match self.hit(read.page) {
                None => missed.push(index),
                Some(hit) => match self.read_open(hit, read.page, read.buf) {
                    Some((version, since)) => {
                        read.outcome = Ok(self.found(read.page, hit, version, since));
                    }
                    None => on_flash.push((index, hit)),
                },
            }
        }
        let piece = |(tag, (_, hit)): (usize, &(usize, Hit))| {
            let reach = self.reach(*hit);
            Piece { offset: reach.offset, len: reach.len, into: None, tag }
        };
        let mut pieces: Vec<Piece<'_>> = on_flash.iter().enumerate().map(piece).collect();
        pieces.sort_unstable_by_key(|piece| piece.offset);
        let mut again = Vec::new();
        let requests = read_pieces(&*self.device, &self.read_staging, &mut pieces, &mut |tag, bytes| {
            let (index, hit) = on_flash[tag];
            match self.settle(&mut reads[index], hit, bytes.map(|bytes| self.sealed(hit, bytes))) {
                Settled::Done => {}
                Settled::Again => again.push(index),
                Settled::Missed => missed.push(index),
            }
        });
        add(&self.counters.read_requests, requests);
        again
    }

    /// The seal and the image in what was read of `hit`'s reach.
    fn sealed<'a>(&self, hit: Hit, read: &'a [u8]) -> &'a [u8] {
        let skip = self.reach(hit).skip;
        &read[skip..skip + SEAL_BYTES + self.geometry.page_size]
    }

    /// Decides about a read of `hit` that brought seal and image, or failed.
    fn settle(
        &self,
        read: &mut PageRead<'_>,
        hit: Hit,
        sealed: Result<&[u8], firndb_device::DeviceError>,
    ) -> Settled {
        let verified = sealed
            .map_err(TierError::of_read)
            .and_then(|sealed| Ok((self.verify(read.page, hit, sealed)?, &sealed[SEAL_BYTES..])));
        match verified {
            Ok((seal, image)) => {
                read.buf.copy_from_slice(image);
                read.outcome = Ok(self.found(read.page, hit, seal.version, seal.since));
                Settled::Done
            }
            Err(_) if !self.is_still(read.page, hit) => Settled::Again,
            // The store has this version: it is read from there, now and from now on.
            Err(_) if !hit.word.is_dirty() => {
                add(&self.counters.faults, 1);
                // Only this image: a newer one that entered meanwhile must stay.
                self.directory.forget(read.page, hit.slot, hit.word);
                Settled::Missed
            }
            // It has this one, too. The image stays in the directory: the thread that replaces its
            // group makes the store's record durable first.
            Err(_) if self.store_has(read.page, hit) => {
                add(&self.counters.faults, 1);
                Settled::Missed
            }
            Err(error) => {
                read.outcome = Err(error);
                Settled::Done
            }
        }
    }

    fn found(&self, page: PageId, hit: Hit, version: Lsn, since: Since) -> Found {
        self.directory.reference(page, hit.slot);
        let Since { base, changes } = since;
        let delta_read = DeltaRead::No;
        Found { version, dirty: hit.word.is_dirty(), cached: true, base, changes, delta_read }
    }

    /// Whether the page's valid image is still the same.
    pub(crate) fn is_still(&self, page: PageId, hit: Hit) -> bool {
        self.hit(page).is_some_and(|now| {
            now.slot == hit.slot && now.serial == hit.serial && now.word.is_same_image(hit.word)
        })
    }

    /// Copies an image out of the group being filled, if it is there, and returns its version and
    /// what it differs by from the store's.
    fn read_open(&self, hit: Hit, page: PageId, buf: &mut [u8]) -> Option<(Lsn, Since)> {
        let open = self.open.read();
        let index = self.geometry.index_of(hit.slot);
        let entry =
            open.entries.get(index).filter(|entry| open.serial == hit.serial && entry.page == page)?;
        buf.copy_from_slice(open.image(&self.geometry, index));
        Some((entry.version, open.since(&self.geometry, index)))
    }

    pub(crate) fn reach(&self, hit: Hit) -> Reach {
        let at = self.geometry.image_at(self.geometry.index_of(hit.slot));
        let start = at - at % self.geometry.block;
        let end = (at + SEAL_BYTES + self.geometry.page_size).next_multiple_of(self.geometry.block);
        let offset = self.geometry.group_offset(hit.serial) + start as u64;
        Reach { offset, len: end - start, skip: at - start }
    }

    /// Enough for any image: at most one extra block at either end.
    fn reach_bytes_max(&self) -> usize {
        (SEAL_BYTES + self.geometry.page_size).next_multiple_of(self.geometry.block) + self.geometry.block
    }

    /// Reads sealed images, a request each, all submitted together.
    #[allow(clippy::type_complexity)]
    pub(crate) fn read_images(
        &self,
        hits: &[(usize, Hit)],
    ) -> (Vec<AlignedBuf>, Vec<Result<(), firndb_device::DeviceError>>) {
        let most = self.reach_bytes_max();
        let mut bufs: Vec<AlignedBuf> = hits.iter().map(|_| self.take_scratch(most)).collect();
        let mut batch: Vec<Io<'_>> = hits
            .iter()
            .zip(&mut bufs)
            .map(|((_, hit), buf)| {
                let reach = self.reach(*hit);
                Io { offset: reach.offset, op: IoOp::Read(&mut buf[..reach.len]), outcome: Ok(()) }
            })
            .collect();
        match batch.as_mut_slice() {
            [] => {}
            [Io { offset, op: IoOp::Read(buf), outcome }] => *outcome = self.device.read(*offset, buf),
            _ => self.device.submit(&mut batch),
        }
        let outcomes = batch.into_iter().map(|io| io.outcome).collect();
        (bufs, outcomes)
    }

    /// Returns the seal if this is the image that the directory named.
    pub(crate) fn verify(&self, page: PageId, hit: Hit, sealed: &[u8]) -> Result<Seal, TierError> {
        self.seal_of(hit.word, hit.serial, sealed)
            .filter(|seal| seal.page == page)
            .ok_or_else(|| self.damaged(page, hit.slot))
    }

    /// The seal of an image of group `serial`, if it is the image that the directory's `word`
    /// describes.
    pub(crate) fn seal_of(&self, word: Word, serial: Serial, sealed: &[u8]) -> Option<Seal> {
        Seal::read(self.header.cache, sealed)
            .filter(|seal| seal.page == word.page() && seal.serial == serial && word.may_be(seal.version))
    }

    pub(crate) fn damaged(&self, page: PageId, slot: Slot) -> TierError {
        let serial = self.geometry.serial_of(slot, self.rear()).unwrap_or(Serial::FIRST);
        let offset =
            self.geometry.group_offset(serial) + self.geometry.image_at(self.geometry.index_of(slot)) as u64;
        TierError::new(
            TierErrorKind::Damaged,
            format!(
                "{page:?} in the flash cache {} (offset {offset}) is damaged, and the store has an older version only. \
                 Restore it from a backup",
                self.device.info().name,
            ),
        )
    }

    /// The newest version of a page, in the cache or in the store.
    pub(crate) fn version_of(&self, page: PageId) -> Result<Option<Lsn>, TierError> {
        loop {
            let Some(hit) = self.hit(page) else { return self.store.version_of(page) };
            if let Some(version) = self.recent.lock().of(page) {
                return Ok(Some(version));
            }
            let mut image = AlignedBuf::zeroed(self.geometry.page_size);
            let outcome = Err(TierError::unset());
            let mut reads = [PageRead { page, buf: &mut image, outcome }];
            self.read_batch(&mut reads);
            let [PageRead { outcome, .. }] = reads;
            match outcome {
                Ok(found) => return Ok(Some(found.version)),
                Err(error) if self.is_still(page, hit) => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// Whether the newest version certainly contains the change at `lsn`. False if only a read
    /// would tell.
    pub(crate) fn has_change_for_sure(&self, page: PageId, lsn: Lsn) -> Result<Option<bool>, TierError> {
        match self.hit(page) {
            None => self.store.has_change_for_sure(page, lsn),
            Some(_) => Ok(Some(self.recent.lock().of(page).is_some_and(|version| version >= lsn))),
        }
    }
}
