//! Segments: the directory on flash, written sequentially in large pieces (FaCE, section 4.1).
//!
//! A segment repeats the headers of `segment_groups` groups, so that an opening reads a few large
//! pieces instead of every group's header. Nothing depends on it: if a segment is missing, torn or
//! of another lap, the opening reads the headers of its groups. So segments are written
//! independently of all other writes, in no order with them.

use super::geometry::{Geometry, SEGMENT_HEAD_BYTES, Serial};
use super::group::{Entry, GroupHeader};
use crate::page_cache::header::CacheId;
use firndb_base::codec::{Malformed, Reader, Writer};
use firndb_base::{Crc32c, PageId};
use firndb_device::{AlignedBuf, Device, Durability};

const MAGIC: &[u8; 8] = b"FIRNCSEG";
const CHECKSUM_AT: usize = 40;

/// A segment to be written.
pub(crate) struct Segment {
    number: u64,
    buf: AlignedBuf,
}

/// Collects the headers of a segment's groups.
#[derive(Debug)]
pub(crate) struct SegmentBuilder {
    number: u64,
    /// Whether it has all groups of the segment so far.
    whole: bool,
    body: Vec<u8>,
}

impl SegmentBuilder {
    /// A builder that continues with group `next`.
    pub(crate) fn begin(geometry: &Geometry, next: Serial) -> SegmentBuilder {
        let number = geometry.segment_of(next);
        let first = number * geometry.segment_groups;
        // No group has serial 0: the first segment of the first lap lacks it.
        let whole = next.0 == first || next == Serial::FIRST;
        SegmentBuilder { number, whole, body: Vec::new() }
    }

    /// Number of the segment.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Adds the header of the next group; returns the segment if that was its last.
    pub(crate) fn add(
        &mut self,
        geometry: &Geometry,
        cache: CacheId,
        header: &GroupHeader,
    ) -> Option<Segment> {
        assert_eq!(geometry.segment_of(header.serial), self.number, "groups come in order");
        if self.whole {
            self.body.put_u32(header.entries.len() as u32);
            self.body.put_u32(header.tombstones.len() as u32);
            header.entries.iter().for_each(|entry| entry.put(&mut self.body));
            header.tombstones.iter().for_each(|page| self.body.put_u64(page.0));
            // It is too long only if groups of nothing but tombstones are among its groups.
            if SEGMENT_HEAD_BYTES + self.body.len() > geometry.segment_bytes {
                (self.whole, self.body) = (false, Vec::new());
            }
        }
        let next = header.serial.next();
        if geometry.segment_of(next) == self.number {
            return None;
        }
        let whole = std::mem::replace(self, SegmentBuilder::begin(geometry, next));
        whole.finish(geometry, cache)
    }

    fn finish(self, geometry: &Geometry, cache: CacheId) -> Option<Segment> {
        let len = SEGMENT_HEAD_BYTES + self.body.len();
        if !self.whole {
            return None;
        }
        let mut bytes = Vec::with_capacity(len);
        bytes.put(MAGIC);
        bytes.put(&cache.0);
        bytes.put_u64(self.number);
        bytes.put_u64(self.body.len() as u64);
        bytes.put(&[0; SEGMENT_HEAD_BYTES - CHECKSUM_AT]);
        bytes.put(&self.body);
        let checksum = Crc32c::new().with(&bytes).value();
        bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
        let mut buf = AlignedBuf::zeroed(len.next_multiple_of(geometry.block));
        buf[..len].copy_from_slice(&bytes);
        Some(Segment { number: self.number, buf })
    }
}

impl Segment {
    /// Bytes to write.
    pub(crate) fn len(&self) -> usize {
        self.buf.len()
    }

    pub(crate) fn write(
        &self,
        device: &dyn Device,
        geometry: &Geometry,
    ) -> Result<(), firndb_device::DeviceError> {
        device.write(geometry.segment_offset(self.number), &self.buf, Durability::Later)
    }

