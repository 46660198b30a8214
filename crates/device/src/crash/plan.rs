//! The record over all devices of one test.

use super::{CrashDevice, CrashReplay, Event, Survival, WriteId};
use crate::bytes::SharedBytes;
use crate::device::DeviceInfo;
use crate::error::{DeviceError, DeviceErrorKind};
use crate::memory::MemoryDevice;
use firndb_base::rng::Rng;
use firndb_base::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::Duration;

/// Makes devices whose crashes can be replayed, and records what is done to them. Clones share the
/// record.
///
/// The record grows with every write; [`CrashPlan::settle`] starts it afresh.
#[derive(Clone, Debug, Default)]
pub struct CrashPlan {
    /// Protects the record, and its order: what happens to a live device happens under this lock.
    state: Arc<Mutex<PlanState>>,
}

/// See [`CrashPlan`].
#[derive(Debug, Default)]
pub(super) struct PlanState {
    pub(super) events: Vec<Event>,
    /// What each device shows now (the device's own lock), and what it held when the record began.
    devices: Vec<(Arc<RwLock<SharedBytes>>, Base)>,
    writes: u64,
    syncs: u64,
    latency: Duration,
    off: bool,
}

/// A device as it was, durably, when the record began.
#[derive(Clone, Debug)]
pub(super) struct Base {
    pub(super) info: DeviceInfo,
    pub(super) limit: u64,
    pub(super) bytes: SharedBytes,
}

impl CrashPlan {
    /// A plan without devices.
    #[must_use]
    pub fn new() -> CrashPlan {
        CrashPlan::default()
    }

    /// Adds an empty device with 512-byte blocks that grows without limit.
    #[must_use]
    pub fn device(&self, name: &str) -> Arc<CrashDevice> {
        self.device_holding(&MemoryDevice::new(name))
    }

    /// Adds a device with the name, geometry, limit and contents of `image`, all of it durable: an
    /// empty one of a kind, or one that a crash left, to crash again while it recovers.
    #[must_use]
    pub fn device_holding(&self, image: &MemoryDevice) -> Arc<CrashDevice> {
        use crate::device::Device;
        let base = Base { info: image.info().clone(), limit: image.limit(), bytes: image.contents() };
        let mut state = self.state.lock();
        let live = Arc::new(RwLock::new(base.bytes.clone()));
        let device = CrashDevice::new(self.clone(), state.devices.len(), &base, live.clone());
        state.devices.push((live, base));
        Arc::new(device)
    }

    /// Declares all that was written so far durable and forgets how it came: the record starts
    /// here. To be called while no call to a device is running.
    pub fn settle(&self) {
        let mut state = self.state.lock();
        state.events.clear();
        for (live, base) in &mut state.devices {
            base.bytes = live.read().clone();
        }
    }

    /// Notes `value` in the record: what a test knows at this moment.
    pub fn mark(&self, value: u64) {
        self.state.lock().events.push(Event::Mark(value));
    }

    /// Lets every write and sync last `latency` (in the engine's clock), so that those of several
    /// threads overlap in the record. Zero at first.
    pub fn set_latency(&self, latency: Duration) {
        self.state.lock().latency = latency;
    }

    /// From here on every call to a device fails and changes nothing; calls that are running fail
    /// too.
    pub fn power_off(&self) {
        self.state.lock().off = true;
    }

    /// Events recorded so far.
    #[must_use]
    pub fn event_count(&self) -> usize {
        self.state.lock().events.len()
    }

    /// All events recorded so far.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.state.lock().events.clone()
    }

    /// A walk through what was recorded so far, at its start.
    #[must_use]
    pub fn replay(&self) -> CrashReplay {
        let state = self.state.lock();
        CrashReplay::new(state.events.clone(), state.devices.iter().map(|(_, base)| base.clone()).collect())
    }

    /// The devices as a crash after the first `index` events may leave them. Walks from the start:
    /// for images at many events use [`CrashPlan::replay`].
    #[must_use]
    pub fn image_at(&self, index: usize, survival: Survival, rng: &mut Rng) -> Vec<Arc<MemoryDevice>> {
        let mut replay = self.replay();
        replay.advance_to(index);
        replay.image(survival, rng)
    }

    /// The devices as a crash now may leave them.
    #[must_use]
    pub fn crash_image(&self, survival: Survival, rng: &mut Rng) -> Vec<Arc<MemoryDevice>> {
        let mut replay = self.replay();
        replay.advance_to(replay.event_count());
        replay.image(survival, rng)
    }

    /// The record, to add to it; an error of `device` if the power is off.
    pub(super) fn recording(&self, device: &str) -> Result<MutexGuard<'_, PlanState>, DeviceError> {
        let state = self.state.lock();
        match state.off {
            false => Ok(state),
            true => Err(DeviceError::new(DeviceErrorKind::Failed, format!("{device}: the power is off"))),
        }
    }

    /// Lets the time of a write or sync pass. Called without locks.
    pub(super) fn pass_latency(&self) {
        let latency = self.state.lock().latency;
        if !latency.is_zero() {
            firndb_base::clock::sleep(latency);
        }
    }
}

impl PlanState {
    pub(super) fn next_write(&mut self) -> WriteId {
        self.writes += 1;
        WriteId(self.writes)
    }

    pub(super) fn next_sync(&mut self) -> u64 {
        self.syncs += 1;
        self.syncs
    }
}
