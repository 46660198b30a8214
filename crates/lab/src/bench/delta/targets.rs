//! What deltas have to reach: every target of the capability, in its order.
//!
//! Every file of results lists all of them; those that a stream cannot judge stand there with what
//! measures them.

use crate::bench::figure::Figure;
use crate::bench::wanted::{Group, Wanted, at_least, at_most};

pub const WRITES_8K: Wanted = at_most("page writes over ORIG, 8 KiB, write buffer 8 MB", 0.45);
pub const WRITES_4K: Wanted = at_most("page writes over ORIG, 4 KiB, write buffer 8 MB", 0.50);
pub const READS_8K: Wanted = at_most("page reads over ORIG in the same runs, 8 KiB", 1.5);
pub const READS_4K: Wanted = at_most("page reads over ORIG in the same runs, 4 KiB", 1.5);
pub const DELTAS_READ: Wanted = at_most("delta pages read for one page, at most", 1.0);
pub const MINIMUM: Wanted =
    at_most("page writes an eviction over the computed minimum, no write buffer, read budget lifted", 1.15);
pub const TIME_HIGH: Wanted = at_most("I/O time over ORIG, x25-e", 0.28);
pub const TIME_LOW_A: Wanted = at_most("I/O time over ORIG, myers-a", 0.09);
pub const TIME_LOW_OCZ: Wanted = at_most("I/O time over ORIG, ocz-core", 0.09);
pub const TIME_PACK: Wanted =
    at_most("I/O time over append and pack under auto, most over all profiles", 1.0);

const GROUPS: [Group; 5] = [
    Group {
        number: "5",
        title: "page writes and reads over the size of the write buffer",
        targets: &[WRITES_8K, WRITES_4K, READS_8K, READS_4K, DELTAS_READ],
        why: "run with --figure 5",
    },
    Group {
        number: "bound",
        title: "page writes beside the least that is possible",
        targets: &[MINIMUM],
        why: "run with --figure bound",
    },
    Group {
        number: "6",
        title: "I/O time on kinds of drives",
        targets: &[TIME_HIGH, TIME_LOW_A, TIME_LOW_OCZ, TIME_PACK],
        why: "run with --figure 6",
    },
    Group {
        number: "front",
        title: "page writes over page reads, by what a read may cost",
        targets: &[],
        why: "run with --figure front",
    },
    Group {
        number: "placement",
        title: "placement by whole segments",
        targets: &[],
        why: "run with --figure placement",
    },
];

const COMPARE: &str = "bench/compare measures it, deltas off and on";
const STORE: &str = "the store measures it, not a stream";
/// What no stream can judge.
const ELSEWHERE: [(Wanted, &str); 11] = [
    (at_most("map pages written an eviction, 100 GB per 32 MiB of log", 0.12), STORE),
    (at_most("bytes written a transaction, data ten times the buffer, over deltas off", 0.6), COMPARE),
    (at_most("page bytes without log, the same", 0.45), COMPARE),
    (at_most("bytes written a transaction over RocksDB's", 0.9), COMPARE),
    (at_least("the same runs: tpmC over the best of four peers", 1.7), COMPARE),
    (at_least("tpmC over deltas off under auto, least over all profiles", 0.97), STORE),
    (at_least("the same where a page written in a run costs 2.5 random reads or more, least", 1.3), STORE),
    (at_most("DRAM beyond map and write buffer, bytes a page", 2.0), STORE),
    (at_most("first commit after a kill, over deltas off", 1.1), STORE),
    (
        at_most("yardstick with deltas on, data in memory, %", 1.0),
        "the example `hotpath` of crates/adapter counts it",
    ),
    (at_most("deltas in the cache at 4 and 8 %: flash bytes over the default cache", 0.5), STORE),
];

/// The figure of this number, with nothing in it.
pub fn figure(number: &str) -> Figure {
    Group::figure_of(&GROUPS, number)
}

/// All figures without values: what stands in a file of results until they are measured.
pub fn not_measured() -> Vec<Figure> {
    Group::not_measured(&GROUPS, ("deltas as other programs measure them", &ELSEWHERE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::wanted::assert_each_stands_once;

    #[test]
    fn every_target_stands_once_and_with_a_reason_until_it_is_measured() {
        assert_each_stands_once(&not_measured(), 10 + ELSEWHERE.len());
    }
}
