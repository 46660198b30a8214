//! How many misses more memory would avoid: a sampled curve of reuse distances.
//!
//! An evicted page is put on a list, and removed when it is read again. The pages evicted after it
//! that are still on the list then say how many more frames would have kept it: for LRU the frames
//! and that list together *are* a larger LRU, for the clock nearly. The same distance says how
//! large a flash cache would have held the page. So one curve, taken where misses are and nowhere
//! else, serves for more DRAM and for more flash.
//!
//! Only pages whose number's hash ends in `shift` zero bits are followed (Waldspurger et al.,
//! "Efficient MRC Construction with SHARDS", FAST 2015): each stands for 2^`shift` pages. When more
//! than [`FOLLOWED_MAX`] are on the list, half of them are no longer followed. A page that is freed
//! stays on the list until then.
//!
//! One lock, a leaf, taken for the pages that are followed only. Memory: about 300 KiB, at most.

use crate::ranks;
use firndb_base::PageId;
use firndb_base::hash::{FixedMap, hash_bytes};
use firndb_base::sync::Mutex;
use firndb_base::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Most pages on the list.
const FOLLOWED_MAX: usize = 4096;
/// Distinct eviction times; after that many the times on the list are renumbered.
const TIMES: usize = 2 * FOLLOWED_MAX;
/// Classes of distances: eight an octave, up to 2^40 pages.
const PARTS: u64 = 8;
const CLASSES: usize = 312;

/// Of the misses of a period, how many more memory would have avoided.
#[derive(Clone, PartialEq)]
pub struct MissCurve {
    /// Misses of followed pages, each counted for all that it stands for.
    misses: u64,
    /// Of these, by how many more frames would have avoided them; see `class_of`.
    within: Vec<u64>,
}

impl std::fmt::Debug for MissCurve {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MissCurve").field("misses", &self.misses).finish_non_exhaustive()
    }
}

impl Default for MissCurve {
    fn default() -> MissCurve {
        MissCurve { misses: 0, within: vec![0; CLASSES] }
    }
}

fn class_of(distance: u64) -> usize {
    let class = match distance {
        0..PARTS => distance,
        _ => {
            let octave = u64::from(distance.ilog2());
            (octave - 2) * PARTS + ((distance >> (octave - 3)) & (PARTS - 1))
        }
    };
    (class as usize).min(CLASSES - 1)
}

/// The least distance of a class.
fn least_of(class: usize) -> u64 {
    let (octave, part) = (class as u64 / PARTS, class as u64 % PARTS);
    match octave {
        0 => part,
        _ => (PARTS + part) << (octave - 1),
    }
}

impl MissCurve {
    /// A hypothetical curve of `misses` misses. `avoided` returns the share of them that a number
    /// of frames would have avoided; it must not fall.
    #[must_use]
    pub fn hypothetical(misses: u64, avoided: impl Fn(u64) -> f64) -> MissCurve {
        let count = |class: usize| (misses as f64 * avoided(least_of(class))) as u64;
        let within = (0..CLASSES).map(|class| count(class + 1).saturating_sub(count(class))).collect();
        MissCurve { misses, within }
    }

    /// Misses that the curve is about.
    #[must_use]
    pub fn misses(&self) -> u64 {
        self.misses
    }

    /// The share of misses that `frames` more frames would have avoided, 0 to 1. The first read of
    /// a page is never avoided.
    #[must_use]
    pub fn avoided_by(&self, frames: u64) -> f64 {
        if self.misses == 0 {
            return 0.0;
        }
        let mut avoided = 0.0;
        for (class, &count) in
            self.within.iter().enumerate().take_while(|(class, _)| least_of(*class) < frames)
        {
            let (least, next) = (least_of(class), least_of(class + 1));
            let part = (frames.min(next) - least) as f64 / (next - least) as f64;
            avoided += count as f64 * part;
        }
        avoided / self.misses as f64
    }

