//! Returning space to the file system, a group at a time, when much of the file is free.
//!
//! The last group, if it holds no page and no page number of it is in use, is cut off: its metadata
//! is first written and the map log leaves it, then the header stops counting it, then the file is
//! truncated. The header keeps the LSN of that moment: redo skips what older records say of groups
//! that no longer exist.
//!
//! Another group without a used place keeps its metadata and returns the space of its places: a map
//! record notes it and is made durable first. Before its places are used again they are written
//! with zeros, so that a full file system is found *then*, not when a page must be written.
//!
//! What the device itself does of all that is advice (`discard_again.rs`): map and header, which
//! are durable before, do without the space in any case. A device that keeps its length after the
//! header counts a group less has stale bytes at its end: growth writes the metadata of a new group
//! before the header counts it, and nothing reads a place before it was written. What redo says of
//! the group that is gone is skipped by the header's LSN.

use super::circle::Extent;
use super::geometry::Place;
use super::header::Header;
use super::journal::made_space;
use super::meta_page::{MetaId, pages_of_group};
use super::records::{Change, encode_backing};
use super::state::{SLACK_BATCHES_NORMAL, State, Store};
use crate::error::{TierError, TierErrorKind};
use firndb_base::{Lsn, Progress};
use firndb_device::{AlignedBuf, Durability};
use firndb_log::{Kind, Record};
use std::ops::Range;

/// Bytes of zeros written at a time.
const ZEROS_BYTES: usize = 1 << 20;

/// What came of a closed group that was to be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GivenBack {
    /// Its space was returned.
    Yes,
    /// It was opened for growth, or places there wait for the log.
    NotNow,
    /// What lies there was not moved.
    No,
}

/// Where a group that returned its space is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Search {
    /// Among those that are known, and some more: an opening knows none, and reading the bitmap
    /// pages of a large file one after the other takes minutes.
    KnownAndSome,
    Everywhere,
}

/// What becomes of a group's places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backing {
    /// Their space is returned.
    Returned,
    /// They have space, and are taken once the group is learned.
    InUse,
    /// They count as having space and are not taken: the group is about to be cut off.
    Closed,
}

impl Store {
    /// Cuts off the last group, or returns the space of another one without used places, as far as
    /// that goes.
    pub(crate) fn give_back_one(&self, extent: Extent) -> Result<Progress, TierError> {
        self.poison.check()?;
        let journal = self.journal()?;
        let mut header = self.growth.lock();
        if self.discard_again(&header)? {
            return Ok(Progress::Worked);
        }
        let last = header.groups - 1;
        let (may_cut, is_hole) = {
            let mut state = self.state.lock();
            state.space.release_freed(&self.geometry, journal.durable());
            let is_wanted = extent == Extent::Tight || !state.discards.is_uncut;
            // A page that cannot be read keeps the map log from becoming empty.
            let may_cut = is_wanted && last > 0 && !state.sweep.meets_damage();
            (may_cut, state.space.is_hole(&self.geometry, last))
        };
        if may_cut && is_hole && self.cut_off_hole(&mut header, last)? == Progress::Worked {
            return Ok(Progress::Worked);
        }
        let (last, victim) = {
            let mut state = self.state.lock();
            let kept = self.backed_places(&mut state).saturating_sub(self.geometry.places_per_group);
            if !self.is_enough(&mut state, kept, extent) {
                return Ok(Progress::Idle);
            }
            let vacant = may_cut && state.space.is_vacant(&self.geometry, last);
            let may_discard = extent == Extent::Tight || !state.discards.keeps_holes();
            (vacant.then_some(last), state.space.empty_group(&self.geometry).filter(|_| may_discard))
        };
        match (last, victim) {
            (Some(last), _) => self.cut_off(&mut header, last),
            (None, Some(victim)) => self.discard_group(victim).map(|()| Progress::Worked),
            (None, None) => Ok(Progress::Idle),
        }
    }

