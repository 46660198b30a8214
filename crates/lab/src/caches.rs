//! The flash caches that measurements may use.

use firndb::CacheKind;
use firndb_cache_comparators::Comparator;
use std::sync::Arc;

/// The kinds of flash cache beside Firn's own.
#[must_use]
pub fn cache_kinds() -> Vec<Arc<dyn CacheKind>> {
    Comparator::ALL.into_iter().map(|kind| Arc::new(kind) as _).collect()
}
