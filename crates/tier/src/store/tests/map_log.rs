//! The map log: what it holds survives, and what of it is damaged is seen.

use super::harness::*;
use crate::error::TierErrorKind;
use crate::page_tier::PageTier;
use crate::store::{Journal, Store, StoreOptions};
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::Ordering;
use firndb_base::{Lsn, PageId};
use firndb_device::{Counting, Device, Durability, Fault, FaultPlan, Faulty, MemoryDevice};

/// A store with a map log of several blocks, synced at the LSN that is returned.
fn with_blocks(device: Arc<dyn Device>, checkpoints: usize) -> (Arc<TestLog>, Store, Vec<PageId>, Lsn) {
    let log = TestLog::new();
    let options = StoreOptions { map_budget_bytes: 1 << 20, ..options() };
    let store = Store::create_with(device, DATABASE, options, LAYOUT, POLICY).unwrap();
    store.attach_journal(log.clone());
    let pages = allocate(&store, &log, 300).unwrap();
    write(&store, &log, &pages);
    sweep(&store);
    for at in 0..checkpoints {
        write(&store, &log, &pages[at * 6..at * 6 + 6]);
        store.sync().unwrap();
    }
    let contained = store.metadata_version();
    store.sync().unwrap();
    log.flush(log.end()).unwrap();
    assert!(store.state.lock().map_log.live() >= 2 && store.oldest_needed_lsn().is_none());
    (log, store, pages, contained)
}

#[test]
fn a_checkpoint_appends_what_changed_and_writes_no_map_page() {
    let device = Arc::new(MemoryDevice::new("store"));
    let log = TestLog::new();
    let options = StoreOptions { map_budget_bytes: 1 << 20, ..options() };
    let store = Store::create_with(device.clone(), DATABASE, options, LAYOUT, POLICY).unwrap();
    store.attach_journal(log.clone());
    let pages = allocate(&store, &log, 1500).unwrap();
    write(&store, &log, &pages);
    sweep(&store);
    let written = || store.counters.metadata_pages_written.load(Ordering::Relaxed);
    let before = written();
    // One page of each map page.
    let some: Vec<PageId> = pages.iter().copied().step_by(40).collect();
    write(&store, &log, &some);
    store.sync().unwrap();
    let blocks = (written() - before) as usize;
    assert!(blocks <= 3 && some.len() > 30, "{blocks} pages for {} map pages", some.len());
    assert_eq!(store.oldest_needed_lsn(), None);
    log.flush(log.end()).unwrap();
    let recovered = recover(device, &[], log.end(), log.end()).unwrap();
    compare(&recovered, &fold(&log.records(), log.end()));
}

/// Each live block in turn is damaged: if it was written since the checkpoint that the superblock
/// knows, the log has what it held; else the opening says what is missing.
#[test]
fn a_block_of_the_map_log_that_is_damaged_is_replaced_by_the_log_or_missed() {
    let device = Arc::new(MemoryDevice::new("store"));
    let (log, store, pages, contained) = with_blocks(device.clone(), 4);
    let (from, live) = (log.end(), store.state.lock().map_log.live());
    write(&store, &log, &pages[..6]);
    store.sync().unwrap();
    log.flush(log.end()).unwrap();
    let spots = store.state.lock().map_log.spots();
    assert!(spots.len() as u64 > live, "one was written since");
    let (records, wanted) = (log.records(), fold(&log.records(), log.end()));
    for (index, spot) in spots.iter().enumerate() {
        let device = Arc::new(device.duplicate());
        let at = store.geometry.block_offset(spot.block);
        let mut block = [0; 512];
        device.read(at, &mut block).unwrap();
        block[60] ^= 1;
        device.write(at, &block, Durability::Later).unwrap();
        let recovered = recover_after(device.clone(), &records, contained, from, log.end());
        if index as u64 >= live {
            compare(&recovered.unwrap(), &wanted);
            continue;
        }
        let error = recovered.err().expect("the log no longer has it");
        assert_eq!(error.kind, TierErrorKind::Damaged);
        assert!(error.message.contains("is older than the rest"), "{error}");
    }
}

