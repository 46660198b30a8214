//! The cells: every number of workers and every pair of base times.

use super::simulator::Workload;

const WRITERS: [usize; 4] = [1, 2, 5, 10];
const READERS: [usize; 3] = [5, 25, 50];
/// Base times of either kind of workers, microseconds.
pub const SLEEPS_US: [u64; 3] = [200, 1500, 3000];
/// Writers of the cases that the thesis shows.
const SHOWN_WRITERS: usize = 5;

impl Workload {
    /// Workers, and their base times.
    pub fn name(&self) -> String {
        format!(
            "{} writers at {}, {} readers at {}",
            self.writers, self.write_sleep_us, self.readers, self.read_sleep_us
        )
    }

    /// Its base times.
    pub fn pair_name(&self) -> String {
        format!("writers {}, readers {}", self.write_sleep_us, self.read_sleep_us)
    }
}

/// All 108 cells.
pub fn all() -> Vec<Workload> {
    let mut all = Vec::new();
    for (write_sleep_us, read_sleep_us) in pairs() {
        for writers in WRITERS {
            for readers in READERS {
                all.push(Workload { writers, readers, write_sleep_us, read_sleep_us });
            }
        }
    }
    all
}

/// The nine pairs of base times, the writers' first.
pub fn pairs() -> impl Iterator<Item = (u64, u64)> {
    SLEEPS_US.into_iter().flat_map(|write| SLEEPS_US.into_iter().map(move |read| (write, read)))
}

/// A case that the thesis shows, each with five writers. Its text names a case by readers and by
/// the writers' base time; elsewhere it says that the writers' is 200 us and that the readers'
/// varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    pub name: &'static str,
    /// What the thesis says of it.
    pub prevails: &'static str,
    pub readers: usize,
    /// The writers' base time by which it is named.
    pub write_sleep_us: u64,
}

pub const CASES: [Case; 3] = [
    Case { name: "5 readers", prevails: "writes prevail", readers: 5, write_sleep_us: 200 },
    Case { name: "25 readers", prevails: "mixed", readers: 25, write_sleep_us: 1500 },
    Case { name: "50 readers", prevails: "reads prevail", readers: 50, write_sleep_us: 3000 },
];

impl Case {
    /// Its nine cells, a pair of base times each.
    pub fn cells(self) -> impl Iterator<Item = Workload> {
        pairs().map(move |(write_sleep_us, read_sleep_us)| Workload {
            writers: SHOWN_WRITERS,
            readers: self.readers,
            write_sleep_us,
            read_sleep_us,
        })
    }
}

/// The three cells that a target takes in turn.
pub const IN_TURN: [Workload; 3] = [
    Workload { writers: 5, readers: 5, write_sleep_us: 200, read_sleep_us: 3000 },
    Workload { writers: 5, readers: 25, write_sleep_us: 200, read_sleep_us: 1500 },
    Workload { writers: 5, readers: 50, write_sleep_us: 200, read_sleep_us: 200 },
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn there_are_as_many_cells_as_the_issue_names_and_the_shown_ones_are_among_them() {
        let cells: BTreeSet<Workload> = all().into_iter().collect();
        assert_eq!((all().len(), cells.len()), (108, 108));
        let shown: Vec<Workload> = CASES.into_iter().flat_map(Case::cells).chain(IN_TURN).collect();
        assert_eq!(shown.len(), 30);
        assert!(shown.iter().all(|workload| cells.contains(workload)));
    }
}
