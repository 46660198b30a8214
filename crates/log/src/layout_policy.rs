//! Where requests are placed on the devices: the unconventional array, and the layouts that it is
//! compared with (3.3, 4).

use crate::error::{LogError, LogErrorKind};

/// Largest stripe unit, in bytes.
const STRIPE_MAX: u32 = 16 << 20;
/// Stripe units that a device holds at least, so that a group always fits on each device.
const STRIPES_MIN: u64 = 8;

/// How log is placed. The format on the devices is the same under every policy, and a log may be
/// opened with another policy than it was written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LogPolicy {
    /// A request goes whole to any device that is free; a partly filled block is written again
    /// further on. The paper's unconventional array (3.3).
    #[default]
    Array,
    /// Round robin, as in disk arrays: each `unit_bytes` of log blocks belong to the next device,
    /// which alone may write them. A request that spans several units is split, and a device skips
    /// what belongs to others. For comparison: it is never faster. Outliers are not hidden, as no
    /// other device may write them.
    Striped {
        /// A multiple of the largest logical block of the devices, up to 16 MiB.
        unit_bytes: u32,
    },
    /// One device, on which a partly filled last block is written again *in place*, as in a
    /// conventional log file. For comparison. It is as safe as the device's promise to write a
    /// logical block wholly or not at all: a device that tears a block at a power cut, or damages
    /// its neighbours, as flash drives are known to, loses commits that were acknowledged.
    InPlace,
}

impl LogPolicy {
    /// Checks that devices with this logical block and these capacities, in bytes, support the
    /// policy.
    pub(crate) fn check(self, unit: u64, capacities: &[u64]) -> Result<(), LogError> {
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
}
