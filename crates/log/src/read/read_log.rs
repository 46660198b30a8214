//! Log that recovery has read, kept for one that follows the log from before the current epoch: the
//! buffer never held it, and devices that take commits would be read for it.

use crate::archive::format::EpochMark;
use crate::error::LogError;
use crate::read::follow::SpanBytes;
use crate::read::scan::LogScan;
use firndb_base::Lsn;
use std::collections::VecDeque;

/// Bytes of the stream before the current epoch, in DRAM. Empty by default.
#[derive(Default)]
pub struct ReadLog {
    /// Ascending; of one epoch each, with its first LSN. Dropped once it was followed past.
    parts: VecDeque<(EpochMark, Lsn, Vec<u8>)>,
}

/// Bytes of one part at most, so that memory is released while the log is followed.
const PART_BYTES: usize = 1 << 20;

impl LogScan {
    /// Reads the log from `from`, where a record begins or an epoch ended, to the end that the scan
    /// has found. `None` if that is more than `most` bytes, or if the scan began later.
    pub fn read_log(&self, from: Lsn, most: usize) -> Result<Option<ReadLog>, LogError> {
        if from < self.spans()[0].start || self.end().since(from.min(self.end())) > most as u64 {
            return Ok(None);
        }
        let (mut read, mut bytes) = (ReadLog::default(), SpanBytes::of(self, from));
        let mut part = Vec::new();
        while let Some((mark, first)) = bytes.next(self, PART_BYTES, Lsn::MAX, &mut part)? {
            read.parts.push_back((mark, first, std::mem::take(&mut part)));
        }
        Ok(Some(read))
    }
}

impl ReadLog {
    /// Copies what follows `pos` into `out`: at most `max` bytes, up to `until`. `None` if nothing
    /// is left.
    pub(crate) fn copy(
        &mut self,
        pos: Lsn,
        max: usize,
        until: Lsn,
        out: &mut Vec<u8>,
    ) -> Option<(EpochMark, Lsn)> {
        while self.parts.front().is_some_and(|(_, first, part)| first.advance(part.len() as u64) <= pos) {
            self.parts.pop_front();
        }
        let (mark, begin, part) = self.parts.front()?;
        let first = pos.max(*begin);
        let skipped = first.since(*begin) as usize;
        let count = (part.len() - skipped).min(max).min(until.since(first.min(until)) as usize);
        if count == 0 {
            return None;
        }
        out.extend_from_slice(&part[skipped..skipped + count]);
        Some((*mark, first))
    }
}

impl std::fmt::Debug for ReadLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadLog").field("parts", &self.parts.len()).finish()
    }
}
