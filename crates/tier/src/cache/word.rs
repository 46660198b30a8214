//! A slot's word in the directory: page, version tag and flags.

use firndb_base::{Lsn, PageId};

/// Bits of a page number in a word: 4 PiB of pages of 4 KiB. Pages beyond by-pass the cache.
pub(crate) const PAGE_BITS: u32 = 40;
pub(super) const TAG_BITS: u32 = 20;
pub(super) const PAGE_MASK: u64 = (1 << PAGE_BITS) - 1;
pub(super) const TAG_MASK: u64 = (1 << TAG_BITS) - 1;
pub(super) const LINKED: u64 = 1 << 60;
pub(super) const DIRTY: u64 = 1 << 61;
pub(super) const REFERENCED: u64 = 1 << 62;

/// A slot's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(pub(super) u64);

impl Word {
    /// A word with flags, for tests of policies.
    #[cfg(test)]
    pub(crate) fn of(page: PageId, valid: bool, dirty: bool, referenced: bool) -> Word {
        let flags = [(valid, LINKED), (dirty, DIRTY), (referenced, REFERENCED)];
        Word(page.0 | flags.iter().filter(|(set, _)| *set).map(|(_, bit)| bit).sum::<u64>())
    }
    pub(super) fn new(page: PageId, version: Lsn, dirty: bool) -> Word {
        assert!(page.0 & !PAGE_MASK == 0, "{page:?} is too great a number for the cache");
        let tag = (version.0 & TAG_MASK) << PAGE_BITS;
        Word(page.0 | tag | LINKED | if dirty { DIRTY } else { 0 })
    }
    /// The page of the image that the slot holds, or held last.
    pub(crate) fn page(self) -> PageId {
        PageId(self.0 & PAGE_MASK)
    }
    /// Whether the image is the page's newest one in the cache.
    pub(crate) fn is_valid(self) -> bool {
        self.0 & LINKED != 0
    }
    /// Whether the store has an older version.
    pub(crate) fn is_dirty(self) -> bool {
        self.0 & DIRTY != 0
    }
    /// Whether the image was read since it entered.
    pub(crate) fn is_referenced(self) -> bool {
        self.0 & REFERENCED != 0
    }
    /// Whether the image may be of this version, judged by the tag.
    pub(crate) fn may_be(self, version: Lsn) -> bool {
        self.0 >> PAGE_BITS & TAG_MASK == version.0 & TAG_MASK
    }
    /// Whether both words describe the same image, referenced or not.
    pub(crate) fn is_same_image(self, other: Word) -> bool {
        (self.0 ^ other.0) & !REFERENCED == 0
    }
}
