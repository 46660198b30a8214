//! The transactions' part in checkpoints and recovery.
//!
//! A checkpoint names the open transactions. Analysis reads the log from the redo start on and
//! rebuilds, for every transaction whose end is not in it, its before-images (and so its locks: a
//! row is locked by its header). Before-images older than the redo start were spilled into the undo
//! tree by the checkpoint.

use crate::attachment::Attachment;
use crate::error::{TxnError, TxnErrorKind};
use crate::ghost_backlog::recovered_ranges;
use crate::locks::{HeldLocks, Mode, Turn, Wanted};
use crate::manager::TxnManager;
use crate::prepared_list::LockedKey;
use crate::prepared_list::{Prepared, PreparedList, put_keys};
use crate::state::{Status, TxnState};
use crate::undo::{self, Before, Undo};
use crate::versions::{Lookup, Versions};
use firndb_base::codec::{Malformed, Reader, Writer};
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::Ordering;
use firndb_base::{Lsn, PageId, TreeId, TxnId};
use firndb_btree::KeyRanges;
use firndb_log::{Kind, Record};
use std::collections::BTreeMap;

/// What a checkpoint record says of transactions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointState {
    /// Past every transaction id given out.
    pub next_txn: TxnId,
    /// Past every tree id given out.
    pub next_tree: TreeId,
    /// Open transactions that have made changes.
    pub active: Vec<OpenTransaction>,
    /// Where ghosts may be that changes before the redo start have left (`ghosts.rs`); `None`: in
    /// every tree.
    pub ghosts: Option<KeyRanges>,
}

/// An open transaction, as a checkpoint names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenTransaction {
    pub id: TxnId,
    /// How many undo entries it has made.
    pub entries: u32,
    /// Its global id, and the keys that it keeps locked beside the rows that it wrote, if it is
    /// prepared.
    pub prepared: Option<(Vec<u8>, Vec<LockedKey>)>,
}

const OPEN: u8 = 1;
const PREPARED: u8 = 2;
const LOCKED: u8 = 3;

fn read_key(reader: &mut Reader<'_>) -> Result<LockedKey, Malformed> {
    Ok((TreeId(reader.varint_max(u32::MAX as usize)? as u32), reader.blob()?.to_vec()))
}

impl CheckpointState {
    /// Of a fresh database.
    #[must_use]
    pub fn fresh(next_tree: TreeId) -> CheckpointState {
        CheckpointState {
            next_txn: TxnId(1),
            next_tree,
            active: Vec::new(),
            ghosts: Some(recovered_ranges()),
        }
    }

