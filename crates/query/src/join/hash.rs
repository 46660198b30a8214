//! Grace hash join, hybrid and recursive. The right input is the build side.
//!
//! Build rows are kept in memory by partitions of their keys' hashes. When they outgrow it, the
//! largest partition goes to the spill device, and so do its later rows. A row of the probe side
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
use crate::spill::{self, Run, RunWriter};
use firndb_base::hash::hash_bytes;
use firndb_base::sync::Arc;
use firndb_txn::Transaction;

/// Deepest recursion. Partitions get smaller by the number of partitions at each level.
const LEVEL_MAX: u64 = 8;
/// Partitions of a level at most.
const PARTITIONS_MAX: usize = 32;

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
    build_rows: u64,
    compared: u64,
    state: State,
    key: Vec<u8>,
    /// The join of the partition that is being joined.
    below: Option<Box<dyn Operator>>,
}

#[derive(Default)]
struct Spilled {
    build: Option<RunWriter>,
    /// The build side, when it is complete.
    built: Option<Run>,
    probe: Option<RunWriter>,
    /// The probe side, when it is complete: unlike its writer it has no block in memory, while the
    /// partitions before it are joined.
    probed: Option<Run>,
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
            Some(space) => (context.share / 4 / block_bytes(context, space)).clamp(2, PARTITIONS_MAX),
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
            // A sixteenth is the filter's, a quarter that of the blocks being written.
            while self.spilled[partition].build.is_none()
                && self.table.bytes_with(partition, len) > context.share / 8 * 5
                && let Some(largest) = self.table.largest()
            {
                self.spill(largest, context)?;
            }
            match &mut self.spilled[partition].build {
                Some(writer) => writer.push(&[build.bytes()])?,
                None => self.table.push(partition, hash, &self.key, build.bytes())?,
            }
        }
        for spilled in &mut self.spilled {
            spilled.built = spilled.build.take().map(RunWriter::finish).transpose()?;
        }
        self.bloom = Some(bloom);
        self.table.index()
    }

    /// Moves a partition from memory to the spill device.
    fn spill(&mut self, partition: usize, context: &Context) -> Result<(), QueryError> {
        let mut writer = new_writer(context)?;
        self.table.take_out(partition, |row| writer.push(&[row]))?;
        self.spilled[partition].build = Some(writer);
        Ok(())
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
            for spilled in &mut self.spilled {
                spilled.probed = spilled.probe.take().map(RunWriter::finish).transpose()?;
            }
            return Ok(State::Partitions);
        }
        let is_whole = join_key(&probe.row(), &self.left_keys, &mut self.key)?;
        let (hash, partition) = self.hash();
        context.work.add(|counts| counts.kept += 1);
        let probe = self.probe.as_ref().expect("it was there just now");
        if is_whole && self.spilled[partition].built.is_some() {
            if self.bloom.as_ref().is_none_or(|bloom| bloom.may_have(hash)) {
                let writer = &mut self.spilled[partition].probe;
                if writer.is_none() {
                    *writer = Some(new_writer(context)?);
                }
                writer.as_mut().expect("made just now").push(&[probe.bytes()])?;
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
            if let (Some(build), Some(probe)) = (spilled.built, spilled.probed) {
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

/// Bytes of the blocks of partitions: smaller than those of sorts, since many are written at once.
fn block_bytes(context: &Context, space: &spill::SpillSpace) -> usize {
    spill::block_bytes(context.share / 4, space)
}

fn new_writer(context: &Context) -> Result<RunWriter, QueryError> {
    let space = context.spill()?;
    RunWriter::new(space, block_bytes(context, space), &context.memory)
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
