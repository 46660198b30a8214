//! Caches that pages enter when they are read from the store: the comparators of FaCE's table 2 that cache *on entry*.
//!
//! * **Exadata's** ([`CachePolicy::ReadLru`]): clean pages, least recently used; a page that changed leaves the cache
//!   when its new version goes to the store. Known in DRAM only: a restart begins with an empty cache.
//! * **TAC** ([`CachePolicy::Temperature`]; Canim et al., "SSD Bufferpool Extensions for Database Systems", VLDB 2010):
//!   a page enters if its extent is warmer than the coldest one in the cache; one that changed is written to the store
//!   and, if it is in the cache, there too. A slot directory on flash is kept current: before an image is
//!   overwritten its entry is made invalid, after that valid, two small writes for each.
//!
//! Both at their best: a reader does not wait for the write of what it let in. Images wait in DRAM (`QUEUE_PAGES`) and are
//! written side by side, by the background step, or by a reader if they become too many.
//!
//! Invariants:
//! * Nothing here is the only copy. The store takes a version before the cache hears of it; no log is kept for the cache.
//! * An image is believed only after the store's map has named its version *since it came in* (`proven`), and it goes,
//!   or is replaced, before the write that made it old returns. So what a slow reader brings from the store, a crash
//!   leaves in the directory, or a copy of the device from last week says, is believed only if it is the newest.
//! * A place is written by one thread at a time (`writer`), and read without a lock: checksum and stamp tell whether what was
//!   read is what was looked for.
//!
//! Locks: `writer` (held during writes to the cache's device) → `state` (briefly, never during I/O). The store's are
//! never taken under `state`; its `order` may be held when `state` is taken.
//!
//! How it fails: after a failed write the cache is given up and the engine goes on without; what cannot be read is read
//! from the store.
//!
//! The papers' policies, not their code. Memory: about 150 bytes a place, against FaCE's 16.

mod order;
mod places;
mod slots;
mod work;

use super::create::{CacheOptions, CacheState};
use super::header::{CacheId, Header};
use super::policy::CachePolicy;
use super::statistics::{CacheStatistics, Counters};
use crate::ranks;
use crate::store::Store;
use crate::{Allocation, PageCache, PageRead, PageTier, PageWrite, TierError, TierErrorKind, TierStatistics};
use firn_base::sync::atomic::{AtomicBool, Ordering::Relaxed};
use firn_base::sync::{Arc, Mutex};
use firn_base::{DatabaseId, Lsn, PageId, Progress};
use firn_device::{Device, Fill};
use firn_log::{Appended, LogClass, LogError, Record};
use order::{Lru, Order, Temperature};
use places::{Place, State};
use slots::Layout;

/// Images that wait to be written, above which readers write.
const QUEUE_PAGES: usize = 128;
/// Images written at a time, side by side.
const DRAIN_PAGES: usize = 32;
/// Fewest places.
const PLACES_MIN: u64 = 16;

/// A write-through cache that pages enter when they are read, on one device, over a store.
pub struct EntryCache {
    device: Arc<dyn Device>,
    store: Arc<Store>,
    header: Header,
    layout: Layout,
    policy: CachePolicy,
    /// Held by whoever writes to the device.
    writer: Mutex<()>,
    state: Mutex<State>,
    /// Given up.
    lost: AtomicBool,
    counters: Counters,
}

/// Whether a cache of so many bytes is possible.
pub(crate) fn check(bytes: u64, page_size: usize, block: usize, listed: bool) -> Result<(), TierError> {
    if Layout::fit(block, page_size, bytes, listed).places as u64 >= PLACES_MIN {
        return Ok(());
    }
    let least = Layout::new(block, page_size, PLACES_MIN as usize, listed).end();
    Err(TierError::new(
        TierErrorKind::BadArgument,
        format!(
            "a flash cache of {bytes} bytes has no room for {PLACES_MIN} pages: give it at least {least}"
        ),
    ))
}

