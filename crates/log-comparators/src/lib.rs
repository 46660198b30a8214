//! What Firn's log is compared with: log striped round robin over its devices, or written in place;
//! requests composed at the flush call; overdue writes issued again to another device's main
//! stream.
//!
//! Place in the stack: a part of the laboratory, above `log`; no crate of the engine uses it. It
//! attaches to the log by [`LogLayout`], which says what each layout decides. Source: the
//! FlashLogging paper (SIGMOD 2009), sections 3.3, 3.4, 3.5 and 4.
//!
//! Invariants: every layout writes the log's own format, so that a log may be opened with another
//! one than it was written with; the argument about space in the log's `front` holds for each.
//!
//! Failure: layouts do no I/O. What devices do not support is refused when the log is opened.
#![forbid(unsafe_code)]

mod boundaries;
mod composing;
mod lanes;
mod stripes;
mod written;

use composing::Composer;
use firndb_base::Lsn;
use firndb_base::sync::Arc;
use firndb_log::log_layout::{Completing, Composing, LogLayout};
use firndb_log::{Hiding, LogError, LogErrorKind, LogOptions};
use stripes::Stripes;
use written::LanesWritten;

/// Largest stripe unit, in bytes.
const STRIPE_MAX: u32 = 16 << 20;
/// Stripe units that a device holds at least, so that a group always fits on each device.
const STRIPES_MIN: u64 = 8;

/// How log is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LogPolicy {
    /// A request goes whole to any device that is free; a partly filled block is written again
    /// further on. The paper's unconventional array (3.3).
    #[default]
    Array,
    /// Round robin, as in disk arrays: each `unit_bytes` of log blocks belong to the next device,
    /// which alone may write them. A request that spans several units is split, and a device skips
    /// what belongs to others. It is never faster. Outliers are not hidden, as no other device may
    /// write them.
    Striped {
        /// A multiple of the largest logical block of the devices, up to 16 MiB.
        unit_bytes: u32,
    },
    /// One device, on which a partly filled last block is written again *in place*, as in a
    /// conventional log file. It is as safe as the device's promise to write a logical block wholly
    /// or not at all: a device that tears a block at a power cut, or damages its neighbours, as
    /// flash drives are known to, loses commits that were acknowledged.
    InPlace,
}

/// When a request is composed of the log that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Compose {
    /// When a device becomes free: all log appended until then. Adapts to the devices' speed by
    /// itself.
    #[default]
    WhenDeviceFree,
    /// At the flush call, queued until a device becomes free: the paper's policy (3.5).
    AtFlush,
}

/// How overdue writes are hedged: as the log can by itself, or naively.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Hedging {
    /// [`Hiding::Off`].
    Off,
    /// The write is issued again to the main stream of another free device, if its LSNs may still
    /// follow there, which they seldom may: the paper's "naive hiding".
    Naive,
    /// [`Hiding::TwoStream`].
    TwoStream,
    /// [`Hiding::Adaptive`].
    #[default]
    Adaptive,
}

/// What is compared; by default, the log's own choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Comparator {
    /// How log is placed.
    pub policy: LogPolicy,
    /// When requests are composed.
    pub compose: Compose,
    /// How overdue writes are hedged.
    pub hedging: Hedging,
}

impl Comparator {
    /// The layout for [`LogOptions::layout`]; `None` for the log's own.
    #[must_use]
    pub fn layout(self) -> Option<Arc<dyn LogLayout>> {
        let is_own = self.composes_as_array() && self.hedging != Hedging::Naive;
        (!is_own).then(|| Arc::new(self) as Arc<dyn LogLayout>)
    }

    /// The setting for [`LogOptions::hiding`].
    #[must_use]
    pub fn hiding(self) -> Hiding {
        match self.hedging {
            Hedging::Off => Hiding::Off,
            Hedging::Naive | Hedging::TwoStream => Hiding::TwoStream,
            Hedging::Adaptive => Hiding::Adaptive,
        }
    }

    /// `options` with what is compared.
    #[must_use]
    pub fn within(self, options: LogOptions) -> LogOptions {
        LogOptions { layout: self.layout(), hiding: self.hiding(), ..options }
    }

