//! The archive of an open database: takes durable log and appends it to segment files, in steps
//! that the archiver thread or a test drives.
//!
//! FlashLogging, section 3.7: log is archived as soon as there are 32 KiB of it. If commits wait
//! for log that the devices have not completed yet, the archive's copy acknowledges them
//! (`archive_needed.rs` has the rule); otherwise only log that is on the devices is archived.
//! Commits never wait for the archive. The online log is retained until it is archived; when it is
//! nearly full all the same, `log_space.rs` decides.
//!
//! Invariants:
//! * log that the devices may lack is written only after the superblock says so, and only behind
//!   log that this writer has written: the archive reaches at least to the LSN that the superblock
//!   names;
//! * the archive's hold on the log ([`LogHolds`]) is never past what is archived durably;
//! * the images of shadows, which no log has, are archived before the log with their records, and
//!   their places are held as long as that log is;
//! * an archiver that finds its hold revoked skips the log in between, and the next segment's
//!   header says so;
//! * a failed write ends the segment; the archiver writes the same log to the next one, once the
//!   devices have it: it has read it, and the devices may be slow;
//! * log that its devices cannot deliver for as long as the archive's patience becomes a gap,
//!   whatever `ArchiveFull` says of a full log: it would be retained for ever.
//!
//! Locks: `work` is held during the archive's I/O, and no commit waits for it; `status` is held
//! briefly. Order: `work` → `superblock` → `holds`; `work` → `status`.
//!
//! How it fails: commits are not affected. The failure is in [`ArchiveStatistics`], and the step is
//! tried again after a pause.

mod following;

use crate::backup::archive::following::Unwritten;
use crate::backup::archive_survey::archive_error;
use crate::backup::shadow_images::ShadowImages;
use crate::engine::Engine;
use crate::engine::archiver::{ArchiveStatistics, Archiver, OpenArchive};
use crate::engine::log_holds::LogHolds;
use crate::engine::superblock::Superblock;
use crate::error::Error;
use crate::options::archive::{ArchiveFull, ArchiveSettings};
use crate::ranks;
use firndb_base::clock::{self, Moment};
use firndb_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use firndb_base::sync::{Condvar, Mutex};
use firndb_base::{DatabaseId, Lsn, Progress};
use firndb_device::available_bytes;
use firndb_log::archive::{ArchiveWriter, EpochMark};
use firndb_log::{LogError, LogErrorKind, LogTail, ReadLog};
use std::path::{Path, PathBuf};
use std::time::Duration;
/// Pause after a failure: doubled with each, up to the second value.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));

/// How often the archiver looks for log although `append` has not signalled it: shortest and
/// longest pause.
const LOOK: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));

/// The archive of an open database.
pub(crate) struct Archive {
    directory: PathBuf,
    options: ArchiveSettings,
    database: DatabaseId,
    work: Mutex<Work>,
    status: Mutex<ArchiveStatistics>,
    /// The database is being closed: the archiver thread ends. Set under `status`.
    closing: AtomicBool,
    /// Locked alone or under `status`.
    failing_since: Mutex<Option<Moment>>,
    /// With `status`: signalled after a write to the archive, and after a failure.
    moved: Condvar,
    /// LSN at which there is enough log to archive.
    wanted: AtomicU64,
    /// The database was opened read-only: nothing is archived, and no log is retained for the
    /// archive.
    only_looks: bool,
}

struct Work {
    /// `None` while the directory cannot be used.
    writer: Option<ArchiveWriter>,
    tail: Option<LogTail>,
    /// Log that recovery has read, until the log is followed.
    read: Option<ReadLog>,
    /// Bytes of the last piece that was read.
    bytes: Vec<u8>,
    unwritten: Option<Unwritten>,
    /// The images of shadows that are to be written before it.
    images: ShadowImages,
    /// Log before this LSN was given to the writer: it may be in the archive, acknowledged or not.
    attempted: Lsn,
    /// Log before this LSN may name images of shadows that are not held: it is not followed.
    not_held_before: Option<Lsn>,
    /// When log of less than `eager_bytes` began to wait.
    waiting_since: Option<Moment>,
    /// The writer has written since it began to follow the log, and the last write succeeded.
    has_written: bool,
    /// When log was last archived before the devices had completed it.
    early_at: Option<Moment>,
    not_before: Option<Moment>,
    pause: Duration,
    /// Since when an image of a shadow cannot be read, which is to be archived.
    unread_image_since: Option<Moment>,
    /// Since when the next log to archive cannot be read.
    unreadable_since: Option<Moment>,
    /// The failure was reported, and nothing was archived since.
    is_reported: bool,
}

