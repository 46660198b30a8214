//! The buffer offers clean pages that leave DRAM only to a cache that can take them: each costs a
//! copy and a call.

use super::harness::*;
use crate::page_cache::CacheOptions;
use crate::page_tier::PageTier;
use crate::store::Journal;
use crate::switch::CacheSwitch;
use crate::testing::Took;
use firndb_base::sync::Arc;
use firndb_base::{Lsn, Progress};
use firndb_device::{Calls, Fault, FaultPlan, FaultRule, Faulty, When};

#[test]
fn a_write_through_cache_that_is_lost_wants_none_any_more() {
    let plan = FaultPlan::new(1);
    let chosen = CacheOptions { write_through: true, ..small() };
    let mut rig = Rig::with(chosen, |device| Arc::new(Faulty::new(device, &plan)));
    let pages = rig.allocate(40);
    pages.chunks(4).for_each(|chunk| assert!(rig.write(chunk).iter().all(Result::is_ok)));
    let Rig { store, cache, log, .. } = rig;
    let switch = CacheSwitch::new(store, Some(Arc::new(cache)));
    assert!(switch.wants_clean());
    plan.add(FaultRule {
        calls: Calls::Any,
        device: Some("cache".to_owned()),
        when: When::From(0),
        fault: Fault::Fail(firndb_device::DeviceErrorKind::Failed),
    });
    for page in &pages {
        let version = log.tick();
        log.flush(Lsn(version.0 + 1)).unwrap();
        assert_eq!(offer_one(&switch, *page, version, true), Ok(Took::Taken));
    }
    let cache = switch.cache().expect("it is still in its place");
    assert!(cache.cache_statistics().lost, "its device fails every write");
    assert!(!switch.wants_clean(), "the store would decline each of them");
}

#[test]
fn a_cache_that_leaves_wants_none_and_one_that_stays_after_all_does() {
    let mut rig = Rig::new(small());
    let pages = rig.allocate(20);
    pages.chunks(4).for_each(|chunk| assert!(rig.write(chunk).iter().all(Result::is_ok)));
    let (page, version) = (pages[0], rig.written[&pages[0]]);
    let Rig { store, cache, .. } = rig;
    let switch = CacheSwitch::new(store, Some(Arc::new(cache)));
    assert!(switch.wants_clean());
    let cache = switch.cache().expect("there is one");
    cache.set_leaving(true);
    assert_eq!(switch.leave_step(), Ok(Progress::Worked));
    assert!(!switch.wants_clean(), "what leaves takes nothing in");
    cache.set_leaving(false);
    assert_eq!(
        offer_one(&switch, page, version, false),
        Ok(Took::Taken),
        "one that was offered all the same"
    );
    assert!(switch.wants_clean(), "it takes pages again");
}
