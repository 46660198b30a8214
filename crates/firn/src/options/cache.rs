//! Options of the flash cache that are more than a value: its kind.

use crate::error::{Error, ErrorKind};
use crate::options::Options;
use firndb_base::sync::Arc;
use firndb_tier::CacheKind;
use firndb_tier::page_cache::is_kind_name;

impl Options {
    /// A kind of flash cache beside Firn's own ([`crate::Face`]): a cache of this kind is opened,
    /// and a new one is of this kind. May be called for several kinds: caches of all of them are
    /// opened, and a new one is of the last.
    #[must_use]
    pub fn cache_kind(mut self, kind: Arc<dyn CacheKind>) -> Options {
        self.cache_kinds.retain(|known| known.name() != kind.name());
        self.cache_kinds.push(kind);
        self
    }
    /// The kind of a new flash cache.
    pub(crate) fn new_cache_kind(&self) -> &Arc<dyn CacheKind> {
        self.cache_kinds.last().expect("Firn's own is among them")
    }
    /// The kind of this name.
    pub(crate) fn cache_kind_named(&self, name: &str) -> Option<&Arc<dyn CacheKind>> {
        self.cache_kinds.iter().find(|kind| kind.name() == name)
    }

    pub(crate) fn check_cache(&self) -> Result<(), Error> {
        let refuse = |message: String| Err(Error::new(ErrorKind::BadArgument, message));
        if self.cache_path.is_some() && self.cache_bytes.is_none() {
            return refuse(
                "cache_path is given without cache_bytes; say how large the cache is to be".into(),
            );
        }
        if let (Some(_), Some(pages)) = (self.cache_bytes, self.cache_group_pages)
            && !(1..=1024).contains(&pages)
        {
            return refuse(format!("cache_group_pages is {pages}; it must be 1 to 1024"));
        }
        if let Some(kind) = self.cache_kinds.iter().find(|kind| !is_kind_name(kind.name())) {
            return refuse(format!(
                "{:?} names no kind of flash cache: use 1 to 16 lower-case letters and digits",
                kind.name()
            ));
        }
        Ok(())
    }
}
