//! Layout of the file: pure arithmetic, constant time.
//!
//! ```text
//! 0        64 KiB    128 KiB   192 KiB   256 KiB
//! | header | header  | totals  | totals  | log 0 ... 15 | group 0 | group 1 | ...
//! | slot A | slot B  | slot A  | slot B  |
//!
//! group: | bitmap A | bitmap B | map 0 A | ... | map m-1 B | log 0 ... k-1 | pad | place 0 | ...
//! ```
//! `log`: blocks of the map log, counted through all of the file. Their number grows with the file,
//! as the number of map pages does.
//!
//! The slots of the fixed area are 64 KiB apart so that their offsets do not depend on anything
//! that would have to be read first, and so that no two of them share a block of any device.
//!
//! A group has as many places as its map pages have entries, so place numbers and page numbers have
//! the same range; nothing else ties a page to the group that holds its map entry.

use super::entry::ENTRY_BYTES;
use super::meta_page::{META_HEADER_BYTES, MetaId};
use super::options::Layout;
use crate::error::{TierError, TierErrorKind};
use firndb_base::PageId;
use firndb_device::Device;
use std::fmt;

/// Bytes between the slots of the fixed area.
pub(crate) const FIXED_SLOT_STRIDE: u64 = 64 * 1024;
/// Offset of the map log's first block.
const BLOCKS_START: u64 = 4 * FIXED_SLOT_STRIDE;
/// Blocks of the map log before group 0.
pub(crate) const FIXED_BLOCKS: u64 = 16;
/// Map pages of a group for each of its blocks of the map log, which hold about 170 moves each.
const MAPS_PER_BLOCK: u64 = 3;
/// Bytes before the bits in the body of a bitmap page.
pub(crate) const BITMAP_PREFIX_BYTES: usize = 8;
/// Bound of place numbers: a map entry has 40 bits for one.
pub(crate) const PLACES_MAX: u64 = 1 << 40;
/// Places in a segment, the unit of the search for free space.
pub(crate) const SEGMENT_PLACES: u64 = 64;

/// A physical place for a page: counted through all groups, metadata left out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place(pub u64);

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "place {}", self.0)
    }
}

/// One of the two slots of a metadata page or header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    A,
    B,
}

impl Slot {
    /// The slot in which the version of a metadata page with this sequence lies: the first one lies
    /// in A, and each is written to the slot that does not hold the one before.
    pub(crate) fn of_sequence(sequence: u64) -> Slot {
        if sequence.is_multiple_of(2) { Slot::B } else { Slot::A }
    }
    pub(crate) fn other(self) -> Slot {
        match self {
            Slot::A => Slot::B,
            Slot::B => Slot::A,
        }
    }
    fn index(self) -> u64 {
        match self {
            Slot::A => 0,
            Slot::B => 1,
        }
    }
}

/// The sizes that follow from page size and layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub page_size: usize,
    pub meta_bytes: usize,
    pub maps_per_group: u64,
    pub entries_per_map: u64,
    /// Places, and map entries, of a group.
    pub places_per_group: u64,
    /// Blocks of the map log in a group.
    pub blocks_per_group: u64,
    pub(super) groups_start: u64,
    pub(super) places_start: u64,
    pub(super) group_bytes: u64,
}

impl Geometry {
    pub(crate) fn new(page_size: usize, layout: Layout) -> Result<Geometry, TierError> {
        let bad = |what: String| Err(TierError::new(TierErrorKind::BadArgument, what));
        let size_ok = |size: usize| size.is_power_of_two() && (512..=65536).contains(&size);
        if !size_ok(page_size) {
            return bad(format!("a page size of {page_size} bytes is not a power of two from 512 to 65536"));
        }
        if !size_ok(layout.meta_bytes) {
            return bad(format!(
                "metadata pages of {} bytes are not a power of two from 512 to 65536",
                layout.meta_bytes
            ));
        }
        let body = layout.meta_bytes - META_HEADER_BYTES;
        let entries_per_map = entries_per_map(layout.meta_bytes);
        let maps_per_group = u64::from(layout.maps_per_group);
        let places_per_group = entries_per_map * maps_per_group;
        let bitmap_bytes = 3 * 8 * places_per_group.div_ceil(SEGMENT_PLACES);
        if maps_per_group == 0 || bitmap_bytes > (body - BITMAP_PREFIX_BYTES) as u64 {
            return bad(format!(
                "{maps_per_group} map pages a group do not fit one bitmap page of {} bytes",
                layout.meta_bytes
            ));
        }
        let blocks_per_group = maps_per_group.div_ceil(MAPS_PER_BLOCK);
        let groups_start = BLOCKS_START + FIXED_BLOCKS * layout.meta_bytes as u64;
        let meta_area = (2 * (1 + maps_per_group) + blocks_per_group) * layout.meta_bytes as u64;
        let places_start = meta_area.next_multiple_of(page_size.max(layout.meta_bytes) as u64);
        let group_bytes = (places_start + places_per_group * page_size as u64)
            .next_multiple_of(page_size.max(layout.meta_bytes) as u64);
        Ok(Geometry {
            page_size,
            meta_bytes: layout.meta_bytes,
            maps_per_group,
            entries_per_map,
            places_per_group,
            blocks_per_group,
            groups_start: groups_start.next_multiple_of(FIXED_SLOT_STRIDE),
            places_start,
            group_bytes,
        })
    }

