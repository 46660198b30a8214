//! How the log is archived.

use crate::error::{Error, ErrorKind};
use crate::options::Options;
use firndb_log::archive::{ArchiveFiles, SEGMENT_BYTES_MIN, WrapDevice};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What happens when the online log is nearly full because the archive has not taken it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArchiveFull {
    /// Commits go on. The log that the archive lacks is given up: the gap is final and reported,
    /// and restoring beyond it needs a new base backup. The same happens once the database was
    /// opened some hundreds of times, and log written each time, while the archive could not be
    /// reached.
    #[default]
    Gap,
    /// Nothing is given up. Writes fail with `Full` until the archive takes log again: when the log
    /// is full, and when the database was opened five hundred times, and log written each time,
    /// while the archive could not be reached. It still opens, and can be read.
    Refuse,
}

/// The options of archiving.
#[derive(Clone)]
pub(crate) struct ArchiveOptions {
    pub path: Option<PathBuf>,
    /// Forget the archive that the database has.
    pub none: bool,
    pub segment_bytes: u64,
    pub eager_bytes: u64,
    pub delay: Duration,
    pub when_full: ArchiveFull,
    pub patience: Duration,
    /// Log that the archive has is acknowledged before the log's devices have it.
    pub completes: bool,
    /// The archive is gone, and with it the log that only it had.
    pub lost: bool,
    pub wrap: Option<WrapDevice>,
    pub wrap_reads: Option<WrapDevice>,
    /// The database's directory, from which relative paths count.
    pub base: Option<PathBuf>,
}

impl Default for ArchiveOptions {
    fn default() -> ArchiveOptions {
        ArchiveOptions {
            path: None,
            none: false,
            segment_bytes: 64 << 20,
            eager_bytes: 32 << 10,
            delay: Duration::from_secs(1),
            when_full: ArchiveFull::default(),
            patience: Duration::from_secs(10),
            completes: false,
            lost: false,
            wrap: None,
            wrap_reads: None,
            base: None,
        }
    }
}

impl ArchiveOptions {
    /// The path of the archive that the superblock names `path`.
    pub fn resolve(&self, path: &str) -> PathBuf {
        match &self.base {
            Some(base) => base.join(path),
            None => PathBuf::from(path),
        }
    }

    /// The segments in `directory`.
    pub fn files(&self, directory: &Path) -> ArchiveFiles {
        ArchiveFiles::new(directory).wrapped(self.wrap.clone()).wrapped_for_reading(self.wrap_reads.clone())
    }
}

impl Options {
    /// Archives all log in this directory (relative to the database's, or absolute), which is
    /// created if its parent exists, for restoring to any commit ([`Options::restore`]). The
    /// database remembers it. Take a backup ([`crate::Database::backup`]) afterwards: restoring
    /// begins from one. Default: none, or the one that the database has.
    #[must_use]
    pub fn archive(mut self, directory: impl Into<PathBuf>) -> Options {
        self.archive.path = Some(directory.into());
        self.archive.none = false;
        self
    }

    /// Forgets the archive that the database has. Its files stay.
    #[must_use]
    pub fn no_archive(mut self) -> Options {
        self.archive.path = None;
        self.archive.none = true;
        self
    }

    /// Bytes of an archive's segment file. Kept with the database; default: as it was, and 64 MiB
    /// for a new one.
    #[must_use]
    pub fn archive_segment_bytes(self, bytes: u64) -> Options {
        self.naming(|kept| kept.archive_segment_bytes = Some(bytes))
    }

    /// Log that is not archived yet is archived at once when there are this many bytes of it; less
    /// of it, after [`Options::archive_delay`], once the log's devices have it. Kept with the
    /// database; default: as it was, and 32 KiB for a new one.
    #[must_use]
    pub fn archive_eager_bytes(self, bytes: u64) -> Options {
        self.naming(|kept| kept.archive_eager_bytes = Some(bytes))
    }

    /// Whether the archive may acknowledge commits before the log's devices do: while all devices
    /// are busy, or one stalls. The devices complete the same log later, and until they have, which
    /// the database remembers, opening it after a crash needs the archive. Pages and checkpoints
    /// wait for the devices all the same. Kept with the database; default: as it was, and no for a
    /// new one.
    #[must_use]
    pub fn archive_completes(self, completes: bool) -> Options {
        self.naming(|kept| kept.archive_completes = Some(completes))
    }

    /// Opens a database that crashed while its archive may have had commits which the log's devices
    /// lack, without that archive. Those commits are lost. Where the archive is not needed this
    /// changes nothing. Default: no.
    #[must_use]
    pub fn archive_lost(mut self, lost: bool) -> Options {
        self.archive.lost = lost;
        self
    }

    /// The longest that durable log of less than [`Options::archive_eager_bytes`] waits to be
    /// archived. Kept with the database; default: as it was, and a second for a new one.
    #[must_use]
    pub fn archive_delay(self, delay: Duration) -> Options {
        self.naming(|kept| kept.archive_delay = Some(delay))
    }

    /// What happens when the online log is nearly full because the archive has not taken it. Kept
    /// with the database; default: as it was, and [`ArchiveFull::Gap`] for a new one.
    #[must_use]
    pub fn archive_when_full(self, then: ArchiveFull) -> Options {
        self.naming(|kept| kept.archive_when_full = Some(then))
    }

    /// How long writes wait, when the online log is nearly full, for an archive that makes no
    /// progress, before [`Options::archive_when_full`] decides. One that fails is not waited for.
    /// Kept with the database; default: as it was, and ten seconds for a new one.
    #[must_use]
    pub fn archive_patience(self, patience: Duration) -> Options {
        self.naming(|kept| kept.archive_patience = Some(patience))
    }

    /// Wraps every file that the archive and backups write: tests of failing, slow and crashing
    /// ones.
    #[doc(hidden)]
    #[must_use]
    pub fn wrap_archive(mut self, wrap: WrapDevice) -> Options {
        self.archive.wrap = Some(wrap);
        self
    }

    /// Wraps every file of the archive that recovery reads: tests of fast and slow ones.
    #[doc(hidden)]
    #[must_use]
    pub fn wrap_archive_reads(mut self, wrap: WrapDevice) -> Options {
        self.archive.wrap_reads = Some(wrap);
        self
    }

    /// As [`Options::check`], of the archive's options.
    pub(crate) fn check_archive(&self) -> Result<(), Error> {
        let archive = &self.archive;
        let refuse = |message: String| Err(Error::new(ErrorKind::BadArgument, message));
        if archive.segment_bytes < SEGMENT_BYTES_MIN {
            return refuse(format!(
                "archive_segment_bytes is {}; it must be at least {SEGMENT_BYTES_MIN}",
                archive.segment_bytes
            ));
        }
        if archive.path.as_deref().is_some_and(|path: &Path| path.as_os_str().is_empty()) {
            return refuse("the archive's path is empty; name a directory".to_owned());
        }
        self.archive_text().map(|_| ())
    }

    /// The archive's path as the superblock keeps it.
    pub(crate) fn archive_text(&self) -> Result<Option<String>, Error> {
        let Some(path) = &self.archive.path else { return Ok(None) };
        match path.to_str() {
            Some(text) => Ok(Some(text.to_owned())),
            None => Err(Error::new(
                ErrorKind::BadArgument,
                format!("{} is no text in UTF-8; give the directory another name", path.display()),
            )),
        }
    }
}
