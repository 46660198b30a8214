//! Threads that write pages of their own and read them back, while groups are replaced under them;
//! and statistics that are read meanwhile.

use super::harness::*;
use crate::cache::geometry::Serial;
use crate::page_cache::{CacheOptions, PageCache};
use crate::testing::small_store::work;

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

/// Cause: the statistics took the ring's lock, which the thread that replaces a group holds while
/// it writes pages to the store. Effect: a look at the statistics waited for disks, behind all
/// threads that evict pages.
#[test]
fn the_statistics_do_not_wait_for_a_thread_that_replaces_a_group() {
    let mut rig = Rig::new(small());
    let pages = rig.allocate(90);
    pages.chunks(4).for_each(|chunk| assert!(rig.write(chunk).iter().all(Result::is_ok)));
    // In this thread, in which waiting for it panics.
    let ring = rig.cache.ring.lock();
    let used = PageCache::cache_statistics(&rig.cache).slots_used;
    assert!(ring.front > Serial::FIRST, "groups were replaced");
    let written = (ring.rear.0 - ring.front.0) * small().group_pages as u64;
    assert_eq!(used, written + rig.cache.open_pages() as u64);
    drop(ring);
    let (_, reopened) = rig.reopened(small().policy).unwrap();
    assert!(PageCache::cache_statistics(&reopened).slots_used > 0, "a restart restores the ring");
}
