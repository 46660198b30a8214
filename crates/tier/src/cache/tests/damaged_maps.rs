//! Pages whose map page is damaged: what the cache has of them stays in the ring, and everything
//! else goes on.

use super::harness::*;
use crate::error::TierErrorKind;
use crate::page_cache::{CacheOptions, PageCache};
use crate::page_tier::PageTier;
use crate::store::Journal;
use crate::store::tests::map_damage::{damage_map, is_of_map, sweep_and_damage};
use crate::testing::Took;
use firndb_base::{Lsn, PageId};

const DAMAGED: u64 = 1;

/// A cache with dirty pages in the ring, some of which have the damaged map page; those, and the
/// others.
fn with_damaged_map(chosen: CacheOptions, rebuildable: bool) -> (Rig, Vec<PageId>, Vec<PageId>) {
    let mut rig = Rig::new(chosen);
    if rebuildable {
        rig.cache.keep_rebuildable(None);
    }
    let pages = rig.allocate(110);
    let of_map = |page: &PageId| is_of_map(&rig.store, *page, DAMAGED);
    let (there, others): (Vec<PageId>, Vec<PageId>) = pages.iter().partition(|page| of_map(page));
    assert!(there.len() > 20 && others.len() > 60);
    let there = there[..4].to_vec();
    for _ in 0..2 {
        for (at, chunk) in others.chunks(4).enumerate() {
            assert!(rig.write(chunk).iter().all(Result::is_ok));
            if at >= 14 && at - 14 < there.len() {
                assert_eq!(rig.write(&there[at - 14..=at - 14]), [Ok(Took::Taken)]);
            }
        }
    }
    rig.log.flush(rig.log.end()).unwrap();
    sweep_and_damage(&rig.store, &*rig.store_device, DAMAGED);
    let error = rig.store.version_of(there[0]).unwrap_err();
    assert_eq!(error.kind, TierErrorKind::Damaged);
    (rig, there, others)
}

/// Evicts pages from DRAM until the ring has wrapped around.
fn go_round(rig: &mut Rig, pages: &[PageId]) {
    for _ in 0..3 {
        for chunk in pages.chunks(4) {
            assert!(rig.write(chunk).iter().all(|outcome| *outcome == Ok(Took::Taken)));
            rig.cache.step().unwrap();
        }
    }
}

/// Cause: a page that the store could not take kept its whole group from being replaced. Effect:
/// one damaged map page, and no page could leave DRAM any more.
#[test]
fn a_damaged_map_page_holds_up_its_own_pages_only() {
    let (mut rig, there, others) = with_damaged_map(small(), false);
    go_round(&mut rig, &others);
    // Newest versions, those in the ring included, now and after a restart.
    rig.compare();
    rig.cache.sync().unwrap();
    // Once the map page can be read, they leave the ring like others.
    damage_map(&rig.store, &*rig.store_device, DAMAGED);
    go_round(&mut rig, &others);
    for page in there {
        assert_eq!(rig.store.version_of(page).unwrap(), Some(rig.written[&page]));
    }
    rig.compare();
}

/// The whole of a group, and more, may have damaged map pages.
#[test]
fn more_such_pages_than_a_group_has_go_round_the_ring() {
    let (mut rig, there, others) = with_damaged_map(small(), false);
    // In sequence, as changed pages that leave DRAM together.
    damage_map(&rig.store, &*rig.store_device, DAMAGED);
    assert!(rig.write(&there).iter().all(Result::is_ok));
    rig.log.flush(rig.log.end()).unwrap();
    sweep_and_damage(&rig.store, &*rig.store_device, DAMAGED);
    go_round(&mut rig, &others);
    rig.compare();
}

/// A cache whose every image waits for a damaged map page says so, rather than go round for ever.
#[test]
fn a_cache_full_of_such_pages_is_an_error() {
    let mut rig = Rig::new(small());
    let pages = rig.allocate(110);
    let there: Vec<PageId> = pages.into_iter().filter(|page| is_of_map(&rig.store, *page, DAMAGED)).collect();
    for chunk in there.chunks(4) {
        assert!(rig.write(chunk).iter().all(Result::is_ok));
    }
    rig.log.flush(rig.log.end()).unwrap();
    sweep_and_damage(&rig.store, &*rig.store_device, DAMAGED);
    let failed = (0..6).any(|_| there.chunks(4).any(|chunk| rig.write(chunk).iter().any(Result::is_err)));
    assert!(failed, "{} pages for {} places", there.len(), rig.cache.cache_statistics().slots);
    // Nothing is lost by it.
    damage_map(&rig.store, &*rig.store_device, DAMAGED);
    rig.compare();
    for chunk in there.chunks(4) {
        assert!(rig.write(chunk).iter().all(Result::is_ok));
    }
    rig.compare();
}

/// Leaving needs the store to have everything, and so it fails, as often as it is tried.
#[test]
fn a_cache_with_such_pages_cannot_leave() {
    let (rig, ..) = with_damaged_map(small(), false);
    rig.cache.set_leaving(true);
    let error = (0..500).find_map(|_| rig.cache.leave_step().err()).expect("it cannot");
    assert_eq!(error.kind, TierErrorKind::Damaged);
    rig.compare();
}

/// A checkpoint has what the log is kept for written back: a page that cannot be holds no log,
/// since redo could not rebuild it either.
#[test]
fn what_the_log_is_kept_for_is_written_back_beside_such_pages() {
    let (rig, there, _) = with_damaged_map(small(), true);
    rig.cache.write_back_before(rig.log.end()).unwrap();
    let from = rig.cache.rebuild_from();
    assert_eq!((from.kept, from.complete), (None, false));
    damage_map(&rig.store, &*rig.store_device, DAMAGED);
    rig.cache.write_back_before(Lsn(rig.log.end().0)).unwrap();
    assert!(rig.cache.rebuild_from().complete);
    for page in there {
        assert_eq!(rig.store.version_of(page).unwrap(), Some(rig.written[&page]));
    }
}
