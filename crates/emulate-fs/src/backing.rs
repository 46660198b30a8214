//! The directory that holds the files' bytes.
//!
//! It mirrors the emulated file system: same names, same permissions. Its subdirectory
//! `.firn-emulate` holds a lock, so that two emulations never share the directory, and the removed
//! files that a power cut might restore.

use crate::error::EmulateError;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The name in the backing directory that the emulated file system doesn't show.
pub const RESERVED: &str = ".firn-emulate";

/// A backing directory, locked.
#[derive(Debug)]
pub struct Backing {
    root: PathBuf,
    lock: File,
    /// Removes a temporary directory at the end.
    temporary: Option<tempfile::TempDir>,
}

impl Drop for Backing {
    fn drop(&mut self) {
        // Closing would do, but for a child process that is just being started by another thread:
        // until its exec it shares the open file, and the lock with it.
        let _ = rustix::fs::flock(&self.lock, FlockOperation::Unlock);
    }
}

impl Backing {
    /// Locks a directory, and makes it if it does not exist.
    ///
    /// # Errors
    /// [`EmulateError::Backing`] if it cannot be used, [`EmulateError::BackingInUse`] if another
    /// emulation has it.
    pub fn open(root: &Path) -> Result<Backing, EmulateError> {
        Backing::lock(root, None)
    }

    /// Makes and locks a temporary directory that is removed with this value.
    ///
    /// # Errors
    /// [`EmulateError::Backing`].
    pub fn temporary() -> Result<Backing, EmulateError> {
        let made = tempfile::Builder::new().prefix("firn-emulate-").tempdir();
        let temporary =
            made.map_err(|source| EmulateError::Backing { path: std::env::temp_dir(), source })?;
        let root = temporary.path().to_owned();
        Backing::lock(&root, Some(temporary))
    }

    fn lock(root: &Path, temporary: Option<tempfile::TempDir>) -> Result<Backing, EmulateError> {
        let fail = |source| EmulateError::Backing { path: root.to_owned(), source };
        let reserved = root.join(RESERVED);
        std::fs::create_dir_all(reserved.join("held")).map_err(fail)?;
        let root = root.canonicalize().map_err(fail)?;
        let lock = File::create(reserved.join("lock")).map_err(fail)?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            Errno::WOULDBLOCK => EmulateError::BackingInUse { path: root.clone() },
            error => fail(error.into()),
        })?;
        let backing = Backing { root, lock, temporary };
        backing.forget_held().map_err(fail)?;
        Ok(backing)
    }

    /// Removes files that an emulation had set aside when it was killed: their removals had taken
    /// place.
    fn forget_held(&self) -> std::io::Result<()> {
        for entry in std::fs::read_dir(self.root.join(RESERVED).join("held"))? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                std::fs::remove_dir_all(entry.path())?;
            } else {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// The directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }
    /// Removes a temporary directory now, even if others still hold this value.
    pub fn discard_temporary(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            // Files that cannot be removed are left to the system's cleaner of temporary
            // directories.
            let _ = temporary.close();
        }
    }
    /// The path at which a removed file or directory is held aside.
    #[must_use]
    pub fn held(&self, inode: u64) -> PathBuf {
        self.root.join(RESERVED).join("held").join(inode.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_free_when_its_backing_ends_although_a_child_shares_its_lock_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let backing = Backing::open(dir.path()).expect("free");
        assert!(matches!(Backing::open(dir.path()), Err(EmulateError::BackingInUse { .. })));
        // As a child process has it between fork and exec.
        let _shared = backing.lock.try_clone().expect("a second descriptor");
        drop(backing);
        Backing::open(dir.path()).expect("free again");
    }
}
