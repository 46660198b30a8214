//! Names: a file that is created or removed is so for good only after its directory was synced.

use super::errno::path_error;
use crate::error::DeviceError;
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use std::path::Path;

/// Makes what was created, renamed and removed in the directory `path` durable.
pub fn sync_directory(path: &Path) -> Result<(), DeviceError> {
    let name = path.display();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))
        .map_err(|errno| path_error(&name, "open the directory", errno))?;
    match retry_on_intr(|| rustix::fs::fsync(&fd)) {
        // Some network file systems have no such call, and no need of it.
        Ok(()) | Err(Errno::INVAL | Errno::NOTSUP) => Ok(()),
        Err(errno) => Err(path_error(&name, "sync the directory", errno)),
    }
}

/// Removes the file and makes that durable; a file that is not there is no error.
pub fn remove_file(path: &Path) -> Result<(), DeviceError> {
    match retry_on_intr(|| rustix::fs::unlink(path)) {
        Ok(()) | Err(Errno::NOENT) => sync_parent(path),
        Err(errno) => Err(path_error(&path.display(), "remove it", errno)),
    }
}

/// Syncs the directory that holds the name `path`.
pub(super) fn sync_parent(path: &Path) -> Result<(), DeviceError> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync_directory(parent),
        _ => sync_directory(Path::new(".")),
    }
}
