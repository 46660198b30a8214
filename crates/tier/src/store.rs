//! The store: a page map over pages written out of place, on one device.
//!
//! A page has a logical number. Its map entry gives the place of its newest stored version, that
//! version, and its checksum. Map entries lie in *map pages* at regular intervals of the file, so a
//! page's map page is found by arithmetic (Harter & Chae, "Hybrid Transaction Recovery with Flash",
//! section 2.1); changes of the map are log records, and map pages follow the WAL rule like any
//! other page.
//!
//! Invariants:
//! * No place that a durable map entry names is overwritten: a place becomes free only when the
//!   record that moved the page elsewhere, or freed it, is durable.
//! * A record's changes are appended and applied in the same order (`order`), so a metadata page's
//!   LSN tells exactly which records it contains.
//! * A metadata page is written only after the log is durable past its LSN, and into the slot that
//!   is not its newest durable one; each round of such writes is synced before the next begins.
//! * Places with space on the device >= allocated pages + reserved pages + slack + delta pages +
//!   held shadows, so every allocated page can always be written: a full disk is an error of
//!   `reserve`, never of a write.
//! * After a failed write or sync the store writes nothing more until it is opened again; reads
//!   continue.
//!
//! Locks, in the order in which they are taken, after page latches and before the log's own:
//! 0. `checking`: one check at a time. Held during I/O, and by checks only.
//! 1. `redo`: map records that wait for their pages to be read. Held during I/O, by recovery only.
//!    `cleaning`: the walk that empties segments. Held during I/O.
//! 2. `flushing`: flushes of the write buffer of deltas, one at a time. Held during I/O.
//! 3. `growth`: the header and the number of groups. Held during I/O.
//! 4. `write_back`: rounds of metadata writes, one at a time. Held during I/O.
//! 5. `syncs`: which sync counts for which thread. Held briefly; a thread waits with it for the
//!    sync of another thread.
//! 6. `order`: append and apply of a map record. Held during `Log::try_append`, never during I/O:
//!    structure changes of trees take it under page latches.
//! 7. `state`: all that is in memory. Held briefly; never during I/O nor while waiting for another
//!    lock.
//!
//! Tests and simulations check the order (`ranks.rs`). Reads take `state` only, before and after
//! their I/O.
//!
//! Failures: a metadata page damaged in both slots, or in one that a crash cannot have torn, or an
//! image with a checksum that differs from its entry's, is reported as `Damaged`, with page, place
//! and version; other pages are not affected.

mod adopt;
mod allocate;
mod apply;
mod attach;
mod backing;
mod bitmap;
mod carried;
mod changes;
mod check;
mod circle;
mod clean_space;
mod copies;
mod deferred;
mod delta;
mod discard_again;
mod discards;
mod dropped;
mod entry;
mod geometry;
mod give_back;
mod group_codes;
mod grow;
mod header;
mod held_shadows;
mod journal;
mod load;
mod lost;
mod lost_sight;
mod map_block;
mod map_log;
mod map_memory;
mod map_replay;
mod meta_cache;
mod meta_page;
mod mirror;
mod options;
mod overlay;
mod pins;
mod places;
mod publication;
mod read;
mod reads;
mod rebuild;
mod records;
mod redo;
mod rewrite;
mod scrub;
mod segments;
mod sequences;
mod shadows;
mod shorten;
mod space;
mod state;
mod statistics;
mod suspects;
mod sweep;
mod sweep_state;
mod syncs;
#[cfg(test)]
pub(crate) mod tests;
mod totals;
mod tree_codes;
mod tree_loads;
mod vacate;
mod write;
mod write_back;

pub use adopt::page_incarnations;
pub use changes::{PageEvent, events};
pub use check::{CheckProgress, StoreReport};
pub use copies::{judge, length, shape};
#[doc(hidden)]
pub use delta::testing::{delta_slot, delta_slots};
pub use group_codes::{CodeWalk, Moved};
pub use held_shadows::shadows_of;
#[doc(hidden)]
pub use journal::Journal;
pub use options::{DeltaPolicy, Layout, Placement, Policy, StoreOptions};
pub use scrub::Scrubbed;
pub use shorten::FileLength;
pub use space::shadows::ShadowImage;
pub use state::Store;
pub use tree_codes::GroupCodes;
pub use tree_loads::{AtOnce, StoreLoad, TreeLoad};
pub use vacate::{SparseDeltas, Vacancy};

