//! What the tests of the store share: its model, and recovery.

use crate::error::TierError;
use crate::page_tier::PageTier;
use crate::store::Journal;
use crate::store::geometry::Place;
use crate::store::records::{self, Change};
use crate::store::{Policy, Store};
use crate::testing::Took;
use crate::testing::small_store;
pub(crate) use crate::testing::small_store::{
    DATABASE, Fact, LAYOUT, Logged, OTHER, PAGE_SIZE, POLICY, TestLog, image, offer, options, publish_in,
};
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_base::{Lsn, PageId};
use firndb_device::{Device, Durability, Fill, MemoryDevice};
use firndb_log::LogClass;
use firndb_testkit::bytes::contents;
use std::collections::BTreeMap;

/// The allocated pages and their versions; `true` if the version has an image.
pub(crate) type Pages = BTreeMap<PageId, (Lsn, bool)>;

/// The pages after all map records of a log before `cut`.
pub(crate) fn fold(records: &[Logged], cut: Lsn) -> Pages {
    let mut pages = Pages::new();
    for logged in records.iter().filter(|logged| logged.end <= cut && logged.kind != OTHER) {
        for change in records::decode(logged.record()).unwrap() {
            match change {
                Change::Allocate { page } => assert!(pages.insert(page, (logged.lsn, false)).is_none()),
                Change::Free { page, .. } => assert!(pages.remove(&page).is_some()),
                Change::Move { page, version, .. } => {
                    let old = pages.insert(page, (version, true)).expect("only allocated pages move");
                    assert!(old.0 <= version);
                }
                Change::Adopt { page, version } => assert!(pages.insert(page, (version, false)).is_none()),
                Change::Delta { page, version, .. } => {
                    let old = pages.insert(page, (version, true)).expect("only allocated pages change");
                    assert!(old.0 <= version && old.1, "{page} has an image");
                }
                Change::DeltaPage { .. } | Change::DeltaFreed { .. } | Change::Backing { .. } => {}
            }
        }
    }
    pages
}

pub(crate) fn create(device: Arc<dyn Device>, log: &Arc<TestLog>) -> Store {
    create_under(POLICY, device, log)
}

/// As `create`, with a policy.
pub(crate) fn create_under(policy: Policy, device: Arc<dyn Device>, log: &Arc<TestLog>) -> Store {
    let store = Store::create_with(device, DATABASE, options(), LAYOUT, policy).unwrap();
    store.attach_journal(log.clone());
    store
}

/// Opens and redoes the records from `from` on that lie before `cut`.
pub(crate) fn recover(
    device: Arc<dyn Device>,
    records: &[Logged],
    from: Lsn,
    cut: Lsn,
) -> Result<Store, TierError> {
    recover_after(device, records, Lsn::ZERO, from, cut)
}

/// As `recover`, of metadata that was synced when it contained everything up to `contained`.
pub(crate) fn recover_after(
    device: Arc<dyn Device>,
    records: &[Logged],
    contained: Lsn,
    from: Lsn,
    cut: Lsn,
) -> Result<Store, TierError> {
    recover_under(POLICY, device, records, contained, from, cut)
}

/// As `recover_after`, with a policy.
pub(crate) fn recover_under(
    policy: Policy,
    device: Arc<dyn Device>,
    records: &[Logged],
    contained: Lsn,
    from: Lsn,
    cut: Lsn,
) -> Result<Store, TierError> {
    let store = Store::open_with(device, DATABASE, options(), policy)?;
    store.expect_metadata(contained)?;
    for logged in
        records.iter().filter(|logged| logged.lsn >= from && logged.end <= cut && logged.kind != OTHER)
    {
        store.redo(logged.lsn, logged.record())?;
    }
    store.finish_redo(cut)?;
    Ok(store)
}

/// Writes all that changed into the metadata pages, and empties the map log.
pub(crate) fn sweep(store: &Store) {
    let is_empty = store.sweep_all(&mut store.write_back.lock()).unwrap();
    assert!(is_empty, "nothing is carried on");
}

pub(crate) fn publish(
    store: &Store,
    log: &TestLog,
    allocate: &[PageId],
    free: &[PageId],
) -> Result<Lsn, TierError> {
    publish_in(store, allocate, free, &mut |record| log.append(record)).map(|appended| appended.first)
}

pub(crate) fn allocate(store: &Store, log: &TestLog, count: usize) -> Result<Vec<PageId>, TierError> {
    allocate_as(LogClass::Normal, store, log, count)
}

