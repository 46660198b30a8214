//! What the fuzzer of delta pages needs of them.

use super::super::geometry::Place;
use super::page::{self, Packed};
use super::slot::{Delta, seal};
use crate::granules::{Base, Changes};
use firndb_base::{Lsn, PageId};

const PLACE: Place = Place(9);

/// Composes a delta page of a slot for each page, all of the same version, base and changes.
pub fn delta_slots<const N: usize>(
    out: &mut [u8],
    pages: [PageId; N],
    (version, base, changes): (Lsn, Base, Changes),
) {
    let image = vec![9; out.len()];
    let mut packed = Packed::default();
    for page in pages {
        packed.add(Delta::of(version, base, changes, &image).encode(page));
    }
    packed.compose(PLACE, out);
}

/// Whether slot `number` can be read once its checksum is right. What is read is applied to an
/// image, and written and read again.
pub fn delta_slot(bytes: &mut [u8], number: u8) -> bool {
    let page_size = bytes.len();
    let Ok(slot) = page::slot(bytes, number) else { return false };
    let mut slot = slot.to_vec();
    if slot.len() < 4 {
        return false;
    }
    seal(&mut slot, PLACE);
    let Ok((page, delta)) = Delta::decode(&slot, PLACE, page_size) else { return false };
    delta.apply(&mut vec![0; page_size]);
    let mut again = delta.encode(page);
    seal(&mut again, PLACE);
    assert_eq!(Delta::decode(&again, PLACE, page_size), Ok((page, delta)));
    true
}
