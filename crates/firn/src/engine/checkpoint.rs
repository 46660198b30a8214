//! Fuzzy checkpoints, after which the log is truncated; nothing else truncates it.
//!
//! A checkpoint writes what was dirty at the *previous* one, so that transactions go on meanwhile
//! and a page that changes all the time is written once in two intervals; after a crash about one
//! to two intervals are read again. Where a flash cache absorbs dirty pages, a checkpoint writes
//! everything that is dirty when it begins, as FaCE's does: groups written one after the other cost
//! flash little, and one interval at most is read again. The redo start is the least LSN that
//! pending redo, the buffer, the tiers and the open transactions still need (`log_truncation.rs`);
//! the log before it is truncated. Log that the archive and running backups still need
//! (`log_holds.rs`) is retained beyond that.
//!
//! Order, each step durable before the next: pages (to the flash cache, if there is one) → page map
//! → checkpoint record → superblock → truncation. A crash between two of them finds the previous
//! checkpoint whole.

use crate::engine::log_truncation::NeededLog;
use crate::engine::recovery_time::{LEAST_BYTES, RestartEstimate};
use crate::engine::{Engine, log_source};
use crate::error::Error;
use firndb_base::Lsn;
use firndb_base::sync::atomic::Ordering;
use firndb_tier::CacheState;

impl Engine {
    /// Takes a fuzzy checkpoint: writes what was dirty at the last one.
    pub fn checkpoint(&self) -> Result<(), Error> {
        self.learn_read_rate();
        let write_before = Lsn(self.checkpointer.last.load(Ordering::Relaxed));
        self.take_checkpoint(write_before, false)
    }

    /// Times a few reads of the log's devices, unless the rate is known or the log is so small that
    /// the rate decides little.
    fn learn_read_rate(&self) {
        if self.checkpointer.time.is_rate_assumed() && self.checkpointer.interval() > LEAST_BYTES {
            self.checkpointer.time.timed(log_source::side_by_side(&self.devices.logs()));
        }
    }

    /// What a restart after a crash would take now.
    pub fn restart_estimate(&self) -> RestartEstimate {
        let absorbs = self.tier.cache().is_some_and(|cache| cache.absorbs_checkpoints());
        self.checkpointer.time.estimate(self.log.written(), self.checkpointer.interval(), absorbs)
    }

    /// Takes a checkpoint that writes everything dirty when it begins.
    pub fn checkpoint_all(&self) -> Result<(), Error> {
        self.take_checkpoint(self.log.end(), false)
    }

    /// As [`Engine::checkpoint_all`], and notes whether nothing is left to recover.
    pub fn checkpoint_clean(&self, clean: bool) -> Result<(), Error> {
        self.take_checkpoint(self.log.end(), clean)
    }

    fn take_checkpoint(&self, write_before: Lsn, clean: bool) -> Result<(), Error> {
        let _running = self.checkpointer.running.lock();
        self.checkpointer.begun();
        self.checkpointer.time.begun(self.log.written());
        let outcome = self.write_checkpoint(write_before, clean);
        let redo_start = self.superblock.lock().redo_start;
        self.checkpointer.time.ended(self.log.written(), redo_start);
        self.checkpointer.ended(&outcome);
        outcome
    }

