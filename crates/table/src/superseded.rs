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
//!
//! The search for committed marks goes on where the step before ended, a few leaves a step. A round
//! that finds none waits for a fence, too: marks committed meanwhile cannot be freed before it is
//! past (and wait for one more then). So the marks of a transaction that stays open are not
//! searched over and over.
//!
//! Damage: a step that fails is tried again a few times ([`Attempts`]). Then what it met, a leaf of
//! marks or one mark whose page cannot be freed, is passed over until the next opening and reported
//! once; the pages that it concerns stay allocated, all others are freed.

use crate::attempts::{Attempts, is_unreadable};
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
/// Leaves that one step searches for marks.
const LEAVES_MAX: usize = 16;
/// Leaves and marks passed over because of damage. Beyond them nothing is freed before the next
/// opening.
const PASSED_OVER_MAX: usize = 64;

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

struct Reaping {
    /// Where the search for marks goes on.
    at: Position,
    /// Marked, and the marks were committed before the fence was taken.
    batch: BTreeSet<PageId>,
    fence: Option<TxnId>,
    /// The pages of the batch are freed one by one, since some of them could not be freed together.
    one_by_one: bool,
    attempts: Attempts,
    /// Where leaves begin that are not read again before the next opening.
    leaves_passed_over: Vec<Position>,
    /// Pages that are not tried again before then.
    pages_passed_over: BTreeSet<PageId>,
    /// What was passed over just now, to be reported without the lock.
    trouble: Option<TableError>,
    /// Nothing is tried again before then.
    set_aside: bool,
}

impl Default for Reaping {
    fn default() -> Reaping {
        Reaping {
            at: Position::Start,
            batch: BTreeSet::new(),
            fence: None,
            one_by_one: false,
            attempts: Attempts::default(),
            leaves_passed_over: Vec::new(),
            pages_passed_over: BTreeSet::new(),
            trouble: None,
            set_aside: false,
        }
    }
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
        is_to_be_set_aside: impl Fn(&TableError) -> bool,
    ) -> Result<Progress, TableError> {
        let Some(tree) = self.tree() else { return Ok(Progress::Idle) };
        let mut reaping = self.reaping.lock();
        let may_have = reaping.is_amidst() || self.may_have.load(Ordering::SeqCst);
        if reaping.set_aside || !reaping.attempts.are_due() || !may_have {
            return Ok(Progress::Idle);
        }
        let outcome = match self.free_some(tree, manager, &mut reaping) {
            Err(error) if is_to_be_set_aside(&error) => {
                reaping.failed(tree, error);
                Ok(Progress::Worked)
            }
            outcome => outcome.inspect(|_| reaping.attempts = Attempts::default()),
        };
        let trouble = reaping.trouble.take();
        drop(reaping);
        if let Some(error) = trouble {
            let kind = if error.is_damage() { TxnErrorKind::Damaged } else { TxnErrorKind::Failed };
            manager.set_aside(
                "freeing pages of page files that were replaced",
                &TxnError::new(kind, error.message),
            );
        }
        outcome
    }

    fn free_some(
        &self,
        tree: &Tree,
        manager: &Arc<TxnManager>,
        reaping: &mut Reaping,
    ) -> Result<Progress, TableError> {
        if reaping.fence.is_some_and(|fence| !manager.is_past(fence)) {
            return Ok(Progress::Idle);
        }
        let Some(first) = reaping.fence.and_then(|_| reaping.batch.first().copied()) else {
            (reaping.fence, reaping.one_by_one) = (None, false);
            self.search(tree, manager, reaping)?;
            // A round that found nothing yet goes on at once. It ends at the start of the tree.
            if reaping.batch.is_empty() && reaping.at != Position::Start {
                return Ok(Progress::Worked);
            }
            // None is marked if `search` says so, and the next mark says otherwise.
            if self.may_have.load(Ordering::SeqCst) || !reaping.batch.is_empty() {
                reaping.fence = Some(manager.fence());
            }
            return Ok(Progress::Idle);
        };
        let (batch, one_by_one) = (&reaping.batch, reaping.one_by_one);
        let is_next = |page| if one_by_one { page == first } else { batch.contains(&page) };
        let swept = tree.sweep_naming(&key(first), LogClass::Normal, |mark, _| match marked_page(mark) {
            Ok(page) if is_next(page) => Judgement::Remove(Some(page)),
            _ => Judgement::Keep,
        })?;
        match (swept.more, swept.high) {
            _ if one_by_one => _ = reaping.batch.pop_first(),
            // In the order of the marks.
            (true, _) => (0..swept.removed).for_each(|_| _ = reaping.batch.pop_first()),
            (false, Some(high)) => reaping.batch.retain(|page| key(*page)[..] >= high[..]),
            (false, None) => reaping.batch.clear(),
        }
        if !swept.more {
            tree.merge_opportunely(&key(first), LogClass::Normal);
        }
        Ok(Progress::Worked)
    }

    /// Adds committed marks of the next leaves to the batch.
    fn search(
        &self,
        tree: &Tree,
        manager: &Arc<TxnManager>,
        reaping: &mut Reaping,
    ) -> Result<(), TableError> {
        if reaping.at == Position::Start {
            // Cleared before the tree is looked at: a mark made after that sets it again.
            self.may_have.store(false, Ordering::SeqCst);
            // A leaf that cannot be read may have some.
            if matches!(any_entry(tree, &reaping.leaves_passed_over), Ok(false)) {
                return Ok(());
            }
            self.may_have.store(true, Ordering::SeqCst);
        }
        let mut txn = manager.begin(TxnOptions { read_only: true, ..TxnOptions::default() });
        let mut rows = RowBatch::new();
        for _ in 0..LEAVES_MAX {
            rows.clear();
            let next = match reaping.leaves_passed_over.contains(&reaping.at) {
                true => tree.past_leaf(&reaping.at).map_err(TableError::from),
                false => txn.scan(tree, &reaping.at, Course::forward(None), &mut rows).map_err(Into::into),
            };
            let next = match next {
                // Those found before it go first.
                Err(_) if !reaping.batch.is_empty() => break,
                next => next?,
            };
            for (mark, _) in rows.iter() {
                match marked_page(mark) {
                    Ok(page) if reaping.pages_passed_over.contains(&page) => {}
                    Ok(page) => _ = reaping.batch.insert(page),
                    Err(error) => reaping.trouble = Some(error),
                }
            }
            let is_done = next.is_none() || reaping.batch.len() >= BATCH_MAX;
            reaping.at = next.unwrap_or(Position::Start);
            if is_done {
                break;
            }
        }
        Ok(txn.rollback()?)
    }
}

