//! Every image that left DRAM, by version: what bases and changes are judged by.
//!
//! The tiers return with each page its *base*, an image that was written to them before, and the
//! granules that may differ from it; the buffer offers pages with the same. Either is right if the
//! base, with these granules taken from the page, is the page. The bases are here because only what
//! the buffer offered can be in the store.

use firndb::{Lsn, PageId};
use firndb_tier::{Base, Changes};
use std::collections::BTreeMap;

/// Versions kept of a page, beside the base that was named last.
const VERSIONS_MAX: usize = 16;

/// Images of one page by version.
#[derive(Debug, Default)]
struct Versions {
    images: BTreeMap<Lsn, Vec<u8>>,
    /// The base that was named last: kept as long as it may be named again.
    named: Lsn,
}

/// Images by page and version.
#[derive(Debug, Default)]
pub(crate) struct Images {
    pages: BTreeMap<PageId, Versions>,
    judged: u64,
}

impl Images {
    /// A version is on its way to the tiers.
    pub(crate) fn note(&mut self, page: PageId, version: Lsn, data: &[u8]) {
        let versions = self.pages.entry(page).or_default();
        versions.images.insert(version, data.to_vec());
        if versions.images.len() > VERSIONS_MAX {
            let oldest = versions.images.keys().copied().find(|version| *version != versions.named);
            versions.images.remove(&oldest.expect("more than one"));
        }
    }

    /// The page's number is free, or another page's.
    pub(crate) fn forget(&mut self, page: PageId) {
        self.pages.remove(&page);
    }

    /// Pages, of which something had changed since a base that is known, that were judged.
    pub(crate) fn judged(&self) -> u64 {
        self.judged
    }

    /// What is wrong with what was said of a page's version, if anything is.
    pub(crate) fn judge(
        &mut self,
        (page, version): (PageId, Lsn),
        data: &[u8],
        (base, changes): (Option<Base>, Changes),
    ) -> Option<String> {
        let Some(base) = base else {
            let wrong = "has no base, and not all of it is changed";
            return (!changes.is_all()).then(|| format!("page {page} in version {version} {wrong}"));
        };
        if base.version > version {
            return Some(format!("page {page} in version {version} has a later base: {}", base.version));
        }
        let versions = self.pages.get_mut(&page)?;
        let image = versions.images.get(&base.version)?;
        versions.named = base.version;
        self.judged += u64::from(!changes.is_none());
        let mut rebuilt = image.clone();
        changes.apply(data, &mut rebuilt);
        let at = rebuilt.iter().zip(data).position(|(rebuilt, byte)| rebuilt != byte)?;
        Some(format!(
            "page {page} in version {version} differs from its base {} at byte {at}, which is not among its changes",
            base.version
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bytes_that_are_named_may_differ_from_the_base() {
        let (page, mut images) = (PageId(7), Images::default());
        images.note(page, Lsn(10), &[1; 128]);
        let mut data = [1; 128];
        data[5] = 2;
        let base = |version| Some(Base { version: Lsn(version), checksum: 0 });
        let mut judge = |base, changes| images.judge((page, Lsn(20)), &data, (base, changes));
        assert_eq!(judge(base(10), Changes::of(5..6, 128)), None);
        assert_eq!(judge(base(10), Changes::ALL), None);
        assert!(judge(base(10), Changes::of(6..7, 128)).is_some_and(|wrong| wrong.contains("at byte 5")));
        assert!(judge(base(10), Changes::NONE).is_some());
        assert_eq!(judge(base(11), Changes::NONE), None, "a base that is not known");
        assert!(judge(base(21), Changes::ALL).is_some_and(|wrong| wrong.contains("a later base")));
        assert!(judge(None, Changes::NONE).is_some_and(|wrong| wrong.contains("no base")));
        assert_eq!(judge(None, Changes::ALL), None);
        assert_eq!(images.judged(), 3);
        // However many versions come after it.
        (30..60).for_each(|version| images.note(page, Lsn(version), &data));
        assert!(images.judge((page, Lsn(60)), &data, (base(10), Changes::NONE)).is_some());
        images.forget(page);
        assert_eq!(images.judge((page, Lsn(20)), &data, (base(10), Changes::NONE)), None);
    }
}
