//! Places where a stream may hold log that a scan has not seen.
//!
//! There are two kinds: a unit that cannot be read, and a unit without log right behind log, whose
//! bytes a read may have corrupted. Neither is taken for the log's end without a second check
//! (`scan.rs`).
//!
//! A stream is written request by request, each begun when the one before is durable. So LSNs rise
//! along it, and a place between the blocks of `after` and `before` can only hold log from `after`
//! on and before `before`. Behind the last block of log, only the place that follows the written
//! units without a gap can hold acknowledged log: a unit that is read and holds no block of this
//! lap of the ring was never written in this lap, and neither was anything behind it.

use crate::block::base;
use crate::read::medium::UNREADABLE_MAX;
use firndb_base::Lsn;
use std::collections::VecDeque;

/// A unit of a stream that may hold log that was not seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Doubt {
    /// The unit's linear position.
    pub linear: u64,
    pub unreadable: bool,
    /// First LSN of the last block of log before it on the stream, or that of the section it lies
    /// in, if that is higher: log in the unit is not below.
    pub after: Lsn,
    /// First LSN of the first block of log behind it; [`Lsn::MAX`] if there is none.
    pub before: Lsn,
    /// No unit between it and the block before was read and found to hold no log.
    follows: bool,
}

impl Doubt {
    /// Whether the unit may hold the block that contains `lsn`.
    pub fn may_hold(&self, lsn: Lsn) -> bool {
        // `after` is included: a fuller copy of that block may follow it. `before` is not: no
        // fuller copy of that block comes before it.
        (self.after..self.before).contains(&base(lsn)) && (self.follows || self.before != Lsn::MAX)
    }
}

/// Most doubts that are remembered. The oldest are dropped: they are below the others.
const KEPT_MAX: usize = UNREADABLE_MAX + 64;

/// The doubts of a stream that is read in order.
#[derive(Debug)]
pub(crate) struct Doubts {
    list: VecDeque<Doubt>,
    /// Number of doubts at the end of the list that have no log behind them yet.
    open: usize,
    last: Lsn,
    /// All units since the last one with log were unreadable.
    follows: bool,
    /// The unit being passed (its linear position, and whether it is unreadable), unless it holds
    /// log.
    passing: Option<(u64, bool)>,
}

impl Doubts {
    pub fn new() -> Doubts {
        Doubts { list: VecDeque::new(), open: 0, last: Lsn::ZERO, follows: true, passing: None }
    }

    /// A unit for blocks begins.
    pub fn begin_unit(&mut self, linear: u64, unreadable: bool) {
        self.end_unit();
        self.passing = Some((linear, unreadable));
    }

    /// A section begins to which log was written: log continues here, at `first` or later. Blocks
    /// below are left over from an earlier lap of the ring.
    pub fn begin_section(&mut self, first: Lsn) {
        self.end_unit();
        self.last = self.last.max(first);
        self.follows = true;
    }

    /// The unit being passed holds log, or a seal, at `first`, and there is log without a gap up to
    /// the block of `last`.
    pub fn saw_log(&mut self, first: Lsn, last: Lsn) {
        let open = self.list.len() - self.open;
        self.list.range_mut(open..).for_each(|doubt| doubt.before = first);
        (self.open, self.last, self.follows, self.passing) = (0, last, true, None);
    }

    /// The unit being passed holds a block that was written in this lap of the ring, whether or not
    /// it is log (it may belong to a forgotten epoch, or be a stray block): the block written next
    /// follows here.
    pub fn saw_written(&mut self) {
        (self.follows, self.passing) = (true, None);
    }

    fn end_unit(&mut self) {
        let Some((linear, unreadable)) = self.passing.take() else { return };
        if unreadable || self.follows {
            if self.list.len() == KEPT_MAX {
                self.list.pop_front();
                self.open = self.open.min(self.list.len());
            }
            let (after, follows) = (self.last, self.follows);
            self.list.push_back(Doubt { linear, unreadable, after, before: Lsn::MAX, follows });
            self.open += 1;
        }
        self.follows &= unreadable;
    }

    /// All doubts that may hold the block of `lsn`, once the stream has been read.
    pub fn at(&mut self, lsn: Lsn) -> impl Iterator<Item = Doubt> {
        self.end_unit();
        self.list.iter().copied().filter(move |doubt| doubt.may_hold(lsn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const B: u64 = 472;

    fn at(doubts: &mut Doubts, block: u64) -> Vec<(u64, bool)> {
        doubts.at(Lsn(block * B + 5)).map(|doubt| (doubt.linear, doubt.unreadable)).collect()
    }

    #[test]
    fn what_follows_log_is_doubtful_up_to_the_first_unit_that_is_read_and_holds_none() {
        let mut doubts = Doubts::new();
        doubts.begin_unit(0, false);
        doubts.saw_log(Lsn(10 * B), Lsn(10 * B));
        for (linear, unreadable) in [(1, true), (2, true), (3, false), (4, true), (5, false)] {
            doubts.begin_unit(linear, unreadable);
        }
        assert_eq!(at(&mut doubts, 9), []);
        assert_eq!(at(&mut doubts, 10), [(1, true), (2, true), (3, false)]);
        assert_eq!(at(&mut doubts, 11), [(1, true), (2, true), (3, false)]);
        // A section that was begun continues with log; the header's own unit is no place for
        // blocks.
        doubts.begin_section(Lsn(11 * B));
        doubts.begin_unit(9, false);
        assert_eq!(at(&mut doubts, 10), [(1, true), (2, true), (3, false)]);
        assert_eq!(at(&mut doubts, 11), [(1, true), (2, true), (3, false), (9, false)]);
        let last = doubts.at(Lsn(11 * B)).last().unwrap();
        assert_eq!(last.after, Lsn(11 * B), "what is below is of an earlier lap");
        // Log that follows bounds what can be before it, and makes all of it possible.
        doubts.begin_unit(10, false);
        doubts.saw_log(Lsn(20 * B), Lsn(20 * B));
        assert_eq!(at(&mut doubts, 15), [(1, true), (2, true), (3, false), (4, true), (9, false)]);
        assert_eq!(at(&mut doubts, 21), []);
        // Blocks of a forgotten epoch are no log, but log continues behind them.
        for (linear, unreadable) in [(11, false), (12, false), (13, true)] {
            doubts.begin_unit(linear, unreadable);
            if linear == 12 {
                doubts.saw_written();
            }
        }
        assert_eq!(at(&mut doubts, 21), [(11, false), (13, true)]);
    }

    #[test]
    fn the_newest_are_remembered() {
        let mut doubts = Doubts::new();
        for round in 0..1000 {
            doubts.begin_unit(2 * round, false);
            doubts.saw_log(Lsn(round * B), Lsn(round * B));
            doubts.begin_unit(2 * round + 1, false);
        }
        assert_eq!(at(&mut doubts, 999), [(1999, false)]);
        assert_eq!(at(&mut doubts, 998), [(1997, false)]);
        assert_eq!(doubts.list.len(), KEPT_MAX);
    }
}
