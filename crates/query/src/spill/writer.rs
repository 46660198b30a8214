//! Writing a run: rows in the order in which they are to be read.

use super::block::{self, HEADER};
use super::space::{EXTENT_BYTES, Extent, SpillSpace};
use crate::error::QueryError;
use crate::memory::{Memory, Reservation};
use firndb_base::sync::Arc;
use firndb_device::{AlignedBuf, Durability};

/// A run being written. Has one block in memory.
pub(crate) struct RunWriter {
    run: Run,
    block: AlignedBuf,
    /// Bytes of rows in it.
    filled: usize,
    reserved: Reservation,
}

/// Rows on the spill device. Dropping it gives the space back.
#[derive(Debug)]
pub(crate) struct Run {
    pub(super) space: Arc<SpillSpace>,
    pub(super) id: u64,
    extents: Vec<Extent>,
    pub(super) blocks: u64,
    pub(super) block_bytes: usize,
    /// Of one row.
    pub(super) longest: usize,
    rows: u64,
}

impl RunWriter {
    pub(crate) fn new(
        space: &Arc<SpillSpace>,
        block_bytes: usize,
        memory: &Arc<Memory>,
    ) -> Result<RunWriter, QueryError> {
        assert!(block_bytes.is_power_of_two() && block_bytes <= EXTENT_BYTES && block_bytes > HEADER);
        let reserved = Reservation::of(memory, block_bytes)?;
        let run = Run {
            space: space.clone(),
            id: space.next_run(),
            extents: Vec::new(),
            blocks: 0,
            block_bytes,
            longest: 0,
            rows: 0,
        };
        Ok(RunWriter { run, block: AlignedBuf::zeroed(block_bytes), filled: 0, reserved })
    }

    /// Appends a row, given in parts.
    pub(crate) fn push(&mut self, parts: &[&[u8]]) -> Result<(), QueryError> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let stored = u32::try_from(len).map_err(|_| QueryError::bad_argument("a row has 4 GiB"))?;
        self.put(&stored.to_le_bytes())?;
        for part in parts {
            self.put(part)?;
        }
        self.run.longest = self.run.longest.max(len);
        self.run.rows += 1;
        Ok(())
    }

    /// All rows were appended.
    pub(crate) fn finish(mut self) -> Result<Run, QueryError> {
        if self.filled > 0 {
            self.write_block()?;
        }
        Ok(self.run)
    }

    fn put(&mut self, mut bytes: &[u8]) -> Result<(), QueryError> {
        while !bytes.is_empty() {
            if HEADER + self.filled == self.block.len() {
                self.write_block()?;
            }
            let space = self.block.len() - HEADER - self.filled;
            let (here, rest) = bytes.split_at(space.min(bytes.len()));
            self.block[HEADER + self.filled..][..here.len()].copy_from_slice(here);
            self.filled += here.len();
            bytes = rest;
        }
        Ok(())
    }

    fn write_block(&mut self) -> Result<(), QueryError> {
        let RunWriter { run, block, filled, reserved } = self;
        if run.blocks.is_multiple_of(run.blocks_of_extent()) {
            run.extents.push(run.space.take()?);
        }
        block::seal(block, *filled, run.id, run.blocks);
        run.blocks += 1;
        run.space.device().write(run.offset(run.blocks - 1), block, Durability::Later)?;
        reserved.memory().note_spilled(block.len());
        *filled = 0;
        Ok(())
    }
}

impl Run {
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }
    /// Bytes of the longest row.
    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    fn blocks_of_extent(&self) -> u64 {
        (EXTENT_BYTES / self.block_bytes) as u64
    }

    /// Where a block lies on the device.
    pub(super) fn offset(&self, number: u64) -> u64 {
        let (extent, within) = (number / self.blocks_of_extent(), number % self.blocks_of_extent());
        self.extents[extent as usize].offset() + within * self.block_bytes as u64
    }
}
