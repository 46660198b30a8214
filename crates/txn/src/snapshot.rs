//! Snapshots: which transactions' changes a reader sees.

use firndb_base::{Lsn, TxnId};

/// What had committed at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    /// Transactions from this id on began later.
    pub next: TxnId,
    /// Those that had begun and not ended; ascending.
    pub active: Vec<TxnId>,
    /// How many commits there had been.
    pub sequence: u64,
    /// End of the last commit record that it sees.
    pub seen_lsn: Lsn,
}

impl Snapshot {
    /// Whether a version written by `writer`, another transaction than the reader, is seen.
    #[inline]
    pub fn sees(&self, writer: TxnId) -> bool {
        writer < self.next && (self.active.is_empty() || self.active.binary_search(&writer).is_err())
    }
    /// Every transaction before this one is seen.
    pub fn low(&self) -> TxnId {
        self.active.first().copied().unwrap_or(self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sees_what_had_ended() {
        let snapshot =
            Snapshot { next: TxnId(10), active: vec![TxnId(4), TxnId(7)], sequence: 0, seen_lsn: Lsn::ZERO };
        let seen: Vec<u64> = (0..12).filter(|&id| snapshot.sees(TxnId(id))).collect();
        assert_eq!(seen, [0, 1, 2, 3, 5, 6, 8, 9]);
        assert_eq!(snapshot.low(), TxnId(4));
    }
}
