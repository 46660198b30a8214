//! What a device takes for work of one kind, computed from its profile: for planning.
//!
//! Pure: equal profiles and works give equal times. Times are means over many requests, without
//! what other work on the device adds; outliers are in them with their share.
//!
//! Channels are computed in closed form (steady depth) or request by request for one batch; disks
//! by a walk of some hundred requests over [`crate::Arms`], whose offsets are drawn from a fixed
//! sequence: tens of microseconds, so a planner keeps what it asks twice. Held against the emulator
//! by `firndb-emulate`'s test `device_costs`.
//!
//! Not in it: what simulated flash (`[nand]`) adds to the interface's times, such as garbage
//! collection; what reads and writes take from each other.

mod assumed;
mod channels;
mod disk;
mod draws;
mod learned;

pub use learned::LearnedFactor;

use crate::figure::Op;
use crate::model::{ModelSection, Outliers};
use crate::profile::DeviceProfile;
use crate::striping::Costs;

/// What each request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads.
    Read,
    /// Writes; a later sync makes it durable.
    Write,
    /// Writes, and is durable when it returns.
    DurableWrite,
}

/// Where each request lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// Anywhere in the span, at a multiple of the request's size.
    Random,
    /// Where the last one ended.
    Sequential,
    /// Behind the last one, as pages fetched in order of their places: a request's size is skipped
    /// again and again, with equal chance each time, `gap_bytes` in the mean.
    Ascending {
        /// Mean of the bytes skipped.
        gap_bytes: u64,
    },
}

/// When requests are submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submission {
    /// `depth` of them are outstanding at any time: one more as soon as one ends.
    Steady,
    /// `depth` of them at once, and the next when all of these have ended.
    Batches,
}

/// Many requests of one kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Read or write.
    pub access: Access,
    /// Bytes of each request; at least 1 is assumed.
    pub bytes: u64,
    /// Where they lie.
    pub order: Order,
    /// Requests outstanding; at least 1 is assumed.
    pub depth: u32,
    /// When they are submitted.
    pub submission: Submission,
    /// The area in which they lie; at most the device's capacity is assumed. Where on the device it
    /// begins is taken to make no difference.
    pub span_bytes: u64,
}

/// The times of one device.
#[derive(Clone, Debug)]
pub struct DeviceCosts {
    model: ModelSection,
    capacity_bytes: u64,
    reads: Costs,
    writes: Costs,
    is_assumed: bool,
}

/// A stream may skip this and stays one, as in the emulator's `streams.rs`.
const SKIPPED_AT_MOST: u64 = 16 << 10;

impl DeviceCosts {
    /// Of a profiled device. Bands are not swept: use [`DeviceProfile::variants`].
    #[must_use]
    pub fn of(profile: &DeviceProfile) -> DeviceCosts {
        DeviceCosts::new(profile.model.clone(), profile.capacity_bytes, false)
    }

    /// Of a device without a profile: the shape of a SATA SSD, which a [`LearnedFactor`] scales.
    #[must_use]
    pub fn assumed() -> DeviceCosts {
        DeviceCosts::new(assumed::model(), assumed::CAPACITY_BYTES, true)
    }

    fn new(model: ModelSection, capacity_bytes: u64, is_assumed: bool) -> DeviceCosts {
        let (reads, writes) = (Costs::of_reads(&model), Costs::of_writes(&model));
        DeviceCosts { model, capacity_bytes, reads, writes, is_assumed }
    }

    /// Whether there was no profile, so that the times are a guess of the kind of device.
    #[must_use]
    pub fn is_assumed(&self) -> bool {
        self.is_assumed
    }

    /// Mean time from one completion to the next, in microseconds: what each of many requests adds
    /// to the whole. With a write cache: once it is full.
    #[must_use]
    pub fn request_us(&self, work: &Work) -> f64 {
        let work = Work {
            bytes: work.bytes.max(1),
            depth: work.depth.max(1),
            span_bytes: work.span_bytes.clamp(work.bytes.max(1), self.capacity_bytes.max(work.bytes)),
            ..*work
        };
        let served = match &self.model.mechanics {
            _ if self.is_cached(&work) => self.cached_us(&work),
            Some(mechanics) => self.disk_us(mechanics, &work),
            None => self.channels_us(&work),
        };
        served.max(self.link_us(&work))
    }

