//! The device that is assumed where there is no profile.

use crate::model::{ModelSection, WriteCache};
use crate::table::ServiceTable;

/// Large enough that no span is cut.
pub(super) const CAPACITY_BYTES: u64 = 1 << 50;

/// The shipped profile `sata-ssd`; `firndb-emulate` tests that it is.
pub(super) fn model() -> ModelSection {
    let reads = ServiceTable::new([(4096, 76.92), (1 << 20, 1942.07)]);
    let writes = ServiceTable::new([(4096, 1530.0), (1 << 20, 3500.72)]);
    ModelSection {
        channels: 8,
        read_sequential: reads.clone(),
        read_random: reads,
        write_sequential: writes.clone(),
        write_random: writes,
        sync_us: 1500.0,
        read_mb_s: Some(560.0),
        write_mb_s: Some(530.0),
        total_mb_s: Some(565.0),
        max_iops: Some(98_000.0),
        append_streams: 64,
        write_cache: Some(WriteCache {
            bytes: 4 << 20,
            survives_power_cut: false,
            acknowledges_durable: false,
            accept_us: 27.8,
            drain_mb_s: 530.0,
            drain_random_us: 3.64,
        }),
        ..ModelSection::default()
    }
}
