//! Scans: the rows of a range, a batch at a time.
//!
//! A batch never goes past a leaf, so one latch serves it; it may end before, and the next one then
//! continues behind its last row. Invariant: under serializable isolation a batch's range is locked
//! before the rows in it are read, up to where the next batch begins.

use crate::error::TxnError;
use crate::header::RowHeader;
use crate::key_range::KeyRange;
use crate::locks::{Blockers, Turn};
use crate::manager::TxnManager;
use crate::options::Isolation;
use crate::read::{Current, current_version};
use crate::request::Request;
use crate::row_batch::{Keep, RowBatch};
use crate::transaction::{Call, Transaction};
use firndb_base::TxnId;
use firndb_btree::{Direction, Entry, Position, Tree, Visit};
use firndb_buffer::PageUse;

/// A range as a scan walks through it.
///
/// `to` ends it: going forward it is the first key *not* delivered; going backward the last key
/// delivered if it exists (so `[low, high)` is scanned forward with `to = high` and backward with
/// `to = low`).
#[derive(Clone, Copy, Debug)]
pub struct Course<'a> {
    pub direction: Direction,
    pub to: Option<&'a [u8]>,
    /// Rows of a batch at most; `usize::MAX`: all of the leaf.
    pub most: usize,
    /// What the leaf is used for.
    pub page_use: PageUse,
}

