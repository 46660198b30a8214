//! How much an operator writes and reads at once, of the share of memory that it has: for the
//! operators, and for the planner that prices them.

use crate::block;
use crate::space::EXTENT_BYTES;

/// Sizes of one operator, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    share: usize,
    /// Of a block, which is checked by itself.
    pub block: usize,
}

/// Partitions of a hash join at most.
const PARTITIONS_MAX: usize = 32;
/// Partitions are written together, this much at most.
const STREAM_MAX: usize = 4 << 20;
/// Least bytes that a merge reads of a run, where its share allows: what a disk moves in the time
/// of a hundredth of a seek is not worth one.
const MERGED_LEAST: usize = 16 << 10;

impl Sizes {
    /// For an operator that keeps `share` bytes in memory, and a device of these logical blocks.
    pub fn new(share: usize, logical_block: usize) -> Sizes {
        let wanted = (share / 256).clamp(block::BYTES_MIN, block::BYTES_MAX);
        // A power of two, so that extents hold whole blocks.
        Sizes { share, block: (1 << wanted.ilog2()).max(logical_block) }
    }

    /// A buffer of one run.
    pub fn run(&self) -> usize {
        self.whole((self.share / 16).min(EXTENT_BYTES))
    }
    /// A buffer for reading a run alone.
    pub fn scan(&self) -> usize {
        self.whole((self.share / 8).min(STREAM_MAX))
    }
    /// A buffer of runs that are written side by side.
    pub fn stream(&self) -> usize {
        self.whole((self.share / 4).min(STREAM_MAX)).max(2 * self.partitions() * self.block)
    }
    /// How many of these there are.
    pub fn partitions(&self) -> usize {
        (self.share / 16 / self.block).clamp(2, PARTITIONS_MAX)
    }
    /// How many runs are merged at once, with rows of up to `longest` bytes, beside one that is
    /// written.
    pub fn ways(&self, longest: usize) -> usize {
        let least = self.whole((self.share / 64).min(MERGED_LEAST));
        (self.share.saturating_sub(self.run()) / (2 * least + longest)).max(2)
    }
    /// Each of the two buffers of each run, if this many are merged.
    pub fn merged(&self, runs: usize, longest: usize) -> usize {
        let each = self.share.saturating_sub(self.run()) / runs.max(1);
        self.whole((each.saturating_sub(longest) / 2).min(EXTENT_BYTES))
    }

    fn whole(&self, bytes: usize) -> usize {
        (bytes / self.block).max(1) * self.block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_stays_in_its_share() {
        for share in [24 << 10, 100_000, 1 << 20, 55 << 20] {
            for logical in [512, 4096] {
                let sizes = Sizes::new(share, logical);
                assert!(sizes.block.is_power_of_two() && sizes.block >= logical);
                if share > 100 * logical {
                    assert!(sizes.stream() <= share / 4 && sizes.scan() <= share / 8);
                    let ways = sizes.ways(200);
                    assert!(ways >= 10 && sizes.run() + ways * (2 * sizes.merged(ways, 200) + 200) <= share);
                }
                assert!(sizes.stream() >= 2 * sizes.partitions() * sizes.block);
            }
        }
    }
}
