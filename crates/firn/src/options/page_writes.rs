//! How the store writes pages: where they go, whether as deltas, and what it takes the second read
//! of a page to cost. By the profile of its device, with the reason.

use crate::options::Options;
use crate::options::limits::DELTA_SHARE;
use crate::options::profiled::{Setting, SettingOrigin, setting};
use crate::options::tuning::{Deltas, Placement};
use firndb_profile::{Access, DeviceCosts, DeviceProfile, Order, Submission, Work};
use firndb_tier::store::{self, DeltaPolicy};

/// Pages that a request of the store writes on average in runs of free places, where a fifth of its
/// places is free (`docs/lab/2026-11-23-icl.md`), and in whole segments.
pub(super) const RUN_PAGES: u64 = 2;
const SEGMENT_PAGES: u64 = 8;
/// Pages that the cleaner reads and writes for one that is new
/// (`docs/lab/2026-11-23-placement.md`).
const COPIES: f64 = 1.2;
/// With `Auto`, pages go to whole segments where one costs at most this percentage of one in runs
/// (`docs/lab/2026-11-24-placement.md`).
const SEGMENTS_PERCENT_MAX: f64 = 25.0;
/// With `Auto`, deltas are written where a second read costs at most this percentage of what
/// writing a page does (`docs/lab/2026-11-28-deltas.md`).
const DELTAS_PERCENT_MAX: u16 = 40;

/// Requests in flight. With more of them reads seem cheaper beside writes on drives of many
/// channels, but what readers wait for is one (`docs/lab/2026-11-28-deltas.md`).
const DEPTH: u32 = 1;

/// What the random read of a page costs, and the write of one, in microseconds: behind a write
/// cache what its draining takes.
struct Costs {
    read_us: f64,
    /// In runs of free places.
    threaded_us: f64,
    /// In whole segments, with what the cleaner copies.
    segments_us: f64,
}

impl Costs {
    fn of(profile: &DeviceProfile, page_size: usize) -> Costs {
        let costs = DeviceCosts::of(profile);
        // Of one page, in requests of this number of pages.
        let each_us = |access, order, pages: u64| {
            let (bytes, span_bytes) = (pages * page_size as u64, profile.capacity_bytes);
            let submission = Submission::Steady;
            costs.request_us(&Work { access, bytes, order, depth: DEPTH, submission, span_bytes })
                / pages as f64
        };
        let read_us = each_us(Access::Read, Order::Random, 1);
        let segment_us = each_us(Access::Write, Order::Sequential, SEGMENT_PAGES);
        Costs {
            read_us,
            threaded_us: each_us(Access::Write, Order::Random, RUN_PAGES),
            segments_us: (1.0 + COPIES) * segment_us + COPIES * read_us,
        }
    }

    /// What writing a page costs.
    fn write_us(&self, placement: store::Placement) -> f64 {
        match placement {
            store::Placement::Segments => self.segments_us,
            _ => self.threaded_us,
        }
    }

    /// The read over the write.
    fn percent(&self, placement: store::Placement) -> u16 {
        (100.0 * self.read_us / self.write_us(placement)).round().clamp(1.0, 1000.0) as u16
    }

    fn favour_segments(&self) -> bool {
        100.0 * self.segments_us <= SEGMENTS_PERCENT_MAX * self.threaded_us
    }

    fn favour_deltas(&self, placement: store::Placement) -> bool {
        self.percent(placement) <= DELTAS_PERCENT_MAX
    }
}

/// Why a setting was chosen by what a device costs, of which `show` tells.
fn reason(costs: Option<&Costs>, show: impl Fn(&Costs) -> String) -> String {
    match costs {
        Some(costs) => show(costs),
        None => "no profile of the store's device".to_owned(),
    }
}

/// How the store writes pages.
pub(crate) struct PageWrites {
    pub(crate) placement: store::Placement,
    pub(crate) deltas: DeltaPolicy,
    /// The same, as settings to show.
    pub(crate) settings: [Setting; 2],
}

impl Options {
    /// How the store writes pages.
    pub(crate) fn page_writes(&self) -> PageWrites {
        let costs = self.store_profile().map(|(profile, _)| Costs::of(profile, self.page_size));
        let (placement, shown) = self.placement_choice(costs.as_ref());
        let (deltas, shown_deltas) = self.delta_choice(costs.as_ref(), placement);
        PageWrites { placement, deltas, settings: [shown, shown_deltas] }
    }

    /// The origin of a setting that is `Auto` or the default.
    fn origin_of(&self, is_auto: bool, is_default: bool) -> SettingOrigin {
        match self.store_profile() {
            Some((_, origin)) if is_auto => origin.clone(),
            _ if is_default => SettingOrigin::Default,
            _ => SettingOrigin::Option,
        }
    }

    fn placement_choice(&self, costs: Option<&Costs>) -> (store::Placement, Setting) {
        let chosen = self.tuning.placement;
        let placement = match chosen {
            Placement::Segments => store::Placement::Segments,
            Placement::Auto if costs.is_some_and(Costs::favour_segments) => store::Placement::Segments,
            Placement::Threaded | Placement::Auto => store::Placement::Threaded,
        };
        let reason = reason(costs, |Costs { threaded_us, segments_us, .. }| {
            format!(
                "a page is written in {threaded_us:.0} us in a run, and in {segments_us:.0} us in a whole segment, \
                 copies included"
            )
        });
        let value = match placement {
            store::Placement::Segments => "segments",
            _ => "threaded",
        };
        let origin = self.origin_of(chosen == Placement::Auto, chosen == Placement::default());
        (placement, setting("placement", value, &origin, &reason))
    }

    fn delta_choice(&self, costs: Option<&Costs>, placement: store::Placement) -> (DeltaPolicy, Setting) {
        let percent = costs.map_or(DeltaPolicy::OFF.read_cost_percent, |costs| costs.percent(placement));
        let chosen = self.tuning.deltas;
        let on = match chosen {
            Deltas::Off => false,
            Deltas::On => true,
            Deltas::Auto => costs.is_some_and(|costs| costs.favour_deltas(placement)),
        };
        let reason = reason(costs, |costs| {
            format!(
                "a page is read in {:.0} us, and written in {:.0} us as the store places it",
                costs.read_us,
                costs.write_us(placement)
            )
        });
        let value = match on {
            true => format!("on, a second read counts as {percent} % of a page written"),
            false => "off".to_owned(),
        };
        let origin = self.origin_of(chosen == Deltas::Auto, chosen == Deltas::default());
        let shown = setting("deltas", value, &origin, &reason);
        let buffer_bytes = self.tuning.delta_bytes.unwrap_or(self.buffer_bytes / DELTA_SHARE);
        let policy =
            DeltaPolicy { enabled: on, buffer_bytes, read_cost_percent: percent, ..DeltaPolicy::OFF };
        (if on { policy } else { DeltaPolicy::OFF }, shown)
    }
}
