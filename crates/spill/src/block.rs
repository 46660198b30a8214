//! Blocks of a run: what is checked by itself.
//!
//! ```text
//! 0         4         8         16         24
//! +---------+---------+---------+----------+--------------------+
//! | crc u32 | len u32 | run u64 | no. u64  | len bytes of rows  |
//! +---------+---------+---------+----------+--------------------+
//! ```
//! The checksum is that of all bytes behind it, up to the end of the rows. Run and number tell a
//! block from one that was written there before, or elsewhere. Rows are a length (u32) and as many
//! bytes, and go on from block to block.

use crate::error::{SpillError, SpillErrorKind};
use firndb_base::checksum::crc32c;
use firndb_base::codec::Reader;

pub(crate) const HEADER: usize = 24;
/// Bytes of a block, but for devices of larger logical blocks.
pub(crate) const BYTES_MIN: usize = 512;
pub(crate) const BYTES_MAX: usize = 4 << 10;

/// Fills in the header of a block that holds `len` bytes of rows.
pub(crate) fn seal(block: &mut [u8], len: usize, run: u64, number: u64) {
    block[4..8].copy_from_slice(&(len as u32).to_le_bytes());
    block[8..16].copy_from_slice(&run.to_le_bytes());
    block[16..24].copy_from_slice(&number.to_le_bytes());
    let crc = crc32c(&block[4..HEADER + len]);
    block[..4].copy_from_slice(&crc.to_le_bytes());
}

/// How many bytes of rows a block holds that was read. Fails with kind `SpillFailed` unless it is
/// the one that was written.
pub(crate) fn check(block: &[u8], run: u64, number: u64, device: &str) -> Result<usize, SpillError> {
    let wrong = |what: &str| {
        SpillError::new(
            SpillErrorKind::Failed,
            format!(
                "{device}: block {number} of run {run} {what}; the database is unharmed, run the work again and look at the device"
            ),
        )
    };
    let read = |reader: &mut Reader<'_>| Ok((reader.u32()?, reader.u32()?, reader.u64()?, reader.u64()?));
    let header: Result<_, firndb_base::codec::Malformed> = read(&mut Reader::new(block));
    let (crc, len, found_run, found_number) = header.map_err(|_| wrong("is too short"))?;
    let len = len as usize;
    if len > block.len() - HEADER || crc != crc32c(&block[4..HEADER + len]) {
        return Err(wrong("is damaged"));
    }
    if (found_run, found_number) != (run, number) {
        return Err(wrong("is another one than was written there"));
    }
    Ok(len)
}
