//! Reading one stream's blocks in ring order, which is LSN order.
//!
//! A stream is read in chunks. Threads of its own (`ahead.rs`) read and check them ahead if threads
//! are allowed and there is more than one chunk. Otherwise all streams are read in parallel
//! whenever one of them has nothing left, each as far as it has spare buffers; with several chunks,
//! the others have used up most of theirs by then, too.
//!
//! Blocks are passed by runs that were checked where the chunk was read. All other blocks, and runs
//! that begin below the last LSN (they are left over from an earlier lap of the ring), are examined
//! one by one. Nor is a block taken that belongs to a later lap than its section
//! ([`Member::is_of_later_lap`]): all that follows it on the stream would look left over.
//!
//! Memory: the chunks of a [`ReadAhead`], and 56 bytes for each run in them.

use crate::block::{BLOCK, BlockHeader};
use crate::error::LogError;
use crate::read::ahead::{Ahead, Chunk, Stream};
use crate::read::doubts::{Doubt, Doubts};
use crate::read::epochs::{EpochTable, Verdict};
use crate::read::member::Member;
use crate::read::read_ahead::ReadAhead;
use crate::read::runs::Run;
use firndb_base::sync::Arc;
use firndb_base::{Epoch, Lsn};
use firndb_device::{AlignedBuf, Device};
use std::collections::VecDeque;
use std::ops::Range;

/// The next blocks as far as they are known without reading more.
pub(crate) enum Peek {
    Run(Run),
    /// The next chunk has to be loaded first.
    Starved,
    End,
}

/// Facts gathered from all blocks passed.
#[derive(Clone, Debug)]
pub(crate) struct Sightings {
    /// By epoch: the highest LSN that a block says is durable.
    pub claims: Vec<Lsn>,
    /// First LSN after all log that the blocks carry.
    pub max_end: Lsn,
    /// Linear position of the last block that is log.
    pub last_block: Option<u64>,
    /// An epoch that the superblock does not know.
    pub unknown: Option<Epoch>,
}

/// Reads one stream.
pub(crate) struct Reader {
    stream: Stream,
    /// What is left to load, or to take from the threads that read ahead.
    rest: Range<u64>,
    threads: Option<Ahead>,
    /// The error of these threads.
    failed: Option<LogError>,
    current: Chunk,
    /// Chunks read and not examined yet, in order.
    ahead: VecDeque<Chunk>,
    spare: Vec<AlignedBuf>,
    loaded: u64,
    /// Next byte of the current chunk to examine.
    pos: usize,
    /// Index of the first run of the current chunk at or behind `pos`.
    run: usize,
    /// LSN of the last block accepted: blocks behind it with lower LSNs are left over from earlier
    /// laps of the ring.
    running: Lsn,
    /// What is not popped yet of the run at which the reader stands.
    head: Option<Run>,
    abandoned: bool,
    doubts: Doubts,
    pub seen: Sightings,
}

impl Reader {
    /// A reader of `range`, with threads of its own if these are allowed and it pays.
    pub fn new(member: Arc<Member>, epochs: Arc<EpochTable>, range: Range<u64>, how: ReadAhead) -> Reader {
        let len = range.end - range.start;
        // For a short log, no more than it takes.
        let size = (how.chunk_bytes as u64).min(len.max(1)).next_multiple_of(member.geometry.unit) as usize;
        let chunks = (len.div_ceil(size as u64) as usize + 1).clamp(2, how.chunks);
        let seen = Sightings {
            claims: vec![Lsn::ZERO; epochs.ranges().len()],
            max_end: Lsn::ZERO,
            last_block: None,
            unknown: None,
        };
        let mut spare: Vec<AlignedBuf> = (1..chunks).map(|_| AlignedBuf::zeroed(size)).collect();
        let stream = Stream { member, epochs };
        let mut threads = None;
        if how.threads && len > size as u64 {
            match Ahead::start(stream.clone(), range.clone(), std::mem::take(&mut spare)) {
                Ok(ahead) => threads = Some(ahead),
                Err(returned) => spare = returned,
            }
        }
        Reader {
            current: Chunk::empty(AlignedBuf::zeroed(size), range.start),
            ahead: VecDeque::with_capacity(chunks),
            spare,
            rest: range,
            threads,
            failed: None,
            loaded: 0,
            pos: 0,
            run: 0,
            running: Lsn::ZERO,
            head: None,
            abandoned: false,
            doubts: Doubts::new(),
            seen,
            stream,
        }
    }

