//! Fuzzy checkpoints, and the one place that decides how much log is kept.
//!
//! A checkpoint writes what was dirty at the *previous* one, so that work goes on meanwhile and a page
//! changed all the time is written once an interval. The redo start is the least of what the buffer, the
//! tiers and the open transactions still need; the log before it is given back. After a crash at most about
//! two intervals are read again.
//!
//! Order, each step durable before the next: pages → page map → checkpoint record → superblock →
//! truncation. A crash between two of them finds the previous checkpoint whole.

use crate::engine::Engine;
use crate::{Error, ErrorKind};
use firn_base::codec::{Malformed, Reader, Writer};
use firn_base::sync::atomic::{AtomicU64, Ordering};
use firn_base::sync::{Condvar, Mutex};
use firn_base::{Lsn, clock};
use firn_log::{Kind, LogClass, Record};
use firn_tier::PageTier;
use firn_txn::CheckpointState;
use std::time::Duration;

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

/// When checkpoints happen, and who waits for one.
pub(crate) struct Checkpointer {
    /// Bytes of log between two.
    interval: u64,
    /// Log end at the beginning of the last one.
    last: AtomicU64,
    /// Held while one is being taken.
    running: Mutex<()>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Whether a thread takes checkpoints when they are asked for.
    served: bool,
    requested: bool,
    stopped: bool,
    /// How many have ended, well or not.
    ended: u64,
    /// How the last one ended.
    failure: Option<Error>,
}

impl Checkpointer {
    pub fn new(interval: u64, last: Lsn) -> Checkpointer {
        Checkpointer {
            interval,
            last: AtomicU64::new(last.0),
            running: Mutex::new(()),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Bytes of log between two checkpoints.
    pub fn interval(&self) -> u64 {
        self.interval
    }

    /// Whether so much log has been written since the last one that another should follow.
    pub fn is_due(&self, log_end: Lsn) -> bool {
        log_end.since(Lsn(self.last.load(Ordering::Relaxed))) >= self.interval
    }

    /// Asks for one if it is due.
    pub fn consider(&self, log_end: Lsn) {
        if self.is_due(log_end) {
            self.request();
        }
    }

    /// Asks for one.
    pub fn request(&self) {
        let mut state = self.state.lock();
        if !state.requested {
            state.requested = true;
            self.changed.notify_all();
        }
    }

    /// Ends the thread that waits in [`Checkpointer::wait_for_request`].
    pub fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Whether a thread takes checkpoints when they are asked for.
    pub fn is_served(&self) -> bool {
        self.state.lock().served
    }

    /// Blocks until one is asked for; false when the thread should end.
    pub fn wait_for_request(&self) -> bool {
        let mut state = self.state.lock();
        state.served = true;
        while !state.requested && !state.stopped {
            self.changed.wait(&mut state);
        }
        state.requested = false;
        !state.stopped
    }

    /// Asks for one and blocks until one that began after the call has ended.
    pub fn wait_for_next(&self, limit: Duration) -> Result<(), Error> {
        let deadline = clock::now().after(limit);
        let mut state = self.state.lock();
        // The one under way may have begun too early to help.
        let target = state.ended + if self.running.is_locked() { 2 } else { 1 };
        while state.ended < target && !state.stopped {
            state.requested = true;
            self.changed.notify_all();
            match deadline {
                Some(deadline) if !self.changed.wait_until(&mut state, deadline) => {
                    return Err(Error::new(
                        ErrorKind::Full,
                        format!("the log is full, and a checkpoint did not end within {} s", limit.as_secs()),
                    ));
                }
                Some(_) => {}
                None => self.changed.wait(&mut state),
            }
        }
        if state.stopped {
            return Err(Error::new(ErrorKind::Closed, "the database has been closed"));
        }
        match &state.failure {
            Some(failure) => Err(failure.clone().within("the log is full and a checkpoint failed")),
            None => Ok(()),
        }
    }

    fn ended(&self, outcome: &Result<(), Error>) {
        let mut state = self.state.lock();
        state.ended += 1;
        state.failure = outcome.as_ref().err().cloned();
        self.changed.notify_all();
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

    /// As [`Engine::checkpoint_all`], noting that nothing is left to recover.
    pub fn checkpoint_clean(&self, clean: bool) -> Result<(), Error> {
        self.take_checkpoint(self.log.end(), clean)
    }

    fn take_checkpoint(&self, write_before: Lsn, clean: bool) -> Result<(), Error> {
        let _running = self.checkpointer.running.lock();
        let outcome = self.write_checkpoint(write_before, clean);
        self.checkpointer.ended(&outcome);
        outcome
    }

    fn write_checkpoint(&self, write_before: Lsn, clean: bool) -> Result<(), Error> {
        let began = self.log.end();
        self.txns.spill_older_than(write_before)?;
        self.pool.write_older_than(write_before)?;
        // What the metadata contains now, the device will.
        let store_version = self.store.metadata_version();
        self.store.sync()?;
        // The log's end first: whatever was appended before it has announced what it needs.
        let end = self.log.end();
        let needed =
            [self.pool.oldest_recovery_lsn(), self.store.oldest_needed_lsn(), self.txns.oldest_needed_lsn()];
        let before = self.superblock.lock().redo_start;
        let redo_start = redo_start(needed, end, before);
        let state = self.txns.checkpoint_state();
        let body = encode(redo_start, &state);
        let record = self.log.append(LogClass::System, Record { kind: CHECKPOINT, body: &body })?;
        self.log.flush(record.end)?;
        {
            let mut superblock = self.superblock.lock();
            assert!(superblock.redo_start == before, "one checkpoint is taken at a time");
            superblock.checkpoint = record.first;
            superblock.redo_start = redo_start;
            superblock.store_version = store_version;
            superblock.clean = clean;
            superblock.prune_epochs();
            superblock.write(&self.devices.superblock())?;
        }
        self.log.truncate(redo_start);
        self.checkpointer.last.store(began.0, Ordering::Relaxed);
        Ok(())
    }
}

/// Where redo starts: at the least of what is needed, and of `end`, the log's end before that was asked.
///
/// It never goes back behind `before`, its last value. A need may lie before that: who announces a change
/// reads the log's end first and tells it a moment later, and a checkpoint may pass in between. The
/// change's record is appended after both, so it lies at or after that checkpoint's redo start.
fn redo_start(needed: [Option<Lsn>; 3], end: Lsn, before: Lsn) -> Lsn {
    needed.into_iter().flatten().fold(end, Lsn::min).max(before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::TreeId;

    /// It was once taken for a broken invariant: the checkpoint's thread panicked, and the database with it.
    #[test]
    fn the_redo_start_does_not_go_back_for_an_announcement_that_came_late() {
        assert_eq!(redo_start([None, None, None], Lsn(200), Lsn(100)), Lsn(200));
        assert_eq!(redo_start([Some(Lsn(150)), None, Some(Lsn(120))], Lsn(200), Lsn(100)), Lsn(120));
        assert_eq!(redo_start([Some(Lsn(90)), None, None], Lsn(200), Lsn(100)), Lsn(100));
    }

    #[test]
    fn the_record_round_trips() {
        let state = CheckpointState::fresh(TreeId(16));
        assert_eq!(decode(&encode(Lsn(4711), &state)), Ok((Lsn(4711), state)));
        assert!(decode(&[1, 2, 3]).is_err());
    }
}
