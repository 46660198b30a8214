//! Uncertain parameters of a device, swept between two values.

use crate::model::ModelSection;
use crate::profile::DeviceProfile;
use serde::{Deserialize, Serialize};

/// A parameter of the model that may be uncertain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Parameter {
    /// Number of channels; service times stay, so the device as a whole becomes faster.
    Channels,
    /// Number of channels; service times grow with it, so that the throughput of the busy device
    /// stays, and a single request becomes slower.
    ChannelsAtSameThroughput,
    /// Factor on the times of all reads.
    ReadTime,
    /// Factor on the times of all writes, overlapping ones included.
    WriteTime,
    /// Factor on sequential writes.
    WriteSequentialTime,
    /// Factor on random writes.
    WriteRandomTime,
    /// Factor on overlapping writes.
    WriteOverlappingTime,
    /// Microseconds of a sync.
    SyncUs,
    /// Factor on the share of outliers (and the inverse on their spacing).
    OutlierShare,
    /// Factor on the time of outliers.
    OutlierTime,
    /// Number of streams.
    AppendStreams,
    /// Mean seek.
    SeekAverageMs,
    /// Rate of the medium; a write cache drains faster or slower in proportion.
    TransferMbS,
    /// Time of a write that the cache acknowledges.
    AcceptUs,
    /// Requests at a spindle at which the gain of reordering is greatest.
    ReorderingDepth,
}

/// `[[model.band]]`: an uncertain parameter; the model itself holds a value in between.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Band {
    /// The uncertain parameter.
    pub parameter: Parameter,
    /// Least value, or factor on the model's.
    pub low: f64,
    /// Greatest value, or factor on the model's.
    pub high: f64,
    /// Why the range is this one.
    pub why: String,
}

/// The ends of the bands, and the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum VariantName {
    /// Every uncertain parameter at its faster end.
    Fast,
    /// The model as it stands.
    Middle,
    /// Every uncertain parameter at its slower end.
    Slow,
}

/// A profile with its uncertain parameters set.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// The end of the bands that was set.
    pub name: VariantName,
    /// The profile, without bands.
    pub profile: DeviceProfile,
}

impl Parameter {
    /// Whether a greater value makes the device faster.
    fn more_is_faster(self) -> bool {
        matches!(self, Parameter::Channels | Parameter::AppendStreams | Parameter::TransferMbS)
    }
}

impl Band {
    /// The value at the faster end.
    #[must_use]
    pub fn fast(&self) -> f64 {
        if self.parameter.more_is_faster() { self.high } else { self.low }
    }

    /// The value at the slower end.
    #[must_use]
    pub fn slow(&self) -> f64 {
        if self.parameter.more_is_faster() { self.low } else { self.high }
    }
}

impl DeviceProfile {
    /// The profiles of a sweep: fast, middle and slow; only the middle one if nothing is uncertain.
    /// A result on this device is the range over them.
    #[must_use]
    pub fn variants(&self) -> Vec<Variant> {
        let at = |name: VariantName, value: fn(&Band) -> f64| {
            let mut profile = self.clone();
            for band in std::mem::take(&mut profile.model.band) {
                profile.model.set(band.parameter, value(&band));
            }
            Variant { name, profile }
        };
        let mut middle = Variant { name: VariantName::Middle, profile: self.clone() };
        middle.profile.model.band.clear();
        if self.model.band.is_empty() {
            return vec![middle];
        }
        vec![at(VariantName::Fast, Band::fast), middle, at(VariantName::Slow, Band::slow)]
    }
}

impl ModelSection {
    /// Sets one parameter: to `value`, or by the factor `value`, as the parameter says. If the
    /// model has no such part (outliers, mechanics, a cache), nothing changes.
    pub fn set(&mut self, parameter: Parameter, value: f64) {
        match parameter {
            Parameter::Channels => self.channels = (value.round() as u32).max(1),
            Parameter::ChannelsAtSameThroughput => self.set_channels_at_same_throughput(value),
            Parameter::ReadTime => self.scale_reads(value),
            Parameter::WriteTime => self.scale_writes(value),
            Parameter::WriteSequentialTime => self.write_sequential = self.write_sequential.scaled(value),
            Parameter::WriteRandomTime => self.write_random = self.write_random.scaled(value),
            Parameter::WriteOverlappingTime => self.write_overlapping = self.write_overlapping.scaled(value),
            Parameter::SyncUs => self.sync_us = value,
            Parameter::OutlierShare => {
                for outliers in &mut self.outliers {
                    outliers.share = (outliers.share * value).min(1.0);
                    outliers.spacing = outliers.spacing.map(|(least, most)| {
                        let scaled = |n: u32| ((f64::from(n) / value).round() as u32).max(1);
                        (scaled(least), scaled(most))
                    });
                }
            }
            Parameter::OutlierTime => {
                for outliers in &mut self.outliers {
                    outliers.from_us *= value;
                    outliers.to_us *= value;
                }
            }
            Parameter::AppendStreams => self.append_streams = (value.round() as u32).max(1),
            Parameter::SeekAverageMs => {
                if let Some(mechanics) = &mut self.mechanics {
                    let factor = value / mechanics.seek_average_ms;
                    mechanics.seek_track_ms *= factor;
                    mechanics.seek_average_ms = value;
                    mechanics.seek_full_ms *= factor;
                }
            }
            Parameter::TransferMbS => {
                if let Some(mechanics) = &mut self.mechanics {
                    // A disk's cache drains at the rate of its medium.
                    if let Some(cache) = &mut self.write_cache {
                        cache.drain_mb_s *= value / mechanics.transfer_mb_s;
                    }
                    mechanics.transfer_mb_s = value;
                }
            }
            Parameter::AcceptUs => {
                if let Some(cache) = &mut self.write_cache {
                    cache.accept_us = value;
                }
            }
            Parameter::ReorderingDepth => {
                if let Some(point) =
                    self.mechanics.as_mut().and_then(|mechanics| mechanics.reordering.last_mut())
                {
                    point.depth = (value.round() as u32).max(1);
                }
            }
        }
    }

    fn set_channels_at_same_throughput(&mut self, channels: f64) {
        let channels = (channels.round() as u32).max(1);
        let factor = f64::from(channels) / f64::from(self.channels);
        self.channels = channels;
        self.scale_reads(factor);
        self.scale_writes(factor);
    }

    fn scale_reads(&mut self, factor: f64) {
        self.read_sequential = self.read_sequential.scaled(factor);
        self.read_random = self.read_random.scaled(factor);
    }

    fn scale_writes(&mut self, factor: f64) {
        self.write_sequential = self.write_sequential.scaled(factor);
        self.write_random = self.write_random.scaled(factor);
        self.write_overlapping = self.write_overlapping.scaled(factor);
    }
}
