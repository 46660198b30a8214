//! What page recovery has to reach: every target of the capability, in its order.
//!
//! Every file of results lists all of them; those that a run did not measure stand there with the
//! reason.

use crate::bench::figure::Figure;
use crate::bench::wanted::{Group, Wanted, at_least, at_most};

pub const HYBRID: Wanted =
    at_most("hybrid over the best of log and shadow, time, most of 24 cells on 4 drives", 1.03);
pub const ADAPTIVE: Wanted =
    at_most("adaptive over the best of log, shadow and hybrid, time, most of 24 cells on 4 drives", 1.03);
pub const ONE_PAGE: Wanted =
    at_most("as many commits as pages: hybrid over log, time, most of 4 drives", 1.0);
pub const BYTES: Wanted =
    at_most("all pages in one commit: hybrid over log, bytes written, most of 4 drives", 0.4);
pub const ABORT_REQUESTS: Wanted = at_least(
    "all pages updated and aborted, no undo in memory: log over hybrid, requests, least of 4 drives",
    15.0,
);
pub const ABORT_FLASH: Wanted = at_least(
    "all pages updated and aborted, no undo in memory: log over hybrid, time, ocz-core, least",
    13.0,
);
pub const ABORT_DISK: Wanted = at_least(
    "all pages updated and aborted, no undo in memory: log over hybrid, time, barracuda-7200-7, least",
    3.0,
);
pub const UNLIMITED: Wanted = at_most("figure 9 B: hybrid over log, time, most of 6 sizes on 4 drives", 1.0);

pub const VALUE_LOG: Wanted =
    at_most("adaptive, values of 1 MiB: bytes of log, % of them, most of 4 drives", 5.0);
pub const VALUE_BYTES: Wanted =
    at_most("adaptive, values of 1 MiB: bytes to the drive over them, most of 4 drives", 1.1);
pub const VALUE_READ: Wanted =
    at_least("adaptive, values of 1 MiB: read cold, of the sequential rate, least of 4 drives", 0.8);
pub const LOAD_LOG: Wanted =
    at_most("adaptive, a table loaded: log over its pages, %, most of 4 drives", 10.0);
pub const LOAD_BYTES: Wanted =
    at_most("adaptive, a table loaded: bytes to the drive over its pages, most of 4 drives", 1.05);
pub const LOAD_SPEED: Wanted =
    at_least("adaptive, a table loaded: inserts over it, time, least of 4 drives", 3.0);
pub const ARCHIVED: Wanted =
    at_least("shadows with an archive that follows over without, commits a second, least of 4 drives", 0.95);

pub const BUILD_LOG: Wanted =
    at_most("adaptive, an index built: log over its pages, %, most of 4 drives", 10.0);
pub const BUILD_SPEED: Wanted =
    at_least("adaptive, an index built: inserts of its entries over it, time, least of 4 drives", 2.0);

/// What is not measured here.
const ELSEWHERE: &[(Wanted, &str)] = &[(
    at_most("instructions of a page operation, hybrid over log", 1.15),
    "computing is free in virtual time: the yardstick counts it (hotpath: put_page_shadow over put_page_logged)",
)];

/// All figures, in the order of the file.
pub const GROUPS: [Group; 13] = [
    Group {
        number: "1-2",
        title: "reads of 1,000 pages from the drives",
        targets: &[],
        why: "run with --figure 1-2",
    },
    Group {
        number: "table-1",
        title: "bytes and flushes of one commit, by step",
        targets: &[],
        why: "run with --figure table-1",
    },
    Group {
        number: "5",
        title: "buffer and private images: seven splits of memory",
        targets: &[],
        why: "run with --figure 5",
    },
    Group {
        number: "cells",
        title: "the 24 cells of table 4 (figures 7 and 8)",
        targets: &[HYBRID, ADAPTIVE, ONE_PAGE, BYTES],
        why: "run with --figure cells",
    },
    Group {
        number: "abort",
        title: "updates that are aborted, without undo in memory",
        targets: &[ABORT_REQUESTS, ABORT_FLASH, ABORT_DISK],
        why: "run with --figure abort",
    },
    Group {
        number: "prototypes",
        title: "the 24 cells on a model of the paper's prototypes",
        targets: &[],
        why: "run with --figure prototypes",
    },
    Group {
        number: "9-a",
        title: "pages in transactions of 1 to 20, limited memory",
        targets: &[],
        why: "run with --figure 9-a",
    },
    Group {
        number: "9-b",
        title: "pages in transactions of 1 to 20, unlimited memory",
        targets: &[UNLIMITED],
        why: "run with --figure 9-b",
    },
    Group {
        number: "10",
        title: "dirty frames and private images over operations",
        targets: &[],
        why: "run with --figure 10",
    },
    Group {
        number: "values",
        title: "values of 1 MiB, written and read back",
        targets: &[VALUE_LOG, VALUE_BYTES, VALUE_READ],
        why: "run with --figure values",
    },
    Group {
        number: "load",
        title: "a table of sorted rows, loaded and inserted",
        targets: &[LOAD_LOG, LOAD_BYTES, LOAD_SPEED],
        why: "run with --figure load",
    },
    Group {
        number: "build",
        title: "an index built on a table, and its entries inserted",
        targets: &[BUILD_LOG, BUILD_SPEED],
        why: "run with --figure build",
    },
    Group {
        number: "archive",
        title: "commits of shadows with an archive that follows",
        targets: &[ARCHIVED],
        why: "run with --figure archive",
    },
];

/// The figure of this number, with nothing in it.
pub fn figure(number: &str) -> Figure {
    Group::figure_of(&GROUPS, number)
}

/// All figures without values: what stands in a file of results until they are measured.
pub fn not_measured() -> Vec<Figure> {
    Group::not_measured(&GROUPS, ("page recovery where it is not built", ELSEWHERE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::wanted::assert_each_stands_once;

    #[test]
    fn every_target_stands_once_and_with_a_reason_until_it_is_measured() {
        assert_each_stands_once(&not_measured(), 17 + ELSEWHERE.len());
    }
}
