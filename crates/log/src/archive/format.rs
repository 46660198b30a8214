//! Segment headers and chunks, as bytes. See `docs/format/archive.md`.

use crate::block::{LSN_MAX, u16_at, u32_at, u64_at};
use firndb_base::{DatabaseId, Epoch, Lsn, crc32c};

/// Alignment of everything in a segment, in bytes. Fixed, so that archives move between file
/// systems.
pub(crate) const UNIT: usize = 4096;
/// Most bytes of stream in one chunk.
pub const CHUNK_MAX: usize = 1 << 20;
/// Smallest segment: header, a chunk of a unit or more, seal.
pub const SEGMENT_BYTES_MIN: u64 = 16 * UNIT as u64;
/// Bytes of a chunk's header.
pub(crate) const CHUNK_HEADER: usize = 64;
/// Bytes of a segment's header that are used.
const HEADER: usize = 512;
const MAGIC: u16 = 0x4146;
const VERSION: u8 = 1;
const TYPE_SEGMENT: u8 = 1;
const TYPE_CHUNK: u8 = 2;
const TYPE_SEAL: u8 = 3;
const TYPE_IMAGES: u8 = 4;
/// Largest chunk on the device, padding included.
pub(crate) const CHUNK_BYTES_MAX: usize = (CHUNK_HEADER + CHUNK_MAX).next_multiple_of(UNIT);

/// Where an epoch of the log began, and where the log before it ended: bytes between the two are no
/// log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochMark {
    /// The epoch.
    pub epoch: Epoch,
    /// The epoch's first LSN.
    pub start: Lsn,
    /// End of the log before it; equal to `start` for a database's first epoch.
    pub previous_end: Lsn,
}

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub database: DatabaseId,
    /// 1, 2, … in the order in which segments were begun.
    pub sequence: u64,
    /// LSN of the first byte for which the segment was begun.
    pub first: Lsn,
    /// Where the archive ended before: less than `first` if the log between was given up.
    pub previous: Lsn,
    /// Bytes reserved for the segment.
    pub bytes: u64,
    /// Microseconds since 1970.
    pub created_us: u64,
}

impl SegmentHeader {
    pub fn encode(&self, out: &mut [u8]) {
        out[..UNIT].fill(0);
        out[4..6].copy_from_slice(&MAGIC.to_le_bytes());
        out[6] = TYPE_SEGMENT;
        out[7] = VERSION;
        out[8..24].copy_from_slice(&self.database.0);
        out[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        out[32..40].copy_from_slice(&self.first.0.to_le_bytes());
        out[40..48].copy_from_slice(&self.previous.0.to_le_bytes());
        out[48..56].copy_from_slice(&self.bytes.to_le_bytes());
        out[56..64].copy_from_slice(&self.created_us.to_le_bytes());
        let crc = crc32c(&out[4..HEADER]);
        out[..4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Returns `None` if the bytes are no intact header of this version.
    pub fn decode(bytes: &[u8]) -> Option<SegmentHeader> {
        let ours = u16_at(bytes, 4) == MAGIC && bytes[6] == TYPE_SEGMENT && bytes[7] == VERSION;
        if !ours || u32_at(bytes, 0) != crc32c(&bytes[4..HEADER]) {
            return None;
        }
        let header = SegmentHeader {
            database: DatabaseId(bytes[8..24].try_into().expect("sixteen bytes")),
            sequence: u64_at(bytes, 24),
            first: Lsn(u64_at(bytes, 32)),
            previous: Lsn(u64_at(bytes, 40)),
            bytes: u64_at(bytes, 48),
            created_us: u64_at(bytes, 56),
        };
        (header.first.0 < LSN_MAX && header.previous <= header.first).then_some(header)
    }

    /// The version of an intact header of another format version.
    pub fn other_version(bytes: &[u8]) -> Option<u8> {
        let ours = u16_at(bytes, 4) == MAGIC && bytes[6] == TYPE_SEGMENT && bytes[7] != VERSION;
        (ours && u32_at(bytes, 0) == crc32c(&bytes[4..HEADER])).then(|| bytes[7])
    }
}

/// What a chunk holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkKind {
    /// Bytes of the stream.
    Log,
    /// Nothing: the segment's last chunk.
    Seal,
    /// Images of pages that the log behind it names and does not hold (`images.rs`).
    Images,
}

/// The header of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkHeader {
    /// 32 bits that stand for the database.
    pub tag: u32,
    /// The segment's sequence number.
    pub sequence: u64,
    pub mark: EpochMark,
    /// Of images: LSN of the piece of log that they were archived with, which follows.
    pub first: Lsn,
    /// Bytes of stream, or of images and their list.
    pub len: usize,
    /// A record, or the log after the last one, begins this many bytes before the chunk's end: the
    /// log can be followed again from there.
    pub resume_back: u32,
    /// Microseconds since 1970 when it was written; never less than in the chunk before.
    pub time_us: u64,
    pub kind: ChunkKind,
}

impl ChunkHeader {
    /// First LSN after the chunk's bytes of stream.
    pub fn end(&self) -> Lsn {
        match self.kind {
            ChunkKind::Log => Lsn(self.first.0 + self.len as u64),
            ChunkKind::Seal | ChunkKind::Images => self.first,
        }
    }

