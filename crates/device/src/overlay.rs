//! A device over another one that is only read: what is written is kept aside.
//!
//! Inspecting a database runs the ordinary engine, recovery included, above overlays: it appends to
//! the log, moves pages and writes the superblock, and the database's files stay as they are.
//!
//! Invariants: the base is never written, grown, shrunk, discarded or synced; a block reads as what
//! was last written here, else as the base has it, else (past what the base ever showed) as zeros.
//! Blocks that were cut off by a shrink read as zeros after a growth. What is kept aside is lost
//! with the last overlay: nothing here is durable.
//!
//! Locks: `kept`, then the space's own; neither is held while the base is read.

mod space;

pub use space::OverlaySpace;

use crate::device::{Device, DeviceInfo, Durability, Fill, Io, IoOp, check_transfer, whole_blocks};
use crate::error::DeviceError;
use crate::in_flight::{InFlight, OwnedRead, ReadDone};
use firndb_base::clock::Moment;
use firndb_base::sync::{Arc, RwLock};
use space::ChunkLocation;
use std::collections::BTreeMap;
use std::ops::Range;

/// Shows `base`, and on top of it what was written here. See the module's head.
#[derive(Debug)]
pub struct Overlay {
    base: Arc<dyn Device>,
    info: DeviceInfo,
    /// Bytes kept aside as one: at most [`BLOCKS_MAX`] blocks.
    chunk_bytes: usize,
    space: Arc<OverlaySpace>,
    kept: RwLock<Kept>,
}

/// Bytes of a chunk, unless a block is larger.
const CHUNK_BYTES: usize = 4096;
/// As many as a chunk's mask has bits.
const BLOCKS_MAX: usize = 8;

/// Chunks at most that debug builds check after each change.
const CHECKED_MAX: usize = 16;

#[derive(Debug)]
struct Kept {
    len: u64,
    /// Bytes before it show the base where nothing is kept.
    shown: u64,
    /// By their number on the device.
    chunks: BTreeMap<u64, Chunk>,
}

#[derive(Debug)]
struct Chunk {
    /// Bit `i` is set if block `i` of the chunk is kept here.
    blocks: u8,
    location: ChunkLocation,
}

/// A part of a transfer that lies in one chunk.
struct Piece {
    chunk: u64,
    /// Bytes of the chunk.
    within: Range<usize>,
    /// Bytes of the transfer.
    of: Range<usize>,
}

impl Overlay {
    /// Shows `base`; what is written goes to `space`, which several overlays may share.
    #[must_use]
    pub fn new(base: Arc<dyn Device>, space: Arc<OverlaySpace>) -> Overlay {
        let (info, len) = (base.info().clone(), base.len());
        let chunk_bytes = CHUNK_BYTES.max(info.logical_block);
        assert!(
            chunk_bytes / info.logical_block <= BLOCKS_MAX && chunk_bytes.is_multiple_of(info.logical_block)
        );
        let kept = RwLock::new(Kept { len, shown: len, chunks: BTreeMap::new() });
        Overlay { base, info, chunk_bytes, space, kept }
    }

    fn pieces(&self, offset: u64, len: u64) -> impl Iterator<Item = Piece> + use<> {
        let (bytes, end) = (self.chunk_bytes as u64, offset + len);
        let mut at = offset;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let (chunk, start) = (at / bytes, (at % bytes) as usize);
            let len = (end - at).min(bytes - start as u64) as usize;
            let of = (at - offset) as usize;
            at += len as u64;
            Some(Piece { chunk, within: start..start + len, of: of..of + len })
        })
    }

    /// The bits of the blocks in a range of a chunk's bytes.
    fn mask(&self, within: &Range<usize>) -> u8 {
        let block = self.info.logical_block;
        (within.start / block..within.end / block).fold(0, |mask, bit| mask | 1 << bit)
    }

    /// Whether the range shows the base and nothing else.
    fn shows_base(&self, offset: u64, len: usize) -> bool {
        let kept = self.kept.read();
        let Some(end) = offset.checked_add(len as u64) else { return false };
        let bytes = self.chunk_bytes as u64;
        end <= kept.shown && kept.chunks.range(offset / bytes..end.div_ceil(bytes)).next().is_none()
    }

    /// Fills in what is kept and what is zeros; returns the parts of `buf` that the base has.
    fn read_kept(&self, offset: u64, buf: &mut [u8]) -> Result<Vec<Range<usize>>, DeviceError> {
        let kept = self.kept.read();
        check_transfer(&self.info, kept.len, offset, buf.len())?;
        let block = self.info.logical_block;
        let mut from_base: Vec<Range<usize>> = Vec::new();
        for Piece { chunk, within, of } in self.pieces(offset, buf.len() as u64) {
            let found = kept.chunks.get(&chunk);
            for (start, at) in within.step_by(block).zip(of.step_by(block)) {
                let part = &mut buf[at..at + block];
                match found {
                    Some(chunk) if chunk.blocks & (1 << (start / block)) != 0 => {
                        self.space.read(&chunk.location, start, part)?;
                    }
                    _ if offset + (at as u64) < kept.shown => match from_base.last_mut() {
                        Some(last) if last.end == at => last.end = at + block,
                        _ => from_base.push(at..at + block),
                    },
                    _ => part.fill(0),
                }
            }
        }
        Ok(from_base)
    }
}

impl Kept {
    /// In debug builds, asserts that nothing is kept or shown past the end, and no empty chunk.
    fn check_in_debug(&self, chunk_bytes: usize) {
        if cfg!(debug_assertions) {
            assert!(self.shown <= self.len, "the base is shown up to {} of {}", self.shown, self.len);
            let last = self.chunks.last_key_value().map(|(number, _)| number * chunk_bytes as u64);
            assert!(last.is_none_or(|begin| begin < self.len), "a chunk at {last:?} of {}", self.len);
            assert!(self.chunks.values().take(CHECKED_MAX).all(|chunk| chunk.blocks != 0));
        }
    }

