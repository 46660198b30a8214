//! The part of a profile from which the emulator models a device.

use crate::band::Band;
use crate::figure::Op;
use crate::table::ServiceTable;
use serde::{Deserialize, Serialize};

fn one() -> u32 {
    1
}
fn eight() -> u32 {
    8
}
fn sixty_four_kib() -> u64 {
    64 << 10
}
fn four_kib() -> u64 {
    4 << 10
}
fn is_four_kib(value: &u64) -> bool {
    *value == four_kib()
}
fn yes() -> bool {
    true
}
fn is_yes(value: &bool) -> bool {
    *value
}
fn whole() -> f64 {
    1.0
}
fn is_whole(value: &f64) -> bool {
    *value == 1.0
}
fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

/// `[model]`: the device as a queueing system.
///
/// A device is either `channels` servers with times from tables (flash, network volumes), or
/// spindles with [`Mechanics`] (disks): a profile states one of the two.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSection {
    /// Requests served side by side; further ones wait in order of arrival. One for disks.
    #[serde(default = "one")]
    pub channels: u32,
    /// Whether a request larger than a stripe occupies several channels, as on flash chips. If not,
    /// each request has one of the channels, as on a network volume.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub striped: bool,
    /// Bytes on one channel before the next channel's.
    #[serde(default = "four_kib", skip_serializing_if = "is_four_kib")]
    pub stripe_bytes: u64,
    /// Share of its channels' time that a read of several stripes takes; above 0, at most 1. Below
    /// 1 the chips wait for the interface, and `read_mb_s` or `total_mb_s` limits a stream.
    #[serde(default = "whole", skip_serializing_if = "is_whole")]
    pub read_occupancy: f64,
    /// The same of writes.
    #[serde(default = "whole", skip_serializing_if = "is_whole")]
    pub write_occupancy: f64,
    /// Reads that continue where one of the last `read_streams` reads ended.
    #[serde(default, skip_serializing_if = "ServiceTable::is_empty")]
    pub read_sequential: ServiceTable,
    /// All other reads.
    #[serde(default, skip_serializing_if = "ServiceTable::is_empty")]
    pub read_random: ServiceTable,
    /// Durable writes that continue where one of the last `append_streams` writes ended.
    #[serde(default, skip_serializing_if = "ServiceTable::is_empty")]
    pub write_sequential: ServiceTable,
    /// All other durable writes.
    #[serde(default, skip_serializing_if = "ServiceTable::is_empty")]
    pub write_random: ServiceTable,
    /// Durable writes that overlap the write before them in their stream, as when a partly filled
    /// log block is written again. If empty, they cost what sequential writes do.
    #[serde(default, skip_serializing_if = "ServiceTable::is_empty")]
    pub write_overlapping: ServiceTable,
    /// Time of a sync when the cache is empty.
    #[serde(default)]
    pub sync_us: f64,
    /// Greatest read bandwidth of all channels together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_mb_s: Option<f64>,
    /// Greatest write bandwidth of all channels together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_mb_s: Option<f64>,
    /// Greatest bandwidth of all channels together, both directions added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_mb_s: Option<f64>,
    /// Most requests a second, evenly spaced, as network volumes limit them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iops: Option<f64>,
    /// Sequential writers that the device can distinguish; with one more, their writes cost as
    /// random ones.
    #[serde(default = "one")]
    pub append_streams: u32,
    /// Sequential readers that the device can distinguish.
    #[serde(default = "eight")]
    pub read_streams: u32,
    /// Every service time is drawn uniformly from this fraction below to this fraction above the
    /// table's; 0 to 0.9.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub jitter: f64,
    /// A disk's mechanics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mechanics: Option<Mechanics>,
    /// A cache that acknowledges writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_cache: Option<WriteCache>,
    /// Requests that take far longer than most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outliers: Vec<Outliers>,
    /// How random writes become slower (or faster) with the area that they are spread over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub area: Vec<Area>,
    /// The uncertain parameters, each with its range.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub band: Vec<Band>,
}

