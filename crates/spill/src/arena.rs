//! Rows kept in memory, in chunks, so that none is copied when more come.

use crate::error::SpillError;
use crate::memory::{Memory, Reservation};
use firndb_base::sync::Arc;

/// Where a row lies. Places ascend with the order in which rows came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    chunk: u32,
    start: u32,
    len: u32,
}

/// Rows by their places.
#[derive(Debug)]
pub struct Arena {
    chunks: Vec<Vec<u8>>,
    chunk_bytes: usize,
    reserved: Reservation,
}

impl Arena {
    const CHUNK_BYTES: std::ops::RangeInclusive<usize> = 1 << 10..=256 << 10;

    /// For an operator that keeps `share` bytes in memory.
    pub fn new(memory: &Arc<Memory>, share: usize) -> Arena {
        let chunk_bytes = Arena::chunk_bytes(share);
        Arena { chunks: Vec::new(), chunk_bytes, reserved: Reservation::none(memory) }
    }

    /// Bytes of a chunk, for such an operator.
    #[must_use]
    pub fn chunk_bytes(share: usize) -> usize {
        (share / 16).clamp(*Arena::CHUNK_BYTES.start(), *Arena::CHUNK_BYTES.end())
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        self.reserved.bytes()
    }

    /// Bytes of memory that it would take with another row of this length.
    pub fn bytes_with(&self, len: usize) -> usize {
        self.bytes() + if self.fits(len) { 0 } else { len.max(self.chunk_bytes) }
    }

    /// A row that is kept.
    #[must_use]
    pub fn get(&self, place: Place) -> &[u8] {
        &self.chunks[place.chunk as usize][place.start as usize..][..place.len as usize]
    }

    /// Keeps a row, given in parts.
    pub fn push(&mut self, parts: &[&[u8]]) -> Result<Place, SpillError> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let stored = u32::try_from(len).map_err(|_| SpillError::bad_argument("a row has 4 GiB"))?;
        if !self.fits(len) {
            let bytes = len.max(self.chunk_bytes);
            self.reserved.set(self.reserved.bytes() + bytes)?;
            self.chunks.push(Vec::with_capacity(bytes));
        }
        let number = self.chunks.len() - 1;
        let chunk = &mut self.chunks[number];
        let start = chunk.len() as u32;
        parts.iter().for_each(|part| chunk.extend_from_slice(part));
        Ok(Place { chunk: number as u32, start, len: stored })
    }

    /// Forgets all rows, and gives their memory back.
    pub fn clear(&mut self) {
        self.chunks = Vec::new();
        self.reserved.set(0).expect("less than before");
    }

    fn fits(&self, len: usize) -> bool {
        self.chunks.last().is_some_and(|last| last.capacity() - last.len() >= len)
    }
}
