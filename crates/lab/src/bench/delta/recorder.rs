//! Records what passes between the buffer and the store while a database runs.
//!
//! The recorder stands where a flash cache would ([`CacheKind`]), holds no page, and passes every
//! call on to the store. So the store's answers are those that the buffer gets without it; but it
//! asks for clean pages, too, of which the buffer would not speak to a store.
//!
//! Invariant: an event is appended after the store has done it, and without a scheduling point in
//! between: in a simulation the stream's order is the store's.

use firndb_base::sync::Arc;
use firndb_base::{Lsn, PageId, Progress};
use firndb_console::Failure;
use firndb_device::Fill;
use firndb_log::{Appended, LogError, Record};
use firndb_page_comparators::event::Event;
use firndb_page_comparators::stream::{Head, StreamError, StreamWriter};
use firndb_tier::page_cache::header::CacheHeader;
use firndb_tier::page_cache::policy::CachePolicy;
use firndb_tier::page_cache::statistics::CacheStatistics;
use firndb_tier::{
    Allocation, CacheKind, CacheOptions, CacheSite, CacheState, PageCache, PageRead, PageTier, PageWrite,
    TierError,
};
use std::fs::File;
use std::io::BufWriter;
use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;

/// A stream that is being recorded.
pub struct Recording {
    /// `None` before recording begins and after it has ended. Never held across a scheduling point.
    state: Mutex<Option<State>>,
}

struct State {
    writer: StreamWriter<BufWriter<File>>,
    commits: u64,
    /// The first failure to write.
    outcome: Result<(), StreamError>,
}

/// Why the lock cannot be poisoned.
const UNPOISONED: &str = "nothing is done under it that could panic";

impl Recording {
    /// Nothing is recorded yet.
    pub fn new() -> Recording {
        Recording { state: Mutex::new(None) }
    }

    /// Begins a file.
    pub fn begin(&self, path: &Path, head: &Head) -> Result<(), Failure> {
        let file = BufWriter::new(File::create(path)?);
        let writer = StreamWriter::new(file, head).map_err(failed)?;
        let state = State { writer, commits: 0, outcome: Ok(()) };
        *self.state.lock().expect(UNPOISONED) = Some(state);
        Ok(())
    }

    fn push(&self, events: impl IntoIterator<Item = Event>) {
        if let Some(state) = &mut *self.state.lock().expect(UNPOISONED) {
            for event in events {
                if state.outcome.is_ok() {
                    state.outcome = state.writer.push(&event);
                }
            }
        }
    }

    /// So many transactions have committed since the recording began.
    pub fn committed(&self, commits: u64) {
        let count = match &mut *self.state.lock().expect(UNPOISONED) {
            Some(state) => commits - std::mem::replace(&mut state.commits, commits),
            None => 0,
        };
        if count > 0 {
            self.push([Event::Commits { count }]);
        }
    }

    /// What comes is measured.
    pub fn measure(&self) {
        self.push([Event::Measure]);
    }

    /// Ends the file.
    pub fn end(&self) -> Result<(), Failure> {
        let state = self.state.lock().expect(UNPOISONED).take();
        let Some(state) = state else { return Ok(()) };
        state.outcome.map_err(failed)?;
        state.writer.finish().map_err(failed)?;
        Ok(())
    }
}

fn failed(error: StreamError) -> Failure {
    Failure::new(error.to_string())
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Recording")
    }
}

/// The kind of a cache that records; see the head of the file.
#[derive(Clone, Debug)]
pub struct Recorder(pub Arc<Recording>);

