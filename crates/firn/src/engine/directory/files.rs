//! Opens single files and directories: for writing or reading, with the locks of other processes.

use crate::error::{Error, ErrorKind};
use firndb_base::clock;
use firndb_base::sync::Arc;
use firndb_device::{
    AbsentDevice, Device, DeviceError, DeviceErrorKind, FileDevice, FileOptions, sync_directory,
};
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Opens a file or raw device of a database whose superblock is held, for reading.
pub(crate) fn open_existing(path: &Path) -> Result<Arc<dyn Device>, Error> {
    released_file(path, Access::Reading)
}

/// Stands for the device at `path`, which cannot be used.
pub(crate) fn absent(path: &Path, why: &Error) -> Arc<dyn Device> {
    let why = DeviceError::new(DeviceErrorKind::Failed, why.to_string());
    Arc::new(AbsentDevice::new(&path.display().to_string(), why))
}

/// Opens a file or raw device; creates the file if it is not there.
pub(crate) fn open_or_make(path: &Path) -> Result<Arc<dyn Device>, Error> {
    let create = !exists(path)?;
    let device = file(path, create)?;
    if !create && has_loose_end(path, &*device)? {
        let message = format!("{} holds something: give an empty file or device", path.display());
        return Err(Error::bad_argument(message));
    }
    Ok(device)
}

/// Opens the file or raw device that queries spill to, which another process may have had until
/// just now; creates the file if it is not there.
pub(crate) fn open_spill(path: &Path) -> Result<Arc<dyn Device>, Error> {
    if !exists(path)? {
        return file(path, true);
    }
    let device = released_file(path, Access::Writing)?;
    match has_loose_end(path, &*device)? {
        false => Ok(device),
        true => Err(Error::bad_argument(format!(
            "{} holds something that is no rows of queries: name an empty file for them",
            path.display()
        ))),
    }
}

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// By this process alone.
    Writing,
    /// Beside other readers.
    Reading,
}

pub(super) fn open_to_read(path: &Path) -> Result<Arc<dyn Device>, Error> {
    let options = FileOptions { read_only: true, ..FileOptions::default() };
    Ok(Arc::new(FileDevice::open(path, &options)?))
}

pub(super) fn file(path: &Path, create: bool) -> Result<Arc<dyn Device>, Error> {
    let options = FileOptions::default();
    if create {
        refuse_absent_device(path)?;
    }
    let device = if create { FileDevice::create(path, &options) } else { FileDevice::open(path, &options) };
    Ok(Arc::new(device?))
}

/// How long the lock of a file may outlive the process that held it.
const LINGERING_MAX: Duration = Duration::from_secs(3);
const LINGERING_LOOK: Duration = Duration::from_millis(2);

/// Opens a file of a database whose superblock is locked here already, so that no living process
/// can have it. A process that was killed may leave requests in the kernel (io_uring), which keep
/// their files open, and so locked, until they are done: some milliseconds after it is gone.
/// Waiting for the lock is waiting for its last write; without it that write could land after
/// recovery has read the block.
pub(super) fn released_file(path: &Path, access: Access) -> Result<Arc<dyn Device>, Error> {
    let begun = clock::now();
    loop {
        let opened = match access {
            Access::Writing => file(path, false),
            Access::Reading => open_to_read(path),
        };
        match opened {
            Err(error) if error.kind() == ErrorKind::InUse && begun.elapsed() < LINGERING_MAX => {
                clock::sleep(LINGERING_LOOK);
            }
            other => return other,
        }
    }
}

/// Whether a file has bytes behind its last whole block, which no device shows: no file of Firn's
/// has.
pub(super) fn has_loose_end(path: &Path, device: &dyn Device) -> Result<bool, Error> {
    let found = std::fs::metadata(path).map_err(|error| Error::of_path(path, error))?;
    Ok(found.is_file() && found.len() != device.len())
}

/// Whether a raw device is there, not a file.
pub(super) fn is_raw_device(path: &Path) -> Result<bool, Error> {
    if !exists(path)? {
        return Ok(false);
    }
    let found = std::fs::metadata(path).map_err(|error| Error::of_path(path, error))?;
    Ok(found.file_type().is_block_device())
}

pub(super) fn exists(path: &Path) -> Result<bool, Error> {
    path.try_exists().map_err(|error| Error::of_path(path, error))
}

/// Refuses to create a file where devices have their nodes: `path` is meant for a device that is
/// not there, and the file would be lost with the machine's memory. A directory below on a file
/// system of its own (`/dev/shm`) is none of these.
pub(super) fn refuse_absent_device(path: &Path) -> Result<(), Error> {
    const NODES: &str = "/dev";
    if exists(path)? {
        return Ok(());
    }
    let Some((at, found)) = nearest_directory(path) else { return Ok(()) };
    let is_below = at.canonicalize().is_ok_and(|at| at.starts_with(NODES));
    if is_below && std::fs::metadata(NODES).is_ok_and(|nodes| nodes.dev() == found.dev()) {
        return Err(Error::unusable(format!(
            "{}: there is no such device, and a file in {NODES} would be in memory only: check the name, or give a path \
                 elsewhere",
            path.display()
        )));
    }
    Ok(())
}

/// The nearest directory above `path` that exists.
pub(super) fn nearest_directory(path: &Path) -> Option<(&Path, Metadata)> {
    path.ancestors().skip(1).find_map(|at| {
        let at = if at.as_os_str().is_empty() { Path::new(".") } else { at };
        Some((at, std::fs::metadata(at).ok()?))
    })
}

/// `path` without detours, as far as its directory exists.
pub(super) fn whole_path(path: &Path) -> PathBuf {
    match (path.parent().and_then(|parent| parent.canonicalize().ok()), path.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => path.components().collect(),
    }
}

/// The directory that a file is in.
pub(crate) fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Refuses a path that exists and is no directory, and a link to nothing: the kernel's later error
/// would be of little help.
pub(crate) fn refuse_no_directory(dir: &Path) -> Result<(), Error> {
    let message = match std::fs::metadata(dir) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => format!("{} is a file: name the directory that a database is in", dir.display()),
        Err(error) => match std::fs::read_link(dir) {
            Ok(target) => format!(
                "{} is a symbolic link to {}, which cannot be used ({error}): mend the link, or name another directory",
                dir.display(),
                target.display()
            ),
            Err(_) => return Ok(()),
        },
    };
    Err(Error::unusable(message))
}

pub(crate) fn make_directory(dir: &Path) -> Result<(), Error> {
    use std::os::unix::fs::DirBuilderExt;
    let unusable = |error: std::io::Error| {
        Error::unusable(format!("{}: cannot make the directory: {error}", dir.display())).caused_by(error)
    };
    if exists(dir)? {
        return if dir.is_dir() {
            Ok(())
        } else {
            Err(Error::unusable(format!("{} is not a directory", dir.display())))
        };
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(unusable)?;
    if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        sync_directory(parent)?;
    }
    Ok(())
}
