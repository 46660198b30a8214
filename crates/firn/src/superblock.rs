//! The superblock: where everything else is found. See `docs/format/superblock.md`.
//!
//! Invariants:
//! * two copies, each written whole and made durable before the other is touched: a torn or lost write
//!   leaves the other copy, old or new;
//! * the sequence number grows with every write; the valid copy with the higher one counts;
//! * epochs ascend, and so do their starts; the redo start is never after the checkpoint record.

use crate::extensions::Extensions;
use crate::{Error, ErrorKind};
use firn_base::codec::{Malformed, Reader, Writer};
use firn_base::sync::Arc;
use firn_base::{DatabaseId, Epoch, Lsn, PageId, crc32c};
use firn_device::{AlignedBuf, Device, Durability, Fill};
use firn_log::{LogIdentity, MemberId};

/// First bytes of every copy.
const MAGIC: &[u8; 8] = b"FIRNSUPR";
/// The format this code writes, and the newest it reads.
const VERSION: u32 = 1;
/// First bytes while a database is being created: nothing was stored yet. A CRC32C of what follows it (u32),
/// the length of the rest (u32), and the names of the files that the creation makes, which may be removed.
const CREATING: &[u8; 8] = b"FIRNMAKE";
/// The same while a database is being restored, which takes a backup: opening it makes no empty one instead.
const RESTORING: &[u8; 8] = b"FIRNREST";
/// Bytes of one copy; the second follows the first.
const COPY_BYTES: usize = 16 << 10;
const HEADER_BYTES: usize = 48;
/// Where the second copy is.
pub(crate) const SECOND_COPY: u64 = COPY_BYTES as u64;
/// Bytes of the device.
pub(crate) const SUPERBLOCK_BYTES: u64 = 2 * COPY_BYTES as u64;

/// A device of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub id: MemberId,
    /// Relative to the database's directory, or absolute.
    pub path: String,
    pub bytes: u64,
}

/// What the superblock says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub database: DatabaseId,
    pub sequence: u64,
    pub page_size: usize,
    /// Microseconds since 1970.
    pub created_us: u64,
    pub catalog_root: PageId,
    pub undo_root: PageId,
    pub checkpoint: Lsn,
    pub redo_start: Lsn,
    /// Closed cleanly: nothing was open, everything was written.
    pub clean: bool,
    pub epochs: Vec<(Epoch, Lsn)>,
    pub members: Vec<Member>,
    pub store_path: String,
    /// The store's metadata contained the records up to this LSN, durably, before the last checkpoint: a
    /// store that knows less is an old copy.
    pub store_version: Lsn,
    /// What a database may do without.
    pub extensions: Extensions,
}

/// How a database comes into being.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Making {
    /// Empty.
    Creating,
    /// From a backup.
    Restoring,
}

impl Making {
    fn mark(self) -> &'static [u8; 8] {
        match self {
            Making::Creating => CREATING,
            Making::Restoring => RESTORING,
        }
    }

    fn of(bytes: &[u8]) -> Option<Making> {
        [Making::Creating, Making::Restoring].into_iter().find(|making| bytes.starts_with(making.mark()))
    }
}

/// What a superblock's device holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "there is one, at an opening")]
pub(crate) enum Found {
    /// A database.
    Database(Superblock),
    /// No byte was ever written: a creation was interrupted before its mark, or a database lost its superblock.
    Nothing,
    /// The creation of a database was interrupted before anything could be stored in it. It may have made
    /// files of these names.
    Creating(Vec<String>),
    /// As that, of restoring one.
    Restoring(Vec<String>),
}

impl Superblock {
    /// What the log must know.
    pub fn log_identity(&self) -> LogIdentity {
        LogIdentity {
            database: self.database,
            members: self.members.iter().map(|member| member.id).collect(),
            epochs: self.epochs.clone(),
            redundancy: self.redundancy(),
        }
    }

    /// Bytes of the log's devices together.
    pub fn log_bytes(&self) -> u64 {
        self.members.iter().map(|member| member.bytes).sum()
    }

    /// The newest epoch.
    pub fn epoch(&self) -> Epoch {
        self.epochs.last().expect("a superblock has an epoch").0
    }

    /// Opens the next epoch, in memory.
    pub fn open_epoch(&mut self, start: Lsn) -> Epoch {
        let epoch = Epoch(self.epoch().0.checked_add(1).expect("fewer than 2^32 recoveries"));
        self.epochs.push((epoch, start));
        epoch
    }

    /// The log is kept from here on.
    pub fn log_start(&self) -> Lsn {
        self.extensions.log_start.unwrap_or(self.redo_start)
    }

