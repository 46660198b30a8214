//! The mark of a database that is being created or restored, where its superblock will be. See
//! `docs/format/superblock.md`.
//!
//! Invariants:
//! * the mark is there before the first file is created, and until the first superblock is whole in
//!   the second copy;
//! * a crash leaves a mark whose ids can be read: they are in its first sector, which is written
//!   alone, before the rest. If the names behind it are torn, no file was created that they name.

use crate::engine::claim;
use crate::engine::superblock::copies::{SECTOR_BYTES, SUPERBLOCK_BYTES};
use crate::engine::superblock::encoding::{COPY_BYTES, too_long};
use crate::engine::superblock_fields::text;
use crate::error::Error;
use firndb_base::codec::{Malformed, Reader, Writer};
use firndb_base::sync::Arc;
use firndb_base::{DatabaseId, crc32c};
use firndb_device::{AlignedBuf, Device, Durability, Fill};

/// First bytes while a database is being created: nothing was stored yet.
const CREATING: &[u8; 8] = b"FIRNMAKE";
/// First bytes while a database is being restored, which takes a backup: an opening does not create
/// an empty one instead.
const RESTORING: &[u8; 8] = b"FIRNREST";
/// The new id, and that of an interrupted creation whose devices are used again.
const IDS_MAX: usize = 2;
/// Bytes before the names: magic, checksum, number of ids, ids, length and checksum of the names.
const HEADER_BYTES: usize = 8 + 4 + 4 + 16 * IDS_MAX + 4 + 4;
const _: () = assert!(HEADER_BYTES <= SECTOR_BYTES, "the header is written whole or not at all");

/// How a database comes into being.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Making {
    /// Empty.
    Creating,
    /// From a backup.
    Restoring,
}

impl Making {
    fn magic(self) -> &'static [u8; 8] {
        match self {
            Making::Creating => CREATING,
            Making::Restoring => RESTORING,
        }
    }

    /// What is being made, if `bytes` begin with a mark.
    pub fn of(bytes: &[u8]) -> Option<Making> {
        [Making::Creating, Making::Restoring].into_iter().find(|making| bytes.starts_with(making.magic()))
    }
}

/// What the mark of an interrupted creation says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interrupted {
    /// The id that the database was to have, which its files bear (`claim.rs`); then, if they were
    /// devices that an earlier creation had claimed, the id of that creation.
    pub ids: Vec<DatabaseId>,
    /// It may have created files of these names. Other programs may have such files, too: the id
    /// tells them apart.
    pub files: Vec<String>,
}

impl Interrupted {
    /// Decodes a mark: without ids if it is damaged, so that no file is taken for the creation's;
    /// without names if they are torn.
    pub fn decode(bytes: &[u8]) -> Interrupted {
        Interrupted::decode_header(bytes).unwrap_or_default()
    }

    fn decode_header(bytes: &[u8]) -> Result<Interrupted, Malformed> {
        let header = bytes.get(..HEADER_BYTES).ok_or(Malformed { what: "a mark cut short" })?;
        let mut reader = Reader::new(&header[8..]);
        if reader.u32()? != crc32c(&header[12..]) {
            return Err(Malformed { what: "a wrong checksum" });
        }
        let count = reader.u32()? as usize;
        let ids: [DatabaseId; IDS_MAX] = [DatabaseId(reader.array()?), DatabaseId(reader.array()?)];
        let ids = ids.get(..count).ok_or(Malformed { what: "more ids than there may be" })?.to_vec();
        let (len, checksum) = (reader.u32()? as usize, reader.u32()?);
        let names = bytes[HEADER_BYTES..].get(..len).filter(|names| crc32c(names) == checksum);
        let files = names.map_or(Ok(Vec::new()), Interrupted::decode_files)?;
        Ok(Interrupted { ids, files })
    }

    fn decode_files(bytes: &[u8]) -> Result<Vec<String>, Malformed> {
        let mut reader = Reader::new(bytes);
        (0..reader.varint_max(COPY_BYTES)?).map(|_| text(reader.blob()?)).collect()
    }

    fn encode(&self, making: Making) -> Result<Vec<u8>, Error> {
        assert!(self.ids.len() <= IDS_MAX, "two ids at most");
        let mut names = Vec::new();
        names.put_varint(self.files.len() as u64);
        self.files.iter().for_each(|file| names.put_blob(file.as_bytes()));
        let mut bytes = Vec::with_capacity(HEADER_BYTES + names.len());
        bytes.put(making.magic());
        bytes.put_u32(0);
        bytes.put_u32(self.ids.len() as u32);
        self.ids.iter().for_each(|id| bytes.put(&id.0));
        bytes.resize(16 + 16 * IDS_MAX, 0);
        bytes.put_u32(names.len() as u32);
        bytes.put_u32(crc32c(&names));
        assert_eq!(bytes.len(), HEADER_BYTES);
        let checksum = crc32c(&bytes[12..]);
        bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
        bytes.put(&names);
        match bytes.len() > COPY_BYTES {
            true => Err(too_long(bytes.len())),
            false => Ok(bytes),
        }
    }
}

