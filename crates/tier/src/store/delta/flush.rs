//! Flushing the write buffer: slots are packed, delta pages written durably, and one record names
//! them. See the head of `delta.rs` for why a crash loses nothing.

use super::super::apply::contradiction;
use super::super::entry::{Entry, SlotAt};
use super::super::geometry::Place;
use super::super::meta_page::MetaId;
use super::super::places::PlacesWanted;
use super::super::publication::Publication;
use super::super::records::{self, Change};
use super::super::segments::Stream;
use super::super::state::{SLACK_BATCHES_NORMAL, State, Store, count};
use super::super::tree_codes::BASE;
use super::Flushing;
use super::page::Packed;
use super::policy;
use crate::error::TierError;
use crate::granules::Base;
use firndb_base::codec::Malformed;
use firndb_base::{Lsn, PageId};
use firndb_device::AlignedBuf;
use firndb_log::Kind;
use std::collections::BTreeSet;

/// How many delta pages may be in use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Limit {
    /// Their share of the places.
    Share,
    /// As many as leave every allocated page a place: for pages that cannot be written whole.
    Places,
}

/// Most empty delta pages that one record frees.
const FREED_A_RECORD: usize = 256;

/// A slot under way.
struct Sent {
    page: PageId,
    version: Lsn,
    /// What it counts from.
    base: Base,
    /// What is spent on the page's slots with this one.
    rent: u8,
    /// Its delta page, by index, and its number there.
    at: (usize, u8),
}

/// A flush that was begun.
struct Begun {
    sent: Vec<Sent>,
    packed: Vec<Packed>,
    /// Map pages that cannot be read, of pages in `sent`.
    lost: BTreeSet<MetaId>,
    /// Pages that are still to be flushed.
    left: Vec<PageId>,
    /// What keeps others from it: they wait on.
    outcome: Result<(), TierError>,
}

impl Store {
    /// Writes what waits in the write buffer for `pages`, as slots, or whole where no more delta
    /// pages may be in use. All of it is tried.
    ///
    /// Errors: the first; what it concerns waits on.
    pub(crate) fn flush_deltas(&self, pages: &[PageId]) -> Result<(), TierError> {
        self.flush_deltas_for(pages, Stream::New)
    }

    /// As [`Store::flush_deltas`], to a stream.
    pub(crate) fn flush_deltas_for(&self, pages: &[PageId], stream: Stream) -> Result<(), TierError> {
        if pages.is_empty() {
            return Ok(());
        }
        let mut flushing = self.flushing.lock();
        let mut left = pages.to_vec();
        let mut outcome = Ok(());
        while !left.is_empty() {
            if let Err(error) = self.poison.check() {
                return outcome.and(Err(error));
            }
            let begun = self.begin_flush(&left);
            left.clone_from(&begun.left);
            outcome = outcome.and(self.send(&mut flushing, begun, (Limit::Share, stream)));
        }
        outcome
    }

    /// Flushes if the write buffer is nearly full: a quarter of it, what holds the log longest
    /// first. If it is full, the caller waits for the thread that does.
    pub(crate) fn flush_if_crowded(&self) -> Result<(), TierError> {
        let limit = self.policy.deltas.buffer_bytes;
        let crowded = |part: usize| {
            let state = self.state.lock();
            state.deltas.buffer.bytes() * 8 >= limit * part && !state.deltas.buffer.is_empty()
        };
        if limit == 0 || !crowded(7) {
            return Ok(());
        }
        // The lock is taken again by the flush: here it tells that another thread is at it.
        match self.flushing.try_lock() {
            Some(flushing) => drop(flushing),
            None if !crowded(8) => return Ok(()),
            None => drop(self.flushing.lock()),
        }
        if !crowded(7) {
            return Ok(());
        }
        let oldest = self.state.lock().deltas.buffer.oldest(limit / 4, usize::MAX, Lsn(u64::MAX));
        self.flush_deltas(&oldest)
    }

