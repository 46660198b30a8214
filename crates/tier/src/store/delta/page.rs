//! A delta page: slots of many pages at one place of the store.
//!
//! ```text
//! 0          8       10      12                   12 + 2n
//! | FIRNDLTA | n u16 | zeros | end of slot - 1 u16, n times | slot 0 | slot 1 | ... | zeros
//! ```
//! Slots are adjacent: the first begins behind the table of ends, each other where the one before
//! it ends. The page as a whole has no checksum: each slot has its own, so damage costs the pages
//! whose slots it meets. Damage in the table cannot pass either: a wrong range has a wrong
//! checksum.

use super::super::geometry::Place;
use super::slot::{Delta, seal};
use firndb_base::codec::Malformed;

const MAGIC: &[u8; 8] = b"FIRNDLTA";
const TABLE_AT: usize = 12;
/// Bytes of the table for each slot.
const END_BYTES: usize = 2;
/// Most slots of a page: a map entry has a byte for the number.
pub(crate) const SLOTS_MAX: usize = 250;

/// Slots that share a delta page.
#[derive(Debug, Default)]
pub(crate) struct Packed {
    slots: Vec<Vec<u8>>,
    bytes: usize,
}

impl Packed {
    /// Whether a slot of `bytes` bytes fits too.
    pub(crate) fn has_space(&self, bytes: usize, page_size: usize) -> bool {
        let with = self.slots.len() + 1;
        with <= SLOTS_MAX && TABLE_AT + with * END_BYTES + self.bytes + bytes <= page_size
    }
    /// Adds a slot, which fits; returns its number.
    pub(crate) fn add(&mut self, slot: Vec<u8>) -> u8 {
        self.bytes += slot.len();
        self.slots.push(slot);
        (self.slots.len() - 1) as u8
    }
    /// Composes the delta page at `place`.
    pub(crate) fn compose(&mut self, place: Place, out: &mut [u8]) {
        out.fill(0);
        out[..8].copy_from_slice(MAGIC);
        out[8..10].copy_from_slice(&(self.slots.len() as u16).to_le_bytes());
        let mut at = TABLE_AT + self.slots.len() * END_BYTES;
        for (number, slot) in self.slots.iter_mut().enumerate() {
            seal(slot, place);
            out[at..at + slot.len()].copy_from_slice(slot);
            at += slot.len();
            let end = TABLE_AT + number * END_BYTES;
            out[end..end + END_BYTES].copy_from_slice(&((at - 1) as u16).to_le_bytes());
        }
    }
}

/// Number of slots of a delta page.
pub(crate) fn slots_of(page: &[u8]) -> Result<usize, Malformed> {
    if page[..8] != *MAGIC || page[10..TABLE_AT] != [0; 2] {
        return Err(Malformed { what: "a place that holds no delta page" });
    }
    let count = usize::from(u16::from_le_bytes([page[8], page[9]]));
    if count == 0 || count > SLOTS_MAX || TABLE_AT + count * END_BYTES > page.len() {
        return Err(Malformed { what: "a delta page of an impossible number of slots" });
    }
    Ok(count)
}

/// Whether all of a delta page at `place` is as it was composed: each of its slots, and what lies
/// behind them.
pub(crate) fn is_whole(page: &[u8], place: Place) -> bool {
    let Ok(count) = slots_of(page) else { return false };
    let slot_is_whole = |number: usize| {
        slot(page, number as u8).is_ok_and(|slot| Delta::decode(slot, place, page.len()).is_ok())
    };
    let end = TABLE_AT + (count - 1) * END_BYTES;
    let end = usize::from(u16::from_le_bytes([page[end], page[end + 1]])) + 1;
    (0..count).all(slot_is_whole) && page[end..].iter().all(|byte| *byte == 0)
}

/// Slot `number` of a delta page.
pub(crate) fn slot(page: &[u8], number: u8) -> Result<&[u8], Malformed> {
    let count = slots_of(page)?;
    let number = usize::from(number);
    if number >= count {
        return Err(Malformed { what: "a slot that its delta page does not have" });
    }
    let end = |number: usize| {
        let at = TABLE_AT + number * END_BYTES;
        usize::from(u16::from_le_bytes([page[at], page[at + 1]])) + 1
    };
    let start = if number == 0 { TABLE_AT + count * END_BYTES } else { end(number - 1) };
    page.get(start..end(number)).ok_or(Malformed { what: "a slot of no possible range" })
}

