//! The before-images of one transaction, by undo index.
//!
//! What they take in memory is counted as it is held, capacities included, in the manager's `version_bytes`: of a
//! transaction that runs, what is more than its allowance; of one that has ended and is kept for a snapshot, all of it
//! and its [`TxnState`] (see `purge.rs`).

use crate::ghost_list::GhostList;
use crate::state::TxnState;
use firn_base::Lsn;
use firn_base::sync::Mutex;
use firn_base::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::collections::VecDeque;

/// Bytes of log that undoing an entry takes beside the entry's own: frame, compensation, page and place.
const UNDO_RECORD: u64 = 96;
/// And those that taking it out of the undo tree takes.
const UNSPILL_RECORD: u64 = 64;
/// Bytes that a transaction takes which has ended and is kept, beside its undo entries: its state, and its places in
/// the list of those and in the map by ids, with what an allocator adds.
pub(crate) const STATE_BYTES: usize = size_of::<TxnState>() + 128;

/// Where an undo entry is.
#[derive(Clone, Copy, Debug)]
enum UndoEntry {
    /// In the arena: offset past the arena's origin, length, and an LSN at or before its log record.
    Memory { at: usize, len: u32, lsn: Lsn },
    /// In the undo tree.
    Spilled,
    /// Used, or never made.
    Gone,
}