    /// Makes durable what waits and holds the log from before `before`.
    pub(crate) fn settle_deltas(&self, before: Lsn) -> Result<(), TierError> {
        let pages = self.state.lock().deltas.buffer.oldest(usize::MAX, usize::MAX, before);
        self.flush_deltas(&pages)
    }

    /// Packs the first of `pages` into delta pages of one batch, and begins their flush. A page
    /// whose map page cannot be read does not wait until it can be, or it would hold the log: the
    /// write buffer knows where its image is. Its old slot stays counted, and that delta page in
    /// use.
    fn begin_flush(&self, pages: &[PageId]) -> Begun {
        // As many as may fill a batch, whatever their size.
        let (now, later) = pages.split_at(pages.len().min(16 * self.policy.batch_pages));
        let (mut sent, mut packed, mut over) = (Vec::new(), Vec::<Packed>::new(), Vec::new());
        let unknown = {
            let state = self.state.lock();
            // What is not there any more may have been in a group that was cut off.
            let waits = now.iter().copied().filter(|page| state.deltas.buffer.get(*page).is_some());
            self.unknown(&state, waits)
        };
        let (pins, failed) = match self.pin_readable(&unknown) {
            Ok(pinned) => pinned,
            Err(error) => {
                let (lost, left) = (BTreeSet::new(), later.to_vec());
                return Begun { sent, packed, lost, left, outcome: Err(error) };
            }
        };
        let lost: BTreeSet<MetaId> = failed.into_keys().collect();
        let mut guard = self.state.lock();
        let state = &mut *guard;
        for page in now {
            // Settled into its map page since it was looked for: the next attempt reads that.
            let entry = state.entry_in_memory(self, *page);
            let Some(held) = state.deltas.buffer.get(*page) else { continue };
            if entry.is_none() && !lost.contains(&self.geometry.map_of_page(*page)) {
                over.push(*page);
                continue;
            }
            let spent = entry.and_then(Result::ok).map_or(0, Entry::rent).saturating_add(held.reads);
            let page_size = self.geometry.page_size;
            let space_for = |packed: &[Packed], bytes| {
                packed.iter().position(|packed| packed.has_space(bytes, page_size))
            };
            // Not encoded in vain, once the batch is nearly full.
            if packed.len() == self.policy.batch_pages
                && space_for(&packed, held.delta.slot_bytes_min()).is_none()
            {
                over.push(*page);
                continue;
            }
            let slot = held.delta.encode(*page);
            let (bytes, base) = (slot.len(), held.delta.base);
            let space = space_for(&packed, bytes);
            let index = match space {
                Some(index) => index,
                None if packed.len() < self.policy.batch_pages => {
                    packed.push(Packed::default());
                    packed.len() - 1
                }
                None => {
                    over.push(*page);
                    continue;
                }
            };
            let rent = policy::rent_after(page_size, spent, bytes, held.delta.version);
            let number = packed[index].add(slot);
            let version = state.deltas.buffer.begin_flush(*page).expect("just seen");
            sent.push(Sent { page: *page, version, base, rent, at: (index, number) });
        }
        drop(guard);
        drop(pins);
        over.extend_from_slice(later);
        Begun { sent, packed, lost, left: over, outcome: Ok(()) }
    }