use crate::error::{TierError, TierErrorKind};
use crate::merged_reads::Staging;
use crate::page_reads::PageReads;
use crate::page_tier::{Allocation, PageRead, PageTier, PageWrite, Prepared, TierStatistics, Whereabouts};
use crate::poison::Poison;
use crate::ranks;
use carried::Carried;
use circle::{Cleaning, Extent};
use deferred::Deferred;
use delta::{Deltas, Flushing};
use discards::Discards;
use firndb_base::sync::atomic::AtomicUsize;
use firndb_base::sync::{Arc, Condvar, OnceLock};
use firndb_base::{DatabaseId, Lsn, PageId, Progress};
use firndb_device::{CopyBudget, Device, LateReads};
use firndb_log::{Appended, LogClass, LogError, Record};
use geometry::{Geometry, Place, check_blocks};
use header::{Beside, Header};
use map_block::Anchor;
use map_log::MapLog;
use meta_cache::MetaCache;
use meta_page::MetaId;
use overlay::Overlay;
use sequences::Sequences;
use space::Space;
use state::{Counters, State};
use std::collections::VecDeque;
use sweep_state::Sweep;
use syncs::Syncs;
use tree_codes::TreeCodes;
use write_back::Rounds;

/// Late reads that may be begun again at once, after as many reads that were not.
const COPIES_SAVED: u32 = 8;

/// The database that the device's store belongs to, by either slot of its header; `None` if it
/// holds no readable one.
#[must_use]
pub fn owner(device: &dyn Device) -> Option<DatabaseId> {
    Header::owner(device)
}

impl Store {
    /// Formats a device; its contents are lost. Then as [`Store::open`], with nothing to redo.
    pub fn create(
        device: Arc<dyn Device>,
        database: DatabaseId,
        options: StoreOptions,
    ) -> Result<Store, TierError> {
        Store::create_with(device, database, options, Layout::default(), Policy::default())
    }

    /// As [`Store::create`], with a layout and a policy.
    pub fn create_with(
        device: Arc<dyn Device>,
        database: DatabaseId,
        options: StoreOptions,
        layout: Layout,
        policy: Policy,
    ) -> Result<Store, TierError> {
        policy.check()?;
        let geometry = Geometry::new(options.page_size, layout)?;
        check_blocks(&*device, &geometry)?;
        let header = grow::format(&*device, database, &geometry, layout)?;
        Store::assemble(device, header, geometry, &options, policy)
    }

    /// Opens a formatted device in time that does not depend on its size. Then recovery calls
    /// [`Store::redo`] for each of the store's records since the redo start, in LSN order, and
    /// [`Store::attach`] before the first page is written.
    pub fn open(
        device: Arc<dyn Device>,
        database: DatabaseId,
        options: StoreOptions,
    ) -> Result<Store, TierError> {
        Store::open_with(device, database, options, Policy::default())
    }

    /// As [`Store::open`], with a policy.
    pub fn open_with(
        device: Arc<dyn Device>,
        database: DatabaseId,
        options: StoreOptions,
        policy: Policy,
    ) -> Result<Store, TierError> {
        policy.check()?;
        let (header, beside) = Header::load(&*device, database)?;
        if header.page_size != options.page_size {
            let message = format!(
                "the database has pages of {} bytes, {} were asked for: open it with its own page size",
                header.page_size, options.page_size
            );
            return Err(TierError::new(TierErrorKind::BadArgument, message));
        }
        let geometry = Geometry::new(header.page_size, header.layout)?;
        check_blocks(&*device, &geometry)?;
        let end = geometry.group_offset(header.groups);
        if end.is_none_or(|end| end > device.len()) || header.groups == 0 {
            let message = format!(
                "{} is {} bytes long, too short for the {} groups its header counts: it was cut off",
                device.info().name,
                device.len(),
                header.groups
            );
            return Err(TierError::new(TierErrorKind::Damaged, message));
        }
        let store = Store::assemble(device, header, geometry, &options, policy)?;
        store.state.lock().header_is_alone = beside != Beside::Same;
        match beside {
            // The other may have counted more groups: nothing is cut off for what this one says.
            Beside::Bad => store.check_header(header.groups)?,
            Beside::Same | Beside::Other => store.state.lock().discards.is_uncut = true,
        }
        store.read_map_log()?;
        Ok(store)
    }