    /// Mean time of one request from submission to completion, in microseconds, if the depth is
    /// steady.
    #[must_use]
    pub fn latency_us(&self, work: &Work) -> f64 {
        let steady = Work { submission: Submission::Steady, ..*work };
        self.request_us(&steady) * f64::from(work.depth.max(1))
    }

    /// What the links of limited bandwidth and the limit of requests a second need for each.
    fn link_us(&self, work: &Work) -> f64 {
        let model = &self.model;
        let own = if work.access == Access::Read { model.read_mb_s } else { model.write_mb_s };
        let links = [own, model.total_mb_s].into_iter().flatten().map(|mb_s| work.bytes as f64 / mb_s);
        links.fold(self.pace_us(), f64::max)
    }

    /// Least time from one request to the next.
    fn pace_us(&self) -> f64 {
        self.model.max_iops.map_or(0.0, |iops| 1e6 / iops)
    }

    fn is_cached(&self, work: &Work) -> bool {
        self.model.write_cache.as_ref().is_some_and(|cache| match work.access {
            Access::Read => false,
            Access::Write => true,
            Access::DurableWrite => cache.survives_power_cut || cache.acknowledges_durable,
        })
    }

    /// Writes into a cache that is full: it takes as much as it drains.
    fn cached_us(&self, work: &Work) -> f64 {
        let Some(cache) = &self.model.write_cache else { return 0.0 };
        let courses = self.courses(work);
        let random = cache.drain_random_us * (1.0 - courses.sequential - courses.overlapping);
        let drain = random + work.bytes as f64 / cache.drain_mb_s;
        let late = self.outliers(work).map(|rule| rule.share * excess_us(rule, cache.accept_us));
        let paced = match work.submission {
            Submission::Steady => 0.0,
            Submission::Batches => f64::from(work.depth - 1) * self.pace_us(),
        };
        drain.max((cache.accept_us + paced + late.sum::<f64>()) / f64::from(work.depth))
    }

    /// The shares of the requests that continue a stream, or overlap one.
    fn courses(&self, work: &Work) -> Courses {
        let skips = (SKIPPED_AT_MOST / work.bytes + 1) as f64;
        match work.order {
            Order::Sequential => Courses { sequential: 1.0, overlapping: 0.0 },
            Order::Ascending { gap_bytes } => {
                let skipped = gap_bytes as f64 / (gap_bytes + work.bytes) as f64;
                Courses { sequential: 1.0 - skipped.powf(skips), overlapping: 0.0 }
            }
            // Each stream has the places that continue it, and its own.
            Order::Random => {
                let reads = work.access == Access::Read;
                let streams = if reads { self.model.read_streams } else { self.model.append_streams };
                let places = (work.span_bytes / work.bytes).max(1) as f64;
                let met = (f64::from(streams) * (skips + 1.0) / places).min(1.0);
                let overlapping = met / (skips + 1.0);
                Courses { sequential: met - overlapping, overlapping }
            }
        }
    }

    /// The outliers that such requests meet.
    fn outliers(&self, work: &Work) -> impl Iterator<Item = &Outliers> {
        let (op, bytes) = (if work.access == Access::Read { Op::Read } else { Op::Write }, work.bytes);
        let meets = move |rule: &&Outliers| {
            rule.op == op && bytes >= rule.min_bytes && rule.max_bytes.is_none_or(|most| bytes <= most)
        };
        self.model.outliers.iter().filter(meets)
    }
}

/// What part of the requests is not random.
#[derive(Clone, Copy, Debug)]
struct Courses {
    /// Continue a stream.
    sequential: f64,
    /// Overlap the last request of a stream.
    overlapping: f64,
}

/// By how much an outlier is longer than `us` in the mean: it is uniform between its bounds, and
/// never shorter.
fn excess_us(rule: &Outliers, us: f64) -> f64 {
    let (from, to) = (rule.from_us, rule.to_us);
    if us <= from {
        return (from + to) / 2.0 - us;
    }
    let above = (to - us).max(0.0);
    if above > 0.0 { above * above / (2.0 * (to - from)) } else { 0.0 }
}