    /// LSN from which the log can be followed.
    pub fn resume(&self) -> Lsn {
        Lsn(self.end().0.saturating_sub(u64::from(self.resume_back)))
    }

    /// Bytes on the device.
    pub fn padded(&self) -> usize {
        (CHUNK_HEADER + self.len).next_multiple_of(UNIT)
    }

    /// Writes the header before its payload, which is in `out` already, and zeros behind it.
    pub fn encode(&self, out: &mut [u8]) {
        assert!(self.len <= CHUNK_MAX && self.end().0 < LSN_MAX);
        assert_eq!(self.len == 0, self.kind == ChunkKind::Seal);
        out[4..6].copy_from_slice(&MAGIC.to_le_bytes());
        out[6] = match self.kind {
            ChunkKind::Log => TYPE_CHUNK,
            ChunkKind::Seal => TYPE_SEAL,
            ChunkKind::Images => TYPE_IMAGES,
        };
        out[7] = VERSION;
        out[8..12].copy_from_slice(&self.tag.to_le_bytes());
        out[12..16].copy_from_slice(&(self.len as u32).to_le_bytes());
        out[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        out[24..32].copy_from_slice(&self.first.0.to_le_bytes());
        out[32..36].copy_from_slice(&self.mark.epoch.0.to_le_bytes());
        out[36..40].copy_from_slice(&self.resume_back.to_le_bytes());
        out[40..48].copy_from_slice(&self.mark.start.0.to_le_bytes());
        out[48..56].copy_from_slice(&self.mark.previous_end.0.to_le_bytes());
        out[56..64].copy_from_slice(&self.time_us.to_le_bytes());
        out[CHUNK_HEADER + self.len..self.padded()].fill(0);
        let crc = crc32c(&out[4..CHUNK_HEADER + self.len]);
        out[..4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Decodes the header, without the checksum, which covers the payload too. Returns `None` if
    /// the bytes are no chunk of segment `sequence` of the database with this tag.
    pub fn decode(tag: u32, sequence: u64, bytes: &[u8]) -> Option<ChunkHeader> {
        let kind = match bytes[6] {
            TYPE_CHUNK => ChunkKind::Log,
            TYPE_SEAL => ChunkKind::Seal,
            TYPE_IMAGES => ChunkKind::Images,
            _ => return None,
        };
        let ours = u16_at(bytes, 4) == MAGIC
            && bytes[7] == VERSION
            && u32_at(bytes, 8) == tag
            && u64_at(bytes, 16) == sequence;
        let header = ChunkHeader {
            tag,
            sequence,
            mark: EpochMark {
                epoch: Epoch(u32_at(bytes, 32)),
                start: Lsn(u64_at(bytes, 40)),
                previous_end: Lsn(u64_at(bytes, 48)),
            },
            first: Lsn(u64_at(bytes, 24)),
            len: u32_at(bytes, 12) as usize,
            resume_back: u32_at(bytes, 36),
            time_us: u64_at(bytes, 56),
            kind,
        };
        let sound = header.len <= CHUNK_MAX
            && (header.len == 0) == (kind == ChunkKind::Seal)
            && header.first.0 < LSN_MAX
            && header.mark.start <= header.first
            && header.mark.previous_end <= header.mark.start;
        (ours && sound).then_some(header)
    }

    /// Whether the checksum of header and payload is correct; false if `bytes` do not hold all of
    /// the payload.
    pub fn verify(&self, bytes: &[u8]) -> bool {
        bytes.get(4..CHUNK_HEADER + self.len).is_some_and(|covered| crc32c(covered) == u32_at(bytes, 0))
    }
}

/// A piece of durable log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its epoch.
    pub mark: EpochMark,
    /// LSN of its first byte.
    pub first: Lsn,
    /// A record's first LSN, or the end of the last one, at or before the piece's end.
    pub resume: Lsn,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_headers_have_golden_bytes_and_notice_every_flipped_bit() {
        let header = SegmentHeader {
            database: DatabaseId([7; 16]),
            sequence: 3,
            first: Lsn(0x0102_0304),
            previous: Lsn(0x0102_0303),
            bytes: 1 << 20,
            created_us: 5,
        };
        let mut out = vec![0xEE; UNIT];
        header.encode(&mut out);
        assert_eq!(out[4..8], [0x46, 0x41, 1, 1]);
        assert_eq!(out[24..48], [3, 0, 0, 0, 0, 0, 0, 0, 4, 3, 2, 1, 0, 0, 0, 0, 3, 3, 2, 1, 0, 0, 0, 0]);
        assert_eq!(SegmentHeader::decode(&out), Some(header));
        for bit in 0..HEADER * 8 {
            out[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentHeader::decode(&out), None, "bit {bit}");
            out[bit / 8] ^= 1 << (bit % 8);
        }

        let mark = EpochMark { epoch: Epoch(2), start: Lsn(472), previous_end: Lsn(470) };
        let chunk = ChunkHeader {
            tag: 9,
            sequence: 3,
            mark,
            first: Lsn(500),
            len: 3,
            resume_back: 1,
            time_us: 77,
            kind: ChunkKind::Log,
        };
        let mut out = vec![0xEE; UNIT];
        out[CHUNK_HEADER..CHUNK_HEADER + 3].copy_from_slice(b"log");
        chunk.encode(&mut out);
        assert_eq!(out[4..16], [0x46, 0x41, 2, 1, 9, 0, 0, 0, 3, 0, 0, 0]);
        assert_eq!(ChunkHeader::decode(9, 3, &out), Some(chunk));
        let images = ChunkHeader { kind: ChunkKind::Images, ..chunk };
        assert_eq!((images.end(), chunk.end()), (Lsn(500), Lsn(503)), "images are no log");
        let mut of_images = out.clone();
        images.encode(&mut of_images);
        assert_eq!(of_images[4..8], [0x46, 0x41, 4, 1]);
        assert_eq!(ChunkHeader::decode(9, 3, &of_images), Some(images));
        assert!(chunk.verify(&out) && out[CHUNK_HEADER + 3..].iter().all(|&byte| byte == 0));
        for bit in 0..(CHUNK_HEADER + 3) * 8 {
            out[bit / 8] ^= 1 << (bit % 8);
            let found = ChunkHeader::decode(9, 3, &out).is_some_and(|chunk| chunk.verify(&out));
            assert!(!found, "bit {bit}");
            out[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
