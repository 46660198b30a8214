//! The flash cache as users see and change it.

use crate::database::Database;
use crate::engine::cache::CACHE;
use crate::engine::claim;
use crate::engine::devices::Candidate;
use crate::engine::directory;
use crate::engine::directory::files::open_existing;
use crate::engine::directory::names::refuse_own_files;
use crate::engine::superblock::Superblock;
use crate::engine::superblock_fields::CacheMember;
use crate::error::{Error, ErrorKind};
use crate::named_device::NamedDevice;
use crate::options::Options;
use firndb_base::Lsn;
use firndb_base::sync::Arc;
use firndb_device::Device;
use firndb_tier::CacheKind;
use firndb_tier::cache::CacheShape;
use firndb_tier::page_cache::header::CacheId;
use firndb_tier::page_cache::policy::CachePolicy;
use firndb_tier::page_cache::statistics::CacheStatistics;
use std::path::{Path, PathBuf};

/// A flash cache to be attached. See `docs/guide/cache.md`.
#[derive(Clone, Debug)]
pub struct CacheSpec {
    bytes: u64,
    path: Option<PathBuf>,
    kind: Option<Arc<dyn CacheKind>>,
    policy: Option<CachePolicy>,
    group_pages: Option<usize>,
    write_through: bool,
}

impl CacheSpec {
    /// A cache of `bytes` bytes in the file `cache` of the database's directory, with the kind and
    /// the policy of the database's options, the group size of [`crate::CacheSettings::group_pages`],
    /// written back.
    #[must_use]
    pub fn new(bytes: u64) -> CacheSpec {
        CacheSpec { bytes, path: None, kind: None, policy: None, group_pages: None, write_through: false }
    }
    /// Where it is: a file that is created, or an empty file or raw device, or a former cache of
    /// this database. A relative path counts from the database's directory.
    #[must_use]
    pub fn path(mut self, path: impl Into<PathBuf>) -> CacheSpec {
        self.path = Some(path.into());
        self
    }
    /// What kind of cache it is. Every later opening must be passed this kind, too
    /// ([`crate::CacheSettings::kind`]).
    #[must_use]
    pub fn kind(mut self, kind: Arc<dyn CacheKind>) -> CacheSpec {
        self.kind = Some(kind);
        self
    }
    /// Its replacement policy, until the database is opened with another one.
    #[must_use]
    pub fn policy(mut self, policy: CachePolicy) -> CacheSpec {
        self.policy = Some(policy);
        self
    }
    /// Pages written and replaced at a time.
    #[must_use]
    pub fn group_pages(mut self, pages: usize) -> CacheSpec {
        self.group_pages = Some(pages);
        self
    }
    /// Whether dirty pages are also written to the store at once.
    #[must_use]
    pub fn write_through(mut self, write_through: bool) -> CacheSpec {
        self.write_through = write_through;
        self
    }

    /// The options of a database with this cache.
    fn options(&self, options: &Options) -> Options {
        let mut chosen =
            options.clone().cache(|cache| cache.bytes(self.bytes).write_through(self.write_through));
        chosen.cache.give_up = false;
        if let Some(kind) = &self.kind {
            chosen.cache = chosen.cache.kind(kind.clone());
        }
        chosen.cache.policy = self.policy.unwrap_or(options.cache.policy);
        chosen.cache.group_pages = self.group_pages.or(options.cache.group_pages);
        chosen
    }
}

/// Whether a flash cache can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CacheMemberState {
    /// Pages are read from it and written to it.
    InUse,
    /// It is being detached.
    Leaving,
    /// It failed, and the database goes on without it (write-through only).
    Lost,
    /// It cannot be read, or is not this database's (only of a database that is not open).
    Missing,
}

impl CacheMemberState {
    /// The state in words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            CacheMemberState::InUse => "in use",
            CacheMemberState::Leaving => "leaving",
            CacheMemberState::Lost => "lost",
            CacheMemberState::Missing => "missing",
        }
    }
}

