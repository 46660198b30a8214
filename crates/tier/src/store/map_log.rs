//! The map log: map records kept in the store's file, until the metadata pages contain them.
//!
//! A checkpoint need not write the map pages that changed, nor the bitmap pages: it appends the map
//! records since the last one to the map log, in the order of their LSNs, and then the store no
//! longer needs the database's log for them. A sweep (`sweep.rs`) carries their effects into the
//! metadata pages, group by group in a circle, and what is older than a full circle is dropped at
//! the front.
//!
//! Invariants:
//! * A record is in `fresh`, in a live block, or contained in every metadata page that it concerns.
//!   The database's log is needed from the first one in `fresh`.
//!   Where such a page cannot be read, in a carried frame of a live block instead (`carried.rs`).
//! * A live block is not overwritten. It ceases to be live when a totals page is durable of which
//!   the anchor leads past it, and that is written only after the sweep has gone full circle since
//!   the block was appended, every page durable.
//! * A block is written only after the database's log is durable past the records in it.
//!
//! Protected by the store's `state`; only the holder of `write_back` appends and drops.

use super::carried::CARRIED;
use super::geometry::Geometry;
use super::map_block::{self, Anchor, BLOCK_HEADER_BYTES, Block, Frame, Spot};
use crate::error::TierError;
use firndb_base::{DatabaseId, Lsn};
use firndb_log::Record;
use std::collections::VecDeque;

/// Most bytes of records appended at a time, unless one record is longer.
pub(crate) const BATCH_BYTES: usize = 256 << 10;

/// The share of the map log, as a divisor, that is kept for carried frames, and its least blocks.
const KEPT_SHARE: u64 = 8;
const KEPT_LEAST: u64 = 4;

/// How far the sweep has come: circles begun before this one, and the next group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub circle: u64,
    pub group: u64,
}

impl Position {
    /// The same place, one circle later.
    pub(crate) fn full_circle(self) -> Position {
        Position { circle: self.circle + 1, ..self }
    }
}

/// A block that recovery needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Live {
    pub spot: Spot,
    /// LSN of the last record that begins in it or before it.
    pub last: Lsn,
    /// Where the sweep was when it was appended.
    pub mark: Position,
}

/// Records to be appended as blocks.
#[derive(Debug)]
pub(crate) struct Batch {
    stream: Vec<u8>,
    head: Spot,
    anchor: Anchor,
    /// The numbers of the blocks to be written, and of the one after them.
    numbers: Vec<u64>,
    /// LSN of the last record.
    pub last: Lsn,
    /// Whether it has carried frames, and no record.
    is_carried: bool,
}

#[derive(Debug)]
pub(crate) struct MapLog {
    /// Frames of the records that are in no block yet.
    fresh: Vec<u8>,
    /// LSN of the newest record.
    last: Lsn,
    /// Where the next block goes.
    head: Spot,
    live: VecDeque<Live>,
    anchor: Anchor,
    /// Whether blocks and metadata pages that were read at opening may not be durable: a process
    /// that ended without a sync had written them.
    pub unsynced: bool,
    /// Why the block at which reading ended could not be read.
    unread: Option<TierError>,
}

/// Of `blocks` blocks, those that only carried frames may take.
fn kept_blocks(blocks: u64) -> u64 {
    (blocks / KEPT_SHARE).max(KEPT_LEAST)
}

/// Bytes of the stream in a block.
pub(crate) fn block_bytes(geometry: &Geometry) -> usize {
    geometry.meta_bytes - BLOCK_HEADER_BYTES
}

impl MapLog {
    /// The log as it was found: nothing is known yet of records after it.
    pub(crate) fn found(
        anchor: Anchor,
        live: VecDeque<Live>,
        head: Spot,
        unread: Option<TierError>,
    ) -> MapLog {
        let last = live.back().map_or(anchor.covered, |live| live.last.max(anchor.covered));
        MapLog { fresh: Vec::new(), last, head, live, anchor, unsynced: true, unread }
    }