    /// Bytes of a metadata page after its header.
    pub(crate) fn body_bytes(&self) -> usize {
        self.meta_bytes - META_HEADER_BYTES
    }
    /// Segments of a group; the last may be short.
    pub(crate) fn segments(&self) -> usize {
        self.places_per_group.div_ceil(SEGMENT_PLACES) as usize
    }
    /// Bytes of metadata slots at the start of a group.
    pub(crate) fn meta_area_bytes(&self) -> usize {
        2 * (1 + self.maps_per_group as usize) * self.meta_bytes
    }
    /// Offset of `group`, and of the file's end if it has `group` groups. `None` past 2^64 bytes or
    /// the greatest place number.
    pub(crate) fn group_offset(&self, group: u64) -> Option<u64> {
        (group <= PLACES_MAX / self.places_per_group).then_some(())?;
        group.checked_mul(self.group_bytes)?.checked_add(self.groups_start)
    }
    /// Offset of a slot of a metadata page. Its group must exist.
    pub(crate) fn meta_offset(&self, id: MetaId, slot: Slot) -> u64 {
        let (group, index) = match id {
            MetaId::Totals => return (2 + slot.index()) * FIXED_SLOT_STRIDE,
            MetaId::Bitmap(group) => (group, 0),
            MetaId::Map(map) => (map / self.maps_per_group, 1 + map % self.maps_per_group),
        };
        self.group_offset(group).expect("the group exists")
            + (2 * index + slot.index()) * self.meta_bytes as u64
    }
    /// Blocks of the map log in a file of `groups` groups.
    pub(crate) fn blocks(&self, groups: u64) -> u64 {
        FIXED_BLOCKS + groups * self.blocks_per_group
    }
    /// The end of the adjacent blocks of which `block` is one.
    pub(crate) fn adjacent_blocks_end(&self, block: u64) -> u64 {
        match block.checked_sub(FIXED_BLOCKS) {
            None => FIXED_BLOCKS,
            Some(index) => FIXED_BLOCKS + (index / self.blocks_per_group + 1) * self.blocks_per_group,
        }
    }
    /// Offset of a block of the map log. Its group must exist.
    pub(crate) fn block_offset(&self, block: u64) -> u64 {
        let meta_bytes = self.meta_bytes as u64;
        let Some(index) = block.checked_sub(FIXED_BLOCKS) else { return BLOCKS_START + block * meta_bytes };
        let group = self.group_offset(index / self.blocks_per_group).expect("the group exists");
        group + self.meta_area_bytes() as u64 + index % self.blocks_per_group * meta_bytes
    }
    /// Offset of a slot of the header.
    pub(crate) fn header_offset(slot: Slot) -> u64 {
        slot.index() * FIXED_SLOT_STRIDE
    }
    /// Offset of a place. Its group must exist.
    pub(crate) fn place_offset(&self, place: Place) -> u64 {
        let group = self.group_offset(self.group_of_place(place)).expect("the group exists");
        group + self.places_start + self.index_of_place(place) * self.page_size as u64
    }

