//! A group's bytes: header, entries, tombstones, and the sealed images. See `docs/format/cache.md`.
//!
//! A group is written by one request and a crash may tear it while it is the last one; it counts
//! only if it is whole. Every image carries a *seal* (page, version, group, checksum), so that one
//! read returns all that identifies it.

use super::geometry::{ENTRY_BYTES, GROUP_HEAD_BYTES, Geometry, SEAL_BYTES, Serial, TOMBSTONE_BYTES};
use crate::page_cache::header::CacheId;
use firndb_base::codec::{Malformed, Reader, Writer};
use firndb_base::{Crc32c, Lsn, PageId};

const MAGIC: &[u8; 8] = b"FIRNCGRP";
const CHECKSUM_AT: usize = 48;

const DIRTY: u64 = 1 << 56;
const KILLED: u64 = 1 << 57;
const PAGE_MASK: u64 = DIRTY - 1;

/// Entry for one image in a group's header and in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub page: PageId,
    pub version: Lsn,
    /// Newer than the store's version.
    pub dirty: bool,
    /// Invalid before the group was written: the page was freed. It still replaces older versions.
    pub killed: bool,
}

impl Entry {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        assert!(self.page.0 & !PAGE_MASK == 0);
        let flags = if self.dirty { DIRTY } else { 0 } | if self.killed { KILLED } else { 0 };
        out.put_u64(self.page.0 | flags);
        out.put_u64(self.version.0);
    }
    /// The next `count` entries.
    pub(crate) fn read_some(reader: &mut Reader<'_>, count: usize) -> Result<Vec<Entry>, Malformed> {
        let bytes = reader.bytes(count.saturating_mul(ENTRY_BYTES))?;
        let mut entries = Vec::with_capacity(count);
        for entry in bytes.as_chunks::<ENTRY_BYTES>().0 {
            entries.push(Entry::decode(entry)?);
        }
        Ok(entries)
    }

    fn decode(bytes: &[u8; ENTRY_BYTES]) -> Result<Entry, Malformed> {
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let (word, version) = (number(0), Lsn(number(8)));
        let page = PageId(word & PAGE_MASK);
        if word & !(PAGE_MASK | DIRTY | KILLED) != 0 || !Geometry::can_hold(page) {
            return Err(Malformed { what: "a cache entry of no possible page" });
        }
        Ok(Entry { page, version, dirty: word & DIRTY != 0, killed: word & KILLED != 0 })
    }
}

/// A group's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupHeader {
    pub serial: Serial,
    /// Groups before this one are not needed any more: the next group may overwrite one of them.
    pub front: Serial,
    pub entries: Vec<Entry>,
    /// Pages of which all images in earlier groups are invalid.
    pub tombstones: Vec<PageId>,
}

impl GroupHeader {
    /// Bytes of a header.
    pub(crate) fn len(entries: usize, tombstones: usize) -> usize {
        GROUP_HEAD_BYTES + entries * ENTRY_BYTES + tombstones * TOMBSTONE_BYTES
    }

    /// Writes the header to the beginning of `out`.
    pub(crate) fn write(&self, cache: CacheId, out: &mut [u8]) {
        let mut bytes = Vec::with_capacity(GroupHeader::len(self.entries.len(), self.tombstones.len()));
        bytes.put(MAGIC);
        bytes.put(&cache.0);
        bytes.put_u64(self.serial.0);
        bytes.put_u64(self.front.0);
        bytes.put_u32(self.entries.len() as u32);
        bytes.put_u32(self.tombstones.len() as u32);
        bytes.put(&[0; GROUP_HEAD_BYTES - CHECKSUM_AT]);
        self.entries.iter().for_each(|entry| entry.put(&mut bytes));
        self.tombstones.iter().for_each(|page| bytes.put_u64(page.0));
        let checksum = Crc32c::new().with(&bytes).value();
        bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
        out[..bytes.len()].copy_from_slice(&bytes);
    }

    /// Bytes of the header that begins with `bytes`, if it looks like one of this cache.
    pub(crate) fn len_of(geometry: &Geometry, cache: CacheId, bytes: &[u8]) -> Result<usize, Malformed> {
        let reader = &mut Reader::new(bytes);
        if reader.array::<8>()? != *MAGIC || reader.array::<16>()? != cache.0 {
            return Err(Malformed { what: "no group of this cache" });
        }
        reader.bytes(16)?;
        let (images, tombstones) = (reader.u32()? as usize, reader.u32()? as usize);
        if images > geometry.group_pages || tombstones > geometry.tombstones_beside(images) {
            return Err(Malformed { what: "a group that holds more than it can" });
        }
        Ok(GroupHeader::len(images, tombstones))
    }