    /// Goes on with a flush that was begun.
    ///
    /// Errors: the first, from its beginning on.
    fn send(
        &self,
        flushing: &mut Flushing,
        begun: Begun,
        (limit, stream): (Limit, Stream),
    ) -> Result<(), TierError> {
        let Begun { mut sent, mut packed, lost: unreadable, outcome: begun, .. } = begun;
        if sent.is_empty() {
            return begun;
        }
        let count_packed = packed.len() as u64;
        let fits = self.hold_delta_places(count_packed, limit)
            || (self.free_empty().is_ok() && self.hold_delta_places(count_packed, limit));
        let sent_or = match fits {
            true => self
                .take_places(&[PlacesWanted { code: BASE, count: packed.len() }], stream)
                .inspect_err(|_| {
                    self.state.lock().deltas.in_flight -= packed.len() as u64;
                }),
            false => {
                self.end_flush(&sent, false);
                let pages: Vec<PageId> = sent.iter().map(|sent| sent.page).collect();
                let written = match self.write_whole_for(&pages, stream) {
                    // An image that cannot be read must not hold the log.
                    Err(error) if limit == Limit::Share && error.concerns_the_page() => {
                        let begun = self.begin_flush(&pages);
                        self.send(flushing, begun, (Limit::Places, stream))
                    }
                    written => written,
                };
                return begun.and(written);
            }
        };
        let places = match sent_or {
            Ok(places) => places,
            Err(error) => {
                self.end_flush(&sent, false);
                return begun.and(Err(error));
            }
        };
        let page_size = self.geometry.page_size;
        let bytes = self.policy.batch_pages * page_size;
        let staging = flushing.staging.get_or_insert_with(|| AlignedBuf::zeroed(bytes));
        for ((packed, place), out) in packed.iter_mut().zip(&places).zip(staging.chunks_mut(page_size)) {
            packed.compose(*place, out);
        }
        let outcomes = self.write_runs(&places, staging);
        let failed = |index: usize| outcomes[index].is_err();
        let outcome = outcomes.iter().find_map(|outcome| outcome.clone().err()).map_or(Ok(()), Err);
        let (lost, written): (Vec<Sent>, Vec<Sent>) = sent.drain(..).partition(|sent| failed(sent.at.0));
        self.end_flush(&lost, false);
        count(&self.counters.delta_pages_written, outcomes.len());
        let published = self.publish_deltas(written, &places, unreadable);
        self.state.lock().deltas.in_flight -= places.len() as u64;
        begun.and(outcome).and(published)
    }

    /// Counts places of delta pages that are about to be written; false if that would be more than
    /// may be in use.
    fn hold_delta_places(&self, count: u64, limit: Limit) -> bool {
        let mut state = self.state.lock();
        let backed = self.backed_places(&mut state);
        let slack = SLACK_BATCHES_NORMAL * self.policy.batch_pages as u64;
        let needed = state.places_needed(slack + count);
        let deltas = state.totals().delta_pages.saturating_add(state.deltas.in_flight + count);
        let share = backed * u64::from(self.policy.deltas.pages_percent);
        let fits = needed <= backed && (limit == Limit::Places || deltas.saturating_mul(100) <= share);
        if fits {
            state.deltas.in_flight += count;
        }
        fits
    }

    fn end_flush(&self, sent: &[Sent], done: bool) {
        let mut state = self.state.lock();
        sent.iter().for_each(|sent| state.deltas.buffer.end_flush(sent.page, sent.version, done));
    }

    /// Publishes the slots that are still wanted, and frees delta pages that are empty. Settles all
    /// places; what is left out waits on.
    fn publish_deltas(
        &self,
        mut sent: Vec<Sent>,
        places: &[Place],
        lost: BTreeSet<MetaId>,
    ) -> Result<(), TierError> {
        sent.sort_unstable_by_key(|sent| sent.at);
        let mut slots = Slots { sent, places, lost, left_out: Vec::new() };
        if let Err(error) = self.publish_record(&mut slots, places) {
            self.end_flush(&slots.sent, false);
            return Err(error);
        }
        let first = slots.left_out.into_iter().next();
        first.map_or(Ok(()), |(page, error)| Err(contradiction(page, error)))
    }

