//! Recovery: the one place that sees all floors.
//!
//! 1. the superblock says where the log is, which epochs are valid, and where redo starts;
//! 2. the log is scanned to its end, all devices side by side;
//! 3. *analysis* brings the page map up to date, rebuilds the open transactions and collects the page changes that the
//!    tiers may lack (`pending.rs`), in one pass;
//! 4. a higher epoch is made durable in the superblock, and only then is the log opened for appending;
//! 5. the open transactions are taken over, and the catalog is read.
//!
//! Then the database answers. *Redo* of a page when it is touched, *undo* of what had not committed, and redo of the rest
//! are in `rest.rs`. Prepared transactions stay.
//!
//! A crash at any point leaves a database that the next recovery starts from the same superblock, with
//! perhaps one epoch more: redo and undo are idempotent.

use crate::archive::Archive;
use crate::assembly;
use crate::cache;
use crate::checkpoint;
use crate::devices::{Counted, Devices};
use crate::early_log::{ArchiveTail, EarlyLog};
use crate::engine::{Engine, Parts};
use crate::keep::LogKeep;
use crate::log_source;
use crate::options::{RecoveryPhase, RecoveryProgress};
use crate::pending::{Collector, Pending};
use crate::redo::{Pages, redo};
use crate::rest::{Meter, RecoveryReport, Rest};
use crate::superblock::Superblock;
use crate::{Error, ErrorKind, Options};
use firn_base::sync::{Arc, thread};
use firn_base::{Lsn, PageId, rng};
use firn_btree::{PageChange, Tree};
use firn_buffer::{BufferError, BufferPool};
use firn_log::{ArchiveUse, Kind, Log, LogErrorKind, LogOptions, LogScan, LogSources, MemberId, Record};
use firn_table::{Catalog, SYSTEM_TREE};
use firn_tier::store::{Store, events};
use firn_tier::{CacheSwitch, Cached, PageCache};
use firn_txn::{Analysis, LoserReport, TxnError, TxnErrorKind, TxnManager};

/// LSNs that are left out before an epoch at most: of those there are enough for 2^40 openings.
const EPOCH_LEAP_MAX: u64 = 4 << 20;

/// Recoveries that may have been begun and not completed before one is completed before it answers: the superblock
/// remembers each.
const EPOCHS_LEFT_MAX: usize = 16;

