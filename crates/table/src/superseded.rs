//! Pages of page files that no row names any more, and freeing them in the background.
//!
//! A statement that takes a page out of its row writes a *mark*, a row of one tree for all page
//! files of the database:
//!
//! ```text
//! page: u64 BE  →  nothing
//! ```
//!
//! The page may be freed when no transaction can reach it: the mark is committed, so no snapshot to
//! come sees the row that named it; and a *fence* taken after that is past, so no transaction or
//! snapshot from before is left. Then the mark is removed and the page freed by one atomic group:
//! no crash leaves one without the other. A batch of marks waits for one fence.

use crate::error::TableError;
use firndb_base::sync::atomic::{AtomicBool, Ordering};
use firndb_base::sync::{Arc, Mutex, OnceLock};
use firndb_base::{PageId, Progress, TxnId};
use firndb_btree::{Direction, Judgement, Position, Tree, Visit};
use firndb_log::LogClass;
use firndb_txn::{Course, RowBatch, Transaction, TxnError, TxnErrorKind, TxnManager, TxnOptions};
use std::collections::BTreeSet;

/// Marks that wait for one fence, about.
const BATCH_MAX: usize = 1024;

/// The marks of one database.
#[derive(Default)]
pub(crate) struct Superseded {
    /// Made with the first page file.
    tree: OnceLock<Tree>,
    /// Whether there may be marks. At first an earlier epoch may have left some.
    may_have: AtomicBool,
    /// Held by the background step.
    reaping: Mutex<Reaping>,
}

#[derive(Default)]
struct Reaping {
    /// Marked, and the marks were committed before the fence was taken.
    batch: BTreeSet<PageId>,
    fence: Option<TxnId>,
    /// Not tried again before the next opening.
    set_aside: bool,
}

fn key(page: PageId) -> [u8; 8] {
    page.0.to_be_bytes()
}

/// The page that a mark is of.
pub(crate) fn marked_page(key: &[u8]) -> Result<PageId, TableError> {
    let name = <[u8; 8]>::try_from(key);
    name.map(|name| PageId(u64::from_be_bytes(name)))
        .map_err(|_| TableError::damaged("a mark of a superseded page does not name a page"))
}

impl Superseded {
    /// Puts the tree in place.
    pub(crate) fn begin(&self, tree: Tree) {
        self.may_have.store(true, Ordering::SeqCst);
        assert!(self.tree.set(tree).is_ok(), "a database has one such tree, made or read once");
    }

    pub(crate) fn tree(&self) -> Option<&Tree> {
        self.tree.get()
    }

    /// Marks a page that `txn` has taken out of its row.
    pub(crate) fn mark(&self, txn: &mut Transaction, page: PageId) -> Result<(), TableError> {
        let tree = self.tree().ok_or_else(|| {
            TableError::damaged(
                "the catalog does not say where superseded pages are marked: run a check, and restore a backup",
            )
        })?;
        txn.put(tree, &key(page), &[])?;
        self.may_have.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Frees a bounded number of pages that no transaction needs any more.
    pub(crate) fn step(
        &self,
        manager: &Arc<TxnManager>,
        set_aside: impl Fn(&TableError) -> bool,
    ) -> Result<Progress, TableError> {
        let Some(tree) = self.tree() else { return Ok(Progress::Idle) };
        let mut reaping = self.reaping.lock();
        if reaping.set_aside || (reaping.fence.is_none() && !self.may_have.load(Ordering::SeqCst)) {
            return Ok(Progress::Idle);
        }
        let outcome = self.free_some(tree, manager, &mut reaping);
        match outcome {
            Err(error) if set_aside(&error) => {
                *reaping = Reaping { set_aside: true, ..Reaping::default() };
                drop(reaping);
                let kind = if error.is_damage() { TxnErrorKind::Damaged } else { TxnErrorKind::Failed };
                manager.set_aside(
                    "freeing pages of page files that were replaced",
                    &TxnError::new(kind, error.message),
                );
                Ok(Progress::Worked)
            }
            outcome => outcome,
        }
    }

    fn free_some(
        &self,
        tree: &Tree,
        manager: &Arc<TxnManager>,
        reaping: &mut Reaping,
    ) -> Result<Progress, TableError> {
        let Some(fence) = reaping.fence else {
            reaping.batch = self.committed_marks(tree, manager)?;
            if !reaping.batch.is_empty() {
                reaping.fence = Some(manager.fence());
            }
            return Ok(Progress::Idle);
        };
        if !manager.is_past(fence) {
            return Ok(Progress::Idle);
        }
        let Some(first) = reaping.batch.first().map(|page| key(*page)) else {
            reaping.fence = None;
            return Ok(Progress::Worked);
        };
        let batch = &reaping.batch;
        let swept = tree.sweep_naming(&first, LogClass::Normal, |mark, _| match marked_page(mark) {
            Ok(page) if batch.contains(&page) => Judgement::Remove(Some(page)),
            _ => Judgement::Keep,
        })?;
        match (swept.more, swept.high) {
            // In the order of the marks.
            (true, _) => (0..swept.removed).for_each(|_| _ = reaping.batch.pop_first()),
            (false, Some(high)) => reaping.batch.retain(|page| key(*page)[..] >= high[..]),
            (false, None) => reaping.batch.clear(),
        }
        if !swept.more {
            tree.merge_opportunely(&first, LogClass::Normal);
        }
        Ok(Progress::Worked)
    }

    /// Marks that are committed, from the first on.
    fn committed_marks(
        &self,
        tree: &Tree,
        manager: &Arc<TxnManager>,
    ) -> Result<BTreeSet<PageId>, TableError> {
        // Cleared before the scan: a mark made after it sets this again.
        self.may_have.store(false, Ordering::SeqCst);
        let mut marks = BTreeSet::new();
        if !any_entry(tree).inspect_err(|_| self.may_have.store(true, Ordering::SeqCst))? {
            return Ok(marks);
        }
        self.may_have.store(true, Ordering::SeqCst);
        let mut txn = manager.begin(TxnOptions { read_only: true, ..TxnOptions::default() });
        let mut batch = RowBatch::new();
        let mut position = Some(Position::Start);
        while let Some(from) = position
            && marks.len() < BATCH_MAX
        {
            position = txn.scan(tree, &from, Course::forward(None), &mut batch)?;
            for (mark, _) in batch.iter() {
                marks.insert(marked_page(mark)?);
            }
        }
        txn.rollback()?;
        Ok(marks)
    }
}

/// Whether the tree has an entry, of a transaction that may not have ended.
fn any_entry(tree: &Tree) -> Result<bool, TableError> {
    let (mut any, mut position) = (false, Some(Position::Start));
    while let Some(from) = position
        && !any
    {
        position = tree.visit_leaf(&from, Direction::Forward, |_, _| {
            any = true;
            Visit::Stop
        })?;
    }
    Ok(any)
}