impl Reaping {
    /// Whether a round of the search, or a batch, is not done.
    fn is_amidst(&self) -> bool {
        self.fence.is_some() || self.at != Position::Start
    }

    /// Counts a failure of the next step. After the last attempt, what it met is passed over.
    fn failed(&mut self, tree: &Tree, error: TableError) {
        if self.attempts.failed(&error) {
            return;
        }
        let concerns_a_page = error.is_damage() || is_unreadable(&error);
        let passed_over = self.leaves_passed_over.len() + self.pages_passed_over.len();
        if !concerns_a_page || passed_over == PASSED_OVER_MAX || !self.pass_over(tree, &error) {
            *self = Reaping { set_aside: true, trouble: Some(error), ..Reaping::default() };
        }
    }

    /// Whether the next step can go past what the last one met.
    fn pass_over(&mut self, tree: &Tree, error: &TableError) -> bool {
        let is_search = self.fence.is_none();
        let failed_at = match self.batch.first() {
            Some(first) if !is_search => Position::At(key(*first).to_vec()),
            _ => self.at.clone(),
        };
        if !is_search && tree.visit_leaf(&failed_at, Direction::Forward, |_, _| Visit::Stop).is_ok() {
            // Not the leaf, but a page that its marks name: which one, is found one by one.
            if self.one_by_one {
                self.pages_passed_over.extend(self.batch.pop_first());
                self.trouble = Some(error.clone());
            }
            self.one_by_one = true;
            return true;
        }
        let next = match tree.past_leaf(&failed_at) {
            Ok(None) if failed_at == Position::Start => return false,
            Ok(next) => next,
            Err(_) => return false,
        };
        self.trouble = Some(error.clone());
        if is_search {
            self.leaves_passed_over.push(failed_at);
            self.at = next.unwrap_or(Position::Start);
            return true;
        }
        // The search will meet the leaf.
        match next {
            Some(Position::At(next) | Position::Past(next)) => {
                self.batch.retain(|page| key(*page)[..] >= next[..])
            }
            Some(Position::Start) | None => self.batch.clear(),
        }
        true
    }
}

/// Whether a leaf that is not passed over has an entry, of a transaction that may not have ended.
fn any_entry(tree: &Tree, passed_over: &[Position]) -> Result<bool, TableError> {
    let (mut any, mut position) = (false, Some(Position::Start));
    while let Some(from) = position
        && !any
    {
        if passed_over.contains(&from) {
            position = tree.past_leaf(&from)?;
            continue;
        }
        position = tree.visit_leaf(&from, Direction::Forward, |_, _| {
            any = true;
            Visit::Stop
        })?;
    }
    Ok(any)
}
