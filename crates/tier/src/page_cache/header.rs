//! The header with which every cache begins, of whatever kind: its database and its layout. Written
//! once, in two copies; nothing in it changes.

use crate::error::{TierError, TierErrorKind};
use firndb_base::codec::{Malformed, Reader, Writer};
use firndb_base::{Crc32c, DatabaseId};
use firndb_device::{AlignedBuf, Device, Durability, find_contents};

const MAGIC: &[u8; 8] = b"FIRNCACH";
/// 2: a tombstone tells of all earlier groups, and need not be there for a page that was freed
/// (`pending.rs`).
const VERSION: u32 = 3;
/// Bytes of what is said; the rest of the slot is zeros.
const HEAD_BYTES: usize = 76;
const CHECKSUM_AT: usize = 72;

/// Identifies one cache for ever: drawn when it is created, and part of every checksum in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheId(pub [u8; 16]);

/// Contents of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheHeader {
    /// The database whose pages it holds.
    pub database: DatabaseId,
    /// Drawn when it was created.
    pub cache: CacheId,
    /// Bytes of a page.
    pub page_size: u32,
    /// Unit of transfers in bytes.
    pub block: u32,
    /// Pages of a group; 1 in a cache without groups.
    pub group_pages: u32,
    /// Dirty pages go to the store at once: the cache never holds the only copy.
    pub write_through: bool,
    /// Groups, or places in a cache without groups.
    pub groups: u64,
}

/// What a device that is to become a cache holds now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    Blank,
    /// A cache, with this header.
    Cache(CacheHeader),
    /// Anything else.
    Other,
}

