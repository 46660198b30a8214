//! Which blocks are log: the epoch rules.
//!
//! A block of an epoch is log only from that epoch's start up to the start of the next one. Blocks
//! that an earlier epoch left beyond are not log, however intact they are.

use crate::block::{BlockHeader, LSN_MAX, PAYLOAD, base};
use crate::error::{LogError, LogErrorKind};
use firndb_base::{Epoch, Lsn};

/// One epoch's part of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EpochRange {
    pub epoch: Epoch,
    pub start: Lsn,
    /// Start of the next epoch; [`Lsn::MAX`] for the last one.
    pub limit: Lsn,
}

/// The epochs that log still in use may carry.
#[derive(Clone, Debug)]
pub(crate) struct EpochTable {
    ranges: Vec<EpochRange>,
}

/// Classification of a valid block of this log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Log of the epoch at this index of the table.
    Log(usize),
    /// Not log, but its durable LSN counts: a seal right at its epoch's end.
    Claim(usize),
    /// Of an earlier epoch, or beyond its epoch's end.
    Old,
    /// Of an epoch that the superblock does not know.
    Unknown,
}

impl EpochTable {
    pub fn new(epochs: &[(Epoch, Lsn)]) -> Result<EpochTable, LogError> {
        let ascending = epochs.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
        let starts =
            epochs.iter().all(|&(_, lsn)| lsn.0 < LSN_MAX && (lsn == base(lsn) || lsn == Lsn::FIRST));
        if epochs.is_empty() || !ascending || !starts {
            return Err(LogErrorKind::BadArgument.error(format!(
                "a log's epochs ascend and start where next_epoch_start() said; these do not: {epochs:?}"
            )));
        }
        let limits = epochs.iter().skip(1).map(|&(_, lsn)| lsn).chain([Lsn::MAX]);
        let ranges = epochs
            .iter()
            .zip(limits)
            .map(|(&(epoch, start), limit)| EpochRange { epoch, start, limit })
            .collect();
        Ok(EpochTable { ranges })
    }

    pub fn ranges(&self) -> &[EpochRange] {
        &self.ranges
    }

    pub fn last(&self) -> EpochRange {
        *self.ranges.last().expect("checked by new()")
    }

    /// Index of the epoch that contains `lsn`.
    pub fn of(&self, lsn: Lsn) -> Option<usize> {
        self.ranges.iter().rposition(|range| range.start <= lsn)
    }

    pub fn judge(&self, block: &BlockHeader) -> Verdict {
        if block.epoch > self.last().epoch {
            return Verdict::Unknown;
        }
        let Ok(place) = self.ranges.binary_search_by_key(&block.epoch, |range| range.epoch) else {
            return Verdict::Old;
        };
        let range = &self.ranges[place];
        if block.lsn < range.limit && block.lsn.0 + PAYLOAD as u64 > range.start.0 {
            Verdict::Log(place)
        } else if block.lsn == range.limit && block.fill == 0 {
            Verdict::Claim(place)
        } else {
            Verdict::Old
        }
    }
}

/// The log of one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Index of the epoch in the table.
    pub epoch: usize,
    pub start: Lsn,
    pub end: Lsn,
    /// Where the log before the epoch ended; `start` if that is not known.
    pub previous_end: Lsn,
}
