//! Reading one device's blocks in ring order, which is LSN order.
//!
//! Memory: [`CHUNKS`] chunks of [`CHUNK`] bytes, 1 MiB. A thread of its own ([`crate::ahead`])
//! reads each device ahead, if threads are allowed and there is more to read than fits in that
//! memory. Otherwise all devices are read in parallel whenever one of them has nothing left, each
//! as far as it has spare buffers; with several chunks, the others have used up most of theirs by
//! then, too.

use crate::block::{BLOCK, BlockHeader, HEADER, PAYLOAD};
use crate::error::LogError;
use crate::read::ahead::{Ahead, Chunk};
use crate::read::doubts::{Doubt, Doubts};
use crate::read::epochs::{EpochTable, Verdict};
use crate::read::member::Member;
use firndb_base::sync::Arc;
use firndb_base::{Epoch, Lsn};
use firndb_device::{AlignedBuf, Device};
use std::collections::VecDeque;
use std::ops::Range;

/// Bytes of one read.
pub(crate) const CHUNK: usize = 256 << 10;
/// Chunks of a reader.
pub(crate) const CHUNKS: usize = 4;

/// The block at which a reader stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub lsn: Lsn,
    pub fill: usize,
    /// Index of its epoch in the table.
    pub epoch: usize,
    /// Where its payload begins in the current chunk.
    at: usize,
}

/// The next block as far as it is known without reading more.
pub(crate) enum Peek {
    Block(Head),
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

/// Reads one device.
pub(crate) struct Reader {
    member: Arc<Member>,
    epochs: Arc<EpochTable>,
    /// What is left to load, or to take from the thread that reads ahead.
    rest: Range<u64>,
    thread: Option<Ahead>,
    /// The error of that thread.
    failed: Option<LogError>,
    current: Chunk,
    /// Chunks read and not examined yet, in order.
    ahead: VecDeque<Chunk>,
    spare: Vec<AlignedBuf>,
    loaded: u64,
    /// Next byte of the current chunk to examine.
    pos: usize,
    /// LSN of the last block accepted: blocks behind it with lower LSNs are left over from earlier
    /// laps of the ring.
    running: Lsn,
    head: Option<Head>,
    abandoned: bool,
    doubts: Doubts,
    pub seen: Sightings,
}

impl Reader {
    /// A reader of `range`, with a thread of its own if `threads` are allowed and it pays.
    pub fn new(member: Arc<Member>, epochs: Arc<EpochTable>, range: Range<u64>, threads: bool) -> Reader {
        let size =
            (CHUNK as u64).min(member.geometry.ring_bytes()).next_multiple_of(member.geometry.unit) as usize;
        // For a short log, no more than it takes.
        let chunks = ((range.end - range.start).div_ceil(size as u64) as usize + 1).clamp(2, CHUNKS);
        let seen = Sightings {
            claims: vec![Lsn::ZERO; epochs.ranges().len()],
            max_end: Lsn::ZERO,
            last_block: None,
            unknown: None,
        };
        let mut spare: Vec<AlignedBuf> = (1..chunks).map(|_| AlignedBuf::zeroed(size)).collect();
        let mut thread = None;
        if threads && range.end - range.start > (CHUNK * CHUNKS) as u64 {
            let medium = Arc::clone(member.sections.medium());
            match Ahead::start(medium, member.geometry, range.clone(), std::mem::take(&mut spare)) {
                Ok(ahead) => thread = Some(ahead),
                Err(returned) => spare = returned,
            }
        }
        Reader {
            current: Chunk::empty(AlignedBuf::zeroed(size), range.start),
            ahead: VecDeque::with_capacity(CHUNKS),
            spare,
            rest: range,
            thread,
            failed: None,
            loaded: 0,
            pos: 0,
            running: Lsn::ZERO,
            head: None,
            abandoned: false,
            doubts: Doubts::new(),
            seen,
            member,
            epochs,
        }
    }

    pub fn device(&self) -> &Arc<dyn Device> {
        &self.member.device
    }

    pub fn unit_bytes(&self) -> u64 {
        self.member.geometry.unit
    }

    /// Id of the member whose stream it is.
    pub fn member(&self) -> u32 {
        self.member.owner.member
    }