impl Archive {
    /// The archive at `path`, and its hold on the log, which ends at `log_end`. A directory that
    /// cannot be used now, or that lacks log which the superblock says was archived, is tried again
    /// later, unless the options say that the archive is lost: then it begins, or goes on behind a
    /// gap, where it was.
    ///
    /// Errors: `BadArgument` if it is another database's, or holds more log than this database has.
    pub fn open(
        superblock: &Superblock,
        path: Option<String>,
        log_end: Lsn,
        options: &ArchiveSettings,
        retention: &LogHolds,
    ) -> Result<Option<Archive>, Error> {
        let Some(path) = path else { return Ok(None) };
        let directory = options.resolve(&path);
        if options.directory.is_some() {
            // The caller named it in this opening: it may not exist yet.
            crate::engine::directory::files::make_directory(&directory)?;
        }
        let mut status = ArchiveStatistics { directory: directory.clone(), ..ArchiveStatistics::default() };
        let mut writer = match open_writer(&directory, superblock.database, options) {
            Ok(writer) => Some(writer),
            Err(error) if error.kind == LogErrorKind::BadArgument => return Err(archive_error(error)),
            Err(error) => {
                status.failing = Some(error.message);
                None
            }
        };
        if let Some(writer) = &writer {
            refuse_the_future(writer, superblock, log_end)?;
        }
        let was = superblock.extensions.archived;
        let is_there = writer.as_ref().is_some_and(|writer| reaches(writer, was));
        let lost = was.filter(|_| options.lost && !is_there);
        if lost.is_none()
            && let Some(short) = writer.take_if(|_| !is_there)
        {
            // Which shadows are held is known after recovery: then the first step decides.
            status.failing = lacks(&short, &directory, was, superblock.log_start());
        }
        retention.set_archive_end(match &writer {
            _ if lost.is_some() => None,
            // It may have had more, which is damaged now.
            Some(writer) => writer.resume(),
            None => was,
        });
        status.archived = match &writer {
            Some(writer) => writer.end(),
            None => retention.archive_end(),
        };
        // Log that is archived already need not be retained; of an archive that cannot be read
        // nothing is known. Shadows before the end of one that is lost are not held any more.
        let archived = writer.as_ref().and_then(ArchiveWriter::resume).unwrap_or(Lsn::ZERO);
        let archived = archived.max(lost.map_or(Lsn::ZERO, |was| was.min(log_end)));
        retention.hold_archive(archived.max(superblock.log_start()));
        retention.set_archive_gap(superblock.extensions.archive_gap);
        Ok(Some(Archive::with(superblock, writer, status, options, false)))
    }

    /// The archive at `path`, of which only the state is shown: nothing is created, written or
    /// held.
    pub fn look(
        superblock: &Superblock,
        path: Option<&str>,
        log_end: Lsn,
        options: &ArchiveSettings,
    ) -> Option<Archive> {
        let directory = options.resolve(path?);
        let mut status = ArchiveStatistics { directory: directory.clone(), ..ArchiveStatistics::default() };
        let opened = open_writer(&directory, superblock.database, options).map_err(archive_error);
        match opened.and_then(|writer| refuse_the_future(&writer, superblock, log_end).map(|()| writer)) {
            Ok(writer) => {
                let was = superblock.extensions.archived;
                status.failing = lacks(&writer, &directory, was, superblock.log_start());
                status.archived = if status.failing.is_none() { writer.end() } else { was };
                let space = || lacks_space(&directory, options.segment_bytes.get());
                status.failing = status.failing.or_else(space);
            }
            Err(error) => {
                (status.failing, status.archived) = (Some(error.to_string()), superblock.extensions.archived);
            }
        }
        let kept_from = superblock.log_start();
        let given_up = superblock.extensions.archive_gap;
        // Between an epoch's start and the end of the epoch before it nothing was ever written.
        let begins_an_epoch = superblock.epochs.iter().any(|(_, start)| *start == kept_from);
        let missing = given_up.or(status.archived.filter(|_| !begins_an_epoch));
        if let Some(from) = missing.filter(|from| *from < kept_from) {
            status.gaps.push((status.archived.map_or(from, |end| end.min(from)), kept_from));
        }
        Some(Archive::with(superblock, None, status, options, true))
    }

