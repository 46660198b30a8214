//! Reading the map log when the store is opened.
//!
//! The log is a chain: each block names the next, and a block counts only if it is the one that the
//! block before leads to. The chain ends at the first that does not. Whether that is the end of
//! what was written, or damage, the superblock tells: it says up to which LSN the metadata was
//! synced ([`super::Store::expect_metadata`]).
//!
//! Memory: a few requests and one record; the records go into overlay and deferred bits, which the
//! sweep bounds.

use super::carried::CARRIED;
use super::geometry::Geometry;
use super::map_block::{self, Anchor, Block, Frame};
use super::map_log::{Live, MapLog, Position};
use crate::error::{TierError, TierErrorKind};
use firndb_base::{DatabaseId, Lsn};
use firndb_device::{AlignedBuf, Device, Io, IoOp};
use std::collections::VecDeque;

/// Adjacent blocks of this number of groups are read at once, at most.
const GROUPS_AT_ONCE: u64 = 16;

/// Reads blocks in the order of their numbers, ahead of the one that is wanted.
pub(crate) struct Blocks<'a> {
    pub device: &'a dyn Device,
    pub geometry: &'a Geometry,
    pub groups: u64,
    /// Runs of adjacent blocks that were read: the first one's number, and the bytes.
    window: Vec<(u64, AlignedBuf)>,
    /// Runs to read next time.
    ahead: u64,
    /// Blocks of the window that cannot be read, and why.
    unreadable: Vec<(u64, TierError)>,
}

impl<'a> Blocks<'a> {
    pub(crate) fn new(device: &'a dyn Device, geometry: &'a Geometry, groups: u64) -> Blocks<'a> {
        Blocks { device, geometry, groups, window: Vec::new(), ahead: 1, unreadable: Vec::new() }
    }

    /// The bytes of a block; `None` if the file has no such block.
    fn get(&mut self, number: u64) -> Option<&[u8]> {
        let meta_bytes = self.geometry.meta_bytes;
        let blocks_of = |buf: &AlignedBuf| (buf.len() / meta_bytes) as u64;
        let holds = |(first, buf): &(u64, AlignedBuf)| (*first..first + blocks_of(buf)).contains(&number);
        if number >= self.geometry.blocks(self.groups) {
            return None;
        }
        if !self.window.iter().any(holds) {
            self.read(number);
        }
        let (first, buf) = self.window.iter().find(|run| holds(run)).expect("it was just read");
        let at = (number - first) as usize * meta_bytes;
        Some(&buf[at..at + meta_bytes])
    }

    /// Fills the window, beginning with `number`.
    fn read(&mut self, number: u64) {
        self.window.clear();
        self.unreadable.clear();
        let mut at = number;
        while at < self.geometry.blocks(self.groups) && (self.window.len() as u64) < self.ahead {
            let end = self.geometry.adjacent_blocks_end(at);
            self.window.push((at, AlignedBuf::zeroed((end - at) as usize * self.geometry.meta_bytes)));
            at = end;
        }
        self.ahead = (2 * self.ahead).min(GROUPS_AT_ONCE);
        let mut batch: Vec<Io<'_>> = self
            .window
            .iter_mut()
            .map(|(first, buf)| Io {
                offset: self.geometry.block_offset(*first),
                op: IoOp::Read(buf),
                outcome: Ok(()),
            })
            .collect();
        self.device.submit(&mut batch);
        let failed: Vec<bool> = batch.into_iter().map(|io| io.outcome.is_err()).collect();
        for ((first, buf), _) in self.window.iter_mut().zip(failed).filter(|(_, failed)| *failed) {
            for (number, out) in (*first..).zip(buf.chunks_mut(self.geometry.meta_bytes)) {
                let mut block = AlignedBuf::zeroed(out.len());
                // What cannot be read is no block: whether one is missing, the superblock tells.
                match self.device.read(self.geometry.block_offset(number), &mut block) {
                    Ok(()) => out.copy_from_slice(&block),
                    Err(error) => {
                        out.fill(0);
                        self.unreadable.push((number, TierError::of_read(error)));
                    }
                }
            }
        }
    }

    /// The newest anchor that a block of the whole file knows.
    pub(crate) fn newest_anchor(&mut self, database: DatabaseId) -> Option<Anchor> {
        let mut newest: Option<Anchor> = None;
        for number in 0..self.geometry.blocks(self.groups) {
            let Some(bytes) = self.get(number) else { break };
            let block = map_block::decode(database, bytes).filter(|block| block.spot.block == number);
            if let Some(block) = block
                && newest.is_none_or(|newest| newest.first.sequence < block.anchor.first.sequence)
            {
                newest = Some(block.anchor);
            }
        }
        newest
    }
}

/// Reads the log from `anchor` on, passing each record to `redo`.
pub(crate) fn replay(
    blocks: &mut Blocks<'_>,
    database: DatabaseId,
    anchor: Anchor,
    redo: &mut dyn FnMut(Frame<'_>) -> Result<(), TierError>,
) -> Result<MapLog, TierError> {
    let (mut live, mut head) = (VecDeque::new(), anchor.first);
    // The beginning of a record of which the rest is in the next blocks.
    let mut begun: Vec<u8> = Vec::new();
    let mut last = anchor.covered;
    let most = blocks.geometry.blocks(blocks.groups);
    while live.len() as u64 <= most {
        let Some(bytes) = blocks.get(head.block) else { break };
        let Some(block) = map_block::decode(database, bytes).filter(|block| block.spot == head) else {
            break;
        };
        head = block.next_spot();
        last = pass(&block, &mut begun, last, redo)?;
        live.push_back(Live { spot: block.spot, last, mark: Position::default() });
    }
    if head.block >= most {
        return Err(TierError::new(
            TierErrorKind::Damaged,
            format!(
                "the map log goes on at block {}, and the store has {most}: run a check, then restore the database \
                 from a backup",
                head.block
            ),
        ));
    }
    let unread = blocks.unreadable.iter().find(|(number, _)| *number == head.block);
    let unread = unread.map(|(_, error)| error.clone());
    Ok(MapLog::found(anchor, live, head, unread))
}

/// Passes the records that end in a block; returns the LSN of the last one.
fn pass(
    block: &Block<'_>,
    begun: &mut Vec<u8>,
    mut last: Lsn,
    redo: &mut dyn FnMut(Frame<'_>) -> Result<(), TierError>,
) -> Result<Lsn, TierError> {
    let (rest, mut bytes) = block.bytes.split_at(block.first_frame);
    let mut take = |frame: Frame<'_>| {
        if frame.kind == CARRIED {
            return redo(frame);
        }
        if frame.lsn > last {
            last = frame.lsn;
            redo(frame)?;
        }
        Ok(())
    };
    // What was begun before the first block is contained in the pages. What a crash cut short is in
    // the database's log.
    if !begun.is_empty() {
        begun.extend_from_slice(rest);
        if let Some(frame) = map_block::frame(begun) {
            take(frame)?;
            begun.clear();
        } else if !bytes.is_empty() {
            begun.clear();
        }
    }
    while let Some(frame) = map_block::frame(bytes) {
        take(frame)?;
        bytes = &bytes[frame.bytes()..];
    }
    if !bytes.is_empty() {
        begun.clear();
        begun.extend_from_slice(bytes);
    }
    Ok(last)
}
