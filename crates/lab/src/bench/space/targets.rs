//! What space has to reach: each target's name and limit, and the figure that measures it.

use crate::bench::figure::Figure;
use crate::bench::wanted::{Group, Wanted, at_least, at_most};

pub const ALLOCATED: Wanted = at_most(
    "deleted 90 % at random: bytes of pages allocated on the device over live pages, background",
    1.6,
);
pub const COPIES: Wanted =
    at_most("deleted 90 % at random: pages copied by the background over live pages", 1.0);
pub const FILE: Wanted =
    at_most("deleted 90 % at random: length of the file over live pages, after compaction", 1.35);
pub const CHURN: Wanted =
    at_most("inserted and deleted ten times the database: bytes of pages over live pages, at most", 1.6);
pub const BESIDE: Wanted = at_least("TPC-C beside the cleaner over alone", 0.95);
pub const DROPPED: Wanted =
    at_least("drop of a 1 GB table: blocks given back to the file system within a minute", 0.9);

/// What is not measured here.
const ELSEWHERE: &[(Wanted, &str)] = &[
    (at_least("thesis figure 6-1: random write over in place", 15.0), NOT_BUILT),
    (at_least("thesis figure 6-1: random read over in place", 0.97), NOT_BUILT),
    (at_least("thesis figure 6-1: sequential read over in place, before compaction", 0.70), NOT_BUILT),
    (at_least("thesis figure 6-1: sequential read over in place, after compaction", 0.97), NOT_BUILT),
    (at_least("thesis figure 6-1: sequential write over in place", 0.95), NOT_BUILT),
    (at_most("TPC-C, 90 % full: flash bytes programmed over in place with double write", 0.25), NOT_BUILT),
    (at_most("device write amplification of whole segments", 1.1), NOT_BUILT),
];
const NOT_BUILT: &str = "no figure measures it yet";

/// All figures, in the order of the file.
pub const GROUPS: [Group; 4] = [
    Group {
        number: "shrink",
        title: "space that comes back after deletes",
        targets: &[ALLOCATED, COPIES, FILE],
        why: "run with --figure shrink",
    },
    Group {
        number: "churn",
        title: "space while rows come and go",
        targets: &[CHURN],
        why: "run with --figure churn",
    },
    Group {
        number: "cleaner",
        title: "TPC-C beside the emptying of groups",
        targets: &[BESIDE],
        why: "run with --figure cleaner",
    },
    Group {
        number: "drop",
        title: "blocks of a dropped table",
        targets: &[DROPPED],
        why: "run with --real --dir DIR",
    },
];

/// The figure of this number, with nothing in it.
pub fn figure(number: &str) -> Figure {
    Group::figure_of(&GROUPS, number)
}

/// All figures without values: what stands in a file of results until they are measured.
pub fn not_measured() -> Vec<Figure> {
    Group::not_measured(&GROUPS, ("space as other programs measure it", ELSEWHERE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::wanted::assert_each_stands_once;

    #[test]
    fn every_target_stands_once_and_with_a_reason_until_it_is_measured() {
        assert_each_stands_once(&not_measured(), 13);
    }
}
