//! What the coded array has to reach: every target of the capability, in its order.
//!
//! Every file of results lists all of them; those of parts that are not built stand there without a
//! value.

use crate::bench::figure::Figure;
use crate::bench::wanted::{Group, Wanted, at_least, at_most};

pub const STRIPE: Wanted =
    at_least("flash, 5 writers at 200 us, 5 readers at 3,000: fragmenting over the best code", 1.0);
pub const TWO_COPIES: Wanted =
    at_most("flash, 5 writers at 200 us, 5 readers at 3,000: two copies over fragmenting", 0.65);
pub const ONE_COPY: Wanted =
    at_least("disks, 5 writers, all readers and base times: one copy over the best code, least", 0.98);
pub const CHOSEN_LEAST: Wanted =
    at_least("choose over the best of the ten codes, least of all cells, flash and disks", 0.95);
pub const CHOSEN_MEAN: Wanted =
    at_least("choose over the best of the ten codes, mean of all cells, flash and disks", 0.98);
pub const CHOSEN_WORST: Wanted =
    at_least("choose over the worst of the ten codes, flash, most of all cells", 1.8);
pub const CHOSEN_IN_TURN: Wanted =
    at_least("choose over the best single code, flash, three cells in turn", 1.0);

pub const EACH_BEST: Wanted = at_least("engine: a layout for each table over the best single one", 1.0);
pub const EACH_WORST: Wanted = at_least("engine: a layout for each table over the worst single one", 1.8);
pub const AUTO_BEST: Wanted =
    at_least("engine: layouts that the engine chooses over the best single one, least", 1.0);
pub const SPIKES_READ: Wanted =
    at_most("tail, one member of four with 1 % spikes of 100 ms: read p99.9 over that without", 2.0);
pub const SPIKES_HIDDEN: Wanted = at_least("tail, the same: read p99.9 not hidden over hidden", 30.0);
pub const SPIKES_EXTRA: Wanted = at_most("tail, the same: extra reads, %", 5.0);
pub const SPIKES_WRITE: Wanted = at_most("tail, the same, w > a: write p99.9 over that without", 2.0);
pub const FROZEN_READ: Wanted =
    at_most("tail, a member frozen for 5 s: longest read beyond the longest without, ms", 10.0);
pub const BYTES: Wanted = at_most("bytes to members over w fragments a page", 1.05);
pub const READS_OF_WRITES: Wanted = at_most("reads caused by writes", 0.0);
pub const FOUR_READ: Wanted = at_least("four members, one copy: random reads over one member", 3.8);
pub const FOUR_WRITE: Wanted = at_least("four members, one copy: batch writes over one member", 3.5);
pub const REBUILD_UNUSED: Wanted = at_most("rebuild: fragments recomputed of places that are not used", 0.0);
pub const REBUILD_RATE: Wanted = at_least("rebuild: over the new device's sequential write rate", 0.8);
pub const MOVING: Wanted = at_least("a layout change of 1 GB: TPC-C meanwhile over that alone", 0.8);
pub const REBUILD_BESIDE: Wanted = at_most("rebuild beside TPC-C: p99 over that alone", 2.0);

const NOT_BUILT: &str = "not built yet";
const TESTED: &str = "crates/array, crates/firn (store_devices) and the simulator test it";

/// All figures, in the order of the file.
const GROUPS: [Group; 12] = [
    Group {
        number: "member",
        title: "a store on one member",
        targets: &[
            at_most("one member: bytes that differ from those of the store before", 0.0),
            at_most("one member: yardstick over that before, %", 1.0),
        ],
        why: NOT_BUILT,
    },
    Group {
        number: "8-1",
        title: "copies' worth of space that the best code writes",
        targets: &[],
        why: "run with --figure 8-1",
    },
    Group {
        number: "8-2",
        title: "fragments that the best code needs",
        targets: &[],
        why: "run with --figure 8-2",
    },
    Group {
        number: "8-3",
        title: "three usual codes beside the best, on flash",
        targets: &[STRIPE, TWO_COPIES],
        why: "run with --figure 8-3",
    },
    Group {
        number: "8-4",
        title: "three usual codes beside the best, on disks",
        targets: &[ONE_COPY],
        why: "run with --figure 8-4",
    },
    Group {
        number: "cells",
        title: "every cell, and where what is printed holds",
        targets: &[],
        why: "run with --figure cells",
    },
    Group {
        number: "choice",
        title: "the code that choose() takes",
        targets: &[CHOSEN_LEAST, CHOSEN_MEAN, CHOSEN_WORST, CHOSEN_IN_TURN],
        why: "run with --figure choice",
    },
    Group {
        number: "engine",
        title: "two tables over four chips, every single code",
        targets: &[EACH_BEST, EACH_WORST, AUTO_BEST],
        why: "run with --figure engine",
    },
    Group {
        number: "tail",
        title: "reads beside a member that is late or frozen",
        targets: &[SPIKES_READ, SPIKES_HIDDEN, SPIKES_EXTRA, SPIKES_WRITE, FROZEN_READ],
        why: "run with --figure tail",
    },
    Group {
        number: "rates",
        title: "four members beside one, and what writes cause",
        targets: &[BYTES, READS_OF_WRITES, FOUR_READ, FOUR_WRITE],
        why: "run with --figure rates",
    },
    Group {
        number: "rebuild",
        title: "a lost member replaced",
        targets: &[REBUILD_UNUSED, REBUILD_RATE, REBUILD_BESIDE],
        why: "run with --figure rebuild",
    },
    Group {
        number: "moving",
        title: "a table that gets another layout",
        targets: &[MOVING],
        why: "run with --figure moving",
    },
];

const EXAMPLE: &str = "the example `code_cost` of crates/array prints it";
/// What no figure judges.
const ELSEWHERE: [(Wanted, &str); 8] = [
    (
        at_most(
            "f members lost at any crash image: images that do not open, or lost what was acknowledged",
            0.0,
        ),
        TESTED,
    ),
    (
        at_most("f + 1 members lost: images that give wrong data, or an error that names no member", 0.0),
        TESTED,
    ),
    (at_most("rot in up to w - m fragments: pages wrong, not repaired, or members not named", 0.0), TESTED),
    (at_most("rot in more fragments: pages not reported as damaged", 0.0), TESTED),
    (at_most("a layout change of 1 GB: crash images that are not whole", 0.0), NOT_BUILT),
    (at_most("processor time for 4 KiB, n = 4: encoding, us", 2.0), EXAMPLE),
    (at_most("processor time for 4 KiB, n = 4: decoding without one fragment, us", 3.0), EXAMPLE),
    (at_most("processor time for 4 KiB, n = 4: XOR, us", 1.0), EXAMPLE),
];

/// The figure of this number, with nothing in it.
pub fn figure(number: &str) -> Figure {
    Group::figure_of(&GROUPS, number)
}

/// All figures without values: what stands in a file of results until they are measured.
pub fn not_measured() -> Vec<Figure> {
    Group::not_measured(&GROUPS, ("the array as the engine has it", &ELSEWHERE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::wanted::assert_each_stands_once;

    #[test]
    fn every_target_stands_once_and_with_a_reason_until_it_is_measured() {
        assert_each_stands_once(&not_measured(), 25 + ELSEWHERE.len());
    }
}
