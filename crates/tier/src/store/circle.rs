//! What the cleaner of space decides, without I/O: which segments to empty, and when a step is due.

use super::segments::{Candidate, SegmentAt};
use std::collections::BTreeSet;

/// Of a segment's places, so many quarters at most are copied.
const COPIED_QUARTERS_MAX: u64 = 3;
/// The cleaner, between two steps.
#[derive(Debug, Default)]
pub(crate) struct Cleaning {
    pub circle: Option<Circle>,
    /// No circle begins before so many places were taken: the last one gained nothing.
    pub rests_until: u64,
}

/// A walk through the page map.
#[derive(Debug)]
pub(crate) struct Circle {
    pub chosen: BTreeSet<SegmentAt>,
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

/// The segments to be emptied: the most worthy, so many at most; and the places free in them.
pub(crate) fn choose(mut found: Vec<Candidate>, most: u64) -> (BTreeSet<SegmentAt>, u64) {
    found.retain(|segment| {
        let used = segment.places - segment.available;
        used > 0 && 4 * used <= COPIED_QUARTERS_MAX * segment.places
    });
    found.sort_by(|a, b| worth(b).total_cmp(&worth(a)).then(a.at.cmp(&b.at)));
    found.truncate(usize::try_from(most).unwrap_or(usize::MAX));
    let free = found.iter().map(|segment| segment.available).sum();
    (found.iter().map(|segment| segment.at).collect(), free)
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
            let (chosen, free) = choose(found.to_vec(), most);
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
    fn a_circle_goes_as_fast_as_others_take_places() {
        let circle = |next, others| Circle {
            chosen: BTreeSet::new(),
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