    /// Appends all but the list of open transactions: next transaction varint, next tree varint,
    /// count of open transactions varint; then the ghosts: 0 (in every tree), or the count of
    /// ranges plus one varint, then for each: tree varint, first key blob, and 0 (this key alone),
    /// 1 and the last key blob, or 2 (to the end of the tree).
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.next_txn.0);
        out.put_varint(u64::from(self.next_tree.0));
        out.put_varint(self.active.len() as u64);
        let Some(ghosts) = &self.ghosts else { return out.put_varint(0) };
        out.put_varint(ghosts.iter().count() as u64 + 1);
        for (tree, low, high) in ghosts.iter() {
            out.put_varint(u64::from(tree.0));
            out.put_blob(low);
            match high {
                Some(high) if high == low => out.put_u8(0),
                Some(high) => {
                    out.put_u8(1);
                    out.put_blob(high);
                }
                None => out.put_u8(2),
            }
        }
    }

    /// Reads what [`CheckpointState::encode`] wrote: the state without its list, and how many
    /// transactions that has.
    pub fn decode(reader: &mut Reader<'_>) -> Result<(CheckpointState, u64), Malformed> {
        let next_txn = TxnId(reader.varint()?);
        let next_tree = TreeId(reader.varint_max(u32::MAX as usize)? as u32);
        let count = reader.varint()?;
        let ghosts = decode_ghosts(reader)?;
        Ok((CheckpointState { next_txn, next_tree, active: Vec::new(), ghosts }, count))
    }

    /// The list in parts of about `part_len` bytes, one at least: nothing bounds how long it is.
    /// Each part is a row of:
    ///
    /// | tag u8 | then | meaning |
    /// |---:|---|---|
    /// | 1 | id varint, entries varint | an open transaction |
    /// | 2 | id varint, entries varint, global id blob | a prepared one |
    /// | 3 | tree varint, key blob | a key that the prepared one before keeps locked |
    #[must_use]
    pub fn list(&self, part_len: usize) -> Vec<Vec<u8>> {
        let mut parts = vec![Vec::new()];
        let mut push = |tag: u8, write: &dyn Fn(&mut Vec<u8>)| {
            if parts.last().is_some_and(|part: &Vec<u8>| part.len() >= part_len) {
                parts.push(Vec::new());
            }
            let part = parts.last_mut().expect("there is one");
            part.put_u8(tag);
            write(part);
        };
        for open in &self.active {
            push(if open.prepared.is_some() { PREPARED } else { OPEN }, &|out| {
                out.put_varint(open.id.0);
                out.put_varint(u64::from(open.entries));
                if let Some((gid, _)) = &open.prepared {
                    out.put_blob(gid);
                }
            });
            for key in open.prepared.iter().flat_map(|(_, keys)| keys) {
                push(LOCKED, &|out| put_keys(out, std::slice::from_ref(key)));
            }
        }
        parts
    }

    /// Adds a part of the list, in the order of [`CheckpointState::list`].
    pub fn add_part(&mut self, part: &[u8]) -> Result<(), Malformed> {
        let mut reader = Reader::new(part);
        while !reader.is_empty() {
            let tag = reader.u8()?;
            if tag == LOCKED {
                let key = read_key(&mut reader)?;
                let owner = self.active.last_mut().and_then(|open| open.prepared.as_mut());
                let missing = Malformed { what: "a locked key of no prepared transaction" };
                owner.ok_or(missing)?.1.push(key);
                continue;
            }
            let id = TxnId(reader.varint()?);
            let entries = reader.varint_max((1 << 31) - 1)? as u32;
            let prepared = match tag {
                OPEN => None,
                PREPARED => Some((reader.blob()?.to_vec(), Vec::new())),
                _ => return Err(Malformed { what: "an unknown entry of a list of transactions" }),
            };
            self.active.push(OpenTransaction { id, entries, prepared });
        }
        Ok(())
    }
}

fn decode_ghosts(reader: &mut Reader<'_>) -> Result<Option<KeyRanges>, Malformed> {
    let Some(count) = reader.varint_max(reader.rest().len() + 1)?.checked_sub(1) else { return Ok(None) };
    let mut ghosts = recovered_ranges();
    for _ in 0..count {
        let tree = TreeId(reader.varint_max(u32::MAX as usize)? as u32);
        let low = reader.blob()?;
        let high = match reader.u8()? {
            0 => Some(low),
            1 => Some(reader.blob()?),
            2 => None,
            _ => return Err(Malformed { what: "an unknown end of a range of keys" }),
        };
        if high.is_some_and(|high| high < low) {
            return Err(Malformed { what: "a range of keys that ends before it begins" });
        }
        ghosts.add(tree, low, high);
    }
    Ok(Some(ghosts))
}

/// A transaction that waits for its fate from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedTransaction {
    /// Its id in this database.
    pub id: TxnId,
    pub gid: Vec<u8>,
}

/// What recovery found open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoserReport {
    /// Transactions to be rolled back.
    pub losers: u64,
    pub prepared: u64,
}

#[derive(Debug, Default)]
struct Found {
    versions: Versions,
    entries: u32,
    /// Global id and locked keys, if it is prepared.
    prepared: Option<(Vec<u8>, Vec<LockedKey>)>,
}

