//! Takes a backup of an open database while transactions run.
//!
//! The pages are copied through the page map, each in the newest version that lies below DRAM when
//! the copier reaches it: a *fuzzy* copy. With them goes the log, from the redo start at the begin
//! of the copy to an end that is durable after the last page was read. Why that is enough:
//!
//! * Every change before the redo start lay below DRAM when the copy began, so it is in the version
//!   copied or in one before it; every later change is in the copied log, unless the version copied
//!   has it.
//! * A page is stored only once the log is durable past its version (the WAL rule), so no copied
//!   page holds a change at or after the end.
//! * Pages allocated and freed meanwhile may be copied or not: the log says what became of them. A
//!   record leaves a page alone whose copy is newer.
//!
//! * The content of a shadow is in no log. Those with a record before the copy began are in the
//!   page map, and so in the copy, or freed; later ones are copied with the log, before their
//!   records.
//!
//! The log is copied along with the pages, so that the online log need not retain all of it; when
//! that is nearly full nevertheless, the backup loses its hold and fails, and commits go on.
//!
//! Why a crash at any point is harmless: the manifest says *incomplete* until everything else is
//! durable and has been read back (`manifest.rs`).

use crate::backup::archive_survey::archive_error;
use crate::backup::manifest::{LOG, Manifest, PAGES};
use crate::backup::pages::{BATCH_PAGES, PageEntry, PagesReader, PagesWriter};
use crate::backup::shadow_images::{ShadowImages, archived_as};
use crate::engine::Engine;
use crate::engine::separate_directories::{MANIFEST, refuse_mixed_backup};
use crate::error::{Error, ErrorKind};
use firndb_base::sync::Arc;
use firndb_base::{Lsn, PageId, clock};
use firndb_device::{AlignedBuf, Device, FileDevice, FileOptions, sync_directory};
use firndb_log::archive::{ArchiveFiles, ArchiveLog, ArchiveRecords, ArchiveWriter, Image, Images};
use firndb_log::{Kind, LogTail};
use firndb_tier::store::shadows_of;
use firndb_tier::{PageRead, PageTier, TierError, TierErrorKind};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;

/// Progress of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackupProgress {
    /// Copying pages: the number copied, and about how many there are.
    Pages(u64, u64),
    /// Copying the rest of the log.
    Log,
    /// Reading the backup: pages read, and their total.
    Verifying(u64, u64),
}

/// What a backup holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupReport {
    /// The database's id, in hexadecimal.
    pub database: String,
    /// Pages copied.
    pub pages: u64,
    /// Bytes of page images.
    pub page_bytes: u64,
    /// The backup's log begins here.
    pub from: Lsn,
    /// The earliest LSN that can be restored to.
    pub end: Lsn,
    /// When it was begun and ended: microseconds since 1970.
    pub times_us: (u64, u64),
}

impl BackupReport {
    fn of(manifest: &Manifest) -> BackupReport {
        BackupReport {
            database: manifest.database.to_string(),
            pages: manifest.pages,
            page_bytes: manifest.pages * manifest.page_size as u64,
            from: manifest.from,
            end: manifest.end,
            times_us: (manifest.begun_us, manifest.ended_us),
        }
    }
}

/// Called with the progress of a backup; may stop it.
pub(crate) type ProgressFn<'a> = &'a mut dyn FnMut(BackupProgress) -> ControlFlow<()>;

/// Refuses a directory in which [`take`] would not write a backup of the database in `database`.
pub(crate) fn check_directory(directory: &Path, database: Option<&Path>) -> Result<(), Error> {
    refuse_mixed_backup(directory, database)?;
    match directory.symlink_metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        _ => refuse_not_empty(directory),
    }
}

/// Reads the backup in `directory` whole and returns what it holds.
///
/// Errors: `NotFound`, `Unusable` if it is incomplete, `Damaged`.
pub fn verify_backup(
    directory: impl AsRef<Path>,
    progress: &mut dyn FnMut(BackupProgress) -> ControlFlow<()>,
) -> Result<BackupReport, Error> {
    let directory = directory.as_ref();
    let manifest = Manifest::read(directory)?;
    verify(directory, &manifest, progress)?;
    Ok(BackupReport::of(&manifest))
}

