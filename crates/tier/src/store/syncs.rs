//! Syncs of the device, shared by the threads that wait for one.
//!
//! A sync makes durable what was written before it *began*. So a thread whose writes have completed
//! needs a sync that begins after it asked: one in flight does not count for it. It waits for that
//! one, and the next counts for all threads that asked meanwhile; the first of them to wake leads
//! it. At most one sync is in flight, and a thread waits for two at most.
//!
//! A failed sync may have lost writes of any thread, and the device may call the next one
//! successful: after a failure every caller gets it, those included whose sync would come later.

use crate::error::{TierError, TierErrorKind};
use crate::ranks;
use firndb_base::sync::{Condvar, Mutex, before_device};

/// The syncs of one device.
pub(crate) struct Syncs {
    state: Mutex<State>,
    /// Signalled when a sync has ended.
    over: Condvar,
}

#[derive(Default)]
struct State {
    /// Syncs that began; at most one more than have ended.
    begun: u64,
    ended: u64,
    /// Calls that another thread's sync served.
    shared: u64,
    /// The first failure; stays.
    failure: Option<TierError>,
}

/// A sync in flight, led by this thread.
struct Leading<'a> {
    syncs: &'a Syncs,
    outcome: Result<(), TierError>,
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        let mut state = self.syncs.state.lock();
        state.ended += 1;
        assert_eq!(state.begun, state.ended, "one sync at a time");
        if let Err(error) = &self.outcome {
            state.failure.get_or_insert_with(|| error.clone());
        }
        self.syncs.over.notify_all();
    }
}

impl Syncs {
    pub(crate) fn new() -> Syncs {
        Syncs { state: ranks::SYNCS.mutex(State::default()), over: Condvar::new() }
    }

    /// Returns once a sync that began after the call has ended: this thread's, by `sync`, or
    /// another's.
    ///
    /// Errors: that of the first sync that ever failed.
    pub(crate) fn join(&self, sync: impl FnOnce() -> Result<(), TierError>) -> Result<(), TierError> {
        before_device();
        let mut state = self.state.lock();
        let wanted = state.begun + 1;
        while state.ended < wanted && state.failure.is_none() {
            if state.begun > state.ended {
                self.over.wait(&mut state);
                continue;
            }
            state.begun += 1;
            drop(state);
            let panicked = TierError::new(TierErrorKind::Failed, "a sync of the store panicked");
            let mut leading = Leading { syncs: self, outcome: Err(panicked) };
            leading.outcome = sync();
            let outcome = leading.outcome.clone();
            drop(leading);
            return outcome;
        }
        match &state.failure {
            Some(error) => Err(error.clone()),
            None => {
                state.shared += 1;
                Ok(())
            }
        }
    }

    /// Syncs that have ended, and calls that were served by another thread's.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.ended, state.shared)
    }
}
