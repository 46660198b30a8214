//! A cache is attached and detached while structure changes go on: these are made under page
//! latches, and wait for no device.

use super::harness::*;
use crate::error::{TierError, TierErrorKind};
use crate::page_cache::PageCache;
use crate::page_reads::PageReads;
use crate::page_tier::{PageRead, PageTier};
use crate::store::Journal;
use crate::switch::CacheSwitch;
use firndb_base::PageId;
use firndb_base::sync::Arc;
use firndb_device::AlignedBuf;
use firndb_log::LogClass;
use firndb_testkit::hooked::Trap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Runs `work` on another thread, which must not have to wait for the calling one.
fn beside(work: impl FnOnce() + Send + 'static, what: &str) -> Result<(), String> {
    let (done, ended) = channel();
    std::thread::spawn(move || {
        work();
        let _ = done.send(());
    });
    ended.recv_timeout(Duration::from_secs(10)).map_err(|_| format!("{what} waits for a change of the cache"))
}

/// Frees a page and allocates others through the switch, after the preparation that this needs.
fn publish(
    switch: &Arc<CacheSwitch>,
    log: &Arc<TestLog>,
    allocate: &[PageId],
    free: PageId,
) -> impl FnOnce() + use<> {
    let (switch, log, allocate) = (switch.clone(), log.clone(), allocate.to_vec());
    move || {
        publish_in(&*switch, &allocate, &[free], &mut |record| log.append(record)).unwrap();
    }
}

fn read(tier: &dyn PageTier, page: PageId) -> Result<Vec<u8>, TierError> {
    let mut buf = AlignedBuf::zeroed(PAGE_SIZE);
    let mut reads =
        [PageRead { page, buf: &mut buf, outcome: Err(TierError::new(TierErrorKind::Failed, "not read")) }];
    tier.read_batch(&mut reads);
    let [read] = reads;
    read.outcome.clone()?;
    Ok(read.buf.to_vec())
}

/// A write of the old cache would land in the groups of the next one on the same device.
#[test]
fn a_change_of_the_cache_waits_until_pages_are_written_back() {
    let trap = Trap::default();
    let mut rig = Rig::with(small(), |device| trap.over_writes(device));
    rig.cache.keep_rebuildable(None);
    let pages = rig.allocate(2);
    assert!(rig.write(&pages).iter().all(Result::is_ok));
    let Rig { store, cache, log, .. } = rig;
    let switch = Arc::new(CacheSwitch::new(store, Some(Arc::new(cache))));
    let (done, changed) = channel();
    let (other, end) = (switch.clone(), log.end());
    let overtaken = Arc::new(AtomicBool::new(false));
    let found = overtaken.clone();
    let (later, change) = channel();
    trap.set(move || {
        let _ = later.send(std::thread::spawn(move || {
            other.change(|_| Ok::<_, ()>(None)).unwrap();
            let _ = done.send(());
        }));
        found.store(changed.recv_timeout(Duration::from_millis(100)).is_ok(), Relaxed);
    });
    switch.write_back_before(end).unwrap();
    assert!(!trap.is_set() && !overtaken.load(Relaxed));
    change.recv().expect("it was begun").join().unwrap();
    assert!(switch.cache().is_none());
}

/// What is being read from the store when a cache comes or goes was in no cache.
#[test]
fn reads_under_way_outlast_a_change_of_the_cache() {
    let mut rig = Rig::new(small());
    let pages = rig.allocate(40);
    for chunk in pages.chunks(4) {
        assert!(rig.write(chunk).iter().all(Result::is_ok));
    }
    let Rig { store, cache, log: _log, .. } = rig;
    let cache: Arc<dyn PageCache> = Arc::new(cache);
    let switch = CacheSwitch::new(store, Some(cache));
    let (mut reads, begun): (_, Vec<_>) = (PageReads::default(), pages.iter().copied().enumerate().collect());
    switch.begin_reads(&mut reads, &begun);
    assert!(reads.came().count() > 0 && reads.under_way() > 0, "some are in the cache, some are not");
    switch.change(|_| Ok::<_, ()>(None)).unwrap();
    let mut came = 0;
    while switch.next_reads(&mut reads) {
        for read in reads.came() {
            let version = read.outcome.as_ref().expect("every page is there").version;
            assert!(read.bytes[..PAGE_SIZE] == image(read.page, version));
            came += 1;
        }
        reads.clear();
    }
    assert_eq!(came, 40);
}

/// They once waited for the writes of the change, under page latches.
#[test]
fn publications_wait_for_no_change_and_none_is_missed() {
    let mut rig = Rig::new(small());
    let pages = rig.allocate(12);
    assert!(rig.write(&pages).iter().all(Result::is_ok));
    let reserved =
        [rig.cache.reserve(LogClass::Normal).unwrap(), rig.cache.reserve(LogClass::Normal).unwrap()];
    let Rig { store, cache, log, .. } = rig;
    let cache: Arc<dyn PageCache> = Arc::new(cache);
    let switch = Arc::new(CacheSwitch::new(store, Some(cache.clone())));
    let cached = || cache.cache_statistics().pages_valid;
    let before = cached();
    // Detaching, which fails in the end: pages that were freed meanwhile are gone from the cache,
    // which stays.
    let detached = switch.change(|_| -> Result<_, String> {
        beside(publish(&switch, &log, &reserved[..1], pages[0]), "a publication")?;
        let other = switch.clone();
        beside(move || other.unreserve(reserved[1]), "giving a reserved page back")?;
        Err("the superblock cannot be written".to_owned())
    });
    assert_eq!(detached, Err("the superblock cannot be written".to_owned()));
    assert_eq!(cached(), before - 1, "the freed page is forgotten");
    assert_eq!(read(&*switch, pages[0]).unwrap_err().kind, TierErrorKind::NotAllocated);
    assert!(read(&*switch, pages[1]).is_ok());
    // Detaching, which succeeds.
    cache.set_leaving(true);
    while switch.leave_step().unwrap() == firndb_base::Progress::Worked {}
    let detached = switch.change(|_| -> Result<_, String> {
        beside(publish(&switch, &log, &[], pages[1]), "a publication")?;
        Ok(None)
    });
    assert_eq!(detached, Ok(()));
    assert_eq!(read(&*switch, pages[1]).unwrap_err().kind, TierErrorKind::NotAllocated);
    assert!(read(&*switch, pages[2]).is_ok(), "the store has it");
    // Attaching: the new cache receives all later pages.
    cache.set_leaving(false);
    let attached = switch.change(|_| -> Result<_, String> {
        beside(publish(&switch, &log, &[], pages[2]), "a publication")?;
        Ok(Some(cache.clone()))
    });
    assert_eq!(attached, Ok(()));
    assert_eq!(read(&*switch, pages[2]).unwrap_err().kind, TierErrorKind::NotAllocated);
    publish(&switch, &log, &[], pages[3])();
    assert_eq!(read(&*switch, pages[3]).unwrap_err().kind, TierErrorKind::NotAllocated);
}