/// Reads the mark of an interrupted creation; nothing if the device is empty.
///
/// Errors: `BadArgument` if it holds anything else.
pub(crate) fn interrupted_on(device: &Arc<dyn Device>) -> Result<Interrupted, Error> {
    let mut buf = AlignedBuf::zeroed(COPY_BYTES);
    if device.len() >= COPY_BYTES as u64 {
        device.read(0, &mut buf)?;
    }
    if Making::of(&buf).is_some() {
        return Ok(Interrupted::decode(&buf));
    }
    claim::refuse_contents(&**device, &[])?;
    Ok(Interrupted::default())
}

/// Writes that a database is being made here: `made` has its id, and the names of the files to be
/// created.
///
/// Errors: `BadArgument` if the device holds anything but such a mark.
pub(crate) fn mark(device: &Arc<dyn Device>, making: Making, made: &Interrupted) -> Result<(), Error> {
    interrupted_on(device)?;
    let bytes = made.encode(making)?;
    device.grow(SUPERBLOCK_BYTES, Fill::Written)?;
    let mut buf = AlignedBuf::zeroed(COPY_BYTES);
    let first = bytes.len().min(SECTOR_BYTES);
    buf[..first].copy_from_slice(&bytes[..first]);
    // A crash may leave some sectors of a write without the others: in this write only the first is
    // not zeros.
    device.write(0, &buf, Durability::Durable)?;
    if bytes.len() > SECTOR_BYTES {
        buf[..bytes.len()].copy_from_slice(&bytes);
        device.write(0, &buf, Durability::Durable)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::superblock::Superblock;
    use crate::engine::superblock::copies::Found;
    use firndb_base::rng::Rng;
    use firndb_device::{CrashPlan, MemoryDevice, Survival};

    const ID: DatabaseId = DatabaseId([7; 16]);
    const EARLIER: DatabaseId = DatabaseId([6; 16]);

    /// With names that take up several sectors.
    fn long() -> Interrupted {
        Interrupted { ids: vec![ID], files: (0..100).map(|n| format!("/a/long/path/to/log.{n}")).collect() }
    }

    /// Random samples of what a crash may leave of the writes of `work` to a device that holds
    /// `before`.
    fn crashes(before: &MemoryDevice, work: impl Fn(&Arc<dyn Device>)) -> Vec<Arc<dyn Device>> {
        let plan = CrashPlan::new();
        let device: Arc<dyn Device> = plan.device_holding(before);
        work(&device);
        let mut rng = Rng::new(1);
        let mut images: Vec<Arc<dyn Device>> = Vec::new();
        for event in 0..=plan.event_count() {
            for survival in
                [Survival::Nothing, Survival::Everything].into_iter().chain([Survival::Sectors; 40])
            {
                images.extend(
                    plan.image_at(event, survival, &mut rng)
                        .into_iter()
                        .map(|image| image as Arc<dyn Device>),
                );
            }
        }
        images
    }

    #[test]
    fn golden_bytes() {
        let bytes = Interrupted { ids: vec![ID], files: vec!["log.0".into()] }
            .encode(Making::Creating)
            .expect("short");
        assert_eq!(bytes[..8], *b"FIRNMAKE");
        assert_eq!(bytes[8..12], crc32c(&bytes[12..56]).to_le_bytes());
        assert_eq!(bytes[12..48], [&[1, 0, 0, 0][..], &[7; 16], &[0; 16]].concat());
        assert_eq!(bytes[48..52], [7, 0, 0, 0]);
        assert_eq!(bytes[52..56], crc32c(b"\x01\x05log.0").to_le_bytes());
        assert_eq!(bytes[56..], *b"\x01\x05log.0");
    }

    /// A mark was once written with one write: of one longer than a sector a crash could leave the
    /// end without the beginning, which every opening called damage, or the beginning without the
    /// end, of which nothing counted, the ids of claimed devices included.
    #[test]
    fn whatever_a_crash_leaves_of_a_long_mark_says_what_was_being_made() {
        let mut torn = 0;
        for image in crashes(&MemoryDevice::new("superblock"), |device| {
            mark(device, Making::Creating, &long()).expect("writable");
        }) {
            match Superblock::read(&image).expect("no damage") {
                Found::Nothing => {}
                Found::Creating(found) => {
                    assert_eq!(found.ids, [ID]);
                    assert!(found.files.is_empty() || found == long());
                    torn += u32::from(found.files.is_empty());
                }
                other => panic!("{other:?}"),
            }
            mark(&image, Making::Creating, &long()).expect("begun anew");
        }
        assert!(torn > 10, "{torn} were torn");
        // Over an earlier one, whose id the devices bear until they are claimed anew.
        let before = MemoryDevice::new("superblock");
        let before: Arc<MemoryDevice> = Arc::new(before);
        let as_device: Arc<dyn Device> = before.clone();
        let earlier = Interrupted { ids: vec![EARLIER], files: vec!["x".repeat(3000)] };
        mark(&as_device, Making::Creating, &earlier).expect("writable");
        let anew = Interrupted { ids: vec![ID, EARLIER], ..long() };
        for image in crashes(&before, |device| mark(device, Making::Creating, &anew).expect("writable")) {
            let Found::Creating(found) = Superblock::read(&image).expect("no damage") else {
                panic!("it was marked")
            };
            assert!(found.ids.contains(&EARLIER), "{found:?}");
            assert!(found.files.is_empty() || found == anew || found == earlier, "{found:?}");
        }
    }
}
