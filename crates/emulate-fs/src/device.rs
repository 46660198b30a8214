//! The emulated device: timing and faults together, under the one clock of the mount.

use crate::faults::FaultPlan;
use crate::timing::{DeviceRequest, Timing};
use firndb_base::clock::{self, Moment};
use firndb_base::rng::Rng;
use firndb_base::sync::Mutex;
use std::time::Duration;

/// A device that returns, for each request, when it would be done.
pub struct EmulatedDevice {
    mounted: Moment,
    /// Computes completions. The lock also keeps the times passed to the timing in order.
    timing: Mutex<(Box<dyn Timing>, Rng)>,
    /// The scripted faults.
    pub plan: FaultPlan,
}

impl EmulatedDevice {
    /// A device; its time begins now.
    #[must_use]
    pub fn new(timing: Box<dyn Timing>, plan: FaultPlan, seed: u64) -> EmulatedDevice {
        EmulatedDevice { mounted: clock::now(), timing: Mutex::new((timing, Rng::new(seed))), plan }
    }

    /// Time since the mount.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.mounted.elapsed()
    }

    /// When the last of these requests, submitted together now, completes. Now if there are none.
    #[must_use]
    pub fn serve(&self, requests: &[DeviceRequest]) -> Duration {
        let mut timing = self.timing.lock();
        let (timing, rng) = &mut *timing;
        let now = self.now();
        let start = self.plan.starts(now);
        let mut last = now;
        for end in timing.submit(start, requests) {
            let end = end.max(start) + self.plan.spike(now, rng);
            last = last.max(self.plan.ends(start, end));
        }
        last
    }
}
