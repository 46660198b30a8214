//! Purging before-images that no snapshot needs, and spilling those that must be kept: background
//! steps.
//!
//! **The memory of before-images is bounded** by the budget
//! ([`ManagerOptions::version_budget_bytes`]) and [`Allowance`]: a constant for each running
//! transaction, and one for the newest commits. With a snapshot open, every commit after it must be
//! kept, for as long as it is open:
//!
//! * A transaction that commits stays in `Registry::ended`, and findable by its id, until every
//!   snapshot sees it: then it is *purged*. Where no snapshot is in use and nothing is kept, its
//!   commit purges it at once, without the queue.
//! * When newer commits have pushed it behind the newest few, it is *settled*: it keeps its
//!   before-images without spare capacity, and is counted, its `TxnState` included.
//! * When the count passes the budget, the oldest are *spilled out*: their before-images move to
//!   the undo tree, and nothing of them stays in memory but a run of ids (`Spilled` in
//!   `registry.rs`) that ends where a snapshot parts them, 64 runs at most. When every snapshot
//!   sees a run, the sweeps of the undo tree (`ghosts.rs`) remove its entries.
//!
//! Why no reader sees another version because of that, `W` being a transaction that was spilled
//! out:
//!
//! * *Has `W` ended?* A transaction that is not findable has ended (`has_ended`): true of `W`, as
//!   of a purged one. It left the list of running ones at its commit, so `low_water`, snapshots and
//!   fences never knew the difference.
//! * *Reading.* A reader that does not see `W` asks for its before-image by (id, index): of a
//!   transaction that is not findable, in the undo tree. There it is: it was put in before `W`
//!   became unfindable, and is removed only when every snapshot sees `W`, which this reader's does
//!   not. A reader that found `W` just before finds in it that all entries are in the undo tree.
//! * *Removal* of `W`'s ghosts and entries asks whether every snapshot sees `W`
//!   (`TxnManager::fate`): it is older than `low_water`, or it is not findable and in no run. The
//!   run is noted before `W` becomes unfindable, and both are read in the other order. Runs may
//!   cover ids of others; that only delays.
//! * *Purging beside spilling.* A thread that has put an entry into the undo tree and finds it gone
//!   from memory removes it again; a thread that purges a transaction that ever spilled has its
//!   entries swept. So none is left, in either order.
//! * *A crash* ends all snapshots: what the undo tree holds of ended transactions is garbage, and
//!   the first sweep after the opening removes it.
//!
//! A step never returns damage: it is set aside.

use crate::attachment;
use crate::error::{TxnError, TxnErrorKind};
use crate::manager::TxnManager;
use crate::registry::Registry;
use crate::snapshot::Snapshot;
use crate::state::TxnState;
use crate::undo::undo_key;
use crate::versions::{Lookup, VersionMemory};
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::Ordering;
use firndb_base::{Lsn, Progress, TxnId};
use firndb_btree::{Change, Direction, Position, Visit};
use firndb_log::LogClass;

/// Committed transactions purged in one go: every commit adds one, and does this work.
const BATCH: usize = 8;
/// Purges of a background step, before it removes ghosts.
const PURGES_A_STEP: usize = 8;
/// Committed transactions settled in one go: more than are added, so that they are caught up with.
const SETTLED_A_COMMIT: usize = 2;

/// What to forget of committed transactions, and what to settle; taken out of the registry.
#[derive(Default)]
pub(crate) struct Forgotten {
    done: [Option<Arc<TxnState>>; BATCH],
    kept: [Option<Arc<TxnState>>; SETTLED_A_COMMIT],
    /// Ids of transactions whose spilled before-images no snapshot needs.
    released: Option<(TxnId, TxnId)>,
    /// One whose before-images are gone already, and which can still be found; whether any of them
    /// had been spilled.
    purged: Option<(TxnId, bool)>,
}

impl TxnManager {
    /// Forgets the before-images of committed transactions that every snapshot sees. Cheap: every
    /// commit does a little of it.
    pub(crate) fn purge_versions(&self) -> Progress {
        let forgotten = self.take_forgotten(&mut self.registry.lock(), None);
        self.forget(forgotten)
    }

