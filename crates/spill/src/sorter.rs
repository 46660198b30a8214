//! Sorting, in memory or by merging sorted runs from the spill device.
//!
//! Rows with equal keys keep their order: rows of one run are sorted by their places in the input,
//! too, runs hold consecutive pieces of the input, and of equal rows a merge takes that of the
//! earlier run.

use crate::arena::{Arena, Place};
use crate::error::{SpillError, SpillErrorKind};
use crate::memory::{Memory, Reservation};
use crate::merge::Merge;
use crate::run::Run;
use crate::space::SpillSpace;
use crate::writer::RunWriter;
use firndb_base::codec::Malformed;
use firndb_base::sync::Arc;

/// Rows of a merge between two looks whether the caller may go on.
const ROWS_BETWEEN_CHECKS: u64 = 1024;

/// A record is the length of the key, the key, and the row.
pub fn split_record(record: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let malformed = Malformed { what: "a record of a sort is shorter than its key" };
    let (len, rest) = record.split_first_chunk::<4>().ok_or(malformed)?;
    rest.split_at_checked(u32::from_le_bytes(*len) as usize).ok_or(malformed)
}

/// Rows that are to be sorted by keys of bytes.
pub struct Sorter {
    memory: Arc<Memory>,
    share: usize,
    space: Option<Arc<SpillSpace>>,
    arena: Arena,
    places: Vec<Place>,
    reserved: Reservation,
    runs: Vec<Run>,
    compared: u64,
}

impl Sorter {
    /// Keeps about `share` bytes of `memory`. What exceeds them goes to `space`.
    #[must_use]
    pub fn new(memory: &Arc<Memory>, share: usize, space: Option<Arc<SpillSpace>>) -> Sorter {
        Sorter {
            memory: memory.clone(),
            share,
            space,
            arena: Arena::new(memory, share),
            places: Vec::new(),
            reserved: Reservation::none(memory),
            runs: Vec::new(),
            compared: 0,
        }
    }

    /// Whether a row of these lengths, key and row together, is kept in memory beside those that
    /// are there.
    #[must_use]
    pub fn has_memory_for(&self, len: usize) -> bool {
        // The vector of places may be about to grow: old and new one are there at once.
        let is_full = self.places.len() == self.places.capacity();
        let growth = if is_full { 3 * self.places.len() * size_of::<Place>() } else { 0 };
        let needed = self.arena.bytes_with(4 + len) + self.reserved.bytes().max(growth);
        needed <= self.share || self.places.is_empty()
    }

    /// Adds a row, with its key.
    ///
    /// Errors: `Full` if rows are to leave memory and there is no space for them; the device's.
    pub fn push(&mut self, key: &[u8], row: &[u8]) -> Result<(), SpillError> {
        if !self.has_memory_for(key.len() + row.len()) {
            self.write_run()?;
        }
        self.reserved.grow(&mut self.places, 1)?;
        let key_len = (key.len() as u32).to_le_bytes();
        self.places.push(self.arena.push(&[&key_len, key, row])?);
        Ok(())
    }

    /// About how many pairs of keys were compared since the last call.
    pub fn take_compared(&mut self) -> u64 {
        std::mem::take(&mut self.compared)
    }

    /// All rows were added. `check` is called now and then, and an error of it ends the work.
    pub fn finish<E: From<SpillError>>(
        mut self,
        mut check: impl FnMut() -> Result<(), E>,
    ) -> Result<Sorted, E> {
        if self.runs.is_empty() {
            self.sort();
            return Ok(Sorted { compared: self.compared, source: Source::Memory { sorter: self, next: 0 } });
        }
        self.write_run()?;
        let compared = self.compared;
        Ok(Sorted { source: Source::Merge(self.merge_down(&mut check)?), compared })
    }

    /// Sorts what is in memory; places ascend with the input, and so break ties.
    fn sort(&mut self) {
        let keys = self.places.len();
        self.compared += keys as u64 * u64::from(keys.max(2).ilog2());
        let arena = &self.arena;
        let key = |place: &Place| split_record(arena.get(*place)).expect("put together here").0;
        self.places.sort_unstable_by(|a, b| key(a).cmp(key(b)).then_with(|| a.cmp(b)));
    }

    fn space(&self) -> Result<&Arc<SpillSpace>, SpillError> {
        self.space.as_ref().ok_or_else(|| {
            let message = "the rows to be sorted do not fit in memory and there is no spill device: raise the memory limit, or name a device (spill_path)";
            SpillError::new(SpillErrorKind::Full, message)
        })
    }

