//! The store's state: what is fixed at its opening, its locks, and what they protect. See the head
//! of `store.rs` for the order of the locks.

use super::apply;
use super::bitmap::{self, Which};
use super::carried::Carried;
use super::circle::Cleaning;
use super::deferred::Deferred;
use super::delta::{Deltas, Flushing};
use super::discards::Discards;
use super::entry::Entry;
use super::geometry::Geometry;
use super::header::Header;
use super::journal::Journal;
use super::map_log::MapLog;
use super::meta_cache::MetaCache;
use super::meta_page::MetaId;
use super::mirror::Mirror;
use super::options::Policy;
use super::overlay::Overlay;
use super::records::Change;
use super::sequences::Sequences;
use super::space::Space;
use super::sweep_state::Sweep;
use super::syncs::Syncs;
use super::totals::Totals;
use super::tree_codes::{GroupCodes, TreeCodes};
use super::tree_loads::TreeLoads;
use super::write_back::Rounds;
use crate::merged_reads::Staging;
use crate::poison::Poison;
use firndb_base::codec::Malformed;
use firndb_base::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use firndb_base::sync::{Arc, Condvar, Mutex, OnceLock};
use firndb_base::{DatabaseId, Lsn, PageId};
use firndb_device::{AlignedBuf, Device, LateReads};
use firndb_log::Record;

/// Batches of places that must stay free beyond what allocated and reserved pages need, by the log
/// class that reserves one more page. Writes under way need one batch; the rest is for removals,
/// for rollback and for checkpoints.
pub(super) const SLACK_BATCHES_NORMAL: u64 = 4;
pub(super) const SLACK_BATCHES_REMOVAL: u64 = 3;
pub(super) const SLACK_BATCHES_ROLLBACK: u64 = 2;
pub(super) const SLACK_BATCHES_SYSTEM: u64 = 1;

/// The store of one database, on one device. Implements [`crate::PageTier`].
pub struct Store {
    pub(super) device: Arc<dyn Device>,
    pub(super) database: DatabaseId,
    pub(super) geometry: Geometry,
    pub(super) policy: Policy,
    pub(super) journal: OnceLock<Arc<dyn Journal>>,
    pub(super) group_codes: OnceLock<Arc<dyn GroupCodes>>,
    /// Over an array.
    pub(super) tree_loads: OnceLock<Arc<TreeLoads>>,
    /// Why nothing more may be written, once a write has failed.
    pub(super) poison: Poison,
    pub(super) checking: Mutex<()>,
    /// Records up to here are contained in the metadata, or redone.
    pub(super) redo: Mutex<Lsn>,
    pub(super) cleaning: Mutex<Cleaning>,
    pub(super) flushing: Mutex<Flushing>,
    pub(super) growth: Mutex<Header>,
    pub(super) write_back: Mutex<Rounds>,
    pub(super) order: Mutex<()>,
    pub(super) state: Mutex<State>,
    /// With `state`: signalled when a metadata page was loaded, or places of a write under way were
    /// settled.
    pub(super) progress: Condvar,
    /// Reusable buffers in which runs are composed.
    pub(super) staging: Mutex<Vec<AlignedBuf>>,
    /// Buffers for reads of adjacent places.
    pub(super) read_staging: Staging,
    /// Reads that complete one by one.
    pub(super) late_reads: LateReads,
    /// Of the device: writers of pages and of metadata share them.
    pub(super) syncs: Syncs,
    pub(super) counters: Counters,
    /// Of the state: bytes by which the map's budget should grow. Read without the lock.
    pub(super) map_wants: AtomicUsize,
}

