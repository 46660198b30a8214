//! The manifest: what a backup says of itself. Its bytes: `docs/format/backup.md`.
//!
//! The file is created first, saying that the backup is not complete, and written again last, when
//! everything else is durable and verified. A directory without a whole manifest that says
//! *complete* is no backup.

use crate::engine::separate_directories::MANIFEST;
use crate::error::Error;
use firndb_base::codec::{Malformed, Reader, Writer};
use firndb_base::{DatabaseId, Lsn, PageId, crc32c};
use firndb_device::{AlignedBuf, Device, Durability, Fill};
use std::path::Path;

const MAGIC: &[u8; 8] = b"FIRNBKUP";
const VERSION: u32 = 1;
const BYTES: usize = 4096;
const HEADER: usize = 24;
/// State before the manifest is complete.
const INCOMPLETE: u32 = 0;
const COMPLETE: u32 = 1;

/// The pages' file.
pub(crate) const PAGES: &str = "pages.firn";
/// The directory of the backup's log.
pub(crate) const LOG: &str = "log";

/// What a complete backup says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub database: DatabaseId,
    pub page_size: usize,
    pub catalog_root: PageId,
    pub undo_root: PageId,
    /// LSN of a checkpoint record at or after `from`.
    pub checkpoint: Lsn,
    /// Redo starts here.
    pub from: Lsn,
    /// Shadows whose records lie before this LSN are among the pages, those of later ones are
    /// images in the log's segments.
    pub shadows_from: Lsn,
    /// No page holds a change at or after this LSN: the earliest that can be restored to.
    pub end: Lsn,
    /// Microseconds since 1970.
    pub begun_us: u64,
    pub ended_us: u64,
    pub pages: u64,
    pub batches: u64,
    /// Bytes of the database's log in all.
    pub log_bytes: u64,
    /// Devices of its log.
    pub log_devices: u64,
}

impl Manifest {
    fn encode(&self, state: u32) -> Vec<u8> {
        let mut body = Vec::new();
        body.put(&self.database.0);
        for number in [
            self.page_size as u64,
            self.catalog_root.0,
            self.undo_root.0,
            self.checkpoint.0,
            self.from.0,
            self.end.0,
            self.begun_us,
            self.ended_us,
            self.pages,
            self.batches,
            self.log_bytes,
            self.log_devices,
            self.shadows_from.0,
        ] {
            body.put_varint(number);
        }
        let mut bytes = Vec::with_capacity(HEADER + body.len());
        bytes.put(MAGIC);
        bytes.put_u32(0);
        bytes.put_u32(VERSION);
        bytes.put_u32(state);
        bytes.put_u32(body.len() as u32);
        assert_eq!(bytes.len(), HEADER);
        bytes.put(&body);
        let checksum = crc32c(&bytes[12..]);
        bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
        assert!(bytes.len() <= BYTES);
        bytes
    }

    /// The state and, if it is complete, the fields.
    fn decode(bytes: &[u8]) -> Result<(u32, u32, Option<Manifest>), Malformed> {
        let mut reader = Reader::new(bytes);
        if reader.array::<8>()? != *MAGIC {
            return Err(Malformed { what: "not the manifest of a backup" });
        }
        let checksum = reader.u32()?;
        let (version, state, len) = (reader.u32()?, reader.u32()?, reader.u32()? as usize);
        let body = reader.bytes(len)?;
        if crc32c(&bytes[12..HEADER + len]) != checksum {
            return Err(Malformed { what: "a manifest with a wrong checksum" });
        }
        if version != VERSION || state != COMPLETE {
            return Ok((version, state, None));
        }
        let mut reader = Reader::new(body);
        let database = DatabaseId(reader.array()?);
        let manifest = Manifest {
            database,
            page_size: reader.varint_max(1 << 16)?,
            catalog_root: PageId(reader.varint()?),
            undo_root: PageId(reader.varint()?),
            checkpoint: Lsn(reader.varint()?),
            from: Lsn(reader.varint()?),
            end: Lsn(reader.varint()?),
            begun_us: reader.varint()?,
            ended_us: reader.varint()?,
            pages: reader.varint()?,
            batches: reader.varint()?,
            log_bytes: reader.varint()?,
            log_devices: reader.varint()?,
            shadows_from: Lsn(reader.varint()?),
        };
        let sound = manifest.page_size.is_power_of_two()
            && crate::options::limits::PAGE_SIZES.contains(&manifest.page_size)
            && manifest.from <= manifest.checkpoint
            && manifest.checkpoint < manifest.end
            && manifest.from <= manifest.shadows_from;
        if sound {
            Ok((version, state, Some(manifest)))
        } else {
            Err(Malformed { what: "an impossible manifest" })
        }
    }

