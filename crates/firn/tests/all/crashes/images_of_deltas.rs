//! Whatever a power cut leaves of a database whose pages are written as deltas, at any moment and
//! in any mixture of sectors: the database opens, holds every acknowledged commit and nothing that
//! was not committed, and is not damaged.
//!
//! Deltas wait in a write buffer, or do not; a flash cache lies over them, or does not; pages go to
//! runs of free places, or to whole segments. The usual run takes a sample of moments and mixtures,
//! `many_images` more.

use crate::support::caches::roomy;
use crate::support::images::{Case, Walk, walk_all};
use crate::support::scripts;

/// Scripts in which pages leave DRAM and come again, are freed, and are needed by recovery.
const WALKED: [&str; 11] = [
    "updates",
    "updates of more than fits into DRAM",
    "deletes",
    "secondary indexes",
    "merges",
    "space given back",
    "before-images spill, rollback",
    "tables are dropped",
    "closing and opening",
    "recovery of more than fits into DRAM",
    "work while recovery goes on",
];

/// Of a store with pages in whole segments: these, and the one in which the cleaner works.
const IN_SEGMENTS: [&str; 3] = ["updates of more than fits into DRAM", "space given back", CLEANED];
const CLEANED: &str = "a store that is nearly full";

fn walk(walk: Walk) {
    let kinds = [(0, false), (6 << 10, false), (6 << 10, true)];
    let cases = kinds.into_iter().flat_map(|(bytes, cached)| {
        WALKED.iter().map(move |name| {
            let script = scripts::named(name).with_deltas(bytes);
            let script = if cached { script.over_cache(roomy) } else { script };
            let over = if cached { ", under a cache" } else { "" };
            Case { name: format!("{bytes} bytes wait{over}: {name}"), script, reopened: |options| options }
        })
    });
    let in_segments = [None, Some(0), Some(6 << 10)].into_iter().flat_map(|bytes| {
        IN_SEGMENTS.iter().map(move |name| {
            let script = scripts::named(name).in_segments();
            let script = match bytes {
                Some(bytes) => script.with_deltas(bytes),
                None => script,
            };
            let name = format!("in segments, {bytes:?} bytes wait: {name}");
            Case { name, script, reopened: |options| options }
        })
    });
    let cases = cases.chain(in_segments);
    walk_all(cases, walk).failures.assert_none("crash images with deltas");
}

#[test]
fn a_sample_of_images() {
    walk(Walk { images: 6, again_one_in: 6, go_on_one_in: 4, seed: 1 });
}

/// What the images above are of: the cleaner moves pages in the script that is meant to show it.
#[test]
fn the_cleaner_works_in_a_store_that_is_nearly_full() {
    let script = scripts::named(CLEANED).in_segments().with_deltas(6 << 10);
    let mut session = script.prepare();
    session.open();
    (script.run)(&mut session);
    assert!(session.broken.is_empty() && session.images_moved() > 0, "{:?}", session.broken);
}

/// Minutes. `FIRN_SEED` chooses other moments and mixtures, `FIRN_IMAGES` how many of each script,
/// `FIRN_SCRIPT` one script.
#[test]
#[ignore = "takes minutes"]
fn many_images() {
    walk(Walk::long(300, 6));
}
