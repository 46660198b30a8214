//! Delta pages that become free: counting what lives, gathering slots, writing pages whole.

use super::super::geometry::Place;
use super::super::segments::Stream;
use super::super::state::{State, Store, count};
use super::page::{self, Packed};
use super::slot::Delta;
use crate::error::{TierError, TierErrorKind};
use firndb_base::{PageId, Progress};
use firndb_device::AlignedBuf;
use std::collections::BTreeSet;

/// Delta pages among which a step chooses.
const LOOKED_AT: usize = 4096;
/// Delta pages that a step reads.
const READ_A_STEP: usize = 8;
/// A step frees empty delta pages once there are this many; a caller that needs space frees any.
const EMPTY_A_STEP: u64 = 16;

impl Store {
    /// A step that learns about delta pages or makes some free. Called by a background thread.
    pub(crate) fn clean_deltas(&self) -> Result<Progress, TierError> {
        if self.journal.get().is_none() || self.poison.check().is_err() {
            return Ok(Progress::Idle);
        }
        let (empty, unknown, crowded, doubtful) = {
            let mut state = self.state.lock();
            let unknown = state.deltas.live.next_unknown(&self.geometry);
            let limit = self.backed_places(&mut state) * u64::from(self.policy.deltas.pages_percent) / 100;
            let crowded = state.totals().delta_pages.saturating_mul(8) > limit * 7;
            (state.deltas.live.empty_count(), unknown, crowded, state.deltas.live.doubtful() as u64)
        };
        if empty >= EMPTY_A_STEP || (crowded && empty > 0) {
            return self.free_empty_delta_pages().map(|()| Progress::Worked);
        }
        if let Some(place) = unknown {
            match self.count_live(place) {
                Err(error) if error.concerns_the_page() => {
                    self.state.lock().deltas.live.counted(&self.geometry, place, 0);
                }
                other => drop(other?),
            }
            return Ok(Progress::Worked);
        }
        let is_wanted = doubtful >= EMPTY_A_STEP || (crowded && doubtful > 0);
        if is_wanted && self.state.lock().deltas.live.walk_is_due() {
            return self.walk_step().map(|_| Progress::Worked);
        }
        // Each slot that is gathered, and each page written whole for it, is logged.
        if crowded && self.journal()?.has_spare() { self.gather() } else { Ok(Progress::Idle) }
    }

    /// The slots of a delta page that can be read, and whether that is all of them.
    fn slots_at(&self, place: Place) -> (Vec<(u8, PageId, Delta)>, bool) {
        let mut bytes = AlignedBuf::zeroed(self.geometry.page_size);
        count(&self.counters.delta_pages_read, 1);
        if self.device.read(self.geometry.place_offset(place), &mut bytes).is_err() {
            return (Vec::new(), false);
        }
        let Ok(slots) = page::slots_of(&bytes) else { return (Vec::new(), false) };
        let decoded = (0..slots).filter_map(|number| {
            let slot = page::slot(&bytes, number as u8).ok()?;
            let (page, delta) = Delta::decode(slot, place, self.geometry.page_size).ok()?;
            Some((number as u8, page, delta))
        });
        let decoded: Vec<_> = decoded.collect();
        let all = decoded.len() == slots;
        (decoded, all)
    }

