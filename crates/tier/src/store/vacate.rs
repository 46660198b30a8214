//! Emptying sparse groups, so that their space can be returned: a background step, and the most of
//! what compaction does.
//!
//! Deleted rows leave free places everywhere, and `give_back.rs` returns whole groups. So where
//! much is free the groups with the fewest used places are *closed*: no thread takes a place there
//! any more. The page map is walked once, and what lies in closed groups is written elsewhere, in
//! the same version (`clean_space.rs`). An image stays if its page was written meanwhile and the
//! new version waits as a delta: the map pages of such pages are looked at once more. Then the
//! groups are empty, but for what could not be read, and are given back: the last one of the file
//! is cut off if none of its page numbers is in use, the places of others are discarded. Those that
//! are not empty are opened again. Compaction chooses those first without which the file is shorter
//! (`shorten.rs`).
//!
//! Why a crash is harmless at each step: a move is a write like any other (`write.rs`), that a
//! group is closed is in memory only, and giving back has its own order of writes.
//!
//! Why it makes no store full: places of closed groups do not count as places with space, and
//! groups are closed only as far as the others are enough for all that is needed. When more is
//! needed they are opened again before the file grows (`grow.rs`).
//!
//! Bounds: nothing is moved while the log has little space left, since each move is logged, and all
//! but the last of the log is open to map records (`journal.rs`). An image is copied once, or twice
//! if its page was written meanwhile. In the background, three images at most for four places of a
//! group; groups are emptied while a quarter more is free than growth aims at, and only if what
//! comes back is a thirty-second of the file, which is a few times the map pages read for it.

use super::circle::{COPIED_QUARTERS_MAX, Cleaning, Extent, Vacating};
use super::geometry::Place;
use super::give_back::GivenBack;
use super::state::{State, Store, count};
use crate::error::{TierError, TierErrorKind};
use firndb_base::{PageId, Progress};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// In the background at least one in so many groups comes back.
const GROUPS_SHARE: u64 = 32;

/// What compaction would do, or does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vacancy {
    /// Groups that are being emptied, or would be, and bytes of their places.
    pub groups: u64,
    /// Bytes that come back with these, and with groups that are empty already.
    pub bytes: u64,
    /// Images and delta pages to be moved for it.
    pub places_used: u64,
    /// Map pages walked, and to be walked.
    pub maps: (u64, u64),
}

pub(crate) fn log_is_nearly_full() -> TierError {
    let message = "no pages are moved while the log is nearly full: try again when a backup, the archive or a long \
                   transaction holds less of it";
    TierError::new(TierErrorKind::LogFull, message)
}

impl Store {
    /// One step of emptying sparse groups if much of the file is free. A background step; does
    /// nothing if another thread is at it.
    pub(crate) fn vacate_step(&self) -> Result<Progress, TierError> {
        match self.cleaning.try_lock() {
            Some(mut cleaning) => {
                // A group that the file gets later is another one.
                let groups = self.state.lock().space.groups();
                cleaning.not_emptied.retain(|group| *group < groups);
                self.vacate(&mut cleaning, Extent::Spacious)
            }
            None => Ok(Progress::Idle),
        }
    }

    /// One step of compaction: learns what is free, empties groups as far as growth aims at, and
    /// gives back what is empty. `Idle` when nothing is left to be done.
    ///
    /// Errors: those of devices and of the log. Damaged pages stay where they are.
    pub fn compact_step(&self) -> Result<Progress, TierError> {
        self.poison.check()?;
        self.journal()?;
        if self.learn_some()? {
            return Ok(Progress::Worked);
        }
        let vacated = {
            let mut cleaning = self.cleaning.lock();
            match self.refill_before_end(&mut cleaning)? {
                Progress::Worked => Progress::Worked,
                Progress::Idle => self.vacate(&mut cleaning, Extent::Tight)?,
            }
        };
        match vacated {
            Progress::Worked => Ok(Progress::Worked),
            Progress::Idle => {
                self.release_all_freed()?;
                self.give_back_one(Extent::Tight)
            }
        }
    }

    /// Lets compaction try again what could not be emptied before.
    pub fn begin_compaction(&self) {
        let holes = self.state.lock().space.groups();
        let mut cleaning = self.cleaning.lock();
        cleaning.not_emptied.clear();
        cleaning.refills_left = holes;
        self.discard_all_again();
    }

    /// Ends compaction, or the background's emptying, where it is: closed groups are in use again.
    pub fn abandon_compaction(&self) {
        let mut cleaning = self.cleaning.lock();
        if cleaning.vacating.take().is_some() {
            let _growth = self.growth.lock();
            self.state.lock().space.open_closed();
        }
    }

