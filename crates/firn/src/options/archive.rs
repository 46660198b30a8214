//! The settings of the log's archive.

use crate::error::{Error, ErrorKind};
use crate::options::kept::Kept;
use crate::options::limits::refuse;
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

/// The settings of the log's archive ([`crate::Options::archive`],
/// `docs/guide/archive-and-backup.md`).
///
/// *Kept* with the database: `directory`, `segment_bytes`, `eager_bytes`, `delay`, `when_full`,
/// `patience`, `completes`. *For one opening*: `forget`, `lost`, `profile`.
#[derive(Clone)]
pub struct ArchiveSettings {
    pub(crate) directory: Option<PathBuf>,
    pub(crate) forget: bool,
    pub(crate) segment_bytes: Kept<u64>,
    pub(crate) eager_bytes: Kept<u64>,
    pub(crate) delay: Kept<Duration>,
    pub(crate) when_full: Kept<ArchiveFull>,
    pub(crate) patience: Kept<Duration>,
    pub(crate) completes: Kept<bool>,
    pub(crate) lost: bool,
    pub(crate) profile: Option<PathBuf>,
    pub(crate) wrap: Option<WrapDevice>,
    pub(crate) wrap_reads: Option<WrapDevice>,
    /// The database's directory, from which relative paths count.
    pub(crate) base: Option<PathBuf>,
}

impl Default for ArchiveSettings {
    fn default() -> ArchiveSettings {
        ArchiveSettings {
            directory: None,
            forget: false,
            segment_bytes: Kept::new(64 << 20),
            eager_bytes: Kept::new(32 << 10),
            delay: Kept::new(Duration::from_secs(1)),
            when_full: Kept::new(ArchiveFull::default()),
            patience: Kept::new(Duration::from_secs(10)),
            completes: Kept::new(false),
            lost: false,
            profile: None,
            wrap: None,
            wrap_reads: None,
            base: None,
        }
    }
}

impl ArchiveSettings {
    /// Archives all log in this directory (relative to the database's, or absolute), which is
    /// created if its parent exists, for restoring to any commit ([`crate::Options::restore`]). The
    /// database remembers it. Take a backup ([`crate::Database::backup`]) afterwards: restoring
    /// begins from one. Default: the one that the database has, and none for a new one.
    #[must_use]
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> ArchiveSettings {
        self.directory = Some(directory.into());
        self.forget = false;
        self
    }
    /// Forgets the archive that the database has. Its files stay.
    #[must_use]
    pub fn forget(mut self) -> ArchiveSettings {
        self.directory = None;
        self.forget = true;
        self
    }
    /// Bytes of an archive's segment file. Default: as the database keeps it, and 64 MiB for a new
    /// one: few files, of which each is copied in little time.
    #[must_use]
    pub fn segment_bytes(mut self, bytes: u64) -> ArchiveSettings {
        self.segment_bytes.name(bytes);
        self
    }
    /// Log that is not archived yet is archived at once when there are this many bytes of it; less
    /// of it, after [`ArchiveSettings::delay`], once the log's devices have it. Default: as the
    /// database keeps it, and 32 KiB for a new one, so that a slow archive is not written for every
    /// commit.
    #[must_use]
    pub fn eager_bytes(mut self, bytes: u64) -> ArchiveSettings {
        self.eager_bytes.name(bytes);
        self
    }
    /// The longest that durable log of less than [`ArchiveSettings::eager_bytes`] waits to be
    /// archived. Default: as the database keeps it, and a second for a new one: what was committed
    /// in about that time is lost if all log devices are.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> ArchiveSettings {
        self.delay.name(delay);
        self
    }
    /// What happens when the online log is nearly full because the archive has not taken it.
    /// Default: as the database keeps it, and [`ArchiveFull::Gap`] for a new one, so that a failing
    /// archive stops no work.
    #[must_use]
    pub fn when_full(mut self, then: ArchiveFull) -> ArchiveSettings {
        self.when_full.name(then);
        self
    }
    /// How long writes wait, when the online log is nearly full, for an archive that makes no
    /// progress, before [`ArchiveSettings::when_full`] decides. One that fails is not waited for.
    /// Default: as the database keeps it, and ten seconds for a new one.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> ArchiveSettings {
        self.patience.name(patience);
        self
    }
    /// Whether the archive may acknowledge commits before the log's devices do: while all devices
    /// are busy, or one stalls. The devices complete the same log later, and until they have, which
    /// the database remembers, opening it after a crash needs the archive. Pages and checkpoints
    /// wait for the devices all the same. Default: as the database keeps it, and no for a new one,
    /// because opening may then need the archive.
    #[must_use]
    pub fn completes(mut self, completes: bool) -> ArchiveSettings {
        self.completes.name(completes);
        self
    }
    /// Opens a database that crashed while its archive may have had commits which the log's devices
    /// lack, without that archive. Those commits are lost. If the directory holds no log, or ends
    /// before the log that was archived, the archive begins there anew, or goes on behind a gap.
    /// Where the archive is as it was left this changes nothing. Default: no.
    #[must_use]
    pub fn lost(mut self, lost: bool) -> ArchiveSettings {
        self.lost = lost;
        self
    }
    /// The profile (`firn characterize`) of the archive's device. Recovery reads log that both have
    /// from the faster source: the log's devices, or the archive. Default: the one that the
    /// directory's `firn.toml` names; without profiles for both, they are timed if there may be
    /// much log to read.
    #[must_use]
    pub fn profile(mut self, path: impl Into<PathBuf>) -> ArchiveSettings {
        self.profile = Some(path.into());
        self
    }

    /// The path of the archive that the superblock names `path`.
    pub(crate) fn resolve(&self, path: &str) -> PathBuf {
        match &self.base {
            Some(base) => base.join(path),
            None => PathBuf::from(path),
        }
    }

    /// The segments in `directory`.
    pub(crate) fn files(&self, directory: &Path) -> ArchiveFiles {
        ArchiveFiles::new(directory).wrapped(self.wrap.clone()).wrapped_for_reading(self.wrap_reads.clone())
    }

    /// Checks every setting against its range.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let bytes = self.segment_bytes.get();
        if bytes < SEGMENT_BYTES_MIN {
            return refuse(format!(
                "archive.segment_bytes is {bytes}; it must be at least {SEGMENT_BYTES_MIN}"
            ));
        }
        if self.directory.as_deref().is_some_and(|path: &Path| path.as_os_str().is_empty()) {
            return refuse("archive.directory is empty; name a directory".to_owned());
        }
        self.text().map(|_| ())
    }

    /// The archive's path as the superblock keeps it.
    pub(crate) fn text(&self) -> Result<Option<String>, Error> {
        let Some(path) = &self.directory else { return Ok(None) };
        match path.to_str() {
            Some(text) => Ok(Some(text.to_owned())),
            None => Err(Error::new(
                ErrorKind::BadArgument,
                format!("{} is no text in UTF-8; give the directory another name", path.display()),
            )),
        }
    }
}

impl std::fmt::Debug for ArchiveSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArchiveSettings")
            .field("directory", &self.directory)
            .field("forget", &self.forget)
            .field("segment_bytes", &self.segment_bytes)
            .field("eager_bytes", &self.eager_bytes)
            .field("delay", &self.delay)
            .field("when_full", &self.when_full)
            .field("patience", &self.patience)
            .field("completes", &self.completes)
            .field("lost", &self.lost)
            .field("profile", &self.profile)
            .finish_non_exhaustive()
    }
}
