//! A window: the blocks over which a [`super::merge::Cursor`] moves without searching.

use crate::block::PAYLOAD;
use firndb_base::Lsn;

/// Consecutive blocks of the current epoch: either one, or full ones.
#[derive(Clone, Copy)]
pub(crate) struct Window {
    /// LSN of the first block.
    pub first: Lsn,
    pub blocks: usize,
    /// Fill of the last block.
    pub fill: usize,
    pub place: Place,
}

/// Where the payload of a window's first block is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the cursor.
    Own,
    /// In the current chunk of this reader, from the block at this offset on.
    Chunk { reader: usize, at: usize },
}

impl Window {
    /// A single block.
    pub fn block(first: Lsn, fill: usize, place: Place) -> Window {
        Window { first, blocks: 1, fill, place }
    }

    pub fn covers(&self, block: Lsn) -> bool {
        block >= self.first && block.since(self.first) < (self.blocks * PAYLOAD) as u64
    }

    pub fn is_in_chunk_of(&self, i: usize) -> bool {
        matches!(self.place, Place::Chunk { reader, .. } if reader == i)
    }

    /// First LSN after its log.
    pub fn end(&self) -> Lsn {
        self.first.advance(((self.blocks - 1) * PAYLOAD + self.fill) as u64)
    }
}