    /// Writes what is in memory as a run.
    fn write_run(&mut self) -> Result<(), SpillError> {
        self.sort();
        let space = self.space()?;
        let mut writer = RunWriter::new(space, space.sizes(self.share), &self.memory)?;
        for place in &self.places {
            writer.push(0, &[self.arena.get(*place)])?;
        }
        self.runs.extend(writer.finish()?);
        self.arena.clear();
        self.places = Vec::new();
        self.reserved.set(0)
    }

    /// Merges neighbouring runs into longer ones until the rest can be merged at once.
    fn merge_down<E: From<SpillError>>(
        mut self,
        check: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<Merge, E> {
        let space = self.space()?.clone();
        let sizes = space.sizes(self.share);
        let mut runs = std::mem::take(&mut self.runs);
        let longest = runs.iter().map(Run::longest).max().unwrap_or(0);
        let ways = sizes.ways(longest);
        while runs.len() > ways {
            let mut longer = Vec::new();
            let mut rest = runs.into_iter().peekable();
            while rest.peek().is_some() {
                let merged = rest.by_ref().take(ways).collect();
                let mut merge = Merge::new(merged, sizes.merged(ways, longest), &self.memory)?;
                let mut writer = RunWriter::new(&space, sizes, &self.memory)?;
                let mut rows = 0u64;
                while let Some(record) = merge.next()? {
                    writer.push(0, &[record])?;
                    rows += 1;
                    if rows.is_multiple_of(ROWS_BETWEEN_CHECKS) {
                        check()?;
                    }
                }
                longer.extend(writer.finish()?);
            }
            runs = longer;
        }
        let buffer = sizes.merged(runs.len(), longest);
        Ok(Merge::new(runs, buffer, &self.memory)?)
    }
}

/// A key, and the row that was added with it.
pub type KeyAndRow<'a> = (&'a [u8], &'a [u8]);

/// Rows in the order of their keys.
pub struct Sorted {
    source: Source,
    compared: u64,
}

enum Source {
    /// `next` is the next one's number.
    Memory {
        sorter: Sorter,
        next: usize,
    },
    Merge(Merge),
}

impl Sorted {
    /// The next key and row; `None` at the end.
    pub fn next_row(&mut self) -> Result<Option<KeyAndRow<'_>>, SpillError> {
        let record = match &mut self.source {
            Source::Memory { sorter, next } => {
                let place = sorter.places.get(*next).copied();
                *next += 1;
                place.map(|place| sorter.arena.get(place))
            }
            Source::Merge(merge) => merge.next()?,
        };
        Ok(record.map(split_record).transpose()?)
    }

    /// As [`Sorter::take_compared`].
    pub fn take_compared(&mut self) -> u64 {
        std::mem::take(&mut self.compared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_base::rng::Rng;
    use firndb_device::MemoryDevice;

    #[test]
    fn rows_come_out_sorted_and_equal_keys_keep_their_order() {
        let space = SpillSpace::open(Arc::new(MemoryDevice::new("spill")), 64 << 20).unwrap();
        for (share, spills) in [(16 << 10, true), (16 << 20, false)] {
            let memory = Memory::new("sort", 2 * share);
            let mut rng = Rng::new(7);
            let mut sorter = Sorter::new(&memory, share, Some(space.clone()));
            let mut wanted = Vec::new();
            for number in 0..20_000u32 {
                let key = rng.below(500).to_be_bytes();
                sorter.push(&key, &number.to_le_bytes()).unwrap();
                wanted.push((key, number));
            }
            wanted.sort();
            assert_eq!(space.used_bytes() > 0, spills);
            let mut sorted = sorter.finish(|| Ok::<(), SpillError>(())).unwrap();
            for (key, number) in wanted {
                assert_eq!(sorted.next_row().unwrap(), Some((&key[..], &number.to_le_bytes()[..])));
            }
            assert_eq!(sorted.next_row().unwrap(), None);
            assert!(sorted.take_compared() >= 20_000);
            drop(sorted);
            assert_eq!((space.used_bytes(), memory.used()), (0, 0));
        }
    }

    #[test]
    fn without_a_device_memory_is_the_limit() {
        let memory = Memory::new("sort", 64 << 10);
        let mut sorter = Sorter::new(&memory, 16 << 10, None);
        while sorter.has_memory_for(108) {
            sorter.push(&[1; 8], &[2; 100]).unwrap();
        }
        let error = sorter.push(&[1; 8], &[2; 100]).unwrap_err();
        assert!(error.kind == SpillErrorKind::Full && error.message.contains("spill_path"), "{error}");
    }
}
