//! `Keeping` where the drives' times are known: what stays, and how a group is read.

use super::harness::*;
use crate::page_cache::drive_times::DriveTimes;
use crate::page_cache::policy::CachePolicy;
use crate::page_cache::{CacheOptions, PageCache as _};
use firndb_base::sync::Arc;
use firndb_device::Counting;

/// An hour: more than passes in a test, so that a drive that has anything to do is busy.
const HOUR_US: f64 = 3.6e9;

/// Times of drives of which the cache's is slow, or the store's.
fn times(cache_is_slow: bool) -> DriveTimes {
    let (cache, store) = if cache_is_slow { (HOUR_US, 1.0) } else { (1.0, HOUR_US) };
    DriveTimes {
        cache_page_read: cache,
        cache_group_read: 3.5 * cache,
        cache_group_write: 2.0 * cache,
        store_page_read: store,
        store_page_write: store,
    }
}

/// Fills a cache of groups of four, of each of which the images at `invalid` become invalid, and
/// replaces four groups more. Returns how many images stayed, and the reads for it.
fn replaced(policy: CachePolicy, times: Option<DriveTimes>, invalid: &[usize]) -> (u64, u64) {
    let mut counting = None;
    let mut rig = Rig::with(CacheOptions { policy, ..small() }, |device| {
        counting.insert(Arc::new(Counting::new(device))).clone()
    });
    let counting = counting.expect("wrapped");
    if let Some(times) = times {
        rig.cache.weigh(&|_| times);
        if let Some(balance) = &mut rig.cache.ring.lock().balance {
            balance.nothing_leaves();
        }
    }
    let pages = rig.allocate(200);
    let groups = (rig.cache.cache_statistics().slots / 4) as usize;
    pages[..4 * (groups - 1)].chunks(4).for_each(|pages| drop(rig.write(pages)));
    let again: Vec<_> = pages[..40].chunks(4).flat_map(|four| invalid.iter().map(|at| four[*at])).collect();
    again.chunks(4).for_each(|pages| drop(rig.write(pages)));
    let mut fresh = pages[4 * (groups - 1)..].iter();
    let before = (rig.cache.cache_statistics().second_chances, counting.snapshot());
    let front = rig.cache.ring.lock().front.0;
    while rig.cache.ring.lock().front.0 < front + 4 {
        rig.write(&[*fresh.next().expect("enough pages")]);
    }
    let reads = counting.snapshot().since(&before.1).reads.ops;
    rig.compare();
    (rig.cache.cache_statistics().second_chances - before.0, reads)
}

#[test]
fn nothing_stays_while_the_caches_drive_is_short_of_time() {
    let stayed = |times| replaced(CachePolicy::Keeping, times, &[1]).0;
    assert!(stayed(None) > 0, "without profiles as without this");
    assert!(stayed(Some(times(false))) > 0, "the store's drive is short");
    assert_eq!(stayed(Some(times(true))), 0);
    let (weighed, not) = (
        replaced(CachePolicy::GroupReplacement, Some(times(true)), &[1]),
        replaced(CachePolicy::GroupReplacement, None, &[1]),
    );
    assert_eq!(weighed, not, "a policy that does not weigh");
}

#[test]
fn images_are_read_alone_where_that_takes_less_of_the_drive() {
    let reads = |times, invalid: &[usize]| replaced(CachePolicy::Keeping, times, invalid).1;
    let whole = reads(None, &[0, 2]);
    assert!(reads(Some(times(true)), &[0, 2]) > whole, "two of four, which do not touch");
    assert_eq!(reads(Some(times(true)), &[]), 4, "all four of each group");
}
