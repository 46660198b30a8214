//! A store on a device in memory, a log that becomes durable when a test says so, and the pages
//! that both hold.

use firndb_base::hash::hash_bytes;
use firndb_base::rng::Rng;
use firndb_base::sync::{Arc, Mutex, before_device};
use firndb_base::{DatabaseId, Lsn, PageId};
use firndb_device::{AlignedBuf, Device, MemoryDevice};
use firndb_log::{Appended, Kind, LogError, LogErrorKind, Record};
use firndb_tier::page_cache::header::CacheId;
use firndb_tier::store::{Journal, Layout, Placement, Policy, Store, StoreOptions};
use firndb_tier::{
    Allocation, CacheSite, Lifetime, PageCache, PageRead, PageTier, PageWrite, TierError, TierErrorKind,
    Written,
};
use std::collections::BTreeMap;

pub(crate) const PAGE_SIZE: usize = 1024;
const DATABASE: DatabaseId = DatabaseId([3; 16]);
const CACHE: CacheId = CacheId([8; 16]);
const LAYOUT: Layout = Layout { meta_bytes: 1024, maps_per_group: 2 };
const POLICY: Policy = Policy { placement: Placement::OutOfPlace, batch_pages: 6, free_target_percent: 20 };
/// A page change of the layers above.
const OTHER: Kind = Kind::TREE_INSERT;

fn options() -> StoreOptions {
    StoreOptions { page_size: PAGE_SIZE, map_budget_bytes: 8 * 700 }
}

#[derive(Clone)]
struct Logged {
    lsn: Lsn,
    end: Lsn,
    kind: Kind,
    body: Vec<u8>,
}

struct Inner {
    records: Vec<Logged>,
    end: Lsn,
    durable: Lsn,
    full: bool,
}

/// The log: durable only as far as it was flushed.
pub(crate) struct TestLog(Mutex<Inner>);

impl TestLog {
    /// A log that holds `records` and continues after them, all durable.
    fn with(records: Vec<Logged>) -> Arc<TestLog> {
        let end = records.last().map_or(Lsn::FIRST, |last| last.end);
        Arc::new(TestLog(Mutex::new(Inner { records, end, durable: end, full: false })))
    }
    pub(crate) fn set_full(&self, full: bool) {
        self.0.lock().full = full;
    }
    /// A page change above the store: an LSN for a page version.
    pub(crate) fn tick(&self) -> Lsn {
        self.append(Record { kind: OTHER, body: &[0; 10] }).unwrap().first
    }
}

impl Journal for TestLog {
    fn append(&self, record: Record<'_>) -> Result<Appended, LogError> {
        let mut inner = self.0.lock();
        if inner.full {
            return Err(LogError::new(LogErrorKind::Full, "the test says so"));
        }
        let first = inner.end;
        let end = first.advance(record.body.len() as u64 + 6);
        inner.records.push(Logged { lsn: first, end, kind: record.kind, body: record.body.to_vec() });
        inner.end = end;
        Ok(Appended { first, end })
    }
    fn wait_for_buffer(&self, _: u64) -> Result<(), LogError> {
        before_device();
        Ok(())
    }
    fn flush(&self, lsn: Lsn) -> Result<(), LogError> {
        let mut inner = self.0.lock();
        assert!(lsn <= inner.end, "no flush goes beyond the end");
        if lsn > inner.durable {
            // The end of the record that contains it, and no further.
            inner.durable = inner.records.iter().map(|record| record.end).find(|end| *end >= lsn).unwrap();
        }
        Ok(())
    }
    fn durable(&self) -> Lsn {
        self.0.lock().durable
    }
}

/// A store and its log.
pub(crate) struct Below {
    pub(crate) log: Arc<TestLog>,
    pub(crate) store: Arc<Store>,
    device: Arc<MemoryDevice>,
}

impl Below {
    pub(crate) fn new() -> Below {
        let log = TestLog::with(Vec::new());
        let device = Arc::new(MemoryDevice::new("store"));
        let store = Store::create_with(device.clone(), DATABASE, options(), LAYOUT, POLICY).unwrap();
        store.attach_journal(log.clone());
        Below { log, store: Arc::new(store), device }
    }

    /// A cache on `device` over this store.
    pub(crate) fn site(&self, device: Arc<dyn Device>) -> CacheSite {
        CacheSite { device, store: self.store.clone(), database: DATABASE, cache: CACHE }
    }

