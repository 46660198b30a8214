//! Names of transactions that have no id yet.

use firndb_base::sync::atomic::{AtomicU64, Ordering};
use std::cell::Cell;

/// Names a transaction among all that this process ever begins, whether or not it has an id: what
/// belongs to one (savepoints, cursors) is refused by others. Nothing but equality means anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxnToken(u64);

/// Tokens that a thread takes at a time, so that beginning a transaction touches nothing that
/// threads share.
const BLOCK: u64 = 1 << 16;

static BLOCKS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static NEXT: Cell<u64> = const { Cell::new(0) };
}

impl TxnToken {
    pub(crate) fn next() -> TxnToken {
        NEXT.with(|next| {
            let mut token = next.get();
            if token.is_multiple_of(BLOCK) {
                token = BLOCKS.fetch_add(1, Ordering::Relaxed) * BLOCK;
            }
            // A block's number zero is given out when the block is taken: at its end the next one
            // is due.
            next.set(token + 1);
            TxnToken(token)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn tokens_differ_across_blocks_and_threads() {
        let drawn = || (0..2 * BLOCK + 5).map(|_| TxnToken::next().0).collect::<Vec<_>>();
        let others: Vec<_> = (0..3).map(|_| std::thread::spawn(drawn)).collect();
        let mut all = drawn();
        others.into_iter().for_each(|thread| all.extend(thread.join().expect("no panic")));
        let count = all.len();
        assert_eq!(all.into_iter().collect::<BTreeSet<_>>().len(), count);
    }
}
