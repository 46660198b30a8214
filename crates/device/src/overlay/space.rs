//! Where overlays keep what was written: in DRAM up to a budget, beyond it in a temporary file
//! without a name.
//!
//! The file has no name (`O_TMPFILE`, or unlinked as soon as it is made), so that the kernel frees
//! it with the process, however that ends. It goes around [`crate::device::Device`]: nothing in it
//! is ever read by another opening.
//!
//! Lock: one, a leaf, over the accounts; it is not held during the file's I/O.

use crate::error::{DeviceError, DeviceErrorKind};
use firndb_base::sync::{Arc, Mutex};
use rustix::fs::OFlags;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Space for what overlays keep aside; shared by the overlays of one database.
#[derive(Debug)]
pub struct OverlaySpace {
    /// Bytes of DRAM at most, beside an index of about 1 % of all that is kept.
    budget: u64,
    /// Where the temporary file is.
    directory: PathBuf,
    accounts: Mutex<Accounts>,
}

#[derive(Debug, Default)]
struct Accounts {
    /// Bytes in DRAM.
    memory: u64,
    /// Bytes of the file in use.
    filed: u64,
    file: Option<Arc<File>>,
    /// Where the file's unused end begins.
    end: u64,
    /// Freed places, by their size.
    free: BTreeMap<usize, Vec<u64>>,
}

/// Where a chunk is.
#[derive(Debug)]
pub(super) enum ChunkLocation {
    Memory(Box<[u8]>),
    /// At this byte of the file.
    File(Arc<File>, u64),
}

impl OverlaySpace {
    /// Up to `budget` bytes in DRAM, then a file in the system's directory for temporary files.
    #[must_use]
    pub fn new(budget: u64) -> OverlaySpace {
        OverlaySpace::in_directory(budget, &std::env::temp_dir())
    }

    /// Up to `budget` bytes in DRAM, then a file in `directory`, which is made when it is needed
    /// first.
    #[must_use]
    pub fn in_directory(budget: u64, directory: &Path) -> OverlaySpace {
        OverlaySpace { budget, directory: directory.to_path_buf(), accounts: Mutex::default() }
    }

    /// Bytes kept now: in DRAM, and in the temporary file.
    #[must_use]
    pub fn used(&self) -> (u64, u64) {
        let accounts = self.accounts.lock();
        (accounts.memory, accounts.filed)
    }

    /// A location for `bytes` bytes, whose contents are undefined.
    pub(super) fn take(&self, bytes: usize) -> Result<ChunkLocation, DeviceError> {
        let mut accounts = self.accounts.lock();
        if accounts.memory + bytes as u64 <= self.budget {
            accounts.memory += bytes as u64;
            drop(accounts);
            return Ok(ChunkLocation::Memory(vec![0; bytes].into_boxed_slice()));
        }
        let file = match &accounts.file {
            Some(file) => file.clone(),
            None => {
                let file =
                    Arc::new(without_name(&self.directory).map_err(|error| self.failed("be made", &error))?);
                accounts.file.insert(file).clone()
            }
        };
        accounts.filed += bytes as u64;
        let free = accounts.free.get_mut(&bytes).and_then(Vec::pop);
        let at = free.unwrap_or_else(|| {
            let at = accounts.end;
            accounts.end += bytes as u64;
            at
        });
        Ok(ChunkLocation::File(file, at))
    }

    pub(super) fn free(&self, location: ChunkLocation, bytes: usize) {
        let mut accounts = self.accounts.lock();
        match location {
            ChunkLocation::Memory(_) => accounts.memory -= bytes as u64,
            ChunkLocation::File(_, at) => {
                accounts.filed -= bytes as u64;
                accounts.free.entry(bytes).or_default().push(at);
            }
        }
    }

    pub(super) fn read(
        &self,
        location: &ChunkLocation,
        start: usize,
        buf: &mut [u8],
    ) -> Result<(), DeviceError> {
        match location {
            ChunkLocation::Memory(bytes) => {
                buf.copy_from_slice(&bytes[start..start + buf.len()]);
                Ok(())
            }
            ChunkLocation::File(file, at) => {
                let read = file.read_exact_at(buf, at + start as u64);
                read.map_err(|error| self.failed("be read", &error))
            }
        }
    }

    pub(super) fn write(
        &self,
        location: &mut ChunkLocation,
        start: usize,
        data: &[u8],
    ) -> Result<(), DeviceError> {
        match location {
            ChunkLocation::Memory(bytes) => {
                bytes[start..start + data.len()].copy_from_slice(data);
                Ok(())
            }
            ChunkLocation::File(file, at) => {
                let written = file.write_all_at(data, *at + start as u64);
                written.map_err(|error| self.failed("take more", &error))
            }
        }
    }

    fn failed(&self, what: &str, error: &io::Error) -> DeviceError {
        let full = matches!(
            error.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        );
        let kind = if full { DeviceErrorKind::NoSpace } else { DeviceErrorKind::Failed };
        DeviceError::new(
            kind,
            format!(
                "the temporary file in {} for what a read-only opening must not write to the database cannot {what}: \
                 {error}; name a directory with space in TMPDIR, or give the opening more memory",
                self.directory.display()
            ),
        )
    }
}

/// A file that has no name.
fn without_name(directory: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    let flags = i32::try_from(OFlags::TMPFILE.bits()).expect("flags of open(2) are an int");
    match options.clone().custom_flags(flags).open(directory) {
        // Not every file system has such files.
        Err(_) => {
            let unique = u128::from_le_bytes(firndb_base::rng::entropy());
            let path = directory.join(format!(".firn-{}-{unique:032x}", std::process::id()));
            let file = options.create_new(true).open(&path)?;
            std::fs::remove_file(&path)?;
            Ok(file)
        }
        file => file,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_name_is_in_no_directory() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = without_name(directory.path()).expect("a file");
        file.write_all_at(b"aside", 0).expect("written");
        assert_eq!(std::fs::read_dir(directory.path()).expect("listed").count(), 0);
        let mut bytes = [0; 5];
        file.read_exact_at(&mut bytes, 0).expect("read");
        assert_eq!(&bytes, b"aside");
    }

    #[test]
    fn a_directory_that_is_not_there_is_named_with_what_helps() {
        let space = OverlaySpace::in_directory(0, Path::new("/no/such/directory"));
        let error = space.take(4096).expect_err("there is no such directory");
        for part in ["/no/such/directory", "TMPDIR", "more memory"] {
            assert!(error.message.contains(part), "{part:?} is missing in {error}");
        }
        assert_eq!(space.used(), (0, 0));
    }
}
