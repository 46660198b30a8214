//! Recovery: the one place that sees all layers.
//!
//! 1. the superblock says where the log is, which epochs are valid, and where redo starts;
//! 2. the log is scanned to its end, all devices side by side;
//! 3. *analysis* (`analysis.rs`) brings the page map up to date, rebuilds the open transactions and
//!    collects the page changes that the tiers may lack, in one pass;
//! 4. a higher epoch is made durable in the superblock, and only then is the log opened for
//!    appending;
//! 5. the open transactions are taken over, and the catalog is read.
//!
//! Then transactions run. *Redo* of a page when it is read, *undo* of what had not committed, and
//! redo of the other pages are in `background_recovery.rs`. Prepared transactions stay.
//!
//! A crash at any point leaves a database that the next recovery starts from the same superblock,
//! with perhaps one epoch more: redo and undo are idempotent.

mod find_log;
mod next_epoch;

use crate::engine::analysis::{analyse, at_checkpoint, cached};
use crate::engine::archive_needed::{ArchiveNeed, ArchiveTail};
use crate::engine::archiver::{Archiver, OpenArchive};
use crate::engine::background_recovery::BackgroundRecovery;
use crate::engine::devices::{Counted, Devices};
use crate::engine::log_device_failure::Losses;
use crate::engine::log_holds::LogHolds;
use crate::engine::pending::Pending;
use crate::engine::pending_log::PendingLog;
use crate::engine::recovery::find_log::{find_log, forget_lost};
use crate::engine::recovery_report::{Meter, RecoveryReport};
use crate::engine::recovery_time::Opened;
use crate::engine::redo::{self, Pages, UnredonePages};
use crate::engine::scan_cache::ScanCache;
use crate::engine::shadow_holds::HeldBefore;
use crate::engine::superblock::{EPOCHS_LEFT_MAX, Superblock};
use crate::engine::{Engine, Parts, assembly, cache, log_source};
use crate::error::Error;
use crate::options::Options;
use crate::options::callbacks::{RecoveryPhase, RecoveryProgress};
use firndb_base::Lsn;
use firndb_base::sync::Arc;
use firndb_btree::Tree;
use firndb_buffer::BufferPool;
use firndb_log::{Log, LogScan, MemberId};
use firndb_table::{Catalog, SYSTEM_TREE};
use firndb_tier::store::Store;
use firndb_tier::{CacheSwitch, PageCache};
use firndb_txn::{Analysis, LoserReport, TxnManager};

/// Opens a database from its devices.
pub(crate) fn open(
    superblock: Superblock,
    devices: Devices,
    options: &Options,
    archives: &dyn OpenArchive,
) -> Result<Arc<Engine>, Error> {
    options.check()?;
    // A database that crashes again and again before recovery is complete adds an epoch each time.
    let eager_recovery = options.tuning.eager_recovery || superblock.recoveries_begun() > EPOCHS_LEFT_MAX;
    let options = &options.clone().tuning(|tuning| tuning.eager_recovery(eager_recovery));
    let (mut opening, scan) = Opening::find(superblock, devices, options, archives)?;
    let analysed = opening.analyse(&scan)?;
    let (log, losses) = opening.open_log(&scan)?;
    let engine = opening.assemble(scan, log, losses, analysed)?;
    engine.revoke_hold_of_absent_archive();
    if engine.is_as_at_its_checkpoint() {
        engine.end_recovery();
    } else if options.tuning.eager_recovery || engine.has_nothing_to_recover() {
        match engine.finish_recovery() {
            // The pages concerned are not readable. Everything else is, and a check for damage must
            // be able to open the database.
            Err(error) if error.concerns_a_page() => engine.background_failed("recovering", &error),
            outcome => outcome?,
        }
    }
    Ok(engine)
}

