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
//!    store;
//! 3. *redo* repeats the changes that they lack;
//! 4. *undo* rolls back what had not committed at the target.
//!
//! The new log holds nothing that a crash would need until the end of redo, so it is emptied
//! whenever it is half full. A crash before the first checkpoint leaves a directory marked as an
//! interrupted restore: opening it is refused, and restoring into it begins anew.

use crate::backup::archive::{Archives, archive_error};
use crate::backup::manifest::{LOG, Manifest, PAGES};
use crate::backup::pages::PagesReader;
use crate::engine::archive_needed::ArchiveNeed;
use crate::engine::archiver::OpenArchive;
use crate::engine::background_recovery::BackgroundRecovery;
use crate::engine::checkpoint::Checkpoint;
use crate::engine::devices::Counted;
use crate::engine::directory::{self, LaidOut};
use crate::engine::log_device_failure::Losses;
use crate::engine::log_retention::LogRetention;
use crate::engine::redo::{Pages, redo};
use crate::engine::superblock::Superblock;
use crate::engine::superblock_fields::Extensions;
use crate::engine::{Engine, Parts, assembly, recovery};
use crate::error::{Error, ErrorKind};
use crate::options::Options;
use crate::options::callbacks::{RecoveryPhase, RecoveryProgress};
use firndb_base::codec::Reader;
use firndb_base::record_kind::KindOwner;
use firndb_base::sync::{Arc, thread};
use firndb_base::{Epoch, Lsn, PageId, clock};
use firndb_btree::{PageChange, Tree};
use firndb_buffer::BufferPool;
use firndb_device::{AlignedBuf, Fill};
use firndb_log::archive::{ArchiveFiles, ArchiveLog, ArchiveRecords, Archived, Next};
use firndb_log::{Kind, Log, LogErrorKind, Record};
use firndb_table::{Catalog, SYSTEM_TREE};
use firndb_tier::store::{Store, page_lives};
use firndb_tier::{CacheSwitch, Lifetime, PageTier, PageWrite, Written};
use firndb_txn::{Analysis, LoserReport, TxnManager};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

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
        directory::refuse_no_directory(to.as_ref())?;
        let manifest = Manifest::read(backup.as_ref())?;
        let mut options = self.page_size(manifest.page_size).with_profiles(Some(to.as_ref()))?;
        options.archive.base = Some(to.as_ref().to_path_buf());
        let source = Source {
            backup: backup.as_ref().to_path_buf(),
            archive: archive.map(Path::to_path_buf),
            manifest,
        };
        let plan = source.plan(target, &options)?;
        let laid_out = directory::lay_out_new(to.as_ref(), &options)?;
        build(&source, plan, laid_out)
    }
}

/// The remedy where an archive adds nothing.
const NAME_ANOTHER: &str = "name the archive that was written since the backup, or restore without one";

/// What is restored from.
struct Source {
    backup: PathBuf,
    archive: Option<PathBuf>,
    manifest: Manifest,
}

/// What analysis found.
struct Plan {
    analysis: Analysis,
    /// Pages allocated since the backup, with the version of their allocation, or freed (`None`).
    allocations: BTreeMap<PageId, Option<Lsn>>,
    end: Lsn,
    last_commit_us: u64,
    at_end: bool,
}

impl Source {
    fn records(&self, from: Lsn, until: Lsn) -> Result<ArchiveRecords, Error> {
        let (own, database) = (self.backup.join(LOG), Some(self.manifest.database));
        let mut directories: Vec<&Path> = vec![&own];
        directories.extend(self.archive.as_deref());
        let log = ArchiveLog::open(&directories, database, from).map_err(archive_error)?;
        // The backup tells which history is meant, of those that copies of the database may have
        // had.
        let mut first = ArchiveLog::open(&[&own], database, from).map_err(archive_error)?;
        let log = match first.next_piece().map_err(archive_error)? {
            Next::Piece { mark, .. } => log.of_epoch(mark),
            Next::Gap(_) | Next::End => log,
        };
        Ok(ArchiveRecords::new(log, until))
    }

