//! The time that the emulated device takes: the interface to the device model.

use std::ops::Range;
use std::time::Duration;

/// The operations of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceOperation {
    /// A read.
    Read,
    /// A write; durable only after a sync.
    Write,
    /// A write that is durable when it completes.
    DurableWrite,
    /// Makes all completed writes durable.
    Sync,
}

/// One request to the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceRequest {
    /// The operation.
    pub operation: DeviceOperation,
    /// Bytes of the device's address space; empty for a sync.
    pub range: Range<u64>,
}

/// A device's timing, its queues included.
pub trait Timing: Send {
    /// Returns when each of these requests, which arrive together at `now`, completes; all times
    /// are since the mount. The caller passes times that never go back.
    fn submit(&mut self, now: Duration, requests: &[DeviceRequest]) -> Vec<Duration>;
}

/// Each request takes a fixed time, one after the other. For experiments with file systems, and for
/// tests.
#[derive(Clone, Debug, Default)]
pub struct FixedTiming {
    /// Time of a read.
    pub read: Duration,
    /// Time of a write that need not be durable.
    pub write: Duration,
    /// Time of a durable write.
    pub durable_write: Duration,
    /// Time of a sync.
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
