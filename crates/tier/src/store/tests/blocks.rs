//! A device that knows which of its blocks have space, and refuses what a test says.

use super::harness::copy;
use crate::store::Journal;
use crate::testing::small_store::TestLog;
use firndb_base::Lsn;
use firndb_base::sync::{Arc, Mutex};
use firndb_device::{Device, DeviceError, DeviceErrorKind, Durability, Fill, MemoryDevice, forward};
use std::collections::BTreeSet;
use std::ops::Range;

const BLOCK: u64 = 512;

/// A file whose blocks have space or not: a hole has none until it is written.
#[derive(Debug)]
pub(crate) struct Blocks {
    inner: Arc<MemoryDevice>,
    state: Mutex<State>,
}

#[derive(Default)]
pub(crate) struct State {
    /// Blocks with space.
    with_space: BTreeSet<u64>,
    /// Cuts fail.
    pub refuses_cuts: bool,
    /// Discards fail that begin in this range.
    pub refused: Range<u64>,
    /// Cuts asked for.
    pub cuts: usize,
    /// Discards done.
    pub discards: usize,
    /// Blocks without space that got other bytes than zeros.
    pub written_into_holes: usize,
    /// Whose durable end is noted with the images.
    pub log: Option<Arc<TestLog>>,
    /// Writes are noted, too.
    pub notes_writes: bool,
    /// The device after each discard and each cut, and up to where the log was durable.
    pub images: Vec<(Blocks, Lsn)>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} blocks with space", self.with_space.len())
    }
}

impl Blocks {
    pub(crate) fn new() -> Arc<Blocks> {
        Arc::new(Blocks { inner: Arc::new(MemoryDevice::new("store")), state: Mutex::default() })
    }

    /// What is counted, and what is refused from now on.
    pub(crate) fn set<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        change(&mut self.state.lock())
    }

    fn note(&self) {
        let state = &mut *self.state.lock();
        let Some(log) = &state.log else { return };
        let image = State { with_space: state.with_space.clone(), ..State::default() };
        let image = Blocks { inner: copy(&*self.inner), state: Mutex::new(image) };
        state.images.push((image, log.durable()));
    }
}

fn refused() -> DeviceError {
    DeviceError::new(DeviceErrorKind::Failed, "store: refused")
}

impl Device for Blocks {
    forward!(inner: info, len, read, sync);

    fn write(&self, offset: u64, data: &[u8], durability: Durability) -> Result<(), DeviceError> {
        let is_zeros = data.iter().all(|byte| *byte == 0);
        self.set(|state| {
            for block in offset / BLOCK..(offset + data.len() as u64).div_ceil(BLOCK) {
                let was_hole = state.with_space.insert(block);
                state.written_into_holes += usize::from(was_hole && !is_zeros);
            }
        });
        self.inner.write(offset, data, durability)?;
        if self.set(|state| state.notes_writes) {
            self.note();
        }
        Ok(())
    }

    /// Gives space to what is new alone.
    fn grow(&self, len: u64, fill: Fill) -> Result<(), DeviceError> {
        let old = self.inner.len();
        self.set(|state| state.with_space.extend(old / BLOCK..len.div_ceil(BLOCK)));
        self.inner.grow(len, fill)
    }

    fn shrink(&self, len: u64) -> Result<(), DeviceError> {
        self.set(|state| {
            state.cuts += 1;
            if state.refuses_cuts {
                return Err(refused());
            }
            state.with_space.retain(|block| *block < len.div_ceil(BLOCK));
            Ok(())
        })?;
        self.inner.shrink(len)?;
        self.note();
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.set(|state| {
            if state.refused.contains(&offset) {
                return Err(refused());
            }
            state.discards += 1;
            state.with_space.retain(|block| !(offset / BLOCK..(offset + len) / BLOCK).contains(block));
            Ok(())
        })?;
        self.inner.discard(offset, len)?;
        self.note();
        Ok(())
    }
}
