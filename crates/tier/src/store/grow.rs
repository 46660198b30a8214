//! Formatting, and extending the file by whole groups.
//!
//! Why a crash while growing is harmless: the device is longer when `grow` returns; the new groups'
//! metadata pages are written and synced; only then the header counts the groups, first in its
//! older slot. Before that nothing names them, and the next growth formats them again.
//!
//! A device that kept what was cut off is that long already, perhaps with holes there: then all of
//! the new groups is written with zeros first, so that they have space when the header counts them.
//! A raw device has its space; but metadata pages of former groups there have higher sequences, and
//! would count if the write of new ones were lost. So zeros are durable in their place before.

use super::bitmap;
use super::geometry::{Geometry, Slot};
use super::give_back::Search;
use super::header::{self, Header};
use super::map_block::Anchor;
use super::meta_page::{self, MetaId};
use super::options::Layout;
use super::state::Store;
use super::totals::{self, Totals};
use crate::error::{TierError, TierErrorKind};
use firndb_base::{DatabaseId, Lsn};
use firndb_device::{AlignedBuf, Device, Durability, Fill};

/// The file grows by about a sixteenth, but by no more groups than this at a time.
const GROW_GROUPS_MAX: u64 = 16;

/// Formats `device` as the store of `database`, with one group.
pub(crate) fn format(
    device: &dyn Device,
    database: DatabaseId,
    geometry: &Geometry,
    layout: Layout,
) -> Result<Header, TierError> {
    let end = geometry.group_offset(1).expect("one group is no 2^64 bytes");
    device.grow(end, Fill::Reserved)?;
    let blank = AlignedBuf::zeroed(header::slot_bytes(device));
    for slot in [Slot::A, Slot::B] {
        // Until the new header is written, the device is no store any more. A slot that holds a
        // mark of the device's owner instead is left as it is.
        let mut found = AlignedBuf::zeroed(blank.len());
        device.read(Geometry::header_offset(slot), &mut found)?;
        if Header::is_begun(&found) {
            device.write(Geometry::header_offset(slot), &blank, Durability::Later)?;
        }
    }
    device.sync()?;
    let mut body = vec![0; geometry.body_bytes()];
    Totals::default().write(&mut body);
    totals::announce(&mut body, Anchor::NEW, &[]);
    let mut page = AlignedBuf::zeroed(2 * geometry.meta_bytes);
    meta_page::encode_fresh(database, MetaId::Totals, Lsn::ZERO, &body, &mut page);
    for (slot, bytes) in [Slot::A, Slot::B].into_iter().zip(page.chunks(geometry.meta_bytes)) {
        device.write(geometry.meta_offset(MetaId::Totals, slot), bytes, Durability::Later)?;
    }
    let first = geometry.block_offset(Anchor::NEW.first.block);
    device.write(first, &AlignedBuf::zeroed(geometry.meta_bytes), Durability::Later)?;
    format_group(device, database, geometry, 0, Lsn::ZERO)?;
    device.sync()?;
    let header = Header {
        database,
        page_size: geometry.page_size,
        layout,
        groups: 1,
        shrunk_at: Lsn::ZERO,
        sequence: 1,
        slot: Slot::A,
    };
    header.store_both(device)
}

/// Writes the metadata pages of a new group, with an LSN as if they contained all records up to
/// `lsn`; not synced.
fn format_group(
    device: &dyn Device,
    database: DatabaseId,
    geometry: &Geometry,
    group: u64,
    lsn: Lsn,
) -> Result<(), TierError> {
    let mut area = AlignedBuf::zeroed(geometry.meta_area_bytes());
    let empty = vec![0; geometry.body_bytes()];
    for (id, out) in meta_page::pages_of_group(geometry, group).zip(area.chunks_mut(2 * geometry.meta_bytes))
    {
        match id {
            MetaId::Bitmap(_) => {
                meta_page::encode_fresh(database, id, lsn, &bitmap::fresh(geometry, group), out);
            }
            _ => meta_page::encode_fresh(database, id, lsn, &empty, out),
        }
    }
    device.write(geometry.meta_offset(MetaId::Bitmap(group), Slot::A), &area, Durability::Later)?;
    Ok(())
}