    /// Refuses an archive that was named and holds nothing of this database; returns up to where it
    /// has log.
    fn archive_reach(&self) -> Result<Option<Lsn>, Error> {
        let Some(path) = &self.archive else { return Ok(None) };
        let (at, database) = (path.display(), self.manifest.database);
        let refuse = |what: String| Err(Error::new(ErrorKind::NotFound, format!("{what}: {NAME_ANOTHER}")));
        if !path.is_dir() {
            return refuse(format!("{at}: there is no such directory"));
        }
        match Archived::open(ArchiveFiles::new(path), database) {
            Ok(Some(archive)) => Ok(Some(archive.reach())),
            Ok(None) => refuse(format!("{at} holds no archived log, so none of database {database}")),
            Err(error) if error.kind == LogErrorKind::BadArgument => {
                refuse(format!("{at} holds no log of database {database}: {}", error.message))
            }
            Err(error) => Err(archive_error(error)),
        }
    }

    /// Refuses an archive that added nothing to a restore of all log.
    fn check_archive_helps(&self, plan: &Plan, reach: Option<Lsn>, target: RestoreTo) -> Result<(), Error> {
        let (Some(reach), Some(path)) = (reach, &self.archive) else { return Ok(()) };
        let end = self.manifest.end;
        if matches!(target, RestoreTo::Lsn(_)) || !plan.at_end || plan.end > end || reach == end {
            return Ok(());
        }
        let why = match reach < end {
            true => format!("ends at LSN {reach}, before the backup's end, LSN {end}"),
            false => format!(
                "goes on to LSN {reach}, but not from the backup's end, LSN {end}: its log is of another history of the \
                 database, a copy of it perhaps"
            ),
        };
        let message = format!("the archive in {} {why}: {NAME_ANOTHER}", path.display());
        Err(Error::new(ErrorKind::Unusable, message))
    }

    /// The transactions at the backup's checkpoint.
    fn analysis(&self) -> Result<Analysis, Error> {
        let at = self.manifest.checkpoint;
        let lacks = || {
            Error::damaged(format!("the backup's log lacks its checkpoint at LSN {at}; use another backup"))
        };
        let mut checkpoint = match self.records(at, Lsn::MAX)?.next().map_err(archive_error)? {
            Some((lsn, Record { kind: Kind::CHECKPOINT, body })) if lsn == at => Checkpoint::decode(body)?,
            _ => return Err(lacks()),
        };
        if let Some(from) = checkpoint.missing_from() {
            let mut records = self.records(from, Lsn::MAX)?;
            loop {
                let (_, record) = records.next().map_err(archive_error)?.ok_or_else(lacks)?;
                if !checkpoint.add(record)? {
                    break;
                }
            }
        }
        Ok(Analysis::new(checkpoint.state()?))
    }

    /// Reads the log up to the target.
    fn plan(&self, target: RestoreTo, options: &Options) -> Result<Plan, Error> {
        let Manifest { from, end: earliest, .. } = self.manifest;
        let until = match target {
            RestoreTo::Lsn(lsn) if lsn < earliest => return Err(self.too_early(&format!("LSN {lsn}"))),
            RestoreTo::Lsn(lsn) => lsn,
            RestoreTo::End | RestoreTo::Time(_) => Lsn::MAX,
        };
        let reach = self.archive_reach()?;
        let mut plan = Plan {
            analysis: self.analysis()?,
            allocations: BTreeMap::new(),
            end: from,
            last_commit_us: 0,
            at_end: false,
        };
        let total = until.min(reach.unwrap_or(earliest).max(earliest)).0.saturating_sub(from.0);
        let mut records = self.records(from, until)?;
        let mut seen = 0u64;
        let mut later = None;
        while let Some((lsn, record)) = records.next().map_err(archive_error)? {
            if let (RestoreTo::Time(time), Kind::COMMIT) = (target, record.kind) {
                let made = commit_time(record)?;
                if made > time {
                    if lsn < earliest {
                        return Err(self.too_early("that time"));
                    }
                    later = Some(lsn);
                    break;
                }
            }
            plan.see(lsn, record).map_err(|error| error.within(&format!("the log record at LSN {lsn}")))?;
            seen += 1;
            if seen.is_multiple_of(4096)
                && let Some(progress) = &options.progress
            {
                let done = lsn.since(from).min(total);
                progress(RecoveryProgress {
                    phase: RecoveryPhase::Analysis,
                    done,
                    total,
                    in_background: false,
                });
            }
        }
        plan.end = later.unwrap_or(records.end());
        plan.at_end = later.is_none() && records.is_at_end();
        self.check_end(&plan, &records, target)?;
        self.check_archive_helps(&plan, reach, target)?;
        Ok(plan)
    }

