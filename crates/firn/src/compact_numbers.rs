//! Compaction's moving of page numbers: the file can then end before the numbers that were high.
//!
//! Trees are walked level by level, from the leaves up; a node beyond the limit is moved by one
//! atomic group of the log (`firndb_btree`'s `relocate.rs`). Nothing is remembered between two
//! steps but a key, so this may be stopped anywhere, and runs beside structure changes: a node that
//! they put beyond the limit behind the walk is met by the next round.

use crate::compact::{CompactProgress, Told};
use crate::engine::Engine;
use crate::error::{Error, ErrorKind};
use firndb_base::PageId;
use firndb_base::clock;
use firndb_btree::{Relocated, Tree, TreeError, TreeErrorKind};
use firndb_log::LogClass;
use firndb_table::RelocatableTree;
use firndb_txn::TxnError;
use std::ops::ControlFlow;
use std::time::Duration;

/// Nodes moved in one step, at most.
const NODES_A_STEP: usize = 16;
/// Walks through all trees, at most: each but the first for what others changed meanwhile.
const ROUNDS_MAX: u32 = 3;

/// One round.
struct Moving {
    /// Page numbers from here on are to be out of use.
    limit: PageId,
    moved: u64,
    /// Pages that had such numbers when it began.
    all: u64,
    /// No lower number is free, or no page can be reserved.
    is_short: bool,
}

impl Engine {
    /// Gives pages lower numbers, so that the file's end can be cut off. Adds to `moved` how many.
    pub(crate) fn compact_numbers(
        &self,
        progress: Told<'_>,
        moved: &mut u64,
    ) -> Result<ControlFlow<()>, Error> {
        let mut left_over = 0;
        for _ in 0..ROUNDS_MAX {
            self.store.release_freed_pages()?;
            let length = self.store.file_length()?;
            let limit = self.options.testing.numbers_limit.map_or(length.limit(), PageId).min(length.limit());
            // What the last round could not move does not change.
            if length.pages_beyond <= left_over && limit == length.limit() {
                break;
            }
            let all = length.pages_beyond;
            let mut moving = Moving { limit, moved: 0, all, is_short: false };
            let mut flow = ControlFlow::Continue(());
            for tree in self.catalog.relocatable_trees() {
                flow = self.move_nodes(&tree, &mut moving, progress)?;
                if flow.is_break() || moving.is_short {
                    break;
                }
            }
            *moved += moving.moved;
            if flow.is_break() || moving.is_short {
                return Ok(flow);
            }
            left_over = all.saturating_sub(moving.moved);
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Moves the nodes of one tree.
    fn move_nodes(
        &self,
        of: &RelocatableTree,
        moving: &mut Moving,
        progress: Told<'_>,
    ) -> Result<ControlFlow<()>, Error> {
        // Held to the end: it keeps the tree from being cleared meanwhile.
        let Some(tree) = of.tree() else { return Ok(ControlFlow::Continue(())) };
        for level in 0.. {
            let (mut next, mut was_short) = (Some(Vec::new()), false);
            while let Some(key) = next {
                if moving.is_short {
                    return Ok(ControlFlow::Continue(()));
                }
                if progress(CompactProgress::Numbers(moving.moved, moving.all.max(moving.moved))).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                let begun = clock::now();
                let Some(done) = self.move_some(&tree, &of.what, (level, &key), moving)? else {
                    return Ok(ControlFlow::Continue(()));
                };
                done.left.iter().for_each(|error| self.report_left(&of.what, error));
                moving.moved += done.moved;
                if done.is_short {
                    // Lower numbers may be free once the log is durable, or in parts of the file
                    // that are not known just now.
                    self.store.release_freed_pages()?;
                    self.store.file_length()?;
                    moving.is_short = done.moved == 0 && was_short;
                    (was_short, next) = (true, Some(key));
                    continue;
                }
                (was_short, next) = (false, done.next);
                if done.moved > 0 {
                    self.after_moves(begun.elapsed())?;
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn report_left(&self, what: &str, error: &TreeError) {
        let work = format!("giving a page of {what} a lower number");
        self.txns.set_aside(work, &TxnError::from(error.clone()));
    }

    /// One step; `None` if the tree has no such level, or cannot be walked any further.
    fn move_some(
        &self,
        tree: &Tree,
        what: &str,
        (level, key): (u8, &[u8]),
        moving: &mut Moving,
    ) -> Result<Option<Relocated>, Error> {
        let class = LogClass::Normal;
        let outcome = self.write(|| {
            match tree.relocate_children(level, key, moving.limit, NODES_A_STEP, class) {
                // It is being cleared.
                Err(error) if error.kind == TreeErrorKind::Condemned => Ok(None),
                // Its root cannot be read: nothing below is found.
                Err(error) if error.concerns_a_page() => {
                    self.report_left(what, &error);
                    Ok(None)
                }
                outcome => Ok(outcome?),
            }
        });
        match outcome {
            // Each move takes a page before it gives one up. What is left may do without.
            Err(error) if error.kind() == ErrorKind::Full && !error.is_log_full() => {
                moving.is_short = true;
                Ok(None)
            }
            outcome => outcome,
        }
    }

    /// What goes on beside moves: cleaning, for databases without threads, and checkpoints.
    fn after_moves(&self, step: Duration) -> Result<(), Error> {
        self.pool.clean_step()?;
        self.checkpoint_if_due()?;
        self.rest_beside_transactions(step);
        Ok(())
    }
}
