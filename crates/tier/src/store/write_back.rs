//! Writing metadata pages.
//!
//! Why a crash at any point loses nothing: the log is durable past every page's LSN before the page
//! is written (WAL rule), the write goes to the slot that is not the newest durable one, and the
//! newer slot counts only once it is whole. A round is synced before another round may write to the
//! other slot.

use super::meta_cache::WriteOut;
use super::meta_page;
use super::state::{Store, count};
use crate::error::{TierError, TierErrorKind};
use firndb_base::Lsn;
use firndb_device::{AlignedBuf, DeviceErrorKind, Durability, Io, IoOp};

/// Metadata pages written in one round.
const ROUND_PAGES: usize = 256;

/// State under the lock on rounds: the reused buffer in which a round is composed.
#[derive(Default)]
pub(crate) struct Rounds {
    staging: Option<AlignedBuf>,
}

/// How much of the budget changed metadata pages take up.
enum Crowded {
    /// More than half.
    Half,
    /// All of it, or more.
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
    /// Writes all metadata pages that were changed before the call, and syncs. Releases the lock
    /// between two rounds: threads that change pages may be waiting for it.
    pub(crate) fn write_back_all(&self) -> Result<(), TierError> {
        self.poison.check()?;
        // Pages changed while this runs are not waited for, or it might never end. Under the lock
        // none is being written, which would not be counted. Rounds take the oldest changes first.
        let mut left = {
            let _no_round = self.write_back.lock();
            self.state.lock().cache.dirty()
        };
        while left > 0 {
            let wrote = self.write_round(&mut self.write_back.lock(), left.min(ROUND_PAGES))?;
            left = if wrote == 0 { 0 } else { left - wrote };
        }
        Ok(())
    }

    /// Writes metadata pages if changed ones take up more than half of the budget. Called under
    /// none of the store's locks.
    ///
    /// If they take up all of it, the threads that change them have outrun the thread that writes a
    /// round: then a caller waits for that, and writes one more unless it has become needless. So
    /// what is in memory beyond the budget is a round and what each caller adds at a time.
    pub(crate) fn write_back_if_crowded(&self) -> Result<(), TierError> {
        let rounds = match self.crowded() {
            None => None,
            Some(Crowded::Half) => self.write_back.try_lock(),
            Some(Crowded::Full) => Some(self.write_back.lock()).filter(|_| self.crowded().is_some()),
        };
        // Not crowded, or another thread is writing a round.
        let Some(mut rounds) = rounds else { return Ok(()) };
        self.poison.check().and_then(|()| self.write_round(&mut rounds, ROUND_PAGES)).map(|_| ())
    }

    fn crowded(&self) -> Option<Crowded> {
        let state = self.state.lock();
        let (budget, dirty) = (state.cache.budget_pages(), state.cache.dirty());
        // While the cache is not full there is nothing to gain.
        let crowded = !state.recovering && state.cache.len() >= budget && dirty > budget / 2;
        crowded.then_some(if dirty < budget { Crowded::Half } else { Crowded::Full })
    }

    /// One round: copies, flushes the log, writes, syncs. Returns the number of pages written.
    fn write_round(&self, rounds: &mut Rounds, limit: usize) -> Result<usize, TierError> {
        self.journal()?;
        let round = self.state.lock().cache.begin_write(limit);
        if round.is_empty() {
            return Ok(0);
        }
        let outcome = self.write_out(rounds, &round);
        let mut state = self.state.lock();
        for page in &round {
            state.cache.end_write(page, outcome.is_ok());
        }
        drop(state);
        outcome.map(|()| round.len())
    }

    fn write_out(&self, rounds: &mut Rounds, round: &[WriteOut]) -> Result<(), TierError> {
        let newest = round.iter().map(|page| page.lsn).max().expect("the round is not empty");
        // The durable LSN lies on group boundaries: past this record's first byte is past its
        // group.
        self.flush_log(Lsn(newest.0 + 1))?;
        self.poison.check()?;
        let meta_bytes = self.geometry.meta_bytes;
        let staging = rounds.staging(meta_bytes * round.len());
        for (page, out) in round.iter().zip(staging.chunks_mut(meta_bytes)) {
            meta_page::encode(self.database, page.id, page.lsn, page.sequence, &page.body, out);
        }
        let mut batch: Vec<Io<'_>> = round
            .iter()
            .zip(staging.chunks(meta_bytes))
            .map(|(page, bytes)| {
                let offset = self.geometry.meta_offset(page.id, page.slot);
                Io { offset, op: IoOp::Write(bytes, Durability::Later), outcome: Ok(()) }
            })
            .collect();
        self.device.submit(&mut batch);
        let written = batch.into_iter().try_for_each(|io| io.outcome);
        if let Err(error) = written {
            // The slots may be written again; what was written to them does not count.
            if error.kind != DeviceErrorKind::NoSpace {
                self.poison.set(&error.clone().into());
            }
            return Err(error.into());
        }
        self.sync_device()?;
        count(&self.counters.metadata_pages_written, round.len());
        count(&self.counters.metadata_bytes_written, round.len() * meta_bytes);
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
