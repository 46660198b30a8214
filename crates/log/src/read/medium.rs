//! Reading a log device with places that cannot be read.
//!
//! A decaying medium usually reports it: reading a sector fails. For the log such a place is the
//! same as a damaged block: there is no block, and copies, the archive and the durable LSNs of
//! other blocks decide what that means (`scan.rs`). So a read that fails is repeated unit by unit,
//! each unit a few times. A unit that cannot be read is left zero, and the caller gets its offset.
//!
//! A lost device is distinguished from one with bad places by its member header: neither copy of
//! the header can be read. A read of a lost device fails, and so does a read of a stream with more
//! than [`UNREADABLE_MAX`] bad units.

use crate::error::{LogError, LogErrorKind};
use crate::layout::MEMBER_COPIES;
use firndb_base::sync::{Arc, Mutex};
use firndb_device::{AlignedBuf, Device, DeviceErrorKind};
use std::collections::BTreeSet;

/// Times that a unit is read before it counts as unreadable.
const TRIES: usize = 3;
/// Unreadable units of a stream beyond which its device has failed.
pub(crate) const UNREADABLE_MAX: usize = 256;

/// A log device as one of its streams is read from it.
#[derive(Debug)]
pub(crate) struct Medium {
    device: Arc<dyn Device>,
    /// Unit in bytes.
    unit: usize,
    /// Offsets of units that could not be read. A leaf in the lock order; not held during I/O.
    bad: Mutex<BTreeSet<u64>>,
}

impl Medium {
    pub fn new(device: Arc<dyn Device>, unit: u64) -> Medium {
        Medium { device, unit: unit as usize, bad: Mutex::default() }
    }

    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Reads whole units. Returns the offsets in `buf` of units that cannot be read; they are zero.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<Vec<usize>, LogError> {
        let Err(error) = self.device.read(offset, buf) else { return Ok(Vec::new()) };
        if error.kind != DeviceErrorKind::Failed || !self.is_present() {
            return Err(error.into());
        }
        let mut unreadable = Vec::new();
        // Devices require aligned memory, which a part of `buf` need not be.
        let mut own = AlignedBuf::zeroed(self.unit);
        for (at, part) in (0..).step_by(self.unit).zip(buf.chunks_exact_mut(self.unit)) {
            match self.read_unit(offset + at as u64, &mut own) {
                Ok(()) => part.copy_from_slice(&own),
                Err(error) => {
                    self.note(offset + at as u64, &error)?;
                    part.fill(0);
                    unreadable.push(at);
                }
            }
        }
        Ok(unreadable)
    }

    /// Reads a unit, a few times if necessary.
    fn read_unit(&self, offset: u64, own: &mut AlignedBuf) -> Result<(), LogError> {
        let mut outcome = self.device.read(offset, own);
        for _ in 1..TRIES {
            if outcome.is_ok() {
                break;
            }
            outcome = self.device.read(offset, own);
        }
        Ok(outcome?)
    }

    /// Records an unreadable unit. Fails if the device is lost, or there are too many such units.
    fn note(&self, offset: u64, error: &LogError) -> Result<(), LogError> {
        if !self.is_present() {
            return Err(error.clone());
        }
        let mut bad = self.bad.lock();
        bad.insert(offset);
        if bad.len() <= UNREADABLE_MAX {
            return Ok(());
        }
        Err(LogErrorKind::Failed.error(format!(
            "more than {UNREADABLE_MAX} places of a log device cannot be read, the last one: {error}"
        )))
    }

    /// Whether the device can be read at all: either copy of the member header can.
    fn is_present(&self) -> bool {
        let mut own = AlignedBuf::zeroed(self.unit);
        (0..MEMBER_COPIES).any(|copy| self.device.read(copy * self.unit as u64, &mut own).is_ok())
    }
}
