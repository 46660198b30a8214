//! A group's bytes: header, entries, tombstones, and the sealed images. See `docs/format/cache.md`.
//!
//! A group is written by one request and a crash may tear it while it is the last one; it counts
//! only if it is whole. Every image carries a *seal* (page, version, group, checksum; base and
//! changes), so that one read returns all that identifies it, and what a write-back needs.

use super::geometry::{ENTRY_BYTES, GROUP_HEAD_BYTES, Geometry, SEAL_BYTES, Serial, TOMBSTONE_BYTES};
use crate::granules::{Base, Changes};
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

/// What is known of an image beside its page and version: what it differs by from which image of
/// the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Since {
    pub base: Option<Base>,
    pub changes: Changes,
}

impl Since {
    /// No base is known.
    pub(crate) const UNKNOWN: Since = Since { base: None, changes: Changes::ALL };
}

/// The bytes before an image that identify it, and say what it differs by from the store's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seal {
    pub page: PageId,
    pub version: Lsn,
    pub serial: Serial,
    pub since: Since,
}

/// Bit of a seal's first word: it names a base.
const HAS_BASE: u64 = 1 << 56;
const SEAL_CHECKSUM_AT: usize = 28;

impl Seal {
    /// Writes the seal and the image to `out`.
    pub(crate) fn write(&self, cache: CacheId, image: &[u8], out: &mut [u8]) {
        let Since { base, changes } = self.since;
        assert!(self.page.0 & !PAGE_MASK == 0);
        assert!(base.is_some() || changes.is_all(), "without a base everything is changed");
        let word = self.page.0 | if base.is_some() { HAS_BASE } else { 0 };
        let Base { version, checksum } = base.unwrap_or(Base { version: Lsn::ZERO, checksum: 0 });
        out[..8].copy_from_slice(&word.to_le_bytes());
        out[8..16].copy_from_slice(&self.version.0.to_le_bytes());
        out[16..24].copy_from_slice(&self.serial.0.to_le_bytes());
        out[24..28].copy_from_slice(&checksum.to_le_bytes());
        out[32..40].copy_from_slice(&version.0.to_le_bytes());
        out[40..SEAL_BYTES].copy_from_slice(&changes.to_bytes());
        out[SEAL_BYTES..].copy_from_slice(image);
        // Over the copy, which no other thread can change.
        let sum = Seal::checksum(cache, out);
        out[SEAL_CHECKSUM_AT..SEAL_CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
    }

    /// Parses the seal of a sealed image. `None` if seal and image do not belong together, or
    /// belong to another cache.
    pub(crate) fn read(cache: CacheId, sealed: &[u8]) -> Option<Seal> {
        let found = sealed.get(SEAL_CHECKSUM_AT..SEAL_CHECKSUM_AT + 4)?;
        if sealed.len() < SEAL_BYTES || found != Seal::checksum(cache, sealed).to_le_bytes() {
            return None;
        }
        Seal::parse(sealed)
    }

    /// Parses a seal that is known to be whole.
    pub(crate) fn parse(sealed: &[u8]) -> Option<Seal> {
        let reader = &mut Reader::new(sealed);
        let (word, version) = (reader.u64().ok()?, Lsn(reader.u64().ok()?));
        let (serial, base_checksum) = (Serial(reader.u64().ok()?), reader.u32().ok()?);
        reader.u32().ok()?;
        let base = Base { version: Lsn(reader.u64().ok()?), checksum: base_checksum };
        let changes = Changes::from_bytes(reader.array().ok()?);
        let since = match word & HAS_BASE != 0 {
            true => Since { base: Some(base), changes },
            false if changes.is_all() => Since::UNKNOWN,
            false => return None,
        };
        Some(Seal { page: PageId(word & !HAS_BASE), version, serial, since })
    }

    /// Whether it is the seal of the image that a group's header describes so.
    pub(crate) fn is_of(&self, entry: &Entry, serial: Serial) -> bool {
        self.page == entry.page && self.version == entry.version && self.serial == serial
    }

    fn checksum(cache: CacheId, sealed: &[u8]) -> u32 {
        let (before, after) = (&sealed[..SEAL_CHECKSUM_AT], &sealed[SEAL_CHECKSUM_AT + 4..]);
        Crc32c::new().with(&cache.0).with(before).with(after).value()
    }
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
        let seal = Seal { page: PageId(3), version: Lsn(4), serial: Serial(5), since: Since::UNKNOWN };
        let mut sealed = vec![0; SEAL_BYTES + 512];
        seal.write(CACHE, &[9; 512], &mut sealed);
        assert_eq!(sealed[..24], [3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!((&sealed[24..28], &sealed[32..40]), (&[0; 4][..], &[0; 8][..]));
        assert_eq!(sealed[40..56], [255; 16]);
        assert_eq!(Seal::read(CACHE, &sealed), Some(seal));
        assert_eq!(Seal::read(CacheId([6; 16]), &sealed), None);
        for at in (0..sealed.len()).step_by(7) {
            let mut bad = sealed.clone();
            bad[at] ^= 1;
            assert_eq!(Seal::read(CACHE, &bad), None, "byte {at}");
        }
        assert_eq!(Seal::read(CACHE, &sealed[..SEAL_BYTES - 1]), None);
    }

    #[test]
    fn seals_carry_the_base_and_the_changes_in_golden_bytes() {
        let base = Base { version: Lsn(0x0203), checksum: 0x0A0B_0C0D };
        let mut changes = Changes::of(0..4, 512);
        changes.add_range(508..512, 512);
        let since = Since { base: Some(base), changes };
        let seal = Seal { page: PageId(3), version: Lsn(4), serial: Serial(5), since };
        let mut sealed = vec![0; SEAL_BYTES + 512];
        seal.write(CACHE, &[9; 512], &mut sealed);
        assert_eq!(sealed[..8], [3, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(sealed[24..28], [0x0D, 0x0C, 0x0B, 0x0A]);
        assert_eq!(sealed[32..40], [3, 2, 0, 0, 0, 0, 0, 0]);
        assert_eq!(sealed[40..56], [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 128]);
        assert_eq!(Seal::read(CACHE, &sealed), Some(seal));
        for at in 0..sealed.len() {
            let mut bad = sealed.clone();
            bad[at] ^= 1;
            assert_eq!(Seal::read(CACHE, &bad), None, "byte {at}");
        }
        // What no cache writes, although its checksum is right.
        sealed[7] = 0;
        let sum = Seal::checksum(CACHE, &sealed);
        sealed[28..32].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(Seal::read(CACHE, &sealed), None, "no base, and not everything changed");
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
            let _ = Seal::read(CACHE, &bytes.iter().copied().chain([0; SEAL_BYTES]).collect::<Vec<_>>());
        }
    }
}
