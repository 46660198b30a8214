//! What the thesis prints of its figures, as relations that hold in a cell or do not.
//!
//! Two codes are equal if they differ by at most 1 %, as much as a settled run's rate may change.

use super::cell::number_of;
use super::simulator::Workload;
use super::workloads::{CASES, Case};

/// A cell's medians over seeds.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub workload: Workload,
    /// Operations under each code over those under the best, on flash.
    pub flash: Vec<f64>,
    /// Likewise on disks.
    pub disks: Vec<f64>,
    /// Operations under the best code of flash over those under the best of disks.
    pub flash_over_disks: f64,
}

const EQUAL: f64 = 0.99;

/// A printed relation.
pub struct Relation {
    pub text: &'static str,
    /// The case of which it is printed; `None`: of all.
    pub case: Option<Case>,
    holds: fn(&Outcome) -> bool,
}

/// Usual codes, as the thesis calls them.
pub fn stripe() -> usize {
    number_of(4, 4)
}

pub fn one_copy() -> usize {
    number_of(1, 1)
}

pub fn two_copies() -> usize {
    number_of(1, 2)
}

pub const RELATIONS: [Relation; 9] = [
    Relation {
        text: "writes prevail: fragmenting is best",
        case: Some(CASES[0]),
        holds: |outcome| outcome.flash[stripe()] >= EQUAL,
    },
    Relation {
        text: "writes prevail: two copies do about half (0.4 to 0.6)",
        case: Some(CASES[0]),
        holds: |outcome| (0.4..=0.6).contains(&outcome.flash[two_copies()]),
    },
    Relation {
        text: "mixed: fragmenting is almost best (0.95 and more)",
        case: Some(CASES[1]),
        holds: |outcome| outcome.flash[stripe()] >= 0.95,
    },
    Relation {
        text: "reads prevail: copies are best",
        case: Some(CASES[2]),
        holds: |outcome| (2..=4).any(|written| outcome.flash[number_of(1, written)] >= EQUAL),
    },
    Relation {
        text: "reads prevail: two copies are as good as the best",
        case: Some(CASES[2]),
        holds: |outcome| outcome.flash[two_copies()] >= EQUAL,
    },
    Relation {
        text: "reads prevail: fragmenting loses 20 % (15 to 25)",
        case: Some(CASES[2]),
        holds: |outcome| (0.75..=0.85).contains(&outcome.flash[stripe()]),
    },
    Relation {
        text: "flash: one copy is not best",
        case: None,
        holds: |outcome| outcome.flash[one_copy()] < EQUAL,
    },
    Relation {
        text: "disks: one copy is best",
        case: None,
        holds: |outcome| outcome.disks[one_copy()] >= EQUAL,
    },
    Relation {
        text: "flash is two to three orders of magnitude above disks",
        case: None,
        holds: |outcome| (100.0..=1000.0).contains(&outcome.flash_over_disks),
    },
];

impl Relation {
    pub fn holds(&self, outcome: &Outcome) -> bool {
        (self.holds)(outcome)
    }

    /// Whether it is printed of this cell, whichever base times were meant.
    pub fn is_printed_of(&self, workload: &Workload) -> bool {
        match self.case {
            Some(case) => case.cells().any(|cell| cell == *workload),
            None => CASES.iter().any(|case| case.cells().any(|cell| cell == *workload)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::array::workloads;

    fn outcome(flash: &[(usize, f64)], disks: f64, over: f64) -> Outcome {
        let mut shares = vec![0.1; 10];
        flash.iter().for_each(|(code, share)| shares[*code] = *share);
        let mut on_disks = vec![0.1; 10];
        on_disks[one_copy()] = disks;
        Outcome { workload: workloads::all()[0], flash: shares, disks: on_disks, flash_over_disks: over }
    }

    #[test]
    fn relations_hold_where_they_say() {
        let held = |outcome: &Outcome| RELATIONS.map(|relation| relation.holds(outcome));
        let writes = outcome(&[(stripe(), 1.0), (two_copies(), 0.5), (one_copy(), 0.7)], 1.0, 300.0);
        assert_eq!(held(&writes), [true, true, true, false, false, false, true, true, true]);
        let reads = outcome(&[(stripe(), 0.8), (two_copies(), 0.992), (one_copy(), 1.0)], 0.9, 20.0);
        assert_eq!(held(&reads), [false, false, false, true, true, true, false, false, false]);
    }

    #[test]
    fn what_is_printed_of_a_case_is_printed_of_its_nine_cells() {
        for relation in RELATIONS {
            let printed = workloads::all().iter().filter(|cell| relation.is_printed_of(cell)).count();
            assert_eq!(printed, if relation.case.is_some() { 9 } else { 27 }, "{}", relation.text);
        }
    }
}