    /// A copy of the store after a crash with all of the log durable and redone, under the cache
    /// that `open` opens.
    pub(crate) fn reopened<C: PageCache>(
        &self,
        device: Arc<dyn Device>,
        open: impl FnOnce(CacheSite) -> Result<C, TierError>,
    ) -> Result<C, TierError> {
        let store_device = Arc::new(self.device.duplicate());
        let store = Arc::new(Store::open_with(store_device, DATABASE, options(), POLICY)?);
        let cache = open(CacheSite { store: store.clone(), ..self.site(device) })?;
        let records = self.log.0.lock().records.clone();
        for logged in records.iter().filter(|logged| (0x10..0x20).contains(&logged.kind.0)) {
            let record = Record { kind: logged.kind, body: &logged.body };
            store.redo(logged.lsn, record)?;
            cache.redo(logged.lsn, record)?;
        }
        let log = TestLog::with(records);
        store.finish_redo(log.durable())?;
        store.attach_journal(log);
        Ok(cache)
    }
}

/// The image that version `version` of `page` has in every test.
pub(crate) fn image(page: PageId, version: Lsn) -> Vec<u8> {
    let word = |i: usize| hash_bytes(version.0, &(page.0 * 1000 + i as u64).to_le_bytes()).to_le_bytes();
    (0..PAGE_SIZE / 8).flat_map(word).collect()
}

/// Publishes as a structure change does.
pub(crate) fn publish_in(
    tier: &dyn PageTier,
    allocate: &[PageId],
    free: &[PageId],
    append: &mut dyn FnMut(Record<'_>) -> Result<Appended, LogError>,
) -> Result<Appended, TierError> {
    loop {
        let _held = tier.prepare(free)?;
        let _also = tier.prepare(allocate)?;
        match tier.publish(Allocation { allocate, free }, append) {
            Err(error) if matches!(error.kind, TierErrorKind::LogBufferFull | TierErrorKind::Unprepared) => {}
            outcome => return outcome,
        }
    }
}

/// Offers one page, as the buffer would; the log is made durable up to its version.
pub(crate) fn offer(
    cache: &dyn PageTier,
    log: &TestLog,
    (page, version): (PageId, Lsn),
    dirty: bool,
) -> Result<Written, TierError> {
    log.flush(Lsn(version.0 + 1)).unwrap();
    let mut data = AlignedBuf::zeroed(PAGE_SIZE);
    data.copy_from_slice(&image(page, version));
    let mut writes = [PageWrite {
        page,
        version,
        recovery_lsn: version,
        dirty,
        data: &data,
        changed: None,
        base: Lsn::ZERO,
        lifetime: Lifetime::Unknown,
        outcome: Err(TierError::new(TierErrorKind::Failed, "not written")),
    }];
    cache.write_batch(&mut writes);
    let [write] = writes;
    write.outcome
}

/// Reads a page: its version, whether it is newer than the store's, its bytes.
#[allow(clippy::type_complexity)]
pub(crate) fn read(cache: &dyn PageTier, page: PageId) -> Result<((Lsn, bool), Vec<u8>), TierError> {
    let mut buf = AlignedBuf::zeroed(PAGE_SIZE);
    buf.fill(0xA5);
    let outcome = Err(TierError::new(TierErrorKind::Failed, "not read"));
    let mut reads = [PageRead { page, buf: &mut buf, outcome }];
    cache.read_batch(&mut reads);
    let [PageRead { outcome, .. }] = reads;
    let found = outcome?;
    Ok(((found.version, found.dirty), buf.to_vec()))
}

/// A thread that writes pages of its own and reads them back.
pub(crate) fn work(cache: &dyn PageTier, log: &TestLog, own: &[PageId], seed: u64) {
    let mut rng = Rng::new(seed);
    let mut newest: BTreeMap<PageId, Lsn> = BTreeMap::new();
    // Miri looks for races and weak orders rather than for rare schedules.
    for _ in 0..if cfg!(miri) { 10 } else { 600 } {
        let page = own[rng.below(own.len() as u64) as usize];
        match newest.get(&page).copied() {
            Some(version) if rng.one_in(2) => {
                let ((found, _), bytes) = read(cache, page).unwrap();
                assert_eq!(found, version, "{page}");
                assert!(bytes == image(page, version));
            }
            known => {
                let dirty = known.is_none() || rng.one_in(2);
                let version = if dirty { log.tick() } else { known.expect("written") };
                let outcome = offer(cache, log, (page, version), dirty).unwrap();
                assert!(!dirty || outcome == Written::Taken);
                newest.insert(page, version);
            }
        }
    }
    for (page, version) in newest {
        assert_eq!(read(cache, page).unwrap().0.0, version);
    }
}
