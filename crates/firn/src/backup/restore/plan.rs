//! Restoring, step 1: reads the backup's and the archive's log up to the target.

use crate::backup::archive_survey::archive_error;
use crate::backup::manifest::{LOG, Manifest};
use crate::backup::restore::RestoreTo;
use crate::backup::shadow_images::archived_as;
use crate::engine::checkpoint_record::Checkpoint;
use crate::error::Error;
use crate::options::Options;
use crate::options::callbacks::{RecoveryPhase, RecoveryProgress};
use firndb_base::codec::Reader;
use firndb_base::record_kind::KindOwner;
use firndb_base::{Lsn, PageId};
use firndb_btree::PageChange;
use firndb_log::archive::{ArchiveFiles, ArchiveLog, ArchiveRecords, Archived, Image, Images, Next};
use firndb_log::{Kind, LogErrorKind, Record};
use firndb_tier::store::{page_incarnations, shadows_of};
use firndb_txn::Analysis;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The remedy where an archive adds nothing.
const NAME_ANOTHER: &str = "name the archive that was written since the backup, or restore without one";

/// What is restored from.
pub(super) struct Source {
    pub backup: PathBuf,
    pub archive: Option<PathBuf>,
    pub manifest: Manifest,
}

/// What analysis found.
pub(super) struct Plan {
    pub analysis: Analysis,
    /// Pages allocated since the backup, with the version of their allocation, or freed (`None`).
    pub allocations: BTreeMap<PageId, Option<Lsn>>,
    /// Pages whose first content neither the backup's pages nor the log have: the images.
    pub shadows: BTreeMap<PageId, Image>,
    /// Where those are.
    pub images: Option<Images>,
    pub end: Lsn,
    pub last_commit_us: u64,
    pub at_end: bool,
}

impl Source {
    pub fn records(&self, from: Lsn, until: Lsn) -> Result<ArchiveRecords, Error> {
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

    /// The images of the plan's shadows, which must all be there.
    fn images(&self, plan: &Plan) -> Result<Option<Images>, Error> {
        if plan.shadows.is_empty() {
            return Ok(None);
        }
        let own = self.backup.join(LOG);
        let directories: Vec<&Path> = [&*own].into_iter().chain(self.archive.as_deref()).collect();
        let (database, page_size) = (self.manifest.database, self.manifest.page_size);
        let wanted = |image: &Image| plan.shadows.get(&image.page) == Some(image);
        let found = Images::find(&directories, database, page_size, &wanted).map_err(archive_error)?;
        let missing = plan.shadows.values().filter(|image| !found.has(image));
        match missing.max_by_key(|image| image.version) {
            None => Ok(Some(found)),
            Some(Image { page, version, .. }) => Err(Error::damaged(format!(
                "the archive has no content of page {page} in version {version}, which no log has: it was begun later, or \
                 lost it. Begin with a backup that was begun after LSN {version}, or restore to an LSN up to that"
            ))),
        }
    }

    /// Refuses an archive that was named and holds nothing of this database; returns up to where it
    /// has log.
    fn archive_reach(&self) -> Result<Option<Lsn>, Error> {
        let Some(path) = &self.archive else { return Ok(None) };
        let (at, database) = (path.display(), self.manifest.database);
        let refuse = |what: String| Err(Error::not_found(format!("{what}: {NAME_ANOTHER}")));
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
        Err(Error::unusable(message))
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
    pub fn plan(&self, target: RestoreTo, options: &Options) -> Result<Plan, Error> {
        let Manifest { from, shadows_from, end: earliest, ended_us, .. } = self.manifest;
        let until = match target {
            RestoreTo::Lsn(lsn) if lsn < earliest => return Err(self.too_early(&format!("LSN {lsn}"))),
            RestoreTo::Lsn(lsn) => lsn,
            RestoreTo::Time(time) if time < ended_us => return Err(self.too_early("that time")),
            RestoreTo::End | RestoreTo::Time(_) => Lsn::MAX,
        };
        let reach = self.archive_reach()?;
        let mut plan = Plan {
            analysis: self.analysis()?,
            allocations: BTreeMap::new(),
            shadows: BTreeMap::new(),
            images: None,
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
            plan.see(lsn, record, shadows_from)
                .map_err(|error| error.within(&format!("the log record at LSN {lsn}")))?;
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
        plan.images = self.images(&plan)?;
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
            RestoreTo::Lsn(lsn) if plan.at_end && lsn > end => Err(Error::bad_argument(format!(
                "LSN {lsn} was not archived: the archive ends at LSN {end}. Restore to that at most{}",
                if self.archive.is_none() { ", or name the archive" } else { "" }
            ))),
            _ => Ok(()),
        }
    }

    fn too_early(&self, what: &str) -> Error {
        Error::bad_argument(format!(
            "{what} lies before the backup's end, LSN {}: the earliest that it can be restored to. Use an older \
                 backup",
            self.manifest.end
        ))
    }
}

impl Plan {
    /// Shadows whose records lie before `shadows_from` are among the backup's pages.
    fn see(&mut self, lsn: Lsn, record: Record<'_>, shadows_from: Lsn) -> Result<(), Error> {
        match record.kind.owner() {
            Some(KindOwner::PageMap) => {
                for (page, incarnation) in page_incarnations(lsn, record)? {
                    self.allocations.insert(page, incarnation);
                    self.shadows.remove(&page);
                }
                if lsn >= shadows_from {
                    let images = shadows_of(lsn, record)?;
                    self.shadows.extend(images.iter().map(|image| (image.page, archived_as(image))));
                }
            }
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
    pub fn keeps(&self, page: PageId, version: Lsn) -> bool {
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
