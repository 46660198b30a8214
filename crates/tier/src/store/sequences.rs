//! Which slot of a map page is the newer.
//!
//! Invariant: a page's slots are written in turn, A first, so its sequence tells the slot. The low
//! bits of the sequence of each map page that was read or written since opening are kept, a byte
//! each: its newer slot is read alone then, and must have this very sequence, which shows a lost
//! write too.
//!
//! Protected by the store's `state`.

use super::geometry::Geometry;
use super::meta_page::MetaId;

/// Set in a byte that is known.
const KNOWN: u8 = 0x80;

/// The low bits of the sequences of map pages, where they are known.
#[derive(Debug, Default)]
pub(crate) struct Sequences(Vec<u8>);

impl Sequences {
    /// Notes the sequence of the version that is on the device.
    pub(crate) fn note(&mut self, id: MetaId, sequence: u64) {
        let MetaId::Map(map) = id else { return };
        if self.0.len() <= map as usize {
            self.0.resize(map as usize + 1, 0);
        }
        self.0[map as usize] = as_known(sequence);
    }
    /// The byte that is known of a page.
    pub(crate) fn get(&self, id: MetaId) -> Option<u8> {
        let MetaId::Map(map) = id else { return None };
        self.0.get(map as usize).copied().filter(|byte| byte & KNOWN != 0)
    }
    /// Whether it is known that this is the sequence of the page's version on the device.
    pub(crate) fn has(&self, id: MetaId, sequence: u64) -> bool {
        self.get(id) == Some(as_known(sequence))
    }
    /// Forgets groups from `group` on.
    pub(crate) fn forget_from(&mut self, geometry: &Geometry, group: u64) {
        self.0.truncate((group * geometry.maps_per_group) as usize);
    }
}

/// The byte that is kept of a sequence.
pub(crate) fn as_known(sequence: u64) -> u8 {
    KNOWN | sequence as u8
}
