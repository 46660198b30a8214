//! The sweep: carries what the map log holds into the metadata pages.
//!
//! It goes through the groups in a circle. A round takes the next groups, and writes their dirty
//! bitmap page and each map page that has entries in the overlay: the entries of a map page that
//! came together since the sweep was there last cost one write. A group without changes costs
//! nothing. How fast it goes follows from how full overlay and map log are, and from how much log a
//! circle would drop for each page it writes (`sweep_state.rs`).
//!
//! Why a crash at any point loses nothing:
//! * Before a round a durable totals page names its pages, with the map log's first block: nothing
//!   is dropped yet that the pages of this round, or of an unfinished one, lack.
//! * During the round each page's other slot holds the version before, and map log and log have all
//!   that this lacks. A page with a slot that was torn is named by the totals page.
//! * After the round's sync its pages are whole. The totals page of a *later* round drops blocks of
//!   the map log: those from before the sweep was last at the place where it is now.
//! * A page that cannot be read is not written: what it lacks is in the map log once more before
//!   anything that has it is dropped (`carried.rs`).
//! * An opening writes the pages that were torn again, whole, before another round is named.

use super::geometry::Geometry;
use super::map_block::Anchor;
use super::map_log::{BATCH_BYTES, Position};
use super::meta_page::MetaId;
use super::pins::{Failed, Pins};
use super::state::{State, Store};
use super::sweep_state;
use super::totals;
use super::write_back::Rounds;
use crate::error::{TierError, TierErrorKind};

/// Metadata pages written in one round, and those of one more group.
const ROUND_PAGES: usize = 256;
/// Groups that are looked at in one hold of the store's lock.
const LOOKED_AT_ONCE: usize = 4096;
/// Bytes of records that may wait for a checkpoint, at least.
const FRESH_LEAST_BYTES: usize = 16 << 10;

/// What a round writes, and where the sweep is after it.
struct Round {
    ids: Vec<MetaId>,
    to: Position,
    groups: u64,
}

impl State {
    /// Adds the pages of the groups behind a round that have something to write, until it has
    /// `limit` pages and those of one group at most; of [`LOOKED_AT_ONCE`] groups at most. Returns
    /// whether the round is complete: it goes one circle at most.
    fn extend_round(&self, geometry: &Geometry, round: &mut Round, limit: usize) -> bool {
        round.groups = self.space.groups();
        let maps = geometry.maps_per_group;
        let wrap = |at: Position| match at.group < round.groups {
            true => at,
            false => Position { circle: at.circle + 1, group: 0 },
        };
        let end = self.sweep.at.full_circle();
        for _ in 0..LOOKED_AT_ONCE {
            if round.ids.len() >= limit || round.to >= end {
                return true;
            }
            let at = wrap(round.to);
            let bits = MetaId::Bitmap(at.group);
            if self.cache.is_dirty(bits) || self.deferred.contains(at.group) {
                round.ids.push(bits);
            }
            let of_group = self.overlay.maps(at.group * maps, (at.group + 1) * maps);
            round.ids.extend(of_group.map(MetaId::Map));
            round.to = wrap(Position { group: at.group + 1, ..at });
        }
        false
    }

    /// Whether metadata pages of `group` lack something.
    pub(crate) fn lacks(&self, geometry: &Geometry, group: u64) -> bool {
        let maps = geometry.maps_per_group;
        self.deferred.contains(group)
            || self.cache.is_dirty(MetaId::Bitmap(group))
            || self.overlay.maps(group * maps, (group + 1) * maps).next().is_some()
    }

    /// Whether the sweep has to go on now.
    fn is_behind(&self, store: &Store) -> bool {
        let capacity = store.geometry.blocks(self.space.groups());
        self.sweep.owed > 0
            || self.overlay.bytes() > self.overlay_max()
            || self.map_log.live() * 4 > capacity * 3
            || self.cache.dirty() > self.cache.budget_pages() / 2
    }

    /// Blocks that the map log should have, for the sweep to keep pace with it: no more than the
    /// file has, and no more than is cheap.
    pub(crate) fn map_log_capacity(&self, geometry: &Geometry) -> u64 {
        let blocks = geometry.blocks(self.space.groups());
        // A circle reads damaged pages again, and makes them no better.
        if self.sweep.meets_damage() {
            return blocks;
        }
        let waiting = self.overlay.maps_waiting() + self.cache.dirty() + self.deferred.groups();
        sweep_state::cheap_capacity(waiting as u64).min(blocks)
    }

    /// Bytes that the overlay may take: a sixth of the map's budget at opening. (A recovery has
    /// twice that: the map log has entries for a full circle, of which half have been swept on
    /// average.)
    pub(crate) fn overlay_max(&self) -> usize {
        self.cache.budget_at_opening() / 6
    }
    /// Bytes of records that may wait for the next checkpoint.
    pub(crate) fn fresh_max(&self) -> usize {
        // A little however small the budget is: each append flushes the database's log.
        (self.cache.budget_at_opening() / 32).clamp(FRESH_LEAST_BYTES, BATCH_BYTES)
    }
}

