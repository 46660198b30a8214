//! A cache that is being detached: at every moment a crash leaves each page's newest version, or
//! one from which redo of the kept log rebuilds it; in the end the store alone has everything.

use super::harness::*;
use crate::error::TierErrorKind;
use crate::page_cache::PageCache;
use crate::page_cache::policy::CachePolicy;
use crate::page_tier::PageTier;
use crate::testing::Took;
use firndb_base::rng::Rng;
use firndb_base::{Lsn, PageId, Progress};
use std::collections::BTreeMap;

/// Checks what a crash leaves now: of each page the newest version, or an older one from which redo
/// of the kept log reaches it.
fn crash(rig: &Rig, changes: &BTreeMap<PageId, Vec<Lsn>>) -> usize {
    let needed = rig.cache.oldest_needed_lsn().unwrap_or(Lsn::MAX);
    let (_, cache) = rig.reopened(CachePolicy::GroupSecondChance).unwrap();
    let mut behind = 0;
    for (page, version) in &rig.written {
        let ((found, _), bytes) = read(&cache, *page).unwrap();
        let expected = match changes[page].contains(&found) {
            true => image(*page, found),
            // Allocated, and never durable since.
            false => vec![0; PAGE_SIZE],
        };
        assert!(bytes == expected, "{page} has other bytes than its version {found}");
        if found != *version {
            let missing = *changes[page].iter().find(|change| **change > found).unwrap();
            assert!(
                needed <= missing,
                "{page} is at {found}, the log begins at {needed}, it needs {missing}"
            );
            behind += 1;
        }
    }
    behind
}

#[test]
fn pages_go_past_it_and_a_crash_at_any_time_loses_nothing() {
    let mut behind = 0;
    for seed in 0..12 {
        let mut rng = Rng::new(seed);
        let mut rig = Rig::new(small());
        let mut pages = rig.allocate(90);
        let mut changes: BTreeMap<PageId, Vec<Lsn>> = BTreeMap::new();
        let mut left = rng.between(20, 120);
        let mut leaving = false;
        while left > 0 {
            left -= 1;
            if left == 10 {
                leaving = true;
                left += rng.below(60);
                rig.cache.set_leaving(true);
            }
            match rng.below(8) {
                0..=4 => {
                    let at = rng.below(pages.len() as u64 - 4) as usize;
                    for (page, outcome) in pages[at..at + 4].iter().zip(rig.write(&pages[at..at + 4])) {
                        assert_eq!(outcome, Ok(Took::Taken));
                        changes.entry(*page).or_default().push(rig.written[page]);
                    }
                }
                5 if pages.len() > 20 => {
                    let page = pages.swap_remove(rng.below(pages.len() as u64) as usize);
                    rig.publish(&[], &[page]);
                    rig.written.remove(&page);
                }
                6 => rig.cache.sync().unwrap(),
                _ if leaving => drop(rig.cache.leave_step().unwrap()),
                _ => {
                    let clean: Vec<PageId> = rig.written.keys().copied().take(3).collect();
                    let versions: Vec<Lsn> = clean.iter().map(|page| rig.written[page]).collect();
                    rig.offer(&clean, &versions, false);
                }
            }
            if rng.one_in(6) {
                rig.compare();
                behind += crash(&rig, &changes);
            }
        }
        while rig.cache.leave_step().unwrap() == Progress::Worked {
            if rng.one_in(3) {
                rig.compare();
                behind += crash(&rig, &changes);
            }
        }
        let statistics = rig.cache.cache_statistics();
        assert!(statistics.leaving && statistics.pages_valid == 0 && statistics.slots_used == 0);
        for (page, version) in &rig.written {
            let ((found, _), bytes) = read(&*rig.store, *page).unwrap();
            assert!(found == *version && bytes == image(*page, found), "seed {seed}: {page} is at {found}");
        }
    }
    assert!(behind > 20, "crashes found older images {behind} times: else this shows nothing");
}

#[test]
fn one_that_cannot_leave_stays() {
    let mut rig = Rig::new(small());
    let pages = rig.allocate(40);
    assert!(rig.write(&pages).iter().all(Result::is_ok));
    rig.cache.set_leaving(true);
    rig.log.set_full(true);
    let refused = loop {
        match rig.cache.leave_step() {
            Ok(progress) => assert_eq!(progress, Progress::Worked, "the store took nothing"),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind, TierErrorKind::LogFull);
    rig.cache.set_leaving(false);
    rig.log.set_full(false);
    rig.compare();
    let before = rig.cache.cache_statistics().dirty_enqueued;
    assert!(rig.write(&pages).iter().all(Result::is_ok));
    assert_eq!(rig.cache.cache_statistics().dirty_enqueued, before + 40);
    rig.compare();
}
