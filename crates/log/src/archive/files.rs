//! The directory of an archive: listing and opening its segment files.

use crate::error::{LogError, LogErrorKind};
use firndb_base::sync::Arc;
use firndb_device::{Device, DeviceError, DeviceErrorKind, FileDevice, FileOptions, Fill, remove_file};
use std::path::{Path, PathBuf};

/// Wraps the device of a segment: for tests of failing and slow archives.
pub type WrapDevice = Arc<dyn Fn(Arc<dyn Device>) -> Arc<dyn Device> + Send + Sync>;

/// The directory of an archive.
#[derive(Clone)]
pub struct ArchiveFiles {
    directory: PathBuf,
    wrap: Option<WrapDevice>,
    wrap_reads: Option<WrapDevice>,
}

const PREFIX: &str = "log-";
const SUFFIX: &str = ".firn";
/// Files with higher numbers are not segments: no log is that long.
const SEQUENCE_MAX: u64 = 1 << 48;

impl ArchiveFiles {
    /// The archive in `directory`, which exists.
    #[must_use]
    pub fn new(directory: &Path) -> ArchiveFiles {
        ArchiveFiles { directory: directory.to_path_buf(), wrap: None, wrap_reads: None }
    }

    /// Wraps every segment that is written.
    #[must_use]
    pub fn wrapped(mut self, wrap: Option<WrapDevice>) -> ArchiveFiles {
        self.wrap = wrap;
        self
    }

    /// Wraps every segment that is read.
    #[must_use]
    pub fn wrapped_for_reading(mut self, wrap: Option<WrapDevice>) -> ArchiveFiles {
        self.wrap_reads = wrap;
        self
    }

    /// The newest segment, to be read; `None` if there is none.
    ///
    /// Errors: `Failed`.
    pub fn newest(&self) -> Result<Option<Arc<dyn Device>>, LogError> {
        self.list()?.last().map(|&sequence| self.open(sequence)).transpose()
    }

    /// Whether the directory has a segment's file; one that cannot be listed has none.
    #[must_use]
    pub fn holds_any(&self) -> bool {
        self.list().is_ok_and(|listed| !listed.is_empty())
    }

    /// The directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The sequence numbers of the segments, ascending.
    pub(crate) fn list(&self) -> Result<Vec<u64>, LogError> {
        let unusable = |error: std::io::Error| {
            LogErrorKind::Failed
                .error(format!("the archive in {} cannot be listed: {error}", self.directory.display()))
        };
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.directory).map_err(unusable)? {
            let name = entry.map_err(unusable)?.file_name();
            let number = name
                .to_str()
                .and_then(|name| name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX))
                .filter(|digits| digits.len() >= 10 && digits.bytes().all(|byte| byte.is_ascii_digit()));
            // Only names as this program writes them: another file's number might leave none for
            // the next segment.
            found.extend(number.and_then(|digits| digits.parse::<u64>().ok()).filter(|&number| {
                number < SEQUENCE_MAX && self.path(number).file_name() == Some(name.as_os_str())
            }));
        }
        found.sort_unstable();
        Ok(found)
    }

    pub(crate) fn path(&self, sequence: u64) -> PathBuf {
        self.directory.join(format!("{PREFIX}{sequence:010}{SUFFIX}"))
    }

    /// Creates a segment's file with its space reserved, so that a full volume is detected here,
    /// not by a later write.
    pub(crate) fn create(&self, sequence: u64, bytes: u64) -> Result<Arc<dyn Device>, LogError> {
        let path = self.path(sequence);
        let device: Arc<dyn Device> =
            Arc::new(FileDevice::create(&path, &FileOptions::default()).map_err(named)?);
        let device = match &self.wrap {
            Some(wrap) => wrap(device),
            None => device,
        };
        if let Err(error) = device.grow(bytes, Fill::Reserved) {
            drop(device);
            // It is empty; left behind, it would be taken for an empty segment.
            let _ = remove_file(&path);
            return Err(named(error));
        }
        Ok(device)
    }

    /// Opens a segment to read it, while it may be written.
    pub(crate) fn open(&self, sequence: u64) -> Result<Arc<dyn Device>, LogError> {
        let options = FileOptions { read_only: true, lock: false, direct: false, io_uring: false };
        let device: Arc<dyn Device> =
            Arc::new(FileDevice::open(&self.path(sequence), &options).map_err(named)?);
        Ok(match &self.wrap_reads {
            Some(wrap) => wrap(device),
            None => device,
        })
    }
}

impl std::fmt::Debug for ArchiveFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ArchiveFiles({})", self.directory.display())
    }
}

/// Converts a device's error to the archive's.
pub(crate) fn named(error: DeviceError) -> LogError {
    let kind = match error.kind {
        DeviceErrorKind::NoSpace => LogErrorKind::Full,
        _ => LogErrorKind::Failed,
    };
    kind.error(format!("the archive: {}", error.message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_as_they_are_written_are_segments() {
        let dir = tempfile::tempdir().expect("a directory");
        let names = ["log-0000000007.firn", "log-0000000012.firn", "log-18446744073709551615.firn"];
        let others = ["log-00000000009.firn", "log-12.firn", "log-000000001x.firn", "0000000003.firn"];
        for name in names.iter().chain(&others) {
            std::fs::write(dir.path().join(name), b"").expect("a file");
        }
        assert_eq!(ArchiveFiles::new(dir.path()).list().expect("listed"), [7, 12]);
    }
}
