//! What is remembered between the steps in which the engine chooses layouts (`auto_layouts.rs`).

use firndb_array::Chooser;
use firndb_base::clock::Moment;
use firndb_base::sync::Mutex;
use firndb_base::sync::atomic::{AtomicBool, Ordering};
use firndb_tier::store::{CodeWalk, StoreLoad};

/// What is known of layouts that the engine chooses.
#[derive(Debug, Default)]
pub(crate) struct AutoLayouts {
    /// Of the thread that is at it.
    pub choosing: Mutex<Choosing>,
    /// Locked alone.
    pub shown: Mutex<Shown>,
    /// A compaction runs: it moves pages too.
    waits: AtomicBool,
}

#[derive(Debug, Default)]
pub(crate) struct Choosing {
    pub chooser: Chooser,
    pub before: Option<Before>,
    pub walk: Walk,
    pub rests_until: Option<Moment>,
    /// In tests that want changes: how many there were.
    pub turns: usize,
}

/// What was counted at the last look.
#[derive(Debug)]
pub(crate) struct Before {
    pub at: Moment,
    pub load: StoreLoad,
}

#[derive(Debug, Default)]
pub(crate) enum Walk {
    /// Whether the catalog has pages to be moved was not asked since opening.
    #[default]
    Unknown,
    None,
    At(CodeWalk),
}

/// What status reports show.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    /// Changes since opening.
    pub changes: u64,
    /// Pages of the page map that the walk has looked through, and how many there are.
    pub walk: Option<(u64, u64)>,
    /// Pages that the last walk left where they were, for lack of space.
    pub left: u64,
}

impl AutoLayouts {
    pub fn shown(&self) -> Shown {
        self.shown.lock().clone()
    }

    /// Has moves wait for a compaction, or go on.
    pub fn set_waiting(&self, wait: bool) {
        self.waits.store(wait, Ordering::Release);
    }

    pub fn is_waiting(&self) -> bool {
        self.waits.load(Ordering::Acquire)
    }
}
