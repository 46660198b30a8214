//! The bytes of a superblock: a header with magic, checksum, version and identity, then the body.

use crate::engine::superblock::{Member, Superblock};
use crate::engine::superblock_fields::{Extensions, text};
use crate::error::Error;
use firndb_base::codec::{Malformed, Reader, Writer};
use firndb_base::{DatabaseId, Epoch, Lsn, PageId, crc32c};
use firndb_log::MemberId;

/// First bytes of every copy.
pub(super) const MAGIC: &[u8; 8] = b"FIRNSUPR";
/// The format this code writes, and the newest it reads.
pub(super) const VERSION: u32 = 1;
/// A higher sequence is damage: the next write must be able to pass it.
const SEQUENCE_MAX: u64 = 1 << 62;
/// Bytes of one copy; the second follows the first.
pub(crate) const COPY_BYTES: usize = 16 << 10;
const HEADER_BYTES: usize = 48;
/// Bytes of a copy that are reserved for the table of epochs: a path that leaves less is refused
/// when it is named, so that no opening finds the copy full of paths.
const EPOCHS_RESERVE: usize = 8 << 10;

impl Superblock {
    pub(super) fn encode(&self) -> Result<Vec<u8>, Error> {
        let mut body = Vec::new();
        body.put_varint(self.created_us);
        body.put_varint(self.catalog_root.0);
        body.put_varint(self.undo_root.0);
        body.put_varint(self.checkpoint.0);
        body.put_varint(self.redo_start.0);
        body.put_u8(u8::from(self.clean));
        let before = body.len();
        body.put_varint(self.epochs.len() as u64);
        for (epoch, start) in &self.epochs {
            body.put_varint(u64::from(epoch.0));
            body.put_varint(start.0);
        }
        let epochs_bytes = body.len() - before;
        body.put_varint(self.members.len() as u64);
        for member in &self.members {
            body.put_varint(u64::from(member.id.0));
            body.put_varint(member.bytes);
            body.put_blob(member.path.as_bytes());
        }
        body.put_blob(self.store_path.as_bytes());
        body.put_varint(self.store_version.0);
        self.extensions.encode(&mut body);
        let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
        bytes.put(MAGIC);
        bytes.put_u32(0);
        bytes.put_u32(VERSION);
        bytes.put(&self.database.0);
        bytes.put_u64(self.sequence);
        bytes.put_u32(self.page_size as u32);
        bytes.put_u32(body.len() as u32);
        assert_eq!(bytes.len(), HEADER_BYTES);
        bytes.put(&body);
        if bytes.len() > COPY_BYTES || bytes.len() - epochs_bytes > COPY_BYTES - EPOCHS_RESERVE {
            return Err(too_long(bytes.len()));
        }
        let checksum = crc32c(&bytes[12..]);
        bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
        Ok(bytes)
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Superblock, Malformed> {
        let mut reader = Reader::new(bytes);
        if reader.array::<8>()? != *MAGIC {
            return Err(Malformed { what: "not a superblock" });
        }
        let checksum = reader.u32()?;
        let version = reader.u32()?;
        let database = DatabaseId(reader.array()?);
        let sequence = reader.u64()?;
        if sequence > SEQUENCE_MAX {
            return Err(Malformed { what: "a superblock with a sequence that no write comes to" });
        }
        let page_size = reader.u32()? as usize;
        let body_len = reader.u32()? as usize;
        let body = reader.bytes(body_len)?;
        if crc32c(&bytes[12..HEADER_BYTES + body_len]) != checksum {
            return Err(Malformed { what: "a superblock with a wrong checksum" });
        }
        if version != VERSION {
            return Err(Malformed { what: "a superblock of another format version" });
        }
        let mut reader = Reader::new(body);
        let created_us = reader.varint()?;
        let catalog_root = PageId(reader.varint()?);
        let undo_root = PageId(reader.varint()?);
        let checkpoint = Lsn(reader.varint()?);
        let redo_start = Lsn(reader.varint()?);
        let clean = reader.u8()? != 0;
        let mut epochs = Vec::new();
        for _ in 0..reader.varint_max(COPY_BYTES)? {
            let epoch = Epoch(reader.varint_max(u32::MAX as usize)? as u32);
            epochs.push((epoch, Lsn(reader.varint()?)));
        }
        let mut members = Vec::new();
        for _ in 0..reader.varint_max(COPY_BYTES)? {
            let id = MemberId(reader.varint_max(u32::MAX as usize)? as u32);
            let bytes = reader.varint()?;
            members.push(Member { id, bytes, path: text(reader.blob()?)? });
        }
        let store_path = text(reader.blob()?)?;
        let store_version = Lsn(reader.varint()?);
        let extensions = Extensions::decode(&mut reader)?;
        let superblock = Superblock {
            database,
            sequence,
            page_size,
            created_us,
            catalog_root,
            undo_root,
            checkpoint,
            redo_start,
            clean,
            epochs,
            members,
            store_path,
            store_version,
            extensions,
            in_doubt: false,
        };
        superblock.check()?;
        Ok(superblock)
    }

    /// The format version of a whole copy, if it is another than this program's.
    pub(super) fn other_version(bytes: &[u8]) -> Option<u32> {
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let covered = bytes.get(12..HEADER_BYTES.checked_add(u32_at(HEADER_BYTES - 4) as usize)?)?;
        let whole = bytes[..8] == *MAGIC && crc32c(covered) == u32_at(8);
        (whole && u32_at(12) != VERSION).then(|| u32_at(12))
    }
}

pub(crate) fn too_long(bytes: usize) -> Error {
    Error::bad_argument(format!(
        "the superblock would need {bytes} bytes; use shorter paths or fewer log devices"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::superblock::EPOCHS_WRITING_MAX;
    use crate::engine::superblock::tests::sample;
    use crate::error::ErrorKind;

    /// The next write could not pass the sequence: it ended the process, or began again at 0 and
    /// the copy before counted. Found by the fuzzer `superblock`.
    #[test]
    fn a_sequence_that_no_write_comes_to_is_damage() {
        let with = |sequence| Superblock { sequence, ..sample() }.encode().expect("short");
        assert!(Superblock::decode(&with(u64::MAX)).is_err());
        assert!(Superblock::decode(&with(SEQUENCE_MAX)).is_ok());
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let mut superblock = sample();
        superblock.sequence = 9;
        let bytes = superblock.encode().expect("fits");
        assert_eq!(Superblock::decode(&bytes), Ok(superblock));
        for bit in 0..bytes.len() * 8 {
            let mut broken = bytes.clone();
            broken[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(&broken).is_err(), "bit {bit}");
        }
    }

    /// Paths leave the table of epochs its capacity: else a database could be created that could be
    /// opened once.
    #[test]
    fn paths_leave_place_for_epochs() {
        let mut superblock = sample();
        superblock.store_path = "s".repeat(COPY_BYTES - EPOCHS_RESERVE);
        assert_eq!(superblock.encode().expect_err("too long").kind(), ErrorKind::BadArgument);
        superblock.store_path.truncate(COPY_BYTES - EPOCHS_RESERVE - 200);
        // The largest starts there are.
        for epoch in 3..1 + EPOCHS_WRITING_MAX as u32 {
            superblock.epochs.push((Epoch(epoch + (1 << 28)), Lsn((1 << 62) + u64::from(epoch))));
        }
        superblock.encode().expect("their table has its reserve, whatever the paths are");
    }

    #[test]
    fn golden_bytes() {
        let bytes = sample().encode().expect("fits");
        assert_eq!(&bytes[..8], b"FIRNSUPR");
        assert_eq!(&bytes[12..48], b"\x01\0\0\x000123456789abcdef\0\0\0\0\0\0\0\0\0\x10\0\0\x22\0\0\0");
        assert_eq!(
            &bytes[48..],
            b"\x01\x01\x02\x80\x40\x80\x20\0\x02\x01\x80\x20\x02\x88\x27\x01\x01\x80\x80\x40\x05log.0\x05store\xd8\x36"
        );
    }
}
