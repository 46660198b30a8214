//! Dirty images that have become unreadable: their pages report the loss from then on, and
//! everything else continues.

use super::harness::*;
use crate::cache::geometry::Serial;
use crate::error::TierErrorKind;
use crate::page_cache::PageCache;
use crate::page_cache::policy::CachePolicy;
use crate::page_tier::PageTier;
use crate::testing::Took;
use firndb_base::sync::Arc;
use firndb_base::{PageId, Progress};
use firndb_device::{
    Calls, Device, DeviceError, DeviceErrorKind, Durability, Fault, FaultPlan, FaultRule, Faulty, Io, IoOp,
    When,
};
use std::ops::Range;
use std::sync::Mutex;

type Blocks = Arc<Mutex<Vec<Range<u64>>>>;

/// A device with bad blocks: reads of them fail until they are overwritten.
#[derive(Debug)]
struct Bad {
    inner: Arc<dyn Device>,
    blocks: Blocks,
}

impl Bad {
    fn check(&self, offset: u64, len: usize) -> Result<(), DeviceError> {
        let end = offset + len as u64;
        match self.blocks.lock().unwrap().iter().any(|bad| bad.start < end && offset < bad.end) {
            true => Err(DeviceError::new(DeviceErrorKind::Failed, "cache: unrecovered read error")),
            false => Ok(()),
        }
    }
}

impl Device for Bad {
    firndb_device::forward!(inner: info, len, sync, grow, shrink, discard);
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.check(offset, buf.len())?;
        self.inner.read(offset, buf)
    }
    fn write(&self, offset: u64, data: &[u8], durability: Durability) -> Result<(), DeviceError> {
        let end = offset + data.len() as u64;
        self.blocks.lock().unwrap().retain(|bad| bad.start < offset || end < bad.end);
        self.inner.write(offset, data, durability)
    }
    fn submit(&self, batch: &mut [Io<'_>]) {
        for io in batch {
            io.outcome = match &mut io.op {
                IoOp::Read(buf) => self.read(io.offset, buf),
                IoOp::Write(data, durability) => self.write(io.offset, data, *durability),
            };
        }
    }
}

/// A cache with some dirty pages in the ring, and the place of the first one's image.
fn with_bad_image() -> (Rig, Blocks, Vec<PageId>, Range<u64>) {
    let blocks = Blocks::default();
    let bad = blocks.clone();
    let mut rig = Rig::with(small(), |inner| Arc::new(Bad { inner, blocks: bad }));
    let pages = rig.allocate(80);
    // The store has an older version of every page.
    for _ in 0..2 {
        for chunk in pages.chunks(4) {
            assert!(rig.write(chunk).iter().all(Result::is_ok));
        }
    }
    let victim = pages[70];
    let at = rig.cache.image_offset(victim).expect("in the ring");
    assert_eq!(
        rig.store.version_of(victim).unwrap().map(|version| version < rig.written[&victim]),
        Some(true)
    );
    (rig, blocks, pages, at..at + 512)
}

/// A cache that was opened again with an image that its header calls dirty and the store took; that
/// image's place is bad now. And the other pages.
fn with_bad_image_in_the_store() -> (Rig, PageId, Vec<PageId>) {
    let (mut rig, _, pages, _) = with_bad_image();
    rig.cache.sync().unwrap();
    assert_eq!(rig.cache.step(), Ok(Progress::Worked));
    let is_stored = |page: &PageId| rig.store.version_of(*page).unwrap() == Some(rig.written[page]);
    let in_both = |page: &PageId| is_stored(page) && rig.cache.image_offset(*page).is_some();
    let victim = *pages.iter().find(|page| in_both(page)).expect("the step wrote some back");
    let blocks = Blocks::default();
    let device = Bad { inner: Arc::new(rig.cache_device.duplicate()), blocks: blocks.clone() };
    let log = TestLog::with(rig.log.records());
    let (policy, durable) = (CachePolicy::GroupSecondChance, rig.cache.state().durable);
    let (store, cache) = rig.reopened_with(log.clone(), Arc::new(device), policy, durable).unwrap();
    (rig.log, rig.store, rig.cache) = (log, store, cache);
    assert!(rig.cache.hit(victim).expect("still there").word.is_dirty());
    let at = rig.cache.image_offset(victim).expect("still there");
    blocks.lock().unwrap().push(at..at + 512);
    let others = pages.into_iter().filter(|page| *page != victim).collect();
    (rig, victim, others)
}

/// Evicts other pages from DRAM until the ring has wrapped around.
fn go_round(rig: &mut Rig, pages: &[PageId]) {
    for _ in 0..3 {
        for chunk in pages[..60].chunks(4) {
            for outcome in rig.write(chunk) {
                assert_eq!(outcome, Ok(Took::Taken), "everything else goes on");
            }
        }
    }
}

