//! Following the log as it becomes durable: the source of an archive or a backup.
//!
//! The bytes come from the log buffer, which keeps them until newer log overwrites them, or from
//! the log's devices if the reader is further behind. The owner of a tail prevents truncation past
//! [`LogTail::needed`].

use crate::archive::format::{EpochMark, Piece};
use crate::error::{LogError, LogErrorKind};
use crate::ids::LogIdentity;
use crate::log::Log;
use crate::read::merge::Cursor;
use crate::read::read_log::ReadLog;
use crate::read::scan::LogScan;
use crate::record::{FRAME, Frame};
use firndb_base::Lsn;
use firndb_base::sync::Arc;

/// Bytes copied from the log buffer under one hold of its lock.
const COPY_BYTES: usize = 16 << 10;

/// Follows the log from an LSN on, as its devices have it, or as it is appended
/// ([`LogTail::next_appended`]).
pub struct LogTail {
    log: Arc<Log>,
    identity: LogIdentity,
    pos: Lsn,
    framing: Framing,
    /// Log before the current epoch that recovery has read.
    read: ReadLog,
    /// Set while reading from the devices.
    scan: Option<ScannedBytes>,
}

/// The position of record boundaries in the bytes that have passed: a scan of the devices can only
/// begin at one.
#[derive(Debug)]
struct Framing {
    /// LSN of the last record that began at or before the position.
    record: Lsn,
    /// The part of its framing that has passed.
    frame: Vec<u8>,
    /// LSN of the next record, once its predecessor's framing is complete, and whether it belongs
    /// to the same group.
    next: Option<(Lsn, bool)>,
    /// End of the last group that has passed; [`Lsn::ZERO`] if none has ended.
    boundary: Lsn,
}

impl Framing {
    fn at(record: Lsn) -> Framing {
        Framing { record, frame: Vec::with_capacity(FRAME), next: None, boundary: Lsn::ZERO }
    }

    /// Records that `bytes` have passed, which begin at `lsn`.
    fn pass(&mut self, mut lsn: Lsn, mut bytes: &[u8]) -> Result<(), LogError> {
        loop {
            if let Some((next, more)) = self.next {
                let count = (next.since(lsn) as usize).min(bytes.len());
                (lsn, bytes) = (lsn.advance(count as u64), &bytes[count..]);
                if lsn < next {
                    return Ok(());
                }
                let boundary = if more { self.boundary } else { next };
                *self = Framing { boundary, ..Framing::at(next) };
            }
            let count = (FRAME - self.frame.len()).min(bytes.len());
            self.frame.extend_from_slice(&bytes[..count]);
            (lsn, bytes) = (lsn.advance(count as u64), &bytes[count..]);
            let Ok(frame) = self.frame[..].try_into() else { return Ok(()) };
            let Some(frame) = Frame::decode(self.record, frame) else {
                return Err(LogErrorKind::Damaged
                    .error(format!("the log is damaged at LSN {}: no record begins there", self.record)));
            };
            self.next = Some((frame.end(self.record), frame.more));
        }
    }
}

impl LogTail {
    /// Follows `log` from `from` on: a record's LSN, or where an epoch ended, not truncated yet.
    /// `identity` is the log's identity at some time since it was opened.
    #[must_use]
    pub fn new(log: Arc<Log>, identity: LogIdentity, from: Lsn) -> LogTail {
        LogTail { log, identity, pos: from, framing: Framing::at(from), read: ReadLog::default(), scan: None }
    }

    /// Takes the log that `read` holds from there, and nothing of it from the devices.
    #[must_use]
    pub fn with_read(mut self, read: ReadLog) -> LogTail {
        self.read = read;
        self
    }

    /// The log must be kept from this LSN on.
    #[must_use]
    pub fn needed(&self) -> Lsn {
        self.framing.record
    }

    /// LSN of the next byte.
    #[must_use]
    pub fn pos(&self) -> Lsn {
        self.pos
    }

    /// Bytes of log on the devices not delivered yet, including bytes between two epochs that are
    /// no log.
    #[must_use]
    pub fn behind(&self) -> u64 {
        self.log.on_devices().0.saturating_sub(self.pos.0)
    }

    /// End of the last group delivered whole; [`Lsn::ZERO`] if there was none yet.
    #[must_use]
    pub fn boundary(&self) -> Lsn {
        self.framing.boundary
    }

    /// Continues at `lsn`, a group's first byte, and skips everything before it.
    pub fn skip_to(&mut self, lsn: Lsn) {
        assert!(lsn >= self.pos, "a tail goes forward");
        (self.pos, self.framing, self.scan) = (lsn, Framing::at(lsn), None);
    }

    /// Moves the next piece of the log that the devices have into `out`: at most `max` bytes, up to
    /// `until`. Returns `None` if there is none now. A piece begins where the piece before ended,
    /// or where an epoch began.
    pub fn next(&mut self, max: usize, until: Lsn, out: &mut Vec<u8>) -> Result<Option<Piece>, LogError> {
        let until = until.min(self.log.on_devices());
        self.next_piece(max, until, out)
    }

    /// As [`LogTail::next`], but for all log appended, whether or not it is durable.
    pub fn next_appended(
        &mut self,
        max: usize,
        until: Lsn,
        out: &mut Vec<u8>,
    ) -> Result<Option<Piece>, LogError> {
        let until = until.min(self.log.end());
        self.next_piece(max, until, out)
    }

