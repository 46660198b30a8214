//! Creating and opening a cache.

use super::directory::Directory;
use super::geometry::{Geometry, Serial};
use super::kept::KeptGroups;
use super::open_group::OpenGroup;
use super::pending::Pending;
use super::restore::{self, Restored};
use super::segment::SegmentBuilder;
use super::shadow::ShadowEntries;
use super::state::{FlashCache, Ring};
use super::versions::Versions;
use crate::error::{TierError, TierErrorKind};
use crate::merged_reads::Staging;
use crate::page_cache::header::CacheHeader;
use crate::page_cache::policy::CachePolicy;
use crate::page_cache::statistics::Counters;
use crate::page_cache::{BackingStore, CacheKind, CacheOptions, CacheSite, PageCache};
use crate::poison::Poison;
use crate::ranks;
use firndb_base::Lsn;
use firndb_base::sync::atomic::{AtomicBool, AtomicU64};
use firndb_base::sync::{Arc, Mutex, OnceLock};
use firndb_device::{AlignedBuf, Device, Fill};
use std::collections::BTreeSet;
use std::ops::Range;

/// Firn's own kind of cache: [`FlashCache`].
#[derive(Clone, Copy, Debug)]
pub struct Face;

impl CacheKind for Face {
    fn name(&self) -> &'static str {
        "face"
    }
    fn check(&self, options: &CacheOptions, page_size: usize, block: usize) -> Result<(), TierError> {
        Geometry::fit(page_size, block, options.group_pages, options.bytes).map(drop)
    }
    fn create(&self, site: CacheSite, options: CacheOptions) -> Result<Arc<dyn PageCache>, TierError> {
        Ok(Arc::new(FlashCache::create(site, options)?))
    }
    fn open(
        &self,
        site: CacheSite,
        policy: CachePolicy,
        durable: u64,
        log: Range<Lsn>,
    ) -> Result<Arc<dyn PageCache>, TierError> {
        Ok(Arc::new(FlashCache::open(site, policy, durable, log)?))
    }
}

impl FlashCache {
    /// Creates an empty cache on a device that is empty or held a cache of the same database.
    ///
    /// Errors: `BadArgument` if the device holds something else, or is too small.
    pub fn create(site: CacheSite, options: CacheOptions) -> Result<FlashCache, TierError> {
        let CacheSite { device, store, database, cache } = site;
        CacheHeader::expect_vacant(&*device, database)?;
        let block = device.info().logical_block;
        let geometry = Geometry::fit(store.page_size(), block, options.group_pages, options.bytes)?;
        device.grow(geometry.end(), Fill::Reserved)?;
        let header = CacheHeader {
            database,
            cache,
            page_size: geometry.page_size as u32,
            block: block as u32,
            group_pages: options.group_pages as u32,
            write_through: options.write_through,
            groups: geometry.groups,
        };
        header.write(&*device)?;
        Ok(FlashCache::assemble(device, store, header, geometry, options.policy, Restored::empty(&geometry)))
    }

    /// Opens the cache with all that it held. `durable` is its stored state
    /// ([`crate::CacheState::durable`]), `log` the range of the log that recovery reads.
    ///
    /// Errors: `Damaged` if the device holds another cache, an older copy, page versions beyond the
    /// end of the log, or groups that cannot be read and are not just the torn last one.
    pub fn open(
        site: CacheSite,
        policy: CachePolicy,
        durable: u64,
        log: Range<Lsn>,
    ) -> Result<FlashCache, TierError> {
        let CacheSite { device, store, database, cache } = site;
        let header = CacheHeader::load(&*device, database, cache)?;
        let geometry = Geometry::of(&header)?;
        if geometry.page_size != store.page_size() || geometry.end() > device.len() {
            return Err(TierError::new(
                TierErrorKind::Damaged,
                format!(
                    "{} has {} bytes and pages of {}; its header asks for {} bytes, the database for pages of {}",
                    device.info().name,
                    device.len(),
                    geometry.page_size,
                    geometry.end(),
                    store.page_size()
                ),
            ));
        }
        let restored = restore::restore(&*device, &header, &geometry, Serial(durable), log)?;
        Ok(FlashCache::assemble(device, store, header, geometry, policy, restored))
    }

    fn assemble(
        device: Arc<dyn Device>,
        store: Arc<dyn BackingStore>,
        header: CacheHeader,
        geometry: Geometry,
        policy: CachePolicy,
        restored: Restored,
    ) -> FlashCache {
        let Restored { directory, versions, front, rear, segment } = restored;
        // Clean pages may enter that the store took just before, and the end of the log be lost: a
        // restart refuses images from behind it.
        let log_end = store.log_end();
        FlashCache {
            device,
            store,
            header,
            geometry,
            policy,
            directory,
            passing: ranks::PASSING.rwlock(()),
            ring: ranks::RING.mutex(Ring {
                front,
                rear,
                written_back_end: Lsn::ZERO,
                segment,
                shadow: policy.selects().then(|| ShadowEntries::new(geometry.slots())),
                balance: None,
                scratch: AlignedBuf::zeroed(geometry.group_bytes),
            }),
            open: ranks::OPEN.rwlock(OpenGroup::new(&geometry, rear)),
            rear: AtomicU64::new(rear.0),
            front: AtomicU64::new(front.0),
            pending: ranks::PENDING.mutex(Pending::behind(log_end)),
            recent: ranks::RECENT.mutex(versions),
            freed_in_redo: Mutex::default(),
            kept: ranks::KEPT.mutex(KeptGroups::new(&geometry, policy.into())),
            segments: ranks::SEGMENTS.mutex(Vec::new()),
            durable: AtomicU64::new(rear.0 - 1),
            poison: Poison::new("the flash cache takes nothing more"),
            lost: AtomicBool::new(false),
            lost_pages: ranks::LOST_PAGES.mutex(BTreeSet::new()),
            lacking: OnceLock::new(),
            times: OnceLock::new(),
            is_short: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            scratch: ranks::SCRATCH.mutex(Vec::new()),
            read_staging: Staging::new(&ranks::CACHE_READ_STAGING),
            counters: Counters::default(),
        }
    }
}

impl Restored {
    /// The state of a new cache.
    fn empty(geometry: &Geometry) -> Restored {
        Restored {
            directory: Directory::new(geometry.slots()),
            versions: Versions::unknown(),
            front: Serial::FIRST,
            rear: Serial::FIRST,
            segment: SegmentBuilder::begin(geometry, Serial::FIRST),
        }
    }
}
