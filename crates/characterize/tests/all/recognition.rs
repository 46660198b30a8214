//! What a target is measured and taken for, in virtual time.

use firndb_base::sync::Arc;
use firndb_characterize::{Head, Measurements, Plan, Stop, Target, measure, profile};
use firndb_profile::DeviceProfile;
use std::time::Duration;

/// Measures the target of `capacity_bytes` by the plan, to its end, and fits a profile.
pub fn characterized(target: &Target, mut plan: Plan, capacity_bytes: u64) -> (Measurements, DeviceProfile) {
    plan.deadline = Duration::from_secs(300);
    let never: Stop = Arc::new(|| false);
    let measured = measure(target, &plan, &mut |_| {}, &never).unwrap();
    let head = Head {
        name: "built".to_owned(),
        title: "built".to_owned(),
        source: "a test".to_owned(),
        notes: Vec::new(),
        capacity_bytes,
        logical_block: 512,
    };
    let profile = profile(&measured, head).unwrap();
    (measured, profile)
}