/// A database that is being opened, with what was found so far.
struct Opening<'a> {
    options: &'a Options,
    /// As it was found, and as the log was opened with; later changes are made in [`Losses`].
    superblock: Superblock,
    devices: Arc<Counted>,
    store: Arc<Store>,
    cache: Option<Arc<dyn PageCache>>,
    archive: Option<Box<dyn Archiver>>,
    retention: LogHolds,
    archive_need: ArchiveNeed,
    tail: ArchiveTail,
    /// The archive's directory as the superblock had it.
    had_archive: Option<String>,
    /// Members of the log that could not be read, with a sentence for the user.
    lost: Vec<(MemberId, String)>,
    /// The superblock as it was found, before the changes of every opening.
    found: Superblock,
    /// The last record of the log that analysis has reached.
    last_record: Option<Lsn>,
    /// What was read of the log.
    reads: ScanCache,
    recovery: RecoveryReport,
    meter: Meter,
}

impl<'a> Opening<'a> {
    /// Opens the store, finds the log's end, and restores the cache's directory.
    fn find(
        mut superblock: Superblock,
        devices: Devices,
        options: &'a Options,
        archives: &dyn OpenArchive,
    ) -> Result<(Opening<'a>, LogScan), Error> {
        let devices = Arc::new(Counted::open(devices, &superblock, options)?);
        let found = superblock.clone();
        cache::give_up(&mut superblock, options)?;
        let store = assembly::open_store(&devices, &superblock, options)?;
        store.expect_metadata(superblock.store_version)?;
        let tail = ArchiveTail::find(&superblock, &options.archive)?;
        let archive_need = ArchiveNeed::at_opening(&superblock, options)?;
        let archive_use = log_source::archive_use(&superblock, &devices.logs(), &tail, options);
        let had_archive = superblock.extensions.archive.clone();
        if matches!(tail, ArchiveTail::NotNeeded) {
            superblock.extensions.archive.clone_from(&archive_need.archive);
        }
        if archive_need.archive != had_archive {
            // They belong to the other archive.
            superblock.extensions.archive_gap = None;
            superblock.extensions.archived = None;
        }
        let mut meter = Meter::new(&devices);
        let progress = |done, total| report(options, RecoveryPhase::Scan, done, total);
        let reads = ScanCache::of(devices.logs(), options.tuning.recovery_bytes);
        let scan = find_log(&reads, &mut superblock, &archive_use, options, &progress)?;
        let lost = forget_lost(&scan, &mut superblock, &devices, options)?;
        let retention = LogHolds::default();
        // What a crash cut off in the archive lies beyond the log's end.
        let archive_end = match tail {
            ArchiveTail::There(..) => scan.next_epoch_start(),
            ArchiveTail::NotNeeded | ArchiveTail::GivenUp(_) => scan.end(),
        };
        let (of_archive, path) = (&options.archive, archive_need.archive.clone());
        let archive = match options.overlay {
            Some(_) => archives.open_read_only(&superblock, path.as_deref(), archive_end, of_archive),
            None => archives.open(&superblock, path, archive_end, of_archive, &retention)?,
        };
        let mut recovery = RecoveryReport {
            clean: superblock.clean,
            log_bytes: scan.end().since(superblock.redo_start),
            from_archive: scan.from_archive(),
            archive_first: scan.archive_first(),
            ..RecoveryReport::default()
        };
        recovery.scan = meter.lap(&devices);
        let log_range = superblock.redo_start..scan.end();
        let cache = cache::open(&superblock, &devices, &store, options, log_range)?;
        recovery.cache = meter.lap(&devices);
        let opening = Opening {
            options,
            superblock,
            devices,
            store,
            cache,
            archive,
            retention,
            archive_need,
            tail,
            had_archive,
            lost,
            found,
            last_record: None,
            reads,
            recovery,
            meter,
        };
        Ok((opening, scan))
    }

