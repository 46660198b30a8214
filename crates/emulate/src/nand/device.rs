//! A device that takes its time, and its wear, from simulated flash.
//!
//! Lock order: the one lock protects the simulated flash and is a leaf; it is not held while
//! sleeping or while the device below works.

use super::{Nand, NandConfig, NandError, NandReport};
use crate::pacer;
use firndb_base::clock::{self, Moment};
use firndb_base::sync::{Arc, Mutex};
use firndb_device::{Device, DeviceError, DeviceErrorKind, DeviceInfo, Durability, Fill, Io, IoOp};
use std::time::Duration;

/// Wraps a device: calls end no sooner than simulated flash would complete them.
///
/// Bytes are kept by the device below, which should be faster than the flash. There is no write
/// buffer: every write is in flash when it returns. Growth by written zeros is a write. When the
/// flash is worn out, writes fail with kind `Failed`, and reads go on.
#[derive(Debug)]
pub struct NandDevice {
    inner: Arc<dyn Device>,
    nand: Mutex<Nand>,
    /// The beginning of the simulated flash's time.
    began: Moment,
}

impl NandDevice {
    /// A device over `inner`; what `inner` holds already is written to the flash before time
    /// begins.
    pub fn new(inner: Arc<dyn Device>, config: NandConfig) -> Result<NandDevice, DeviceError> {
        let fail = |error: NandError| error_of(inner.info(), &error);
        let mut nand = Nand::new(config).map_err(fail)?;
        nand.fill(inner.len()).map_err(fail)?;
        Ok(NandDevice { nand: Mutex::new(nand), began: clock::now(), inner })
    }

    /// The flash's counts and wear so far.
    #[must_use]
    pub fn report(&self) -> NandReport {
        self.nand.lock().report()
    }

    /// Calls `ask` with the flash and the present moment.
    fn ask<T>(&self, ask: impl FnOnce(&mut Nand, u64) -> Result<T, NandError>) -> Result<T, DeviceError> {
        let mut nand = self.nand.lock();
        let now_ns = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        ask(&mut nand, now_ns).map_err(|error| error_of(self.inner.info(), &error))
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

    /// Sleeps until the flash is done; returns at once if that moment is beyond the clock's range.
    fn sleep_until(&self, done_ns: u64) {
        if let Some(done) = self.began.after(Duration::from_nanos(done_ns)) {
            pacer::wait_until(done);
        }
    }

    /// Submits a transfer to the flash; returns the moment of its completion.
    fn charge(&self, io: &Io<'_>) -> Result<u64, DeviceError> {
        let len = match &io.op {
            IoOp::Read(buf) => buf.len() as u64,
            IoOp::Write(data, _) => data.len() as u64,
        };
        self.check_end(io.offset, len)?;
        self.ask(|nand, now_ns| match &io.op {
            IoOp::Read(_) => nand.read(io.offset, len, now_ns),
            IoOp::Write(..) => nand.write(io.offset, len, now_ns),
        })
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
        let done_ns = self.ask(|nand, now_ns| nand.read(offset, len, now_ns))?;
        self.inner.read(offset, buf)?;
        self.sleep_until(done_ns);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8], durability: Durability) -> Result<(), DeviceError> {
        let len = data.len() as u64;
        self.check_end(offset, len)?;
        let done_ns = self.ask(|nand, now_ns| nand.write(offset, len, now_ns))?;
        self.inner.write(offset, data, durability)?;
        self.sleep_until(done_ns);
        Ok(())
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.inner.sync()
    }

    fn submit(&self, batch: &mut [Io<'_>]) {
        let charged: Vec<Result<u64, DeviceError>> = batch.iter().map(|io| self.charge(io)).collect();
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
        self.sleep_until(charged.into_iter().flatten().max().unwrap_or(0));
    }

    fn grow(&self, len: u64, fill: Fill) -> Result<(), DeviceError> {
        let capacity = self.nand.lock().len();
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
        let done_ns = self.ask(|nand, now_ns| nand.write(before, added, now_ns))?;
        self.sleep_until(done_ns);
        Ok(())
    }

    fn shrink(&self, len: u64) -> Result<(), DeviceError> {
        let before = self.inner.len();
        self.inner.shrink(len)?;
        let now = self.inner.len();
        self.ask(|nand, _| nand.discard(now, before.saturating_sub(now)))
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.inner.discard(offset, len)?;
        self.check_end(offset, len)?;
        self.ask(|nand, _| nand.discard(offset, len))
    }
}
