//! Positioned reads and writes: interrupted, short and misaligned ones included.
//!
//! Invariants: each system call's offset, length and, where the kernel asks for it, memory are
//! aligned; what remains after a short transfer starts at a block again; after a failed sync no
//! sync and no durable write succeeds any more, since the kernel forgets what it could not write
//! and would report success.
//!
//! That holds for calls side by side, too. The kernel reports a failed write-back to one of them,
//! whose data it need not be, so where writes go through the page cache one thread syncs at a time,
//! and durable writes are synced as well. A direct write has its own outcome.

use super::errno::{At, io_error};
use super::opening::Geometry;
use crate::aligned::AlignedBuf;
use crate::error::{DeviceError, DeviceErrorKind};
use firndb_base::sync::atomic::{AtomicBool, Ordering};
use firndb_base::sync::{Mutex, before_device};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, ReadWriteFlags, retry_on_intr};
use std::io::IoSlice;

/// Bytes copied at a time for memory that is not aligned for direct I/O.
const BOUNCE_BYTES: usize = 1 << 20;

/// The open file and how to talk to it.
#[derive(Debug)]
pub(super) struct Transfers {
    fd: OwnedFd,
    name: String,
    geometry: Geometry,
    /// Whether single writes are made durable by RWF_DSYNC: direct ones, until the kernel refuses.
    dsync: AtomicBool,
    /// Held over each sync if writes go through the page cache.
    syncing: Mutex<()>,
    /// Set by the first failed sync or durable write, for ever.
    broken: AtomicBool,
}

impl Drop for Transfers {
    fn drop(&mut self) {
        // Closing would do, but for a child process that is just being started by another thread:
        // until its exec it shares the open file, and the lock with it.
        let _ = rustix::fs::flock(&self.fd, rustix::fs::FlockOperation::Unlock);
    }
}