    pub fn device(&self) -> &Arc<dyn Device> {
        &self.stream.member.device
    }

    pub fn unit_bytes(&self) -> u64 {
        self.stream.member.geometry.unit
    }

    /// Id of the member whose stream it is.
    pub fn member(&self) -> u32 {
        self.stream.member.owner.member
    }

    /// Stops reading: the device has failed.
    pub fn abandon(&mut self) {
        self.rest.end = self.rest.start;
        (self.threads, self.failed) = (None, None);
        self.ahead.clear();
        self.spare.clear();
        (self.current.len, self.head) = (0, None);
        self.current.runs.clear();
        (self.pos, self.run, self.abandoned) = (0, 0, true);
        self.doubts = Doubts::new();
    }

    /// Places where the stream may hold the block of `lsn` although it was not found. For a stream
    /// that has been read.
    pub fn doubts_at(&mut self, lsn: Lsn) -> Vec<Doubt> {
        self.doubts.at(lsn).collect()
    }

    /// Reads the unit at `linear` once more. Returns whether it now holds log at or after `from`.
    pub fn reread_unit(&self, linear: u64, from: Lsn) -> Result<bool, LogError> {
        let mut unit = AlignedBuf::zeroed(self.stream.member.geometry.unit as usize);
        self.stream.member.sections.medium().read(self.offset(linear), &mut unit)?;
        let member = &self.stream.member;
        let mut blocks =
            unit.chunks_exact(BLOCK).filter_map(|block| BlockHeader::decode(member.owner, block));
        Ok(blocks.any(|block| {
            matches!(self.stream.epochs.judge(&block), Verdict::Log(_))
                && block.lsn >= from
                && !member.is_of_later_lap(linear, block.lsn)
        }))
    }

    /// Offset on the device of a linear position.
    pub fn offset(&self, linear: u64) -> u64 {
        self.stream.member.geometry.offset(linear)
    }

    pub fn is_abandoned(&self) -> bool {
        self.abandoned
    }

    /// Bytes not loaded yet.
    pub fn left(&self) -> u64 {
        self.rest.end - self.rest.start
    }

    /// Bytes loaded.
    pub fn loaded(&self) -> u64 {
        self.loaded
    }

    /// Whether `load` would read something, or return the error of a thread that read.
    pub fn can_load(&self) -> bool {
        self.failed.is_some() || !self.spare.is_empty() && self.left() > 0
    }

