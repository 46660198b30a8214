//! What requests take of the flash cache's drive and of the store's, by their profiles.

use crate::options::Options;
use crate::options::page_writes::RUN_PAGES;
use firndb_array::{Cost, MemberCosts};
use firndb_profile::{Access, DeviceCosts, Order, Submission, Work};
use firndb_tier::page_cache::drive_times::{CacheSizes, DriveTimes};

/// Requests waiting at a busy drive, random ones and sequential ones: as drives' rates are printed.
const RANDOM_DEPTH: u32 = 32;
const SEQUENTIAL_DEPTH: u32 = 4;
/// How much larger than the cache the store is taken to be at least: a new one grows.
const STORE_OVER_CACHE: u64 = 4;

impl Options {
    /// What reading a fragment of a page of `page_size` takes a device of the store, and writing
    /// one beside others, by its profile: through the times of the smallest fragment and of a
    /// page. `None` without a profile.
    pub(crate) fn store_fragment_costs(&self, page_size: usize, store_bytes: u64) -> Option<MemberCosts> {
        let (profile, _) = self.store_profile()?;
        let costs = DeviceCosts::of(profile);
        let block = u64::from(profile.logical_block);
        let span_bytes = store_bytes.max(block);
        let random = |access, bytes| {
            let (order, depth, submission) = (Order::Random, RANDOM_DEPTH, Submission::Steady);
            costs.request_us(&Work { access, bytes, order, depth, submission, span_bytes })
        };
        let (page, least) = (page_size as u64, (page_size as u64 / 4).max(block));
        let (small, whole) = (random(Access::Read, least), random(Access::Read, page));
        let us_per_byte = if least < page { ((whole - small) / (page - least) as f64).max(0.0) } else { 0.0 };
        let fixed_us = (whole - us_per_byte * page as f64).max(0.0);
        let run = page * RUN_PAGES;
        let write_us = random(Access::Write, run) / run as f64;
        Some(MemberCosts {
            read: Cost { fixed_us, us_per_byte },
            write: Cost { fixed_us: 0.0, us_per_byte: write_us },
        })
    }

    /// The drives' times with pages of `page_size`, a cache of `cache_bytes` and a store of
    /// `store_bytes` so far, by the cache's sizes; `None` unless both have profiles.
    pub(crate) fn drive_times(
        &self,
        page_size: usize,
        cache_bytes: u64,
        store_bytes: u64,
    ) -> Option<impl Fn(CacheSizes) -> DriveTimes> {
        let (cache, (store, _)) = (self.cache_profile()?, self.store_profile()?);
        let (cache, store) = (DeviceCosts::of(cache), DeviceCosts::of(store));
        let (page, submission) = (page_size as u64, Submission::Steady);
        let random = move |access, bytes, span_bytes| Work {
            access,
            bytes,
            order: Order::Random,
            depth: RANDOM_DEPTH,
            submission,
            span_bytes,
        };
        let sequential = move |access, bytes, span_bytes| {
            let (order, depth) = (Order::Sequential, SEQUENTIAL_DEPTH);
            Work { access, bytes, order, depth, submission, span_bytes }
        };
        let store_bytes = store_bytes.max(cache_bytes * STORE_OVER_CACHE);
        Some(move |sizes: CacheSizes| {
            let (image, group) = (sizes.image_bytes as u64, sizes.group_bytes as u64);
            let run = random(Access::Write, page * RUN_PAGES, store_bytes);
            DriveTimes {
                cache_page_read: cache.request_us(&random(Access::Read, image, cache_bytes)),
                cache_group_read: cache.request_us(&sequential(Access::Read, group, cache_bytes)),
                cache_group_write: cache.request_us(&sequential(Access::DurableWrite, group, cache_bytes)),
                store_page_read: store.request_us(&random(Access::Read, page, store_bytes)),
                store_page_write: store.request_us(&run) / RUN_PAGES as f64,
            }
        })
    }
}
