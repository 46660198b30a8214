//! Emptying sparse segments, for placement by segments: a background step.
//!
//! The cleaner chooses segments with much free space, and walks the page map once, a *circle*. A
//! page whose image lies in a chosen segment is read, which verifies it against the map, and
//! written elsewhere in the same version; so is a delta that lies there, by the rule of delta
//! pages. When the circle ends the segments are empty, but for what could not be read. There is no
//! table of the page at each place: a circle reads 24 bytes of map for each page of the store, and
//! is worth it since it empties as many segments as are whole when it begins.
//!
//! Why a crash is harmless at each step: a move is a write like any other (`write.rs`). Before its
//! record is durable the old place is held and named; after it the new image is durable. Choice and
//! progress are in memory only. A reader that holds an entry looks at it again after its I/O.
//!
//! Bounds: at most three images are copied for a place that becomes free; a circle begins when less
//! than a sixteenth of all places is in whole segments; it goes twice as fast as others take the
//! places that it frees, and a step moves about a batch. Without a whole segment to write to it
//! extends the file, within what free space may be, or empties some segments into the fullest
//! others.
//! It never makes the store `Full`: it takes a place for a page that gives up another.

use super::circle::{Best, Circle, Cleaning, Extent};
use super::geometry::{Geometry, Place, SEGMENT_PLACES};
use super::give_back::Search;
use super::meta_page::MetaId;
use super::options::Placement;
use super::segments::{SegmentAt, Stream, WHOLE_KEPT};
use super::state::{Store, count};
use crate::error::{TierError, TierErrorKind};
use firndb_base::sync::atomic::{AtomicU64, Ordering};
use firndb_base::{PageId, Progress};
use std::collections::{BTreeMap, BTreeSet};

/// A circle begins when less than one in so many places is in whole segments.
const WHOLE_SHARE: u64 = 16;
/// Without whole segments, one is emptied for this number of places free in others: what is moved
/// out of it and what is free in it are at most two segments, and as much is left to others.
const LOOSE_A_SEGMENT: u64 = 4 * SEGMENT_PLACES;
/// Map pages that a step looks at, at most.
const MAPS_A_STEP: usize = 32;

/// What came of choosing segments.
enum Begun {
    Circle(Circle),
    /// Enough segments are whole.
    Enough,
    /// None is worth it.
    Nothing,
}

/// Whether an image at a place is to be moved.
pub(crate) type ToMove<'a> = &'a dyn Fn(Place, &[u8]) -> bool;

/// What came of moving images and delta pages out of their places.
#[derive(Debug)]
pub(crate) struct MovedOut {
    /// Map pages looked through.
    pub maps: u64,
    /// Pages of which a newer version was taken meanwhile, and where their images were found: they
    /// may be there still.
    pub declined: Vec<(PageId, Place)>,
}

fn segment_of(geometry: &Geometry, place: Place) -> SegmentAt {
    (geometry.group_of_place(place), (geometry.index_of_place(place) / SEGMENT_PLACES) as usize)
}

impl Store {
    /// Moves about a batch of pages out of sparse segments, if whole ones are few. A background
    /// step; does nothing if another thread is at it.
    pub(crate) fn clean_space(&self) -> Result<Progress, TierError> {
        let is_ready = self.policy.placement == Placement::Segments && self.journal.get().is_some();
        if !is_ready || self.poison.check().is_err() {
            return Ok(Progress::Idle);
        }
        let Some(mut guard) = self.cleaning.try_lock() else { return Ok(Progress::Idle) };
        let cleaning = &mut *guard;
        if cleaning.vacating.is_some() {
            return Ok(Progress::Idle);
        }
        if cleaning.circle.is_none() && self.written() >= cleaning.rests_until {
            match self.begin_circle(&mut cleaning.stuck)? {
                Begun::Circle(circle) => cleaning.circle = Some(circle),
                Begun::Enough => {}
                // Others have to write first: each new version frees the place of the one before.
                Begun::Nothing => cleaning.rests_until = self.written() + self.rest(),
            }
        }
        let Some(circle) = cleaning.circle.as_mut() else { return Ok(Progress::Idle) };
        if !circle.is_due(self.written()) {
            return Ok(Progress::Idle);
        }
        let outcome = self.walk(circle);
        if circle.next < circle.maps {
            return outcome.map(|()| Progress::Worked);
        }
        self.end_circle(cleaning)?;
        outcome.map(|()| Progress::Worked)
    }

