//! Reading many rows with one call.
//!
//! Keys are visited in their order, so that a leaf is latched once for all of its keys, and in
//! pieces. Of each piece, the rows whose leaves are in memory come first; then all other leaves are
//! read together, while readers bring in those of the next piece. So a list of any length waits for
//! few reads, and holds no more of the pool than a piece. In memory a row costs one descent, as in
//! [`Transaction::get`].
//!
//! Reads that lock go strictly in the order of the keys: what comes behind a leaf that is not in
//! memory is only named, and read with it. Invariant: when a key is locked, all keys before it have
//! been, and the writers of their rows have ended. A transaction that locks or writes rows in that
//! order too thus waits for this one, or this one for it, and never both.

use crate::error::{TxnError, TxnErrorKind};
use crate::locks::{EXCLUSIVE_MAX, HeldLocks, Mode, Turn, Wanted};
use crate::manager::TxnManager;
use crate::options::Isolation;
use crate::read::{Current, current_version};
use crate::snapshot::Snapshot;
use crate::transaction::{Call, Transaction, too_many_locks};
use firndb_base::{TreeId, TxnId};
use firndb_btree::{Missing, Tree, TreeError};
use firndb_buffer::PageUse;

/// Keys in their order.
struct Sorted<'k, K> {
    keys: &'k [K],
    /// Numbers of keys, in the order of the keys.
    order: Vec<u32>,
    /// Keys of a piece at most.
    piece: usize,
    page_use: PageUse,
}

impl<'k, K: AsRef<[u8]>> Sorted<'k, K> {
    fn new(tree: &Tree, keys: &'k [K]) -> Result<Sorted<'k, K>, TxnError> {
        let count = u32::try_from(keys.len()).map_err(|_| {
            TxnError::new(TxnErrorKind::TooMany, "more keys than 2^32 - 1: read them with several calls")
        })?;
        let mut order: Vec<u32> = (0..count).collect();
        if !keys.is_sorted_by(|a, b| a.as_ref() <= b.as_ref()) {
            order.sort_unstable_by(|a, b| keys[*a as usize].as_ref().cmp(keys[*b as usize].as_ref()));
        }
        // As many pages as two scans may have ahead of them: an eighth of a small pool.
        let piece = 2 * tree.pool().read_ahead_pages();
        // The pages of a long list are not all part of the working set.
        let page_use = if keys.len() <= piece { PageUse::Working } else { PageUse::Once };
        Ok(Sorted { keys, order, piece, page_use })
    }

    /// Whether there are more than `most` different keys.
    fn has_more_than(&self, most: usize) -> bool {
        let differ = |pair: &[u32]| self.key(pair[0]) != self.key(pair[1]);
        self.keys.len() > most && self.order.windows(2).filter(|pair| differ(pair)).count() >= most
    }

    fn key(&self, number: u32) -> &'k [u8] {
        self.keys[number as usize].as_ref()
    }

    /// Shows each key's number and value to `visit`, under the leaf's latch. `between` runs between
    /// two pieces, without one.
    fn visit<E: From<TreeError>>(
        &self,
        tree: &Tree,
        between: impl Fn() -> Result<(), E>,
        mut visit: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), E> {
        let (mut keys, mut rest) = (Vec::with_capacity(self.piece.min(self.order.len())), Vec::new());
        let (mut absent, mut missing) = (Vec::new(), Missing::default());
        let mut pieces = self.order.chunks(self.piece).peekable();
        while let Some(piece) = pieces.next() {
            keys.clear();
            keys.extend(piece.iter().map(|number| self.key(*number)));
            absent.clear();
            missing.clear();
            tree.visit_in_memory(&keys, self.page_use, &mut absent, &mut missing, |at, value| {
                visit(piece[at] as usize, value);
            })?;
            if !absent.is_empty() {
                rest.clear();
                rest.extend(absent.iter().map(|at| keys[*at]));
                if let Some(next) = pieces.peek() {
                    self.read_ahead(tree, next, &mut keys);
                }
                tree.bring_in_missing(&rest, self.page_use, &mut missing)?;
                tree.visit_many_for(&rest, self.page_use, |at, value| {
                    visit(piece[absent[at]] as usize, value);
                })?;
            }
            if pieces.peek().is_some() {
                between()?;
            }
        }
        Ok(())
    }

    /// Has the readers bring in the leaves of a piece to come. An error is left to the read that
    /// meets it.
    fn read_ahead(&self, tree: &Tree, piece: &[u32], keys: &mut Vec<&'k [u8]>) {
        keys.clear();
        keys.extend(piece.iter().map(|number| self.key(*number)));
        let mut pages = Vec::new();
        if tree.leaves(keys, &mut pages).is_ok() {
            tree.pool().read_ahead(&pages, self.page_use);
        }
    }
}

