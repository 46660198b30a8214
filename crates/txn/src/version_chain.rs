//! The versions of a row: which of them a reader sees, and how to get from one to the version
//! before.

use crate::error::{TxnError, TxnErrorKind};
use crate::header::RowHeader;
use crate::manager::TxnManager;
use crate::snapshot::Snapshot;
use crate::state::TxnState;
use crate::undo::{Before, Undo, undo_key};
use crate::versions::Lookup;
use firndb_base::TxnId;

/// Which transaction reads, and by which snapshot.
pub(crate) struct View<'a> {
    pub manager: &'a TxnManager,
    pub me: Option<TxnId>,
    pub snapshot: &'a Snapshot,
}

impl View<'_> {
    #[inline]
    pub fn sees(&self, writer: TxnId) -> bool {
        Some(writer) == self.me || self.snapshot.sees(writer)
    }

    /// The payload and flag of the version in the page, if this view sees it and it is a row.
    #[inline]
    pub fn find_now<'v>(&self, value: &'v [u8]) -> Option<(&'v [u8], bool)> {
        let (header, payload) = RowHeader::split(value).ok()?;
        (!header.ghost && self.sees(header.writer)).then_some((payload, header.flag))
    }

    /// The payload and flag of the version that this view sees, which may have been put together in
    /// `payload`; `None` if there is no row. Called under the leaf's latch.
    #[inline]
    pub fn find<'v>(
        &self,
        value: &'v [u8],
        payload: &'v mut Vec<u8>,
        scratch: &mut Vec<u8>,
    ) -> Result<Option<(&'v [u8], bool)>, TxnError> {
        if let Some(found) = self.find_now(value) {
            return Ok(Some(found));
        }
        let flag = self.resolve(value, payload, scratch)?;
        Ok(flag.map(|flag| (payload.as_slice(), flag)))
    }

    /// Finds the version that this view sees, puts its payload into `out` and returns its flag;
    /// `None` if there is no row. Called under the leaf's latch, which keeps the chain from
    /// changing at its head.
    pub fn resolve(
        &self,
        value: &[u8],
        out: &mut Vec<u8>,
        scratch: &mut Vec<u8>,
    ) -> Result<Option<bool>, TxnError> {
        let (mut header, payload) = RowHeader::split(value)?;
        out.clear();
        if self.sees(header.writer) {
            if !header.ghost {
                out.extend_from_slice(payload);
            }
            return Ok((!header.ghost).then_some(header.flag));
        }
        out.extend_from_slice(payload);
        loop {
            match self.manager.step_back(header, out, scratch)? {
                None => return Ok(None),
                Some(before) if self.sees(before.writer) => {
                    return Ok((!before.ghost).then_some(before.flag));
                }
                Some(before) => header = before,
            }
        }
    }
}

impl TxnManager {
    pub(crate) fn view<'a>(&'a self, me: Option<TxnId>, snapshot: &'a Snapshot) -> View<'a> {
        View { manager: self, me, snapshot }
    }

    /// Copies a transaction's undo entry into `out`; false if there is none.
    pub(crate) fn read_undo(
        &self,
        state: &TxnState,
        index: u32,
        out: &mut Vec<u8>,
    ) -> Result<bool, TxnError> {
        let entry = state.versions.lock().read(index, out);
        match entry {
            Lookup::Copied => Ok(true),
            Lookup::None => Ok(false),
            Lookup::InUndoTree => self.read_spilled(state.id, index, out),
        }
    }

    /// As [`TxnManager::read_undo`], of an entry in the undo tree.
    fn read_spilled(&self, id: TxnId, index: u32, out: &mut Vec<u8>) -> Result<bool, TxnError> {
        let found = self.undo.get(&undo_key(id, index), |value| {
            let Some(value) = value else { return false };
            out.clear();
            out.extend_from_slice(value);
            true
        });
        Ok(found?)
    }

    /// Steps one version back: turns `payload`, the version written by (`writer`, `index`), into
    /// the one before and returns its header; `None` if there was no row.
    pub(crate) fn step_back(
        &self,
        header: RowHeader,
        payload: &mut Vec<u8>,
        scratch: &mut Vec<u8>,
    ) -> Result<Option<RowHeader>, TxnError> {
        let missing = || {
            TxnError::new(
                TxnErrorKind::Damaged,
                format!("before-image {} of transaction {} is missing", header.undo, header.writer),
            )
        };
        let found = match self.find(header.writer) {
            Some(state) => self.read_undo(&state, header.undo, scratch)?,
            // It was spilled out: see `purge.rs`.
            None => self.read_spilled(header.writer, header.undo, scratch)?,
        };
        if !found {
            return Err(missing());
        }
        match Undo::decode(scratch)? {
            Undo::Row { before: Before::Absent, .. } => Ok(None),
            Undo::Row { before: Before::Full(before, old), .. } => {
                payload.clear();
                payload.extend_from_slice(old);
                Ok(Some(before))
            }
            Undo::Row { before: Before::Patch(before, patches), .. } => {
                patches.apply(payload)?;
                Ok(Some(before))
            }
            Undo::TreeCreated { .. } => Err(missing()),
        }
    }
}
