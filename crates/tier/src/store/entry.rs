//! The map entry of one page, 24 bytes.
//!
//! ```text
//! 0             8              13              18         19             23              24
//! | version u64 | place u40    | delta page    | slot u8  | checksum u32 | state, rent    |
//! |             | of the image | place u40     |          | of the image | 2 bits, 6 bits |
//! ```
//! A page with a delta is its image at `place`, changed by a slot of the delta page. The version is
//! that of the page; the image's is in the slot. *Rent* is what was spent on slots since the image
//! (`delta/policy.rs`).

use super::geometry::{PLACES_MAX, Place};
use firndb_base::codec::Malformed;
use firndb_base::{Crc32c, Lsn, PageId};

/// Bytes of an entry on the device and in the cache.
pub(crate) const ENTRY_BYTES: usize = 24;

const FREE: u8 = 0;
const ALLOCATED: u8 = 1;
const PLACED: u8 = 2;
const DELTA: u8 = 3;
/// Bits of the last byte that are the state.
const STATE_BITS: u32 = 2;

/// A slot of a delta page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotAt {
    /// The delta page.
    pub place: Place,
    pub slot: u8,
}

/// A page's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Not allocated.
    Free,
    /// Allocated by the record at `version`, never written: reads as zeros.
    Allocated { version: Lsn },
    /// Version `version` lies at `place`, and its image has this checksum.
    Placed { version: Lsn, place: Place, checksum: u32 },
    /// Version `version` is the image at `place`, which has this checksum, with the changes in the
    /// slot `at`.
    Delta { version: Lsn, place: Place, checksum: u32, at: SlotAt, rent: u8 },
}

impl Entry {
    /// The newest version the map knows; `None` if the page is not allocated.
    pub(crate) fn version(self) -> Option<Lsn> {
        match self {
            Entry::Free => None,
            Entry::Allocated { version } | Entry::Placed { version, .. } | Entry::Delta { version, .. } => {
                Some(version)
            }
        }
    }
    /// Where the page's image is.
    pub(crate) fn place(self) -> Option<Place> {
        match self {
            Entry::Placed { place, .. } | Entry::Delta { place, .. } => Some(place),
            Entry::Free | Entry::Allocated { .. } => None,
        }
    }
    /// The slot of the page's delta.
    pub(crate) fn slot(self) -> Option<SlotAt> {
        match self {
            Entry::Delta { at, .. } => Some(at),
            _ => None,
        }
    }

    /// Reads entry `slot` of a map page's body.
    pub(crate) fn read(body: &[u8], slot: usize) -> Result<Entry, Malformed> {
        let bytes: &[u8; ENTRY_BYTES] = body[slot * ENTRY_BYTES..(slot + 1) * ENTRY_BYTES]
            .try_into()
            .expect("the slice is one entry long");
        let number = |at: usize, len: usize| {
            let mut number = [0; 8];
            number[..len].copy_from_slice(&bytes[at..at + len]);
            u64::from_le_bytes(number)
        };
        let (version, place, delta) = (Lsn(number(0, 8)), Place(number(8, 5)), Place(number(13, 5)));
        let (slot, checksum) = (bytes[18], number(19, 4) as u32);
        let (state, rent) = (bytes[23] & ((1 << STATE_BITS) - 1), bytes[23] >> STATE_BITS);
        let plain = delta == Place(0) && slot == 0 && rent == 0;
        match state {
            FREE if bytes == &[0; ENTRY_BYTES] => Ok(Entry::Free),
            ALLOCATED if plain && place == Place(0) && checksum == 0 => Ok(Entry::Allocated { version }),
            PLACED if plain => Ok(Entry::Placed { version, place, checksum }),
            DELTA => Ok(Entry::Delta { version, place, checksum, at: SlotAt { place: delta, slot }, rent }),
            _ => Err(Malformed { what: "a map entry of no known state" }),
        }
    }

