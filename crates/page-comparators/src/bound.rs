//! The fewest pages that can be written for a stream by images and complete deltas, without a write
//! buffer and whatever reads cost.
//!
//! For equal growth g of the delta from one write to the next, a cycle of n writes of a page costs
//! W(n) = (1 + Σ (i·g + h)/P)/n pages each, i from 1 to n − 1. Pages do not grow alike, and the
//! mean growth of a mixture says too much: the cost falls less than in proportion to it. [`Bound`]
//! therefore computes the minimum itself: for each page, the best division of its writes into
//! cycles, of all divisions, in hindsight. No policy without a write buffer can go below it.

use crate::changed::bytes_of;
use crate::firn::SLOT_BYTES;
use crate::medium::Medium;
use crate::method::{Method, entry};
use firndb_tier::Changes;

/// A cycle is ended when its deltas have cost this many pages: a better one has ended by then.
const CYCLE_PAGES: f64 = 2.0;

/// W(n) for growth `growth` of pages of `page_size` bytes.
#[must_use]
pub fn cycle_cost(page_size: u64, growth: f64, n: u64) -> f64 {
    let slots: f64 = (1..n).map(|i| i as f64 * growth + SLOT_BYTES as f64).sum();
    (1.0 + slots / page_size as f64) / n as f64
}

/// Gathers what changed in each write; reads and writes nothing.
#[derive(Debug)]
pub struct Bound {
    page_size: u64,
    /// The changes of each page since it was written whole because it had to be.
    writes: Vec<Vec<Changes>>,
    pages: f64,
    count: u64,
    grown_bytes: u64,
    grown: u64,
}

impl Bound {
    /// For pages of this size.
    #[must_use]
    pub fn new(page_size: u64) -> Bound {
        Bound { page_size, writes: Vec::new(), pages: 0.0, count: 0, grown_bytes: 0, grown: 0 }
    }

    /// Ends the page's life: its writes are divided into cycles.
    fn settle(&mut self, page: u64) {
        let writes = std::mem::take(entry(&mut self.writes, page));
        self.pages += least(&writes, self.page_size);
        for pair in writes.windows(2) {
            self.grown += 1;
            self.grown_bytes +=
                bytes_of(pair[0] | pair[1], self.page_size) - bytes_of(pair[0], self.page_size);
        }
    }

    /// Pages written a write, at least; and the mean growth, from a page's write to its next.
    #[must_use]
    pub fn finish(mut self) -> (f64, f64) {
        for page in 0..self.writes.len() as u64 {
            self.settle(page);
        }
        (self.pages / self.count.max(1) as f64, self.grown_bytes as f64 / self.grown.max(1) as f64)
    }
}

/// The least cost of these writes of a page, in pages, beginning with an image of it.
fn least(writes: &[Changes], page_size: u64) -> f64 {
    // Of the writes from each on, if all before are in the image.
    let mut costs = vec![0.0; writes.len() + 1];
    for from in (0..writes.len()).rev() {
        let (mut best, mut deltas, mut changed) = (f64::INFINITY, 0.0, Changes::NONE);
        for at in from..writes.len() {
            // All before were deltas, and this one is the next image.
            best = f64::min(best, deltas + 1.0 + costs[at + 1]);
            changed |= writes[at];
            deltas += (SLOT_BYTES + bytes_of(changed, page_size)) as f64 / page_size as f64;
            if deltas > CYCLE_PAGES {
                break;
            }
            if at + 1 == writes.len() {
                best = best.min(deltas);
            }
        }
        costs[from] = best;
    }
    costs[0]
}

impl Method for Bound {
    fn read(&mut self, _: u64, _: &mut Medium<'_>) -> u64 {
        0
    }

    fn write(&mut self, page: u64, changes: Option<Changes>, _: &mut Medium<'_>) {
        self.count += 1;
        match changes {
            Some(changes) => entry(&mut self.writes, page).push(changes),
            None => {
                self.settle(page);
                self.pages += 1.0;
            }
        }
    }

    fn free(&mut self, page: u64) {
        self.settle(page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changed::granules;

    /// The table of the design, computed again.
    #[test]
    fn cycles_cost_what_the_formula_says() {
        for (page_size, growth, n, cost) in [
            (4096, 110.0, 2, 0.517),
            (4096, 110.0, 3, 0.364),
            (4096, 110.0, 9, 0.224),
            (8192, 110.0, 12, 0.160),
            (4096, 600.0, 4, 0.475),
            (4096, 900.0, 3, 0.557),
        ] {
            assert!((cycle_cost(page_size, growth, n) - cost).abs() < 0.0015, "{page_size} {growth} {n}");
        }
    }

    #[test]
    fn the_least_cost_is_that_of_the_best_division() {
        // One granule more each time: 32 bytes of 4,096.
        let writes: Vec<Changes> = (0..40).map(|at| granules(at..at + 1)).collect();
        let all = |cycle: usize| {
            let cost: f64 = writes
                .chunks(cycle)
                .map(|part| {
                    let deltas = part.len() - usize::from(part.len() == cycle);
                    let slots: u64 = (1..=deltas as u64).map(|i| SLOT_BYTES + 32 * i).sum();
                    slots as f64 / 4096.0 + f64::from(u8::from(part.len() == cycle))
                })
                .sum();
            cost
        };
        let best = (1..=41).map(all).fold(f64::INFINITY, f64::min);
        let found = least(&writes, 4096);
        assert!(found <= best + 1e-9 && found > 0.8 * best, "{found} {best}");
        assert_eq!(least(&[], 4096), 0.0);
        let one = least(&[granules(0..2)], 4096);
        assert!((one - (SLOT_BYTES + 64) as f64 / 4096.0).abs() < 1e-9);
        // What is larger than the page is never a delta.
        assert!((least(&[Changes::ALL, Changes::ALL], 4096) - 2.0).abs() < 1e-9);
    }
}