    /// The part of this curve that is younger than `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &MissCurve) -> MissCurve {
        let within = self.within.iter().zip(&earlier.within).map(|(now, then)| now - then).collect();
        MissCurve { misses: self.misses - earlier.misses, within }
    }
}

/// Follows the pages of a pool.
pub(crate) struct FollowedPages {
    /// As in `Followed`; changes under its lock.
    shift: AtomicU32,
    list: Mutex<DroppedPages>,
}

impl Default for FollowedPages {
    fn default() -> FollowedPages {
        FollowedPages { shift: AtomicU32::new(0), list: ranks::FOLLOWED_PAGES.mutex(DroppedPages::default()) }
    }
}

struct DroppedPages {
    /// Each page followed stands for 2^shift.
    shift: u32,
    /// When a page on the list was dropped.
    dropped: FixedMap<PageId, usize>,
    /// Which page was dropped at each time, if it is on the list still.
    times: Vec<Option<PageId>>,
    younger: Younger,
    curve: MissCurve,
}

/// How many pages on the list were dropped up to each time: a Fenwick tree.
struct Younger(Vec<u32>);

impl Younger {
    fn change(&mut self, time: usize, by: i32) {
        let mut node = time + 1;
        while node <= TIMES {
            self.0[node] = self.0[node].wrapping_add_signed(by);
            node += node & node.wrapping_neg();
        }
    }
    /// Those dropped at `time` or before.
    fn up_to(&self, time: usize) -> u32 {
        let mut node = time + 1;
        let mut sum = 0u32;
        while node > 0 {
            sum += self.0[node];
            node &= node - 1;
        }
        sum
    }
}

impl Default for DroppedPages {
    fn default() -> DroppedPages {
        DroppedPages {
            shift: 0,
            dropped: FixedMap::default(),
            times: Vec::with_capacity(TIMES),
            younger: Younger(vec![0; TIMES + 1]),
            curve: MissCurve::default(),
        }
    }
}

fn is_followed(page: PageId, shift: u32) -> bool {
    hash_bytes(0, &page.0.to_le_bytes()).trailing_zeros() >= shift
}

impl FollowedPages {
    /// A page is evicted from DRAM.
    pub(crate) fn evicted(&self, page: PageId) {
        if !is_followed(page, self.shift.load(Relaxed)) {
            return;
        }
        let mut list = self.list.lock();
        if is_followed(page, list.shift) {
            list.push(page);
            if list.dropped.len() > FOLLOWED_MAX {
                list.thin_out();
                self.shift.store(list.shift, Relaxed);
            }
            debug_assert!(list.dropped.len() <= FOLLOWED_MAX && list.times.len() <= TIMES);
        }
    }

    /// A page is read from the tier.
    pub(crate) fn missed(&self, page: PageId) {
        if !is_followed(page, self.shift.load(Relaxed)) {
            return;
        }
        let mut list = self.list.lock();
        if is_followed(page, list.shift) {
            list.miss(page);
        }
    }

    pub(crate) fn curve(&self) -> MissCurve {
        self.list.lock().curve.clone()
    }
}

impl DroppedPages {
    fn push(&mut self, page: PageId) {
        if self.times.len() == TIMES {
            self.number_anew();
        }
        // It was freed and came again, without being read.
        self.take(page);
        let time = self.times.len();
        self.times.push(Some(page));
        self.dropped.insert(page, time);
        self.younger.change(time, 1);
    }

    /// Removes a page from the list; returns when it was evicted.
    fn take(&mut self, page: PageId) -> Option<usize> {
        let time = self.dropped.remove(&page)?;
        self.times[time] = None;
        self.younger.change(time, -1);
        Some(time)
    }

    fn miss(&mut self, page: PageId) {
        let weight = 1 << self.shift;
        self.curve.misses += weight;
        if let Some(time) = self.take(page) {
            let younger = self.dropped.len() as u64 - u64::from(self.younger.up_to(time));
            self.curve.within[class_of(younger << self.shift)] += weight;
        }
    }

