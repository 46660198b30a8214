//! The before-images of one transaction, by undo index.
//!
//! What they take in memory is counted as it is held, capacities included, in the manager's
//! `version_bytes`: of a transaction that runs, what is more than its allowance; of one that has
//! ended and is kept for a snapshot, all of it and its [`TxnState`] (see `purge.rs`).
//!
//! Invariants, asserted by [`Versions::check`]:
//! 1. entries in memory lie in the arena in the order of their indices, disjoint, behind its dead
//!    front; their LSNs do not descend, so the oldest entry in memory, which is the first that is
//!    listed, holds the log;
//! 2. an entry that is not settled is the newest, and in memory;
//! 3. what undoing takes is counted for every entry in memory, and for each that was spilled from
//!    it; nothing is promised in the log once nothing will be undone;
//! 4. a purged transaction has no entries.

use crate::ghost_list::GhostList;
use crate::state::TxnState;
use firndb_base::Lsn;
use firndb_base::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::collections::{BTreeMap, VecDeque};

/// Bytes of log that undoing an entry takes beside the entry's own: frame, compensation, page and
/// position.
const UNDO_RECORD: u64 = 96;
/// What a transaction's promise in the log is a multiple of, unless it is small.
const PROMISE_STEP: u64 = 4 << 10;
/// Bytes of log that removing it from the undo tree takes.
const UNSPILL_RECORD: u64 = 64;
/// Bytes that an ended transaction which is kept takes beside its undo entries: its state, and its
/// entries in the list of those and in the map by ids, with the allocator's overhead.
pub(crate) const STATE_BYTES: usize = size_of::<TxnState>() + 128;

/// Where an undo entry is.
#[derive(Clone, Copy, Debug)]
enum UndoEntry {
    /// In the arena: offset past the arena's origin, length, and an LSN at or before its log
    /// record.
    Memory { at: usize, len: u32, lsn: Lsn },
    /// In the undo tree.
    Spilled,
    /// Used, or never made.
    Gone,
}

/// A transaction's undo entries, by index. Entries before `first` are in the undo tree or gone; of
/// these, all from `spilled_end` on are gone.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    first: u32,
    spilled_end: u32,
    entries: VecDeque<UndoEntry>,
    arena: Vec<u8>,
    /// Bytes dropped from the arena's front so far.
    origin: usize,
    /// Bytes at the arena's front that no entry needs; dropped once they are half of it.
    dead: usize,
    /// The newest entry's change is being made: it may yet be taken back, and its index used again.
    /// Such an entry is not spilled.
    unsettled: bool,
    /// Spilled entries that were taken out of the undo tree to be used, and are not used yet.
    taken_out: BTreeMap<u32, Box<[u8]>>,
    /// Whether the undo tree may hold entries of this transaction.
    pub spilled: bool,
    /// Rows this transaction made ghosts of.
    pub ghosts: GhostList,
    /// Bytes of memory that are not counted.
    allowance: usize,
    /// Bytes that are counted beside what is held here.
    overhead: usize,
    accounted: usize,
    /// It has ended, and no snapshot needs its entries: they are gone.
    purged: bool,
    /// Bytes of log that undoing the entries will take, about: not less than they have.
    to_undo: u64,
    /// How much of that is for entries in the undo tree. Those that recovery found there are not
    /// counted.
    to_undo_spilled: u64,
    /// How much of that is promised in the log.
    promised: u64,
    /// Nothing of it will be undone any more.
    kept: bool,
}

/// Where to find an undo entry.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// Copied into the caller's buffer.
    Copied,
    /// To be looked up in the undo tree.
    InUndoTree,
    /// There is none.
    None,
}

impl Versions {
    /// Index that the next entry will get.
    pub fn next_index(&self) -> u32 {
        self.first + self.entries.len() as u32
    }

    /// Puts an entry at the next index. `lsn` is the log's end before its record is appended. When
    /// its change is made, [`Versions::settle`] follows, else [`Versions::pop`].
    pub fn push(&mut self, undo: &[u8], lsn: Lsn) -> u32 {
        let index = self.next_index();
        let at = self.origin + self.arena.len();
        self.arena.extend_from_slice(undo);
        self.entries.push_back(UndoEntry::Memory { at, len: undo.len() as u32, lsn });
        self.unsettled = true;
        self.to_undo += undo.len() as u64 + UNDO_RECORD;
        index
    }

    /// The newest entry's change has been made.
    pub fn settle(&mut self) {
        self.unsettled = false;
    }

