//! Whether a device holds something, before it is made into something else.

use crate::aligned::AlignedBuf;
use crate::device::{Device, Durability};
use crate::error::DeviceError;
use std::ops::Range;

/// Bytes read from the beginning, and before the end.
const ENDS: u64 = 1 << 20;
/// Bytes read from each power of two in between.
const AT_POWERS: u64 = 4 << 10;
/// Bytes of one read.
const READ: u64 = 256 << 10;

/// The first bytes on `device` that are not zero: `None` if it seems empty.
///
/// A large device is not read whole. What other software puts on devices begins in the first MiB
/// (partition tables, LVM, md 1.1 and 1.2, LUKS, swap, ZFS; ext4, XFS; btrfs at 64 KiB), has a copy
/// in the last one (GPT, md 0.90 and 1.0, ZFS), or copies at powers of two (btrfs at 64 MiB and 256
/// GiB): those ranges are read.
pub fn find_contents(device: &dyn Device) -> Result<Option<u64>, DeviceError> {
    for range in places(device.len(), device.info().logical_block as u64) {
        if let Some(found) = find_in(device, range)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Writes zeros over whatever [`find_contents`] finds from the offset `from` on, which is that of a
/// block. The rest of the device keeps what it has.
pub fn erase_contents(device: &dyn Device, from: u64) -> Result<(), DeviceError> {
    for range in places(device.len(), device.info().logical_block as u64) {
        for start in (range.start.max(from)..range.end).step_by(READ as usize) {
            let part = start..range.end.min(start + READ);
            if find_in(device, part.clone())?.is_some() {
                let zeros = AlignedBuf::zeroed((part.end - part.start) as usize);
                device.write(part.start, &zeros, Durability::Durable)?;
            }
        }
    }
    Ok(())
}

/// As [`find_contents`], and every byte is read.
pub fn find_contents_anywhere(device: &dyn Device) -> Result<Option<u64>, DeviceError> {
    find_in(device, 0..device.len())
}

/// The ranges to read on a device of `len` bytes, a multiple of `block`.
fn places(len: u64, block: u64) -> Vec<Range<u64>> {
    let whole = |end: u64| end.next_multiple_of(block).min(len);
    let tail = len.saturating_sub(ENDS) / block * block;
    let powers = (0..u64::BITS).map(|bit| 1u64 << bit).filter(|at| (ENDS..tail).contains(at));
    let between = powers.map(|at| at..whole(at + AT_POWERS));
    std::iter::once(0..whole(ENDS)).chain(between).chain(std::iter::once(tail..len)).collect()
}

fn find_in(device: &dyn Device, range: Range<u64>) -> Result<Option<u64>, DeviceError> {
    if range.is_empty() {
        return Ok(None);
    }
    let mut buf = AlignedBuf::zeroed(READ.min(range.end - range.start) as usize);
    let mut at = range.start;
    while at < range.end {
        let len = (range.end - at).min(READ) as usize;
        device.read(at, &mut buf[..len])?;
        if let Some(found) = buf[..len].iter().position(|&byte| byte != 0) {
            return Ok(Some(at + found as u64));
        }
        at += len as u64;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Fill;
    use crate::memory::MemoryDevice;

    #[test]
    fn what_is_erased_looks_empty_and_the_rest_stays() {
        let far = (8 << 20) + 64 * 1024;
        let device = device(64 << 20, &[0, 4096, 600 << 10, 4 << 20, far, (64 << 20) - 4096]);
        erase_contents(&device, 4096).expect("in memory");
        assert_eq!(find_contents(&device), Ok(Some(0)), "before that");
        erase_contents(&device, 0).expect("in memory");
        assert_eq!(find_contents(&device), Ok(None));
        assert_eq!(find_contents_anywhere(&device), Ok(Some(far)));
    }

    fn device(len: u64, traces: &[u64]) -> MemoryDevice {
        let device = MemoryDevice::with("m", 4096, u64::MAX);
        device.grow(len, Fill::Sparse).expect("zeros take no memory");
        for trace in traces {
            let mut block = [0; 4096];
            block[(trace % 4096) as usize] = 1;
            device.write(trace / 4096 * 4096, &block, Durability::Later).expect("within");
        }
        device
    }

    #[test]
    fn what_others_leave_on_devices_is_seen() {
        const LEN: u64 = 4 << 30;
        assert_eq!(find_contents(&device(0, &[])), Ok(None));
        assert_eq!(find_contents(&device(LEN, &[])), Ok(None));
        let places = [
            ("a master boot record", 510),
            ("a GUID partition table", 512),
            ("ext4", 1024 + 0x38),
            ("md 1.2, bcache", 4096),
            ("swap", 4086),
            ("btrfs", (64 << 10) + 64),
            ("a ZFS label", (128 << 10) + 1),
            ("ZFS's second label", (512 << 10) - 1),
            ("btrfs' second superblock", (64 << 20) + 64),
            ("md 0.90", LEN - (64 << 10)),
            ("md 1.0", LEN - (8 << 10)),
            ("ZFS's last label", LEN - (256 << 10)),
            ("the partition table's copy", LEN - 512),
        ];
        for (what, place) in places {
            assert_eq!(find_contents(&device(LEN, &[place])), Ok(Some(place)), "{what}");
        }
        assert_eq!(
            find_contents(&device(3 << 20, &[(1 << 20) + 5000])),
            Ok(None),
            "not every byte is looked at"
        );
        assert_eq!(find_contents_anywhere(&device(3 << 20, &[(1 << 20) + 5000])), Ok(Some((1 << 20) + 5000)));
        for len in [4096, 8192, (1 << 20) - 4096, 1 << 20, (1 << 20) + 4096, 2 << 20] {
            assert_eq!(find_contents(&device(len, &[len - 1])), Ok(Some(len - 1)));
        }
    }
}
