//! Runs that were written, and where their blocks lie.

use crate::memory::Reservation;
use crate::space::{EXTENT_BYTES, Extent, SpillSpace};
use firndb_base::sync::Arc;

/// Rows on the spill device. Its space is given back when it is dropped, and all that were written
/// beside it.
#[derive(Debug)]
pub struct Run {
    pub(crate) space: Arc<SpillSpace>,
    pub(crate) id: u64,
    pub(crate) stream: Arc<Stream>,
    /// Its blocks, in order.
    pub(crate) pieces: Vec<Piece>,
    pub(crate) blocks: u64,
    /// Of one row.
    pub(crate) longest: usize,
    pub(crate) rows: u64,
    /// Of the list of pieces.
    pub(crate) _reserved: Reservation,
}

/// Extents that blocks were written to one after the other.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) extents: Vec<Extent>,
    pub(crate) block_bytes: usize,
}

/// Blocks of a stream that follow each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) first: u32,
    pub(crate) blocks: u32,
}

/// The next block of a run to be read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor {
    piece: usize,
    within: u32,
}

impl Run {
    /// How many rows it has.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }
    /// Bytes of the longest row.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Where the next blocks lie, at most this many, that are adjacent; the cursor goes past them.
    pub(crate) fn next_adjacent(&self, cursor: &mut Cursor, most: usize) -> Option<(u64, usize)> {
        let piece = self.pieces.get(cursor.piece)?;
        let (offset, blocks) = self
            .stream
            .adjacent(piece.first + cursor.within, (piece.blocks - cursor.within).min(most as u32));
        if blocks == 0 {
            return None;
        }
        cursor.within += blocks;
        if cursor.within == piece.blocks {
            *cursor = Cursor { piece: cursor.piece + 1, within: 0 };
        }
        Some((offset, blocks as usize))
    }
}

impl Stream {
    pub(crate) fn blocks_of_extent(&self) -> u32 {
        (EXTENT_BYTES / self.block_bytes) as u32
    }

    /// Where blocks from `first` on lie, and how many of `blocks` before the extent ends.
    pub(crate) fn adjacent(&self, first: u32, blocks: u32) -> (u64, u32) {
        let (extent, within) = (first / self.blocks_of_extent(), first % self.blocks_of_extent());
        let offset = self.extents[extent as usize].offset() + u64::from(within) * self.block_bytes as u64;
        (offset, blocks.min(self.blocks_of_extent() - within))
    }
}
