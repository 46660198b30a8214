//! Grace hash join, hybrid and recursive. The right input is the build side.
//!
//! Build rows are kept in memory by partitions of their keys' hashes. When they outgrow it, the
//! largest partition goes to the spill device, and so do its later rows. All partitions of a side
//! are one stream of writes there. A row of the probe side
//! whose partition is in memory is joined at once; of the others, those go to the spill device
//! whose keys a Bloom filter of the build side may have. Then each partition that was spilled is
//! joined by itself in the same way, with another hash; by block nested loops if partitioning does
//! not make it smaller.

use super::block_nested_loops::BlockNestedLoops;
use super::bloom::Bloom;
use super::hash_table::HashTable;
use super::on::{On, Output, join_key};
use crate::batch::Batch;
use crate::context::Context;
use crate::error::QueryError;
use crate::operator::{Input, Operator};
use crate::row::Row;
use crate::run_scan::RunScan;
use firndb_base::hash::hash_bytes;
use firndb_base::sync::Arc;
use firndb_spill::{Run, RunWriter};
use firndb_txn::Transaction;

/// Deepest recursion. Partitions get smaller by the number of partitions at each level.
const LEVEL_MAX: u64 = 8;

pub(crate) struct HashJoin {
    build: Option<Input>,
    probe: Option<Input>,
    on: On,
    left_keys: Vec<usize>,
    right_keys: Vec<usize>,
    output: Output,
    level: u64,
    table: HashTable,
    bloom: Option<Bloom>,
    /// Of each partition: what was spilled.
    spilled: Vec<Spilled>,
    /// Of the side that is being read, what is spilled.
    writer: Option<RunWriter>,
    build_rows: u64,
    compared: u64,
    state: State,
    key: Vec<u8>,
    /// The join of the partition that is being joined.
    below: Option<Box<dyn Operator>>,
}

#[derive(Default)]
struct Spilled {
    /// Whether its rows go to the spill device.
    is_out: bool,
    build: Option<Run>,
    probe: Option<Run>,
}

#[derive(Clone, Copy)]
enum State {
    Build,
    NextProbe,
    /// The probe row beside this entry; whether it has matched.
    Pairs(u32, bool),
    Partitions,
}

impl HashJoin {
    pub(crate) fn new(
        probe: Input,
        build: Input,
        on: &On,
        output: Output,
        level: u64,
        context: &Context,
    ) -> HashJoin {
        let partitions = match &context.spill {
            Some(space) => space.sizes(context.share).partitions(),
            None => 1,
        };
        HashJoin {
            build: Some(build),
            probe: Some(probe),
            left_keys: on.left_keys(),
            right_keys: on.right_keys(),
            on: on.clone(),
            output,
            level,
            table: HashTable::new(partitions, context),
            bloom: None,
            spilled: (0..partitions).map(|_| Spilled::default()).collect(),
            writer: None,
            build_rows: 0,
            compared: 0,
            state: State::Build,
            key: Vec::new(),
            below: None,
        }
    }

    /// Reads the build side: into memory, and what does not fit onto the spill device.
    fn build(&mut self, txn: &mut Transaction, context: &Context) -> Result<(), QueryError> {
        let mut build = self.build.take().expect("it is read once");
        let mut bloom = Bloom::new(&context.memory, context.share / 16)?;
        while build.advance(txn, context)? {
            if !join_key(&build.row(), &self.right_keys, &mut self.key)? {
                continue;
            }
            let (hash, partition) = self.hash();
            bloom.add(hash);
            self.build_rows += 1;
            context.work.add(|counts| counts.kept += 1);
            let len = 4 + self.key.len() + build.bytes().len();
            // A sixteenth is the filter's, a quarter that of the rows being written, and an eighth
            // that of those which are read back.
            while !self.spilled[partition].is_out
                && self.table.bytes_with(partition, len) > context.share / 16 * 9
                && let Some(largest) = self.table.largest()
            {
                self.spill(largest, context)?;
            }
            if self.spilled[partition].is_out {
                writer(&mut self.writer, context)?.push(partition, &[build.bytes()])?;
                context.work.add(|counts| counts.kept += 1);
            } else {
                self.table.push(partition, hash, &self.key, build.bytes())?;
            }
        }
        let runs = self.written()?;
        for (spilled, run) in self.spilled.iter_mut().zip(runs) {
            spilled.build = Some(run);
        }
        self.bloom = Some(bloom);
        self.table.index()
    }

    /// Moves a partition from memory to the spill device.
    fn spill(&mut self, partition: usize, context: &Context) -> Result<(), QueryError> {
        let writer = writer(&mut self.writer, context)?;
        self.table.take_out(partition, |row| {
            context.work.add(|counts| counts.kept += 1);
            Ok(writer.push(partition, &[row])?)
        })?;
        self.spilled[partition].is_out = true;
        Ok(())
    }

    /// The run of each partition, if any was spilled, of the side that has ended.
    fn written(&mut self) -> Result<Vec<Run>, QueryError> {
        Ok(self.writer.take().map_or(Ok(Vec::new()), RunWriter::finish)?)
    }

    /// The hash of the key, and its partition. Each level has its own hashes.
    fn hash(&self) -> (u64, usize) {
        let hash = hash_bytes(self.level, &self.key);
        // The bits behind the table's buckets.
        (hash, ((hash >> 40) % self.spilled.len() as u64) as usize)
    }

