//! Pages adopted with the numbers and versions of another database.

use super::harness::*;
use crate::error::TierErrorKind;
use crate::testing::Took;
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_base::{Lsn, PageId};
use firndb_device::{CrashPlan, MemoryDevice, Survival};
use std::collections::BTreeMap;

/// Page numbers far apart, so that the file has to grow for them, and versions before this log's
/// first.
fn wanted(rng: &mut Rng) -> BTreeMap<PageId, Lsn> {
    (0..300).map(|_| (PageId(1 + rng.below(900)), Lsn(1 + rng.below(4000)))).collect()
}

#[test]
fn adopted_pages_have_their_numbers_and_versions_and_work_as_any_others() {
    let mut rng = Rng::new(1);
    let log = TestLog::new();
    let device = Arc::new(MemoryDevice::new("store"));
    let store = create(device.clone(), &log);
    let wanted = wanted(&mut rng);
    let pages: Vec<(PageId, Lsn)> = wanted.iter().map(|(page, version)| (*page, *version)).collect();
    store.adopt(&pages).unwrap();
    let (numbers, versions): (Vec<_>, Vec<_>) = pages.iter().copied().step_by(2).unzip();
    for (numbers, versions) in numbers.chunks(6).zip(versions.chunks(6)) {
        for outcome in write_versions(&store, &log, numbers, versions) {
            assert_eq!(outcome.unwrap(), Took::Taken);
        }
    }
    let mut expected: Pages = pages.iter().map(|(page, version)| (*page, (*version, false))).collect();
    numbers.iter().for_each(|page| expected.get_mut(page).unwrap().1 = true);
    compare(&store, &expected);
    assert_eq!(fold(&log.records(), log.end()), expected);
    // New pages get numbers that are free.
    let fresh = allocate(&store, &log, 50).unwrap();
    assert!(fresh.iter().all(|page| !expected.contains_key(page)));
    let again = store.adopt(&pages[..1]).unwrap_err();
    assert_eq!(again.kind, TierErrorKind::BadArgument);
    assert_eq!(store.adopt(&[(PageId(0), Lsn(5))]).unwrap_err().kind, TierErrorKind::BadArgument);
    compare(&store, &fold(&log.records(), log.end()));
}

#[test]
fn a_power_cut_while_pages_are_adopted_leaves_the_durable_log_pages() {
    let mut rng = Rng::new(2);
    let plan = CrashPlan::new();
    let log = TestLog::new();
    let device = plan.device("store");
    let store = create(device, &log);
    plan.settle();
    let pages: Vec<(PageId, Lsn)> = wanted(&mut rng).into_iter().collect();
    for part in pages.chunks(40) {
        store.adopt(part).unwrap();
        crate::PageTier::sync(&store).unwrap();
    }
    let records = log.records();
    let durable = crate::store::Journal::durable(&*log);
    let whole = fold(&records, durable);
    let image = plan.crash_image(Survival::Nothing, &mut rng).remove(0);
    let kept: Vec<Logged> = records.into_iter().filter(|record| record.end <= durable).collect();
    let store = recover(image, &kept, Lsn::FIRST, durable).unwrap();
    compare(&store, &whole);
    assert_eq!(whole.len(), pages.len());
}
