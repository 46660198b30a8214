//! Length and space of a regular file; discards of a block device, too.
//!
//! Crash argument: the new length becomes visible to callers only after it and what fills it were
//! synced. A crash in between leaves a file that is longer than its users know of, whose tail reads
//! as zeros; they keep their own lengths.

use super::transfer::Transfers;
use crate::aligned::AlignedBuf;
use crate::device::Fill;
use crate::error::DeviceError;
use rustix::fs::FallocateFlags;
use rustix::io::{Errno, retry_on_intr};
use std::path::Path;

/// Bytes of zeros written at a time.
const ZEROS_BYTES: usize = 1 << 20;

/// Makes the file `new` bytes long, from `old`. On an error the old length is restored.
pub(super) fn grow(file: &Transfers, old: u64, new: u64, fill: Fill) -> Result<(), DeviceError> {
    assert!(old < new);
    let grown = extend(file, old, new, fill);
    if grown.is_err() {
        // Best effort: a file longer than it says does no harm, and the first error is the one to
        // tell.
        let _ = set_length(file, old);
    }
    grown
}

/// Makes the file `len` bytes long by cutting it, or by adding a hole; durable.
pub(super) fn set_length(file: &Transfers, len: u64) -> Result<(), DeviceError> {
    retry_on_intr(|| rustix::fs::ftruncate(file.fd(), len))
        .map_err(|errno| file.failed("changing the length", errno))?;
    file.sync_all()
}

/// How long the file is now, if the file system says so.
pub(super) fn length(file: &Transfers) -> Option<u64> {
    rustix::fs::fstat(file.fd()).ok().and_then(|found| u64::try_from(found.st_size).ok())
}

/// Returns the range to the file system; an error if that does not support it. A block device
/// unmaps it if it can do so by writing zeros (Linux 4.9 and later). One that can only discard
/// keeps it: that takes an `ioctl`, which is `unsafe`, and gains nothing that is needed.
pub(super) fn punch(file: &Transfers, offset: u64, len: u64) -> Result<(), DeviceError> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match retry_on_intr(|| rustix::fs::fallocate(file.fd(), flags, offset, len)) {
        Ok(()) => Ok(()),
        Err(errno) => Err(file.failed(&format!("discarding {len} bytes at offset {offset}"), errno)),
    }
}

fn extend(file: &Transfers, old: u64, new: u64, fill: Fill) -> Result<(), DeviceError> {
    if fill != Fill::Sparse {
        refuse_more_than_there_is(file, old, new)?;
    }
    // A tail of less than a block, left by a crash or by a stranger, must not show through.
    retry_on_intr(|| rustix::fs::ftruncate(file.fd(), old))
        .map_err(|errno| file.failed("changing the length", errno))?;
    match fill {
        Fill::Sparse => return set_length(file, new),
        // Reserving first makes a full file system known at once, and extents long.
        Fill::Reserved if reserve(file, old, new)? => {}
        Fill::Written => {
            reserve(file, old, new)?;
            write_zeros(file, old, new)?;
        }
        // Without fallocate only written blocks are sure to be there.
        Fill::Reserved => write_zeros(file, old, new)?,
    }
    file.sync_all()
}

/// Refuses a growth that is sure to fail before it is tried: zeros would be written until the file
/// system is full.
fn refuse_more_than_there_is(file: &Transfers, old: u64, new: u64) -> Result<(), DeviceError> {
    let Some(free) = available(rustix::fs::fstatvfs(file.fd())) else { return Ok(()) };
    if new - old <= free {
        return Ok(());
    }
    Err(file.failed(
        &format!("growing from {old} to {new} bytes (its file system has {free} free)"),
        Errno::NOSPC,
    ))
}

/// Bytes that this user may still write to the file system of `path`, which is there; `None` where
/// that is not known.
#[must_use]
pub fn available_bytes(path: &Path) -> Option<u64> {
    available(rustix::fs::statvfs(path))
}

fn available(found: Result<rustix::fs::StatVfs, Errno>) -> Option<u64> {
    // Some file systems say nothing, which is zeros.
    let found = found.ok().filter(|found| found.f_blocks > 0)?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Whether the file system reserved the range; false if it does not know how.
fn reserve(file: &Transfers, old: u64, new: u64) -> Result<bool, DeviceError> {
    match retry_on_intr(|| rustix::fs::fallocate(file.fd(), FallocateFlags::empty(), old, new - old)) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
        Err(errno) => Err(file.failed(&format!("growing from {old} to {new} bytes"), errno)),
    }
}

fn write_zeros(file: &Transfers, old: u64, new: u64) -> Result<(), DeviceError> {
    let zeros = AlignedBuf::zeroed(ZEROS_BYTES);
    let mut at = old;
    while at < new {
        let part = (new - at).min(ZEROS_BYTES as u64) as usize;
        file.write(at, &zeros[..part], false)?;
        at += part as u64;
    }
    Ok(())
}
