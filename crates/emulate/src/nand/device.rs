//! A device that takes its time, and its wear, from simulated flash.
//!
//! Lock order: the one lock protects the simulated flash and is a leaf; it is not held while
//! sleeping or while the device below works.

use super::{Nand, NandConfig, NandError, NandReport};
use crate::pacer;
use firndb_base::clock::{self, Moment};
use firndb_base::sync::{Arc, Mutex};
use firndb_device::{
    Device, DeviceError, DeviceErrorKind, DeviceInfo, Durability, Fill, InFlight, Io, IoOp, OwnedRead,
    ReadDone,
};
use std::time::Duration;

/// Wraps a device: calls end no sooner than simulated flash would complete them.
///
/// Bytes are kept by the device below, which should be faster than the flash. There is no write
/// buffer: every write is in flash when it returns. Growth by written zeros is a write. When the
/// flash is worn out, writes fail with kind `Failed`, and reads go on.
#[derive(Debug)]
pub struct NandDevice {
    inner: Arc<dyn Device>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    nand: Nand,
    /// The beginning of the simulated flash's time.
    began: Moment,
    /// While calls take no time: the counts when that began.
    free: Option<NandReport>,
}

impl NandDevice {
    /// A device over `inner`; what `inner` holds already is written to the flash before time
    /// begins.
    pub fn new(inner: Arc<dyn Device>, config: NandConfig) -> Result<NandDevice, DeviceError> {
        NandDevice::used(inner, config, 0)
    }

    /// As [`NandDevice::new`], with at least the first `written` bytes of the flash written.
    pub fn used(inner: Arc<dyn Device>, config: NandConfig, written: u64) -> Result<NandDevice, DeviceError> {
        let fail = |error: NandError| error_of(inner.info(), &error);
        let mut nand = Nand::new(config).map_err(fail)?;
        nand.fill(inner.len().max(written)).map_err(fail)?;
        let state = State { nand, began: clock::now(), free: None };
        Ok(NandDevice { state: Mutex::new(state), inner })
    }

    /// The flash's counts and wear so far; while calls take no time, those of the time before.
    #[must_use]
    pub fn report(&self) -> NandReport {
        let state = self.state.lock();
        state.free.clone().unwrap_or_else(|| state.nand.report())
    }

    /// Whether calls that begin from now on take no time. They change the flash and its wear
    /// nevertheless; when calls take time again, the chips are idle and counting begins anew.
    pub fn run_free(&self, free: bool) {
        let mut state = self.state.lock();
        if free == state.free.is_some() {
            return;
        }
        state.free = free.then(|| state.nand.report());
        if !free {
            state.nand.begin_counting();
            state.began = clock::now();
        }
    }

    /// Submits a request to the flash, at the present moment; `ask` returns when it completes, in
    /// nanoseconds of the flash's time. Returns the moment to wait for.
    fn timed(
        &self,
        ask: impl FnOnce(&mut Nand, u64) -> Result<u64, NandError>,
    ) -> Result<Option<Moment>, DeviceError> {
        let mut state = self.state.lock();
        let now_ns = u64::try_from(state.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let done_ns = ask(&mut state.nand, now_ns).map_err(|error| error_of(self.inner.info(), &error))?;
        // A moment beyond the clock's range is not waited for.
        let done = state.began.after(Duration::from_nanos(done_ns));
        Ok(done.filter(|_| state.free.is_none()))
    }

    /// Refuses what is beyond the end of the device as it is now: the flash may be larger.
    fn check_end(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.inner.len() => Ok(()),
            _ => {
                let capacity = self.inner.len();
                Err(error_of(self.inner.info(), &NandError::OutOfRange { offset, bytes: len, capacity }))
            }
        }
    }

    /// Discards, which takes no time.
    fn forget(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        let forgotten = self.state.lock().nand.discard(offset, len);
        forgotten.map_err(|error| error_of(self.inner.info(), &error))
    }