fn assert_lost(tier: &dyn PageTier, page: PageId) {
    let error = read(tier, page).unwrap_err();
    assert_eq!(error.kind, TierErrorKind::Damaged);
    assert!(error.message.contains(&format!("{page:?} is lost")), "{}", error.message);
    assert!(error.message.contains("flash cache cache"), "{}", error.message);
    assert!(tier.page_is_lost(page));
}

#[test]
fn an_image_that_cannot_be_read_is_lost_and_the_rest_goes_on() {
    let (mut rig, blocks, pages, at) = with_bad_image();
    let victim = pages[70];
    blocks.lock().unwrap().push(at);
    go_round(&mut rig, &pages);
    assert_eq!(rig.cache.cache_statistics().pages_lost, 1);
    let mut others = rig.written.clone();
    others.remove(&victim);
    compare(&rig.cache, &others);
    assert_lost(&rig.cache, victim);
    // The loss is also reported after a restart and by a check.
    rig.cache.sync().unwrap();
    let (store, cache) = rig.reopened(CachePolicy::GroupSecondChance).unwrap();
    assert_lost(&cache, victim);
    compare(&cache, &others);
    let report = store.check(true, &mut |_| {}).unwrap();
    assert!(report.faults == 1 && report.damage[0].contains("is lost"), "{:?}", report.damage);
    // Its next incarnation is a page like any other.
    rig.publish(&[], &[victim]);
    let error = read(&rig.cache, victim).unwrap_err();
    assert_eq!(error.kind, TierErrorKind::NotAllocated);
}

#[test]
fn a_newer_version_or_one_that_dram_still_has_replaces_the_notice() {
    for clean in [false, true] {
        let (mut rig, blocks, pages, at) = with_bad_image();
        let victim = pages[70];
        blocks.lock().unwrap().push(at);
        go_round(&mut rig, &pages);
        assert_lost(&rig.cache, victim);
        if clean {
            let version = rig.written[&victim];
            assert_eq!(rig.offer(&[victim], &[version], false), [Ok(Took::Taken)]);
        } else {
            assert_eq!(rig.write(&[victim]), [Ok(Took::Taken)]);
        }
        rig.compare();
        go_round(&mut rig, &pages);
        rig.compare();
        assert!(!rig.cache.page_is_lost(victim));
        assert_eq!(rig.store.version_of(victim).unwrap(), Some(rig.written[&victim]));
    }
}

/// Before, its reads reported damage.
#[test]
fn an_image_that_the_store_has_too_is_read_from_there() {
    let (rig, victim, _) = with_bad_image_in_the_store();
    let (found, bytes) = read(&rig.cache, victim).unwrap();
    assert_eq!(found, (rig.written[&victim], false));
    assert!(bytes == image(victim, found.0));
    rig.compare();
}

/// Before, a notice of the same version replaced the store's image; a cache that can be rebuilt
/// kept the group, and no log before it could be given up.
#[test]
fn an_image_that_the_store_has_too_is_no_loss_when_its_group_is_replaced() {
    for rebuildable in [false, true] {
        let (mut rig, victim, others) = with_bad_image_in_the_store();
        if rebuildable {
            rig.cache.keep_rebuildable(None);
        }
        go_round(&mut rig, &others);
        assert_eq!(rig.cache.cache_statistics().pages_lost, 0);
        assert_eq!(rig.cache.image_offset(victim), None, "its group is gone");
        rig.compare();
        rig.cache.sync().unwrap();
    }
}

#[test]
fn an_image_that_the_store_has_too_holds_no_log() {
    let (rig, _, _) = with_bad_image_in_the_store();
    rig.cache.keep_rebuildable(None);
    assert!(!rig.cache.rebuild_from().complete);
    rig.cache.write_back_before(rig.log.end()).unwrap();
    assert!(rig.cache.rebuild_from().complete);
    rig.compare();
}

#[test]
fn a_notice_replaces_no_image_of_the_same_version() {
    let (rig, _, pages, _) = with_bad_image();
    let page = pages[0];
    let version = rig.store.version_of(page).unwrap().expect("allocated");
    assert_eq!(rig.store.write_notice(page, version, "lost"), Ok(false));
    assert_eq!(read(&*rig.store, page).unwrap().0.0, version);
}

/// Before, the group was not written: the rescued page alone is no change.
#[test]
fn a_page_that_dram_still_had_is_durable_after_a_sync() {
    let (mut rig, blocks, pages, at) = with_bad_image();
    let victim = pages[70];
    blocks.lock().unwrap().push(at);
    go_round(&mut rig, &pages);
    rig.cache.sync().unwrap();
    assert_lost(&rig.cache, victim);
    assert_eq!(rig.offer(&[victim], &[rig.written[&victim]], false), [Ok(Took::Taken)]);
    rig.cache.sync().unwrap();
    let (_store, cache) = rig.reopened(CachePolicy::GroupSecondChance).unwrap();
    compare(&cache, &rig.written);
}