impl<'a> Course<'a> {
    /// Forward to `to`, a leaf at a time.
    #[must_use]
    pub fn forward(to: Option<&'a [u8]>) -> Course<'a> {
        Course { direction: Direction::Forward, to, most: usize::MAX, page_use: PageUse::Working }
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

    /// Counts an entry that is no row to the reader, if it is an unneeded ghost. Its key has two
    /// parts.
    fn look(&mut self, manager: &TxnManager, key: [&[u8]; 2], value: &[u8]) {
        let Ok((header, _)) = RowHeader::split(value) else { return };
        if header.ghost && header.writer < manager.low_water() {
            self.count += 1;
            if self.count == Met::MANY {
                self.key = key.concat();
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

impl Transaction {
    /// Reads rows of one leaf into `batch` (cleared first), from `from` on, and returns where the
    /// scan continues; `None` at its end. A batch may be empty though the scan continues. Under
    /// serializable isolation it may exceed `course.most` by rows of transactions that it waited
    /// for.
    pub fn scan(
        &mut self,
        tree: &Tree,
        from: &Position,
        course: Course<'_>,
        batch: &mut RowBatch,
    ) -> Result<Option<Position>, TxnError> {
        let mut at = from.clone();
        Ok(self.scan_on(tree, &mut at, course, None, batch)?.then_some(at))
    }

    /// As [`Transaction::scan`], of a scan that stands at `at` and is moved on in its place, which
    /// an error leaves as it is; false at its end. Of the rows that `keep` accepts: only these are
    /// copied. `keep` runs under the leaf's latch, perhaps on versions that are not visible,
    /// and perhaps more than once for a row: it must return the same for the same row, and must not
    /// block or use the database.
    pub fn scan_on(
        &mut self,
        tree: &Tree,
        at: &mut Position,
        course: Course<'_>,
        keep: Option<Keep<'_>>,
        batch: &mut RowBatch,
    ) -> Result<bool, TxnError> {
        assert!(course.most > 0, "a batch has space for a row");
        self.begin_statement()?;
        batch.clear();
        if self.options.isolation == Isolation::Serializable {
            let next = Call(self).0.scan_current(tree, at, course, keep, batch)?;
            let more = next.is_some();
            if let Some(next) = next {
                *at = next;
            }
            return Ok(more);
        }
        self.ensure_snapshot();
        let me = self.id();
        let call = Call(self);
        let Transaction { manager, snapshot, scratch, exposed, .. } = &mut *call.0;
        let view = manager.view(me, snapshot.as_ref().expect("taken just now"));
        *exposed = true;
        let mut outcome = Ok(());
        let mut payload = Vec::new();
        let mut met = Met::default();
        let mut find_older = |entry: Entry<'_>, batch: &mut RowBatch| {
            match view.find(entry.value(), &mut payload, scratch) {
                Ok(Some(row)) => batch.push((entry.prefix, entry.suffix()), row, course.most, keep),
                Ok(None) => met.look(manager, [entry.prefix, entry.suffix()], entry.value()),
                Err(error) => outcome = Err(error),
            }
            outcome.is_ok()
        };
        let more = tree.visit_leaf_on(at, course.in_tree(), |entry| {
            // Most rows are as they stand in the page.
            if let Some(row) = view.find_now(entry.value()) {
                batch.push_entry(entry, row, course.most, keep);
            } else if !find_older(entry, batch) {
                return Visit::GiveUp;
            }
            if batch.len() >= course.most { Visit::Stop } else { Visit::Continue }
        });
        met.note(manager, tree);
        drop(call);
        let more = more?;
        outcome.map(|()| more)
    }

    /// As [`Transaction::scan_on`], reading current versions under a lock on the range.
    fn scan_current(
        &mut self,
        tree: &Tree,
        from: &Position,
        course: Course<'_>,
        keep: Option<Keep<'_>>,
        batch: &mut RowBatch,
    ) -> Result<Option<Position>, TxnError> {
        // How far this batch goes, then a lock on that range, then the rows in it: what is inserted
        // in between is met when the rows are read, what comes later meets the lock.
        let me = self.ensure_state()?;
        let mut request = Request::default();
        self.exposed = true;
        let mut before = None;
        let (reach, range) = loop {
            // Anew after each wait: what is inserted meanwhile is not to make the batch longer.
            let reach = reach(tree, from, course, keep)?;
            let range = course.locked_range(from, reach.as_ref());
            if request.turn() != Turn::Fair {
                break (reach, range);
            }
            let Some(ahead) = self.manager.locks.ahead_in(me, tree.id(), &range, &mut before) else {
                break (reach, range);
            };
            self.wait_for(None, &Blockers::Ahead(ahead), &mut request)?;
        };
        self.manager.locks.lock_range(me, tree.id(), range, &mut self.held);
        loop {
            batch.clear();
            let Some(writer) =
                read_current(&self.manager, me, (tree, from, reach.as_ref()), course, keep, batch)?
            else {
                return Ok(reach);
            };
            // It was another row's writer than the next one will be.
            request = Request::default();
            self.wait_for(None, &Blockers::Holders(vec![writer]), &mut request)?;
        }
    }
}

/// Where a batch from `from` on ends: behind the last of `course.most` rows, or of the leaf; `None`
/// if the scan ends with it. Which entries will be rows once their writers have ended is not known
/// yet: what is no ghost counts as one.
fn reach(
    tree: &Tree,
    from: &Position,
    course: Course<'_>,
    keep: Option<Keep<'_>>,
) -> Result<Option<Position>, TxnError> {
    let mut left = course.most;
    let next = tree.visit_leaf_for(from, course.direction, course.page_use, |key, value| {
        if course.most == usize::MAX {
            return Visit::Continue;
        }
        let is_row = |(header, payload): (RowHeader, &[u8])| {
            !header.ghost && keep.is_none_or(|keep| keep(key, payload, header.flag))
        };
        left -= usize::from(RowHeader::split(value).is_ok_and(is_row));
        if left == 0 || course.ends_before(key) { Visit::Stop } else { Visit::Continue }
    })?;
    Ok(next.filter(|next| !course.ends_at(next)))
}

/// Reads the current rows between the two positions, which may lie in several leaves by now.
/// Returns the first writer it meets that has not ended; the batch is then to be read again.
fn read_current(
    manager: &TxnManager,
    me: TxnId,
    (tree, from, reach): (&Tree, &Position, Option<&Position>),
    course: Course<'_>,
    keep: Option<Keep<'_>>,
    batch: &mut RowBatch,
) -> Result<Option<TxnId>, TxnError> {
    let mut outcome = Ok(None);
    let mut position = from.clone();
    let mut payload = Vec::new();
    let mut met = Met::default();
    loop {
        let mut ended = false;
        let next = tree.visit_leaf_for(&position, course.direction, course.page_use, |key, value| {
            if course.ends_before(key) || reach.is_some_and(|reach| course.is_beyond(key, reach)) {
                ended = true;
                return Visit::Stop;
            }
            match current_version(manager, Some(me), value, &mut payload) {
                Ok(Current::Row(Some(flag), _)) => {
                    batch.push((&[], key), (&payload, flag), course.most, keep);
                }
                Ok(Current::Row(None, _)) => met.look(manager, [&[], key], value),
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
            Some(next) if !ended && matches!(outcome, Ok(None)) && Some(&next) != reach => position = next,
            _ => break,
        }
    }
    met.note(manager, tree);
    outcome
}

impl<'a> Course<'a> {
    /// The same to the tree.
    fn in_tree(&self) -> firndb_btree::Course<'a> {
        firndb_btree::Course { direction: self.direction, to: self.to, leaf_use: self.page_use }
    }
}

impl Course<'_> {
    /// Whether the scan has gone past its end at `key`.
    fn ends_before(&self, key: &[u8]) -> bool {
        match (self.to, self.direction) {
            (None, _) => false,
            (Some(to), Direction::Forward) => key >= to,
            (Some(to), Direction::Backward) => key < to,
        }
    }

    /// Whether a scan that continues at `next` would deliver nothing before its end.
    fn ends_at(&self, next: &Position) -> bool {
        match (next, self.direction) {
            (Position::Start, _) => false,
            (Position::At(key) | Position::Past(key), Direction::Forward) => self.ends_before(key),
            (Position::At(key), Direction::Backward) => self.ends_before(key),
            (Position::Past(key), Direction::Backward) => self.to.is_some_and(|to| key.as_slice() <= to),
        }
    }

    /// Whether `key` lies at or beyond the position where the scan continues.
    fn is_beyond(&self, key: &[u8], next: &Position) -> bool {
        match (next, self.direction) {
            (Position::Start, _) => false,
            (Position::At(at), Direction::Forward) => key >= at.as_slice(),
            (Position::Past(at), Direction::Forward) => key > at.as_slice(),
            (Position::At(at), Direction::Backward) => key <= at.as_slice(),
            (Position::Past(at), Direction::Backward) => key < at.as_slice(),
        }
    }

    /// The key range that a scan from `from` up to `reach`, or to its end, must lock. May lock a
    /// little more than is delivered, never less.
    fn locked_range(&self, from: &Position, reach: Option<&Position>) -> KeyRange {
        let key_of = |position: &Position| match position {
            Position::Start => None,
            Position::At(key) | Position::Past(key) => Some(key.clone()),
        };
        match self.direction {
            Direction::Forward => {
                let high = reach.map_or_else(
                    || self.to.map(|to| (to.to_vec(), false)),
                    |reach| key_of(reach).map(|key| (key, true)),
                );
                KeyRange { low: key_of(from), high }
            }
            Direction::Backward => {
                let low = reach.map_or_else(|| self.to.map(<[u8]>::to_vec), key_of);
                KeyRange { low, high: key_of(from).map(|key| (key, true)) }
            }
        }
    }
}