    /// Submits a transfer to the flash; returns the moment of its completion.
    fn charge(&self, io: &Io<'_>) -> Result<Option<Moment>, DeviceError> {
        let len = match &io.op {
            IoOp::Read(buf) => buf.len() as u64,
            IoOp::Write(data, _) => data.len() as u64,
        };
        self.check_end(io.offset, len)?;
        self.timed(|nand, now_ns| match &io.op {
            IoOp::Read(_) => nand.read(io.offset, len, now_ns),
            IoOp::Write(..) => nand.write(io.offset, len, now_ns),
        })
    }
}

/// Sleeps until the flash is done.
fn wait(done: Option<Moment>) {
    if let Some(done) = done {
        pacer::wait_until(done);
    }
}

fn error_of(info: &DeviceInfo, error: &NandError) -> DeviceError {
    let kind = match error {
        NandError::OutOfRange { .. } => DeviceErrorKind::OutOfRange,
        NandError::BadConfig(_) => DeviceErrorKind::Unusable,
        _ => DeviceErrorKind::Failed,
    };
    DeviceError::new(kind, format!("{}: {error}", info.name))
}

impl Device for NandDevice {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        let len = buf.len() as u64;
        self.check_end(offset, len)?;
        let done = self.timed(|nand, now_ns| nand.read(offset, len, now_ns))?;
        self.inner.read(offset, buf)?;
        wait(done);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8], durability: Durability) -> Result<(), DeviceError> {
        let len = data.len() as u64;
        self.check_end(offset, len)?;
        let done = self.timed(|nand, now_ns| nand.write(offset, len, now_ns))?;
        self.inner.write(offset, data, durability)?;
        wait(done);
        Ok(())
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.inner.sync()
    }

    fn submit(&self, batch: &mut [Io<'_>]) {
        let charged: Vec<Result<Option<Moment>, DeviceError>> =
            batch.iter().map(|io| self.charge(io)).collect();
        if charged.iter().all(Result::is_ok) {
            self.inner.submit(batch);
        } else {
            // What the flash refuses does not reach the device below.
            for (io, charged) in batch.iter_mut().zip(&charged) {
                match charged {
                    Ok(_) => self.inner.submit(std::slice::from_mut(io)),
                    Err(error) => io.outcome = Err(error.clone()),
                }
            }
        }
        wait(charged.into_iter().flatten().max().flatten());
    }

    fn begin_read(&self, in_flight: &mut InFlight, mut read: OwnedRead) {
        let len = read.len as u64;
        let charged = self.check_end(read.offset, len);
        let charged = charged.and_then(|()| self.timed(|nand, now_ns| nand.read(read.offset, len, now_ns)));
        let outcome = charged.and_then(|done| {
            self.inner.read(read.offset, &mut read.buf[..read.len])?;
            Ok(done)
        });
        match outcome {
            Ok(Some(done)) => in_flight.complete_at(done, read, Ok(())),
            outcome => in_flight.complete(read, outcome.map(drop)),
        }
    }

    fn next_read(&self, in_flight: &mut InFlight, until: Option<Moment>) -> Option<ReadDone> {
        in_flight.next(until, pacer::wait_until)
    }

    fn grow(&self, len: u64, fill: Fill) -> Result<(), DeviceError> {
        let capacity = self.state.lock().nand.len();
        if len > capacity {
            return Err(DeviceError::new(
                DeviceErrorKind::NoSpace,
                format!(
                    "{}: a length of {len} bytes was requested; the capacity of its flash is {capacity}",
                    self.info().name
                ),
            ));
        }
        let before = self.inner.len();
        self.inner.grow(len, fill)?;
        let added = self.inner.len().saturating_sub(before);
        if fill != Fill::Written || added == 0 {
            return Ok(());
        }
        wait(self.timed(|nand, now_ns| nand.write(before, added, now_ns))?);
        Ok(())
    }

    fn shrink(&self, len: u64) -> Result<(), DeviceError> {
        let before = self.inner.len();
        self.inner.shrink(len)?;
        let now = self.inner.len();
        self.forget(now, before.saturating_sub(now))
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.inner.discard(offset, len)?;
        self.check_end(offset, len)?;
        self.forget(offset, len)
    }
}
