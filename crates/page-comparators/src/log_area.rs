//! The space of naive logs and of ICL: pages of logs, written one behind the other until none is
//! free; then all logs are merged into their pages and the space begins again (the paper's section
//! 2.3 and figure 4).

use crate::medium::{Content, Medium, region};
use std::collections::BTreeSet;

/// One page of logs for this number of pages of the database: not printed in the paper. The limit
/// of Firn's delta pages.
pub const LOG_SHARE: u64 = 8;
/// Of a link in the mapping table: the page's number and that of its log.
pub(crate) const LINK_BYTES: u64 = 8;

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct LogArea {
    pages: u64,
    used: u64,
    /// Bytes left on the page that is being filled, and what of it is not written yet.
    left: u64,
    pending: Vec<u64>,
}

impl LogArea {
    pub fn new(pages: u64) -> LogArea {
        LogArea { pages: pages.max(1), used: 0, left: 0, pending: Vec::new() }
    }

    /// Puts a log of this length onto the page that is being filled, or onto a new one; returns the
    /// page's number, or `None` if there is no new one.
    pub fn put(&mut self, bytes: u64, page_size: u64) -> Option<u64> {
        assert!(bytes <= page_size, "a log of {bytes} bytes");
        if self.left < bytes {
            if self.used == self.pages {
                return None;
            }
            self.pending.push(self.used);
            (self.used, self.left) = (self.used + 1, page_size);
        }
        self.left -= bytes;
        Some(self.used - 1)
    }

    /// Writes the pages filled since the last call. The last one is not filled further.
    pub fn write(&mut self, medium: &mut Medium<'_>) {
        medium.write_runs(Content::Delta, region::LOGS, self.pending.drain(..));
        self.left = 0;
    }

    /// Brings all logs into their pages and begins again: reads those of `log_pages` that are on
    /// the device, and each of `pages`, and writes these in place. Pages of logs that were not
    /// written need not be.
    pub fn merge_all(&mut self, log_pages: BTreeSet<u64>, pages: BTreeSet<u64>, medium: &mut Medium<'_>) {
        let written = self.used - self.pending.len() as u64;
        for &log_page in log_pages.range(..written) {
            medium.read_page(Content::Delta, region::LOGS, log_page);
        }
        for &page in &pages {
            medium.read_page(Content::Image, region::IMAGES, page);
            medium.merged();
        }
        medium.write_runs(Content::Image, region::IMAGES, pages);
        *self = LogArea::new(self.pages);
    }
}