/// Takes a backup into `directory`, which was checked with [`check_directory`].
pub(crate) fn take(
    engine: &Arc<Engine>,
    directory: &Path,
    progress: ProgressFn<'_>,
) -> Result<BackupReport, Error> {
    prepare_directory(directory)?;
    // Pages that are not redone yet would be copied without the changes that the log from before
    // the crash has of them.
    engine.finish_recovery()?;
    // Of a page that was set aside there is no version that could be copied, though an older one
    // may be readable.
    if let Some(damage) = engine.recovery.unredone() {
        return Err(
            Error::from(damage).within("a backup would lack a page that was not redone after a crash")
        );
    }
    let mut hold = Hold::begin(engine);
    let device = create_file(engine, &directory.join(MANIFEST))?;
    hold.manifest.write_incomplete(&*device)?;
    let log_directory = directory.join(LOG);
    crate::engine::directory::files::make_directory(&log_directory)?;
    let pages = create_file(engine, &directory.join(PAGES))?;
    sync_directory(directory)?;
    let options = &engine.options.archive;
    let files = ArchiveFiles::new(&log_directory).wrapped(options.wrap.clone());
    let writer = ArchiveWriter::open(files, hold.manifest.database, options.segment_bytes.get())
        .map_err(archive_error)?;
    let identity = engine.superblock.lock().log_identity();
    let tail = LogTail::new(engine.log.clone(), identity, hold.manifest.from);
    let mut copy = Copy {
        engine,
        pages: PagesWriter::new(pages, hold.manifest.page_size),
        writer,
        tail,
        bytes: Vec::new(),
        images: ShadowImages::default(),
    };
    copy.copy_pages(&hold, progress)?;
    go_on(progress(BackupProgress::Log))?;
    copy.pages.finish()?;
    engine.log.flush_to_devices(engine.log.end())?;
    // No commit before the end was made later than this.
    let (end, ended_us) = (engine.log.on_devices(), clock::unix_time_us());
    while copy.copy_log(&hold, end)? {}
    copy.writer.seal().map_err(archive_error)?;
    sync_directory(&log_directory)?;
    let manifest = &mut hold.manifest;
    (manifest.end, manifest.ended_us) = (end, ended_us);
    (manifest.pages, manifest.batches) = (copy.pages.pages, copy.pages.batches);
    verify(directory, manifest, progress)?;
    manifest.write_complete(&*device)?;
    sync_directory(directory)?;
    Ok(BackupReport::of(manifest))
}

/// A backup's hold on the log, released when it is dropped.
struct Hold<'a> {
    engine: &'a Engine,
    number: u64,
    manifest: Manifest,
}

impl<'a> Hold<'a> {
    fn begin(engine: &'a Engine) -> Hold<'a> {
        // Under the superblock's lock no truncation passes the redo start.
        let superblock = engine.superblock.lock();
        let mut manifest = Manifest {
            database: superblock.database,
            page_size: superblock.page_size,
            catalog_root: superblock.catalog_root,
            undo_root: superblock.undo_root,
            checkpoint: superblock.checkpoint,
            from: superblock.redo_start,
            shadows_from: Lsn::MAX,
            end: Lsn::MAX,
            begun_us: clock::unix_time_us(),
            ended_us: 0,
            pages: 0,
            batches: 0,
            log_bytes: superblock.log_bytes(),
            log_devices: superblock.members.len() as u64,
        };
        let number = engine.retention.begin_backup(superblock.redo_start);
        drop(superblock);
        // Shadows that have a record by now lie below DRAM before the first page is copied.
        manifest.shadows_from = engine.settle_shadow_holds();
        Hold { engine, number, manifest }
    }

    fn advance(&self, lsn: Lsn) -> Result<(), Error> {
        if self.engine.retention.advance_backup(self.number, lsn) {
            self.engine.settle_shadow_holds();
            return Ok(());
        }
        Err(Error::full(
            "the backup was given up: the log became full before the backup had copied it. Take it at a quieter time, \
             to a faster volume, or make the log larger",
        ))
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.engine.retention.end_backup(self.number);
        self.engine.settle_shadow_holds();
    }
}

/// A backup being written.
struct Copy<'a> {
    engine: &'a Engine,
    pages: PagesWriter,
    writer: ArchiveWriter,
    tail: LogTail,
    bytes: Vec<u8>,
    /// Of the piece of log that is copied.
    images: ShadowImages,
}

