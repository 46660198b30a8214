//! The timing of a device profile.

use crate::timing::{DeviceOperation, DeviceRequest, Timing};
use firndb_emulate::{Model, Request};
use firndb_profile::{DeviceProfile, ProfileError};
use std::time::Duration;

/// The timing of this device; equal seeds give equal outliers.
///
/// # Errors
/// If the profile contradicts itself.
pub fn timing_of(profile: &DeviceProfile, seed: u64) -> Result<Box<dyn Timing>, ProfileError> {
    Ok(Box::new(ModelTiming { model: Model::new(profile, seed)? }))
}

struct ModelTiming {
    model: Model,
}

impl Timing for ModelTiming {
    fn submit(&mut self, now: Duration, requests: &[DeviceRequest]) -> Vec<Duration> {
        let requests: Vec<Request> = requests.iter().map(request).collect();
        self.model.submit_batch(now, &requests)
    }
}

fn request(request: &DeviceRequest) -> Request {
    let (offset, bytes) = (request.range.start, request.range.end - request.range.start);
    match request.operation {
        DeviceOperation::Read => Request::read(offset, bytes),
        DeviceOperation::Write => Request::write(offset, bytes),
        DeviceOperation::DurableWrite => Request::durable_write(offset, bytes),
        DeviceOperation::Sync => Request::sync(),
    }
}