    /// Forgets what is kept of the range, of which `mask` gives the blocks in a chunk.
    fn forget(&mut self, pieces: impl Iterator<Item = (u64, u8)>, space: &OverlaySpace, chunk_bytes: usize) {
        for (number, mask) in pieces {
            let Some(chunk) = self.chunks.get_mut(&number) else { continue };
            chunk.blocks &= !mask;
            if chunk.blocks == 0
                && let Some(chunk) = self.chunks.remove(&number)
            {
                space.free(chunk.location, chunk_bytes);
            }
        }
    }
}

impl Device for Overlay {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn len(&self) -> u64 {
        self.kept.read().len
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        {
            let kept = self.kept.read();
            let as_base = kept.chunks.is_empty() && kept.len == kept.shown && kept.len == self.base.len();
            drop(kept);
            if as_base {
                // A base that is absent says why.
                return self.base.read(offset, buf);
            }
        }
        for part in self.read_kept(offset, buf)? {
            self.base.read(offset + part.start as u64, &mut buf[part])?;
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8], _: Durability) -> Result<(), DeviceError> {
        let mut kept = self.kept.write();
        check_transfer(&self.info, kept.len, offset, data.len())?;
        for Piece { chunk, within, of } in self.pieces(offset, data.len() as u64) {
            let mask = self.mask(&within);
            match kept.chunks.get_mut(&chunk) {
                Some(chunk) => {
                    self.space.write(&mut chunk.location, within.start, &data[of])?;
                    chunk.blocks |= mask;
                }
                None => {
                    let mut location = self.space.take(self.chunk_bytes)?;
                    let written = self.space.write(&mut location, within.start, &data[of]);
                    if let Err(error) = written {
                        self.space.free(location, self.chunk_bytes);
                        return Err(error);
                    }
                    kept.chunks.insert(chunk, Chunk { blocks: mask, location });
                }
            }
        }
        kept.check_in_debug(self.chunk_bytes);
        Ok(())
    }

    /// There is nothing to make durable.
    fn sync(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Reads of what only the base has go to it as one batch.
    fn submit(&self, batch: &mut [Io<'_>]) {
        let (mut through, mut outcomes) = (Vec::new(), Vec::new());
        for Io { offset, op, outcome } in batch {
            match op {
                IoOp::Write(data, durability) => *outcome = self.write(*offset, data, *durability),
                IoOp::Read(buf) => {
                    if self.shows_base(*offset, buf.len()) {
                        through.push(Io { offset: *offset, op: IoOp::Read(buf), outcome: Ok(()) });
                        outcomes.push(outcome);
                    } else {
                        *outcome = self.read(*offset, buf);
                    }
                }
            }
        }
        self.base.submit(&mut through);
        for (io, outcome) in through.into_iter().zip(outcomes) {
            *outcome = io.outcome;
        }
    }

    fn begin_read(&self, in_flight: &mut InFlight, mut read: OwnedRead) {
        if self.shows_base(read.offset, read.len) {
            return self.base.begin_read(in_flight, read);
        }
        let outcome = self.read(read.offset, &mut read.buf[..read.len]);
        in_flight.complete(read, outcome);
    }

    fn next_read(&self, in_flight: &mut InFlight, until: Option<Moment>) -> Option<ReadDone> {
        self.base.next_read(in_flight, until)
    }

    /// Takes no space: what is written does.
    fn grow(&self, len: u64, _: Fill) -> Result<(), DeviceError> {
        let len = whole_blocks(&self.info, len)?;
        let mut kept = self.kept.write();
        kept.len = kept.len.max(len);
        Ok(())
    }

    fn shrink(&self, len: u64) -> Result<(), DeviceError> {
        let len = whole_blocks(&self.info, len)?;
        let mut kept = self.kept.write();
        if len >= kept.len {
            return Ok(());
        }
        kept.len = len;
        kept.shown = kept.shown.min(len);
        let bytes = self.chunk_bytes as u64;
        let beyond = kept.chunks.split_off(&len.div_ceil(bytes));
        for chunk in beyond.into_values() {
            self.space.free(chunk.location, self.chunk_bytes);
        }
        let cut = (len / bytes, self.mask(&((len % bytes) as usize..self.chunk_bytes)));
        if !len.is_multiple_of(bytes) {
            kept.forget([cut].into_iter(), &self.space, self.chunk_bytes);
        }
        kept.check_in_debug(self.chunk_bytes);
        Ok(())
    }

    /// Forgets what is kept of the range: it then reads as the base has it.
    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        let mut kept = self.kept.write();
        check_transfer(&self.info, kept.len, offset, usize::try_from(len).unwrap_or(usize::MAX))?;
        let bytes = self.chunk_bytes as u64;
        let end = offset + len;
        // The chunks that are there, rather than all that could be: a discarded range may be the
        // whole device.
        let there: Vec<u64> =
            kept.chunks.range(offset / bytes..end.div_ceil(bytes)).map(|(at, _)| *at).collect();
        let masks = there.into_iter().map(|chunk| {
            let begin = chunk * bytes;
            let (from, to) = (offset.max(begin) - begin, end.min(begin + bytes) - begin);
            (chunk, self.mask(&(from as usize..to as usize)))
        });
        kept.forget(masks, &self.space, self.chunk_bytes);
        kept.check_in_debug(self.chunk_bytes);
        Ok(())
    }
}