/// Blocks that are written together, of which a crash leaves only later ones: they are no part of
/// the log, and what they held is in the database's log.
#[test]
fn blocks_behind_a_torn_one_do_not_count() {
    let device = Arc::new(MemoryDevice::new("store"));
    let (log, store, pages, contained) = with_blocks(device.clone(), 2);
    let (from, before) = (log.end(), store.state.lock().map_log.live() as usize);
    for chunk in pages[..150].chunks(6) {
        write(&store, &log, chunk);
    }
    store.sync().unwrap();
    let spots = store.state.lock().map_log.spots();
    assert!(spots.len() >= before + 3, "one batch of {} blocks", spots.len() - before);
    let geometry = store.geometry;
    drop(store);
    let torn = geometry.block_offset(spots[before].block);
    device.write(torn, &[0; 1024], Durability::Later).unwrap();
    let (records, wanted) = (log.records(), fold(&log.records(), log.end()));
    let store = recover_after(device.clone(), &records, contained, from, log.end()).unwrap();
    assert_eq!(store.state.lock().map_log.live() as usize, before);
    compare(&store, &wanted);
    store.attach_journal(log.clone());
    write(&store, &log, &pages[200..206]);
    store.sync().unwrap();
    log.flush(log.end()).unwrap();
    let again = recover(device, &[], log.end(), log.end()).unwrap();
    compare(&again, &fold(&log.records(), log.end()));
}

/// Cause: a block that could not be read counted as none. Effect: while a device failed, the store
/// was called older than the rest of the database. Found by the simulator.
#[test]
fn a_block_of_the_map_log_that_cannot_be_read_is_named_as_such() {
    let device = Arc::new(MemoryDevice::new("store"));
    let (log, store, _, contained) = with_blocks(device.clone(), 4);
    let spots = store.state.lock().map_log.spots();
    let at = store.geometry.block_offset(spots[1].block);
    drop(store);
    let bad = Arc::new(Faulty::new(device, &FaultPlan::new(0)));
    bad.make_unreadable(at, 512);
    let error = recover_after(bad, &[], contained, log.end(), log.end()).err().expect("it is needed");
    assert_eq!(error.kind, TierErrorKind::Unreadable, "{error}");
}

/// Cause: nothing read the map log but the next opening. Effect: a check of a store that could not
/// be opened again found nothing.
#[test]
fn a_check_reads_the_map_log() {
    let device = Arc::new(MemoryDevice::new("store"));
    let (log, store, pages, _) = with_blocks(device.clone(), 4);
    let spots = store.state.lock().map_log.spots();
    let at = store.geometry.block_offset(spots[1].block);
    let mut block = [0; 512];
    device.read(at, &mut block).unwrap();
    block[60] ^= 1;
    device.write(at, &block, Durability::Later).unwrap();
    let report = store.check(true, &mut |_| {}).unwrap();
    assert_eq!(report.faults, 1);
    let named = format!("block {} of the map log is damaged", spots[1].block);
    assert!(report.damage[0].starts_with(&named), "{:?}", report.damage);
    // Nothing is lost yet: the sweep drops the block.
    write(&store, &log, &pages[200..206]);
    sweep(&store);
    compare(&store, &fold(&log.records(), log.end()));
}

/// A write of a block that the device acknowledged and lost.
#[test]
fn a_block_of_the_map_log_that_was_lost_is_missed() {
    let plan = FaultPlan::new(1);
    let device: Arc<dyn Device> = Arc::new(Faulty::new(Arc::new(MemoryDevice::new("store")), &plan));
    let (log, store, pages, _) = with_blocks(device.clone(), 4);
    write(&store, &log, &pages[..6]);
    plan.nth(0, firndb_device::Calls::Writes, Fault::Lost);
    let contained = store.metadata_version();
    store.sync().unwrap();
    assert_eq!(plan.fired(), 1);
    log.flush(log.end()).unwrap();
    let error = recover_after(device, &[], contained, log.end(), log.end()).err().expect("it is missed");
    assert_eq!(error.kind, TierErrorKind::Damaged);
}

/// The sweep keeps overlay and map log within their bounds, and with them what a recovery holds in
/// memory.
#[test]
fn recovery_holds_no_more_in_memory_than_the_budget() {
    recovery_keeps_its_budget(|_| {});
}

/// Cause: what may wait in memory followed the budget as it grew. Effect: after a restart, which
/// has the budget as it was, recovery held twice of it, and the map's cache eight pages.
#[test]
fn recovery_of_a_map_that_grew_holds_no_more_in_memory_than_the_budget_at_opening() {
    recovery_keeps_its_budget(|store| {
        store.let_map_grow(1 << 20);
        store.take_memory(768 << 10);
    });
}

