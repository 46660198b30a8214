//! Grace hash join, hybrid and recursive. The right input is the build side ([`BuildSide`]).
//!
//! A row of the probe side whose partition is in memory is joined at once; of the others, those go
//! to the spill device, as one stream of writes, whose keys a Bloom filter of the build side may
//! have. Then each partition that was spilled is joined by itself in the same way, with another
//! hash; by block nested loops if partitioning does not make it smaller.

use super::block_nested_loops::BlockNestedLoops;
use super::build_side::{BuildSide, writer_of, written};
use super::on::{On, Output, join_key};
use crate::batch::Batch;
use crate::context::Context;
use crate::error::QueryError;
use crate::operator::{Input, Operator};
use crate::row::Row;
use crate::run_scan::RunScan;
use firndb_base::sync::Arc;
use firndb_spill::{Run, RunWriter};
use firndb_txn::Transaction;

/// Deepest recursion. Partitions get smaller by the number of partitions at each level.
const LEVEL_MAX: u64 = 8;

pub(crate) struct HashJoin {
    /// Of rows that are not read yet.
    build: Option<Input>,
    probe: Option<Input>,
    on: On,
    left_keys: Vec<usize>,
    output: Output,
    side: BuildSide,
    /// Of each partition: the probe rows that were spilled.
    probes: Vec<Run>,
    /// Of those.
    writer: Option<RunWriter>,
    compared: u64,
    state: State,
    key: Vec<u8>,
    /// The join of the partition that is being joined.
    below: Option<Box<dyn Operator>>,
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
        let side = BuildSide::new(on.right_keys(), level, false, context);
        let join = HashJoin::of_side(probe, side, on, output);
        HashJoin { build: Some(build), ..join }
    }

    /// With the rows that the build side has.
    pub(super) fn of_side(probe: Input, side: BuildSide, on: &On, output: Output) -> HashJoin {
        HashJoin {
            build: None,
            probe: Some(probe),
            left_keys: on.left_keys(),
            on: on.clone(),
            output,
            side,
            probes: Vec::new(),
            writer: None,
            compared: 0,
            state: State::Build,
            key: Vec::new(),
            below: None,
        }
    }

    fn next_probe(
        &mut self,
        txn: &mut Transaction,
        context: &Context,
        out: &mut Batch,
    ) -> Result<State, QueryError> {
        let probe = self.probe.as_mut().expect("it is read to its end once");
        if !probe.advance(txn, context)? {
            self.probes = written(&mut self.writer)?;
            return Ok(State::Partitions);
        }
        let is_whole = join_key(&probe.row(), &self.left_keys, &mut self.key)?;
        let (hash, partition) = self.side.place_of(&self.key);
        context.work.add(|counts| counts.kept += 1);
        if is_whole && self.side.partitions[partition].is_out {
            if self.side.may_have(hash) {
                writer_of(&mut self.writer, context)?.push(partition, &[probe.bytes()])?;
                context.work.add(|counts| counts.kept += 1);
                return Ok(State::NextProbe);
            }
        } else if is_whole && let Some(entry) = self.side.table.find(hash, &self.key) {
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
            matched |= self.output.pair(probe, Row::accepted(&types, self.side.table.row(entry)), out)?;
            at = self.side.table.find_next(entry, &self.key);
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
        self.probe = None;
        self.side.clear();
        while let Some(partition) = self.side.partitions.pop() {
            let probe = self.probes.pop();
            // A partition without probe rows has no pairs.
            if let (true, Some(build), Some(probe)) = (partition.is_out, partition.run, probe)
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
        let output = self.output.clone();
        // Not if most of its rows have one key.
        let is_smaller = build.rows() <= self.side.rows / 4 * 3;
        let left = RunScan::input(Arc::new(probe), left_types, context)?;
        let build = Arc::new(build);
        if is_smaller && self.side.level < LEVEL_MAX {
            let right = RunScan::input(build, right_types, context)?;
            return Ok(Box::new(HashJoin::new(left, right, &self.on, output, self.side.level + 1, context)));
        }
        let reopen =
            Box::new(move |context: &Context| RunScan::input(build.clone(), right_types.clone(), context));
        Ok(Box::new(BlockNestedLoops::new(left, reopen, &self.on, output, context)))
    }
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
                    if let Some(mut build) = self.build.take() {
                        self.side.read(&mut build, u64::MAX, txn, context)?;
                    }
                    self.side.table.index()?;
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
