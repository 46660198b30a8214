//! Making the file as short as its pages allow: what compaction asks before it moves page numbers,
//! and which groups it then empties first.
//!
//! A group can be cut off the file's end when no place and no page number of it is in use
//! (`give_back.rs`). Numbers are the trees' to move (`firndb_btree`'s `relocate.rs`); the lowest
//! are handed out first (`allocate.rs`), so what is moved goes below the limit as long as a number
//! there is free. No lock keeps others from taking a number beyond it: they do only if all below
//! are taken, and then the file has to be that long.
//!
//! Places need no owner's help. Once no number beyond some group is in use, the groups beyond it
//! are emptied before sparse ones elsewhere (`vacate.rs`), and cut off from the end. Their images
//! need places before it: groups there that have returned their space are filled with zeros and
//! used again first, as far as that many are kept in any case. On a full file system that fails,
//! and then holes are what is left of the groups that could be emptied.

use super::circle::{Cleaning, Extent};
use super::give_back::Search;
use super::state::{State, Store};
use crate::error::{TierError, TierErrorKind};
use firndb_base::{PageId, Progress};

/// How long the file is, and has to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileLength {
    /// Groups that it has.
    pub groups: u64,
    /// Groups that are enough for its pages, and for what is kept free.
    pub groups_kept: u64,
    /// Bytes of a group, with its metadata.
    pub group_bytes: u64,
    /// Page numbers of a group.
    pub group_pages: u64,
    /// Page numbers in use beyond the groups that are enough.
    pub pages_beyond: u64,
}

impl FileLength {
    /// The first page number beyond the groups that are enough.
    #[must_use]
    pub fn limit(&self) -> PageId {
        PageId(self.groups_kept * self.group_pages)
    }

    /// Bytes by which the file gets shorter if no page number from `end` on is in use.
    #[must_use]
    pub fn bytes_back(&self, end: PageId) -> u64 {
        let groups = end.0.div_ceil(self.group_pages).max(self.groups_kept);
        self.groups.saturating_sub(groups) * self.group_bytes
    }
}

impl Store {
    /// How long the file has to be. Reads the bitmap pages that were not read since opening.
    pub fn file_length(&self) -> Result<FileLength, TierError> {
        self.learn_all()?;
        let mut state = self.state.lock();
        if let Some(journal) = self.journal.get() {
            state.space.release_freed(&self.geometry, journal.durable());
        }
        let (groups, group_pages) = (state.space.groups(), self.geometry.places_per_group);
        let offset = |group| self.geometry.group_offset(group).unwrap_or(u64::MAX);
        // Delta pages are not counted: with fewer of them later, fewer groups are enough.
        let deltas = state.totals().delta_pages + state.deltas.in_flight;
        let kept = self.places_kept_without(&mut state, deltas, Extent::Tight);
        let groups_kept = kept.div_ceil(group_pages).clamp(1, groups);
        Ok(FileLength {
            groups,
            groups_kept,
            group_bytes: offset(1).saturating_sub(offset(0)),
            group_pages,
            pages_beyond: state.space.pages_used_from(&self.geometry, groups_kept),
        })
    }

    /// Has the log flushed, so that what was freed before can be handed out again.
    pub fn release_freed_pages(&self) -> Result<(), TierError> {
        self.poison.check()?;
        self.release_all_freed()
    }

    /// The group from which on compaction wants the file to end: no page number there is in use,
    /// and those before are enough.
    pub(crate) fn wanted_end(&self, state: &mut State) -> u64 {
        let kept = self.places_kept(state, Extent::Tight).div_ceil(self.geometry.places_per_group);
        state.space.end_of_pages(&self.geometry).max(kept).max(1)
    }

    /// Uses one group again that had returned its space, if images are to be moved there from
    /// beyond the wanted end.
    pub(crate) fn refill_before_end(&self, cleaning: &mut Cleaning) -> Result<Progress, TierError> {
        if cleaning.vacating.is_some() || cleaning.refills_left == 0 {
            return Ok(Progress::Idle);
        }
        {
            let mut state = self.state.lock();
            let end = self.wanted_end(&mut state);
            let kept = self.places_kept(&mut state, Extent::Tight).div_ceil(self.geometry.places_per_group);
            let has_hole = state.space.unbacked_group().is_some_and(|group| group < end);
            let can_go = |group: u64| {
                !cleaning.not_emptied.contains(&group) && !state.space.has_held_shadows(&self.geometry, group)
            };
            let (before, beyond): (Vec<u64>, Vec<u64>) =
                state.space.open_groups().map(|(group, _)| group).partition(|group| *group < end);
            let enough = before.len() as u64 >= kept;
            if enough || !has_hole || !beyond.into_iter().any(can_go) {
                return Ok(Progress::Idle);
            }
        }
        cleaning.refills_left -= 1;
        let _growth = self.growth.lock();
        match self.back_one_group(Search::KnownAndSome) {
            Ok(true) => Ok(Progress::Worked),
            Ok(false) => Ok(Progress::Idle),
            Err(error) if error.kind == TierErrorKind::Full => {
                cleaning.refills_left = 0;
                Ok(Progress::Idle)
            }
            Err(error) => Err(error),
        }
    }

    /// Learns what is free in every group.
    pub(crate) fn learn_all(&self) -> Result<(), TierError> {
        while self.learn_some()? {}
        Ok(())
    }
}