fn recovery_keeps_its_budget(grow: impl Fn(&Store)) {
    let device = Arc::new(MemoryDevice::new("store"));
    let log = TestLog::new();
    let budget = 256 << 10;
    let options = StoreOptions { map_budget_bytes: budget, ..options() };
    let store = Store::create_with(device.clone(), DATABASE, options.clone(), LAYOUT, POLICY).unwrap();
    store.attach_journal(log.clone());
    grow(&store);
    let mut pages = Vec::new();
    while pages.len() < 8000 {
        pages.extend(allocate(&store, &log, 60).unwrap());
        log.flush(log.end()).unwrap();
    }
    let (mut rng, mut from, mut most) = (Rng::new(1), Lsn::FIRST, 0);
    for step in 0..3000 {
        let mut some: Vec<PageId> = (0..6).map(|_| pages[rng.below(8000) as usize]).collect();
        some.sort_unstable();
        some.dedup();
        write(&store, &log, &some);
        if step % 500 == 0 {
            store.sync().unwrap();
            from = store.oldest_needed_lsn().unwrap_or(log.end());
        }
        if step % 100 == 99 {
            log.flush(log.end()).unwrap();
            let copy = copy(&*device);
            let opened = Store::open_with(copy, DATABASE, options.clone(), POLICY).unwrap();
            for logged in log.records().iter().filter(|logged| logged.lsn >= from && logged.kind != OTHER) {
                opened.redo(logged.lsn, logged.record()).unwrap();
            }
            opened.finish_redo(log.end()).unwrap();
            let state = opened.state.lock();
            let map = state.overlay.bytes() + state.map_log.fresh_bytes();
            most = most.max(map + state.deferred.bytes());
        }
    }
    assert!(most > budget / 8 && most <= budget, "{most} bytes, budget {budget}");
    log.flush(log.end()).unwrap();
    compare(&store, &fold(&log.records(), log.end()));
}

/// After it was read once, a map page is read by one slot.
#[test]
fn a_map_page_is_read_whole_once_and_then_by_its_newer_slot() {
    let device = Arc::new(Counting::new(Arc::new(MemoryDevice::new("store"))));
    let log = TestLog::new();
    let store = create(device.clone(), &log);
    let pages = allocate(&store, &log, 900).unwrap();
    write(&store, &log, &pages);
    sweep(&store);
    drop(store);
    let store = recover(device.clone(), &log.records(), log.end(), log.end()).unwrap();
    store.attach_journal(log.clone());
    let bytes = |page: PageId| {
        let before = device.snapshot().reads;
        store.version_of(page).unwrap();
        device.snapshot().reads.since(before).bytes
    };
    let far = |at: usize| pages[at * 45];
    let first: Vec<u64> = (0..20).map(|at| bytes(far(at))).collect();
    let second: Vec<u64> = (0..20).map(|at| bytes(far(at))).collect();
    assert!(first.iter().filter(|bytes| **bytes == 2048).count() >= 15, "{first:?}");
    assert!(second.iter().all(|bytes| *bytes <= 1024), "{second:?}");
    assert!(second.iter().filter(|bytes| **bytes == 1024).count() >= 10, "{second:?}");
}

/// Cause: the sweep rested until a share of the file's blocks was full. Effect: where few pages
/// were written again and again, an opening read and replayed log in proportion to the file: of
/// 1 TB, 700 MB.
#[test]
fn the_map_log_is_as_short_in_a_large_file_where_few_pages_are_written() {
    let device = Arc::new(MemoryDevice::new("store"));
    let log = TestLog::new();
    let options = StoreOptions { map_budget_bytes: 1 << 20, ..options() };
    let store = Store::create_with(device, DATABASE, options, LAYOUT, POLICY).unwrap();
    store.attach_journal(log.clone());
    let pages = allocate(&store, &log, 30).unwrap();
    while store.state.lock().space.groups() < 4000 {
        let mut header = store.growth.lock();
        store.grow(&mut header, 1000).unwrap();
    }
    let capacity = store.geometry.blocks(4000);
    let written = || store.counters.metadata_pages_written.load(Ordering::Relaxed);
    for syncs in [true, false] {
        let (before, mut most, rounds) = (written(), 0, 5000);
        for _ in 0..rounds {
            write(&store, &log, &pages);
            if syncs {
                store.sync().unwrap();
            }
            let state = store.state.lock();
            most = most.max(state.map_log.live());
            assert!(state.sweep.owed <= 4000, "more than a circle");
        }
        assert!(most > 64 && most < 150 && capacity > 3000, "{most} blocks of {capacity}");
        // The blocks, and little beside them.
        let written = written() - before;
        assert!(written < 3 * rounds, "{written} pages of metadata in {rounds} rounds");
    }
}
