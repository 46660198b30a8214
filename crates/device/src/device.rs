//! The seam for I/O.

use crate::error::{DeviceError, DeviceErrorKind};
use crate::in_flight::{InFlight, OwnedRead, ReadDone};
use firndb_base::clock::Moment;
use firndb_base::sync::before_device;

/// When a write is safe from a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// After the next successful [`Device::sync`].
    Later,
    /// When the write returns (as with `O_DSYNC`).
    Durable,
}

/// What space added by [`Device::grow`] is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Zeros are really written and synced, so that later writes go into written extents (1.3 to 2
    /// times faster when synchronous).
    Written,
    /// Reserved by the file system, reads as zeros.
    Reserved,
    /// Nothing is reserved: a later write may find the file system full.
    Sparse,
}

/// What a device says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// For messages to people: a path, or what the device stands for.
    pub name: String,
    /// Bytes. Offsets and lengths of every transfer are multiples of it; a power of two from 512 to
    /// 65536.
    pub logical_block: usize,
    /// Whether writes by-pass the system's page cache.
    pub direct: bool,
}

/// One transfer of a batch.
#[derive(Debug)]
pub struct Io<'a> {
    /// Byte offset on the device.
    pub offset: u64,
    /// Direction and memory.
    pub op: IoOp<'a>,
    /// Filled in by [`Device::submit`].
    pub outcome: Result<(), DeviceError>,
}

/// Direction and memory of one transfer.
#[derive(Debug)]
pub enum IoOp<'a> {
    /// Fill the buffer from the device.
    Read(&'a mut [u8]),
    /// Write the buffer to the device.
    Write(&'a [u8], Durability),
}

/// A block device, or a file that stands for one.
///
/// Calls block until they are done, but for [`Device::begin_read`]; any thread may make them.
/// A range that two calls write at the same time holds either's blocks.
pub trait Device: Send + Sync + std::fmt::Debug {
    /// Name and geometry; constant.
    fn info(&self) -> &DeviceInfo;

    /// Bytes; a multiple of the logical block.
    fn len(&self) -> u64;

    /// Whether it has no byte at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads all of `buf`. Past the end is an error of kind `OutOfRange`.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError>;

    /// Writes all of `data`. Past the end is an error of kind `OutOfRange`: devices grow by
    /// [`Device::grow`] only.
    fn write(&self, offset: u64, data: &[u8], durability: Durability) -> Result<(), DeviceError>;

    /// Makes all that was written before the call durable, size included.
    fn sync(&self) -> Result<(), DeviceError>;

    /// Performs all transfers, in any order and side by side where the device can; each gets its
    /// outcome.
    fn submit(&self, batch: &mut [Io<'_>]) {
        for io in batch {
            io.outcome = match &mut io.op {
                IoOp::Read(buf) => self.read(io.offset, buf),
                IoOp::Write(data, durability) => self.write(io.offset, data, *durability),
            };
        }
    }

    /// Begins a read, which is under way in `in_flight` from then on, beside what is there. A
    /// device that cannot do so reads now. `in_flight` is used with one device only.
    fn begin_read(&self, in_flight: &mut InFlight, mut read: OwnedRead) {
        let outcome = self.read(read.offset, &mut read.buf[..read.len]);
        in_flight.complete(read, outcome);
    }

    /// Begins several reads at once, each as [`Device::begin_read`] does. A device may serve them
    /// in an order of its own, as a disk's arm does.
    fn begin_reads(&self, in_flight: &mut InFlight, reads: &mut dyn Iterator<Item = OwnedRead>) {
        for read in reads {
            self.begin_read(in_flight, read);
        }
    }

    /// Waits for the next of the reads under way to complete; until `until` at most, if that is
    /// given. `None` if none did, or none is under way.
    fn next_read(&self, in_flight: &mut InFlight, until: Option<Moment>) -> Option<ReadDone> {
        in_flight.next_sleeping(until)
    }

    /// Whether the device, which has its bytes more than once, itself begins late reads again where
    /// else they are: then its reader need not. Most devices have no other place.
    fn hides_late_reads(&self) -> bool {
        false
    }

    /// Reads `buf` in every other way that the device has, from copies or by a code, until `right`
    /// says of it that it is; `false` if it never does. Then the device knows which of its parts
    /// are wrong. Most devices have no other way.
    fn read_otherwise(&self, _offset: u64, _buf: &mut [u8], _right: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        false
    }

    /// Makes the device at least `len` bytes long; durable when it returns. Kind `NoSpace` if it
    /// cannot: the old length is then kept. A raw device cannot grow past its size. A length that
    /// is not whole blocks is rounded up. What is added reads as zeros.
    fn grow(&self, len: u64, fill: Fill) -> Result<(), DeviceError>;

    /// Makes the device shorter; durable when it returns. Not needed for correctness: may do
    /// nothing. A length that is not whole blocks is rounded up. The caller makes sure that no
    /// transfer beyond the new end is in flight.
    fn shrink(&self, len: u64) -> Result<(), DeviceError>;

    /// Discards the range: its contents are undefined until written again, and writing it again may
    /// find the file system full. May do nothing. An error says that the device has kept the space,
    /// and harms nothing else.
    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError>;
}

/// Checks what every implementation asks of a transfer: whole blocks, inside the device, by a
/// thread that may wait.
pub(crate) fn check_transfer(
    info: &DeviceInfo,
    device_len: u64,
    offset: u64,
    len: usize,
) -> Result<(), DeviceError> {
    before_device();
    let block = info.logical_block as u64;
    assert!(
        offset.is_multiple_of(block) && (len as u64).is_multiple_of(block),
        "transfers are whole blocks: {offset}+{len} on {}",
        info.name
    );
    match offset.checked_add(len as u64) {
        Some(end) if end <= device_len => Ok(()),
        _ => Err(DeviceError::out_of_range(&info.name, offset, len as u64, device_len)),
    }
}

/// `len` rounded up to whole blocks: what [`Device::grow`] and [`Device::shrink`] do with other
/// lengths.
pub(crate) fn whole_blocks(info: &DeviceInfo, len: u64) -> Result<u64, DeviceError> {
    before_device();
    len.checked_next_multiple_of(info.logical_block as u64).ok_or_else(|| {
        DeviceError::new(DeviceErrorKind::NoSpace, format!("{}: no device has {len} bytes", info.name))
    })
}
