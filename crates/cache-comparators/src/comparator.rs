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
    LazyCleaning,
    /// Write-through; pages enter when they are read from the store, if their extent is warmer than
    /// the coldest that is cached; a slot directory on flash (TAC).
    Temperature,
    /// Clean pages, which enter when they are read from the store; least recently used; empty after
    /// every restart (Exadata's).
    ReadLru,
}

impl Comparator {
    /// All of them.
    pub const ALL: [Comparator; 3] = [Comparator::LazyCleaning, Comparator::Temperature, Comparator::ReadLru];

    /// What enters and what stays, if pages enter when they are read.
    fn on_entry(self) -> Option<EntryPolicy> {
        match self {
            Comparator::LazyCleaning => None,
            Comparator::Temperature => Some(EntryPolicy::Temperature),
            Comparator::ReadLru => Some(EntryPolicy::ReadLru),
        }
    }
}

impl CacheKind for Comparator {
    fn name(&self) -> &'static str {
        match self {
            Comparator::LazyCleaning => "lc",
            Comparator::Temperature => "tac",
            Comparator::ReadLru => "exadata",
        }
    }

    fn check(&self, options: &CacheOptions, page_size: usize, block: usize) -> Result<(), TierError> {
        match self.on_entry() {
            None => lazy_cleaning::check(options.bytes, page_size, block),
            Some(policy) => on_entry::check(options.bytes, page_size, block, policy),
        }
    }

    fn create(&self, site: CacheSite, options: CacheOptions) -> Result<Arc<dyn PageCache>, TierError> {
        Ok(match self.on_entry() {
            None => Arc::new(LazyCleaning::create(site, options.bytes)?),
            Some(policy) => Arc::new(EntryCache::create(site, options.bytes, policy)?),
        })
    }

    fn open(
        &self,
        site: CacheSite,
        _: CachePolicy,
        _: u64,
        _: Range<Lsn>,
    ) -> Result<Arc<dyn PageCache>, TierError> {
        Ok(match self.on_entry() {
            None => Arc::new(LazyCleaning::open(site)?),
            Some(policy) => Arc::new(EntryCache::open(site, policy)?),
        })
    }
}