    /// Follows half as many pages, until they are few enough.
    fn thin_out(&mut self) {
        while self.dropped.len() > FOLLOWED_MAX {
            self.shift += 1;
            let shift = self.shift;
            self.dropped.retain(|page, _| is_followed(*page, shift));
        }
        self.number_anew();
    }

    /// Renumbers the times of the pages on the list, without gaps.
    fn number_anew(&mut self) {
        let kept: Vec<PageId> =
            self.times.drain(..).flatten().filter(|page| self.dropped.contains_key(page)).collect();
        assert_eq!(kept.len(), self.dropped.len(), "one time for each page on the list");
        self.younger.0.fill(0);
        self.dropped.clear();
        for page in kept {
            self.push(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_base::rng::Rng;
    use std::collections::BTreeMap;

    #[test]
    fn classes_follow_each_other_without_gaps() {
        for class in 0..CLASSES - 1 {
            assert_eq!(class_of(least_of(class)), class);
            assert_eq!(class_of(least_of(class + 1) - 1), class);
        }
        assert_eq!(class_of(u64::MAX), CLASSES - 1);
    }

    /// LRU with `frames` frames; counts misses.
    struct Lru {
        frames: usize,
        time: u64,
        last: FixedMap<PageId, u64>,
        order: BTreeMap<u64, PageId>,
        misses: u64,
    }
    impl Lru {
        fn new(frames: usize) -> Lru {
            Lru { frames, time: 0, last: FixedMap::default(), order: BTreeMap::new(), misses: 0 }
        }
        fn fix(&mut self, page: PageId, followed: Option<&FollowedPages>) {
            self.time += 1;
            match self.last.insert(page, self.time) {
                Some(last) => drop(self.order.remove(&last)),
                None => {
                    self.misses += 1;
                    followed.inspect(|followed| followed.missed(page));
                    if self.order.len() == self.frames {
                        let (_, gone) = self.order.pop_first().unwrap();
                        self.last.remove(&gone);
                        followed.inspect(|followed| followed.evicted(gone));
                    }
                }
            }
            self.order.insert(self.time, page);
        }
    }

    /// The curve of a small LRU beside larger ones that see the same references. `pages` decides
    /// whether all are followed or a sample.
    fn compare(pages: u64, tolerance: f64) {
        let frames = pages as usize / 50;
        let followed = FollowedPages::default();
        let mut small = Lru::new(frames);
        let factors = [2, 3, 5, 10, 20];
        let mut larger: Vec<Lru> = factors.iter().map(|factor| Lru::new(frames * factor)).collect();
        let mut rng = Rng::new(9);
        for _ in 0..8 * pages {
            // Skewed: the product of two uniform shares.
            let share = (rng.below(1 << 20) * rng.below(1 << 20)) >> 20;
            let page = PageId(1 + ((share * pages) >> 20));
            small.fix(page, Some(&followed));
            larger.iter_mut().for_each(|lru| lru.fix(page, None));
        }
        let curve = followed.curve();
        let ratio = curve.misses() as f64 / small.misses as f64;
        assert!((ratio - 1.0).abs() < 0.1, "what is followed stands for all: {ratio}");
        for (factor, lru) in factors.iter().zip(&larger) {
            let predicted = curve.avoided_by((frames * (factor - 1)) as u64);
            let seen = 1.0 - lru.misses as f64 / small.misses as f64;
            assert!(
                (predicted - seen).abs() < tolerance,
                "{factor} times the frames: {predicted} predicted, {seen} seen"
            );
        }
        assert!(followed.list.lock().dropped.len() <= FOLLOWED_MAX);
        assert_eq!(curve.since(&curve).avoided_by(u64::MAX), 0.0);
        assert_eq!(curve.since(&MissCurve::default()), curve);
    }

    #[test]
    fn followed_whole_it_tells_what_a_larger_lru_would_have_answered() {
        compare(3_000, 0.005);
    }

    #[test]
    fn sampled_it_tells_nearly_as_much() {
        compare(30_000, 0.03);
    }
}
