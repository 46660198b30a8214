//! Writing pages: first to free places, then into the map.
//!
//! Why a crash at any point loses nothing:
//! * before the images are durable: nothing names their places; the old versions stay. They are
//!   durable once each write was, if the runs are few, or once a sync has ended that began after
//!   the last of the batch's writes completed: its own, or one that it shares with other batches
//!   (`syncs.rs`);
//! * after that, before the map record is durable: the same, and the log is still kept from the
//!   pages' recovery LSNs (`Pending::needed_from`), so redo rebuilds the new versions;
//! * after that: the map names the new places. Only from here on are the old ones reused.
//!
//! Another thread may free a page, or write a newer version of it, while its image is under way:
//! the writer checks the entry again under `order`, and drops an image that came too late, with its
//! place.

use super::apply::contradiction;
use super::entry::image_checksum;
use super::geometry::Place;
use super::lost_sight::Lost;
use super::meta_page::MetaId;
use super::places::PlacesWanted;
use super::publication::Publication;
use super::records::{self, Change, Old};
use super::segments::Stream;
use super::state::{State, Store, count};
use super::tree_codes::BASE;
use super::tree_loads::Operation;
use crate::error::TierError;
use crate::granules::{Base, Changes};
use crate::page_tier::{PageWrite, Written};
use firndb_base::codec::Malformed;
use firndb_base::sync::Arc;
use firndb_base::{Lsn, PageId};
use firndb_device::{AlignedBuf, DeviceErrorKind, Durability, Io, IoOp};
use firndb_log::Kind;

/// Up to this number of runs each run is written durably: one wait for the device, and beside other
/// batches. More are written together, and then synced once, which other batches may share.
const DURABLE_RUNS_MAX: usize = 4;
/// Most staging buffers kept between calls.
const STAGING_KEPT: usize = 8;

/// How images are mapped.
#[derive(Clone, Copy)]
pub(crate) struct Seal {
    /// Computes the checksum under which an image is mapped.
    pub checksum: fn(PageId, Lsn, &[u8]) -> u32,
    /// Whether an image replaces another of the same version.
    pub replaces_same: bool,
}

impl Seal {
    /// Of pages.
    pub(crate) const IMAGE: Seal = Seal { checksum: image_checksum, replaces_same: true };
}

/// An image under way: index of its write, place, checksum.
#[derive(Clone, Copy)]
struct Shadow {
    write: usize,
    place: Place,
    checksum: u32,
}

