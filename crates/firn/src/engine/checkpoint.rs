//! Fuzzy checkpoints, and the one place that decides how much log is retained.
//!
//! A checkpoint writes what was dirty at the *previous* one, so that transactions go on meanwhile
//! and a page that changes all the time is written once in two intervals; after a crash about one
//! to two intervals are read again. Where a flash cache absorbs dirty pages, a checkpoint writes
//! everything that is dirty when it begins, as FaCE's does: groups written one after the other cost
//! flash little, and one interval at most is read again. The redo start is the least LSN that
//! pending redo, the buffer, the tiers and the open transactions still need; the log before it is
//! truncated. Log that the archive and running backups still need (`log_retention.rs`) is retained
//! beyond that.
//!
//! Order, each step durable before the next: pages (to the flash cache, if there is one) → page map
//! → checkpoint record → superblock → truncation. A crash between two of them finds the previous
//! checkpoint whole.

use crate::engine::Engine;
use crate::engine::superblock::EPOCHS_HELD_MAX;
use crate::error::Error;
use firndb_base::Lsn;
use firndb_base::codec::{Malformed, Reader, Writer};
use firndb_base::sync::atomic::Ordering;
use firndb_log::{Appended, Kind, LogClass, Record};
use firndb_tier::CacheState;
use firndb_txn::CheckpointState;

/// Longest part of a list in bytes, approximately.
const PART_MAX: u64 = 64 << 10;

/// A checkpoint as it is read back.
pub(crate) struct Checkpoint {
    pub redo_start: Lsn,
    /// Without the parts of its list that have not been added.
    state: CheckpointState,
    /// Number of transactions in the list.
    pub open: u64,
    /// Number of parts that have not been added, and the LSN where the records with them begin.
    missing: Option<(u64, Lsn)>,
    /// The part in the checkpoint record itself, which comes last.
    last: Vec<u8>,
}

impl Checkpoint {
    /// Decodes a checkpoint record's body.
    pub fn decode(body: &[u8]) -> Result<Checkpoint, Malformed> {
        let mut reader = Reader::new(body);
        let redo_start = Lsn(reader.u64()?);
        let missing = match reader.varint()? {
            0 => None,
            parts => Some((parts, Lsn(reader.u64()?))),
        };
        let (state, open) = CheckpointState::decode(&mut reader)?;
        Ok(Checkpoint { redo_start, state, open, missing, last: reader.rest().to_vec() })
    }

    /// Where the records of the missing parts begin: the caller hands each record from there to
    /// [`Checkpoint::add`].
    pub fn missing_from(&self) -> Option<Lsn> {
        self.missing.map(|(_, from)| from)
    }

    /// Adds a part, if the record is one; returns whether any is still missing.
    pub fn add(&mut self, record: Record<'_>) -> Result<bool, Malformed> {
        let Some((parts, from)) = self.missing else { return Ok(false) };
        if record.kind == Kind::CHECKPOINT_LIST {
            self.state.add_part(record.body)?;
            self.missing = (parts > 1).then_some((parts - 1, from));
        }
        Ok(self.missing.is_some())
    }

    /// The complete state.
    pub fn state(mut self) -> Result<CheckpointState, Malformed> {
        self.state.add_part(&self.last)?;
        if self.missing.is_some() || self.state.active.len() as u64 != self.open {
            return Err(Malformed { what: "a checkpoint's list of open transactions is not whole" });
        }
        Ok(self.state)
    }
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

