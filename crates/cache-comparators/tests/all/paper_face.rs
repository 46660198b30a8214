//! FaCE as published: nothing is written back ahead.

use crate::harness::Below;
use firndb_base::sync::Arc;
use firndb_base::{PageId, Progress};
use firndb_cache_comparators::PaperFace;
use firndb_device::MemoryDevice;
use firndb_log::LogClass;
use firndb_tier::cache::Face;
use firndb_tier::page_cache::policy::CachePolicy;
use firndb_tier::store::Journal;
use firndb_tier::testing::small_store::{image, offer_durable, publish_in, read};
use firndb_tier::{CacheKind, CacheOptions};

/// Whether the background step of this kind of cache finds work in a full ring; and how many images
/// were written back in all.
fn works_ahead(kind: &dyn CacheKind) -> (bool, u64) {
    let below = Below::new();
    let options = CacheOptions {
        policy: CachePolicy::GroupReplacement,
        bytes: 70_000,
        group_pages: 4,
        write_through: false,
    };
    let cache = kind.create(below.site(Arc::new(MemoryDevice::new("cache"))), options).unwrap();
    assert_eq!(cache.kind().name(), kind.name(), "it is found again by its kind's name");
    let pages: Vec<PageId> = (0..80).map(|_| cache.reserve(LogClass::Normal).unwrap()).collect();
    publish_in(&*cache, &pages, &[], &mut |record| below.log.append(record)).unwrap();
    for page in &pages {
        offer_durable(&*cache, &below.log, (*page, below.log.tick()), true).unwrap();
    }
    cache.sync().unwrap();
    for page in &pages {
        let ((version, _), bytes) = read(&*cache, *page).unwrap();
        assert!(bytes == image(*page, version));
    }
    (cache.step().unwrap() == Progress::Worked, cache.cache_statistics().write_backs)
}

#[test]
fn face_as_published_leaves_writing_back_to_the_thread_that_replaces() {
    let (works, _) = works_ahead(&Face);
    assert!(works);
    let (works, written_back) = works_ahead(&PaperFace);
    assert!(!works && written_back > 0, "{written_back} images were written back");
}
