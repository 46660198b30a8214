//! A small store, a log that becomes durable when the test says so, and the pages that both hold:
//! for tests of the store and of the caches over it.

use crate::error::{TierError, TierErrorKind};
use crate::page_cache::CacheSite;
use crate::page_cache::header::CacheId;
use crate::page_reads::PageReads;
use crate::page_tier::{Allocation, DeltaRead, PageRead, PageTier, PageWrite};
use crate::store::{DeltaPolicy, Journal, Layout, Placement, Policy, Store, StoreOptions};
use crate::testing::Took;
use firndb_base::hash::hash_bytes;
use firndb_base::rng::Rng;
use firndb_base::sync::{Arc, Mutex, before_device};
use firndb_base::{DatabaseId, Lsn, PageId};
use firndb_device::{AlignedBuf, CrashPlan, Device};
use firndb_log::{Appended, Kind, LogError, LogErrorKind, Record};
use std::collections::BTreeMap;

/// The tests' database.
pub const DATABASE: DatabaseId = DatabaseId([3; 16]);
/// Two sectors, like metadata pages: a write that is not protected can tear.
pub const PAGE_SIZE: usize = 1024;
/// 40 entries a map page, 80 places a group.
pub const LAYOUT: Layout = Layout { meta_bytes: 1024, maps_per_group: 2 };
/// Small batches, so that space is soon reused.
pub const POLICY: Policy = Policy {
    placement: Placement::Threaded,
    batch_pages: 6,
    free_target_percent: 20,
    deltas: DeltaPolicy::OFF,
    hides_late_reads: true,
};
/// A page change of the layers above, as far as the store is concerned.
pub const OTHER: Kind = Kind::TREE_INSERT;

/// The tests' flash cache.
pub const CACHE: CacheId = CacheId([8; 16]);

/// Memory for eight metadata pages: everything beyond the smallest test is loaded and evicted all
/// the time.
#[must_use]
pub fn options() -> StoreOptions {
    StoreOptions { page_size: PAGE_SIZE, map_budget_bytes: 8 * 700 }
}

/// State of the log at an event, for a crash test.
#[derive(Clone, Copy, Debug)]
pub enum Fact {
    /// A record that ends here was appended.
    Appended(Lsn),
    /// The log became durable up to here.
    Durable(Lsn),
    /// The log before this LSN is truncated.
    Truncated(Lsn),
    /// Metadata that contained everything up to this LSN was synced.
    Contained(Lsn),
    /// The store took a version of a page; the oldest change that it needs has this LSN.
    Taken(PageId, Lsn, Lsn),
}

/// A record of the log.
#[derive(Clone, Debug)]
pub struct Logged {
    /// Where it begins.
    pub lsn: Lsn,
    /// Where the next one begins.
    pub end: Lsn,
    /// Its kind.
    pub kind: Kind,
    /// Its body.
    pub body: Vec<u8>,
}

impl Logged {
    /// As the log passes it to redo.
    #[must_use]
    pub fn record(&self) -> Record<'_> {
        Record { kind: self.kind, body: &self.body }
    }
}

