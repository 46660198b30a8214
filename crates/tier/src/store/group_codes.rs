//! Groups of places with codes of their own, over an array: pages of a tree go to groups that have
//! the tree's code.
//!
//! A code is a preference. Where no group of it has a place, a page goes to a group of another one:
//! all codes survive the loss of as many members. So what free space guarantees is as without
//! codes, and nothing about them is in the map, in records or in metadata pages. The array keeps
//! the code of each group, and a page is coded as the group is in which its image lies.
//!
//! A group gets another code while it is empty: no place of it is in use or held, and it is closed
//! meanwhile, so that none is taken. Why a crash is harmless at each step: nothing names a place of
//! it, and the array has either code. Why a reader is: one that still has an old entry reads what
//! its checksum shows to be another page, and looks at the entry again.

use super::circle::Extent;
use super::geometry::Place;
use super::give_back::Search;
use super::options::Placement;
use super::read::Looked;
use super::segments::Stream;
use super::state::{SLACK_BATCHES_NORMAL, State, Store, count};
use super::tree_codes::{BASE, GroupCodes, TreeCodes, tree_of};
use super::tree_loads::{AtOnce, Operation, StoreLoad, UnderWay};
use crate::error::{TierError, TierErrorKind};
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::{AtomicU64, Ordering};
use firndb_base::{PageId, Progress};
use std::collections::BTreeMap;

/// How often pages are moved that others write meanwhile.
const TRIES: usize = 2;

/// A walk through the page map that moves pages to groups of the codes of their trees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodeWalk {
    /// Pages of the map that were looked through.
    pub next: u64,
    /// Pages that stayed where they were, for lack of a group of their code.
    pub left: u64,
}

/// What [`Store::move_pages`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Pages moved.
    pub moved: u64,
    /// Pages that stayed where they were, for lack of a group of their code.
    pub left: u64,
}

impl Store {
    /// Has groups take the codes that trees ask for. Called once, before anything is written.
    pub fn attach_codes(&self, codes: Arc<dyn GroupCodes>) {
        assert!(self.group_codes.set(codes).is_ok(), "codes are attached once");
        self.tree_loads.get_or_init(Arc::default);
    }

    /// Reads and writes of pages of these trees are counted by themselves from now on, those of
    /// others together: the first have precedence if there are too many.
    pub fn count_trees(&self, trees: &[u32]) {
        let _one_at_a_time = self.state.lock();
        self.tree_loads.get().inspect(|loads| loads.count_trees(trees));
    }

    /// Reads and writes of pages by tree, where groups may have codes.
    #[must_use]
    pub fn load_by_tree(&self) -> Option<StoreLoad> {
        self.tree_loads.get().map(|loads| loads.load())
    }

    /// The most pages that were read and written at once since the last call.
    pub fn take_at_once(&self) -> AtOnce {
        self.tree_loads.get().map_or(AtOnce::default(), |loads| loads.take_at_once())
    }

    /// Notes pages that are being read or written, where that is counted.
    pub(crate) fn begin(&self, operation: Operation, pages: usize) -> Option<UnderWay> {
        self.tree_loads.get().map(|loads| UnderWay::begin(loads, operation, pages))
    }

    /// From now on pages of these trees go to groups of these codes, and those of all others to
    /// groups of code 0. What lies elsewhere stays until it is written, or moved.
    ///
    /// Errors: there is no such code.
    pub fn set_codes_of_trees(&self, codes: BTreeMap<u32, u8>) -> Result<(), TierError> {
        let count = self.group_codes.get().map_or(1, |codes| codes.count());
        if let Some(code) = codes.values().find(|code| usize::from(**code) >= count) {
            let message = format!("there is no code {code} of a group: the store has {count}");
            return Err(TierError::new(TierErrorKind::BadArgument, message));
        }
        self.state.lock().tree_codes = TreeCodes::new(codes.into_iter());
        Ok(())
    }

    /// The code of a group, as the array has it.
    pub(crate) fn code_of(&self, group: u64) -> Result<u8, TierError> {
        let codes = self.group_codes.get();
        codes.map_or(Ok(BASE), |codes| codes.of_group(group).map_err(TierError::of_read))
    }

    /// Whether a group may be had for a code of which no learned one has a place.
    pub(crate) fn may_provide(&self, state: &mut State, code: u8) -> bool {
        self.group_codes.get().is_some()
            && self.policy.placement == Placement::Threaded
            && (!state.tree_codes.is_empty() || state.space.has_several_codes())
            && !state.space.has_places(code)
            && state.space.next_to_learn().is_none()
            && state.tree_codes.may_look(code, self.written())
    }

    /// Gives an empty group the code, or a new one, as far as that leaves no more free than may be.
    /// Without either the next pages go to groups of other codes.
    pub(crate) fn provide(&self, code: u8) -> Result<(), TierError> {
        let Some(codes) = self.group_codes.get() else { return Ok(()) };
        self.release_all_freed()?;
        let mut header = self.growth.lock();
        if self.state.lock().space.has_places(code) {
            return Ok(());
        }
        let mut found = self.close_empty_group(code);
        if found.is_none() && self.may_extend_for_codes() {
            let extended = match self.back_one_group(Search::KnownAndSome) {
                Ok(false) => self.grow(&mut header, 1),
                outcome => outcome.map(drop),
            };
            match extended {
                Err(error) if error.kind == TierErrorKind::Full => {}
                outcome => outcome?,
            }
            found = self.close_empty_group(code);
        }
        let until = self.written() + self.rest();
        let Some(group) = found else {
            self.state.lock().tree_codes.rest(code, until);
            return Ok(());
        };
        // A failure is no reason to fail writes of pages: there are places elsewhere. The array
        // knows which code the group has then, and has struck a device that failed.
        let is_set = codes.set(group, code).is_ok();
        {
            let mut state = self.state.lock();
            state.space.has_code(group, is_set.then_some(code));
            if !is_set {
                state.tree_codes.rest(code, until);
            }
        }
        self.learn(group)
    }

