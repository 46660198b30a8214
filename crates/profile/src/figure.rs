//! Figures of a device: those that its emulation is held against, and those of a measurement.

use serde::{Deserialize, Serialize};

/// Direction of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// From the device.
    Read,
    /// To the device.
    Write,
}

/// Where the next request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Behind the last one.
    Sequential,
    /// Anywhere in the area, at a multiple of its size.
    Random,
    /// Over the last one.
    Overlapping,
    /// Behind the last one, into space never written (not even with zeros).
    Unwritten,
    /// Behind the last one, past the end of the file, which grows.
    Append,
}

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Requests a second.
    Iops,
    /// 10^6 bytes a second.
    MbS,
    /// Mean microseconds of a request, its waiting included.
    Us,
}

/// `[[figure]]`: a stated figure of the device. The emulation of a shipped profile gives it within 5 %.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Direction.
    pub op: Op,
    /// Sequential, random or overlapping.
    pub pattern: Pattern,
    /// Size of a request.
    pub bytes: u64,
    /// Requests kept outstanding.
    pub depth: u32,
    /// Whether each write is durable when it returns; without meaning for reads.
    #[serde(default)]
    pub durable: bool,
    /// What `value` counts.
    pub unit: Unit,
    /// The figure.
    pub value: f64,
    /// Where it is printed, or how it follows from what is printed.
    pub source: String,
}

/// `[[measured]]`: one row of `firn characterize`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredRow {
    /// Direction; of mixed rows, see `read_share`.
    pub op: Op,
    /// Where requests go.
    pub pattern: Pattern,
    /// Size of a request.
    pub bytes: u64,
    /// Requests outstanding in each stream.
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
    /// Half were faster.
    pub p50_us: f64,
    /// 95 % were faster.
    pub p95_us: f64,
    /// 99 % were faster.
    pub p99_us: f64,
    /// 99.9 % were faster.
    pub p999_us: f64,
    /// The slowest.
    pub max_us: f64,
    /// Share of requests that took longer than the outlier threshold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outlier_share: Option<f64>,
    /// What else belongs to this row.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}
