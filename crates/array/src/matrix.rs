//! The one matrix that all codes are parts of, and its inverses.
//!
//! A Cauchy matrix has 1 / (x(r) + y(j)) in row r and column j, all x and y being different; each
//! of its square parts has an inverse, and so any m fragments determine the page. Multiplying rows
//! and columns by constants keeps that. Here every column is divided by its first entry and then
//! every row by its first: the first row and the first column are ones. What this does to an entry
//! depends on its row and column only, so that the matrix of a smaller code is a corner of the one
//! below. Vandermonde matrices that are made systematic naively do not have the property
//! (intel/isa-l#46).

use crate::code::MEMBERS_MAX;
use crate::field::{invert, multiply};

/// Coefficients by fragment: of as many as a code needs.
pub type Row = [u8; MEMBERS_MAX];

/// Most parity fragments: there is at least one data fragment.
const PARITIES_MAX: usize = MEMBERS_MAX - 1;

/// Coefficients of the data fragments in each parity fragment. Part of the format.
pub static PARITY: [Row; PARITIES_MAX] = scaled_cauchy();

const fn scaled_cauchy() -> [Row; PARITIES_MAX] {
    // y(j) = j and x(r) = 16 + r.
    let mut rows = [[0; MEMBERS_MAX]; PARITIES_MAX];
    let mut r = 0;
    while r < PARITIES_MAX {
        let mut j = 0;
        while j < MEMBERS_MAX {
            rows[r][j] = ratio(r, j);
            j += 1;
        }
        r += 1;
    }
    rows
}

/// The entry of the Cauchy matrix, over the first of its row and that of its column, times the
/// first of all.
const fn ratio(r: usize, j: usize) -> u8 {
    let over = multiply(sum(r, j), sum(0, 0));
    multiply(multiply(sum(r, 0), sum(0, j)), invert(over))
}

/// x(r) + y(j).
const fn sum(r: usize, j: usize) -> u8 {
    ((MEMBERS_MAX + r) ^ j) as u8
}

/// How fragments follow from those that are present.
#[derive(Debug)]
pub struct Inverse {
    /// The fragments that are present, ascending: as many as the code needs.
    pub present: Vec<usize>,
    /// Data fragments that are not present, ascending, each with its coefficients by position in
    /// `present`.
    pub lost: Vec<(usize, Row)>,
}

impl Inverse {
    /// For a code that needs as many fragments as `present` has.
    ///
    /// The lost data fragments satisfy a system of as many equations as there are parity fragments
    /// present: each parity less what the present data fragments contribute to it.
    pub fn of(present: Vec<usize>) -> Inverse {
        let needed = present.len();
        let lost: Vec<usize> = (0..needed).filter(|data| !present.contains(data)).collect();
        let data = needed - lost.len();
        let parities = &present[data..];
        assert_eq!(parities.len(), lost.len(), "a parity fragment stands for each lost data fragment");
        let solved = solve(parities.iter().map(|parity| {
            let row = &PARITY[parity - needed];
            lost.iter().map(|&data| row[data]).collect()
        }));
        let rows = lost.iter().zip(&solved).map(|(&lost, weights)| {
            let mut row = Row::default();
            for (at, &data) in present[..data].iter().enumerate() {
                for (parity, &weight) in parities.iter().zip(weights) {
                    row[at] ^= multiply(weight, PARITY[parity - needed][data]);
                }
            }
            row[data..needed].copy_from_slice(weights);
            (lost, row)
        });
        let lost = rows.collect();
        Inverse { present, lost }
    }

    /// The coefficients of any fragment, by position in `present`.
    pub fn row(&self, fragment: usize) -> Row {
        let needed = self.present.len();
        let mut row = Row::default();
        if let Some(at) = self.present.iter().position(|&present| present == fragment) {
            row[at] = 1;
        } else if let Some((_, coefficients)) = self.lost.iter().find(|(lost, _)| *lost == fragment) {
            row = *coefficients;
        } else {
            let parity = &PARITY[fragment - needed];
            for (data, &weight) in parity[..needed].iter().enumerate() {
                let of_data = self.row(data);
                row.iter_mut().zip(of_data).for_each(|(sum, one)| *sum ^= multiply(weight, one));
            }
        }
        row
    }
}

/// The inverse of a square matrix, by Gauss and Jordan.
fn solve(rows: impl Iterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
    let mut left: Vec<Vec<u8>> = rows.collect();
    let size = left.len();
    let unit = |at: usize| (0..size).map(|column| u8::from(column == at)).collect();
    let mut right: Vec<Vec<u8>> = (0..size).map(unit).collect();
    for column in 0..size {
        let pivot = (column..size).find(|&row| left[row][column] != 0);
        let pivot = pivot.expect("each square part of a Cauchy matrix has an inverse");
        left.swap(column, pivot);
        right.swap(column, pivot);
        let scale = invert(left[column][column]);
        for side in [&mut left, &mut right] {
            side[column].iter_mut().for_each(|entry| *entry = multiply(*entry, scale));
        }
        for row in (0..size).filter(|&row| row != column) {
            let times = left[row][column];
            for side in [&mut left, &mut right] {
                let pivot = side[column].clone();
                side[row].iter_mut().zip(pivot).for_each(|(entry, above)| *entry ^= multiply(times, above));
            }
        }
    }
    right
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_row_and_column_are_ones_and_no_entry_is_zero() {
        assert!(PARITY[0].iter().all(|&entry| entry == 1));
        assert!(PARITY.iter().all(|row| row[0] == 1));
        assert!(PARITY.iter().flatten().all(|&entry| entry != 0));
        let mut second: Vec<u8> = PARITY[1].to_vec();
        second.sort_unstable();
        second.dedup();
        assert_eq!(second.len(), MEMBERS_MAX, "columns of the second row differ, or two data losses are one");
    }

    #[test]
    fn the_matrix_is_that_of_the_format() {
        let hex = |row: &Row| row.map(|entry| format!("{entry:02x}")).concat();
        assert_eq!(PARITY.iter().map(hex).collect::<Vec<_>>(), GOLDEN);
    }

    /// Computed by another program. Changing a byte makes every array with parity unreadable.
    const GOLDEN: [&str; 15] = [
        "01010101010101010101010101010101",
        "01820a15803753586e4051162773d26d",
        "010a37da27f749515491b5b4e17cd95e",
        "0115dab4a57ed07fc143dbf4af8d78ab",
        "018027a5d9e1a1635cf33cc4acc75afc",
        "0137f77ee15a68b5d52e1750a8edac4d",
        "015349d0a168ef3adcb984ac0f6c1872",
        "0158517f63b53a6c6ab08af63c181d59",
        "016e54c15cd5dc6a46ede6087b9af81d",
        "01409143f32eb9b0edc503f21b4d4fa1",
        "0151b5db3c17848ae6037036deeb33ca",
        "0116b4f4c450acf608f236f3b9874b05",
        "0127e1afaca80f3c7b1bdeb99e0d466a",
        "01737c8dc7ed6c189a4deb870d1d6152",
        "01d2d9785aac181df84f334b4661a8d6",
    ];
}
