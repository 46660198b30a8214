//! Creating and opening a cache.

use super::directory::Directory;
use super::geometry::{Geometry, Serial};
use super::header::{CacheId, Contents, Header};
use super::open_group::OpenGroup;
use super::pending::Pending;
use super::policy::CachePolicy;
use super::restore::Restored;
use super::segment::SegmentBuilder;
use super::shadow::ShadowEntries;
use super::statistics::Counters;
use super::versions::Versions;
use super::{FlashCache, Ring};
use crate::ranks;
use crate::store::Store;
use crate::{PageTier, TierError, TierErrorKind};
use firndb_base::sync::atomic::{AtomicBool, AtomicU64};
use firndb_base::sync::{Arc, Mutex, OnceLock};
use firndb_base::{DatabaseId, Lsn};
use firndb_device::{AlignedBuf, Device, Fill};
use std::collections::BTreeSet;

/// Options of a new cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// Bytes of the device to use.
    pub bytes: u64,
    /// Policy of admission and replacement.
    pub policy: CachePolicy,
    /// Pages written at a time, and replaced at a time: about one erase block of the device (FaCE,
    /// section 3.3). 1 to 1024; always 1 for [`CachePolicy::Fifo`].
    pub group_pages: usize,
    /// Whether dirty pages go to the store at once, so that losing the cache costs only speed.
    pub write_through: bool,
}

impl CacheOptions {
    /// The default policy in groups of 64 pages, write-back.
    #[must_use]
    pub fn new(bytes: u64) -> CacheOptions {
        CacheOptions { bytes, policy: CachePolicy::default(), group_pages: 64, write_through: false }
    }

    /// Checks that such a cache for pages of `page_size` bytes can be created on a device with
    /// blocks of `block` bytes.
    ///
    /// Errors: `BadArgument`, with values that would do.
    pub fn check(&self, page_size: usize, block: usize) -> Result<(), TierError> {
        match self.policy {
            CachePolicy::LazyCleaning => super::lazy_cleaning::check(self.bytes, page_size, block),
            policy if policy.caches_on_entry() => {
                super::on_entry::check(self.bytes, page_size, block, policy == CachePolicy::Temperature)
            }
            policy => {
                let group_pages = if policy == CachePolicy::Fifo { 1 } else { self.group_pages };
                Geometry::fit(page_size, block, group_pages, self.bytes).map(drop)
            }
        }
    }
}

/// State of a cache that is stored outside of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheState {
    /// Every group up to this one was durable: a cache with an older last group is an older copy,
    /// or lost writes.
    pub durable: u64,
    /// The cache failed and must not be read any more. Only in write-through mode.
    pub lost: bool,
}

impl FlashCache {
    /// Creates an empty cache on a device that is empty or held a cache of the same database.
    ///
    /// Errors: `BadArgument` if the device holds something else, or is too small.
    pub fn create(
        device: Arc<dyn Device>,
        store: Arc<Store>,
        database: DatabaseId,
        cache: CacheId,
        options: CacheOptions,
    ) -> Result<FlashCache, TierError> {
        let name = device.info().name.clone();
        let refuse = |what: String| Err(TierError::new(TierErrorKind::BadArgument, format!("{name} {what}")));
        match Header::inspect(&*device)? {
            Contents::Blank => {}
            Contents::Cache(header) if header.database == database => {}
            Contents::Cache(header) => {
                return refuse(format!(
                    "is the flash cache of database {}: use another file",
                    header.database
                ));
            }
            Contents::Other => {
                return refuse("is not empty: a flash cache is made on an empty device".into());
            }
        }
        if !options.policy.is_multi_version_fifo() {
            return refuse("is to be another kind of cache: see LazyCleaning and EntryCache".into());
        }
        let group_pages = if options.policy == CachePolicy::Fifo { 1 } else { options.group_pages };
        let block = device.info().logical_block;
        let geometry = Geometry::fit(store.page_size(), block, group_pages, options.bytes)?;
        device.grow(geometry.end(), Fill::Reserved)?;
        let header = Header {
            database,
            cache,
            page_size: geometry.page_size as u32,
            block: block as u32,
            group_pages: group_pages as u32,
            write_through: options.write_through,
            groups: geometry.groups,
        };
        header.write(&*device)?;
        Ok(FlashCache::assemble(device, store, header, geometry, options.policy, Restored::empty(&geometry)))
    }

    /// Opens the cache `cache` of `database` with all that it held. `durable` is its stored state
    /// ([`CacheState::durable`]), `log` the range of the log that recovery reads.
    ///
    /// Errors: `Damaged` if the device holds another cache, an older copy, page versions beyond the
    /// end of the log, or groups that cannot be read and are not just the torn last one.
    pub fn open(
        device: Arc<dyn Device>,
        store: Arc<Store>,
        database: DatabaseId,
        cache: CacheId,
        policy: CachePolicy,
        durable: u64,
        log: std::ops::Range<Lsn>,
    ) -> Result<FlashCache, TierError> {
        let header = Header::load(&*device, database, cache)?;
        let geometry = header.geometry()?;
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
        let restored = super::restore::restore(&*device, &header, &geometry, Serial(durable), log)?;
        Ok(FlashCache::assemble(device, store, header, geometry, policy, restored))
    }

    fn assemble(
        device: Arc<dyn Device>,
        store: Arc<Store>,
        header: Header,
        geometry: Geometry,
        policy: CachePolicy,
        restored: Restored,
    ) -> FlashCache {
        let Restored { directory, versions, front, rear, segment } = restored;
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
                scratch: AlignedBuf::zeroed(geometry.group_bytes),
            }),
            open: ranks::OPEN.rwlock(OpenGroup::new(&geometry, rear)),
            rear: AtomicU64::new(rear.0),
            pending: ranks::PENDING.mutex(Pending::default()),
            recent: ranks::RECENT.mutex(versions),
            freed_in_redo: Mutex::default(),
            segments: ranks::SEGMENTS.mutex(Vec::new()),
            durable: AtomicU64::new(rear.0 - 1),
            poison: OnceLock::new(),
            lost: AtomicBool::new(false),
            lost_pages: ranks::LOST_PAGES.mutex(BTreeSet::new()),
            lacking: OnceLock::new(),
            leaving: AtomicBool::new(false),
            scratch: ranks::SCRATCH.mutex(Vec::new()),
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
