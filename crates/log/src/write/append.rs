//! Appending: records are copied into the log buffer under one short lock. No I/O, unless the
//! buffer is full: then the appending thread waits for a request or writes one.

use crate::error::{LogError, LogErrorKind};
use crate::log::Log;
use crate::options::{Appended, LogClass};
use crate::record::Record;
use crate::write::front::Refused;
use crate::write::in_flight::waiter::Depth;
use crate::write::pipeline::Pipeline;
use firndb_base::Lsn;
use firndb_base::sync::atomic::Ordering;
use firndb_base::sync::before_device;

impl Log {
    /// Appends a single record. Does no I/O unless the log buffer is full; then the calling thread
    /// waits for a request or writes one.
    pub fn append(&self, class: LogClass, record: Record<'_>) -> Result<Appended, LogError> {
        self.append_group(class, &[record])
    }

    /// Appends records that recovery delivers together or not at all. The i-th record's LSN is
    /// `first + sum of Log::framed_len(body) of those before it`. Fails with kind `Full` if the
    /// class has no space until the log is truncated, with `BadArgument` if the group is longer
    /// than [`Log::group_max`] or empty.
    pub fn append_group(&self, class: LogClass, records: &[Record<'_>]) -> Result<Appended, LogError> {
        self.pipeline.append(Some(class), records)
    }

    /// As [`Log::append`], for callers that hold a latch or lock over which no device may be waited
    /// for. While the log buffer is full, nothing is appended and the error's kind is `BufferFull`.
    /// The caller releases its latches, calls [`Log::wait_for_buffer`] and tries again.
    pub fn try_append(&self, class: LogClass, record: Record<'_>) -> Result<Appended, LogError> {
        self.try_append_group(class, &[record])
    }

    /// As [`Log::append_group`], but like [`Log::try_append`] never waits for the log buffer.
    pub fn try_append_group(&self, class: LogClass, records: &[Record<'_>]) -> Result<Appended, LogError> {
        self.pipeline.append_now(Some(class), records).map_err(|refused| match refused {
            Refused::Error(error) => error,
            Refused::Buffer(_) => buffer_full(),
        })
    }

    /// Blocks until the log buffer has had space for a group of `bytes` of stream, or for some of
    /// it. Other threads may have taken that space by the time of the next attempt; the caller then
    /// waits again.
    pub fn wait_for_buffer(&self, bytes: u64) -> Result<(), LogError> {
        before_device();
        let until = {
            let front = self.pipeline.front.lock();
            front.buffer_needs(front.end().advance(bytes))
        };
        until.map_or(Ok(()), |until| self.pipeline.flush_buffer(until))
    }
}

impl Pipeline {
    /// Appends a group, for the log's own purposes if `class` is `None`. Waits while the buffer is
    /// full.
    pub fn append(&self, class: Option<LogClass>, records: &[Record<'_>]) -> Result<Appended, LogError> {
        before_device();
        loop {
            match self.append_now(class, records) {
                Ok(appended) => return Ok(appended),
                Err(Refused::Error(error)) => return Err(error),
                // Bounded by the devices' progress: each iteration waits for a request or writes
                // one.
                Err(Refused::Buffer(until)) => self.flush_buffer(until)?,
            }
        }
    }

    fn append_now(&self, class: Option<LogClass>, records: &[Record<'_>]) -> Result<Appended, Refused> {
        let appended = {
            let mut front = self.front.lock();
            let appended = front.append(class, records)?;
            self.end.store(appended.end.0, Ordering::Release);
            appended
        };
        self.archiver_signal.appended(appended.end);
        Ok(appended)
    }

    fn flush_buffer(&self, until: Lsn) -> Result<(), LogError> {
        self.buffer_waits.fetch_add(1, Ordering::Relaxed);
        // Archived log stays in the buffer until it is composed into requests for the devices.
        self.flush_to(until, Depth::Devices)
    }
}

#[cold]
fn buffer_full() -> LogError {
    LogErrorKind::BufferFull.error("the log's buffer is full until a device has written some of it")
}
