//! Making the map durable: records go into the map log, and rounds of the sweep into metadata
//! pages.
//!
//! Why a crash at any point loses nothing: the log is durable past every record before a block of
//! the map log, or a page that contains it, is written (WAL rule); a block goes where no live one
//! lies; a page goes to the slot that is not its newest durable one, and the newer slot counts only
//! once it is whole. Blocks, and a round, are synced before the next are begun.

use super::map_log::{Batch, Position};
use super::meta_cache::WriteOut;
use super::meta_page;
use super::state::{Store, count};
use crate::error::{TierError, TierErrorKind};
use firndb_base::Lsn;
use firndb_device::{AlignedBuf, DeviceErrorKind, Durability, Io, IoOp};

/// State under the lock on rounds: the reused buffer in which a round is composed.
#[derive(Default)]
pub(crate) struct Rounds {
    staging: Option<AlignedBuf>,
}

/// How much memory waits for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crowded {
    /// As much as it should.
    Half,
    /// Half as much again, or more.
    Full,
}

impl Rounds {
    /// A buffer of `len` bytes with undefined contents.
    fn staging(&mut self, len: usize) -> &mut [u8] {
        let kept = self.staging.take().filter(|kept| kept.len() >= len);
        let staging = self.staging.insert(kept.unwrap_or_else(|| AlignedBuf::zeroed(len)));
        &mut staging[..len]
    }
}

impl Store {
    /// Makes durable what the records before the call changed. Releases the lock between two
    /// batches: threads that change pages may be waiting for it.
    pub(crate) fn write_back_all(&self) -> Result<(), TierError> {
        self.poison.check()?;
        // What comes while this runs is not waited for, or it might never end.
        let upto = self.state.lock().map_log.last();
        loop {
            let rounds = &mut self.write_back.lock();
            if self.state.lock().map_log.needed_from().is_none_or(|first| first > upto) {
                return self.sync_what_was_found();
            }
            self.append(rounds)?;
            self.keep_pace(rounds)?;
        }
    }

    /// Appends the next records to the map log, durably; or sweeps full circle, if it has no space
    /// for them.
    fn append(&self, rounds: &mut Rounds) -> Result<(), TierError> {
        self.journal()?;
        let (batch, groups) = {
            let state = self.state.lock();
            if state.map_log.fresh_bytes() == 0 {
                return Ok(());
            }
            (state.map_log.next_batch(&self.geometry, state.space.groups()), state.space.groups())
        };
        let Some(batch) = batch else { return self.sweep_all(rounds).map(|_| ()) };
        let mark = self.state.lock().sweep.at();
        self.append_blocks(rounds, &batch, mark)?;
        let state = &mut *self.state.lock();
        let use_of_log = (state.map_log.live(), state.map_log_capacity(&self.geometry));
        state.sweep.appended(batch.blocks().len() as u64, use_of_log, groups);
        state.share_the_budget();
        Ok(())
    }

    /// Writes the blocks of a batch, durably, after the log.
    pub(crate) fn append_blocks(
        &self,
        rounds: &mut Rounds,
        batch: &Batch,
        mark: Position,
    ) -> Result<(), TierError> {
        self.flush_log(Lsn(batch.last.0 + 1))?;
        self.poison.check()?;
        self.sync_what_was_found()?;
        let meta_bytes = self.geometry.meta_bytes;
        let numbers = batch.blocks();
        let staging = rounds.staging(meta_bytes * numbers.len());
        let (spots, head) = batch.encode(&self.geometry, self.database, staging);
        // Adjacent blocks are one request.
        let adjacent = |a: &u64, b: &u64| {
            self.geometry.block_offset(*a) + meta_bytes as u64 == self.geometry.block_offset(*b)
        };
        let mut io = Vec::new();
        let mut rest = &*staging;
        for run in numbers.chunk_by(adjacent) {
            let (bytes, after) = rest.split_at(run.len() * meta_bytes);
            rest = after;
            let offset = self.geometry.block_offset(run[0]);
            io.push(Io { offset, op: IoOp::Write(bytes, Durability::Later), outcome: Ok(()) });
        }
        self.submit_and_sync(io, numbers.len())?;
        let mut state = self.state.lock();
        state.map_log.appended(batch, &spots, head, mark);
        Ok(())
    }

    /// Makes durable what the opening found. A process that ended before its sync may have written
    /// it: nothing is written yet over what it replaces, which alone is durable then.
    fn sync_what_was_found(&self) -> Result<(), TierError> {
        if self.state.lock().map_log.unsynced {
            self.sync_device()?;
            self.state.lock().map_log.unsynced = false;
        }
        Ok(())
    }

