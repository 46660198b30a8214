//! The records of an archived stream, whole groups only.

use crate::archive::stream::{ArchiveLog, Next};
use crate::error::{LogError, LogErrorKind};
use crate::record::{FRAME, Frame, Record};
use firndb_base::Lsn;
use std::collections::VecDeque;

/// Bytes already read that the buffer may hold before it drops them.
const KEPT_MAX: usize = 1 << 20;

/// Streams records from an archive. Memory: the longest group, and a chunk.
pub struct ArchiveRecords {
    log: ArchiveLog,
    until: Lsn,
    /// Bytes of stream from `start` on.
    buf: Vec<u8>,
    start: Lsn,
    /// End of the last whole group read.
    end: Lsn,
    /// Records of that group not delivered yet.
    group: VecDeque<(Lsn, Frame)>,
    time_us: u64,
    stop: Option<Next>,
}

impl ArchiveRecords {
    /// The groups of `log`, which stands at a group's first byte, that end at or before `until`.
    #[must_use]
    pub fn new(log: ArchiveLog, until: Lsn) -> ArchiveRecords {
        let start = log.pos();
        ArchiveRecords {
            log,
            until,
            buf: Vec::new(),
            start,
            end: start,
            group: VecDeque::new(),
            time_us: 0,
            stop: None,
        }
    }

    /// The next record, without the log's own; `None` at the end. The body is valid until the next
    /// call.
    ///
    /// Errors: `Damaged` if the framing is broken; `Failed`.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<(Lsn, Record<'_>)>, LogError> {
        loop {
            let Some((lsn, frame)) = self.group.pop_front() else {
                if self.load_group()? {
                    continue;
                }
                return Ok(None);
            };
            if !frame.kind.is_own() {
                let at = lsn.since(self.start) as usize + FRAME;
                let body = &self.buf[at..at + frame.body_len];
                return Ok(Some((lsn, Record { kind: frame.kind, body })));
            }
        }
    }

    /// End of the last whole group read.
    #[must_use]
    pub fn end(&self) -> Lsn {
        self.end
    }

    /// When the last piece read was archived: microseconds since 1970, 0 before the first.
    #[must_use]
    pub fn time_us(&self) -> u64 {
        self.time_us
    }

    /// Where the archive continues behind missing log, if that is why [`ArchiveRecords::next`]
    /// returned `None`.
    #[must_use]
    pub fn gap(&self) -> Option<Lsn> {
        match self.stop {
            Some(Next::Gap(lsn)) => Some(lsn),
            _ => None,
        }
    }

    /// Whether [`ArchiveRecords::next`] returned `None` because the archive ends: no log follows.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.stop == Some(Next::End)
    }

    /// Reads the next whole group. Returns false if there is none up to `until`.
    fn load_group(&mut self) -> Result<bool, LogError> {
        assert!(self.group.is_empty());
        if self.end >= self.until {
            return Ok(false);
        }
        self.drop_read_bytes();
        let mut pos = self.end;
        let mut group = VecDeque::new();
        loop {
            if !self.read_up_to(Lsn(pos.0 + FRAME as u64))? {
                return Ok(false);
            }
            if self.start > pos {
                // A new epoch: the log before it ended where this group began.
                group.clear();
                (pos, self.end) = (self.start, self.start);
            }
            let at = pos.since(self.start) as usize;
            let bytes = self.buf[at..at + FRAME].try_into().expect("six bytes");
            let Some(frame) = Frame::decode(pos, bytes) else {
                return Err(LogErrorKind::Damaged
                    .error(format!("the archive is damaged at LSN {pos}: no record begins there")));
            };
            let end = frame.end(pos);
            if end > self.until || !self.read_up_to(end)? {
                return Ok(false);
            }
            if self.start > pos {
                continue;
            }
            group.push_back((pos, frame));
            pos = end;
            if !frame.more {
                (self.end, self.group) = (pos, group);
                return Ok(true);
            }
        }
    }

    /// Drops bytes already read, once there are enough of them.
    fn drop_read_bytes(&mut self) {
        let read = self.end.since(self.start) as usize;
        if read > KEPT_MAX {
            self.buf.drain(..read.min(self.buf.len()));
            self.start = self.end;
        }
    }

    /// Reads until all log before `to` is in the buffer. Returns false if the archive ends before.
    /// Where a new epoch begins, `start` is its first LSN afterwards, and its first record's
    /// framing is in the buffer.
    fn read_up_to(&mut self, to: Lsn) -> Result<bool, LogError> {
        while Lsn(self.start.0 + self.buf.len() as u64) < to {
            let next = match self.stop {
                Some(stop) => stop,
                None => self.log.next_piece()?,
            };
            let Next::Piece { first, time_us, mark } = next else {
                self.stop = Some(next);
                return Ok(false);
            };
            self.time_us = self.time_us.max(time_us);
            let held = Lsn(self.start.0 + self.buf.len() as u64);
            if first != held {
                // The group in question is incomplete: the epoch ended before it, as the next one
                // states.
                if mark.previous_end != self.end {
                    return Err(LogErrorKind::Damaged.error(format!(
                        "the archive is damaged: an epoch that ended at LSN {} is archived up to LSN {held}",
                        mark.previous_end
                    )));
                }
                self.buf.clear();
                self.start = first;
                self.buf.extend_from_slice(self.log.bytes());
                // The first record begins where the epoch does.
                self.end = first;
                return Ok(self.buf.len() >= FRAME || self.read_up_to(Lsn(first.0 + FRAME as u64))?);
            }
            self.buf.extend_from_slice(self.log.bytes());
        }
        Ok(true)
    }
}

impl std::fmt::Debug for ArchiveRecords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArchiveRecords")
            .field("log", &self.log)
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}
