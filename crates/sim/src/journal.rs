//! What the database held after each commit, by LSN: what restoring to any of them must give.
//!
//! The order of commits is that of their records' ends. Of most commits the very LSN is known, of
//! the others two LSNs between which it lies: a state is returned only where that is enough. The
//! shared lists only grow, so that as they are found in the end, each holds those that it held
//! before.

use crate::ledger::{Lists, RowChanges, Rows, apply};
use firndb::Lsn;
use std::collections::{BTreeMap, BTreeSet};

/// Where a commit record ends: at or after the first, and at or before the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Lsn, pub Lsn);

impl Span {
    /// An LSN that is known exactly.
    #[must_use]
    pub fn exactly(lsn: Lsn) -> Span {
        Span(lsn, lsn)
    }
    /// Nothing is known.
    pub const ANYWHERE: Span = Span(Lsn::ZERO, Lsn::MAX);
}

/// Commits, by where they are.
#[derive(Debug, Default)]
pub struct Journal {
    commits: BTreeMap<(Span, u32), (usize, RowChanges)>,
}

impl Journal {
    /// Notes that transaction `txn` of `client` committed, and what it did to rows.
    pub fn committed(&mut self, at: Span, txn: u32, client: usize, rows: RowChanges) {
        let before = self.commits.insert((at, txn), (client, rows));
        assert!(before.is_none(), "a transaction commits once");
    }

    /// Whether it is known of each commit if it lies up to `lsn`.
    fn is_plain(&self, lsn: Lsn) -> bool {
        self.commits.keys().all(|(Span(least, most), _)| *most <= lsn || *least > lsn)
    }

    /// What was there after the last commit up to `lsn`, of lists that are `lists` now; `None` if
    /// that is not known.
    #[must_use]
    pub fn state_at(&self, lsn: Lsn, lists: &Lists, clients: usize) -> Option<(Lists, Vec<Rows>)> {
        if !self.is_plain(lsn) {
            return None;
        }
        let mut rows = vec![Rows::new(); clients];
        let mut there = BTreeSet::new();
        for ((_, txn), (client, changes)) in self.commits.iter().filter(|((at, _), _)| at.1 <= lsn) {
            apply(&mut rows[*client], changes);
            there.insert(*txn);
        }
        let lists = lists
            .iter()
            .map(|(&key, list)| (key, list.iter().copied().filter(|(txn, _)| there.contains(txn)).collect()));
        Some((lists.collect(), rows))
    }

    /// Ends of commit records from `from` on, of those that are known exactly, and whose states
    /// are.
    #[must_use]
    pub fn known_since(&self, from: Lsn) -> Vec<Lsn> {
        let exact = self.commits.keys().filter(|(at, _)| at.0 == at.1 && at.0 >= from);
        exact.map(|(at, _)| at.0).filter(|lsn| self.is_plain(*lsn)).collect()
    }

    /// Whether a commit lies, for certain, after `lsn`.
    #[must_use]
    pub fn goes_beyond(&self, lsn: Lsn) -> bool {
        self.commits.keys().any(|(at, _)| at.0 > lsn && *at != Span::ANYWHERE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_those_after_the_commits_up_to_an_lsn() {
        let mut journal = Journal::default();
        let row = |txn: u8| RowChanges::from([(5, Some(vec![txn]))]);
        journal.committed(Span::exactly(Lsn(100)), 1, 0, row(1));
        journal.committed(Span::exactly(Lsn(300)), 3, 0, row(3));
        journal.committed(Span(Lsn(310), Lsn(330)), 4, 0, RowChanges::from([(5, None)]));
        let lists = Lists::from([(9, vec![(1, 0), (3, 0), (3, 1), (4, 0)])]);
        let at = |lsn| journal.state_at(Lsn(lsn), &lists, 1);
        assert_eq!(at(99), Some((Lists::from([(9, vec![])]), vec![Rows::new()])));
        assert_eq!(at(299), Some((Lists::from([(9, vec![(1, 0)])]), vec![Rows::from([(5, vec![1])])])));
        assert_eq!(
            at(300),
            Some((Lists::from([(9, vec![(1, 0), (3, 0), (3, 1)])]), vec![Rows::from([(5, vec![3])])]))
        );
        assert_eq!(at(310), None, "it is not known whether the last one lies before");
        assert_eq!(at(330), Some((lists.clone(), vec![Rows::new()])));
        assert_eq!(journal.known_since(Lsn(101)), [Lsn(300)]);
        assert!(journal.goes_beyond(Lsn(300)) && !journal.goes_beyond(Lsn(330)));
        journal.committed(Span::ANYWHERE, 7, 0, row(7));
        assert!(journal.known_since(Lsn(0)).is_empty());
    }
}
