//! Writing rows.

use crate::attachment::begin_change;
use crate::error::{TxnError, TxnErrorKind};
use crate::header::RowHeader;
use crate::key_range::KeyRange;
use crate::limits::{max_key_len, max_row_len};
use crate::locks::{Blockers, HeldLocks, Mode, Refused, Turn, Wanted};
use crate::manager::TxnManager;
use crate::options::Isolation;
use crate::request::Request;
use crate::row_change::{PAGE_NAME_LEN, RowChange, RowValue, describe};
use crate::snapshot::Snapshot;
use crate::state::TxnState;
use crate::transaction::{Call, Savepoint, Transaction, too_many_locks};
use crate::undo::Undo;
use firndb_base::sync::atomic::Ordering;
use firndb_base::{PageId, TreeId, TxnId};
use firndb_btree::{Change, Tree};
use firndb_log::LogClass;

mod former;
pub use former::Edit;
use former::Former;

/// What a write wants.
#[derive(Clone, Copy)]
enum Intent<'a> {
    /// Insert or replace.
    Put(RowValue<'a>),
    /// Insert, unless there is a row.
    Insert(RowValue<'a>),
    /// Replace, if there is a row.
    Update(RowValue<'a>),
    /// Insert or replace: a row that names a page, taken into use for it without content.
    NamePage,
    /// Delete, if there is a row.
    Delete,
    /// Replace by what the caller makes of it ([`Former::Edited`]), if there is a row.
    Edit,
}

impl<'a> Intent<'a> {
    /// Whether there is anything to do.
    fn applies(self, existed: bool) -> bool {
        match self {
            Intent::Put(_) | Intent::NamePage => true,
            Intent::Insert(_) => !existed,
            Intent::Update(_) | Intent::Delete | Intent::Edit => existed,
        }
    }
    /// The row afterwards; `name` is that of the page taken into use for it, if there is one.
    fn value(self, name: &'a [u8], former: &'a Former<'_>) -> Option<RowValue<'a>> {
        match self {
            Intent::Put(value) | Intent::Insert(value) | Intent::Update(value) => Some(value),
            Intent::NamePage => Some(name.into()),
            Intent::Delete => None,
            Intent::Edit => {
                let Former::Edited(new, _) = former else { panic!("it comes with what edits the row") };
                Some(new.as_slice().into())
            }
        }
    }
}

/// What came of one try under the leaf's latch.
enum Outcome {
    /// Done; the flag of the row before, if there was one.
    Done { before: Option<bool> },
    /// Nothing to do, because there is, or is not, a row.
    Nothing { before: Option<bool> },
    /// The row, or a lock on it, belongs to transactions that have not ended, or one is ahead.
    Blocked(Blockers),
    /// The current version is not in this transaction's snapshot.
    Unseen(TxnId),
}

impl TxnManager {
    /// Whether an entry is a ghost that no snapshot before `low_water` needs and no lock names.
    #[inline]
    fn is_old_ghost(&self, tree: TreeId, key: &[u8], value: &[u8], low_water: TxnId) -> bool {
        let is_old = |header: RowHeader| header.ghost && header.writer < low_water;
        RowHeader::split(value).is_ok_and(|(header, _)| is_old(header) && !self.locks.is_locked(tree, key))
    }

    /// What keeps `me` from writing the row at `key`, if anything does. `unseen` is the writer of
    /// the current version, if `me` does not see it.
    fn obstacle(
        &self,
        me: TxnId,
        tree: TreeId,
        key: &[u8],
        unseen: Option<TxnId>,
        (serializable, turn): (bool, Turn),
    ) -> Option<Outcome> {
        if let Some(blockers) = self.locks.write_blockers(me, tree, key, turn) {
            return Some(Outcome::Blocked(blockers));
        }
        let writer = unseen?;
        if !self.has_ended(writer) {
            return Some(Outcome::Blocked(Blockers::Holders(vec![writer])));
        }
        (!serializable).then_some(Outcome::Unseen(writer))
    }

    /// Ends a write. If its undo entry was `pushed`, its change has been made; `ghost` is the row
    /// of which it made a ghost, or whose ghost comes back if it is undone.
    fn settle_entry(&self, state: &TxnState, pushed: bool, ghost: Option<(TreeId, &[u8])>) {
        match ghost {
            Some((tree, key)) if pushed => state.versions.settle_with_ghost(tree, key, &self.version_bytes),
            _ if pushed => state.versions.settle(),
            _ => {}
        }
    }

    /// Takes back the newest undo entry, whose change was not made, if it was `pushed`.
    fn withdraw_entry(&self, state: &TxnState, pushed: bool) {
        let mut versions = state.versions.lock();
        if pushed {
            versions.pop();
            versions.promise(self.log.undo_promise());
        }
    }
}

/// A write being decided, under the leaf's latch.
struct Attempt<'a> {
    manager: &'a TxnManager,
    state: &'a TxnState,
    snapshot: Option<&'a Snapshot>,
    held: &'a mut HeldLocks,
    serializable: bool,
    turn: Turn,
    tree: TreeId,
    key: &'a [u8],
    intent: Intent<'a>,
    former: Former<'a>,
    /// The undo entry has been made.
    pushed: bool,
    /// There is a ghost.
    over_ghost: bool,
}

impl Attempt<'_> {
    /// Decides what becomes of the row; `page` is the one taken into use for it, if any.
    fn decide(
        &mut self,
        page: Option<PageId>,
        current: Option<&[u8]>,
        change: &mut Change,
        attachment: &mut Vec<u8>,
    ) -> Result<Outcome, TxnError> {
        let Attempt { manager, state, tree, key, intent, .. } = *self;
        // Called again after a split: the entry of the last try is removed first.
        if std::mem::take(&mut self.pushed) {
            manager.withdraw_entry(state, true);
        }
        let row = current.map(RowHeader::split).transpose()?;
        let sees = |writer| writer == state.id || self.snapshot.is_some_and(|snapshot| snapshot.sees(writer));
        let unseen = row.map(|(header, _)| header.writer).filter(|writer| !sees(*writer));
        // A transaction that has locked a row since this one wrote it waits for this one, and has
        // read nothing.
        let is_own = row.is_some_and(|(header, _)| header.writer == state.id);
        let terms = (self.serializable, self.turn);
        if !is_own && let Some(obstacle) = manager.obstacle(state.id, tree, key, unseen, terms) {
            return Ok(obstacle);
        }
        let before = row.and_then(|(header, _)| (!header.ghost).then_some(header.flag));
        let existed = before.is_some();
        self.over_ghost = row.is_some() && !existed;
        let wanted = match (row, before) {
            (Some((_, payload)), Some(flag)) => self.former.take(RowValue { payload, flag }),
            _ => true,
        };
        if !wanted || !intent.applies(existed) {
            let turn = if is_own { Turn::Own } else { self.turn };
            return self.find_nothing_to_do(before, turn);
        }
        let name = page.map_or([0; PAGE_NAME_LEN], |page| page.0.to_le_bytes());
        let value = intent.value(&name, &self.former);
        if let (Intent::Edit, Some(value)) = (intent, value) {
            check_size(manager.pool.page_size(), key, value.payload)?;
        }
        let mut versions = state.versions.lock();
        let index = versions.next_index();
        check_undo_index(index)?;
        let start = begin_change(attachment, state.id, index);
        let (writer, names_page) = (state.id, page.is_some());
        describe(RowChange { tree, key, row, value, writer, index, names_page }, change, attachment);
        // Before the record is appended: a checkpoint that starts now sees what it must keep.
        versions.push(&attachment[start..], manager.log.end());
        // Likewise: the log takes the record only if there is space to undo it.
        versions.promise(manager.log.undo_promise());
        versions.account(&manager.version_bytes);
        self.pushed = true;
        Ok(Outcome::Done { before })
    }

    /// A write that finds nothing to do has only read: under serializable isolation it must stay
    /// true that there is, or is not, a row.
    fn find_nothing_to_do(&mut self, before: Option<bool>, turn: Turn) -> Result<Outcome, TxnError> {
        if self.serializable {
            let wanted = Wanted { tree: self.tree, key: self.key, mode: Mode::Shared };
            match self.manager.locks.lock_key(self.state.id, wanted, turn, self.held) {
                Ok(()) => {}
                Err(Refused::Blocked(blockers)) => return Ok(Outcome::Blocked(blockers)),
                Err(Refused::TooMany) => return Err(too_many_locks()),
            }
        }
        Ok(Outcome::Nothing { before })
    }
}

impl Transaction {
    /// Inserts or replaces a row.
    ///
    /// Errors of all writes: `Conflict`, `Deadlock` (roll back and try again), `Timeout`,
    /// `Cancelled`, `ReadOnly`, `TooLarge`, `Full`, `LogFull`, and those after which the database
    /// must be reopened. A write that fails has changed nothing.
    pub fn put(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<(), TxnError> {
        self.write(tree, key, Intent::Put(value.into()), Former::Unwanted).map(|_| ())
    }
    /// Inserts a row; false, and nothing is changed, if there is one.
    pub fn insert(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<bool, TxnError> {
        self.insert_flagged(tree, key, value.into())
    }
    /// As [`Transaction::insert`], with a flag.
    pub fn insert_flagged(&mut self, tree: &Tree, key: &[u8], value: RowValue<'_>) -> Result<bool, TxnError> {
        self.write(tree, key, Intent::Insert(value), Former::Unwanted).map(|before| before.is_none())
    }
    /// Replaces a row; false if there is none.
    pub fn update(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<bool, TxnError> {
        self.write(tree, key, Intent::Update(value.into()), Former::Unwanted).map(|before| before.is_some())
    }
    /// As [`Transaction::update`], with flags: that of the row before, whose payload is in `old`,
    /// or `None` if there is no row.
    pub fn update_flagged(
        &mut self,
        tree: &Tree,
        key: &[u8],
        value: RowValue<'_>,
        old: &mut Vec<u8>,
    ) -> Result<Option<bool>, TxnError> {
        self.write(tree, key, Intent::Update(value), Former::Copied(old))
    }
    /// As [`Transaction::put`], with flags: that of the row before, whose payload is in `old`, or
    /// `None` if there was none.
    pub fn replace_flagged(
        &mut self,
        tree: &Tree,
        key: &[u8],
        value: RowValue<'_>,
        old: &mut Vec<u8>,
    ) -> Result<Option<bool>, TxnError> {
        self.write(tree, key, Intent::Put(value), Former::Copied(old))
    }
    /// Replaces a row by what `edit` makes of it, in `row`: as a read for update and an update,
    /// with one visit of the leaf. Returns the flag of the row before, or `None` if there is none.
    /// The row is left as it is, and not locked, if `edit` returns false. `edit` must not block or
    /// use the database.
    pub fn edit(
        &mut self,
        tree: &Tree,
        key: &[u8],
        row: &mut Vec<u8>,
        edit: &mut Edit<'_>,
    ) -> Result<Option<bool>, TxnError> {
        self.write(tree, key, Intent::Edit, Former::Edited(row, edit))
    }
    /// Deletes a row; true, with its payload in `old`, if there was one.
    pub fn remove(&mut self, tree: &Tree, key: &[u8], old: &mut Vec<u8>) -> Result<bool, TxnError> {
        self.remove_flagged(tree, key, old).map(|before| before.is_some())
    }
    /// As [`Transaction::remove`]: the flag of the row before, or `None` if there was none.
    pub fn remove_flagged(
        &mut self,
        tree: &Tree,
        key: &[u8],
        old: &mut Vec<u8>,
    ) -> Result<Option<bool>, TxnError> {
        self.write(tree, key, Intent::Delete, Former::Copied(old))
    }

    /// Makes a row name a page that is taken into use for it, without content, and leaves that page
    /// and a version for its content in `taken`.
    pub(crate) fn write_naming(
        &mut self,
        tree: &Tree,
        key: &[u8],
        old: &mut Vec<u8>,
    ) -> Result<Option<bool>, TxnError> {
        self.write(tree, key, Intent::NamePage, Former::Copied(old))
    }

    /// Identifies the next write of this transaction: its id, and the index of the undo entry that
    /// the write will make. No other write of the database ever has the same pair once this write
    /// is made; until then it may be returned again.
    pub fn next_write(&mut self) -> Result<(TxnId, u32), TxnError> {
        self.begin_write()?;
        let id = self.ensure_state()?;
        let index = self.next_index();
        check_undo_index(index)?;
        Ok((id, index))
    }

    /// Performs a write, waiting for locks as need be. Returns the flag of the row before, if there
    /// was one.
    fn write(
        &mut self,
        tree: &Tree,
        key: &[u8],
        intent: Intent<'_>,
        former: Former<'_>,
    ) -> Result<Option<bool>, TxnError> {
        self.begin_write()?;
        if let Intent::Put(value) | Intent::Insert(value) | Intent::Update(value) = intent {
            check_row_size(tree, key, value.payload)?;
        }
        if let Intent::NamePage = intent {
            check_row_size(tree, key, &[0; PAGE_NAME_LEN])?;
        }
        self.writes += 1;
        self.ensure_state_to_write()?;
        self.spill_if_over_budget()?;
        Call(self).0.write_when_free(tree, key, intent, former)
    }

    fn write_when_free(
        &mut self,
        tree: &Tree,
        key: &[u8],
        intent: Intent<'_>,
        mut former: Former<'_>,
    ) -> Result<Option<bool>, TxnError> {
        let mut request = Request::default();
        loop {
            if self.options.isolation != Isolation::Serializable {
                self.ensure_snapshot();
            }
            match self.try_write(tree, key, intent, former.reborrow(), request.turn())? {
                Outcome::Done { before } | Outcome::Nothing { before } => {
                    self.exposed = true;
                    return Ok(before);
                }
                Outcome::Blocked(blockers) => {
                    let wanted = Wanted { tree: tree.id(), key, mode: Mode::Exclusive };
                    self.wait_for(Some(wanted), &blockers, &mut request)?;
                    if self.options.isolation == Isolation::ReadCommitted {
                        self.drop_snapshot();
                    }
                }
                Outcome::Unseen(writer) => self.conflict(writer)?,
            }
        }
    }

    fn try_write<'a>(
        &'a mut self,
        tree: &'a Tree,
        key: &'a [u8],
        intent: Intent<'a>,
        former: Former<'a>,
        turn: Turn,
    ) -> Result<Outcome, TxnError> {
        let Transaction { manager, state, snapshot, options, taken, held, .. } = self;
        let manager = &**manager;
        let state = &**state.as_ref().expect("ensured by the caller");
        let low_water = manager.low_water();
        let (pushed, over_ghost, id) = (false, false, tree.id());
        let mut attempt = Attempt {
            manager,
            state,
            snapshot: snapshot.as_ref(),
            held,
            serializable: options.isolation == Isolation::Serializable,
            turn,
            tree: id,
            key,
            intent,
            former,
            pushed,
            over_ghost,
        };
        let garbage = |other: &[u8], value: &[u8]| manager.is_old_ghost(id, other, value, low_water);
        let outcome = match intent {
            Intent::NamePage => {
                let decide = |page, current: Option<&[u8]>, change: &mut Change, attachment: &mut Vec<u8>| {
                    attempt.decide(Some(page), current, change, attachment)
                };
                tree.modify_naming(key, LogClass::Normal, decide, garbage).map(|(outcome, new)| {
                    *taken = new;
                    outcome
                })
            }
            _ => {
                let decide = |current: Option<&[u8]>, change: &mut Change, attachment: &mut Vec<u8>| {
                    attempt.decide(None, current, change, attachment)
                };
                let class =
                    if matches!(intent, Intent::Delete) { LogClass::Removal } else { LogClass::Normal };
                tree.modify_with(key, class, decide, garbage).map(|(outcome, _)| outcome)
            }
        };
        let Attempt { pushed, over_ghost, .. } = attempt;
        match outcome {
            Ok(outcome) => {
                let leaves_ghost = over_ghost || matches!(intent, Intent::Delete);
                manager.settle_entry(state, pushed, leaves_ghost.then_some((id, key)));
                Ok(outcome)
            }
            Err(error) => {
                manager.withdraw_entry(state, pushed);
                Err(error)
            }
        }
    }

    /// Undoes everything done since the savepoint was made. Explicit locks stay; rows that are as
    /// they were are free for others, but under serializable isolation, where what was learnt of
    /// them stays true.
    ///
    /// Errors: `BadArgument`, and nothing is undone, if another transaction made the savepoint;
    /// `LogFull` if the log has no space for it: the next statement, or the commit, continues it
    /// first, or fails likewise.
    pub fn rollback_to(&mut self, savepoint: &Savepoint) -> Result<(), TxnError> {
        if savepoint.token != self.token() {
            let message = "the savepoint belongs to another transaction";
            return Err(TxnError::new(TxnErrorKind::BadArgument, message));
        }
        self.begin_write()?;
        if self.options.isolation == Isolation::Serializable {
            self.keep_locked_down_to(savepoint.index)?;
        }
        self.undo_down_to(savepoint.index)
    }

    /// Locks for reading the rows whose changes from `index` on are about to be undone: the caller
    /// has seen whether they were there. Never waits: this transaction holds the rows.
    fn keep_locked_down_to(&mut self, index: u32) -> Result<(), TxnError> {
        let Transaction { manager, state, held, scratch, .. } = self;
        let Some(state) = state else { return Ok(()) };
        let end = state.versions.next_index();
        for index in index..end {
            if manager.read_undo(state, index, scratch)?
                && let Undo::Row { tree, key, .. } = Undo::decode(scratch)?
            {
                manager.locks.lock_range(state.id, tree, KeyRange::of_key(key), held);
            }
        }
        Ok(())
    }

    /// A transaction with more before-images than the budget allows moves its own into the undo
    /// tree. Before a write, since one that fails has changed nothing.
    fn spill_if_over_budget(&mut self) -> Result<(), TxnError> {
        let budget = self.manager.options.version_budget_bytes;
        if self.manager.version_bytes.load(Ordering::Relaxed) <= budget {
            return Ok(());
        }
        self.manager.spill_for_budget(self.state.as_ref().expect("it is about to write"))
    }
}

/// Refuses rows too long for a leaf.
pub fn check_row_size(tree: &Tree, key: &[u8], value: &[u8]) -> Result<(), TxnError> {
    check_size(tree.pool().page_size(), key, value)
}

fn check_size(page_size: usize, key: &[u8], value: &[u8]) -> Result<(), TxnError> {
    let (max_key, max_row) = (max_key_len(page_size), max_row_len(page_size));
    if key.len() > max_key {
        let message =
            format!("the key has {} bytes; {max_key} is the limit with pages of {page_size}", key.len());
        return Err(TxnError::new(TxnErrorKind::TooLarge, message));
    }
    if key.len() + value.len() > max_row {
        let message = format!(
            "key and value have {} bytes together; {max_row} is the limit with pages of {page_size}",
            key.len() + value.len()
        );
        return Err(TxnError::new(TxnErrorKind::TooLarge, message));
    }
    Ok(())
}

/// Refuses a change whose undo entry would have no number: they are never given out twice, going
/// back to savepoints included.
pub(crate) fn check_undo_index(index: u32) -> Result<(), TxnError> {
    if index < RowHeader::UNDO_MAX {
        return Ok(());
    }
    let message = format!(
        "the transaction has made {} changes, what it took back included, which is the limit: commit or roll back",
        RowHeader::UNDO_MAX
    );
    Err(TxnError::new(TxnErrorKind::TooLarge, message))
}

#[cfg(test)]
mod tests;
