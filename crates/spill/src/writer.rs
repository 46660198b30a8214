//! Writing runs: rows in the order in which they are to be read.
//!
//! Rows are put into blocks of a buffer. When the buffer is full, all blocks that are full are
//! written with one call, one behind the other, those of each run together.

use crate::block::{self, HEADER};
use crate::error::SpillError;
use crate::memory::{Memory, Reservation};
use crate::run::{Piece, Run, Stream};
use crate::sizes::Sizes;
use crate::space::{EXTENT_BYTES, SpillSpace};
use firndb_base::sync::Arc;
use firndb_device::{AlignedBuf, Durability, Io, IoOp};

/// Runs being written.
pub struct RunWriter {
    space: Arc<SpillSpace>,
    memory: Arc<Memory>,
    buffer: AlignedBuf,
    /// The run of each block of the buffer that is in use.
    owners: Vec<u32>,
    runs: Vec<Growing>,
    stream: Stream,
    /// Blocks of it that are written.
    written: u32,
    _reserved: Reservation,
}

struct Growing {
    id: u64,
    /// The block of the buffer that it is at, and the bytes of rows in it.
    open: Option<(usize, usize)>,
    /// Full ones.
    blocks: u64,
    pieces: Vec<Piece>,
    reserved: Reservation,
    longest: usize,
    rows: u64,
}

impl RunWriter {
    /// Of one run.
    pub fn new(space: &Arc<SpillSpace>, sizes: Sizes, memory: &Arc<Memory>) -> Result<RunWriter, SpillError> {
        RunWriter::with(space, sizes.block, sizes.run(), 1, memory)
    }

    /// Of a run for each partition.
    pub fn of_partitions(
        space: &Arc<SpillSpace>,
        sizes: Sizes,
        memory: &Arc<Memory>,
    ) -> Result<RunWriter, SpillError> {
        RunWriter::with(space, sizes.block, sizes.stream(), sizes.partitions(), memory)
    }

    fn with(
        space: &Arc<SpillSpace>,
        block_bytes: usize,
        buffer_bytes: usize,
        runs: usize,
        memory: &Arc<Memory>,
    ) -> Result<RunWriter, SpillError> {
        assert!(block_bytes.is_power_of_two() && block_bytes <= EXTENT_BYTES && block_bytes > HEADER);
        assert!(runs == 1 || buffer_bytes >= 2 * runs * block_bytes, "some blocks are full by then");
        // Beside the buffer a block, while others are exchanged, and an owner and a place for each.
        let blocks = buffer_bytes / block_bytes;
        let reserved = Reservation::of(memory, buffer_bytes + block_bytes + 8 * blocks)?;
        let growing = || Growing {
            id: space.next_run(),
            open: None,
            blocks: 0,
            pieces: Vec::new(),
            reserved: Reservation::none(memory),
            longest: 0,
            rows: 0,
        };
        Ok(RunWriter {
            space: space.clone(),
            memory: memory.clone(),
            buffer: AlignedBuf::zeroed(buffer_bytes),
            owners: Vec::with_capacity(blocks),
            runs: (0..runs).map(|_| growing()).collect(),
            stream: Stream { extents: Vec::new(), block_bytes },
            written: 0,
            _reserved: reserved,
        })
    }

