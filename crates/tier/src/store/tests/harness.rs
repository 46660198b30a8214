//! A store on a device, a log that becomes durable when the test says so, and the model beside
//! them.

use crate::error::{TierError, TierErrorKind};
use crate::page_tier::{Allocation, Lifetime, PageRead, PageTier, PageWrite, Written};
use crate::store::Journal;
use crate::store::records::{self, Change};
use crate::store::{Layout, Policy, Store, StoreOptions};
use firndb_base::hash::hash_bytes;
use firndb_base::sync::{Arc, Mutex, before_device};
use firndb_base::{DatabaseId, Lsn, PageId};
use firndb_device::{AlignedBuf, CrashPlan, Device, Durability, Fill, MemoryDevice};
use firndb_log::{Appended, Kind, LogClass, LogError, LogErrorKind, Record};
use firndb_testkit::bytes::contents;
use std::collections::BTreeMap;

pub(crate) const DATABASE: DatabaseId = DatabaseId([3; 16]);
/// Two sectors, like metadata pages: a write that is not protected can tear.
pub(crate) const PAGE_SIZE: usize = 1024;
/// 40 entries a map page, 80 places a group.
pub(crate) const LAYOUT: Layout = Layout { meta_bytes: 1024, maps_per_group: 2 };
pub(crate) const POLICY: Policy =
    Policy { placement: crate::store::Placement::OutOfPlace, batch_pages: 6, free_target_percent: 20 };
/// A page change of the layers above, as far as the store is concerned.
const OTHER: Kind = Kind::TREE_INSERT;

pub(crate) fn options() -> StoreOptions {
    // Eight metadata pages: everything beyond the smallest test is loaded and evicted all the time.
    StoreOptions { page_size: PAGE_SIZE, map_budget_bytes: 8 * 700 }
}

/// State of the log at an event, for a crash test.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fact {
    Appended(Lsn),
    Durable(Lsn),
    /// The log before this LSN is truncated.
    Truncated(Lsn),
    /// Metadata that contained everything up to this LSN was synced.
    Contained(Lsn),
    /// The store took a version of a page; the oldest change that it needs has this LSN.
    Taken(PageId, Lsn, Lsn),
}

#[derive(Clone, Debug)]
pub(crate) struct Logged {
    pub lsn: Lsn,
    pub end: Lsn,
    pub kind: Kind,
    pub body: Vec<u8>,
}

impl Logged {
    pub(crate) fn record(&self) -> Record<'_> {
        Record { kind: self.kind, body: &self.body }
    }
}

#[derive(Default)]
struct Inner {
    records: Vec<Logged>,
    end: Lsn,
    durable: Lsn,
    full: bool,
    /// Appends still to be refused because the buffer is full.
    refusals: u32,
    facts: Vec<Fact>,
    plan: Option<CrashPlan>,
}

impl Inner {
    fn note(&mut self, fact: Fact) {
        if let Some(plan) = &self.plan {
            plan.mark(self.facts.len() as u64);
            self.facts.push(fact);
        }
    }
}

/// The log: durable only as far as it was flushed.
pub(crate) struct TestLog(Mutex<Inner>);

impl TestLog {
    pub(crate) fn new() -> Arc<TestLog> {
        Arc::new(TestLog(Mutex::new(Inner { end: Lsn::FIRST, durable: Lsn::FIRST, ..Inner::default() })))
    }
    /// A log that holds `records` and continues after them.
    pub(crate) fn with(records: Vec<Logged>) -> Arc<TestLog> {
        let log = TestLog::new();
        let end = records.last().map_or(Lsn::FIRST, |last| last.end);
        {
            let mut inner = log.0.lock();
            (inner.records, inner.end, inner.durable) = (records, end, end);
        }
        log
    }
    pub(crate) fn set_plan(&self, plan: &CrashPlan) {
        self.0.lock().plan = Some(plan.clone());
    }
    pub(crate) fn set_full(&self, full: bool) {
        self.0.lock().full = full;
    }
    /// Refuses the next `appends` appends, like a log with a full buffer.
    pub(crate) fn refuse(&self, appends: u32) {
        self.0.lock().refusals = appends;
    }
    pub(crate) fn note(&self, fact: Fact) {
        self.0.lock().note(fact);
    }
    pub(crate) fn facts(&self) -> Vec<Fact> {
        self.0.lock().facts.clone()
    }
    pub(crate) fn end(&self) -> Lsn {
        self.0.lock().end
    }
    pub(crate) fn records(&self) -> Vec<Logged> {
        self.0.lock().records.clone()
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
        if inner.refusals > 0 && record.kind != OTHER {
            inner.refusals -= 1;
            return Err(LogError::new(LogErrorKind::BufferFull, "the test says so"));
        }
        let first = inner.end;
        let end = first.advance(record.body.len() as u64 + 6);
        inner.records.push(Logged { lsn: first, end, kind: record.kind, body: record.body.to_vec() });
        inner.end = end;
        inner.note(Fact::Appended(end));
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
            let durable = inner.durable;
            inner.note(Fact::Durable(durable));
        }
        Ok(())
    }
    fn durable(&self) -> Lsn {
        self.0.lock().durable
    }
}

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
                Change::Backing { .. } => {}
            }
        }
    }
    pages
}

