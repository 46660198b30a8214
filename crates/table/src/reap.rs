//! Freeing large values that no transaction can see any more, in the background.
//!
//! A statement that replaces or deletes a large value marks it (see [`crate::large`]). Its parts
//! may be freed when no transaction can reach it: the mark is committed, so no snapshot to come
//! sees the row that led to it; and a *fence* taken after that is past, so no transaction or
//! snapshot from before it is left.
//!
//! Marks are found by scanning the trees of tables whose statements have made some since the last
//! scan, and once every tree after an opening. A batch of marks waits for one fence. So does a scan
//! that found no committed one: what is committed meanwhile could not be freed before.
//!
//! If this meets damage, the freeing of that table's large values is set aside until the next
//! opening; no value is lost by that, and other tables continue.

use crate::catalog::Catalog;
use crate::error::TableError;
use crate::large::{self};
use crate::state::Shared;
use crate::table::Table;
use firndb_base::Progress;
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::Ordering;
use firndb_txn::{TxnError, TxnErrorKind, TxnOptions};

/// Marks that wait for one fence.
const BATCH_MAX: usize = 64;
/// Tables visited in one step.
const TABLES_MAX: usize = 16;

impl Catalog {
    /// Frees a bounded piece of one large value that no transaction needs any more, and some
    /// superseded pages of page files.
    ///
    /// Errors: as [`Catalog::drop_step`].
    pub(crate) fn reap_step(&self) -> Result<Progress, TableError> {
        let marked: Vec<Arc<Shared>> = {
            let tables = self.tables.read();
            let marked = tables.values().filter(|table| table.shared.has_marks.load(Ordering::SeqCst));
            marked.map(|table| table.shared.clone()).collect()
        };
        // The next step continues where this one ends, so that a table whose marks must wait blocks
        // no other.
        let start = self.reaped.fetch_add(TABLES_MAX, Ordering::Relaxed);
        let (mut progress, mut refused) = (Progress::Idle, None);
        for at in 0..marked.len().min(TABLES_MAX) {
            let table = Table { shared: marked[start.wrapping_add(at) % marked.len()].clone() };
            match table.reap() {
                Ok(Progress::Idle) => {}
                Ok(Progress::Worked) => progress = Progress::Worked,
                Err(error) if self.is_to_be_set_aside(&error) => {
                    self.set_reaping_aside(&table, &error);
                    progress = Progress::Worked;
                }
                // The next table may have work that needs no space.
                Err(error) => refused = Some(error),
            }
        }
        match self.superseded.step(&self.manager, |error| self.is_to_be_set_aside(error)) {
            Ok(freed) => progress = progress.or(freed),
            Err(error) => refused = Some(error),
        }
        refused.map_or(Ok(progress), Err)
    }

    fn set_reaping_aside(&self, table: &Table, error: &TableError) {
        let name =
            table.shared.state().map_or_else(|_| "?".to_owned(), |state| state.definition.name.clone());
        {
            let mut reaping = table.shared.reaping.lock();
            reaping.set_aside = true;
            (reaping.batch, reaping.fence) = (Vec::new(), None);
        }
        let kind = if error.is_damage() { TxnErrorKind::Damaged } else { TxnErrorKind::Failed };
        self.manager.set_aside(
            format!("freeing large values of table {name:?} that were replaced or deleted"),
            &TxnError::new(kind, error.message.clone()),
        );
    }
}

impl Table {
    fn reap(&self) -> Result<Progress, TableError> {
        // Held to the end: it keeps the tree from being cleared meanwhile.
        let Ok(state) = self.shared.state() else { return Ok(Progress::Idle) };
        let Some(tree) = &state.large else {
            self.shared.has_marks.store(false, Ordering::SeqCst);
            return Ok(Progress::Idle);
        };
        let manager = &self.shared.manager;
        let mut reaping = self.shared.reaping.lock();
        if reaping.set_aside {
            self.shared.has_marks.store(false, Ordering::SeqCst);
            return Ok(Progress::Idle);
        }
        if reaping.fence.is_some_and(|fence| !manager.is_past(fence)) {
            return Ok(Progress::Idle);
        }
        let Some(id) = reaping.fence.and_then(|_| reaping.batch.last().copied()) else {
            reaping.fence = None;
            // Cleared before the scan: a mark made after it sets this again.
            self.shared.has_marks.store(false, Ordering::SeqCst);
            let marked = large::any_marked(tree);
            if matches!(marked, Ok(false)) {
                // One table less to visit: the next step visits another.
                return Ok(Progress::Worked);
            }
            self.shared.has_marks.store(true, Ordering::SeqCst);
            marked?;
            let mut txn = manager.begin(TxnOptions { read_only: true, ..TxnOptions::default() });
            reaping.batch = large::freed(&mut txn, tree, None, BATCH_MAX)?;
            txn.rollback()?;
            reaping.fence = Some(manager.fence());
            return Ok(Progress::Idle);
        };
        if large::free_some(tree, id)? {
            reaping.batch.pop();
        }
        Ok(Progress::Worked)
    }
}
