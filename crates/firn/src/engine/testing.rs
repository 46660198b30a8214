//! Databases in memory for this crate's unit tests.

use crate::engine::devices::Devices;
use crate::options::Options;
use firndb_base::sync::Arc;
use firndb_device::{Device, MemoryDevice};

/// Empty devices, with `logs` for the log.
pub(crate) fn memory_devices(logs: usize) -> Devices {
    let device = |name: &str| Arc::new(MemoryDevice::new(name)) as Arc<dyn Device>;
    Devices {
        superblock: device("superblock"),
        logs: (0..logs).map(|number| device(&format!("log.{number}"))).collect(),
        store: device("store"),
        store_others: Vec::new(),
        cache: None,
    }
}

/// Options of a small database on them, without threads of its own.
pub(crate) fn small(logs: usize) -> Options {
    let options = Options::new().page_size(1024).buffer_bytes(256 << 10).background_threads(false);
    options.log(|log| log.devices(logs).bytes(logs as u64 * (256 << 10)))
}
