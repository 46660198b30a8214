//! The space of naive logs and of ICL: pages of logs, written one behind the other until none is
//! free; then all logs are merged into their pages and the space begins again (the paper's section
//! 2.3 and figure 4).

use crate::medium::{Content, Medium, region};

/// Pages of logs for each page of the database, as one part of so many: not printed in the paper.
/// The limit of Firn's delta pages.
pub const LOG_SHARE: u64 = 8;

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

    /// Whether the page is on the device.
    pub fn is_written(&self, log_page: u64) -> bool {
        log_page < self.used - self.pending.len() as u64
    }

    /// Begins again. Pages that were not written need not be.
    pub fn reset(&mut self) {
        *self = LogArea::new(self.pages);
    }
}
