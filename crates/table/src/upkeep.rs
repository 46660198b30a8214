//! How writers keep an index, and the notes on one that is being built (see [`crate::notes`]).

use firndb_base::sync::Arc;
use firndb_base::sync::atomic::{AtomicBool, Ordering};
use firndb_btree::Tree;

/// How writers keep an index.
#[derive(Clone)]
pub(crate) enum Upkeep {
    Noted(Arc<Notes>),
    Settled(Arc<Notes>),
    Whole,
}

impl Upkeep {
    /// Those of an index that is being built.
    pub(crate) fn notes(&self) -> Option<&Arc<Notes>> {
        match self {
            Upkeep::Noted(notes) | Upkeep::Settled(notes) => Some(notes),
            Upkeep::Whole => None,
        }
    }
}

/// Notes on an index that is being built.
pub(crate) struct Notes {
    pub(crate) tree: Arc<Tree>,
    /// A writer that finds this set after it has written a note settles that note.
    closed: AtomicBool,
}

impl Notes {
    pub(crate) fn new(tree: Arc<Tree>) -> Arc<Notes> {
        Arc::new(Notes { tree, closed: AtomicBool::new(false) })
    }

    /// From here on writers that do not know it yet settle what they note.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    pub(crate) fn are_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }
}
