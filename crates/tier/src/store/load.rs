//! Reading metadata pages in batches: both slots of each, or one if it is known which is the newer.
//!
//! The metadata pages of a group are adjacent, so pages close to each other are read by one
//! request. Recovery reads many at once, and a disk is quicker to read what lies between two of
//! them than to seek.

use super::geometry::Slot;
use super::meta_page::{self, MetaId, MetaImage};
use super::sequences::as_known;
use super::state::{Store, count};
use super::suspects;
use crate::error::TierError;
use firndb_device::{AlignedBuf, DeviceError, Io, IoOp};

/// Metadata pages with both slots in memory at a time, beside the pages themselves.
const PAGES_AT_ONCE: usize = 512;
/// During recovery: most bytes between two slots that are read, and ignored, to save a request.
/// Later it is one slot: of map pages that follow each other the newer slots may not be adjacent.
const READ_THROUGH_BYTES: u64 = 32 << 10;

/// A metadata page as found on the device.
pub(crate) struct Loaded {
    pub image: MetaImage,
    /// Whether the other slot is as expected, so that `image` is certainly the newest version.
    pub sound: bool,
}

/// A slot to read: its offset, the index of its page among those requested, and its index of the
/// two slots.
#[derive(Clone, Copy)]
struct Wanted {
    offset: u64,
    page: usize,
    slot: usize,
}

/// Both slots of a page, adjacent.
type Slots = Result<Vec<u8>, DeviceError>;

impl Store {
    /// As [`Store::load`], but reads one slot of the pages of which the newer one is known.
    pub(crate) fn load_newest(&self, ids: &[MetaId]) -> Vec<Result<Loaded, TierError>> {
        let known: Vec<Option<u8>> = {
            let state = self.state.lock();
            ids.iter().map(|id| state.sequences.get(*id)).collect()
        };
        let mut loaded = self.load_slots(ids, &known);
        let mut again = Vec::new();
        for (index, known) in known.iter().enumerate() {
            let is_right = |loaded: &Loaded| *known == Some(as_known(loaded.image.sequence));
            if known.is_some() && !loaded[index].as_ref().is_ok_and(is_right) {
                again.push(index);
            }
        }
        if !again.is_empty() {
            let both: Vec<MetaId> = again.iter().map(|index| ids[*index]).collect();
            both.iter().for_each(|id| self.compare_copies(*id));
            for (index, found) in again.into_iter().zip(self.load(&both)) {
                loaded[index] = match found {
                    Ok(found) if known[index] != Some(as_known(found.image.sequence)) => {
                        Err(suspects::lost_write(ids[index]))
                    }
                    other => other,
                };
            }
        }
        loaded
    }

    /// Has the device compare all copies that it has of a page, if there are several: the one that
    /// was read is whole, and an old one.
    fn compare_copies(&self, id: MetaId) {
        let mut bytes = AlignedBuf::zeroed(self.geometry.meta_bytes);
        for slot in [Slot::A, Slot::B] {
            let offset = self.geometry.meta_offset(id, slot);
            self.device.read_otherwise(offset, &mut bytes, &mut |_| true);
        }
    }

    /// Reads metadata pages; a result for each. Memory: about 4 MiB beside the pages, five times
    /// that if they are far apart.
    pub(crate) fn load(&self, ids: &[MetaId]) -> Vec<Result<Loaded, TierError>> {
        self.load_slots(ids, &vec![None; ids.len()])
    }

    /// Reads both slots of each page, or the one that is known to be the newer.
    fn load_slots(&self, ids: &[MetaId], known: &[Option<u8>]) -> Vec<Result<Loaded, TierError>> {
        count(&self.counters.metadata_pages_read, ids.len());
        let mut order: Vec<usize> = (0..ids.len()).collect();
        order.sort_unstable_by_key(|index| self.geometry.meta_offset(ids[*index], Slot::A));
        let mut loaded: Vec<Option<Result<Loaded, TierError>>> = ids.iter().map(|_| None).collect();
        for chunk in order.chunks(PAGES_AT_ONCE) {
            let some: Vec<(MetaId, Option<u8>)> =
                chunk.iter().map(|index| (ids[*index], known[*index])).collect();
            for (index, slots) in chunk.iter().zip(self.read_slots(&some)) {
                loaded[*index] = Some(self.newest(ids[*index], known[*index].is_some(), slots));
            }
        }
        loaded.into_iter().map(|page| page.expect("each was read")).collect()
    }

