//! Flash caches under the scripts: as small as can be, so that groups, laps, replacements, segments
//! and checkpoints follow each other within one of them.

use firndb::{CachePolicy, Options};
use firndb_cache_comparators::Comparator;
use std::sync::Arc;

/// What a flash cache adds to the options of a script.
pub type Cache = fn(Options) -> Options;

/// A few groups of a few pages: every lap is a matter of moments.
pub fn small(options: Options) -> Options {
    few_groups(options).cache(|cache| cache.policy(CachePolicy::GroupSecondChance))
}
fn few_groups(options: Options) -> Options {
    options.cache(|cache| cache.bytes(80 << 10).group_pages(4))
}
pub fn without_second_chances(options: Options) -> Options {
    small(options).cache(|cache| cache.policy(CachePolicy::GroupReplacement))
}
pub fn selective(options: Options) -> Options {
    small(options).cache(|cache| cache.policy(CachePolicy::Selective))
}
pub fn page_by_page(options: Options) -> Options {
    few_groups(options).cache(|cache| cache.policy(CachePolicy::Fifo))
}
/// Most of the database fits: pages are found again laps later, and segments hold several groups.
pub fn roomy(options: Options) -> Options {
    options.cache(|cache| cache.bytes(400 << 10).group_pages(8).policy(CachePolicy::Keeping))
}
/// As small, and what is valid stays: the default.
pub fn keeping(options: Options) -> Options {
    few_groups(options)
}
pub fn through(options: Options) -> Options {
    few_groups(options).cache(|cache| cache.write_through(true))
}

pub fn lazily_cleaned(options: Options) -> Options {
    options.cache(|cache| cache.bytes(160 << 10).kind(Arc::new(Comparator::LC)))
}

pub fn by_temperature(options: Options) -> Options {
    options.cache(|cache| cache.bytes(100 << 10).kind(Arc::new(Comparator::Temperature)))
}
pub fn of_reads(options: Options) -> Options {
    options.cache(|cache| cache.bytes(80 << 10).kind(Arc::new(Comparator::ReadLru)))
}

pub const CACHES: [(&str, Cache); 10] = [
    ("small", small),
    ("keeping", keeping),
    ("without second chances", without_second_chances),
    ("selective", selective),
    ("page by page", page_by_page),
    ("roomy", roomy),
    ("write-through", through),
    ("lazily cleaned", lazily_cleaned),
    ("by temperature", by_temperature),
    ("of reads", of_reads),
];
