//! Caches that pages enter when they are read from the store: the comparators of FaCE's table 2
//! that cache *on entry*.
//!
//! * **Exadata's** ([`EntryPolicy::ReadLru`]): clean pages, least recently used; a page that
//!   changed leaves the cache when its new version goes to the store. The directory is in DRAM
//!   only: a restart begins with an empty cache.
//! * **TAC** ([`EntryPolicy::Temperature`]; Canim et al., "SSD Bufferpool Extensions for Database
//!   Systems", VLDB 2010): a page enters if its extent is warmer than the coldest one in the cache;
//!   a page that changed is written to the store and, if it is in the cache, there too. A slot
//!   directory on flash is kept current: before an image is overwritten its entry is made invalid,
//!   after that valid, two small writes for each.
//!
//! Both are implemented at their best: a reader does not wait for the write of the page that it let
//! in. Images wait in DRAM (`QUEUE_PAGES`); the background step writes them in batches, or a reader
//! does if there are too many.
//!
//! Invariants:
//! * The cache never holds the only copy. The store takes a version before the cache sees it; no
//!   log is kept for the cache.
//! * A reader accepts an image only after the store's map has named its version *since it came in*
//!   (`proven`), and an image is removed, or replaced, before the write that made it old returns.
//!   So an image that a slow reader brings from the store, that a crash leaves in the directory, or
//!   that an old copy of the device holds, is accepted only if it is the newest.
//! * One thread at a time writes a place (`writer`); readers take no lock: checksum and stamp show
//!   whether a reader read the image it wanted.
//!
//! Locks: `writer` (held during writes to the cache's device) → `state` (briefly, never during
//! I/O). The store's are never taken under `state`; the store's `order` may be held when `state` is
//! taken.
//!
//! Failures: after a failed write the cache is given up and the engine continues without it; an
//! image that cannot be read is read from the store.
//!
//! These are the papers' policies, not their code. Memory: about 150 bytes a place, against FaCE's
//! 16.

mod order;
mod places;
mod slots;
mod work;

use crate::comparator::Comparator;
use crate::ranks;
use firndb_base::sync::atomic::{AtomicBool, Ordering::Relaxed};
use firndb_base::sync::{Arc, Mutex};
use firndb_base::{Lsn, PageId, Progress};
use firndb_device::{Device, Fill};
use firndb_log::{Appended, LogError, Record};
use firndb_tier::page_cache::header::CacheHeader;
use firndb_tier::page_cache::statistics::{CacheStatistics, Counters};
use firndb_tier::{
    Allocation, BackingStore, CacheKind, CacheSite, CacheState, PageCache, PageRead, PageTier, PageWrite,
    TierError, TierErrorKind, Whereabouts,
};
use order::{Lru, Order, Temperature};
use places::{Place, State};
use slots::Layout;

/// Images that may wait to be written before readers write them.
const QUEUE_PAGES: usize = 128;
/// Images written in one batch.
const DRAIN_PAGES: usize = 32;
/// Fewest places.
const PLACES_MIN: u64 = 16;

/// What enters and what stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryPolicy {
    /// Pages of warm extents; changed pages are rewritten; a directory on flash (TAC).
    Temperature,
    /// What was used last; changed pages leave (Exadata's).
    ReadLru,
}

/// A write-through cache that pages enter when they are read, on one device, over a store.
pub struct EntryCache {
    device: Arc<dyn Device>,
    store: Arc<dyn BackingStore>,
    header: CacheHeader,
    layout: Layout,
    policy: EntryPolicy,
    /// Held by the thread that writes to the device.
    writer: Mutex<()>,
    state: Mutex<State>,
    /// The cache was given up.
    lost: AtomicBool,
    counters: Counters,
}

/// Checks that a cache of `bytes` bytes is possible.
pub(crate) fn check(
    bytes: u64,
    page_size: usize,
    block: usize,
    policy: EntryPolicy,
) -> Result<(), TierError> {
    let listed = policy == EntryPolicy::Temperature;
    if Layout::fit(block, page_size, bytes, listed).places as u64 >= PLACES_MIN {
        return Ok(());
    }
    let least = Layout::new(block, page_size, PLACES_MIN as usize, listed).end();
    Err(TierError::new(
        TierErrorKind::BadArgument,
        format!(
            "a flash cache of {bytes} bytes has no space for {PLACES_MIN} pages: give it at least {least}"
        ),
    ))
}

impl EntryCache {
    /// Creates a cache of `bytes` bytes on a device that is empty or held a cache of the same
    /// database.
    ///
    /// Errors: `BadArgument` if the device holds something else, or is too small.
    pub fn create(site: CacheSite, bytes: u64, policy: EntryPolicy) -> Result<EntryCache, TierError> {
        let CacheSite { device, store, database, cache } = site;
        CacheHeader::expect_vacant(&*device, database)?;
        let block = device.info().logical_block;
        let listed = policy == EntryPolicy::Temperature;
        check(bytes, store.page_size(), block, policy)?;
        let layout = Layout::fit(block, store.page_size(), bytes, listed);
        device.grow(layout.end(), Fill::Reserved)?;
        let header = CacheHeader {
            database,
            cache,
            page_size: store.page_size() as u32,
            block: block as u32,
            group_pages: 1,
            write_through: true,
            groups: layout.places as u64,
        };
        header.write(&*device)?;
        Ok(EntryCache::assemble(device, store, header, layout, policy, Vec::new()))
    }