    fn next_piece(&mut self, max: usize, until: Lsn, out: &mut Vec<u8>) -> Result<Option<Piece>, LogError> {
        let Some((mark, first)) = self.read(max, until, out)? else { return Ok(None) };
        if first > self.framing.record && first == mark.start {
            self.framing = Framing::at(first);
        }
        self.framing.pass(first, out)?;
        self.pos = first.advance(out.len() as u64);
        Ok(Some(Piece { mark, first, resume: self.framing.record }))
    }

    fn read(
        &mut self,
        max: usize,
        until: Lsn,
        out: &mut Vec<u8>,
    ) -> Result<Option<(EpochMark, Lsn)>, LogError> {
        out.clear();
        let current = self.log.epoch_mark();
        if let Some(piece) = self.read.copy(self.pos, max, until, out) {
            return Ok(Some(piece));
        }
        let mut fresh = false;
        loop {
            if let Some(scan) = &mut self.scan {
                let ScannedBytes { scan, bytes } = scan;
                if let Some(piece) = bytes.next(scan, max, until, out)? {
                    return Ok(Some(piece));
                }
                self.pos = self.pos.max(bytes.pos);
                self.scan = None;
            }
            if self.pos >= current.previous_end && self.pos < current.start {
                // Bytes between the epochs are no log.
                self.pos = current.start;
            }
            if self.pos >= until {
                return Ok(None);
            }
            let first = self.pos;
            if first >= current.start && self.copy(max, until, out) {
                return Ok(Some((current, first)));
            }
            let on_devices = self.log.on_devices();
            if first >= on_devices {
                // Devices are writing it, and the buffer does not hold it any more: it will be
                // readable from the devices.
                return Ok(None);
            }
            if std::mem::replace(&mut fresh, true) {
                return Err(LogErrorKind::Damaged.error(format!(
                    "the log from LSN {first} on was written to its devices and cannot be found there"
                )));
            }
            self.scan = Some(ScannedBytes::new(self, on_devices)?);
        }
    }

    /// Copies from the log buffer. Returns false if the buffer does not hold the byte at the
    /// position any more.
    fn copy(&self, max: usize, until: Lsn, out: &mut Vec<u8>) -> bool {
        let len = (until.since(self.pos) as usize).min(max);
        while out.len() < len {
            let at = out.len();
            out.resize((at + COPY_BYTES).min(len), 0);
            if !self.log.copy(self.pos.advance(at as u64), &mut out[at..]) {
                out.truncate(at);
                break;
            }
        }
        !out.is_empty()
    }
}

impl std::fmt::Debug for LogTail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogTail").field("pos", &self.pos).finish_non_exhaustive()
    }
}

/// The stream's bytes as stored on the log's devices, for one that follows the log.
struct ScannedBytes {
    scan: LogScan,
    bytes: SpanBytes,
}

impl ScannedBytes {
    fn new(tail: &LogTail, until: Lsn) -> Result<ScannedBytes, LogError> {
        // The log's devices may have changed since `identity` was recorded.
        let (members, devices) = tail.log.members().into_iter().unzip();
        let identity = LogIdentity { members, ..tail.identity.clone() };
        let scan = LogScan::up_to(devices, identity, tail.needed(), until, &mut |_, _| {})?;
        let bytes = SpanBytes::of(&scan, tail.pos);
        Ok(ScannedBytes { scan, bytes })
    }
}

/// A position in the stream's bytes that a scan has found.
pub(crate) struct SpanBytes {
    cursor: Option<Cursor>,
    span: usize,
    pos: Lsn,
}

impl SpanBytes {
    pub fn of(scan: &LogScan, pos: Lsn) -> SpanBytes {
        let span = scan.spans().iter().rposition(|span| span.start <= pos).unwrap_or(0);
        SpanBytes { cursor: None, span, pos }
    }

    /// Moves the next piece into `out`: at most `max` bytes, up to `until`.
    pub fn next(
        &mut self,
        scan: &LogScan,
        max: usize,
        until: Lsn,
        out: &mut Vec<u8>,
    ) -> Result<Option<(EpochMark, Lsn)>, LogError> {
        loop {
            let Some(&span) = scan.spans().get(self.span) else { return Ok(None) };
            if self.pos >= span.end {
                self.span += 1;
                if let Some(next) = scan.spans().get(self.span) {
                    self.pos = next.start;
                }
                continue;
            }
            let end = span.end.min(until);
            if self.pos >= end {
                return Ok(None);
            }
            let (first, len) = (self.pos, (end.since(self.pos) as usize).min(max));
            let cursor = self.cursor.get_or_insert_with(|| scan.cursor(span.epoch, first));
            cursor.seek(span.epoch, first);
            out.resize(len, 0);
            if !cursor.read(out)? {
                return Err(LogErrorKind::Damaged
                    .error(format!("the log changed between LSN {first} and {end} while it was read")));
            }
            self.pos = first.advance(len as u64);
            return Ok(Some((self.mark(scan), first)));
        }
    }

    /// The mark of the current span.
    fn mark(&self, scan: &LogScan) -> EpochMark {
        let span = scan.spans()[self.span];
        let start = scan.epoch_start(span.epoch);
        let previous_end = if span.start == start { span.previous_end } else { start };
        EpochMark { epoch: scan.epoch(span.epoch), start, previous_end }
    }
}
