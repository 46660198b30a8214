//! Fuzzy checkpoints, after which the log is truncated; nothing else truncates it.
//!
//! A checkpoint writes what was dirty at the *previous* one, so that transactions go on meanwhile
//! and a page that changes all the time is written once in two intervals; after a crash about one
//! to two intervals are read again. One that only `recovery_time` makes due is a *step*: it writes
//! the pages that have been dirty for longest (`recovery_time.rs`). Where a flash cache absorbs
//! dirty pages, a checkpoint writes everything that is dirty when it begins, as FaCE's does: groups
//! written one after the other cost flash little, and one interval at most is read again.
//!
//! The redo start is the least LSN that pending redo, the buffer, the tiers and the open
//! transactions still need (`log_truncation.rs`); the log before it is truncated. Log that the
//! archive and running backups still need (`log_holds.rs`) is retained beyond that.
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

/// Which checkpoint is taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// None, if none is due any more. A step, if only `recovery_time` makes one due. Else as
    /// `Usual`.
    Due,
    /// It writes what was dirty at the last one, or everything where a cache absorbs it.
    Usual,
    /// It writes everything that is dirty when it begins.
    All,
}

/// What a checkpoint writes.
#[derive(Clone, Copy)]
struct Older {
    /// Undo entries from before this LSN, of open transactions.
    undo: Lsn,
    /// Pages dirty since before this one.
    pages: Lsn,
    /// A flash cache takes them.
    absorbs: bool,
}

impl Engine {
    /// Takes a fuzzy checkpoint.
    pub fn checkpoint(&self) -> Result<(), Error> {
        self.take_checkpoint(Kind::Usual, false)
    }

    /// Takes a checkpoint if one is due: a step, if that will do. If none is, it does not wait for
    /// one that runs.
    pub fn checkpoint_if_due(&self) -> Result<(), Error> {
        if self.checkpointer.is_due(&self.log) { self.take_checkpoint(Kind::Due, false) } else { Ok(()) }
    }

    /// Whether a flash cache takes the dirty pages of checkpoints.
    fn absorbs_checkpoints(&self) -> bool {
        self.tier.cache().is_some_and(|cache| cache.absorbs_checkpoints())
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
        let absorbs = self.absorbs_checkpoints();
        self.checkpointer.time.estimate(self.log.written(), self.checkpointer.interval(), absorbs)
    }

    /// Takes a checkpoint that writes everything dirty when it begins.
    pub fn checkpoint_all(&self) -> Result<(), Error> {
        self.take_checkpoint(Kind::All, false)
    }

    /// As [`Engine::checkpoint_all`], and notes whether nothing is left to recover.
    pub fn checkpoint_clean(&self, clean: bool) -> Result<(), Error> {
        self.take_checkpoint(Kind::All, clean)
    }

    fn take_checkpoint(&self, kind: Kind, clean: bool) -> Result<(), Error> {
        let _running = self.checkpointer.running.lock();
        if kind != Kind::All {
            self.learn_read_rate();
        }
        // Another thread has taken it meanwhile.
        if kind == Kind::Due && !self.checkpointer.is_due(&self.log) {
            return Ok(());
        }
        let is_wanted = self.checkpointer.begun();
        let older = self.older(if is_wanted && kind == Kind::Due { Kind::Usual } else { kind });
        self.checkpointer.time.begun(self.log.written());
        let outcome = self.write_checkpoint(older, clean);
        let redo_start = self.superblock.lock().redo_start;
        self.checkpointer.time.ended(self.log.written(), redo_start);
        self.checkpointer.ended(&outcome);
        outcome
    }

    /// What a checkpoint writes that begins now. The caller holds `running`.
    fn older(&self, kind: Kind) -> Older {
        let (end, last) = (self.log.end(), Lsn(self.checkpointer.last.load(Ordering::Relaxed)));
        let absorbs = self.absorbs_checkpoints();
        let step = if kind == Kind::Due && !absorbs { self.checkpointer.step(&self.log) } else { None };
        match (kind, step) {
            (_, Some(before)) => Older { undo: before, pages: before, absorbs },
            (Kind::All, None) => Older { undo: end, pages: end, absorbs },
            (Kind::Due | Kind::Usual, None) => {
                Older { undo: last, pages: if absorbs { end } else { last }, absorbs }
            }
        }
    }

