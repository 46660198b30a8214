//! Uncertain parameters of a device, swept between two values.

use crate::model::ModelSection;
use crate::profile::DeviceProfile;
use crate::table::ServiceTable;
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
    /// Share of its channels' time that a read of several stripes takes.
    ReadOccupancy,
    /// Share of its channels' time that a write of several stripes takes.
    WriteOccupancy,
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
    /// How far normal times spread around the table's.
    Jitter,
    /// Size of the write cache.
    CacheBytes,
    /// Mean seek.
    SeekAverageMs,
    /// Rotations a minute.
    Rpm,
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
        use Parameter::{AppendStreams, CacheBytes, Channels, Rpm, TransferMbS};
        matches!(self, Channels | AppendStreams | CacheBytes | Rpm | TransferMbS)
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
            Parameter::ReadOccupancy => self.read_occupancy = value,
            Parameter::WriteOccupancy => self.write_occupancy = value,
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
            Parameter::Jitter => self.jitter = value,
            Parameter::CacheBytes => {
                if let Some(cache) = &mut self.write_cache {
                    cache.bytes = value.round() as u64;
                }
            }
            Parameter::SeekAverageMs => {
                if let Some(mechanics) = &mut self.mechanics {
                    let factor = value / mechanics.seek_average_ms;
                    mechanics.seek_track_ms *= factor;
                    mechanics.seek_average_ms = value;
                    mechanics.seek_full_ms *= factor;
                }
            }
            Parameter::Rpm => {
                if let Some(mechanics) = &mut self.mechanics {
                    mechanics.rpm = value;
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
        let channels = u64::from((channels.round() as u32).max(1));
        let stripes = Stripes { bytes: self.stripe_bytes, before: u64::from(self.channels), after: channels };
        let striped = self.striped;
        for table in [
            &mut self.read_sequential,
            &mut self.read_random,
            &mut self.write_sequential,
            &mut self.write_random,
            &mut self.write_overlapping,
        ] {
            *table = if striped { stripes.rescaled(table) } else { table.scaled(stripes.factor(1)) };
        }
        self.channels = channels as u32;
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

/// A change of the number of channels that leaves the device's throughput as it is.
struct Stripes {
    bytes: u64,
    before: u64,
    after: u64,
}

impl Stripes {
    /// The factor on the time of a request of `bytes`. A channel takes longer over a stripe as
    /// there are more of them, and has the fewer stripes of a large request: a request that is
    /// striped over all channels before and after takes as long as it did.
    fn factor(&self, bytes: u64) -> f64 {
        let stripes = bytes.div_ceil(self.bytes).max(1);
        let used = |channels: u64| stripes.min(channels) as f64;
        self.after as f64 / self.before as f64 * used(self.before) / used(self.after)
    }

    /// The times after the change; with a point for the least request that all channels share, and
    /// for the largest that is one stripe.
    fn rescaled(&self, table: &ServiceTable) -> ServiceTable {
        if table.is_empty() {
            return ServiceTable::default();
        }
        let most = table.points.last().map_or(0, |point| point.0);
        let corners = [1, self.before, self.after].map(|stripes| stripes * self.bytes);
        let mut sizes: Vec<u64> = table.points.iter().map(|point| point.0).collect();
        sizes.extend(corners.into_iter().filter(|&bytes| bytes < most));
        sizes.sort_unstable();
        sizes.dedup();
        let mut longest = 0.0f64;
        let points = sizes.into_iter().map(|bytes| {
            longest = longest.max(table.us(bytes) * self.factor(bytes));
            (bytes, longest)
        });
        ServiceTable::new(points.collect::<Vec<_>>())
    }
}