    /// Makes whole what was emptied, notes what was not, and how many places must have been taken
    /// until another circle begins.
    fn end_circle(&self, cleaning: &mut Cleaning) -> Result<(), TierError> {
        // Nothing else keeps their segments from being whole.
        match self.free_empty_delta_pages() {
            Err(error) if !error.concerns_the_page() => return Err(error),
            _ => {}
        }
        self.release_all_freed()?;
        // What cannot be read stays, and what found no whole segment makes another one sparse: to
        // try it again and again would have no end.
        let Some(circle) = cleaning.circle.take() else { return Ok(()) };
        let (stuck, gained) = {
            let segments = &mut self.state.lock().space.segments;
            segments.avoid(BTreeSet::new());
            let is_stuck = |at: &SegmentAt| !segments.was_whole(*at, circle.clock);
            let stuck: Vec<SegmentAt> = circle.chosen.iter().copied().filter(is_stuck).collect();
            (stuck, segments.made(&self.geometry) > circle.made)
        };
        count(&self.counters.segments_emptied, circle.chosen.len() - stuck.len());
        cleaning.note_stuck(&stuck, circle.clock);
        cleaning.rests_until = self.written() + if gained { 0 } else { self.rest() };
        Ok(())
    }

    /// How many places must be taken until a circle is tried again, while the cleaner takes none.
    pub(crate) fn rest(&self) -> u64 {
        (self.backed_places(&mut self.state.lock()) / (4 * WHOLE_SHARE)).max(1)
    }

    /// Makes available all that was freed, by making the records durable that did it.
    pub(crate) fn release_all_freed(&self) -> Result<(), TierError> {
        let end = self.state.lock().space.pending_end();
        end.map_or(Ok(()), |end| self.flush_log(end))?;
        let durable = self.journal()?.durable();
        self.state.lock().space.release_freed(&self.geometry, durable);
        Ok(())
    }

    /// Places taken since the store was opened, by the cleaner, too.
    pub(crate) fn written(&self) -> u64 {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        of(&self.counters.pages_written) + of(&self.counters.delta_pages_written)
    }

    /// Chooses segments, unless enough are whole. If none is it first extends the file.
    fn begin_circle(&self, stuck: &mut BTreeMap<SegmentAt, u32>) -> Result<Begun, TierError> {
        let (groups, backed, whole) = {
            let mut state = self.state.lock();
            if state.space.next_to_learn().is_some() {
                return Ok(Begun::Enough);
            }
            (state.space.groups(), self.backed_places(&mut state), state.space.segments.whole())
        };
        let enough = (backed / WHOLE_SHARE / SEGMENT_PLACES).max(WHOLE_KEPT + 1);
        if whole >= enough {
            return Ok(Begun::Enough);
        }
        // A place that waits for its record counts as used.
        self.release_all_freed()?;
        let whole = self.state.lock().space.segments.whole();
        if whole == 0 && self.extend_for_whole_segments()? {
            return Ok(Begun::Enough);
        }
        // What is moved out of a segment, and what others take of its free places until the circle
        // ends, is a segment in all: as many are chosen as are whole. Without whole ones, what is
        // moved goes to the fullest, and as many are chosen as have place there: with one at a time
        // others would take what it frees, and there would never be more.
        let most = match whole.checked_sub(WHOLE_KEPT) {
            None | Some(0) => {
                let loose = self.state.lock().space.segments.loose_places();
                (loose / LOOSE_A_SEGMENT).clamp(1, enough - whole)
            }
            Some(whole) => whole,
        };
        {
            let segments = &self.state.lock().space.segments;
            stuck.retain(|at, since| !segments.was_whole(*at, *since));
        }
        let (mut chosen, mut free) = self.best_segments(groups, most, stuck);
        if chosen.is_empty() && !stuck.is_empty() {
            stuck.clear();
            (chosen, free) = self.best_segments(groups, most, stuck);
        }
        if chosen.is_empty() {
            return Ok(Begun::Nothing);
        }
        let (clock, made) = {
            let segments = &mut self.state.lock().space.segments;
            segments.avoid(chosen.clone());
            (segments.clock(), segments.made(&self.geometry))
        };
        Ok(Begun::Circle(Circle {
            chosen,
            clock,
            made,
            next: 0,
            maps: groups * self.geometry.maps_per_group,
            began: self.written(),
            moved: 0,
            // Half of what it gains, so that there are more afterwards.
            others: free / 2,
        }))
    }