    /// Of the slots of the delta page at `place`, those that entries name, as far as the entries
    /// can be read. Their number is noted if all could be read, and are what the map says:
    /// of a damaged page, entries may name what cannot be read, so it is doubtful.
    fn count_live(&self, place: Place) -> Result<Vec<(PageId, Delta)>, TierError> {
        let (mut slots, mut all) = self.slots_at(place);
        let (mut pins, mut unreadable) = (Vec::new(), BTreeSet::new());
        let mut state = loop {
            let state = self.state.lock();
            let groups = state.space.groups();
            slots.retain(|(_, page, _)| page.0 != 0 && self.geometry.group_of_page(*page) < groups);
            let mut unknown = self.unknown(&state, slots.iter().map(|(_, page, _)| *page));
            unknown.retain(|id| !unreadable.contains(id));
            if unknown.is_empty() {
                break state;
            }
            drop(state);
            match self.pin_readable(&unknown) {
                Ok((pinned, failed)) => {
                    pins.extend(pinned);
                    unreadable.extend(failed.into_keys());
                }
                // A group was cut off meanwhile: what names pages of it is dead.
                Err(error) if error.kind == TierErrorKind::NotAllocated => {}
                Err(error) => return Err(error),
            }
        };
        let mut live = Vec::new();
        for (number, page, delta) in slots {
            let Some(Ok(entry)) = state.entry_in_memory(self, page) else {
                all = false;
                continue;
            };
            if entry.slot().is_none_or(|at| at.place != place || at.slot != number) {
                continue;
            }
            match entry.version() == Some(delta.version) {
                true => live.push((page, delta)),
                // It is what lay there before.
                false => all = false,
            }
        }
        state.deltas.live.counted(&self.geometry, place, if all { live.len() } else { 0 });
        Ok(live)
    }

    /// Makes delta pages free of those with the fewest slots that live: the slots go to new delta
    /// pages if they fill at most half as many, else their pages are written whole.
    fn gather(&self) -> Result<Progress, TierError> {
        let victims = self.state.lock().deltas.live.emptiest(&self.geometry, READ_A_STEP, LOOKED_AT);
        self.gather_from(&victims, victims.len() / 2, Stream::New)
    }

    /// Makes these delta pages free: their slots go to new delta pages if they fill at most `most`,
    /// else their pages are written whole. What cannot be read stays, and its delta page comes last
    /// from now on.
    pub(crate) fn gather_from(
        &self,
        victims: &[Place],
        most: usize,
        stream: Stream,
    ) -> Result<Progress, TierError> {
        let doubts = self.state.lock().deltas.live.doubts();
        let (live, packed) = self.live_of(victims)?;
        let pages: Vec<PageId> = live.iter().map(|(page, _)| *page).collect();
        if pages.is_empty() {
            // Victims that became doubtful come last from now on, and the next step meets others.
            let put_behind = self.state.lock().deltas.live.doubts() > doubts;
            return Ok(if put_behind { Progress::Worked } else { Progress::Idle });
        }
        let gathered = match self.policy.deltas.enabled && packed <= most {
            true => self.pack(live, stream),
            false => self.write_whole_for(&pages, stream),
        };
        match gathered {
            Err(error) if error.concerns_the_page() => {
                let put_behind = self.state.lock().deltas.live.put_behind(&self.geometry, victims);
                Ok(if put_behind { Progress::Worked } else { Progress::Idle })
            }
            gathered => gathered.map(|()| Progress::Worked),
        }
    }

    /// Makes these delta pages free if their slots fill at most half as many, or if no deltas are
    /// written any more; false if they stay. What cannot be read stays, too.
    pub(crate) fn gather_dense(&self, victims: &[Place]) -> Result<bool, TierError> {
        let (live, packed) = self.live_of(victims)?;
        let gathered = if !self.policy.deltas.enabled {
            let pages: Vec<PageId> = live.iter().map(|(page, _)| *page).collect();
            self.write_whole(&pages)
        } else if packed <= victims.len() / 2 {
            self.pack(live, Stream::Moved)
        } else {
            return Ok(false);
        };
        match gathered {
            Err(error) if error.concerns_the_page() => Ok(true),
            gathered => gathered.map(|()| true),
        }
    }

