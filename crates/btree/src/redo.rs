//! Log records of page changes, read back.

use crate::error::{TreeError, TreeErrorKind};
use crate::node::{GIVEN_UP, Node};
use crate::op::Op;
use firndb_base::codec::{Malformed, Reader, Writer};
use firndb_base::{Lsn, PageId};
use firndb_buffer::{BufferErrorKind, BufferPool, Changed, ExclusiveGuard};
use firndb_log::Record;

/// A page change as its record says (kinds 0x20–0x3f).
///
/// It changes the page from the page's own content, so redo needs no other page: applied to version
/// `previous` of the page it gives the same bytes as at run time, which applied it through here
/// too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageChange<'a> {
    pub page: PageId,
    /// That page's version before; zero for a page just allocated, whose content does not matter.
    pub previous: Lsn,
    /// What the layer above attached for undo; empty for the tree's own changes.
    pub attachment: &'a [u8],
    op: Op<'a>,
    /// The bytes of `op`.
    encoded: &'a [u8],
}

/// Changes of entries after each of which debug builds walk the node's invariants once.
const CHECKED_ONE_IN: u64 = 8;

impl<'a> PageChange<'a> {
    /// Decodes a record of one of the tree's kinds.
    pub fn decode(record: Record<'a>) -> Result<PageChange<'a>, Malformed> {
        let mut body = Reader::new(record.body);
        let page = PageId(body.varint()?);
        let previous = Lsn(body.varint()?);
        let attachment = body.blob()?;
        let encoded = body.rest();
        Ok(PageChange { page, previous, attachment, op: Op::decode(record.kind, body)?, encoded })
    }

    /// What a record that was made just now decodes to: its page and that page's version before,
    /// its attachment, its operation, and the operation's bytes.
    #[inline]
    pub(crate) fn made(
        record: Record<'a>,
        (page, previous): (PageId, Lsn),
        attachment: &'a [u8],
        (op, encoded): (Op<'a>, &'a [u8]),
    ) -> PageChange<'a> {
        let change = PageChange { page, previous, attachment, op, encoded };
        debug_assert_eq!(PageChange::decode(record), Ok(change), "what redo will do");
        change
    }

    /// Appends the record's body without what only undo needs: enough for redo.
    pub fn encode_for_redo(&self, out: &mut Vec<u8>) {
        out.put_varint(self.page.0);
        out.put_varint(self.previous.0);
        out.put_blob(&[]);
        out.put(self.encoded);
    }

    /// Whether the page is freed in the same group of records: nothing of it is kept.
    #[must_use]
    pub fn frees(&self) -> bool {
        matches!(self.op, Op::Drop)
    }

    /// Performs the change on the page's bytes. Checks all that it uses; an error leaves the page
    /// undefined.
    pub fn apply(&self, page: &mut [u8]) -> Result<Changed, Malformed> {
        let is_checked = cfg!(debug_assertions)
            && !self.frees()
            && !matches!(self.op, Op::Image { .. })
            && (self.op.rewrites() || self.previous.0.is_multiple_of(CHECKED_ONE_IN));
        let was_sound = is_checked && (self.overwrites() || check_page(page).is_ok());
        let changed = self.op.apply(page)?;
        if was_sound {
            let sound = check_page(page);
            assert!(sound.is_ok(), "{:?} is a node no more: {sound:?}", self.page);
        }
        Ok(changed)
    }

    /// Whether [`PageChange::apply`] would succeed, without changing the page. At run time this is
    /// asked before the record is appended: what is in the log can be applied.
    pub fn rehearse(&self, page: &[u8]) -> Result<(), Malformed> {
        self.op.rehearse(page)
    }

    /// As [`PageChange::rehearse`], for a page whose header was checked already.
    pub(crate) fn rehearse_on(&self, node: &Node<'_>) -> Result<(), Malformed> {
        self.op.rehearse_on(node)
    }

    /// As [`PageChange::rehearse`]; if that builds the page on a copy, returns the copy.
    pub(crate) fn rehearse_keeping(&self, page: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
        if !self.op.rewrites() {
            return self.op.rehearse(page).map(|()| None);
        }
        let mut image = page.to_vec();
        self.op.apply(&mut image)?;
        Ok(Some(image))
    }

    /// Whether the record writes the whole page, so that redo may start from any content.
    #[must_use]
    pub fn overwrites(&self) -> bool {
        matches!(self.op, Op::Format { .. } | Op::Drop | Op::Image { .. })
    }
}

/// What [`redo`] found to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redone {
    /// The page was older than the record: it has the change now.
    Applied,
    /// The page has the change already, by its version.
    Known,
    /// The page is not allocated: it was freed later, and the map knows.
    Freed,
}

/// Recovery of one record of the tree's kinds, at `lsn`: brings the page in and applies the change
/// if the page is older. To be called in LSN order for each page, after the page map was recovered.
/// A record that writes the page whole needs no image that can be read.
///
/// Fails with kind `Damaged` if the record is malformed, does not fit the page, or the page is
/// neither the version that the record was written for nor newer: then a record before it is
/// missing.
pub fn redo(pool: &BufferPool, lsn: Lsn, record: Record<'_>) -> Result<Redone, TreeError> {
    let change = PageChange::decode(record)?;
    let guard = match change.overwrites() {
        true => pool.exclusive_to_overwrite(change.page, lsn),
        false => pool.exclusive(change.page),
    };
    let mut guard = match guard {
        Ok(guard) => guard,
        Err(error) if error.kind == BufferErrorKind::NotAllocated => return Ok(Redone::Freed),
        Err(error) => return Err(error.into()),
    };
    repeat(&mut guard, lsn, &change)
}

/// As [`redo`], for a page that is latched already.
pub fn redo_latched(
    guard: &mut ExclusiveGuard<'_>,
    lsn: Lsn,
    record: Record<'_>,
) -> Result<Redone, TreeError> {
    repeat(guard, lsn, &PageChange::decode(record)?)
}

fn repeat(guard: &mut ExclusiveGuard<'_>, lsn: Lsn, change: &PageChange<'_>) -> Result<Redone, TreeError> {
    assert_eq!(guard.page(), change.page, "a record changes its own page");
    if guard.version() >= lsn {
        return Ok(Redone::Known);
    }
    if !change.overwrites() && guard.version() != change.previous {
        let message = format!(
            "{:?} is at {:?}, but the record at {lsn:?} changes its version {:?}: the log between them is missing",
            change.page,
            guard.version(),
            change.previous
        );
        return Err(TreeError::new(TreeErrorKind::Damaged, message));
    }
    change.rehearse(guard).map_err(|error| TreeError::damaged(change.page, error))?;
    guard.redo(lsn, |bytes| change.apply(bytes).expect("rehearsed"));
    Ok(Redone::Applied)
}

/// Marks a page whose changes could not be redone and are given up: it is no node any more, and a
/// read of it returns an error that says so.
pub fn give_up_page(page: &mut [u8]) -> Changed {
    page.fill(0);
    page[..GIVEN_UP.len()].copy_from_slice(GIVEN_UP);
    Changed::Most
}

/// Whether bytes are a well-formed node: for checks of pages apart from their tree.
pub fn check_page(page: &[u8]) -> Result<(), Malformed> {
    crate::node::validate::validate(page)
}
