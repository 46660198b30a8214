//! A regular file or a block device.
//!
//! Invariants: `len` is what was durably reached and never more than the file has; a transfer never
//! changes the file's length; a failed sync is final (see `transfer`).
//!
//! Locks: `resizing` is held over changes of length, one at a time; only a sync is locked under it
//! (see `transfer`). Other transfers take no lock.

mod directory;
mod errno;
mod opening;
mod space;
mod transfer;

pub use directory::{remove_file, sync_directory};
pub use opening::FileOptions;
pub use space::available_bytes;

use crate::device::{Device, DeviceInfo, Durability, Fill, Io, IoOp, check_transfer, whole_blocks};
use crate::error::{DeviceError, DeviceErrorKind};
use crate::in_flight::{InFlight, OwnedRead, ReadDone};
use crate::ring::{Direction, RawTransfer, RingPool};
use crate::ring_reads::RingReads;
use firndb_base::clock::{self, Moment};
use firndb_base::sync::atomic::{AtomicU64, Ordering};
use firndb_base::sync::{Mutex, before_device};
use rustix::fd::AsRawFd;
use rustix::io::Errno;
use std::path::Path;
use transfer::Transfers;

/// A file, or a block device, as a [`Device`]: direct I/O where the file system has it, batches
/// through io_uring where the kernel allows it, and a lock against a second user for as long as it
/// is open.
#[derive(Debug)]
pub struct FileDevice {
    info: DeviceInfo,
    file: Transfers,
    len: AtomicU64,
    read_only: bool,
    block_device: bool,
    rings: Option<RingPool>,
    /// Changes of length happen one at a time.
    resizing: Mutex<()>,
}

impl FileDevice {
    /// Creates an empty file that only this user may read or write, and makes its name durable.
    /// Kind `Unusable` if there is one already.
    pub fn create(path: &Path, options: &FileOptions) -> Result<FileDevice, DeviceError> {
        let device = FileDevice::with(path, options, true)?;
        device.file.sync_all()?;
        directory::sync_parent(path)?;
        Ok(device)
    }

    /// Opens an existing file or block device. Kind `Locked` if another database has it open,
    /// `Unusable` if it does not exist, is something else, or may not be used. A last part of a
    /// file that is less than a block is ignored.
    pub fn open(path: &Path, options: &FileOptions) -> Result<FileDevice, DeviceError> {
        FileDevice::with(path, options, false)
    }

    fn with(path: &Path, options: &FileOptions, create: bool) -> Result<FileDevice, DeviceError> {
        let opened = opening::open(path, options, create)?;
        let name = path.display().to_string();
        let geometry = opened.geometry;
        let info =
            DeviceInfo { name: name.clone(), logical_block: geometry.logical_block, direct: geometry.direct };
        assert!(info.logical_block.is_power_of_two() && (512..=65536).contains(&info.logical_block));
        Ok(FileDevice {
            info,
            file: Transfers::new(opened.fd, name, geometry),
            len: AtomicU64::new(opened.len),
            read_only: options.read_only,
            block_device: opened.block_device,
            rings: (options.io_uring && RingPool::is_available()).then(RingPool::default),
            resizing: Mutex::new(()),
        })
    }

    /// Whether batches go through io_uring.
    #[must_use]
    pub fn uses_io_uring(&self) -> bool {
        self.rings.is_some()
    }

    fn check_writable(&self) -> Result<(), DeviceError> {
        match self.read_only {
            false => Ok(()),
            true => Err(DeviceError::new(
                DeviceErrorKind::Unusable,
                format!("{}: was opened read-only; open it writable to change it", self.info.name),
            )),
        }
    }

    /// What is known to fail before anything is tried.
    fn check(&self, io: &Io<'_>) -> Result<(), DeviceError> {
        match &io.op {
            IoOp::Read(buf) => check_transfer(&self.info, self.len(), io.offset, buf.len()),
            IoOp::Write(data, durability) => {
                self.check_writable()?;
                check_transfer(&self.info, self.len(), io.offset, data.len())?;
                if *durability == Durability::Durable { self.file.check_unbroken() } else { Ok(()) }
            }
        }
    }

    /// Performs a checked transfer, from `moved` bytes on.
    fn perform(&self, io: &mut Io<'_>, moved: usize, sync: SyncBy) -> Result<(), DeviceError> {
        let offset = io.offset + moved as u64;
        match &mut io.op {
            IoOp::Read(buf) => self.file.read(offset, &mut buf[moved..]),
            IoOp::Write(data, durability) => {
                let durable = *durability == Durability::Durable && sync == SyncBy::Transfer;
                self.file.write(offset, &data[moved..], durable)
            }
        }
    }