/// Opens a database from its devices.
pub(crate) fn open(
    superblock: Superblock,
    devices: Devices,
    options: &Options,
) -> Result<Arc<Engine>, Error> {
    options.check()?;
    // Who crashes again and again before recovery is complete adds an epoch each time.
    let eager_recovery = options.eager_recovery || superblock.epochs.len() > EPOCHS_LEFT_MAX;
    let options = &Options { eager_recovery, ..options.clone() };
    let devices = Counted::new(devices, &superblock.members);
    let mut superblock = superblock;
    cache::give_up(&mut superblock, options)?;
    let report = |phase, done, total| {
        if let Some(progress) = &options.progress {
            progress(RecoveryProgress { phase, done, total, in_background: false });
        }
    };
    let store_options = assembly::store_options(options, superblock.page_size);
    let store = Arc::new(Store::open(devices.store(), superblock.database, store_options)?);
    store.expect_metadata(superblock.store_version)?;
    let tail = ArchiveTail::find(&superblock, &options.archive)?;
    let anew = options.archive.none || options.archive.path.is_some();
    let early =
        EarlyLog::new(if anew { options.archive_text()? } else { superblock.extensions.archive.clone() });
    let (archive_use, archive_first) = log_source::archive_use(&superblock, &devices.logs(), &tail, options);
    let had_archive = superblock.extensions.archive.clone();
    if matches!(tail, ArchiveTail::NotNeeded) {
        superblock.extensions.archive.clone_from(&early.archive);
    }
    let mut meter = Meter::new(&devices);
    let progress = |done, total| report(RecoveryPhase::Scan, done, total);
    let scan =
        find_log(&devices, &mut superblock, (&archive_use, archive_first), options.background, &progress)?;
    let lost = forget_lost(&scan, &mut superblock, &devices, options)?;
    let keep = LogKeep::default();
    // What a crash cut off in the archive lies beyond the log's end.
    let archive_end = match tail {
        ArchiveTail::There(..) => scan.next_epoch_start(),
        ArchiveTail::NotNeeded | ArchiveTail::GivenUp(_) => scan.end(),
    };
    let archive = Archive::open(&superblock, early.archive.clone(), archive_end, &options.archive, &keep)?;
    let mut recovery = RecoveryReport {
        clean: superblock.clean,
        log_bytes: scan.end().since(superblock.redo_start),
        from_archive: scan.from_archive(),
        archive_first: scan.archive_first(),
        ..RecoveryReport::default()
    };
    let log_range = superblock.redo_start..scan.end();
    recovery.scan = meter.lap(&devices);
    let mut cache = cache::open(&superblock, &devices, &store, options, log_range)?;
    recovery.cache = meter.lap(&devices);
    let tiers = (&*store, cache.as_deref());
    let (analysis, changes) = analyse(&scan, &superblock, tiers, options, &mut recovery, &report)?;
    store.finish_redo(scan.end())?;
    let pending = changes.map(|changes| {
        let (pending, given_up) = changes.finish(&|page| cached(cache.as_deref(), page));
        (Arc::new(pending), given_up)
    });
    recovery.analysis = meter.lap(&devices);

    let start = begin_epoch(scan.next_epoch_start());
    let epoch = superblock.open_epoch(start);
    superblock.clean = false;
    let copies = options.log_copies.unwrap_or(usize::from(superblock.copies()));
    let now = copies.min(superblock.members.len());
    superblock.want_copies(copies as u8, start, now as u8);
    if cache.is_none() {
        cache = cache::make(&mut superblock, &devices, &store, options)?;
    }
    superblock.write(&devices.superblock())?;
    let log_options = LogOptions { copies, ..assembly::log_options(options) };
    let log = scan.open_log(epoch, start, log_options)?;
    if !log.is_covered() || matches!(tail, ArchiveTail::GivenUp(_)) {
        early.keep_until(start);
    }
    if !log.is_covered() {
        // There was no room for more copies of what a crash left on too few devices.
        superblock.array_mut().redundancy.thin_before(start);
        if scan.from_archive() > 0 && superblock.extensions.archive_needed.is_none() {
            // What is damaged on the devices is in the archive alone.
            superblock.extensions.archive_needed = Some(scan.from_archive_until());
            superblock.extensions.archive = had_archive;
        }
        superblock.write(&devices.superblock())?;
    }
    assembly::attach(options, &store, &log);

    let tier = Arc::new(CacheSwitch::new(store.clone(), cache.clone()));
    let pool = assembly::pool(options, &tier, &log)?;
    let (pending, pages) = match pending {
        Some((pending, given_up)) => {
            pool.redo_with(pending.clone());
            (Some(pending), Pages::Only(given_up))
        }
        None => (None, Pages::All),
    };
    let (from, log_bytes) = (superblock.redo_start, recovery.log_bytes);
    recovery.redone = redo_now(&scan, from, &pages, options, &pool, &|lsn| {
        report(RecoveryPhase::Redo, lsn.since(from), log_bytes)
    })?;
    drop(scan);
    if let Some(cache) = &cache {
        cache.end_recovery();
    }

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
    if !options.background {
        txns.have_waiters_undo();
    }
    if let Some(pending) = &pending {
        poison_on_damage(pending, &txns);
    }
    // Reads by snapshot: what the losers did to the catalog is not seen.
    let catalog = Arc::new(Catalog::open(txns.clone(), catalog_tree)?);
    recovery.opening = meter.lap(&devices);
    let rest = Rest::of(recovery, pending, options);
    let parts =
        Parts { superblock, devices, log, store, tier, pool, txns, catalog, keep, archive, early, rest };
    let engine = Engine::new(parts, options);
    lost.into_iter().for_each(|(id, message)| engine.tell_lost_at_opening(id, message));
    if options.eager_recovery || engine.has_nothing_to_recover() {
        engine.finish_recovery()?;
    }
    Ok(engine)
}

/// Redoes pages that are not left for later, before anything is read.
fn redo_now(
    scan: &LogScan,
    from: Lsn,
    pages: &Pages,
    options: &Options,
    pool: &Arc<BufferPool>,
    report: &dyn Fn(Lsn),
) -> Result<u64, Error> {
    if pages.is_empty() {
        return Ok(0);
    }
    // A database without threads of its own recovers without any too: its I/O has one order, which tests
    // of failing devices replay.
    let workers =
        if options.background { thread::available_parallelism().map_or(1, usize::from).min(8) } else { 1 };
    redo(&mut scan.records(from), pages, workers, pool, &mut |lsn| {
        report(lsn);
        Ok(())
    })
}

/// Nothing may be built upon a page that cannot be redone.
fn poison_on_damage(pending: &Pending, txns: &Arc<TxnManager>) {
    let txns = Arc::downgrade(txns);
    pending.on_damage(move |error: &BufferError| {
        if let Some(txns) = txns.upgrade() {
            txns.poison(TxnError::new(TxnErrorKind::Damaged, error.message.clone()));
        }
    });
}

/// Where an epoch begins that may begin at `least`: somewhat further on, by chance. Should a copy of these files be opened, too,
/// its log and archive can be told from this database's, whatever else they have in common.
fn begin_epoch(least: Lsn) -> Lsn {
    let drawn = u32::from_le_bytes(rng::entropy()[..4].try_into().expect("four bytes"));
    Log::start_at(least.advance(u64::from(drawn) % EPOCH_LEAP_MAX))
}

