//! How many slots of each delta page a map entry names, in memory: a byte for each place of groups
//! that have delta pages.
//!
//! After opening the bitmap pages tell which places are delta pages, and not how many of their
//! slots live: that is *unknown* until a background step reads the page and asks the map. A page
//! none of whose slots lives is *empty*: no entry will name it again, so the next record may free
//! it.
//!
//! A page that cannot be read, or of which fewer slots are named than were counted, is *doubtful*:
//! what was read may be what lay there before, its own write lost; or the map page of a slot cannot
//! be read, or could not when the slot died. Only a walk of the whole map tells how many
//! entries name it (`walk.rs`).

use super::super::geometry::{Geometry, Place};
use super::page::SLOTS_MAX;
use std::collections::{BTreeMap, BTreeSet};

const NOT_A_DELTA_PAGE: u8 = 0;
const UNKNOWN: u8 = u8::MAX;
const DOUBTFUL: u8 = u8::MAX - 1;
/// How often the background thread passes over a walk that met a map page it could not read.
const WALK_RESTS: u32 = 64;
const _: () = assert!(SLOTS_MAX < DOUBTFUL as usize, "a count fits beside the marks");

#[derive(Debug)]
pub(crate) struct Live {
    /// By group, then place: slots named, or a mark. Empty pages are in `empty` and count zero.
    counts: Vec<Option<Box<[u8]>>>,
    /// Delta pages that no entry names.
    empty: BTreeSet<Place>,
    /// Delta pages with a count or unknown, without the empty ones.
    pages: u64,
    /// Those that are unknown.
    unknown: u64,
    /// Those that are doubtful and wait for a walk.
    doubtful: BTreeSet<Place>,
    /// How often a page became doubtful.
    doubts: u64,
    /// Those that a walk counts: entries of the map pages before `walked_to` that name them.
    walking: BTreeMap<Place, u8>,
    walked_to: u64,
    /// Pages with slots that could not be gathered: an image under one is damaged.
    stuck: BTreeSet<Place>,
    /// Times that the background thread passes the walk over.
    walk_rests: u32,
    /// Where the next looks begin, so that one need not go through all pages.
    unknown_from: Place,
    emptiest_from: Place,
}

impl Default for Live {
    fn default() -> Live {
        Live {
            counts: Vec::new(),
            empty: BTreeSet::new(),
            pages: 0,
            unknown: 0,
            doubtful: BTreeSet::new(),
            doubts: 0,
            walking: BTreeMap::new(),
            walked_to: 0,
            stuck: BTreeSet::new(),
            walk_rests: 0,
            unknown_from: Place(0),
            emptiest_from: Place(0),
        }
    }
}

impl Live {
    fn count(&mut self, geometry: &Geometry, place: Place) -> &mut u8 {
        let group = geometry.group_of_place(place) as usize;
        if group >= self.counts.len() {
            self.counts.resize_with(group + 1, || None);
        }
        let places = geometry.places_per_group as usize;
        let counts = self.counts[group].get_or_insert_with(|| vec![NOT_A_DELTA_PAGE; places].into());
        &mut counts[geometry.index_of_place(place) as usize]
    }

