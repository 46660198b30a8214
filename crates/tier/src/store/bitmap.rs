//! The body of a group's bitmap page: which places are in use, which pages are allocated.
//!
//! ```text
//! 0       8              8 + 8w          8 + 16w         8 + 24w      (w = segments of a group)
//! | flags | places       | pages         | delta pages   | zeros
//! ```
//! Bit i of word s of *places* is set if place 64 s + i of the group holds the image of a page, or
//! is a delta page; of *delta pages*, if it is that; of *pages*, if page 64 s + i of the group's
//! range is allocated. Page 0 of group 0 is always set: it is never allocated. Bits past the
//! group's end are clear.

use super::geometry::{BITMAP_PREFIX_BYTES, Geometry};

const FLAG_UNBACKED: u8 = 1;

/// One of the three maps of a bitmap page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Which {
    Places,
    Pages,
    Deltas,
}

/// Word `segment` of a map.
pub(crate) fn word(geometry: &Geometry, body: &[u8], which: Which, segment: usize) -> u64 {
    let at = word_at(geometry, which, segment);
    u64::from_le_bytes(body[at..at + 8].try_into().expect("eight bytes"))
}

fn word_at(geometry: &Geometry, which: Which, segment: usize) -> usize {
    assert!(segment < geometry.segments());
    let skip = match which {
        Which::Places => 0,
        Which::Pages => geometry.segments(),
        Which::Deltas => 2 * geometry.segments(),
    };
    BITMAP_PREFIX_BYTES + 8 * (skip + segment)
}

/// Whether bit `index` of a map is set.
pub(crate) fn get(geometry: &Geometry, body: &[u8], which: Which, index: u64) -> bool {
    word(geometry, body, which, (index / 64) as usize) >> (index % 64) & 1 == 1
}

/// Sets or clears bit `index`; returns whether that changed it.
#[must_use]
pub(crate) fn set(geometry: &Geometry, body: &mut [u8], which: Which, index: u64, value: bool) -> bool {
    assert!(index < geometry.places_per_group);
    let at = word_at(geometry, which, (index / 64) as usize);
    let old = u64::from_le_bytes(body[at..at + 8].try_into().expect("eight bytes"));
    let bit = 1u64 << (index % 64);
    let new = if value { old | bit } else { old & !bit };
    body[at..at + 8].copy_from_slice(&new.to_le_bytes());
    old != new
}

/// Gives the bits of segment `segment` that are set in `changed` the values that they have in
/// `values`.
pub(crate) fn merge_word(
    geometry: &Geometry,
    body: &mut [u8],
    which: Which,
    segment: usize,
    changed: u64,
    values: u64,
) {
    let merged = word(geometry, body, which, segment) & !changed | values & changed;
    let at = word_at(geometry, which, segment);
    body[at..at + 8].copy_from_slice(&merged.to_le_bytes());
}

/// Number of bits set in a map.
pub(crate) fn count(geometry: &Geometry, body: &[u8], which: Which) -> u64 {
    (0..geometry.segments()).map(|segment| u64::from(word(geometry, body, which, segment).count_ones())).sum()
}

/// Whether the group's places have space on the device.
pub(crate) fn is_backed(body: &[u8]) -> bool {
    body[0] & FLAG_UNBACKED == 0
}
pub(crate) fn set_backed(body: &mut [u8], backed: bool) {
    body[0] = if backed { 0 } else { FLAG_UNBACKED };
}

/// The body of a new group's bitmap page.
pub(crate) fn fresh(geometry: &Geometry, group: u64) -> Vec<u8> {
    let mut body = vec![0; geometry.body_bytes()];
    if group == 0 {
        assert!(set(geometry, &mut body, Which::Pages, 0, true));
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::options::Layout;

    #[test]
    fn a_fresh_group_zero_has_only_page_zero_taken() {
        let geometry = Geometry::new(512, Layout { meta_bytes: 512, maps_per_group: 4 }).unwrap();
        let mut body = fresh(&geometry, 0);
        assert_eq!(geometry.segments(), 2);
        assert_eq!(body[..40].iter().filter(|byte| **byte != 0).count(), 1);
        assert_eq!(body[8 + 16], 1, "bit 0 of the pages");
        assert!(set(&geometry, &mut body, Which::Places, 71, true));
        assert!(!set(&geometry, &mut body, Which::Places, 71, true));
        assert_eq!(body[8 + 8], 0x80);
        assert!(get(&geometry, &body, Which::Places, 71));
        assert_eq!(count(&geometry, &body, Which::Places), 1);
        assert!(set(&geometry, &mut body, Which::Deltas, 64, true));
        assert_eq!(body[8 + 32..8 + 48], [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert!(fresh(&geometry, 1).iter().all(|byte| *byte == 0));
    }
}