/// Has the members that could not be read be members no more, durably with the next epoch: what they hold, others have.
/// Answers them, with a sentence for people.
fn forget_lost(
    scan: &LogScan,
    superblock: &mut Superblock,
    devices: &Counted,
    options: &Options,
) -> Result<Vec<(MemberId, String)>, Error> {
    let mut told = Vec::new();
    for (id, error) in scan.lost() {
        superblock.array_mut().redundancy.lose_member();
        superblock.members.retain(|member| member.id != *id);
        devices.logs.remove(*id);
        told.push((
            *id,
            format!(
                "log device {} is missing or cannot be read: {error}. Others have all that it had: it has been dropped from \
                 the log, and is to be added anew when it is back",
                id.0
            ),
        ));
    }
    if superblock.members.len() < options.log_copies_required {
        return Err(Error::new(
            ErrorKind::Unusable,
            format!(
                "the log has {} devices left, and log_copies_required asks for {}: {}",
                superblock.members.len(),
                options.log_copies_required,
                told.into_iter().map(|(_, sentence)| sentence).collect::<Vec<_>>().join("; ")
            ),
        ));
    }
    Ok(told)
}

/// Finds the log: all that is kept, if the archive may want it.
fn find_log(
    devices: &Counted,
    superblock: &mut Superblock,
    (archive, archive_first): (&ArchiveUse, Option<Lsn>),
    threads: bool,
    progress: &dyn Fn(u64, u64),
) -> Result<LogScan, Error> {
    let scan = |superblock: &Superblock, from| {
        let sources = LogSources::new(devices.logs(), superblock.log_identity(), from);
        let sources = sources.with_archive(archive.clone()).with_archive_first(archive_first);
        let sources = sources.with_threads(threads);
        LogScan::find(sources, &mut |done, total| progress(done, total))
    };
    let from = superblock.log_start();
    if from < superblock.redo_start {
        match scan(superblock, from) {
            // Of log that recovery does not need damage is the archive's loss only, which it will report.
            Err(error)
                if error.kind == LogErrorKind::Damaged
                    || superblock.redundancy().least_from(superblock.redo_start) > 1 =>
            {
                superblock.extensions.log_start = None;
                superblock.extensions.cache_from = None;
            }
            other => return Ok(other?),
        }
    }
    Ok(scan(superblock, superblock.redo_start)?)
}

/// Shows every record since the redo start to the page map, to the analysis of transactions, and to what collects page
/// changes; to that one not if all of redo comes before the answer.
fn analyse(
    scan: &LogScan,
    superblock: &Superblock,
    (store, cache): (&Store, Option<&dyn PageCache>),
    options: &Options,
    recovery: &mut RecoveryReport,
    report: &dyn Fn(RecoveryPhase, u64, u64),
) -> Result<(Analysis, Option<Collector>), Error> {
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
    let mut changes = (!options.eager_recovery).then(|| Collector::new(options.recovery_bytes));
    let mut records = scan.records(superblock.redo_start);
    while let Some((lsn, record)) = records.next()? {
        let seen = match record.kind {
            Kind(0x10..=0x1f) => {
                store.redo(lsn, record)?;
                cache.map_or(Ok(()), |cache| cache.redo(lsn, record))?;
                if let Some(changes) = &mut changes {
                    let cached = |page| cached(cache, page);
                    events(lsn, record)?.into_iter().for_each(|event| changes.event(event, &cached));
                }
                Ok(())
            }
            Kind(0x20..=0x3f) => PageChange::decode(record).and_then(|change| {
                if let Some(changes) = &mut changes {
                    changes.change(lsn, record.kind, &change);
                }
                analysis.page_change(lsn, change.page, change.attachment)
            }),
            Kind(0x40..=0x4f) => analysis.record(record),
            _ => Ok(()),
        };
        seen.map_err(|error| Error::from(error).within(&format!("the log record at LSN {lsn}")))?;
        recovery.records += 1;
        if recovery.records.is_multiple_of(4096) {
            report(RecoveryPhase::Analysis, lsn.since(superblock.redo_start), recovery.log_bytes);
        }
    }
    Ok((analysis, changes))
}

fn cached(cache: Option<&dyn PageCache>, page: PageId) -> Cached {
    cache.map_or(Cached::No, |cache| cache.cached(page))
}

/// Rolls back what had not committed: for restoring.
pub(crate) fn undo(
    engine: &Engine,
    losers: u64,
    report: &dyn Fn(RecoveryPhase, u64, u64),
) -> Result<(), Error> {
    let mut done = 0;
    while engine.txns.rollback_loser()? {
        done += 1;
        report(RecoveryPhase::Undo, done, losers);
    }
    Ok(())
}