/// A transaction's undo entries, by index. Entries before `first` are in the undo tree or gone.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    first: u32,
    entries: VecDeque<UndoEntry>,
    arena: Vec<u8>,
    /// Bytes dropped from the arena's front so far.
    origin: usize,
    /// Bytes at the arena's front that no entry needs; dropped once they are half of it.
    dead: usize,
    /// The newest entry's change is being made: it may yet be taken back, and its index used again. Such an
    /// entry is not spilled.
    unsettled: bool,
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
    /// What of that the log was told.
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

    /// Puts an entry at the next index. `lsn` is the log's end before its record is appended. When its
    /// change is made, [`Versions::settle`] follows, else [`Versions::pop`].
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
        if self.entries.is_empty() && self.first == 0 {
            self.first = index;
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
        if self.entries.is_empty() {
            self.first = self.first.max(entries);
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
    }

    /// Copies an entry into `out`, or says where it is.
    pub fn read(&self, index: u32, out: &mut Vec<u8>) -> Lookup {
        out.clear();
        let Some(offset) = index.checked_sub(self.first) else { return Lookup::InUndoTree };
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
        self.entries
            .iter()
            .zip(self.first..)
            .find_map(|(entry, index)| match entry {
                UndoEntry::Memory { lsn, .. } => Some((index, *lsn)),
                _ => None,
            })
            .filter(|(_, lsn)| *lsn < limit)
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

    /// Notes that an entry is in the undo tree now, and gives back the memory of a spilled front. False, and
    /// nothing is noted, if the entry is not in memory any more.
    pub fn mark_spilled(&mut self, index: u32) -> bool {
        let entry = index.checked_sub(self.first).and_then(|i| self.entries.get_mut(i as usize));
        let Some(entry @ UndoEntry::Memory { .. }) = entry else { return false };
        *entry = UndoEntry::Spilled;
        self.spilled = true;
        self.to_undo += UNSPILL_RECORD;
        while let Some(UndoEntry::Spilled | UndoEntry::Gone) = self.entries.front() {
            self.entries.pop_front();
            self.first += 1;
        }
        let kept = match self
            .entries
            .iter()
            .find_map(|entry| if let UndoEntry::Memory { at, .. } = entry { Some(*at) } else { None })
        {
            Some(at) => at,
            None => self.origin + self.arena.len(),
        };
        self.dead = kept - self.origin;
        // Not at once: each time, what is left is moved.
        if self.dead * 2 >= self.arena.len() {
            self.arena.drain(..self.dead);
            (self.origin, self.dead) = (kept, 0);
            // What is empty gives all of it back.
            if self.arena.capacity() > 4 * self.arena.len() {
                self.arena.shrink_to(2 * self.arena.len());
            }
        }
        if self.entries.capacity() > 4 * self.entries.len() {
            self.entries.shrink_to(2 * self.entries.len());
        }
        true
    }

    /// Bytes of memory held.
    fn held(&self) -> usize {
        self.arena.capacity() + self.entries.capacity() * size_of::<UndoEntry>() + self.ghosts.bytes()
    }

    /// Keeps `total`, the bytes of all transactions' versions, up to date with this one's.
    pub fn account(&mut self, total: &AtomicUsize) {
        let now = self.held().saturating_sub(self.allowance) + self.overhead;
        // Nearly always equal: an allocation serves many entries, and most transactions stay within their allowance.
        match now.cmp(&self.accounted) {
            std::cmp::Ordering::Equal => return,
            std::cmp::Ordering::Greater => total.fetch_add(now - self.accounted, Ordering::Relaxed),
            std::cmp::Ordering::Less => total.fetch_sub(self.accounted - now, Ordering::Relaxed),
        };
        self.accounted = now;
    }

    /// The transaction has ended and is kept for a snapshot: gives back what its memory has too much, for another
    /// transaction, and counts the rest in full. Nothing if it was purged meanwhile.
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

    /// All entries are in the undo tree, and readers find them there by themselves: gives back all memory.
    pub fn leave_spilled(&mut self, total: &AtomicUsize) {
        assert!(self.oldest_lsn().is_none() && self.promised == 0, "an ended transaction, all spilled");
        self.first = self.next_index();
        (self.entries, self.arena) = (VecDeque::new(), Vec::new());
        (self.origin, self.dead, self.overhead) = (0, 0, 0);
        // A thread that is about to settle it must not count it any more.
        self.purged = true;
        self.account(total);
    }

    /// Keeps `promise`, what the log leaves for undoing, up to date with this transaction's share.
    pub fn promise(&mut self, promise: &AtomicU64) {
        if self.kept {
            return;
        }
        if self.to_undo >= self.promised {
            promise.fetch_add(self.to_undo - self.promised, Ordering::SeqCst);
        } else {
            promise.fetch_sub(self.promised - self.to_undo, Ordering::SeqCst);
        }
        self.promised = self.to_undo;
    }

    /// Nothing of it will be undone any more.
    pub fn end_promise(&mut self, promise: &AtomicU64) {
        promise.fetch_sub(self.promised, Ordering::SeqCst);
        (self.promised, self.kept) = (0, true);
    }

    /// Gives back all memory.
    pub fn clear(&mut self, total: &AtomicUsize) {
        assert_eq!(self.promised, 0, "a transaction ends before it is forgotten");
        *self = Versions { accounted: self.accounted, purged: true, ..Versions::default() };
        self.account(total);
    }

    /// As [`Versions::clear`], and answers the memory, empty, for another transaction.
    pub fn clear_for_reuse(&mut self, total: &AtomicUsize) -> VersionMemory {
        let mut memory = (std::mem::take(&mut self.entries), std::mem::take(&mut self.arena));
        self.clear(total);
        memory.0.clear();
        memory.1.clear();
        VersionMemory { entries: memory.0, arena: memory.1 }
    }

    /// Takes memory to begin with, of which `allowance` bytes are not counted. There are no entries yet.
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
pub(crate) struct SpareMemory(Mutex<Vec<VersionMemory>>);

impl SpareMemory {
    const COUNT_MAX: usize = 32;
    pub const BYTES_MAX: usize = 32 << 10;

    /// Some memory, or none.
    pub fn take(&self) -> VersionMemory {
        self.0.lock().pop().unwrap_or_default()
    }
    /// Keeps memory, if it is little.
    pub fn keep(&self, memory: VersionMemory) {
        if (1..=SpareMemory::BYTES_MAX).contains(&memory.len()) {
            let mut kept = self.0.lock();
            if kept.len() < SpareMemory::COUNT_MAX {
                kept.push(memory);
            }
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
    /// Of so many commits, the newest: each keeps at most what it was allowed while it ran, and its state.
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
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_by_index_through_pops_forgetting_and_spilling() {
        let mut versions = Versions::default();
        let mut out = Vec::new();
        for i in 0..10u8 {
            assert_eq!(versions.push(&[i; 5], Lsn(100 + u64::from(i))), u32::from(i));
        }
        versions.pop();
        assert_eq!(versions.next_index(), 9);
        versions.forget(8);
        assert_eq!(versions.next_index(), 9, "a used index is not given out again");
        assert_eq!(versions.read(8, &mut out), Lookup::None);
        assert_eq!(versions.read(3, &mut out), Lookup::Copied);
        assert_eq!(out, [3; 5]);
        for i in 0..4 {
            versions.mark_spilled(i);
        }
        assert_eq!(versions.read(3, &mut out), Lookup::InUndoTree);
        assert_eq!(versions.read(4, &mut out), Lookup::Copied);
        assert_eq!(out, [4; 5]);
        assert_eq!(versions.oldest_lsn(), Some(Lsn(104)));
        assert_eq!(versions.oldest_before(Lsn(104)), None);
        for i in 4..8 {
            versions.mark_spilled(i);
        }
        assert_eq!(versions.oldest_lsn(), None);
        assert_eq!(versions.push(b"last", Lsn(200)), 9);
        assert_eq!(versions.read(9, &mut out), Lookup::Copied);
        assert_eq!(out, b"last");
        assert_eq!(versions.read(2, &mut out), Lookup::InUndoTree);
    }

    #[test]
    fn entries_from_the_log_keep_their_indices() {
        let mut versions = Versions::default();
        let mut out = Vec::new();
        versions.restore(5, b"five", Lsn(1));
        assert_eq!(versions.oldest_to_spill(Lsn(2)), Some(5));
        versions.restore(8, b"eight", Lsn(2));
        assert_eq!(
            versions.read(4, &mut out),
            Lookup::InUndoTree,
            "before the first found: spilled, if it ever was"
        );
        assert_eq!(versions.read(6, &mut out), Lookup::None);
        assert_eq!(versions.read(8, &mut out), Lookup::Copied);
        assert_eq!(out, b"eight");
        assert_eq!(versions.next_index(), 9);
    }

    /// An entry was once spilled before its change was made. When the change failed and the index was used
    /// again, the undo tree answered with the first entry, and the second change was not undone; a tree being
    /// created found its index gone.
    #[test]
    fn an_entry_is_spilled_only_when_its_change_is_made() {
        let mut versions = Versions::default();
        versions.push(b"made", Lsn(1));
        versions.settle();
        versions.push(b"being made", Lsn(2));
        assert_eq!(versions.oldest_to_spill(Lsn(9)), Some(0));
        versions.mark_spilled(0);
        assert_eq!(versions.oldest_to_spill(Lsn(9)), None);
        assert_eq!(versions.oldest_lsn(), Some(Lsn(2)), "until then it holds the log");
        versions.pop();
        assert_eq!(versions.push(b"another", Lsn(3)), 1);
        versions.settle();
        assert_eq!(versions.oldest_to_spill(Lsn(9)), Some(1));
    }

    #[test]
    fn what_undoing_takes_is_promised_until_it_is_done_or_will_never_be() {
        let promise = AtomicU64::new(0);
        let mut versions = Versions::default();
        for i in 0..10u8 {
            versions.push(&[i; 100], Lsn(1));
            versions.settle();
        }
        versions.promise(&promise);
        let all = promise.load(Ordering::Relaxed);
        assert!(all >= 10 * 100);
        versions.pop();
        versions.forget(8);
        versions.forget(3);
        versions.promise(&promise);
        assert_eq!(promise.load(Ordering::Relaxed), all / 10 * 7);
        versions.mark_spilled(0);
        versions.promise(&promise);
        assert!(
            promise.load(Ordering::Relaxed) > all / 10 * 7,
            "a spilled entry is taken out of its tree, too"
        );
        versions.end_promise(&promise);
        assert_eq!(promise.load(Ordering::Relaxed), 0);
        versions.clear(&AtomicUsize::new(0));
    }

    #[test]
    fn memory_is_accounted() {
        let total = AtomicUsize::new(0);
        let mut versions = Versions::default();
        versions.push(&[0; 1000], Lsn(1));
        versions.account(&total);
        assert!(total.load(Ordering::Relaxed) >= 1000);
        versions.clear(&total);
        assert_eq!(total.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn memory_is_counted_as_it_is_held_beyond_the_allowance() {
        let total = AtomicUsize::new(0);
        let counted = || total.load(Ordering::Relaxed);
        let mut versions = Versions::default();
        let memory = VersionMemory { entries: VecDeque::with_capacity(100), arena: Vec::with_capacity(3000) };
        versions.adopt(memory, 10_000);
        versions.push(&[1; 100], Lsn(1));
        versions.settle();
        versions.account(&total);
        assert_eq!(counted(), 0, "within the allowance");
        versions.push(&[1; 20_000], Lsn(2));
        versions.settle();
        versions.account(&total);
        assert!(counted() >= 10_100, "{}", counted());
        versions.end_promise(&AtomicU64::new(0));
        // It has ended, and a snapshot needs it.
        let spare = versions.settle_kept(&total);
        let exact = 20_100 + 2 * size_of::<UndoEntry>() + STATE_BYTES;
        assert!((exact..exact + 200).contains(&counted()), "{} for {exact}", counted());
        assert!(spare.len() > 0, "what it had too much goes to another");
        versions.mark_spilled(0);
        versions.mark_spilled(1);
        versions.account(&total);
        assert_eq!(counted(), STATE_BYTES, "spilled entries give their memory back");
        versions.leave_spilled(&total);
        assert_eq!(counted(), 0);
        let mut out = Vec::new();
        assert_eq!(versions.read(1, &mut out), Lookup::InUndoTree);
        versions.clear(&total);
        versions.settle_kept(&total);
        assert_eq!(counted(), 0, "what was purged meanwhile is not counted again");
    }
}
