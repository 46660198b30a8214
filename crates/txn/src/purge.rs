//! Forgetting what nobody needs any more, and spilling what must be kept: background steps.

use crate::manager::undo_key;
use crate::state::{Entry, TxnState};
use crate::{RowHeader, TxnError, TxnErrorKind, TxnManager};
use firn_base::sync::Arc;
use firn_base::sync::atomic::Ordering;
use firn_base::{Lsn, Progress, TxnId};
use firn_btree::{Change, Direction, Position, Visit};
use firn_log::LogClass;

/// Committed transactions looked at in one go.
const BATCH: usize = 64;

/// What is removed because nobody needs it waits until there is room: it never takes what is kept for undoing.
const HOUSEKEEPING: LogClass = LogClass::Normal;

impl TxnManager {
    /// Forgets the before-images of committed transactions that every snapshot sees. Cheap: every commit
    /// does a little of it.
    pub(crate) fn purge_versions(&self) -> Progress {
        let mut done: [Option<Arc<TxnState>>; BATCH] = [const { None }; BATCH];
        let (count, low) = {
            let mut registry = self.registry.lock();
            let horizon = registry.horizon();
            let mut count = 0;
            while count < BATCH && registry.ended.front().is_some_and(|ended| ended.sequence <= horizon) {
                done[count] = registry.ended.pop_front().map(|ended| ended.state);
                count += 1;
            }
            (count, registry.low_water())
        };
        self.raise_low_water(low);
        for state in done.into_iter().flatten() {
            self.retire(state.id);
            let mut versions = state.versions.lock();
            let ghosts = std::mem::take(&mut versions.ghosts);
            let spilled = versions.spilled;
            let memory = versions.clear_for_reuse(&self.version_bytes);
            if !ghosts.is_empty() || spilled {
                versions.ghosts = ghosts;
                versions.spilled = spilled;
                drop(versions);
                self.ghosts.lock().push(state);
            } else {
                drop(versions);
            }
            self.spare.keep(memory);
        }
        if count == BATCH { Progress::Worked } else { Progress::Idle }
    }

    /// Background step: forgets before-images, removes ghost rows from their pages and spilled entries from
    /// the undo tree, a bounded number at a time.
    ///
    /// Errors: those of the pages it touches. `LogFull` is not one of them: it waits for room.
    pub fn maintenance_step(&self) -> Result<Progress, TxnError> {
        self.check_usable()?;
        let mut progress = self.purge_versions();
        let taken = self.ghosts.lock().pop();
        if let Some(state) = taken {
            progress = Progress::Worked;
            if let Err(error) = self.remove_leftovers(&state) {
                self.ghosts.lock().push(state);
                return if error.kind == TxnErrorKind::LogFull { Ok(Progress::Idle) } else { Err(error) };
            }
        } else if self.orphans_below.load(Ordering::Relaxed) > 0 {
            progress = Progress::Worked;
            if let Err(error) = self.sweep_orphans() {
                return if error.kind == TxnErrorKind::LogFull { Ok(Progress::Idle) } else { Err(error) };
            }
        }
        Ok(progress)
    }

    fn remove_leftovers(&self, state: &TxnState) -> Result<(), TxnError> {
        loop {
            let Some((tree, key)) = state.versions.lock().ghosts.pop() else { break };
            if let Some(tree) = self.tree(tree) {
                self.remove_ghost(&tree, &key, state.id)?;
            }
        }
        if state.versions.lock().spilled {
            self.remove_spilled(state.id, HOUSEKEEPING)?;
        }
        Ok(())
    }

    /// Takes a ghost out of its leaf, if it is still the one that `writer` left and nobody locks its key.
    fn remove_ghost(&self, tree: &firn_btree::Tree, key: &[u8], writer: TxnId) -> Result<(), TxnError> {
        let decide =
            |current: Option<&[u8]>, change: &mut Change, _: &mut Vec<u8>| -> Result<bool, TxnError> {
                let Some((header, _)) = current.map(RowHeader::split).transpose()? else { return Ok(false) };
                let remove = header.ghost && header.writer == writer && !self.locks.is_locked(tree.id(), key);
                if remove {
                    *change = Change::Remove;
                }
                Ok(remove)
            };
        let (removed, _) = tree.modify(key, HOUSEKEEPING, decide)?;
        self.counters.ghosts_removed.fetch_add(u64::from(removed), Ordering::Relaxed);
        Ok(())
    }

    /// Removes all spilled entries of a transaction.
    pub(crate) fn remove_spilled(&self, id: TxnId, class: LogClass) -> Result<(), TxnError> {
        let first = undo_key(id, 0);
        loop {
            let mut keys = Vec::new();
            let mut position = Position::At(first.to_vec());
            while keys.is_empty() {
                let mut past = false;
                let next = self.undo.visit_leaf(&position, Direction::Forward, |key, _| {
                    past = key[..8] != first[..8];
                    if past {
                        return Visit::Stop;
                    }
                    keys.push(key.to_vec());
                    Visit::Continue
                })?;
                match next {
                    Some(next) if !past => position = next,
                    _ => break,
                }
            }
            if keys.is_empty() {
                return Ok(());
            }
            for key in &keys {
                self.remove_undo(key, class)?;
            }
        }
    }