    /// Reads ahead, as far as there are spare buffers.
    pub fn load(&mut self) -> Result<(), LogError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        while self.can_load() {
            let Some(buf) = self.spare.pop() else { return Ok(()) };
            let len = Chunk::part(&self.stream, &self.rest, buf.len());
            let chunk = Chunk::read(&self.stream, self.rest.start, len, buf)?;
            self.account_for(&chunk);
            self.ahead.push_back(chunk);
        }
        Ok(())
    }

    fn account_for(&mut self, chunk: &Chunk) {
        assert_eq!(chunk.start, self.rest.start, "a stream is read in order");
        self.rest.start += chunk.len as u64;
        self.loaded += chunk.len as u64;
    }

    /// The next blocks that are log. May leave the current chunk, unless the reader has a head.
    pub fn peek(&mut self) -> Peek {
        loop {
            if let Some(run) = self.head {
                return Peek::Run(run);
            }
            if self.pos + BLOCK <= self.current.len {
                self.examine();
                continue;
            }
            let Some(next) = self.next_chunk() else {
                return if self.left() > 0 { Peek::Starved } else { Peek::End };
            };
            let used = std::mem::replace(&mut self.current, next);
            (self.pos, self.run) = (0, 0);
            match &self.threads {
                Some(threads) => threads.return_buffer(used.buf),
                None => self.spare.push(used.buf),
            }
        }
    }

    /// What `peek` returned and was not popped yet.
    pub fn head(&self) -> Option<Run> {
        self.head
    }

    /// The chunk after the current one, if it has been read or threads are reading it.
    fn next_chunk(&mut self) -> Option<Chunk> {
        if let (Some(threads), true) = (&self.threads, self.left() > 0 && self.failed.is_none()) {
            match threads.next(self.rest.start) {
                Ok(chunk) => {
                    self.account_for(&chunk);
                    return Some(chunk);
                }
                Err(error) => self.failed = Some(error),
            }
        }
        self.ahead.pop_front()
    }

    /// Examines a run, or else one block; skips a section's header.
    fn examine(&mut self) {
        if let Some(&run) = self.current.runs.get(self.run)
            && run.at == self.pos
        {
            self.run += 1;
            let linear = self.current.start + self.pos as u64;
            if run.lsn >= self.running && !self.stream.member.is_of_later_lap(linear, run.last()) {
                if linear.is_multiple_of(self.unit_bytes()) {
                    self.doubts.begin_unit(linear, false);
                }
                self.pos += run.blocks * BLOCK;
                self.accept(run);
                return;
            }
        }
        self.examine_block();
    }

    /// Stands at the blocks of `run`, which are log.
    fn accept(&mut self, run: Run) {
        self.running = run.last();
        self.doubts.saw_log(run.lsn, run.last());
        self.seen.claims[run.epoch] = self.seen.claims[run.epoch].max(run.claim);
        self.seen.max_end = self.seen.max_end.max(run.end());
        let last = run.at + (run.blocks - 1) * BLOCK;
        self.seen.last_block = Some(self.current.start + last as u64);
        self.head = Some(run);
    }

    fn examine_block(&mut self) {
        let geometry = &self.stream.member.geometry;
        let linear = self.current.start + self.pos as u64;
        let within = linear % geometry.section_bytes();
        if within < geometry.unit {
            if within == 0 {
                // Blocks in a section below its first LSN are left over from an earlier lap.
                let header = &self.current.buf[self.pos..self.pos + BLOCK];
                if let Some(first) = self.stream.member.sections.pass(linear, header) {
                    self.running = self.running.max(first);
                    self.doubts.begin_section(first);
                }
            }
            self.pos += BLOCK;
            return;
        }
        let at = self.pos;
        self.pos += BLOCK;
        if linear.is_multiple_of(geometry.unit) {
            self.doubts.begin_unit(linear, self.current.is_unreadable(at));
        }
        let Some(block) = BlockHeader::decode(self.stream.member.owner, &self.current.buf[at..at + BLOCK])
        else {
            return;
        };
        let of_this_lap = block.lsn >= self.running && !self.stream.member.is_of_later_lap(linear, block.lsn);
        if of_this_lap {
            self.doubts.saw_written();
        }
        match self.stream.epochs.judge(&block) {
            Verdict::Log(epoch) if of_this_lap => {
                self.accept(Run::of(at, &block, epoch));
            }
            Verdict::Claim(epoch) => {
                if of_this_lap {
                    self.doubts.saw_log(block.lsn, block.lsn);
                }
                self.seen.claims[epoch] = self.seen.claims[epoch].max(block.durable);
            }
            Verdict::Unknown => self.seen.unknown = self.seen.unknown.max(Some(block.epoch)),
            Verdict::Log(_) | Verdict::Old => {}
        }
    }

    /// `len` bytes of the current chunk from an offset on: of a block that `peek` returned, for as
    /// long as the chunk is not left.
    pub fn bytes(&self, at: usize, len: usize) -> &[u8] {
        &self.current.buf[at..at + len]
    }

    /// Moves past the first `blocks` blocks.
    pub fn pop(&mut self, blocks: usize) {
        self.head = self.head.and_then(|run| run.without(blocks));
    }
}

#[cfg(test)]
mod tests;
