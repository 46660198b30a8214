//! The number of files that the log of a new database is spread over, if no option says.
//!
//! Several synchronous writes in flight hide a slow device's latency; on a fast one they only make
//! groups of commits smaller and cost the processor more requests
//! (`docs/lab/2026-11-20-benchmarks.md`, "How many log devices"). So a few synchronous writes are
//! timed when the database is created.

use crate::error::Error;
use firndb_base::clock;
use firndb_base::sync::Arc;
use firndb_device::{AlignedBuf, Device, Durability};
use std::time::Duration;

/// Number of files for a device whose latency is worth hiding.
const WIDE: usize = 4;
/// Synchronous writes faster than this leave nothing to hide.
const FAST: Duration = Duration::from_micros(300);
/// Number of writes timed; their median counts.
const PROBES: usize = 15;
const PROBE_BYTES: usize = 4096;

/// Number of files for a device with this latency of a synchronous write.
fn width(latency: Duration) -> usize {
    if latency < FAST { 1 } else { WIDE }
}

/// Times synchronous writes of zeros at `offset`, where the device is written already and holds
/// nothing, and returns the best number of files for the log.
pub(crate) fn probe(device: &Arc<dyn Device>, offset: u64) -> Result<usize, Error> {
    let zeros = AlignedBuf::zeroed(PROBE_BYTES.max(device.info().logical_block));
    let mut times = Vec::with_capacity(PROBES);
    for _ in 0..PROBES {
        let begun = clock::now();
        device.write(offset, &zeros, Durability::Durable)?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    Ok(width(times[PROBES / 2]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_device::{Fill, MemoryDevice};

    #[test]
    fn slow_devices_get_several_files_and_fast_ones_one() {
        assert_eq!(width(Duration::from_micros(80)), 1);
        assert_eq!(width(Duration::from_millis(1)), WIDE);
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new("fast"));
        device.grow(1 << 16, Fill::Written).expect("memory grows");
        assert_eq!(probe(&device, 4096).expect("writable"), 1);
    }
}
