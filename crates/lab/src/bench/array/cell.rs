//! One cell: workers over chips or disks, under each of the ten codes.

use super::simulator::{self, Kind, MEMBERS, Observed, PAGE, Ran, Workload};
use crate::bench::cells::Cellular;
use firndb_array::{Clients, Code, Demands, Load, MemberCosts, choose};
use firndb_profile::VariantName;
use serde::{Deserialize, Serialize};

/// Codes with four members.
pub const CODES: usize = 10;

/// All of them, in the order of results.
pub fn codes() -> [Code; CODES] {
    let mut all = Code::all(MEMBERS);
    std::array::from_fn(|_| all.next().expect("four members have ten codes"))
}

/// Where a code stands among them.
pub fn number_of(needed: usize, written: usize) -> usize {
    let is_wanted = |code: &Code| (code.needed(), code.written()) == (needed, written);
    codes().iter().position(is_wanted).expect("it is a code of four members")
}

/// What is simulated.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    pub kind: Kind,
    pub workload: Workload,
    pub epoch_ns: u64,
}

impl Cellular for Cell {
    type Found = Found;

    fn name(&self) -> String {
        format!("{}, {}", self.kind.name(), self.workload.name())
    }

    /// Nothing is estimated: the thesis prints the times.
    fn at_end(&self, _: VariantName) -> Option<Cell> {
        None
    }
}

/// What the runs came to, by code.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Found {
    reads: [f64; CODES],
    writes: [f64; CODES],
    read_us: [f64; CODES],
    write_us: [f64; CODES],
    reads_at_once: [usize; CODES],
    writes_at_once: [usize; CODES],
    /// Runs whose rates had not settled when the last epoch ended.
    pub unsettled: usize,
    /// What `choose` came to.
    pub chosen: Chosen,
}

/// Runs the cell under every code.
pub fn run(cell: &Cell, seed: u64) -> Found {
    let mut found = Found::default();
    for (at, code) in codes().into_iter().enumerate() {
        let Ran { reads, writes, is_settled, .. } =
            simulator::run(cell.kind, code, cell.workload, cell.epoch_ns, seed);
        (found.reads[at], found.read_us[at], found.reads_at_once[at]) = reads.parts();
        (found.writes[at], found.write_us[at], found.writes_at_once[at]) = writes.parts();
        found.unsettled += usize::from(!is_settled);
    }
    found.chosen = chosen(cell.kind, &found);
    found
}

impl Observed {
    fn parts(self) -> (f64, f64, usize) {
        (self.per_second, self.latency_us, self.at_once)
    }
}

impl Found {
    /// Operations a second under a code.
    pub fn operations(&self, code: usize) -> f64 {
        self.reads[code] + self.writes[code]
    }

    /// Under the best code.
    pub fn most(&self) -> f64 {
        (0..CODES).map(|code| self.operations(code)).fold(0.0, f64::max)
    }

    /// Under the worst.
    pub fn least(&self) -> f64 {
        (0..CODES).map(|code| self.operations(code)).fold(f64::INFINITY, f64::min)
    }

    /// Operations under a code over those under the best.
    pub fn share(&self, code: usize) -> f64 {
        self.operations(code) / self.most()
    }

    /// Which code is best; of equal ones the first.
    pub fn best(&self) -> usize {
        (0..CODES).rev().max_by(|&a, &b| self.operations(a).total_cmp(&self.operations(b))).expect("ten")
    }

    /// The load as an array measures it under a code.
    fn load(&self, code: usize) -> Load {
        Load {
            readers: Clients::measured(self.reads[code], self.read_us[code], self.reads_at_once[code]),
            writers: Clients::measured(self.writes[code], self.write_us[code], self.writes_at_once[code]),
        }
    }
}

/// Most changes of a code until it is judged.
const CHANGES_MAX: usize = 5;

/// What `choose` came to in a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chosen {
    pub code: usize,
    /// Changes until it came to the code that it has.
    pub changes: usize,
}

/// The code that a cell comes to: it begins with one copy, and each time that its load has been
/// measured under the code that it has, it goes over to the one that is chosen for that load.
fn chosen(kind: Kind, found: &Found) -> Chosen {
    let members: [MemberCosts; MEMBERS] = [kind.costs(); MEMBERS];
    // Nothing is to survive, as in the thesis; fragments are no whole blocks.
    let demands = Demands { survive: 0, space: MEMBERS as f64, page_bytes: PAGE, block_bytes: 1 };
    let mut now = Chosen { code: number_of(1, 1), changes: 0 };
    while now.changes < CHANGES_MAX {
        let choice = choose(found.load(now.code), &members, demands).expect("every code satisfies them");
        let next = number_of(choice.code.needed(), choice.code.written());
        if next == now.code {
            break;
        }
        now = Chosen { code: next, changes: now.changes + 1 };
    }
    now
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn found(kind: Kind, writers: usize, readers: usize, write_us: u64, read_us: u64) -> Found {
        let workload = Workload { writers, readers, write_sleep_us: write_us, read_sleep_us: read_us };
        run(&Cell { kind, workload, epoch_ns: SECOND / 2 }, 1)
    }

    #[test]
    fn choices_follow_the_load() {
        let chosen = |found: &Found| codes()[found.chosen.code].to_string();
        let writes = found(Kind::Flash, 5, 5, 200, 3000);
        assert_eq!(chosen(&writes), "4 of 4");
        assert_eq!(codes()[writes.best()].to_string(), "4 of 4");
        let reads = found(Kind::Flash, 5, 50, 200, 200);
        assert_eq!(chosen(&reads), "1 of 1");
        assert_eq!(codes()[reads.best()].to_string(), "1 of 1");
        let disks = found(Kind::Disk, 5, 25, 1500, 1500);
        assert_eq!(chosen(&disks), "1 of 1");
    }

    #[test]
    fn a_cell_is_measured_under_every_code() {
        let found = found(Kind::Flash, 2, 5, 200, 200);
        assert!((0..CODES).all(|code| found.reads[code] > 0.0 && found.writes[code] > 0.0));
        assert!((0..CODES).all(|code| (1..=5).contains(&found.reads_at_once[code])));
        assert!((0..CODES).all(|code| (1..=2).contains(&found.writes_at_once[code])));
        assert_eq!(found.share(found.best()), 1.0);
        assert!(found.least() < found.most());
    }
}
