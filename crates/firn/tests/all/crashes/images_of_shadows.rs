//! Whatever a power cut leaves of page files and large values whose pages are shadows: the database
//! opens, holds every acknowledged commit and nothing that was not committed, and is not damaged;
//! no page is lost.
//!
//! Images stay private until the commit, or are written early; parts are shadows, or logged; a
//! flash cache lies over the store, or does not. The usual run takes a sample of moments and
//! mixtures, `many_images` more.

use crate::support::caches::roomy;
use crate::support::images::{Case, Walk, walk_all};
use crate::support::scripts;
use firndb::PageRecovery::{Hybrid, Shadow};

fn cases() -> impl Iterator<Item = Case> {
    let ways = [
        (Shadow, 64 << 10, false),
        (Shadow, 2 << 10, false),
        (Hybrid, 4 << 10, false),
        (Shadow, 3 << 10, true),
    ];
    ways.into_iter().flat_map(|(recovery, bytes, cached)| {
        scripts::of_whole_pages().into_iter().map(move |script| {
            let over = if cached { ", under a cache" } else { "" };
            let name = format!("{recovery:?}, {bytes} bytes private{over}: {}", script.name);
            let script = script.recovering(recovery, bytes);
            let script = if cached { script.over_cache(roomy) } else { script };
            Case { name, script, reopened: |options| options }
        })
    })
}

#[test]
fn a_sample_of_images() {
    let walk = Walk { images: 7, again_one_in: 6, go_on_one_in: 4, seed: 1 };
    walk_all(cases(), walk).failures.assert_none("crash images with shadows");
}

/// What the images above are of.
#[test]
fn the_scripts_write_shadows_and_write_early() {
    let script = scripts::named("page files: more than fits into DRAM").recovering(Shadow, 2 << 10);
    let mut session = script.prepare();
    session.open();
    (script.run)(&mut session);
    let (shadows, early) = session.shadows();
    assert!(
        session.broken.is_empty() && shadows > 400 && early > 400,
        "{shadows} {early} {:?}",
        session.broken
    );
}

/// Minutes. `FIRN_SEED` chooses other moments and mixtures, `FIRN_IMAGES` how many of each script,
/// `FIRN_SCRIPT` one script.
#[test]
#[ignore = "takes minutes"]
fn many_images() {
    walk_all(cases(), Walk::long(300, 6)).failures.assert_none("crash images with shadows");
}
