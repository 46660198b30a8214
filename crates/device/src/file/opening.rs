//! Opening: which file, whether another process uses it, and what alignment the kernel requires.

use super::errno::path_error;
use crate::aligned::AlignedBuf;
use crate::error::{DeviceError, DeviceErrorKind};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, StatxFlags};
use rustix::io::{Errno, retry_on_intr};
use std::path::Path;

/// How a [`FileDevice`](crate::file::FileDevice) is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOptions {
    /// Writes, growth and discards are refused; other readers may open it too.
    pub read_only: bool,
    /// Takes the file's lock (`flock`: exclusive, or shared if read-only), so that two databases
    /// never use one file. Turn it off only for file systems that have no locks.
    pub lock: bool,
    /// By-passes the page cache where the file system allows it.
    pub direct: bool,
    /// Performs batches through io_uring where the kernel allows it.
    pub io_uring: bool,
}

impl Default for FileOptions {
    fn default() -> FileOptions {
        FileOptions { read_only: false, lock: true, direct: true, io_uring: true }
    }
}

/// An open file and what was learnt about it.
pub(super) struct Opened {
    pub(super) fd: OwnedFd,
    pub(super) geometry: Geometry,
    /// Bytes, rounded down to whole blocks.
    pub(super) len: u64,
    pub(super) block_device: bool,
}

/// What transfers must look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    /// Bytes; offsets and lengths are multiples.
    pub(super) logical_block: usize,
    /// Bytes; memory addresses are multiples.
    pub(super) memory_align: usize,
    /// Whether the page cache is by-passed.
    pub(super) direct: bool,
}

/// Opens `path`, or creates it, and asks what it is.
pub(super) fn open(path: &Path, options: &FileOptions, create: bool) -> Result<Opened, DeviceError> {
    let name = path.display();
    if create && options.read_only {
        return Err(DeviceError::new(
            DeviceErrorKind::Unusable,
            format!("{name}: cannot create it read-only; open an existing file, or create it writable"),
        ));
    }
    let mut flags = OFlags::CLOEXEC | OFlags::NOCTTY;
    flags |= if options.read_only { OFlags::RDONLY } else { OFlags::RDWR };
    // O_DIRECT is set later: a file system without it would leave the new file behind and fail the
    // open.
    let creating = if create { OFlags::CREATE | OFlags::EXCL } else { OFlags::empty() };
    let operation = if create { "create it" } else { "open it" };
    let mut fd = retry_on_intr(|| rustix::fs::open(path, flags | creating, Mode::RUSR | Mode::WUSR))
        .map_err(|errno| path_error(&name, operation, errno))?;
    let result = file_type(&fd, &name).and_then(|kind| {
        let block_device = kind == FileType::BlockDevice;
        if block_device && !options.read_only {
            // On block devices O_EXCL refuses what is mounted or used by another exclusive opener.
            fd = retry_on_intr(|| rustix::fs::open(path, flags | OFlags::EXCL, Mode::empty()))
                .map_err(|errno| path_error(&name, "open it for this process alone", errno))?;
        }
        if options.lock {
            lock(fd.as_fd(), &name, options.read_only)?;
        }
        let bytes = length(fd.as_fd(), &name)?;
        let geometry = geometry(fd.as_fd(), options, block_device, bytes);
        Ok((block_device, bytes, geometry))
    });
    match result {
        Ok((block_device, bytes, geometry)) => {
            let block = geometry.logical_block as u64;
            Ok(Opened { fd, geometry, len: bytes - bytes % block, block_device })
        }
        Err(error) => {
            // A file that was just created and can't be used is taken back, unless another process
            // was quick enough to open and lock it.
            if create && error.kind != DeviceErrorKind::Locked {
                let _ = rustix::fs::unlink(path);
            }
            Err(error)
        }
    }
}

fn file_type(fd: &OwnedFd, name: &dyn std::fmt::Display) -> Result<FileType, DeviceError> {
    let stat = rustix::fs::fstat(fd).map_err(|errno| path_error(name, "ask what it is", errno))?;
    match FileType::from_raw_mode(stat.st_mode) {
        kind @ (FileType::RegularFile | FileType::BlockDevice) => Ok(kind),
        kind => Err(DeviceError::new(
            DeviceErrorKind::Unusable,
            format!("{name}: is a {kind:?}; name a regular file or a block device"),
        )),
    }
}

fn lock(fd: BorrowedFd<'_>, name: &dyn std::fmt::Display, shared: bool) -> Result<(), DeviceError> {
    let operation = match shared {
        true => FlockOperation::NonBlockingLockShared,
        false => FlockOperation::NonBlockingLockExclusive,
    };
    match retry_on_intr(|| rustix::fs::flock(fd, operation)) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(DeviceError::new(
            DeviceErrorKind::Locked,
            format!(
                "{name}: is in use; close the database that has it open, in this process or another, and try again"
            ),
        )),
        Err(errno @ (Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS)) => Err(DeviceError::new(
            DeviceErrorKind::Unusable,
            format!(
                "{name}: its file system has no locks ({errno}); move it, or turn locking off and make sure that \
                 only one process uses it"
            ),
        )),
        Err(errno) => Err(path_error(name, "lock it", errno)),
    }
}