    fn write_checkpoint(&self, write_before: Lsn, clean: bool) -> Result<(), Error> {
        let began = self.log.end();
        self.txns.spill_older_than(write_before)?;
        let absorbs = self.tier.cache().is_some_and(|cache| cache.absorbs_checkpoints());
        self.pool.write_older_than(if absorbs { began } else { write_before })?;
        self.bound_what_the_cache_keeps()?;
        // The sync below makes durable what the metadata contains now.
        let store_version = self.store.metadata_version();
        self.pool.tier().settle(if absorbs { began } else { write_before })?;
        let NeededLog { before, redo_start, cache, cache_keeps, rebuildable } = self.needed_log();
        // After the log's end was read there: later records lie behind the redo start.
        let shadows = self.store.oldest_held_shadow();
        // The archive, backups and a rebuild of the cache may need older log than recovery does.
        let held = self.retention.oldest().into_iter().chain(cache_keeps).min();
        if !clean && !self.is_worth_a_record(held.map_or(redo_start, |held| held.min(redo_start))) {
            self.checkpointer.last.store(began.0, Ordering::Relaxed);
            return self.settle_log_array();
        }
        let record = self.append_checkpoint(redo_start, &self.txns.checkpoint_state())?;
        // Recovery must find it without the archive.
        self.log.flush_to_devices(record.end)?;
        let log_start = self.amend(|superblock| {
            assert!(superblock.redo_start == before, "one checkpoint is taken at a time");
            // Again, under the superblock's lock: a backup that began meanwhile holds the redo
            // start before this one.
            let held = self.retention.oldest().into_iter().chain(cache_keeps).min();
            superblock.checkpoint = record.first;
            superblock.redo_start = redo_start;
            superblock.store_version = store_version;
            match cache {
                // Given up: it must not be trusted once the log since then is gone.
                Some(CacheState { lost: true, .. }) => superblock.extensions.cache = None,
                Some(CacheState { durable, .. }) => {
                    let member = superblock.extensions.cache.as_mut();
                    member.expect("an open cache is in the superblock").durable = durable;
                }
                None => {}
            }
            superblock.clean = clean;
            superblock.extensions.cache_from =
                if rebuildable { cache_keeps.or(Some(redo_start)) } else { None };
            superblock.extensions.log_start = held.filter(|held| *held < redo_start);
            superblock.extensions.shadows_from = shadows.filter(|record| *record < redo_start);
            superblock.extensions.archive_gap = self.retention.archive_gap();
            superblock.prune_epochs();
            self.archive_need.settle(superblock, self.log.on_devices());
            Ok(superblock.log_start())
        })?;
        self.log.truncate(log_start);
        self.checkpointer.last.store(began.0, Ordering::Relaxed);
        self.settle_log_array()
    }
}
/// The share of the log's space, as a divisor, that is left to checkpoints that free some, to
/// closing and to the next opening.
const LAST_SHARE: u64 = 16;

impl Engine {
    /// Whether a checkpoint's record may be written, if the log is truncated up to `log_start`:
    /// however many checkpoints that free nothing are requested, they leave space for the one that
    /// does.
    fn is_worth_a_record(&self, log_start: Lsn) -> bool {
        let space = self.log.space();
        let left = space.capacity_bytes.saturating_sub(space.used_bytes);
        // Space reserved for decisions is not available.
        let left = left.saturating_sub(self.log.kept_for_decisions());
        log_start > space.oldest || left >= space.capacity_bytes / LAST_SHARE
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::testing::{memory_devices, small};
    use firndb_base::sync::{Arc, Mutex};
    use firndb_testkit::hooked::Trap;

    /// Cause: the holds on the log were read before the checkpoint record was flushed. Effect: the
    /// log of a backup that began meanwhile was truncated, and the backup failed with "the log is
    /// damaged" once other log was written there.
    #[test]
    fn a_backup_that_begins_while_the_checkpoint_record_is_written_keeps_its_log() {
        let (log, mut devices) = (Trap::default(), memory_devices(1));
        devices.logs[0] = log.over_writes(devices.logs[0].clone());
        let db = small(1).create_on(devices).expect("created");
        let table = db.create_table("t").expect("a table");
        db.transact(|tx| tx.put(&table, b"k", b"v")).expect("committed");
        let engine = db.engine().clone();
        // Everything except the record is written, so that the record is the checkpoint's only
        // write of log.
        engine.pool.write_older_than(engine.log.end()).expect("written");
        engine.pool.tier().sync().expect("written");
        engine.log.flush_to_devices(engine.log.end()).expect("flushed");
        let held = Arc::new(Mutex::new(None));
        let (begun, weak) = (held.clone(), Arc::downgrade(&engine));
        log.set(move || {
            let engine = weak.upgrade().expect("it is open");
            let superblock = engine.superblock.lock();
            engine.retention.begin_backup(superblock.redo_start);
            *begun.lock() = Some(superblock.redo_start);
        });
        engine.checkpoint_all().expect("a checkpoint");
        let held = held.lock().expect("a backup has begun");
        let superblock = engine.superblock.lock();
        assert!(held < superblock.redo_start, "or the checkpoint would free nothing");
        assert_eq!(superblock.log_start(), held);
        assert!(engine.log.space().oldest <= held, "{} for {held}", engine.log.space().oldest);
    }
}
