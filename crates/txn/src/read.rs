//! Reading rows: by snapshot, or the current ones under locks.

use crate::error::TxnError;
use crate::header::RowHeader;
use crate::locks::{KeyRange, Mode};
use crate::manager::TxnManager;
use crate::options::Isolation;
use crate::transaction::Transaction;
use crate::waits::WaitLimit;
use firndb_base::TxnId;
use firndb_btree::{Direction, Position, Tree, Visit};

/// What a read of the current version found.
enum Current {
    /// The row's flag, if there is a row; and the writer of the version (or ghost) that says so.
    Row(Option<bool>, Option<TxnId>),
    /// The row is locked: its writer has not ended.
    Blocked(TxnId),
}

/// Rows of one batch of a scan. Keeps its memory between batches.
#[derive(Clone, Debug, Default)]
pub struct RowBatch {
    bytes: Vec<u8>,
    /// For each row: end of key and end of value in `bytes`, and the flag.
    ends: Vec<(u32, u32, bool)>,
}

impl RowBatch {
    #[must_use]
    pub fn new() -> RowBatch {
        RowBatch::default()
    }
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }
    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
    /// Key and value of the i-th row.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let (key_end, value_end, _) = *self.ends.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before].1);
        Some((
            &self.bytes[start as usize..key_end as usize],
            &self.bytes[key_end as usize..value_end as usize],
        ))
    }
    /// Keys and values, in the scan's order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        (0..self.len()).filter_map(|index| self.get(index))
    }
    /// The flag of the i-th row (see [`Transaction::get_flagged`]); false past the last.
    #[must_use]
    pub fn flag(&self, index: usize) -> bool {
        self.ends.get(index).is_some_and(|ends| ends.2)
    }
    fn push(&mut self, key: &[u8], value: &[u8], flag: bool) {
        if self.ends.is_empty() {
            // Capacity for a leaf's rows as a rule: growing step by step would copy them
            // repeatedly.
            self.ends.reserve(32);
            self.bytes.reserve(4096);
        }
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len() as u32;
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len() as u32, flag));
    }
}

/// Unneeded ghosts that a scan met in one leaf: if there are many, the next background step sweeps
/// the leaf; the scan itself does not wait for it.
#[derive(Default)]
struct Met {
    count: usize,
    key: Vec<u8>,
}

impl Met {
    /// This many are worth a sweep.
    const MANY: usize = 8;

    /// Counts an entry that is no row to the reader, if it is an unneeded ghost.
    fn look(&mut self, manager: &TxnManager, key: &[u8], value: &[u8]) {
        let Ok((header, _)) = RowHeader::split(value) else { return };
        if header.ghost && header.writer < manager.low_water() {
            self.count += 1;
            if self.count == Met::MANY {
                self.key.extend_from_slice(key);
            }
        }
    }

    /// Notes the leaf. No latch is held.
    fn note(&self, manager: &TxnManager, tree: &Tree) {
        if self.count >= Met::MANY {
            manager.backlog.met(tree.id(), &self.key);
        }
    }
}

