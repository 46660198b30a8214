//! Where the bytes of a store lie on the members: pure arithmetic.
//!
//! ```text
//! member: | label | label | before group 0 | group 0: slots, metadata, rows | group 1 | ...
//! ```
//!
//! Every member has space for all metadata, at the same offsets; copies of it lie on one member
//! more than may be lost, which change from group to group. Two slots before it say which code the
//! group has ([`crate::slot`]). A group's rows hold its fragments ([`crate::Cells`]), and all
//! members have the same ones; the bytes reserved for them suffice for each of several codes.

use crate::cells::Cells;
use crate::code::{Code, MEMBERS_MAX};
use crate::label::Label;
use crate::shape::Shape;
use crate::slot;
use firndb_base::DatabaseId;

/// Bytes between the two copies of a member's label, and from the second to what follows.
pub(crate) const LABEL_STRIDE: u64 = 64 * 1024;
/// Where the store begins on a member.
const STORE_START: u64 = 2 * LABEL_STRIDE;

/// The addresses of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Map {
    pub shape: Shape,
    /// What the array promises, and the code of a new group.
    pub code: Code,
    pub members: usize,
    /// Fragments are whole blocks of this many bytes.
    pub block: u64,
    /// Bytes on each member that are reserved for the rows of a group.
    pub row_bytes: u64,
    /// The layouts that groups may have, that of a new one first.
    pub layouts: Vec<Layout>,
    /// Their codes.
    pub codes: Vec<Code>,
    /// Bytes of each of a group's slots.
    pub slot_bytes: u64,
    /// Bytes of the slots of a group and of their padding.
    slots: u64,
    /// Bytes from one group to the next on a member.
    stride: u64,
}

/// How the places of a group are fragmented, and where the fragments lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Its number among those that groups may have.
    pub index: u8,
    pub code: Code,
    pub cells: Cells,
    /// Bytes of a fragment.
    pub fragment: u64,
    /// Bytes of a group's rows on each member.
    pub row_bytes: u64,
}

impl Layout {
    fn new(index: u8, code: Code, shape: &Shape, members: usize, block: u64) -> Layout {
        let cells = Cells::new(code.written(), members);
        let fragment = code.fragment_bytes(shape.page_bytes as usize, block as usize) as u64;
        Layout { index, code, cells, fragment, row_bytes: cells.rows(shape.places) * fragment }
    }
}

/// Bytes on each of the members that the rows of a group take.
pub(crate) fn row_bytes(code: Code, shape: &Shape, members: usize, block: u64) -> u64 {
    Layout::new(0, code, shape, members, block).row_bytes
}

impl Map {
    /// Fragments are whole blocks of `block` bytes; `row_bytes` suffice for a new group.
    pub(crate) fn new(shape: Shape, code: Code, members: usize, block: u64, row_bytes: u64) -> Map {
        let fits = |other: &Code| {
            other.spare() >= code.spare()
                && self::row_bytes(*other, &shape, members, block) <= row_bytes
                && *other != code
        };
        let codes: Vec<Code> = std::iter::once(code).chain(Code::all(members).filter(fits)).collect();
        let layouts =
            (0..).zip(&codes).map(|(index, code)| Layout::new(index, *code, &shape, members, block));
        let layouts: Vec<Layout> = layouts.collect();
        // What is aligned in the file above is so on a member.
        let unit = shape.page_bytes.max(shape.meta_bytes).max(block);
        let slot_bytes = slot::slot_bytes(block);
        let slots = (2 * slot_bytes).next_multiple_of(unit);
        let stride = (slots + shape.places_start + row_bytes).next_multiple_of(unit);
        Map { shape, code, members, block, row_bytes, layouts, codes, slot_bytes, slots, stride }
    }

    /// Of a new array: a group's rows have the bytes that `widest` takes, too.
    pub(crate) fn of_new(shape: Shape, code: Code, widest: Code, members: usize, block: u64) -> Map {
        let most = code.written().max(widest.written());
        assert!(most <= members && members <= MEMBERS_MAX && shape.is_sound());
        assert!(widest.spare() >= code.spare(), "{widest} does not survive what {code} does");
        let [own, wide] = [code, widest].map(|code| row_bytes(code, &shape, members, block));
        Map::new(shape, code, members, block, own.max(wide))
    }

