//! Outlier hiding (hedged writes): options, statistics, and decisions (3.4, 3.5).
//!
//! The decisions are pure. The log reports to [`Hider`] how long writes took. [`Hider`] returns
//! when a write is overdue, whether reissuing it is worth its cost, and whether a worker or the
//! committing thread should issue a device's writes. `overdue.rs` carries that out.

use crate::block::BLOCK;
use crate::hedge::adaptive::{Outcome, Switch, Trust};
use crate::hedge::outliers::{LatencyModel, Lateness, Limits};
use std::time::Duration;

/// What the log does about a write that takes much longer than usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Hiding {
    /// Nothing: its commits wait. Always so on one device.
    Off,
    /// The write is issued again to the main stream of another free device, if its LSNs may still
    /// follow there, which they seldom may: the paper's "naive hiding", for comparison.
    Naive,
    /// The write is issued again to another free device's area for outliers: the paper's "2
    /// streams".
    TwoStream,
    /// As `TwoStream`, for devices whose outliers take so long that hiding them gains more than it
    /// costs, by continuous measurement, and within `extra_bytes_percent`. Stalls are hidden on all
    /// devices. The default.
    #[default]
    Adaptive,
}

/// What counts as an outlier. The defaults need no knowledge of the devices.
#[derive(Clone, Debug)]
pub struct OutlierOptions {
    /// For each device (or one for all): request bytes, and the usual latency of a durable
    /// sequential write of them, from a device profile. Used until enough writes were seen; if
    /// empty, only observed latencies count.
    pub expected: Vec<Vec<(usize, Duration)>>,
    /// Whether the usual latencies are learned from the writes themselves.
    pub learn: bool,
    /// An outlier takes longer than this percentage of the usual latency (the median of recent
    /// writes; the paper takes twice the average).
    pub factor_percent: u32,
    /// Or longer than this percentage of the latency below which 98 % of the writes of its size
    /// stay, if that is less: on a device with even latencies, an outlier is detected sooner.
    pub margin_percent: u32,
    /// No shorter write is an outlier.
    pub floor: Duration,
    /// A write that exceeds the usual latency by this much, and takes at least twice as long, is a
    /// stall: it is issued again even where hiding outliers is not worth it.
    pub stall_after: Duration,
    /// On a device that is usually faster than this, and whose outliers are not worth hiding, the
    /// committing thread writes itself: queuing the write for a worker costs a thread switch each
    /// way. If such a device stalls, only the one thread inside the call is blocked. Zero always
    /// queues.
    pub direct_below: Duration,
    /// Bytes that `Hiding::Adaptive` may write again, in percent of all log bytes written; stalls
    /// are exempt.
    pub extra_bytes_percent: u32,
}

impl Default for OutlierOptions {
    fn default() -> OutlierOptions {
        OutlierOptions {
            expected: Vec::new(),
            learn: true,
            factor_percent: 200,
            margin_percent: 115,
            floor: Duration::from_micros(100),
            stall_after: Duration::from_millis(5),
            direct_below: Duration::from_micros(400),
            extra_bytes_percent: 5,
        }
    }
}

/// Hiding's counters since the log was opened.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct HidingStatistics {
    /// The policy in force: `Off` if the log has one device.
    pub policy: Hiding,
    /// Requests found overdue while they were being written and a thread waited for them.
    pub detected: u64,
    /// Writes issued again.
    pub reissued: u64,
    /// Reissues that gained nothing: the slow write completed first.
    pub wasted: u64,
    /// Bytes written again.
    pub reissued_bytes: u64,
    /// Sum of the times by which requests completed earlier than their slow writes.
    pub gained: Duration,
    /// By device.
    pub devices: Vec<DeviceHiding>,
}

/// Hiding's state of one log device.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct DeviceHiding {
    /// Whether the device's outliers are hidden at present; stalls always are.
    pub is_on: bool,
    /// Whether workers issue the device's writes at present.
    pub hands_over: bool,
    /// Writes that took longer than is usual for the device, hidden or not.
    pub outliers: u64,
    /// Expected latency of a write of 4 KiB; `None` if nothing is known yet.
    pub usual: Option<Duration>,
}

/// Most bytes of credit for writing again that quieter times save up.
const SAVED_BYTES_MAX: u64 = 1 << 20;
/// Blocks of the request by which devices are compared: 4 KiB.
const TYPICAL_BLOCKS: usize = 8;

/// What is known of one device.
#[derive(Debug)]
struct Judged {
    model: LatencyModel,
    switch: Switch,
    outliers: u64,
    trust: Trust,
}

impl Judged {
    fn new(options: &OutlierOptions, device: usize) -> Judged {
        let table = match &options.expected[..] {
            [one] => one.clone(),
            tables => tables.get(device).cloned().unwrap_or_default(),
        };
        Judged {
            model: LatencyModel::new(table, options.learn),
            switch: Switch::new(),
            outliers: 0,
            trust: Trust::default(),
        }
    }

    fn limits(&self, lateness: &Lateness, blocks: usize) -> Limits {
        lateness.limits(blocks, self.model.expected(blocks), self.model.nearly_all(blocks))
    }
}

/// A write that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Performed {
    pub device: usize,
    pub blocks: usize,
    pub took: Duration,
    /// The device whose slow write this one hedged.
    pub hides: Option<usize>,
    /// The write was itself found overdue and issued again.
    pub reissued: bool,
    /// Log waited for a device when the write was issued again, or when it ended.
    pub contended: bool,
    /// How long before this write's end another write completed its request.
    pub hidden_for: Option<Duration>,
}

