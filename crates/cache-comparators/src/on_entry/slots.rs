//! The slot directory on flash: what lies in each place. The bytes are in `docs/format/cache.md`.
//!
//! Each entry is self-certifying. The order among the writes of entries and images does not matter,
//! since a reader accepts an entry that was read from flash only when the page map names the same
//! version, and an image only when its checksum agrees.

use super::places::State;
use firndb_base::codec::{Reader, Writer};
use firndb_base::{Crc32c, Lsn, PageId};
use firndb_device::{AlignedBuf, Device};
use firndb_tier::TierError;
use firndb_tier::page_cache::header::{CacheHeader, CacheId};

/// Bytes of an entry.
pub(crate) const ENTRY_BYTES: usize = 32;
const CHECKED_BYTES: usize = 28;
/// Bytes of the directory read at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Layout of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) block: usize,
    pub(crate) page_size: usize,
    pub(crate) places: usize,
    directory: u64,
    images: u64,
}

impl Layout {
    /// With space for the directory if `listed`.
    pub(crate) fn new(block: usize, page_size: usize, places: usize, listed: bool) -> Layout {
        let directory = 2 * CacheHeader::slot_bytes(block) as u64;
        let bytes = if listed { (places * ENTRY_BYTES).next_multiple_of(block) as u64 } else { 0 };
        let images = (directory + bytes).next_multiple_of(page_size.max(block) as u64);
        Layout { block, page_size, places, directory, images }
    }
    /// The layout with the most places that fit into `bytes` bytes.
    pub(crate) fn fit(block: usize, page_size: usize, bytes: u64, listed: bool) -> Layout {
        let entry = if listed { ENTRY_BYTES } else { 0 };
        // At most this much is lost to whole blocks and pages; a few places may fit into it after
        // all.
        let beside = 2 * CacheHeader::slot_bytes(block) + block + page_size.max(block);
        let sure = bytes.saturating_sub(beside as u64) / (page_size + entry) as u64;
        let mut layout = Layout::new(block, page_size, sure as usize, listed);
        loop {
            let more = Layout::new(block, page_size, layout.places + 1, listed);
            if more.end() > bytes {
                return layout;
            }
            layout = more;
        }
    }
    pub(crate) fn end(&self) -> u64 {
        self.image_offset(self.places)
    }
    pub(crate) fn image_offset(&self, at: usize) -> u64 {
        self.images + at as u64 * self.page_size as u64
    }
    fn entries_per_block(&self) -> usize {
        self.block / ENTRY_BYTES
    }
    /// The block of the directory that has the place's entry.
    pub(crate) fn block_of(&self, at: usize) -> usize {
        at / self.entries_per_block()
    }
    pub(crate) fn block_offset(&self, number: usize) -> u64 {
        self.directory + (number * self.block) as u64
    }
    fn places_of(&self, number: usize) -> std::ops::Range<usize> {
        let first = number * self.entries_per_block();
        first..self.places.min(first + self.entries_per_block())
    }

    /// Composes a block of the directory as it is now: places without a written image are empty.
    pub(crate) fn compose(&self, cache: CacheId, state: &State, number: usize, out: &mut [u8]) {
        out.fill(0);
        for (at, out) in self.places_of(number).zip(out.chunks_mut(ENTRY_BYTES)) {
            if let Some(place) = state.place(at).filter(|place| place.waiting.is_none()) {
                out.copy_from_slice(&encode(cache, at, place.page, place.version, place.checksum));
            }
        }
    }

    /// Loads the directory: place, page, version and checksum of each image. Entries that are not
    /// whole are empty.
    pub(crate) fn load(
        &self,
        device: &dyn Device,
        cache: CacheId,
    ) -> Result<Vec<(usize, PageId, Lsn, u32)>, TierError> {
        let bytes = (self.places * ENTRY_BYTES).next_multiple_of(self.block);
        let mut found = Vec::new();
        let chunk = CHUNK_BYTES.next_multiple_of(self.block).min(bytes);
        let mut buf = AlignedBuf::zeroed(chunk);
        for begin in (0..bytes).step_by(chunk) {
            let part = &mut buf[..chunk.min(bytes - begin)];
            device.read(self.directory + begin as u64, part)?;
            for (index, entry) in part.chunks(ENTRY_BYTES).enumerate() {
                let at = begin / ENTRY_BYTES + index;
                found.extend(
                    decode(cache, at, entry).map(|(page, version, checksum)| (at, page, version, checksum)),
                );
            }
        }
        found.retain(|(at, ..)| *at < self.places);
        Ok(found)
    }
}

fn entry_checksum(cache: CacheId, at: usize, checked: &[u8]) -> u32 {
    Crc32c::new().with(&cache.0).with(&(at as u64).to_le_bytes()).with(checked).value()
}

fn encode(cache: CacheId, at: usize, page: PageId, version: Lsn, checksum: u32) -> [u8; ENTRY_BYTES] {
    let mut out = Vec::with_capacity(ENTRY_BYTES);
    out.put_u64(page.0);
    out.put_u64(version.0);
    out.put_u32(checksum);
    out.put_u64(0);
    out.put_u32(entry_checksum(cache, at, &out));
    out.try_into().expect("an entry has its length")
}

fn decode(cache: CacheId, at: usize, bytes: &[u8]) -> Option<(PageId, Lsn, u32)> {
    let reader = &mut Reader::new(bytes);
    let (page, version) = (reader.u64().ok()?, reader.u64().ok()?);
    let checksum = reader.u32().ok()?;
    reader.u64().ok()?;
    let whole = reader.u32().ok()? == entry_checksum(cache, at, &bytes[..CHECKED_BYTES]);
    (whole && page != 0).then_some((PageId(page), Lsn(version), checksum))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CACHE: CacheId = CacheId([8; 16]);

    #[test]
    fn an_entry_has_golden_bytes_and_is_of_its_place_and_cache() {
        let bytes = encode(CACHE, 5, PageId(0x1234), Lsn(0x5678), 0x9abc_def0);
        let mut golden = vec![0x34, 0x12, 0, 0, 0, 0, 0, 0, 0x78, 0x56, 0, 0, 0, 0, 0, 0];
        golden.extend([0xf0, 0xde, 0xbc, 0x9a, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[..CHECKED_BYTES], golden);
        assert_eq!(decode(CACHE, 5, &bytes), Some((PageId(0x1234), Lsn(0x5678), 0x9abc_def0)));
        assert_eq!(decode(CACHE, 6, &bytes), None, "of another place");
        assert_eq!(decode(CacheId([9; 16]), 5, &bytes), None, "of another cache");
        assert_eq!(decode(CACHE, 5, &[0; ENTRY_BYTES]), None, "empty");
        for at in 0..ENTRY_BYTES {
            let mut bad = bytes;
            bad[at] ^= 4;
            assert_eq!(decode(CACHE, 5, &bad), None, "byte {at}");
        }
    }

    #[test]
    fn a_layout_fills_its_bytes_and_no_more() {
        for block in [512, 4096] {
            for bytes in [8192, 20_000, 100_000, 1_000_000, 12_345_678] {
                for listed in [false, true] {
                    let layout = Layout::fit(block, 4096, bytes, listed);
                    assert!(layout.places == 0 || layout.end() <= bytes);
                    let more = Layout::new(block, 4096, layout.places + 1, listed);
                    assert!(more.end() > bytes, "{bytes}: {layout:?} could have a place more");
                    if listed && layout.places > 0 {
                        let last = layout.block_of(layout.places - 1);
                        assert!(layout.block_offset(last) + block as u64 <= layout.image_offset(0));
                    }
                }
            }
        }
    }
}
