//! A stream run through a method.

use crate::changed::bytes_of;
use crate::event::Event;
use crate::medium::{Counts, Medium};
use crate::method::Method;
use crate::stream::{StreamError, StreamReader};
use std::io::Read;

/// Which part of a stream counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// From its first event on.
    Whole,
    /// From [`Event::Measure`] on.
    Measured,
}

/// What a method did with a part of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Reads and writes of the device.
    pub counts: Counts,
    /// Pages asked for.
    pub reads: u64,
    /// Pages given down that were newer than the tier's.
    pub writes: u64,
    /// Of these, those that had no version before.
    pub first_writes: u64,
    /// Changes' bytes that had changed in all other writes.
    pub changed_bytes: u64,
    /// Clean pages dropped.
    pub cleans: u64,
    /// Transactions.
    pub commits: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Most pages of deltas or logs read for one page, over the whole stream.
    pub deltas_read_most: u64,
    /// Most bytes of the method's tables.
    pub table_bytes: u64,
}

/// Runs the stream to its end.
pub fn replay<R: Read>(
    stream: &mut StreamReader<R>,
    method: &mut dyn Method,
    medium: &mut Medium<'_>,
    part: Part,
) -> Result<Replayed, StreamError> {
    let page_size = u64::from(stream.head().page_size);
    let mut replayed = Replayed::default();
    while let Some(event) = stream.next_event()? {
        match event {
            Event::Read { page } => {
                let deltas = method.read(page, medium);
                replayed.reads += 1;
                replayed.deltas_read_most = replayed.deltas_read_most.max(deltas);
            }
            Event::Write { page, changes, .. } => {
                replayed.writes += 1;
                match changes {
                    Some(changes) => replayed.changed_bytes += bytes_of(changes, page_size),
                    None => replayed.first_writes += 1,
                }
                method.write(page, changes, medium);
            }
            Event::Clean { page } => {
                replayed.cleans += 1;
                method.clean(page, medium);
            }
            Event::BatchEnd => method.end_batch(medium),
            Event::Allocate { .. } => {}
            Event::Free { page } => method.free(page),
            Event::Checkpoint => {
                replayed.checkpoints += 1;
                method.checkpoint(medium);
            }
            Event::Commits { count } => replayed.commits += count,
            Event::Measure if part == Part::Whole => {}
            Event::Measure => {
                medium.restart();
                let deltas_read_most = replayed.deltas_read_most;
                replayed = Replayed { deltas_read_most, ..Replayed::default() };
            }
        }
    }
    replayed.counts = medium.counts().clone();
    replayed.table_bytes = method.table_bytes();
    Ok(replayed)
}
