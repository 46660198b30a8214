//! Pages are written although their map page cannot be read: what is in DRAM is kept, and no log is
//! held for it.

use super::harness::*;
use super::map_damage::{damage, meets, open, opened, prepared, slots_of, unreadable};
use crate::error::{TierError, TierErrorKind};
use crate::page_tier::{PageTier, PageWrite};
use crate::store::meta_page::MetaId;
use crate::store::state::SLACK_BATCHES_NORMAL;
use crate::store::{Journal, Store};
use crate::testing::Took;
use firndb_base::sync::atomic::{AtomicBool, Ordering::Relaxed};
use firndb_base::sync::{Arc, Mutex};
use firndb_base::{Lsn, PageId};
use firndb_device::{AlignedBuf, DeviceError, DeviceErrorKind};
use firndb_testkit::hooked::{Call, Hooked};

type Job = Box<dyn FnOnce() + Send>;

fn write_one(store: &Store, page: PageId, version: Lsn, recovery: Lsn) -> Result<Took, TierError> {
    let mut data = AlignedBuf::zeroed(PAGE_SIZE);
    data.copy_from_slice(&image(page, version));
    let mut writes = [PageWrite::back(page, version, recovery, &data)];
    store.write_batch(&mut writes);
    let [PageWrite { outcome, .. }] = writes;
    outcome.map(Took::from)
}

/// Cause: where a dirty page lay could not be read. Effect: it could not be written, and held the
/// log, which filled up.
#[test]
fn dirty_pages_are_written_although_their_map_page_is_damaged() {
    let id = MetaId::Map(1);
    let mut opened = opened(id);
    let is_of = opened.is_of(id);
    let (there, others): (Vec<PageId>, Vec<PageId>) = opened.pages.iter().partition(|page| is_of(page));
    let dirty: Vec<PageId> =
        there.iter().copied().filter(|page| !opened.moved.contains(page)).take(5).collect();
    for (_, outcome) in write(&opened.store, &opened.log, &dirty) {
        assert_eq!(outcome, Ok(Took::Taken));
    }
    opened.store.sync().unwrap();
    opened.log.flush(opened.log.end()).unwrap();
    assert_eq!(opened.store.oldest_needed_lsn(), None, "the log can be truncated");
    opened.assert_newest(&dirty);
    opened.work(&others, 30);
    opened.work(&dirty, 30);
    opened.assert_newest(&others);
    opened.assert_newest(&dirty);

    // Put right, the map page gets what it lacks. The places that were left are in use.
    damage(&opened.store, &*opened.device, id);
    let all = opened.pages.clone();
    opened.work(&all, 8);
    opened.assert_newest(&all);
    sweep(&opened.store);
    let report = opened.store.check(true, &mut |_| {}).unwrap();
    assert_eq!(report.faults, dirty.len() as u64, "{:?}", report.damage);
    assert!(report.damage.iter().all(|fault| fault.contains("in use but named by no page")), "{report:?}");
    let used = opened.store.state.lock().totals().places;
    assert_eq!(used, (all.len() + dirty.len()) as u64, "and counted");
}

#[test]
fn only_pages_that_are_allocated_and_dirty_in_the_buffer_are_written_so() {
    let opened = opened(MetaId::Map(3));
    let (store, log) = (&opened.store, &opened.log);
    let is_of = opened.is_of(MetaId::Map(3));
    let page = *opened.pages.iter().find(|page| is_of(page) && !opened.moved.contains(page)).unwrap();
    let free = PageId(opened.pages.last().unwrap().0 + 3);
    assert!(is_of(&free));
    let version = log.tick();
    log.flush(log.end()).unwrap();
    let kind = |outcome: Result<Took, TierError>| outcome.expect_err("it cannot be written").kind;
    assert_eq!(kind(write_one(store, free, version, version)), TierErrorKind::NotAllocated);
    assert_eq!(kind(write_one(store, page, version, Lsn::MAX)), TierErrorKind::Damaged);
    assert_eq!(write_one(store, page, version, version), Ok(Took::Taken));
}