    fn assemble(
        device: Arc<dyn Device>,
        header: Header,
        geometry: Geometry,
        options: &StoreOptions,
        policy: Policy,
    ) -> Result<Store, TierError> {
        let state = State {
            cache: MetaCache::new(options.map_budget_bytes, geometry.meta_bytes),
            overlay: Overlay::new(&geometry),
            overlay_found: 0,
            sequences: Sequences::default(),
            deferred: Deferred::default(),
            carried: Carried::default(),
            map_log: MapLog::found(Anchor::NEW, VecDeque::new(), Anchor::NEW.first, None),
            sweep: Sweep::default(),
            space: Space::new(header.groups),
            grow_again_at: 0,
            recovering: true,
            recount: false,
            header_is_alone: false,
            mirror: None,
            deltas: Deltas::default(),
            tree_codes: TreeCodes::default(),
            discards: Discards::default(),
        };
        let store = Store {
            device,
            database: header.database,
            geometry,
            policy,
            journal: OnceLock::new(),
            tree_loads: OnceLock::new(),
            group_codes: OnceLock::new(),
            poison: Poison::new("the store writes nothing more"),
            checking: ranks::CHECKING.mutex(()),
            redo: ranks::REDO.mutex(Lsn::ZERO),
            cleaning: ranks::CLEANING.mutex(Cleaning::default()),
            flushing: ranks::FLUSHING.mutex(Flushing::default()),
            growth: ranks::GROWTH.mutex(header),
            write_back: ranks::WRITE_BACK.mutex(Rounds::default()),
            order: ranks::ORDER.mutex(()),
            state: ranks::STATE.mutex(state),
            progress: Condvar::new(),
            staging: ranks::STAGING.mutex(Vec::new()),
            read_staging: Staging::new(&ranks::READ_STAGING),
            late_reads: LateReads::new(policy.hides_late_reads, Arc::new(CopyBudget::saving(COPIES_SAVED))),
            syncs: Syncs::new(),
            counters: Counters::default(),
            map_wants: AtomicUsize::new(0),
        };
        // The totals page stays in memory as long as the store.
        store.pin(&[MetaId::Totals])?.keep();
        Ok(store)
    }

    /// Applies a map record (kinds 0x10–0x1f) unless the map contains it already. Until
    /// [`Store::finish_redo`] nothing may query the map. Records come in the order of their LSNs.
    ///
    /// Errors: `Damaged`. The message names the record's LSN.
    pub fn redo(&self, lsn: Lsn, record: Record<'_>) -> Result<(), TierError> {
        self.redo_record(lsn, record)
    }

    /// LSN of the newest record that the metadata contains: in memory now, on the device once the
    /// next [`PageTier::sync`] returns.
    pub fn metadata_version(&self) -> Lsn {
        self.state.lock().map_log.last()
    }

    /// Called before the first redo: `at_least` is a [`Store::metadata_version`] that was synced. A
    /// store with older metadata is an older copy put in its place, or lost writes: its pages have
    /// right checksums, too.
    ///
    /// Errors: `Damaged`.
    pub fn expect_metadata(&self, at_least: Lsn) -> Result<(), TierError> {
        self.expect_redone(at_least)
    }

    /// Ends redo: `log_end` is the end of the log that was passed to [`Store::redo`]. To be called
    /// before the log is attached.
    ///
    /// Errors: `Damaged` if metadata contains what the log does not, or lost what the log no longer
    /// has.
    pub fn finish_redo(&self, log_end: Lsn) -> Result<(), TierError> {
        self.judge_totals(log_end)
    }

    fn journal(&self) -> Result<&Arc<dyn Journal>, TierError> {
        self.journal.get().ok_or_else(|| {
            TierError::new(TierErrorKind::BadArgument, "the store cannot change before the log is attached")
        })
    }

    /// Blocks until the record that ends at `end` is durable.
    fn flush_log(&self, end: Lsn) -> Result<(), TierError> {
        let journal = self.journal()?;
        if journal.durable() < end {
            journal.flush(end)?;
        }
        assert!(journal.durable() >= end, "the log is durable as far as it said");
        Ok(())
    }

    fn not_allocated(&self, page: PageId) -> TierError {
        TierError::new(TierErrorKind::NotAllocated, format!("{page:?} is not allocated"))
    }

    /// Reads one more bitmap page of a group not read since opening, so that its free space is
    /// known before it is needed; then counts and gathers slots of delta pages, and empties sparse
    /// segments and, if `may_vacate`, groups. A background step.
    pub fn learn_step(&self, may_vacate: bool) -> Result<Progress, TierError> {
        let next = self.state.lock().space.next_to_learn();
        match next {
            None => {
                let cleaned = self.clean_deltas();
                // Damage of the one keeps nothing from the others.
                let emptied = self.clean_space();
                let vacated = if may_vacate { self.vacate_step() } else { Ok(Progress::Idle) };
                Ok(cleaned?.or(emptied?).or(vacated?))
            }
            Some(group) => self.learn(group).map(|()| Progress::Worked),
        }
    }