    pub(crate) fn group_of_place(&self, place: Place) -> u64 {
        place.0 / self.places_per_group
    }
    pub(crate) fn index_of_place(&self, place: Place) -> u64 {
        place.0 % self.places_per_group
    }
    pub(crate) fn group_of_page(&self, page: PageId) -> u64 {
        page.0 / self.places_per_group
    }
    pub(crate) fn index_of_page(&self, page: PageId) -> u64 {
        page.0 % self.places_per_group
    }
    pub(crate) fn map_of_page(&self, page: PageId) -> MetaId {
        MetaId::Map(page.0 / self.entries_per_map)
    }
    pub(crate) fn slot_of_page(&self, page: PageId) -> usize {
        (page.0 % self.entries_per_map) as usize
    }
    pub(crate) fn bitmap_of_page(&self, page: PageId) -> MetaId {
        MetaId::Bitmap(self.group_of_page(page))
    }
    pub(crate) fn bitmap_of_place(&self, place: Place) -> MetaId {
        MetaId::Bitmap(self.group_of_place(place))
    }
    /// The group that holds a metadata page; `None` for the fixed area.
    pub(crate) fn group_of_meta(&self, id: MetaId) -> Option<u64> {
        match id {
            MetaId::Totals => None,
            MetaId::Bitmap(group) => Some(group),
            MetaId::Map(map) => Some(map / self.maps_per_group),
        }
    }
    /// The bits of segment `segment` that represent places.
    pub(crate) fn segment_mask(&self, segment: usize) -> u64 {
        let left = self.places_per_group - segment as u64 * SEGMENT_PLACES;
        if left >= SEGMENT_PLACES { u64::MAX } else { (1 << left) - 1 }
    }
}

/// Entries of a map page of `meta_bytes`, which are more than its header's.
pub(super) fn entries_per_map(meta_bytes: usize) -> u64 {
    ((meta_bytes - META_HEADER_BYTES) / ENTRY_BYTES) as u64
}

/// Checks that pages and metadata pages are whole blocks of the device.
pub(super) fn check_blocks(device: &dyn Device, geometry: &Geometry) -> Result<(), TierError> {
    let block = device.info().logical_block;
    if geometry.page_size < block || geometry.meta_bytes < block {
        let message = format!(
            "{} has blocks of {block} bytes: pages of {} bytes and metadata pages of {} bytes cannot be smaller",
            device.info().name,
            geometry.page_size,
            geometry.meta_bytes
        );
        return Err(TierError::new(TierErrorKind::BadArgument, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps_and_lookups_agree() {
        for (page_size, meta_bytes, maps_per_group) in
            [(4096, 4096, 24), (512, 512, 2), (65536, 4096, 3), (512, 4096, 1)]
        {
            let g = Geometry::new(page_size, Layout { meta_bytes, maps_per_group }).unwrap();
            let mut ranges = Vec::new();
            for slot in [Slot::A, Slot::B] {
                ranges.push((Geometry::header_offset(slot), FIXED_SLOT_STRIDE));
                ranges.push((g.meta_offset(MetaId::Totals, slot), FIXED_SLOT_STRIDE));
                for group in 0..3 {
                    ranges.push((g.meta_offset(MetaId::Bitmap(group), slot), meta_bytes as u64));
                    for map in group * g.maps_per_group..(group + 1) * g.maps_per_group {
                        ranges.push((g.meta_offset(MetaId::Map(map), slot), meta_bytes as u64));
                        assert_eq!(g.group_of_meta(MetaId::Map(map)), Some(group));
                    }
                }
            }
            for block in 0..g.blocks(3) {
                ranges.push((g.block_offset(block), meta_bytes as u64));
            }
            for block in 1..g.blocks(3) {
                let adjacent = g.block_offset(block - 1) + meta_bytes as u64 == g.block_offset(block);
                assert!(adjacent || g.adjacent_blocks_end(block - 1) == block);
            }
            for place in 0..3 * g.places_per_group {
                ranges.push((g.place_offset(Place(place)), page_size as u64));
                assert_eq!(
                    g.group_of_meta(g.map_of_page(PageId(place))),
                    Some(g.group_of_page(PageId(place)))
                );
            }
            ranges.sort_unstable();
            assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
            let (start, len) = *ranges.last().unwrap();
            assert!(start + len <= g.group_offset(3).unwrap());
            assert_eq!(
                (0..g.segments()).map(|s| u64::from(g.segment_mask(s).count_ones())).sum::<u64>(),
                g.places_per_group
            );
        }
    }

    #[test]
    fn sizes_out_of_range_are_refused() {
        for (page_size, meta_bytes, maps_per_group) in
            [(100, 4096, 1), (4096, 256, 1), (4096, 4096, 0), (4096, 512, 4096), (131_072, 4096, 1)]
        {
            assert!(Geometry::new(page_size, Layout { meta_bytes, maps_per_group }).is_err());
        }
    }
}
