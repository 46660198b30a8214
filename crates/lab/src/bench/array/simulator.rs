//! The thesis' simulator (section 8.4): four chips or disks, and workers that read or write random
//! pages, wait, sleep, and go on.
//!
//! A member serves its fragments one after the other, in the order in which they are asked for. So
//! when an operation begins it is known when each of its fragments will be done, and the only
//! events are the beginnings of operations.
//!
//! As printed: a fragment's write costs its share of a page's, its read costs that of a whole page;
//! a write returns when as many fragments are written as are needed to read the page; fragments of
//! a page are on different members; only I/O takes time. Not printed, and so chosen here: a page's
//! fragments lie where [`Cells`] says; a read takes the members that are free first, data fragments
//! first where equal; every access of a disk seeks for 6 ms. Workers begin after a random part of
//! their sleep.

use firndb_array::{Cells, Code, Cost, MemberCosts};
use firndb_base::rng::Rng;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Members of the array.
pub const MEMBERS: usize = 4;
/// Bytes of a page.
pub const PAGE: usize = 2048;
/// Pages of all members: 64 MB.
const PAGES: u64 = 4 * 8192;
/// Epochs that are compared.
pub const WINDOW: usize = 8;
/// Most epochs of a run.
pub const EPOCHS_MAX: usize = 80;
/// How much the rate of the last epoch of a window may differ from that of its first.
const CHANGE_MAX: f64 = 0.01;

/// What a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Flash,
    Disk,
}

impl Kind {
    pub const ALL: [Kind; 2] = [Kind::Flash, Kind::Disk];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Flash => "flash",
            Kind::Disk => "disks",
        }
    }

    /// What fragments take.
    pub fn costs(self) -> MemberCosts {
        let linear = |fixed_us, us_per_byte| Cost { fixed_us, us_per_byte };
        match self {
            // Equation 2.2 of chips half full, 466.875 us, which the thesis cuts off.
            Kind::Flash => MemberCosts { read: linear(20.0, 0.0), write: linear(0.0, 466.875 / PAGE as f64) },
            // 60 MB/s.
            Kind::Disk => MemberCosts {
                read: linear(6000.0 + PAGE as f64 / 60.0, 0.0),
                write: linear(6000.0, 1.0 / 60.0),
            },
        }
    }
}

/// Workers, and the microseconds that they sleep, which are multiplied by 0.75 to 1.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Workload {
    pub writers: usize,
    pub readers: usize,
    pub write_sleep_us: u64,
    pub read_sleep_us: u64,
}

/// What a run found of reads, or of writes, in its last epochs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observed {
    pub per_second: f64,
    /// The mean.
    pub latency_us: f64,
    /// The most that were under way at a time.
    pub at_once: usize,
}

/// What a run found.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ran {
    pub reads: Observed,
    pub writes: Observed,
    /// Epochs that were simulated.
    pub epochs: usize,
    /// Whether the rate had settled.
    pub is_settled: bool,
}

/// Operations of one kind that ended in an epoch.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    count: u64,
    ns: u64,
    at_once: usize,
}

/// Reads and writes of an epoch.
type Epoch = [Done; 2];
const READS: usize = 0;
const WRITES: usize = 1;

/// All times in nanoseconds.
struct Array {
    code: Code,
    cells: Cells,
    read_ns: u64,
    write_ns: u64,
    /// When each member has done what it was asked for.
    free_at: [u64; MEMBERS],
}

impl Array {
    fn new(kind: Kind, code: Code) -> Array {
        let costs = kind.costs();
        let ns = |us: f64| (us * 1000.0).round() as u64;
        Array {
            code,
            cells: Cells::new(code.written(), MEMBERS),
            read_ns: ns(costs.read.of(PAGE)),
            // Fragments here are no whole blocks: a page of 2,048 bytes has three of 683.
            write_ns: ns(costs.write.fixed_us + costs.write.us_per_byte * PAGE as f64 / code.needed() as f64),
            free_at: [0; MEMBERS],
        }
    }

    /// The members with fragments of the page, in the fragments' order.
    fn members(&self, page: u64) -> ([usize; MEMBERS], usize) {
        let mut members = [0; MEMBERS];
        let written = self.code.written();
        for (fragment, member) in members[..written].iter_mut().enumerate() {
            *member = self.cells.cell(page, fragment).member;
        }
        (members, written)
    }