    /// Removes entries that an earlier life of the database left in the undo tree for transactions that have
    /// ended; a leaf at a time.
    fn sweep_orphans(&self) -> Result<(), TxnError> {
        let below = TxnId(self.orphans_below.load(Ordering::Relaxed));
        let mut keys = Vec::new();
        let mut position = Position::Start;
        loop {
            let next = self.undo.visit_leaf(&position, Direction::Forward, |key, _| {
                let id = key.first_chunk::<8>().map_or(TxnId(0), |id| TxnId(u64::from_be_bytes(*id)));
                if id >= below {
                    return Visit::Stop;
                }
                if self.has_ended(id) && self.find(id).is_none() {
                    keys.push(key.to_vec());
                }
                Visit::Continue
            })?;
            match next {
                Some(next) if keys.is_empty() && position != next => position = next,
                _ => break,
            }
        }
        if keys.is_empty() {
            self.orphans_below.store(0, Ordering::Relaxed);
        }
        for key in keys {
            self.remove_undo(&key, HOUSEKEEPING)?;
        }
        Ok(())
    }

    /// Moves one entry into the undo tree, unless it has been used or forgotten meanwhile.
    fn spill_entry(&self, state: &TxnState, index: u32, scratch: &mut Vec<u8>) -> Result<(), TxnError> {
        let _moving = state.moving.lock();
        if state.versions.lock().read(index, scratch) != Entry::Copied {
            return Ok(());
        }
        let key = undo_key(state.id, index);
        let decide = |current: Option<&[u8]>, change: &mut Change, _: &mut Vec<u8>| -> Result<(), TxnError> {
            // Recovery reads from the log what an earlier life had spilled already.
            if current != Some(&scratch[..]) {
                *change = Change::put_parts(&[scratch]);
            }
            Ok(())
        };
        self.undo.modify(&key, LogClass::System, decide)?;
        let kept = {
            let mut versions = state.versions.lock();
            let kept = versions.mark_spilled(index);
            versions.account(&self.version_bytes);
            versions.promise(self.log.undo_promise());
            kept
        };
        if !kept {
            // It committed and was purged: nobody else would take the entry out of the undo tree.
            return self.remove_undo(&key, LogClass::System);
        }
        self.counters.spilled.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Moves before-images whose log is older than `lsn` into the undo tree, so that open transactions do
    /// not pin the log. For checkpoints.
    pub fn spill_older_than(&self, lsn: Lsn) -> Result<(), TxnError> {
        let active: Vec<Arc<TxnState>> = self.registry.lock().active.values().cloned().collect();
        let mut scratch = Vec::new();
        for state in active {
            loop {
                let oldest = state.versions.lock().oldest_to_spill(lsn);
                let Some(index) = oldest else { break };
                self.spill_entry(&state, index, &mut scratch)?;
            }
        }
        Ok(())
    }

    /// Oldest log that an open transaction needs for its undo; read `log.end()` before the call.
    #[must_use]
    pub fn oldest_needed_lsn(&self) -> Option<Lsn> {
        let registry = self.registry.lock();
        registry.active.values().filter_map(|state| state.versions.lock().oldest_lsn()).min()
    }

    /// Brings the before-images in memory back under their budget: forgets, then spills those of committed
    /// transactions, then `own`.
    pub(crate) fn spill_for_budget(&self, own: &TxnState) -> Result<(), TxnError> {
        let over = || self.version_bytes.load(Ordering::Relaxed) > self.options.version_budget_bytes;
        while over() && self.purge_versions() == Progress::Worked {}
        let mut scratch = Vec::new();
        while over() {
            let spilled_to = self.ended_spilled.load(Ordering::Relaxed);
            let next = {
                let registry = self.registry.lock();
                let start = registry.ended.partition_point(|ended| ended.sequence <= spilled_to);
                registry.ended.get(start).map(|ended| (ended.sequence, ended.state.clone()))
            };
            let Some((sequence, state)) = next else { break };
            self.spill_all(&state, &mut scratch)?;
            self.ended_spilled.fetch_max(sequence, Ordering::Relaxed);
        }
        if over() { self.spill_all(own, &mut scratch) } else { Ok(()) }
    }

    fn spill_all(&self, state: &TxnState, scratch: &mut Vec<u8>) -> Result<(), TxnError> {
        loop {
            let oldest = state.versions.lock().oldest_to_spill(Lsn::MAX);
            let Some(index) = oldest else { return Ok(()) };
            // For a statement, which may find room for its pages where a `Normal` one would not: what it deletes makes
            // some. But it would be refused, too, if there is none in the log.
            if self.log.space().normal_bytes == 0 {
                let message = "the log has no room for before-images that are more than fit into memory";
                return Err(TxnError::new(TxnErrorKind::LogFull, message));
            }
            self.spill_entry(state, index, scratch)?;
        }
    }
}