/// Rebuilds the open transactions from the log, and where ghosts may be.
///
/// It holds in memory the undo entries that the transactions that wrote the log held: those of open
/// transactions that were not spilled. So what bounded their memory bounds this.
#[derive(Debug)]
pub struct Analysis {
    next_txn: TxnId,
    next_tree: TreeId,
    open: BTreeMap<TxnId, Found>,
    ghosts: Option<KeyRanges>,
}

impl Analysis {
    /// Starts from the last checkpoint's list. Then every record since its redo start is shown, in
    /// order.
    #[must_use]
    pub fn new(checkpoint: CheckpointState) -> Analysis {
        let open = checkpoint.active.into_iter().map(|OpenTransaction { id, entries, prepared }| {
            (id, Found { entries, prepared, ..Found::default() })
        });
        Analysis {
            next_txn: checkpoint.next_txn,
            next_tree: checkpoint.next_tree,
            open: open.collect(),
            ghosts: checkpoint.ghosts,
        }
    }

    /// Past every transaction id seen.
    #[must_use]
    pub fn next_txn(&self) -> TxnId {
        self.next_txn
    }
    /// Past every tree id seen.
    #[must_use]
    pub fn next_tree(&self) -> TreeId {
        self.next_tree
    }

    /// Takes note of a page change's attachment.
    pub fn page_change(&mut self, lsn: Lsn, page: PageId, attachment: &[u8]) -> Result<(), Malformed> {
        match Attachment::decode(attachment)? {
            Attachment::None => {}
            Attachment::Change { txn, index, undo } => {
                self.see(txn);
                let found = self.open.entry(txn).or_default();
                match Undo::decode(undo)? {
                    Undo::TreeCreated { tree, .. } => {
                        self.next_tree = self.next_tree.max(TreeId(tree.0 + 1));
                        let mut entry = Vec::new();
                        undo::encode_tree_created(&mut entry, tree, Some(page));
                        found.versions.restore(index, &entry, lsn);
                    }
                    Undo::Row { tree, key, deletes, before, .. } => {
                        found.versions.restore(index, undo, lsn);
                        // One that it makes; or one that comes back if it is undone, by now or
                        // later.
                        if deletes || before.is_ghost() {
                            self.note(tree, key);
                        }
                    }
                }
            }
            Attachment::Spilled { txn, index } => {
                self.see(txn);
                if let Some(found) = self.open.get_mut(&txn) {
                    found.versions.mark_spilled(index);
                }
            }
            Attachment::Compensation { txn, index } => {
                self.see(txn);
                let mut entry = Vec::new();
                if let Some(found) = self.open.get_mut(&txn) {
                    if found.versions.read(index, &mut entry) != Lookup::Copied {
                        entry.clear();
                    }
                    found.versions.forget(index);
                    // A prepared transaction of which something is undone was being rolled back: it
                    // cannot be committed any more. (A return to a savepoint comes before the
                    // prepare record.)
                    found.prepared = None;
                }
                if let Ok(Undo::Row { tree, key, before: Before::Absent, .. }) = Undo::decode(&entry) {
                    // The row is removed, and its leaf may be empty: the merge that follows may
                    // have failed.
                    self.note(tree, key);
                }
            }
        }
        Ok(())
    }

    fn note(&mut self, tree: TreeId, key: &[u8]) {
        if let Some(ghosts) = &mut self.ghosts {
            ghosts.add_key(tree, key);
        }
    }

    /// Takes note of a record of this layer's own kinds.
    pub fn record(&mut self, record: Record<'_>) -> Result<(), Malformed> {
        let mut reader = Reader::new(record.body);
        let txn = TxnId(reader.varint()?);
        self.see(txn);
        match record.kind {
            Kind::COMMIT | Kind::ABORT => {
                self.open.remove(&txn);
            }
            Kind::PREPARE => {
                let gid = reader.blob()?.to_vec();
                let mut keys = Vec::new();
                while !reader.is_empty() {
                    keys.push(read_key(&mut reader)?);
                }
                self.open.entry(txn).or_default().prepared = Some((gid, keys));
            }
            Kind::ROLLBACK => {
                if let Some(found) = self.open.get_mut(&txn) {
                    found.prepared = None;
                }
            }
            _ => return Err(Malformed { what: "an unknown kind of transaction record" }),
        }
        Ok(())
    }

