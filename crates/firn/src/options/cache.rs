//! The settings of the flash cache.

use crate::error::Error;
use crate::options::kept::Kept;
use crate::options::limits::refuse;
use firndb_base::sync::Arc;
use firndb_tier::CacheKind;
use firndb_tier::cache::Face;
use firndb_tier::page_cache::is_kind_name;
use firndb_tier::page_cache::policy::CachePolicy;
use std::path::PathBuf;

/// The settings of the flash cache over the page store ([`crate::Options::cache`],
/// `docs/guide/cache.md`).
///
/// *Fixed* when a cache is made: `bytes`, `path`, `group_pages`, `write_through`. *Kept* with the
/// database: `rebuildable`. *For one opening*: `kind`, `policy`, `give_up`, `profile`.
#[derive(Clone)]
pub struct CacheSettings {
    pub(crate) bytes: Option<u64>,
    pub(crate) path: Option<PathBuf>,
    /// The kinds that can be opened; a new cache is of the last.
    pub(crate) kinds: Vec<Arc<dyn CacheKind>>,
    pub(crate) policy: CachePolicy,
    pub(crate) group_pages: Option<usize>,
    pub(crate) write_through: bool,
    pub(crate) rebuildable: Kept<bool>,
    pub(crate) give_up: bool,
    pub(crate) profile: Option<PathBuf>,
}

impl Default for CacheSettings {
    fn default() -> CacheSettings {
        CacheSettings {
            bytes: None,
            path: None,
            kinds: vec![Arc::new(Face)],
            policy: CachePolicy::default(),
            group_pages: None,
            write_through: false,
            rebuildable: Kept::new(false),
            give_up: false,
            profile: None,
        }
    }
}

impl CacheSettings {
    /// Keeps pages that are evicted from DRAM in a flash cache of `bytes` bytes, over a store on
    /// something slower. Given at creation or at any opening: a database that has no cache gets
    /// one, one that has one keeps it. Default: no cache, which suits a store on an SSD.
    #[must_use]
    pub fn bytes(mut self, bytes: u64) -> CacheSettings {
        self.bytes = Some(bytes);
        self
    }
    /// Where a new flash cache is. Needs [`CacheSettings::bytes`]. Default: in the database's
    /// directory.
    #[must_use]
    pub fn path(mut self, path: impl Into<PathBuf>) -> CacheSettings {
        self.path = Some(path.into());
        self
    }
    /// A kind of flash cache beside Firn's own ([`crate::Face`]): a cache of this kind is opened,
    /// and a new one is of this kind. May be called for several kinds: caches of all of them are
    /// opened, and a new one is of the last. Default: Firn's own.
    #[must_use]
    pub fn kind(mut self, kind: Arc<dyn CacheKind>) -> CacheSettings {
        self.kinds.retain(|known| known.name() != kind.name());
        self.kinds.push(kind);
        self
    }
    /// The replacement policy of Firn's own flash cache. Default: [`CachePolicy::Keeping`].
    #[must_use]
    pub fn policy(mut self, policy: CachePolicy) -> CacheSettings {
        self.policy = policy;
        self
    }
    /// Pages that a new flash cache writes and replaces at a time, 1 to 1024: about an erase block
    /// of its device. Default: what the flash's profile says ([`CacheSettings::profile`]), else 64.
    #[must_use]
    pub fn group_pages(mut self, pages: usize) -> CacheSettings {
        self.group_pages = Some(pages);
        self
    }
    /// Whether a new flash cache also writes dirty pages to the store at once. It then speeds up
    /// reads only, and if its device fails or is missing the database goes on without it. Default:
    /// no, and the device is as precious as the store.
    #[must_use]
    pub fn write_through(mut self, write_through: bool) -> CacheSettings {
        self.write_through = write_through;
        self
    }
    /// Whether log is retained, up to a quarter of the log's space, for all pages that only the
    /// flash cache holds: if its device is lost, [`CacheSettings::give_up`] rebuilds them. The
    /// oldest dirty pages are written to the store for that in time, and 8 bytes of DRAM are taken
    /// for each page of the cache. Default: as the database keeps it, and no for a new one, because
    /// of these costs.
    #[must_use]
    pub fn rebuildable(mut self, keep: bool) -> CacheSettings {
        self.rebuildable.name(keep);
        self
    }
    /// Opens a database whose flash cache is lost, and gives the cache up for good: pages that only
    /// it held are rebuilt from the store and the log. Fails, and changes nothing, if the log was
    /// not retained for that ([`CacheSettings::rebuildable`]). A cache in which nothing is the only
    /// copy is given up, too. Default: no.
    #[must_use]
    pub fn give_up(mut self, give_up: bool) -> CacheSettings {
        self.give_up = give_up;
        self
    }
    /// The profile (`firn characterize`) of the flash cache's device. Default: the one that the
    /// directory's `firn.toml` names, else the log's, since both are on flash.
    #[must_use]
    pub fn profile(mut self, path: impl Into<PathBuf>) -> CacheSettings {
        self.profile = Some(path.into());
        self
    }

    /// Checks every setting against its range.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.path.is_some() && self.bytes.is_none() {
            return refuse(
                "cache.path is given without cache.bytes; say how large the cache is to be".into(),
            );
        }
        if let (Some(_), Some(pages)) = (self.bytes, self.group_pages)
            && !(1..=1024).contains(&pages)
        {
            return refuse(format!("cache.group_pages is {pages}; it must be 1 to 1024"));
        }
        if let Some(kind) = self.kinds.iter().find(|kind| !is_kind_name(kind.name())) {
            return refuse(format!(
                "{:?} names no kind of flash cache: use 1 to 16 lower-case letters and digits",
                kind.name()
            ));
        }
        Ok(())
    }

    /// The kind of a new flash cache.
    pub(crate) fn new_kind(&self) -> &Arc<dyn CacheKind> {
        self.kinds.last().expect("Firn's own is among them")
    }

    /// The kind of this name.
    pub(crate) fn kind_named(&self, name: &str) -> Option<&Arc<dyn CacheKind>> {
        self.kinds.iter().find(|kind| kind.name() == name)
    }
}

impl std::fmt::Debug for CacheSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CacheSettings")
            .field("bytes", &self.bytes)
            .field("path", &self.path)
            .field("kind", &self.new_kind().name())
            .field("policy", &self.policy)
            .field("group_pages", &self.group_pages)
            .field("write_through", &self.write_through)
            .field("rebuildable", &self.rebuildable)
            .field("give_up", &self.give_up)
            .field("profile", &self.profile)
            .finish()
    }
}
