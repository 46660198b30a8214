//! Reading many rows with one call.
//!
//! Keys are visited in their order, so that a leaf is latched once for all of its keys, and in
//! pieces. Of each piece, the rows whose leaves are in memory come first; then all other leaves are
//! read together, while readers bring in those of the next piece. So a list of any length waits for
//! few reads, and holds no more of the pool than a piece. In memory a row costs one descent, as in
//! [`Transaction::get`].

use crate::error::{TxnError, TxnErrorKind};
use crate::locks::Mode;
use crate::manager::TxnManager;
use crate::options::Isolation;
use crate::read::{Current, current_version};
use crate::transaction::Transaction;
use firndb_base::TxnId;
use firndb_btree::{Tree, TreeError};
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
        let (mut absent, mut pages) = (Vec::new(), Vec::new());
        let mut pieces = self.order.chunks(self.piece).peekable();
        while let Some(piece) = pieces.next() {
            keys.clear();
            keys.extend(piece.iter().map(|number| self.key(*number)));
            absent.clear();
            pages.clear();
            tree.visit_in_memory(&keys, self.page_use, &mut absent, &mut pages, |at, value| {
                visit(piece[at] as usize, value);
            })?;
            if !absent.is_empty() {
                rest.clear();
                rest.extend(absent.iter().map(|at| keys[*at]));
                if let Some(next) = pieces.peek() {
                    self.read_ahead(tree, next, &mut keys);
                }
                tree.pool().bring_in(&pages, self.page_use);
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
    /// Under serializable isolation all keys are locked first, in their order. The token that
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
            self.lock_sorted(tree, &sorted, Mode::Shared)?;
            self.exposed = true;
            let me = self.ensure_state()?;
            let left = self.show_current(tree, &sorted, me, |_| true, &mut each)?;
            return self.show_blocked(&sorted, left, each, |txn, key, row| {
                txn.get_current(tree, key, row, &mut None).map(|(flag, _)| flag)
            });
        }
        self.ensure_snapshot();
        let me = self.id();
        let mut scratch = std::mem::take(&mut self.scratch);
        self.exposed = true;
        let view = self.manager.view(me, self.snapshot.as_ref().expect("taken just now"));
        let (mut payload, mut outcome) = (Vec::new(), Ok(()));
        let visited = sorted.visit(
            tree,
            || self.check_cancelled(),
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
        self.scratch = scratch;
        self.end_call();
        visited.and(outcome)
    }

    /// As [`Transaction::get_many`], of rows that are about to be written: all keys are locked
    /// first, in their order, as by [`Transaction::get_for_update`]. Errors as there.
    pub fn get_many_for_update<K: AsRef<[u8]>>(
        &mut self,
        tree: &Tree,
        keys: &[K],
        mut each: impl FnMut(usize, Option<(&[u8], bool)>),
    ) -> Result<(), TxnError> {
        self.begin_write()?;
        let sorted = Sorted::new(tree, keys)?;
        let outcome = self.show_for_update(tree, &sorted, &mut each);
        self.end_call();
        outcome
    }

    fn show_for_update<K: AsRef<[u8]>>(
        &mut self,
        tree: &Tree,
        sorted: &Sorted<'_, K>,
        each: &mut impl FnMut(usize, Option<(&[u8], bool)>),
    ) -> Result<(), TxnError> {
        self.lock_sorted(tree, sorted, Mode::Exclusive)?;
        let me = self.ensure_state()?;
        let serializable = self.options.isolation == Isolation::Serializable;
        if !serializable {
            self.ensure_snapshot();
        }
        // Another snapshot may be exchanged for this one as long as nothing has been shown by it:
        // what is shown here is the newest version, and stays it.
        let snapshot = self.snapshot.clone();
        let sees = |writer| serializable || snapshot.as_ref().is_some_and(|snapshot| snapshot.sees(writer));
        let left = self.show_current(tree, sorted, me, |writer| writer == me || sees(writer), each)?;
        self.show_blocked(sorted, left, each, |txn, key, row| txn.lock_and_read(tree, key, row))?;
        self.exposed = true;
        Ok(())
    }

    fn lock_sorted<K: AsRef<[u8]>>(
        &mut self,
        tree: &Tree,
        sorted: &Sorted<'_, K>,
        mode: Mode,
    ) -> Result<(), TxnError> {
        sorted
            .order
            .iter()
            .try_for_each(|number| self.lock_key(tree.id(), sorted.key(*number), mode, &mut None))
    }

    /// Shows the current rows whose writers have ended and are `seen` to `each`; returns the
    /// numbers of the other keys, in the order of the keys.
    fn show_current<K: AsRef<[u8]>>(
        &self,
        tree: &Tree,
        sorted: &Sorted<'_, K>,
        me: TxnId,
        seen: impl Fn(TxnId) -> bool,
        each: &mut impl FnMut(usize, Option<(&[u8], bool)>),
    ) -> Result<Vec<u32>, TxnError> {
        let manager: &TxnManager = &self.manager;
        let (mut payload, mut left, mut outcome) = (Vec::new(), Vec::new(), Ok(()));
        sorted.visit(
            tree,
            || self.check_cancelled(),
            |number, value| {
                let current = value.map(|value| current_version(manager, Some(me), value, &mut payload));
                match current.transpose() {
                    Ok(None) => each(number, None),
                    Ok(Some(Current::Row(flag, writer))) if writer.is_none_or(&seen) => {
                        each(number, flag.map(|flag| (payload.as_slice(), flag)));
                    }
                    Ok(Some(_)) => left.push(number as u32),
                    Err(error) => outcome = Err(error),
                }
            },
        )?;
        left.sort_unstable_by(|a, b| sorted.key(*a).cmp(sorted.key(*b)));
        outcome.map(|()| left)
    }

    /// Reads the rows with these numbers one after the other, waiting for their writers, and shows
    /// them to `each`.
    fn show_blocked<K: AsRef<[u8]>>(
        &mut self,
        sorted: &Sorted<'_, K>,
        numbers: Vec<u32>,
        mut each: impl FnMut(usize, Option<(&[u8], bool)>),
        mut read: impl FnMut(&mut Transaction, &[u8], &mut Vec<u8>) -> Result<Option<bool>, TxnError>,
    ) -> Result<(), TxnError> {
        let mut row = Vec::new();
        for number in numbers {
            let flag = read(self, sorted.key(number), &mut row)?;
            each(number as usize, flag.map(|flag| (row.as_slice(), flag)));
        }
        Ok(())
    }
}
