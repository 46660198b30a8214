//! The assertions of `invariants.rs`: they hold whatever is done to a cache, and see what is wrong.

use super::harness::*;
use crate::cache::geometry::Serial;
use crate::page_cache::CacheOptions;
use crate::page_cache::PageCache;
use crate::page_cache::policy::CachePolicy;
use crate::page_tier::PageTier;
use firndb_base::rng::Rng;
use firndb_base::sync::atomic::Ordering::Relaxed;
use firndb_base::{Lsn, PageId};

#[test]
fn they_hold_after_every_call() {
    for seed in 0..8 {
        let mut rng = Rng::new(seed);
        let mut rig = Rig::new(CacheOptions { write_through: seed % 4 == 3, ..small() });
        rig.cache.keep_rebuildable((seed % 2 == 0).then_some(Lsn::FIRST));
        let mut pages = rig.allocate(90);
        for step in 0..300 {
            let at = rng.below(pages.len() as u64 - 4) as usize;
            match rng.below(12) {
                0..=5 => assert!(rig.write(&pages[at..at + 4]).iter().all(Result::is_ok)),
                6 => {
                    let clean: Vec<PageId> = rig.written.keys().copied().take(3).collect();
                    let versions: Vec<Lsn> = clean.iter().map(|page| rig.written[page]).collect();
                    rig.offer(&clean, &versions, false);
                }
                7 if pages.len() > 30 => {
                    let page = pages.swap_remove(at);
                    rig.publish(&[], &[page]);
                    rig.written.remove(&page);
                }
                8 => rig.cache.sync().unwrap(),
                9 => rig.cache.set_leaving(step % 2 == 0),
                10 => drop(rig.cache.leave_step().unwrap()),
                _ => drop(rig.cache.step().unwrap()),
            }
            rig.cache.check_memory();
        }
        let (_, again) = rig.reopened(CachePolicy::Keeping).unwrap();
        again.end_recovery();
        again.check_memory();
    }
}

/// A cache with a group written and another begun.
fn begun() -> (Rig, Vec<PageId>) {
    let mut rig = Rig::new(small());
    let pages = rig.allocate(6);
    assert!(rig.write(&pages).iter().all(Result::is_ok));
    rig.cache.check_memory();
    (rig, pages)
}

#[test]
#[should_panic(expected = "are durable")]
fn a_group_that_is_not_durable_is_noticed() {
    let (rig, _) = begun();
    rig.cache.durable.store(0, Relaxed);
    rig.cache.check_memory();
}

#[test]
#[should_panic(expected = "is of the open group")]
fn an_image_that_the_open_group_lacks_is_noticed() {
    let (rig, _) = begun();
    rig.cache.open.write().pop();
    rig.cache.check_memory();
}

#[test]
#[should_panic(expected = "is of a group that is given up")]
fn an_image_that_the_front_passed_is_noticed() {
    let (rig, _) = begun();
    rig.cache.ring.lock().front = Serial(2);
    rig.cache.check_memory();
}
