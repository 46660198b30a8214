//! `Fifo`: a request a page, in the groups of the other policies. And no group is read twice.

use super::harness::*;
use crate::page_cache::policy::CachePolicy;
use crate::page_cache::{CacheOptions, PageCache};
use firndb_base::Progress;
use firndb_base::sync::Arc;
use firndb_device::{Counting, Device};

/// Requests for a policy's groups of four pages: of writes, one of which is a segment's, and of
/// reads when a group is replaced.
fn requests(policy: CachePolicy) -> (u64, u64) {
    let mut counting = None;
    let mut rig = Rig::with(CacheOptions { policy, ..small() }, |device| {
        counting.insert(Arc::new(Counting::new(device))).clone()
    });
    let counting = counting.expect("wrapped");
    let pages = rig.allocate(60);
    let before = counting.snapshot();
    rig.write(&pages[..4]);
    let writes = counting.snapshot().since(&before).writes.ops;
    // Full but for the first replacement.
    let groups = (rig.cache.cache_statistics().slots / 4) as usize;
    pages[4..4 * (groups - 2)].chunks(4).for_each(|pages| drop(rig.write(pages)));
    // Two of the four images to be replaced have become invalid.
    rig.write(&[pages[0], pages[2], pages[50], pages[51]]);
    let before = counting.snapshot();
    assert_eq!(rig.cache.cache_statistics().write_backs, 0);
    rig.write(&pages[52..56]);
    assert_eq!(rig.cache.cache_statistics().write_backs, 2);
    let reads = counting.snapshot().since(&before).reads.ops;
    rig.compare();
    (writes, reads)
}

#[test]
fn no_group_is_read_for_the_write_back_ahead_and_again_when_it_is_replaced() {
    let mut counting = None;
    let chosen = CacheOptions { policy: CachePolicy::GroupSecondChance, ..small() };
    let mut rig = Rig::with(chosen, |device| counting.insert(Arc::new(Counting::new(device))).clone());
    let counting = counting.expect("wrapped");
    let pages = rig.allocate(100);
    let groups = (rig.cache.cache_statistics().slots / 4) as usize;
    let (first, rest) = pages.split_at(4 * (groups - 1));
    first.chunks(4).for_each(|pages| drop(rig.write(pages)));
    // Half of each group stays, the rest is written back.
    first.iter().step_by(2).for_each(|page| drop(read(&rig.cache, *page).expect("read")));
    rig.cache.kept.lock().groups_max = 3;
    let before = counting.snapshot();
    for page in &rest[..24] {
        while rig.cache.step().expect("stepped") == Progress::Worked {}
        rig.write(&[*page]);
    }
    let stayed = rig.cache.cache_statistics().second_chances;
    assert!(stayed > 6, "{stayed} images stayed");
    let reads = counting.snapshot().since(&before).reads.ops;
    let passed = rig.cache.ring.lock().front.0 - 1;
    assert!(reads <= passed + 3, "{reads} reads of groups, {passed} were replaced");
    rig.compare();
}

#[test]
fn each_page_is_a_request_and_a_group_one_only_where_it_is_replaced_as_a_group() {
    assert_eq!(requests(CachePolicy::Fifo), (5, 2));
    assert_eq!(requests(CachePolicy::GroupReplacement), (2, 1));
}

#[test]
fn a_group_written_page_by_page_counts_whole_or_not_at_all() {
    let policy = CachePolicy::Fifo;
    let mut rig = Rig::new(CacheOptions { policy, ..small() });
    let pages = rig.allocate(12);
    rig.write(&pages[..4]);
    let (durable, old) = (rig.cache.state().durable, rig.cache_device.duplicate());
    rig.write(&pages[4..8]);
    // A crash that kept the group's first request (its header is in it) and lost one of the others.
    let lost = rig.cache.image_offset(pages[6]).expect("in the cache");
    let torn = Arc::new(rig.cache_device.duplicate());
    let mut block = vec![0; 512];
    old.read(lost, &mut block).expect("in memory");
    torn.write(lost, &block, firndb_device::Durability::Durable).expect("in memory");
    let (_, cache) = rig.reopened_on(torn, policy, durable).expect("opened");
    assert_eq!(cache.state().durable, durable, "the torn group is none");
    assert!(cache.image_offset(pages[4]).is_none() && cache.image_offset(pages[0]).is_some());
    let (_, cache) = rig.reopened(policy).expect("opened");
    compare(&cache, &rig.written);
}
