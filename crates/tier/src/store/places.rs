//! Finding places for a batch of pages.
//!
//! Why it always finds places, unless the store's own metadata is damaged: places with space on the
//! device are at least allocated pages + reserved pages + delta pages + one batch (`reserve` and
//! flushes of deltas ensure it). Of these, unavailable are the places in use (at most one for each
//! allocated page, and the delta pages), those freed by
//! records not yet durable (a flush makes them available), and those of other writes under way
//! (which release them or turn old places into freed ones when they end). A call that waits for
//! other writes holds no place itself.
//!
//! Placement by segments changes which places come first, and not whether there are some: without
//! a whole segment a batch takes what is free anywhere, in whole segments last. Each of its turns
//! takes a place or notes that a group has fewer than was counted.

use super::bitmap::{self, Which};
use super::geometry::Place;
use super::give_back::Search;
use super::meta_page::MetaId;
use super::options::Placement;
use super::segments::Stream;
use super::space::Order;
use super::state::{State, Store, count as tally};
use super::tree_codes::BASE;
use crate::error::{TierError, TierErrorKind};
use firndb_base::Lsn;

/// Most bitmap pages that one call reads merely for a better choice.
const LEARN_FOR_CHOICE: usize = 2;

/// The next thing that a call needs for its places.
enum Next {
    Done,
    Load(u64),
    Learn(u64),
    LearnSome,
    Flush(Lsn),
    Wait,
    Grow(u64),
    Provide(u8),
}

/// Places wanted of groups of one code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlacesWanted {
    pub code: u8,
    pub count: usize,
}

/// What a call may do for a better choice, and for which stream it chooses.
#[derive(Clone, Copy)]
struct Choice<'a> {
    stream: Stream,
    may_learn: bool,
    /// Codes that groups were looked for.
    provided: &'a [u8],
}

/// The code of the next place, after as many as were taken, and how many are wanted of it.
fn next_wanted(wanted: &[PlacesWanted], mut taken: usize) -> Option<(u8, usize)> {
    for wanted in wanted {
        match wanted.count.checked_sub(taken) {
            None | Some(0) => taken -= wanted.count,
            Some(left) => return Some((wanted.code, left)),
        }
    }
    None
}

impl Store {
    /// Counts what is available in `group`, from its bitmap page.
    pub(crate) fn learn(&self, group: u64) -> Result<(), TierError> {
        let pins = self.pin(&[MetaId::Bitmap(group)]);
        let code = self.code_of(group);
        let mut state = self.state.lock();
        let state = &mut *state;
        match (&pins, &code) {
            (Ok(_), Ok(code)) => {
                let body = &state.cache.get(MetaId::Bitmap(group)).expect("just pinned").body;
                state.space.learn(&self.geometry, group, (*code, Some(body)));
                for index in 0..self.geometry.places_per_group {
                    if bitmap::get(&self.geometry, body, Which::Deltas, index) {
                        let place = Place(group * self.geometry.places_per_group + index);
                        state.deltas.live.discovered(&self.geometry, place);
                    }
                }
            }
            // It was cut off since the caller chose it; an array has no code for it either.
            (Err(error), _) if error.kind == TierErrorKind::NotAllocated => {}
            // The group's pages can still be read; new ones go elsewhere.
            (Err(error), _) | (_, Err(error)) if error.concerns_the_page() => {
                state.space.learn(&self.geometry, group, (BASE, None));
            }
            (Err(error), _) | (_, Err(error)) => return Err(error.clone()),
        }
        Ok(())
    }

    /// Counts what is available in the next groups of which that is not known, whose bitmap pages
    /// are read together; false if there is none.
    pub(crate) fn learn_some(&self) -> Result<bool, TierError> {
        let groups: Vec<u64> = {
            let state = &mut *self.state.lock();
            let most = state.cache.read_together();
            state.space.groups_to_learn(most).collect()
        };
        let ids: Vec<MetaId> = groups.iter().copied().map(MetaId::Bitmap).collect();
        // One that cannot be read is read again by itself.
        let _pins = self.pin(&ids);
        groups.iter().try_for_each(|group| self.learn(*group))?;
        Ok(!groups.is_empty())
    }

