//! The comparators as kinds of cache.

use crate::lazy_cleaning::{self, LazyCleaning};
use crate::on_entry::{self, EntryCache, EntryPolicy};
use firndb_base::Lsn;
use firndb_base::sync::Arc;
use firndb_tier::page_cache::policy::CachePolicy;
use firndb_tier::{CacheKind, CacheOptions, CacheSite, PageCache, TierError};
use std::ops::Range;

/// A flash cache of another paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparator {
    /// LRU-2 in place, written back by a lazy cleaner; empty after every restart (LC).
    LazyCleaning {
        /// Percentage of dirty places above which the cleaner works.
        dirty_percent_max: u8,
    },
    /// Write-through; pages enter when they are read from the store, if their extent is warmer than
    /// the coldest that is cached; a slot directory on flash (TAC).
    Temperature,
    /// Clean pages, which enter when they are read from the store; least recently used; empty after
    /// every restart (Exadata's).
    ReadLru,
}

impl Comparator {
    /// Lazy cleaning with half of the places clean.
    pub const LC: Comparator = Comparator::LazyCleaning { dirty_percent_max: 50 };
    /// All of them.
    pub const ALL: [Comparator; 3] = [Comparator::LC, Comparator::Temperature, Comparator::ReadLru];
}

impl CacheKind for Comparator {
    fn name(&self) -> &'static str {
        match self {
            Comparator::LazyCleaning { .. } => "lc",
            Comparator::Temperature => "tac",
            Comparator::ReadLru => "exadata",
        }
    }

    fn check(&self, options: &CacheOptions, page_size: usize, block: usize) -> Result<(), TierError> {
        let check = |policy| on_entry::check(options.bytes, page_size, block, policy);
        match self {
            Comparator::LazyCleaning { .. } => lazy_cleaning::check(options.bytes, page_size, block),
            Comparator::Temperature => check(EntryPolicy::Temperature),
            Comparator::ReadLru => check(EntryPolicy::ReadLru),
        }
    }

    fn create(&self, site: CacheSite, options: CacheOptions) -> Result<Arc<dyn PageCache>, TierError> {
        let bytes = options.bytes;
        Ok(match *self {
            Comparator::LazyCleaning { dirty_percent_max } => {
                Arc::new(LazyCleaning::create(site, bytes, dirty_percent_max)?)
            }
            Comparator::Temperature => Arc::new(EntryCache::create(site, bytes, EntryPolicy::Temperature)?),
            Comparator::ReadLru => Arc::new(EntryCache::create(site, bytes, EntryPolicy::ReadLru)?),
        })
    }

    fn open(
        &self,
        site: CacheSite,
        _: CachePolicy,
        _: u64,
        _: Range<Lsn>,
    ) -> Result<Arc<dyn PageCache>, TierError> {
        Ok(match *self {
            Comparator::LazyCleaning { dirty_percent_max } => {
                Arc::new(LazyCleaning::open(site, dirty_percent_max)?)
            }
            Comparator::Temperature => Arc::new(EntryCache::open(site, EntryPolicy::Temperature)?),
            Comparator::ReadLru => Arc::new(EntryCache::open(site, EntryPolicy::ReadLru)?),
        })
    }
}
