//! The transactions' part in checkpoints and recovery.
//!
//! A checkpoint names the open transactions. Analysis reads the log from the redo start on and rebuilds,
//! for every transaction whose end is not in it, its before-images (and so its locks: a row is locked by
//! its header). Before-images older than the redo start were spilled into the undo tree by the checkpoint.

use crate::attachment::{Attachment, kinds};
use crate::state::{Status, TxnState, Versions};
use crate::undo::{self, Undo};
use crate::{TxnError, TxnErrorKind, TxnManager};
use firn_base::codec::{Malformed, Reader, Writer};
use firn_base::sync::Arc;
use firn_base::sync::atomic::Ordering;
use firn_base::{Lsn, PageId, TreeId, TxnId};
use firn_log::Record;
use std::collections::BTreeMap;

/// What a checkpoint record says of transactions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointState {
    /// Past every transaction id given out.
    pub next_txn: TxnId,
    /// Past every tree id given out.
    pub next_tree: TreeId,
    /// Open transactions: id, entries made, global id if prepared.
    pub active: Vec<(TxnId, u32, Option<Vec<u8>>)>,
}

impl CheckpointState {
    /// Of a fresh database.
    #[must_use]
    pub fn fresh(next_tree: TreeId) -> CheckpointState {
        CheckpointState { next_txn: TxnId(1), next_tree, active: Vec::new() }
    }

    /// Appends its bytes: next transaction varint, next tree varint, count varint, then for each: id
    /// varint, entries varint, global id blob (empty: not prepared).
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.next_txn.0);
        out.put_varint(u64::from(self.next_tree.0));
        out.put_varint(self.active.len() as u64);
        for (id, entries, gid) in &self.active {
            out.put_varint(id.0);
            out.put_varint(u64::from(*entries));
            out.put_blob(gid.as_deref().unwrap_or_default());
        }
    }

    /// Reads what [`CheckpointState::encode`] wrote.
    pub fn decode(reader: &mut Reader<'_>) -> Result<CheckpointState, Malformed> {
        let next_txn = TxnId(reader.varint()?);
        let next_tree = TreeId(reader.varint_max(u32::MAX as usize)? as u32);
        let count = reader.varint_max(reader.rest().len())?;
        let mut active = Vec::with_capacity(count);
        for _ in 0..count {
            let id = TxnId(reader.varint()?);
            let entries = reader.varint_max((1 << 31) - 1)? as u32;
            let gid = reader.blob()?;
            active.push((id, entries, (!gid.is_empty()).then(|| gid.to_vec())));
        }
        Ok(CheckpointState { next_txn, next_tree, active })
    }
}

/// A transaction that waits for its fate from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedTransaction {
    /// Its id in this database.
    pub id: TxnId,
    /// Its global id.
    pub gid: Vec<u8>,
}

/// What recovery found open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoserReport {
    /// Transactions to be rolled back.
    pub losers: u64,
    /// Prepared transactions.
    pub prepared: u64,
}

#[derive(Debug, Default)]
struct Found {
    versions: Versions,
    entries: u32,
    gid: Option<Vec<u8>>,
}

/// Rebuilds the open transactions from the log.
#[derive(Debug)]
pub struct Analysis {
    next_txn: TxnId,
    next_tree: TreeId,
    open: BTreeMap<TxnId, Found>,
}

