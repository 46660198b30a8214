//! Keeps the states of the store's devices in the superblock.
//!
//! A device that missed a write is struck there before anything that it lacks is acknowledged, by
//! the thread whose write failed. Before the log is opened nothing is acknowledged: a device that
//! fails until then is noted, and struck with the superblock's write that begins the epoch.
//!
//! Locks: the keeper's own is a leaf; the superblock's is taken without it.

use crate::engine::superblock::Superblock;
use crate::error::Error;
use crate::options::Options;
use crate::options::callbacks::{StoreEvent, StoreEventFn, StoreEventKind};
use firndb_array::{Keeper, MemberState};
use firndb_base::sync::{Arc, Mutex};
use firndb_device::{DeviceError, DeviceErrorKind};

/// Number of events that are remembered.
const EVENTS_MAX: usize = 1000;

/// Keeps the states of the store's devices durably, and reports what happens to them.
#[derive(Default)]
pub(crate) struct StoreKeeper {
    state: Mutex<State>,
    listener: Option<StoreEventFn>,
    /// The devices stay as they are: what is written goes to overlays.
    is_looking: bool,
}

/// A change of the superblock, in memory and on its device, or an error.
pub(crate) type Amend = Arc<dyn Fn(&dyn Fn(&mut Superblock)) -> Result<(), Error> + Send + Sync>;

#[derive(Default)]
struct State {
    /// Once there is a superblock that may be changed.
    amend: Option<Amend>,
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
pub(crate) fn strike(superblock: &mut Superblock, member: usize) {
    superblock.store_members_mut()[member].state = MemberState::Struck;
}

impl StoreKeeper {
    pub fn new(options: &Options) -> StoreKeeper {
        let (listener, is_looking) = (options.store_listener.clone(), options.overlay.is_some());
        StoreKeeper { listener, is_looking, ..StoreKeeper::default() }
    }

    /// Strikes in a superblock, which is about to be written, what failed so far.
    pub fn settle(&self, superblock: &mut Superblock) {
        self.state.lock().noted.drain(..).for_each(|member| strike(superblock, member));
    }

    /// From now on members are struck in the superblock that `amend` changes.
    pub fn serve(&self, amend: Amend) {
        let mut state = self.state.lock();
        assert!(state.noted.is_empty(), "what failed before has been settled");
        state.amend = Some(amend);
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
        let amend = {
            let mut state = self.state.lock();
            if state.amend.is_none() {
                state.noted.push(member);
            }
            state.amend.clone()
        };
        if let Some(amend) = amend {
            amend(&|superblock| strike(superblock, member)).map_err(|why| {
                let message = format!(
                    "device {member} of the store failed ({error}), and that could not be written down: {why}"
                );
                DeviceError::new(DeviceErrorKind::Failed, message)
            })?;
        }
        let message = format!("device {member} of the store is not used any more: {error}. Replace it");
        self.report(StoreEventKind::Lost, member, message);
        Ok(())
    }

    fn mends(&self) -> bool {
        !self.is_looking
    }

    fn repaired(&self, member: usize, what: &str) {
        let then = match self.is_looking {
            true => "the others have what is right: scrub the store",
            false => "written anew from the others",
        };
        let message = format!("device {member} of the store: {what}; {then}");
        self.report(StoreEventKind::Repaired, member, message);
    }
}