impl Transaction {
    /// Reads the rows at `keys`, which may come in any order and repeat, as one statement: `each`
    /// is called once for each key, in any order, with its number, and the row's payload and flag
    /// if there is a row. It runs under a leaf's latch: it must not block or use the database.
    ///
    /// Under serializable isolation the keys are locked and read in their order. The token that
    /// cancels the transaction's waits also ends a long list. Errors as those of
    /// [`Transaction::get`]; some keys have been shown then.
    pub fn get_many<K: AsRef<[u8]>>(
        &mut self,
        tree: &Tree,
        keys: &[K],
        mut each: impl FnMut(usize, Option<(&[u8], bool)>),
    ) -> Result<(), TxnError> {
        self.begin_statement()?;
        let sorted = Sorted::new(tree, keys)?;
        if self.options.isolation == Isolation::Serializable {
            return Call(self).0.show_locked(tree, &sorted, Mode::Shared, &mut each);
        }
        let Call(txn) = &mut Call(self);
        txn.ensure_snapshot();
        let me = txn.id();
        let mut scratch = std::mem::take(&mut txn.scratch);
        txn.exposed = true;
        let view = txn.manager.view(me, txn.snapshot.as_ref().expect("taken just now"));
        let (mut payload, mut outcome) = (Vec::new(), Ok(()));
        let visited = sorted.visit(
            tree,
            || txn.check_cancelled(),
            |number, value| {
                if outcome.is_err() {
                    return;
                }
                match value.map(|value| view.find(value, &mut payload, &mut scratch)).transpose() {
                    Ok(found) => each(number, found.flatten()),
                    Err(error) => outcome = Err(error),
                }
            },
        );
        txn.scratch = scratch;
        visited.and(outcome)
    }

    /// As [`Transaction::get_many`], of rows that are about to be written, which are locked and
    /// read in the order of their keys, as by [`Transaction::get_for_update`]. Errors as there.
    pub fn get_many_for_update<K: AsRef<[u8]>>(
        &mut self,
        tree: &Tree,
        keys: &[K],
        mut each: impl FnMut(usize, Option<(&[u8], bool)>),
    ) -> Result<(), TxnError> {
        self.begin_write()?;
        let sorted = Sorted::new(tree, keys)?;
        // Sooner than when most of them are locked.
        if sorted.has_more_than(EXCLUSIVE_MAX) {
            return Err(too_many_locks());
        }
        Call(self).0.show_locked(tree, &sorted, Mode::Exclusive, &mut each)
    }

