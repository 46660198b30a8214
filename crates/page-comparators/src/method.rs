//! What every method offers.

use crate::medium::Medium;
use firndb_tier::Changes;

/// What a method begins with: pages below `pages` may have images, each in a place of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Bytes of a page.
    pub page_size: u64,
    /// Pages that may have images.
    pub pages: u64,
}

/// A way to keep pages on a device.
pub trait Method {
    /// Reads the newest version of a page that has an image; returns the pages of deltas or logs
    /// that were read for it.
    fn read(&mut self, page: u64, medium: &mut Medium<'_>) -> u64;

    /// Takes a page: what differs from the version taken before, or `None` if all may.
    fn write(&mut self, page: u64, changes: Option<Changes>, medium: &mut Medium<'_>);

    /// A page whose newest version the method has leaves DRAM.
    fn clean(&mut self, _page: u64, _medium: &mut Medium<'_>) {}

    /// What was taken since the last call came as one batch.
    fn end_batch(&mut self, _medium: &mut Medium<'_>) {}

    /// The page is no more.
    fn free(&mut self, page: u64);

    /// Everything taken must be on the device.
    fn checkpoint(&mut self, _medium: &mut Medium<'_>) {}

    /// Most bytes of DRAM that its tables had, without write buffers: by the paper's own layout.
    fn table_bytes(&self) -> u64 {
        0
    }
}

/// Grows a table by page numbers so that it has an entry for `page`.
pub(crate) fn entry<T: Clone + Default>(table: &mut Vec<T>, page: u64) -> &mut T {
    let index = usize::try_from(page).expect("streams have no greater page numbers");
    if index >= table.len() {
        table.resize(index + 1, T::default());
    }
    &mut table[index]
}