    fn submit_positioned(&self, batch: &mut [Io<'_>], sync: SyncBy) {
        for io in batch {
            io.outcome = self.check(io).and_then(|()| self.perform(io, 0, sync));
        }
    }

    fn submit_rings(&self, rings: &RingPool, batch: &mut [Io<'_>], sync: SyncBy) {
        let mut raw = Vec::with_capacity(batch.len());
        let mut places = Vec::with_capacity(batch.len());
        for (place, io) in batch.iter_mut().enumerate() {
            io.outcome = self.check(io);
            if io.outcome.is_ok() {
                match self.raw(io, sync) {
                    Some(transfer) => {
                        raw.push(transfer);
                        places.push(place);
                    }
                    None => io.outcome = self.perform(io, 0, sync),
                }
            }
        }
        // SAFETY: the pointers come from the batch's own borrows, which last until this function
        // returns; `batch` is not touched before `run` is over.
        unsafe { rings.run(self.file.fd().as_raw_fd(), &mut raw) };
        for (transfer, place) in raw.iter().zip(places) {
            let io = &mut batch[place];
            io.outcome = self.finish(io, (transfer.result, transfer.direction, transfer.len as usize), sync);
        }
    }

    /// The transfer for the kernel; `None` if it has to be done by copying, in parts, or by a sync.
    fn raw(&self, io: &mut Io<'_>, sync: SyncBy) -> Option<RawTransfer> {
        let (memory, len, direction) = match &mut io.op {
            IoOp::Read(buf) if self.file.is_aligned(buf) => (buf.as_mut_ptr(), buf.len(), Direction::Read),
            IoOp::Write(data, durability) if self.file.is_aligned(data) => {
                let direction = match durability {
                    Durability::Durable if sync == SyncBy::Transfer => {
                        self.file.has_dsync().then_some(Direction::WriteDurable)?
                    }
                    Durability::Durable | Durability::Later => Direction::Write,
                };
                // The kernel only reads from it.
                (data.as_ptr().cast_mut(), data.len(), direction)
            }
            _ => return None,
        };
        let len = u32::try_from(len).ok().filter(|&len| len > 0 && len <= i32::MAX as u32)?;
        Some(RawTransfer { offset: io.offset, memory, len, direction, result: RawTransfer::NOT_DONE })
    }

    /// The outcome of what the kernel did; does what it left.
    fn finish(
        &self,
        io: &mut Io<'_>,
        (result, direction, len): (Result<usize, Errno>, Direction, usize),
        sync: SyncBy,
    ) -> Result<(), DeviceError> {
        match result {
            Ok(moved) if moved == len => Ok(()),
            Ok(moved) => self.perform(io, moved - moved % self.info.logical_block, sync),
            // Not done, rather than failed: these say that the ring could not take it.
            Err(Errno::AGAIN | Errno::INTR | Errno::CANCELED | Errno::OPNOTSUPP | Errno::INVAL) => {
                self.perform(io, 0, sync)
            }
            Err(errno) if direction == Direction::Read => Err(self.file.read_failed(io.offset, len, errno)),
            Err(errno) => {
                let durable = direction == Direction::WriteDurable;
                Err(self.file.write_failed(io.offset, len, durable, errno))
            }
        }
    }
}

impl FileDevice {
    /// Takes over what the kernel has done of the reads under way, or waits for it until `until`.
    fn reap(&self, in_flight: &mut InFlight, until: Option<Moment>) {
        let Some(ring) = &mut in_flight.ring else { return };
        let mut over = Vec::new();
        ring.wait(until.map(|until| until.since(clock::now())), &mut over);
        for (mut read, result) in over {
            let (offset, len) = (read.offset, read.len);
            let mut io = Io { offset, op: IoOp::Read(&mut read.buf[..len]), outcome: Ok(()) };
            let outcome = self.finish(&mut io, (result, Direction::Read, len), SyncBy::Transfer);
            in_flight.complete(read, outcome);
        }
    }
}

/// Which call makes a batch's durable writes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SyncBy {
    /// Each transfer for itself.
    Transfer,
    /// One sync after all of them.
    Batch,
}

fn is_durable_write(io: &Io<'_>) -> bool {
    matches!(io.op, IoOp::Write(_, Durability::Durable))
}

impl Device for FileDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        let mut io = Io { offset, op: IoOp::Read(buf), outcome: Ok(()) };
        self.check(&io)?;
        self.perform(&mut io, 0, SyncBy::Transfer)
    }

    fn write(&self, offset: u64, data: &[u8], durability: Durability) -> Result<(), DeviceError> {
        let mut io = Io { offset, op: IoOp::Write(data, durability), outcome: Ok(()) };
        self.check(&io)?;
        self.perform(&mut io, 0, SyncBy::Transfer)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        if self.read_only { Ok(()) } else { self.file.sync() }
    }

    /// Several durable writes share one sync: each would wait for a flush of the device of its own.
    fn submit(&self, batch: &mut [Io<'_>]) {
        let several = batch.iter().filter(|io| is_durable_write(io)).nth(1).is_some();
        let sync = if several { SyncBy::Batch } else { SyncBy::Transfer };
        match &self.rings {
            // One transfer alone gains nothing from a ring.
            Some(rings) if batch.len() > 1 => self.submit_rings(rings, batch, sync),
            _ => self.submit_positioned(batch, sync),
        }
        if sync == SyncBy::Batch
            && batch.iter().any(|io| is_durable_write(io) && io.outcome.is_ok())
            && let Err(error) = self.file.sync()
        {
            for io in batch.iter_mut().filter(|io| is_durable_write(io) && io.outcome.is_ok()) {
                io.outcome = Err(error.clone());
            }
        }
    }

    fn begin_read(&self, in_flight: &mut InFlight, mut read: OwnedRead) {
        if let Err(error) = check_transfer(&self.info, self.len(), read.offset, read.len) {
            return in_flight.complete(read, Err(error));
        }
        if self.rings.is_some() && read.len > 0 && self.file.is_aligned(&read.buf) {
            if in_flight.ring.is_none() {
                in_flight.ring = RingReads::new();
            }
            if let Some(ring) = &mut in_flight.ring {
                match ring.push(self.file.fd().as_raw_fd(), read) {
                    Ok(()) => return,
                    Err(back) => read = back,
                }
            }
        }
        let outcome = self.file.read(read.offset, &mut read.buf[..read.len]);
        in_flight.complete(read, outcome);
    }

    fn next_read(&self, in_flight: &mut InFlight, until: Option<Moment>) -> Option<ReadDone> {
        before_device();
        loop {
            if let Some(done) = in_flight.take_done() {
                return Some(done);
            }
            let end = [until, in_flight.next_moment()].into_iter().flatten().min();
            match in_flight.ring.as_ref().map_or(0, RingReads::count) {
                0 => return in_flight.next_sleeping(until),
                _ => self.reap(in_flight, end),
            }
            let now = clock::now();
            if end.is_some_and(|end| end <= now) {
                return in_flight.take(now);
            }
        }
    }

    fn grow(&self, len: u64, fill: Fill) -> Result<(), DeviceError> {
        self.check_writable()?;
        let _one_at_a_time = self.resizing.lock();
        let old = self.len();
        let new = whole_blocks(&self.info, len)?;
        if new <= old {
            return Ok(());
        }
        if self.block_device {
            return Err(DeviceError::new(
                DeviceErrorKind::NoSpace,
                format!(
                    "{}: a block device of {old} bytes cannot grow to {new}; use a larger one",
                    self.info.name
                ),
            ));
        }
        space::grow(&self.file, old, new, fill)?;
        self.len.store(new, Ordering::Release);
        Ok(())
    }

    fn shrink(&self, len: u64) -> Result<(), DeviceError> {
        self.check_writable()?;
        let _one_at_a_time = self.resizing.lock();
        let new = whole_blocks(&self.info, len)?;
        if self.block_device || new >= self.len() {
            return Ok(());
        }
        // First what callers see: nothing new starts beyond the new end.
        let old = self.len.swap(new, Ordering::AcqRel);
        assert!(new < old);
        space::set_length(&self.file, new).inspect_err(|_| {
            // As long as it was, if it was not cut: then the next call tries that again.
            let is_cut = space::length(&self.file).is_none_or(|found| found < old);
            self.len.store(if is_cut { new } else { old }, Ordering::Release);
        })
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.check_writable()?;
        check_transfer(&self.info, self.len(), offset, usize::try_from(len).unwrap_or(usize::MAX))?;
        if len == 0 { Ok(()) } else { space::punch(&self.file, offset, len) }
    }
}