impl Store {
    /// Sweeps until it has caught up, a circle at most.
    pub(crate) fn keep_pace(&self, rounds: &mut Rounds) -> Result<(), TierError> {
        let end = self.state.lock().sweep.at.full_circle();
        while {
            let state = self.state.lock();
            state.is_behind(self) && state.sweep.at < end
        } {
            self.sweep_round(rounds)?;
        }
        Ok(())
    }

    /// Sweeps full circle: every record up to the beginning of the call is then contained in the
    /// metadata pages, and the map log is empty but for what is carried on. Returns whether nothing
    /// is.
    pub(crate) fn sweep_all(&self, rounds: &mut Rounds) -> Result<bool, TierError> {
        let (end, upto) = {
            let state = self.state.lock();
            // A round that failed may have marked blocks with where it would have ended.
            let at = state.map_log.newest_mark().map_or(state.sweep.at, |mark| mark.max(state.sweep.at));
            (at.full_circle(), state.map_log.last())
        };
        while self.state.lock().sweep.at < end {
            self.sweep_round(rounds)?;
        }
        if self.state.lock().sweep.left_out.is_some() {
            return Err(TierError::new(
                TierErrorKind::Damaged,
                "too many pages of the page map that have changed are damaged, and the map log has no space for \
                 what they lack: run a check, then restore the database from a backup",
            ));
        }
        // In both slots: were the newer one damaged, the older would lead to a log that has an end
        // too early.
        for _ in 0..2 {
            let anchor = {
                let state = self.state.lock();
                state.map_log.anchor_of_all(state.sweep.swept(), upto)
            };
            self.announce(rounds, anchor, &[])?;
        }
        Ok(self.state.lock().map_log.live() == 0)
    }

    /// Continues the map log, which is empty, at its beginning, unless it leaves the blocks of
    /// `group`, the last one, alone anyway.
    pub(crate) fn vacate_blocks(&self, rounds: &mut Rounds, group: u64) -> Result<(), TierError> {
        let anchor = {
            let state = &mut *self.state.lock();
            if !state.map_log.uses_from(self.geometry.blocks(group)) {
                return Ok(());
            }
            state.map_log.begin_at_zero();
            state.map_log.anchor_of_all(state.sweep.swept(), state.map_log.anchor().covered)
        };
        self.announce(rounds, anchor, &[])?;
        self.announce(rounds, anchor, &[])
    }

    /// One round. Called with the lock on rounds, under none of the store's others.
    pub(crate) fn sweep_round(&self, rounds: &mut Rounds) -> Result<(), TierError> {
        self.poison.check()?;
        self.journal()?;
        self.mend_torn(rounds)?;
        let names_max = totals::names_max(self.geometry.body_bytes());
        let mut round = Round { ids: Vec::new(), to: self.state.lock().sweep.at, groups: 0 };
        while {
            let state = self.state.lock();
            let limit = ROUND_PAGES.min(names_max).min(state.cache.budget_pages() / 2);
            !state.extend_round(&self.geometry, &mut round, limit)
        } {}
        let (mut pins, failed) = self.pin_readable(&round.ids)?;
        let (damaged, mut ids): (Vec<MetaId>, Vec<MetaId>) =
            round.ids.iter().partition(|id| failed.contains_key(id));
        let (read_since, are_carried) = self.carry_on(rounds, &damaged, round.to)?;
        ids.extend(read_since.ids());
        pins.push(read_since);
        // Those that may still be torn are named, too.
        let names_max = names_max - self.state.lock().sweep.torn.len();
        for some in ids.chunks(names_max) {
            let anchor = {
                let state = self.state.lock();
                state.map_log.anchor_at(state.sweep.swept())
            };
            self.announce(rounds, anchor, some)?;
            self.write_pages(rounds, some)?;
        }
        drop(pins);
        let mut state = self.state.lock();
        if ids.len() < round.ids.len() {
            state.sweep.met_damage(round.to);
        }
        state.sweep.moved(round.to, round.groups, !are_carried);
        let swept = state.sweep.swept();
        let (live, anchor) = (state.map_log.live(), state.map_log.anchor_at(swept));
        let full = live * 4 > self.geometry.blocks(state.space.groups()) * 3;
        let drops = anchor != state.map_log.anchor();
        drop(state);
        // Otherwise the next round that writes pages drops what it can.
        if full && drops { self.announce(rounds, anchor, &[]) } else { Ok(()) }
    }

