//! The group being filled, in memory.

use super::geometry::{Geometry, SEAL_BYTES, Serial};
use super::group::{Entry, GroupHeader, Seal, Since};
use crate::page_cache::header::CacheId;
use firndb_device::AlignedBuf;

/// Images that wait for their group to be written. Readers find them here until the group is
/// durable.
pub(crate) struct OpenGroup {
    pub(crate) serial: Serial,
    pub(crate) entries: Vec<Entry>,
    buf: AlignedBuf,
}

impl OpenGroup {
    pub(crate) fn new(geometry: &Geometry, serial: Serial) -> OpenGroup {
        let entries = Vec::with_capacity(geometry.group_pages);
        OpenGroup { serial, entries, buf: AlignedBuf::zeroed(geometry.group_bytes) }
    }

    /// Begins the next group.
    pub(crate) fn begin(&mut self, serial: Serial) {
        self.serial = serial;
        self.entries.clear();
    }

    /// Adds a sealed image; returns its index. The group must not be full.
    pub(crate) fn push(
        &mut self,
        geometry: &Geometry,
        cache: CacheId,
        (entry, since): (Entry, Since),
        image: &[u8],
    ) -> usize {
        assert!(self.entries.len() < geometry.group_pages && image.len() == geometry.page_size);
        let index = self.entries.len();
        let at = geometry.image_at(index);
        let seal = Seal { page: entry.page, version: entry.version, serial: self.serial, since };
        seal.write(cache, image, &mut self.buf[at..at + SEAL_BYTES + geometry.page_size]);
        self.entries.push(entry);
        index
    }
    /// Removes the last image.
    pub(crate) fn pop(&mut self) {
        self.entries.pop();
    }

    /// The image of entry `index`.
    pub(crate) fn image(&self, geometry: &Geometry, index: usize) -> &[u8] {
        let at = geometry.image_at(index) + SEAL_BYTES;
        &self.buf[at..at + geometry.page_size]
    }

    /// What is known of the image of entry `index`.
    pub(crate) fn since(&self, geometry: &Geometry, index: usize) -> Since {
        let at = geometry.image_at(index);
        let seal = Seal::parse(&self.buf[at..at + SEAL_BYTES]).expect("this group's own seal");
        assert!(seal.is_of(&self.entries[index], self.serial), "a seal is its entry's");
        seal.since
    }

    /// Writes the header before the images; returns the number of bytes to write.
    pub(crate) fn compose(&mut self, geometry: &Geometry, cache: CacheId, header: &GroupHeader) -> usize {
        assert!(header.entries.len() == self.entries.len() && header.serial == self.serial);
        let images = self.entries.len();
        let len = GroupHeader::len(images, header.tombstones.len());
        if images == 0 {
            self.buf[..len.next_multiple_of(geometry.block)].fill(0);
        } else {
            self.buf[..geometry.header_bytes].fill(0);
            let end = geometry.image_at(images);
            self.buf[end..geometry.used_bytes(images)].fill(0);
        }
        header.write(cache, &mut self.buf);
        if images == 0 { len.next_multiple_of(geometry.block) } else { geometry.used_bytes(images) }
    }
    pub(crate) fn bytes(&self, len: usize) -> &[u8] {
        &self.buf[..len]
    }
}