    fn write_checkpoint(&self, older: Older, clean: bool) -> Result<(), Error> {
        let began = self.log.end();
        self.txns.spill_older_than(older.undo)?;
        self.pool.write_older_than(older.pages)?;
        self.bound_what_the_cache_keeps()?;
        if !older.absorbs {
            self.checkpointer.time.pages_written(self.log.written());
        }
        // The sync below makes durable what the metadata contains now.
        let store_version = self.store.metadata_version();
        self.pool.tier().settle(older.pages)?;
        let NeededLog { before, redo_start, cache, cache_keeps, rebuildable } = self.needed_log();
        // After the log's end was read there: later records lie behind the redo start.
        let (held_shadow, not_held) = (self.store.oldest_held_shadow(), self.store.newest_shadow_not_held());
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
            let log = superblock.log_start()..redo_start;
            // The archive may have taken the oldest meanwhile: the next ones are held still.
            let held_shadow = held_shadow.map(|record| record.max(log.start));
            let shadows = [held_shadow, not_held].into_iter().flatten();
            superblock.extensions.shadows_from = shadows.filter(|record| log.contains(record)).min();
            superblock.extensions.archive_gap = self.retention.archive_gap();
            superblock.prune_epochs();
            self.archive_need.settle(superblock, self.log.on_devices());
            self.archive_need.note_archived(&self.retention, superblock);
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
    use crate::engine::Engine;
    use crate::engine::recovery_time::RATE_ASSUMED;
    use crate::engine::testing::{memory_devices, small};
    use firndb_base::Progress;
    use firndb_base::sync::{Arc, Mutex};
    use firndb_testkit::hooked::Trap;
    use firndb_txn::PageRecovery;
    use std::time::Duration;

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

    /// Cause: the oldest shadow held was read before the checkpoint record was flushed, and
    /// dropped if the archive took it meanwhile. Effect: no shadow was held after a restart, not
    /// the later ones either, and the archive went on without their images.
    #[test]
    fn shadows_are_held_again_though_the_archive_moves_while_the_checkpoint_record_is_written() {
        let dir = tempfile::tempdir().expect("a directory");
        let options = || {
            let options = small(1).archive(|archive| archive.directory(dir.path().join("archive")));
            options.tuning(|tuning| tuning.page_recovery(PageRecovery::Shadow).page_file_bytes(64 << 10))
        };
        let (log, mut devices) = (Trap::default(), memory_devices(1));
        devices.logs[0] = log.over_writes(devices.logs[0].clone());
        let db = options().create_on(devices.clone()).expect("created");
        let engine = db.engine().clone();
        let file = db.create_page_file("f").expect("a page file");
        let put = |page| db.transact(|tx| tx.put_page(&file, page, &[1; 1024])).expect("committed");
        let archive = |engine: &Engine| engine.archive.as_ref().expect("it has one").step(engine, true);
        while archive(&engine) == Progress::Worked {}
        put(1);
        let first = engine.store.oldest_held_shadow().expect("it is held");
        engine.log.flush_to_devices(engine.log.end()).expect("flushed");
        assert_eq!(archive(&engine), Progress::Worked, "the image is archived, its record is not");
        put(2);
        engine.pool.write_older_than(engine.log.end()).expect("written");
        engine.pool.tier().sync().expect("written");
        engine.log.flush_to_devices(engine.log.end()).expect("flushed");
        let weak = Arc::downgrade(&engine);
        log.set(move || _ = archive(&weak.upgrade().expect("it is open")));
        engine.checkpoint_all().expect("a checkpoint");
        let held = engine.store.oldest_held_shadow();
        assert!(held > Some(first), "the archive has the first, and not the second");
        assert!(held < Some(engine.superblock.lock().redo_start));
        // As after a crash: it is not closed.
        assert!(engine.begin_close());
        drop((file, db, engine));
        let db = options().open_on(devices).expect("opened");
        assert_eq!(db.engine().store.oldest_held_shadow(), held);
    }

    /// A checkpoint that only `recovery_time` makes due writes the oldest pages, and no others.
    #[test]
    fn a_step_moves_the_redo_start_by_a_part_of_the_budget() {
        let budget = f64::from(4 << 20);
        let goal = Duration::from_secs_f64(budget / RATE_ASSUMED);
        let options = small(1).buffer_bytes(16 << 20).log(|log| log.bytes(32 << 20)).recovery_time(goal);
        let db = options.create_on(memory_devices(1)).expect("created");
        let table = db.create_table("t").expect("a table");
        let engine = db.engine();
        // The rate stays as it is assumed: memory would be read too fast.
        engine.checkpointer.time.timed(RATE_ASSUMED);
        engine.checkpoint_all().expect("a checkpoint");
        let mut from = 0_u64;
        while !engine.checkpointer.time.is_due(engine.log.written()) {
            let rows = from..from + 10;
            db.transact(|tx| {
                rows.clone().try_for_each(|row| tx.put(&table, &row.to_be_bytes(), &[1; 300]).map(drop))
            })
            .expect("committed");
            from += 10;
        }
        let before = engine.superblock.lock().redo_start;
        let dirty = engine.pool.statistics().dirty;
        engine.checkpoint_if_due().expect("a step");
        let moved = engine.superblock.lock().redo_start.since(before);
        let all = engine.log.end().since(before);
        assert!(moved > all / 16 && moved < all / 3, "{moved} of {all}");
        let left = engine.pool.statistics().dirty;
        assert!(left > dirty / 2 && left < dirty, "{left} of {dirty} pages are dirty still");
        engine.checkpoint_if_due().expect("none is due");
        assert_eq!(engine.pool.statistics().dirty, left);
        // One that is wanted is no step: what was dirty at the last one is written.
        engine.checkpointer.want();
        engine.checkpoint_if_due().expect("a checkpoint");
        assert!(engine.superblock.lock().redo_start.since(before) > all / 2);
    }
}
