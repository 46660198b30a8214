//! Groups as requests to the device: one request for the whole group, or one a page. Of a group of
//! which few images are needed, these are read alone where the drive's profile favours that.
//!
//! Page by page is the paper's plain FaCE, in which each process writes the page that it evicts.
//! The order of groups and what a crash leaves of them are the same.

use super::geometry::{SEAL_BYTES, Serial, Slot};
use super::read::Hit;
use super::state::FlashCache;
use super::word::Word;
use crate::page_cache::drive_times::DriveTimes;
use crate::page_cache::statistics::add;
use firndb_device::{DeviceError, Durability, Io, IoOp};

impl FlashCache {
    /// Writes the first bytes of a group with `images` images, durably.
    pub(super) fn write_transfer(
        &self,
        serial: Serial,
        bytes: &[u8],
        images: usize,
    ) -> Result<(), DeviceError> {
        let offset = self.geometry.group_offset(serial);
        if !self.policy.is_page_by_page() {
            return self.device.write(offset, bytes, Durability::Durable);
        }
        // In whole blocks: one that two images share belongs to the later one.
        let begin = |index: usize| self.geometry.image_at(index) / self.geometry.block * self.geometry.block;
        let mut from = 0;
        let mut batch: Vec<Io<'_>> = Vec::with_capacity(images);
        for to in (1..images).map(begin).chain([bytes.len()]) {
            if to > from {
                let op = IoOp::Write(&bytes[from..to], Durability::Durable);
                batch.push(Io { offset: offset + from as u64, op, outcome: Ok(()) });
                from = to;
            }
        }
        self.device.submit(&mut batch);
        batch.into_iter().try_for_each(|io| io.outcome)
    }

    /// Reads sealed images of group `serial` to where they belong in `group`, which begins as the
    /// group does. Others may be read, too.
    pub(super) fn read_transfer(
        &self,
        serial: Serial,
        wanted: &[(Slot, Word)],
        group: &mut [u8],
    ) -> Result<(), DeviceError> {
        let index = |slot: Slot| self.geometry.index_of(slot);
        let Some(last) = wanted.iter().map(|(slot, _)| index(*slot)).max() else { return Ok(()) };
        let alone = |times: &DriveTimes| times.favour_pages(wanted.len());
        if !self.policy.is_page_by_page() && !self.times.get().is_some_and(alone) {
            let len = self.geometry.used_bytes(last + 1);
            add(&self.counters.groups_read, 1);
            return self.device.read(self.geometry.group_offset(serial), &mut group[..len]);
        }
        let hit = |&(slot, word): &(Slot, Word)| (index(slot), Hit { slot, word, serial });
        let hits: Vec<(usize, Hit)> = wanted.iter().map(hit).collect();
        let (bufs, outcomes) = self.read_images(&hits);
        add(&self.counters.images_read, hits.len());
        for ((index, hit), buf) in hits.iter().zip(&bufs) {
            let (at, skip) = (self.geometry.image_at(*index), self.reach(*hit).skip);
            let len = SEAL_BYTES + self.geometry.page_size;
            group[at..at + len].copy_from_slice(&buf[skip..skip + len]);
        }
        self.keep_scratch(bufs);
        outcomes.into_iter().collect()
    }
}
