//! Recovery: the one place that sees all floors.
//!
//! 1. the superblock says where the log is, which epochs are valid, and where redo starts;
//! 2. the log is scanned to its end, all devices side by side;
//! 3. *analysis* brings the page map up to date and rebuilds the open transactions, in one pass;
//! 4. a higher epoch is made durable in the superblock, and only then is the log opened for appending;
//! 5. *redo* repeats the page changes that the page found does not have, pages side by side;
//! 6. *undo* rolls back what had not committed. Prepared transactions stay.
//!
//! A crash at any point leaves a database that the next recovery starts from the same superblock, with
//! perhaps one epoch more: redo and undo are idempotent.

use crate::assembly;
use crate::checkpoint;
use crate::devices::{Counted, Devices};
use crate::engine::{Engine, Parts};
use crate::options::{RecoveryPhase, RecoveryProgress};
use crate::superblock::Superblock;
use crate::{Error, Options};
use firn_base::sync::{Arc, thread};
use firn_base::{Lsn, PageId};
use firn_btree::{PageChange, Redone, Tree};
use firn_buffer::BufferPool;
use firn_log::{Kind, LogScan, Record};
use firn_table::{Catalog, SYSTEM_TREE};
use firn_tier::store::Store;
use firn_txn::{Analysis, LoserReport, TxnManager};

/// What recovery did; shown by `firn stat` and to whoever opened the database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Whether the database had been closed cleanly.
    pub clean: bool,
    /// Bytes of log read again.
    pub log_bytes: u64,
    /// Records read again.
    pub records: u64,
    /// Page changes repeated.
    pub redone: u64,
    /// Transactions rolled back.
    pub losers: u64,
    /// Prepared transactions found.
    pub prepared: u64,
}

/// Redo reads this much log before it hands it to the workers.
const REDO_CHUNK_BYTES: usize = 4 << 20;

/// Opens a database from its devices.
pub(crate) fn open(
    superblock: Superblock,
    devices: Devices,
    options: &Options,
) -> Result<(Arc<Engine>, RecoveryReport), Error> {
    options.check()?;
    let devices = Counted::new(devices);
    let mut superblock = superblock;
    let report = |phase, done, total| {
        if let Some(progress) = &options.progress {
            progress(RecoveryProgress { phase, done, total });
        }
    };
    let store_options = assembly::store_options(options, superblock.page_size);
    let store = Arc::new(Store::open(devices.store(), superblock.database, store_options)?);
    store.expect_metadata(superblock.store_version)?;
    let scan = LogScan::new(
        devices.logs(),
        superblock.log_identity(),
        superblock.redo_start,
        &mut |done, total| {
            report(RecoveryPhase::Scan, done, total);
        },
    )?;
    let mut recovery = RecoveryReport {
        clean: superblock.clean,
        log_bytes: scan.end().since(superblock.redo_start),
        ..RecoveryReport::default()
    };
    let analysis = analyse(&scan, &superblock, &store, &mut recovery, &report)?;
    store.finish_redo(scan.end())?;

    let start = scan.next_epoch_start();
    let epoch = superblock.open_epoch(start);
    superblock.clean = false;
    superblock.write(&devices.superblock())?;
    let log = scan.open_log(epoch, start, assembly::log_options(options))?;
    assembly::attach(options, &store, &log);

    let pool = assembly::pool(options, &store, &log)?;
    // A database without threads of its own recovers without any too: its I/O has one order, which tests
    // of failing devices replay.
    let workers =
        if options.background { thread::available_parallelism().map_or(1, usize::from).min(8) } else { 1 };
    redo(&scan, superblock.redo_start, workers, &pool, &mut recovery, &report)?;

    let undo_tree = Tree::open(pool.clone(), assembly::UNDO_TREE, superblock.undo_root);
    let catalog_tree = Tree::open(pool.clone(), SYSTEM_TREE, superblock.catalog_root);
    let (next_txn, next_tree) = (analysis.next_txn(), analysis.next_tree());
    let txns = TxnManager::new(
        pool.clone(),
        undo_tree,
        next_txn,
        next_tree,
        assembly::manager_options(options, superblock.log_bytes()),
    );
    let LoserReport { losers, prepared } = txns.adopt(analysis);
    recovery.losers = losers;
    recovery.prepared = prepared;
    // Reads by snapshot: what the losers did to the catalog is not seen.
    let catalog = Arc::new(Catalog::open(txns.clone(), catalog_tree)?);
    let parts = Parts { superblock, devices, log, store, pool, txns, catalog };
    let engine = Engine::new(parts, options);
    undo(&engine, losers, &report)?;
    drop(scan);
    engine.checkpoint_all()?;
    Ok((engine, recovery))
}

