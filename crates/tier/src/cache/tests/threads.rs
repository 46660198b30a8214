//! Threads that write pages of their own and read them back, while groups are replaced under them.

use super::harness::*;
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
