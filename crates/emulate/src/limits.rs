//! Limits on the device as a whole: bandwidth and requests a second.

use crate::time::transfer_ns;
use firndb_profile::ModelSection;

/// A link of limited bandwidth that requests use one after another.
#[derive(Clone, Debug, Default)]
struct Link {
    mb_s: Option<f64>,
    free_at: u64,
}

impl Link {
    /// The moment at which `bytes` that start at `start` have passed.
    fn pass(&mut self, start: u64, bytes: u64) -> u64 {
        let Some(mb_s) = self.mb_s else { return start };
        self.free_at = self.free_at.max(start).saturating_add(transfer_ns(bytes, mb_s));
        self.free_at
    }
}

/// All limits of a device, and when each is free again.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    read: Link,
    write: Link,
    total: Link,
    /// Least time from one request to the next.
    pace_ns: u64,
    next_request: u64,
}

impl Limits {
    /// The limits of the profile, idle.
    pub fn new(model: &ModelSection) -> Limits {
        let link = |mb_s: Option<f64>| Link { mb_s, free_at: 0 };
        Limits {
            read: link(model.read_mb_s),
            write: link(model.write_mb_s),
            total: link(model.total_mb_s),
            pace_ns: model.max_iops.map_or(0, |iops| (1e9 / iops).round() as u64),
            next_request: 0,
        }
    }

    /// The earliest moment from `now` on at which a request may begin.
    pub fn admit(&mut self, now: u64) -> u64 {
        if self.pace_ns == 0 {
            return now;
        }
        let admitted = self.next_request.max(now);
        self.next_request = admitted.saturating_add(self.pace_ns);
        admitted
    }

    /// The moment at which a request that begins at `start` has passed the links.
    pub fn pass(&mut self, start: u64, bytes: u64, reads: bool) -> u64 {
        let link = if reads { &mut self.read } else { &mut self.write };
        link.pass(start, bytes).max(self.total.pass(start, bytes))
    }
}
