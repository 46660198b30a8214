//! Free space in memory: what is held, what waits for the log, and which places come next.
//!
//! A place or page number is *available* if its bit is clear in the bitmap page and it is not held.
//! Held are
//! * reserved page numbers (handed out, and not allocated by a record yet, durable or not);
//! * places of writes in flight (chosen, not yet in the map);
//! * pages and places freed by a record that is not durable yet: a crash would undo the free;
//! * places of shadows that neither archive nor backup has (`shadows.rs`).
//!
//! The number available in a group is known once its bitmap page has been read ("learned"), so that
//! opening reads none of them.

mod by_code;
mod closed;
mod learned;
mod page_numbers;
pub(crate) mod shadows;

use super::bitmap::{self, Which};
use super::geometry::{Geometry, Place, SEGMENT_PLACES};
use super::segments::{Segments, Stream};
use by_code::{ByCode, OfCode};
use firndb_base::{Lsn, PageId};
use shadows::Shadows;
use std::cmp::Reverse;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

/// Debug builds check the space of stores of at most this many groups.
const CHECKED_MAX: usize = 64;

/// Free space of one group.
#[derive(Clone, Copy, Debug, Default)]
struct GroupSpace {
    learned: bool,
    /// Its places must not be taken, whatever its bitmap page says, until it is unlearned.
    closed: bool,
    places: u32,
    /// Of a closed group: places that would be available.
    idle: u32,
    pages: u32,
    /// How its places are coded over the members of an array; known once it was learned.
    code: Option<u8>,
}

impl GroupSpace {
    fn code(&self) -> u8 {
        self.code.unwrap_or(0)
    }
}

/// What one record freed, until it is durable.
#[derive(Debug)]
pub(crate) struct Pending {
    /// The record is durable once the log is durable up to here.
    pub end: Lsn,
    /// Until then the log is needed from here.
    pub needed_from: Lsn,
    pub pages: Vec<PageId>,
    pub places: Vec<Place>,
}

#[derive(Debug)]
pub(crate) struct Space {
    groups: Vec<GroupSpace>,
    /// Learned groups with available places.
    by_code: ByCode,
    /// Learned groups with available page numbers.
    with_pages: BTreeSet<u64>,
    /// Learned groups without space on the device for their places.
    unbacked: BTreeSet<u64>,
    /// Groups before the one and from the other on are learned.
    unlearned: Range<u64>,
    /// Here begin the groups with free page numbers, if all before them are full; between start and
    /// end if that is not known yet.
    first_free: Range<u64>,
    /// Number of closed groups.
    closed: u64,
    held_places: BTreeSet<u64>,
    pub shadows: Shadows,
    reserved: BTreeSet<u64>,
    freed_pages: BTreeSet<u64>,
    /// No page number is available in segments of this group before this one.
    no_page_before: (u64, usize),
    pending: VecDeque<Pending>,
    /// Places chosen by writes under way.
    pub in_flight: u64,
    /// Which segments are whole.
    pub segments: Segments,
}

/// In which order available places are taken, but for those of a stream's own segment.
#[derive(Clone, Copy)]
pub(crate) enum Order {
    /// Where most is free, which makes the longest runs: the emptiest segments.
    EmptiestFirst(Stream),
    /// The fullest segments of the first group that has some: those that the cleaner is emptying
    /// only if no other group has any, and whole ones last, which it needs.
    FullestFirst,
}

/// Segments of which `FullestFirst` takes nothing, since others have places.
#[derive(Clone, Copy)]
struct Spared {
    whole: bool,
    avoided: bool,
}

impl Space {
    pub(crate) fn new(groups: u64) -> Space {
        Space {
            groups: vec![GroupSpace::default(); groups as usize],
            by_code: ByCode::default(),
            with_pages: BTreeSet::new(),
            unbacked: BTreeSet::new(),
            unlearned: 0..groups,
            first_free: 0..groups,
            closed: 0,
            held_places: BTreeSet::new(),
            shadows: Shadows::default(),
            reserved: BTreeSet::new(),
            freed_pages: BTreeSet::new(),
            no_page_before: (0, 0),
            pending: VecDeque::new(),
            in_flight: 0,
            segments: Segments::default(),
        }
    }