impl CacheHeader {
    /// Bytes of one copy.
    #[must_use]
    pub fn slot_bytes(block: usize) -> usize {
        block.max(4096)
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD_BYTES);
        out.put(MAGIC);
        out.put_u32(VERSION);
        out.put_u32(self.page_size);
        out.put(&self.database.0);
        out.put(&self.cache.0);
        out.put_u32(self.block);
        out.put_u32(self.group_pages);
        out.put_u32(u32::from(self.write_through));
        out.put_u32(0);
        out.put_u64(self.groups);
        out.put_u32(Crc32c::new().with(&out).value());
        assert_eq!(out.len(), HEAD_BYTES);
        out
    }

    fn decode(bytes: &[u8]) -> Result<CacheHeader, Malformed> {
        let reader = &mut Reader::new(bytes);
        if reader.array::<8>()? != *MAGIC {
            return Err(Malformed { what: "not a flash cache" });
        }
        let version = reader.u32()?;
        let page_size = reader.u32()?;
        let database = DatabaseId(reader.array()?);
        let cache = CacheId(reader.array()?);
        let (block, group_pages) = (reader.u32()?, reader.u32()?);
        let write_through = match reader.u32()? {
            0 => false,
            1 => true,
            _ => return Err(Malformed { what: "a cache header with an unknown mode" }),
        };
        reader.u32()?;
        let groups = reader.u64()?;
        if reader.u32()? != Crc32c::new().with(&bytes[..CHECKSUM_AT]).value() {
            return Err(Malformed { what: "a cache header with a wrong checksum" });
        }
        if version != VERSION {
            return Err(Malformed { what: "a cache of another format version" });
        }
        Ok(CacheHeader { database, cache, page_size, block, group_pages, write_through, groups })
    }

    /// Writes both copies, durably.
    pub fn write(&self, device: &dyn Device) -> Result<(), TierError> {
        let bytes = self.encode();
        let slot_bytes = CacheHeader::slot_bytes(self.block as usize);
        let mut buf = AlignedBuf::zeroed(slot_bytes);
        buf[..bytes.len()].copy_from_slice(&bytes);
        for copy in [0, 1] {
            device.write(copy * slot_bytes as u64, &buf, Durability::Durable)?;
        }
        Ok(())
    }

    /// The database that either copy names.
    #[must_use]
    pub fn owner(device: &dyn Device) -> Option<DatabaseId> {
        match CacheHeader::inspect(device) {
            Ok(Contents::Cache(header)) => Some(header.database),
            _ => None,
        }
    }

    /// Determines what the device holds.
    pub(crate) fn inspect(device: &dyn Device) -> Result<Contents, TierError> {
        let slot_bytes = CacheHeader::slot_bytes(device.info().logical_block);
        if device.len() < 2 * slot_bytes as u64 {
            let blank = find_contents(device)?.is_none();
            return Ok(if blank { Contents::Blank } else { Contents::Other });
        }
        let mut blank = true;
        let mut unreadable = None;
        let mut buf = AlignedBuf::zeroed(slot_bytes);
        for copy in [0, 1] {
            // One read each: a sector that cannot be read spoils one of them only.
            if let Err(error) = device.read(copy * slot_bytes as u64, &mut buf) {
                unreadable = Some(error);
                continue;
            }
            if let Ok(header) = CacheHeader::decode(&buf) {
                return Ok(Contents::Cache(header));
            }
            blank &= buf.iter().all(|&byte| byte == 0);
        }
        match unreadable {
            Some(error) => Err(error.into()),
            None if blank && find_contents(device)?.is_none() => Ok(Contents::Blank),
            None => Ok(Contents::Other),
        }
    }

    /// Fails with `BadArgument` unless the device is empty or held a cache of `database`.
    pub fn expect_vacant(device: &dyn Device, database: DatabaseId) -> Result<(), TierError> {
        let what = match CacheHeader::inspect(device)? {
            Contents::Blank => return Ok(()),
            Contents::Cache(header) if header.database == database => return Ok(()),
            Contents::Cache(header) => {
                format!("is the flash cache of database {}: use another file", header.database)
            }
            Contents::Other => "is not empty: a flash cache is made on an empty device".to_owned(),
        };
        Err(TierError::new(TierErrorKind::BadArgument, format!("{} {what}", device.info().name)))
    }

    /// Reads the header of the cache `cache` of `database`.
    ///
    /// Errors: `Damaged` if the device holds anything else.
    pub fn load(device: &dyn Device, database: DatabaseId, cache: CacheId) -> Result<CacheHeader, TierError> {
        let name = &device.info().name;
        let damaged = |what: &str| {
            Err(TierError::new(
                TierErrorKind::Damaged,
                format!(
                    "{name} is not the flash cache of this database: {what}. Put the right one in place, or restore a backup"
                ),
            ))
        };
        let header = match CacheHeader::inspect(device)? {
            Contents::Cache(header) => header,
            Contents::Blank => return damaged("it is empty"),
            Contents::Other => return damaged("it has no valid header"),
        };
        if header.database != database {
            return damaged(&format!("it belongs to database {}", header.database));
        }
        if header.cache != cache {
            return damaged(
                "it is another cache that this database had, or this one before it was made anew",
            );
        }
        let block = device.info().logical_block;
        if !(header.block as usize).is_multiple_of(block) {
            return damaged(&format!(
                "it was made in blocks of {} bytes, the device has {block}",
                header.block
            ));
        }
        Ok(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_device::{Fill, MemoryDevice};

    fn sample() -> CacheHeader {
        CacheHeader {
            database: DatabaseId([3; 16]),
            cache: CacheId([4; 16]),
            page_size: 4096,
            block: 512,
            group_pages: 64,
            write_through: true,
            groups: 1024,
        }
    }

    #[test]
    fn the_header_has_golden_bytes() {
        let bytes = sample().encode();
        let mut golden = b"FIRNCACH".to_vec();
        golden.extend([3, 0, 0, 0, 0, 16, 0, 0]);
        golden.extend([3; 16]);
        golden.extend([4; 16]);
        golden.extend([0, 2, 0, 0, 64, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[..CHECKSUM_AT], golden);
        assert_eq!(CacheHeader::decode(&bytes), Ok(sample()));
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 0x10;
            assert!(CacheHeader::decode(&bad).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_header_of_an_earlier_version_is_refused() {
        let mut bytes = sample().encode();
        bytes[8..12].copy_from_slice(&2u32.to_le_bytes());
        let checksum = Crc32c::new().with(&bytes[..CHECKSUM_AT]).value();
        bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(CacheHeader::decode(&bytes), Err(Malformed { what: "a cache of another format version" }));
    }

    #[test]
    fn one_good_copy_is_enough_and_strangers_are_refused() {
        let device = MemoryDevice::new("cache");
        assert_eq!(CacheHeader::inspect(&device), Ok(Contents::Blank));
        device.grow(64 << 10, Fill::Sparse).unwrap();
        assert_eq!(CacheHeader::inspect(&device), Ok(Contents::Blank));
        sample().write(&device).unwrap();
        for copy in [0, 4096] {
            let device = device.duplicate();
            device.write(copy, &[7; 4096], Durability::Later).unwrap();
            assert_eq!(CacheHeader::load(&device, DatabaseId([3; 16]), CacheId([4; 16])), Ok(sample()));
        }
        for (database, cache) in [([9; 16], [4; 16]), ([3; 16], [9; 16])] {
            let error = CacheHeader::load(&device, DatabaseId(database), CacheId(cache)).unwrap_err();
            assert_eq!(error.kind, TierErrorKind::Damaged);
        }
        device.write(0, &[7; 8192], Durability::Later).unwrap();
        assert_eq!(CacheHeader::inspect(&device), Ok(Contents::Other));
    }
}
