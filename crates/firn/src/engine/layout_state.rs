//! What is remembered between the steps in which the engine chooses layouts (`auto_layouts.rs`).

use firndb_array::Chooser;
use firndb_base::TreeId;
use firndb_base::clock::Moment;
use firndb_base::sync::Mutex;
use firndb_base::sync::atomic::{AtomicBool, Ordering};
use firndb_btree::Position;
use firndb_table::{Fragmentation, TableTrees};
use firndb_tier::store::StoreLoad;
use std::collections::VecDeque;

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
    /// Pages are being moved.
    pub walk: Option<TableWalk>,
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

/// Where a walk is.
#[derive(Debug)]
pub(crate) struct TableWalk {
    /// The table, by its own tree, and what it had when the walk began.
    pub table: (TreeId, Fragmentation),
    /// The tree that is walked, and those after it.
    pub trees: VecDeque<TreeId>,
    pub level: u8,
    pub from: Position,
    /// Whether a page of the level was found.
    pub is_level: bool,
    /// Pages that were looked at.
    pub looked_at: u64,
    /// Pages that stayed where they were, for lack of space for their layout.
    pub left: u64,
}

/// What a step of a walk did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Walked {
    Some,
    /// It has to wait for others.
    NotNow,
    All,
}

impl TableWalk {
    pub fn of(table: &TableTrees) -> TableWalk {
        TableWalk {
            table: (table.trees[0], table.fragmentation),
            trees: table.trees.iter().copied().collect(),
            level: 0,
            from: Position::Start,
            is_level: false,
            looked_at: 0,
            left: 0,
        }
    }

    /// Whether it is one of this table, as that is now.
    pub fn is_of(&self, table: &TableTrees) -> bool {
        self.table == (table.trees[0], table.fragmentation)
    }

    pub fn next_tree(&mut self) {
        self.trees.pop_front();
        (self.level, self.from, self.is_level) = (0, Position::Start, false);
    }
}

/// What status reports show.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    /// Changes since opening.
    pub changes: u64,
    /// Pages that the walk has looked at, if there is one.
    pub looked_at: u64,
    /// Pages that walks left where they were, for lack of space.
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