    /// As [`TxnManager::purge_versions`], when a transaction that only read ends.
    pub(crate) fn release_and_purge(&self, snapshot: &Snapshot) {
        let forgotten = {
            let mut registry = self.registry.lock();
            registry.release(snapshot);
            self.take_forgotten(&mut registry, None)
        };
        self.forget(forgotten);
    }

    /// Takes out of the registry what every snapshot sees, and what is to be settled. `purged` is a
    /// transaction whose before-images are gone already, and whether any had been spilled.
    pub(crate) fn take_forgotten(&self, registry: &mut Registry, purged: Option<(TxnId, bool)>) -> Forgotten {
        let mut forgotten = Forgotten { purged, ..Forgotten::default() };
        if !registry.ended.is_empty() {
            let horizon = registry.horizon();
            for place in &mut forgotten.done {
                if registry.ended.front().is_some_and(|ended| ended.sequence <= horizon) {
                    *place = registry.ended.pop_front().map(|ended| ended.state);
                }
            }
            forgotten.kept.fill_with(|| registry.next_to_settle(self.allowance.recent));
        }
        if registry.has_spilled() {
            forgotten.released = registry.release_spilled(registry.horizon());
            if forgotten.released.is_some() {
                self.any_spilled.store(registry.has_spilled(), Ordering::SeqCst);
            }
        }
        self.raise_low_water(registry);
        forgotten
    }

    /// Forgets it. The caller does not hold the registry's lock, which this takes.
    pub(crate) fn forget(&self, forgotten: Forgotten) -> Progress {
        let Forgotten { done, kept, released, purged } = forgotten;
        if let Some((id, spilled)) = purged {
            self.retire(id);
            if spilled {
                self.backlog.leave_undo(id, id);
            }
        }
        let more = done[BATCH - 1].is_some() || released.is_some();
        if let Some((first, last)) = released {
            self.backlog.leave_undo(first, last);
        }
        if done[0].is_some() || kept[0].is_some() {
            let mut spare: [VersionMemory; BATCH + SETTLED_A_COMMIT] = Default::default();
            let states = done.into_iter().flatten().map(|state| self.purge(&state));
            let settled = kept.into_iter().flatten().map(|state| self.settle(&state));
            spare.iter_mut().zip(states.chain(settled)).for_each(|(place, memory)| *place = memory);
            let mut registry = self.registry.lock();
            spare.into_iter().for_each(|memory| registry.spare.keep(memory));
        }
        if more { Progress::Worked } else { Progress::Idle }
    }

    /// Forgets the before-images of a transaction; returns their memory.
    fn purge(&self, state: &TxnState) -> VersionMemory {
        self.retire(state.id);
        let mut versions = state.versions.lock();
        let spilled = versions.spilled;
        let memory = versions.clear_for_reuse(&self.version_bytes);
        drop(versions);
        if spilled {
            self.backlog.leave_undo(state.id, state.id);
        }
        memory
    }

    fn settle(&self, state: &TxnState) -> VersionMemory {
        state.versions.lock().settle_kept(&self.version_bytes)
    }

    /// Background step: forgets before-images, removes ghost rows from their pages and spilled
    /// entries from the undo tree, a bounded number at a time.
    ///
    /// Errors: those of devices and of space in the store. Neither `LogFull`, which it waits out,
    /// nor damage, which it sets aside.
    pub fn maintenance_step(&self) -> Result<Progress, TxnError> {
        // What they leave is swept when all of them are forgotten.
        if self.purge_step()? == Progress::Worked {
            return Ok(Progress::Worked);
        }
        match self.ghost_step() {
            Err(error) if error.kind == TxnErrorKind::LogFull => Ok(Progress::Idle),
            outcome => outcome,
        }
    }

