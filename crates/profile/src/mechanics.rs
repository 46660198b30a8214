//! Times that follow from a disk's mechanics, and factors that points state.

use crate::model::{Mechanics, ModelSection};

/// The value at `x` between the points, linear in `scale(x)`, flat beyond; `None` without points.
fn between(points: impl Iterator<Item = (u64, f64)>, x: u64, scale: impl Fn(u64) -> f64) -> Option<f64> {
    let mut below: Option<(u64, f64)> = None;
    for (at, value) in points {
        if at >= x {
            return Some(match below {
                None => value,
                Some((low, low_value)) => {
                    let part = (scale(x) - scale(low)) / (scale(at) - scale(low));
                    low_value + (value - low_value) * part
                }
            });
        }
        below = Some((at, value));
    }
    below.map(|(_, value)| value)
}

impl ModelSection {
    /// The factor on the time of random writes that are spread over `bytes`.
    #[must_use]
    pub fn area_factor(&self, bytes: u64) -> f64 {
        let points = self.area.iter().map(|point| (point.bytes, point.factor));
        between(points, bytes, |bytes| bytes as f64).unwrap_or(1.0)
    }
}

impl Mechanics {
    /// The factor on seek and rotation if `depth` requests are at a spindle; linear in the
    /// logarithm of the depth.
    #[must_use]
    pub fn reordering_factor(&self, depth: u32) -> f64 {
        let points = self.reordering.iter().map(|point| (u64::from(point.depth), point.factor));
        between(points, u64::from(depth), |depth| (depth as f64).ln()).unwrap_or(1.0)
    }

    /// A read of `bytes` at a random place of an idle disk: seek, half a turn, transfer; in
    /// microseconds.
    #[must_use]
    pub fn random_read_us(&self, bytes: u64) -> f64 {
        let turn_us = 60e6 / self.rpm;
        self.overhead_us + self.seek_average_ms * 1000.0 + turn_us / 2.0 + bytes as f64 / self.transfer_mb_s
    }

    /// The seek over a distance above 0, as a fraction of all tracks; in milliseconds.
    #[must_use]
    pub fn seek_ms(&self, distance: f64) -> f64 {
        let (root, linear) = self.seek_curve();
        let distance = distance.min(1.0);
        self.seek_track_ms + root * distance.sqrt() + linear * distance
    }

    /// The seek curve `track + root * sqrt(d) + linear * d` in milliseconds, d being the distance
    /// as a fraction of all tracks: (root, linear) such that d = 1 gives the full seek and the mean
    /// over uniformly drawn pairs of tracks gives the average one (there the mean of sqrt(d) is
    /// 8/15 and that of d 1/3).
    #[must_use]
    pub fn seek_curve(&self) -> (f64, f64) {
        let average = self.seek_average_ms - self.seek_track_ms;
        let full = self.seek_full_ms - self.seek_track_ms;
        let root = (average - full / 3.0) / (8.0 / 15.0 - 1.0 / 3.0);
        (root, full - root)
    }
}
