//! What the cleaners of space decide, without I/O: which segments to empty, when a step is due, and
//! how much is given back.

use super::segments::{Candidate, SegmentAt};
use std::collections::{BTreeMap, BTreeSet};

/// Of the places of a segment, or of a group that the background empties, at most this number of
/// quarters is copied.
pub(crate) const COPIED_QUARTERS_MAX: u64 = 3;
/// The cleaners, between two steps.
#[derive(Debug, Default)]
pub(crate) struct Cleaning {
    pub circle: Option<Circle>,
    /// No circle begins before this number of places was taken: the last one gained nothing.
    pub rests_until: u64,
    /// Segments that a circle could not empty, and the clock when it began: until they were whole
    /// since, they are chosen again only when nothing else is left.
    pub stuck: BTreeMap<SegmentAt, u32>,
    /// Groups that are being emptied.
    pub vacating: Option<Vacating>,
    /// Groups that could not be emptied, since something there is damaged: not chosen again, but
    /// for compaction.
    pub not_emptied: BTreeSet<u64>,
    /// As many groups that returned their space may be used again by this compaction.
    pub refills_left: u64,
    /// In the background no groups are chosen before this number of places was taken.
    pub vacates_from: u64,
}

/// More segments that could not be emptied are not remembered: all are tried again.
const STUCK_MAX: usize = 4096;

impl Cleaning {
    /// Remembers what a circle could not empty.
    pub(crate) fn note_stuck(&mut self, stuck: &[SegmentAt], clock: u32) {
        if self.stuck.len() + stuck.len() > STUCK_MAX {
            self.stuck.clear();
        }
        self.stuck.extend(stuck.iter().take(STUCK_MAX).map(|at| (*at, clock)));
    }
}

/// How much is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// What leaves a quarter more than growth aims at: with less, growing and shrinking would
    /// alternate.
    Spacious,
    /// What leaves a twentieth more than growth aims at, so that the next pages do not undo it: for
    /// a caller that asks for it.
    Tight,
}

impl Extent {
    /// Of the places that growth aims at.
    pub(crate) fn percent(self) -> u64 {
        match self {
            Extent::Spacious => 125,
            Extent::Tight => 105,
        }
    }
}

/// A walk through the page map that empties groups.
#[derive(Debug)]
pub(crate) struct Vacating {
    pub groups: BTreeSet<u64>,
    /// The next map page, and how many there were when it began.
    pub next: u64,
    pub maps: u64,
    /// Map pages that are looked at once more, of images that stayed since their pages were written
    /// meanwhile.
    pub again: BTreeSet<u64>,
    /// Groups where such images stayed the second time, too.
    pub in_use: BTreeSet<u64>,
}

impl Vacating {
    /// Begins a walk of a page map of `maps` pages, to empty `groups`, which are closed.
    pub(crate) fn of(groups: BTreeSet<u64>, maps: u64) -> Vacating {
        Vacating { groups, next: 0, maps, again: BTreeSet::new(), in_use: BTreeSet::new() }
    }
}

/// A walk through the page map.
#[derive(Debug)]
pub(crate) struct Circle {
    pub chosen: BTreeSet<SegmentAt>,
    /// Segments that had been opened when it began.
    pub clock: u32,
    /// [`super::segments::Segments::made`] when it began.
    pub made: u64,
    /// The next map page, and how many there were when the circle began.
    pub next: u64,
    pub maps: u64,
    /// Pages written when it began; of those written since, its own.
    pub began: u64,
    pub moved: u64,
    /// Places that others may take while it lasts.
    pub others: u64,
}

impl Circle {
    /// Whether others have taken more of their places than the circle has gone of its way.
    pub(crate) fn is_due(&self, written: u64) -> bool {
        let taken = written.saturating_sub(self.began + self.moved);
        u128::from(taken) * u128::from(self.maps) >= u128::from(self.next) * u128::from(self.others)
    }
}