impl CacheKind for Recorder {
    fn name(&self) -> &'static str {
        "recorder"
    }
    fn check(&self, _: &CacheOptions, _: usize, _: usize) -> Result<(), TierError> {
        Ok(())
    }
    fn create(&self, site: CacheSite, _: CacheOptions) -> Result<Arc<dyn PageCache>, TierError> {
        let CacheSite { device, store, database, cache } = site;
        CacheHeader::expect_vacant(&*device, database)?;
        let block = device.info().logical_block;
        let header = CacheHeader {
            database,
            cache,
            page_size: store.page_size() as u32,
            block: block as u32,
            group_pages: 1,
            write_through: true,
            groups: 1,
        };
        device.grow(2 * CacheHeader::slot_bytes(block) as u64, Fill::Reserved)?;
        header.write(&*device)?;
        Ok(Arc::new(Recorded { kind: self.clone(), store }))
    }
    fn open(
        &self,
        site: CacheSite,
        _: CachePolicy,
        _: u64,
        _: Range<Lsn>,
    ) -> Result<Arc<dyn PageCache>, TierError> {
        CacheHeader::load(&*site.device, site.database, site.cache)?;
        Ok(Arc::new(Recorded { kind: self.clone(), store: site.store }))
    }
}

/// The tier between buffer and store.
struct Recorded {
    kind: Recorder,
    store: Arc<dyn firndb_tier::BackingStore>,
}

impl Recorded {
    fn push(&self, events: impl IntoIterator<Item = Event>) {
        self.kind.0.push(events);
    }
}

/// What was written, if anything was.
fn written(write: &PageWrite<'_>) -> Option<Event> {
    let page = write.page.0;
    match (write.dirty, write.is_taken()) {
        (false, _) => Some(Event::Clean { page }),
        (true, true) => {
            let changes = write.base.map(|_| write.changes);
            Some(Event::Write { page, version: write.version.0, changes })
        }
        (true, false) => None,
    }
}

impl PageTier for Recorded {
    firndb_tier::forward_tier!(store: page_size, whereabouts, make_batch_space, reserve, unreserve, prepare);
    firndb_tier::forward_tier!(store: version_of, has_change_for_sure, page_is_lost, oldest_needed_lsn);
    firndb_tier::forward_tier!(store: statistics);
    fn read_batch(&self, reads: &mut [PageRead<'_>]) {
        self.store.read_batch(reads);
        // A page without an image is read from nowhere.
        let has_image = |read: &&PageRead<'_>| read.outcome.as_ref().is_ok_and(|found| found.base.is_some());
        self.push(reads.iter().filter(has_image).map(|read| Event::Read { page: read.page.0 }));
    }
    fn write_batch(&self, writes: &mut [PageWrite<'_>]) {
        self.store.write_batch(writes);
        self.push(writes.iter().filter_map(written).chain([Event::BatchEnd]));
    }
    fn wants_clean(&self) -> bool {
        true
    }
    fn publish(
        &self,
        change: Allocation<'_>,
        append: &mut dyn FnMut(Record<'_>) -> Result<Appended, LogError>,
    ) -> Result<Appended, TierError> {
        let appended = self.store.publish(change, append)?;
        let free = change.free.iter().map(|page: &PageId| Event::Free { page: page.0 });
        let allocate = change.allocate.iter().map(|page: &PageId| Event::Allocate { page: page.0 });
        self.push(free.chain(allocate));
        Ok(appended)
    }
    fn sync(&self) -> Result<(), TierError> {
        self.store.sync()?;
        self.push([Event::Checkpoint]);
        Ok(())
    }
}

impl PageCache for Recorded {
    fn redo(&self, _: Lsn, _: Record<'_>) -> Result<(), TierError> {
        Ok(())
    }
    fn end_recovery(&self) {}
    fn state(&self) -> CacheState {
        CacheState::default()
    }
    fn step(&self) -> Result<Progress, TierError> {
        Ok(Progress::Idle)
    }
    fn check(&self, _: &mut dyn FnMut(String)) -> Result<u64, TierError> {
        Ok(0)
    }
    fn kind(&self) -> Arc<dyn CacheKind> {
        Arc::new(self.kind.clone())
    }
    fn is_dispensable(&self) -> bool {
        true
    }
    fn cache_statistics(&self) -> CacheStatistics {
        let mut statistics = CacheStatistics::default();
        statistics.write_through = true;
        statistics
    }
}