/// As `allocate`, for a class, which decides how much is kept free.
pub(crate) fn allocate_as(
    class: LogClass,
    store: &Store,
    log: &TestLog,
    count: usize,
) -> Result<Vec<PageId>, TierError> {
    let mut pages = Vec::new();
    for _ in 0..count {
        match store.reserve(class) {
            Ok(page) => pages.push(page),
            Err(error) => {
                pages.iter().for_each(|page| store.unreserve(*page));
                return Err(error);
            }
        }
    }
    publish(store, log, &pages, &[])?;
    Ok(pages)
}

/// Gives each page a new version and writes it, as the buffer would; returns the outcomes.
pub(crate) fn write(store: &Store, log: &TestLog, pages: &[PageId]) -> Vec<(Lsn, Result<Took, TierError>)> {
    let versions: Vec<Lsn> = pages.iter().map(|_| log.tick()).collect();
    if let Some(newest) = versions.last() {
        log.flush(Lsn(newest.0 + 1)).unwrap();
    }
    write_versions(store, log, pages, &versions).into_iter().zip(versions).map(|(o, v)| (v, o)).collect()
}

pub(crate) fn write_versions(
    store: &Store,
    log: &TestLog,
    pages: &[PageId],
    versions: &[Lsn],
) -> Vec<Result<Took, TierError>> {
    let outcomes = offer(store, pages, versions, true);
    for ((page, version), outcome) in pages.iter().zip(versions).zip(&outcomes) {
        if *outcome == Ok(Took::Taken) {
            log.note(Fact::Taken(*page, *version, *version));
        }
    }
    outcomes
}

/// Reads a page: its version and bytes.
pub(crate) fn read(store: &Store, page: PageId) -> Result<(Lsn, Vec<u8>), TierError> {
    let ((version, dirty), bytes) = small_store::read(store, page)?;
    assert!(!dirty);
    Ok((version, bytes))
}

/// Compares the store with the pages it must hold, by every kind of call.
pub(crate) fn compare(store: &Store, pages: &Pages) {
    compare_images(store, pages, &|page, version| image(page, version));
}

/// As `compare`, with the images that versions have.
pub(crate) fn compare_images(store: &Store, pages: &Pages, image: &dyn Fn(PageId, Lsn) -> Vec<u8>) {
    let report = store.check(true, &mut |_| {}).unwrap();
    assert_eq!(report.damage, Vec::<String>::new());
    let mut found = BTreeMap::new();
    store.pages(&mut |page, version| assert!(found.insert(page, version).is_none())).unwrap();
    let wanted: BTreeMap<PageId, Lsn> = pages.iter().map(|(page, (version, _))| (*page, *version)).collect();
    assert_eq!(found, wanted);
    assert_eq!(report.pages, pages.len() as u64);
    assert_eq!(report.images_read, pages.len() as u64);
    assert_eq!(store.statistics().pages_allocated, pages.len() as u64);
    for (page, (version, placed)) in pages {
        let (read_version, bytes) = read(store, *page).unwrap();
        assert_eq!(read_version, *version, "{page}");
        let wanted = if *placed { image(*page, *version) } else { vec![0; PAGE_SIZE] };
        assert!(bytes == wanted, "{page} has other bytes than its version {version}");
        assert_eq!(store.version_of(*page).unwrap(), Some(*version));
    }
}

/// Copies a device's present contents to another.
pub(crate) fn copy(device: &dyn Device) -> Arc<MemoryDevice> {
    let copy = MemoryDevice::new("copy");
    copy.grow(device.len(), Fill::Sparse).unwrap();
    copy.write(0, &contents(device), Durability::Later).unwrap();
    Arc::new(copy)
}

/// Moves `pages` until another of them than the first lies at `place`, where that one was.
pub(crate) fn reusing(
    (store, log): (&Arc<Store>, &Arc<TestLog>),
    pages: &[PageId],
    place: Option<Place>,
) -> impl FnOnce() + Send + 'static {
    let (store, log, pages) = (store.clone(), log.clone(), pages.to_vec());
    move || {
        for round in 0..100 {
            // Not the same number each time, or each page comes back to its own place.
            write(&store, &log, &pages[..pages.len() - round % 7 % pages.len()]);
            log.flush(log.end()).unwrap();
            if pages[1..].iter().any(|page| store.entry_of(*page).unwrap().place() == place) {
                return;
            }
        }
        panic!("the place is reused sooner or later");
    }
}

/// Up to `max` of these pages, in order.
pub(crate) fn some_of<V>(pages: &BTreeMap<PageId, V>, rng: &mut Rng, max: u64) -> Vec<PageId> {
    let all: Vec<PageId> = pages.keys().copied().collect();
    let mut chosen: Vec<PageId> = (0..rng.below(max + 1))
        .filter(|_| !all.is_empty())
        .map(|_| all[rng.below(all.len() as u64) as usize])
        .collect();
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}
