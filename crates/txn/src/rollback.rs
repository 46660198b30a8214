//! Undoing: logical, through the trees, with a compensation record for each entry.
//!
//! Log space for it is promised before a change is made ([`firndb_log::Log::undo_promise`]), and
//! checkpoints make more. Where both do not suffice, because something idle holds the log and the
//! open transactions are larger than the reserve for undo, it is put off: a transaction that is
//! being rolled back is then a loser as recovery has them. Nothing is lost by that, and no rollback
//! fails for lack of log. The same is done where a page cannot be read or is damaged (`losers.rs`).
//!
//! An entry is undone only if the row still carries that very (writer, index). Indices are never
//! given out twice, so an entry that was undone before a crash is recognised and skipped after it.

use crate::attachment::compensation;
use crate::error::{TxnError, TxnErrorKind};
use crate::header::RowHeader;
use crate::locks::HeldLocks;

use crate::manager::TxnManager;
use crate::read_many::{bring_in_piece, piece_of};
use crate::row_change::PAGE_NAME_LEN;
use crate::state::{Status, TxnState};
use crate::transaction::Transaction;
use crate::undo::{Before, Undo, undo_key};
use crate::waits::WaitLimit;
use firndb_base::codec::{Malformed, Writer};
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::Ordering;
use firndb_base::{PageId, TreeId};
use firndb_btree::{Change, Patches, Tree};
use firndb_log::{Kind, LogClass, Record};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// How many entries are undone between two checks of the log's space.
const SPACE_CHECK_EVERY: usize = 16;
/// Rows whose pages are read together.
const ROWS_AHEAD: u32 = 64;
/// How often space is made for one and the same entry.
const SPACE_ATTEMPTS: usize = 8;
/// Rows that one attempt finds on damaged pages before it leaves all that is older: each costs a
/// read in vain.
const DAMAGED_ROWS_MAX: usize = 256;

impl Transaction {
    /// Undoes everything and ends. What finds no space in the log, or needs a page that cannot be
    /// read, is undone later, by a background step or by a transaction that waits for it, and what
    /// needs a damaged page by the next opening after a repair: until then its rows stay locked and
    /// show others the versions before.
    ///
    /// Errors: those after which the database must be opened again; recovery then undoes the rest.
    pub fn rollback(mut self) -> Result<(), TxnError> {
        self.roll_back_all()
    }

    pub(crate) fn roll_back_all(&mut self) -> Result<(), TxnError> {
        if self.ended {
            return Ok(());
        }
        self.ended = true;
        self.images = None;
        self.kept.forget_changes();
        self.drop_snapshot();
        let Some(state) = self.state.take() else { return Ok(()) };
        match self.manager.roll_back_patiently(&state, &mut self.held, &WaitLimit::default()) {
            Err(error) if error.allows_undoing_later() => {
                self.manager.undo_later(&state, &mut self.held, &error);
                Ok(())
            }
            // Half undone it would have no owner.
            outcome => outcome.inspect_err(|error| self.manager.poison(error.clone())),
        }
    }

    /// Undoes the entries from the newest down to `index`. If the log has no space for all of it,
    /// the transaction can do nothing else before the rest is undone, which every statement tries
    /// first.
    pub(crate) fn undo_down_to(&mut self, index: u32) -> Result<(), TxnError> {
        self.writes += 1;
        if let Some(images) = &mut self.images {
            images.return_to(index);
        }
        let Some(state) = &self.state else { return Ok(()) };
        match self.manager.undo_down_to(state, index, &WaitLimit::default()) {
            Err(error) if error.allows_undoing_later() => {
                self.undo_to = Some(index);
                Err(error)
            }
            // Half undone, it could neither continue nor be committed.
            Err(error) => {
                self.manager.poison(error.clone());
                Err(error)
            }
            Ok(()) => {
                self.undo_to = None;
                Ok(())
            }
        }
    }

    /// Undoes what a return to a savepoint has left.
    pub(crate) fn finish_undoing(&mut self) -> Result<(), TxnError> {
        let Some(index) = self.undo_to else { return Ok(()) };
        self.undo_down_to(index).map_err(|error| match error.concerns_a_page() {
            true => error.within(
                "the transaction can only be rolled back: it went back to a savepoint, and something it had done since then \
                 could not be undone",
            ),
            false => error,
        })
    }
}