    /// Takes back the newest entry, whose change was not made.
    pub fn pop(&mut self) {
        self.unsettled = false;
        if let Some(UndoEntry::Memory { at, len, .. }) = self.entries.pop_back() {
            self.arena.truncate(at - self.origin);
            self.to_undo -= u64::from(len) + UNDO_RECORD;
        }
    }

    /// Sets an entry found in the log; indices come in ascending order, with gaps.
    pub fn restore(&mut self, index: u32, undo: &[u8], lsn: Lsn) {
        if self.entries.is_empty() {
            if self.first == 0 {
                self.spilled_end = index;
            }
            self.first = self.first.max(index);
        }
        while self.next_index() < index {
            self.entries.push_back(UndoEntry::Gone);
        }
        if self.next_index() == index {
            self.push(undo, lsn);
            self.settle();
        }
    }

    /// With no entry found in the log, all that was made (`entries`) is in the undo tree.
    pub fn start_at(&mut self, entries: u32) {
        if self.entries.is_empty() && entries > self.first {
            (self.first, self.spilled_end) = (entries, entries);
        }
    }

    /// Forgets an entry that has been used.
    pub fn forget(&mut self, index: u32) {
        if index + 1 == self.next_index() && matches!(self.entries.back(), Some(UndoEntry::Memory { .. })) {
            // The newest: its bytes go too. Its index stays used.
            self.pop();
            self.entries.push_back(UndoEntry::Gone);
        } else if let Some(entry) =
            index.checked_sub(self.first).and_then(|i| self.entries.get_mut(i as usize))
        {
            if let UndoEntry::Memory { len, .. } = *entry {
                self.to_undo -= u64::from(len) + UNDO_RECORD;
            }
            *entry = UndoEntry::Gone;
        }
        self.drop_front();
        if let Some(entry) = self.taken_out.remove(&index) {
            self.unspilled(entry.len());
        }
    }

    /// Keeps a spilled entry in memory until it is used. It is out of the undo tree.
    pub fn take_out(&mut self, index: u32, entry: &[u8]) {
        self.taken_out.insert(index, entry.into());
    }

    /// Copies an entry into `out`, or says where it is.
    pub fn read(&self, index: u32, out: &mut Vec<u8>) -> Lookup {
        out.clear();
        if let Some(entry) = self.taken_out.get(&index) {
            out.extend_from_slice(entry);
            return Lookup::Copied;
        }
        let Some(offset) = index.checked_sub(self.first) else {
            return if index < self.spilled_end { Lookup::InUndoTree } else { Lookup::None };
        };
        match self.entries.get(offset as usize) {
            Some(UndoEntry::Memory { at, len, .. }) => {
                let start = at - self.origin;
                out.extend_from_slice(&self.arena[start..start + *len as usize]);
                Lookup::Copied
            }
            Some(UndoEntry::Spilled) => Lookup::InUndoTree,
            Some(UndoEntry::Gone) | None => Lookup::None,
        }
    }

    /// The oldest entry in memory whose LSN is before `limit`.
    pub fn oldest_before(&self, limit: Lsn) -> Option<(u32, Lsn)> {
        match self.entries.front() {
            Some(UndoEntry::Memory { lsn, .. }) if *lsn < limit => Some((self.first, *lsn)),
            _ => None,
        }
    }

    /// The oldest entry in memory that can be spilled and whose LSN is before `limit`.
    pub fn oldest_to_spill(&self, limit: Lsn) -> Option<u32> {
        let (index, _) = self.oldest_before(limit)?;
        (!self.unsettled || index + 1 != self.next_index()).then_some(index)
    }

    /// LSN of the oldest entry in memory: the log is needed from there on.
    pub fn oldest_lsn(&self) -> Option<Lsn> {
        self.oldest_before(Lsn::MAX).map(|(_, lsn)| lsn)
    }

    /// Notes that an entry is in the undo tree now. False, and nothing is noted, if the entry is
    /// not in memory any more.
    pub fn mark_spilled(&mut self, index: u32) -> bool {
        let entry = index.checked_sub(self.first).and_then(|i| self.entries.get_mut(i as usize));
        let Some(entry @ &mut UndoEntry::Memory { len, .. }) = entry else { return false };
        *entry = UndoEntry::Spilled;
        self.spilled = true;
        self.spilled_end = self.spilled_end.max(index + 1);
        self.to_undo += UNSPILL_RECORD;
        self.to_undo_spilled += u64::from(len) + UNDO_RECORD + UNSPILL_RECORD;
        self.drop_front();
        true
    }