    /// LSN of the newest record that is in the log or will be.
    pub(crate) fn last(&self) -> Lsn {
        self.last
    }
    /// The error of the read that ended the log: if a record is missing, it may be there.
    pub(crate) fn unread(&self) -> Option<TierError> {
        self.unread.clone()
    }
    /// Bytes of records that are in no block yet.
    pub(crate) fn fresh_bytes(&self) -> usize {
        self.fresh.len()
    }
    /// Blocks in use.
    pub(crate) fn live(&self) -> u64 {
        self.live.len() as u64
    }
    /// The furthest mark of the blocks in use.
    pub(crate) fn newest_mark(&self) -> Option<Position> {
        self.live.iter().map(|live| live.mark).max()
    }
    /// Where the blocks in use lie.
    pub(crate) fn spots(&self) -> Vec<Spot> {
        self.live.iter().map(|live| live.spot).collect()
    }
    /// The LSN from which the database's log is needed.
    pub(crate) fn needed_from(&self) -> Option<Lsn> {
        map_block::frame(&self.fresh).map(|first| first.lsn)
    }
    /// Whether a block from `first` on is live, or the next to be written.
    pub(crate) fn uses_from(&self, first: u64) -> bool {
        self.head.block >= first || self.live.iter().any(|live| live.spot.block >= first)
    }

    /// Takes a record that was applied.
    pub(crate) fn push(&mut self, lsn: Lsn, record: Record<'_>) {
        assert!(lsn > self.last, "map records come in order: {lsn:?} after {:?}", self.last);
        self.last = lsn;
        Frame { lsn, kind: record.kind.0, body: record.body }.write(&mut self.fresh);
    }

    /// The numbers of up to `most` free blocks from the head on, and of the one after them.
    fn free(&self, blocks: u64, most: usize) -> Vec<u64> {
        let first_live = self.live.front().map(|live| live.spot.block);
        let mut numbers = vec![self.head.block];
        while numbers.len() <= most {
            let at = numbers[numbers.len() - 1];
            if Some(at) == first_live || numbers.len() as u64 > blocks {
                break;
            }
            numbers.push(if at + 1 < blocks { at + 1 } else { 0 });
        }
        numbers
    }

    /// The next records to append, of which the file has space for: `None` if it has too little for
    /// the first, or there is none. Leaves blocks for what is carried on.
    pub(crate) fn next_batch(&self, geometry: &Geometry, groups: u64) -> Option<Batch> {
        let per_block = block_bytes(geometry);
        let blocks = geometry.blocks(groups);
        let left = blocks.saturating_sub(self.live() + kept_blocks(blocks)) as usize;
        let mut numbers = self.free(blocks, self.fresh.len().div_ceil(per_block).min(left));
        let space = (numbers.len() - 1) * per_block;
        let (mut taken, mut last) = (0, None);
        while let Some(frame) = map_block::frame(&self.fresh[taken..])
            && taken + frame.bytes() <= space
            && (taken == 0 || taken + frame.bytes() <= BATCH_BYTES)
        {
            taken += frame.bytes();
            last = Some(frame.lsn);
        }
        numbers.truncate(taken.div_ceil(per_block) + 1);
        let stream = self.fresh[..taken].to_vec();
        let (head, anchor) = (self.head, self.anchor);
        Some(Batch { stream, head, anchor, numbers, last: last?, is_carried: false })
    }

    /// Carried frames to append; `None` if the file has too little space.
    pub(crate) fn carrying(&self, geometry: &Geometry, groups: u64, frames: Vec<u8>) -> Option<Batch> {
        let needed = frames.len().div_ceil(block_bytes(geometry));
        let numbers = self.free(geometry.blocks(groups), needed);
        let fits = numbers.len() == needed + 1;
        let (head, anchor, last) = (self.head, self.anchor, self.last);
        fits.then_some(Batch { stream: frames, head, anchor, numbers, last, is_carried: true })
    }