fn length(fd: BorrowedFd<'_>, name: &dyn std::fmt::Display) -> Result<u64, DeviceError> {
    // Seeking works for block devices as well, whose stat says zero.
    rustix::fs::seek(fd, rustix::fs::SeekFrom::End(0))
        .map_err(|errno| path_error(name, "ask its length", errno))
}

/// Turns direct I/O on if it can be used, and says what transfers must look like.
fn geometry(fd: BorrowedFd<'_>, options: &FileOptions, block_device: bool, bytes: u64) -> Geometry {
    let sector = if block_device { rustix::fs::ioctl_blksszget(fd).unwrap_or(4096) as usize } else { 512 };
    let buffered = Geometry { logical_block: sector.clamp(512, 65536), memory_align: 1, direct: false };
    // A block device's own name lies on a file system in memory, its contents do not.
    let in_memory = !block_device && in_memory(fd);
    if !options.direct || in_memory || !set_direct(fd, true) {
        return buffered;
    }
    let found = match kernel_alignment(fd) {
        Some(answer) => answer,
        None if block_device => Some((sector, sector)),
        None => probe(fd, options, bytes),
    };
    match found.map(|(offset, memory)| (offset.max(512), memory.max(1))) {
        Some((offset, memory))
            if offset.is_power_of_two()
                && offset <= 65536
                && memory.is_power_of_two()
                && memory <= AlignedBuf::ALIGNMENT =>
        {
            Geometry { logical_block: offset, memory_align: memory, direct: true }
        }
        _ => {
            set_direct(fd, false);
            buffered
        }
    }
}

/// Whether the file system keeps its files in the page cache for ever: some accept O_DIRECT all the
/// same.
fn in_memory(fd: BorrowedFd<'_>) -> bool {
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58f6;
    rustix::fs::fstatfs(fd).is_ok_and(|fs| [TMPFS, RAMFS].contains(&(fs.f_type as u64 & 0xffff_ffff)))
}

fn set_direct(fd: BorrowedFd<'_>, on: bool) -> bool {
    let Ok(flags) = rustix::fs::fcntl_getfl(fd) else { return false };
    let flags = if on { flags | OFlags::DIRECT } else { flags - OFlags::DIRECT };
    rustix::fs::fcntl_setfl(fd, flags).is_ok()
}

/// Bytes of alignment of (offset, memory) as the kernel says them (since Linux 6.1): `None` if it
/// says nothing, `Some(None)` if this file can't be used directly.
fn kernel_alignment(fd: BorrowedFd<'_>) -> Option<Option<(usize, usize)>> {
    let statx = rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    if statx.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return None;
    }
    match (statx.stx_dio_offset_align as usize, statx.stx_dio_mem_align as usize) {
        (0, _) | (_, 0) => Some(None),
        aligned => Some(Some(aligned)),
    }
}

/// Finds the block size by trying. An empty file accepts reads of any size, so one block is written
/// to it.
fn probe(fd: BorrowedFd<'_>, options: &FileOptions, bytes: u64) -> Option<(usize, usize)> {
    let mut memory = AlignedBuf::zeroed(4096);
    let empty = bytes < 4096;
    if empty && (options.read_only || bytes > 0) {
        return Some((4096, 4096));
    }
    let accepted = [512, 4096].into_iter().find(|&size| {
        let tried = match empty {
            true => retry_on_intr(|| rustix::io::pwrite(fd, &memory[..size], 0)),
            false => retry_on_intr(|| rustix::io::pread(fd, &mut memory[..size], 0)),
        };
        tried.is_ok()
    });
    if empty {
        rustix::fs::ftruncate(fd, 0).ok()?;
    }
    accepted.map(|size| (size, size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_alignment_and_the_probe_agree_that_4096_is_enough() {
        let file = tempfile::tempfile().expect("a temporary file can be made");
        let options = FileOptions::default();
        let geometry = geometry(file.as_fd(), &options, false, 0);
        assert!(geometry.logical_block.is_power_of_two());
        assert!((512..=65536).contains(&geometry.logical_block));
        if geometry.direct {
            let (offset, memory) =
                probe(file.as_fd(), &options, 0).expect("a direct write of some size is accepted");
            assert!(offset >= geometry.logical_block && memory >= geometry.memory_align);
            assert_eq!(length(file.as_fd(), &"temporary"), Ok(0), "the probe leaves nothing behind");
        }
    }
}