/// A flash cache.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CacheStatus {
    /// Where it is: relative to the database's directory, or absolute.
    pub path: String,
    /// Whether it can be used.
    pub state: CacheMemberState,
    /// Bytes of its device, page slots, pages of a group; `None` if it is missing.
    pub shape: Option<CacheShape>,
    /// Whether nothing in it is the only copy: dirty pages are written to the store at once, or the
    /// log is retained for them.
    pub write_through: bool,
    /// The name of its kind: `face` is Firn's own.
    pub kind: String,
    /// Its policy, while the database is open; `None` of another kind than Firn's own.
    pub policy: Option<CachePolicy>,
    /// Its counters, while the database is open.
    pub statistics: Option<CacheStatistics>,
    /// Bytes of log that are retained, or were at the last checkpoint, for rebuilding it if its
    /// device is lost; `None` if it cannot be rebuilt.
    pub rebuildable_log_bytes: Option<u64>,
    /// Why it is missing.
    pub trouble: Option<String>,
}

impl CacheStatus {
    fn of(
        superblock: &Superblock,
        member: &CacheMember,
        device: Result<Arc<dyn Device>, Error>,
        log_end: Lsn,
    ) -> CacheStatus {
        let database = superblock.database;
        let shape = device.and_then(|device| Ok(CacheShape::read(&*device, database, CacheId(member.id))?));
        CacheStatus {
            path: member.path.clone(),
            state: if shape.is_ok() { CacheMemberState::InUse } else { CacheMemberState::Missing },
            trouble: shape.as_ref().err().map(ToString::to_string),
            shape: shape.ok(),
            write_through: member.write_through,
            kind: member.kind.clone(),
            policy: None,
            statistics: None,
            rebuildable_log_bytes: superblock.extensions.cache_from.map(|from| log_end.since(from)),
        }
    }
}

impl Database {
    /// The flash cache, if there is one.
    #[must_use]
    pub fn cache_status(&self) -> Option<CacheStatus> {
        let engine = self.engine();
        let superblock = engine.superblock.lock().clone();
        let member = superblock.extensions.cache.as_ref()?;
        let (cache, device) = (engine.tier.cache()?, engine.devices.cache()?);
        let statistics = cache.cache_statistics();
        let mut status = CacheStatus::of(&superblock, member, Ok(device), engine.log.end());
        status.state = match (statistics.lost, statistics.leaving) {
            (true, _) => CacheMemberState::Lost,
            (_, true) => CacheMemberState::Leaving,
            _ => status.state,
        };
        status.policy = cache.policy();
        status.statistics = Some(statistics);
        Some(status)
    }

    /// Puts a flash cache into use while the database works. See [`crate::CacheSettings::bytes`]
    /// for having one from the beginning.
    ///
    /// After a crash in between the database has an empty cache, or none; if none, attach it again.
    ///
    /// Errors: `BadArgument` if there is one already, if the device holds something else, or is too
    /// small.
    pub fn attach_cache(&self, spec: &CacheSpec) -> Result<(), Error> {
        let engine = self.engine();
        engine.check_writable()?;
        engine.refuse_second_cache()?;
        self.check_spec(spec, None)?;
        let named = self.named_cache(spec)?;
        refuse_own_files(named.dir, &named.whole, &engine.superblock.lock())?;
        self.attach_candidate(named.open_or_make()?, spec)
    }

