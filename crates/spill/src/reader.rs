//! Reading runs back.
//!
//! A reader of one run reads as many blocks as its buffer holds, from all places where they lie at
//! once. Runs that are read side by side have two buffers each, and all that are empty are filled
//! with one call to the device ([`refill`]), so that a merge waits for many requests at a time.

use crate::block::{self, HEADER};
use crate::error::{SpillError, SpillErrorKind};
use crate::memory::{Memory, Reservation};
use crate::run::{Cursor, Run};
use firndb_base::sync::Arc;
use firndb_device::{AlignedBuf, Io, IoOp};

/// Rows of a run, one after the other.
pub struct RunReader {
    run: Arc<Run>,
    current: Blocks,
    /// Of the block that is being read, bytes of rows that were and that are there.
    at: usize,
    end: usize,
    /// What comes behind `current`, of a run that is read beside others.
    ahead: Option<Blocks>,
    /// Number of the block after the one that is being read.
    next: u64,
    /// What is to be read from the device.
    cursor: Cursor,
    /// The row that is being put together, and its length once that is known.
    row: Vec<u8>,
    length: Length,
    /// Of the blocks and of the longest row.
    _reserved: Reservation,
}

/// Blocks in memory.
struct Blocks {
    buffer: AlignedBuf,
    block_bytes: usize,
    /// How many there are, and how many were begun.
    read: usize,
    begun: usize,
}

impl Blocks {
    fn new(bytes: usize, block_bytes: usize) -> Blocks {
        Blocks { buffer: AlignedBuf::zeroed(bytes), block_bytes, read: 0, begun: 0 }
    }
    fn is_empty(&self) -> bool {
        self.begun == self.read
    }
    /// The one that was begun last.
    fn block(&self) -> &[u8] {
        &self.buffer[(self.begun - 1) * self.block_bytes..][..self.block_bytes]
    }
}

enum Length {
    /// This many of its bytes were read.
    Partly([u8; 4], usize),
    Known(usize),
}
const NOTHING: Length = Length::Partly([0; 4], 0);

/// What came of a step.
pub(crate) enum Step {
    Row,
    End,
    /// [`refill`] is to be called first.
    Empty,
}

impl RunReader {
    /// Of a run that is read alone.
    pub fn new(run: Arc<Run>, buffer: usize, memory: &Arc<Memory>) -> Result<RunReader, SpillError> {
        RunReader::with(run, buffer, 1, memory)
    }

    /// Of one that is read beside others, which has two buffers.
    pub fn beside(run: Run, buffer: usize, memory: &Arc<Memory>) -> Result<RunReader, SpillError> {
        RunReader::with(Arc::new(run), buffer, 2, memory)
    }

    fn with(
        run: Arc<Run>,
        bytes: usize,
        buffers: usize,
        memory: &Arc<Memory>,
    ) -> Result<RunReader, SpillError> {
        let block_bytes = run.stream.block_bytes;
        // Short runs need no more than they have.
        let bytes = bytes.min(block_bytes * run.blocks.max(1) as usize);
        let reserved = Reservation::of(memory, buffers * bytes + run.longest)?;
        let row = Vec::with_capacity(run.longest);
        Ok(RunReader {
            run,
            current: Blocks::new(bytes, block_bytes),
            at: 0,
            end: 0,
            ahead: (buffers > 1).then(|| Blocks::new(bytes, block_bytes)),
            next: 0,
            cursor: Cursor::default(),
            row,
            length: NOTHING,
            _reserved: reserved,
        })
    }

    /// The row that was stepped to.
    pub fn row(&self) -> &[u8] {
        &self.row
    }

    /// Steps to the next row; false at the end.
    pub fn advance(&mut self) -> Result<bool, SpillError> {
        loop {
            match self.step()? {
                Step::Row => return Ok(true),
                Step::End => return Ok(false),
                Step::Empty => refill(std::slice::from_mut(self))?,
            }
        }
    }

    /// Steps to the next row, as far as what is in memory goes.
    pub(crate) fn step(&mut self) -> Result<Step, SpillError> {
        if matches!(self.length, Length::Known(len) if len == self.row.len()) {
            self.row.clear();
            self.length = NOTHING;
        }
        loop {
            match &mut self.length {
                Length::Partly(bytes, 4) => {
                    let len = u32::from_le_bytes(*bytes) as usize;
                    if len > self.run.longest {
                        return Err(self.wrong("has a row longer than any that was written"));
                    }
                    self.length = Length::Known(len);
                }
                Length::Known(len) if *len == self.row.len() => return Ok(Step::Row),
                _ if self.at == self.end => {
                    if self.next == self.run.blocks {
                        return match self.length {
                            Length::Partly(_, 0) => Ok(Step::End),
                            _ => Err(self.wrong("ends within a row")),
                        };
                    }
                    if !self.begin_block()? {
                        return Ok(Step::Empty);
                    }
                }
                Length::Partly(bytes, read) => {
                    bytes[*read] = self.current.block()[HEADER + self.at];
                    (*read, self.at) = (*read + 1, self.at + 1);
                }
                Length::Known(len) => {
                    let here = (self.end - self.at).min(*len - self.row.len());
                    self.row.extend_from_slice(&self.current.block()[HEADER + self.at..][..here]);
                    self.at += here;
                }
            }
        }
    }

    /// Goes on to the next block; false if it is not in memory.
    fn begin_block(&mut self) -> Result<bool, SpillError> {
        if self.current.is_empty()
            && let Some(ahead) = &mut self.ahead
        {
            std::mem::swap(&mut self.current, ahead);
            (ahead.read, ahead.begun) = (0, 0);
        }
        if self.current.is_empty() {
            return Ok(false);
        }
        self.current.begun += 1;
        let device = &self.run.space.device().info().name;
        self.end = block::check(self.current.block(), self.run.id, self.next, device)?;
        self.at = 0;
        self.next += 1;
        Ok(true)
    }

    /// The blocks that can be filled: those behind the current ones, of a run that is read beside
    /// others, or else the current ones when all of them were read.
    fn wanted(&mut self) -> Option<(&Run, &mut Cursor, &mut Blocks)> {
        let blocks = self.ahead.as_mut().unwrap_or(&mut self.current);
        blocks.is_empty().then_some((&*self.run, &mut self.cursor, blocks))
    }

    fn wrong(&self, what: &str) -> SpillError {
        let device = &self.run.space.device().info().name;
        SpillError::new(
            SpillErrorKind::Failed,
            format!("{device}: run {} {what}; the database is unharmed, run the work again", self.run.id),
        )
    }
}

/// Reads the next blocks of each reader that has space for them, all with one call to the device.
pub(crate) fn refill(readers: &mut [RunReader]) -> Result<(), SpillError> {
    let Some(space) = readers.first().map(|reader| reader.run.space.clone()) else { return Ok(()) };
    let mut batch: Vec<Io<'_>> = Vec::new();
    for (run, cursor, blocks) in readers.iter_mut().filter_map(RunReader::wanted) {
        let block_bytes = blocks.block_bytes;
        (blocks.read, blocks.begun) = (0, 0);
        let mut rest = &mut blocks.buffer[..];
        while let Some((offset, adjacent)) = run.next_adjacent(cursor, rest.len() / block_bytes) {
            let (here, behind) = std::mem::take(&mut rest).split_at_mut(adjacent * block_bytes);
            batch.push(Io { offset, op: IoOp::Read(here), outcome: Ok(()) });
            blocks.read += adjacent;
            rest = behind;
        }
    }
    space.device().submit(&mut batch);
    batch.into_iter().try_for_each(|io| io.outcome).map_err(SpillError::from)
}