    /// What compaction is at, or else what it would do to the store's file as it is. Reads bitmap
    /// pages that were not read since opening.
    pub fn vacancy(&self) -> Result<Vacancy, TierError> {
        self.learn_all()?;
        let cleaning = self.cleaning.lock();
        let mut state = self.state.lock();
        if let Some(journal) = self.journal.get() {
            state.space.release_freed(&self.geometry, journal.durable());
        }
        let group_bytes = self.geometry.places_per_group * self.geometry.page_size as u64;
        if let Some(Vacating { groups, next, maps, .. }) = &cleaning.vacating {
            let groups = groups.len() as u64;
            return Ok(Vacancy { groups, bytes: groups * group_bytes, places_used: 0, maps: (*next, *maps) });
        }
        let chosen = self.choose(&mut state, &BTreeSet::new(), Extent::Tight);
        let surplus = self.surplus_groups(&mut state, Extent::Tight);
        let empty = self.empty_groups(&state).min(surplus.saturating_sub(chosen.len() as u64));
        Ok(Vacancy {
            groups: chosen.len() as u64,
            bytes: (chosen.len() as u64 + empty) * group_bytes,
            places_used: chosen.iter().map(|(_, used)| used).sum(),
            maps: (
                0,
                if chosen.is_empty() { 0 } else { state.space.groups() * self.geometry.maps_per_group },
            ),
        })
    }

    fn vacate(&self, cleaning: &mut Cleaning, extent: Extent) -> Result<Progress, TierError> {
        if extent == Extent::Tight && cleaning.circle.take().is_some() {
            self.state.lock().space.segments.avoid(BTreeSet::new());
        }
        // Segments are being emptied.
        if cleaning.circle.is_some() || self.journal.get().is_none() || self.poison.check().is_err() {
            return Ok(Progress::Idle);
        }
        let is_idle = cleaning.vacating.is_none();
        // What the device does not take back is not worth a copy.
        let rests = || self.written() < cleaning.vacates_from || self.state.lock().discards.refuses();
        if is_idle && extent == Extent::Spacious && rests() {
            return Ok(Progress::Idle);
        }
        if !self.journal()?.has_spare() {
            return match extent {
                Extent::Spacious => Ok(Progress::Idle),
                Extent::Tight => Err(log_is_nearly_full()),
            };
        }
        if is_idle && !self.begin_vacating(cleaning, extent)? {
            return Ok(Progress::Idle);
        }
        self.go_on_vacating(cleaning).map(|()| Progress::Worked)
    }

    /// Groups that may go so that what is left is as much as `extent` asks for.
    fn surplus_groups(&self, state: &mut State, extent: Extent) -> u64 {
        let kept = self.places_kept(state, extent).div_ceil(self.geometry.places_per_group).max(1);
        (self.backed_places(state) / self.geometry.places_per_group).saturating_sub(kept)
    }

    /// Groups with space and without a used place.
    fn empty_groups(&self, state: &State) -> u64 {
        let all = self.geometry.places_per_group;
        state.space.open_groups().filter(|(_, available)| u64::from(*available) == all).count() as u64
    }

    /// The groups to be emptied, and how many of their places are in use or held.
    fn choose(&self, state: &mut State, except: &BTreeSet<u64>, extent: Extent) -> Vec<(u64, u64)> {
        if state.space.next_to_learn().is_some() {
            return Vec::new();
        }
        let end = match extent {
            Extent::Tight => self.wanted_end(state),
            Extent::Spacious => u64::MAX,
        };
        let surplus = self.surplus_groups(state, extent);
        if extent == Extent::Spacious && surplus * GROUPS_SHARE < state.space.groups() {
            return Vec::new();
        }
        let all = self.geometry.places_per_group;
        let is_free =
            |group: u64| !except.contains(&group) && !state.space.has_held_shadows(&self.geometry, group);
        let used = state.space.open_groups().map(|(group, available)| (group, all - u64::from(available)));
        let (within, beyond): (Vec<_>, Vec<_>) = used.partition(|(group, _)| *group < end);
        // Without those the file is shorter: they go first, from its end, the empty ones included.
        let most = usize::try_from(surplus).unwrap_or(usize::MAX);
        let mut beyond: Vec<(u64, u64)> = beyond
            .into_iter()
            .rev()
            .filter(|(group, used)| *used == 0 || is_free(*group))
            .take(most)
            .collect();
        let empty = within.iter().filter(|(_, used)| *used == 0).count();
        let is_worth_it = |(group, used): &(u64, u64)| {
            let is_sparse = 4 * used <= COPIED_QUARTERS_MAX * all || extent == Extent::Tight;
            *used > 0 && *used < all && is_sparse && is_free(*group)
        };
        let mut found: Vec<(u64, u64)> = within.into_iter().filter(is_worth_it).collect();
        found.sort_unstable_by_key(|(group, used)| (*used, Reverse(*group)));
        found.truncate(most.saturating_sub(beyond.len()).saturating_sub(empty));
        beyond.retain(|(_, used)| *used > 0);
        found.extend(beyond);
        found
    }