    /// Returns when the page has been read.
    fn read(&mut self, page: u64, now: u64) -> u64 {
        let (mut members, written) = self.members(page);
        let members = &mut members[..written];
        // Members that are free now are equal. The sort is stable: data fragments come first.
        members.sort_by_key(|&member| self.free_at[member].max(now));
        let taken = &members[..self.code.needed()];
        taken.iter().map(|&member| self.serve(member, now, self.read_ns)).max().expect("one at least")
    }

    /// Returns when as many fragments of the page are written as are needed to read it.
    fn write(&mut self, page: u64, now: u64) -> u64 {
        let (members, written) = self.members(page);
        let mut done = [u64::MAX; MEMBERS];
        for (done, &member) in done.iter_mut().zip(&members[..written]) {
            *done = self.serve(member, now, self.write_ns);
        }
        done.sort_unstable();
        done[self.code.needed() - 1]
    }

    fn serve(&mut self, member: usize, now: u64, ns: u64) -> u64 {
        let done = self.free_at[member].max(now) + ns;
        self.free_at[member] = done;
        done
    }
}

/// Workers, their clocks, and what they have done.
struct Run {
    rng: Rng,
    array: Array,
    workload: Workload,
    epoch_ns: u64,
    epochs: Vec<Epoch>,
    /// When the operations under way end, by kind.
    under_way: [Vec<u64>; 2],
}

impl Run {
    /// The first workers write.
    fn kind_of(&self, worker: usize) -> usize {
        if worker < self.workload.writers { WRITES } else { READS }
    }

    fn sleep_ns(&mut self, worker: usize) -> u64 {
        let us = [self.workload.read_sleep_us, self.workload.write_sleep_us][self.kind_of(worker)];
        self.rng.between(us * 750, us * 1500)
    }

    /// Does an operation that begins now; returns when it ends.
    fn operate(&mut self, worker: usize, now: u64) -> u64 {
        let (kind, page) = (self.kind_of(worker), self.rng.below(PAGES));
        let end = match kind {
            WRITES => self.array.write(page, now),
            _ => self.array.read(page, now),
        };
        let under_way = &mut self.under_way[kind];
        under_way.retain(|&end| end > now);
        under_way.push(end);
        let epoch = (end / self.epoch_ns) as usize;
        if self.epochs.len() <= epoch {
            self.epochs.resize(epoch + 1, Epoch::default());
        }
        let done = &mut self.epochs[epoch][kind];
        done.count += 1;
        done.ns += end - now;
        done.at_once = done.at_once.max(under_way.len());
        end
    }

    /// What the eight epochs come to that ended last, of which `ended` have.
    fn observed(&self, ended: usize, kind: usize) -> Observed {
        let window = self.epochs[ended - WINDOW..ended].iter().map(|epoch| epoch[kind]);
        let count = window.clone().map(|done| done.count).sum::<u64>() as f64;
        let ns = window.clone().map(|done| done.ns).sum::<u64>() as f64;
        Observed {
            per_second: count / (WINDOW as f64 * self.epoch_ns as f64 / 1e9),
            latency_us: if count > 0.0 { ns / 1000.0 / count } else { 0.0 },
            at_once: window.map(|done| done.at_once).max().unwrap_or(0),
        }
    }

    /// Whether the last of the eight epochs that ended last differs little from the first.
    fn is_settled(&self, ended: usize) -> bool {
        if ended < WINDOW {
            return false;
        }
        let all = |epoch: Epoch| (epoch[READS].count + epoch[WRITES].count) as f64;
        let (first, last) = (all(self.epochs[ended - WINDOW]), all(self.epochs[ended - 1]));
        (last - first).abs() <= CHANGE_MAX * first
    }
}