    /// Closes an empty group that has another code, if the others are enough without it.
    fn close_empty_group(&self, code: u8) -> Option<u64> {
        let mut state = self.state.lock();
        let state = &mut *state;
        if let Some(journal) = self.journal.get() {
            state.space.release_freed(&self.geometry, journal.durable());
        }
        if state.space.has_places(code) {
            return None;
        }
        let needed = state.places_needed(SLACK_BATCHES_NORMAL * self.policy.batch_pages as u64);
        let left = self.backed_places(state).saturating_sub(self.geometry.places_per_group);
        let group = state.space.empty_group_of_others(&self.geometry, code).filter(|_| left >= needed)?;
        state.space.close_places(group);
        Some(group)
    }

    fn may_extend_for_codes(&self) -> bool {
        let mut state = self.state.lock();
        if state.space.closed() > 0 {
            // What is being emptied would come back as another group, and be emptied again.
            return false;
        }
        let more = self.backed_places(&mut state) + self.geometry.places_per_group;
        more <= self.places_kept(&mut state, Extent::Spacious)
    }

    /// Moves about a batch of pages that lie in groups of another code than their trees have.
    /// `Idle` at the end of the map.
    ///
    /// Errors: those of devices and of the log. Damaged pages stay where they are.
    pub fn move_to_codes(&self, walk: &mut CodeWalk) -> Result<Progress, TierError> {
        self.poison.check()?;
        if !self.journal()?.has_spare() {
            return Err(super::vacate::log_is_nearly_full());
        }
        if self.learn_some()? {
            return Ok(Progress::Worked);
        }
        let maps = self.map_pages_in_all();
        if walk.next >= maps {
            return Ok(Progress::Idle);
        }
        let left = AtomicU64::new(0);
        let is_to_move = |place: Place, image: &[u8]| {
            let mut state = self.state.lock();
            let (has, wanted) =
                (state.space.code_of(self.geometry.group_of_place(place)), state.tree_codes.wanted(image));
            let is_elsewhere = has.is_some_and(|has| has != wanted);
            let may_move =
                is_elsewhere && (state.space.has_places(wanted) || self.may_provide(&mut state, wanted));
            left.fetch_add(u64::from(is_elsewhere && !may_move), Ordering::Relaxed);
            may_move
        };
        let moved = self.move_out(&|_| true, Some(&is_to_move), walk.next..maps, &mut 0)?;
        walk.next += moved.maps;
        walk.left += left.into_inner();
        Ok(Progress::Worked)
    }

    /// Moves those of `pages`, about a batch at most, that lie in groups of another code than
    /// `tree` has, and are pages of that tree: any may have been freed meanwhile, and be of
    /// another. What lies right is not read. `None` if something else was done first: then the call
    /// is to be repeated.
    ///
    /// Errors: those of devices and of the log. Damaged pages stay where they are.
    pub fn move_pages(&self, tree: u32, pages: &[PageId]) -> Result<Option<Moved>, TierError> {
        self.poison.check()?;
        if !self.journal()?.has_spare() {
            return Err(super::vacate::log_is_nearly_full());
        }
        if self.learn_some()? {
            return Ok(None);
        }
        let mut moved = Moved::default();
        let mut elsewhere = {
            let (looked, _pins) = self.look_all(pages);
            let mut state = self.state.lock();
            let wanted = state.tree_codes.of_tree(tree);
            let is_elsewhere = |looked: &Looked, state: &State| {
                let group = looked.entry.place().map(|place| self.geometry.group_of_place(place));
                group.and_then(|group| state.space.code_of(group)).is_some_and(|has| has != wanted)
            };
            let found = pages.iter().zip(looked).filter_map(|(page, looked)| Some((*page, looked.ok()?)));
            let mut elsewhere: Vec<PageId> =
                found.filter(|(_, looked)| is_elsewhere(looked, &state)).map(|(page, _)| page).collect();
            if !(state.space.has_places(wanted) || self.may_provide(&mut state, wanted)) {
                moved.left = elsewhere.len() as u64;
                elsewhere.clear();
            }
            elsewhere
        };
        for _ in 0..TRIES {
            let of_tree = |_: PageId, image: &[u8]| tree_of(image) == tree;
            let rewritten = self.rewrite_if(&elsewhere, Stream::Moved, &of_tree);
            count(&self.counters.images_moved, rewritten.written);
            moved.moved += rewritten.written as u64;
            match rewritten.outcome {
                // It stays where it is, and reading it reports it.
                Err(error) if error.concerns_the_page() => {}
                outcome => outcome?,
            }
            // They were written meanwhile. If that waits as a delta, the image is where it was.
            elsewhere = rewritten.declined;
        }
        Ok(Some(moved))
    }

    /// Pages of the page map, those of pages that are not allocated included.
    pub fn map_pages_in_all(&self) -> u64 {
        self.groups() * self.geometry.maps_per_group
    }

    /// Learned groups of each code.
    pub fn groups_by_code(&self) -> Vec<u64> {
        self.state.lock().space.groups_by_code()
    }
}