    fn next_probe(
        &mut self,
        txn: &mut Transaction,
        context: &Context,
        out: &mut Batch,
    ) -> Result<State, QueryError> {
        let probe = self.probe.as_mut().expect("it is read to its end once");
        if !probe.advance(txn, context)? {
            let runs = self.written()?;
            for (spilled, run) in self.spilled.iter_mut().zip(runs) {
                spilled.probe = Some(run);
            }
            return Ok(State::Partitions);
        }
        let is_whole = join_key(&probe.row(), &self.left_keys, &mut self.key)?;
        let (hash, partition) = self.hash();
        context.work.add(|counts| counts.kept += 1);
        let probe = self.probe.as_ref().expect("it was there just now");
        if is_whole && self.spilled[partition].is_out {
            if self.bloom.as_ref().is_none_or(|bloom| bloom.may_have(hash)) {
                writer(&mut self.writer, context)?.push(partition, &[probe.bytes()])?;
                context.work.add(|counts| counts.kept += 1);
                return Ok(State::NextProbe);
            }
        } else if is_whole && let Some(entry) = self.table.find(hash, &self.key) {
            return Ok(State::Pairs(entry, false));
        }
        if self.output.is_outer() {
            self.output.unmatched(probe.row(), out)?;
        }
        Ok(State::NextProbe)
    }

    /// The probe row beside the rows with its key, from `entry` on, until the batch is full.
    fn pairs(
        &mut self,
        (entry, matched): (u32, bool),
        txn: &Transaction,
        context: &Context,
        out: &mut Batch,
    ) -> Result<State, QueryError> {
        let (mut at, mut matched) = (Some(entry), matched);
        let probe = self.probe.as_ref().expect("its row is being joined").row();
        let types = self.output.right_types.clone();
        while let Some(entry) = at {
            if out.is_full() {
                #[cfg(feature = "testing")]
                if crate::broken::is(crate::broken::Break::PairsEndWithBatch) {
                    return Ok(State::NextProbe);
                }
                return Ok(State::Pairs(entry, matched));
            }
            self.compared += 1;
            if self.compared.is_multiple_of(1 << 16) {
                context.check(txn)?;
            }
            matched |= self.output.pair(probe, Row::accepted(&types, self.table.row(entry)), out)?;
            at = self.table.find_next(entry, &self.key);
        }
        if !matched && self.output.is_outer() {
            self.output.unmatched(probe, out)?;
        }
        Ok(State::NextProbe)
    }

    /// Goes on to the next partition that was spilled; false if there is none.
    fn next_partition(&mut self, context: &Context) -> Result<bool, QueryError> {
        self.below = None;
        // The probe side has ended: what is in memory was joined.
        (self.probe, self.bloom) = (None, None);
        self.table.clear();
        while let Some(spilled) = self.spilled.pop() {
            // A partition without probe rows has no pairs.
            if let (true, Some(build), Some(probe)) = (spilled.is_out, spilled.build, spilled.probe)
                && probe.rows() > 0
            {
                #[cfg(feature = "testing")]
                if crate::broken::is(crate::broken::Break::SpilledPartitionForgotten) {
                    continue;
                }
                self.below = Some(self.join_below(build, probe, context)?);
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn join_below(&self, build: Run, probe: Run, context: &Context) -> Result<Box<dyn Operator>, QueryError> {
        let (left_types, right_types) = (self.output.left_types.clone(), self.output.right_types.clone());
        let output = Output::new(&self.on, left_types.clone(), right_types.clone());
        // Not if most of its rows have one key.
        let is_smaller = build.rows() <= self.build_rows / 4 * 3;
        let left = RunScan::input(Arc::new(probe), left_types, context)?;
        let build = Arc::new(build);
        if is_smaller && self.level < LEVEL_MAX {
            let right = RunScan::input(build, right_types, context)?;
            return Ok(Box::new(HashJoin::new(left, right, &self.on, output, self.level + 1, context)));
        }
        let reopen =
            Box::new(move |context: &Context| RunScan::input(build.clone(), right_types.clone(), context));
        Ok(Box::new(BlockNestedLoops::new(left, reopen, &self.on, output, context)))
    }
}

/// The writer of a side's partitions, from the first row on that is spilled.
fn writer<'a>(writer: &'a mut Option<RunWriter>, context: &Context) -> Result<&'a mut RunWriter, QueryError> {
    if writer.is_none() {
        let space = context.spill()?;
        *writer = Some(RunWriter::of_partitions(space, space.sizes(context.share), &context.memory)?);
    }
    Ok(writer.as_mut().expect("made just now"))
}

impl Operator for HashJoin {
    fn next(
        &mut self,
        txn: &mut Transaction,
        context: &Context,
        out: &mut Batch,
    ) -> Result<bool, QueryError> {
        while !out.is_full() {
            match self.state {
                State::Build => {
                    self.build(txn, context)?;
                    self.state = State::NextProbe;
                }
                State::NextProbe => self.state = self.next_probe(txn, context, out)?,
                State::Pairs(entry, matched) => {
                    self.state = self.pairs((entry, matched), txn, context, out)?;
                }
                State::Partitions => {
                    if let Some(below) = &mut self.below
                        && below.next(txn, context, out)?
                    {
                        break;
                    }
                    if !self.next_partition(context)? {
                        break;
                    }
                }
            }
        }
        Ok(!out.is_empty())
    }
}