    /// Writes something if too much of the map's budget waits for it. Called under none of the
    /// store's locks.
    ///
    /// If it is half as much again, the threads that change the map have outrun the thread that
    /// writes: then a caller waits for that, and writes once more unless it has become needless. So
    /// what is in memory beyond the budget is what each caller adds at a time.
    pub(crate) fn write_back_if_crowded(&self) -> Result<(), TierError> {
        let rounds = match self.crowded() {
            None => None,
            Some(Crowded::Half) => self.write_back.try_lock(),
            Some(Crowded::Full) => Some(self.write_back.lock()).filter(|_| self.crowded().is_some()),
        };
        // Not crowded, or another thread is writing.
        let Some(mut rounds) = rounds else { return Ok(()) };
        self.poison.check()?;
        let much_is_fresh = {
            let state = self.state.lock();
            state.map_log.fresh_bytes() > state.fresh_max()
        };
        let mut owes_sweeping = false;
        if much_is_fresh {
            self.append(&mut rounds)?;
            owes_sweeping = self.state.lock().sweep.owed > 0;
        }
        match self.crowded().is_some() || owes_sweeping {
            true => self.sweep_round(&mut rounds),
            false => Ok(()),
        }
    }

    pub(crate) fn crowded(&self) -> Option<Crowded> {
        let state = &mut *self.state.lock();
        let (budget, dirty) = (state.cache.budget_pages(), state.cache.dirty());
        // While the cache is not full there is nothing to gain.
        let dirty = if state.cache.len() >= budget { dirty } else { 0 };
        let (overlay, overlay_max) = (state.overlay.bytes(), state.overlay_max());
        // Recovery leaves up to twice as much as it should be. The sweep gets it down; no thread
        // that changes the map has outrun it, and none waits unless it grows again.
        state.overlay_found = state.overlay_found.min(overlay);
        let found = state.overlay_found.saturating_sub(overlay_max);
        let others = [(state.map_log.fresh_bytes(), state.fresh_max()), (dirty, budget / 2)];
        let over = |by: usize, overlay: usize| {
            let mut shares = [(overlay, overlay_max)].into_iter().chain(others);
            shares.any(|(is, max)| 2 * is > by * max)
        };
        match (state.recovering, over(2, overlay), over(3, overlay - found)) {
            (true, ..) | (_, false, _) => None,
            (_, true, false) => Some(Crowded::Half),
            (_, true, true) => Some(Crowded::Full),
        }
    }

    /// Writes copies of metadata pages, after the log, and syncs.
    pub(crate) fn write_out(&self, rounds: &mut Rounds, round: &[WriteOut]) -> Result<(), TierError> {
        let newest = round.iter().map(|page| page.lsn).max().expect("the round is not empty");
        // The durable LSN lies on group boundaries: past this record's first byte is past its
        // group.
        self.flush_log(Lsn(newest.0 + 1))?;
        self.poison.check()?;
        self.sync_what_was_found()?;
        let meta_bytes = self.geometry.meta_bytes;
        let staging = rounds.staging(meta_bytes * round.len());
        for (page, out) in round.iter().zip(staging.chunks_mut(meta_bytes)) {
            meta_page::encode(self.database, page.id, page.lsn, page.sequence, &page.body, out);
        }
        let batch: Vec<Io<'_>> = round
            .iter()
            .zip(staging.chunks(meta_bytes))
            .map(|(page, bytes)| {
                let offset = self.geometry.meta_offset(page.id, page.slot);
                Io { offset, op: IoOp::Write(bytes, Durability::Later), outcome: Ok(()) }
            })
            .collect();
        self.submit_and_sync(batch, round.len())
    }

    /// Performs the writes of `pages` pages of metadata, and syncs.
    fn submit_and_sync(&self, mut batch: Vec<Io<'_>>, pages: usize) -> Result<(), TierError> {
        self.device.submit(&mut batch);
        let written = batch.into_iter().try_for_each(|io| io.outcome);
        if let Err(error) = written {
            // What was written does not count, and may be written again.
            if error.kind != DeviceErrorKind::NoSpace {
                self.poison.set(&error.clone().into());
            }
            return Err(error.into());
        }
        self.sync_device()?;
        count(&self.counters.metadata_pages_written, pages);
        count(&self.counters.metadata_bytes_written, pages * self.geometry.meta_bytes);
        Ok(())
    }

    /// Makes durable all that the calling thread has written, by a sync of its own or one that it
    /// shares. If a sync fails, the state of earlier writes is unknown, and the store writes
    /// nothing more.
    pub(crate) fn sync_device(&self) -> Result<(), TierError> {
        self.syncs.join(|| {
            self.device.sync().map_err(|error| {
                let error = TierError::new(TierErrorKind::Failed, error.message);
                self.poison.set(&error);
                error
            })
        })
    }
}
