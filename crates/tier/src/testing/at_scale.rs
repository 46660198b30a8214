//! The page map beside a large database, scaled down: how many of its pages are read and written
//! for each page that leaves the buffer.
//!
//! The figures are counts and follow from the setting alone. The ratio of database to log between
//! two checkpoints decides them, and the share of the map that fits into memory; so a gigabyte with
//! a hundredth of the log stands for a hundred gigabytes. Pages are of 512 bytes, which the map
//! does not see: its pages are as large as ever.

use crate::page_tier::{Allocation, PageTier, PageWrite, TierStatistics};
use crate::store::{Journal, Layout, Policy, Store, StoreOptions};
use firndb_base::rng::Rng;
use firndb_base::sync::atomic::{AtomicU64, Ordering};
use firndb_base::sync::{Arc, Mutex};
use firndb_base::{DatabaseId, Lsn, PageId};
use firndb_device::MemoryDevice;
use firndb_log::{Appended, Kind, LogClass, LogError, Record};
use std::collections::VecDeque;

const PAGE_SIZE: usize = 512;
const BATCH: usize = 64;

/// A load on the map.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Pages of the database.
    pub pages: u64,
    /// Pages that the buffer holds; each page read drives another one out, which is dirty.
    pub buffer_pages: u64,
    /// DRAM of the map.
    pub map_bytes: usize,
    /// Evictions between two checkpoints.
    pub checkpoint_every: u64,
    /// Evictions that are counted, after as many that are not.
    pub evictions: u64,
    /// Of all accesses, the percentage that goes to a fifth of the pages.
    pub skew_percent: u64,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    /// Pages of metadata written, for each eviction.
    pub writes: f64,
    /// Pages of metadata read, for each eviction.
    pub reads: f64,
    /// Bytes read for them, for each eviction.
    pub bytes_read: f64,
    /// Metadata pages read by an opening, redo included.
    pub opening_pages: u64,
    /// Bytes of metadata read by it: header, totals, map log.
    pub opening_bytes: u64,
    /// Reads of the device by it.
    pub opening_reads: u64,
}

/// A log that is durable at once, and keeps what redo needs.
#[derive(Default)]
struct Durable {
    end: AtomicU64,
    records: Mutex<VecDeque<(Lsn, Kind, Vec<u8>)>>,
}

impl Durable {
    fn tick(&self) -> Lsn {
        Lsn(self.end.fetch_add(100, Ordering::SeqCst))
    }
    fn truncate(&self, before: Lsn) {
        let mut records = self.records.lock();
        while records.front().is_some_and(|(lsn, ..)| *lsn < before) {
            records.pop_front();
        }
    }
}

impl Journal for Durable {
    fn append(&self, record: Record<'_>) -> Result<Appended, LogError> {
        let first = self.tick();
        self.records.lock().push_back((first, record.kind, record.body.to_vec()));
        Ok(Appended { first, end: Lsn(first.0 + 100) })
    }
    fn wait_for_buffer(&self, _: u64) -> Result<(), LogError> {
        Ok(())
    }
    fn flush(&self, _: Lsn) -> Result<(), LogError> {
        Ok(())
    }
    fn durable(&self) -> Lsn {
        self.end()
    }
    fn end(&self) -> Lsn {
        Lsn(self.end.load(Ordering::SeqCst))
    }
    fn has_spare(&self) -> bool {
        true
    }
}

struct Run {
    store: Store,
    log: Arc<Durable>,
    device: Arc<MemoryDevice>,
    pages: Vec<PageId>,
    buffer: VecDeque<PageId>,
    rng: Rng,
    setting: Setting,
    since_checkpoint: u64,
}

impl Run {
    fn new(setting: Setting, seed: u64) -> Run {
        let device = Arc::new(MemoryDevice::new("store"));
        let log = Arc::new(Durable { end: AtomicU64::new(Lsn::FIRST.0), ..Durable::default() });
        let store = Store::create_with(
            device.clone(),
            DatabaseId([7; 16]),
            options(&setting),
            Layout::default(),
            Policy::default(),
        )
        .expect("created");
        store.attach_journal(log.clone());
        let mut run = Run {
            store,
            log,
            device,
            pages: Vec::new(),
            buffer: VecDeque::new(),
            rng: Rng::new(seed),
            setting,
            since_checkpoint: 0,
        };
        while (run.pages.len() as u64) < setting.pages {
            run.add();
        }
        run.checkpoint();
        run
    }

