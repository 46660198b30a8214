//! What reports say of a cache that need not be open.

use super::geometry::Geometry;
use crate::error::TierError;
use crate::page_cache::header::{CacheHeader, CacheId};
use firndb_base::DatabaseId;
use firndb_device::Device;

/// Size and shape of a cache, for reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheShape {
    /// Bytes of its device that the cache uses.
    pub bytes: u64,
    /// Number of places for pages.
    pub pages: u64,
    /// Pages written at a time.
    pub group_pages: usize,
}

impl CacheShape {
    /// Reads only the header of the cache `cache` of `database`.
    ///
    /// Errors: `Damaged` if the device holds anything else.
    pub fn read(device: &dyn Device, database: DatabaseId, cache: CacheId) -> Result<CacheShape, TierError> {
        let header = CacheHeader::load(device, database, cache)?;
        let group_pages = header.group_pages as usize;
        // Caches of single places, like a lazily cleaned one, have no groups of one page each.
        let bytes = Geometry::of(&header).map_or(device.len(), |geometry| geometry.end()).min(device.len());
        Ok(CacheShape { bytes, pages: header.groups * group_pages as u64, group_pages })
    }
}