impl Store {
    pub(crate) fn write_batch(&self, writes: &mut [PageWrite<'_>]) {
        self.write_sealed(writes, Seal::IMAGE);
    }

    /// Writes pages, mapped as `seal` says.
    pub(crate) fn write_sealed(&self, writes: &mut [PageWrite<'_>], seal: Seal) {
        for write in writes.iter_mut().filter(|write| !write.dirty) {
            write.outcome = Ok(Written::Declined);
        }
        let taken = self.take_deltas(writes);
        let whole: Vec<usize> = (0..writes.len()).filter(|i| writes[*i].dirty && !taken[*i]).collect();
        for chunk in whole.chunks(self.policy.batch_pages) {
            let under_way = self.begin(Operation::Write, chunk.len());
            self.write_chunk(writes, chunk, Kind::PAGES_MOVED, Stream::New, seal);
            under_way.iter().for_each(|it| it.count_written(chunk.iter().map(|index| &writes[*index])));
        }
        self.merge_unchanged(writes, seal);
        // The tier above drops what it has of them once the store's records are durable.
        self.record_deltas(writes, |write| write.recovery_lsn == Lsn::MAX);
        // A failure here does not concern these pages; the next call meets it.
        let _ = self.write_back_if_crowded();
    }

    /// Writes pages and publishes them by one record of `kind`.
    pub(crate) fn write_chunk(
        &self,
        writes: &mut [PageWrite<'_>],
        chunk: &[usize],
        kind: Kind,
        stream: Stream,
        seal: Seal,
    ) {
        let in_range: Vec<usize> = {
            let groups = self.state.lock().space.groups();
            let exists = |i: &&usize| self.geometry.group_of_page(writes[**i].page) < groups;
            let (known, beyond): (Vec<usize>, Vec<usize>) = chunk.iter().partition(exists);
            for index in beyond {
                writes[index].outcome = Err(self.not_allocated(writes[index].page));
            }
            known
        };
        let fail = |writes: &mut [PageWrite<'_>], indexes: &[usize], error: &TierError| {
            indexes.iter().for_each(|i| writes[*i].outcome = Err(error.clone()));
        };
        if let Err(error) = self.poison.check().and_then(|()| self.journal().map(|_| ())) {
            return fail(writes, &in_range, &error);
        }
        let (mut live, mut pins, mut lost) = (in_range, Vec::new(), None);
        loop {
            let mut state = self.state.lock();
            let unknown = self.unknown(&state, live.iter().map(|i| writes[*i].page));
            // Whether it is still lost is decided under the same hold of `state` as what follows:
            // another thread may have read the map page since, and evicted it again.
            if unknown.is_empty() || lost.is_some_and(|lost: Lost| lost.is_lost(&self.geometry, &state)) {
                live.retain(|i| self.still_wanted(&mut state, &mut writes[*i], lost, seal).is_some());
                break;
            }
            drop(state);
            match self.pin(&unknown) {
                Ok(pin) => pins.push(pin),
                Err(error) if live.len() == 1 => match self.lost_sight(&writes[live[0]], &error) {
                    Some((found, pin)) => {
                        lost = Some(found);
                        pins.push(pin);
                    }
                    None => return fail(writes, &live, &error),
                },
                Err(_) => {
                    return live.iter().for_each(|i| self.write_chunk(writes, &[*i], kind, stream, seal));
                }
            }
        }
        if live.is_empty() {
            return;
        }
        let wanted = self.sort_by_code(writes, &mut live);
        let places = match self.take_places(&wanted, stream) {
            Ok(places) => places,
            Err(error) => return fail(writes, &live, &error),
        };
        let shadows = self.write_images(writes, &live, &places, seal);
        self.publish_shadows(writes, shadows, (kind, seal), lost);
    }

    /// Sorts writes by the codes that the groups of their places should have.
    fn sort_by_code(&self, writes: &[PageWrite<'_>], live: &mut [usize]) -> Vec<PlacesWanted> {
        if self.group_codes.get().is_none() {
            return vec![PlacesWanted { code: BASE, count: live.len() }];
        }
        let state = self.state.lock();
        let code = |index: &usize| state.tree_codes.wanted(writes[*index].data);
        live.sort_by_key(code);
        let alike = live.chunk_by(|a, b| code(a) == code(b));
        alike.map(|alike| PlacesWanted { code: code(&alike[0]), count: alike.len() }).collect()
    }

    /// The map pages that have to be read for the entries of `pages`.
    pub(crate) fn unknown(&self, state: &State, pages: impl Iterator<Item = PageId>) -> Vec<MetaId> {
        let unknown = pages.filter(|page| !state.knows(&self.geometry, *page));
        unknown.map(|page| self.geometry.map_of_page(page)).collect()
    }

    /// Where the page is if the offered version replaces it; else sets the outcome. The page's
    /// entry is known, or `lost`.
    fn still_wanted(
        &self,
        state: &mut State,
        write: &mut PageWrite<'_>,
        lost: Option<Lost>,
        seal: Seal,
    ) -> Option<Old> {
        let page = write.page;
        let found = match lost.filter(|lost| lost.is_lost(&self.geometry, state)) {
            Some(_) => Ok((state.least_version(&self.geometry, page), Old::Unknown)),
            None => state
                .entry(self, page)
                .map(|entry| (state.newest_version(page, entry), Old::of(entry.place()))),
        };
        let refused = match found {
            Err(error) => Err(error),
            Ok((None, _)) => Err(self.not_allocated(page)),
            // Another thread wrote a newer version, or the page was freed and allocated anew.
            Ok((Some(newer), _)) if newer > write.version => Ok(Written::Declined),
            Ok((Some(same), _)) if same == write.version && !seal.replaces_same => Ok(Written::Declined),
            Ok((Some(_), old)) => return Some(old),
        };
        write.outcome = refused;
        None
    }

    /// Writes images to places, durably. Returns those that succeeded; the others have their
    /// outcome set, and their places are released.
    fn write_images(
        &self,
        writes: &mut [PageWrite<'_>],
        live: &[usize],
        places: &[Place],
        seal: Seal,
    ) -> Vec<Shadow> {
        let page_size = self.geometry.page_size;
        let mut staging = self
            .staging
            .lock()
            .pop()
            .unwrap_or_else(|| AlignedBuf::zeroed(self.policy.batch_pages * page_size));
        let mut shadows = Vec::with_capacity(live.len());
        for ((write, place), out) in live.iter().zip(places).zip(staging.chunks_mut(page_size)) {
            let page = &writes[*write];
            assert_eq!(page.data.len(), page_size, "a page is written whole");
            out.copy_from_slice(page.data);
            // Over the copy, which no other thread can change.
            let checksum = (seal.checksum)(page.page, page.version, out);
            shadows.push(Shadow { write: *write, place: *place, checksum });
        }
        let outcomes = self.write_runs(places, &staging);
        let mut staged = self.staging.lock();
        if staged.len() < STAGING_KEPT {
            staged.push(staging);
        }
        drop(staged);
        let mut failed = Vec::new();
        let mut outcomes = outcomes.into_iter();
        shadows.retain(|shadow| match outcomes.next().expect("one for each") {
            Ok(()) => true,
            Err(error) => {
                writes[shadow.write].outcome = Err(error);
                failed.push(shadow.place);
                false
            }
        });
        self.drop_places(&failed);
        shadows
    }

    /// Writes adjacent places as one run each, durably; returns an outcome for each place.
    pub(crate) fn write_runs(&self, places: &[Place], staging: &[u8]) -> Vec<Result<(), TierError>> {
        let page_size = self.geometry.page_size;
        let adjacent = |a: &Place, b: &Place| {
            self.geometry.place_offset(*a) + page_size as u64 == self.geometry.place_offset(*b)
        };
        let runs: Vec<&[Place]> = places.chunk_by(adjacent).collect();
        let each = runs.len() <= DURABLE_RUNS_MAX;
        let durability = if each { Durability::Durable } else { Durability::Later };
        let mut batch = Vec::with_capacity(runs.len());
        let mut rest = staging;
        for run in &runs {
            let (bytes, after) = rest.split_at(run.len() * page_size);
            rest = after;
            let offset = self.geometry.place_offset(run[0]);
            batch.push(Io { offset, op: IoOp::Write(bytes, durability), outcome: Ok(()) });
        }
        self.device.submit(&mut batch);
        count(&self.counters.write_runs, runs.len());
        let synced = if each { Ok(()) } else { self.sync_device() };
        let mut outcomes = Vec::with_capacity(places.len());
        for (run, io) in runs.iter().zip(batch) {
            let outcome = io.outcome.map_err(|error| {
                let no_space = error.kind == DeviceErrorKind::NoSpace;
                let error = TierError::from(error);
                if !no_space {
                    self.poison.set(&error);
                }
                error
            });
            outcomes.extend(run.iter().map(|_| outcome.clone().and_then(|()| synced.clone())));
        }
        outcomes
    }

    /// Publishes the moves of the shadows that are still wanted, and sets the outcome of all.
    fn publish_shadows(
        &self,
        writes: &mut [PageWrite<'_>],
        shadows: Vec<Shadow>,
        (kind, seal): (Kind, Seal),
        lost: Option<Lost>,
    ) {
        let places: Vec<Place> = shadows.iter().map(|shadow| shadow.place).collect();
        let copies = if kind == Kind::PAGES_SHADOWED { self.copies(writes, &shadows) } else { Vec::new() };
        let mut moves = Moves { writes, shadows, kind, seal, lost, copies };
        if let Err(error) = self.publish_record(&mut moves, &places) {
            let Moves { writes, shadows, .. } = moves;
            shadows.iter().for_each(|shadow| writes[shadow.write].outcome = Err(error.clone()));
        }
    }
}

impl Store {
    /// Copies of shadows that are kept until archive and backups have them, if they fit.
    fn copies(&self, writes: &[PageWrite<'_>], shadows: &[Shadow]) -> Vec<(Place, Arc<[u8]>)> {
        let bytes = shadows.len() * self.geometry.page_size;
        if !self.state.lock().space.shadows.keeps(bytes) {
            return Vec::new();
        }
        shadows.iter().map(|shadow| (shadow.place, writes[shadow.write].data.into())).collect()
    }
}

/// Images that are durable at their places, and not in the map yet.
struct Moves<'a, 'w> {
    writes: &'a mut [PageWrite<'w>],
    shadows: Vec<Shadow>,
    kind: Kind,
    seal: Seal,
    lost: Option<Lost>,
    /// Of shadows.
    copies: Vec<(Place, Arc<[u8]>)>,
}

impl Publication for Moves<'_, '_> {
    fn kind(&self) -> Kind {
        self.kind
    }

    fn unknown(&self, store: &Store, state: &State) -> Vec<MetaId> {
        match self.lost.is_some_and(|lost| lost.is_lost(&store.geometry, state)) {
            true => Vec::new(),
            false => store.unknown(state, self.shadows.iter().map(|shadow| self.writes[shadow.write].page)),
        }
    }

    /// Sets the outcome `Taken` for writes that are still wanted: another thread may have freed the
    /// page, or written a newer version.
    fn changes(&mut self, store: &Store, state: &mut State) -> Vec<Change> {
        let mut changes = Vec::with_capacity(self.shadows.len());
        for Shadow { write, place, checksum } in self.shadows.iter().copied() {
            let write = &mut self.writes[write];
            let Some(old) = store.still_wanted(state, write, self.lost, self.seal) else { continue };
            let (page, version) = (write.page, write.version);
            write.outcome =
                Ok(Written::Taken { base: Some(Base { version, checksum }), changes: Changes::NONE });
            changes.push(Change::Move { page, version, place, checksum, old });
        }
        changes
    }

    /// The page's write fails.
    fn leave_out(&mut self, _: &mut State, change: Change, error: Malformed) -> Result<(), TierError> {
        let page = change.page().expect("a move is of a page");
        let at = self.shadows.iter().position(|shadow| self.writes[shadow.write].page == page);
        let shadow = self.shadows.remove(at.expect("each change is of a shadow"));
        self.writes[shadow.write].outcome = Err(contradiction(page, error));
        Ok(())
    }

    fn encode(changes: &[Change]) -> Vec<u8> {
        records::encode_moves(changes)
    }

    fn needed_from(&self) -> Lsn {
        let taken = self.writes.iter().filter(|write| write.dirty && write.is_taken());
        taken.map(|write| write.recovery_lsn).min().unwrap_or(Lsn::MAX)
    }

    fn published(&mut self, store: &Store, state: &mut State, changes: &[Change]) {
        for (place, copy) in self.copies.drain(..) {
            state.space.shadows.keep(place, copy);
        }
        count(&store.counters.pages_written, changes.len());
    }
}