    /// Cuts off the last group, or returns the space of another, of a group that was closed and is
    /// empty; one that is not is opened again.
    pub(crate) fn give_back_closed(&self, group: u64) -> Result<GivenBack, TierError> {
        let mut header = self.growth.lock();
        let (is_emptied, is_last, otherwise) = {
            let state = self.state.lock();
            let is_vacant = state.space.is_vacant(&self.geometry, group) && !state.sweep.meets_damage();
            let is_last = group > 0 && group == header.groups - 1 && is_vacant;
            let may_be_later = !state.space.is_closed(group) || state.space.is_held(&self.geometry, group);
            let otherwise = if may_be_later { GivenBack::NotNow } else { GivenBack::No };
            (state.space.is_emptied(&self.geometry, group), is_last, otherwise)
        };
        let outcome = match is_emptied {
            true if is_last => match self.cut_off(&mut header, group) {
                Ok(Progress::Idle) => self.discard_group(group),
                outcome => outcome.map(drop),
            },
            true => self.discard_group(group),
            false => Ok(()),
        };
        let mut state = self.state.lock();
        let is_left = group < header.groups && state.space.is_closed(group);
        if is_left {
            state.space.unlearn(group);
        }
        outcome.map(|()| if is_emptied && !is_left { GivenBack::Yes } else { otherwise })
    }

    /// Cuts off the last group, whose space was returned before. A record counts its places again;
    /// no thread takes one. (A crash before the file is cut leaves a group that counts as backed,
    /// empty and last: the next step cuts it off while much is free. Were it used before that, a
    /// full file system would be found by a write, which keeps its page dirty.) Called under
    /// `growth`.
    fn cut_off_hole(&self, header: &mut Header, last: u64) -> Result<Progress, TierError> {
        // Seen before the records, or each step would append them for a group that is in use.
        let is_swept = self.sweep_all(&mut self.write_back.lock())?;
        if !is_swept || self.is_in_use(&self.state.lock(), last) {
            return Ok(Progress::Idle);
        }
        self.change_backing(last, Backing::Closed)?;
        match self.learn(last).and_then(|()| self.cut_off(header, last)) {
            Ok(Progress::Worked) => Ok(Progress::Worked),
            Ok(Progress::Idle) => self.discard_group(last).map(|()| Progress::Idle),
            Err(error) => {
                // The header may still count a group that is gone: it could not be written.
                let mut state = self.state.lock();
                if last < state.space.groups() {
                    state.space.unlearn(last);
                }
                Err(error)
            }
        }
    }

    /// Cuts off the last group. Called under `growth`. `Idle` if it has come into use.
    fn cut_off(&self, header: &mut Header, last: u64) -> Result<Progress, TierError> {
        // Under `growth` the number of groups cannot change meanwhile.
        let rounds = &mut self.write_back.lock();
        if !self.sweep_all(rounds)? {
            return Ok(Progress::Idle);
        }
        self.vacate_blocks(rounds, last)?;
        {
            let _order = self.order.lock();
            let mut state = self.state.lock();
            if !state.space.is_vacant(&self.geometry, last) || self.is_in_use(&state, last) {
                return Ok(Progress::Idle);
            }
            state.cache.forget(pages_of_group(&self.geometry, last));
            state.sequences.forget_from(&self.geometry, last);
            state.space.remove_last_group();
            self.debug_assert_backed(&mut state);
        }
        let end = self.geometry.group_offset(last).expect("smaller than the file");
        let old_end = self.geometry.group_offset(header.groups).expect("as large as the file");
        *header = self.store_header(header, last, self.journal()?.durable())?;
        self.forget_discard(last);
        // A raw device keeps its length.
        if self.cut_unless_resting(header)
            && let Some(len) = old_end.min(self.device.len()).checked_sub(end).filter(|len| *len > 0)
        {
            self.discard_beyond(end, len);
        }
        Ok(Progress::Worked)
    }

    /// Whether a thread works with metadata of a group, or what changed there is not written yet.
    fn is_in_use(&self, state: &State, group: u64) -> bool {
        state.cache.in_use(pages_of_group(&self.geometry, group)) || state.lacks(&self.geometry, group)
    }

    /// Whether a store with `places` places that have space can hold every page that is needed, and
    /// keeps as many places free as `extent` asks for.
    pub(crate) fn is_enough(&self, state: &mut State, places: u64, extent: Extent) -> bool {
        places >= self.places_kept(state, extent)
    }

    /// Places with space that are kept.
    pub(crate) fn places_kept(&self, state: &mut State, extent: Extent) -> u64 {
        self.places_kept_without(state, 0, extent)
    }