    fn with(
        superblock: &Superblock,
        writer: Option<ArchiveWriter>,
        status: ArchiveStatistics,
        options: &ArchiveSettings,
        only_looks: bool,
    ) -> Archive {
        let failing_since = status.failing.is_some().then(clock::now);
        Archive {
            directory: status.directory.clone(),
            options: options.clone(),
            database: superblock.database,
            work: ranks::ARCHIVE.mutex(Work {
                writer,
                tail: None,
                read: None,
                bytes: Vec::new(),
                unwritten: None,
                images: ShadowImages::default(),
                attempted: Lsn::ZERO,
                not_held_before: None,
                waiting_since: None,
                has_written: false,
                early_at: None,
                not_before: None,
                pause: PAUSE.0,
                unread_image_since: None,
                unreadable_since: None,
                is_reported: false,
            }),
            status: Mutex::new(status),
            closing: AtomicBool::new(false),
            failing_since: Mutex::new(failing_since),
            moved: Condvar::new(),
            wanted: AtomicU64::new(0),
            only_looks,
        }
    }
}

impl Archiver for Archive {
    fn take_read(&self, read: ReadLog) {
        self.work.lock().read = Some(read);
    }

    fn step(&self, engine: &Engine, all: bool) -> Progress {
        if self.only_looks {
            return Progress::Idle;
        }
        // Look again after a while, unless a look at the log finds for how much more to wait: the
        // log that was wanted before may be there, and something else not yet.
        self.wanted.store(u64::MAX, Ordering::Relaxed);
        let Some(mut work) = self.work.try_lock() else { return Progress::Idle };
        self.take_word_back(engine, &mut work);
        if !all && work.not_before.is_some_and(|moment| moment > clock::now()) {
            return Progress::Idle;
        }
        match self.advance(engine, &mut work, all) {
            Ok(progress) => progress,
            Err(error) => {
                self.failed(engine, &mut work, &error);
                Progress::Idle
            }
        }
    }

    fn wait(&self, engine: &Engine) {
        let limit = (self.options.delay.get() / 4).clamp(LOOK.0, LOOK.1);
        engine.log.wait_for_log(Lsn(self.wanted.load(Ordering::Relaxed)), limit);
    }

    fn stop_waiting(&self) {
        let _status = self.status.lock();
        self.closing.store(true, Ordering::Relaxed);
        self.moved.notify_all();
    }

    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    fn wait_beyond(&self, seen: Option<Lsn>) -> bool {
        let mut status = self.status.lock();
        let begun = clock::now();
        loop {
            if status.archived > seen {
                return true;
            }
            if self.is_closing() {
                return false;
            }
            let since = self.failing_since.lock().unwrap_or(begun);
            match since.after(self.options.patience.get()) {
                Some(deadline) if !self.moved.wait_until(&mut status, deadline) => {
                    return status.archived > seen;
                }
                Some(_) => {}
                None => self.moved.wait(&mut status),
            }
        }
    }

    fn finish(&self, engine: &Engine, limit: Duration) {
        let begun = clock::now();
        while begun.elapsed() < limit {
            if self.step(engine, true) == Progress::Worked {
                continue;
            }
            // Idle: all is archived, or the archive fails, or another thread is caught in a write.
            let Some(mut work) = self.work.try_lock() else {
                clock::sleep(Duration::from_millis(1));
                continue;
            };
            if let Some(writer) = &mut work.writer {
                // A seal only tells an end from damage; the next opening begins a new segment in
                // any case.
                let _ = writer.seal();
            }
            return;
        }
    }

    fn archived(&self) -> Option<Lsn> {
        self.status.lock().archived
    }

    fn is_away(&self) -> bool {
        self.work.lock().writer.is_none()
    }

    fn trouble(&self) -> String {
        let status = self.status.lock();
        match &status.failing {
            Some(message) => format!("the archive in {} fails ({message})", self.directory.display()),
            None => format!("the archive in {} is too slow", self.directory.display()),
        }
    }

    fn statistics(&self, engine: &Engine) -> ArchiveStatistics {
        let mut status = self.status.lock().clone();
        // Log that was given up, of which the archive has not noted the gap yet: it may be away.
        let until = engine.retention.archive().unwrap_or_else(|| engine.superblock.lock().log_start());
        if let Some(from) = engine.retention.archive_gap().filter(|from| *from < until)
            && !status.gaps.iter().any(|gap| gap.0 <= from && from < gap.1)
        {
            status.gaps.push((from, until));
        }
        let EpochMark { start, previous_end, .. } = engine.log.epoch_mark();
        let durable = engine.log.durable();
        // While nothing is known to be archived, all log that is retained counts.
        let archived = status.archived.unwrap_or(until);
        // An epoch starts somewhat beyond the end of the one before: the LSNs in between hold no
        // log.
        let before = previous_end.0.saturating_sub(archived.0);
        status.behind_bytes = match self.only_looks {
            // Log that was appended since lies in the overlay, and will never be archived.
            true => before,
            false => before + durable.0.saturating_sub(archived.max(start).0),
        };
        status
    }

