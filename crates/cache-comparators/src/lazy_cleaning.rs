//! Lazy cleaning (Do et al., SIGMOD 2011, "LC" in FaCE's tables): the comparator.
//!
//! Pages enter when they leave DRAM, as in FaCE, but each has one place, which a newer version
//! overwrites. The victim is the coldest clean page by LRU-2. A cleaner writes dirty pages back
//! once there are too many of them: the coldest, each with the dirty pages next to it in page
//! number. The directory is in DRAM only: a restart begins with an empty cache, and a checkpoint
//! has to write every dirty page to the store.
//!
//! Invariants:
//! * The log is kept for every dirty page from its first change that the store does not have, so
//!   that nothing in the cache has to survive.
//! * A place is reused for another page only when no thread reads or writes it and its page is
//!   clean or in the store.
//!
//! Locks: `state`, held briefly, never during I/O. A place in use (`users` > 0, or `moving`) is no
//! victim. A thread that reads waits for no other thread while it uses a place.
//!
//! This is the paper's policy, not its code. Memory: about 150 bytes a place, against FaCE's 16.

mod places;
mod read;
mod work;

use crate::comparator::Comparator;
use crate::ranks;
use firndb_base::sync::atomic::{AtomicBool, Ordering::Relaxed};
use firndb_base::sync::{Arc, Condvar, Mutex};
use firndb_base::{Lsn, PageId, Progress};
use firndb_device::{AlignedBuf, Device, Fill};
use firndb_log::{Appended, LogError, Record};
use firndb_tier::page_cache::header::CacheHeader;
use firndb_tier::page_cache::read_below;
use firndb_tier::page_cache::statistics::{CacheStatistics, Counters, add};
use firndb_tier::{
    Allocation, BackingStore, CacheKind, CacheSite, CacheState, PageCache, PageRead, PageTier, PageWrite,
    Poison, TierError, TierErrorKind, Whereabouts, Written,
};
use places::{Place, State};

/// Pages that the cleaner writes back at a time, and perhaps some neighbours more.
const CLEAN_PAGES: usize = 64;
/// Fewest places: as many as a batch of the buffer may need at a time, and some to spare.
const PLACES_MIN: u64 = 128;

/// LC's cache on one device, over a store.
pub struct LazyCleaning {
    device: Arc<dyn Device>,
    store: Arc<dyn BackingStore>,
    header: CacheHeader,
    begin: u64,
    /// Percentage of dirty places above which the cleaner works.
    dirty_percent_max: u8,
    state: Mutex<State>,
    /// With `state`: signalled when a place is not in use any more.
    settled: Condvar,
    poison: Poison,
    /// The cache takes nothing in any more.
    leaving: AtomicBool,
    counters: Counters,
}

/// Checks that a cache of `bytes` bytes is possible.
pub(crate) fn check(bytes: u64, page_size: usize, block: usize) -> Result<(), TierError> {
    let least = 2 * CacheHeader::slot_bytes(block) as u64 + PLACES_MIN * page_size as u64;
    if bytes >= least {
        return Ok(());
    }
    Err(TierError::new(
        TierErrorKind::BadArgument,
        format!("a lazily cleaned cache of {bytes} bytes is too small: give it at least {least}"),
    ))
}

impl LazyCleaning {
    /// Creates a cache of `bytes` bytes on a device that is empty or held a cache of the same
    /// database. The cleaner works while more than `dirty_percent_max` % of the places are dirty.
    ///
    /// Errors: `BadArgument` if the device holds something else, or is too small.
    pub fn create(site: CacheSite, bytes: u64, dirty_percent_max: u8) -> Result<LazyCleaning, TierError> {
        let CacheSite { device, store, database, cache } = site;
        CacheHeader::expect_vacant(&*device, database)?;
        let block = device.info().logical_block;
        check(bytes, store.page_size(), block)?;
        let begin = 2 * CacheHeader::slot_bytes(block) as u64;
        let groups = (bytes - begin) / store.page_size() as u64;
        device.grow(begin + groups * store.page_size() as u64, Fill::Reserved)?;
        let header = CacheHeader {
            database,
            cache,
            page_size: store.page_size() as u32,
            block: block as u32,
            group_pages: 1,
            write_through: true,
            groups,
        };
        header.write(&*device)?;
        Ok(LazyCleaning::assemble(device, store, header, dirty_percent_max))
    }