/// Shows every record since the redo start to the page map and to the analysis of transactions.
fn analyse(
    scan: &LogScan,
    superblock: &Superblock,
    store: &Store,
    recovery: &mut RecoveryReport,
    report: &dyn Fn(RecoveryPhase, u64, u64),
) -> Result<Analysis, Error> {
    let mut at_checkpoint = scan.records(superblock.checkpoint);
    let state = match at_checkpoint.next()? {
        Some((lsn, Record { kind: checkpoint::CHECKPOINT, body })) if lsn == superblock.checkpoint => {
            checkpoint::decode(body)?.1
        }
        _ => {
            let lsn = superblock.checkpoint;
            return Err(Error::damaged(format!("the checkpoint record at LSN {lsn} is not in the log")));
        }
    };
    let mut analysis = Analysis::new(state);
    let mut records = scan.records(superblock.redo_start);
    while let Some((lsn, record)) = records.next()? {
        let seen = match record.kind {
            Kind(0x10..=0x1f) => {
                store.redo(lsn, record)?;
                Ok(())
            }
            Kind(0x20..=0x3f) => PageChange::decode(record)
                .and_then(|change| analysis.page_change(lsn, change.page, change.attachment)),
            Kind(0x40..=0x4f) => analysis.record(record),
            _ => Ok(()),
        };
        seen.map_err(|error| Error::from(error).within(&format!("the log record at LSN {lsn}")))?;
        recovery.records += 1;
        if recovery.records.is_multiple_of(4096) {
            report(RecoveryPhase::Analysis, lsn.since(superblock.redo_start), recovery.log_bytes);
        }
    }
    Ok(analysis)
}

/// A page change copied out of the log, for a redo worker.
struct Change {
    lsn: Lsn,
    page: PageId,
    kind: Kind,
    body: Vec<u8>,
}

/// Repeats page changes, `workers` pages at once; those of one page stay in order.
fn redo(
    scan: &LogScan,
    from: Lsn,
    workers: usize,
    pool: &Arc<BufferPool>,
    recovery: &mut RecoveryReport,
    report: &dyn Fn(RecoveryPhase, u64, u64),
) -> Result<(), Error> {
    let mut records = scan.records(from);
    let mut ended = false;
    while !ended {
        let mut lists: Vec<Vec<Change>> = (0..workers).map(|_| Vec::new()).collect();
        let mut bytes = 0;
        let mut last = from;
        while bytes < REDO_CHUNK_BYTES {
            let Some((lsn, record)) = records.next()? else {
                ended = true;
                break;
            };
            if let Kind(0x20..=0x3f) = record.kind {
                let page = PageChange::decode(record)?.page;
                bytes += record.body.len();
                let list = &mut lists[page.0 as usize % workers];
                list.push(Change { lsn, page, kind: record.kind, body: record.body.to_vec() });
            }
            last = lsn;
        }
        for outcome in redo_lists(&lists, pool) {
            recovery.redone += outcome?;
        }
        report(RecoveryPhase::Redo, last.since(from), recovery.log_bytes);
    }
    Ok(())
}

fn redo_lists(lists: &[Vec<Change>], pool: &BufferPool) -> Vec<Result<u64, Error>> {
    if let [list] = lists {
        return vec![redo_list(list, pool)];
    }
    thread::scope(|scope| {
        let handles: Vec<_> = lists.iter().map(|list| scope.spawn(|| redo_list(list, pool))).collect();
        handles
            .into_iter()
            .map(|handle| handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

fn redo_list(list: &[Change], pool: &BufferPool) -> Result<u64, Error> {
    let mut redone = 0;
    for change in list {
        // The map alone knows of most pages that they need nothing: they are not read.
        let version = pool.tier().version_of(change.page)?;
        if version.is_none_or(|version| version >= change.lsn) {
            continue;
        }
        let record = Record { kind: change.kind, body: &change.body };
        redone += u64::from(firn_btree::redo(pool, change.lsn, record)? == Redone::Applied);
    }
    Ok(redone)
}

/// Rolls back what had not committed.
fn undo(engine: &Engine, losers: u64, report: &dyn Fn(RecoveryPhase, u64, u64)) -> Result<(), Error> {
    let mut done = 0;
    while engine.txns.rollback_loser()? {
        done += 1;
        report(RecoveryPhase::Undo, done, losers);
    }
    Ok(())
}
