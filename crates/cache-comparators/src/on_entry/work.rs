//! Reading, inserting, and writing.

use super::places::Waiting;
use super::{DRAIN_PAGES, EntryCache, QUEUE_PAGES};
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::Ordering::Relaxed;
use firndb_base::{Crc32c, Lsn, PageId};
use firndb_device::{AlignedBuf, Durability, Io, IoOp};
use firndb_tier::page_cache::read_below;
use firndb_tier::page_cache::statistics::add;
use firndb_tier::{Found, PageRead, PageWrite, TierError, Written};
use std::collections::BTreeSet;

/// Result of looking a page up.
enum Lookup {
    /// The cache does not hold it.
    Absent,
    /// It was here, and was read.
    Read(Found),
    /// Another image entered its place meanwhile.
    Again,
}

fn checksum(page: PageId, version: Lsn, image: &[u8]) -> u32 {
    Crc32c::new().with(&page.0.to_le_bytes()).with(&version.0.to_le_bytes()).with(image).value()
}

impl EntryCache {
    pub(crate) fn read_batch(&self, reads: &mut [PageRead<'_>]) {
        if self.is_lost() {
            return self.store.read_batch(reads);
        }
        let mut missed = Vec::new();
        for (index, read) in reads.iter_mut().enumerate() {
            self.state.lock().order.requested(read.page);
            match self.find(read.page, read.buf) {
                Some(found) => read.outcome = Ok(found),
                None => missed.push(index),
            }
        }
        add(&self.counters.misses, missed.len());
        add(&self.counters.hits, reads.len() - missed.len());
        read_below(&*self.store, reads, &missed);
        for index in missed {
            if let PageRead { page, buf, outcome: Ok(found) } = &reads[index] {
                self.insert_read(*page, *found, buf);
            }
        }
        if self.state.lock().queued() > QUEUE_PAGES {
            self.drain();
        }
    }

    /// Reads a page that is in the cache.
    fn find(&self, page: PageId, buf: &mut [u8]) -> Option<Found> {
        loop {
            match self.lookup(page, buf, &mut |_| {}) {
                Lookup::Absent => return None,
                Lookup::Read(found) => return Some(found),
                Lookup::Again => {}
            }
        }
    }

    fn lookup(&self, page: PageId, buf: &mut [u8], fault: &mut dyn FnMut(String)) -> Lookup {
        let (at, place) = {
            let mut state = self.state.lock();
            let Some((at, place)) = state.find(page) else { return Lookup::Absent };
            let place = place.clone();
            state.order.found(at);
            (at, place)
        };
        if !place.proven && !self.prove(page, at, place.stamp, place.version) {
            return Lookup::Absent;
        }
        let found = Found {
            cached: true,
            base: place.base,
            changes: place.changes,
            ..Found::without_base(place.version)
        };
        let read = match &place.waiting {
            Some(image) => {
                buf.copy_from_slice(image);
                return Lookup::Read(found);
            }
            None => self.device.read(self.layout.image_offset(at), buf),
        };
        if read.is_ok() && checksum(page, place.version, buf) == place.checksum {
            return Lookup::Read(found);
        }
        let mut state = self.state.lock();
        if state.still(at, place.stamp).is_none() {
            return Lookup::Again;
        }
        state.forget(page);
        if read.is_err() || !place.restored {
            add(&self.counters.faults, 1);
            let name = &self.device.info().name;
            fault(format!("{page:?} in the flash cache {name} is damaged; the store has it"));
        }
        Lookup::Absent
    }

    /// Accepts the version of a page that has entered this place, if the map names it now; else
    /// forgets it.
    ///
    /// A thread that stores a newer version calls `follow` after the map names that version. If it
    /// did so before this version entered, the map names the newer one now; if later, `follow`
    /// removes this version then.
    fn prove(&self, page: PageId, at: usize, stamp: u64, version: Lsn) -> bool {
        let newest = matches!(self.store.version_of(page), Ok(Some(named)) if named == version);
        let mut state = self.state.lock();
        match state.still(at, stamp) {
            // Not there any more: no other thread will read it, and the caller has the version that
            // was newest a moment ago.
            None => newest,
            Some(place) if newest => {
                place.proven = true;
                true
            }
            Some(_) => {
                state.forget(page);
                false
            }
        }
    }

    /// Inserts a page that was read from the store, if it is worth a place.
    fn insert_read(&self, page: PageId, found: Found, data: &[u8]) {
        let version = found.version;
        let mut image = AlignedBuf::zeroed(data.len());
        image.copy_from_slice(data);
        let sum = checksum(page, version, data);
        let (at, stamp) = {
            let mut state = self.state.lock();
            if state.find(page).is_some() {
                // Another reader was faster.
                return;
            }
            let Some((at, replaced)) = state.admit(page) else {
                return add(&self.counters.clean_declined, 1);
            };
            add(&self.counters.discarded_clean, usize::from(replaced));
            (at, state.put(at, page, found, sum, Arc::new(image)))
        };
        add(&self.counters.clean_enqueued, 1);
        self.prove(page, at, stamp, version);
    }

    /// Follows a write to the store: older versions of these pages are removed, or replaced.
    pub(crate) fn follow(&self, writes: &[PageWrite<'_>]) {
        let takes = self.takes_changed() && !self.is_lost();
        for write in writes.iter().filter(|write| write.dirty) {
            let taken = match write.outcome {
                Ok(Written::Taken { base, changes }) if takes => (base, changes),
                _ => {
                    self.state.lock().forget(write.page);
                    continue;
                }
            };
            let known = self.state.lock().find(write.page).is_some();
            if known {
                let (base, changes) = taken;
                self.replace(write, Found { base, changes, ..Found::without_base(write.version) });
            }
        }
        if self.state.lock().queued() > QUEUE_PAGES {
            self.drain();
        }
    }

    fn replace(&self, write: &PageWrite<'_>, found: Found) {
        let mut image = AlignedBuf::zeroed(write.data.len());
        image.copy_from_slice(write.data);
        let sum = checksum(write.page, write.version, &image);
        let (at, stamp) = {
            let mut state = self.state.lock();
            // Evicted for another page in the meantime.
            let Some((at, _)) = state.find(write.page) else { return };
            (at, state.put(at, write.page, found, sum, Arc::new(image)))
        };
        add(&self.counters.dirty_enqueued, 1);
        self.prove(write.page, at, stamp, write.version);
    }

    /// Writes some of the waiting images; returns how many.
    pub(crate) fn drain(&self) -> usize {
        let _writer = self.writer.lock();
        if self.is_lost() {
            return 0;
        }
        let batch = self.state.lock().take_waiting(DRAIN_PAGES);
        if !batch.is_empty() && self.write_images(&batch).is_err() {
            // The directory on flash may not mark old images as invalid: the cache must not be read
            // any more.
            self.lost.store(true, Relaxed);
        }
        batch.len()
    }

    /// TAC's three writes: the entry invalid, the image, the entry valid. Each kind as one batch.
    fn write_images(&self, batch: &[Waiting]) -> Result<(), TierError> {
        if self.is_listed() {
            let listed: Vec<usize> = {
                let state = self.state.lock();
                batch.iter().map(|waiting| waiting.at).filter(|at| state.is_listed(*at)).collect()
            };
            self.write_entries(&listed)?;
        }
        let images = batch.iter().map(|waiting| (self.layout.image_offset(waiting.at), &waiting.image[..]));
        self.write_side_by_side(images)?;
        {
            let mut state = self.state.lock();
            for waiting in batch {
                state.written(waiting.at, waiting.stamp);
                state.set_listed(waiting.at);
            }
        }
        if self.is_listed() {
            let places: Vec<usize> = batch.iter().map(|waiting| waiting.at).collect();
            self.write_entries(&places)?;
        }
        Ok(())
    }

    /// Writes the blocks of the directory that hold these places' entries.
    fn write_entries(&self, places: &[usize]) -> Result<(), TierError> {
        let blocks: BTreeSet<usize> = places.iter().map(|at| self.layout.block_of(*at)).collect();
        if blocks.is_empty() {
            return Ok(());
        }
        let block = self.layout.block;
        let mut buf = AlignedBuf::zeroed(blocks.len() * block);
        {
            let state = self.state.lock();
            for (number, out) in blocks.iter().zip(buf.chunks_mut(block)) {
                self.layout.compose(self.header.cache, &state, *number, out);
            }
        }
        let offsets = blocks.iter().map(|number| self.layout.block_offset(*number));
        self.write_side_by_side(offsets.zip(buf.chunks(block)))
    }

    fn write_side_by_side<'a>(&self, writes: impl Iterator<Item = (u64, &'a [u8])>) -> Result<(), TierError> {
        let mut batch: Vec<Io<'_>> = writes
            .map(|(offset, bytes)| Io { offset, op: IoOp::Write(bytes, Durability::Later), outcome: Ok(()) })
            .collect();
        match batch.as_mut_slice() {
            [Io { offset, op: IoOp::Write(bytes, durability), outcome }] => {
                *outcome = self.device.write(*offset, bytes, *durability);
            }
            _ => self.device.submit(&mut batch),
        }
        for io in batch {
            if let IoOp::Write(bytes, _) = io.op {
                self.counters.wrote(bytes.len());
            }
            io.outcome?;
        }
        Ok(())
    }

    /// Writes the waiting images, and syncs, so that a restart finds them. A failure affects the
    /// cache only.
    pub(crate) fn save(&self) {
        if !self.is_listed() || self.is_lost() {
            return;
        }
        // The images that wait now; readers may insert more meanwhile.
        let mut left = self.state.lock().queued();
        while left > 0 {
            let written = self.drain();
            if written == 0 {
                break;
            }
            left = left.saturating_sub(written);
        }
        if self.device.sync().is_err() {
            self.lost.store(true, Relaxed);
        }
    }

    /// Reads every page in the cache.
    pub(crate) fn check(&self, fault: &mut dyn FnMut(String)) -> Result<u64, TierError> {
        if self.is_lost() {
            return Ok(0);
        }
        let pages: Vec<PageId> = self.state.lock().pages().collect();
        let mut buf = AlignedBuf::zeroed(self.layout.page_size);
        let mut count = 0;
        for page in pages {
            count += loop {
                match self.lookup(page, &mut buf, fault) {
                    Lookup::Absent => break 0,
                    Lookup::Read(_) => break 1,
                    Lookup::Again => {}
                }
            };
        }
        Ok(count)
    }
}