impl Store {
    /// Adds places with space: from a group that returned its space, or from the device. `seen` is
    /// the number of places with space that the caller knew: if there are more by now, does
    /// nothing, or each of the threads that waited would add some. Fails with `Full` if the device
    /// has no space, and `search` finds no group that returned it.
    pub(crate) fn add_space(&self, seen: u64, search: Search) -> Result<(), TierError> {
        self.add_groups(seen, GROW_GROUPS_MAX, search)
    }

    /// As [`Store::add_space`], by `most` groups at most.
    pub(crate) fn add_groups(&self, seen: u64, most: u64, search: Search) -> Result<(), TierError> {
        self.poison.check()?;
        let mut header = self.growth.lock();
        {
            let mut state = self.state.lock();
            // What is being emptied is needed after all.
            if self.backed_places(&mut state) > seen || state.space.open_closed() {
                return Ok(());
            }
        }
        if self.back_one_group(Search::KnownAndSome)? {
            return Ok(());
        }
        let wish = (header.groups / 16).clamp(1, most);
        let grown = match self.grow(&mut header, wish) {
            Err(error) if error.kind == TierErrorKind::Full && wish > 1 => self.grow(&mut header, 1),
            other => other,
        };
        match grown {
            Err(error) if error.kind == TierErrorKind::Full && search == Search::Everywhere => {
                if self.back_one_group(Search::Everywhere)? { Ok(()) } else { Err(error) }
            }
            other => other,
        }
    }

    pub(crate) fn grow(&self, header: &mut Header, by: u64) -> Result<(), TierError> {
        let groups = header.groups + by;
        let end = self
            .geometry
            .group_offset(groups)
            .filter(|end| *end < i64::MAX as u64 && groups < u64::from(u32::MAX));
        let end = end.ok_or_else(|| {
            TierError::new(TierErrorKind::Full, "the store has reached the largest size its format allows")
        })?;
        // What was not cut off may have no space, and growing into it would not give it any.
        let is_cut = self.cut_again(header);
        let start = self.geometry.group_offset(header.groups).expect("as large as the file");
        // Of the devices of an array, one may have kept more than the others.
        let may_have_former = self.device.len() > start || header.shrunk_at > Lsn::ZERO;
        self.device.grow(end, Fill::Reserved)?;
        if !is_cut {
            self.write_zeros(start..end)?;
        } else if may_have_former {
            let len = self.geometry.meta_area_bytes() as u64;
            let starts = (header.groups..groups).map(|group| self.geometry.group_offset(group));
            starts.flatten().try_for_each(|start| self.write_zeros(start..start + len))?;
        }
        if may_have_former {
            self.sync_device()?;
        }
        // A record about an earlier group of this number is durable (see `give_back`), so redo must
        // skip it; a record not yet durable can only concern the new group, so redo must not skip
        // it.
        let lsn = Lsn(self.journal()?.durable().0.saturating_sub(1));
        let formatted = (header.groups..groups)
            .try_for_each(|group| format_group(&*self.device, self.database, &self.geometry, group, lsn));
        if let Err(error) = formatted {
            if error.kind != TierErrorKind::Full {
                self.poison.set(&error);
            }
            return Err(error);
        }
        self.sync_device()?;
        *header = self.store_header(header, groups, header.shrunk_at)?;
        // A raw device may have those of groups that were cut off.
        let codes: Result<Vec<u8>, TierError> =
            (header.groups - by..groups).map(|group| self.code_of(group)).collect();
        let codes = codes.inspect_err(|error| self.poison.set(error))?;
        let is_longer = self.device.len() > end;
        let mut state = self.state.lock();
        state.discards.is_uncut &= is_longer;
        let first = state.space.groups();
        state.space.add_groups(groups);
        for (group, code) in (first..groups).zip(codes) {
            let body = bitmap::fresh(&self.geometry, group);
            state.space.learn(&self.geometry, group, (code, Some(&body)));
        }
        self.progress.notify_all();
        Ok(())
    }

    pub(crate) fn store_header(
        &self,
        header: &Header,
        groups: u64,
        shrunk_at: Lsn,
    ) -> Result<Header, TierError> {
        header.store_next(&*self.device, groups, shrunk_at).inspect_err(|error| {
            // Whether the header changed is unknown now.
            self.poison.set(error);
        })
    }
}