/// Runs until the rates of eight epochs settle.
pub fn run(kind: Kind, code: Code, workload: Workload, epoch_ns: u64, seed: u64) -> Ran {
    let mut run = Run {
        rng: Rng::new(seed),
        array: Array::new(kind, code),
        workload,
        epoch_ns,
        epochs: Vec::new(),
        under_way: Default::default(),
    };
    let mut next: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    for worker in 0..workload.writers + workload.readers {
        let sleep = run.sleep_ns(worker);
        next.push(Reverse((run.rng.below(sleep.max(1)), worker)));
    }
    let mut ended = 0;
    while let Some(mut first) = next.peek_mut() {
        let Reverse((now, worker)) = *first;
        // Operations that begin later end later: the epochs before are whole.
        while now >= (ended as u64 + 1) * epoch_ns {
            ended += 1;
            run.epochs.resize(run.epochs.len().max(ended), Epoch::default());
            let is_settled = run.is_settled(ended);
            if is_settled || ended == EPOCHS_MAX {
                let (reads, writes) = (run.observed(ended, READS), run.observed(ended, WRITES));
                return Ran { reads, writes, epochs: ended, is_settled };
            }
        }
        let end = run.operate(worker, now);
        *first = Reverse((end + run.sleep_ns(worker), worker));
    }
    // Nothing happens without workers.
    Ran { is_settled: true, ..Ran::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn code(needed: usize, written: usize) -> Code {
        Code::new(needed, written).unwrap()
    }

    fn workers(writers: usize, readers: usize) -> Workload {
        Workload { writers, readers, write_sleep_us: 200, read_sleep_us: 200 }
    }

    /// A worker sleeps 225 us on average.
    #[test]
    fn a_worker_alone_takes_the_times_that_are_printed() {
        for (kind, needed, read_us, write_us) in [
            (Kind::Flash, 1, 20.0, 466.875),
            (Kind::Flash, 4, 20.0, 116.719),
            (Kind::Disk, 1, 6034.133, 6034.133),
            (Kind::Disk, 4, 6034.133, 6008.533),
        ] {
            for written in needed..=MEMBERS {
                let ran = |workload| run(kind, code(needed, written), workload, SECOND, 1);
                let (reads, writes) = (ran(workers(0, 1)).reads, ran(workers(1, 0)).writes);
                assert!((reads.latency_us - read_us).abs() < 0.01, "{reads:?}");
                // With as many copies as members the next write may wait for the last one's rest.
                assert!((writes.latency_us - write_us).abs() < 0.01, "{writes:?}");
                assert!((reads.per_second * (225.0 + read_us) / 1e6 - 1.0).abs() < 0.01, "{reads:?}");
                assert_eq!((reads.at_once, writes.at_once), (1, 1));
            }
        }
    }

    #[test]
    fn full_members_serve_what_their_times_allow() {
        let workload = Workload { writers: 100, readers: 0, write_sleep_us: 1, read_sleep_us: 1 };
        for code in Code::all(MEMBERS) {
            let ran = run(Kind::Flash, code, workload, SECOND, 1);
            let each = 466.875 * code.written() as f64 / code.needed() as f64;
            let most = MEMBERS as f64 * 1e6 / each;
            // Writes return before their last fragments are written: some of what a run has counted
            // is left in the queues.
            let beyond = if code.spare() == 0 { 0.001 } else { 0.02 };
            assert!((0.97..=1.0 + beyond).contains(&(ran.writes.per_second / most)), "{code}: {ran:?}");
            assert_eq!(ran.writes.at_once, 100, "{code}");
        }
    }

    #[test]
    fn a_run_follows_from_its_seed() {
        let ran = |seed| run(Kind::Flash, code(2, 3), workers(2, 5), SECOND / 10, seed);
        assert_eq!(ran(1), ran(1));
        assert_ne!(ran(1), ran(2));
        assert_eq!(ran(1).epochs, ran(1).epochs.max(WINDOW));
    }

    #[test]
    fn reads_take_the_member_that_is_free() {
        let mut array = Array::new(Kind::Flash, code(1, 2));
        let busy = array.members(0).0[0];
        array.free_at[busy] = 1_000_000;
        assert_eq!(array.read(0, 0), 20_000);
        // Both copies are needed by a code without spare ones.
        let mut array = Array::new(Kind::Flash, code(2, 2));
        array.free_at[busy] = 1_000_000;
        assert_eq!(array.read(0, 0), 1_020_000);
        // The next pages lie on the other members.
        assert_eq!(array.read(1, 0), 20_000);
    }

    #[test]
    fn a_write_returns_with_the_fragments_that_are_needed() {
        let mut array = Array::new(Kind::Disk, code(2, 3));
        array.free_at = [0, 1_000_000_000, 0, 0];
        let members = array.members(0).0;
        assert_eq!(members[..3], [0, 1, 2]);
        assert_eq!(array.write(0, 0), 6_017_067);
        assert!(array.free_at[1] > 1_000_000_000, "the third is written, too");
    }
}
