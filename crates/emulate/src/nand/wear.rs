//! Wear levelling as pure functions: which block is written next, and when data that never change
//! are moved.

/// How erases are spread over the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WearLevelling {
    /// No wear levelling: free blocks are used first in, first out.
    None,
    /// Of the free blocks, the host's pages go to the least erased one, and the pages that garbage
    /// collection copies (which change rarely) to the most erased one.
    Dynamic,
    /// As `Dynamic`; and when an erased block has been erased `spread` times more often than some
    /// block in use, that one's data are moved into it. Data that never change thus rest on worn
    /// blocks.
    Static {
        /// Difference in erases that is tolerated; at least 1.
        spread: u32,
    },
}

/// How soon the pages to be written into a free block will change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Temperature {
    /// Just written by the host.
    Hot,
    /// Copied because it was still live.
    Cold,
}

impl WearLevelling {
    /// The index of the free block to write to, given the erases of each, in the order in which
    /// they became free.
    pub fn choose_free(self, erases: impl Iterator<Item = u32>, temperature: Temperature) -> Option<usize> {
        let mut numbered = erases.enumerate();
        match (self, temperature) {
            (WearLevelling::None, _) => numbered.next().map(|(index, _)| index),
            (_, Temperature::Hot) => numbered.min_by_key(|(index, erases)| (*erases, *index)).map(|(i, _)| i),
            (_, Temperature::Cold) => {
                numbered.min_by_key(|(index, erases)| (u32::MAX - erases, *index)).map(|(i, _)| i)
            }
        }
    }

    /// Whether the data of a block in use that was erased `least` times should move into one erased
    /// `just` times.
    #[must_use]
    pub fn moves(self, just: u32, least: u32) -> bool {
        match self {
            WearLevelling::Static { spread } => just.saturating_sub(least) > spread.max(1),
            WearLevelling::None | WearLevelling::Dynamic => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hot_pages_go_to_young_blocks_and_cold_ones_to_worn_ones() {
        let free = [5, 2, 9, 2, 9];
        for (policy, hot, cold) in [
            (WearLevelling::None, 0, 0),
            (WearLevelling::Dynamic, 1, 2),
            (WearLevelling::Static { spread: 4 }, 1, 2),
        ] {
            let choose = |temperature| policy.choose_free(free.iter().copied(), temperature);
            assert_eq!((choose(Temperature::Hot), choose(Temperature::Cold)), (Some(hot), Some(cold)));
            assert_eq!(policy.choose_free(std::iter::empty(), Temperature::Hot), None);
        }
    }

    #[test]
    fn resting_data_move_only_when_the_spread_is_exceeded() {
        let policy = WearLevelling::Static { spread: 4 };
        assert!(!policy.moves(14, 10) && policy.moves(15, 10) && !policy.moves(3, 10));
        assert!(!WearLevelling::Dynamic.moves(1000, 0));
    }
}