    /// The place of the image that a slot counts from, if the slot is newer than what the map has.
    /// The page's entry is known, or its map page cannot be read: the write buffer had this version
    /// of the page as its newest, and what gives the page another image removes it there.
    fn image_wanted(&self, state: &mut State, sent: &Sent) -> Option<Place> {
        let held = state.deltas.buffer.get(sent.page).filter(|held| held.delta.base == sent.base)?;
        let place = held.place;
        let Some(entry) = state.entry_in_memory(self, sent.page) else { return Some(place) };
        let entry = entry.ok()?;
        let is_wanted =
            entry.has_base(sent.base) && entry.version().is_some_and(|version| version <= sent.version);
        entry.place().filter(|_| is_wanted)
    }

    /// Frees delta pages that no entry names, by a record of their own.
    pub(crate) fn free_empty_delta_pages(&self) -> Result<(), TierError> {
        let _flushing = self.flushing.lock();
        self.free_empty()
    }

    /// As [`Store::free_empty_delta_pages`], called under `flushing`.
    fn free_empty(&self) -> Result<(), TierError> {
        self.poison.check()?;
        // Each record frees some, or some are given up.
        while self.state.lock().deltas.live.empty_count() > 0 {
            self.publish_deltas(Vec::new(), &[], BTreeSet::new())?;
        }
        Ok(())
    }
}

/// Slots of delta pages that are durable, and that no entry names yet.
struct Slots<'a> {
    /// In the order of their delta pages.
    sent: Vec<Sent>,
    places: &'a [Place],
    /// Map pages that could not be read when the flush began.
    lost: BTreeSet<MetaId>,
    left_out: Vec<(PageId, Malformed)>,
}

impl Publication for Slots<'_> {
    fn kind(&self) -> Kind {
        Kind::PAGES_DELTA
    }

    fn unknown(&self, store: &Store, state: &State) -> Vec<MetaId> {
        let mut unknown = store.unknown(state, self.sent.iter().map(|sent| sent.page));
        unknown.retain(|id| !self.lost.contains(id));
        unknown
    }

    /// The slots of pages that were not written whole, freed or written in a later slot meanwhile.
    fn changes(&mut self, store: &Store, state: &mut State) -> Vec<Change> {
        let empty = state.deltas.live.empty(FREED_A_RECORD);
        let mut changes: Vec<Change> = empty.into_iter().map(|place| Change::DeltaFreed { place }).collect();
        for of_page in self.sent.chunk_by(|one, next| one.at.0 == next.at.0) {
            let (place, first) = (self.places[of_page[0].at.0], changes.len());
            for sent @ Sent { page, version, base, rent, at } in of_page {
                let is_out = self.left_out.iter().any(|(out, _)| out == page);
                let image = if is_out { None } else { store.image_wanted(state, sent) };
                let Some(image) = image else { continue };
                changes.push(Change::Delta {
                    page: *page,
                    version: *version,
                    place: image,
                    checksum: base.checksum,
                    at: SlotAt { place, slot: at.1 },
                    rent: *rent,
                });
            }
            if changes.len() > first {
                changes.insert(first, Change::DeltaPage { place });
            }
        }
        changes
    }

    fn leave_out(&mut self, state: &mut State, change: Change, error: Malformed) -> Result<(), TierError> {
        match change {
            Change::Delta { page, .. } => self.left_out.push((page, error)),
            Change::DeltaFreed { place } => state.deltas.live.give_up(place),
            _ => return Err(contradiction(PageId(0), error)),
        }
        Ok(())
    }

    fn encode(changes: &[Change]) -> Vec<u8> {
        records::encode_deltas(changes)
    }

    fn needed_from(&self) -> Lsn {
        Lsn::MAX
    }

    fn published(&mut self, _: &Store, state: &mut State, changes: &[Change]) {
        let named =
            |change: &Change| if let Change::Delta { page, .. } = change { Some(*page) } else { None };
        let named: BTreeSet<PageId> = changes.iter().filter_map(named).collect();
        for sent in &self.sent {
            state.deltas.buffer.end_flush(sent.page, sent.version, named.contains(&sent.page));
        }
    }
}
