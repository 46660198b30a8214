//! Layout of the cache's device: arithmetic.
//!
//! ```text
//! | header A | header B | segments | group 0 | group 1 | ... |
//! group:   | its header, entries, tombstones | seal, image | seal, image | ... | pad |
//! ```
//!
//! Groups are numbered by *serials*, from 1 through all laps; the group of serial `n` lies in place
//! `n mod groups`. A *slot* is a place for one image, counted through all groups.

use crate::error::{TierError, TierErrorKind};
use crate::page_cache::header::CacheHeader;
use firndb_base::PageId;

/// Number of a group, from 1, through all laps. Never used twice in one cache, except for a last
/// group that a crash tore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Serial(pub u64);

impl Serial {
    /// Serial of a cache's first group.
    pub const FIRST: Serial = Serial(1);

    pub fn next(self) -> Serial {
        Serial(self.0 + 1)
    }
    pub fn previous(self) -> Serial {
        Serial(self.0 - 1)
    }
}

/// A place for an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot(pub u32);

/// Bytes of the seal before each image.
pub(crate) const SEAL_BYTES: usize = 56;
/// Bytes of a group's header before its entries.
pub(crate) const GROUP_HEAD_BYTES: usize = 64;
/// Bytes of an entry in a group's header and in a segment.
pub(crate) const ENTRY_BYTES: usize = 16;
/// Bytes of a tombstone.
pub(crate) const TOMBSTONE_BYTES: usize = 8;
/// Bytes of a segment before its body.
pub(crate) const SEGMENT_HEAD_BYTES: usize = 64;
/// Bytes of the counts of one group in a segment.
pub(crate) const SEGMENT_GROUP_BYTES: usize = 8;
/// Tombstones for which a full group of images has space, at least.
const TOMBSTONES_LEAST: usize = 16;
/// Fewest groups of a cache: the open one, one that is being replaced, and something to hit.
pub(crate) const GROUPS_MIN: u64 = 8;
/// Most pages of one segment: the paper's 64,000 entries.
const SEGMENT_PAGES_MAX: u64 = 64 << 10;
/// Fewest segments, so that what is read without them after a crash stays a small part.
const SEGMENTS_LEAST: u64 = 8;
/// Most slots: slot numbers are 32-bit words in the directory.
const SLOTS_MAX: u64 = u32::MAX as u64 - 1;

/// The layout of one cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub page_size: usize,
    /// Unit of transfers in bytes.
    pub block: usize,
    /// Most images in a group.
    pub group_pages: usize,
    pub groups: u64,
    /// Groups in a segment; divides `groups`.
    pub segment_groups: u64,
    /// Bytes of a group's header, entries and tombstones; whole blocks.
    pub header_bytes: usize,
    /// Bytes of a group; whole blocks.
    pub group_bytes: usize,
    /// Bytes of a segment's place; whole blocks.
    pub segment_bytes: usize,
    segments_at: u64,
    groups_at: u64,
}

impl Geometry {
    /// The layout that a header describes.
    pub(crate) fn of(header: &CacheHeader) -> Result<Geometry, TierError> {
        Geometry::new(
            header.page_size as usize,
            header.block as usize,
            header.group_pages as usize,
            header.groups,
        )
    }