/// What one attempt leaves because of pages that cannot be had: rows, and trees (without a key)
/// that the transaction created.
///
/// Two changes of one row are undone newest first: the older one would not be recognised before the
/// newer one is undone, and would be taken for undone. So all older entries of such a row are left
/// with it.
#[derive(Default)]
struct LeftRows(BTreeMap<What, TxnError>);

/// A row by its tree and key, or a tree.
type What = (TreeId, Option<Box<[u8]>>);

impl LeftRows {
    fn what(entry: &[u8]) -> Result<What, TxnError> {
        Ok(match Undo::decode(entry)? {
            Undo::Row { tree, key, .. } => (tree, Some(key.into())),
            Undo::TreeCreated { tree, .. } => (tree, None),
        })
    }

    /// Leaves what `entry` concerns, because of `error`; fails with it if that is too much.
    fn add(&mut self, entry: &[u8], error: TxnError) -> Result<(), TxnError> {
        if self.0.len() == DAMAGED_ROWS_MAX {
            return Err(error);
        }
        self.0.insert(LeftRows::what(entry)?, error);
        Ok(())
    }

    /// Whether what `entry` concerns was left.
    fn contains(&self, entry: &[u8]) -> Result<bool, TxnError> {
        Ok(!self.0.is_empty() && self.0.contains_key(&LeftRows::what(entry)?))
    }

    /// If `entry` created a tree, it is freed now, and so are its rows.
    fn forget_tree_of(&mut self, entry: &[u8]) -> Result<(), TxnError> {
        if let (false, Undo::TreeCreated { tree, .. }) = (self.0.is_empty(), Undo::decode(entry)?) {
            self.0.retain(|(of, _), _| *of != tree);
        }
        Ok(())
    }