    /// Notes that an entry of `len` bytes was used and is out of the undo tree.
    pub fn unspilled(&mut self, len: usize) {
        let done = (len as u64 + UNDO_RECORD + UNSPILL_RECORD).min(self.to_undo_spilled);
        self.to_undo_spilled -= done;
        self.to_undo -= done;
    }

    /// Drops what lies before the oldest entry in memory, and frees its memory.
    fn drop_front(&mut self) {
        let listed = self.entries.len();
        while let Some(UndoEntry::Spilled | UndoEntry::Gone) = self.entries.front() {
            self.entries.pop_front();
            self.first += 1;
        }
        if self.entries.len() == listed {
            return;
        }
        let kept = match self.entries.front() {
            Some(UndoEntry::Memory { at, .. }) => *at,
            _ => self.origin + self.arena.len(),
        };
        self.dead = kept - self.origin;
        // Not each time: it moves what is left.
        if self.dead * 2 >= self.arena.len() {
            self.arena.drain(..self.dead);
            (self.origin, self.dead) = (kept, 0);
            // What is empty frees all of it.
            if self.arena.capacity() > 4 * self.arena.len() {
                self.arena.shrink_to(2 * self.arena.len());
            }
        }
        if self.entries.capacity() > 4 * self.entries.len() {
            self.entries.shrink_to(2 * self.entries.len());
        }
    }

    /// Bytes of memory held.
    fn held(&self) -> usize {
        self.arena.capacity() + self.entries.capacity() * size_of::<UndoEntry>() + self.ghosts.bytes()
    }

    /// Keeps `total`, the bytes of all transactions' versions, up to date with this one's.
    pub fn account(&mut self, total: &AtomicUsize) {
        let now = self.held().saturating_sub(self.allowance) + self.overhead;
        // Nearly always equal: an allocation serves many entries, and most transactions stay within
        // their allowance.
        match now.cmp(&self.accounted) {
            std::cmp::Ordering::Equal => return,
            std::cmp::Ordering::Greater => total.fetch_add(now - self.accounted, Ordering::Relaxed),
            std::cmp::Ordering::Less => total.fetch_sub(self.accounted - now, Ordering::Relaxed),
        };
        self.accounted = now;
    }

    /// The transaction has ended and is kept for a snapshot: returns its spare capacity, for
    /// another transaction, and counts the rest in full. Nothing if it was purged meanwhile.
    pub fn settle_kept(&mut self, total: &AtomicUsize) -> VersionMemory {
        if self.purged {
            return VersionMemory::default();
        }
        let mut spare = VersionMemory::default();
        if self.arena.capacity() > self.arena.len() {
            let exact = self.arena.as_slice().into();
            spare.arena = std::mem::replace(&mut self.arena, exact);
        }
        if self.entries.capacity() > self.entries.len() {
            let mut exact = VecDeque::with_capacity(self.entries.len());
            exact.extend(self.entries.iter().copied());
            spare.entries = std::mem::replace(&mut self.entries, exact);
        }
        (self.allowance, self.overhead) = (0, STATE_BYTES);
        self.account(total);
        spare.arena.clear();
        spare.entries.clear();
        spare
    }

    /// All entries are in the undo tree, and readers find them there by themselves: frees all
    /// memory.
    pub fn leave_spilled(&mut self, total: &AtomicUsize) {
        assert!(self.oldest_lsn().is_none() && self.promised == 0, "an ended transaction, all spilled");
        self.first = self.next_index();
        (self.entries, self.arena) = (VecDeque::new(), Vec::new());
        (self.origin, self.dead, self.overhead) = (0, 0, 0);
        // A thread that is about to settle it must not count it any more.
        self.purged = true;
        self.account(total);
    }

    /// Keeps `promise`, what the log leaves for undoing, up to date with this transaction's share:
    /// in steps, since all transactions write to that word.
    pub fn promise(&mut self, promise: &AtomicU64) {
        // Small at first: there may be many transactions, and little log.
        let step = (self.to_undo / 2).next_power_of_two().clamp(PROMISE_STEP / 16, PROMISE_STEP);
        let is_about_right = |more| self.to_undo > 0 && more < 2 * step;
        if self.kept || self.promised.checked_sub(self.to_undo).is_some_and(is_about_right) {
            return;
        }
        let promised = self.to_undo.next_multiple_of(step);
        if promised >= self.promised {
            promise.fetch_add(promised - self.promised, Ordering::SeqCst);
        } else {
            promise.fetch_sub(self.promised - promised, Ordering::SeqCst);
        }
        self.promised = promised;
    }

