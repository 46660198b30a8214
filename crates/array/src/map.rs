//! Where the bytes of a store lie on the members: pure arithmetic.
//!
//! ```text
//! member: | label | label | metadata before group 0 | group 0: metadata, rows | group 1 | ...
//! ```
//!
//! Every member has room for all metadata, at the same offsets; copies of it lie on one member more
//! than may be lost, which change from group to group. A group's rows hold its fragments
//! ([`crate::Cells`]), and all members have the same ones.

use crate::cells::Cells;
use crate::code::Code;
use crate::label::Label;
use crate::shape::Shape;
use firndb_base::DatabaseId;

/// Bytes between the two copies of a member's label, and from the second to what follows.
pub(crate) const LABEL_STRIDE: u64 = 64 * 1024;
/// Where the store begins on a member.
const STORE_START: u64 = 2 * LABEL_STRIDE;

/// The addresses of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Map {
    pub shape: Shape,
    pub code: Code,
    pub members: usize,
    /// Bytes of a fragment.
    pub fragment: u64,
    /// Fragments are whole blocks of this many bytes.
    pub block: u64,
    pub cells: Cells,
    /// Bytes from one group to the next on a member.
    stride: u64,
}

impl Map {
    /// Fragments are whole blocks of `block` bytes.
    pub(crate) fn new(shape: Shape, code: Code, members: usize, block: u64) -> Map {
        let cells = Cells::new(code.written(), members);
        let fragment = code.fragment_bytes(shape.page_bytes as usize, block as usize) as u64;
        let bytes = shape.places_start + cells.rows(shape.places) * fragment;
        let stride = bytes.next_multiple_of(shape.page_bytes.max(shape.meta_bytes).max(block));
        Map { shape, code, members, fragment, block, cells, stride }
    }

    /// The label of a member.
    pub(crate) fn label(&self, database: DatabaseId, member: usize, incarnation: u64) -> Label {
        Label {
            database,
            member,
            incarnation,
            members: self.members,
            code: self.code,
            block: self.block,
            shape: self.shape,
        }
    }

    /// Length of the file above, if members have this one.
    pub(crate) fn len_above(&self, member: u64) -> u64 {
        let there = member.saturating_sub(STORE_START);
        match there.checked_sub(self.shape.groups_start) {
            None => there,
            Some(rest) => self.shape.group_start(rest / self.stride),
        }
    }

    /// Bytes that a member needs for a file of `len` bytes above it.
    pub(crate) fn member_len(&self, len: u64) -> Option<u64> {
        match len.checked_sub(self.shape.groups_start) {
            None => Some(STORE_START + len),
            Some(rest) => {
                self.stride.checked_mul(rest.div_ceil(self.shape.group_bytes))?.checked_add(self.group(0))
            }
        }
    }

    /// Where a group begins on each member.
    fn group(&self, group: u64) -> u64 {
        STORE_START + self.shape.groups_start + group * self.stride
    }

    /// Where a byte of metadata lies on the members that hold a copy of it.
    pub(crate) fn meta(&self, offset: u64) -> u64 {
        match self.shape.group_of(offset) {
            None => STORE_START + offset,
            Some(group) => self.group(group) + (offset - self.shape.group_start(group)),
        }
    }

    /// The members that hold a copy of a byte of metadata.
    pub(crate) fn holders(&self, offset: u64) -> impl Iterator<Item = usize> + use<> {
        let first = self.shape.group_of(offset).map_or(0, |group| group % self.members as u64) as usize;
        let members = self.members;
        (0..=self.code.spare()).map(move |copy| (first + copy) % members)
    }

    /// Where a row of a group begins on each member.
    pub(crate) fn row(&self, group: u64, row: u64) -> u64 {
        self.group(group) + self.shape.places_start + row * self.fragment
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::tests::SMALL;

    #[test]
    fn nothing_overlaps_on_a_member_and_lengths_agree() {
        for members in 1..=6 {
            for code in Code::all(members) {
                let map = Map::new(SMALL, code, members, 512);
                let mut ranges = vec![(0, STORE_START), (map.meta(0), SMALL.groups_start)];
                for group in 0..3 {
                    let start = SMALL.group_start(group);
                    ranges.push((map.meta(start), SMALL.places_start));
                    let rows = map.cells.rows(SMALL.places);
                    ranges.extend((0..rows).map(|row| (map.row(group, row), map.fragment)));
                    assert_eq!(map.holders(start).count(), code.spare() + 1);
                }
                ranges.sort_unstable();
                assert!(ranges.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0), "{code} of {members}");
                let len = SMALL.group_start(3);
                let member = map.member_len(len).unwrap();
                assert!(ranges.last().is_some_and(|last| last.0 + last.1 <= member));
                assert_eq!(map.len_above(member), len);
                assert!(map.len_above(member - 512) < len);
                assert_eq!(map.len_above(map.member_len(4096).unwrap()), 4096);
                assert_eq!(
                    map.member_len(SMALL.groups_start).map(|len| map.len_above(len)),
                    Some(SMALL.groups_start)
                );
            }
        }
    }

    #[test]
    fn one_member_has_the_store_in_order() {
        let map = Map::new(SMALL, Code::ONE_COPY, 1, 512);
        for place in 0..SMALL.places {
            assert_eq!(
                map.row(1, place) - map.row(1, 0),
                SMALL.place_offset(1, place) - SMALL.place_offset(1, 0)
            );
        }
    }
}
