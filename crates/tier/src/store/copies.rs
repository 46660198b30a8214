//! What an array under the store has to know of it: how the file is cut, and which copy of a piece
//! of metadata is whole and newest.

use super::geometry::{FIXED_SLOT_STRIDE, Geometry, Slot, entries_per_map};
use super::header::{HEADER_BYTES, Header};
use super::map_block;
use super::meta_page::{self, MetaId};
use super::options::Layout;
use crate::error::TierError;
use firndb_array::Shape;
use firndb_base::DatabaseId;
use firndb_device::Device;

/// How the file of a store with pages of this size is cut.
///
/// Errors: as [`super::Store::create_with`] with these.
pub fn shape(page_size: usize, layout: Layout) -> Result<Shape, TierError> {
    Ok(Geometry::new(page_size, layout)?.shape())
}

/// The sequence of a whole piece of metadata of `database`; `None` if the bytes are none that
/// belong there. For [`firndb_array::Judge`].
#[must_use]
pub fn judge(database: DatabaseId, shape: &Shape, offset: u64, bytes: &[u8]) -> Option<u64> {
    let geometry = Geometry::of_shape(shape)?;
    match geometry.meta_at(offset) {
        MetaAt::Header(slot) => {
            let header = Header::decode("", slot, bytes.get(..HEADER_BYTES)?)?.ok()?;
            (header.database == database).then_some(header.sequence)
        }
        MetaAt::Page(id, slot) => {
            meta_page::sequence_of(database, id, slot, bytes.get(..geometry.meta_bytes)?)
        }
        MetaAt::Block(number) => {
            let block = map_block::decode(database, bytes.get(..geometry.meta_bytes)?)?;
            (block.spot.block == number).then_some(block.spot.sequence)
        }
        MetaAt::Padding => None,
    }
}

/// Bytes that the store on `device` has by its header; `None` if there is no header. For
/// [`firndb_array::Length`].
#[must_use]
pub fn length(database: DatabaseId, device: &dyn Device) -> Option<u64> {
    let (header, _) = Header::load(device, database).ok()?;
    Geometry::new(header.page_size, header.layout).ok()?.group_offset(header.groups)
}

/// What lies at an offset of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MetaAt {
    Header(Slot),
    Page(MetaId, Slot),
    Block(u64),
    Padding,
}

impl Geometry {
    fn shape(&self) -> Shape {
        Shape {
            page_bytes: self.page_size as u64,
            meta_bytes: self.meta_bytes as u64,
            slot_bytes: FIXED_SLOT_STRIDE,
            slots_end: 4 * FIXED_SLOT_STRIDE,
            groups_start: self.groups_start,
            group_bytes: self.group_bytes,
            places_start: self.places_start,
            places: self.places_per_group,
        }
    }

    /// `None` if it is of no store.
    fn of_shape(shape: &Shape) -> Option<Geometry> {
        let meta_bytes = usize::try_from(shape.meta_bytes).ok()?;
        let entries = entries_per_map(meta_bytes);
        let maps_per_group = u32::try_from(shape.places.checked_div(entries)?).ok()?;
        let layout = Layout { meta_bytes, maps_per_group };
        let geometry = Geometry::new(usize::try_from(shape.page_bytes).ok()?, layout).ok()?;
        (geometry.shape() == *shape).then_some(geometry)
    }

    fn meta_at(&self, offset: u64) -> MetaAt {
        let meta_bytes = self.meta_bytes as u64;
        let fixed = offset / FIXED_SLOT_STRIDE;
        if fixed < 4 {
            return match fixed {
                0 => MetaAt::Header(Slot::A),
                1 => MetaAt::Header(Slot::B),
                2 => MetaAt::Page(MetaId::Totals, Slot::A),
                _ => MetaAt::Page(MetaId::Totals, Slot::B),
            };
        }
        let Some(within) = offset.checked_sub(self.groups_start) else {
            let block = (offset - 4 * FIXED_SLOT_STRIDE) / meta_bytes;
            return if block < self.blocks(0) { MetaAt::Block(block) } else { MetaAt::Padding };
        };
        let group = within / self.group_bytes;
        let index = within % self.group_bytes / meta_bytes;
        let pages = 2 * (1 + self.maps_per_group);
        let slot = if index.is_multiple_of(2) { Slot::A } else { Slot::B };
        match index {
            0 | 1 => MetaAt::Page(MetaId::Bitmap(group), slot),
            _ if index < pages => {
                let map = group * self.maps_per_group + (index - 2) / 2;
                MetaAt::Page(MetaId::Map(map), slot)
            }
            _ if index < pages + self.blocks_per_group => MetaAt::Block(self.blocks(group) + index - pages),
            _ => MetaAt::Padding,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_found_by_its_offset() {
        for (page_size, meta_bytes, maps_per_group) in
            [(4096, 4096, 24), (512, 512, 2), (65536, 4096, 3), (512, 4096, 1)]
        {
            let g = Geometry::new(page_size, Layout { meta_bytes, maps_per_group }).unwrap();
            assert_eq!(Geometry::of_shape(&g.shape()), Some(g));
            for slot in [Slot::A, Slot::B] {
                assert_eq!(g.meta_at(Geometry::header_offset(slot)), MetaAt::Header(slot));
                let of_groups = (0..3).flat_map(|group| meta_page::pages_of_group(&g, group));
                for id in of_groups.chain([MetaId::Totals]) {
                    assert_eq!(g.meta_at(g.meta_offset(id, slot)), MetaAt::Page(id, slot));
                }
            }
            for block in 0..g.blocks(3) {
                assert_eq!(g.meta_at(g.block_offset(block)), MetaAt::Block(block));
            }
        }
    }

    #[test]
    fn the_newest_whole_copy_is_told_from_what_belongs_elsewhere() {
        let layout = Layout { meta_bytes: 512, maps_per_group: 2 };
        let (g, database) = (Geometry::new(512, layout).unwrap(), DatabaseId([4; 16]));
        let (id, mut page) = (MetaId::Map(3), vec![0; 512]);
        meta_page::encode(database, id, firndb_base::Lsn(9), 7, &vec![1; g.body_bytes()], &mut page);
        let at = g.meta_offset(id, Slot::A);
        let judged = |offset, page: &[u8]| judge(database, &g.shape(), offset, page);
        assert_eq!(judged(at, &page), Some(7));
        assert_eq!(judged(g.meta_offset(MetaId::Map(2), Slot::A), &page), None);
        assert_eq!(judged(g.meta_offset(id, Slot::B), &page), None, "odd sequences lie in A");
        assert_eq!(judge(DatabaseId([5; 16]), &g.shape(), at, &page), None);
        page[300] ^= 1;
        assert_eq!(judged(at, &page), None);
        assert_eq!(judged(at, &[0; 512]), None);
        assert_eq!(judged(g.block_offset(3), &[0; 512]), None);
        assert_eq!(judged(0, &[0; 4096]), None);
    }
}