/// The image that version `version` of `page` has in every test.
pub(crate) fn image(page: PageId, version: Lsn) -> Vec<u8> {
    let word = |i: usize| hash_bytes(version.0, &(page.0 * 1000 + i as u64).to_le_bytes()).to_le_bytes();
    (0..PAGE_SIZE / 8).flat_map(word).collect()
}

pub(crate) fn create(device: Arc<dyn Device>, log: &Arc<TestLog>) -> Store {
    let store = Store::create_with(device, DATABASE, options(), LAYOUT, POLICY).unwrap();
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
    let store = Store::open_with(device, DATABASE, options(), POLICY)?;
    store.expect_metadata(contained)?;
    for logged in
        records.iter().filter(|logged| logged.lsn >= from && logged.end <= cut && logged.kind != OTHER)
    {
        store.redo(logged.lsn, logged.record())?;
    }
    store.finish_redo(cut)?;
    Ok(store)
}

pub(crate) fn publish(
    store: &Store,
    log: &TestLog,
    allocate: &[PageId],
    free: &[PageId],
) -> Result<Lsn, TierError> {
    publish_in(store, allocate, free, &mut |record| log.append(record)).map(|appended| appended.first)
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

pub(crate) fn allocate(store: &Store, log: &TestLog, count: usize) -> Result<Vec<PageId>, TierError> {
    let mut pages = Vec::new();
    for _ in 0..count {
        match store.reserve(LogClass::Normal) {
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
pub(crate) fn write(
    store: &Store,
    log: &TestLog,
    pages: &[PageId],
) -> Vec<(Lsn, Result<Written, TierError>)> {
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
) -> Vec<Result<Written, TierError>> {
    let lifetimes = [Lifetime::Short, Lifetime::Unknown, Lifetime::Unknown, Lifetime::Long];
    let outcomes = offer(store, pages, versions, true, |page| lifetimes[page.0 as usize % 4]);
    for ((page, version), outcome) in pages.iter().zip(versions).zip(&outcomes) {
        if *outcome == Ok(Written::Taken) {
            log.note(Fact::Taken(*page, *version, *version));
        }
    }
    outcomes
}

/// Offers a tier the images of pages in these versions, clean or dirty.
pub(crate) fn offer(
    tier: &dyn PageTier,
    pages: &[PageId],
    versions: &[Lsn],
    dirty: bool,
    lifetime: impl Fn(PageId) -> Lifetime,
) -> Vec<Result<Written, TierError>> {
    let mut data = AlignedBuf::zeroed(pages.len().max(1) * PAGE_SIZE);
    for ((page, version), out) in pages.iter().zip(versions).zip(data.chunks_mut(PAGE_SIZE)) {
        out.copy_from_slice(&image(*page, *version));
    }
    let mut writes: Vec<PageWrite<'_>> = pages
        .iter()
        .zip(versions)
        .zip(data.chunks(PAGE_SIZE))
        .map(|((page, version), data)| PageWrite {
            page: *page,
            version: *version,
            recovery_lsn: *version,
            dirty,
            data,
            changed: None,
            base: Lsn::ZERO,
            lifetime: lifetime(*page),
            outcome: Err(TierError::new(TierErrorKind::Failed, "not written")),
        })
        .collect();
    tier.write_batch(&mut writes);
    writes.into_iter().map(|write| write.outcome).collect()
}

/// Reads a page: its version and bytes.
pub(crate) fn read(store: &Store, page: PageId) -> Result<(Lsn, Vec<u8>), TierError> {
    let mut buf = AlignedBuf::zeroed(PAGE_SIZE);
    buf.fill(0xA5);
    let outcome = Err(TierError::new(TierErrorKind::Failed, "not read"));
    let mut reads = [PageRead { page, buf: &mut buf, outcome }];
    store.read_batch(&mut reads);
    let [PageRead { outcome, .. }] = reads;
    let found = outcome?;
    assert!(!found.dirty);
    Ok((found.version, buf.to_vec()))
}

/// Compares the store with the pages it must hold, by every kind of call.
pub(crate) fn compare(store: &Store, pages: &Pages) {
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