    /// Reads the log into page map, open transactions and pending changes.
    fn analyse(&mut self, scan: &LogScan) -> Result<Analysed, Error> {
        let tiers = (&*self.store, self.cache.as_deref());
        let superblock = &self.superblock;
        let mut transactions = Analysis::new(at_checkpoint(scan, superblock)?);
        self.read_for_the_archive(scan);
        self.reads.serve();
        let report = &|done, total| report(self.options, RecoveryPhase::Analysis, done, total);
        // Of an archive that is begun now no record before is known to be held; one that is
        // declared lost may have had some, whose places were given out since.
        let is_same = self.archive_need.archive == self.had_archive;
        let is_lost = superblock.extensions.archived.is_some() && self.retention.archive_end().is_none();
        let is_known = is_same && !is_lost;
        let mut held = self.retention.archive().map(|from| HeldBefore { from, is_known });
        if let Some(before) = held
            && !before.redo_before(&self.store, scan, superblock)?
        {
            // A gap, as of any log that the archive lacks and that cannot be read.
            self.retention.revoke_archive();
            held = None;
        }
        let recovery = &mut self.recovery;
        let (changes, last_record) =
            analyse(scan, (superblock, held), tiers, &mut transactions, self.options, recovery, report)?;
        // One that is away has what it had, though the log is held from its start on.
        let begins = |held: HeldBefore| Some(held.from).max(self.retention.archive_end());
        if held.is_some_and(|held| self.store.newest_shadow_not_held() >= begins(held)) {
            // The archiver begins behind the log that names images which are not held.
            self.retention.revoke_archive();
            if !is_same {
                self.retention.set_archive_gap(None);
            }
        }
        self.last_record = last_record;
        self.reads.end();
        self.recovery.analysis = self.meter.lap(&self.devices);
        self.store.finish_redo(scan.end())?;
        self.recovery.map = self.meter.lap(&self.devices);
        let cache = self.cache.as_deref();
        let known = cache.map_or(0, PageCache::versions_known);
        let (pending, over_budget) = changes.finish(&|page| cached(cache, page), known);
        Ok(Analysed { transactions, pending: Arc::new(pending), now: Pages::Only(over_budget) })
    }

    /// Gives the archive the end of the log, which this opening has read: no later than now the
    /// devices have nothing else to do. As much as the log buffer takes is kept in DRAM.
    fn read_for_the_archive(&self, scan: &LogScan) {
        let (Some(archive), Some(held)) = (&self.archive, self.retention.archive()) else { return };
        // Without it the archive reads the devices, and reports what it cannot read.
        if let Ok(Some(read)) = scan.read_log(held, assembly::log_buffer_bytes(self.options)) {
            archive.take_read(read);
        }
    }