    /// Fails if anything is left. Damage before failed reads, since it decides that no other
    /// attempt is made.
    fn outcome(mut self) -> Result<(), TxnError> {
        let damaged = self.0.iter().find(|(_, error)| error.kind == TxnErrorKind::Damaged);
        let first = damaged.or_else(|| self.0.iter().next()).map(|(what, _)| what.clone());
        match first.and_then(|what| self.0.remove(&what)) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

/// Of removing an unneeded entry from the undo tree: where its page is unavailable it stays, and
/// the next opening removes it with what else is left of ended transactions.
pub(crate) fn leaving_orphans(outcome: Result<(), TxnError>) -> Result<(), TxnError> {
    match outcome {
        Err(error) if error.concerns_a_page() => Ok(()),
        outcome => outcome,
    }
}

impl TxnManager {
    /// Undoes all of a transaction and ends it. On behalf of a waiter with a limit: until that, and
    /// without making space in the log. What is undone by then is recognised by the next attempt.
    pub(crate) fn roll_back_state(
        &self,
        state: &Arc<TxnState>,
        held: &mut HeldLocks,
        limit: &WaitLimit,
    ) -> Result<(), TxnError> {
        if state.versions.lock().next_index() == 0 {
            self.finish(state, Status::Aborted, None, held);
            return Ok(());
        }
        self.undo_down_to(state, 0, limit)?;
        if state.versions.lock().spilled {
            leaving_orphans(
                self.with_log_space_within(limit, || self.remove_spilled(state.id, LogClass::Rollback)),
            )?;
        }
        debug_assert!(state.versions.lock().oldest_lsn().is_none(), "an abort follows the undoing of all");
        let mut body = Vec::new();
        body.put_varint(state.id.0);
        self.with_log_space_within(limit, || {
            let record = Record { kind: Kind::ABORT, body: &body };
            Ok(self.log.append(LogClass::Rollback, record).map(|_| ())?)
        })?;
        self.counters.rollbacks.fetch_add(1, Ordering::Relaxed);
        self.finish(state, Status::Aborted, None, held);
        Ok(())
    }

    pub(crate) fn undo_down_to(
        &self,
        state: &TxnState,
        down_to: u32,
        limit: &WaitLimit,
    ) -> Result<(), TxnError> {
        let newest = state.versions.lock().next_index();
        let mut entry = Vec::new();
        let mut left = LeftRows::default();
        for (done, index) in (down_to..newest).rev().enumerate() {
            limit.check()?;
            if done % SPACE_CHECK_EVERY == 0
                && limit.is_none()
                && let Some(make) = self.make_log_space.get()
            {
                // Early, while spilling what is left still fits. If it cannot help, the log's
                // reserve may do.
                let _ = make(false);
            }
            // The pages of a running transaction's newest changes are in memory, as a rule.
            if done % ROWS_AHEAD as usize == 0 && (done > 0 || state.found_by_recovery) {
                self.bring_in_rows(state, index.saturating_sub(ROWS_AHEAD - 1).max(down_to)..index + 1);
            }
            let mut known = false;
            // A part may be done again: an entry that was undone is recognised.
            let outcome = self.with_log_space_within(limit, || {
                let _moving = state.moving.lock();
                known = false;
                if self.read_undo(state, index, &mut entry)? {
                    known = true;
                    if left.contains(&entry)? {
                        return Ok(());
                    }
                    self.undo_entry(state, index, &entry)?;
                    left.forget_tree_of(&entry)?;
                    self.forget_undo(state, index, entry.len())?;
                    let mut versions = state.versions.lock();
                    versions.account(&self.version_bytes);
                    versions.promise(self.log.undo_promise());
                }
                Ok(())
            });
            match outcome {
                Err(error) if known && error.concerns_a_page() => left.add(&entry, error)?,
                outcome => outcome?,
            }
        }
        left.outcome()
    }

    /// Reads the pages of the rows of these entries together. An error is left to the undoing that
    /// meets it.
    fn bring_in_rows(&self, state: &TxnState, entries: Range<u32>) {
        let mut rows: BTreeMap<TreeId, BTreeSet<Vec<u8>>> = BTreeMap::new();
        let mut entry = Vec::new();
        for index in entries {
            let _moving = state.moving.lock();
            if let Ok(true) = self.read_undo(state, index, &mut entry)
                && let Ok(Undo::Row { tree, key, .. }) = Undo::decode(&entry)
            {
                rows.entry(tree).or_default().insert(key.to_vec());
            }
        }
        for (tree, keys) in rows {
            if let Some(tree) = self.tree(tree) {
                let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                for piece in keys.chunks(piece_of(&tree)) {
                    let _ = bring_in_piece(&tree, piece);
                }
            }
        }
    }

    /// Runs a part of undoing, or a commit; while the log is full, makes space and runs it again.
    pub(crate) fn with_log_space(
        &self,
        mut work: impl FnMut() -> Result<(), TxnError>,
    ) -> Result<(), TxnError> {
        for _ in 0..SPACE_ATTEMPTS {
            match (work(), self.make_log_space.get()) {
                (Err(error), Some(make)) if error.kind == TxnErrorKind::LogFull => make(true)?,
                (outcome, _) => return outcome,
            }
        }
        work()
    }

    /// As [`TxnManager::with_log_space`]; with a limit, without making space.
    fn with_log_space_within(
        &self,
        limit: &WaitLimit,
        mut work: impl FnMut() -> Result<(), TxnError>,
    ) -> Result<(), TxnError> {
        if limit.is_none() { self.with_log_space(work) } else { work() }
    }

    fn undo_entry(&self, state: &TxnState, index: u32, entry: &[u8]) -> Result<(), TxnError> {
        match Undo::decode(entry)? {
            Undo::Row { tree, key, names_page, before, .. } => match self.tree(tree) {
                Some(tree) => self.undo_row(&tree, (key, names_page), before, state, index),
                // Cleared with the tree; but clearing frees no page that a row names.
                None => match self.created_by(state, tree)? {
                    Some(tree) if names_page => self.undo_row(&tree, (key, true), before, state, index),
                    Some(_) => Ok(()),
                    None => self.unknown_tree(state, tree),
                },
            },
            Undo::TreeCreated { tree, root } => {
                if root.0 == 0 {
                    return Ok(()); // its creation was never logged
                }
                let found = self.tree(tree).unwrap_or_else(|| Tree::open(self.pool.clone(), tree, root));
                found.clear(LogClass::Rollback)?;
                // Out of the undo tree first: if a crash comes between, one free-standing page is
                // lost, while the other order could free a page that belongs to another tree by
                // then. So an entry that stays there keeps the tree from being freed. In memory it
                // stays until the root is freed, for which there may be no space yet.
                let spilled = state.versions.lock().spilled;
                if spilled && self.remove_undo(&undo_key(state.id, index), LogClass::Rollback)? {
                    state.versions.lock().take_out(index, entry);
                }
                let mut attachment = Vec::new();
                compensation(&mut attachment, state.id, index);
                found.drop_root(LogClass::Rollback, &attachment)?;
                self.forget_tree(tree);
                Ok(())
            }
        }
    }

    /// The tree of this number, if the transaction itself has created it. One that loads tables
    /// creates its trees before all else, and registers none.
    fn created_by(&self, state: &TxnState, wanted: TreeId) -> Result<Option<Tree>, TxnError> {
        let mut entry = Vec::new();
        for index in 0.. {
            if !self.read_undo(state, index, &mut entry)? {
                break;
            }
            match Undo::decode(&entry)? {
                Undo::TreeCreated { tree, root } if tree == wanted && root.0 != 0 => {
                    return Ok(Some(Tree::open(self.pool.clone(), tree, root)));
                }
                Undo::TreeCreated { .. } => {}
                Undo::Row { .. } => break,
            }
        }
        Ok(None)
    }

    /// A row of a tree that is not registered, nor among the first things that its transaction has
    /// created: after a crash the tree was created by it later and will be dropped whole, or it was
    /// dropped; at any other time it is damage.
    fn unknown_tree(&self, state: &TxnState, tree: TreeId) -> Result<(), TxnError> {
        if let Some(cause) = self.unknown_trees.get() {
            // It may be one of those: then its rows are there.
            return Err(cause.clone().within(&format!(
                "transaction {} wrote to {tree:?}, of which nothing is known, since a part of the catalog cannot be read",
                state.id
            )));
        }
        if state.found_by_recovery {
            return Ok(());
        }
        Err(TxnError::new(
            TxnErrorKind::Damaged,
            format!("transaction {} wrote to {tree:?}, which is not known", state.id),
        ))
    }

    fn undo_row(
        &self,
        tree: &Tree,
        (key, names_page): (&[u8], bool),
        before: Before<'_>,
        state: &TxnState,
        index: u32,
    ) -> Result<(), TxnError> {
        // Returns the page that the row named, to be freed in the group of the row's change: so no
        // crash frees it without undoing the row, which would free it twice.
        let decide = |current: Option<&[u8]>,
                      change: &mut Change,
                      attachment: &mut Vec<u8>|
         -> Result<((), Option<PageId>), TxnError> {
            let Some((header, payload)) = current.map(RowHeader::split).transpose()? else {
                return Ok(((), None));
            };
            if header.writer != state.id || header.undo != index {
                return Ok(((), None)); // undone before
            }
            let named = match (names_page, <[u8; PAGE_NAME_LEN]>::try_from(payload)) {
                (false, _) => None,
                (true, Ok(name)) => Some(PageId(u64::from_le_bytes(name))),
                (true, Err(_)) => return Err(Malformed { what: "a row that names no page" }.into()),
            };
            compensation(attachment, state.id, index);
            *change = match before {
                Before::Absent => Change::Remove,
                Before::Full(header, old) => Change::put_parts(&[&header.encode(), old]),
                Before::Patch(header, patches) => {
                    let mut back = Patches::new();
                    back.push(0, &header.encode());
                    for (at, old) in patches.ranges(payload.len())? {
                        back.push(RowHeader::LEN + at, old);
                    }
                    Change::Patch(back)
                }
            };
            Ok(((), named))
        };
        let outcome = match names_page {
            true => tree.modify_freeing(key, LogClass::Rollback, decide),
            false => {
                tree.modify(key, LogClass::Rollback, |c, ch, a| decide(c, ch, a).map(|_| ())).map(|_| ())
            }
        };
        match outcome {
            // It was dropped, and all transactions that might see its rows have ended.
            Err(error) if error.kind == TxnErrorKind::Dropped => return Ok(()),
            outcome => outcome?,
        };
        // A sweep may have passed while it was none.
        if before.is_ghost() {
            self.backlog.put_back(tree.id(), key);
        }
        Ok(())
    }

    /// Forgets an entry of `len` bytes that has been used, wherever it is.
    fn forget_undo(&self, state: &TxnState, index: u32, len: usize) -> Result<(), TxnError> {
        let spilled = {
            let mut versions = state.versions.lock();
            versions.forget(index);
            versions.spilled
        };
        if !spilled {
            return Ok(());
        }
        let removed = self.remove_undo(&undo_key(state.id, index), LogClass::Rollback);
        if let Ok(true) = removed {
            state.versions.lock().unspilled(len);
        }
        leaving_orphans(removed.map(|_| ()))
    }

    /// Removes an entry from the undo tree; whether it was there.
    pub(crate) fn remove_undo(&self, key: &[u8], class: LogClass) -> Result<bool, TxnError> {
        let decide =
            |current: Option<&[u8]>, change: &mut Change, _: &mut Vec<u8>| -> Result<bool, TxnError> {
                if current.is_some() {
                    *change = Change::Remove;
                }
                Ok(current.is_some())
            };
        self.undo.modify(key, class, decide).map(|(removed, _)| removed)
    }
}
