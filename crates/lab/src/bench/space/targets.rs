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

pub const RANDOM_WRITE: Wanted = at_least("thesis figure 6-1: random write over in place", 15.0);
pub const RANDOM_READ: Wanted = at_least("thesis figure 6-1: random read over in place", 0.97);
pub const READ_BEFORE: Wanted =
    at_least("thesis figure 6-1: sequential read over in place, before compaction", 0.70);
pub const READ_AFTER: Wanted =
    at_least("thesis figure 6-1: sequential read over in place, after compaction", 0.97);
pub const SEQUENTIAL_WRITE: Wanted = at_least("thesis figure 6-1: sequential write over in place", 0.95);
pub const FLASH: Wanted =
    at_most("TPC-C, 90 % full: flash bytes programmed over in place with double write", 0.25);
pub const DEVICE: Wanted = at_most("device write amplification of whole segments", 1.1);

/// What is not measured here.
const ELSEWHERE: &[(Wanted, &str)] =
    &[(at_most("instructions of hot paths over the table of counts", 1.01), YARDSTICK)];
const YARDSTICK: &str = "the example `hotpath` checks it";

/// All figures, in the order of the file.
pub const GROUPS: [Group; 6] = [
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
    Group {
        number: "waf",
        title: "flash bytes programmed for a page, and the device's write amplification",
        targets: &[FLASH, DEVICE],
        why: "run with --figure waf",
    },
    Group {
        number: "6-1",
        title: "operations of 16 KB on myers-a, over in place",
        targets: &[RANDOM_WRITE, RANDOM_READ, READ_BEFORE, READ_AFTER, SEQUENTIAL_WRITE],
        why: "run with --figure 6-1",
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
        assert_each_stands_once(&not_measured(), 14);
    }
}
