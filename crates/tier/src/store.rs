//! The store: a page map over pages written out of place. SKELETON.
//!
//! To become a folder `store/` with one noun a file.

use crate::TierError;
use firn_base::sync::Arc;
use firn_base::{DatabaseId, Lsn};
use firn_device::Device;
use firn_log::{Log, Record};

/// How the store lays out and caches.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Bytes; a power of two from 512 to 65536.
    pub page_size: usize,
    /// DRAM for cached map pages.
    pub map_budget_bytes: usize,
}

/// The store of one database, on one device. Implements `PageTier`.
pub struct Store {}

impl Store {
    /// Formats an empty device.
    pub fn create(_device: Arc<dyn Device>, _database: DatabaseId, _options: StoreOptions) -> Result<Store, TierError> {
        todo!()
    }

    /// Opens a formatted device in time that does not depend on its size. Then recovery calls
    /// [`Store::redo`] for each of the store's records since the redo start, in LSN order, and
    /// [`Store::attach`] before the first page is written.
    pub fn open(_device: Arc<dyn Device>, _database: DatabaseId, _options: StoreOptions) -> Result<Store, TierError> {
        todo!()
    }

    /// Applies a map record (kinds 0x10–0x1f) unless the map has it already.
    pub fn redo(&self, _lsn: Lsn, _record: Record<'_>) -> Result<(), TierError> {
        todo!()
    }

    /// Hands over the opened log, for map records and the durable LSN.
    pub fn attach(&self, _log: Arc<Log>) {
        todo!()
    }
}
