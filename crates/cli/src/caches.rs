//! The kinds of flash cache that this program knows: Firn's own and, with the feature `lab`, those
//! of other papers.

use firndb::{CacheKind, CacheSettings, Face, Options};
use std::sync::Arc;

/// The kinds beside Firn's own.
pub fn kinds() -> Vec<Arc<dyn CacheKind>> {
    #[cfg(feature = "lab")]
    return firndb_lab::cache_kinds();
    #[cfg(not(feature = "lab"))]
    Vec::new()
}

/// The options of a database whose cache may be of any of them; a new one is Firn's own.
pub fn options() -> Options {
    Options::new()
        .cache(|cache| kinds().into_iter().chain([Arc::new(Face) as _]).fold(cache, CacheSettings::kind))
}
