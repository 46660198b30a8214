//! What queries have to reach: each target's name and limit, and the figure that measures it.
//!
//! Every file of results lists all of them, in this order; those that a run did not measure stand
//! there with the reason.

use crate::bench::figure::Figure;
use crate::bench::wanted::{Group, Wanted, at_least, at_most};

pub const CROSSOVER: Wanted =
    at_most("4-2, one page at a time: crossovers of A, B and the disk, factor to print, most", 1.5);
pub const SPEEDUP: Wanted =
    at_least("4-2, one page at a time: index over scan at 0.05 %, A and B, least", 25.0);
pub const PREDICTED_ONE: Wanted = at_most("4-2: predicted crossovers over measured ones, factor, most", 1.2);
pub const JOIN_CROSSOVER: Wanted =
    at_most("5-1, queue: end of sort-merge on A and B, factor to print, most", 1.3);
pub const PREDICTED_JOIN: Wanted = at_most("5-1: predicted crossovers over measured ones, factor, most", 1.2);
pub const WITHIN: Wanted =
    at_least("planner: cells in which its choice takes at most 1.1 times the best plan, %", 95.0);
pub const WORST: Wanted = at_most("planner: its choice over the best plan, most", 1.5);

pub const ADAPTIVE: Wanted =
    at_most("adaptive, estimates wrong by 100 times: over the better fixed plan, flash, volumes, most", 1.25);
pub const ADAPTIVE_DISK: Wanted =
    at_most("adaptive, estimates wrong by 100 times: over the better fixed plan, disks, most", 2.0);
pub const ADAPTIVE_MEAN: Wanted =
    at_most("adaptive, estimates wrong by 100 times: over the better fixed plan, mean", 1.1);

pub const PLANNING: Wanted = at_most("planning of two tables, us", 200.0);

/// What other programs measure.
const ELSEWHERE: &[(Wanted, &str)] = &[
    (at_least("scan: of the device's sequential rate, least", 0.85), "`firn lab bench reads` measures it"),
    (
        at_least("index fetch: of random reads at its depth, least", 0.85),
        "`firn lab bench reads` measures it",
    ),
    (
        at_most("DeviceCosts beside the emulator: off by, %", 10.0),
        "the test `device_costs` of firndb-emulate",
    ),
    (at_most("memory over the limit, %", 5.0), "the test `queries_keep_their_memory` of firndb-query"),
];

/// All figures, in the order of the file.
pub const GROUPS: [Group; 5] = [
    Group {
        number: "4-2",
        title: "an index against a scan",
        targets: &[CROSSOVER, SPEEDUP, PREDICTED_ONE],
        why: "run with --figure 4-2",
    },
    Group {
        number: "5-1",
        title: "four joins of customers and orders",
        targets: &[JOIN_CROSSOVER, PREDICTED_JOIN],
        why: "run with --figure 5-1",
    },
    Group {
        number: "planner",
        title: "the planner's choice beside every forced plan",
        targets: &[WITHIN, WORST],
        why: "run with --figure planner",
    },
    Group {
        number: "adaptive",
        title: "plans chosen by wrong estimates beside the better fixed one",
        targets: &[ADAPTIVE, ADAPTIVE_DISK, ADAPTIVE_MEAN],
        why: "run with --figure adaptive",
    },
    Group {
        number: "planning",
        title: "what planning takes",
        targets: &[PLANNING],
        why: "run with --figure planning",
    },
];

/// The figure of this number, with nothing in it.
pub fn figure(number: &str) -> Figure {
    Group::figure_of(&GROUPS, number)
}

/// All figures without values: what stands in a file of results until they are measured.
pub fn not_measured() -> Vec<Figure> {
    Group::not_measured(&GROUPS, ("queries as other programs measure them", ELSEWHERE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_target_stands_once() {
        crate::bench::wanted::assert_each_stands_once(&not_measured(), 15);
    }
}