/// What emptying a segment is worth: the places that it frees, for as long as they stayed free
/// without it, over what is read and written (the cost-benefit rule of log-structured file
/// systems).
fn worth(segment: &Candidate) -> f64 {
    let used = segment.places - segment.available;
    segment.available as f64 * (f64::from(segment.age) + 1.0) / (segment.places + used) as f64
}

/// The segments to be emptied: the most worthy of those offered.
#[derive(Debug)]
pub(crate) struct Best {
    most: usize,
    /// At most twice as many as are chosen, and those of one group.
    found: Vec<Candidate>,
}

impl Best {
    /// `most` are chosen, at most.
    pub(crate) fn new(most: u64) -> Best {
        Best { most: usize::try_from(most).unwrap_or(usize::MAX), found: Vec::new() }
    }

    /// Offers segments, at most those of one group.
    pub(crate) fn offer(&mut self, segments: impl IntoIterator<Item = Candidate>) {
        self.found.extend(segments.into_iter().filter(|segment| {
            let used = segment.places - segment.available;
            used > 0 && 4 * used <= COPIED_QUARTERS_MAX * segment.places
        }));
        if self.found.len() > self.most.saturating_mul(2) {
            self.keep_best();
        }
    }

    fn keep_best(&mut self) {
        self.found.sort_by(|a, b| worth(b).total_cmp(&worth(a)).then(a.at.cmp(&b.at)));
        self.found.truncate(self.most);
    }

    /// Those chosen, and the places free in them.
    pub(crate) fn chosen(mut self) -> (BTreeSet<SegmentAt>, u64) {
        self.keep_best();
        let free = self.found.iter().map(|segment| segment.available).sum();
        (self.found.iter().map(|segment| segment.at).collect(), free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(at: usize, available: u64, age: u32) -> Candidate {
        Candidate { at: (0, at), places: 64, available, age }
    }

    #[test]
    fn the_cleaner_chooses_what_frees_most_for_what_it_copies() {
        let chosen = |found: &[Candidate], most| {
            let mut best = Best::new(most);
            best.offer(found.iter().copied());
            let (chosen, free) = best.chosen();
            (chosen.into_iter().map(|(_, segment)| segment).collect::<Vec<_>>(), free)
        };
        let found = [segment(0, 40, 0), segment(1, 20, 0), segment(2, 20, 9), segment(3, 15, 1000)];
        assert_eq!(chosen(&found, 1), (vec![2], 20), "old ones stay as they are for longer");
        assert_eq!(chosen(&found, 2), (vec![0, 2], 60));
        assert_eq!(chosen(&found, 9), (vec![0, 1, 2], 80), "never more than three copies a place");
        assert_eq!(chosen(&found, 0), (vec![], 0));
        assert_eq!(chosen(&[segment(0, 64, 3)], 1), (vec![], 0), "an empty one has nothing to move");
    }

    #[test]
    fn few_segments_of_many_groups_are_kept_for_the_choice() {
        let mut best = Best::new(10);
        for group in 0..1000 {
            best.offer((0..8).map(|at| Candidate { at: (group, at), ..segment(0, 20, group as u32 % 97) }));
            assert!(best.found.len() <= 2 * 10 + 8);
        }
        let (chosen, _) = best.chosen();
        assert_eq!(chosen.len(), 10);
        assert!(chosen.iter().all(|(group, _)| group % 97 == 96), "the oldest: {chosen:?}");
    }

    #[test]
    fn a_circle_goes_as_fast_as_others_take_places() {
        let circle = |next, others| Circle {
            chosen: BTreeSet::new(),
            clock: 0,
            made: 0,
            next,
            maps: 100,
            began: 50,
            moved: 10,
            others,
        };
        assert!(circle(0, 200).is_due(60), "it begins at once");
        assert!(
            !circle(50, 200).is_due(159) && circle(50, 200).is_due(160),
            "half of its way, half of the places"
        );
        assert!(circle(99, 0).is_due(60), "without places for others it does not wait");
    }
}