    /// As [`Engine::checkpoint_all`], and notes whether nothing is left to recover.
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
        // The sync below makes durable what the metadata contains now.
        let store_version = self.store.metadata_version();
        self.pool.tier().sync()?;
        // The log's end first: every record appended before it has announced what it needs.
        let end = self.log.end();
        // Pending pages before dirty ones: a page that is redone is in both for a moment, and never
        // in neither.
        let needed = [
            self.recovery.oldest_needed(),
            self.pool.oldest_recovery_lsn(),
            self.pool.tier().oldest_needed_lsn(),
            self.txns.oldest_needed_lsn(),
        ];
        // After what is needed: some log may be needed no more because a group of the cache became
        // durable meanwhile, or because the cache was given up.
        let cache = self.tier.cache().map(|cache| cache.state());
        // After what is needed, for the same reason.
        let rebuild = self.rebuild_from();
        let before = self.superblock.lock().redo_start;
        let redo_start = redo_start(needed, end, before);
        let listed = cache.is_some_and(|cache| !cache.lost);
        let (cache_keeps, complete) = rebuild.filter(|_| listed).unwrap_or((None, false));
        let cache_keeps = cache_keeps.map(|from| from.min(redo_start));
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
            superblock.extensions.cache_from = if complete { cache_keeps.or(Some(redo_start)) } else { None };
            superblock.extensions.log_start = held.filter(|held| *held < redo_start);
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

impl Engine {
    fn append_checkpoint(&self, redo_start: Lsn, state: &CheckpointState) -> Result<Appended, Error> {
        let part_len = (self.log.group_max() / 4).min(PART_MAX) as usize;
        write(redo_start, state, part_len, |record| Ok(self.log.append(LogClass::System, record)?))
    }
}

/// Appends the checkpoint record, and the parts of a long list before it: however many transactions
/// are open, no record is longer than a group of the log may be.
fn write(
    redo_start: Lsn,
    state: &CheckpointState,
    part_len: usize,
    mut append: impl FnMut(Record<'_>) -> Result<Appended, Error>,
) -> Result<Appended, Error> {
    let mut parts = state.list(part_len);
    let last = parts.pop().expect("a list has one part at least");
    let mut body = Vec::new();
    body.put_u64(redo_start.0);
    body.put_varint(parts.len() as u64);
    let mut first = None;
    for part in &parts {
        let appended = append(Record { kind: Kind::CHECKPOINT_LIST, body: part })?;
        first.get_or_insert(appended.first);
    }
    if let Some(first) = first {
        body.put_u64(first.0);
    }
    state.encode(&mut body);
    body.put(&last);
    append(Record { kind: Kind::CHECKPOINT, body: &body })
}

/// The share of the log's space, as a divisor, that is retained for pages that only the flash cache
/// has.
const CACHE_SHARE: u64 = 4;
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

    /// Writes pages back to the store for which the flash cache would retain too much log. The
    /// limit in LSNs is scaled by the space in use on the devices: small requests occupy whole
    /// blocks.
    fn bound_what_the_cache_keeps(&self) -> Result<(), Error> {
        let (space, end) = (self.log.space(), self.log.end());
        let most = space.capacity_bytes / CACHE_SHARE;
        let kept = end.since(space.oldest);
        let most = match space.used_bytes {
            // Each of many openings may have left little log, and occupies an entry in the
            // superblock.
            _ if self.superblock.lock().epochs.len() > EPOCHS_HELD_MAX => 0,
            used if used > space.capacity_bytes / CACHE_SHARE * (CACHE_SHARE - 1) => 0,
            used if used > most => most.min((u128::from(kept) * u128::from(most) / u128::from(used)) as u64),
            _ => most,
        };
        self.write_back_from_cache(Lsn(end.0.saturating_sub(most)))
    }

    /// Writes pages back to the store for which the flash cache retains log from before `lsn`.
    pub fn write_back_from_cache(&self, lsn: Lsn) -> Result<(), Error> {
        match self.tier.cache().filter(|_| self.options.cache.rebuildable.get()) {
            Some(cache) => Ok(cache.write_back_before(lsn)?),
            None => Ok(()),
        }
    }

    /// From which LSN log is retained for the flash cache, and whether the cache can be rebuilt
    /// from there; `None` if that is not wanted.
    fn rebuild_from(&self) -> Option<(Option<Lsn>, bool)> {
        let cache = self.tier.cache().filter(|_| self.options.cache.rebuildable.get())?;
        let from = cache.rebuild_from();
        Some((from.kept, from.complete))
    }
}

/// The redo start: the least of what is needed, and of `end`, the log's end before that was
/// collected.
///
/// It never moves back behind `before`, its last value. A need may lie before that: a thread that
/// announces a change reads the log's end first and publishes it a moment later, and a checkpoint
/// may pass in between. The change's record is appended after both, so it lies at or after that
/// checkpoint's redo start.
fn redo_start(needed: [Option<Lsn>; 4], end: Lsn, before: Lsn) -> Lsn {
    needed.into_iter().flatten().fold(end, Lsn::min).max(before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::testing::{memory_devices, small};
    use firndb_base::sync::{Arc, Mutex};
    use firndb_base::{TreeId, TxnId};
    use firndb_testkit::hooked::Trap;
    use firndb_txn::OpenTransaction;

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

    /// This was once taken for a broken invariant: the checkpoint thread panicked, and the database
    /// with it.
    #[test]
    fn the_redo_start_does_not_go_back_for_an_announcement_that_came_late() {
        assert_eq!(redo_start([None, None, None, None], Lsn(200), Lsn(100)), Lsn(200));
        assert_eq!(redo_start([None, Some(Lsn(150)), None, Some(Lsn(120))], Lsn(200), Lsn(100)), Lsn(120));
        assert_eq!(redo_start([Some(Lsn(90)), None, None, None], Lsn(200), Lsn(100)), Lsn(100));
    }

    #[test]
    fn a_checkpoint_is_read_back_whatever_lies_between_its_parts() {
        let open = |id: u64| {
            let prepared =
                id.is_multiple_of(3).then(|| (id.to_be_bytes().to_vec(), vec![(TreeId(16), vec![7; 20])]));
            OpenTransaction { id: TxnId(id), entries: 1 + id as u32, prepared }
        };
        for (count, part_len) in [(0, 100), (3, 100), (200, 100), (200, 1 << 20)] {
            let state = CheckpointState {
                next_txn: TxnId(1000),
                next_tree: TreeId(17),
                active: (1..=count).map(open).collect(),
                ghosts: None,
            };
            let mut log: Vec<(Kind, Vec<u8>)> = Vec::new();
            let appended = write(Lsn(4711), &state, part_len, |record| {
                let first = Lsn(log.len() as u64);
                log.push((record.kind, record.body.to_vec()));
                log.push((Kind::COMMIT, vec![1, 2]));
                Ok(Appended { first, end: Lsn(first.0 + 1) })
            });
            let at = appended.expect("appended").first.0 as usize;
            assert!(log.iter().all(|(_, body)| body.len() <= part_len + 64), "no record is long");
            assert_eq!(log[at].0, Kind::CHECKPOINT);
            let mut found = Checkpoint::decode(&log[at].1).expect("well-formed");
            assert_eq!((found.redo_start, found.open), (Lsn(4711), count));
            if let Some(from) = found.missing_from() {
                let mut parts = log[from.0 as usize..].iter();
                let mut next = || parts.next().map(|(kind, body)| Record { kind: *kind, body });
                while found.add(next().expect("a part")).expect("well-formed") {}
                let mut short = Checkpoint::decode(&log[at].1).expect("well-formed");
                short
                    .add(Record { kind: Kind::CHECKPOINT_LIST, body: &log[from.0 as usize].1 })
                    .expect("well-formed");
                assert!(short.state().is_err(), "a part is missing");
            }
            assert_eq!(found.state(), Ok(state));
        }
        assert!(Checkpoint::decode(&[1, 2, 3]).is_err());
    }
}