    fn when_full(&self) -> ArchiveFull {
        self.options.when_full.get()
    }
}

/// Opens [`Archive`]s for the engine.
pub(crate) struct Archives;

impl OpenArchive for Archives {
    fn open(
        &self,
        superblock: &Superblock,
        path: Option<String>,
        log_end: Lsn,
        options: &ArchiveSettings,
        retention: &LogHolds,
    ) -> Result<Option<Box<dyn Archiver>>, Error> {
        let archive = Archive::open(superblock, path, log_end, options, retention)?;
        Ok(archive.map(|archive| Box::new(archive) as Box<dyn Archiver>))
    }

    fn open_read_only(
        &self,
        superblock: &Superblock,
        path: Option<&str>,
        log_end: Lsn,
        options: &ArchiveSettings,
    ) -> Option<Box<dyn Archiver>> {
        let archive = Archive::look(superblock, path, log_end, options)?;
        Some(Box::new(archive))
    }
}

fn open_writer(
    directory: &Path,
    database: DatabaseId,
    options: &ArchiveSettings,
) -> Result<ArchiveWriter, LogError> {
    ArchiveWriter::open(options.files(directory), database, options.segment_bytes.get())
}

/// Whether the archive can be the one that had all log before `was`.
fn reaches(writer: &ArchiveWriter, was: Option<Lsn>) -> bool {
    was.is_none_or(|was| writer.reach().is_some_and(|reach| reach >= was))
}

/// Why the archive cannot go on as the one that had all log before `was`: its volume is not
/// mounted, or an older copy was put in its place. Nothing would ever be archived of the log in
/// between, unless that is retained, which it is from `retained` on.
fn lacks(writer: &ArchiveWriter, directory: &Path, was: Option<Lsn>, retained: Lsn) -> Option<String> {
    let goes_on = reaches(writer, was) || writer.resume() >= Some(retained);
    let was = was.filter(|_| !goes_on)?;
    let found = match writer.reach() {
        None => "holds no archived log, perhaps because its volume is not mounted".to_owned(),
        Some(reach) => format!("ends at LSN {reach}: it is an older copy, or has lost its end"),
    };
    Some(format!(
        "the archive in {} {found}; it had all log before LSN {was}. Put it back. If it is lost, say so at one opening \
         (archive.lost), or have the database forget it (firn archive forget) and name a directory anew; then take a backup",
        directory.display()
    ))
}

/// Why the archive can take no log: it begins a segment at each opening, with its space reserved.
fn lacks_space(directory: &Path, segment_bytes: u64) -> Option<String> {
    let free = available_bytes(directory).filter(|free| *free < segment_bytes)?;
    Some(format!(
        "the volume of {} has {free} bytes left, and a segment takes {segment_bytes}: free space there, or set \
         archive.segment_bytes",
        directory.display()
    ))
}

/// Refuses an archive that holds log which this database lacks, or log in an epoch of another
/// history: the database is an older copy of itself, and would write a second history into the
/// archive.
fn refuse_the_future(writer: &ArchiveWriter, superblock: &Superblock, log_end: Lsn) -> Result<(), Error> {
    let Some((end, mark)) = writer.end().zip(writer.mark()) else { return Ok(()) };
    let known = superblock.epochs.iter().find(|(epoch, _)| *epoch == mark.epoch);
    // Log of an epoch beyond the next one's start: it was given up when the next one began.
    let next = superblock.epochs.iter().find(|(epoch, _)| *epoch > mark.epoch);
    let other_history = known.is_some_and(|(_, start)| *start != mark.start)
        || mark.epoch > superblock.epoch()
        || next.is_some_and(|(_, start)| end > *start);
    if end <= log_end && !other_history {
        return Ok(());
    }
    Err(Error::bad_argument(format!(
        "the archive holds log up to LSN {end} of epoch {}, which this database does not have (its log ends at \
             {log_end}): this is an older copy of the database, or its log devices have lost what they had. Open it with another archive directory, or restore \
             from the archive instead",
        mark.epoch
    )))
}