    /// Stops reading: the device has failed.
    pub fn abandon(&mut self) {
        self.rest.end = self.rest.start;
        (self.thread, self.failed) = (None, None);
        self.ahead.clear();
        self.spare.clear();
        (self.current.len, self.head) = (0, None);
        (self.pos, self.abandoned) = (0, true);
        self.doubts = Doubts::new();
    }

    /// Places where the stream may hold the block of `lsn` although it was not found. For a stream
    /// that has been read.
    pub fn doubts_at(&mut self, lsn: Lsn) -> Vec<Doubt> {
        self.doubts.at(lsn).collect()
    }

    /// Reads the unit at `linear` once more. Returns whether it now holds log at or after `from`.
    pub fn reread_unit(&self, linear: u64, from: Lsn) -> Result<bool, LogError> {
        let mut unit = AlignedBuf::zeroed(self.member.geometry.unit as usize);
        self.member.sections.medium().read(self.offset(linear), &mut unit)?;
        let blocks = unit.chunks_exact(BLOCK);
        let mut log = blocks.filter_map(|block| BlockHeader::decode(self.member.owner, block));
        Ok(log.any(|block| matches!(self.epochs.judge(&block), Verdict::Log(_)) && block.lsn >= from))
    }

    /// Offset on the device of a linear position.
    pub fn offset(&self, linear: u64) -> u64 {
        self.member.geometry.offset(linear)
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
            let chunk = Chunk::read(self.member.sections.medium(), &self.member.geometry, &self.rest, buf)?;
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

    /// The next block that is log.
    pub fn peek(&mut self) -> Peek {
        loop {
            if let Some(head) = self.head {
                return Peek::Block(head);
            }
            if self.pos + BLOCK <= self.current.len {
                self.examine();
                continue;
            }
            let Some(next) = self.next_chunk() else {
                return if self.left() > 0 { Peek::Starved } else { Peek::End };
            };
            let used = std::mem::replace(&mut self.current, next);
            self.pos = 0;
            match &self.thread {
                Some(thread) => thread.return_buffer(used.buf),
                None => self.spare.push(used.buf),
            }
        }
    }

    /// The chunk after the current one, if it has been read or a thread is reading it.
    fn next_chunk(&mut self) -> Option<Chunk> {
        if let (Some(thread), true) = (&self.thread, self.left() > 0 && self.failed.is_none()) {
            match thread.next() {
                Ok(Some(chunk)) => {
                    self.account_for(&chunk);
                    return Some(chunk);
                }
                Ok(None) => unreachable!("a thread reads all that is left, or says why not"),
                Err(error) => self.failed = Some(error),
            }
        }
        self.ahead.pop_front()
    }

    /// Examines one block, or skips a section's header.
    fn examine(&mut self) {
        let geometry = &self.member.geometry;
        let linear = self.current.start + self.pos as u64;
        let within = linear % geometry.section_bytes();
        if within < geometry.unit {
            if within == 0 {
                // Blocks in a section below its first LSN are left over from an earlier lap.
                let header = &self.current.buf[self.pos..self.pos + BLOCK];
                if let Some(first) = self.member.sections.pass(linear, header) {
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
        let Some(block) = BlockHeader::decode(self.member.owner, &self.current.buf[at..at + BLOCK]) else {
            return;
        };
        if block.lsn >= self.running {
            self.doubts.saw_written();
        }
        match self.epochs.judge(&block) {
            Verdict::Log(epoch) if block.lsn >= self.running => {
                self.running = block.lsn;
                self.doubts.saw_log(block.lsn);
                self.seen.claims[epoch] = self.seen.claims[epoch].max(block.durable);
                self.seen.max_end = self.seen.max_end.max(block.end());
                self.seen.last_block = Some(linear);
                let fill = usize::from(block.fill);
                self.head = Some(Head { lsn: block.lsn, fill, epoch, at: at + HEADER });
            }
            Verdict::Claim(epoch) => {
                if block.lsn >= self.running {
                    self.doubts.saw_log(block.lsn);
                }
                self.seen.claims[epoch] = self.seen.claims[epoch].max(block.durable);
            }
            Verdict::Unknown => self.seen.unknown = self.seen.unknown.max(Some(block.epoch)),
            Verdict::Log(_) | Verdict::Old => {}
        }
    }

    /// The whole payload of the block at which the reader stands.
    pub fn payload(&self, head: Head) -> &[u8] {
        &self.current.buf[head.at..head.at + PAYLOAD]
    }

    /// Moves past the block.
    pub fn pop(&mut self) {
        self.head = None;
    }
}
