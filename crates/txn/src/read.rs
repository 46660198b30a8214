//! Reading a row: by snapshot, or the current one under a lock.

use crate::error::TxnError;
use crate::header::RowHeader;
use crate::locks::{Blockers, Mode, Refused, Turn, Wanted};
use crate::manager::TxnManager;
use crate::options::Isolation;
use crate::request::Request;
use crate::transaction::{Call, Transaction, too_many_locks};
use firndb_base::TxnId;
use firndb_btree::Tree;

/// What came of one try to lock a row and to read it.
enum Tried {
    /// As [`Current::Row`]. With intention only flagged rows are locked.
    Locked(Option<bool>, Option<TxnId>),
    Blocked(Blockers),
}

/// What a read of the current version found.
pub(crate) enum Current {
    /// The row's flag, if there is a row; and the writer of the version (or ghost) that says so.
    Row(Option<bool>, Option<TxnId>),
    /// The row is locked: its writer has not ended.
    Blocked(TxnId),
}

impl Transaction {
    /// Reads a row into `out`; false if there is none.
    ///
    /// Errors: `Conflict` never; under serializable isolation `Deadlock`, `Timeout`, `Cancelled`.
    pub fn get(&mut self, tree: &Tree, key: &[u8], out: &mut Vec<u8>) -> Result<bool, TxnError> {
        self.get_flagged(tree, key, out).map(|flag| flag.is_some())
    }