#[cfg(test)]
mod tests {
    use super::super::slot::tests::some_changes;
    use super::*;
    use crate::granules::Base;
    use firndb_base::rng::Rng;
    use firndb_base::{Lsn, PageId};

    #[test]
    fn delta_pages_have_golden_bytes() {
        let mut packed = Packed::default();
        assert_eq!(packed.add(vec![0, 0, 0, 0, 1, 2]), 0);
        assert_eq!(packed.add(vec![0, 0, 0, 0, 3]), 1);
        let mut page = [0xFF; 512];
        packed.compose(Place(9), &mut page);
        assert_eq!(page[..16], *b"FIRNDLTA\x02\0\0\0\x15\0\x1A\0");
        assert_eq!((&page[20..22], page[26]), (&[1, 2][..], 3));
        assert!(page[27..].iter().all(|byte| *byte == 0));
        assert_eq!(slot(&page, 0), Ok(&page[16..22]));
        assert_eq!(slot(&page, 1), Ok(&page[22..27]));
        assert!(slot(&page, 2).is_err());
    }

    #[test]
    fn what_is_packed_is_found_and_damage_of_any_bit_is_refused_or_harms_nothing() {
        let mut rng = Rng::new(1);
        for _ in 0..300 {
            let page_size = 512 << rng.below(8);
            let place = Place(rng.below(1 << 40));
            let (mut packed, mut deltas) = (Packed::default(), Vec::new());
            loop {
                let image: Vec<u8> = (0..page_size).map(|_| rng.next_u64() as u8).collect();
                let base = Base { version: Lsn(rng.below(500)), checksum: rng.next_u64() as u32 };
                let delta = Delta::of(Lsn(500), base, some_changes(&mut rng, 4), &image);
                let slot = delta.encode(PageId(deltas.len() as u64));
                if !packed.has_space(slot.len(), page_size) {
                    break;
                }
                assert_eq!(usize::from(packed.add(slot)), deltas.len());
                deltas.push(delta);
            }
            if deltas.is_empty() {
                continue;
            }
            let mut page = vec![0; page_size];
            packed.compose(place, &mut page);
            assert_eq!(slots_of(&page), Ok(deltas.len()));
            let find = |page: &[u8], number: usize| {
                let slot = slot(page, number as u8)?;
                Delta::decode(slot, place, page_size)
            };
            for (number, delta) in deltas.iter().enumerate() {
                assert_eq!(find(&page, number), Ok((PageId(number as u64), delta.clone())));
            }
            for _ in 0..20 {
                let bit = rng.below(8 * page_size as u64) as usize;
                page[bit / 8] ^= 1 << (bit % 8);
                for (number, delta) in deltas.iter().enumerate() {
                    if let Ok(found) = find(&page, number) {
                        assert_eq!(found, (PageId(number as u64), delta.clone()));
                    }
                }
                page[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    #[test]
    fn random_bytes_are_refused_and_never_panic() {
        let mut rng = Rng::new(2);
        for _ in 0..20_000 {
            let mut page: Vec<u8> = (0..512).map(|_| rng.below(40) as u8).collect();
            page[..8].copy_from_slice(MAGIC);
            page[9..12].fill(0);
            for number in [0, 1, 5, 249, 255] {
                if let Ok(slot) = slot(&page, number) {
                    assert!(Delta::decode(slot, Place(3), 512).is_err());
                }
            }
        }
        assert!(slots_of(&[0; 512]).is_err());
    }

    #[test]
    fn the_largest_slot_fits_alone() {
        for page_size in [512, 4096, 65536] {
            let mut packed = Packed::default();
            let most = page_size - TABLE_AT - END_BYTES;
            assert!(packed.has_space(most, page_size) && !packed.has_space(most + 1, page_size));
            packed.add(vec![1; most]);
            let mut page = vec![0; page_size];
            packed.compose(Place(0), &mut page);
            assert_eq!(slot(&page, 0).map(<[u8]>::len), Ok(most));
        }
    }
}
