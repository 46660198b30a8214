//! Reading runs back.
//!
//! A reader has two blocks in memory: the one that it returns rows of, and the one behind it. An
//! operator that reads several runs side by side has all empty blocks filled with one call to the
//! device ([`refill`]), so that a merge waits for many requests at a time.

use super::block::{self, HEADER};
use super::writer::Run;
use crate::error::{QueryError, QueryErrorKind};
use crate::memory::{Memory, Reservation};
use firndb_base::sync::Arc;
use firndb_device::{AlignedBuf, Io, IoOp};

/// Rows of a run, one after the other.
pub(crate) struct RunReader {
    run: Arc<Run>,
    current: AlignedBuf,
    /// Bytes of rows in `current` that are not read yet.
    at: usize,
    end: usize,
    ahead: AlignedBuf,
    /// Whether `ahead` holds the next block.
    is_ahead: bool,
    /// Number of the block after `current`.
    next: u64,
    /// The row that is being put together, and its length once that is known.
    row: Vec<u8>,
    length: Length,
    /// Of the blocks and of the longest row.
    _reserved: Reservation,
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
    pub(crate) fn new(run: Arc<Run>, memory: &Arc<Memory>) -> Result<RunReader, QueryError> {
        let bytes = run.block_bytes;
        let reserved = Reservation::of(memory, RunReader::memory_bytes(bytes, run.longest))?;
        let row = Vec::with_capacity(run.longest);
        Ok(RunReader {
            run,
            current: AlignedBuf::zeroed(bytes),
            at: 0,
            end: 0,
            ahead: AlignedBuf::zeroed(bytes),
            is_ahead: false,
            next: 0,
            row,
            length: NOTHING,
            _reserved: reserved,
        })
    }

    /// Memory that a reader takes, of a run with rows of up to `longest` bytes.
    pub(crate) fn memory_bytes(block_bytes: usize, longest: usize) -> usize {
        2 * block_bytes + longest
    }

    /// The row that was stepped to.
    pub(crate) fn row(&self) -> &[u8] {
        &self.row
    }

    /// Steps to the next row; false at the end.
    pub(crate) fn advance(&mut self) -> Result<bool, QueryError> {
        loop {
            match self.step()? {
                Step::Row => return Ok(true),
                Step::End => return Ok(false),
                Step::Empty => refill(std::slice::from_mut(self))?,
            }
        }
    }

    /// Steps to the next row, as far as what is in memory goes.
    pub(crate) fn step(&mut self) -> Result<Step, QueryError> {
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
                    if !self.is_ahead {
                        return Ok(Step::Empty);
                    }
                    self.turn()?;
                }
                Length::Partly(bytes, read) => {
                    bytes[*read] = self.current[HEADER + self.at];
                    (*read, self.at) = (*read + 1, self.at + 1);
                }
                Length::Known(len) => {
                    let here = (self.end - self.at).min(*len - self.row.len());
                    self.row.extend_from_slice(&self.current[HEADER + self.at..][..here]);
                    self.at += here;
                }
            }
        }
    }

    /// Goes on to the block that was read ahead.
    fn turn(&mut self) -> Result<(), QueryError> {
        std::mem::swap(&mut self.current, &mut self.ahead);
        self.is_ahead = false;
        let device = &self.run.space.device().info().name;
        self.end = block::check(&self.current, self.run.id, self.next, device)?;
        self.at = 0;
        self.next += 1;
        Ok(())
    }

    fn wrong(&self, what: &str) -> QueryError {
        let device = &self.run.space.device().info().name;
        QueryError::new(
            QueryErrorKind::SpillFailed,
            format!("{device}: run {} {what}; the database is unharmed, run the query again", self.run.id),
        )
    }
}

/// Reads the next block of each reader that has none ahead, all with one call to the device.
pub(crate) fn refill(readers: &mut [RunReader]) -> Result<(), QueryError> {
    let wants = |reader: &&mut RunReader| !reader.is_ahead && reader.next < reader.run.blocks;
    let Some(space) = readers.first().map(|reader| reader.run.space.clone()) else { return Ok(()) };
    let mut filled: Vec<&mut RunReader> = readers.iter_mut().filter(wants).collect();
    let mut batch: Vec<Io<'_>> = filled
        .iter_mut()
        .map(|reader| {
            let offset = reader.run.offset(reader.next);
            Io { offset, op: IoOp::Read(&mut reader.ahead), outcome: Ok(()) }
        })
        .collect();
    space.device().submit(&mut batch);
    batch.into_iter().try_for_each(|io| io.outcome)?;
    filled.into_iter().for_each(|reader| reader.is_ahead = true);
    Ok(())
}