    /// The newest version among the page's slots; `alone` if one of them was not read.
    fn newest(&self, id: MetaId, alone: bool, slots: Slots) -> Result<Loaded, TierError> {
        // One unreadable slot may be the newest; assuming that it is not could lose durable
        // changes.
        let slots = slots.map_err(TierError::of_read)?;
        let (a, b) = slots.split_at(self.geometry.meta_bytes);
        let image = meta_page::choose(self.database, id, a, b)?;
        let sound = alone || meta_page::other_is_sound(self.database, id, &image, a, b);
        Ok(Loaded { image, sound })
    }

    /// Reads the slots of `ids`, which are in the order of their offsets. One that is not read is
    /// returned as zeros.
    fn read_slots(&self, ids: &[(MetaId, Option<u8>)]) -> Vec<Slots> {
        let both = [Slot::A, Slot::B];
        let slot = |page: usize, slot: usize| {
            let offset = self.geometry.meta_offset(ids[page].0, both[slot]);
            Wanted { offset, page, slot }
        };
        let wants = |wanted: &Wanted| {
            ids[wanted.page].1.is_none_or(|known| both[wanted.slot] == Slot::of_sequence(known.into()))
        };
        let mut wanted: Vec<Wanted> =
            (0..ids.len()).flat_map(|page| [slot(page, 0), slot(page, 1)]).filter(wants).collect();
        wanted.sort_unstable_by_key(|wanted| wanted.offset);
        let meta_bytes = self.geometry.meta_bytes as u64;
        let between = if self.journal.get().is_none() { READ_THROUGH_BYTES } else { meta_bytes };
        let close = |a: &Wanted, b: &Wanted| b.offset <= a.offset + meta_bytes + between;
        let requests: Vec<&[Wanted]> = wanted.chunk_by(close).collect();
        let mut slots: Vec<Slots> = ids.iter().map(|_| Ok(vec![0; 2 * self.geometry.meta_bytes])).collect();
        let mut apart: Vec<&[Wanted]> = Vec::new();
        for (request, error) in self.read_requests(&requests, &mut slots) {
            match request {
                [wanted] => slots[wanted.page] = Err(error),
                // Reading each alone shows which of them cannot be read.
                many => apart.extend(many.chunks(1)),
            }
        }
        for (request, error) in self.read_requests(&apart, &mut slots) {
            slots[request[0].page] = Err(error);
        }
        slots
    }

    /// Reads from the first to the last slot of each request, all requests in one batch. Returns
    /// those that failed.
    fn read_requests<'a>(
        &self,
        requests: &[&'a [Wanted]],
        slots: &mut [Slots],
    ) -> Vec<(&'a [Wanted], DeviceError)> {
        let meta_bytes = self.geometry.meta_bytes;
        let bytes = |request: &[Wanted]| (request[request.len() - 1].offset - request[0].offset) as usize;
        let mut bufs: Vec<AlignedBuf> =
            requests.iter().map(|request| AlignedBuf::zeroed(bytes(request) + meta_bytes)).collect();
        count(&self.counters.metadata_bytes_read, bufs.iter().map(|buf| buf.len()).sum());
        let mut batch: Vec<Io<'_>> = requests
            .iter()
            .zip(&mut bufs)
            .map(|(request, buf)| Io { offset: request[0].offset, op: IoOp::Read(buf), outcome: Ok(()) })
            .collect();
        self.device.submit(&mut batch);
        let outcomes: Vec<_> = batch.into_iter().map(|io| io.outcome).collect();
        let mut failed = Vec::new();
        for ((request, buf), outcome) in requests.iter().zip(&bufs).zip(outcomes) {
            if let Err(error) = outcome {
                failed.push((*request, error));
                continue;
            }
            for wanted in *request {
                let from = (wanted.offset - request[0].offset) as usize;
                if let Ok(slots) = &mut slots[wanted.page] {
                    let to = wanted.slot * meta_bytes;
                    slots[to..to + meta_bytes].copy_from_slice(&buf[from..from + meta_bytes]);
                }
            }
        }
        failed
    }
}