    /// Opens it: a [`EntryPolicy::Temperature`] cache with what its directory on flash lists,
    /// another one empty.
    ///
    /// Errors: `Damaged` if the device is not this database's cache, or too short.
    pub fn open(site: CacheSite, policy: EntryPolicy) -> Result<EntryCache, TierError> {
        let CacheSite { device, store, database, cache } = site;
        let header = CacheHeader::load(&*device, database, cache)?;
        let listed = policy == EntryPolicy::Temperature;
        let places = header.groups.min(device.len() / u64::from(header.page_size).max(512)) as usize;
        let layout = Layout::new(header.block as usize, header.page_size as usize, places, listed);
        if layout.page_size != store.page_size()
            || layout.end() > device.len()
            || places as u64 != header.groups
        {
            return Err(TierError::new(
                TierErrorKind::Damaged,
                format!(
                    "{} has {} bytes; its header speaks of {} pages of {} bytes, the database has pages of {}",
                    device.info().name,
                    device.len(),
                    header.groups,
                    header.page_size,
                    store.page_size()
                ),
            ));
        }
        let found = if listed { layout.load(&*device, cache)? } else { Vec::new() };
        Ok(EntryCache::assemble(device, store, header, layout, policy, found))
    }

    fn assemble(
        device: Arc<dyn Device>,
        store: Arc<dyn BackingStore>,
        header: CacheHeader,
        layout: Layout,
        policy: EntryPolicy,
        found: Vec<(usize, PageId, Lsn, u32)>,
    ) -> EntryCache {
        let order: Box<dyn Order> = match policy {
            EntryPolicy::Temperature => Box::new(Temperature::new(layout.places)),
            _ => Box::new(Lru::new(layout.places)),
        };
        let mut state = State::new(layout.places, order);
        state.restore(found);
        EntryCache {
            device,
            store,
            header,
            layout,
            policy,
            writer: ranks::WRITER.mutex(()),
            state: ranks::PLACES.mutex(state),
            lost: AtomicBool::new(false),
            counters: Counters::default(),
        }
    }

    fn is_lost(&self) -> bool {
        self.lost.load(Relaxed)
    }
    /// Whether the directory is kept on flash, too.
    fn is_listed(&self) -> bool {
        self.policy == EntryPolicy::Temperature
    }
    /// Whether the new version of a page that changed enters the cache.
    fn takes_changed(&self) -> bool {
        self.policy == EntryPolicy::Temperature
    }
}

impl PageTier for EntryCache {
    firndb_tier::forward_tier!(store: page_size, make_batch_space, reserve, unreserve, prepare, version_of);
    firndb_tier::forward_tier!(store: has_change_for_sure, page_is_lost, oldest_needed_lsn, statistics);
    fn read_batch(&self, reads: &mut [PageRead<'_>]) {
        self.read_batch(reads);
    }
    fn whereabouts(&self, pages: &[PageId], found: &mut Vec<Whereabouts>) {
        self.store.whereabouts(pages, found);
        if self.is_lost() {
            return;
        }
        let state = self.state.lock();
        for (page, found) in pages.iter().zip(found) {
            if state.find(*page).is_some() {
                *found = Whereabouts::Cache;
            }
        }
    }
    fn write_batch(&self, writes: &mut [PageWrite<'_>]) {
        self.store.write_batch(writes);
        self.follow(writes);
    }
    fn publish(
        &self,
        change: Allocation<'_>,
        append: &mut dyn FnMut(Record<'_>) -> Result<Appended, LogError>,
    ) -> Result<Appended, TierError> {
        self.store.publish(change, &mut |record| {
            let appended = append(record)?;
            let mut state = self.state.lock();
            change.free.iter().chain(change.allocate).for_each(|page| state.forget(*page));
            Ok(appended)
        })
    }
    fn sync(&self) -> Result<(), TierError> {
        self.save();
        self.store.sync()
    }
}

impl PageCache for EntryCache {
    fn redo(&self, _: Lsn, _: Record<'_>) -> Result<(), TierError> {
        // Nothing was read, so no image has been accepted, before redo has restored the map.
        debug_assert!(self.counters.read().hits == 0, "redo comes before reads");
        Ok(())
    }
    fn end_recovery(&self) {}
    fn state(&self) -> CacheState {
        CacheState { durable: 0, lost: self.is_lost() }
    }
    fn step(&self) -> Result<Progress, TierError> {
        Ok(if self.drain() > 0 { Progress::Worked } else { Progress::Idle })
    }
    fn check(&self, fault: &mut dyn FnMut(String)) -> Result<u64, TierError> {
        self.check(fault)
    }
    /// The store has every version first.
    fn is_dispensable(&self) -> bool {
        true
    }
    fn kind(&self) -> Arc<dyn CacheKind> {
        Arc::new(match self.policy {
            EntryPolicy::Temperature => Comparator::Temperature,
            EntryPolicy::ReadLru => Comparator::ReadLru,
        })
    }
    fn cache_statistics(&self) -> CacheStatistics {
        let state = self.state.lock();
        let pages = state.pages_count() as u64;
        let mut statistics = self.counters.read();
        statistics.slots = state.slots() as u64;
        statistics.slots_used = pages;
        statistics.pages_valid = pages;
        let places = state.slots() * (size_of::<Option<Place>>() + size_of::<usize>());
        let listed = state.pages_count() * size_of::<[(PageId, usize); 2]>();
        statistics.directory_bytes = (places + listed) as u64;
        statistics.write_through = true;
        statistics.lost = self.is_lost();
        statistics
    }
}

impl std::fmt::Debug for EntryCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EntryCache").field("header", &self.header).finish_non_exhaustive()
    }
}
