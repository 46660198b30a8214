//! Delivering records to recovery.

use crate::error::{LogError, LogErrorKind};
use crate::read::epochs::Span;
use crate::read::merge::Cursor;
use crate::read::scan::LogScan;
use crate::record::{FRAME, Frame, Record};
use firndb_base::Lsn;

/// Streams records with bounded memory: that for reading ahead, and the longest record's body.
pub struct Records<'a> {
    scan: &'a LogScan,
    /// Created at the first call of `next`.
    cursor: Option<Cursor>,
    /// Index of the current span in the scan's list.
    span: usize,
    pos: Lsn,
    body: Vec<u8>,
}

impl<'a> Records<'a> {
    pub(crate) fn new(scan: &'a LogScan, from: Lsn) -> Records<'a> {
        let span = scan.spans().iter().rposition(|s| s.start <= from).unwrap_or(0);
        let pos = from.max(scan.spans()[span].start);
        Records { scan, cursor: None, span, pos, body: Vec::new() }
    }

    /// The next record; `None` at the end. The body is valid until the next call.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<(Lsn, Record<'_>)>, LogError> {
        loop {
            let Some(span) = self.enter_span() else { return Ok(None) };
            let cursor = self.cursor.get_or_insert_with(|| self.scan.cursor(span.epoch, self.pos));
            cursor.seek(span.epoch, self.pos);
            let lsn = self.pos;
            let mut bytes = [0; FRAME];
            let whole = cursor.read(&mut bytes)?;
            let frame = Frame::decode(lsn, bytes).filter(|f| whole && f.end(lsn) <= span.end);
            let Some(frame) = frame else { return Err(gone(lsn)) };
            self.body.resize(frame.body_len, 0);
            if !cursor.read(&mut self.body)? {
                return Err(gone(lsn));
            }
            self.pos = frame.end(lsn);
            if !frame.kind.is_own() {
                return Ok(Some((lsn, Record { kind: frame.kind, body: &self.body })));
            }
        }
    }

    /// The span of the position, which moves over the gap between two epochs; `None` at the end.
    fn enter_span(&mut self) -> Option<Span> {
        loop {
            let span = *self.scan.spans().get(self.span)?;
            if self.pos < span.end {
                return Some(span);
            }
            self.span += 1;
            self.pos = self.pos.max(self.scan.spans().get(self.span)?.start);
        }
    }
}

fn gone(lsn: Lsn) -> LogError {
    LogErrorKind::Damaged.error(format!(
        "the log cannot be read at LSN {lsn}: no record begins there, or it changed since it was scanned"
    ))
}
