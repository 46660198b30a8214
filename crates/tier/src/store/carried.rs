//! Carrying on what damaged metadata pages lack.
//!
//! The sweep cannot write a map or bitmap page that cannot be read. What such a page lacks stays in
//! memory, and each circle of the sweep appends it to the map log once more, as one *carried*
//! frame, so that the blocks before can be dropped: the damage concerns the page, and the map log
//! does not fill up for its sake.
//!
//! Invariants:
//! * A carried frame at LSN l has all that the records up to l change in its page and the device's
//!   version lacks. Redo takes it whole, whatever came before, and leaves out what records up to l
//!   say of the page: so its place among other frames does not matter.
//! * The block that has it is dropped only after the sweep has come to the page again: it is marked
//!   with the end of its round.
//!
//! ```text
//! body: u8 kind, varint number of the page, as in its header; then
//!   map page:    varint count, as many (varint slot, entry of 24 bytes)
//!   bitmap page: u8 backing (0 as before, 1 no space, 2 space), varint count, as many
//!                (u8 map, varint segment, u64 bits changed, u64 their values)
//! ```

use super::bitmap::Which;
use super::deferred::{Bits, Segments};
use super::entry::{ENTRY_BYTES, Entry};
use super::geometry::Geometry;
use super::map_block::Frame;
use super::meta_page::MetaId;
use super::state::State;
use firndb_base::codec::{Malformed, Reader, Writer};
use firndb_base::{Lsn, PageId};
use std::collections::BTreeMap;

/// Kind of a carried frame: of the map log only, no record of the log has it.
pub(crate) const CARRIED: u8 = 0x1f;

const MAPS: [Which; 3] = [Which::Places, Which::Pages, Which::Deltas];
const BITS: &str = "carried bits that a group does not have";

/// During redo: the pages that were carried on, with the frame's LSN.
#[derive(Debug, Default)]
pub(crate) struct Carried(BTreeMap<MetaId, Lsn>);

impl Carried {
    /// Whether a carried frame contains what the record at `lsn` says of the page.
    pub(crate) fn contains(&self, id: MetaId, lsn: Lsn) -> bool {
        self.0.get(&id).is_some_and(|carried| lsn <= *carried)
    }
    /// The newest record that a carried frame contains.
    pub(crate) fn newest(&self) -> Lsn {
        self.0.values().copied().max().unwrap_or(Lsn::ZERO)
    }
}

impl State {
    /// Appends to `out` a frame of what a page lacks that cannot be read.
    pub(crate) fn carry(&self, geometry: &Geometry, id: MetaId, out: &mut Vec<u8>) {
        let mut body = vec![id.kind()];
        body.put_varint(id.number());
        match id {
            MetaId::Map(map) => {
                let entries: Vec<(PageId, Entry)> = self.overlay.of_map(map).collect();
                body.put_varint(entries.len() as u64);
                for (page, entry) in entries {
                    body.put_varint(geometry.slot_of_page(page) as u64);
                    let mut bytes = [0; ENTRY_BYTES];
                    entry.write(&mut bytes, 0);
                    body.extend_from_slice(&bytes);
                }
            }
            MetaId::Bitmap(group) => {
                let (backed, segments) = self.deferred.of_group(group);
                body.put_u8(backed.map_or(0, |backed| 1 + u8::from(backed)));
                body.put_varint(segments.len() as u64);
                for ((which, segment), bits) in segments {
                    body.put_u8(which as u8);
                    body.put_varint(segment as u64);
                    body.put_u64(bits.changed);
                    body.put_u64(bits.values);
                }
            }
            MetaId::Totals => unreachable!("the totals page is in memory"),
        }
        Frame { lsn: self.map_log.last(), kind: CARRIED, body: &body }.write(out);
    }

    /// Takes a carried frame. It is left out, as records are, if its group was cut off since.
    pub(crate) fn redo_carried(
        &mut self,
        geometry: &Geometry,
        frame: Frame<'_>,
        shrunk_at: Lsn,
    ) -> Result<(), Malformed> {
        let mut reader = Reader::new(frame.body);
        let (kind, number) = (reader.u8()?, reader.varint()?);
        let id = [MetaId::Bitmap(number), MetaId::Map(number)].into_iter().find(|id| id.kind() == kind);
        let id = id.ok_or(Malformed { what: "a carried page of no kind" })?;
        let group = match id {
            MetaId::Map(map) => map / geometry.maps_per_group,
            _ => number,
        };
        if group >= self.space.groups() {
            return match frame.lsn < shrunk_at {
                true => Ok(()),
                false => Err(Malformed { what: "a carried page of no group" }),
            };
        }
        match id {
            MetaId::Map(map) => {
                for _ in 0..reader.varint_max(geometry.entries_per_map as usize)? {
                    let slot = reader.varint()?;
                    if slot >= geometry.entries_per_map {
                        return Err(Malformed { what: "a carried entry beyond its page" });
                    }
                    let entry = Entry::read(reader.bytes(ENTRY_BYTES)?, 0)?;
                    self.overlay.set(PageId(map * geometry.entries_per_map + slot), entry);
                }
            }
            _ => self.redo_carried_bits(geometry, group, frame.lsn, &mut reader)?,
        }
        self.carried.0.insert(id, frame.lsn);
        self.share_the_budget();
        Ok(())
    }

    fn redo_carried_bits(
        &mut self,
        geometry: &Geometry,
        group: u64,
        lsn: Lsn,
        reader: &mut Reader<'_>,
    ) -> Result<(), Malformed> {
        let backed = match reader.u8()? {
            0 => None,
            known @ 1..=2 => Some(known == 2),
            _ => return Err(Malformed { what: BITS }),
        };
        let mut segments = Segments::new();
        for _ in 0..reader.varint_max(MAPS.len() * geometry.segments())? {
            let which = *MAPS.get(usize::from(reader.u8()?)).ok_or(Malformed { what: BITS })?;
            let segment = reader.varint_max(geometry.segments() - 1)?;
            let (changed, values) = (reader.u64()?, reader.u64()?);
            if changed & !geometry.segment_mask(segment) != 0 {
                return Err(Malformed { what: BITS });
            }
            segments.insert((which, segment), Bits { changed, values });
        }
        self.deferred.put(group, lsn, backed, segments);
        Ok(())
    }
}