    /// Holds as many places of each code as `wanted` says, at most one batch in all: those of the
    /// first code first, and each code's in ascending order. Where a code has none, of another.
    pub(crate) fn take_places(
        &self,
        wanted: &[PlacesWanted],
        stream: Stream,
    ) -> Result<Vec<Place>, TierError> {
        let count = wanted.iter().map(|wanted| wanted.count).sum();
        assert!(count <= self.policy.batch_pages);
        let mut taken = Vec::with_capacity(count);
        let mut pins = Vec::new();
        let mut looked = 0;
        let mut provided = Vec::new();
        loop {
            let choice = Choice { stream, may_learn: looked < LEARN_FOR_CHOICE, provided: &provided };
            let next = self.take_known(wanted, choice, &mut taken);
            let outcome = match next {
                Next::Done => {
                    let mut rest = &mut taken[..];
                    for wanted in wanted {
                        let (of_code, others) = rest.split_at_mut(wanted.count);
                        of_code.sort_unstable();
                        rest = others;
                    }
                    return Ok(taken);
                }
                Next::Provide(code) => {
                    // One attempt for each: what it gained others may have taken.
                    provided.push(code);
                    self.provide(code)
                }
                Next::Load(group) => match self.pin(&[MetaId::Bitmap(group)]) {
                    Ok(pin) => {
                        pins.push(pin);
                        Ok(())
                    }
                    Err(_) => self.learn(group),
                },
                Next::LearnSome => self.learn_some().map(drop),
                Next::Learn(group) => {
                    looked += 1;
                    self.learn(group)
                }
                Next::Flush(end) => self.flush_log(end),
                Next::Wait => Ok(()),
                Next::Grow(backed) => self.add_space(backed, Search::Everywhere),
            };
            if let Err(error) = outcome {
                self.drop_places(&taken);
                return Err(error);
            }
        }
    }

    /// Takes what is available without I/O. Before it returns `Wait` it releases what it took and
    /// waits.
    fn take_known(&self, wanted: &[PlacesWanted], choice: Choice<'_>, taken: &mut Vec<Place>) -> Next {
        let Choice { stream, may_learn, provided } = choice;
        let before = taken.len();
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state
            .space
            .release_freed(&self.geometry, self.journal.get().map_or(Lsn::ZERO, |journal| journal.durable()));
        while let Some((code, count)) = next_wanted(wanted, taken.len()) {
            let whole = self.whole_segment(state, stream);
            let poor = match self.policy.placement {
                Placement::Threaded => {
                    u64::from(state.space.most_places(code)) * 8 < self.geometry.places_per_group
                }
                Placement::Segments => whole.is_none(),
            };
            if may_learn
                && poor
                && let Some(group) = state.space.next_to_learn()
            {
                return Next::Learn(group);
            }
            if let Some(group) = whole {
                let Some(bitmap) = state.cache.get(MetaId::Bitmap(group)) else { return Next::Load(group) };
                let from = (group, &*bitmap.body);
                state.space.take_whole(&self.geometry, from, stream, count, taken);
                continue;
            }
            let order = match self.policy.placement {
                Placement::Threaded => Order::EmptiestFirst(stream),
                Placement::Segments => Order::FullestFirst,
            };
            if !provided.contains(&code) && self.may_provide(state, code) {
                return Next::Provide(code);
            }
            let Some(group) = state.space.group_for_places(order, code) else { break };
            let Some(bitmap) = state.cache.get(MetaId::Bitmap(group)) else { return Next::Load(group) };
            let had = taken.len();
            state.space.take_places(&self.geometry, group, &bitmap.body, order, count, taken);
            if self.policy.placement == Placement::Segments {
                tally(&self.counters.places_scattered, taken.len() - had);
            }
        }
        if next_wanted(wanted, taken.len()).is_none() {
            return Next::Done;
        }
        if state.space.next_to_learn().is_some() {
            return Next::LearnSome;
        }
        if let Some(end) = state.space.pending_end() {
            return Next::Flush(end);
        }
        if state.space.in_flight > taken.len() as u64 {
            for place in taken.drain(..) {
                state.space.drop_place(&self.geometry, place);
            }
            // No other thread has seen that those were taken which this call took: two that wait
            // would wake each other without end.
            if before > 0 {
                self.progress.notify_all();
            }
            self.progress.wait(&mut guard);
            return Next::Wait;
        }
        Next::Grow(self.backed_places(state))
    }

    /// The group with the segment that writes of a stream go on in, if they go to whole segments
    /// and there is one.
    fn whole_segment(&self, state: &mut State, stream: Stream) -> Option<u64> {
        match self.policy.placement {
            Placement::Threaded => None,
            Placement::Segments => state.space.group_for_whole(stream),
        }
    }

    /// Releases places that were not used.
    pub(crate) fn drop_places(&self, places: &[Place]) {
        let mut state = self.state.lock();
        for place in places {
            state.space.drop_place(&self.geometry, *place);
        }
        self.progress.notify_all();
    }
}
