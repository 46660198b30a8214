//! Restoring: makes a new database from a base backup and archived log, as it was at any commit
//! since the backup.
//!
//! The new database has an id of its own, so that its log and archive are never mixed with those of
//! the database it was made from; its log begins where the restored one ended, so that the versions
//! of its pages stay in the past.
//!
//! 1. *analysis* reads the log from the backup's redo start to the target: which transactions are
//!    open there, and which pages were allocated or freed since the backup. Where the pages lay
//!    does not matter: that was the old store;
//! 2. the backup's *pages* are adopted, with their numbers and versions, and written to the new
//!    store, and then the images of pages whose content no log has;
//! 3. *redo* repeats the changes that they lack;
//! 4. *undo* rolls back what had not committed at the target.
//!
//! The new log holds nothing that a crash would need until the end of redo, so it is emptied
//! whenever it is half full. A crash before the first checkpoint leaves a directory marked as an
//! interrupted restore: opening it is refused, and restoring into it begins anew.

mod plan;
mod rebuild_pages;

use crate::backup::archive::Archives;
use crate::backup::manifest::Manifest;
use crate::backup::restore::plan::{Plan, Source};
use crate::backup::restore::rebuild_pages::Site;
use crate::engine::archive_needed::ArchiveNeed;
use crate::engine::archiver::OpenArchive;
use crate::engine::background_recovery::BackgroundRecovery;
use crate::engine::devices::Counted;
use crate::engine::directory::creation::{LaidOut, lay_out_new};
use crate::engine::directory::files::refuse_no_directory;
use crate::engine::log_device_failure::Losses;
use crate::engine::log_holds::LogHolds;
use crate::engine::redo;
use crate::engine::{Engine, Parts, assembly, recovery};
use crate::error::Error;
use crate::options::Options;
use crate::options::callbacks::{RecoveryPhase, RecoveryProgress};
use firndb_base::Lsn;
use firndb_base::sync::{Arc, thread};
use firndb_btree::Tree;
use firndb_log::Log;
use firndb_table::{Catalog, SYSTEM_TREE};
use firndb_tier::CacheSwitch;
use firndb_tier::store::{Layout, Store};
use firndb_txn::{LoserReport, TxnManager};
use std::path::Path;

/// Up to where a database is restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestoreTo {
    /// All log that was archived.
    #[default]
    End,
    /// All commits whose [`crate::Commit::lsn`] is at most this.
    Lsn(Lsn),
    /// All commits up to the first one, in the order of the log, that was made after this:
    /// microseconds since 1970, by the clock of the machine the database ran on.
    Time(u64),
}

/// What restoring did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestoreReport {
    /// Id of the database in the backup, in hexadecimal.
    pub from_database: String,
    /// The restored state: after the last commit before this LSN.
    pub lsn: Lsn,
    /// When the last restored commit was made, by its own record: microseconds since 1970; 0 if the
    /// backup holds all.
    pub last_commit_us: u64,
    /// Whether the archive's end was reached: no later commit was archived.
    pub at_end: bool,
    /// Pages taken from the backup.
    pub pages: u64,
    /// Page changes repeated.
    pub redone: u64,
    /// Transactions that were open at the target, and rolled back.
    pub losers: u64,
    /// Prepared transactions, which wait to be committed or rolled back.
    pub prepared: u64,
}

impl Options {
    /// Makes a new database in directory `to` from the backup in `backup` and, if one is given, the
    /// archive written since. The new database is closed when this returns; it has its own id, and
    /// the archive that these options name, if any.
    ///
    /// Errors: `NotFound` or `Unusable` if there is no complete backup, or if the archive adds
    /// nothing to it: no log, log of another database, or none from the backup's end on;
    /// `BadArgument` if the target lies before the backup's end or behind the archive's; `Damaged`,
    /// with the LSN, if archived log is damaged or missing; `Exists` if `to` holds anything,
    /// `Unusable` if it lies in a database, a backup or an archive; `Full`.
    pub fn restore(
        self,
        backup: impl AsRef<Path>,
        archive: Option<&Path>,
        target: RestoreTo,
        to: impl AsRef<Path>,
    ) -> Result<RestoreReport, Error> {
        refuse_no_directory(to.as_ref())?;
        let manifest = Manifest::read(backup.as_ref())?;
        let mut options = self.page_size(manifest.page_size).with_profiles(Some(to.as_ref()))?;
        options.archive.base = Some(to.as_ref().to_path_buf());
        let source = Source {
            backup: backup.as_ref().to_path_buf(),
            archive: archive.map(Path::to_path_buf),
            manifest,
        };
        let plan = source.plan(target, &options)?;
        let laid_out = lay_out_new(to.as_ref(), &options)?;
        build(&source, plan, laid_out)
    }
}