/// Takes the decisions. The flight lock protects it.
#[derive(Debug)]
pub(crate) struct Hider {
    /// The policy in force once there are two devices or more.
    configured: Hiding,
    lateness: Lateness,
    direct_below: Duration,
    extra_bytes_percent: u64,
    devices: Vec<Judged>,
    options: OutlierOptions,
    /// Credit for writing again, in hundredths of bytes.
    saved: u64,
    detected: u64,
    reissued: u64,
    wasted: u64,
    reissued_bytes: u64,
    gained: Duration,
}

impl Hider {
    /// For a log of `devices` devices. Hiding is active only with two or more; devices may join
    /// later.
    pub fn new(policy: Hiding, options: &OutlierOptions, devices: usize) -> Hider {
        let judged = |device| Judged::new(options, device);
        Hider {
            configured: policy,
            lateness: Lateness {
                factor_percent: options.factor_percent,
                margin_percent: options.margin_percent,
                floor: options.floor,
                stall_after: options.stall_after,
            },
            direct_below: options.direct_below,
            extra_bytes_percent: u64::from(options.extra_bytes_percent),
            devices: (0..devices).map(judged).collect(),
            options: options.clone(),
            saved: 100 * SAVED_BYTES_MAX / 4,
            detected: 0,
            reissued: 0,
            wasted: 0,
            reissued_bytes: 0,
            gained: Duration::ZERO,
        }
    }

    /// Adds a device.
    pub fn add_device(&mut self) {
        self.devices.push(Judged::new(&self.options, self.devices.len()));
    }

    /// The policy in force.
    pub fn policy(&self) -> Hiding {
        if self.devices.len() > 1 { self.configured } else { Hiding::Off }
    }

    pub fn is_active(&self) -> bool {
        self.policy() != Hiding::Off
    }

    /// The latencies after which a write of `blocks` blocks is issued again: as an outlier, if the
    /// device's are hidden, and as a stall.
    pub fn limits(&self, device: usize, blocks: usize) -> (Option<Duration>, Duration) {
        let judged = &self.devices[device];
        let limits = judged.limits(&self.lateness, blocks);
        (limits.outlier.filter(|_| self.hides_outliers_of(device)), limits.stall)
    }

    fn hides_outliers_of(&self, device: usize) -> bool {
        match self.policy() {
            Hiding::Off => false,
            Hiding::Naive | Hiding::TwoStream => true,
            Hiding::Adaptive => self.devices[device].switch.is_on(),
        }
    }

    /// Whether the credit allows writing an outlier that is no stall again, in `bytes` bytes.
    pub fn may_spend(&self, bytes: u64) -> bool {
        self.policy() != Hiding::Adaptive || self.saved >= 100 * bytes
    }

    /// Whether a worker should issue a write of `blocks` blocks, so that the committing thread can
    /// be acknowledged even if the device stalls.
    pub fn worker_should_write(&self, device: usize, blocks: usize) -> bool {
        let judged = &self.devices[device];
        let fast = judged.model.expected(blocks).is_some_and(|expected| expected < self.direct_below);
        self.is_active() && !(fast && judged.trust.is_earned())
    }

    /// Counts an overdue request.
    pub fn detect(&mut self) {
        self.detected += 1;
    }

    /// Counts `bytes` bytes that are written again.
    pub fn reissue(&mut self, bytes: u64) {
        self.reissued += 1;
        self.reissued_bytes += bytes;
        self.saved = self.saved.saturating_sub(100 * bytes);
    }

    /// Learns from a write that has ended.
    pub fn performed(&mut self, write: Performed) {
        if !self.is_active() {
            return;
        }
        if write.reissued && write.hidden_for.is_none() {
            self.wasted += 1;
        }
        let expected = self.devices[write.device].model.expected(write.blocks);
        if let Some(slow) = write.hides {
            if let Some(expected) = expected {
                self.devices[slow].switch.reissued(write.took, expected);
            }
            return;
        }
        let earned = write.blocks as u64 * BLOCK as u64 * self.extra_bytes_percent;
        self.saved = (self.saved + earned).min(100 * SAVED_BYTES_MAX);
        self.gained += write.hidden_for.unwrap_or_default();
        let judged = &mut self.devices[write.device];
        let outlier = judged.limits(&self.lateness, write.blocks).outlier;
        judged.model.record(write.blocks, write.took);
        // A stall is an outlier even on a device of which nothing is known.
        let is_overdue = outlier.is_some_and(|limit| write.took > limit);
        if !is_overdue && !write.reissued {
            return judged.trust.wrote(0.0);
        }
        judged.outliers += 1;
        let outcome = match write.hidden_for {
            Some(earlier) => Outcome::Hidden(earlier),
            None if write.reissued => Outcome::Wasted,
            None => Outcome::Endured(write.took.saturating_sub(outlier.unwrap_or_default())),
        };
        let gain = judged.switch.judge(outcome, expected.unwrap_or(write.took), write.contended);
        judged.trust.wrote(gain);
    }

    pub fn statistics(&self) -> HidingStatistics {
        let device = |device: usize| DeviceHiding {
            is_on: self.hides_outliers_of(device),
            hands_over: self.worker_should_write(device, TYPICAL_BLOCKS),
            outliers: self.devices[device].outliers,
            usual: self.devices[device].model.expected(TYPICAL_BLOCKS),
        };
        HidingStatistics {
            policy: self.policy(),
            detected: self.detected,
            reissued: self.reissued,
            wasted: self.wasted,
            reissued_bytes: self.reissued_bytes,
            gained: self.gained,
            devices: (0..self.devices.len()).map(device).collect(),
        }
    }
}
