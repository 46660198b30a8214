//! Fuzzy checkpoints, and the one place that decides how much log is kept.
//!
//! A checkpoint writes what was dirty at the *previous* one, so that work goes on meanwhile and a page changed all
//! the time is written once in two intervals; after a crash about one to two intervals are read again. Where a flash
//! cache keeps dirty pages, a checkpoint writes all that is dirty when it begins, as FaCE's does: groups written one
//! after the other cost flash little, and one interval at most is read again. The redo start is the least of what
//! pending redo, the buffer, the tiers and the open transactions still need; the log before it is given back. What
//! the archive and running backups still need (`keep.rs`) is kept beyond that.
//!
//! Order, each step durable before the next: pages (to the flash cache, if there is one) → page map → checkpoint record → superblock →
//! truncation. A crash between two of them finds the previous checkpoint whole.

use crate::Error;
use crate::engine::Engine;
use firn_base::Lsn;
use firn_base::codec::{Malformed, Reader, Writer};
use firn_base::sync::atomic::Ordering;
use firn_log::{Kind, LogClass, Record};
use firn_tier::cache::CacheState;
use firn_txn::CheckpointState;

/// Kind of the checkpoint record. Body: redo start u64, then [`CheckpointState`].
pub(crate) const CHECKPOINT: Kind = Kind(0x50);

/// Encodes a checkpoint record's body.
fn encode(redo_start: Lsn, state: &CheckpointState) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_u64(redo_start.0);
    state.encode(&mut body);
    body
}

/// Decodes a checkpoint record's body.
pub(crate) fn decode(body: &[u8]) -> Result<(Lsn, CheckpointState), Malformed> {
    let mut reader = Reader::new(body);
    let redo_start = Lsn(reader.u64()?);
    Ok((redo_start, CheckpointState::decode(&mut reader)?))
}

impl Engine {
    /// Takes a fuzzy checkpoint: writes what was dirty at the last one.
    pub fn checkpoint(&self) -> Result<(), Error> {
        let write_before = Lsn(self.checkpointer.last.load(Ordering::Relaxed));
        self.take_checkpoint(write_before, false)
    }

    /// Takes a checkpoint that writes everything dirty when it begins.
    pub fn checkpoint_all(&self) -> Result<(), Error> {
        self.take_checkpoint(self.log.end(), false)
    }

    /// As [`Engine::checkpoint_all`], noting that nothing is left to recover.
    pub fn checkpoint_clean(&self, clean: bool) -> Result<(), Error> {
        self.take_checkpoint(self.log.end(), clean)
    }

    fn take_checkpoint(&self, write_before: Lsn, clean: bool) -> Result<(), Error> {
        let _running = self.checkpointer.running.lock();
        self.checkpointer.begun();
        let outcome = self.write_checkpoint(write_before, clean);
        self.checkpointer.ended(&outcome);
        outcome
    }

    fn write_checkpoint(&self, write_before: Lsn, clean: bool) -> Result<(), Error> {
        let began = self.log.end();
        self.txns.spill_older_than(write_before)?;
        let absorbs = self.tier.cache().is_some_and(|cache| cache.absorbs_checkpoints());
        self.pool.write_older_than(if absorbs { began } else { write_before })?;
        self.bound_what_the_cache_keeps()?;
        // What the metadata contains now, the device will.
        let store_version = self.store.metadata_version();
        self.pool.tier().sync()?;
        // The log's end first: whatever was appended before it has announced what it needs.
        let end = self.log.end();
        // What is pending before what is dirty: a page that is redone is in both for a moment, and never in none.
        let needed = [
            self.rest.oldest_needed(),
            self.pool.oldest_recovery_lsn(),
            self.pool.tier().oldest_needed_lsn(),
            self.txns.oldest_needed_lsn(),
        ];
        // After what is needed: a group that became durable meanwhile may be why some log is needed no more, and so
        // may a cache that was given up.
        let cache = self.tier.cache().map(|cache| cache.state());
        // Likewise.
        let rebuild = self.rebuild_from();
        let before = self.superblock.lock().redo_start;
        let redo_start = redo_start(needed, end, before);
        let listed = cache.is_some_and(|cache| !cache.lost);
        let (cache_keeps, complete) = rebuild.filter(|_| listed).unwrap_or((None, false));
        let cache_keeps = cache_keeps.map(|from| from.min(redo_start));
        // The archive, backups and what only the cache has may need older log than recovery does.
        let held = self.keep.oldest().into_iter().chain(cache_keeps).min();
        if !clean && !self.is_worth_a_record(held.map_or(redo_start, |held| held.min(redo_start))) {
            self.checkpointer.last.store(began.0, Ordering::Relaxed);
            return self.settle_log_array();
        }
        let state = self.txns.checkpoint_state();
        let body = encode(redo_start, &state);
        let record = self.log.append(LogClass::System, Record { kind: CHECKPOINT, body: &body })?;
        // Recovery is to find it without the archive.
        self.log.flush_to_devices(record.end)?;
        let log_start = {
            let mut superblock = self.superblock.lock();
            assert!(superblock.redo_start == before, "one checkpoint is taken at a time");
            superblock.checkpoint = record.first;
            superblock.redo_start = redo_start;
            superblock.store_version = store_version;
            match cache {
                // Given up: it must not be believed any more once the log since then is gone.
                Some(CacheState { lost: true, .. }) => superblock.extensions.cache = None,
                Some(CacheState { durable, .. }) => {
                    let member = superblock.extensions.cache.as_mut();
                    member.expect("an open cache is in the superblock").durable = durable;
                }
                None => {}
            }
            superblock.clean = clean;
            superblock.extensions.cache_from = if complete { cache_keeps.or(Some(redo_start)) } else { None };
            superblock.extensions.log_start = held.filter(|held| *held < redo_start);
            superblock.prune_epochs();
            self.early.settle(&mut superblock, self.log.on_devices());
            superblock.write(&self.devices.superblock())?;
            superblock.log_start()
        };
        self.log.truncate(log_start);
        self.checkpointer.last.store(began.0, Ordering::Relaxed);
        self.settle_log_array()
    }
}

