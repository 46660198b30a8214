//! Counting what is in a tree from some of its leaves.
//!
//! Goes down level by level. Where a level has more nodes than are to be read, every n-th one is,
//! in key order from a drawn beginning, and stands for its neighbours: so a stretch of the tree
//! that is emptier than the rest is sampled as it is long. How far the result may be off comes from
//! how much the nodes read differ from each other.

use crate::error::TreeError;
use crate::tree::Tree;
use firndb_base::PageId;
use firndb_base::rng::Rng;
use firndb_buffer::PageUse;

/// What some of a tree's leaves hold, and so, about, all of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeafSample {
    /// Entries counted, as all leaves would have them.
    pub entries: f64,
    /// Its standard error; zero if every leaf was read.
    pub standard_error: f64,
    pub leaves_read: u64,
    /// Whether these are all leaves.
    pub is_whole: bool,
}

/// Mean and variance of what the nodes of a level were found to have.
#[derive(Default)]
struct Moments {
    count: f64,
    sum: f64,
    squares: f64,
}

impl Moments {
    fn add(&mut self, value: f64) {
        self.count += 1.0;
        self.sum += value;
        self.squares += value * value;
    }
    /// The variance of the mean over its square: of what is estimated from it, too.
    fn relative_variance(&self) -> f64 {
        let mean = self.sum / self.count;
        if self.count < 2.0 || mean == 0.0 {
            return 0.0;
        }
        let variance = (self.squares / self.count - mean * mean).max(0.0) * self.count / (self.count - 1.0);
        variance / self.count / (mean * mean)
    }
}

impl Tree {
    /// Counts the entries whose values `is_counted` accepts, in at most `nodes_max` leaves, reading
    /// at most as many nodes of each other level. No latch is held from one node to the next:
    /// beside structure changes a node may be met that is another's by now, which is an error of
    /// kind `Damaged` as damage is; try again.
    pub fn sample_leaves(
        &self,
        nodes_max: usize,
        rng: &mut Rng,
        mut is_counted: impl FnMut(&[u8]) -> bool,
    ) -> Result<LeafSample, TreeError> {
        assert!(nodes_max > 0, "a sample has at least one node");
        let pool = self.pool();
        let mut level = vec![self.root()];
        let (mut expected, mut weight, mut relative_variance) = (None, 1.0, 0.0);
        loop {
            let sampled = weight > 1.0;
            let (mut below, mut moments) = (Vec::new(), Moments::default());
            let mut is_leaf = false;
            let mut next = None;
            for page in level {
                let page_use = if expected == Some(0) { PageUse::Once } else { PageUse::Working };
                let guard = pool.shared_for(page, page_use)?;
                let node = self.node(page, &guard, expected)?;
                let damaged = |error| TreeError::damaged(page, error);
                is_leaf = node.is_leaf();
                if is_leaf {
                    let mut counted = 0u32;
                    for at in 0..node.count() {
                        counted += u32::from(is_counted(node.value(at).map_err(damaged)?));
                    }
                    moments.add(f64::from(counted));
                    continue;
                }
                for index in 0..=node.count() {
                    below.push(node.child(index).map_err(damaged)?);
                }
                moments.add(node.count() as f64 + 1.0);
                next = Some(node.level() - 1);
            }
            if sampled {
                // Of those not read only.
                relative_variance += moments.relative_variance() * (1.0 - 1.0 / weight);
            }
            if is_leaf {
                let entries = moments.sum * weight;
                return Ok(LeafSample {
                    entries,
                    standard_error: entries * f64::sqrt(relative_variance),
                    leaves_read: moments.count as u64,
                    is_whole: !sampled,
                });
            }
            expected = next;
            if below.len() > nodes_max {
                weight *= below.len() as f64 / nodes_max as f64;
                below = every_nth(&below, nodes_max, rng);
            }
            level = below;
        }
    }
}

/// `count` of the pages, evenly spread from a drawn beginning.
fn every_nth(pages: &[PageId], count: usize, rng: &mut Rng) -> Vec<PageId> {
    let step = pages.len() as f64 / count as f64;
    let begin = rng.below(1 << 20) as f64 / f64::from(1 << 20) * step;
    (0..count).map(|at| pages[((begin + at as f64 * step) as usize).min(pages.len() - 1)]).collect()
}