/// Whether a scan in `direction` that ends before `to` has gone past its end at `key`.
fn past_end(key: &[u8], to: Option<&[u8]>, direction: Direction) -> bool {
    match (to, direction) {
        (None, _) => false,
        (Some(to), Direction::Forward) => key >= to,
        (Some(to), Direction::Backward) => key < to,
    }
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
            let mut limit = None;
            self.lock_key(tree.id(), key, Mode::Shared, &mut limit)?;
            // It has seen something: its commit waits until that is durable.
            self.exposed = true;
            return self.get_current(tree, key, out, &mut limit).map(|(found, _)| found);
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
        self.begin_write()?;
        let found = self.lock_and_read(tree, key, out);
        self.end_call();
        found
    }

    fn lock_and_read(
        &mut self,
        tree: &Tree,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<bool>, TxnError> {
        let mut limit = None;
        self.lock_key(tree.id(), key, Mode::Exclusive, &mut limit)?;
        loop {
            let (found, writer) = self.get_current(tree, key, out, &mut limit)?;
            if self.options.isolation == Isolation::Serializable {
                self.exposed = true;
                return Ok(found);
            }
            // The row is locked by this transaction, and no other is writing it: its writer must be
            // one that the snapshot sees.
            self.ensure_snapshot();
            match writer {
                Some(writer) if Some(writer) != self.id() && !self.sees(writer) => self.conflict(writer)?,
                _ => {
                    self.exposed = true;
                    return Ok(found);
                }
            }
        }
    }

    fn sees(&self, writer: TxnId) -> bool {
        self.snapshot.as_ref().is_some_and(|snapshot| snapshot.sees(writer))
    }

    /// Reads the current version, waiting for its writer to end.
    fn get_current(
        &mut self,
        tree: &Tree,
        key: &[u8],
        out: &mut Vec<u8>,
        limit: &mut Option<WaitLimit>,
    ) -> Result<(Option<bool>, Option<TxnId>), TxnError> {
        loop {
            let (manager, me) = (&self.manager, self.id());
            let current = tree.get(key, |value| match value {
                Some(value) => current_version(manager, me, value, out),
                None => Ok(Current::Row(None, None)),
            })??;
            match current {
                Current::Row(found, writer) => {
                    if found.is_none() {
                        out.clear();
                    }
                    return Ok((found, writer));
                }
                Current::Blocked(writer) => self.wait_for(&[writer], limit)?,
            }
        }
    }

    /// Reads the rows of one leaf into `batch` (cleared first), from `from` in `direction`, and
    /// returns where the scan continues; `None` at its end. A batch may be empty though the scan
    /// continues.
    ///
    /// `to` ends the scan: going forward it is the first key *not* delivered; going backward the
    /// last key delivered if it exists (so `[low, high)` is scanned forward with `to = high` and
    /// backward with `to = low`).
    pub fn scan(
        &mut self,
        tree: &Tree,
        from: &Position,
        to: Option<&[u8]>,
        direction: Direction,
        batch: &mut RowBatch,
    ) -> Result<Option<Position>, TxnError> {
        self.begin_statement()?;
        batch.clear();
        if self.options.isolation == Isolation::Serializable {
            return self.scan_current(tree, from, to, direction, batch);
        }
        self.ensure_snapshot();
        let me = self.id();
        let Transaction { manager, snapshot, scratch, exposed, .. } = self;
        let view = manager.view(me, snapshot.as_ref().expect("taken just now"));
        *exposed = true;
        let mut outcome = Ok(());
        let mut ended = false;
        let mut payload = Vec::new();
        let mut met = Met::default();
        let next = tree.visit_leaf(from, direction, |key, value| {
            if past_end(key, to, direction) {
                ended = true;
                return Visit::Stop;
            }
            match view.resolve_now(value) {
                Ok(Some((payload, flag))) => {
                    batch.push(key, payload, flag);
                    return Visit::Continue;
                }
                Ok(None) => {}
                Err(error) => {
                    outcome = Err(error);
                    return Visit::Stop;
                }
            }
            match view.resolve(value, &mut payload, scratch) {
                Ok(Some(flag)) => batch.push(key, &payload, flag),
                Ok(None) => met.look(manager, key, value),
                Err(error) => {
                    outcome = Err(error);
                    return Visit::Stop;
                }
            }
            Visit::Continue
        });
        met.note(manager, tree);
        self.end_call();
        let next = next?;
        outcome?;
        Ok(next.filter(|next| !ended && !position_past_end(next, to, direction)))
    }

    /// As [`Transaction::scan`], reading current versions under a lock on the range.
    fn scan_current(
        &mut self,
        tree: &Tree,
        from: &Position,
        to: Option<&[u8]>,
        direction: Direction,
        batch: &mut RowBatch,
    ) -> Result<Option<Position>, TxnError> {
        // How far this leaf goes, then a lock on that range, then the rows in it: what is inserted
        // in between is met when the rows are read, what comes later meets the lock.
        let me = self.ensure_state()?;
        let mut limit = None;
        self.exposed = true;
        let reach = tree.visit_leaf(from, direction, |_, _| Visit::Continue)?;
        let reach = reach.filter(|next| !position_past_end(next, to, direction));
        self.manager.locks.lock_range(
            me,
            tree.id(),
            locked_range(from, reach.as_ref(), to, direction),
            &mut self.held,
        );
        loop {
            batch.clear();
            let manager = &self.manager;
            let mut outcome = Ok(None);
            let mut position = from.clone();
            let mut payload = Vec::new();
            let mut met = Met::default();
            // The range may lie in several leaves by now.
            loop {
                let mut ended = false;
                let next = tree.visit_leaf(&position, direction, |key, value| {
                    if past_end(key, to, direction)
                        || reach.as_ref().is_some_and(|reach| at_or_past(key, reach, direction))
                    {
                        ended = true;
                        return Visit::Stop;
                    }
                    match current_version(manager, Some(me), value, &mut payload) {
                        Ok(Current::Row(Some(flag), _)) => batch.push(key, &payload, flag),
                        Ok(Current::Row(None, _)) => met.look(manager, key, value),
                        Ok(Current::Blocked(writer)) => {
                            outcome = Ok(Some(writer));
                            return Visit::Stop;
                        }
                        Err(error) => {
                            outcome = Err(error);
                            return Visit::Stop;
                        }
                    }
                    Visit::Continue
                })?;
                match next {
                    Some(next) if !ended && matches!(outcome, Ok(None)) && Some(&next) != reach.as_ref() => {
                        position = next
                    }
                    _ => break,
                }
            }
            met.note(manager, tree);
            match outcome? {
                None => return Ok(reach),
                Some(writer) => {
                    self.wait_for(&[writer], &mut limit)?;
                    // It was another row's writer than the next one will be.
                    limit = None;
                }
            }
        }
    }
}