    /// Whether a place is held.
    pub(crate) fn is_place_held(&self, place: Place) -> bool {
        self.held_places.contains(&place.0) || self.shadows.holds_place(place.0)
    }
    pub(crate) fn groups(&self) -> u64 {
        self.groups.len() as u64
    }
    pub(crate) fn add_groups(&mut self, groups: u64) {
        self.groups.resize(groups as usize, GroupSpace::default());
        self.unlearned.end = groups;
    }
    /// Removes the last group, of which nothing is held.
    pub(crate) fn remove_last_group(&mut self) {
        let group = self.groups() - 1;
        self.unlearn(group);
        self.groups.pop();
        self.unlearned.end = self.unlearned.end.min(group);
    }

    /// Page numbers handed out and not yet allocated.
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved.len() as u64
    }
    pub(crate) fn is_reserved(&self, page: PageId) -> bool {
        self.reserved.contains(&page.0)
    }
    /// End of the youngest record that freed space which waits for the log.
    pub(crate) fn pending_end(&self) -> Option<Lsn> {
        self.pending.back().map(|pending| pending.end)
    }
    pub(crate) fn pending_needed_from(&self) -> Option<Lsn> {
        self.pending.iter().map(|pending| pending.needed_from).min()
    }

    fn change(&mut self, group: u64, change: impl FnOnce(&mut GroupSpace)) {
        let mut now = self.groups[group as usize];
        if !now.learned {
            return;
        }
        let before = now;
        change(&mut now);
        if now.places != before.places {
            self.by_code.of(now.code()).change(group, before.places, now.places);
        }
        if now.pages > 0 && before.pages == 0 {
            self.with_pages.insert(group);
        } else if now.pages == 0 {
            self.with_pages.remove(&group);
        }
        self.groups[group as usize] = now;
    }

    /// A learned group without space on the device for its places.
    pub(crate) fn unbacked_group(&self) -> Option<u64> {
        self.unbacked.first().copied()
    }
    /// The learned groups without space on the device for their places.
    pub(crate) fn unbacked_groups(&self) -> impl Iterator<Item = u64> {
        self.unbacked.iter().copied()
    }
    pub(crate) fn is_unbacked(&self, group: u64) -> bool {
        self.unbacked.contains(&group)
    }
    /// The last learned group of which all places are available.
    pub(crate) fn empty_group(&self, geometry: &Geometry) -> Option<u64> {
        self.by_code.empty(geometry.places_per_group as u32)
    }
    /// Number of available places of the learned group of a code that has the most.
    pub(crate) fn most_places(&self, code: u8) -> u32 {
        self.by_code.get(code).and_then(OfCode::best).map_or(0, |(places, _)| places)
    }

    /// The learned group to take places from next: one of the code, if any has a place, or else
    /// another. There is one as long as any has a place.
    pub(crate) fn group_for_places(&self, order: Order, code: u8) -> Option<u64> {
        let of_code = self.by_code.get(code).filter(|of_code| of_code.best().is_some());
        let of_code = of_code.or_else(|| self.by_code.any())?;
        let (best, best_group) = of_code.best()?;
        let Order::EmptiestFirst(stream) = order else {
            return Some(self.segments.loose_group().map_or(best_group, |(group, _)| group));
        };
        match of_code.open[stream as usize] {
            // Staying in one group makes the runs of successive batches adjacent; but only while
            // the group has at least half as many places as the best one.
            Some((group, _)) if self.groups[group as usize].places * 2 >= best => Some(group),
            _ => Some(best_group),
        }
    }

    /// Takes up to `count` available places of a learned group in an order, appending them to
    /// `taken` and holding them.
    pub(crate) fn take_places(
        &mut self,
        geometry: &Geometry,
        group: u64,
        body: &[u8],
        order: Order,
        count: usize,
        taken: &mut Vec<Place>,
    ) {
        let segments = geometry.segments();
        let (base, code) = (group * geometry.places_per_group, self.groups[group as usize].code());
        let mut free: Vec<u64> = (0..segments)
            .map(|segment| {
                let start = base + segment as u64 * SEGMENT_PLACES;
                let used = bitmap::word(geometry, body, Which::Places, segment);
                !used & geometry.segment_mask(segment) & !self.held_mask(start..start + SEGMENT_PLACES)
            })
            .collect();
        // A damaged bitmap may have less than was counted: then the caller looks again.
        let spared = match self.segments.loose_group() {
            Some((_, has_others)) => Spared { whole: true, avoided: has_others },
            None => Spared { whole: false, avoided: false },
        };
        let mut left = count;
        while left > 0 {
            let segment = match order {
                Order::EmptiestFirst(stream) => self.emptiest_segment(group, &free, stream as usize),
                Order::FullestFirst => self.fullest_segment(geometry, group, &free, spared),
            };
            let Some(segment) = segment else { break };
            if let Order::EmptiestFirst(stream) = order {
                self.by_code.of(code).open[stream as usize] = Some((group, segment));
            }
            let start = base + segment as u64 * SEGMENT_PLACES;
            while left > 0 && free[segment] != 0 {
                let place = start + u64::from(free[segment].trailing_zeros());
                free[segment] &= free[segment] - 1;
                assert!(self.held_places.insert(place));
                taken.push(Place(place));
                left -= 1;
            }
        }
        let took = (count - left) as u32;
        self.in_flight += u64::from(took);
        // As the bitmap has it, should it have been damaged since it was learned.
        let places = free.iter().map(|free| free.count_ones()).sum();
        self.change(group, |space| space.places = places);
        for (segment, free) in free.iter().enumerate() {
            self.segments.set(geometry, (group, segment), free.count_ones() as u8);
        }
    }

    /// Opens a whole segment for the stream if it has none to go on in; returns its group. `None`
    /// if no known segment is whole.
    pub(crate) fn group_for_whole(&mut self, stream: Stream) -> Option<u64> {
        self.segments.open(stream).map(|open| open.at.0)
    }

    /// Takes up to `count` places from where the stream goes on, in the segment that it has open in
    /// this group, appending them to `taken` and holding them.
    pub(crate) fn take_whole(
        &mut self,
        geometry: &Geometry,
        (group, body): (u64, &[u8]),
        stream: Stream,
        count: usize,
        taken: &mut Vec<Place>,
    ) {
        let open = self.segments.open(stream).filter(|open| open.at.0 == group).expect("just opened");
        let start = group * geometry.places_per_group + open.at.1 as u64 * SEGMENT_PLACES;
        let used = bitmap::word(geometry, body, Which::Places, open.at.1);
        let held = self.held_mask(start..start + SEGMENT_PLACES);
        let mut free = !used & geometry.segment_mask(open.at.1) & !held;
        let (before, mut next) = (taken.len(), open.next);
        while next < SEGMENT_PLACES && taken.len() - before < count {
            if free >> next & 1 == 1 {
                free &= !(1 << next);
                assert!(self.held_places.insert(start + next));
                taken.push(Place(start + next));
            }
            next += 1;
        }
        // Nothing is left of a segment that ends the group, either.
        if free.checked_shr(next as u32).unwrap_or(0) == 0 {
            next = SEGMENT_PLACES;
        }
        self.in_flight += (taken.len() - before) as u64;
        self.segments.took(geometry, stream, next, free.count_ones() as u8);
        let places = self.segments.available(group);
        self.change(group, |space| space.places = places);
    }

    /// The open segment while it has places; then the emptiest, among equals the next one after it.
    /// The segment that the other stream is filling comes last.
    fn emptiest_segment(&self, group: u64, free: &[u64], mine: usize) -> Option<usize> {
        let streams = self.by_code.get(self.groups[group as usize].code()).map_or([None; 2], |it| it.open);
        let open = streams[mine].filter(|(open_group, _)| *open_group == group).map(|(_, segment)| segment);
        if let Some(segment) = open.filter(|segment| free[*segment] != 0) {
            return Some(segment);
        }
        let after = open.map_or(0, |segment| segment + 1);
        let others = |segment: usize| {
            (0..streams.len()).any(|other| other != mine && streams[other] == Some((group, segment)))
        };
        (0..free.len())
            .map(|step| (after + step) % free.len())
            .enumerate()
            .filter(|(_, segment)| free[*segment] != 0)
            .max_by_key(|(step, segment)| (!others(*segment), free[*segment].count_ones(), Reverse(*step)))
            .map(|(_, segment)| segment)
    }

    /// The fullest segment with an available place; those in which a stream goes on come after all
    /// others that are not whole.
    fn fullest_segment(
        &self,
        geometry: &Geometry,
        group: u64,
        free: &[u64],
        spared: Spared,
    ) -> Option<usize> {
        let is_whole = |segment: usize| free[segment] == geometry.segment_mask(segment);
        let is_avoided = |segment: usize| self.segments.is_avoided((group, segment));
        (0..free.len())
            .filter(|segment| free[*segment] != 0 && !(spared.whole && is_whole(*segment)))
            .filter(|segment| !(spared.avoided && is_avoided(*segment)))
            .min_by_key(|segment| {
                let is_open = self.segments.is_open((group, *segment));
                (is_whole(*segment), is_open, free[*segment].count_ones())
            })
    }

    /// Releases a chosen place that was not used after all.
    pub(crate) fn drop_place(&mut self, geometry: &Geometry, place: Place) {
        self.in_flight -= 1;
        self.unhold_place(geometry, place);
    }
    /// Notes that a chosen place is in the map: the bitmap keeps it from now on.
    pub(crate) fn placed(&mut self, place: Place) {
        self.in_flight -= 1;
        assert!(self.held_places.remove(&place.0), "{place:?} was not held");
    }
    fn unhold_place(&mut self, geometry: &Geometry, place: Place) {
        assert!(self.held_places.remove(&place.0), "{place:?} was not held");
        if !self.is_held_when_idle(place) {
            self.make_available(geometry, place);
        }
    }
    fn make_available(&mut self, geometry: &Geometry, place: Place) {
        let group = geometry.group_of_place(place);
        self.change(group, |space| *if space.closed { &mut space.idle } else { &mut space.places } += 1);
        self.segments.add_one(geometry, (group, (geometry.index_of_place(place) / SEGMENT_PLACES) as usize));
    }

    /// The held places within a segment, as bits.
    fn held_mask(&self, range: std::ops::Range<u64>) -> u64 {
        mask_of(&self.held_places, range.clone()) | self.shadows.mask(range)
    }

    /// Holds what a record freed until the record is durable.
    pub(crate) fn hold_freed(&mut self, geometry: &Geometry, pending: Pending) {
        assert!(self.pending.back().is_none_or(|last| last.end <= pending.end), "records come in order");
        for place in &pending.places {
            assert!(self.held_places.insert(place.0), "{place:?} was in use and held");
        }
        for page in &pending.pages {
            assert!(self.freed_pages.insert(page.0), "{page:?} was freed twice");
        }
        self.pending.push_back(pending);
        if cfg!(debug_assertions) && self.groups.len() <= CHECKED_MAX {
            self.check(geometry);
        }
    }
    /// Asserts what the module's head states: what is held, and that groups are found by what they
    /// have.
    fn check(&self, geometry: &Geometry) {
        let places: usize = self.pending.iter().map(|pending| pending.places.len()).sum();
        assert_eq!(self.held_places.len(), self.in_flight as usize + places, "places are held for a reason");
        let pages: usize = self.pending.iter().map(|pending| pending.pages.len()).sum();
        assert_eq!(self.freed_pages.len(), pages, "page numbers are held until a record is durable");
        assert!(self.reserved.is_disjoint(&self.freed_pages), "a page that was freed is not handed out");
        for (number, group) in (0..).zip(&self.groups) {
            let found = self.by_code.contains(group.code(), (group.places, number));
            assert_eq!(found, group.places > 0, "group {number} is found by its places");
            assert_eq!(self.with_pages.contains(&number), group.pages > 0, "group {number} by its pages");
            assert!(group.learned || (group.places, group.pages) == (0, 0), "group {number} is not known");
            self.segments.check(geometry, number, group.places);
            assert!(group.learned || self.unlearned.contains(&number));
        }
        assert!(self.by_code.groups() <= self.groups.len() && self.unlearned.end <= self.groups());
    }

    /// Makes available what durable records freed.
    pub(crate) fn release_freed(&mut self, geometry: &Geometry, durable: Lsn) {
        while self.pending.front().is_some_and(|pending| pending.end <= durable) {
            let pending = self.pending.pop_front().expect("there is a first");
            for place in pending.places {
                self.unhold_place(geometry, place);
            }
            for page in pending.pages {
                assert!(self.freed_pages.remove(&page.0));
                self.page_is_available(geometry, page);
            }
        }
    }
}

/// The members of `set` within a segment, as bits.
fn mask_of(set: &BTreeSet<u64>, range: std::ops::Range<u64>) -> u64 {
    let start = range.start;
    set.range(range).fold(0, |mask, place| mask | 1 << (place - start))
}