    fn see(&mut self, txn: TxnId) {
        self.next_txn = self.next_txn.max(TxnId(txn.0 + 1));
    }
}

impl TxnManager {
    /// What a checkpoint record must say; read `log.end()` before the call.
    #[must_use]
    pub fn checkpoint_state(&self) -> CheckpointState {
        let list = |list: &PreparedList| -> BTreeMap<TxnId, (Vec<u8>, Vec<LockedKey>)> {
            list.iter().map(|(gid, found)| (found.state.id, (gid.clone(), found.keys.clone()))).collect()
        };
        let mut prepared = list(&self.prepared.lock());
        let (next_txn, running, active) = {
            let registry = self.registry.lock();
            let open = registry.active.values().filter_map(|state| {
                let entries = state.versions.lock().next_index();
                // Without any there is nothing to undo; if it makes one from now on, its record
                // tells.
                let prepared = prepared.remove(&state.id);
                (entries > 0).then_some(OpenTransaction { id: state.id, entries, prepared })
            });
            let active = open.collect();
            let running: Vec<_> = registry.active.values().cloned().collect();
            (registry.next(), running, active)
        };
        // Transactions that end meanwhile hand in their ghosts, which are read next.
        let mut ghosts = recovered_ranges();
        running.iter().for_each(|state| state.versions.lock().ghosts.add_to(&mut ghosts));
        let ghosts = self.ghosts_to_keep(ghosts);
        CheckpointState { next_txn, next_tree: self.peek_next_tree(), active, ghosts }
    }

    /// Takes over the open transactions that analysis found: from here on their rows are locked and
    /// others see the versions before. The manager was made with the analysis's next ids.
    pub fn adopt(&self, analysis: Analysis) -> LoserReport {
        let mut report = LoserReport::default();
        self.backlog.recover(analysis.ghosts.as_ref());
        for (id, found) in analysis.open {
            let mut state = TxnState::new(id);
            state.found_by_recovery = true;
            let mut versions = state.versions.lock();
            *versions = found.versions;
            // It may have spilled some after the checkpoint.
            versions.spilled = true;
            versions.start_at(found.entries);
            versions.account(&self.version_bytes);
            versions.promise(self.log.undo_promise());
            drop(versions);
            if found.prepared.is_some() {
                state.set_status(Status::Prepared);
            }
            let state = Arc::new(state);
            self.enroll_found(state.clone());
            match found.prepared {
                Some((gid, keys)) => {
                    let mut held = HeldLocks::default();
                    for (tree, key) in &keys {
                        let wanted = Wanted { tree: *tree, key, mode: Mode::Exclusive };
                        let locked = self.locks.lock_key(id, wanted, Turn::Fair, &mut held);
                        debug_assert_eq!(locked, Ok(()), "two held it when they were prepared");
                    }
                    self.log.decisions().fetch_add(1, Ordering::SeqCst);
                    let prepared = Prepared::found(state, held, keys, &gid);
                    self.prepared.lock().insert(gid, prepared);
                    report.prepared += 1;
                }
                None => {
                    self.add_loser(state);
                    report.losers += 1;
                }
            }
        }
        report
    }

    #[must_use]
    pub fn prepared(&self) -> Vec<PreparedTransaction> {
        let list = self.prepared.lock();
        list.iter().map(|(gid, found)| PreparedTransaction { id: found.state.id, gid: gid.clone() }).collect()
    }

    /// Refuses further work and forgets open transactions without undoing them: recovery will. For
    /// a close that must not take long.
    pub fn abandon(&self) {
        self.poison(TxnError::new(TxnErrorKind::Closed, "the database was closed"));
    }
}

#[cfg(test)]
mod tests;