    /// Assembles the layers, and takes the open transactions over.
    fn assemble(
        mut self,
        scan: LogScan,
        log: Arc<Log>,
        losses: Arc<Losses>,
        analysed: Analysed,
    ) -> Result<Arc<Engine>, Error> {
        let options = self.options;
        let Analysed { transactions, pending, now } = analysed;
        let tier = Arc::new(CacheSwitch::new(self.store.clone(), self.cache.clone()));
        let pool = assembly::pool(options, &tier, &log)?;
        pending.read_from(PendingLog { log: log.clone(), identity: self.superblock.log_identity() });
        pool.redo_with(pending.clone());
        let (from, log_bytes) = (self.superblock.redo_start, self.recovery.log_bytes);
        let as_found = self.is_as_found(&scan, &log);
        let unredone = UnredonePages::default();
        self.recovery.redone = redo_now(&scan, from, &now, options, &pool, &unredone, &|lsn| {
            report(options, RecoveryPhase::Redo, lsn.since(from), log_bytes);
        })?;
        pending.add_failed(from, unredone.take());
        drop(scan);
        if let Some(cache) = &self.cache {
            cache.end_recovery();
        }
        let undo_tree = Tree::open(pool.clone(), assembly::UNDO_TREE, self.superblock.undo_root);
        let catalog_tree = Tree::open(pool.clone(), SYSTEM_TREE, self.superblock.catalog_root);
        let (next_txn, next_tree) = (transactions.next_txn(), transactions.next_tree());
        let manager_options = assembly::manager_options(options, &self.superblock);
        let txns = TxnManager::new(pool.clone(), undo_tree, next_txn, next_tree, manager_options);
        let LoserReport { losers, prepared } = txns.adopt(transactions);
        (self.recovery.losers, self.recovery.prepared) = (losers, prepared);
        // The catalog reads by snapshot: it does not see the losers' changes.
        let catalog = Arc::new(Catalog::open(txns.clone(), catalog_tree)?);
        self.recovery.opening = self.meter.lap(&self.devices);
        let opened = self.opened(&log);
        let background = BackgroundRecovery::of(self.recovery, Some(pending), options).of_log(opened);
        let Opening { store, archive, retention, archive_need, lost, .. } = self;
        let parts = Parts {
            losses,
            log,
            store,
            tier,
            pool,
            txns,
            catalog,
            retention,
            archive,
            archive_need,
            recovery: background,
        };
        let engine = Engine::new(parts, options);
        engine.place_trees()?;
        if as_found {
            engine.note_unchanged();
        }
        lost.into_iter().for_each(|(id, message)| engine.report_lost_at_opening(id, message));
        Ok(engine)
    }
}

impl Opening<'_> {
    /// The log as this opening has read it.
    fn opened(&self, log: &Log) -> Opened {
        let read = self.devices.logs.list().iter().map(|(_, log)| log.snapshot().reads.bytes).sum();
        let drives = self.superblock.log_drives(self.options.archive.base.as_deref());
        let profiled = self.options.log_profile().and_then(log_source::rate_of);
        let mark = log.epoch_mark();
        Opened {
            redo_start: self.superblock.redo_start,
            previous_end: mark.previous_end,
            start: mark.start,
            read: (read, self.recovery.reading_the_log()),
            log_bytes: self.recovery.log_bytes,
            profiled: profiled.map(|rate| rate * drives as f64),
        }
    }

    /// Whether the log ends with the checkpoint that the superblock names, and this opening has
    /// changed nothing but the epoch: then another checkpoint would be equal.
    fn is_as_found(&self, scan: &LogScan, log: &Log) -> bool {
        let except_epoch = |superblock: &Superblock| Superblock {
            sequence: 0,
            clean: false,
            epochs: Vec::new(),
            ..superblock.clone()
        };
        let same = except_epoch(&self.found) == except_epoch(&self.superblock);
        // Only a checkpoint clears `archive_needed`.
        let settled = self.superblock.extensions.archive_needed.is_none();
        same && settled
            && self.last_record == Some(self.superblock.checkpoint)
            && log.is_covered()
            && !scan.has_thin_log()
    }
}

/// The result of analysis.
struct Analysed {
    transactions: Analysis,
    pending: Arc<Pending>,
    /// Pages to be redone before anything is read.
    now: Pages,
}

/// Reports progress to the caller that opens the database.
fn report(options: &Options, phase: RecoveryPhase, done: u64, total: u64) {
    if let Some(progress) = &options.progress {
        progress(RecoveryProgress { phase, done, total, in_background: false });
    }
}

/// Redoes pages that are not left for later, before anything is read.
fn redo_now(
    scan: &LogScan,
    from: Lsn,
    pages: &Pages,
    options: &Options,
    pool: &Arc<BufferPool>,
    unredone: &UnredonePages,
    report: &dyn Fn(Lsn),
) -> Result<u64, Error> {
    if pages.is_empty() {
        return Ok(0);
    }
    let workers = redo::workers(options);
    redo::redo(&mut scan.records(from), pages, workers, pool, Some(unredone), &mut |lsn| {
        report(lsn);
        Ok(())
    })
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