    fn composes_as_array(&self) -> bool {
        self.policy == LogPolicy::Array && self.compose == Compose::WhenDeviceFree
    }

    fn stripes(&self, devices: usize) -> Option<Stripes> {
        match self.policy {
            LogPolicy::Striped { unit_bytes } => Some(Stripes::new(unit_bytes, devices)),
            LogPolicy::Array | LogPolicy::InPlace => None,
        }
    }
}

impl LogLayout for Comparator {
    fn check(&self, unit: u64, capacities: &[u64]) -> Result<(), LogError> {
        self.policy.check(unit, capacities)
    }

    fn takes_any_device(&self) -> bool {
        self.policy == LogPolicy::Array
    }

    fn composes_at_flush(&self) -> bool {
        self.compose == Compose::AtFlush
    }

    fn hedges_in_main_stream(&self) -> bool {
        self.hedging == Hedging::Naive
    }

    fn composing(&self, unit: u64, devices: usize, start: Lsn) -> Option<Box<dyn Composing>> {
        let in_place = self.policy == LogPolicy::InPlace;
        (!self.composes_as_array())
            .then(|| Box::new(Composer::new(self.stripes(devices), in_place, unit, start)) as _)
    }

    fn completing(&self, devices: usize, start: Lsn) -> Option<Box<dyn Completing>> {
        self.stripes(devices).map(|stripes| Box::new(LanesWritten::new(stripes, start)) as _)
    }
}

impl LogPolicy {
    fn check(self, unit: u64, capacities: &[u64]) -> Result<(), LogError> {
        let refuse = |message: String| Err(LogError::new(LogErrorKind::BadArgument, message));
        match self {
            LogPolicy::Array => Ok(()),
            LogPolicy::InPlace if capacities.len() == 1 => Ok(()),
            LogPolicy::InPlace => refuse(format!(
                "a log that is written in place has one device, not {}: choose another policy",
                capacities.len()
            )),
            LogPolicy::Striped { unit_bytes } => {
                let sound =
                    unit_bytes > 0 && u64::from(unit_bytes).is_multiple_of(unit) && unit_bytes <= STRIPE_MAX;
                if !sound {
                    return refuse(format!(
                        "a stripe unit of {unit_bytes} bytes is none: it must be a multiple of {unit}, up to {STRIPE_MAX}"
                    ));
                }
                let least = STRIPES_MIN * u64::from(unit_bytes);
                match capacities.iter().min() {
                    Some(&capacity) if capacity < least => refuse(format!(
                        "a log device of {capacity} bytes is too small for stripe units of {unit_bytes}: it needs {least}"
                    )),
                    _ => Ok(()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_that_make_no_sense_are_refused_with_what_to_do() {
        let refused = |policy: LogPolicy, unit, capacities: &[u64]| {
            policy.check(unit, capacities).expect_err("refused").message
        };
        assert!(refused(LogPolicy::InPlace, 512, &[1 << 20; 2]).contains("one device"));
        for unit_bytes in [0, 511, 1000, 32 << 20] {
            assert!(refused(LogPolicy::Striped { unit_bytes }, 512, &[1 << 30]).contains("multiple of 512"));
        }
        let small = refused(LogPolicy::Striped { unit_bytes: 256 << 10 }, 512, &[8 << 20, 1 << 20]);
        assert!(small.contains("2097152"), "{small}");
        for unit_bytes in [512, 1536, 256 << 10] {
            LogPolicy::Striped { unit_bytes }.check(512, &[8 << 20; 3]).expect("sound");
        }
    }

    #[test]
    fn the_logs_own_layout_is_no_comparator() {
        for hedging in [Hedging::Off, Hedging::TwoStream, Hedging::Adaptive] {
            assert!(Comparator { hedging, ..Comparator::default() }.layout().is_none());
        }
        let naive = Comparator { hedging: Hedging::Naive, ..Comparator::default() };
        let striped = Comparator { policy: LogPolicy::Striped { unit_bytes: 512 }, ..Comparator::default() };
        let at_flush = Comparator { compose: Compose::AtFlush, ..Comparator::default() };
        assert!([naive, striped, at_flush].iter().all(|comparator| comparator.layout().is_some()));
    }
}