/// The share of the log's space, as a divisor, that is kept for what only the flash cache has.
const CACHE_SHARE: u64 = 4;
/// The share of the log's space, as a divisor, that is left to the checkpoints that free some, to closing and to the
/// next opening.
const LAST_SHARE: u64 = 16;

impl Engine {
    /// Whether a checkpoint's record may be written, if the log is given back up to `log_start`: however often somebody asks for
    /// checkpoints that free nothing, they leave room for the one that does.
    fn is_worth_a_record(&self, log_start: Lsn) -> bool {
        let space = self.log.space();
        let left = space.capacity_bytes.saturating_sub(space.used_bytes);
        log_start > space.oldest || left >= space.capacity_bytes / LAST_SHARE
    }

    /// Has the store take what the flash cache would hold too much log for. What LSNs take on the devices is judged by what is
    /// in use: small requests take whole blocks.
    fn bound_what_the_cache_keeps(&self) -> Result<(), Error> {
        let (space, end) = (self.log.space(), self.log.end());
        let most = space.capacity_bytes / CACHE_SHARE;
        let kept = end.since(space.oldest);
        let most = match space.used_bytes {
            used if used > space.capacity_bytes / CACHE_SHARE * (CACHE_SHARE - 1) => 0,
            used if used > most => most.min((u128::from(kept) * u128::from(most) / u128::from(used)) as u64),
            _ => most,
        };
        self.write_back_from_cache(Lsn(end.0.saturating_sub(most)))
    }

    /// Has the store take what the flash cache holds log from before `lsn` for.
    pub fn write_back_from_cache(&self, lsn: Lsn) -> Result<(), Error> {
        match self.tier.cache().filter(|_| self.options.cache_rebuildable) {
            Some(cache) => Ok(cache.write_back_before(lsn)?),
            None => Ok(()),
        }
    }

    /// From where on log is kept for the flash cache, and whether it can be rebuilt from there; `None` if that is not asked for.
    fn rebuild_from(&self) -> Option<(Option<Lsn>, bool)> {
        let cache = self.tier.cache().filter(|_| self.options.cache_rebuildable)?;
        let from = cache.rebuild_from();
        Some((from.kept, from.complete))
    }
}

/// Where redo starts: at the least of what is needed, and of `end`, the log's end before that was asked.
///
/// It never goes back behind `before`, its last value. A need may lie before that: who announces a change
/// reads the log's end first and tells it a moment later, and a checkpoint may pass in between. The
/// change's record is appended after both, so it lies at or after that checkpoint's redo start.
fn redo_start(needed: [Option<Lsn>; 4], end: Lsn, before: Lsn) -> Lsn {
    needed.into_iter().flatten().fold(end, Lsn::min).max(before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::TreeId;

    /// It was once taken for a broken invariant: the checkpoint's thread panicked, and the database with it.
    #[test]
    fn the_redo_start_does_not_go_back_for_an_announcement_that_came_late() {
        assert_eq!(redo_start([None, None, None, None], Lsn(200), Lsn(100)), Lsn(200));
        assert_eq!(redo_start([None, Some(Lsn(150)), None, Some(Lsn(120))], Lsn(200), Lsn(100)), Lsn(120));
        assert_eq!(redo_start([Some(Lsn(90)), None, None, None], Lsn(200), Lsn(100)), Lsn(100));
    }

    #[test]
    fn the_record_round_trips() {
        let state = CheckpointState::fresh(TreeId(16));
        assert_eq!(decode(&encode(Lsn(4711), &state)), Ok((Lsn(4711), state)));
        assert!(decode(&[1, 2, 3]).is_err());
    }
}