/// All state in memory.
pub(crate) struct State {
    /// Metadata pages. A map page is as it was written last: what changed since is in `overlay`.
    pub(super) cache: MetaCache,
    pub(super) overlay: Overlay,
    /// Bytes of it that recovery left and that the sweep has not got below since.
    pub(super) overlay_found: usize,
    /// Which slot of a map page is the newer.
    pub(super) sequences: Sequences,
    /// What bitmap pages lack that were not read since opening.
    pub(super) deferred: Deferred,
    /// Pages that recovery had from the map log, because the sweep could not write them.
    pub(super) carried: Carried,
    pub(super) map_log: MapLog,
    pub(super) sweep: Sweep,
    pub(super) space: Space,
    /// The file is not extended merely for longer runs before this many pages are needed: the last
    /// attempt found the device full.
    pub(super) grow_again_at: u64,
    /// True until the log is attached: nothing is written.
    pub(super) recovering: bool,
    /// Whether the totals page had a bad slot when it was loaded: then it is counted anew.
    pub(super) recount: bool,
    /// Whether only one slot of the header was found with what it says.
    pub(super) header_is_alone: bool,
    /// The part of the map that a running check has walked.
    pub(super) mirror: Option<Mirror>,
    pub(super) deltas: Deltas,
    pub(super) tree_codes: TreeCodes,
    pub(super) discards: Discards,
}

impl State {
    pub(super) fn totals(&mut self) -> Totals {
        Totals::read(&self.cache.get(MetaId::Totals).expect("the totals page is pinned").body)
    }

    /// Places that must have space: for pages allocated and reserved, for delta pages in use and
    /// about to be, for places in use without a name, for held shadows, and `more`. (Damaged totals
    /// may say anything. Recounted ones do not tell what places have no name: then those are seen
    /// that exceed the pages which have no image yet.)
    pub(super) fn places_needed(&mut self, more: u64) -> u64 {
        let totals = self.totals();
        let images = totals.places.saturating_sub(totals.delta_pages);
        let held = self.space.shadows.count();
        [totals.delta_pages, self.deltas.in_flight, self.space.reserved(), held, more]
            .into_iter()
            .fold(totals.pages.saturating_add(totals.unnamed).max(images), u64::saturating_add)
    }

    /// Whether a page is allocated, by its bitmap page: `None` if that is not in memory.
    pub(super) fn is_allocated(&self, geometry: &Geometry, page: PageId) -> Option<bool> {
        let bits = self.cache.peek(geometry.bitmap_of_page(page))?;
        Some(bitmap::get(geometry, &bits.body, Which::Pages, geometry.index_of_page(page)))
    }

    /// Whether a page's entry is known without reading.
    pub(crate) fn knows(&self, geometry: &Geometry, page: PageId) -> bool {
        self.overlay.get(page).is_some() || self.cache.contains(geometry.map_of_page(page))
    }

    /// As [`apply::known_entry`].
    pub(crate) fn known_entry(
        &mut self,
        geometry: &Geometry,
        page: PageId,
    ) -> Option<Result<Entry, Malformed>> {
        apply::known_entry(geometry, &mut self.cache, &self.overlay, page)
    }

    /// As [`apply::check`].
    pub(crate) fn check(
        &mut self,
        geometry: &Geometry,
        changes: &[Change],
    ) -> Result<(), (usize, Malformed)> {
        apply::check(geometry, (&mut self.cache, &self.overlay), changes)
    }