    /// Opens it, empty.
    ///
    /// Errors: `Damaged` if the device is not this database's cache.
    pub fn open(site: CacheSite, dirty_percent_max: u8) -> Result<LazyCleaning, TierError> {
        let CacheSite { device, store, database, cache } = site;
        let header = CacheHeader::load(&*device, database, cache)?;
        Ok(LazyCleaning::assemble(device, store, header, dirty_percent_max))
    }

    fn assemble(
        device: Arc<dyn Device>,
        store: Arc<dyn BackingStore>,
        header: CacheHeader,
        dirty_percent_max: u8,
    ) -> LazyCleaning {
        let state = State::empty(header.groups as usize);
        LazyCleaning {
            begin: 2 * CacheHeader::slot_bytes(header.block as usize) as u64,
            device,
            store,
            header,
            dirty_percent_max,
            state: ranks::PLACES.mutex(state),
            settled: Condvar::new(),
            poison: Poison::new("the flash cache takes nothing more"),
            leaving: AtomicBool::new(false),
            counters: Counters::default(),
        }
    }
}

impl PageTier for LazyCleaning {
    firndb_tier::forward_tier!(store: page_size, make_batch_space, reserve, unreserve, prepare);
    firndb_tier::forward_tier!(store: page_is_lost, statistics);
    fn read_batch(&self, reads: &mut [PageRead<'_>]) {
        let missed = self.read_cached(reads);
        add(&self.counters.misses, missed.len());
        add(&self.counters.hits, reads.len() - missed.len());
        read_below(&*self.store, reads, &missed);
    }
    fn whereabouts(&self, pages: &[PageId], found: &mut Vec<Whereabouts>) {
        self.store.whereabouts(pages, found);
        let state = self.state.lock();
        for (page, found) in pages.iter().zip(found) {
            if state.pages.contains_key(page) {
                *found = Whereabouts::Cache;
            }
        }
    }
    fn write_batch(&self, writes: &mut [PageWrite<'_>]) {
        if self.leaving.load(Relaxed) {
            self.store.write_recorded(writes);
            // The images here are older now. No thread reads them meanwhile: these pages are in
            // DRAM.
            let taken = writes.iter().filter(|write| write.dirty && write.is_taken());
            return self.invalidate(taken.map(|write| &write.page));
        }
        self.take(writes);
        for write in writes.iter_mut().filter(|write| !write.dirty && write.outcome.is_err()) {
            // The store has the page.
            write.outcome = Ok(Written::Declined);
        }
    }
    fn wants_clean(&self) -> bool {
        !self.leaving.load(Relaxed)
    }
    fn publish(
        &self,
        change: Allocation<'_>,
        append: &mut dyn FnMut(Record<'_>) -> Result<Appended, LogError>,
    ) -> Result<Appended, TierError> {
        self.store.publish(change, &mut |record| {
            let appended = append(record)?;
            self.invalidate(change.free.iter().chain(change.allocate));
            Ok(appended)
        })
    }
    fn sync(&self) -> Result<(), TierError> {
        // What is dirty when the call begins, and only that: for pages that become dirty later the
        // log is kept. They are the coldest, and would come before pages for which old log is kept.
        let dirty = self.state.lock().dirty_by_page();
        for places in dirty.chunks(CLEAN_PAGES) {
            self.clean(places)?;
        }
        self.store.sync()
    }
    fn version_of(&self, page: PageId) -> Result<Option<Lsn>, TierError> {
        let known = {
            let mut state = self.state.lock();
            loop {
                match state.pages.get(&page).copied() {
                    Some(at) if state.place(at).moving => self.settled.wait(&mut state),
                    Some(at) => break Some(state.place(at).version),
                    None => break None,
                }
            }
        };
        match known {
            Some(version) => Ok(Some(version)),
            None => self.store.version_of(page),
        }
    }
    fn oldest_needed_lsn(&self) -> Option<Lsn> {
        // The cache's first: a page that is cleaned in between is then covered by the store's.
        let here = {
            let state = self.state.lock();
            let dirty = state.places.iter().flatten().filter(|place| place.dirty);
            dirty.map(|place| place.recovery_lsn).min()
        };
        self.store.oldest_needed_lsn().into_iter().chain(here).min()
    }
}

impl PageCache for LazyCleaning {
    fn redo(&self, _: Lsn, _: Record<'_>) -> Result<(), TierError> {
        Ok(())
    }
    fn end_recovery(&self) {}
    fn state(&self) -> CacheState {
        CacheState::default()
    }
    fn step(&self) -> Result<Progress, TierError> {
        let coldest = {
            let state = self.state.lock();
            if state.dirty_count() * 100 <= state.places.len() * usize::from(self.dirty_percent_max) {
                return Ok(Progress::Idle);
            }
            state.coldest_dirty(CLEAN_PAGES)
        };
        let cleaned = self.clean(&coldest)?;
        Ok(if cleaned > 0 { Progress::Worked } else { Progress::Idle })
    }
    fn set_leaving(&self, leaving: bool) {
        self.leaving.store(leaving, Relaxed);
    }
    fn leave_step(&self) -> Result<Progress, TierError> {
        let places = {
            let mut state = self.state.lock();
            let places = state.coldest_dirty(CLEAN_PAGES);
            if places.is_empty() && state.dirty_count() > 0 {
                // Other threads are writing them.
                self.settled.wait(&mut state);
                return Ok(Progress::Worked);
            }
            places
        };
        if places.is_empty() {
            self.store.flush_records(self.store.records_end())?;
            return Ok(Progress::Idle);
        }
        self.clean(&places)?;
        Ok(Progress::Worked)
    }
    fn check(&self, fault: &mut dyn FnMut(String)) -> Result<u64, TierError> {
        let pages: Vec<PageId> = self.state.lock().pages.keys().copied().collect();
        let mut buf = AlignedBuf::zeroed(self.page_size());
        let mut count = 0;
        for page in pages {
            match self.read_page(page, &mut buf) {
                Some(Ok(_)) => count += 1,
                Some(Err(error)) => fault(error.to_string()),
                None => {}
            }
        }
        Ok(count)
    }
    /// The log is kept for what the store lacks.
    fn is_dispensable(&self) -> bool {
        true
    }
    fn kind(&self) -> Arc<dyn CacheKind> {
        Arc::new(Comparator::LazyCleaning { dirty_percent_max: self.dirty_percent_max })
    }
    fn cache_statistics(&self) -> CacheStatistics {
        let state = self.state.lock();
        let mut statistics = self.counters.read();
        statistics.slots = state.places.len() as u64;
        statistics.slots_used = (state.places.len() - state.free.len()) as u64;
        statistics.pages_valid = state.pages.len() as u64;
        statistics.pages_dirty = state.dirty_count() as u64;
        statistics.leaving = self.leaving.load(Relaxed);
        let places = state.places.len() * size_of::<Option<Place>>();
        let pages = state.pages.len() * (size_of::<(PageId, usize)>() + size_of::<(u64, u64, usize)>());
        statistics.directory_bytes = (places + pages) as u64;
        statistics
    }
}

impl std::fmt::Debug for LazyCleaning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LazyCleaning").field("header", &self.header).finish_non_exhaustive()
    }
}