    /// The headers of segment `number`'s groups, in order, from the bytes in its place; without
    /// their fronts, which only the last header of all must name.
    pub(crate) fn read(
        geometry: &Geometry,
        cache: CacheId,
        number: u64,
        bytes: &[u8],
    ) -> Result<Vec<GroupHeader>, Malformed> {
        let reader = &mut Reader::new(bytes);
        let named = reader.array::<8>()? == *MAGIC && reader.array::<16>()? == cache.0;
        if !named || reader.u64()? != number {
            return Err(Malformed { what: "another segment" });
        }
        let len = usize::try_from(reader.u64()?).unwrap_or(usize::MAX);
        let checksum = reader.u32()?;
        reader.bytes(SEGMENT_HEAD_BYTES - CHECKSUM_AT - 4)?;
        let body = reader.bytes(len)?;
        let found = Crc32c::new().with(&bytes[..CHECKSUM_AT]).with(&[0; 4]);
        let found = found.with(&bytes[CHECKSUM_AT + 4..SEGMENT_HEAD_BYTES]).with(body);
        if found.value() != checksum {
            return Err(Malformed { what: "a segment with a wrong checksum" });
        }
        let reader = &mut Reader::new(body);
        let first = (number * geometry.segment_groups).max(Serial::FIRST.0);
        let groups = (first..(number + 1) * geometry.segment_groups).map(|serial| {
            let (images, tombstones) = (reader.u32()? as usize, reader.u32()? as usize);
            if images > geometry.group_pages || tombstones > geometry.tombstones_beside(images) {
                return Err(Malformed { what: "a group that holds more than it can" });
            }
            let entries = Entry::read_some(reader, images)?;
            let tombstones = (0..tombstones).map(|_| reader.u64().map(PageId)).collect::<Result<_, _>>()?;
            Ok(GroupHeader { serial: Serial(serial), front: Serial(serial), entries, tombstones })
        });
        let groups = groups.collect::<Result<Vec<_>, _>>()?;
        if !reader.is_empty() {
            return Err(Malformed { what: "bytes after the end of a segment" });
        }
        Ok(groups)
    }
}

/// Overwrites segment `number`'s place, durably, so that it is not accepted: one of its groups is
/// rewritten.
pub(crate) fn forget(
    device: &dyn Device,
    geometry: &Geometry,
    number: u64,
) -> Result<(), firndb_device::DeviceError> {
    let zeros = AlignedBuf::zeroed(geometry.block);
    device.write(geometry.segment_offset(number), &zeros, Durability::Durable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_base::Lsn;

    #[test]
    fn a_segment_brings_back_its_headers() {
        let geometry = Geometry::new(512, 512, 4, 64).unwrap();
        let cache = CacheId([5; 16]);
        assert_eq!(geometry.segment_groups, 8);
        for number in [0, 3] {
            let first = (number * 8u64).max(1);
            let mut builder = SegmentBuilder::begin(&geometry, Serial(first));
            let mut headers = Vec::new();
            let mut done = None;
            for serial in first..(number + 1) * 8 {
                assert!(done.is_none());
                let entries = (0..serial % 5)
                    .map(|i| Entry {
                        page: PageId(serial * 10 + i + 1),
                        version: Lsn(serial),
                        dirty: i == 0,
                        killed: i == 1,
                    })
                    .collect();
                let header = GroupHeader {
                    serial: Serial(serial),
                    front: Serial(serial),
                    entries,
                    tombstones: vec![PageId(4); serial as usize % 3],
                };
                done = builder.add(&geometry, cache, &header);
                headers.push(header);
            }
            let segment = done.expect("complete");
            assert_eq!(Segment::read(&geometry, cache, number, &segment.buf), Ok(headers));
            assert!(Segment::read(&geometry, cache, number + 8, &segment.buf).is_err(), "another lap");
            let mut torn = segment.buf.to_vec();
            torn[100] ^= 1;
            assert!(Segment::read(&geometry, cache, number, &torn).is_err());
        }
    }

    #[test]
    fn a_segment_that_became_too_long_takes_no_memory() {
        let geometry = Geometry::new(512, 512, 4, 64).unwrap();
        let mut builder = SegmentBuilder::begin(&geometry, Serial(8));
        let tombstones = vec![PageId(4); geometry.tombstones_beside(0)];
        for serial in (8..16).map(Serial) {
            let (entries, tombstones) = (Vec::new(), tombstones.clone());
            let header = GroupHeader { serial, front: serial, entries, tombstones };
            assert!(builder.add(&geometry, CacheId([5; 16]), &header).is_none());
            assert!(builder.body.capacity() <= 2 * geometry.segment_bytes, "{}", builder.body.capacity());
        }
    }

    #[test]
    fn a_segment_begun_in_its_middle_is_not_written() {
        let geometry = Geometry::new(512, 512, 4, 64).unwrap();
        let mut builder = SegmentBuilder::begin(&geometry, Serial(15));
        let header = |serial| GroupHeader {
            serial: Serial(serial),
            front: Serial(serial),
            entries: Vec::new(),
            tombstones: Vec::new(),
        };
        assert!(builder.add(&geometry, CacheId([5; 16]), &header(15)).is_none());
        for serial in 16..23 {
            assert!(builder.add(&geometry, CacheId([5; 16]), &header(serial)).is_none());
        }
        assert!(builder.add(&geometry, CacheId([5; 16]), &header(23)).is_some());
    }
}