impl Default for ModelSection {
    fn default() -> ModelSection {
        ModelSection {
            channels: 1,
            striped: true,
            stripe_bytes: four_kib(),
            read_occupancy: 1.0,
            write_occupancy: 1.0,
            read_sequential: ServiceTable::default(),
            read_random: ServiceTable::default(),
            write_sequential: ServiceTable::default(),
            write_random: ServiceTable::default(),
            write_overlapping: ServiceTable::default(),
            sync_us: 0.0,
            read_mb_s: None,
            write_mb_s: None,
            total_mb_s: None,
            max_iops: None,
            append_streams: 1,
            read_streams: 8,
            jitter: 0.0,
            mechanics: None,
            write_cache: None,
            outliers: Vec::new(),
            area: Vec::new(),
            band: Vec::new(),
        }
    }
}

/// `[model.mechanics]`: arms and platters; several spindles are a RAID-0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mechanics {
    /// Rotations a minute.
    pub rpm: f64,
    /// Seek to the next track.
    pub seek_track_ms: f64,
    /// Mean over all pairs of tracks, as vendors state it.
    pub seek_average_ms: f64,
    /// Seek from the first track to the last.
    pub seek_full_ms: f64,
    /// Added to each seek of a write: heads must settle more exactly.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub write_settle_ms: f64,
    /// Bandwidth from and to the medium, of one spindle.
    pub transfer_mb_s: f64,
    /// Time in the controller, before the arm moves.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub overhead_us: f64,
    /// Time of a read that continues an earlier one, if the disk has read its data ahead.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub buffered_us: f64,
    /// Disks of the array.
    #[serde(default = "one")]
    pub spindles: u32,
    /// Bytes on one disk of the array before the next disk's stripe.
    #[serde(default = "sixty_four_kib")]
    pub stripe_bytes: u64,
    /// What the disk gains by choosing the nearest of several waiting requests: points of (requests
    /// waiting or served on a spindle, factor on seek and rotation), linear in the logarithm of the
    /// number. If empty, the disk does not reorder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reordering: Vec<Reordering>,
}

/// One point of [`Mechanics::reordering`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reordering {
    /// Requests at the spindle.
    pub depth: u32,
    /// Factor on the seek and rotation of a request; above 0, at most 1.
    pub factor: f64,
}

/// `[model.write_cache]`: it acknowledges writes that need not be durable. If it survives a power
/// cut, it also acknowledges durable ones, and a sync waits for nothing; if it does not, a sync
/// waits until it is empty.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteCache {
    /// Its size.
    pub bytes: u64,
    /// Whether a battery or capacitor protects it.
    pub survives_power_cut: bool,
    /// Whether it acknowledges durable writes and syncs although it does not survive, like disks
    /// with a cache that was enabled and never flushed. Affects times only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub acknowledges_durable: bool,
    /// Time of a write that fits into the cache.
    pub accept_us: f64,
    /// Rate at which it drains to the medium.
    pub drain_mb_s: f64,
    /// Time added to the draining of each write that is not sequential.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub drain_random_us: f64,
}

/// The requests that an outlier blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Blocks {
    /// That request only, as on a slow path through a network.
    Request,
    /// The requests on its channel, as during an erase on one chip.
    #[default]
    Channel,
    /// The requests on all channels, as during garbage collection of the controller.
    Device,
}

/// `[[model.outliers]]`: requests that take between `from_us` and `to_us`, uniformly drawn, instead
/// of their normal time (never less than that).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outliers {
    /// The requests that can be outliers.
    pub op: Op,
    /// Smallest request counted; 0 if not given.
    #[serde(default)]
    pub min_bytes: u64,
    /// Largest request counted; none if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    /// Share of these that are outliers; above 0, at most 1.
    pub share: f64,
    /// Shortest latency of an outlier.
    pub from_us: f64,
    /// Longest latency of an outlier.
    pub to_us: f64,
    /// From one outlier to the next, the least and the most requests, uniformly drawn; their mean
    /// is 1 / share. If not given, each request is an outlier with probability `share`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spacing: Option<(u32, u32)>,
    /// The requests that wait for it.
    #[serde(default)]
    pub blocks: Blocks,
}

/// `[[model.area]]`: one point of the factor on random writes, linear between points, flat beyond.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Area {
    /// Bytes from the lowest to the highest of the recent random writes.
    pub bytes: u64,
    /// Factor on their service time.
    pub factor: f64,
}