    /// The segments most worth emptying, `most` at most, and the places free in them.
    fn best_segments(
        &self,
        groups: u64,
        most: u64,
        stuck: &BTreeMap<SegmentAt, u32>,
    ) -> (BTreeSet<SegmentAt>, u64) {
        let mut best = Best::new(most);
        for group in 0..groups {
            let found = self.state.lock().space.segments.candidates(&self.geometry, group);
            best.offer(found.into_iter().filter(|found| !stuck.contains_key(&found.at)));
        }
        best.chosen()
    }

    /// Extends the file, unless more would be free than is given back, or the device is full;
    /// returns whether it did.
    pub(crate) fn extend_for_whole_segments(&self) -> Result<bool, TierError> {
        let backed = {
            let mut state = self.state.lock();
            let backed = self.backed_places(&mut state);
            if self.is_enough(&mut state, backed + self.geometry.places_per_group, Extent::Spacious) {
                return Ok(false);
            }
            backed
        };
        match self.add_groups(backed, 1, Search::KnownAndSome) {
            Err(error) if error.kind == TierErrorKind::Full => Ok(false),
            outcome => outcome.map(|()| true),
        }
    }

    /// Goes on through the map until about a batch of pages was moved.
    fn walk(&self, circle: &mut Circle) -> Result<(), TierError> {
        let Circle { chosen, next, maps, moved, .. } = circle;
        let is_chosen = |place: Place| chosen.contains(&segment_of(&self.geometry, place));
        *next += self.move_out(&is_chosen, None, *next..*maps, moved)?.maps;
        Ok(())
    }

    /// Looks through map pages until about a batch of images and delta pages was found at places
    /// that are to be left, and moves it elsewhere: with `is_to_move`, the images that it says.
    /// `moved` counts the places taken for it, and meanwhile.
    ///
    /// Errors: what does not concern single pages; then the call is to be repeated.
    pub(crate) fn move_out(
        &self,
        is_chosen: &dyn Fn(Place) -> bool,
        is_to_move: Option<ToMove<'_>>,
        maps: impl Iterator<Item = u64>,
        moved: &mut u64,
    ) -> Result<MovedOut, TierError> {
        let (mut images, mut deltas) = (BTreeMap::new(), BTreeSet::new());
        let mut looked_at = 0;
        for map in maps.take(MAPS_A_STEP) {
            self.look_for(is_chosen, map, (&mut images, &mut deltas))?;
            looked_at += 1;
            if images.len() + deltas.len() >= self.policy.batch_pages {
                break;
            }
        }
        let before = self.written();
        let pages: Vec<PageId> = images.keys().copied().collect();
        let to_move = |page: PageId, image: &[u8]| is_to_move.is_none_or(|it| it(images[&page], image));
        let rewritten = self.rewrite_if(&pages, Stream::Moved, &to_move);
        count(&self.counters.images_moved, rewritten.written);
        let gathered = match deltas.is_empty() || is_to_move.is_some() {
            true => Ok(Progress::Idle),
            false => {
                let deltas: Vec<Place> = deltas.into_iter().collect();
                self.gather_from(&deltas, deltas.len(), Stream::Moved)
            }
        };
        // Writes of others beside it count for the cleaner, which only makes it slower.
        *moved += self.written() - before;
        for outcome in [rewritten.outcome, gathered.map(drop)] {
            match outcome {
                // It stays where it is, and reading it reports it.
                Err(error) if error.concerns_the_page() => {}
                outcome => outcome?,
            }
        }
        // Not before: a step that failed for another reason is repeated.
        let declined = rewritten.declined.into_iter().map(|page| (page, images[&page])).collect();
        Ok(MovedOut { maps: looked_at, declined })
    }

    /// Finds pages of a map page with an image at a chosen place, and delta pages there. Nothing of
    /// a map page that cannot be read.
    fn look_for(
        &self,
        is_chosen: &dyn Fn(Place) -> bool,
        map: u64,
        (images, deltas): (&mut BTreeMap<PageId, Place>, &mut BTreeSet<Place>),
    ) -> Result<(), TierError> {
        let _pins = match self.pin(&[MetaId::Map(map)]) {
            Ok(pins) => pins,
            Err(error) if error.concerns_the_page() || error.kind == TierErrorKind::NotAllocated => {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let mut state = self.state.lock();
        let first = map * self.geometry.entries_per_map;
        for page in (first..first + self.geometry.entries_per_map).map(PageId) {
            let Some(Ok(entry)) = state.entry_in_memory(self, page) else { continue };
            if let Some(place) = entry.place().filter(|place| is_chosen(*place)) {
                images.insert(page, place);
            } else if let Some(at) = entry.slot().filter(|at| is_chosen(at.place)) {
                deltas.insert(at.place);
            }
        }
        Ok(())
    }
}
