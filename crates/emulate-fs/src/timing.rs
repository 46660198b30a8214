//! What the emulated device costs: the seam to the device model.

use std::ops::Range;
use std::time::Duration;

/// What a device is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceOperation {
    /// Read.
    Read,
    /// Write; durable only after a sync.
    Write,
    /// Write, and be durable when that is answered.
    DurableWrite,
    /// Make durable what was written.
    Sync,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceRequest {
    /// What to do.
    pub operation: DeviceOperation,
    /// Bytes of the device's address space; empty for a sync.
    pub range: Range<u64>,
}

/// A device's timing, its queues included.
pub trait Timing: Send {
    /// When each of these requests is answered that arrive together at `now`, all in time since the mount. Called
    /// with times that never go back.
    fn submit(&mut self, now: Duration, requests: &[DeviceRequest]) -> Vec<Duration>;
}

/// Each request takes a fixed time, one after the other. For trying out file systems, and for tests.
#[derive(Clone, Debug, Default)]
pub struct FixedTiming {
    /// Of a read.
    pub read: Duration,
    /// Of a write that need not be durable.
    pub write: Duration,
    /// Of a durable write.
    pub durable_write: Duration,
    /// Of a sync.
    pub sync: Duration,
    /// When the device is free.
    pub busy_until: Duration,
}

impl Timing for FixedTiming {
    fn submit(&mut self, now: Duration, requests: &[DeviceRequest]) -> Vec<Duration> {
        let mut serve = |request: &DeviceRequest| {
            let time = match request.operation {
                DeviceOperation::Read => self.read,
                DeviceOperation::Write => self.write,
                DeviceOperation::DurableWrite => self.durable_write,
                DeviceOperation::Sync => self.sync,
            };
            self.busy_until = self.busy_until.max(now) + time;
            self.busy_until
        };
        requests.iter().map(&mut serve).collect()
    }
}
