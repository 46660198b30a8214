//! The leaf of a tree that this thread visited last: the next change is often in the same one, as
//! when a row is read to be changed, or when rows come in key order.
//!
//! A hint names a frame and a page. Everything it says is checked under the page's latch (see
//! `Tree::hinted_leaf`), so it may be arbitrarily old.

use crate::tree::Tree;
use firndb_base::TreeId;
use firndb_buffer::OptimisticRef;
use std::cell::Cell;

/// Hints a thread keeps; trees whose ids are equal modulo this number share one.
const KEPT: usize = 32;

/// A leaf seen: which pool, which tree, where.
#[derive(Clone, Copy)]
struct Hint {
    pool: u64,
    tree: TreeId,
    leaf: OptimisticRef,
    /// The slot at which a scan stopped there; of no meaning after other visits.
    slot: usize,
}

thread_local! {
    static HINTS: [Cell<Option<Hint>>; KEPT] = const { [const { Cell::new(None) }; KEPT] };
}

/// Notes the leaf that this thread visits.
#[inline]
pub(crate) fn remember(tree: &Tree, leaf: OptimisticRef) {
    remember_at(tree, leaf, 0);
}

/// Notes the leaf that this thread visits, and the slot at which a scan stops there.
#[inline]
pub(crate) fn remember_at(tree: &Tree, leaf: OptimisticRef, slot: usize) {
    let hint = Hint { pool: tree.pool().serial(), tree: tree.id(), leaf, slot };
    HINTS.with(|hints| hints[tree.id().0 as usize % KEPT].set(Some(hint)));
}

/// The leaf that this thread visited last.
#[inline]
pub(crate) fn recall(tree: &Tree) -> Option<OptimisticRef> {
    recall_at(tree).map(|(leaf, _)| leaf)
}

/// The leaf that this thread visited last, and the slot of [`remember_at`].
#[inline]
pub(crate) fn recall_at(tree: &Tree) -> Option<(OptimisticRef, usize)> {
    let hint = HINTS.with(|hints| hints[tree.id().0 as usize % KEPT].get())?;
    (hint.tree == tree.id() && hint.pool == tree.pool().serial()).then_some((hint.leaf, hint.slot))
}