    /// Nothing of it will be undone any more.
    pub fn end_promise(&mut self, promise: &AtomicU64) {
        promise.fetch_sub(self.promised, Ordering::SeqCst);
        (self.promised, self.kept) = (0, true);
    }

    /// Frees all memory.
    pub fn clear(&mut self, total: &AtomicUsize) {
        assert_eq!(self.promised, 0, "a transaction ends before it is forgotten");
        *self = Versions { accounted: self.accounted, purged: true, ..Versions::default() };
        self.account(total);
    }

    /// As [`Versions::clear`], and returns the memory, empty, for another transaction.
    pub fn clear_for_reuse(&mut self, total: &AtomicUsize) -> VersionMemory {
        let mut memory = (std::mem::take(&mut self.entries), std::mem::take(&mut self.arena));
        self.clear(total);
        memory.0.clear();
        memory.1.clear();
        VersionMemory { entries: memory.0, arena: memory.1 }
    }

    /// Asserts the module's invariants.
    pub fn check(&self) {
        assert!(self.dead <= self.arena.len(), "the dead front lies in the arena");
        let (mut end, mut last, mut to_undo) = (self.origin + self.dead, Lsn::ZERO, 0);
        for entry in &self.entries {
            let UndoEntry::Memory { at, len, lsn } = *entry else { continue };
            assert!(at >= end && lsn >= last, "entries ascend in the arena and in the log");
            (end, last) = (at + len as usize, lsn);
            to_undo += u64::from(len) + UNDO_RECORD;
        }
        assert!(end <= self.origin + self.arena.len(), "entries lie in the arena");
        let oldest = self.entries.front();
        assert!(
            oldest.is_none_or(|oldest| matches!(oldest, UndoEntry::Memory { .. })),
            "the first listed entry is in memory"
        );
        assert!(
            !self.unsettled || matches!(self.entries.back(), Some(UndoEntry::Memory { .. })),
            "an entry that is not settled is the newest"
        );
        to_undo += self.to_undo_spilled;
        assert_eq!(self.to_undo, to_undo, "what undoing takes is counted");
        assert!(!self.kept || self.promised == 0, "nothing is promised for what is not undone");
        assert!(!self.purged || self.entries.is_empty(), "a purged transaction has no entries");
    }

    /// Takes memory to begin with, of which `allowance` bytes are not counted. There are no entries
    /// yet.
    pub fn adopt(&mut self, memory: VersionMemory, allowance: usize) {
        assert!(self.entries.is_empty() && self.arena.is_empty());
        (self.entries, self.arena) = (memory.entries, memory.arena);
        self.allowance = allowance;
    }
}

/// Memory of a transaction's undo entries, empty.
#[derive(Debug, Default)]
pub(crate) struct VersionMemory {
    entries: VecDeque<UndoEntry>,
    arena: Vec<u8>,
}

impl VersionMemory {
    /// Bytes.
    fn len(&self) -> usize {
        self.entries.capacity() * size_of::<UndoEntry>() + self.arena.capacity()
    }
}

/// Memory of ended transactions for those to come: at most [`SpareMemory::COUNT_MAX`] times
/// [`SpareMemory::BYTES_MAX`].
#[derive(Debug, Default)]
pub(crate) struct SpareMemory(Vec<VersionMemory>);

impl SpareMemory {
    const COUNT_MAX: usize = 32;
    pub const BYTES_MAX: usize = 32 << 10;

    /// Some memory, or none.
    pub fn take(&mut self) -> VersionMemory {
        self.0.pop().unwrap_or_default()
    }
    /// Keeps memory, if it is little.
    pub fn keep(&mut self, memory: VersionMemory) {
        if (1..=SpareMemory::BYTES_MAX).contains(&memory.len()) && self.0.len() < SpareMemory::COUNT_MAX {
            self.0.push(memory);
        }
    }
}

/// The newest commits whose before-images the budget does not count.
const RECENT_MAX: usize = 64;

/// Memory of before-images that the budget does not count; less if the budget is small.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    /// Bytes, for each transaction that runs.
    pub running: usize,
    /// How many of the newest commits: each keeps at most what it was allowed while it ran, and its
    /// state.
    pub recent: usize,
}

impl Allowance {
    pub fn of(budget_bytes: usize) -> Allowance {
        Allowance {
            running: SpareMemory::BYTES_MAX.min(budget_bytes / 512),
            recent: RECENT_MAX.min(budget_bytes >> 18),
        }
    }
}

#[cfg(test)]
mod tests;