/// The map page can be read for a while, during which a newer version of the page is written, and
/// the map page with it.
#[test]
fn a_write_that_is_overtaken_while_the_map_page_can_be_read_replaces_nothing() {
    let id = MetaId::Map(1);
    let log = TestLog::new();
    let (device, store, pages, moved) = prepared(&log);
    let (bad, geometry) = (slots_of(&store, id), store.geometry);
    drop(store);
    let fails = Arc::new(AtomicBool::new(true));
    let meanwhile: Arc<Mutex<Option<Job>>> = Arc::default();
    let (failing, run) = (fails.clone(), meanwhile.clone());
    let hooked = Hooked::over(device, move |call| match call {
        Call::Read { offset, len } if failing.load(Relaxed) && meets(&bad, offset, len) => Err(unreadable()),
        Call::Write { .. } => {
            let what = run.lock().take();
            what.into_iter().for_each(|what| what());
            Ok(())
        }
        _ => Ok(()),
    });
    let store = Arc::new(open(hooked, &log));
    let page =
        *pages.iter().find(|page| geometry.map_of_page(**page) == id && !moved.contains(page)).unwrap();
    let (older, newer) = (log.tick(), log.tick());
    log.flush(log.end()).unwrap();
    let (writer, writers_log, readable) = (store.clone(), log.clone(), fails.clone());
    *meanwhile.lock() = Some(Box::new(move || {
        readable.store(false, Relaxed);
        assert_eq!(write_one(&writer, page, newer, newer), Ok(Took::Taken));
        writers_log.flush(writers_log.end()).unwrap();
        sweep(&writer);
        writer.state.lock().cache.forget([id].into_iter());
        readable.store(true, Relaxed);
    }));
    let error = write_one(&store, page, older, older).expect_err("whether it is the newest is not known");
    assert_eq!(error.kind, TierErrorKind::Unreadable);
    assert!(meanwhile.lock().is_none());
    fails.store(false, Relaxed);
    assert_eq!(write_one(&store, page, older, older), Ok(Took::Declined));
    let (version, bytes) = read(&store, page).unwrap();
    assert!(version == newer && bytes == image(page, newer));
    compare(&store, &{
        let mut pages = fold(&log.records(), log.end());
        pages.insert(page, (newer, true));
        pages
    });
}

/// Cause: a place that no entry names any more was counted with the images only, of which a page
/// without one has none. Effect: with both, more pages were allocated than could be written.
#[test]
fn what_is_allocated_can_be_written_after_moves_from_unknown_places() {
    allocate_after_moves_from_unknown_places(false);
}

/// Cause: such places were counted in memory. Effect: as before, once the store was opened again.
#[test]
fn what_is_allocated_can_be_written_after_such_moves_and_an_opening() {
    allocate_after_moves_from_unknown_places(true);
}

fn allocate_after_moves_from_unknown_places(is_reopened: bool) {
    let id = MetaId::Map(1);
    let log = TestLog::new();
    let (device, store, pages, moved) = prepared(&log);
    damage(&store, &*device, id);
    drop(store);
    let is_full = Arc::new(AtomicBool::new(false));
    let full = is_full.clone();
    let limited = Hooked::over(device, move |call| match call {
        Call::Grow if full.load(Relaxed) => Err(DeviceError::new(DeviceErrorKind::NoSpace, "on purpose")),
        _ => Ok(()),
    });
    let mut store = open(limited.clone(), &log);
    let geometry = store.geometry;
    // It grows for these.
    let more = allocate(&store, &log, 60).unwrap();
    publish(&store, &log, &[], &more).unwrap();
    log.flush(log.end()).unwrap();
    is_full.store(true, Relaxed);
    let lost: Vec<PageId> = pages
        .iter()
        .copied()
        .filter(|page| geometry.map_of_page(*page) == id && !moved.contains(page))
        .collect();
    let slack = SLACK_BATCHES_NORMAL as usize * POLICY.batch_pages;
    assert!(lost.len() > slack, "what is kept free for writing does not hide it");
    assert!(write(&store, &log, &lost).iter().all(|(_, outcome)| *outcome == Ok(Took::Taken)));
    if is_reopened {
        log.flush(log.end()).unwrap();
        store.sync().unwrap();
        drop(store);
        store = open(limited, &log);
    }
    let mut new = Vec::new();
    let error = loop {
        match allocate(&store, &log, 1) {
            Ok(pages) => new.extend(pages),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind, TierErrorKind::Full);
    for (_, outcome) in write(&store, &log, &new) {
        assert_eq!(outcome, Ok(Took::Taken));
    }
}
