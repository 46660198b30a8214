//! Analysis: one pass over the log since the redo start, before transactions run.
//!
//! Records of the page map go to the store, which repeats what its metadata lacks, and to the flash
//! cache; attachments of page changes and ends of transactions say which transactions were open;
//! `pending_collector.rs` collects the page changes.

use crate::engine::checkpoint_record::Checkpoint;
use crate::engine::pending_collector::Collector;
use crate::engine::recovery_report::RecoveryReport;
use crate::engine::shadow_holds::HeldBefore;
use crate::engine::superblock::Superblock;
use crate::error::Error;
use crate::options::Options;
use firndb_base::record_kind::KindOwner;
use firndb_base::{Lsn, PageId};
use firndb_btree::PageChange;
use firndb_log::{Kind, LogScan, Record};
use firndb_tier::store::{Store, events};
use firndb_tier::{Cached, PageCache};
use firndb_txn::{Analysis, CheckpointState};

/// Records between two reports of progress.
const RECORDS_A_REPORT: u64 = 4096;

/// Hands every record since the redo start to the page map, to the analysis of transactions, and to
/// the collector of page changes. Shadows of the archive's hold, `held`, are held again. Returns
/// the collector, and the LSN of the last record.
pub(crate) fn analyse(
    scan: &LogScan,
    (superblock, held): (&Superblock, Option<HeldBefore>),
    (store, cache): (&Store, Option<&dyn PageCache>),
    transactions: &mut Analysis,
    options: &Options,
    recovery: &mut RecoveryReport,
    report: &dyn Fn(u64, u64),
) -> Result<(Collector, Option<Lsn>), Error> {
    let mut changes = Collector::new(options.tuning.recovery_bytes);
    let mut records = scan.records(superblock.redo_start);
    let mut last = None;
    let cached = |page| cached(cache, page);
    while let Some((lsn, record)) = records.next()? {
        let seen = match record.kind.owner() {
            Some(KindOwner::PageMap) => {
                store.redo(lsn, record)?;
                held.map_or(Ok(()), |held| held.redo(store, lsn, record))?;
                cache.map_or(Ok(()), |cache| cache.redo(lsn, record))?;
                events(lsn, record)?.into_iter().for_each(|event| changes.event(event, &cached));
                Ok(())
            }
            Some(KindOwner::Tree) => PageChange::decode(record).and_then(|change| {
                changes.change(lsn, record.kind, &change, &cached);
                transactions.page_change(lsn, change.page, change.attachment)
            }),
            Some(KindOwner::Transactions) => transactions.record(record),
            _ => Ok(()),
        };
        seen.map_err(|error| Error::from(error).within(&format!("the log record at LSN {lsn}")))?;
        last = Some(lsn);
        recovery.records += 1;
        if recovery.records.is_multiple_of(RECORDS_A_REPORT) {
            report(lsn.since(superblock.redo_start), recovery.log_bytes);
        }
    }
    Ok((changes, last))
}

/// What the cache holds of a page.
pub(crate) fn cached(cache: Option<&dyn PageCache>, page: PageId) -> Cached {
    cache.map_or(Cached::No, |cache| cache.cached(page))
}

/// The transactions that were open at the checkpoint.
pub(crate) fn at_checkpoint(scan: &LogScan, superblock: &Superblock) -> Result<CheckpointState, Error> {
    let lsn = superblock.checkpoint;
    let missing =
        |what: &str| Error::damaged(format!("{what} the checkpoint record at LSN {lsn} is not in the log"));
    let mut checkpoint = match scan.records(lsn).next()? {
        Some((at, Record { kind: Kind::CHECKPOINT, body })) if at == lsn => Checkpoint::decode(body)?,
        _ => return Err(missing("")),
    };
    if let Some(from) = checkpoint.missing_from() {
        let mut records = scan.records(from);
        loop {
            let (_, record) = records.next()?.ok_or_else(|| missing("a part of the list before"))?;
            if !checkpoint.add(record)? {
                break;
            }
        }
    }
    Ok(checkpoint.state()?)
}