    /// Parses the header at the beginning of `bytes`, which hold all of it.
    pub(crate) fn read(geometry: &Geometry, cache: CacheId, bytes: &[u8]) -> Result<GroupHeader, Malformed> {
        let len = GroupHeader::len_of(geometry, cache, bytes)?;
        let whole = bytes.get(..len).ok_or(Malformed { what: "a group's header ends early" })?;
        let reader = &mut Reader::new(&whole[24..]);
        let (serial, front) = (Serial(reader.u64()?), Serial(reader.u64()?));
        let (images, tombstones) = (reader.u32()?, reader.u32()?);
        let checksum = reader.u32()?;
        let found = Crc32c::new().with(&whole[..CHECKSUM_AT]).with(&[0; 4]).with(&whole[CHECKSUM_AT + 4..]);
        if found.value() != checksum {
            return Err(Malformed { what: "a group's header with a wrong checksum" });
        }
        reader.bytes(GROUP_HEAD_BYTES - CHECKSUM_AT - 4)?;
        if serial < Serial::FIRST || front > serial || front.0 + geometry.groups < serial.0 + 2 {
            return Err(Malformed { what: "a group with an impossible number" });
        }
        let entries = Entry::read_some(reader, images as usize)?;
        let tombstones = (0..tombstones).map(|_| reader.u64().map(PageId)).collect::<Result<_, _>>()?;
        Ok(GroupHeader { serial, front, entries, tombstones })
    }
}

/// The bytes before an image that identify it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seal {
    pub page: PageId,
    pub version: Lsn,
    pub serial: Serial,
}

impl Seal {
    /// Writes the seal and the image to `out`.
    pub(crate) fn write(&self, cache: CacheId, image: &[u8], out: &mut [u8]) {
        out[..8].copy_from_slice(&self.page.0.to_le_bytes());
        out[8..16].copy_from_slice(&self.version.0.to_le_bytes());
        out[16..24].copy_from_slice(&self.serial.0.to_le_bytes());
        out[24..28].fill(0);
        out[SEAL_BYTES..].copy_from_slice(image);
        // Over the copy, which no other thread can change.
        let checksum = checksum(cache, out);
        out[28..32].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Parses the seal of a sealed image. `None` if seal and image do not belong together, or
    /// belong to another cache.
    pub(crate) fn read(cache: CacheId, sealed: &[u8]) -> Option<Seal> {
        let reader = &mut Reader::new(sealed);
        let seal = Seal {
            page: PageId(reader.u64().ok()?),
            version: Lsn(reader.u64().ok()?),
            serial: Serial(reader.u64().ok()?),
        };
        reader.u32().ok()?;
        (reader.u32().ok()? == checksum(cache, sealed)).then_some(seal)
    }
}

fn checksum(cache: CacheId, sealed: &[u8]) -> u32 {
    Crc32c::new().with(&cache.0).with(&sealed[..28]).with(&sealed[SEAL_BYTES..]).value()
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_base::rng::Rng;

    const CACHE: CacheId = CacheId([5; 16]);

    fn geometry() -> Geometry {
        Geometry::new(512, 512, 4, 16).unwrap()
    }
    fn sample() -> GroupHeader {
        GroupHeader {
            serial: Serial(20),
            front: Serial(9),
            entries: vec![
                Entry { page: PageId(7), version: Lsn(0x102), dirty: true, killed: false },
                Entry { page: PageId(1 << 39), version: Lsn(9), dirty: false, killed: true },
            ],
            tombstones: vec![PageId(77)],
        }
    }

    #[test]
    fn groups_have_golden_bytes() {
        let mut bytes = vec![0; 512];
        sample().write(CACHE, &mut bytes);
        let mut golden = b"FIRNCGRP".to_vec();
        golden.extend([5; 16]);
        golden.extend([20, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(bytes[..CHECKSUM_AT], golden);
        let entries = [
            [7, 0, 0, 0, 0, 0, 0, 1, 2, 1, 0, 0, 0, 0, 0, 0],
            [0, 0, 0, 0, 128, 0, 0, 2, 9, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(bytes[52..64], [0; 12]);
        assert_eq!(bytes[64..96], entries.concat());
        assert_eq!(bytes[96..104], [77, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(GroupHeader::read(&geometry(), CACHE, &bytes), Ok(sample()));
        for at in 0..104 {
            let mut bad = bytes.clone();
            bad[at] ^= 4;
            assert!(GroupHeader::read(&geometry(), CACHE, &bad).is_err(), "byte {at}");
        }
        assert!(GroupHeader::read(&geometry(), CacheId([6; 16]), &bytes).is_err());
    }

    #[test]
    fn seals_tell_pages_versions_groups_and_caches_apart() {
        let seal = Seal { page: PageId(3), version: Lsn(4), serial: Serial(5) };
        let mut sealed = vec![0; SEAL_BYTES + 512];
        seal.write(CACHE, &[9; 512], &mut sealed);
        assert_eq!(sealed[..24], [3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Seal::read(CACHE, &sealed), Some(seal));
        assert_eq!(Seal::read(CacheId([6; 16]), &sealed), None);
        for at in (0..sealed.len()).step_by(7) {
            let mut bad = sealed.clone();
            bad[at] ^= 1;
            assert_eq!(Seal::read(CACHE, &bad), None, "byte {at}");
        }
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let mut rng = Rng::new(2);
        let mut good = vec![0; 512];
        sample().write(CACHE, &mut good);
        for _ in 0..20_000 {
            let mut bytes = good.clone();
            for _ in 0..rng.between(1, 4) {
                let at = rng.below(104) as usize;
                bytes[at] = rng.next_u64() as u8;
            }
            bytes.truncate(rng.between(1, 512) as usize);
            let _ = GroupHeader::read(&geometry(), CACHE, &bytes);
            let _ = Seal::read(CACHE, &bytes.iter().copied().chain([0; 32]).collect::<Vec<_>>());
        }
    }
}
