//! How far the sweep has come, and how fast it has to go.
//!
//! Protected by the store's `state`; only the holder of `write_back` moves the sweep.

use super::map_log::Position;
use super::meta_page::MetaId;
use std::collections::BTreeSet;

/// The sweep goes full circle while this share of the map log, as a divisor, is filled.
const CIRCLE_SHARE: u64 = 2;
/// The sweep rests while no more than this share of the map log, as a divisor, is in use.
const REST_SHARE: u64 = 4;

/// A circle is cheap if it writes no more pages than this for each block of the map log: a block
/// has the records of some 150 page writes.
const CHEAP_PAGES: u64 = 8;
/// No circle is worth while for fewer blocks: an opening replays them in about 10 ms.
const BLOCKS_LEAST: u64 = 64;

/// Blocks that the map log should have if a circle writes `pages` pages: the sweep rests until it
/// is cheap. Most of a longer log says where pages were that have been written again since.
pub(crate) fn cheap_capacity(pages: u64) -> u64 {
    REST_SHARE * (BLOCKS_LEAST + pages.div_ceil(CHEAP_PAGES))
}

/// How far the sweep has come, and what may be torn.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// The next group; everything before it is durable.
    pub(super) at: Position,
    /// Groups to go, to keep up with the map log.
    pub(super) owed: u64,
    /// Where the last round ended that left out damaged pages and had no space to carry on what
    /// they lack. Nothing of the map log is dropped until the sweep has gone full circle since.
    pub(super) left_out: Option<Position>,
    /// Where the last round ended that met pages which cannot be read.
    damaged: Option<Position>,
    /// Pages that were being written when the process ended, or when a write failed.
    pub(super) torn: BTreeSet<MetaId>,
}

impl Sweep {
    /// Of a store that is opened: its totals page names `torn`.
    pub(crate) fn opened(torn: BTreeSet<MetaId>) -> Sweep {
        Sweep { torn, ..Sweep::default() }
    }
    /// Whether a crash may have torn a slot of the page, so that the other one holds all that it
    /// should.
    pub(crate) fn may_be_torn(&self, id: MetaId) -> bool {
        self.torn.contains(&id)
    }
    pub(crate) fn at(&self) -> Position {
        self.at
    }
    /// Notes that `blocks` blocks were appended: `live` of `capacity` are in use. More than a
    /// circle is never owed: it is all that a sweep can do.
    pub(crate) fn appended(&mut self, blocks: u64, (live, capacity): (u64, u64), groups: u64) {
        self.owed = match live * REST_SHARE > capacity {
            true => (self.owed + (blocks * groups * CIRCLE_SHARE).div_ceil(capacity)).min(groups),
            false => 0,
        };
    }
    /// Whether the last circle met pages that cannot be read: then another would, too.
    pub(crate) fn meets_damage(&self) -> bool {
        self.damaged.is_some_and(|damaged| self.at < damaged.full_circle())
    }
    /// Notes that the round that ends at `to` meets pages that cannot be read.
    pub(crate) fn met_damage(&mut self, to: Position) {
        self.damaged = Some(to);
    }
    /// Up to where the map log can be dropped.
    pub(crate) fn swept(&self) -> Position {
        if self.left_out.is_some() { Position::default() } else { self.at }
    }
    /// Notes that the groups up to `to` are durable or carried on, but for some if `left_out`.
    pub(crate) fn moved(&mut self, to: Position, groups: u64, left_out: bool) {
        let gone = ((to.circle - self.at.circle) * groups + to.group).saturating_sub(self.at.group);
        self.owed = self.owed.saturating_sub(gone.max(1));
        if left_out {
            self.left_out = Some(to);
        } else if self.left_out.is_some_and(|left_out| to >= left_out.full_circle()) {
            self.left_out = None;
        }
        self.at = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cause: a circle was counted from where the round began. Effect: when the sweep came to the
    /// damaged page's group again, the map log was dropped that alone had what the page lacks.
    #[test]
    fn nothing_is_dropped_before_pages_that_were_left_out_are_looked_at_again() {
        let mut sweep = Sweep::default();
        let at = |circle, group| Position { circle, group };
        sweep.moved(at(0, 1), 2, true);
        sweep.moved(at(1, 0), 2, false);
        assert_eq!(sweep.swept(), Position::default(), "group 0 comes next");
        sweep.moved(at(1, 1), 2, true);
        sweep.moved(at(2, 0), 2, false);
        assert_eq!(sweep.swept(), Position::default());
        sweep.moved(at(2, 1), 2, false);
        assert_eq!(sweep.swept(), at(2, 1), "it was written");
    }
}