#[test]
fn what_is_read_at_the_second_attempt_is_not_lost() {
    for fault in [Fault::Fail(DeviceErrorKind::Failed), Fault::BitRot { bits: 40 }] {
        let plan = FaultPlan::new(5);
        let mut rig = Rig::with(small(), |device| Arc::new(Faulty::new(device, &plan)));
        let pages = rig.allocate(80);
        for nth in 0..60 {
            plan.add(FaultRule {
                calls: Calls::Reads,
                device: Some("cache".to_owned()),
                when: When::Nth(nth),
                fault,
            });
            for chunk in pages.chunks(4) {
                assert!(rig.write(chunk).iter().all(|outcome| *outcome == Ok(Took::Taken)));
            }
        }
        assert!(plan.fired() > 30);
        plan.heal();
        assert_eq!(rig.cache.cache_statistics().pages_lost, 0);
        rig.compare();
    }
}

#[test]
fn a_device_that_reads_nothing_any_more_loses_no_page() {
    let (mut rig, blocks, pages, _) = with_bad_image();
    blocks.lock().unwrap().push(0..u64::MAX);
    let outcomes: Vec<_> = pages[..60].chunks(4).flat_map(|chunk| rig.write(chunk)).collect();
    let error = outcomes.iter().find_map(|outcome| outcome.clone().err()).expect("refused");
    assert_eq!(error.kind, TierErrorKind::Failed);
    assert_eq!(rig.cache.cache_statistics().pages_lost, 0);
    // When the device is back, nothing is missing.
    blocks.lock().unwrap().clear();
    rig.compare();
    go_round(&mut rig, &pages);
    rig.compare();
}

/// Before, the opening failed.
#[test]
fn bad_blocks_behind_the_durable_groups_do_not_prevent_an_opening() {
    let (mut rig, _, pages, _) = with_bad_image();
    rig.cache.sync().unwrap();
    let reopened = |rig: &Rig, bad: Range<u64>, durable| {
        let inner = Arc::new(rig.cache_device.duplicate());
        let device = Bad { inner, blocks: Arc::new(Mutex::new(vec![bad])) };
        rig.reopened_on(Arc::new(device), CachePolicy::GroupSecondChance, durable)
    };
    let last = rig.cache.state().durable;
    let header = |serial| {
        let at = rig.cache.geometry.group_offset(Serial(serial));
        at..at + 512
    };
    for serial in [last + 1, last + 2] {
        let (_store, cache) = reopened(&rig, header(serial), last).unwrap();
        compare(&cache, &rig.written);
    }
    // A hole before a group that can be read is still none.
    let error = reopened(&rig, header(last - 1), last - 2).map(drop).unwrap_err();
    assert_eq!(error.kind, TierErrorKind::Damaged);
    // A group that is not known to be durable counts as torn if it cannot be read.
    let before = rig.written.clone();
    assert!(rig.write(&pages[..4]).iter().all(Result::is_ok));
    let at = rig.cache.image_offset(pages[0]).unwrap();
    let (_store, cache) = reopened(&rig, at..at + 512, last).unwrap();
    assert_eq!(cache.state().durable, last);
    compare(&cache, &before);
    assert!(reopened(&rig, at..at + 512, last + 1).is_err(), "it was durable");
}

/// In a cache that can be rebuilt from the log no image is given up; only accesses to its page
/// fail.
#[test]
fn a_damaged_image_of_a_cache_that_can_be_rebuilt_is_kept_and_others_go_past_it() {
    let (mut rig, blocks, pages, at) = with_bad_image();
    rig.cache.keep_rebuildable(None);
    let victim = pages[70];
    blocks.lock().unwrap().push(at.clone());
    go_round(&mut rig, &pages);
    assert_eq!(rig.cache.cache_statistics().pages_lost, 0);
    assert!(!rig.cache.page_is_lost(victim));
    assert!(read(&rig.cache, victim).is_err());
    let mut others = rig.written.clone();
    others.remove(&victim);
    compare(&rig.cache, &others);
    // The image cannot leave, and the error says why.
    let error = rig.cache.sync().unwrap_err();
    assert!(error.message.contains("open it without its flash cache"), "{}", error.message);
    // Once it can be read again, everything continues as before.
    blocks.lock().unwrap().clear();
    rig.compare();
    go_round(&mut rig, &pages);
    rig.cache.sync().unwrap();
    rig.compare();
}