impl Copy<'_> {
    fn copy_pages(&mut self, hold: &Hold<'_>, progress: ProgressFn<'_>) -> Result<(), Error> {
        let engine = self.engine;
        let mut buf = AlignedBuf::zeroed(BATCH_PAGES * hold.manifest.page_size);
        let mut waiting: Vec<PageId> = Vec::with_capacity(BATCH_PAGES);
        let mut outcome = Ok(());
        engine.store.pages(&mut |page, _| {
            waiting.push(page);
            if outcome.is_ok() && waiting.len() == BATCH_PAGES {
                outcome = self.copy_batch(&waiting, &mut buf, hold, progress);
            }
            if waiting.len() == BATCH_PAGES {
                waiting.clear();
            }
        })?;
        outcome?;
        if waiting.is_empty() { Ok(()) } else { self.copy_batch(&waiting, &mut buf, hold, progress) }
    }

    fn copy_batch(
        &mut self,
        waiting: &[PageId],
        buf: &mut [u8],
        hold: &Hold<'_>,
        progress: ProgressFn<'_>,
    ) -> Result<(), Error> {
        let page_size = hold.manifest.page_size;
        let not_read = || Err(TierError::unset());
        let mut reads: Vec<PageRead<'_>> = waiting
            .iter()
            .zip(buf.chunks_mut(page_size))
            .map(|(page, buf)| PageRead { page: *page, buf, outcome: not_read() })
            .collect();
        self.engine.pool.tier().read_batch(&mut reads);
        let mut found: Vec<(PageEntry, &[u8])> = Vec::with_capacity(reads.len());
        for read in &reads {
            match &read.outcome {
                Ok(version) => {
                    found.push((PageEntry { page: read.page, version: version.version }, &*read.buf));
                }
                // Freed since it was listed: the copied log says so.
                Err(error) if error.kind == TierErrorKind::NotAllocated => {}
                Err(error) => return Err(Error::from(error.clone())),
            }
        }
        if !found.is_empty() {
            self.pages.append(&found)?;
        }
        // Only up to here: transactions may append faster than this copies.
        let until = self.engine.log.on_devices();
        while self.copy_log(hold, until)? {}
        let total = self.engine.store.statistics().pages_allocated;
        go_on(progress(BackupProgress::Pages(self.pages.pages, total.max(self.pages.pages))))
    }

    /// Copies a piece of the log before `until`; false if there is none.
    fn copy_log(&mut self, hold: &Hold<'_>, until: Lsn) -> Result<bool, Error> {
        let piece = match self.tail.next(1 << 20, until, &mut self.bytes) {
            Ok(piece) => piece,
            // If the hold was revoked, that is the cause.
            Err(error) => {
                hold.advance(self.tail.needed())?;
                return Err(Error::from(error));
            }
        };
        if let Some(piece) = piece {
            let end = piece.first.advance(self.bytes.len() as u64);
            let from = piece.first.max(hold.manifest.shadows_from);
            if from < end {
                self.images.begin(self.engine, from..end);
            }
            while !self.images.are_copied() {
                let fails = |error: TierError| Err(Error::from(error));
                let copied = self.images.copy_some(self.engine, &mut self.writer, piece, &fails);
                copied.or_else(|error| hold.advance(self.tail.needed()).and(Err(error)))?;
            }
            self.writer.append(piece, &self.bytes, clock::unix_time_us()).map_err(archive_error)?;
        }
        hold.advance(self.tail.needed())?;
        Ok(piece.is_some())
    }
}

