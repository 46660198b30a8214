//! Whether the store writes deltas, and what it takes the second read of a page to cost: by the
//! profile of its device, with the reason.

use crate::options::Options;
use crate::options::limits::DELTA_SHARE;
use crate::options::profiled::{Setting, SettingOrigin, setting};
use crate::options::tuning::Deltas;
use firndb_profile::DeviceProfile;
use firndb_tier::store::DeltaPolicy;

/// Pages that a request of the store writes on average, where a fifth of its places is free
/// (`docs/lab/2026-11-23-icl.md`).
const RUN_PAGES: u64 = 2;
/// With `Auto`, deltas are written where a second read costs at most this percentage of what
/// writing a page does (`docs/lab/2026-11-23-delta-policy.md`).
const AUTO_PERCENT_MAX: u16 = 90;

/// What the random read of a page costs, and the write of one, in microseconds.
struct Costs {
    read_us: f64,
    write_us: f64,
}

impl Costs {
    fn of(profile: &DeviceProfile, page_size: usize) -> Costs {
        let (model, page) = (&profile.model, page_size as u64);
        let run = RUN_PAGES * page;
        let (read_us, run_us) = match &model.mechanics {
            Some(disk) => (disk.random_read_us(page), disk.random_read_us(run)),
            None => (model.read_random.us(page), model.write_random.us(run)),
        };
        Costs { read_us, write_us: run_us / RUN_PAGES as f64 }
    }

    /// The read over the write.
    fn percent(&self) -> u16 {
        (100.0 * self.read_us / self.write_us).clamp(1.0, 1000.0) as u16
    }
}

impl Options {
    /// How the store writes deltas: not at all, or with this much memory.
    pub(crate) fn delta_policy(&self) -> DeltaPolicy {
        self.delta_choice().0
    }

    /// The same, as a setting to show.
    pub(crate) fn delta_setting(&self) -> Setting {
        self.delta_choice().1
    }

    fn delta_choice(&self) -> (DeltaPolicy, Setting) {
        let source = self.store_profile();
        let costs = source.map(|(profile, _)| Costs::of(profile, self.page_size));
        let percent = costs.as_ref().map_or(DeltaPolicy::OFF.read_cost_percent, Costs::percent);
        // Behind a write cache writes cost less than the profile's durable ones: there deltas lost.
        let caches = source.is_some_and(|(profile, _)| profile.model.write_cache.is_some());
        let is_cheap = costs.is_some() && percent <= AUTO_PERCENT_MAX && !caches;
        let on = match self.tuning.deltas {
            Deltas::Off => false,
            Deltas::On => true,
            Deltas::Auto => is_cheap,
        };
        let origin = match (self.tuning.deltas, source) {
            (Deltas::Auto, Some((_, origin))) => origin.clone(),
            (chosen, _) if chosen == Deltas::default() => SettingOrigin::Default,
            _ => SettingOrigin::Option,
        };
        let reason = match &costs {
            Some(_) if caches => "the device's write cache hides what writing a page costs".to_owned(),
            Some(Costs { read_us, write_us }) => {
                format!(
                    "a page is read in {read_us:.0} us, and written in {write_us:.0} us in a run of the store's"
                )
            }
            None => "no profile of the store's device".to_owned(),
        };
        let value = match on {
            true => format!("on, a second read counts as {percent} % of a page written"),
            false => "off".to_owned(),
        };
        let setting = setting("deltas", value, &origin, &reason);
        let buffer_bytes = self.tuning.delta_bytes.unwrap_or(self.buffer_bytes / DELTA_SHARE);
        let policy =
            DeltaPolicy { enabled: on, buffer_bytes, read_cost_percent: percent, ..DeltaPolicy::OFF };
        (if on { policy } else { DeltaPolicy::OFF }, setting)
    }
}