    /// Forgets epochs of which no log is left: those whose successor starts at or before the log that is kept.
    pub fn prune_epochs(&mut self) {
        let log_start = self.log_start();
        let kept = self.epochs.iter().rposition(|(_, start)| *start <= log_start).unwrap_or(0);
        self.epochs.drain(..kept);
        if let Some(array) = &mut self.extensions.log_array {
            array.redundancy.prune(log_start);
        }
    }

    fn encode(&self) -> Result<Vec<u8>, Error> {
        let mut body = Vec::new();
        body.put_varint(self.created_us);
        body.put_varint(self.catalog_root.0);
        body.put_varint(self.undo_root.0);
        body.put_varint(self.checkpoint.0);
        body.put_varint(self.redo_start.0);
        body.put_u8(u8::from(self.clean));
        body.put_varint(self.epochs.len() as u64);
        for (epoch, start) in &self.epochs {
            body.put_varint(u64::from(epoch.0));
            body.put_varint(start.0);
        }
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
        if bytes.len() > COPY_BYTES {
            return Err(too_long(bytes.len()));
        }
        let checksum = crc32c(&bytes[12..]);
        bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
        Ok(bytes)
    }

    fn decode(bytes: &[u8]) -> Result<Superblock, Malformed> {
        let mut reader = Reader::new(bytes);
        if reader.array::<8>()? != *MAGIC {
            return Err(Malformed { what: "not a superblock" });
        }
        let checksum = reader.u32()?;
        let version = reader.u32()?;
        let database = DatabaseId(reader.array()?);
        let sequence = reader.u64()?;
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
        };
        superblock.check()?;
        Ok(superblock)
    }

    /// The invariants at the head of this file, and what the rest of the engine takes for granted.
    fn check(&self) -> Result<(), Malformed> {
        let fail = |what| Err(Malformed { what });
        if !self.page_size.is_power_of_two() || !crate::options::PAGE_SIZES.contains(&self.page_size) {
            return fail("a superblock with an impossible page size");
        }
        if self.epochs.is_empty() || self.members.is_empty() {
            return fail("a superblock without epochs or log devices");
        }
        let next_member = self.extensions.log_array.as_ref().map(|array| array.next_member);
        if self
            .members
            .iter()
            .any(|member| member.id.0 == u32::MAX || next_member.is_some_and(|n| member.id.0 >= n))
        {
            return fail("a superblock with a log device of an id that was never given");
        }
        if !self.epochs.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1) {
            return fail("a superblock whose epochs do not ascend");
        }
        if self.redo_start > self.checkpoint {
            return fail("a superblock whose redo start lies after its checkpoint");
        }
        if self.extensions.archive_needed.is_some() && self.extensions.archive.is_none() {
            return fail("a superblock that needs an archive and names none");
        }
        if self.log_start() > self.redo_start {
            return fail("a superblock whose log starts after its redo start");
        }
        if let Some(from) = self.extensions.cache_from
            && (from < self.log_start() || from > self.redo_start || self.extensions.cache.is_none())
        {
            return fail("a superblock whose flash cache is to be rebuilt from log that is not kept");
        }
        Ok(())
    }

    /// Notes that a database is being made here, and which files that makes. Refuses a device that holds anything else.
    pub fn mark_making(device: &Arc<dyn Device>, making: Making, files: &[String]) -> Result<(), Error> {
        device.grow(SUPERBLOCK_BYTES, Fill::Written)?;
        let mut buf = AlignedBuf::zeroed(COPY_BYTES);
        device.read(0, &mut buf)?;
        if Making::of(&buf).is_none() && buf.iter().any(|&byte| byte != 0) {
            return Err(Error::new(
                ErrorKind::BadArgument,
                format!("{} is not empty; a database is created on empty devices only", device.info().name),
            ));
        }
        let mut mark = Vec::new();
        mark.put_varint(files.len() as u64);
        files.iter().for_each(|file| mark.put_blob(file.as_bytes()));
        let mut rest = Vec::new();
        rest.put_u32(mark.len() as u32);
        rest.put(&mark);
        if 12 + rest.len() > COPY_BYTES {
            return Err(too_long(12 + rest.len()));
        }
        buf.fill(0);
        buf[..8].copy_from_slice(making.mark());
        buf[8..12].copy_from_slice(&crc32c(&rest).to_le_bytes());
        buf[12..12 + rest.len()].copy_from_slice(&rest);
        Ok(device.write(0, &buf, Durability::Durable)?)
    }

    /// The names in a mark of an interrupted creation. None if the mark itself is torn: it is written before
    /// the first file is made.
    fn decode_creating(bytes: &[u8]) -> Result<Vec<String>, Malformed> {
        let mut reader = Reader::new(bytes.get(8..).unwrap_or_default());
        let checksum = reader.u32()?;
        let rest = reader.rest();
        let len = reader.u32()? as usize;
        let mut mark = Reader::new(reader.bytes(len)?);
        if crc32c(&rest[..4 + len]) != checksum {
            return Err(Malformed { what: "a wrong checksum" });
        }
        (0..mark.varint_max(COPY_BYTES)?).map(|_| text(mark.blob()?)).collect()
    }

    /// The format version of a whole copy, if it is another than this program's.
    fn other_version(bytes: &[u8]) -> Option<u32> {
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let covered = bytes.get(12..HEADER_BYTES.checked_add(u32_at(HEADER_BYTES - 4) as usize)?)?;
        let whole = bytes[..8] == *MAGIC && crc32c(covered) == u32_at(8);
        (whole && u32_at(12) != VERSION).then(|| u32_at(12))
    }

    /// Reads the newer valid copy.
    pub fn read(device: &Arc<dyn Device>) -> Result<Found, Error> {
        let name = &device.info().name;
        let bytes = device.len().min(SUPERBLOCK_BYTES);
        let mut buf = AlignedBuf::zeroed(SUPERBLOCK_BYTES as usize);
        device.read(0, &mut buf[..bytes as usize])?;
        if buf.iter().all(|&byte| byte == 0) {
            return Ok(Found::Nothing);
        }
        if bytes < SUPERBLOCK_BYTES {
            return Err(Error::damaged(format!(
                "{name} is cut short: it has {bytes} bytes instead of {SUPERBLOCK_BYTES}; restore it from a copy"
            )));
        }
        if let Some(making) = Making::of(&buf)
            && buf[COPY_BYTES..].iter().all(|&byte| byte == 0)
        {
            let files = Superblock::decode_creating(&buf[..COPY_BYTES]).unwrap_or_default();
            return Ok(match making {
                Making::Creating => Found::Creating(files),
                Making::Restoring => Found::Restoring(files),
            });
        }
        if let Some(version) = buf.chunks(COPY_BYTES).find_map(Superblock::other_version) {
            return Err(Error::new(
                ErrorKind::Unusable,
                format!(
                    "{name} has format version {version}, and this program knows version {VERSION} only: use a \
                     newer program"
                ),
            ));
        }
        let copies = [Superblock::decode(&buf[..COPY_BYTES]), Superblock::decode(&buf[COPY_BYTES..])];
        match copies {
            [Ok(a), Ok(b)] if a.database != b.database => Err(Error::damaged(format!(
                "{name} holds copies of two databases, {} and {}",
                a.database, b.database
            ))),
            [Ok(a), Ok(b)] => Ok(Found::Database(if a.sequence >= b.sequence { a } else { b })),
            [Ok(one), Err(_)] | [Err(_), Ok(one)] => Ok(Found::Database(one)),
            [Err(a), Err(b)] => Err(Error::damaged(format!(
                "{name}: neither copy can be read ({}; {}); it is not a Firn database, or is damaged: restore it from a copy",
                a.what, b.what
            ))),
        }
    }

    /// The copy that is written first: one that a crash or a failed write tore or left behind, so that the one
    /// that counts is touched only once this is whole.
    fn copy_to_begin_with(device: &Arc<dyn Device>) -> Result<u64, Error> {
        let mut buf = AlignedBuf::zeroed(SUPERBLOCK_BYTES as usize);
        device.read(0, &mut buf)?;
        let copies = [Superblock::decode(&buf[..COPY_BYTES]), Superblock::decode(&buf[COPY_BYTES..])];
        Ok(match copies {
            [Ok(a), Ok(b)] => u64::from(b.sequence < a.sequence),
            [Ok(_), Err(_)] => 1,
            [Err(_), _] => 0,
        })
    }

    /// Writes both copies, one after the other, and advances the sequence.
    pub fn write(&mut self, device: &Arc<dyn Device>) -> Result<(), Error> {
        self.sequence += 1;
        self.check().map_err(|error| Error::damaged(error.what.to_owned()))?;
        let bytes = self.encode()?;
        let mut buf = AlignedBuf::zeroed(COPY_BYTES);
        buf[..bytes.len()].copy_from_slice(&bytes);
        let first = Superblock::copy_to_begin_with(device)?;
        for copy in [first, 1 - first] {
            device.write(copy * COPY_BYTES as u64, &buf, Durability::Durable)?;
        }
        Ok(())
    }
}