    /// The layout of a cache of `groups` groups. All arguments may come from a device, and are
    /// checked.
    pub(crate) fn new(
        page_size: usize,
        block: usize,
        group_pages: usize,
        groups: u64,
    ) -> Result<Geometry, TierError> {
        let refuse = |message: String| Err(TierError::new(TierErrorKind::BadArgument, message));
        if !page_size.is_power_of_two() || !(512..=65536).contains(&page_size) {
            return refuse(format!("a cache for pages of {page_size} bytes is not possible"));
        }
        if !block.is_power_of_two() || !(512..=65536).contains(&block) {
            return refuse(format!("a cache in blocks of {block} bytes is not possible"));
        }
        if !(1..=1024).contains(&group_pages) {
            return refuse(format!(
                "a cache with groups of {group_pages} pages is not possible: use 1 to 1024"
            ));
        }
        if groups < GROUPS_MIN || groups.checked_mul(group_pages as u64).is_none_or(|slots| slots > SLOTS_MAX)
        {
            return refuse(format!("a cache of {groups} groups of {group_pages} pages is not possible"));
        }
        let segment_groups = segment_groups(group_pages, groups);
        if !groups.is_multiple_of(segment_groups) {
            return refuse(format!(
                "a cache of {groups} groups in segments of {segment_groups} is not possible"
            ));
        }
        let header_bytes =
            (GROUP_HEAD_BYTES + group_pages * ENTRY_BYTES + TOMBSTONES_LEAST * TOMBSTONE_BYTES)
                .next_multiple_of(block);
        let group_bytes = (header_bytes + group_pages * (SEAL_BYTES + page_size)).next_multiple_of(block);
        let mut geometry = Geometry {
            page_size,
            block,
            group_pages,
            groups,
            segment_groups,
            header_bytes,
            group_bytes,
            segment_bytes: 0,
            segments_at: 2 * CacheHeader::slot_bytes(block) as u64,
            groups_at: 0,
        };
        let each = SEGMENT_GROUP_BYTES
            + group_pages * ENTRY_BYTES
            + geometry.tombstones_beside(group_pages) * TOMBSTONE_BYTES;
        geometry.segment_bytes =
            (SEGMENT_HEAD_BYTES + segment_groups as usize * each).next_multiple_of(block);
        geometry.groups_at = geometry.segments_at + geometry.segments() * geometry.segment_bytes as u64;
        Ok(geometry)
    }

    /// The largest layout that fits `bytes`.
    pub(crate) fn fit(
        page_size: usize,
        block: usize,
        group_pages: usize,
        bytes: u64,
    ) -> Result<Geometry, TierError> {
        let least = Geometry::new(page_size, block, group_pages, GROUPS_MIN)?;
        let mut groups = (bytes / least.group_bytes as u64).min(SLOTS_MAX / group_pages as u64);
        while groups >= GROUPS_MIN {
            groups -= groups % segment_groups(group_pages, groups);
            if groups < GROUPS_MIN {
                break;
            }
            // The rounding may have changed the right segment size.
            if groups.is_multiple_of(segment_groups(group_pages, groups)) {
                let geometry = Geometry::new(page_size, block, group_pages, groups)?;
                if geometry.end() <= bytes {
                    return Ok(geometry);
                }
                let over = geometry.end() - bytes;
                groups -= (over / geometry.group_bytes as u64).clamp(1, groups / 16 + 1).min(groups);
            } else {
                groups -= 1;
            }
        }
        Err(TierError::new(
            TierErrorKind::BadArgument,
            format!(
                "a flash cache of {bytes} bytes is too small for pages of {page_size} bytes in groups of {group_pages}: \
                 give it at least {}",
                least.end()
            ),
        ))
    }

    /// Bytes of the device that the cache uses.
    pub(crate) fn end(&self) -> u64 {
        self.groups_at + self.groups * self.group_bytes as u64
    }
    /// Number of places for images.
    pub(crate) fn slots(&self) -> usize {
        (self.groups * self.group_pages as u64) as usize
    }
    pub(crate) fn segments(&self) -> u64 {
        self.groups / self.segment_groups
    }
    /// Tombstones for which a group of `images` images has space. A group without images is all
    /// tombstones.
    pub(crate) fn tombstones_beside(&self, images: usize) -> usize {
        let bytes = if images == 0 { self.group_bytes } else { self.header_bytes - images * ENTRY_BYTES };
        (bytes - GROUP_HEAD_BYTES) / TOMBSTONE_BYTES
    }