    fn write(&self, device: &dyn Device, state: u32) -> Result<(), Error> {
        let bytes = self.encode(state);
        let mut buf = AlignedBuf::zeroed(BYTES.max(device.info().logical_block));
        buf[..bytes.len()].copy_from_slice(&bytes);
        device.grow(buf.len() as u64, Fill::Written)?;
        Ok(device.write(0, &buf, Durability::Durable)?)
    }

    /// Writes that a backup was begun here.
    pub fn write_incomplete(&self, device: &dyn Device) -> Result<(), Error> {
        self.write(device, INCOMPLETE)
    }

    /// Writes that the backup is whole.
    pub fn write_complete(&self, device: &dyn Device) -> Result<(), Error> {
        self.write(device, COMPLETE)
    }

    /// Reads the manifest of the backup in `directory`.
    ///
    /// Errors: `NotFound` if there is no backup; `Unusable` if it is not complete or of a newer
    /// format.
    pub fn read(directory: &Path) -> Result<Manifest, Error> {
        let path = directory.join(MANIFEST);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::not_found(format!(
                    "{}: there is no backup here (no {MANIFEST})",
                    directory.display()
                )));
            }
            Err(error) => return Err(Error::of_path(&path, error)),
        };
        match Manifest::decode(&bytes) {
            Ok((_, _, Some(manifest))) => Ok(manifest),
            Ok((VERSION, _, None)) => Err(Error::unusable(format!(
                "{}: this backup was interrupted and is not complete; remove it and take another",
                directory.display()
            ))),
            Ok((version, ..)) => Err(Error::unusable(format!(
                "{} has format version {version}, which this program does not know: use a newer program",
                path.display()
            ))),
            Err(error) => Err(Error::unusable(format!(
                "{}: {}: this backup was interrupted as it was ended, or is damaged; remove it and take another",
                path.display(),
                error.what
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Manifest {
        Manifest {
            database: DatabaseId(*b"0123456789abcdef"),
            page_size: 4096,
            catalog_root: PageId(1),
            undo_root: PageId(2),
            checkpoint: Lsn(300),
            from: Lsn(200),
            end: Lsn(400),
            begun_us: 5,
            ended_us: 6,
            pages: 7,
            batches: 1,
            log_bytes: 1 << 20,
            log_devices: 2,
            shadows_from: Lsn(300),
        }
    }

    #[test]
    fn the_manifest_has_golden_bytes_and_notices_every_flipped_bit() {
        let bytes = sample().encode(COMPLETE);
        assert_eq!(&bytes[..8], MAGIC);
        assert_eq!(bytes[12..HEADER], [1, 0, 0, 0, 1, 0, 0, 0, 36, 0, 0, 0]);
        assert_eq!(
            &bytes[HEADER..],
            b"0123456789abcdef\x80\x20\x01\x02\xac\x02\xc8\x01\x90\x03\x05\x06\x07\x01\x80\x80\x40\x02\xac\x02"
        );
        assert_eq!(Manifest::decode(&bytes), Ok((VERSION, COMPLETE, Some(sample()))));
        assert_eq!(Manifest::decode(&sample().encode(INCOMPLETE)), Ok((VERSION, INCOMPLETE, None)));
        for bit in 0..bytes.len() * 8 {
            let mut broken = bytes.clone();
            broken[bit / 8] ^= 1 << (bit % 8);
            assert!(Manifest::decode(&broken).is_err(), "bit {bit}");
        }
    }
}