    /// As [`Store::places_kept`], with as many places less in use.
    pub(crate) fn places_kept_without(&self, state: &mut State, places: u64, extent: Extent) -> u64 {
        let slack = SLACK_BATCHES_NORMAL * self.policy.batch_pages as u64;
        let needed = state.places_needed(slack).saturating_sub(places);
        let full_percent = 100 - u64::from(self.policy.free_target_percent);
        let kept = needed.saturating_mul(extent.percent()).div_ceil(full_percent);
        match (state.tree_codes.groups_kept(), self.geometry.places_per_group) {
            (0, _) => kept,
            (more, places) => kept.div_ceil(places).saturating_add(more).saturating_mul(places),
        }
    }

    /// Returns the space of a group's places to the file system. Called under `growth`.
    fn discard_group(&self, group: u64) -> Result<(), TierError> {
        {
            let mut state = self.state.lock();
            let is_empty = state.space.empty_group(&self.geometry) == Some(group);
            if !is_empty && !state.space.is_emptied(&self.geometry, group) {
                return Ok(());
            }
            // From here on no thread takes a place of it.
            state.space.close_places(group);
        }
        let durable = self
            .change_backing(group, Backing::Returned)
            .inspect_err(|_| self.state.lock().space.unlearn(group))?;
        self.flush_log(durable)?;
        self.discard_hole(group);
        Ok(())
    }

    /// Puts one group that returned its space into use again; false if none is found. Called under
    /// `growth`. `Full` if the file system has no space.
    pub(crate) fn back_one_group(&self, search: Search) -> Result<bool, TierError> {
        let mut may_learn = true;
        let group = loop {
            let (unbacked, known) = {
                let mut state = self.state.lock();
                (state.totals().unbacked_groups, state.space.unbacked_group())
            };
            match known {
                _ if unbacked == 0 => return Ok(false),
                Some(group) => break group,
                None if may_learn && self.learn_some()? => may_learn = search == Search::Everywhere,
                None => return Ok(false),
            }
        };
        let start = self.geometry.place_offset(Place(group * self.geometry.places_per_group));
        let len = self.geometry.places_per_group * self.geometry.page_size as u64;
        self.write_zeros(start..start + len).inspect_err(|error| {
            // The group stays a hole: the file system gets back what it had for it.
            if error.kind == TierErrorKind::Full {
                self.discard_hole(group);
            }
        })?;
        self.sync_device()?;
        self.forget_discard(group);
        self.change_backing(group, Backing::InUse)?;
        self.learn(group)?;
        Ok(true)
    }

    /// Has the device find space for a range, whatever it has there: writes zeros, which are not
    /// synced. Nothing more is written after an error other than `Full`.
    pub(crate) fn write_zeros(&self, range: Range<u64>) -> Result<(), TierError> {
        let zeros = AlignedBuf::zeroed(ZEROS_BYTES.max(self.geometry.page_size));
        let mut offset = range.start;
        while offset < range.end {
            let len = (range.end - offset).min(zeros.len() as u64);
            let written = self.device.write(offset, &zeros[..len as usize], Durability::Later);
            written.map_err(TierError::from).inspect_err(|error| {
                if error.kind != TierErrorKind::Full {
                    self.poison.set(error);
                }
            })?;
            offset += len;
        }
        Ok(())
    }

    /// Appends and applies a `GROUP_BACKING` record; returns its end. In the hold of `state` that
    /// applies it the group is unlearned, and closed if it is to be: no thread sees the number of
    /// places with space differ from what it is before and after.
    fn change_backing(&self, group: u64, backing: Backing) -> Result<Lsn, TierError> {
        let backed = backing != Backing::Returned;
        let ids = [MetaId::Totals, MetaId::Bitmap(group)];
        let _pins = self.pin(&ids)?;
        let journal = self.journal()?;
        let body = encode_backing(group, backed);
        let record = Record { kind: Kind::GROUP_BACKING, body: &body };
        let (_order, appended) = loop {
            let order = self.order.lock();
            match journal.append(record) {
                Ok(appended) => break (order, appended),
                Err(error) => {
                    drop(order);
                    if !made_space(&**journal, &error, record)? {
                        return Err(error.into());
                    }
                }
            }
        };
        let mut state = self.state.lock();
        state.apply(&self.geometry, (appended.first, record), &[Change::Backing { group, backed }]).map_err(
            |error| {
                let error = TierError::new(TierErrorKind::Damaged, format!("group {group}: {error}"));
                self.poison.set(&error);
                error
            },
        )?;
        // When it is learned again it counts as its bitmap page says.
        state.space.unlearn(group);
        if backing == Backing::Closed {
            state.space.close_places(group);
        }
        Ok(appended.end)
    }
}