    /// Whether the log reaches the target.
    fn check_end(&self, plan: &Plan, records: &ArchiveRecords, target: RestoreTo) -> Result<(), Error> {
        let end = plan.end;
        if let (Some(gap), true) = (records.gap(), target != RestoreTo::Lsn(end)) {
            return Err(Error::damaged(format!(
                "the archive lacks the log from LSN {end} to LSN {gap}: restore to LSN {end} at most, or begin with a \
                 backup that ended at or after LSN {gap}"
            )));
        }
        if end < self.manifest.end {
            return Err(Error::damaged(format!(
                "the backup's log ends at LSN {end} instead of {}; use another backup",
                self.manifest.end
            )));
        }
        match target {
            RestoreTo::Lsn(lsn) if plan.at_end && lsn > end => Err(Error::new(
                ErrorKind::BadArgument,
                format!(
                    "LSN {lsn} was not archived: the archive ends at LSN {end}. Restore to that at most{}",
                    if self.archive.is_none() { ", or name the archive" } else { "" }
                ),
            )),
            _ => Ok(()),
        }
    }

    fn too_early(&self, what: &str) -> Error {
        Error::new(
            ErrorKind::BadArgument,
            format!(
                "{what} lies before the backup's end, LSN {}: the earliest that it can be restored to. Use an older \
                 backup",
                self.manifest.end
            ),
        )
    }
}