    /// Appends what damaged pages of a round, which ends at `to`, lack: so the blocks before may be
    /// dropped. Returns false if the map log has no space for it. A page that another thread could
    /// read since is returned, pinned: it has by now what it lacked, and the round writes it.
    fn carry_on(
        &self,
        rounds: &mut Rounds,
        damaged: &[MetaId],
        to: Position,
    ) -> Result<(Pins<'_>, bool), TierError> {
        let (read_since, batch) = {
            let state = &mut *self.state.lock();
            let (read, damaged): (Vec<MetaId>, Vec<MetaId>) =
                damaged.iter().partition(|id| state.cache.pin(**id));
            let mut frames = Vec::new();
            damaged.iter().for_each(|id| state.carry(&self.geometry, *id, &mut frames));
            let batch = match damaged.as_slice() {
                [] => None,
                _ => Some(state.map_log.carrying(&self.geometry, state.space.groups(), frames)),
            };
            (Pins::of_pinned(self, read), batch)
        };
        let are_carried = match batch {
            None => true,
            Some(None) => false,
            Some(Some(batch)) => self.append_blocks(rounds, &batch, to).map(|()| true)?,
        };
        Ok((read_since, are_carried))
    }

    /// Writes a totals page with this anchor that names `ids`, and the pages that may be torn.
    fn announce(&self, rounds: &mut Rounds, anchor: Anchor, ids: &[MetaId]) -> Result<(), TierError> {
        {
            let state = &mut *self.state.lock();
            let page = state.cache.get(MetaId::Totals).expect("the totals page is pinned");
            // (The totals page itself is whole once this is written.)
            let torn = state.sweep.torn.iter().filter(|id| **id != MetaId::Totals && !ids.contains(id));
            let ids: Vec<MetaId> = ids.iter().chain(torn).copied().collect();
            totals::announce(&mut page.body, anchor, &ids);
        }
        self.write_pages(rounds, &[MetaId::Totals])?;
        let mut state = self.state.lock();
        state.map_log.anchored(anchor);
        state.share_the_budget();
        Ok(())
    }

    /// Writes pages, which are pinned, to their other slots, and syncs.
    fn write_pages(&self, rounds: &mut Rounds, ids: &[MetaId]) -> Result<(), TierError> {
        let copies = {
            let state = &mut *self.state.lock();
            let upto = state.map_log.last();
            state.cache.begin_write(&self.geometry, &state.overlay, upto, ids)
        };
        let outcome = self.write_out(rounds, &copies);
        let state = &mut *self.state.lock();
        for copy in &copies {
            state.cache.end_write(copy, outcome.is_ok());
            if outcome.is_ok() {
                state.overlay.settle(&copy.merged);
                state.sequences.note(copy.id, copy.sequence);
                state.sweep.torn.remove(&copy.id);
            } else if copy.id != MetaId::Totals {
                // Another round would name other pages.
                state.sweep.torn.insert(copy.id);
            }
        }
        state.share_the_budget();
        outcome
    }

    /// Writes again, whole, what a crash tore, before the totals page names other pages. What
    /// cannot be read goes on being named: also what seems damaged in both slots, which no crash
    /// does, since one of the reads may have been spoilt on its way.
    fn mend_torn(&self, rounds: &mut Rounds) -> Result<(), TierError> {
        let (ids, anchor): (Vec<MetaId>, Anchor) = {
            let state = &mut *self.state.lock();
            let (groups, geometry) = (state.space.groups(), &self.geometry);
            state.sweep.torn.retain(|id| geometry.group_of_meta(*id).is_none_or(|group| group < groups));
            (state.sweep.torn.iter().copied().collect(), state.map_log.anchor())
        };
        let (totals, ids): (Vec<MetaId>, Vec<MetaId>) = ids.into_iter().partition(|id| *id == MetaId::Totals);
        if !totals.is_empty() {
            // It is in memory, and goes to its bad slot.
            self.announce(rounds, anchor, &[])?;
        }
        if ids.is_empty() {
            return Ok(());
        }
        let loaded = self.load(&ids);
        let (mut torn, mut unread) = (Vec::new(), Failed::new());
        for (id, loaded) in ids.into_iter().zip(loaded) {
            match loaded {
                Ok(loaded) if !loaded.sound => torn.push(id),
                Ok(_) => {}
                Err(error) if error.concerns_the_page() => _ = unread.insert(id, error),
                Err(error) => return Err(error),
            }
        }
        let (pins, failed) = self.pin_readable(&torn)?;
        let whole: Vec<MetaId> = torn.iter().copied().filter(|id| !failed.contains_key(id)).collect();
        if !whole.is_empty() {
            self.write_pages(rounds, &whole)?;
        }
        drop(pins);
        let state = &mut *self.state.lock();
        state.sweep.torn.retain(|id| unread.contains_key(id) || failed.contains_key(id));
        // Too little space is left to name what a round writes.
        let is_crowded =
            |state: &State| 2 * state.sweep.torn.len() > totals::names_max(self.geometry.body_bytes());
        if is_crowded(state) {
            unread.retain(|_, error| error.kind == TierErrorKind::Unreadable);
            state.sweep.torn.retain(|id| unread.contains_key(id) || failed.contains_key(id));
        }
        match unread.into_values().next() {
            Some(error) if is_crowded(state) => Err(error),
            _ => Ok(()),
        }
    }
}
