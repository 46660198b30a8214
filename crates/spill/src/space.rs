//! The space of a spill device, which the queries and index builds of a database share.
//!
//! Invariant: an extent belongs to one [`Extent`], or is free, or lies past those made so far.
//! Once all are free the device is cut to its first block.
//!
//! The first block says that the device is for rows that are spilled. A device that holds anything
//! else is refused: what a user names by mistake is not overwritten. The mark is durable before any
//! row is written, or a power cut might leave rows without it.
//!
//! Numbers of runs begin anywhere: a raw device keeps what an earlier process wrote, which must not
//! pass for a block of a run whose write was lost.

use crate::error::{SpillError, SpillErrorKind};
use crate::sizes::Sizes;
use firndb_base::rng::entropy;
use firndb_base::sync::{Arc, Mutex};
use firndb_device::{AlignedBuf, Device, Durability, Fill, find_contents};

/// What the first block begins with; the rest of it is zeros.
const MAGIC: &[u8; 8] = b"FIRNSPIL";

/// Bytes given out at once.
pub(crate) const EXTENT_BYTES: usize = 256 << 10;

/// Space for rows on a device that is used for nothing else.
#[derive(Debug)]
pub struct SpillSpace {
    device: Arc<dyn Device>,
    /// Where the first extent begins.
    first: u64,
    /// Runs are numbered from behind this on.
    first_run: u64,
    extents_max: u64,
    /// Protects what is free; held while the device grows or is cut. A leaf.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Numbers of extents that were given back.
    free: Vec<u64>,
    /// Extents from here on were never given out.
    made: u64,
    runs: u64,
}

impl SpillSpace {
    /// Of at most `bytes` on the device, which is empty or was used for this before; it is emptied.
    ///
    /// Errors: `BadArgument` if it holds anything else; `Full` and `SpillFailed` of the device.
    pub fn open(device: Arc<dyn Device>, bytes: u64) -> Result<Arc<SpillSpace>, SpillError> {
        let mut block = AlignedBuf::zeroed(device.info().logical_block.max(4096));
        let first = block.len() as u64;
        let is_ours = device.len() >= first && {
            device.read(0, &mut block)?;
            let (magic, rest) = block.split_at(MAGIC.len());
            magic == MAGIC && rest.iter().all(|byte| *byte == 0)
        };
        if !is_ours && let Some(at) = find_contents(&*device)? {
            return Err(SpillError::bad_argument(format!(
                "{} holds something at byte {at} that is no spilled rows: name an empty file or device for them, or remove what is there",
                device.info().name
            )));
        }
        block.fill(0);
        block[..MAGIC.len()].copy_from_slice(MAGIC);
        device.shrink(first)?;
        device.grow(first, Fill::Sparse)?;
        device.write(0, &block, if is_ours { Durability::Later } else { Durability::Durable })?;
        let extents_max = bytes / EXTENT_BYTES as u64;
        let first_run = u64::from_le_bytes(entropy()[..8].try_into().expect("eight bytes"));
        let state = Mutex::new(State::default());
        Ok(Arc::new(SpillSpace { device, first, first_run, extents_max, state }))
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &dyn Device {
        &*self.device
    }
    /// What an operator writes and reads at once that keeps `share` bytes in memory.
    pub fn sizes(&self, share: usize) -> Sizes {
        Sizes::new(share, self.device.info().logical_block)
    }

    /// Bytes that are in use.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        let state = self.state.lock();
        (state.made - state.free.len() as u64) * EXTENT_BYTES as u64
    }

    /// Whether any run was written.
    #[must_use]
    pub fn has_been_used(&self) -> bool {
        self.state.lock().runs > 0
    }

    /// A number for a run that no other run has.
    pub(crate) fn next_run(&self) -> u64 {
        let mut state = self.state.lock();
        state.runs += 1;
        self.first_run.wrapping_add(state.runs)
    }

    /// An extent. Kind `Full` if there is none.
    pub(crate) fn take(self: &Arc<SpillSpace>) -> Result<Extent, SpillError> {
        let mut state = self.state.lock();
        let number = match state.free.pop() {
            Some(number) => number,
            None => {
                self.grow(state.made + 1)?;
                state.made += 1;
                state.made - 1
            }
        };
        Ok(Extent { space: self.clone(), number })
    }

    /// Makes the device long enough for this many extents; for some more, if it can be.
    fn grow(&self, extents: u64) -> Result<(), SpillError> {
        if extents > self.extents_max {
            return Err(SpillError::new(
                SpillErrorKind::Full,
                format!(
                    "the {} bytes of {} for spilled rows are in use: raise spill_bytes, raise the memory limit, or run fewer queries and index builds at once",
                    self.extents_max * EXTENT_BYTES as u64,
                    self.device.info().name
                ),
            ));
        }
        let bytes = |extents: u64| self.first + extents * EXTENT_BYTES as u64;
        if self.device.len() >= bytes(extents) {
            return Ok(());
        }
        let ample = bytes((2 * extents).min(self.extents_max));
        self.device.grow(ample, Fill::Sparse).or_else(|_| self.device.grow(bytes(extents), Fill::Sparse))?;
        Ok(())
    }
}

/// A part of the device. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Extent {
    space: Arc<SpillSpace>,
    number: u64,
}

impl Extent {
    pub(crate) fn offset(&self) -> u64 {
        self.space.first + self.number * EXTENT_BYTES as u64
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        let mut state = self.space.state.lock();
        state.free.push(self.number);
        if state.free.len() as u64 == state.made {
            // No transfer is in flight, since none has an extent. What cannot be cut is used again.
            (state.free, state.made) = (Vec::new(), 0);
            let _ = self.space.device.shrink(self.space.first);
        }
    }
}