    fn add(&mut self) {
        let some: Vec<PageId> =
            (0..BATCH).map(|_| self.store.reserve(LogClass::Normal).expect("there is space")).collect();
        let held = self.store.prepare(&some).expect("prepared");
        let append = &mut |record: Record<'_>| self.log.append(record);
        self.store.publish(Allocation { allocate: &some, free: &[] }, append).expect("published");
        drop(held);
        self.write(&some);
        self.pages.extend(some);
    }

    fn write(&mut self, pages: &[PageId]) {
        let data = [0; PAGE_SIZE];
        let mut writes: Vec<PageWrite<'_>> = pages
            .iter()
            .map(|page| {
                let version = self.log.tick();
                PageWrite::back(*page, version, version, &data)
            })
            .collect();
        self.store.write_batch(&mut writes);
        assert!(writes.iter().all(PageWrite::is_taken), "all were taken");
        self.since_checkpoint += pages.len() as u64;
        if self.since_checkpoint >= self.setting.checkpoint_every {
            self.checkpoint();
        }
    }

    fn checkpoint(&mut self) {
        self.store.sync().expect("synced");
        let end = self.log.durable();
        self.log.truncate(self.store.oldest_needed_lsn().unwrap_or(end));
        self.since_checkpoint = 0;
    }

    fn draw(&mut self) -> PageId {
        let all = self.pages.len() as u64;
        let hot = self.rng.below(100) < self.setting.skew_percent;
        // The hot fifth lies in between the others, as pages of a table do that grew beside others.
        let at = if hot { self.rng.below(all / 5) * 5 } else { self.rng.below(all) };
        self.pages[at as usize]
    }

    /// Reads pages that are not in the buffer; others leave it.
    fn evict(&mut self, count: u64) {
        let mut leaving = Vec::with_capacity(BATCH);
        for _ in 0..count {
            let page = self.draw();
            self.store.version_of(page).expect("its entry is read");
            self.buffer.push_back(page);
            if self.buffer.len() as u64 > self.setting.buffer_pages {
                leaving.push(self.buffer.pop_front().expect("it is not empty"));
            }
            if leaving.len() == BATCH {
                leaving.sort_unstable();
                leaving.dedup();
                self.write(&leaving);
                leaving.clear();
            }
        }
    }
}

fn options(setting: &Setting) -> StoreOptions {
    StoreOptions { page_size: PAGE_SIZE, map_budget_bytes: setting.map_bytes }
}

/// Fills a store, and measures the load; then an opening with the log since the last checkpoint.
#[must_use]
pub fn measure(setting: Setting, seed: u64) -> Counts {
    let mut run = Run::new(setting, seed);
    run.evict(setting.buffer_pages + setting.evictions);
    let before = run.store.statistics();
    run.evict(setting.evictions);
    let after = run.store.statistics();
    let per = |of: fn(&TierStatistics) -> u64| {
        (of(&after) - of(&before)) as f64 / (after.pages_written - before.pages_written) as f64
    };
    let (writes, reads) = (per(|s| s.metadata_pages_written), per(|s| s.metadata_pages_read));
    let bytes_read = per(|s| s.metadata_bytes_read);
    let Run { store, log, device, .. } = run;
    drop(store);
    let counting = Arc::new(firndb_device::Counting::new(device));
    let store = Store::open(counting.clone(), DatabaseId([7; 16]), options(&setting)).expect("opened");
    for (lsn, kind, body) in log.records.lock().iter() {
        store.redo(*lsn, Record { kind: *kind, body }).expect("redone");
    }
    store.finish_redo(log.durable()).expect("redone");
    let (opening, reads_of_opening) = (store.statistics(), counting.snapshot().reads);
    Counts {
        writes,
        reads,
        bytes_read,
        opening_pages: opening.metadata_pages_read,
        opening_bytes: reads_of_opening.bytes,
        opening_reads: reads_of_opening.ops,
    }
}