    pub(crate) fn group_offset(&self, serial: Serial) -> u64 {
        self.groups_at + serial.0 % self.groups * self.group_bytes as u64
    }
    /// Offset in its group of image `index`, its seal included.
    pub(crate) fn image_at(&self, index: usize) -> usize {
        self.header_bytes + index * (SEAL_BYTES + self.page_size)
    }
    /// Bytes of a group up to the end of its first `images` images; whole blocks.
    pub(crate) fn used_bytes(&self, images: usize) -> usize {
        self.image_at(images).next_multiple_of(self.block)
    }
    /// The segment to which a group belongs, counted through all laps.
    pub(crate) fn segment_of(&self, serial: Serial) -> u64 {
        serial.0 / self.segment_groups
    }
    pub(crate) fn segment_offset(&self, segment: u64) -> u64 {
        self.segments_at + segment % self.segments() * self.segment_bytes as u64
    }

    pub(crate) fn first_slot(&self, serial: Serial) -> Slot {
        Slot((serial.0 % self.groups * self.group_pages as u64) as u32)
    }
    pub(crate) fn slot(&self, serial: Serial, index: usize) -> Slot {
        debug_assert!(index < self.group_pages);
        Slot(self.first_slot(serial).0 + index as u32)
    }
    pub(crate) fn index_of(&self, slot: Slot) -> usize {
        slot.0 as usize % self.group_pages
    }
    /// The youngest group that `slot` belongs to while the group being filled is `rear`.
    pub(crate) fn serial_of(&self, slot: Slot, rear: Serial) -> Option<Serial> {
        let place = u64::from(slot.0) / self.group_pages as u64;
        let back = (rear.0 % self.groups + self.groups - place) % self.groups;
        rear.0.checked_sub(back).map(Serial)
    }
    /// Whether the page number fits into the directory's words. Other pages by-pass the cache.
    pub(crate) fn can_hold(page: PageId) -> bool {
        page.0 != 0 && page.0 >> super::word::PAGE_BITS == 0
    }
}

fn segment_groups(group_pages: usize, groups: u64) -> u64 {
    (groups / SEGMENTS_LEAST).min(SEGMENT_PAGES_MAX / group_pages as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_an_erase_block_carry_little_beside_their_images() {
        let geometry = Geometry::fit(4096, 512, 64, 1 << 30).unwrap();
        assert_eq!(geometry.header_bytes, 1536);
        assert_eq!(geometry.group_bytes, 1536 + 64 * 4152);
        assert!(geometry.end() <= 1 << 30);
        assert!(geometry.slots() * 4096 > (1 << 30) / 100 * 97, "{} slots", geometry.slots());
        assert!(geometry.tombstones_beside(64) >= 16 && geometry.tombstones_beside(0) > 30_000);
    }

    #[test]
    fn every_size_fits_or_is_refused_and_slots_know_their_groups() {
        for bytes in (10_000..200_000).step_by(3_777).chain([1 << 20, 77_777_777]) {
            for group_pages in [1, 3, 8, 64] {
                for block in [512, 4096] {
                    let Ok(geometry) = Geometry::fit(1024, block, group_pages, bytes) else { continue };
                    assert!(geometry.end() <= bytes, "{geometry:?} in {bytes}");
                    assert_eq!(
                        Geometry::new(1024, block, group_pages, geometry.groups),
                        Ok(geometry),
                        "the same from the header"
                    );
                    for rear in [1, 2, geometry.groups, geometry.groups + 1, 5 * geometry.groups + 3] {
                        for back in 0..geometry.groups.min(rear) {
                            let serial = Serial(rear - back);
                            let slot = geometry.slot(serial, group_pages - 1);
                            assert_eq!(geometry.serial_of(slot, Serial(rear)), Some(serial));
                        }
                    }
                }
            }
        }
        assert!(Geometry::fit(4096, 512, 64, 1 << 20).is_err());
        assert!(Geometry::new(4096, 512, 64, u64::MAX).is_err());
        assert!(Geometry::new(4097, 512, 64, 64).is_err());
    }
}
