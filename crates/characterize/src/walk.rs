//! The offset of the next request.
//!
//! Invariants: every offset is a multiple of the request size within the area, so requests are
//! aligned on their size (as in FlashLogging, section 2.1); a random walk touches every place once
//! before it touches any twice.

use crate::cell::{Cell, Ground, Pattern, STREAM_BYTES};
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::{AtomicU64, Ordering};

/// A place for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Byte offset.
    pub offset: u64,
    /// Whether it belongs to the second of two streams.
    pub aside: bool,
}

/// A sequential stream: a run of places, and the number of steps taken in it, which continues past
/// its end.
#[derive(Debug)]
struct Stream {
    first: u64,
    places: u64,
    taken: Arc<AtomicU64>,
}

impl Stream {
    fn next(&self, wraps: bool) -> Option<u64> {
        let taken = self.taken.fetch_add(1, Ordering::Relaxed);
        (wraps || taken < self.places).then(|| self.first + taken % self.places)
    }
}

/// One thread's walk through the area.
#[derive(Debug)]
pub struct Walk {
    pattern: Pattern,
    bytes: u64,
    /// Whether it is a stream beside the other threads' reads.
    beside: bool,
    /// Sequential streams of this thread, taken in turn; the whole area for the other patterns.
    streams: Vec<Stream>,
    turn: usize,
    /// Whether to continue from the start at the end; unwritten ground is used only once.
    wraps: bool,
    order: Permutation,
    rng: Rng,
}

/// The walks of a cell's threads over `area` bytes. `begun` is the number of places that earlier
/// rounds have passed: sequential walks continue there, since a device's cache may still hold the
/// earlier places.
#[must_use]
pub fn walks(cell: &Cell, area: u64, seed: u64, begun: u64) -> Vec<Walk> {
    let places = (area / cell.bytes as u64).max(1);
    let streams = (cell.streams as u64).clamp(1, places);
    let each = places / streams;
    let shared = Arc::new(AtomicU64::new(begun));
    let large = (area / STREAM_BYTES as u64).max(1);
    let beside = Arc::new(AtomicU64::new(begun % large));
    (0..cell.depth)
        .map(|worker| {
            if worker < cell.stream_depth() {
                return Walk {
                    pattern: Pattern::Sequential,
                    bytes: STREAM_BYTES as u64,
                    beside: true,
                    streams: vec![Stream { first: 0, places: large, taken: beside.clone() }],
                    turn: 0,
                    wraps: true,
                    order: Permutation::new(large, seed),
                    rng: Rng::new(seed),
                };
            }
            let own: Vec<Stream> = match cell.pattern {
                Pattern::TwoStreams { .. } => {
                    [0, places / 2].map(|first| stream(first, (places / 2).max(1), begun)).into()
                }
                Pattern::Sequential if cell.streams >= cell.depth => (0..streams)
                    .filter(|index| index % cell.depth as u64 == worker as u64 % streams)
                    .map(|index| stream(index * each, each, begun))
                    .collect(),
                _ => vec![Stream { first: 0, places, taken: shared.clone() }],
            };
            Walk {
                pattern: cell.pattern,
                bytes: cell.bytes as u64,
                beside: false,
                streams: own,
                turn: 0,
                wraps: cell.ground == Ground::Written,
                order: Permutation::new(places, seed),
                rng: Rng::new(seed ^ (worker as u64) << 32),
            }
        })
        .collect()
}

fn stream(first: u64, places: u64, begun: u64) -> Stream {
    Stream { first, places, taken: Arc::new(AtomicU64::new(begun % places)) }
}

impl Walk {
    /// Bytes of its requests.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes as usize
    }

    /// Whether its requests are a stream beside the other threads' reads.
    #[must_use]
    pub fn is_beside(&self) -> bool {
        self.beside
    }

    /// The next place; `None` at the end of ground that may be used only once.
    pub fn step(&mut self) -> Option<Step> {
        let (place, aside) = match self.pattern {
            Pattern::Rewrite => (self.streams[0].first, false),
            Pattern::Random => (self.order.at(self.streams[0].taken.fetch_add(1, Ordering::Relaxed)), false),
            Pattern::Sequential => {
                self.turn = (self.turn + 1) % self.streams.len();
                (self.streams[self.turn].next(self.wraps)?, false)
            }
            Pattern::TwoStreams { aside_percent } => {
                let aside = self.rng.below(100) < u64::from(aside_percent);
                (self.streams[usize::from(aside)].next(true)?, aside)
            }
        };
        Some(Step { offset: place * self.bytes, aside })
    }

    /// True in `percent` of a hundred calls.
    pub fn chance(&mut self, percent: u32) -> bool {
        self.rng.below(100) < u64::from(percent)
    }
}

