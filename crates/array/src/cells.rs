//! Where the fragments of the places of a group lie.
//!
//! A group owns the same range of bytes on each of its n members, cut into rows of one fragment.
//! Cells are numbered row by row: cell c is on member c mod n, in row c div n, and place i has
//! cells i·w to i·w + w − 1. So every member has the same load; the w ≤ n fragments of a place,
//! being neighbours, are on different members; and a run of places is one run of rows on each
//! member.

use std::ops::Range;

/// Where a fragment lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// The position of the member among the group's.
    pub member: usize,
    /// Fragments before it in the group's range on that member.
    pub row: u64,
}

/// The cells of a group: fragments of a place, members of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cells {
    written: u64,
    members: u64,
}

impl Cells {
    /// Panics unless 1 ≤ written ≤ members.
    #[must_use]
    pub fn new(written: usize, members: usize) -> Cells {
        assert!(1 <= written && written <= members, "{written} fragments on {members} members");
        Cells { written: written as u64, members: members as u64 }
    }

    /// Where a fragment of a place lies.
    #[must_use]
    pub fn cell(self, place: u64, fragment: usize) -> Cell {
        assert!((fragment as u64) < self.written, "a place has no fragment {fragment}");
        let cell = place * self.written + fragment as u64;
        Cell { member: (cell % self.members) as usize, row: cell / self.members }
    }

    /// The place of which a cell holds a fragment, and which.
    #[must_use]
    pub fn place(self, cell: Cell) -> (u64, usize) {
        assert!((cell.member as u64) < self.members, "there is no member {}", cell.member);
        let number = cell.row * self.members + cell.member as u64;
        (number / self.written, (number % self.written) as usize)
    }

    /// Places that fit into this many rows of every member.
    #[must_use]
    pub fn places(self, rows: u64) -> u64 {
        rows * self.members / self.written
    }

    /// Rows of every member that this many places take.
    #[must_use]
    pub fn rows(self, places: u64) -> u64 {
        (places * self.written).div_ceil(self.members)
    }

    /// The rows of a member that hold fragments of these places, and no others.
    #[must_use]
    pub fn rows_of(self, places: Range<u64>, member: usize) -> Range<u64> {
        assert!((member as u64) < self.members, "there is no member {member}");
        // Rows whose cell on this member is at or past a cell.
        let from = |place: u64| (place * self.written + self.members - 1 - member as u64) / self.members;
        from(places.start)..from(places.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn all() -> impl Iterator<Item = (usize, usize, Cells)> {
        (1..=16).flat_map(|members| (1..=members).map(move |w| (w, members, Cells::new(w, members))))
    }

    #[test]
    fn every_cell_holds_one_fragment_and_says_which() {
        for (written, members, cells) in all() {
            let mut taken = BTreeSet::new();
            for place in 0..100 {
                let own: BTreeSet<Cell> = (0..written).map(|fragment| cells.cell(place, fragment)).collect();
                let on: BTreeSet<usize> = own.iter().map(|cell| cell.member).collect();
                assert_eq!(on.len(), written, "fragments of a place are on different members");
                for fragment in 0..written {
                    assert_eq!(cells.place(cells.cell(place, fragment)), (place, fragment));
                }
                assert!(own.into_iter().all(|cell| taken.insert(cell)), "{written} of {members}");
            }
            let rows = cells.rows(100);
            assert!(taken.iter().all(|cell| cell.row < rows));
            assert!(cells.places(rows) >= 100 && cells.places(rows - 1) < 100);
            let loads = (0..members).map(|member| taken.iter().filter(|cell| cell.member == member).count());
            let loads: Vec<usize> = loads.collect();
            assert!(loads.iter().max().unwrap() - loads.iter().min().unwrap() <= 1, "{loads:?}");
        }
    }

    #[test]
    fn a_run_of_places_is_one_run_of_rows_on_each_member() {
        for (written, members, cells) in all() {
            for (start, end) in [(0, 0), (0, 1), (3, 7), (17, 60), (5, 6)] {
                let mut expected = vec![BTreeSet::new(); members];
                for (place, fragment) in (start..end).flat_map(|place| (0..written).map(move |f| (place, f)))
                {
                    let cell = cells.cell(place, fragment);
                    expected[cell.member].insert(cell.row);
                }
                for (member, expected) in expected.into_iter().enumerate() {
                    let rows: BTreeSet<u64> = cells.rows_of(start..end, member).collect();
                    assert_eq!(rows, expected, "{written} of {members}, member {member}, {start}..{end}");
                }
            }
        }
    }

    #[test]
    fn one_member_has_places_in_order() {
        let cells = Cells::new(1, 1);
        assert_eq!(cells.cell(4031, 0), Cell { member: 0, row: 4031 });
        assert_eq!((cells.places(4032), cells.rows(4032)), (4032, 4032));
    }
}
