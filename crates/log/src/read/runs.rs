//! Runs of blocks in a chunk, found by the thread that read it.
//!
//! A run is a proof that its blocks were checked: type, owner, checksum, epoch. What lies in no run
//! is a section header, no block, or no log; [`super::reader`] examines it block by block.

use crate::block::{BLOCK, BlockHeader, PAYLOAD};
use crate::read::epochs::{EpochTable, Verdict};
use crate::read::member::Member;
use firndb_base::Lsn;

/// Blocks of log that lie one behind the other, in a chunk and in the log: all of one epoch, all
/// full but perhaps the last one. At least one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Offset of the first block in the chunk.
    pub at: usize,
    pub blocks: usize,
    /// LSN of the first block.
    pub lsn: Lsn,
    /// Fill of the last block.
    last_fill: usize,
    /// Index of the epoch in the table.
    pub epoch: usize,
    /// The highest LSN that a block says is durable.
    pub claim: Lsn,
}

impl Run {
    /// The run of one block.
    pub fn of(at: usize, block: &BlockHeader, epoch: usize) -> Run {
        let last_fill = usize::from(block.fill);
        Run { at, blocks: 1, lsn: block.lsn, last_fill, epoch, claim: block.durable }
    }

    /// The runs of a chunk that begins at linear position `start`, by ascending offset.
    pub fn all(member: &Member, epochs: &EpochTable, start: u64, chunk: &[u8]) -> Vec<Run> {
        let (section, unit) = (member.geometry.section_bytes(), member.geometry.unit);
        let mut within = start % section;
        let mut runs: Vec<Run> = Vec::new();
        for (at, bytes) in (0..).step_by(BLOCK).zip(chunk.chunks_exact(BLOCK)) {
            let is_header = within < unit;
            within += BLOCK as u64;
            if within == section {
                within = 0;
            }
            if is_header {
                continue;
            }
            let Some(block) = BlockHeader::decode(member.owner, bytes) else { continue };
            let Verdict::Log(epoch) = epochs.judge(&block) else { continue };
            match runs.last_mut() {
                Some(run) if run.goes_on_with(at, &block, epoch) => run.push(&block),
                _ => runs.push(Run::of(at, &block, epoch)),
            }
        }
        runs
    }

    fn goes_on_with(&self, at: usize, block: &BlockHeader, epoch: usize) -> bool {
        let follows = at == self.at + self.blocks * BLOCK && block.lsn == self.end();
        follows && epoch == self.epoch && self.last_fill == PAYLOAD
    }

    fn push(&mut self, block: &BlockHeader) {
        self.blocks += 1;
        self.last_fill = usize::from(block.fill);
        self.claim = self.claim.max(block.durable);
    }

    /// LSN of the last block.
    pub fn last(&self) -> Lsn {
        self.lsn.advance(((self.blocks - 1) * PAYLOAD) as u64)
    }

    /// First LSN after the run's log; that of its last block where that holds none.
    pub fn end(&self) -> Lsn {
        self.last().advance(self.last_fill as u64)
    }

    /// Fill of the first block.
    pub fn fill(&self) -> usize {
        if self.blocks > 1 { PAYLOAD } else { self.last_fill }
    }

    /// Number of full blocks.
    pub fn full_blocks(&self) -> usize {
        if self.last_fill == PAYLOAD { self.blocks } else { self.blocks - 1 }
    }

    /// The run without its first `blocks` blocks; `None` if no block is left.
    pub fn without(mut self, blocks: usize) -> Option<Run> {
        assert!(blocks <= self.blocks, "a run of {} blocks has no {blocks}", self.blocks);
        self.at += blocks * BLOCK;
        self.lsn = self.lsn.advance((blocks * PAYLOAD) as u64);
        self.blocks -= blocks;
        (self.blocks > 0).then_some(self)
    }

    /// The number of blocks below `lsn`, the first LSN of a block.
    pub fn blocks_below(&self, lsn: Lsn) -> usize {
        (lsn.since(self.lsn) / PAYLOAD as u64).min(self.blocks as u64) as usize
    }
}