    /// Notes that a batch is durable.
    pub(crate) fn appended(&mut self, batch: &Batch, spots: &[(Spot, Lsn)], head: Spot, mark: Position) {
        if !batch.is_carried {
            self.fresh.drain(..batch.stream.len());
        }
        let before = self.live.back().map_or(self.anchor.covered, |live| live.last);
        let live = spots.iter().map(|(spot, last)| Live { spot: *spot, last: before.max(*last), mark });
        self.live.extend(live);
        self.head = head;
    }

    /// The anchor that is durable.
    pub(crate) fn anchor(&self) -> Anchor {
        self.anchor
    }
    /// The anchor without the blocks that the sweep has gone full circle since, if it has come to
    /// `swept`.
    pub(crate) fn anchor_at(&self, swept: Position) -> Anchor {
        let kept = self.live.iter().find(|live| live.mark.full_circle() > swept);
        let dropped = self.live.iter().take_while(|live| live.mark.full_circle() <= swept).last();
        Anchor {
            first: kept.map_or(self.head, |live| live.spot),
            covered: dropped.map_or(self.anchor.covered, |live| live.last.max(self.anchor.covered)),
        }
    }
    /// The anchor if the sweep has come to `swept`, and metadata pages contain every record up to
    /// `covered`, or it is carried on.
    pub(crate) fn anchor_of_all(&self, swept: Position, covered: Lsn) -> Anchor {
        Anchor { first: self.anchor_at(swept).first, covered }
    }
    /// Notes that an anchor is durable.
    pub(crate) fn anchored(&mut self, anchor: Anchor) {
        self.anchor = anchor;
        while self.live.front().is_some_and(|live| live.spot != anchor.first) {
            self.live.pop_front();
        }
        // A record that the pages contain needs no block.
        let mut contained = 0;
        while let Some(frame) = map_block::frame(&self.fresh[contained..])
            && frame.lsn <= anchor.covered
        {
            contained += frame.bytes();
        }
        self.fresh.drain(..contained);
    }
    /// Continues an empty log at block 0.
    pub(crate) fn begin_at_zero(&mut self) {
        assert!(self.live.is_empty(), "only an empty log moves");
        self.head.block = 0;
    }
}

impl Batch {
    /// Blocks to be written.
    pub(crate) fn blocks(&self) -> &[u64] {
        &self.numbers[..self.numbers.len() - 1]
    }

    /// Encodes the blocks into `out`; returns their spots, each with the LSN of the last record
    /// that begins in it or before, and the head after them.
    pub(crate) fn encode(
        &self,
        geometry: &Geometry,
        database: DatabaseId,
        out: &mut [u8],
    ) -> (Vec<(Spot, Lsn)>, Spot) {
        let per_block = block_bytes(geometry);
        let (mut spots, mut spot) = (Vec::with_capacity(self.blocks().len()), self.head);
        let (mut frame_at, mut last) = (0, Lsn::ZERO);
        let parts = self.stream.chunks(per_block).zip(out.chunks_mut(geometry.meta_bytes));
        for (index, (bytes, out)) in parts.enumerate() {
            let (start, end) = (index * per_block, index * per_block + bytes.len());
            let first_frame = frame_at.min(end) - start;
            while frame_at < end {
                let frame = map_block::frame(&self.stream[frame_at..]).expect("the stream has whole frames");
                frame_at += frame.bytes();
                last = if frame.kind == CARRIED { last } else { frame.lsn };
            }
            let (next, anchor) = (self.numbers[index + 1], self.anchor);
            let block = Block { spot, next, anchor, checksum: 0, bytes, first_frame };
            let checksum = map_block::encode(database, &block, out);
            spots.push((spot, last));
            spot = Block { checksum, ..block }.next_spot();
        }
        assert_eq!(spots.len(), self.blocks().len(), "a block for each part of the stream");
        (spots, spot)
    }
}
