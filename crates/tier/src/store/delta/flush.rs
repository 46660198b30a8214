//! Flushing the write buffer: slots are packed, delta pages written durably, and one record names
//! them. See the head of `delta.rs` for why a crash loses nothing.

use super::super::apply::{concerned, contradiction};
use super::super::entry::{Entry, SlotAt};
use super::super::geometry::Place;
use super::super::meta_page::MetaId;
use super::super::pins::Pins;
use super::super::records::{self, Change};
use super::super::segments::Stream;
use super::super::space::Pending;
use super::super::state::{SLACK_BATCHES_NORMAL, State, Store, count};
use super::Flushing;
use super::page::Packed;
use super::policy;
use crate::error::TierError;
use crate::granules::Base;
use firndb_base::codec::Malformed;
use firndb_base::sync::MutexGuard;
use firndb_base::{Lsn, PageId};
use firndb_device::AlignedBuf;
use firndb_log::{Kind, Log, LogErrorKind, Record};
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
            let (sent, rest) = self.begin_flush(&left);
            match sent {
                Ok((mut sent, mut packed)) => {
                    let to = (Limit::Share, stream);
                    let flushed = self.send(&mut flushing, &mut sent, &mut packed, to);
                    outcome = outcome.and(flushed);
                }
                Err(error) => outcome = outcome.and(Err(error)),
            }
            left = rest;
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

    /// Packs the first of `pages` into delta pages of one batch, and begins their flush. Returns
    /// the other pages, too.
    #[allow(clippy::type_complexity)]
    fn begin_flush(&self, pages: &[PageId]) -> (Result<(Vec<Sent>, Vec<Packed>), TierError>, Vec<PageId>) {
        // As many as may fill a batch, whatever their size.
        let (now, later) = pages.split_at(pages.len().min(16 * self.policy.batch_pages));
        let mut rest = later.to_vec();
        let unknown = self.unknown(&self.state.lock(), now.iter().copied());
        let pins = match self.pin(&unknown) {
            Ok(pins) => pins,
            Err(error) if now.len() == 1 => return (Err(error), rest),
            // Each alone: one damaged map page does not hold up the others.
            Err(_) => {
                rest.splice(0..0, now[1..].iter().copied());
                return (self.begin_flush(&now[..1]).0, rest);
            }
        };
        let (mut sent, mut packed, mut over) = (Vec::new(), Vec::<Packed>::new(), Vec::new());
        let mut guard = self.state.lock();
        let state = &mut *guard;
        for page in now {
            // Settled into its map page since it was looked for: the next attempt reads that.
            let Some(entry) = state.entry_in_memory(self, *page) else {
                over.push(*page);
                continue;
            };
            let Some(held) = state.deltas.buffer.get(*page) else { continue };
            let spent = entry.map_or(0, Entry::rent).saturating_add(held.reads);
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
        over.append(&mut rest);
        (Ok((sent, packed)), over)
    }

    fn send(
        &self,
        flushing: &mut Flushing,
        sent: &mut Vec<Sent>,
        packed: &mut [Packed],
        (limit, stream): (Limit, Stream),
    ) -> Result<(), TierError> {
        if sent.is_empty() {
            return Ok(());
        }
        let count_packed = packed.len() as u64;
        let fits = self.hold_delta_places(count_packed, limit)
            || (self.free_empty().is_ok() && self.hold_delta_places(count_packed, limit));
        let sent_or = match fits {
            true => self.take_places(packed.len(), stream).inspect_err(|_| {
                self.state.lock().deltas.in_flight -= packed.len() as u64;
            }),
            false => {
                self.end_flush(sent, false);
                let pages: Vec<PageId> = sent.iter().map(|sent| sent.page).collect();
                return match self.write_whole_for(&pages, stream) {
                    // An image that cannot be read must not hold the log.
                    Err(error) if limit == Limit::Share && error.concerns_the_page() => {
                        let (left, _) = self.begin_flush(&pages);
                        let (mut sent, mut packed) = left?;
                        self.send(flushing, &mut sent, &mut packed, (Limit::Places, stream))
                    }
                    outcome => outcome,
                };
            }
        };
        let places = match sent_or {
            Ok(places) => places,
            Err(error) => {
                self.end_flush(sent, false);
                return Err(error);
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
        let published = self.publish_deltas(written, &places);
        self.state.lock().deltas.in_flight -= places.len() as u64;
        outcome.and(published)
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

    /// Appends one record for the slots that are still wanted and for delta pages that are empty,
    /// and applies it. Settles all places.
    fn publish_deltas(&self, mut sent: Vec<Sent>, places: &[Place]) -> Result<(), TierError> {
        sent.sort_unstable_by_key(|sent| sent.at);
        let mut pins: Vec<Pins<'_>> = Vec::new();
        let mut left_out: Vec<(PageId, Malformed)> = Vec::new();
        // Bits of freed places that are kept until their bitmap page can be read.
        let mut unreadable: Vec<MetaId> = Vec::new();
        let fail = |error: TierError| {
            self.end_flush(&sent, false);
            self.drop_places(places);
            Err(error)
        };
        loop {
            let order = self.order.lock();
            let mut state = self.state.lock();
            let mut missing = self.unknown(&state, sent.iter().map(|sent| sent.page));
            let (mut changes, mut ids) = (Vec::new(), Vec::new());
            if missing.is_empty() {
                changes = self.delta_changes(&mut state, &sent, places, &left_out);
                ids = concerned(&self.geometry, &changes);
                missing = ids.iter().copied().filter(|id| !state.cache.contains(*id)).collect();
                missing.retain(|id| !unreadable.contains(id));
            }
            if !missing.is_empty() {
                drop(state);
                drop(order);
                match self.pin(&missing) {
                    Ok(pin) => pins.push(pin),
                    Err(error) => match self.unreadable(&missing) {
                        found if found.is_empty() => return fail(error),
                        found => unreadable.extend(found),
                    },
                }
                continue;
            }
            if let Err((index, error)) = state.check(&self.geometry, &changes) {
                match changes[index] {
                    Change::Delta { page, .. } => left_out.push((page, error)),
                    Change::DeltaFreed { place } => state.deltas.live.give_up(place),
                    _ => {
                        drop(state);
                        drop(order);
                        return fail(contradiction(PageId(0), error));
                    }
                }
                continue;
            }
            ids.retain(|id| state.cache.contains(*id));
            match self.append_deltas(order, state, &changes, &ids, &sent, places) {
                // What was left out waits on.
                Ok(None) => {
                    let first = left_out.into_iter().next();
                    return first.map_or(Ok(()), |(page, error)| Err(contradiction(page, error)));
                }
                Ok(Some(bytes)) => {
                    let journal = self.journal()?;
                    if let Err(error) = journal.wait_for_buffer(bytes) {
                        return fail(error.into());
                    }
                }
                Err(error) => return fail(error),
            }
        }
    }

    /// What the slots, in the order of their delta pages, amount to now: those of pages that were
    /// not written whole, freed or written in a later slot meanwhile.
    fn delta_changes(
        &self,
        state: &mut State,
        sent: &[Sent],
        places: &[Place],
        left_out: &[(PageId, Malformed)],
    ) -> Vec<Change> {
        let empty = state.deltas.live.empty(FREED_A_RECORD);
        let mut changes: Vec<Change> = empty.into_iter().map(|place| Change::DeltaFreed { place }).collect();
        for of_page in sent.chunk_by(|one, next| one.at.0 == next.at.0) {
            let (place, first) = (places[of_page[0].at.0], changes.len());
            for sent @ Sent { page, version, base, rent, at } in of_page {
                let is_out = left_out.iter().any(|(out, _)| out == page);
                let image = if is_out { None } else { self.image_wanted(state, sent) };
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

    /// The place of the image that a slot counts from, if the slot is newer than what the map has.
    /// The page's entry is known.
    fn image_wanted(&self, state: &mut State, sent: &Sent) -> Option<Place> {
        let waits = state.deltas.buffer.get(sent.page).is_some_and(|held| held.delta.base == sent.base);
        let entry = state.entry_in_memory(self, sent.page)?.ok()?;
        let is_wanted = waits
            && entry.has_base(sent.base)
            && entry.version().is_some_and(|version| version <= sent.version);
        entry.place().filter(|_| is_wanted)
    }

    /// Appends and applies, with all pages concerned in memory. If the log's buffer has no space
    /// for the record, does nothing and returns the bytes that it needs.
    fn append_deltas<'a>(
        &'a self,
        _order: MutexGuard<'_, ()>,
        mut state: MutexGuard<'a, State>,
        changes: &[Change],
        ids: &[MetaId],
        sent: &[Sent],
        places: &[Place],
    ) -> Result<Option<u64>, TierError> {
        let (mut appended, mut record) = (None, Vec::new());
        if !changes.is_empty() {
            ids.iter().for_each(|id| assert!(state.cache.pin(*id), "seen in the cache under the same lock"));
            drop(state);
            let body = records::encode_deltas(changes);
            let outcome = self.journal()?.append(Record { kind: Kind::PAGES_DELTA, body: &body });
            record.extend_from_slice(&body);
            state = self.state.lock();
            ids.iter().for_each(|id| state.cache.unpin(*id));
            match outcome {
                Err(error) if error.kind == LogErrorKind::BufferFull => {
                    return Ok(Some(Log::framed_len(body.len())));
                }
                Err(error) => return Err(error.into()),
                Ok(at) => appended = Some(at),
            }
        }
        let mut unused: Vec<Place> = places.to_vec();
        if let Some(appended) = appended {
            let mut pending = Pending {
                end: appended.end,
                needed_from: appended.first,
                pages: Vec::new(),
                places: Vec::new(),
            };
            for change in changes {
                match *change {
                    Change::Delta { page, .. } => {
                        let held =
                            state.deltas.buffer.get(page).expect("seen under the same hold of `order`");
                        pending.needed_from = pending.needed_from.min(held.recovery);
                    }
                    Change::DeltaPage { place } => unused.retain(|taken| *taken != place),
                    Change::DeltaFreed { place } => pending.places.push(place),
                    _ => unreachable!("only deltas are published here"),
                }
            }
            let record = Record { kind: Kind::PAGES_DELTA, body: &record };
            state
                .apply(&self.geometry, (appended.first, record), changes)
                .expect("checked before it was appended, under the same hold of `order`");
            places
                .iter()
                .filter(|place| !unused.contains(place))
                .for_each(|place| state.space.placed(*place));
            state.space.hold_freed(&self.geometry, pending);
        }
        unused.iter().for_each(|place| state.space.drop_place(&self.geometry, *place));
        let named =
            |change: &Change| if let Change::Delta { page, .. } = change { Some(*page) } else { None };
        let named: BTreeSet<PageId> = changes.iter().filter_map(named).collect();
        for sent in sent {
            state.deltas.buffer.end_flush(sent.page, sent.version, named.contains(&sent.page));
        }
        self.progress.notify_all();
        Ok(None)
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
            self.publish_deltas(Vec::new(), &[])?;
        }
        Ok(())
    }
}