impl Transfers {
    pub(super) fn new(fd: OwnedFd, name: String, geometry: Geometry) -> Transfers {
        let (dsync, broken) = (AtomicBool::new(geometry.direct), AtomicBool::new(false));
        Transfers { fd, name, geometry, dsync, syncing: Mutex::new(()), broken }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Whether the kernel can take this memory as it is.
    pub(super) fn is_aligned(&self, memory: &[u8]) -> bool {
        (memory.as_ptr() as usize).is_multiple_of(self.geometry.memory_align)
    }

    /// Whether single writes can be made durable by a flag.
    pub(super) fn has_dsync(&self) -> bool {
        self.dsync.load(Ordering::Relaxed)
    }

    /// Fills `buf`.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        if self.is_aligned(buf) {
            return self.read_aligned(offset, buf);
        }
        let mut bounce = AlignedBuf::zeroed(buf.len().clamp(1, BOUNCE_BYTES));
        let mut at = offset;
        for part in buf.chunks_mut(BOUNCE_BYTES) {
            self.read_aligned(at, &mut bounce[..part.len()])?;
            part.copy_from_slice(&bounce[..part.len()]);
            at += part.len() as u64;
        }
        Ok(())
    }

    fn read_aligned(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        let mut done = 0;
        while done < buf.len() {
            let place = At { offset: offset + done as u64, len: buf.len() - done };
            match retry_on_intr(|| rustix::io::pread(&self.fd, &mut buf[done..], place.offset)) {
                Ok(read) => done += self.whole_blocks(read, "reading", &place)?,
                Err(errno) => return Err(self.read_failed(place.offset, place.len, errno)),
            }
        }
        assert_eq!(done, buf.len());
        Ok(())
    }

    /// Writes `data`; if `durable`, every system call's part is durable when it returns.
    pub(super) fn write(&self, offset: u64, data: &[u8], durable: bool) -> Result<(), DeviceError> {
        if self.is_aligned(data) {
            return self.write_aligned(offset, data, durable);
        }
        let mut bounce = AlignedBuf::zeroed(data.len().clamp(1, BOUNCE_BYTES));
        let mut at = offset;
        for part in data.chunks(BOUNCE_BYTES) {
            bounce[..part.len()].copy_from_slice(part);
            self.write_aligned(at, &bounce[..part.len()], durable)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    fn write_aligned(&self, offset: u64, data: &[u8], durable: bool) -> Result<(), DeviceError> {
        let mut done = 0;
        while done < data.len() {
            let place = At { offset: offset + done as u64, len: data.len() - done };
            let flagged = durable && self.has_dsync();
            let written = match flagged {
                true => retry_on_intr(|| {
                    let part = [IoSlice::new(&data[done..])];
                    rustix::io::pwritev2(&self.fd, &part, place.offset, ReadWriteFlags::DSYNC)
                }),
                false => retry_on_intr(|| rustix::io::pwrite(&self.fd, &data[done..], place.offset)),
            };
            match written {
                Ok(written) => done += self.whole_blocks(written, "writing", &place)?,
                // Nothing was tried: the flag itself is unknown. What earlier rounds wrote was
                // durable, or is covered by the sync below.
                Err(Errno::OPNOTSUPP | Errno::NOSYS) if flagged => self.dsync.store(false, Ordering::Relaxed),
                Err(errno) => return Err(self.write_failed(place.offset, place.len, durable, errno)),
            }
        }
        assert_eq!(done, data.len());
        if durable && !self.has_dsync() { self.sync() } else { Ok(()) }
    }

    /// Makes what was written durable, with the length as far as it is needed to read it back.
    pub(super) fn sync(&self) -> Result<(), DeviceError> {
        before_device();
        self.synced(|| rustix::fs::fdatasync(&self.fd))
    }

    /// As [`Transfers::sync`], with everything the file system knows of the file.
    pub(super) fn sync_all(&self) -> Result<(), DeviceError> {
        self.synced(|| rustix::fs::fsync(&self.fd))
    }

    fn synced(&self, sync: impl FnMut() -> rustix::io::Result<()>) -> Result<(), DeviceError> {
        let _one_at_a_time = (!self.geometry.direct).then(|| self.syncing.lock());
        self.check_unbroken()?;
        retry_on_intr(sync).map_err(|errno| self.sync_failed(errno))?;
        // Of direct writes another sync may have failed meanwhile.
        self.check_unbroken()
    }

    fn sync_failed(&self, errno: Errno) -> DeviceError {
        self.broken.store(true, Ordering::Relaxed);
        self.failed("syncing", errno)
    }

    /// Refuses if a sync has failed before.
    pub(super) fn check_unbroken(&self) -> Result<(), DeviceError> {
        match self.broken.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err(DeviceError::new(
                DeviceErrorKind::Failed,
                format!(
                    "{}: an earlier sync or durable write failed, so what is durable is not known; reopen the \
                     database to recover",
                    self.name
                ),
            )),
        }
    }

    /// An error of an operation that concerns the whole device.
    pub(super) fn failed(&self, operation: &str, errno: Errno) -> DeviceError {
        io_error(&self.name, operation, &"", errno)
    }

    /// The error of a read for which the kernel returned `errno`.
    pub(super) fn read_failed(&self, offset: u64, len: usize, errno: Errno) -> DeviceError {
        io_error(&self.name, "reading", &At { offset, len }, errno)
    }

    /// The error of a write for which the kernel returned `errno`.
    pub(super) fn write_failed(&self, offset: u64, len: usize, durable: bool, errno: Errno) -> DeviceError {
        let error = io_error(&self.name, "writing", &At { offset, len }, errno);
        // A direct write that found no space lost nothing; a buffered one may have failed in its
        // sync.
        if durable && (error.kind != DeviceErrorKind::NoSpace || !self.geometry.direct) {
            self.broken.store(true, Ordering::Relaxed);
        }
        error
    }

    /// How much of a transfer counts: a part of a block is done again, a transfer that gets nowhere
    /// ends.
    fn whole_blocks(&self, moved: usize, operation: &str, place: &At) -> Result<usize, DeviceError> {
        assert!(moved <= place.len, "the kernel moves no more than it was asked to");
        match moved - moved % self.geometry.logical_block {
            0 => Err(DeviceError::new(
                DeviceErrorKind::Failed,
                format!(
                    "{}: {operation} stopped after {moved} bytes{place}; the file is shorter than when it was opened, \
                     or its file system is full",
                    self.name
                ),
            )),
            whole => Ok(whole),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUFFERED: Geometry = Geometry { logical_block: 512, memory_align: 1, direct: false };

    #[test]
    fn after_a_failed_sync_nothing_is_called_durable_any_more() {
        // A pipe cannot be synced, which is as good as a broken disk.
        let (_reader, writer) = std::io::pipe().expect("a pipe can be made");
        let pipe = Transfers::new(OwnedFd::from(writer), "pipe".to_owned(), BUFFERED);
        let error = pipe.sync().expect_err("cannot be synced");
        assert_eq!(error.kind, DeviceErrorKind::Failed);
        for later in [pipe.sync(), pipe.sync_all(), pipe.check_unbroken()] {
            let error = later.expect_err("an earlier sync failed");
            assert!(error.message.contains("reopen the database"), "{error}");
        }
    }

    #[test]
    fn after_a_failed_durable_write_nothing_is_called_durable_any_more() {
        let (_reader, writer) = std::io::pipe().expect("a pipe can be made");
        let pipe = Transfers::new(OwnedFd::from(writer), "pipe".to_owned(), BUFFERED);
        pipe.write(0, &[0; 512], false).expect_err("a pipe has no places");
        pipe.check_unbroken().expect("what was not to be durable may be written elsewhere");
        pipe.write(0, &[0; 512], true).expect_err("a pipe has no places");
        pipe.check_unbroken().expect_err("what is durable is not known");
    }

    /// Cause: buffered files were synced by several threads at once, and by durable writes. The
    /// kernel reports a failed write-back to one of them. Effect: a sync beside it succeeded
    /// although its data was lost.
    #[test]
    fn a_failed_sync_fails_those_beside_it() {
        let file = tempfile::tempfile().expect("a temporary file can be made");
        let file = Transfers::new(OwnedFd::from(file), "file".to_owned(), BUFFERED);
        let outcomes = std::thread::scope(|scope| {
            let failing = file.syncing.lock();
            let beside = [
                scope.spawn(|| file.sync()),
                scope.spawn(|| file.sync_all()),
                scope.spawn(|| file.write(0, &[7; 512], true)),
            ];
            // Time for each of them to succeed, if it does not wait.
            std::thread::sleep(std::time::Duration::from_millis(50));
            let _ = file.sync_failed(Errno::IO);
            drop(failing);
            beside.map(|thread| thread.join().expect("no panic"))
        });
        for outcome in outcomes {
            let error = outcome.expect_err("a sync beside it failed");
            assert!(error.message.contains("reopen the database"), "{error}");
        }
    }

    #[test]
    fn durable_writes_work_without_the_flag() {
        let file = tempfile::tempfile().expect("a temporary file can be made");
        let file = Transfers::new(OwnedFd::from(file), "file".to_owned(), BUFFERED);
        assert!(!file.has_dsync(), "writes through the page cache are synced");
        file.write(512, &[7; 1024], true).expect("written and synced");
        let mut back = [0; 1024];
        file.read(512, &mut back).expect("read");
        assert_eq!(back, [7; 1024]);
        let error = file.read(1024, &mut [0; 1024]).expect_err("the file ends within");
        assert_eq!(error.kind, DeviceErrorKind::Failed);
    }
}
