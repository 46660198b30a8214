//! A tier that watches, fails and waits on demand, and pages whose contents can be checked.
use firndb_base::sync::DevicePermit;
use firndb_base::{Lsn, PageId};
use firndb_buffer::{BufferPool, Changed, PoolOptions};
use firndb_log::{Kind, Log, LogClass, LogError, Record};
use firndb_tier::testing::MemoryTier;
use firndb_tier::{
    Allocation, DeltaRead, PageRead, PageTier, PageWrite, TierError, TierErrorKind, Whereabouts,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub const PAGE_SIZE: usize = 512;

/// A `MemoryTier` under observation.
pub struct ProbeTier {
    inner: MemoryTier,
    log: Arc<Log>,
    wants_clean: bool,
    pub reads_fail: AtomicBool,
    pub damaged: AtomicBool,
    /// Pages whose reads fail, and how.
    pub unreadable: Mutex<BTreeMap<PageId, TierErrorKind>>,
    /// Pages that it does not know the places of without reading them.
    pub unknown: Mutex<BTreeSet<PageId>>,
    /// Pages of each batch that was read.
    pub batches: Mutex<Vec<Vec<PageId>>>,
    pub writes_fail: AtomicBool,
    /// Whether the pages it reads are said to have taken a delta page, and are wanted back.
    pub merges: AtomicBool,
    /// Unchanged pages offered for that.
    pub merged: AtomicU64,
    /// Pages that cannot be written because of damage, of the page map say.
    pub unwritable: Mutex<BTreeSet<PageId>>,
    /// Microseconds that every read and every write batch takes.
    pub delay_us: AtomicU64,
    pub reads: AtomicU64,
    pub dirty_writes: AtomicU64,
    pub clean_writes: AtomicU64,
    pub wal_violations: AtomicU64,
    pub largest_batch: AtomicU64,
    pub panics: AtomicBool,
    pub panics_once: AtomicBool,
    /// Pages that it has space for at a time.
    pub batch_space: AtomicU64,
    pub deltas_checked: AtomicU64,
    /// What the tier was given last of each page, for checking bases and changes.
    images: Mutex<BTreeMap<PageId, (Lsn, Vec<u8>)>>,
}

impl ProbeTier {
    pub fn new(log: Arc<Log>, wants_clean: bool) -> Arc<ProbeTier> {
        Arc::new(ProbeTier {
            inner: MemoryTier::new(PAGE_SIZE),
            log,
            wants_clean,
            reads_fail: AtomicBool::default(),
            damaged: AtomicBool::default(),
            unreadable: Mutex::default(),
            unknown: Mutex::default(),
            batches: Mutex::default(),
            writes_fail: AtomicBool::default(),
            merges: AtomicBool::default(),
            merged: AtomicU64::default(),
            unwritable: Mutex::default(),
            delay_us: AtomicU64::default(),
            reads: AtomicU64::default(),
            dirty_writes: AtomicU64::default(),
            clean_writes: AtomicU64::default(),
            wal_violations: AtomicU64::default(),
            largest_batch: AtomicU64::default(),
            panics: AtomicBool::default(),
            panics_once: AtomicBool::default(),
            batch_space: AtomicU64::new(u64::MAX),
            deltas_checked: AtomicU64::default(),
            images: Mutex::default(),
        })
    }
    fn delay(&self) {
        assert!(!self.panics.load(SeqCst) && !self.panics_once.swap(false, SeqCst), "on purpose");
        let delay = self.delay_us.load(SeqCst);
        if delay > 0 {
            firndb_base::clock::sleep(Duration::from_micros(delay));
        }
    }
    /// A page read past the pool.
    pub fn page(&self, page: PageId) -> Vec<u8> {
        let mut bytes = vec![0; PAGE_SIZE];
        let failed = Err(TierError::new(TierErrorKind::Failed, "no result"));
        let mut reads = [PageRead { page, buf: &mut bytes, outcome: failed }];
        self.inner.read_batch(&mut reads);
        reads[0].outcome.as_ref().expect("an allocated page is read");
        bytes
    }
    /// The base and the granules named yield the image.
    fn check_delta(&self, write: &PageWrite<'_>) {
        let mut images = self.images.lock().unwrap();
        if let (Some(named), Some((version, base))) = (write.base, images.get(&write.page)) {
            assert_eq!(*version, named.version, "{:?}: the base is what the tier holds", write.page);
            self.deltas_checked.fetch_add(1, SeqCst);
            let mut rebuilt = base.clone();
            write.changes.apply(write.data, &mut rebuilt);
            assert_eq!(rebuilt, write.data, "{:?}: a change outside {:?}", write.page, write.changes);
        }
        images.insert(write.page, (write.version, write.data.to_vec()));
    }
}

impl PageTier for ProbeTier {
    firndb_tier::forward_tier!(inner: page_size, reserve, unreserve, prepare, publish);
    firndb_tier::forward_tier!(inner: sync, version_of, oldest_needed_lsn, statistics);
    fn whereabouts(&self, pages: &[PageId], found: &mut Vec<Whereabouts>) {
        self.inner.whereabouts(pages, found);
        let unknown = self.unknown.lock().unwrap();
        for (_, found) in pages.iter().zip(found).filter(|(page, _)| unknown.contains(page)) {
            *found = Whereabouts::Unknown;
        }
    }
    fn read_batch(&self, reads: &mut [PageRead<'_>]) {
        self.batches.lock().unwrap().push(reads.iter().map(|read| read.page).collect());
        self.delay();
        self.reads.fetch_add(reads.len() as u64, SeqCst);
        if self.reads_fail.load(SeqCst) {
            for read in reads {
                read.buf.fill(0xEE);
                read.outcome =
                    Err(TierError::new(TierErrorKind::Failed, "the device is asked to fail reads"));
            }
        } else if self.damaged.load(SeqCst) {
            for read in reads {
                read.buf.fill(0xEE);
                read.outcome = Err(TierError::new(TierErrorKind::Damaged, "the page is damaged"));
            }
        } else {
            self.inner.read_batch(reads);
            let unreadable = self.unreadable.lock().unwrap();
            for read in reads {
                if self.merges.load(SeqCst)
                    && let Ok(found) = &mut read.outcome
                {
                    found.delta_read = DeltaRead::Merge;
                }
                if let Some(kind) = unreadable.get(&read.page) {
                    read.buf.fill(0xEE);
                    read.outcome = Err(TierError::new(*kind, "this page is asked to fail"));
                }
            }
        }
    }
    fn write_batch(&self, writes: &mut [PageWrite<'_>]) {
        let durable = self.log.durable();
        self.largest_batch.fetch_max(writes.len() as u64, SeqCst);
        for write in writes.iter().filter(|write| write.dirty) {
            if write.version >= durable {
                self.wal_violations.fetch_add(1, SeqCst);
            }
            assert!(write.recovery_lsn <= write.version);
        }
        self.delay();
        if self.writes_fail.load(SeqCst) {
            for write in writes {
                write.outcome =
                    Err(TierError::new(TierErrorKind::Failed, "the device is asked to fail writes"));
            }
            return;
        }
        let merged = writes.iter().filter(|write| !write.dirty && write.delta_read == DeltaRead::Merge);
        self.merged.fetch_add(merged.count() as u64, SeqCst);
        let dirty = writes.iter().filter(|write| write.dirty).count() as u64;
        self.dirty_writes.fetch_add(dirty, SeqCst);
        self.clean_writes.fetch_add(writes.len() as u64 - dirty, SeqCst);
        let unwritable = self.unwritable.lock().unwrap().clone();
        for write in writes {
            if unwritable.contains(&write.page) {
                write.outcome = Err(TierError::new(TierErrorKind::Damaged, "its place is not known"));
                continue;
            }
            self.inner.write_batch(std::slice::from_mut(write));
            if write.is_taken() {
                self.check_delta(write);
            }
        }
    }
    fn make_batch_space(&self) -> usize {
        self.batch_space.load(SeqCst) as usize
    }
    fn wants_clean(&self) -> bool {
        self.wants_clean
    }
}

/// A pool of few frames over a probe, and some pages allocated in it.
pub struct World {
    pub log: Arc<Log>,
    pub tier: Arc<ProbeTier>,
    pub pool: Arc<BufferPool>,
    pub pages: Vec<PageId>,
}

/// A budget for about `frames` frames of 512-byte pages.
pub fn budget_for(frames: usize) -> usize {
    let log = firndb_log::testing::memory_log_with(1 << 20);
    let mut budget = 8192;
    loop {
        let tier = Arc::new(MemoryTier::new(PAGE_SIZE));
        if let Ok(pool) = BufferPool::new(tier, log.clone(), PoolOptions { budget_bytes: budget })
            && pool.statistics().frames >= frames as u64
        {
            return budget;
        }
        budget += PAGE_SIZE;
    }
}

impl World {
    pub fn new(frames: usize, pages: usize) -> World {
        World::with(frames, pages, false)
    }
    pub fn with(frames: usize, pages: usize, wants_clean: bool) -> World {
        let log = firndb_log::testing::memory_log_with(4 << 20);
        let tier = ProbeTier::new(log.clone(), wants_clean);
        let options = PoolOptions { budget_bytes: budget_for(frames) };
        let pool =
            Arc::new(BufferPool::new(tier.clone(), log.clone(), options).expect("the budget is enough"));
        let mut world = World { log, tier, pool, pages: Vec::new() };
        for _ in 0..pages {
            let page = world.allocate();
            world.pages.push(page);
        }
        world
    }
    /// An allocated, never written page.
    pub fn allocate(&self) -> PageId {
        let page = self.tier.reserve(LogClass::Normal).expect("a memory tier is never full");
        let change = Allocation { allocate: &[page], free: &[] };
        let mut append = |record: Record<'_>| self.log.append(LogClass::Normal, record);
        self.tier.publish(change, &mut append).expect("the log has space");
        page
    }
    /// A record whose content does not matter.
    pub fn append(&self) -> Lsn {
        self.try_append().expect("the log has space")
    }
    pub fn try_append(&self) -> Result<Lsn, LogError> {
        // Under a latch, as trees do, which try only.
        let _permit = DevicePermit::granted();
        self.log.append(LogClass::Normal, Record { kind: Kind(0x20), body: b"change" }).map(|at| at.first)
    }
    /// Increments a page's counter, logged; returns the new value.
    pub fn count_up(&self, page: PageId) -> u64 {
        let intent = self.pool.exclusive(page).expect("the page can be fixed").intend();
        let lsn = self.append();
        let guard = intent.apply(lsn, |bytes| count_up(page, bytes));
        counter_of(page, &guard)
    }
    pub fn counter(&self, page: PageId) -> u64 {
        counter_of(page, &self.pool.shared(page).expect("the page can be fixed"))
    }
}

/// Page id, counter, and as a filling the counter's low byte at a place of its own for each value.
pub fn count_up(page: PageId, bytes: &mut [u8]) -> Changed {
    let counter = u64::from_le_bytes(bytes[8..16].try_into().unwrap()) + 1;
    bytes[..8].copy_from_slice(&page.0.to_le_bytes());
    bytes[8..16].copy_from_slice(&counter.to_le_bytes());
    let at = 16 + (counter as usize * 37) % (bytes.len() - 17);
    bytes[at] = counter as u8;
    bytes[bytes.len() - 1] = !(counter as u8);
    let last = bytes.len() as u16;
    Changed::Ranges([0..16, at as u16..at as u16 + 1, last - 1..last].into_iter().collect())
}

/// The counter of a page, after checking that the bytes are that page's and all of one version.
pub fn counter_of(page: PageId, bytes: &[u8]) -> u64 {
    let id = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let counter = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
    if counter == 0 {
        assert!(bytes.iter().all(|byte| *byte == 0), "{page:?} was never changed");
        return 0;
    }
    assert_eq!(id, page.0, "a frame holds the page it is asked for");
    let at = 16 + (counter as usize * 37) % (bytes.len() - 17);
    assert_eq!((bytes[at], bytes[bytes.len() - 1]), (counter as u8, !(counter as u8)), "{page:?} is torn");
    counter
}
