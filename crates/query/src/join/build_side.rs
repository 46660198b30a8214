//! The build side of a hash join: rows in partitions of their keys' hashes, in memory as far as
//! they fit.
//!
//! When they outgrow it, the largest partition goes to the spill device, and so do its later rows.
//! All partitions are one stream of writes there. Once its rows are counted, they may turn out to
//! be few enough for lookups.

use super::bloom::Bloom;
use super::hash_table::HashTable;
use super::on::join_key;
use super::rest::{Kept, Rest};
use crate::context::Context;
use crate::error::QueryError;
use crate::operator::Input;
use crate::run_scan::RunScan;
use firndb_base::hash::hash_bytes;
use firndb_base::sync::Arc;
use firndb_spill::{Run, RunWriter};
use firndb_table::ColumnType;
use firndb_txn::Transaction;

pub(super) struct BuildSide {
    keys: Vec<usize>,
    /// Of recursion: each level has its own hashes.
    pub(super) level: u64,
    /// Rows without a key, which match none, are kept, too.
    keeps_all: bool,
    pub(super) table: HashTable,
    bloom: Option<Bloom>,
    pub(super) partitions: Vec<Partition>,
    pub(super) rows: u64,
    key: Vec<u8>,
}

#[derive(Default)]
pub(super) struct Partition {
    /// Its rows go to the spill device.
    pub(super) is_out: bool,
    /// Those that went there.
    pub(super) run: Option<Run>,
}

impl BuildSide {
    pub(super) fn new(keys: Vec<usize>, level: u64, keeps_all: bool, context: &Context) -> BuildSide {
        let partitions = match &context.spill {
            Some(space) => space.sizes(context.share).partitions(),
            None => 1,
        };
        BuildSide {
            keys,
            level,
            keeps_all,
            table: HashTable::new(partitions, context),
            bloom: None,
            partitions: (0..partitions).map(|_| Partition::default()).collect(),
            rows: 0,
            key: Vec::new(),
        }
    }

    /// Keeps rows until there are no more, or it has more than `most`: in memory, or else on the
    /// spill device.
    pub(super) fn read(
        &mut self,
        from: &mut Input,
        most: u64,
        txn: &mut Transaction,
        context: &Context,
    ) -> Result<(), QueryError> {
        let mut bloom = Bloom::new(&context.memory, context.share / 16)?;
        let mut writer = None;
        while self.rows <= most && from.advance(txn, context)? {
            if !join_key(&from.row(), &self.keys, &mut self.key)? && !self.keeps_all {
                continue;
            }
            let (hash, partition) = self.place_of(&self.key);
            bloom.add(hash);
            self.rows += 1;
            context.work.add(|counts| counts.kept += 1);
            let len = 4 + self.key.len() + from.bytes().len();
            // A sixteenth is the filter's, a quarter that of the rows being written, and an eighth
            // that of those which are read back.
            while !self.partitions[partition].is_out
                && self.table.bytes_with(partition, len) > context.share / 16 * 9
                && let Some(largest) = self.table.largest()
            {
                self.spill(largest, &mut writer, context)?;
            }
            if self.partitions[partition].is_out {
                writer_of(&mut writer, context)?.push(partition, &[from.bytes()])?;
                context.work.add(|counts| counts.kept += 1);
            } else {
                self.table.push(partition, hash, &self.key, from.bytes())?;
            }
        }
        for (partition, run) in self.partitions.iter_mut().zip(written(&mut writer)?) {
            partition.run = Some(run);
        }
        self.bloom = Some(bloom);
        Ok(())
    }

    /// Moves a partition from memory to the spill device.
    fn spill(
        &mut self,
        partition: usize,
        writer: &mut Option<RunWriter>,
        context: &Context,
    ) -> Result<(), QueryError> {
        let writer = writer_of(writer, context)?;
        self.table.take_out(partition, |row| {
            context.work.add(|counts| counts.kept += 1);
            Ok(writer.push(partition, &[row])?)
        })?;
        self.partitions[partition].is_out = true;
        Ok(())
    }

    /// The hash of a key, and its partition.
    pub(super) fn place_of(&self, key: &[u8]) -> (u64, usize) {
        let hash = hash_bytes(self.level, key);
        // The bits behind the table's buckets.
        (hash, ((hash >> 40) % self.partitions.len() as u64) as usize)
    }

    /// Whether a row of a partition that went to the spill device may have a key with this hash.
    pub(super) fn may_have(&self, hash: u64) -> bool {
        self.bloom.as_ref().is_none_or(|bloom| bloom.may_have(hash))
    }

    /// Gives the memory of its rows back.
    pub(super) fn clear(&mut self) {
        self.bloom = None;
        self.table.clear();
    }

    /// Its rows, to be joined in another way. They take a quarter of a share of memory at most.
    pub(super) fn into_rest(self, types: &Arc<[ColumnType]>, context: &Context) -> Result<Rest, QueryError> {
        let mut runs: Vec<Run> = self.partitions.into_iter().filter_map(|partition| partition.run).collect();
        let mut table = Some(self.table);
        if let Some(kept) = table.take_if(|table| table.bytes() > context.share / 4) {
            let space = context.spill()?;
            let mut writer = RunWriter::new(space, space.sizes(context.share), &context.memory)?;
            for number in 0..kept.len() {
                writer.push(0, &[Kept::bytes(&kept, number)])?;
            }
            context.work.add(|counts| counts.kept += kept.len() as u64);
            runs.extend(writer.finish()?);
        }
        let input = |run| RunScan::input(Arc::new(run), types.clone(), context);
        let runs = runs.into_iter().filter(|run| run.rows() > 0).map(input);
        Ok(Rest::new(table.map(|table| Box::new(table) as _), runs.collect::<Result<_, _>>()?))
    }
}

/// The writer of a side's partitions, from the first row on that is spilled.
pub(super) fn writer_of<'a>(
    writer: &'a mut Option<RunWriter>,
    context: &Context,
) -> Result<&'a mut RunWriter, QueryError> {
    if writer.is_none() {
        let space = context.spill()?;
        *writer = Some(RunWriter::of_partitions(space, space.sizes(context.share), &context.memory)?);
    }
    Ok(writer.as_mut().expect("made just now"))
}

/// The run of each partition, if any was spilled, of a side that has ended.
pub(super) fn written(writer: &mut Option<RunWriter>) -> Result<Vec<Run>, QueryError> {
    Ok(writer.take().map_or(Ok(Vec::new()), RunWriter::finish)?)
}