    /// The layout of a new group.
    pub(crate) fn base(&self) -> &Layout {
        &self.layouts[0]
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
            row_bytes: self.row_bytes,
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

    /// Where the slots of a group begin on the members that hold its metadata.
    pub(crate) fn slots(&self, group: u64) -> u64 {
        self.group(group)
    }

    /// Where a byte of metadata lies on the members that hold a copy of it.
    pub(crate) fn meta(&self, offset: u64) -> u64 {
        match self.shape.group_of(offset) {
            None => STORE_START + offset,
            Some(group) => self.group(group) + self.slots + (offset - self.shape.group_start(group)),
        }
    }

    /// The members that hold a copy of a byte of metadata.
    pub(crate) fn holders(&self, offset: u64) -> impl Iterator<Item = usize> + use<> {
        let first = self.shape.group_of(offset).map_or(0, |group| group % self.members as u64) as usize;
        let members = self.members;
        (0..=self.code.spare()).map(move |copy| (first + copy) % members)
    }

    /// Where the rows of a group begin on each member.
    pub(crate) fn rows(&self, group: u64) -> u64 {
        self.group(group) + self.slots + self.shape.places_start
    }

    /// Where a row of a group begins on each member.
    pub(crate) fn row(&self, layout: &Layout, group: u64, row: u64) -> u64 {
        self.rows(group) + row * layout.fragment
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::tests::SMALL;

    /// Groups of as many places of large pages.
    const LARGE: Shape =
        Shape { page_bytes: 4096, meta_bytes: 4096, group_bytes: 4096 * 23, places_start: 8192, ..SMALL };

    /// Members, base code, widest code, bytes of a block, and shape.
    fn cases() -> Vec<(usize, Code, Code, u64, Shape)> {
        let mut cases = Vec::new();
        let small = (1..=5).map(|members| (members, 512, SMALL));
        for (members, block, shape) in small.chain([(4, 512, LARGE), (5, 1024, LARGE), (6, 4096, LARGE)]) {
            for code in Code::all(members) {
                let wide = Code::all(members).filter(|other| other.spare() >= code.spare());
                cases.extend(wide.map(|widest| (members, code, widest, block, shape)));
            }
        }
        cases
    }

    #[test]
    fn codes_of_groups_survive_as_much_and_fit() {
        let of = |needed, written| Code::new(needed, written).unwrap();
        let codes = |base: Code, widest: Code| {
            let bytes = row_bytes(widest, &SMALL, 4, 512).max(row_bytes(base, &SMALL, 4, 512));
            Map::new(SMALL, base, 4, 512, bytes).codes
        };
        assert_eq!(codes(of(1, 2), of(1, 2)), [of(1, 2), of(2, 3), of(2, 4), of(3, 4)]);
        assert_eq!(codes(of(2, 3), of(2, 3)), [of(2, 3)]);
        assert_eq!(codes(of(2, 3), of(1, 2)), [of(2, 3), of(1, 2), of(2, 4), of(3, 4)]);
        assert_eq!(codes(of(1, 2), of(1, 4)).len(), 6, "all that survive one loss");
        assert_eq!(codes(of(1, 1), of(1, 1)), [of(1, 1), of(2, 2)]);
    }

    #[test]
    fn nothing_overlaps_on_a_member_and_lengths_agree() {
        for (members, code, widest, block, shape) in cases() {
            let wide = row_bytes(widest, &shape, members, block);
            let wide = wide.max(row_bytes(code, &shape, members, block));
            let map = Map::new(shape, code, members, block, wide);
            let what = format!("{code}, {widest} of {members}, blocks of {block}");
            assert_eq!((map.codes[0], map.layouts.len()), (code, map.codes.len()));
            assert!(map.codes.contains(&widest), "{what}");
            // Groups of all codes, in turn, each beside two others.
            for first in 0..map.layouts.len() {
                let mut ranges = vec![(0, STORE_START), (map.meta(0), shape.groups_start)];
                for group in 0..3 {
                    let start = shape.group_start(group);
                    ranges.push((map.slots(group), 2 * map.slot_bytes));
                    ranges.push((map.meta(start), shape.places_start));
                    let layout = &map.layouts[(first + group as usize) % map.layouts.len()];
                    assert!(layout.code.spare() >= code.spare() && layout.row_bytes <= map.row_bytes);
                    let rows = layout.cells.rows(shape.places);
                    ranges.extend((0..rows).map(|row| (map.row(layout, group, row), layout.fragment)));
                    assert_eq!(map.holders(start).count(), code.spare() + 1);
                    let unit = block.max(shape.page_bytes);
                    assert!(map.rows(group).is_multiple_of(unit), "{what}");
                }
                ranges.sort_unstable();
                assert!(ranges.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0), "{what}");
                let len = shape.group_start(3);
                let member = map.member_len(len).unwrap();
                assert!(ranges.last().is_some_and(|last| last.0 + last.1 <= member), "{what}");
                assert_eq!(map.len_above(member), len);
                assert!(map.len_above(member - 512) < len);
                assert_eq!(map.len_above(map.member_len(4096).unwrap()), 4096);
                assert_eq!(
                    map.member_len(shape.groups_start).map(|len| map.len_above(len)),
                    Some(shape.groups_start)
                );
            }
        }
    }

    #[test]
    fn one_member_has_the_store_in_order() {
        let map = Map::new(SMALL, Code::ONE_COPY, 1, 512, row_bytes(Code::ONE_COPY, &SMALL, 1, 512));
        for place in 0..SMALL.places {
            assert_eq!(
                map.row(map.base(), 1, place) - map.row(map.base(), 1, 0),
                SMALL.place_offset(1, place) - SMALL.place_offset(1, 0)
            );
        }
    }
}