    /// Chooses and closes groups; false if none is to be emptied.
    fn begin_vacating(&self, cleaning: &mut Cleaning, extent: Extent) -> Result<bool, TierError> {
        if self.choose(&mut self.state.lock(), &cleaning.not_emptied, extent).is_empty() {
            return Ok(false);
        }
        // A place that waits for its record counts as used.
        self.release_all_freed()?;
        let mut state = self.state.lock();
        let groups = self.choose(&mut state, &cleaning.not_emptied, extent);
        // Writes under way may end after the walk has passed their pages.
        let is_quiet = |group: &u64| !state.space.is_held(&self.geometry, *group);
        let groups: BTreeSet<u64> = groups.into_iter().map(|(group, _)| group).filter(is_quiet).collect();
        groups.iter().for_each(|group| state.space.close_places(*group));
        self.debug_assert_backed(&mut state);
        let maps = state.space.groups() * self.geometry.maps_per_group;
        drop(state);
        let is_any = !groups.is_empty();
        cleaning.vacating = is_any.then(|| Vacating::of(groups, maps));
        if !is_any {
            // Each attempt has the log flushed.
            cleaning.vacates_from = self.written() + self.rest();
        }
        Ok(is_any)
    }

    /// Moves about a batch; at the end of the walk gives back what is empty.
    fn go_on_vacating(&self, cleaning: &mut Cleaning) -> Result<(), TierError> {
        let Some(vacating) = cleaning.vacating.as_mut() else { return Ok(()) };
        {
            let state = self.state.lock();
            // Others are in use again, since they are needed.
            vacating.groups.retain(|group| state.space.is_closed(*group));
        }
        let Vacating { groups, next, maps, again, in_use } = vacating;
        let is_chosen = |place: Place| groups.contains(&self.geometry.group_of_place(place));
        if *next < *maps && !groups.is_empty() {
            let moved = self.move_out(&is_chosen, None, *next..*maps, &mut 0)?;
            *next += moved.maps;
            let map_of = |(page, _): &(PageId, Place)| page.0 / self.geometry.entries_per_map;
            again.extend(moved.declined.iter().map(map_of));
            return Ok(());
        }
        if !again.is_empty() && !groups.is_empty() {
            let moved = self.move_out(&is_chosen, None, again.iter().copied(), &mut 0)?;
            (0..moved.maps).for_each(|_| _ = again.pop_first());
            let group_of = |(_, place): &(PageId, Place)| self.geometry.group_of_place(*place);
            in_use.extend(moved.declined.iter().map(group_of));
            return Ok(());
        }
        // Nothing else keeps their groups from being empty.
        match self.free_empty_delta_pages() {
            Err(error) if !error.concerns_the_page() => return Err(error),
            _ => {}
        }
        self.release_all_freed()?;
        let mut emptied = 0;
        // From the end, so that the file becomes shorter by as many as it can.
        while let Some(group) = groups.pop_last() {
            match self.give_back_closed(group)? {
                GivenBack::Yes => emptied += 1,
                GivenBack::No if !in_use.contains(&group) => _ = cleaning.not_emptied.insert(group),
                // It may be chosen again.
                GivenBack::No | GivenBack::NotNow => {}
            }
        }
        cleaning.vacating = None;
        count(&self.counters.groups_emptied, emptied);
        // Growth had groups opened again, or nothing could be moved: not at once once more.
        cleaning.vacates_from = self.written() + if emptied > 0 { 0 } else { self.rest() };
        Ok(())
    }
}

/// Delta pages that compaction looks at, those with the fewest slots first.
#[derive(Debug)]
pub struct SparseDeltas(Vec<Place>);

impl Store {
    /// All delta pages that are known.
    pub fn sparse_deltas(&self) -> SparseDeltas {
        SparseDeltas(self.state.lock().deltas.live.emptiest(&self.geometry, usize::MAX, usize::MAX))
    }

    /// One step of packing slots of sparse delta pages together, as long as they fill at most half
    /// as many pages. `Idle` when nothing is left to be done.
    ///
    /// Errors: those of devices and of the log.
    pub fn compact_deltas_step(&self, sparse: &mut SparseDeltas) -> Result<Progress, TierError> {
        let victims = &sparse.0[..sparse.0.len().min(DELTA_PAGES_A_STEP)];
        if !victims.is_empty() {
            if !self.journal()?.has_spare() {
                return Err(log_is_nearly_full());
            }
            if self.gather_dense(victims)? {
                sparse.0.drain(..victims.len());
                return Ok(Progress::Worked);
            }
        }
        match self.free_empty_delta_pages() {
            Err(error) if error.concerns_the_page() => Ok(Progress::Idle),
            outcome => outcome.map(|()| Progress::Idle),
        }
    }
}

/// Delta pages packed together in one step.
const DELTA_PAGES_A_STEP: usize = 16;
