//! Threads that write pages of their own and read them back, while groups are replaced under them.

use super::harness::*;
use crate::page_cache::CacheOptions;
use crate::page_cache::PageCache;
use crate::page_tier::{PageTier, Written};
use crate::store::Journal;
use firndb_base::rng::Rng;
use firndb_base::{Lsn, PageId};
use std::collections::BTreeMap;

#[test]
fn every_thread_reads_the_newest_version_of_its_pages() {
    for write_through in [false, true] {
        let rig = Rig::new(CacheOptions { write_through, ..small() });
        let pages = rig.allocate(120);
        std::thread::scope(|scope| {
            for (thread, own) in pages.chunks(30).enumerate() {
                let rig = &rig;
                scope.spawn(move || work(&rig.cache, &rig.log, own, thread as u64));
            }
        });
        let mut faults = Vec::new();
        PageCache::check(&rig.cache, &mut |fault| faults.push(fault)).unwrap();
        assert_eq!(faults, Vec::<String>::new());
    }
}

fn work(cache: &dyn PageTier, log: &TestLog, own: &[PageId], seed: u64) {
    let mut rng = Rng::new(seed);
    let mut newest: BTreeMap<PageId, Lsn> = BTreeMap::new();
    // Miri looks for races and weak orders rather than for rare schedules.
    for _ in 0..if cfg!(miri) { 10 } else { 600 } {
        let page = own[rng.below(own.len() as u64) as usize];
        match newest.get(&page).copied() {
            Some(version) if rng.one_in(2) => {
                let ((found, _), bytes) = read(cache, page).unwrap();
                assert_eq!(found, version, "{page}");
                assert!(bytes == image(page, version));
            }
            known => {
                let dirty = known.is_none() || rng.one_in(2);
                let version = if dirty { log.tick() } else { known.expect("written") };
                log.flush(Lsn(version.0 + 1)).unwrap();
                let outcome = offer_one(cache, page, version, dirty).unwrap();
                assert!(!dirty || outcome == Written::Taken);
                newest.insert(page, version);
            }
        }
    }
    for (page, version) in newest {
        assert_eq!(read(cache, page).unwrap().0.0, version);
    }
}