    /// Applies the changes of the record at `lsn`, just appended. As [`apply::apply`].
    pub(crate) fn apply(
        &mut self,
        geometry: &Geometry,
        (lsn, record): (Lsn, Record<'_>),
        changes: &[Change],
    ) -> Result<(), Malformed> {
        let pages = (&mut self.cache, &mut self.overlay, &mut self.deferred);
        let died = apply::apply(geometry, pages, lsn, changes)?;
        for (page, at) in died {
            self.deltas.live.died(geometry, at.place, page.0 / geometry.entries_per_map);
        }
        self.follow_deltas(geometry, changes);
        self.map_log.push(lsn, record);
        self.share_the_budget();
        if let Some(mirror) = &mut self.mirror {
            changes.iter().for_each(|change| mirror.follow(geometry, *change));
        }
        Ok(())
    }

    /// Repeats the record at `lsn`. As [`apply::redo`].
    pub(crate) fn redo(
        &mut self,
        geometry: &Geometry,
        lsn: Lsn,
        changes: &[Change],
    ) -> Result<(), Malformed> {
        let (groups, count) = (self.space.groups(), !self.recount);
        let pages = (&mut self.cache, &mut self.overlay, &mut self.deferred);
        let wanted = |id: MetaId| {
            let exists = geometry.group_of_meta(id).is_none_or(|group| group < groups);
            exists && !self.carried.contains(id, lsn)
        };
        apply::redo(geometry, pages, &wanted, (lsn, changes), count)?;
        self.share_the_budget();
        Ok(())
    }

    /// Leaves to metadata pages what the rest of the map does not take.
    pub(super) fn share_the_budget(&mut self) {
        let others = self.overlay.bytes() + self.deferred.bytes() + self.map_log.fresh_bytes();
        self.cache.leave(others);
    }
}

impl State {
    /// The LSN from which the log is needed for what waits in the write buffer and `changes` remove
    /// or flush: until their record is durable, a crash brings back the state before.
    pub(crate) fn waits_from(&self, changes: &[Change]) -> Option<Lsn> {
        let removed = changes.iter().filter_map(|change| match *change {
            Change::Move { page, .. } | Change::Free { page, .. } | Change::Delta { page, .. } => {
                self.deltas.buffer.get(page)
            }
            _ => None,
        });
        removed.map(|held| held.recovery).min()
    }

    /// Keeps the write buffer and the counts of live slots true to the map.
    fn follow_deltas(&mut self, geometry: &Geometry, changes: &[Change]) {
        let mut rest = changes;
        while let [change, after @ ..] = rest {
            rest = after;
            match *change {
                Change::Free { page, .. } => drop(self.deltas.buffer.remove(page)),
                Change::Move { page, version, .. } => {
                    // (A later version was not in the image; none can be, since it would have been
                    // declined.)
                    let held = self.deltas.buffer.remove(page);
                    debug_assert!(held.is_none_or(|held| held.delta.version <= version), "{page:?}");
                }
                Change::DeltaPage { place } => {
                    let slots =
                        after.iter().take_while(|change| matches!(change, Change::Delta { .. })).count();
                    self.deltas.live.written(geometry, place, slots);
                }
                Change::DeltaFreed { place } => self.deltas.live.freed(geometry, place),
                _ => {}
            }
        }
    }
}

#[derive(Default)]
pub(super) struct Counters {
    pub(super) pages_read: AtomicU64,
    pub(super) read_requests: AtomicU64,
    pub(super) pages_written: AtomicU64,
    pub(super) write_runs: AtomicU64,
    pub(super) metadata_pages_read: AtomicU64,
    pub(super) metadata_bytes_read: AtomicU64,
    pub(super) metadata_pages_written: AtomicU64,
    pub(super) metadata_bytes_written: AtomicU64,
    pub(super) deltas_taken: AtomicU64,
    pub(super) delta_pages_written: AtomicU64,
    pub(super) delta_pages_read: AtomicU64,
    pub(super) deltas_gathered: AtomicU64,
    pub(super) deltas_merged: AtomicU64,
    pub(super) reads_with_delta: AtomicU64,
    pub(super) deltas_merged_for_reads: AtomicU64,
    pub(super) whole_for_size: AtomicU64,
    pub(super) whole_for_rent: AtomicU64,
    pub(super) places_scattered: AtomicU64,
    pub(super) images_moved: AtomicU64,
    pub(super) segments_emptied: AtomicU64,
    pub(super) groups_emptied: AtomicU64,
    pub(super) discards_failed: AtomicU64,
}

pub(super) fn count(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Ordering::Relaxed);
}