fn too_long(bytes: usize) -> Error {
    Error::new(
        ErrorKind::BadArgument,
        format!("the superblock would need {bytes} bytes; use shorter paths or fewer log devices"),
    )
}

fn text(bytes: &[u8]) -> Result<String, Malformed> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Malformed { what: "a path that is not UTF-8" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_device::{Calls, DeviceErrorKind, Fault, FaultPlan, FaultRule, Faulty, MemoryDevice, When};

    fn sample() -> Superblock {
        Superblock {
            database: DatabaseId(*b"0123456789abcdef"),
            sequence: 0,
            page_size: 4096,
            created_us: 1,
            catalog_root: PageId(1),
            undo_root: PageId(2),
            checkpoint: Lsn(8192),
            redo_start: Lsn(4096),
            clean: false,
            epochs: vec![(Epoch(1), Lsn(4096)), (Epoch(2), Lsn(5000))],
            members: vec![Member { id: MemberId(1), path: "log.0".into(), bytes: 1 << 20 }],
            store_path: "store".into(),
            store_version: Lsn(7000),
            extensions: Extensions::default(),
        }
    }

    fn device() -> Arc<dyn Device> {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new("superblock"));
        let files = ["log.0".into(), "store".into()];
        assert_eq!(Superblock::read(&device), Ok(Found::Nothing));
        device.grow(4096, Fill::Written).expect("memory grows");
        assert_eq!(Superblock::read(&device), Ok(Found::Nothing));
        Superblock::mark_making(&device, Making::Restoring, &files).expect("memory grows");
        assert_eq!(Superblock::read(&device), Ok(Found::Restoring(files.to_vec())));
        Superblock::mark_making(&device, Making::Creating, &files).expect("memory grows");
        device
    }

    #[test]
    fn either_copy_is_enough() {
        let device = device();
        let creating = Found::Creating(vec!["log.0".into(), "store".into()]);
        assert_eq!(Superblock::read(&device).expect("readable"), creating);
        let mut superblock = sample();
        superblock.write(&device).expect("writable");
        superblock.redo_start = Lsn(6000);
        superblock.write(&device).expect("writable");
        for copy in 0..2 {
            let mut saved = vec![0; COPY_BYTES];
            device.read(copy * COPY_BYTES as u64, &mut saved).expect("readable");
            device
                .write(copy * COPY_BYTES as u64, &vec![0xa5; COPY_BYTES], Durability::Durable)
                .expect("writable");
            assert_eq!(Superblock::read(&device).expect("readable"), Found::Database(superblock.clone()));
            device.write(copy * COPY_BYTES as u64, &saved, Durability::Durable).expect("writable");
        }
        device.write(0, &vec![0xa5; 2 * COPY_BYTES], Durability::Durable).expect("writable");
        assert_eq!(Superblock::read(&device).expect_err("both are gone").kind(), ErrorKind::Damaged);
    }

    /// The copies were once always written in one order: a crash that tore the second, and another while the
    /// next opening wrote the first, left none.
    #[test]
    fn a_write_begins_with_the_copy_that_does_not_count() {
        for torn in 0..2 {
            let device = device();
            let mut superblock = sample();
            superblock.store_path = "s".repeat(3000); // longer than a sector
            superblock.write(&device).expect("writable");
            let garbage = vec![0xa5; COPY_BYTES];
            device.write(torn * COPY_BYTES as u64, &garbage, Durability::Durable).expect("writable");
            let plan = FaultPlan::new(1);
            plan.add(FaultRule {
                calls: Calls::Writes,
                device: None,
                when: When::From(0),
                fault: Fault::Torn { blocks: 1, error: Some(DeviceErrorKind::Failed) },
            });
            let failing: Arc<dyn Device> = Arc::new(Faulty::new(device.clone(), &plan));
            let before = superblock.clone();
            superblock.store_path = "t".repeat(3000);
            superblock.write(&failing).expect_err("the first write fails");
            assert_eq!(Superblock::read(&device).expect("a copy is left"), Found::Database(before));
            superblock.write(&device).expect("writable again");
            assert_eq!(Superblock::read(&device).expect("readable"), Found::Database(superblock));
        }
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

    #[test]
    fn epochs_without_log_are_forgotten() {
        let mut superblock = sample();
        superblock.redo_start = Lsn(4999);
        superblock.prune_epochs();
        assert_eq!(superblock.epochs.len(), 2);
        superblock.redo_start = Lsn(5000);
        superblock.prune_epochs();
        assert_eq!(superblock.epochs, [(Epoch(2), Lsn(5000))]);
        assert_eq!(superblock.open_epoch(Lsn(7000)), Epoch(3));
    }
}