    /// As [`Transaction::get`]: the row's flag, or `None` if there is no row.
    pub fn get_flagged(
        &mut self,
        tree: &Tree,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<bool>, TxnError> {
        self.begin_statement()?;
        if self.options.isolation == Isolation::Serializable {
            // It sees something: its commit waits until that is durable.
            self.exposed = true;
            return Call(self).0.lock_and_read(tree, key, Mode::Shared, out);
        }
        self.ensure_snapshot();
        let me = self.id();
        let Transaction { manager, snapshot, scratch, exposed, .. } = self;
        let snapshot = snapshot.as_ref().expect("taken just now");
        let view = manager.view(me, snapshot);
        *exposed = true;
        let found = tree.get(key, |value| match value {
            Some(value) => view.resolve(value, out, scratch),
            None => {
                out.clear();
                Ok(None)
            }
        });
        self.end_call();
        found?
    }

    /// Reads a row that is about to be written: others can neither write nor lock it until this
    /// transaction ends, even if there is none now.
    ///
    /// Errors: `Conflict` if another transaction changed it since this one's snapshot, `Deadlock`,
    /// `Timeout`, `Cancelled`, `ReadOnly`.
    pub fn get_for_update(&mut self, tree: &Tree, key: &[u8], out: &mut Vec<u8>) -> Result<bool, TxnError> {
        self.get_for_update_flagged(tree, key, out).map(|flag| flag.is_some())
    }

    /// As [`Transaction::get_for_update`]: the row's flag, or `None` if there is no row.
    pub fn get_for_update_flagged(
        &mut self,
        tree: &Tree,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<bool>, TxnError> {
        self.read_to_write(tree, key, Mode::Exclusive, out)
    }

    /// As [`Transaction::get_for_update_flagged`], of a row that stands for others, which are about
    /// to be written, while it is not: it is locked with *intention exclusive*. Others can lock it
    /// likewise, and can neither write it, nor lock it for update or, under serializable isolation,
    /// for reading. The lock ends when the transaction is prepared. A row without its flag is not
    /// locked: the caller will lock it for update, and two that did so while both hold it
    /// with intention would be a deadlock.
    pub fn get_with_intent_flagged(
        &mut self,
        tree: &Tree,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<bool>, TxnError> {
        self.read_to_write(tree, key, Mode::IntentExclusive, out)
    }

    fn read_to_write(
        &mut self,
        tree: &Tree,
        key: &[u8],
        mode: Mode,
        out: &mut Vec<u8>,
    ) -> Result<Option<bool>, TxnError> {
        self.begin_write()?;
        Call(self).0.lock_and_read(tree, key, mode, out)
    }

    /// Locks a row for update, unless that would have to wait: false.
    pub fn try_lock_for_update(&mut self, tree: &Tree, key: &[u8]) -> Result<bool, TxnError> {
        self.begin_write()?;
        let me = self.ensure_state()?;
        let wanted = Wanted { tree: tree.id(), key, mode: Mode::Exclusive };
        let locked = self.manager.locks.lock_key(me, wanted, Turn::Fair, &mut self.held);
        self.end_call();
        Ok(locked.is_ok())
    }

    /// The newest version of a row, if this transaction wrote it: its flag, or that it is deleted.
    pub fn get_own_flagged(
        &self,
        tree: &Tree,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Option<bool>>, TxnError> {
        let Some(me) = self.id() else { return Ok(None) };
        tree.get(key, |value| {
            let Some(value) = value else { return Ok(None) };
            let (header, payload) = RowHeader::split(value)?;
            out.clear();
            out.extend_from_slice(payload);
            Ok((header.writer == me).then_some((!header.ghost).then_some(header.flag)))
        })?
    }

    /// Locks a row and reads its current version, waiting as long as the limits allow.
    ///
    /// No lock is held while it waits for this one: the row's writer could not lock it, too.
    pub(crate) fn lock_and_read(
        &mut self,
        tree: &Tree,
        key: &[u8],
        mode: Mode,
        out: &mut Vec<u8>,
    ) -> Result<Option<bool>, TxnError> {
        let me = self.ensure_state()?;
        let mut request = Request::default();
        let wanted = Wanted { tree: tree.id(), key, mode };
        loop {
            let (found, writer) = match self.try_lock_and_read(me, tree, wanted, request.turn(), out)? {
                Tried::Locked(found, writer) => (found, writer),
                Tried::Blocked(blockers) => {
                    self.wait_for(Some(wanted), &blockers, &mut request)?;
                    continue;
                }
            };
            self.leave_queue();
            if self.options.isolation == Isolation::Serializable {
                self.exposed = true;
                return Ok(found);
            }
            // The row is locked by this transaction, and no other is writing it: its writer must be
            // one that the snapshot sees.
            self.ensure_snapshot();
            match writer {
                Some(writer) if writer != me && !self.sees(writer) => self.conflict(writer)?,
                _ => {
                    self.exposed = true;
                    return Ok(found);
                }
            }
        }
    }

    /// Under the latch of the row's leaf: a writer that comes later meets the lock, and one that
    /// came before has left its mark in the row.
    fn try_lock_and_read(
        &mut self,
        me: TxnId,
        tree: &Tree,
        wanted: Wanted<'_>,
        turn: Turn,
        out: &mut Vec<u8>,
    ) -> Result<Tried, TxnError> {
        let Transaction { manager, held, .. } = self;
        tree.get(wanted.key, |value| {
            let current = value.map(|value| current_version(manager, Some(me), value, out)).transpose()?;
            let (found, writer) = match current {
                Some(Current::Row(found, writer)) => (found, writer),
                Some(Current::Blocked(writer)) => {
                    return Ok(Tried::Blocked(Blockers::Holders(vec![writer])));
                }
                None => {
                    out.clear();
                    (None, None)
                }
            };
            if wanted.mode == Mode::IntentExclusive && found != Some(true) {
                return Ok(Tried::Locked(found, writer));
            }
            let turn = if writer == Some(me) { Turn::Own } else { turn };
            match manager.locks.lock_key(me, wanted, turn, held) {
                Ok(()) => Ok(Tried::Locked(found, writer)),
                Err(Refused::Blocked(blockers)) => Ok(Tried::Blocked(blockers)),
                Err(Refused::TooMany) => Err(too_many_locks()),
            }
        })?
    }

    /// Whether what `writer` wrote cannot be undone any more, and this transaction may replace it
    /// without a conflict: its own, or of a transaction that has ended and that its snapshot, if
    /// its isolation has one for all of it, sees.
    #[must_use]
    pub fn may_replace(&self, writer: TxnId) -> bool {
        let seen = || self.options.isolation != Isolation::Snapshot || self.sees(writer);
        Some(writer) == self.id() || self.manager.has_ended(writer) && seen()
    }

    /// Whether its snapshot, if it has one now, sees what another transaction wrote.
    #[must_use]
    pub fn sees(&self, writer: TxnId) -> bool {
        self.snapshot.as_ref().is_some_and(|snapshot| snapshot.sees(writer))
    }
}

/// The current version's payload, unless its writer is another transaction that has not ended.
pub(crate) fn current_version(
    manager: &TxnManager,
    me: Option<TxnId>,
    value: &[u8],
    out: &mut Vec<u8>,
) -> Result<Current, TxnError> {
    let (header, payload) = RowHeader::split(value)?;
    if Some(header.writer) != me && !manager.has_ended(header.writer) {
        return Ok(Current::Blocked(header.writer));
    }
    out.clear();
    if !header.ghost {
        out.extend_from_slice(payload);
    }
    Ok(Current::Row((!header.ghost).then_some(header.flag), Some(header.writer)))
}
