//! Where the fragments of the places of a group lie.
//!
//! A group owns the same range of bytes on each of its n members, cut into rows of one fragment.
//! Cells are numbered row by row, n in a row, and place i has cells i·w to i·w + w - 1. A round is
//! the least number of rows that hold whole places, and in each round the members stand one further
//! on: cell c, of round r, is on member (c + r) mod n, in row c div n.
//!
//! * Each member has one cell of every row: the same load, and a run of places is one run of rows
//!   on each member.
//! * The w ≤ n fragments of a place are neighbours in a round, and so on different members.
//! * Without turns places would lie on the same few sets of members where w divides n: two copies
//!   on four members would be two mirrors, and a read could not go past a write on both of its
//!   members. And where w = n, one member would have the parity of all pages, and reads, which
//!   prefer data, would leave it idle.
//! * One member has the places in order.

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
    /// Rows of a round.
    round: u64,
}

impl Cells {
    /// Panics unless 1 ≤ written ≤ members.
    #[must_use]
    pub fn new(written: usize, members: usize) -> Cells {
        assert!(1 <= written && written <= members, "{written} fragments on {members} members");
        let (written, members) = (written as u64, members as u64);
        // The least common multiple of both is a round's cells.
        let round =
            (1..=written).find(|rows| (rows * members).is_multiple_of(written)).expect("w rows at most");
        Cells { written, members, round }
    }

    /// How far the members stand on in a row.
    fn turn(self, row: u64) -> u64 {
        row / self.round % self.members
    }

    /// Where a cell lies.
    fn of_number(self, cell: u64) -> Cell {
        let row = cell / self.members;
        Cell { member: ((cell + self.turn(row)) % self.members) as usize, row }
    }

    /// Which cell a member has in a row.
    fn number_of(self, member: usize, row: u64) -> u64 {
        row * self.members + (member as u64 + self.members - self.turn(row)) % self.members
    }

    /// Where a fragment of a place lies.
    #[must_use]
    pub fn cell(self, place: u64, fragment: usize) -> Cell {
        assert!((fragment as u64) < self.written, "a place has no fragment {fragment}");
        self.of_number(place * self.written + fragment as u64)
    }

    /// The place of which a cell holds a fragment, and which.
    #[must_use]
    pub fn place(self, cell: Cell) -> (u64, usize) {
        assert!((cell.member as u64) < self.members, "there is no member {}", cell.member);
        let number = self.number_of(cell.member, cell.row);
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
        // The first row of which the member's cell is at or past that of the place.
        let from = |place: u64| {
            let (cell, row) = (place * self.written, place * self.written / self.members);
            if self.number_of(member, row) >= cell { row } else { row + 1 }
        };
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
    fn every_member_has_every_fragment_and_neighbours_in_turn() {
        for (written, members, cells) in all() {
            // A round for each member.
            let places = cells.places(cells.round * members as u64);
            let mut roles = BTreeSet::new();
            let mut sets = BTreeSet::new();
            for place in 0..places {
                let own: Vec<usize> =
                    (0..written).map(|fragment| cells.cell(place, fragment).member).collect();
                roles.extend(own.iter().copied().enumerate());
                sets.insert(own.into_iter().collect::<BTreeSet<usize>>());
            }
            assert_eq!(roles.len(), written * members, "{written} of {members}");
            assert_eq!(sets.len(), if written == members { 1 } else { members }, "{written} of {members}");
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
