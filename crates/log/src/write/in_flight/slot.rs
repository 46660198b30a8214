//! A device as the in-flight table knows it, and the write that it performs.

use crate::block::Owner;
use crate::ids::MemberId;
use crate::members::state::MemberState;
use crate::write::job::{Bytes, Task};
use firndb_base::clock::Moment;
use firndb_base::sync::Arc;
use firndb_device::{AbsentDevice, AlignedBuf, Device, DeviceError, DeviceErrorKind};

/// A write that a device performs, or that is queued for it. Recorded only where writes may be
/// hedged.
pub(crate) struct Writing {
    /// Number of the request; `None` for a seal.
    pub request: Option<u64>,
    pub bytes: Arc<Bytes>,
    pub blocks: usize,
    /// The device whose slow write this one hedges.
    pub hides: Option<usize>,
    /// The write was found overdue; it is counted once.
    pub detected: bool,
    /// Set once the request was issued again because of this write; the value is whether log waited
    /// for a device at that time.
    pub reissued: Option<bool>,
    /// When another write of the request completed it.
    pub hidden_at: Option<Moment>,
}

/// A device of the log.
pub(crate) struct Slot {
    pub(super) device: Arc<dyn Device>,
    /// Owner of the device's main stream.
    pub(super) owner: Owner,
    /// The device's request buffer; `None` while the device writes it. A device has one write in
    /// flight at a time, whichever of its streams the write is for.
    pub(super) buffer: Option<AlignedBuf>,
    pub(super) state: MemberState,
    /// The device's last write took so long that a worker should issue the next one.
    pub(super) is_slow: bool,
    pub(super) writing: Option<Writing>,
    /// Writes that have ended.
    pub(super) writes_ended: u64,
}

impl Slot {
    pub fn new(device: Arc<dyn Device>, owner: Owner, buffer: AlignedBuf) -> Slot {
        Slot {
            device,
            owner,
            buffer: Some(buffer),
            state: MemberState::InUse,
            is_slow: false,
            writing: None,
            writes_ended: 0,
        }
    }

    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    pub fn member(&self) -> MemberId {
        MemberId(self.owner.member)
    }

    pub fn state(&self) -> MemberState {
        self.state
    }

    /// Whether the device accepts writes at all.
    pub fn is_usable(&self) -> bool {
        self.state == MemberState::InUse
    }

    pub fn is_ready(&self) -> bool {
        self.is_usable() && self.buffer.is_some()
    }

    /// Whether a write on the device will end. A device that has failed or has left never returns
    /// its buffer.
    pub fn is_writing(&self) -> bool {
        self.buffer.is_none() && matches!(self.state, MemberState::InUse | MemberState::Leaving)
    }

    /// Whether no write to the device is in flight, or it has failed and writes no more.
    pub fn is_quiet(&self) -> bool {
        self.buffer.is_some() || self.state == MemberState::Failed
    }

    /// Writes that have ended.
    pub fn writes_ended(&self) -> u64 {
        self.writes_ended
    }

    /// Leaves the log. Returns the device.
    pub(super) fn leave(&mut self) -> Arc<dyn Device> {
        self.state = MemberState::Gone;
        self.detach_device()
    }

    /// Replaces the device by an absent one. Returns it.
    pub(super) fn detach_device(&mut self) -> Arc<dyn Device> {
        let name = self.device.info().name.clone();
        let why = DeviceError::new(DeviceErrorKind::Failed, format!("{name} has left the log"));
        std::mem::replace(&mut self.device, Arc::new(AbsentDevice::new(&name, why)))
    }
}

impl Writing {
    pub(super) fn new(task: Task, bytes: Arc<Bytes>, blocks: usize) -> Writing {
        Writing {
            request: task.request(),
            bytes,
            blocks,
            hides: task.hides(),
            detected: false,
            reissued: None,
            hidden_at: None,
        }
    }
}

/// A device that was taken for a write, with its request buffer: it is returned, or the write
/// begins.
pub(crate) struct FreeDevice {
    pub device: usize,
    /// Owner of its main stream.
    pub owner: Owner,
    pub buf: AlignedBuf,
}