impl EntryCache {
    /// Makes a cache on a device that is empty or held a cache of the same database. The policy is one of those
    /// that cache on entry.
    ///
    /// Errors: `BadArgument` if the device holds something else, or is too small.
    pub fn create(
        device: Arc<dyn Device>,
        store: Arc<Store>,
        database: DatabaseId,
        cache: CacheId,
        options: CacheOptions,
    ) -> Result<EntryCache, TierError> {
        Header::expect_vacant(&*device, database)?;
        if !options.policy.caches_on_entry() {
            return Err(TierError::new(
                TierErrorKind::BadArgument,
                format!(
                    "{} is to be another kind of cache: see FlashCache and LazyCleaning",
                    device.info().name
                ),
            ));
        }
        let block = device.info().logical_block;
        let listed = options.policy == CachePolicy::Temperature;
        check(options.bytes, store.page_size(), block, listed)?;
        let layout = Layout::fit(block, store.page_size(), options.bytes, listed);
        device.grow(layout.end(), Fill::Reserved)?;
        let header = Header {
            database,
            cache,
            page_size: store.page_size() as u32,
            block: block as u32,
            group_pages: 1,
            write_through: true,
            groups: layout.places as u64,
        };
        header.write(&*device)?;
        Ok(EntryCache::assemble(device, store, header, layout, options.policy, Vec::new()))
    }

    /// Opens it: a [`CachePolicy::Temperature`] cache with what its directory on flash says, another one empty.
    ///
    /// Errors: `Damaged` if the device is not this database's cache, or too short.
    pub fn open(
        device: Arc<dyn Device>,
        store: Arc<Store>,
        database: DatabaseId,
        cache: CacheId,
        policy: CachePolicy,
    ) -> Result<EntryCache, TierError> {
        assert!(policy.caches_on_entry(), "the superblock tells the kinds apart");
        let header = Header::load(&*device, database, cache)?;
        let listed = policy == CachePolicy::Temperature;
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
        store: Arc<Store>,
        header: Header,
        layout: Layout,
        policy: CachePolicy,
        found: Vec<(usize, PageId, Lsn, u32)>,
    ) -> EntryCache {
        let order: Box<dyn Order> = match policy {
            CachePolicy::Temperature => Box::new(Temperature::new(layout.places)),
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
    /// Whether what lies where is kept on flash, too.
    fn is_listed(&self) -> bool {
        self.policy == CachePolicy::Temperature
    }
    /// Whether a page that changed gets its new version into the cache.
    fn takes_changed(&self) -> bool {
        self.policy == CachePolicy::Temperature
    }
}

impl PageTier for EntryCache {
    fn page_size(&self) -> usize {
        self.store.page_size()
    }
    fn read_batch(&self, reads: &mut [PageRead<'_>]) {
        self.read_pages(reads);
    }
    fn write_batch(&self, writes: &mut [PageWrite<'_>]) {
        self.store.write_batch(writes);
        self.follow(writes);
    }
    fn preferred_batch(&self) -> usize {
        self.store.preferred_batch()
    }
    fn reserve(&self, class: LogClass) -> Result<PageId, TierError> {
        self.store.reserve(class)
    }
    fn unreserve(&self, page: PageId) {
        self.store.unreserve(page);
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
    fn version_of(&self, page: PageId) -> Result<Option<Lsn>, TierError> {
        self.store.version_of(page)
    }
    fn has_change(&self, page: PageId, lsn: Lsn) -> Result<Option<bool>, TierError> {
        self.store.has_change(page, lsn)
    }
    fn page_is_lost(&self, page: PageId) -> bool {
        self.store.page_is_lost(page)
    }
    fn oldest_needed_lsn(&self) -> Option<Lsn> {
        self.store.oldest_needed_lsn()
    }
    fn statistics(&self) -> TierStatistics {
        self.store.statistics()
    }
}

impl PageCache for EntryCache {
    fn redo(&self, _: Lsn, _: Record<'_>) -> Result<(), TierError> {
        // Nothing was read, so nothing is believed, before the map is what it was.
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
        self.check_images(fault)
    }
    fn policy(&self) -> Option<CachePolicy> {
        Some(self.policy)
    }
    fn cache_statistics(&self) -> CacheStatistics {
        let state = self.state.lock();
        let pages = state.pages_count() as u64;
        CacheStatistics {
            slots: state.slots() as u64,
            slots_used: pages,
            pages_valid: pages,
            directory_bytes: (state.slots() * (size_of::<Option<Place>>() + size_of::<usize>())
                + state.pages_count() * size_of::<[(PageId, usize); 2]>())
                as u64,
            write_through: true,
            lost: self.is_lost(),
            ..self.counters.read()
        }
    }
}

impl std::fmt::Debug for EntryCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EntryCache").field("header", &self.header).finish_non_exhaustive()
    }
}
