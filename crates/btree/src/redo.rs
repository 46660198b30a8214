//! Log records of page changes, read back. SKELETON.

use firn_base::codec::Malformed;
use firn_base::{Lsn, PageId};
use firn_buffer::Changed;
use firn_log::Record;

/// A page change as its record says (kinds 0x20–0x3f).
#[derive(Clone, Copy, Debug)]
pub struct PageChange<'a> {
    /// The page it changes.
    pub page: PageId,
    /// That page's version before.
    pub previous: Lsn,
    /// What the floor above attached for undo; empty for the tree's own changes.
    pub attachment: &'a [u8],
}

impl<'a> PageChange<'a> {
    /// Decodes a record of one of the tree's kinds.
    pub fn decode(_record: Record<'a>) -> Result<PageChange<'a>, Malformed> {
        todo!()
    }
    /// Performs the change on the page's bytes. Checks all that it uses; an error leaves the page undefined.
    pub fn apply(&self, _page: &mut [u8]) -> Result<Changed, Malformed> {
        todo!()
    }
}