    /// The slots that live of delta pages, as far as these can be read, and how many delta pages
    /// they fill.
    fn live_of(&self, victims: &[Place]) -> Result<(Vec<(PageId, Delta)>, usize), TierError> {
        let mut live: Vec<(PageId, Delta)> = Vec::new();
        for place in victims {
            match self.count_live(*place) {
                // Damage costs what it concerns.
                Err(error) if error.concerns_the_page() => {}
                counted => live.extend(counted?),
            }
        }
        let mut packed: Vec<Packed> = Vec::new();
        for (page, delta) in &live {
            let slot = delta.encode(*page);
            let fits = |packed: &&mut Packed| packed.has_space(slot.len(), self.geometry.page_size);
            match packed.iter_mut().find(fits) {
                Some(packed) => drop(packed.add(slot)),
                None => {
                    let mut last = Packed::default();
                    last.add(slot);
                    packed.push(last);
                }
            }
        }
        Ok((live, packed.len()))
    }

    /// Writes slots to new delta pages.
    fn pack(&self, live: Vec<(PageId, Delta)>, stream: Stream) -> Result<(), TierError> {
        let pages: Vec<PageId> = live.iter().map(|(page, _)| *page).collect();
        {
            let mut state = self.state.lock();
            for (page, delta) in live {
                state.gather(self, page, delta);
            }
        }
        count(&self.counters.deltas_gathered, pages.len());
        self.flush_deltas_for(&pages, stream)
    }

    /// Writes pages whole that have a delta, in the newest version that the store holds. All of it
    /// is tried.
    ///
    /// Errors: the first; what it concerns stays as it is.
    pub(crate) fn write_whole(&self, pages: &[PageId]) -> Result<(), TierError> {
        self.write_whole_for(pages, Stream::New)
    }

    /// As [`Store::write_whole`], in a stream.
    pub(crate) fn write_whole_for(&self, pages: &[PageId], stream: Stream) -> Result<(), TierError> {
        // What cannot be looked up fails below.
        let has_delta = |page: &PageId| self.look(*page).map_or(true, |looked| looked.delta_is_elsewhere());
        let pages: Vec<PageId> = pages.iter().copied().filter(has_delta).collect();
        if pages.is_empty() {
            return Ok(());
        }
        count(&self.counters.deltas_merged, pages.len());
        self.rewrite(&pages, stream).outcome
    }

    /// Gives up delta pages for the sake of pages to be allocated; false if none could be.
    pub(crate) fn give_up_delta_pages(&self) -> Result<bool, TierError> {
        let before = self.state.lock().totals().delta_pages;
        if before == 0 {
            return Ok(false);
        }
        // All groups: what is not learned may hold them.
        self.learn_all()?;
        self.free_empty_delta_pages()?;
        let some = self.state.lock().deltas.live.emptiest(&self.geometry, usize::MAX, usize::MAX);
        let mut freed = self.state.lock().totals().delta_pages < before;
        for victims in some.chunks(READ_A_STEP) {
            if freed {
                break;
            }
            for place in victims {
                // Damage costs what it concerns; the other delta pages may do.
                let Ok(live) = self.count_live(*place) else { continue };
                let pages: Vec<PageId> = live.iter().map(|(page, _)| *page).collect();
                if let Err(error) = self.write_whole(&pages)
                    && !error.concerns_the_page()
                {
                    return Err(error);
                }
            }
            self.free_empty_delta_pages()?;
            freed = self.state.lock().totals().delta_pages < before;
        }
        if !freed && self.state.lock().deltas.live.doubtful() > 0 {
            self.walk_all()?;
            self.free_empty_delta_pages()?;
            freed = self.state.lock().totals().delta_pages < before;
        }
        Ok(freed)
    }
}

impl State {
    /// Puts a slot that lives into the write buffer, unless a later version waits there. The map
    /// keeps the old slot until then, so no log is needed for it.
    fn gather(&mut self, store: &Store, page: PageId, delta: Delta) {
        let Some(Ok(entry)) = self.entry_in_memory(store, page) else { return };
        let is_newest = self.newest_version(page, entry) == Some(delta.version);
        if is_newest
            && entry.slot().is_some()
            && entry.has_base(delta.base)
            && let Some(place) = entry.place()
        {
            self.deltas.buffer.put(page, delta, place);
        }
    }
}
