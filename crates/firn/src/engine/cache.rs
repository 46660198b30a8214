//! The flash cache of a database: created with it or later, opened again, and left out when it was
//! given up.

use crate::engine::claim;
use crate::engine::devices::Counted;
use crate::engine::superblock::Superblock;
use crate::engine::superblock_fields::CacheMember;
use crate::error::{Error, ErrorKind};
use crate::options::Options;
use firndb_base::sync::Arc;
use firndb_base::{Lsn, rng};
use firndb_tier::page_cache::header::CacheId;
use firndb_tier::store::Store;
use firndb_tier::{CacheSite, PageCache, PageTier};
use std::ops::Range;

/// Name of the cache's file, where no path was given.
pub(crate) const CACHE: &str = "cache";

/// The path of the cache of a database, or where it is to be created. `None` without one.
pub(crate) fn path(superblock: Option<&Superblock>, options: &Options) -> Option<String> {
    let remembered = superblock
        .and_then(|superblock| superblock.extensions.cache.as_ref())
        .map(|cache| cache.path.clone());
    let wanted = || {
        options.cache.bytes?;
        let path = options.cache.path.as_ref().map(|path| path.to_string_lossy().into_owned());
        Some(path.unwrap_or_else(|| CACHE.to_owned()))
    };
    remembered.or_else(wanted)
}

/// Opens the cache that the superblock names. `log` is the range of log that recovery reads. `None`
/// if there is none, or if it failed and held nothing that the store lacks.
pub(crate) fn open(
    superblock: &Superblock,
    devices: &Counted,
    store: &Arc<Store>,
    options: &Options,
    log: Range<Lsn>,
) -> Result<Option<Arc<dyn PageCache>>, Error> {
    let Some(member) = &superblock.extensions.cache else { return Ok(None) };
    let device = match devices.cache() {
        Some(device) => device,
        None if member.write_through => return Ok(None),
        None => {
            return Err(Error::new(
                ErrorKind::Unusable,
                format!(
                    "the flash cache {} is missing: it holds pages that nothing else has. Put it in place",
                    member.path
                ),
            ));
        }
    };
    let kind = options.cache.kind_named(&member.kind).ok_or_else(|| unknown_kind(superblock, member))?;
    let site =
        CacheSite { device, store: store.clone(), database: superblock.database, cache: CacheId(member.id) };
    match kind.open(site, options.cache.policy, member.durable, log) {
        Ok(cache) => {
            if options.testing.break_cache_restore {
                cache.forget_dirty_images();
            }
            if options.cache.rebuildable.get() {
                cache.keep_rebuildable(superblock.extensions.cache_from);
            }
            weigh(&*cache, devices, store, options);
            Ok(Some(cache))
        }
        // Nothing in it is the only copy.
        Err(_) if member.write_through => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Lets the cache weigh its drive's time against the store's, if both have profiles.
fn weigh(cache: &dyn PageCache, devices: &Counted, store: &Store, options: &Options) {
    let cache_bytes = devices.cache().map_or(0, |device| device.len());
    let times = options.drive_times(store.page_size(), cache_bytes, devices.store().len());
    if let Some(times) = times {
        cache.weigh(&times);
    }
}

/// The error of an opening without the cache's kind.
fn unknown_kind(superblock: &Superblock, member: &CacheMember) -> Error {
    let without = match member.write_through || superblock.extensions.cache_from.is_some() {
        true => "or open the database without the cache (cache.give_up, firn cache abandon)",
        false => "and detach the cache then, to open the database without that kind",
    };
    Error::new(
        ErrorKind::Unusable,
        format!(
            "the flash cache {} is of the kind {:?}, which was not passed: open the database with that kind \
             (CacheSettings::kind), {without}",
            member.path, member.kind
        ),
    )
}

/// Gives the cache up, if the options say so: one change of the superblock, in memory, forgets the
/// cache and moves the redo start back to where redo upon the store alone restores everything. The
/// change becomes durable with the next epoch; the rest is ordinary recovery.
pub(crate) fn give_up(superblock: &mut Superblock, options: &Options) -> Result<(), Error> {
    let Some(member) = superblock.extensions.cache.as_ref().filter(|_| options.cache.give_up) else {
        return Ok(());
    };
    match superblock.extensions.cache_from {
        Some(_) if options.testing.break_cache_rebuild => {}
        Some(from) => superblock.redo_start = from.min(superblock.redo_start),
        None if member.write_through => {}
        None => {
            return Err(Error::new(
                ErrorKind::Unusable,
                format!(
                    "the flash cache {} cannot be given up: it holds pages that nothing else has, and the log was not kept \
                     for them (cache_rebuildable). Put it in place, or restore a backup",
                    member.path
                ),
            ));
        }
    }
    superblock.extensions.cache = None;
    superblock.extensions.cache_from = None;
    Ok(())
}

/// Creates a cache if the options ask for one and there is none, and notes it in the superblock,
/// which the caller writes before the first page goes into the cache. Forgets one that was given
/// up.
pub(crate) fn make(
    superblock: &mut Superblock,
    devices: &Counted,
    store: &Arc<Store>,
    options: &Options,
) -> Result<Option<Arc<dyn PageCache>>, Error> {
    superblock.extensions.cache = None;
    superblock.extensions.cache_from = None;
    let (Some(bytes), Some(path)) = (options.cache.bytes, path(None, options)) else { return Ok(None) };
    if options.cache.give_up {
        return Ok(None);
    }
    let Some(device) = devices.cache() else {
        return Err(Error::new(
            ErrorKind::BadArgument,
            "the options ask for a flash cache, and no device was given for it",
        ));
    };
    // The claim of a creation: the cache's device must be blank.
    claim::release(&*device, superblock.database)?;
    let id = CacheId(rng::entropy());
    let chosen = options.cache_options(bytes, superblock.page_size);
    let site = CacheSite { device, store: store.clone(), database: superblock.database, cache: id };
    let kind = options.cache.new_kind();
    let cache = kind.create(site, chosen)?;
    weigh(&*cache, devices, store, options);
    superblock.extensions.cache = Some(CacheMember {
        id: id.0,
        path,
        kind: kind.name().to_owned(),
        write_through: cache.is_dispensable(),
        durable: 0,
    });
    if options.cache.rebuildable.get() {
        cache.keep_rebuildable(None);
        superblock.extensions.cache_from = Some(superblock.redo_start);
    }
    Ok(Some(cache))
}