    /// Writes entry `slot` of a map page's body.
    pub(crate) fn write(self, body: &mut [u8], slot: usize) {
        const NO_SLOT: SlotAt = SlotAt { place: Place(0), slot: 0 };
        let (version, place, checksum, at, state, rent) = match self {
            Entry::Free => (Lsn::ZERO, Place(0), 0, NO_SLOT, FREE, 0),
            Entry::Allocated { version } => (version, Place(0), 0, NO_SLOT, ALLOCATED, 0),
            Entry::Placed { version, place, checksum } => (version, place, checksum, NO_SLOT, PLACED, 0),
            Entry::Delta { version, place, checksum, at, rent } => {
                (version, place, checksum, at, DELTA, rent)
            }
        };
        assert!(place.0 < PLACES_MAX && at.place.0 < PLACES_MAX, "{place:?} and {:?} fit", at.place);
        assert!(rent < 1 << (8 - STATE_BITS), "a rent of {rent} fits");
        let bytes = &mut body[slot * ENTRY_BYTES..(slot + 1) * ENTRY_BYTES];
        bytes[0..8].copy_from_slice(&version.0.to_le_bytes());
        bytes[8..13].copy_from_slice(&place.0.to_le_bytes()[..5]);
        bytes[13..18].copy_from_slice(&at.place.0.to_le_bytes()[..5]);
        bytes[18] = at.slot;
        bytes[19..23].copy_from_slice(&checksum.to_le_bytes());
        bytes[23] = rent << STATE_BITS | state;
    }
}

/// The checksum of an image. Page and version are mixed in, so that an intact image of another
/// page, or of an older version of the same page, does not pass for this one.
pub(crate) fn image_checksum(page: PageId, version: Lsn, image: &[u8]) -> u32 {
    Crc32c::new().with(&page.0.to_le_bytes()).with(&version.0.to_le_bytes()).with(image).value()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_golden_bytes() {
        let mut body = [0u8; 3 * ENTRY_BYTES];
        assert_eq!(Entry::read(&body, 1), Ok(Entry::Free));
        let placed = Entry::Placed { version: Lsn(0x0102), place: Place(7), checksum: 0xAABB_CCDD };
        placed.write(&mut body, 1);
        assert_eq!(
            body[24..48],
            [2, 1, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xDD, 0xCC, 0xBB, 0xAA, 2]
        );
        assert_eq!(Entry::read(&body, 1), Ok(placed));
        let at = SlotAt { place: Place(0x0102), slot: 9 };
        let delta =
            Entry::Delta { version: Lsn(3), place: Place((1 << 40) - 2), checksum: 0xAABB_CCDD, at, rent: 5 };
        delta.write(&mut body, 1);
        assert_eq!(
            body[24..48],
            [3, 0, 0, 0, 0, 0, 0, 0, 254, 255, 255, 255, 255, 2, 1, 0, 0, 0, 9, 0xDD, 0xCC, 0xBB, 0xAA, 23]
        );
        assert_eq!(Entry::read(&body, 1), Ok(delta));
        Entry::Allocated { version: Lsn(9) }.write(&mut body, 2);
        assert_eq!(body[48..72], [9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(Entry::read(&body, 2), Ok(Entry::Allocated { version: Lsn(9) }));
        for (at, byte) in [(71, 0), (71, 5), (66, 1), (61, 1)] {
            let mut spoilt = body;
            spoilt[at] = byte;
            assert!(Entry::read(&spoilt, 2).is_err(), "byte {at} is {byte}");
        }
    }

    #[test]
    fn the_checksum_tells_pages_and_versions_apart() {
        let image = [5u8; 512];
        let checksum = image_checksum(PageId(1), Lsn(2), &image);
        assert_ne!(checksum, image_checksum(PageId(2), Lsn(2), &image));
        assert_ne!(checksum, image_checksum(PageId(1), Lsn(3), &image));
        assert_eq!(checksum, 0x4478_B239);
    }
}
