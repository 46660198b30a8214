//! Merging sorted runs.

use crate::error::SpillError;
use crate::memory::Memory;
use crate::reader::{RunReader, Step, refill};
use crate::run::Run;
use crate::sorter::split_record;
use firndb_base::sync::Arc;

#[cfg(feature = "testing")]
thread_local! {
    static LATER_RUN_FIRST: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Runs `work`, whose merges take of equal rows that of the later run: for tests, which must
/// notice.
#[cfg(feature = "testing")]
pub fn with_later_run_first<R>(work: impl FnOnce() -> R) -> R {
    LATER_RUN_FIRST.set(true);
    let result = work();
    LATER_RUN_FIRST.set(false);
    result
}

/// The records of several runs in one order.
pub(crate) struct Merge {
    readers: Vec<RunReader>,
    /// Numbers of the readers that have a record, as a heap by record and number: the least first.
    heap: Vec<usize>,
    started: bool,
}

impl Merge {
    /// Each run has two buffers of this many bytes.
    pub(crate) fn new(runs: Vec<Run>, buffer: usize, memory: &Arc<Memory>) -> Result<Merge, SpillError> {
        let readers: Result<Vec<_>, _> =
            runs.into_iter().map(|run| RunReader::beside(run, buffer, memory)).collect();
        Ok(Merge { readers: readers?, heap: Vec::new(), started: false })
    }

    /// The next record; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, SpillError> {
        if !self.started {
            for number in 0..self.readers.len() {
                if self.advance(number)? {
                    self.heap.push(number);
                }
            }
            for at in (0..self.heap.len() / 2).rev() {
                self.sift_down(at)?;
            }
            self.started = true;
        } else if let Some(&first) = self.heap.first() {
            if !self.advance(first)? {
                self.heap.swap_remove(0);
            }
            self.sift_down(0)?;
        }
        Ok(self.heap.first().map(|first| self.readers[*first].row()))
    }

    /// Steps a reader; the empty blocks of all readers are filled when one has none.
    fn advance(&mut self, number: usize) -> Result<bool, SpillError> {
        loop {
            match self.readers[number].step()? {
                Step::Row => return Ok(true),
                Step::End => return Ok(false),
                Step::Empty => refill(&mut self.readers)?,
            }
        }
    }

    /// Moves what stands at `at` down to its place.
    fn sift_down(&mut self, mut at: usize) -> Result<(), SpillError> {
        loop {
            let mut least = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.heap.len() && self.is_before(self.heap[child], self.heap[least])? {
                    least = child;
                }
            }
            if least == at {
                return Ok(());
            }
            self.heap.swap(at, least);
            at = least;
        }
    }

    fn is_before(&self, a: usize, b: usize) -> Result<bool, SpillError> {
        let key = |number: usize| split_record(self.readers[number].row()).map(|(key, _)| (key, number));
        #[cfg(feature = "testing")]
        if LATER_RUN_FIRST.get() {
            return Ok((key(a)?.0, b) < (key(b)?.0, a));
        }
        Ok(key(a)? < key(b)?)
    }
}