/// The current version's payload, unless its writer is another transaction that has not ended.
fn current_version(
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

/// Whether a scan that continues at `next` would deliver nothing before its end.
fn position_past_end(next: &Position, to: Option<&[u8]>, direction: Direction) -> bool {
    match (next, direction) {
        (Position::Start, _) => false,
        (Position::At(key) | Position::Past(key), Direction::Forward) => past_end(key, to, direction),
        (Position::At(key), Direction::Backward) => past_end(key, to, direction),
        (Position::Past(key), Direction::Backward) => to.is_some_and(|to| key.as_slice() <= to),
    }
}

/// Whether `key` lies at or beyond the position where the scan continues.
fn at_or_past(key: &[u8], next: &Position, direction: Direction) -> bool {
    match (next, direction) {
        (Position::Start, _) => false,
        (Position::At(at), Direction::Forward) => key >= at.as_slice(),
        (Position::Past(at), Direction::Forward) => key > at.as_slice(),
        (Position::At(at), Direction::Backward) => key <= at.as_slice(),
        (Position::Past(at), Direction::Backward) => key < at.as_slice(),
    }
}

/// The key range that a scan from `from` up to `reach`, or to its end, must lock. May lock a little
/// more than is delivered, never less.
fn locked_range(
    from: &Position,
    reach: Option<&Position>,
    to: Option<&[u8]>,
    direction: Direction,
) -> KeyRange {
    let key_of = |position: &Position| match position {
        Position::Start => None,
        Position::At(key) | Position::Past(key) => Some(key.clone()),
    };
    match direction {
        Direction::Forward => {
            let high = reach.map_or_else(
                || to.map(|to| (to.to_vec(), false)),
                |reach| key_of(reach).map(|key| (key, true)),
            );
            KeyRange { low: key_of(from), high }
        }
        Direction::Backward => {
            let low = reach.map_or_else(|| to.map(<[u8]>::to_vec), key_of);
            KeyRange { low, high: key_of(from).map(|key| (key, true)) }
        }
    }
}
