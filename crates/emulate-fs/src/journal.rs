//! Changes of the name space that are not durable yet, in order.
//!
//! As in a file system with one journal, they become durable together: a sync makes durable all
//! changes from before it began, and so does the journal every five seconds. A power cut leaves a
//! prefix of the changes that were not durable: order is kept.

use firndb_base::rng::Rng;
use std::collections::VecDeque;
use std::ffi::OsString;

/// The number of an inode; never used twice within a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Inode(pub u64);

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The directory.
    pub parent: Inode,
    /// The name in it.
    pub name: OsString,
}

/// A change, with the data to undo it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A file or directory was made.
    Made {
        /// Its inode.
        inode: Inode,
    },
    /// A file or an empty directory was removed; it is held aside under its number.
    Removed {
        /// Its inode.
        inode: Inode,
        /// Its previous place.
        place: Place,
    },
    /// A file or directory was renamed.
    Renamed {
        /// Its inode.
        inode: Inode,
        /// Its previous place.
        from: Place,
        /// The previous entry of the new place, which is held aside.
        replaced: Option<Inode>,
    },
}

impl Change {
    /// The inode that is held aside until the change is durable.
    #[must_use]
    pub fn held(&self) -> Option<Inode> {
        match self {
            Change::Made { .. } => None,
            Change::Removed { inode, .. } => Some(*inode),
            Change::Renamed { replaced, .. } => *replaced,
        }
    }
}

/// A position in the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

/// The changes that are not durable.
#[derive(Debug, Default)]
pub struct Journal {
    durable: u64,
    waiting: VecDeque<Change>,
}

impl Journal {
    /// Appends a change.
    pub fn record(&mut self, change: Change) {
        self.waiting.push_back(change);
    }
    /// The current end of the journal.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark(self.durable + self.waiting.len() as u64)
    }
    /// Whether every change is durable.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
    /// Makes all changes before `mark` durable; returns those that were not.
    pub fn commit(&mut self, mark: Mark) -> Vec<Change> {
        let count = mark.0.saturating_sub(self.durable);
        let changes: Vec<Change> = self.waiting.drain(..count as usize).collect();
        self.durable += changes.len() as u64;
        changes
    }
    /// Cuts the power: chooses how many of the pending changes survive and returns the others, the
    /// latest first.
    pub fn cut(&mut self, rng: &mut Rng) -> Vec<Change> {
        let survive = rng.below(self.waiting.len() as u64 + 1) as usize;
        let lost = self.waiting.drain(survive..).rev().collect();
        self.durable += self.waiting.len() as u64;
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(inode: u64) -> Change {
        Change::Made { inode: Inode(inode) }
    }

    #[test]
    fn a_commit_covers_what_came_before_its_mark() {
        let mut journal = Journal::default();
        journal.record(made(1));
        let mark = journal.mark();
        journal.record(made(2));
        assert_eq!(journal.commit(mark), vec![made(1)]);
        assert_eq!(journal.commit(mark), vec![], "a second sync of the same moment finds nothing");
        assert_eq!(journal.commit(journal.mark()), vec![made(2)]);
        assert!(journal.is_empty());
    }

    #[test]
    fn a_cut_takes_the_latest_first_and_never_what_is_durable() {
        let mut lengths = std::collections::BTreeSet::new();
        for seed in 0..100 {
            let mut journal = Journal::default();
            (0..5).for_each(|inode| journal.record(made(inode)));
            let _ = journal.commit(Mark(2));
            let lost = journal.cut(&mut Rng::new(seed));
            let expected: Vec<Change> = (2..5).rev().take(lost.len()).map(made).collect();
            assert_eq!(lost, expected);
            lengths.insert(lost.len());
        }
        assert_eq!(lengths, (0..=3).collect(), "every prefix occurs");
    }
}
