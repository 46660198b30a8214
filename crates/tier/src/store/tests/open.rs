//! Opening: refusals, and how little is read.

use super::harness::*;
use crate::error::TierErrorKind;
use crate::page_tier::PageTier;
use crate::store::{Layout, Store, StoreOptions};
use firndb_base::DatabaseId;
use firndb_base::sync::Arc;
use firndb_device::{Counting, Device, MemoryDevice};
use firndb_log::LogClass;

#[test]
fn opening_reads_header_totals_and_map_log_only() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new("store"));
    let log = TestLog::new();
    let store = create(device.clone(), &log);
    allocate(&store, &log, 2000).unwrap();
    sweep(&store);
    drop(store);
    let counting = Arc::new(Counting::new(device));
    let store = Store::open(counting.clone(), DATABASE, options()).unwrap();
    let reads = counting.snapshot().reads;
    // Two slots of each, and the adjacent blocks where the map log goes on.
    assert!(reads.ops <= 5 && reads.bytes <= 10_240 + 16 * 1024, "{reads:?}");
    assert_eq!(store.statistics().pages_allocated, 2000);
}

/// As after a crash: the first page number, and the first places, are found without reading what
/// is free in all the groups that are full; and the numbers are the lowest, so that the file can
/// become shorter.
#[test]
fn the_first_pages_after_an_opening_are_found_where_free_ones_begin() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new("store"));
    let log = TestLog::new();
    let store = create(device.clone(), &log);
    let pages = allocate(&store, &log, 4000).unwrap();
    write(&store, &log, &pages);
    // The file keeps its length for the places.
    publish(&store, &log, &[], &pages[2600..]).unwrap();
    sweep(&store);
    let groups = store.state.lock().space.groups();
    drop(store);
    let store = recover(device, &log.records(), log.end(), log.end()).unwrap();
    store.attach_journal(log.clone());
    let read = || store.statistics().metadata_pages_read;
    let page = allocate(&store, &log, 1).unwrap();
    assert_eq!(page, [pages[2600]]);
    assert!(groups > 32 && read() <= 12, "{} metadata pages read for {page:?} of {groups} groups", read());
    assert!(write(&store, &log, &page).iter().all(|(_, outcome)| outcome.is_ok()));
    assert!(read() <= 16, "{} metadata pages read to write {page:?} of {groups} groups", read());
    let more = allocate(&store, &log, 200).unwrap();
    assert_eq!(more, pages[2601..2801], "the next groups in turn");
}

#[test]
fn foreign_short_and_misfit_files_are_refused_with_a_reason() {
    let device = Arc::new(MemoryDevice::new("store"));
    drop(create(device.clone(), &TestLog::new()));
    let kind = |outcome: Result<Store, crate::TierError>| outcome.err().expect("it is refused").kind;
    assert_eq!(kind(Store::open(device.clone(), DatabaseId([9; 16]), options())), TierErrorKind::Damaged);
    let other = StoreOptions { page_size: 4096, ..options() };
    assert_eq!(kind(Store::open(device.clone(), DATABASE, other)), TierErrorKind::BadArgument);
    device.shrink(device.len() - 512).unwrap();
    assert_eq!(kind(Store::open(device.clone(), DATABASE, options())), TierErrorKind::Damaged);
    device.shrink(0).unwrap();
    assert_eq!(kind(Store::open(device, DATABASE, options())), TierErrorKind::Damaged);
    let coarse = Arc::new(MemoryDevice::with("coarse", 4096, u64::MAX));
    assert_eq!(
        kind(Store::create_with(coarse, DATABASE, options(), LAYOUT, POLICY)),
        TierErrorKind::BadArgument
    );
}

#[test]
fn a_store_works_over_the_real_log() {
    let log = firndb_log::testing::memory_log();
    let device = Arc::new(MemoryDevice::with("store", 4096, u64::MAX));
    let options = StoreOptions { page_size: 4096, map_budget_bytes: 1 << 20 };
    let store =
        Store::create_with(device, DATABASE, options, Layout::default(), crate::store::Policy::default())
            .unwrap();
    store.attach(log.clone());
    let pages: Vec<_> = (0..300).map(|_| store.reserve(LogClass::Normal).unwrap()).collect();
    let append = &mut |record: firndb_log::Record<'_>| log.try_append(LogClass::Normal, record);
    let appended = publish_in(&store, &pages, &[], append).unwrap();
    log.flush(appended.end).unwrap();
    let buf = firndb_device::AlignedBuf::zeroed(4096);
    let mut writes: Vec<crate::PageWrite<'_>> = pages
        .iter()
        .map(|page| crate::PageWrite::back(*page, appended.first, appended.first, &buf))
        .collect();
    store.write_batch(&mut writes);
    assert!(writes.iter().all(|write| write.is_taken()));
    let statistics = store.statistics();
    assert_eq!(
        (statistics.pages_written, statistics.write_runs),
        (300, 5),
        "300 pages in batches of 64, a run each"
    );
    store.sync().unwrap();
    assert_eq!(store.oldest_needed_lsn(), None);
    assert_eq!(store.check(true, &mut |_| {}).unwrap().damage, Vec::<String>::new());
}