    /// Appends a row to a run, given in parts.
    pub fn push(&mut self, run: usize, parts: &[&[u8]]) -> Result<(), SpillError> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let stored = u32::try_from(len).map_err(|_| SpillError::bad_argument("a row has 4 GiB"))?;
        self.put(run, &stored.to_le_bytes())?;
        for part in parts {
            self.put(run, part)?;
        }
        let run = &mut self.runs[run];
        run.longest = run.longest.max(len);
        run.rows += 1;
        Ok(())
    }

    /// All rows were appended. The runs, in their order.
    pub fn finish(mut self) -> Result<Vec<Run>, SpillError> {
        (0..self.runs.len()).for_each(|run| self.seal(run));
        self.write()?;
        let stream = Arc::new(self.stream);
        let run = |growing: Growing| Run {
            space: self.space.clone(),
            id: growing.id,
            stream: stream.clone(),
            pieces: growing.pieces,
            blocks: growing.blocks,
            longest: growing.longest,
            rows: growing.rows,
            _reserved: growing.reserved,
        };
        Ok(self.runs.into_iter().map(run).collect())
    }

    fn put(&mut self, run: usize, mut bytes: &[u8]) -> Result<(), SpillError> {
        let payload = self.stream.block_bytes - HEADER;
        while !bytes.is_empty() {
            let (block, filled) = match self.runs[run].open {
                Some((block, filled)) if filled < payload => (block, filled),
                _ => (self.next_block(run)?, 0),
            };
            let (here, rest) = bytes.split_at((payload - filled).min(bytes.len()));
            let at = block * self.stream.block_bytes + HEADER + filled;
            self.buffer[at..][..here.len()].copy_from_slice(here);
            self.runs[run].open = Some((block, filled + here.len()));
            bytes = rest;
        }
        Ok(())
    }

    /// Ends the block that a run is at, and gives it another.
    fn next_block(&mut self, run: usize) -> Result<usize, SpillError> {
        self.seal(run);
        if self.owners.len() == self.buffer.len() / self.stream.block_bytes {
            self.write()?;
        }
        self.owners.push(run as u32);
        Ok(self.owners.len() - 1)
    }

    fn seal(&mut self, run: usize) {
        let (run, block_bytes) = (&mut self.runs[run], self.stream.block_bytes);
        if let Some((block, filled)) = run.open.take() {
            block::seal(&mut self.buffer[block * block_bytes..][..block_bytes], filled, run.id, run.blocks);
            run.blocks += 1;
        }
    }

    /// Writes the blocks that are sealed; those that are not stay, at the buffer's beginning.
    fn write(&mut self) -> Result<(), SpillError> {
        let is_open = |block: usize| {
            let open = self.runs[self.owners[block] as usize].open;
            open.is_some_and(|(open, _)| open == block)
        };
        let mut order: Vec<u32> = (0..self.owners.len() as u32).collect();
        order.sort_unstable_by_key(|block| (is_open(*block as usize), self.owners[*block as usize], *block));
        let sealed = order.partition_point(|block| !is_open(*block as usize));
        let owners: Vec<u32> = order.iter().map(|block| self.owners[*block as usize]).collect();
        permute(&mut self.buffer, self.stream.block_bytes, &mut order);
        self.list(&owners[..sealed])?;
        self.write_front(sealed)?;
        let block_bytes = self.stream.block_bytes;
        self.owners.clear();
        for (number, owner) in owners[sealed..].iter().enumerate() {
            self.buffer.copy_within(
                (sealed + number) * block_bytes..(sealed + number + 1) * block_bytes,
                number * block_bytes,
            );
            self.owners.push(*owner);
            let open = &mut self.runs[*owner as usize].open;
            *open = open.map(|(_, filled)| (number, filled));
        }
        Ok(())
    }

    /// Notes where the blocks of these runs are going to be.
    fn list(&mut self, owners: &[u32]) -> Result<(), SpillError> {
        let mut first = self.written;
        for of_run in owners.chunk_by(|a, b| a == b) {
            let Growing { pieces, reserved, .. } = &mut self.runs[of_run[0] as usize];
            let blocks = of_run.len() as u32;
            match pieces.last_mut() {
                Some(last) if last.first + last.blocks == first => last.blocks += blocks,
                _ => {
                    reserved.grow(pieces, 1)?;
                    pieces.push(Piece { first, blocks });
                }
            }
            first += blocks;
        }
        Ok(())
    }

    /// Writes this many blocks of the buffer behind those that are written.
    fn write_front(&mut self, blocks: usize) -> Result<(), SpillError> {
        let RunWriter { space, stream, buffer, written, .. } = self;
        let end = *written + blocks as u32;
        while stream.extents.len() < end.div_ceil(stream.blocks_of_extent()) as usize {
            stream.extents.push(space.take()?);
        }
        let mut batch = Vec::new();
        let mut rest = &buffer[..blocks * stream.block_bytes];
        while *written < end {
            let (offset, blocks) = stream.adjacent(*written, end - *written);
            let (here, behind) = rest.split_at(blocks as usize * stream.block_bytes);
            let op = IoOp::Write(here, Durability::Later);
            batch.push(Io { offset, op, outcome: Ok(()) });
            rest = behind;
            *written += blocks;
        }
        space.device().submit(&mut batch);
        batch.into_iter().try_for_each(|io| io.outcome)?;
        self.memory.note_spilled(blocks * stream.block_bytes);
        Ok(())
    }
}

/// Moves blocks so that `order[i]` comes to be at `i`. The order is lost.
fn permute(buffer: &mut [u8], block_bytes: usize, order: &mut [u32]) {
    let range = |block: usize| block * block_bytes..(block + 1) * block_bytes;
    let mut kept = Vec::new();
    for first in 0..order.len() {
        if order[first] as usize == first {
            continue;
        }
        kept.clear();
        kept.extend_from_slice(&buffer[range(first)]);
        let mut at = first;
        loop {
            let from = std::mem::replace(&mut order[at], at as u32) as usize;
            if from == first {
                buffer[range(at)].copy_from_slice(&kept);
                break;
            }
            buffer.copy_within(range(from), at * block_bytes);
            at = from;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_base::rng::Rng;

    #[test]
    fn blocks_come_to_be_in_the_order_asked_for() {
        let mut rng = Rng::new(3);
        for blocks in 0..40u32 {
            let mut order: Vec<u32> = (0..blocks).collect();
            for last in (1..blocks as usize).rev() {
                order.swap(last, rng.below(last as u64 + 1) as usize);
            }
            let mut buffer: Vec<u8> = (0..blocks).flat_map(|block| [block as u8; 8]).collect();
            permute(&mut buffer, 8, &mut order.clone());
            let wanted: Vec<u8> = order.iter().flat_map(|block| [*block as u8; 8]).collect();
            assert_eq!(buffer, wanted);
        }
    }
}