    /// The part of [`TxnManager::maintenance_step`] that sweeps no leaves. `Idle` if little was to
    /// be done.
    ///
    /// Errors: the manager is not usable.
    pub fn purge_step(&self) -> Result<Progress, TxnError> {
        self.check_usable()?;
        let many = (0..PURGES_A_STEP).all(|_| self.purge_versions() == Progress::Worked);
        Ok(if many { Progress::Worked } else { Progress::Idle })
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

    /// Moves one entry into the undo tree, unless it has been used or forgotten meanwhile.
    fn spill_entry(&self, state: &TxnState, index: u32, scratch: &mut Vec<u8>) -> Result<(), TxnError> {
        let _moving = state.moving.lock();
        if state.versions.lock().read(index, scratch) != Lookup::Copied {
            return Ok(());
        }
        let key = undo_key(state.id, index);
        let decide =
            |current: Option<&[u8]>, change: &mut Change, attached: &mut Vec<u8>| -> Result<(), TxnError> {
                // Recovery reads from the log what an earlier epoch had spilled already.
                if current != Some(&scratch[..]) {
                    *change = Change::put_parts(&[scratch]);
                    attachment::spilled(attached, state.id, index);
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
            // It committed and was purged: no other thread would remove the entry from the undo
            // tree.
            return self.remove_undo(&key, LogClass::System).map(|_| ());
        }
        self.counters.spilled.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Moves before-images whose log is older than `lsn` into the undo tree, so that open
    /// transactions do not pin the log. For checkpoints.
    ///
    /// What does not find its page in the undo tree, because that is damaged, stays in memory and
    /// holds the log until its transaction ends. A checkpoint does not fail for it.
    pub fn spill_older_than(&self, lsn: Lsn) -> Result<(), TxnError> {
        let active: Vec<Arc<TxnState>> = self.registry.lock().active.values().cloned().collect();
        let mut scratch = Vec::new();
        for state in active {
            loop {
                let oldest = state.versions.lock().oldest_to_spill(lsn);
                let Some(index) = oldest else { break };
                match self.spill_entry(&state, index, &mut scratch) {
                    Err(error) if error.concerns_a_page() => {
                        self.set_aside("moving before-images from the log to the undo tree", &error);
                        break;
                    }
                    outcome => outcome?,
                }
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

    /// Brings the before-images in memory back under their budget: forgets, then spills committed
    /// transactions out, then spills `own`.
    pub(crate) fn spill_for_budget(&self, own: &TxnState) -> Result<(), TxnError> {
        let over = || self.version_bytes.load(Ordering::Relaxed) > self.options.version_budget_bytes;
        while over() && self.purge_versions() == Progress::Worked {}
        let mut scratch = Vec::new();
        while over() {
            let oldest = {
                let registry = self.registry.lock();
                registry.ended.front().map(|ended| (ended.sequence, ended.state.clone()))
            };
            let Some((sequence, state)) = oldest else { break };
            self.spill_all(&state, &mut scratch)?;
            self.leave_spilled(sequence, &state);
        }
        if over() { self.spill_all(own, &mut scratch) } else { Ok(()) }
    }

    /// Forgets a committed transaction whose before-images are all in the undo tree, if it is still
    /// the oldest.
    fn leave_spilled(&self, sequence: u64, state: &TxnState) {
        {
            let mut registry = self.registry.lock();
            if !registry.leave_spilled(sequence) {
                return;
            }
            // Before it can no longer be found: see `is_spilled_out`.
            self.any_spilled.store(true, Ordering::SeqCst);
        }
        self.retire(state.id);
        state.versions.lock().leave_spilled(&self.version_bytes);
    }

    /// Whether a transaction that cannot be found may have left before-images in the undo tree that
    /// some snapshot needs. To be asked after it was not found.
    pub(crate) fn is_spilled_out(&self, id: TxnId) -> bool {
        self.any_spilled.load(Ordering::SeqCst) && self.registry.lock().is_spilled_out(id)
    }

    fn spill_all(&self, state: &TxnState, scratch: &mut Vec<u8>) -> Result<(), TxnError> {
        loop {
            let oldest = state.versions.lock().oldest_to_spill(Lsn::MAX);
            let Some(index) = oldest else { return Ok(()) };
            // For a statement, which may find space for its pages where a `Normal` record would
            // not: what it deletes frees some. But it would be refused, too, if there is none in
            // the log.
            if self.log.space().normal_bytes == 0 {
                let message = "the log has no space for before-images that are more than fit into memory";
                return Err(TxnError::new(TxnErrorKind::LogFull, message));
            }
            self.spill_entry(state, index, scratch)?;
        }
    }
}
