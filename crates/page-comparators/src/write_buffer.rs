//! The write buffer of the paper (its WOB), which naive logs and ICL share: logs of what changed,
//! one for each time a page was given down.

use crate::changed::bytes_of;
use crate::medium::{Content, Medium, region};
use firndb_tier::Changes;
use std::collections::BTreeMap;

/// Of a log: page, length, number of ranges.
const LOG_HEADER: u64 = 16;
/// Of a range: offset and length.
const RANGE_HEADER: u64 = 4;

/// Bytes of a log with these changes.
pub(crate) fn log_bytes(changes: Changes, page_size: u64) -> u64 {
    LOG_HEADER + RANGE_HEADER * changes.runs().count() as u64 + bytes_of(changes, page_size)
}

/// See the head of the file.
#[derive(Debug, Default)]
pub(crate) struct WriteBuffer {
    budget: u64,
    bytes: u64,
    logs: BTreeMap<u64, Logs>,
    came: u64,
}

/// The logs of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Logs {
    /// When the first of them came in.
    first: u64,
    /// Of all of them.
    pub bytes: u64,
}

/// What became of a page that was given down.
pub(crate) enum Given {
    /// More than half of it would be its log: it was written whole, in place.
    Whole,
    /// Its log waits in the buffer, which is full.
    Full,
    Waits,
}

impl WriteBuffer {
    pub fn new(budget: u64) -> WriteBuffer {
        WriteBuffer { budget, ..WriteBuffer::default() }
    }

    /// Takes the log of a page, or writes the page whole. Without `changes` all of it is changed.
    pub fn give(
        &mut self,
        page: u64,
        changes: Option<Changes>,
        page_size: u64,
        medium: &mut Medium<'_>,
    ) -> Given {
        let bytes = changes.map_or(u64::MAX, |changes| log_bytes(changes, page_size));
        if bytes > page_size / 2 {
            medium.write_runs(Content::Image, region::IMAGES, [page]);
            self.remove(page);
            return Given::Whole;
        }
        self.add(page, bytes);
        if self.bytes >= self.budget { Given::Full } else { Given::Waits }
    }

    fn add(&mut self, page: u64, bytes: u64) {
        self.came += 1;
        let logs = self.logs.entry(page).or_insert(Logs { first: self.came, bytes: 0 });
        logs.bytes += bytes;
        self.bytes += bytes;
    }

    pub fn remove(&mut self, page: u64) {
        if let Some(logs) = self.logs.remove(&page) {
            self.bytes -= logs.bytes;
        }
    }

    /// All logs, the page first whose first log came first. The buffer is empty then.
    pub fn take_all(&mut self) -> Vec<(u64, Logs)> {
        self.bytes = 0;
        let mut all: Vec<(u64, Logs)> = std::mem::take(&mut self.logs).into_iter().collect();
        all.sort_unstable_by_key(|(_, logs)| logs.first);
        all
    }
}
