//! The map entry of one page, 24 bytes.

use super::geometry::Place;
use firndb_base::codec::Malformed;
use firndb_base::{Crc32c, Lsn, PageId};

/// Bytes of an entry on the device and in the cache.
pub(crate) const ENTRY_BYTES: usize = 24;

const FREE: u32 = 0;
const ALLOCATED: u32 = 1;
const PLACED: u32 = 2;

/// A page's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Not allocated.
    Free,
    /// Allocated by the record at `version`, never written: reads as zeros.
    Allocated { version: Lsn },
    /// Version `version` lies at `place`, and its image has this checksum.
    Placed { version: Lsn, place: Place, checksum: u32 },
}

impl Entry {
    /// The newest version the store holds; `None` if the page is not allocated.
    pub(crate) fn version(self) -> Option<Lsn> {
        match self {
            Entry::Free => None,
            Entry::Allocated { version } | Entry::Placed { version, .. } => Some(version),
        }
    }
    pub(crate) fn place(self) -> Option<Place> {
        match self {
            Entry::Placed { place, .. } => Some(place),
            _ => None,
        }
    }

    /// Reads entry `slot` of a map page's body.
    pub(crate) fn read(body: &[u8], slot: usize) -> Result<Entry, Malformed> {
        let bytes: &[u8; ENTRY_BYTES] = body[slot * ENTRY_BYTES..(slot + 1) * ENTRY_BYTES]
            .try_into()
            .expect("the slice is one entry long");
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let (version, place, checksum) = (Lsn(u64_at(0)), Place(u64_at(8)), u32_at(16));
        match u32_at(20) {
            FREE if bytes == &[0; ENTRY_BYTES] => Ok(Entry::Free),
            ALLOCATED if place == Place(0) && checksum == 0 => Ok(Entry::Allocated { version }),
            PLACED => Ok(Entry::Placed { version, place, checksum }),
            _ => Err(Malformed { what: "a map entry of no known state" }),
        }
    }

    /// Writes entry `slot` of a map page's body.
    pub(crate) fn write(self, body: &mut [u8], slot: usize) {
        let (version, place, checksum, state) = match self {
            Entry::Free => (Lsn::ZERO, Place(0), 0, FREE),
            Entry::Allocated { version } => (version, Place(0), 0, ALLOCATED),
            Entry::Placed { version, place, checksum } => (version, place, checksum, PLACED),
        };
        let bytes = &mut body[slot * ENTRY_BYTES..(slot + 1) * ENTRY_BYTES];
        bytes[0..8].copy_from_slice(&version.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&place.0.to_le_bytes());
        bytes[16..20].copy_from_slice(&checksum.to_le_bytes());
        bytes[20..24].copy_from_slice(&state.to_le_bytes());
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
            [2, 1, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0xDD, 0xCC, 0xBB, 0xAA, 2, 0, 0, 0]
        );
        assert_eq!(Entry::read(&body, 1), Ok(placed));
        Entry::Allocated { version: Lsn(9) }.write(&mut body, 2);
        assert_eq!(body[48..72], [9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(Entry::read(&body, 2), Ok(Entry::Allocated { version: Lsn(9) }));
        body[68] = 3;
        assert!(Entry::read(&body, 2).is_err());
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