    /// The device that a spec names.
    fn named_cache(&self, spec: &CacheSpec) -> Result<NamedDevice<'_>, Error> {
        self.named(spec.path.as_deref().unwrap_or(Path::new(CACHE)))
    }

    fn attach_candidate(&self, candidate: Candidate, spec: &CacheSpec) -> Result<(), Error> {
        let engine = self.engine();
        let Candidate { device, path } = candidate;
        let device = match &engine.options.testing.wrap_device {
            Some(wrap) => wrap("cache", device)?,
            None => device,
        };
        self.attach(device, path, spec)
    }

    /// As [`Database::attach_cache`], for a database that was opened on devices. The spec's path is
    /// not used.
    pub fn attach_cache_on(&self, device: Arc<dyn Device>, spec: &CacheSpec) -> Result<(), Error> {
        let name = device.info().name.clone();
        self.attach(device, name, spec)
    }

    fn attach(&self, device: Arc<dyn Device>, path: String, spec: &CacheSpec) -> Result<(), Error> {
        let engine = self.engine();
        engine.check_writable()?;
        self.check_spec(spec, Some(&*device))?;
        engine.attach_cache(Candidate { device, path }, &spec.options(&engine.options))
    }

    /// Refuses a cache that could not be created, before anything is changed.
    fn check_spec(&self, spec: &CacheSpec, device: Option<&dyn Device>) -> Result<(), Error> {
        let engine = self.engine();
        let options = spec.options(&engine.options);
        options.check()?;
        let page_size = engine.superblock.lock().page_size;
        let block = device.map_or(512, |device| device.info().logical_block);
        options.check_cache(spec.bytes, page_size, block)
    }

    /// Takes the flash cache out of use while the database works: its dirty pages are written to
    /// the store, which takes as long as writing that many pages there. `progress` is called with
    /// the number of pages left. Its file stays where it is, and may be removed.
    ///
    /// After a crash in between it is in use as before; detach it again.
    ///
    /// Errors: `NotFound` if there is none; those of its device and the store, after which it is in
    /// use as before.
    pub fn detach_cache(&self, progress: &mut dyn FnMut(u64)) -> Result<(), Error> {
        self.engine().detach_cache(progress).map(drop)
    }

    /// Changes the size of the flash cache while the database works: detaches it, and attaches an
    /// empty one of `bytes` bytes in its place. After a crash in between there may be none: attach
    /// one.
    ///
    /// Errors: as [`Database::detach_cache`] and [`Database::attach_cache`].
    pub fn resize_cache(&self, bytes: u64, progress: &mut dyn FnMut(u64)) -> Result<(), Error> {
        let none = || Error::new(ErrorKind::NotFound, "the database has no flash cache");
        let status = self.cache_status().ok_or_else(none)?;
        let engine = self.engine();
        let mut spec = CacheSpec::new(bytes);
        spec.kind = engine.tier.cache().map(|cache| cache.kind());
        if status.policy.is_some() {
            spec.policy = status.policy;
            spec.write_through = status.write_through;
            spec.group_pages = status.shape.map(|shape| shape.group_pages);
        }
        let device = engine.devices.cache();
        self.check_spec(&spec, device.as_deref())?;
        let device = engine.detach_cache(progress)?;
        // It holds nothing that is needed. On a raw device this does nothing.
        device.shrink(0)?;
        self.attach(device, status.path, &spec).map_err(|error| {
            error.within("the flash cache has been detached, and could not be attached again")
        })
    }

    /// Detaches the flash cache and attaches another, while the database works. After a crash in
    /// between there may be none: attach one.
    ///
    /// Errors: as [`Database::detach_cache`] and [`Database::attach_cache`].
    pub fn replace_cache(&self, spec: &CacheSpec, progress: &mut dyn FnMut(u64)) -> Result<(), Error> {
        self.engine().check_writable()?;
        self.check_spec(spec, None)?;
        let other = self.other_cache(spec)?;
        self.detach_cache(progress)?;
        let attached = match other {
            Some(candidate) => self.attach_candidate(candidate, spec),
            None => self.attach_cache(spec),
        };
        attached
            .map_err(|error| error.within("the flash cache has been detached, and the other not attached"))
    }

    /// Opens the device that is to replace the cache's, which is in use; `None` if it is the same.
    ///
    /// Errors: `BadArgument` if it holds something.
    fn other_cache(&self, spec: &CacheSpec) -> Result<Option<Candidate>, Error> {
        let superblock = self.engine().superblock.lock().clone();
        let mut others = superblock.clone();
        if others.extensions.cache.take().is_none() {
            return Err(Error::not_found("the database has no flash cache"));
        }
        let named = self.named_cache(spec)?;
        refuse_own_files(named.dir, &named.whole, &others)?;
        if refuse_own_files(named.dir, &named.whole, &superblock).is_err() {
            return Ok(None);
        }
        let candidate = named.open_or_make()?;
        claim::refuse_contents(&*candidate.device, &[superblock.database])?;
        self.check_spec(spec, Some(&*candidate.device))?;
        Ok(Some(candidate))
    }
}

/// The flash cache of the database in `dir`, which no process may have open; nothing is changed or
/// recovered. `None` if there is none.
///
/// Errors: `NotFound`, `InUse`, `Damaged`, `Unusable`.
pub fn cache_status(dir: impl AsRef<Path>) -> Result<Option<CacheStatus>, Error> {
    let dir = dir.as_ref();
    let (_held, superblock) = directory::look_at_superblock(dir)?;
    let of = |member: &CacheMember| {
        let device = open_existing(&dir.join(&member.path));
        CacheStatus::of(&superblock, member, device, superblock.checkpoint)
    };
    Ok(superblock.extensions.cache.as_ref().map(of))
}