#[derive(Default)]
struct Inner {
    records: Vec<Logged>,
    end: Lsn,
    durable: Lsn,
    full: bool,
    short: bool,
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
pub struct TestLog(Mutex<Inner>);

impl TestLog {
    /// An empty log.
    #[must_use]
    pub fn new() -> Arc<TestLog> {
        Arc::new(TestLog(Mutex::new(Inner { end: Lsn::FIRST, durable: Lsn::FIRST, ..Inner::default() })))
    }
    /// A log that holds `records`, all durable, and continues after them.
    #[must_use]
    pub fn with(records: Vec<Logged>) -> Arc<TestLog> {
        let log = TestLog::new();
        let end = records.last().map_or(Lsn::FIRST, |last| last.end);
        {
            let mut inner = log.0.lock();
            (inner.records, inner.end, inner.durable) = (records, end, end);
        }
        log
    }
    /// Marks the events of the log in `plan` from now on.
    pub fn set_plan(&self, plan: &CrashPlan) {
        self.0.lock().plan = Some(plan.clone());
    }
    /// Whether appends fail because the log is full.
    pub fn set_full(&self, full: bool) {
        self.0.lock().full = full;
    }
    /// Whether the log has none to spare.
    pub fn set_short(&self, short: bool) {
        self.0.lock().short = short;
    }
    /// Refuses the next `appends` appends, like a log with a full buffer.
    pub fn refuse(&self, appends: u32) {
        self.0.lock().refusals = appends;
    }
    /// Notes a fact, if there is a plan.
    pub fn note(&self, fact: Fact) {
        self.0.lock().note(fact);
    }
    /// What was noted, in order.
    #[must_use]
    pub fn facts(&self) -> Vec<Fact> {
        self.0.lock().facts.clone()
    }
    /// Where the next record begins.
    #[must_use]
    pub fn end(&self) -> Lsn {
        self.0.lock().end
    }
    /// All records, durable or not.
    #[must_use]
    pub fn records(&self) -> Vec<Logged> {
        self.0.lock().records.clone()
    }
    /// A page change above the store: an LSN for a page version.
    pub fn tick(&self) -> Lsn {
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
    fn end(&self) -> Lsn {
        TestLog::end(self)
    }
    fn has_spare(&self) -> bool {
        !self.0.lock().short
    }
}

/// The image that version `version` of `page` has in every test.
#[must_use]
pub fn image(page: PageId, version: Lsn) -> Vec<u8> {
    let word = |i: usize| hash_bytes(version.0, &(page.0 * 1000 + i as u64).to_le_bytes()).to_le_bytes();
    let mut image: Vec<u8> = (0..PAGE_SIZE / 8).flat_map(word).collect();
    // As in a page of a tree.
    image[20..24].copy_from_slice(&tree_of(page).to_le_bytes());
    image
}

/// The tree that a page belongs to, of three.
pub fn tree_of(page: PageId) -> u32 {
    (page.0 % 3) as u32
}

/// Where the tests make and open caches.
pub fn site(device: Arc<dyn Device>, store: Arc<Store>) -> CacheSite {
    CacheSite { device, store, database: DATABASE, cache: CACHE }
}

/// Publishes as a structure change does.
pub fn publish_in(
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

/// Offers a tier the images of pages in these versions, clean or dirty.
pub fn offer(
    tier: &dyn PageTier,
    pages: &[PageId],
    versions: &[Lsn],
    dirty: bool,
) -> Vec<Result<Took, TierError>> {
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
            base: None,
            changes: crate::Changes::ALL,
            delta_read: DeltaRead::No,
            outcome: Err(TierError::unset()),
        })
        .collect();
    tier.write_batch(&mut writes);
    writes.into_iter().map(|write| write.outcome.map(Took::from)).collect()
}

/// Offers one page, as the buffer does when it leaves.
pub fn offer_one(tier: &dyn PageTier, page: PageId, version: Lsn, dirty: bool) -> Result<Took, TierError> {
    offer(tier, &[page], &[version], dirty).remove(0)
}

/// Offers one page, as the buffer does when it leaves, with the log durable up to its version.
pub fn offer_durable(
    tier: &dyn PageTier,
    log: &TestLog,
    (page, version): (PageId, Lsn),
    dirty: bool,
) -> Result<Took, TierError> {
    log.flush(Lsn(version.0 + 1)).unwrap();
    offer_one(tier, page, version, dirty)
}

/// A page that was read: its version, whether it is newer than the store's, its bytes.
pub type ReadPage = Result<((Lsn, bool), Vec<u8>), TierError>;

/// Reads a page.
pub fn read(tier: &dyn PageTier, page: PageId) -> ReadPage {
    read_many(tier, &[page]).remove(0)
}

/// Reads pages as one batch.
pub fn read_many(tier: &dyn PageTier, pages: &[PageId]) -> Vec<ReadPage> {
    let mut bytes = AlignedBuf::zeroed(pages.len().max(1) * PAGE_SIZE);
    bytes.fill(0xA5);
    let reads = pages.iter().zip(bytes.chunks_mut(PAGE_SIZE));
    let mut reads: Vec<PageRead<'_>> =
        reads.map(|(page, buf)| PageRead { page: *page, buf, outcome: Err(TierError::unset()) }).collect();
    tier.read_batch(&mut reads);
    let read = |PageRead { buf, outcome, .. }: PageRead<'_>| {
        outcome.map(|found| ((found.version, found.dirty), buf.to_vec()))
    };
    reads.into_iter().map(read).collect()
}

