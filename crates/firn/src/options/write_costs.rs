//! What commits of pages cost the devices of log and store, by their profiles: as first expected.

use crate::options::Options;
use crate::options::profiled::{Setting, SettingOrigin, setting};
use firndb_profile::{Access, DeviceCosts, Order, Submission, Work};
use firndb_tier::store::Placement;
use firndb_txn::{PageRecovery, WriteCosts};

/// Lengths of writes, in bytes, between which what a byte adds is looked at.
const SHORT: u64 = 64 << 10;
const LONG: u64 = 1 << 20;
/// Where the log or the store lies at least.
const SPAN: u64 = 1 << 30;

impl Options {
    /// With a log that writes each byte to one of `log_drives` drives at a time, of a database with
    /// pages of `page_size`. Without a profile a device is taken to be a SATA SSD.
    pub(crate) fn write_costs(&self, page_size: usize, log_drives: f64) -> WriteCosts {
        let log = self.log_profile().map_or_else(DeviceCosts::assumed, DeviceCosts::of);
        let [store, _] = self.device_costs();
        let log = Line::between(&log, Order::Sequential, [SHORT, LONG]);
        let page = page_size as u64;
        // In whole segments the shadows of successive commits go on where the last ended.
        let order = match self.page_writes().placement {
            Placement::Segments => Order::Sequential,
            _ => Order::Random,
        };
        let store = Line::between(&store, order, [page, LONG.max(2 * page)]);
        WriteCosts {
            log_byte: log.byte / log_drives.max(1.0),
            store_write: store.write,
            store_byte: store.byte,
        }
    }
}

impl Options {
    /// How pages of page files become durable, to show; `shadows_above` as in
    /// [`TransactionStatistics`](crate::TransactionStatistics).
    pub(super) fn page_recovery_setting(&self, shadows_above: Option<u64>) -> Setting {
        let chosen = self.tuning.page_recovery;
        let value = match (chosen, shadows_above) {
            (PageRecovery::Log, _) => "logged".to_owned(),
            (PageRecovery::Shadow, _) => "as shadows".to_owned(),
            (PageRecovery::Hybrid, _) => "whole as shadows, parts logged".to_owned(),
            (PageRecovery::Adaptive, Some(images)) => {
                format!("as shadows where a commit has more than {images}")
            }
            (PageRecovery::Adaptive, None) => "logged".to_owned(),
        };
        let (origin, reason) = match (chosen, self.store_profile()) {
            (PageRecovery::Adaptive, Some((_, origin))) => (origin.clone(), "and by what writes have taken"),
            (PageRecovery::Adaptive, None) => (SettingOrigin::Default, "by what writes have taken"),
            _ => (SettingOrigin::Option, ""),
        };
        setting("pages of page files", value, &origin, reason)
    }
}

/// Nanoseconds of a durable write, and of each of its bytes.
struct Line {
    write: f64,
    byte: f64,
}

impl Line {
    /// Through what writes of two lengths take alone.
    fn between(costs: &DeviceCosts, order: Order, [short, long]: [u64; 2]) -> Line {
        let took = |bytes| {
            let (access, submission) = (Access::DurableWrite, Submission::Steady);
            1000.0 * costs.latency_us(&Work { access, bytes, order, depth: 1, submission, span_bytes: SPAN })
        };
        let byte = ((took(long) - took(short)) / (long - short) as f64).max(0.0);
        Line { write: (took(short) - byte * short as f64).max(0.0), byte }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_emulate::profiles;

    #[test]
    fn a_line_is_what_writes_of_any_length_take() {
        for name in ["nvme", "x25-e", "barracuda-7200-7", "network-volume"] {
            let costs = DeviceCosts::of(&profiles::get(name).expect("it ships"));
            let line = Line::between(&costs, Order::Sequential, [SHORT, LONG]);
            let work = Work {
                access: Access::DurableWrite,
                bytes: 512 << 10,
                order: Order::Sequential,
                depth: 1,
                submission: Submission::Steady,
                span_bytes: SPAN,
            };
            let (took, by_line) = (1000.0 * costs.latency_us(&work), line.write + line.byte * 524_288.0);
            assert!((by_line / took - 1.0).abs() < 0.15, "{name}: {by_line} ns instead of {took}");
        }
    }
}
