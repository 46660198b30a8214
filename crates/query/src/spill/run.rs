//! Runs that were written, and where their blocks lie.

use super::space::{EXTENT_BYTES, Extent, SpillSpace};
use crate::memory::Reservation;
use firndb_base::sync::Arc;

/// Rows on the spill device. Its space is given back when it is dropped, and all that were written
/// beside it.
#[derive(Debug)]
pub(crate) struct Run {
    pub(super) space: Arc<SpillSpace>,
    pub(super) id: u64,
    pub(super) stream: Arc<Stream>,
    /// Its blocks, in order.
    pub(super) pieces: Vec<Piece>,
    pub(super) blocks: u64,
    /// Of one row.
    pub(super) longest: usize,
    pub(super) rows: u64,
    /// Of the list of pieces.
    pub(super) _reserved: Reservation,
}

/// Extents that blocks were written to one after the other.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) extents: Vec<Extent>,
    pub(super) block_bytes: usize,
}

/// Blocks of a stream that follow each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) first: u32,
    pub(super) blocks: u32,
}

/// The next block of a run to be read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor {
    piece: usize,
    within: u32,
}

impl Run {
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }
    /// Bytes of the longest row.
    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    /// Where the next blocks lie, at most this many, that are adjacent; the cursor goes past them.
    pub(super) fn next_adjacent(&self, cursor: &mut Cursor, most: usize) -> Option<(u64, usize)> {
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
    pub(super) fn blocks_of_extent(&self) -> u32 {
        (EXTENT_BYTES / self.block_bytes) as u32
    }

    /// Where blocks from `first` on lie, and how many of `blocks` before the extent ends.
    pub(super) fn adjacent(&self, first: u32, blocks: u32) -> (u64, u32) {
        let (extent, within) = (first / self.blocks_of_extent(), first % self.blocks_of_extent());
        let offset = self.extents[extent as usize].offset() + u64::from(within) * self.block_bytes as u64;
        (offset, blocks.min(self.blocks_of_extent() - within))
    }
}
