//! Reads of pages that complete one by one.
//!
//! A thread begins reads ([`PageTier::begin_reads`](crate::PageTier::begin_reads)) and takes pages
//! as they come ([`PageTier::next_reads`](crate::PageTier::next_reads)), while it begins others. So
//! a slow read, an error or a damaged image concerns its own page, and the device need not wait for
//! the slowest page of a batch.
//!
//! Invariants: a page that was begun comes once, under its tag; the pages under way have at most
//! [`BYTES_MAX`] bytes together, or are one; a caller clears what has come before it asks for more.

use crate::error::TierError;
use crate::page_tier::{Found, PageRead};
use firndb_base::PageId;
use firndb_device::AlignedBuf;
use std::any::Any;
use std::collections::BTreeMap;

/// Most bytes of the pages that one thread has under way.
const BYTES_MAX: usize = 1 << 20;
/// Most pages: what a file has in flight for one thread.
const PAGES_MAX: usize = 64;
/// Most bytes kept for reuse.
const KEPT_BYTES_MAX: usize = 2 * BYTES_MAX;

/// Reads of pages that one thread has under way.
#[derive(Default)]
pub struct PageReads {
    came: Vec<Came>,
    /// What these lie in.
    held: Vec<AlignedBuf>,
    pub(crate) bufs: Bufs,
    /// Pages begun and not come yet.
    under_way: usize,
    /// What the lowest tier keeps of them, of a type of its own.
    pub(crate) below: Option<Box<dyn Any + Send>>,
}

/// A page that has come.
struct Came {
    tag: usize,
    page: PageId,
    outcome: Result<Found, TierError>,
    /// Its buffer, and the first byte there.
    at: (usize, usize),
}

/// A page that has come, for its reader.
#[derive(Debug)]
pub struct PageCame<'a> {
    /// By which the reader knows it.
    pub tag: usize,
    /// The page.
    pub page: PageId,
    /// What was found, or why it could not be read.
    pub outcome: &'a Result<Found, TierError>,
    /// Its image, if the outcome is one. May be longer than a page.
    pub bytes: &'a [u8],
}

impl PageReads {
    /// Pages of which reads may be begun now.
    #[must_use]
    pub fn space(&self, page_size: usize) -> usize {
        (BYTES_MAX / page_size).clamp(1, PAGES_MAX).saturating_sub(self.under_way + self.came.len())
    }

    /// Pages begun that have not come yet.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// The pages that have come.
    pub fn came(&self) -> impl Iterator<Item = PageCame<'_>> {
        self.came.iter().map(|came| {
            let (buf, from) = came.at;
            PageCame {
                tag: came.tag,
                page: came.page,
                outcome: &came.outcome,
                bytes: &self.held[buf][from..],
            }
        })
    }

    /// Forgets the pages that have come.
    pub fn clear(&mut self) {
        self.came.clear();
        self.held.drain(..).for_each(|buf| self.bufs.keep(buf));
    }

    pub(crate) fn has_come(&self) -> bool {
        !self.came.is_empty()
    }

    /// Notes that these pages are under way.
    pub(crate) fn begin(&mut self, pages: usize, page_size: usize) {
        assert!(pages <= self.space(page_size), "{pages} pages more than may be under way");
        self.under_way += pages;
    }

    /// Pages lie in this buffer; returns its number.
    pub(crate) fn hold(&mut self, buf: AlignedBuf) -> usize {
        self.held.push(buf);
        self.held.len() - 1
    }

    /// A page that was under way has come.
    pub(crate) fn arrive(
        &mut self,
        (tag, page): (usize, PageId),
        outcome: Result<Found, TierError>,
        at: (usize, usize),
    ) {
        self.under_way = self.under_way.checked_sub(1).expect("a page comes once");
        self.came.push(Came { tag, page, outcome, at });
    }

    /// Has pages that are under way come now, by one batch.
    pub(crate) fn read_now(
        &mut self,
        page_size: usize,
        pages: &[(usize, PageId)],
        read: impl FnOnce(&mut [PageRead<'_>]),
    ) {
        let mut bufs: Vec<AlignedBuf> = pages.iter().map(|_| self.bufs.take(page_size)).collect();
        let each = pages.iter().zip(&mut bufs).map(|((_, page), buf)| {
            let buf = &mut buf[..page_size];
            PageRead { page: *page, buf, outcome: Err(TierError::unset()) }
        });
        let mut reads: Vec<PageRead<'_>> = each.collect();
        read(&mut reads);
        let outcomes: Vec<_> = reads.into_iter().map(|read| read.outcome).collect();
        for ((page, outcome), buf) in pages.iter().zip(outcomes).zip(bufs) {
            let buf = self.hold(buf);
            self.arrive(*page, outcome, (buf, 0));
        }
    }
}

/// Buffers to be used again, by their size.
#[derive(Default)]
pub(crate) struct Bufs {
    idle: BTreeMap<usize, Vec<AlignedBuf>>,
    bytes: usize,
}

impl Bufs {
    /// One of at least `len` bytes.
    pub(crate) fn take(&mut self, len: usize) -> AlignedBuf {
        let size = len.next_power_of_two();
        match self.idle.get_mut(&size).and_then(Vec::pop) {
            Some(buf) => {
                self.bytes -= size;
                buf
            }
            None => AlignedBuf::zeroed(size),
        }
    }

    pub(crate) fn keep(&mut self, buf: AlignedBuf) {
        let size = buf.len();
        if self.bytes + size <= KEPT_BYTES_MAX {
            self.bytes += size;
            self.idle.entry(size).or_default().push(buf);
        }
        assert!(self.bytes <= KEPT_BYTES_MAX, "{} bytes are kept", self.bytes);
    }
}