fn build(source: &Source, mut plan: Plan, laid_out: LaidOut) -> Result<RestoreReport, Error> {
    let LaidOut { database, devices, members, store_paths, options } = laid_out;
    let devices = Counted::create(devices, &members, database, Layout::default(), &options)?;
    let progress = |phase, done, total| {
        if let Some(progress) = &options.progress {
            progress(RecoveryProgress { phase, done, total, in_background: false });
        }
    };
    let (manifest, end) = (&source.manifest, plan.end);
    let start = Log::start_at(end);
    let mut superblock = assembly::first_superblock(database, members, &store_paths, start, &options)?;
    (superblock.catalog_root, superblock.undo_root) = (manifest.catalog_root, manifest.undo_root);
    let retention = LogHolds::default();
    let archive = Archives.open(&superblock, options.archive.text()?, start, &options.archive, &retention)?;
    let archive_need = ArchiveNeed::new(options.archive.text()?);
    let log = assembly::first_log(&devices, &superblock, &options)?;
    let store_options = assembly::store_options(&options, manifest.page_size);
    let store = Arc::new(Store::create(devices.store(), superblock.database, store_options)?);
    assembly::attach(&options, &store, &log);
    // The next opening creates the flash cache, if the options ask for one.
    let tier = Arc::new(CacheSwitch::new(store.clone(), None));
    let pool = assembly::pool(&options, &tier, &log)?;
    let site = Site { log, store, tier, pool };

    let pages =
        site.take_pages(source, &mut plan, &|done| progress(RecoveryPhase::Scan, done, manifest.pages))?;
    let total = end.since(manifest.from);
    let redone = site.redo(source, end, redo::workers(&options), &|lsn| {
        progress(RecoveryPhase::Redo, lsn.since(manifest.from), total);
    })?;
    if archive.is_some() {
        // The log so far served the build only, and is given up: an archive begins behind it, with
        // the log that can follow a backup of this database.
        retention.hold_archive(site.log.durable());
    }

    let Site { log, store, tier, pool } = site;
    let undo_tree = Tree::open(pool.clone(), assembly::UNDO_TREE, superblock.undo_root);
    let catalog_tree = Tree::open(pool.clone(), SYSTEM_TREE, superblock.catalog_root);
    let txns = TxnManager::new(
        pool.clone(),
        undo_tree,
        plan.analysis.next_txn(),
        plan.analysis.next_tree(),
        assembly::manager_options(&options, &superblock),
    );
    let LoserReport { losers, prepared } = txns.adopt(plan.analysis);
    let catalog = Arc::new(Catalog::open(txns.clone(), catalog_tree)?);
    let recovery = BackgroundRecovery::nothing();
    devices.settle_store(&mut superblock);
    let losses = Losses::new(superblock, Arc::new(devices), &options);
    log.on_device_lost(losses.handler());
    let parts =
        Parts { losses, log, store, tier, pool, txns, catalog, retention, archive, archive_need, recovery };
    let engine = Engine::new(parts, &options);
    recovery::undo(&engine, losers, &progress)?;
    engine.checkpoint_all()?;
    engine.begin_close();
    engine.finish_close(thread::panicking())?;
    Ok(RestoreReport {
        from_database: manifest.database.to_string(),
        lsn: end,
        last_commit_us: plan.last_commit_us,
        at_end: plan.at_end,
        pages,
        redone,
        losers,
        prepared,
    })
}