    /// Notes a delta page that was just written, with `slots` slots that entries name.
    pub(crate) fn written(&mut self, geometry: &Geometry, place: Place, slots: usize) {
        assert!(slots > 0 && slots <= SLOTS_MAX, "{place:?}: a page of {slots} slots");
        let count = self.count(geometry, place);
        assert_eq!(*count, NOT_A_DELTA_PAGE, "{place:?} was free");
        *count = slots as u8;
        self.pages += 1;
    }
    /// Notes a delta page of which nothing is known, unless it is known.
    pub(crate) fn discovered(&mut self, geometry: &Geometry, place: Place) {
        if self.empty.contains(&place) {
            return;
        }
        let count = self.count(geometry, place);
        if *count == NOT_A_DELTA_PAGE {
            *count = UNKNOWN;
            self.pages += 1;
            self.unknown += 1;
        }
    }
    /// Notes how many slots of a page entries name; none if that cannot be told. A page with
    /// another count becomes doubtful, and comes last among those to be gathered until a walk has
    /// counted it.
    pub(crate) fn counted(&mut self, geometry: &Geometry, place: Place, slots: usize) {
        let count = self.count(geometry, place);
        let before = *count;
        match before {
            NOT_A_DELTA_PAGE | DOUBTFUL => return,
            UNKNOWN if slots > 0 => *count = slots as u8,
            known if usize::from(known) == slots => return,
            _ => *count = DOUBTFUL,
        }
        let is_doubtful = *count == DOUBTFUL;
        self.unknown -= u64::from(before == UNKNOWN);
        if is_doubtful {
            self.doubtful.insert(place);
            self.doubts += 1;
        }
    }
    /// How often a page became doubtful since the store was opened.
    pub(crate) fn doubts(&self) -> u64 {
        self.doubts
    }
    /// Doubtful pages.
    pub(crate) fn doubtful(&self) -> usize {
        self.doubtful.len() + self.walking.len()
    }
    /// The map page that a walk comes to next; it begins with the first if none is under way.
    pub(crate) fn walk_from(&mut self) -> u64 {
        if self.walking.is_empty() {
            self.walking = std::mem::take(&mut self.doubtful).into_iter().map(|place| (place, 0)).collect();
            self.walked_to = 0;
        }
        self.walked_to
    }
    /// Notes the delta pages that the entries of the next map page name.
    pub(crate) fn walked(&mut self, named: impl Iterator<Item = Place>) {
        for place in named {
            if let Some(count) = self.walking.get_mut(&place) {
                *count = count.saturating_add(1);
            }
        }
        self.walked_to += 1;
    }
    /// Lets the walk rest where it is: the next map page cannot be read.
    pub(crate) fn walk_rests(&mut self) {
        self.walk_rests = WALK_RESTS;
    }
    /// Whether the background thread walks on.
    pub(crate) fn walk_is_due(&mut self) -> bool {
        let is_due = self.walk_rests == 0;
        self.walk_rests = self.walk_rests.saturating_sub(1);
        is_due
    }
    /// Ends the walk: with `all`, every map page was read. Else pages that it did not count stay
    /// doubtful until the next opening.
    pub(crate) fn walk_ended(&mut self, geometry: &Geometry, all: bool) {
        for (place, slots) in std::mem::take(&mut self.walking) {
            match (all, usize::from(slots)) {
                (true, 0) => {
                    *self.count(geometry, place) = NOT_A_DELTA_PAGE;
                    self.pages -= 1;
                    self.empty.insert(place);
                }
                // (More entries than slots: the map contradicts itself.)
                (true, 1..=SLOTS_MAX) => *self.count(geometry, place) = slots,
                _ => {}
            }
        }
    }
    /// Notes that an entry of this map page no longer names a slot of the page.
    pub(crate) fn died(&mut self, geometry: &Geometry, place: Place, map: u64) {
        if map < self.walked_to
            && let Some(count) = self.walking.get_mut(&place)
        {
            *count = count.saturating_sub(1);
        }
        let count = self.count(geometry, place);
        match *count {
            UNKNOWN | DOUBTFUL | NOT_A_DELTA_PAGE => {}
            1 => {
                *count = NOT_A_DELTA_PAGE;
                self.pages -= 1;
                self.empty.insert(place);
            }
            more => *count = more - 1,
        }
    }
    /// Leaves an empty page that its bitmap page contradicts to the next opening.
    pub(crate) fn give_up(&mut self, place: Place) {
        self.empty.remove(&place);
    }
    /// Notes that those of `places` could not be gathered that still have slots: they come last
    /// among those to be gathered. Returns whether that is new of any.
    pub(crate) fn put_behind(&mut self, geometry: &Geometry, places: &[Place]) -> bool {
        let before = self.stuck.len();
        for place in places {
            if *self.count(geometry, *place) != NOT_A_DELTA_PAGE {
                self.stuck.insert(*place);
            }
        }
        self.stuck.len() > before
    }
    /// Notes that the place was freed.
    pub(crate) fn freed(&mut self, geometry: &Geometry, place: Place) {
        assert!(self.empty.remove(&place), "{place:?} is freed when it is empty");
        self.stuck.remove(&place);
        assert_eq!(*self.count(geometry, place), NOT_A_DELTA_PAGE);
    }

