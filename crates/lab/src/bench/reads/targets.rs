//! What reads have to reach: each target's name and limit, and the figure that measures it.
//!
//! Every file of results lists all of them, in this order; those that a run did not measure stand
//! there with the reason.

use crate::bench::figure::Figure;
use crate::bench::wanted::{Group, Wanted, at_least, at_most};

pub const POINTS: Wanted = at_least("point reads, 32 clients: of the drive's random reads at depth 32", 0.9);
pub const MANY: Wanted = at_least("get_many of 64, one client: of the drive's random reads at depth 32", 0.8);
pub const COLD_GET: Wanted = at_most("cold get, one client: p50 over that of one read of the drive", 1.3);
pub const SCAN: Wanted = at_least("cold full scan: of the drive's sequential rate", 0.85);
pub const SCAN_AHEAD: Wanted = at_least("cold full scan: over one without read-ahead", 5.0);
pub const FETCH_AHEAD: Wanted = at_least("cold fetch of 1 % of rows by an index: over one row by row", 3.0);
pub const PROFILES_SCAN: Wanted =
    at_least("profiles, computing free: cold full scan, of the sequential rate, least", 0.85);
pub const PROFILES_FETCH: Wanted =
    at_least("profiles, computing free: cold fetch of 1 % by an index, of random reads, least", 0.85);
pub const PROFILES_MANY: Wanted =
    at_least("profiles, computing free: get_many of 64, of random reads, least", 0.85);
pub const TPCC_WASTE: Wanted = at_most("TPC-C: pages read ahead and never used, %", 5.0);
pub const RANGES_WASTE: Wanted = at_most("random short ranges: pages read ahead and never used, %", 5.0);
pub const BUFFER_HITS: Wanted =
    at_least("a scan of 10 times DRAM beside TPC-C: its buffer hit rate over that alone", 0.9);
pub const CACHE_HITS: Wanted =
    at_least("a scan of 10 times DRAM beside TPC-C: its cache hit rate over that alone", 0.9);

/// What other programs measure.
const ELSEWHERE: &[(Wanted, &str)] = &[
    (
        at_least("TPC-C, data 10 times memory, 30 warehouses, asynchronous: over LeanStore", 3.0),
        "`firn tpcc` measures it, beside a build of LeanStore",
    ),
    (
        at_least("TPC-C, data 10 times memory: tpmC over the best of four peers", 1.7),
        "bench/compare measures it",
    ),
    (at_most("in memory: instructions of the mix of TPC-C over those before, %", 1.0), HOTPATH),
    (at_most("in memory: instructions of the first row of a scan", 2500.0), HOTPATH),
    (at_most("in memory: instructions of a scan of ten rows", 5500.0), HOTPATH),
];
const HOTPATH: &str = "the example `hotpath` of crates/adapter counts them";

/// All figures, in the order of the file.
pub const GROUPS: [Group; 4] = [
    Group {
        number: "real",
        title: "reads beside those of the drive itself",
        targets: &[POINTS, MANY, COLD_GET, SCAN, SCAN_AHEAD, FETCH_AHEAD],
        why: "run with --real --dir DIR",
    },
    Group {
        number: "profiles",
        title: "reads on the shipped drives, computing free",
        targets: &[PROFILES_SCAN, PROFILES_FETCH, PROFILES_MANY],
        why: "run with --figure profiles",
    },
    Group {
        number: "waste",
        title: "pages read ahead and never used",
        targets: &[TPCC_WASTE, RANGES_WASTE],
        why: "run with --figure waste",
    },
    Group {
        number: "beside",
        title: "a scan of ten times DRAM beside TPC-C",
        targets: &[BUFFER_HITS, CACHE_HITS],
        why: "run with --figure beside",
    },
];

/// The figure of this number, with nothing in it.
pub fn figure(number: &str) -> Figure {
    Group::figure_of(&GROUPS, number)
}

/// All figures without values: what stands in a file of results until they are measured.
pub fn not_measured() -> Vec<Figure> {
    Group::not_measured(&GROUPS, ("reads as other programs measure them", ELSEWHERE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::wanted::assert_each_stands_once;

    #[test]
    fn every_target_stands_once_and_with_a_reason_until_it_is_measured() {
        assert_each_stands_once(&not_measured(), 18);
    }
}