    /// Reads what is not in memory of the leaves of `keys`, which ascend, together; whether there
    /// was anything. A hint: the leaves of a long list may be gone again.
    pub fn bring_in(&self, tree: &Tree, keys: &[&[u8]]) -> Result<bool, TxnError> {
        for piece in keys.chunks(piece_of(tree)) {
            if bring_in_piece(tree, piece)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Locks the keys and shows their rows to `each`, in the order of the keys.
    fn show_locked<K: AsRef<[u8]>>(
        &mut self,
        tree: &Tree,
        sorted: &Sorted<'_, K>,
        mode: Mode,
        each: &mut impl FnMut(usize, Option<(&[u8], bool)>),
    ) -> Result<(), TxnError> {
        // A serializable commit waits until what was seen is durable, after an error too. At the
        // other levels the snapshot may be exchanged until all is shown: a row that is locked stays
        // as it is.
        self.exposed |= self.options.isolation == Isolation::Serializable;
        let exposed = self.exposed;
        let (mut keys, mut row) = (Vec::with_capacity(sorted.piece.min(sorted.order.len())), Vec::new());
        let mut pieces = sorted.order.chunks(sorted.piece).peekable();
        while let Some(piece) = pieces.next() {
            keys.clear();
            keys.extend(piece.iter().map(|number| sorted.key(*number)));
            let mut done = 0;
            loop {
                done = self.show_free(tree, sorted, (piece, &keys, done), mode, pieces.peek(), each)?;
                let Some(key) = keys.get(done) else { break };
                let flag = self.lock_and_read(tree, key, mode, &mut row)?;
                self.exposed = exposed;
                each(piece[done] as usize, flag.map(|flag| (row.as_slice(), flag)));
                done += 1;
            }
            if pieces.peek().is_some() {
                self.check_cancelled()?;
            }
        }
        self.exposed = true;
        Ok(())
    }

    /// Locks keys of a piece, given with their numbers, and shows their rows, from `done` on, up to
    /// one that must be waited for or cannot be shown: returns its place. Waits for devices only.
    fn show_free<'k, K: AsRef<[u8]>>(
        &mut self,
        tree: &Tree,
        sorted: &Sorted<'k, K>,
        (numbers, keys, done): (&[u32], &[&'k [u8]], usize),
        mode: Mode,
        next_piece: Option<&&[u32]>,
        each: &mut impl FnMut(usize, Option<(&[u8], bool)>),
    ) -> Result<usize, TxnError> {
        let me = self.ensure_state()?;
        let serializable = self.options.isolation == Isolation::Serializable;
        if !serializable {
            self.ensure_snapshot();
        }
        let Transaction { manager, held, snapshot, .. } = self;
        let snapshot = snapshot.as_ref().filter(|_| !serializable);
        let payload = Vec::new();
        let mut locking =
            Locking { manager, held, me, snapshot, tree: tree.id(), mode, done, stopped: false, payload };
        let (mut absent, mut missing) = (Vec::new(), Missing::default());
        tree.visit_in_memory(&keys[done..], sorted.page_use, &mut absent, &mut missing, |at, value| {
            locking.look(done + at, keys[done + at], value, |row| each(numbers[done + at] as usize, row));
        })?;
        if !locking.stopped && locking.done < keys.len() {
            if let Some(next_piece) = next_piece {
                sorted.read_ahead(tree, next_piece, &mut Vec::new());
            }
            let done = locking.done;
            tree.bring_in_missing(&keys[done..], sorted.page_use, &mut missing)?;
            tree.visit_many_for(&keys[done..], sorted.page_use, |at, value| {
                locking.look(done + at, keys[done + at], value, |row| each(numbers[done + at] as usize, row));
            })?;
        }
        Ok(locking.done)
    }
}

/// Locks the keys of a piece one after the other, each under the latch of its leaf.
struct Locking<'t> {
    manager: &'t TxnManager,
    held: &'t mut HeldLocks,
    me: TxnId,
    /// Which writers are seen; `None`: all that have ended.
    snapshot: Option<&'t Snapshot>,
    tree: TreeId,
    mode: Mode,
    /// The place of the first key that has not been shown.
    done: usize,
    /// That one must be waited for, or cannot be shown.
    stopped: bool,
    payload: Vec<u8>,
}

impl Locking<'_> {
    /// Locks the key at this place, if it is the next one, and shows its row, if that is free.
    fn look(
        &mut self,
        at: usize,
        key: &[u8],
        value: Option<&[u8]>,
        show: impl FnOnce(Option<(&[u8], bool)>),
    ) {
        if self.stopped || at != self.done {
            return;
        }
        let Locking { manager, me, snapshot, payload, .. } = self;
        let seen = |writer| writer == *me || snapshot.is_none_or(|snapshot| snapshot.sees(writer));
        let row = match value.map(|value| current_version(manager, Some(*me), value, payload)) {
            None => Some((None, None)),
            Some(Ok(Current::Row(flag, writer))) if writer.is_none_or(seen) => Some((flag, writer)),
            _ => None,
        };
        let locked = row.is_some_and(|(_, writer)| {
            let turn = if writer == Some(*me) { Turn::Own } else { Turn::Fair };
            let wanted = Wanted { tree: self.tree, key, mode: self.mode };
            manager.locks.lock_key(*me, wanted, turn, self.held).is_ok()
        });
        match row {
            Some((flag, _)) if locked => show(flag.map(|flag| (payload.as_slice(), flag))),
            _ => {
                self.stopped = true;
                return;
            }
        }
        self.done += 1;
    }
}

/// Leaves that are read together at most.
pub(crate) fn piece_of(tree: &Tree) -> usize {
    2 * tree.pool().read_ahead_pages()
}

/// As [`Transaction::bring_in`], of keys that have no more leaves than that.
pub(crate) fn bring_in_piece(tree: &Tree, piece: &[&[u8]]) -> Result<bool, TxnError> {
    let (mut absent, mut missing) = (Vec::new(), Missing::default());
    tree.visit_in_memory(piece, PageUse::Working, &mut absent, &mut missing, |_, _| ())?;
    if absent.is_empty() {
        return Ok(false);
    }
    let rest: Vec<&[u8]> = absent.iter().map(|at| piece[*at]).collect();
    tree.bring_in_missing(&rest, PageUse::Working, &mut missing)?;
    Ok(true)
}