impl Plan {
    fn see(&mut self, lsn: Lsn, record: Record<'_>) -> Result<(), Error> {
        match record.kind.owner() {
            Some(KindOwner::PageMap) => self.allocations.extend(page_lives(lsn, record)?),
            Some(KindOwner::Tree) => {
                let change = PageChange::decode(record)?;
                self.analysis.page_change(lsn, change.page, change.attachment)?;
            }
            Some(KindOwner::Transactions) => {
                self.analysis.record(record)?;
                if record.kind == Kind::COMMIT {
                    // The clock may have gone backwards; the reported time never does.
                    self.last_commit_us = self.last_commit_us.max(commit_time(record)?);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether the backup's image of the page belongs to the new database.
    fn keeps(&self, page: PageId, version: Lsn) -> bool {
        match self.allocations.get(&page) {
            None => true,
            Some(None) => false,
            Some(Some(born)) => version >= *born,
        }
    }
}

/// When a transaction committed, from its record.
fn commit_time(record: Record<'_>) -> Result<u64, Error> {
    let mut reader = Reader::new(record.body);
    reader.varint()?;
    Ok(reader.varint()?)
}

/// The layers of the database that is being built.
struct Site {
    log: Arc<Log>,
    store: Arc<Store>,
    tier: Arc<CacheSwitch>,
    pool: Arc<BufferPool>,
}

impl Site {
    /// Writes everything and empties the log.
    fn settle(&self) -> Result<(), Error> {
        self.pool.write_older_than(self.log.end())?;
        self.log.flush(self.log.end())?;
        self.store.sync()?;
        self.log.flush(self.log.end())?;
        self.log.truncate(self.log.end());
        Ok(())
    }

    fn settle_if_crowded(&self) -> Result<(), Error> {
        let space = self.log.space();
        if space.used_bytes > space.capacity_bytes / 3 { self.settle() } else { Ok(()) }
    }

    /// Adopts the backup's pages.
    fn take_pages(&self, source: &Source, plan: &Plan, progress: &dyn Fn(u64)) -> Result<u64, Error> {
        let manifest = &source.manifest;
        let mut reader = PagesReader::open(&source.backup.join(PAGES), manifest.page_size)?;
        let mut buf = AlignedBuf::zeroed(manifest.page_size * crate::backup::pages::BATCH_PAGES);
        let mut taken = 0;
        for _ in 0..manifest.batches {
            reader.next()?;
            let mut pages = Vec::with_capacity(reader.len());
            for (index, image) in (0..reader.len()).zip(buf.chunks_mut(manifest.page_size)) {
                let (entry, bytes) = reader.page(index);
                if entry.version >= manifest.end {
                    return Err(Error::damaged(format!(
                        "the backup's page {} has version {}, which its log does not reach; use another backup",
                        entry.page, entry.version
                    )));
                }
                if plan.keeps(entry.page, entry.version) {
                    image.copy_from_slice(bytes);
                    pages.push((entry.page, entry.version, &*image));
                }
            }
            self.write_pages(&pages)?;
            taken += pages.len() as u64;
            progress(taken);
        }
        // Pages allocated since: empty, until redo fills them.
        let mut born: Vec<(PageId, Lsn)> = Vec::new();
        for (page, allocated) in &plan.allocations {
            if let Some(version) = allocated
                && self.store.version_of(*page)?.is_none()
            {
                born.push((*page, *version));
            }
        }
        for chunk in born.chunks(1024) {
            self.store.adopt(chunk)?;
            self.settle_if_crowded()?;
        }
        Ok(taken)
    }

    fn write_pages(&self, pages: &[(PageId, Lsn, &[u8])]) -> Result<(), Error> {
        let versions: Vec<(PageId, Lsn)> = pages.iter().map(|(page, version, _)| (*page, *version)).collect();
        self.store.adopt(&versions)?;
        let mut writes: Vec<PageWrite<'_>> = pages
            .iter()
            .map(|(page, version, data)| PageWrite {
                page: *page,
                version: *version,
                recovery_lsn: *version,
                dirty: true,
                data,
                changed: None,
                base: Lsn::ZERO,
                lifetime: Lifetime::Unknown,
                outcome: Ok(Written::Declined),
            })
            .collect();
        self.store.write_batch(&mut writes);
        for write in writes {
            if write.outcome? != Written::Taken {
                return Err(Error::damaged(format!("page {} is in the backup twice", write.page)));
            }
        }
        self.settle_if_crowded()
    }
}

fn build(source: &Source, plan: Plan, laid_out: LaidOut) -> Result<RestoreReport, Error> {
    let LaidOut { database, devices, members, store_path, options } = laid_out;
    let devices = Counted::new(devices, &members);
    let progress = |phase, done, total| {
        if let Some(progress) = &options.progress {
            progress(RecoveryProgress { phase, done, total, in_background: false });
        }
    };
    let (manifest, end) = (&source.manifest, plan.end);
    let start = Log::start_at(end);
    let mut superblock = Superblock {
        database,
        sequence: 0,
        page_size: manifest.page_size,
        created_us: clock::unix_time_us(),
        catalog_root: manifest.catalog_root,
        undo_root: manifest.undo_root,
        checkpoint: start,
        redo_start: start,
        clean: false,
        epochs: vec![(Epoch(1), start)],
        members,
        store_path,
        store_version: Lsn::ZERO,
        extensions: Extensions {
            archive: options.archive.text()?,
            settings: options.kept(),
            ..Extensions::default()
        },
        in_doubt: false,
    };
    let copies = options.log.copies.unwrap_or(1) as u8;
    superblock.want_copies(copies, start, copies);
    let retention = LogRetention::default();
    let archive = Archives.open(&superblock, options.archive.text()?, start, &options.archive, &retention)?;
    let archive_need = ArchiveNeed::new(options.archive.text()?);
    for (log, member) in devices.logs().iter().zip(&superblock.members) {
        log.grow(member.bytes, Fill::Written)?;
    }
    let log_options = assembly::log_options(&options);
    let log = Log::create_at(devices.logs(), superblock.log_identity(), Epoch(1), start, log_options)?;
    let store_options = assembly::store_options(&options, manifest.page_size);
    let store = Arc::new(Store::create(devices.store(), superblock.database, store_options)?);
    assembly::attach(&options, &store, &log);
    // The next opening creates the flash cache, if the options ask for one.
    let tier = Arc::new(CacheSwitch::new(store.clone(), None));
    let pool = assembly::pool(&options, &tier, &log)?;
    let site = Site { log, store, tier, pool };

    let pages =
        site.take_pages(source, &plan, &|done| progress(RecoveryPhase::Scan, done, manifest.pages))?;
    let workers =
        if options.background { thread::available_parallelism().map_or(1, usize::from).min(8) } else { 1 };
    let mut records = source.records(manifest.from, end)?;
    let total = end.since(manifest.from);
    let redone = redo(&mut records, &Pages::All, workers, &site.pool, None, &mut |lsn| {
        progress(RecoveryPhase::Redo, lsn.since(manifest.from), total);
        site.settle_if_crowded()
    })?;
    site.settle()?;
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
        assembly::manager_options(&options, superblock.log_bytes()),
    );
    let LoserReport { losers, prepared } = txns.adopt(plan.analysis);
    let catalog = Arc::new(Catalog::open(txns.clone(), catalog_tree)?);
    let recovery = BackgroundRecovery::nothing();
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
