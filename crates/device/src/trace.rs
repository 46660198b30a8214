//! Traces of I/O as text: one line an operation.
//!
//! ```text
//! firn-trace 1
//! # anything for people, anywhere
//! START_NS DURATION_NS OP OFFSET BYTES FLAGS
//! ```
//!
//! Numbers are decimal. `START_NS` counts from the beginning of the recording, `DURATION_NS` until
//! the call returned. `OP` is `R` (read), `W` (write), `D` (write, durable when it returned), `S`
//! (sync; offset and bytes are 0), `T` (discard), `Z` (growth by written zeros), `G` (growth
//! without) or `K` (cut); for the last three, offset and bytes are what was added or cut off.
//! `FLAGS` is `-`, or `!` for an operation that failed. Lines are in the order in which operations
//! ended.
//!
//! `docs/lab/tools/nand.md` tells how to record and replay.

use std::fmt;
use std::io::{BufRead, Read};

/// The first line of a trace.
pub const HEADER: &str = "firn-trace 1";

/// Bytes of the longest line that is read.
const LINE_MAX: u64 = 4096;

/// What was asked of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceOp {
    /// A read.
    Read,
    /// A write that a later sync makes durable.
    Write,
    /// A write that was to be durable when it returned.
    DurableWrite,
    /// A sync.
    Sync,
    /// A discard.
    Discard,
    /// A growth whose zeros were written.
    GrowWritten,
    /// A growth that wrote nothing.
    Grow,
    /// A cut.
    Shrink,
}

const LETTERS: [(TraceOp, &str); 8] = [
    (TraceOp::Read, "R"),
    (TraceOp::Write, "W"),
    (TraceOp::DurableWrite, "D"),
    (TraceOp::Sync, "S"),
    (TraceOp::Discard, "T"),
    (TraceOp::GrowWritten, "Z"),
    (TraceOp::Grow, "G"),
    (TraceOp::Shrink, "K"),
];

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// Nanoseconds from the beginning of the recording to the call.
    pub start_ns: u64,
    /// Nanoseconds until it returned; 0 if the recorder does not know.
    pub duration_ns: u64,
    /// What was asked.
    pub op: TraceOp,
    /// Bytes from the device's beginning.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// Whether it failed.
    pub failed: bool,
}

impl TraceEvent {
    /// The first byte behind the range. The readers refuse ranges that have none.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }

    fn parse(line: &str) -> Result<TraceEvent, String> {
        let mut fields = line.split_ascii_whitespace();
        let mut field = |name: &str| fields.next().ok_or_else(|| format!("there is no {name}"));
        let start_ns = number("start", field("start")?)?;
        let duration_ns = number("duration", field("duration")?)?;
        let letter = field("operation")?;
        let op = LETTERS.iter().find(|(_, text)| *text == letter);
        let (op, _) = op.ok_or_else(|| format!("{letter:?} is no operation; these are R W D S T Z G K"))?;
        let offset = number("offset", field("offset")?)?;
        let bytes = number("bytes", field("bytes")?)?;
        let failed = match field("flags")? {
            "-" => false,
            "!" => true,
            other => return Err(format!("{other:?} are no flags; these are - and !")),
        };
        if let Some(more) = fields.next() {
            return Err(format!("{more:?} stands behind the last field"));
        }
        if offset.checked_add(bytes).is_none() {
            return Err(format!("{bytes} bytes at offset {offset} end beyond 2^64"));
        }
        Ok(TraceEvent { start_ns, duration_ns, op: *op, offset, bytes, failed })
    }
}

/// Reads a number of a trace; `name` is for the message.
pub fn number(name: &str, text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{name} is {text:?}; it must be a number from 0 to 2^64 - 1"))
}

impl fmt::Display for TraceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = LETTERS.iter().find(|(op, _)| *op == self.op).map_or("?", |(_, letter)| letter);
        let flags = if self.failed { "!" } else { "-" };
        let TraceEvent { start_ns, duration_ns, offset, bytes, .. } = self;
        write!(f, "{start_ns} {duration_ns} {letter} {offset} {bytes} {flags}")
    }
}

/// Why a trace cannot be read, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceError {
    /// The line, from 1.
    pub line: u64,
    /// A sentence for people.
    pub message: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}
impl std::error::Error for TraceError {}

/// Numbered lines of bounded length.
#[derive(Debug)]
pub struct TraceLines<R> {
    input: R,
    line: u64,
    buf: Vec<u8>,
}