    /// Bytes of a page of the page map.
    #[must_use]
    pub fn map_page_bytes(&self) -> u64 {
        self.geometry.meta_bytes as u64
    }

    /// Whether groups are being emptied: the caller of `learn_step` should pause between two steps.
    #[must_use]
    pub fn is_vacating(&self) -> bool {
        self.state.lock().space.closed() > 0
    }

    /// Returns space to the file system, at most one group, if much is free. A background step.
    pub fn give_back_step(&self) -> Result<Progress, TierError> {
        self.give_back_one(Extent::Spacious)
    }

    /// Calls `visit` with every allocated page and its version, in ascending order. Pages that are
    /// allocated or freed meanwhile may be seen or not.
    pub fn pages(&self, visit: &mut dyn FnMut(PageId, Lsn)) -> Result<(), TierError> {
        self.visit_pages(visit)
    }

    /// Walks all metadata and, if `images` is set, reads every page: over an array all fragments,
    /// and mends them. Other threads go on meanwhile and wait for none of the check's requests,
    /// with one exception: if a metadata page was written at each attempt of the check to read it,
    /// metadata writes wait for one request. Takes a bit of memory for each place.
    pub fn check(
        &self,
        images: bool,
        progress: &mut dyn FnMut(CheckProgress),
    ) -> Result<StoreReport, TierError> {
        self.check_all(images, progress)
    }
}

impl PageTier for Store {
    fn page_size(&self) -> usize {
        self.geometry.page_size
    }
    fn wants_memory(&self) -> usize {
        self.map_wants_memory()
    }
    fn take_memory(&self, bytes: usize) {
        self.take_map_memory(bytes);
    }
    fn read_batch(&self, reads: &mut [PageRead<'_>]) {
        self.read_batch(reads);
    }
    fn begin_reads(&self, reads: &mut PageReads, pages: &[(usize, PageId)]) {
        self.begin_reads(reads, pages);
    }
    fn next_reads(&self, reads: &mut PageReads) -> bool {
        self.next_reads(reads)
    }
    fn whereabouts(&self, pages: &[PageId], found: &mut Vec<Whereabouts>) {
        self.whereabouts(pages, found);
    }
    fn write_batch(&self, writes: &mut [PageWrite<'_>]) {
        self.write_batch(writes);
    }
    fn write_shadows(&self, writes: &mut [PageWrite<'_>]) {
        self.write_shadows(writes);
    }
    fn make_batch_space(&self) -> usize {
        self.policy.batch_pages
    }
    fn reserve(&self, class: LogClass) -> Result<PageId, TierError> {
        self.reserve(class)
    }
    fn unreserve(&self, page: PageId) {
        self.state.lock().space.unreserve(&self.geometry, page);
    }
    fn prepare(&self, pages: &[PageId]) -> Result<Prepared<'_>, TierError> {
        self.prepare(pages)
    }
    fn publish(
        &self,
        change: Allocation<'_>,
        append: &mut dyn FnMut(Record<'_>) -> Result<Appended, LogError>,
    ) -> Result<Appended, TierError> {
        self.publish(change, append)
    }
    fn sync(&self) -> Result<(), TierError> {
        self.settle(Lsn(u64::MAX))
    }
    fn settle(&self, before: Lsn) -> Result<(), TierError> {
        let settled = self.settle_deltas(before);
        self.write_back_all().and(settled)
    }
    fn version_of(&self, page: PageId) -> Result<Option<Lsn>, TierError> {
        self.newest_version_of(page)
    }
    fn page_is_lost(&self, page: PageId) -> bool {
        self.has_lost(page)
    }
    fn oldest_needed_lsn(&self) -> Option<Lsn> {
        // Under `order`: a record that was appended before this call has been applied, and so is
        // counted.
        let _order = self.order.lock();
        let mut state = self.state.lock();
        if let Some(journal) = self.journal.get() {
            state.space.release_freed(&self.geometry, journal.durable());
        }
        let (metadata, pending) = (state.map_log.needed_from(), state.space.pending_needed_from());
        metadata.into_iter().chain(pending).chain(state.deltas.buffer.needed_from()).min()
    }
    fn statistics(&self) -> TierStatistics {
        self.read_statistics()
    }
}
