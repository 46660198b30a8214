//! Sorting, in memory or by merging sorted runs from the spill device.
//!
//! Rows with equal keys keep their order: rows of one run are sorted by their places in the input,
//! too, runs hold consecutive pieces of the input, and of equal rows a merge takes that of the
//! earlier run.

use crate::arena::{Arena, Place};
use crate::batch::Batch;
use crate::context::Context;
use crate::error::QueryError;
use crate::memory::Reservation;
use crate::merge::Merge;
use crate::operator::{Input, Operator};
use crate::row::Row;
use crate::spill::{Run, RunWriter};
use firndb_base::codec::Malformed;
use firndb_base::sync::Arc;
use firndb_table::{ColumnType, encode_sort_key};
use firndb_txn::Transaction;

/// A column to sort by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortColumn {
    /// Its position.
    pub column: usize,
    /// Whether large values come first, and NULL last.
    pub descending: bool,
}

/// Replaces `key` by bytes that sort as the row does by these columns.
pub(crate) fn sort_key(row: &Row<'_>, by: &[SortColumn], key: &mut Vec<u8>) -> Result<(), Malformed> {
    key.clear();
    for part in by {
        encode_sort_key(row.value(part.column)?, part.descending, key);
    }
    Ok(())
}

/// A record is the length of the key, the key, and the row.
pub(crate) fn split_record(record: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let malformed = Malformed { what: "a record of a sort is shorter than its key" };
    let (len, rest) = record.split_first_chunk::<4>().ok_or(malformed)?;
    rest.split_at_checked(u32::from_le_bytes(*len) as usize).ok_or(malformed)
}

/// Rows of its input in another order.
pub(crate) struct Sort {
    input: Option<Input>,
    by: Vec<SortColumn>,
    types: Arc<[ColumnType]>,
    collected: Collected,
    runs: Vec<Run>,
    output: Output,
}

enum Output {
    NotSorted,
    /// The next one's number.
    Memory(usize),
    Merge(Merge),
}

/// Rows in memory.
struct Collected {
    arena: Arena,
    places: Vec<Place>,
    reserved: Reservation,
}

impl Collected {
    /// Sorts the records; places ascend with the input, and so break ties.
    fn sort(&mut self) {
        let arena = &self.arena;
        let key = |place: &Place| split_record(arena.get(*place)).expect("put together here").0;
        self.places.sort_unstable_by(|a, b| key(a).cmp(key(b)).then_with(|| a.cmp(b)));
    }

    fn clear(&mut self) {
        self.arena.clear();
        self.places = Vec::new();
        self.reserved.set(0).expect("less than before");
    }
}

impl Sort {
    pub(crate) fn new(
        input: Input,
        by: Vec<SortColumn>,
        types: Arc<[ColumnType]>,
        context: &Context,
    ) -> Sort {
        let collected = Collected {
            arena: Arena::new(&context.memory, context.share),
            places: Vec::new(),
            reserved: Reservation::none(&context.memory),
        };
        Sort { input: Some(input), by, types, collected, runs: Vec::new(), output: Output::NotSorted }
    }

    fn collect(&mut self, txn: &mut Transaction, context: &Context) -> Result<(), QueryError> {
        let mut input = self.input.take().expect("the input is read once");
        let mut key = Vec::new();
        while input.advance(txn, context)? {
            sort_key(&input.row(), &self.by, &mut key)?;
            let (key_len, row) = ((key.len() as u32).to_le_bytes(), input.bytes());
            let Collected { arena, places, reserved } = &mut self.collected;
            // The vector of places may be about to grow: old and new one are there at once.
            let growth =
                if places.len() == places.capacity() { 3 * places.len() * size_of::<Place>() } else { 0 };
            let needed = arena.bytes_with(4 + key.len() + row.len()) + reserved.bytes().max(growth);
            if needed > context.share && !places.is_empty() {
                self.write_run(context)?;
            }
            let Collected { arena, places, reserved } = &mut self.collected;
            reserved.grow(places, 1)?;
            places.push(arena.push(&[&key_len, &key, row])?);
            context.work.add(|counts| counts.kept += 1);
        }
        drop(input);
        if self.runs.is_empty() {
            context.work.add_sorted(self.collected.places.len());
            self.collected.sort();
            self.output = Output::Memory(0);
            return Ok(());
        }
        self.write_run(context)?;
        let runs = std::mem::take(&mut self.runs);
        self.output = Output::Merge(merge_down(runs, txn, context)?);
        Ok(())
    }

    /// Writes what is in memory as a run.
    fn write_run(&mut self, context: &Context) -> Result<(), QueryError> {
        context.work.add_sorted(self.collected.places.len());
        self.collected.sort();
        let space = context.spill()?;
        let mut writer = RunWriter::new(space, space.sizes(context.share), &context.memory)?;
        for place in &self.collected.places {
            writer.push(0, &[self.collected.arena.get(*place)])?;
        }
        self.runs.extend(writer.finish()?);
        self.collected.clear();
        Ok(())
    }
}

/// Merges neighbouring runs into longer ones until the rest can be merged at once.
fn merge_down(mut runs: Vec<Run>, txn: &Transaction, context: &Context) -> Result<Merge, QueryError> {
    let space = context.spill()?;
    let sizes = space.sizes(context.share);
    let longest = runs.iter().map(Run::longest).max().unwrap_or(0);
    let ways = sizes.ways(longest);
    while runs.len() > ways {
        let mut longer = Vec::new();
        let mut rest = runs.into_iter().peekable();
        while rest.peek().is_some() {
            let merged = rest.by_ref().take(ways).collect();
            let mut merge = Merge::new(merged, sizes.merged(ways, longest), &context.memory)?;
            let mut writer = RunWriter::new(space, sizes, &context.memory)?;
            let mut rows = 0u64;
            while let Some(record) = merge.next()? {
                writer.push(0, &[record])?;
                rows += 1;
                if rows.is_multiple_of(1024) {
                    context.check(txn)?;
                }
            }
            longer.extend(writer.finish()?);
        }
        runs = longer;
    }
    let buffer = sizes.merged(runs.len(), longest);
    Merge::new(runs, buffer, &context.memory)
}

impl Operator for Sort {
    fn next(
        &mut self,
        txn: &mut Transaction,
        context: &Context,
        out: &mut Batch,
    ) -> Result<bool, QueryError> {
        if matches!(self.output, Output::NotSorted) {
            self.collect(txn, context)?;
        }
        while !out.is_full() {
            let record = match &mut self.output {
                Output::NotSorted => unreachable!("sorted above"),
                Output::Memory(next) => {
                    let place = self.collected.places.get(*next).copied();
                    *next += 1;
                    place.map(|place| self.collected.arena.get(place))
                }
                Output::Merge(merge) => merge.next()?,
            };
            let Some(record) = record else { break };
            let (_, row) = split_record(record)?;
            // What was on the spill device is not trusted to be a row.
            Row::new(&self.types, row)?;
            out.push(row)?;
        }
        Ok(!out.is_empty())
    }
}
