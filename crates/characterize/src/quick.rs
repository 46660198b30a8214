//! The quick measurement as one call, for an engine that creates a database.

use crate::drive::Stop;
use crate::error::Error;
use crate::fit;
use crate::head::Head;
use crate::measure::measure;
use crate::plan::{Effort, Plan};
use crate::target::{Consent, Target, TargetOptions};
use firndb_base::clock;
use firndb_base::sync::Arc;
use firndb_profile::DeviceProfile;
use std::path::Path;

/// Measures the file system that `dir` is on for at most half a minute, in files that are gone
/// afterwards.
pub fn quick(dir: &Path) -> Result<DeviceProfile, Error> {
    let plan = Plan::new(Effort::Quick);
    let options =
        TargetOptions { area: None, prepare: plan.prepare, consent: Consent::default(), keep: false };
    let never: Stop = Arc::new(|| false);
    let target = Target::open(dir, &options, &mut |_, _| {}, &never)?;
    let measured = measure(&target, &plan, &mut |_| {}, &never)?;
    let date = format!("{} s since the epoch", clock::unix_time_us() / 1_000_000);
    fit::profile(&measured, Head::of(dir, &target, plan.effort, "measured", &date))
}
