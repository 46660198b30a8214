//! A trace of what is asked of a device.
//!
//! Lock order: the one lock protects the trace being written and is a leaf; it is not held while
//! the device works.

use crate::device::{Device, DeviceInfo, Durability, Fill, Io, IoOp};
use crate::error::{DeviceError, DeviceErrorKind};
use crate::trace::{HEADER, TraceEvent, TraceOp};
use firndb_base::clock::Moment;
use firndb_base::sync::{Arc, Mutex};
use std::fmt;
use std::io::{self, BufWriter, Write};

/// Passes everything on to another device and writes a line about it (see [`crate::trace`]).
///
/// If a line cannot be written, the device continues and the trace ends there;
/// [`Recording::finish`] reports it.
pub struct Recording {
    inner: Arc<dyn Device>,
    began: Moment,
    out: Mutex<Out>,
}

struct Out {
    writer: BufWriter<Box<dyn Write + Send>>,
    events: u64,
    failed: Option<String>,
}

impl Recording {
    /// Writes the trace of `inner` to `out`; times count from `began`, so that the traces of
    /// several devices can have one beginning.
    pub fn new(inner: Arc<dyn Device>, out: Box<dyn Write + Send>, began: Moment) -> io::Result<Recording> {
        let mut writer = BufWriter::with_capacity(64 << 10, out);
        let DeviceInfo { name, logical_block, .. } = inner.info();
        // A path may hold anything but a comment is one line.
        let name: String = name.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        writeln!(writer, "{HEADER}\n# {name}\n# {} bytes in blocks of {logical_block}", inner.len())?;
        let out = Mutex::new(Out { writer, events: 0, failed: None });
        Ok(Recording { inner, began, out })
    }

    /// Writes out what is buffered; returns how many operations the trace holds.
    pub fn finish(&self) -> Result<u64, DeviceError> {
        let mut out = self.out.lock();
        let flushed = out.writer.flush();
        match (out.failed.take(), flushed) {
            (None, Ok(())) => Ok(out.events),
            (Some(message), _) => Err(self.broken(&message)),
            (None, Err(error)) => Err(self.broken(&error.to_string())),
        }
    }

    fn broken(&self, cause: &str) -> DeviceError {
        let message = format!("{}: the trace of it is not whole: {cause}", self.info().name);
        DeviceError::new(DeviceErrorKind::Failed, message)
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn note(&self, op: TraceOp, (offset, bytes): (u64, u64), start_ns: u64, failed: bool) {
        let duration_ns = self.now_ns().saturating_sub(start_ns);
        let mut out = self.out.lock();
        if out.failed.is_some() {
            return;
        }
        let event = TraceEvent { start_ns, duration_ns, op, offset, bytes, failed };
        match writeln!(out.writer, "{event}") {
            Ok(()) => out.events += 1,
            Err(error) => out.failed = Some(error.to_string()),
        }
    }

    fn noted(
        &self,
        op: TraceOp,
        (offset, bytes): (u64, u64),
        act: impl FnOnce() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let start_ns = self.now_ns();
        let outcome = act();
        self.note(op, (offset, bytes), start_ns, outcome.is_err());
        outcome
    }
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording").field("inner", &self.inner).finish_non_exhaustive()
    }
}

fn write_op(durability: Durability) -> TraceOp {
    match durability {
        Durability::Later => TraceOp::Write,
        Durability::Durable => TraceOp::DurableWrite,
    }
}

impl Device for Recording {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.noted(TraceOp::Read, (offset, buf.len() as u64), || self.inner.read(offset, buf))
    }

    fn write(&self, offset: u64, data: &[u8], durability: Durability) -> Result<(), DeviceError> {
        let range = (offset, data.len() as u64);
        self.noted(write_op(durability), range, || self.inner.write(offset, data, durability))
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.noted(TraceOp::Sync, (0, 0), || self.inner.sync())
    }

    fn submit(&self, batch: &mut [Io<'_>]) {
        let start_ns = self.now_ns();
        self.inner.submit(batch);
        for io in &*batch {
            let (op, bytes) = match &io.op {
                IoOp::Read(buf) => (TraceOp::Read, buf.len()),
                IoOp::Write(data, durability) => (write_op(*durability), data.len()),
            };
            self.note(op, (io.offset, bytes as u64), start_ns, io.outcome.is_err());
        }
    }

    fn grow(&self, len: u64, fill: Fill) -> Result<(), DeviceError> {
        let (op, before) = match fill {
            Fill::Written => (TraceOp::GrowWritten, self.inner.len()),
            Fill::Reserved | Fill::Sparse => (TraceOp::Grow, self.inner.len()),
        };
        self.noted(op, (before, len.saturating_sub(before)), || self.inner.grow(len, fill))
    }

    fn shrink(&self, len: u64) -> Result<(), DeviceError> {
        let cut = self.inner.len().saturating_sub(len);
        self.noted(TraceOp::Shrink, (len, cut), || self.inner.shrink(len))
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.noted(TraceOp::Discard, (offset, len), || self.inner.discard(offset, len))
    }
}