fn go_on(flow: ControlFlow<()>) -> Result<(), Error> {
    match flow {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Error::new(
            ErrorKind::Cancelled,
            "the backup was stopped; what is there of it is incomplete, remove it",
        )),
    }
}

fn prepare_directory(directory: &Path) -> Result<(), Error> {
    crate::engine::directory::files::make_directory(directory)?;
    refuse_not_empty(directory)
}

fn refuse_not_empty(directory: &Path) -> Result<(), Error> {
    if !directory.is_dir() {
        let shown = directory.display();
        return Err(Error::unusable(format!("{shown} is no directory: give the backup one of its own")));
    }
    let unusable = |error| Error::of_path(directory, error);
    match std::fs::read_dir(directory).map_err(unusable)?.next() {
        None => Ok(()),
        Some(_) => Err(Error::exists(format!(
            "{} is not empty: give the backup a directory of its own",
            directory.display()
        ))),
    }
}

fn create_file(engine: &Engine, path: &Path) -> Result<Arc<dyn Device>, Error> {
    let device: Arc<dyn Device> = Arc::new(FileDevice::create(path, &FileOptions::default())?);
    Ok(match &engine.options.archive.wrap {
        Some(wrap) => wrap(device),
        None => device,
    })
}

/// Reads the pages and the log of a backup; everything must be there and right.
fn verify(directory: &Path, manifest: &Manifest, progress: ProgressFn<'_>) -> Result<(), Error> {
    let mut reader = PagesReader::open(&directory.join(PAGES), manifest.page_size)?;
    let mut pages = 0;
    for _ in 0..manifest.batches {
        reader.next()?;
        pages += reader.len() as u64;
        go_on(progress(BackupProgress::Verifying(pages, manifest.pages)))?;
    }
    if pages != manifest.pages {
        return Err(Error::damaged(format!(
            "{}: the backup has {pages} pages instead of {}; use another",
            directory.display(),
            manifest.pages
        )));
    }
    let log_directory = directory.join(LOG);
    let log =
        ArchiveLog::open(&[&log_directory], Some(manifest.database), manifest.from).map_err(archive_error)?;
    let mut records = ArchiveRecords::new(log, manifest.end);
    let (mut checkpoint, mut shadows) = (false, BTreeSet::new());
    while let Some((lsn, record)) = records.next().map_err(archive_error)? {
        checkpoint |= lsn == manifest.checkpoint && record.kind == Kind::CHECKPOINT;
        if lsn >= manifest.shadows_from {
            shadows.extend(shadows_of(lsn, record)?.iter().map(archived_as));
        }
    }
    verify_images(&log_directory, manifest, &shadows)?;
    if records.end() != manifest.end || !checkpoint {
        return Err(Error::damaged(format!(
            "{}: the log of the backup ends at LSN {} instead of {}, or lacks its checkpoint; use another backup",
            directory.display(),
            records.end(),
            manifest.end
        )));
    }
    Ok(())
}

/// Reads the images of shadows beside the log of a backup.
fn verify_images(log: &Path, manifest: &Manifest, shadows: &BTreeSet<Image>) -> Result<(), Error> {
    let (database, page_size) = (manifest.database, manifest.page_size);
    let found = Images::find(&[log], database, page_size, &|image| shadows.contains(image));
    let (mut found, mut bytes) = (found.map_err(archive_error)?, vec![0; page_size]);
    for image in shadows {
        if !found.has(image) {
            let (page, version) = (image.page, image.version);
            return Err(Error::damaged(format!(
                "{}: the backup lacks the image of page {page} in version {version}; use another",
                log.display()
            )));
        }
        found.read(image, &mut bytes).map_err(archive_error)?;
    }
    Ok(())
}
