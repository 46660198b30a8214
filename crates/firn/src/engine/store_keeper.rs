//! Where the states of the store's devices are durable: the superblock.
//!
//! A device that missed a write is struck there before anything that it lacks is acknowledged, by
//! the thread whose write failed. Before the log is opened nothing is acknowledged: a device that
//! fails until then is noted, and struck with the superblock's write that begins the epoch.
//!
//! Locks: the keeper's own is a leaf; the superblock's is taken without it.

use crate::engine::log_device_failure::Losses;
use crate::engine::superblock::Superblock;
use crate::options::callbacks::{StoreEvent, StoreEventFn, StoreEventKind};
use firndb_array::{Keeper, MemberState};
use firndb_base::sync::{Arc, Mutex, Weak};
use firndb_device::{DeviceError, DeviceErrorKind};

/// Number of events that are remembered.
const EVENTS_MAX: usize = 64;

/// Keeps the states of the store's devices, and tells what happened to them.
#[derive(Default)]
pub(crate) struct StoreKeeper {
    state: Mutex<State>,
    listener: Option<StoreEventFn>,
}

#[derive(Default)]
struct State {
    /// Once there is a superblock that may be changed.
    losses: Option<Weak<Losses>>,
    /// Devices that failed before.
    noted: Vec<usize>,
    /// Since the database was opened; the oldest are forgotten.
    events: Vec<StoreEvent>,
}

impl std::fmt::Debug for StoreKeeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StoreKeeper")
    }
}

/// Strikes a member in the superblock.
fn strike(superblock: &mut Superblock, member: usize) {
    let array = superblock.extensions.store_array.as_mut().expect("the store has several devices");
    array.members[member].state = MemberState::Struck;
}

impl StoreKeeper {
    pub fn new(listener: Option<StoreEventFn>) -> StoreKeeper {
        StoreKeeper { listener, ..StoreKeeper::default() }
    }

    /// Strikes in a superblock, which is about to be written, what failed so far.
    pub fn settle(&self, superblock: &mut Superblock) {
        self.state.lock().noted.drain(..).for_each(|member| strike(superblock, member));
    }

    /// From now on members are struck in this superblock.
    pub fn serve(&self, losses: &Arc<Losses>) {
        let mut state = self.state.lock();
        assert!(state.noted.is_empty(), "what failed before has been settled");
        state.losses = Some(Arc::downgrade(losses));
    }

    /// What happened, oldest first.
    pub fn events(&self) -> Vec<StoreEvent> {
        self.state.lock().events.clone()
    }

    /// Records an event and calls the listener.
    pub fn report(&self, kind: StoreEventKind, member: usize, message: String) {
        let event = StoreEvent { kind, member, message };
        let mut state = self.state.lock();
        if state.events.len() == EVENTS_MAX {
            state.events.remove(0);
        }
        state.events.push(event.clone());
        drop(state);
        if let Some(listener) = &self.listener {
            listener(&event);
        }
    }
}

impl Keeper for StoreKeeper {
    fn strike(&self, member: usize, error: &DeviceError) -> Result<(), DeviceError> {
        let losses = {
            let mut state = self.state.lock();
            if state.losses.is_none() {
                state.noted.push(member);
            }
            state.losses.clone()
        };
        if let Some(losses) = losses {
            let failed = |why: String| {
                let message = format!(
                    "device {member} of the store failed ({error}), and that could not be written down: {why}"
                );
                DeviceError::new(DeviceErrorKind::Failed, message)
            };
            let losses = losses.upgrade().ok_or_else(|| failed("the database has been closed".to_owned()))?;
            let struck = losses.amend(|superblock| {
                strike(superblock, member);
                Ok(())
            });
            struck.map_err(|error| failed(error.to_string()))?;
        }
        let message = format!("device {member} of the store is not used any more: {error}. Replace it");
        self.report(StoreEventKind::Lost, member, message);
        Ok(())
    }

    fn repaired(&self, member: usize, what: &str) {
        let message = format!("device {member} of the store: {what}; written anew from the others");
        self.report(StoreEventKind::Repaired, member, message);
    }
}
