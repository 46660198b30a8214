//! Which slot of a map or bitmap page is the newer.
//!
//! Invariant: a page's slots are written in turn, A first, so its sequence tells the slot. The low
//! bits of the sequence of each page that was read or written since opening are kept, a byte each:
//! its newer slot is read alone then, and must have this very sequence, which shows a lost write
//! too. Without it, places that an old bitmap calls free would be written over.
//!
//! Protected by the store's `state`.

use super::geometry::Geometry;
use super::meta_page::MetaId;

/// Set in a byte that is known.
const KNOWN: u8 = 0x80;

/// The low bits of the sequences of map and bitmap pages, where they are known.
#[derive(Debug, Default)]
pub(crate) struct Sequences {
    maps: Vec<u8>,
    bitmaps: Vec<u8>,
}

impl Sequences {
    /// Notes the sequence of the version that is on the device.
    pub(crate) fn note(&mut self, id: MetaId, sequence: u64) {
        let (list, at) = match id {
            MetaId::Map(map) => (&mut self.maps, map as usize),
            MetaId::Bitmap(group) => (&mut self.bitmaps, group as usize),
            MetaId::Totals => return,
        };
        if list.len() <= at {
            list.resize(at + 1, 0);
        }
        list[at] = as_known(sequence);
    }

    /// The byte that is known of a page.
    pub(crate) fn get(&self, id: MetaId) -> Option<u8> {
        let byte = match id {
            MetaId::Map(map) => self.maps.get(map as usize),
            MetaId::Bitmap(group) => self.bitmaps.get(group as usize),
            MetaId::Totals => None,
        };
        byte.copied().filter(|byte| byte & KNOWN != 0)
    }

    /// Whether it is known that this is the sequence of the page's version on the device.
    pub(crate) fn has(&self, id: MetaId, sequence: u64) -> bool {
        self.get(id) == Some(as_known(sequence))
    }

    /// Forgets groups from `group` on.
    pub(crate) fn forget_from(&mut self, geometry: &Geometry, group: u64) {
        self.maps.truncate((group * geometry.maps_per_group) as usize);
        self.bitmaps.truncate(group as usize);
    }
}

/// The byte that is kept of a sequence.
pub(crate) fn as_known(sequence: u64) -> u8 {
    KNOWN | sequence as u8
}