/// Reads pages that come one by one, and begins others when half of those under way have come.
pub fn read_as_they_come(tier: &dyn PageTier, pages: &[PageId]) -> Vec<ReadPage> {
    let (mut reads, mut left) = (PageReads::default(), pages.iter().copied().enumerate());
    let mut found: Vec<Option<ReadPage>> = pages.iter().map(|_| None).collect();
    loop {
        if reads.space(PAGE_SIZE) > reads.under_way() {
            let begun: Vec<(usize, PageId)> = left.by_ref().take(reads.space(PAGE_SIZE)).collect();
            tier.begin_reads(&mut reads, &begun);
        }
        if !tier.next_reads(&mut reads) {
            break;
        }
        for came in reads.came() {
            assert_eq!(came.page, pages[came.tag]);
            let bytes = || came.bytes[..PAGE_SIZE].to_vec();
            let read = came.outcome.clone().map(|found| ((found.version, found.dirty), bytes()));
            assert!(found[came.tag].replace(read).is_none(), "a page comes once");
        }
        reads.clear();
    }
    assert_eq!(reads.under_way(), 0);
    found.into_iter().map(|read| read.expect("it came")).collect()
}

/// A way to read many pages.
pub type Way = fn(&dyn PageTier, &[PageId]) -> Vec<ReadPage>;

/// All ways.
pub const WAYS: [Way; 2] = [read_many, read_as_they_come];

/// Writes pages of its own and reads them back: for several threads at once.
pub fn work(cache: &dyn PageTier, log: &TestLog, own: &[PageId], seed: u64) {
    let mut rng = Rng::new(seed);
    let mut newest: BTreeMap<PageId, Lsn> = BTreeMap::new();
    // Miri looks for races and weak orders rather than for rare schedules.
    for _ in 0..if cfg!(miri) { 10 } else { 600 } {
        let page = own[rng.below(own.len() as u64) as usize];
        match newest.get(&page).copied() {
            Some(_) if rng.one_in(2) => {
                let count = 1 + rng.below(5) as usize;
                let known: Vec<(PageId, Lsn)> =
                    newest.range(page..).take(count).map(|(page, version)| (*page, *version)).collect();
                let pages: Vec<PageId> = known.iter().map(|(page, _)| *page).collect();
                let way = WAYS[rng.below(2) as usize];
                for ((page, version), read) in known.into_iter().zip(way(cache, &pages)) {
                    let ((found, _), bytes) = read.unwrap();
                    assert_eq!(found, version, "{page}");
                    assert!(bytes == image(page, version));
                }
            }
            known => {
                let dirty = known.is_none() || rng.one_in(2);
                let version = if dirty { log.tick() } else { known.expect("written") };
                let outcome = offer_durable(cache, log, (page, version), dirty).unwrap();
                assert!(!dirty || outcome == Took::Taken);
                newest.insert(page, version);
            }
        }
    }
    for (page, version) in newest {
        assert_eq!(read(cache, page).unwrap().0.0, version);
    }
}