    /// Up to `limit` pages without a slot that lives.
    pub(crate) fn empty(&self, limit: usize) -> Vec<Place> {
        self.empty.iter().copied().take(limit).collect()
    }
    /// Number of pages without a slot that lives.
    pub(crate) fn empty_count(&self) -> u64 {
        self.empty.len() as u64
    }
    /// Delta pages that are known, the empty ones left out.
    #[cfg(test)]
    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }
    /// Delta pages with their counts, from `from` on.
    fn in_use(&self, geometry: &Geometry, from: Place) -> impl Iterator<Item = (Place, u8)> {
        let per_group = geometry.places_per_group;
        let first = geometry.group_of_place(from);
        let groups = (first..).zip(self.counts.iter().skip(first as usize));
        let groups = groups.filter_map(|(group, counts)| Some((group, counts.as_ref()?)));
        let all = groups.flat_map(move |(group, counts)| {
            let places = (group * per_group..).map(Place);
            places.zip(counts.iter().copied()).filter(|(_, count)| *count != NOT_A_DELTA_PAGE)
        });
        all.skip_while(move |(place, _)| *place < from)
    }
    /// A page whose slots are not counted yet: the next after the one returned before.
    pub(crate) fn next_unknown(&mut self, geometry: &Geometry) -> Option<Place> {
        if self.unknown == 0 {
            return None;
        }
        let find = |from: Place| self.in_use(geometry, from).find(|(_, count)| *count == UNKNOWN);
        let (place, _) = find(self.unknown_from).or_else(|| find(Place(0)))?;
        self.unknown_from = Place(place.0 + 1);
        Some(place)
    }
    /// Up to `limit` pages, those with the fewest slots that live first, unknown ones and then
    /// those that could not be gathered last, among the next `among` pages.
    pub(crate) fn emptiest(&mut self, geometry: &Geometry, limit: usize, among: usize) -> Vec<Place> {
        let from = self.emptiest_from;
        let before = self.in_use(geometry, Place(0)).take_while(|(place, _)| *place < from);
        let next = self.in_use(geometry, from).chain(before).take(among);
        let of = |(place, count): (Place, u8)| (self.stuck.contains(&place), count, place);
        let mut all: Vec<(bool, u8, Place)> = next.map(of).collect();
        self.emptiest_from = all.last().map_or(Place(0), |(.., place)| Place(place.0 + 1));
        if all.len() > limit {
            all.select_nth_unstable(limit);
            all.truncate(limit);
        }
        all.sort_unstable();
        all.into_iter().map(|(.., place)| place).collect()
    }
    /// The slots of a page that live, if they are counted.
    #[cfg(test)]
    pub(crate) fn slots(&self, geometry: &Geometry, place: Place) -> Option<u8> {
        let counts = self.counts.get(geometry.group_of_place(place) as usize)?.as_ref()?;
        let count = counts[geometry.index_of_place(place) as usize];
        (1..DOUBTFUL).contains(&count).then_some(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::options::Layout;
    use firndb_base::rng::Rng;
    use std::collections::BTreeMap;

    /// The DRAM of deltas beside map and write buffer, if each group has a delta page and a fifth
    /// of the places is free.
    #[test]
    fn a_page_takes_at_most_two_bytes() {
        let geometry = Geometry::new(4096, Layout::default()).unwrap();
        let (groups, mut live) = (50, Live::default());
        for group in 0..groups {
            for at in 0..geometry.places_per_group / 8 {
                let place = Place(group * geometry.places_per_group + 8 * at);
                live.written(&geometry, place, 1 + at as usize % 40);
            }
        }
        let of_group = |counts: &Option<Box<[u8]>>| counts.as_ref().map_or(0, |counts| counts.len());
        let pointers = live.counts.capacity() * size_of::<Option<Box<[u8]>>>();
        let bytes = live.counts.iter().map(of_group).sum::<usize>() + pointers + size_of::<Live>();
        // Those without a slot wait for the step that frees sixteen.
        let bytes = bytes + 16 * 3 * size_of::<Place>();
        let places = groups * geometry.places_per_group;
        // Delta pages are an eighth of the places, at most.
        let pages = places - places / 5 - places / 8;
        assert!(bytes as f64 <= 2.0 * pages as f64, "{bytes} bytes for {pages} pages");
        assert!(live.counts.iter().all(Option::is_some) && live.pages == places / 8, "{live:?}");
    }

    #[test]
    fn counts_are_those_of_a_map() {
        let geometry = Geometry::new(512, Layout { meta_bytes: 512, maps_per_group: 2 }).unwrap();
        let mut rng = Rng::new(4);
        let (mut live, mut model) = (Live::default(), BTreeMap::<Place, Option<usize>>::new());
        for _ in 0..20_000 {
            let place = Place(rng.below(200));
            match (rng.below(8), model.get(&place).copied()) {
                (0..2, None) => {
                    let slots = 1 + rng.below(4) as usize;
                    live.written(&geometry, place, slots);
                    model.insert(place, Some(slots));
                }
                (2, known) => {
                    live.discovered(&geometry, place);
                    model.insert(place, known.flatten());
                }
                (3, Some(None)) => {
                    let slots = 1 + rng.below(3) as usize;
                    live.counted(&geometry, place, slots);
                    model.insert(place, Some(slots));
                }
                (4..7, Some(known)) if known != Some(0) => {
                    live.died(&geometry, place, 0);
                    model.insert(place, known.map(|slots| slots - 1));
                }
                (7, Some(Some(0))) => {
                    live.freed(&geometry, place);
                    model.remove(&place);
                }
                _ => {}
            }
            let empty: Vec<Place> =
                model.iter().filter(|(_, n)| **n == Some(0)).map(|(place, _)| *place).collect();
            assert_eq!(live.empty(1000), empty);
            assert_eq!(live.empty_count(), empty.len() as u64);
            assert_eq!(live.pages() + live.empty_count(), model.len() as u64);
            let unknown = live.next_unknown(&geometry);
            assert_eq!(unknown.is_some(), model.values().any(Option::is_none));
            assert!(unknown.is_none_or(|place| model[&place].is_none()));
            let mut by_count: Vec<(usize, Place)> = model
                .iter()
                .filter(|(_, n)| **n != Some(0))
                .map(|(place, n)| (n.unwrap_or(usize::MAX), *place))
                .collect();
            by_count.sort_unstable();
            let least: Vec<Place> = by_count.iter().take(5).map(|(_, place)| *place).collect();
            assert_eq!(live.emptiest(&geometry, 5, usize::MAX), least);
            assert_eq!(
                live.slots(&geometry, place),
                model.get(&place).copied().flatten().filter(|n| *n > 0).map(|n| n as u8)
            );
        }
    }
}