impl Analysis {
    /// Starts from the last checkpoint's list. Then every record since its redo start is shown, in order.
    #[must_use]
    pub fn new(checkpoint: CheckpointState) -> Analysis {
        let open = checkpoint
            .active
            .into_iter()
            .map(|(id, entries, gid)| (id, Found { entries, gid, ..Found::default() }));
        Analysis { next_txn: checkpoint.next_txn, next_tree: checkpoint.next_tree, open: open.collect() }
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
                    Undo::Row { .. } => found.versions.restore(index, undo, lsn),
                }
            }
            Attachment::Compensation { txn, index } => {
                self.see(txn);
                if let Some(found) = self.open.get_mut(&txn) {
                    found.versions.forget(index);
                    // A prepared transaction of which something is undone was being rolled back: it cannot be
                    // committed any more. (A return to a savepoint comes before the prepare record.)
                    found.gid = None;
                }
            }
        }
        Ok(())
    }

    /// Takes note of a record of this floor's own kinds (0x40–0x4f).
    pub fn record(&mut self, record: Record<'_>) -> Result<(), Malformed> {
        let mut reader = Reader::new(record.body);
        let txn = TxnId(reader.varint()?);
        self.see(txn);
        match record.kind {
            kinds::COMMIT | kinds::ABORT => {
                self.open.remove(&txn);
            }
            kinds::PREPARE => {
                let gid = reader.blob()?.to_vec();
                self.open.entry(txn).or_default().gid = Some(gid);
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
        let gids: BTreeMap<TxnId, Vec<u8>> =
            self.prepared.lock().iter().map(|(gid, state)| (state.id, gid.clone())).collect();
        let registry = self.registry.lock();
        let active = registry
            .active
            .values()
            .map(|state| (state.id, state.versions.lock().next_index(), gids.get(&state.id).cloned()));
        CheckpointState {
            next_txn: registry.next(),
            next_tree: self.peek_next_tree(),
            active: active.collect(),
        }
    }

    /// Takes over the open transactions that analysis found: from here on their rows are locked and others
    /// see the versions before. The manager was made with the analysis's next ids.
    pub fn adopt(&self, analysis: Analysis) -> LoserReport {
        let mut report = LoserReport::default();
        for (id, found) in analysis.open {
            let mut state = TxnState::new(id);
            state.found_by_recovery = true;
            let versions = state.versions.get_mut();
            *versions = found.versions;
            // It may have spilled some after the checkpoint.
            versions.spilled = true;
            versions.start_at(found.entries);
            versions.account(&self.version_bytes);
            versions.promise(self.log.undo_promise());
            if found.gid.is_some() {
                state.set_status(Status::Prepared);
            }
            let state = Arc::new(state);
            self.enroll_found(state.clone());
            match found.gid {
                Some(gid) => {
                    self.prepared.lock().insert(gid, state);
                    report.prepared += 1;
                }
                None => {
                    self.losers.lock().insert(id, state);
                    report.losers += 1;
                }
            }
        }
        report
    }

    /// Rolls back one transaction that recovery found open and not prepared; false if there is none left.
    /// Others may run meanwhile, and call this too.
    pub fn rollback_loser(&self) -> Result<bool, TxnError> {
        let _undoing = self.undoing.lock();
        let first = self.losers.lock().first_key_value().map(|(_, state)| state.clone());
        first.map_or(Ok(false), |state| self.roll_back_found(&state).map(|()| true))
    }

    /// How many are left to be rolled back.
    #[must_use]
    pub fn losers_left(&self) -> usize {
        self.losers.lock().len()
    }

    /// Has whoever waits for a loser roll it back, because nobody else may do it: for databases without threads.
    pub fn have_waiters_undo(&self) {
        self.waiters_undo.store(true, Ordering::Relaxed);
    }

    /// Rolls back the losers among `blockers` if waiters do that; whether there was one. The caller holds no latch. Who
    /// would wait for one that was put off tries it, too: if there is no room, there is none for the caller either.
    pub(crate) fn undo_instead_of_waiting(&self, blockers: &[TxnId]) -> Result<bool, TxnError> {
        if !self.waiters_undo.load(Ordering::Relaxed) && !self.has_put_off() {
            return Ok(false);
        }
        let mut undone = false;
        for id in blockers {
            undone |= self.undo_loser(*id)?;
        }
        Ok(undone)
    }

    /// Rolls a transaction back if it is a loser; whether it was one.
    pub(crate) fn undo_loser(&self, id: TxnId) -> Result<bool, TxnError> {
        let _undoing = self.undoing.lock();
        let loser = self.losers.lock().get(&id).cloned();
        loser.map_or(Ok(false), |state| self.roll_back_found(&state).map(|()| true))
    }

    /// The caller holds `undoing`. After an error it is a loser as before: what is undone already is recognised.
    fn roll_back_found(&self, state: &Arc<TxnState>) -> Result<(), TxnError> {
        assert!(self.undoing.is_locked() && state.status() == Status::Active);
        self.roll_back_state(state, &mut Default::default())?;
        let mut losers = self.losers.lock();
        losers.remove(&state.id);
        if losers.is_empty() {
            self.put_off.store(false, Ordering::SeqCst);
        }
        Ok(())
    }

    /// The prepared transactions, and those of which nobody could be told yet that they are rolled back.
    #[must_use]
    pub fn prepared(&self) -> Vec<PreparedTransaction> {
        let (prepared, unfinished) = (self.prepared.lock(), self.unfinished.lock());
        let all = prepared.iter().chain(unfinished.iter());
        all.map(|(gid, state)| PreparedTransaction { id: state.id, gid: gid.clone() }).collect()
    }

    /// Refuses further work and forgets open transactions without undoing them: recovery will. For a close
    /// that must not take long.
    pub fn abandon(&self) {
        self.poison(TxnError::new(TxnErrorKind::Closed, "the database was closed"));
        self.orphans_below.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checkpoint_state_round_trips() {
        let state = CheckpointState {
            next_txn: TxnId(77),
            next_tree: TreeId(5),
            active: vec![(TxnId(3), 9, None), (TxnId(70), 1, Some(b"gid".to_vec()))],
        };
        let mut bytes = Vec::new();
        state.encode(&mut bytes);
        assert_eq!(CheckpointState::decode(&mut Reader::new(&bytes)), Ok(state));
        for cut in 0..bytes.len() {
            assert!(CheckpointState::decode(&mut Reader::new(&bytes[..cut])).is_err(), "cut at {cut}");
        }
    }

    /// It was once found prepared again, with half of it undone.
    #[test]
    fn a_prepared_transaction_that_was_being_rolled_back_is_rolled_back() {
        let state = CheckpointState {
            next_txn: TxnId(5),
            next_tree: TreeId(5),
            active: vec![(TxnId(3), 2, Some(b"gid".to_vec())), (TxnId(4), 2, None)],
        };
        let mut analysis = Analysis::new(state);
        let mut undone = Vec::new();
        crate::attachment::compensation(&mut undone, TxnId(3), 1);
        analysis.page_change(Lsn(5000), PageId(1), &undone).expect("well-formed");
        assert_eq!(analysis.open[&TxnId(3)].gid, None);
        // A return to a savepoint before the prepare record says nothing.
        crate::attachment::compensation(&mut undone, TxnId(4), 1);
        analysis.page_change(Lsn(5100), PageId(1), &undone).expect("well-formed");
        analysis.record(Record { kind: kinds::PREPARE, body: &[4, 1, b'g'] }).expect("well-formed");
        assert_eq!(analysis.open[&TxnId(4)].gid.as_deref(), Some(&b"g"[..]));
    }

    #[test]
    fn analysis_keeps_what_has_not_ended() {
        let mut analysis = Analysis::new(CheckpointState::fresh(TreeId(10)));
        let mut change = |txn: u64, index: u32| {
            let mut bytes = Vec::new();
            crate::attachment::begin_change(&mut bytes, TxnId(txn), index);
            undo::encode_absent(&mut bytes, TreeId(3), b"key");
            analysis.page_change(Lsn(5000), PageId(1), &bytes).expect("well-formed");
        };
        change(1, 0);
        change(2, 0);
        change(2, 1);
        change(3, 0);
        analysis.record(Record { kind: kinds::COMMIT, body: &[1, 0] }).expect("well-formed");
        analysis.record(Record { kind: kinds::PREPARE, body: &[3, 1, b'g'] }).expect("well-formed");
        assert_eq!(analysis.open.keys().copied().collect::<Vec<_>>(), [TxnId(2), TxnId(3)]);
        assert_eq!(analysis.open[&TxnId(2)].versions.next_index(), 2);
        assert_eq!(analysis.open[&TxnId(3)].gid.as_deref(), Some(&b"g"[..]));
        assert_eq!(analysis.next_txn(), TxnId(4));
    }
}
