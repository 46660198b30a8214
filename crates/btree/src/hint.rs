//! Which leaf of a tree this thread was at last: the next change is often in the same one, as when a row is
//! read to be changed, or when rows come in key order.
//!
//! A hint names a frame and a page. Nothing is believed of it that is not checked under the page's latch
//! (see `Tree::hinted_leaf`), so it may be as old as it likes.

use crate::tree::Tree;
use firn_base::TreeId;
use firn_buffer::OptimisticRef;
use std::cell::Cell;

/// Hints a thread keeps, one for each tree whose id falls on its place.
const KEPT: usize = 32;

/// A leaf seen: which pool, which tree, where.
#[derive(Clone, Copy)]
struct Hint {
    pool: u64,
    tree: TreeId,
    leaf: OptimisticRef,
}

thread_local! {
    static HINTS: [Cell<Option<Hint>>; KEPT] = const { [const { Cell::new(None) }; KEPT] };
}

/// Notes the leaf in which this thread is.
#[inline]
pub(crate) fn remember(tree: &Tree, leaf: OptimisticRef) {
    let hint = Hint { pool: tree.pool().serial(), tree: tree.id(), leaf };
    HINTS.with(|hints| hints[tree.id().0 as usize % KEPT].set(Some(hint)));
}

/// The leaf in which this thread was last.
#[inline]
pub(crate) fn recall(tree: &Tree) -> Option<OptimisticRef> {
    let hint = HINTS.with(|hints| hints[tree.id().0 as usize % KEPT].get())?;
    (hint.tree == tree.id() && hint.pool == tree.pool().serial()).then_some(hint.leaf)
}