impl<R: BufRead> TraceLines<R> {
    /// Reads `input` from its beginning.
    pub fn new(input: R) -> TraceLines<R> {
        TraceLines { input, line: 0, buf: Vec::new() }
    }
    /// An error in the line read last.
    pub fn error(&self, message: impl Into<String>) -> TraceError {
        TraceError { line: self.line, message: message.into() }
    }
    /// The next line without its end, `None` behind the last.
    pub fn next_line(&mut self) -> Result<Option<&str>, TraceError> {
        self.line += 1;
        self.buf.clear();
        let read = Read::take(&mut self.input, LINE_MAX).read_until(b'\n', &mut self.buf);
        let length = read.map_err(|error| self.error(format!("it cannot be read: {error}")))?;
        if length == 0 {
            return Ok(None);
        }
        if length as u64 == LINE_MAX && self.buf.last() != Some(&b'\n') {
            return Err(self.error(format!("it is longer than {LINE_MAX} bytes: this is no trace")));
        }
        match std::str::from_utf8(&self.buf) {
            Ok(text) => Ok(Some(text.trim_end())),
            Err(_) => Err(TraceError { line: self.line, message: "it is no text in UTF-8".into() }),
        }
    }
}

/// Reads what [`crate::recording::Recording`] wrote. Ends at the first error.
#[derive(Debug)]
pub struct TraceReader<R> {
    lines: TraceLines<R>,
    state: ReaderState,
}

#[derive(Debug, PartialEq, Eq)]
enum ReaderState {
    Header,
    Events,
    Ended,
}

impl<R: BufRead> TraceReader<R> {
    /// Reads `input` from its beginning.
    pub fn new(input: R) -> TraceReader<R> {
        TraceReader { lines: TraceLines::new(input), state: ReaderState::Header }
    }

    fn read(&mut self) -> Result<Option<TraceEvent>, TraceError> {
        loop {
            let first = self.state == ReaderState::Header;
            let Some(line) = self.lines.next_line()? else {
                return if first { Err(self.lines.error("the trace is empty")) } else { Ok(None) };
            };
            if first {
                if line != HEADER {
                    return Err(self.lines.error(format!("a trace begins with a line {HEADER:?}")));
                }
                self.state = ReaderState::Events;
            } else if !(line.is_empty() || line.starts_with('#')) {
                let parsed = TraceEvent::parse(line);
                return parsed.map(Some).map_err(|message| self.lines.error(message));
            }
        }
    }
}

impl<R: BufRead> Iterator for TraceReader<R> {
    type Item = Result<TraceEvent, TraceError>;

    fn next(&mut self) -> Option<Result<TraceEvent, TraceError>> {
        if self.state == ReaderState::Ended {
            return None;
        }
        let read = self.read().transpose();
        if !matches!(read, Some(Ok(_))) {
            self.state = ReaderState::Ended;
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &[u8]) -> Result<Vec<TraceEvent>, TraceError> {
        TraceReader::new(text).collect()
    }

    #[test]
    fn every_operation_is_read_as_it_was_written() {
        let mut text = format!("{HEADER}\n# for people\n\n");
        let events: Vec<TraceEvent> = (0..)
            .zip(LETTERS)
            .map(|(i, (op, _))| TraceEvent {
                start_ns: u64::MAX - i,
                duration_ns: i,
                op,
                offset: u64::MAX - 4096,
                bytes: 4096,
                failed: i % 2 == 1,
            })
            .collect();
        events.iter().for_each(|event| text += &format!("{event}\n"));
        assert_eq!(all(text.as_bytes()), Ok(events));
    }

    #[test]
    fn the_format_is_pinned() {
        let event = TraceEvent {
            start_ns: 17,
            duration_ns: 3,
            op: TraceOp::DurableWrite,
            offset: 8192,
            bytes: 512,
            failed: false,
        };
        assert_eq!(event.to_string(), "17 3 D 8192 512 -");
        assert_eq!(all(b"firn-trace 1\n17 3 D 8192 512 -\r\n"), Ok(vec![event]));
    }

    #[test]
    fn malformed_lines_are_refused_with_their_number() {
        let long = [b'7'; 5000];
        let cases: &[(&[u8], u64, &str)] = &[
            (b"", 1, "empty"),
            (b"0 0 R 0 512 -\n", 1, "begins with"),
            (b"firn-trace 2\n", 1, "begins with"),
            (b"firn-trace 1\n#\n0 0 R 0 512\n", 3, "no flags"),
            (b"firn-trace 1\n0 0 R 0 512 - 9\n", 2, "behind the last"),
            (b"firn-trace 1\n0 0 Q 0 512 -\n", 2, "no operation"),
            (b"firn-trace 1\n0 0 R -1 512 -\n", 2, "offset"),
            (b"firn-trace 1\n0 x R 1 512 -\n", 2, "duration"),
            (b"firn-trace 1\n0 0 R 1 18446744073709551616 -\n", 2, "bytes"),
            (b"firn-trace 1\n0 0 R 18446744073709551615 2 -\n", 2, "beyond 2^64"),
            (b"firn-trace 1\n0 0 R 0 512 ?\n", 2, "flags"),
            (b"firn-trace 1\n\xff\xfe\n", 2, "UTF-8"),
        ];
        for (text, line, part) in cases {
            let error = all(text).expect_err("malformed");
            assert_eq!(error.line, *line, "{error}");
            assert!(error.message.contains(part), "{error}");
        }
        let mut reader = TraceReader::new(&long[..]);
        assert!(
            reader.next().is_some_and(|it| it.is_err()) && reader.next().is_none(),
            "too long, then the end"
        );
    }
}
