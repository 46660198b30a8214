//! The prepared transactions by their global ids, and what they may take in a checkpoint.

use crate::error::{TxnError, TxnErrorKind};
use crate::locks::HeldLocks;
use crate::state::{Status, TxnState};
use firndb_base::codec::Writer;
use firndb_base::sync::Arc;
use firndb_base::{TreeId, TxnId};
use firndb_log::Log;
use std::collections::BTreeMap;

/// The share of the log's capacity, as a divisor, that prepared transactions may take in each
/// checkpoint: global ids and locked keys.
const LIST_SHARE: u64 = 64;

/// A key that a transaction has locked for update.
pub type LockedKey = (TreeId, Vec<u8>);

pub(crate) struct Prepared {
    pub state: Arc<TxnState>,
    pub held: HeldLocks,
    /// The keys in `held`, sorted.
    pub keys: Vec<LockedKey>,
    /// Bytes of its prepare record.
    pub bytes: u64,
}

impl Prepared {
    /// One that recovery found.
    pub fn found(state: Arc<TxnState>, held: HeldLocks, keys: Vec<LockedKey>, gid: &[u8]) -> Prepared {
        let bytes = prepare_record(state.id, gid, &keys).len() as u64;
        Prepared { state, held, keys, bytes }
    }
}

/// The prepared transactions by their global ids.
#[derive(Default)]
pub(crate) struct PreparedList {
    by_gid: BTreeMap<Vec<u8>, Prepared>,
    bytes: u64,
}

impl PreparedList {
    pub fn insert(&mut self, gid: Vec<u8>, prepared: Prepared) {
        self.bytes += prepared.bytes;
        let before = self.by_gid.insert(gid, prepared);
        assert!(before.is_none(), "a global id is taken once");
        if cfg!(debug_assertions) {
            self.check();
        }
    }

    /// Asserts that all that is listed is prepared, and that its bytes are counted.
    pub fn check(&self) {
        assert_eq!(self.bytes, self.by_gid.values().map(|prepared| prepared.bytes).sum::<u64>());
        for prepared in self.by_gid.values() {
            assert_eq!(prepared.state.status(), Status::Prepared, "{} is listed", prepared.state.id);
            assert!(prepared.keys.is_sorted());
        }
    }
    pub fn get(&self, gid: &[u8]) -> Option<&Prepared> {
        self.by_gid.get(gid)
    }
    pub fn get_mut(&mut self, gid: &[u8]) -> Option<&mut Prepared> {
        self.by_gid.get_mut(gid)
    }
    pub fn remove(&mut self, gid: &[u8]) -> Option<Prepared> {
        let removed = self.by_gid.remove(gid)?;
        self.bytes -= removed.bytes;
        Some(removed)
    }
    pub fn iter(&self) -> impl Iterator<Item = (&Vec<u8>, &Prepared)> {
        self.by_gid.iter()
    }

    /// Refuses a transaction that would exceed a limit.
    pub fn admit(&self, log: &Log, gid: &[u8], record_len: usize) -> Result<(), TxnError> {
        if self.by_gid.contains_key(gid) {
            let message = "a prepared transaction has this global id already";
            return Err(TxnError::new(TxnErrorKind::BadArgument, message));
        }
        let too_many = |message: String| Err(TxnError::new(TxnErrorKind::TooMany, message));
        let (count, capacity) = (self.by_gid.len() as u64, log.space().capacity_bytes);
        if count >= log.decisions_max() {
            return too_many(format!(
                "{count} transactions are prepared, which is as many as a log of {capacity} bytes sets space aside for: commit \
                 or roll back some of them, or make the log larger"
            ));
        }
        let (len, most) = (record_len as u64, capacity / LIST_SHARE);
        if self.bytes + len > most {
            return too_many(format!(
                "the prepared transactions take {} bytes in each checkpoint, this one would take {len} more, for its global \
                 id and the keys that it has locked without writing them, and {most} is the limit with a log of {capacity} \
                 bytes: commit or roll back some of them, or make the log larger",
                self.bytes
            ));
        }
        let group_max = log.group_max();
        if Log::framed_len(record_len) > group_max {
            return too_many(format!(
                "the keys that the transaction has locked without writing them take {len} bytes, and {group_max} is the limit \
                 with this log: commit it in one phase, or make the log larger"
            ));
        }
        Ok(())
    }
}

pub(crate) fn prepare_record(id: TxnId, gid: &[u8], keys: &[LockedKey]) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_varint(id.0);
    body.put_blob(gid);
    put_keys(&mut body, keys);
    body
}

/// Appends keys, to the end of a record.
pub(crate) fn put_keys(out: &mut Vec<u8>, keys: &[LockedKey]) {
    for (tree, key) in keys {
        out.put_varint(u64::from(tree.0));
        out.put_blob(key);
    }
}
