//! Figures of a device: those that its emulation is compared with, and those of a measurement.

use serde::{Deserialize, Serialize};

/// Direction of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// A read.
    Read,
    /// A write.
    Write,
}

/// The offset of the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Where the last one ended.
    Sequential,
    /// Anywhere in the area, at a multiple of its size.
    Random,
    /// At the offset of the last one.
    Overlapping,
    /// Where the last one ended, into space never written (not even with zeros).
    Unwritten,
    /// Where the last one ended, past the end of the file, which grows.
    Append,
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Requests a second.
    Iops,
    /// 10^6 bytes a second.
    MbS,
    /// Mean microseconds of a request, including the time it waits.
    Us,
}

/// `[[figure]]`: a stated figure of the device. The emulation of a shipped profile reproduces it
/// within 5 %.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Direction.
    pub op: Op,
    /// Sequential, random or overlapping.
    pub pattern: Pattern,
    /// Size of a request.
    pub bytes: u64,
    /// Requests kept in flight.
    pub depth: u32,
    /// Whether each write is durable when it returns; without meaning for reads.
    #[serde(default)]
    pub durable: bool,
    /// The unit of `value`.
    pub unit: Unit,
    /// The figure.
    pub value: f64,
    /// Where it is printed, or how it follows from what is printed.
    pub source: String,
}

/// `[[input]]`: a published result that this profile's numbers were computed from. To reproduce it
/// on an emulated device shows nothing but that the profile is read back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Paper and figure or table, as in "FlashLogging, figure 5".
    pub result: String,
    /// Which number of it stands in the profile.
    pub why: String,
}

/// `[[measured]]`: one row of `firn characterize`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredRow {
    /// Direction; for mixed rows, see `read_share`.
    pub op: Op,
    /// The offsets of the requests.
    pub pattern: Pattern,
    /// Size of a request.
    pub bytes: u64,
    /// Requests in flight in each stream.
    pub depth: u32,
    /// Independent sequences of requests, at the same time.
    pub streams: u32,
    /// Whether each write is durable when it returns.
    pub durable: bool,
    /// Area that requests are spread over.
    pub area_bytes: u64,
    /// Share of reads, where both directions are mixed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_share: Option<f64>,
    /// Requests that were timed.
    pub samples: u64,
    /// Requests a second, of all streams.
    pub iops: f64,
    /// 10^6 bytes a second, of all streams.
    pub mb_s: f64,
    /// Mean latency.
    pub mean_us: f64,
    /// Median latency.
    pub p50_us: f64,
    /// 95th percentile of the latency.
    pub p95_us: f64,
    /// 99th percentile of the latency.
    pub p99_us: f64,
    /// 99.9th percentile of the latency.
    pub p999_us: f64,
    /// The longest latency.
    pub max_us: f64,
    /// Share of requests that took longer than the outlier threshold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outlier_share: Option<f64>,
    /// Further conditions of this row.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}