/// An order of `0..places` drawn by a seed, without a table: a Feistel network over the next power
/// of four, applied until the result is in the range.
#[derive(Clone, Debug)]
struct Permutation {
    places: u64,
    half_bits: u32,
    keys: [u64; 4],
}

impl Permutation {
    fn new(places: u64, seed: u64) -> Permutation {
        let bits = 64 - (places.max(2) - 1).leading_zeros();
        let mut rng = Rng::new(seed);
        Permutation { places, half_bits: bits.div_ceil(2), keys: [(); 4].map(|()| rng.next_u64()) }
    }

    /// The place of step `index`; later rounds through the range have other orders.
    fn at(&self, index: u64) -> u64 {
        let (round, mut place) = (index / self.places, index % self.places);
        loop {
            place = self.mix(place, round);
            if place < self.places {
                return place;
            }
        }
    }

    fn mix(&self, place: u64, round: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (place >> self.half_bits, place & mask);
        for key in self.keys {
            let mixed = (right ^ key ^ round.wrapping_mul(0xA24B_AED4_963E_E407))
                .wrapping_mul(0x9E37_79B9_7F4A_7C15)
                .rotate_left(29)
                .wrapping_mul(0xBF58_476D_1CE4_E5B9);
            (left, right) = (right, left ^ (mixed >> 32) & mask);
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::{Op, Purpose};
    use std::time::Duration;

    fn cell(pattern: Pattern) -> Cell {
        Cell::new(Purpose::BySize, Op::WriteDurable, pattern, 4096, Duration::from_secs(1))
    }

    #[test]
    fn a_random_walk_touches_every_place_once_before_any_twice_and_not_in_order() {
        for places in [1u64, 2, 3, 5, 64, 1000, 4097] {
            let mut walk = walks(&cell(Pattern::Random), places * 4096, 7, 0).remove(0);
            for _ in 0..2 {
                let mut seen: Vec<u64> =
                    (0..places).filter_map(|_| walk.step()).map(|step| step.offset).collect();
                let neighbours = seen.windows(2).filter(|pair| pair[1] == pair[0] + 4096).count();
                assert!(places < 1000 || neighbours < seen.len() / 100, "{neighbours} of {places} in order");
                seen.sort_unstable();
                assert!(seen.iter().copied().eq((0..places).map(|place| place * 4096)), "{places}");
            }
        }
    }

    #[test]
    fn streams_lie_apart_and_threads_share_one_or_have_their_own() {
        let own = walks(&cell(Pattern::Sequential).depth(4).streams(4), 64 * 4096, 1, 0);
        let firsts: Vec<u64> = own.into_iter().map(|mut walk| walk.step().unwrap().offset / 4096).collect();
        assert_eq!(firsts, [0, 16, 32, 48]);
        let mut shared = walks(&cell(Pattern::Sequential).depth(2), 64 * 4096, 1, 0);
        let places: Vec<u64> = (0..4).map(|i| shared[i % 2].step().unwrap().offset / 4096).collect();
        assert_eq!(places, [0, 1, 2, 3]);
        let mut turns = walks(&cell(Pattern::Sequential).streams(2), 64 * 4096, 1, 0).remove(0);
        let places: Vec<u64> = (0..4).map(|_| turns.step().unwrap().offset / 4096).collect();
        assert_eq!(places, [32, 0, 33, 1]);
    }

    #[test]
    fn one_in_a_hundred_goes_aside_and_unwritten_ground_ends() {
        let mut walk = walks(&cell(Pattern::TwoStreams { aside_percent: 1 }), 1 << 20, 3, 0).remove(0);
        let aside = (0..100_000).filter(|_| {
            let step = walk.step().unwrap();
            assert_eq!(step.aside, step.offset >= 1 << 19);
            step.aside
        });
        assert!((800..1200).contains(&aside.count()));
        let mut once = walks(&cell(Pattern::Sequential).ground(Ground::Hole), 8 * 4096, 1, 0).remove(0);
        assert_eq!(std::iter::from_fn(|| once.step()).count(), 8);
    }
}
