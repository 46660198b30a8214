//! The caches that the figures compare, by their short names.

use firndb::CachePolicy;
use firndb_cache_comparators::{Comparator, Compared};

pub const LC: Compared = Compared::Other(Comparator::LazyCleaning);
pub const TAC: Compared = Compared::Other(Comparator::Temperature);
pub const EXADATA: Compared = Compared::Other(Comparator::ReadLru);
pub const FIFO: Compared = Compared::Firn(CachePolicy::Fifo);
pub const GR: Compared = Compared::Firn(CachePolicy::GroupReplacement);
pub const GSC: Compared = Compared::Firn(CachePolicy::GroupSecondChance);
pub const SELECT: Compared = Compared::Firn(CachePolicy::Selective);
pub const KEEP: Compared = Compared::Firn(CachePolicy::Keeping);
