//! The superblock: where everything else is found. See `docs/format/superblock.md`.
//!
//! Invariants:
//! * two copies, each written whole and made durable before the other is touched: a torn or lost
//!   write leaves the other copy, old or new;
//! * the sequence number grows with every write; the valid copy with the higher one counts;
//! * epochs ascend, and so do their starts; the redo start is never after the checkpoint record;
//! * the table of epochs is bounded: an opening drops those in which it found no log
//!   ([`Superblock::forget_epochs_without_log`]), and the archive loses its hold on log before the
//!   others are too many (`recovery.rs`).

use crate::engine::creation_mark::{Interrupted, Making};
use crate::engine::superblock_fields::Extensions;
use crate::error::{Error, ErrorKind};
use firndb_base::codec::{Malformed, Reader, Writer};
use firndb_base::sync::Arc;
use firndb_base::{DatabaseId, Epoch, Lsn, PageId, crc32c};
use firndb_device::{AlignedBuf, Device, DeviceError, Durability};
use firndb_log::{LogIdentity, MemberId};

/// First bytes of every copy.
const MAGIC: &[u8; 8] = b"FIRNSUPR";
/// The format this code writes, and the newest it reads.
const VERSION: u32 = 1;
/// A higher sequence is damage: the next write must be able to pass it.
const SEQUENCE_MAX: u64 = 1 << 62;
/// Bytes of one copy; the second follows the first.
pub(crate) const COPY_BYTES: usize = 16 << 10;
const HEADER_BYTES: usize = 48;
/// What a device writes whole or not at all.
pub(crate) const SECTOR_BYTES: usize = 512;
/// Bytes of a copy that are reserved for the table of epochs: a path that leaves less is refused
/// when it is named, so that no opening finds the copy full of paths.
const EPOCHS_RESERVE: usize = 8 << 10;
/// Where the second copy is.
pub(crate) const SECOND_COPY: u64 = COPY_BYTES as u64;
/// Bytes of the device.
pub(crate) const SUPERBLOCK_BYTES: u64 = 2 * COPY_BYTES as u64;

/// Incomplete recoveries in a row, after which one is completed before transactions run: the
/// superblock lists the epoch of each.
pub(crate) const EPOCHS_LEFT_MAX: usize = 16;

/// Epochs with log that the superblock retains for others than recovery: there is capacity for
/// twelve hundred at least. Beyond this an archive that cannot be reached loses its hold on the log
/// (with a gap, if it may have one), and the flash cache's pages are written to the store.
pub(crate) const EPOCHS_HELD_MAX: usize = 256;
/// The same bound for an archive that can be reached, and makes no progress all the same.
pub(crate) const EPOCHS_HELD_LONG_MAX: usize = 384;
/// Where no gap is allowed, the database accepts no writes beyond this until the archive has caught
/// up. The same number again is left to recoveries, which have to write.
pub(crate) const EPOCHS_WRITING_MAX: usize = 512;

/// A device of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub id: MemberId,
    /// Relative to the database's directory, or absolute.
    pub path: String,
    pub bytes: u64,
}

/// The superblock in memory.
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
    /// The store's metadata contained the records up to this LSN, durably, before the last
    /// checkpoint: a store that knows less is an old copy.
    pub store_version: Lsn,
    /// Optional fields.
    pub extensions: Extensions,
    /// A write failed: which of the last two states the device has is not known until one succeeds.
    /// Not on the device.
    pub in_doubt: bool,
}

/// What a superblock's device holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "there is one, at an opening")]
pub(crate) enum Found {
    /// A database.
    Database(Superblock),
    /// No byte was ever written: a creation was interrupted before its mark, or a database lost its
    /// superblock.
    Nothing,
    /// The creation of a database was interrupted before anything could be stored in it.
    Creating(Interrupted),
    /// The restore of a database was interrupted before it was whole.
    Restoring(Interrupted),
}

impl Superblock {
    /// What the log needs of the superblock.
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

    /// The log is retained from this LSN on.
    pub fn log_start(&self) -> Lsn {
        self.extensions.log_start.unwrap_or(self.redo_start)
    }

    /// Forgets the epochs behind `newest_with_log`, the newest epoch in which the scan at this
    /// opening found log. Otherwise the table would grow without end in a database that is opened
    /// again and again without writing log.
    ///
    /// Why it may: `LogScan` has just made sure that no block promised anything of such an epoch
    /// (`check_claims`), so nothing in it was acknowledged or built upon, and the next epoch begins
    /// behind everything that its blocks claim. Blocks that may be left of them belong to an epoch
    /// that is not in the table and not newer than its last one: left over, to every later scan.
    ///
    /// Where the first of them began, the log before it ends for good: nothing behind that may be
    /// taken for log of the epoch with log before it, should a block of that turn up late. So the
    /// first one's start stays, under a number that no block bears.
    pub fn forget_epochs_without_log(&mut self, newest_with_log: Epoch) {
        let kept = self.epochs.iter().filter(|(epoch, _)| *epoch <= newest_with_log).count();
        // One of them is such a limit by itself.
        if self.epochs.len() > kept + 1 {
            let limit = self.epochs[kept].1;
            let unused = Epoch(self.epoch().0.checked_add(1).expect("fewer than 2^32 recoveries"));
            self.epochs.truncate(kept);
            self.epochs.push((unused, limit));
        }
    }

    /// Recoveries that were begun since the last one that was completed.
    pub fn recoveries_begun(&self) -> usize {
        self.epochs.iter().filter(|(_, start)| *start > self.redo_start).count()
    }

    /// Forgets epochs of which no log is left: those whose successor starts at or before the
    /// retained log.
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

    fn decode(bytes: &[u8]) -> Result<Superblock, Malformed> {
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

    /// Checks the invariants at the head of this file, and what the rest of the engine relies on.
    fn check(&self) -> Result<(), Malformed> {
        let fail = |what| Err(Malformed { what });
        if !self.page_size.is_power_of_two() || !crate::options::limits::PAGE_SIZES.contains(&self.page_size)
        {
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

    /// The format version of a whole copy, if it is another than this program's.
    fn other_version(bytes: &[u8]) -> Option<u32> {
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let covered = bytes.get(12..HEADER_BYTES.checked_add(u32_at(HEADER_BYTES - 4) as usize)?)?;
        let whole = bytes[..8] == *MAGIC && crc32c(covered) == u32_at(8);
        (whole && u32_at(12) != VERSION).then(|| u32_at(12))
    }

    /// Reads the newer valid copy. A copy that the device cannot read does not count, as one that
    /// is damaged; the next write repairs it.
    ///
    /// Errors: that of the device if it is why no copy counts.
    pub fn read(device: &Arc<dyn Device>) -> Result<Found, Error> {
        let name = &device.info().name;
        let bytes = device.len().min(SUPERBLOCK_BYTES);
        if bytes < SUPERBLOCK_BYTES {
            let mut buf = AlignedBuf::zeroed(SUPERBLOCK_BYTES as usize);
            device.read(0, &mut buf[..bytes as usize])?;
            if buf.iter().all(|&byte| byte == 0) {
                return Ok(Found::Nothing);
            }
            return Err(Error::damaged(format!(
                "{name} is cut short: it has {bytes} bytes instead of {SUPERBLOCK_BYTES}; restore it from a copy"
            )));
        }
        let copies = read_copies(device);
        if let [Ok(first), Ok(second)] = &copies {
            // Only of two copies that were read: an unreadable copy is not taken for one that was
            // never written.
            if is_zero(first) && is_zero(second) {
                return Ok(Found::Nothing);
            }
            if let Some(making) = Making::of(first)
                && is_of_the_first_write(second)
            {
                let interrupted = Interrupted::decode(first);
                return Ok(match making {
                    Making::Creating => Found::Creating(interrupted),
                    Making::Restoring => Found::Restoring(interrupted),
                });
            }
        }
        if let Some(version) = copies.iter().flatten().find_map(|copy| Superblock::other_version(copy)) {
            return Err(Error::new(
                ErrorKind::Unusable,
                format!(
                    "{name} has format version {version}, and this program knows version {VERSION} only: use a \
                     newer program"
                ),
            ));
        }
        let [a, b] = copies.map(Superblock::decode_copy);
        match (a, b) {
            (Ok(a), Ok(b)) if a.database != b.database => Err(Error::damaged(format!(
                "{name} holds copies of two databases, {} and {}",
                a.database, b.database
            ))),
            (Ok(a), Ok(b)) => Ok(Found::Database(if a.sequence >= b.sequence { a } else { b })),
            (Ok(one), Err(_)) | (Err(_), Ok(one)) => Ok(Found::Database(one)),
            (Err(a), Err(b)) => Err(match (a, b) {
                (BadCopy::Unreadable(error), other) | (other, BadCopy::Unreadable(error)) => {
                    Error::from(error)
                        .within(&format!("{name}: neither copy can be read (the other: {other})"))
                }
                (a, b) => Error::damaged(format!(
                    "{name}: neither copy can be read ({a}; {b}); it is not a Firn database, or is damaged: restore it from a copy"
                )),
            }),
        }
    }

    fn decode_copy(copy: Result<AlignedBuf, DeviceError>) -> Result<Superblock, BadCopy> {
        Superblock::decode(&copy.map_err(BadCopy::Unreadable)?).map_err(|error| BadCopy::Invalid(error.what))
    }

    /// The copy that is written first: one that a crash or a failed write tore or left behind, or
    /// that cannot be read, so that the valid copy is touched only once this is whole. If neither
    /// is valid, the second: the first may be the mark of a creation, which counts until there is a
    /// superblock. With it, the highest sequence that either has.
    ///
    /// Errors: neither can be read now, so that it is unknown which one is valid.
    fn copy_to_begin_with(device: &Arc<dyn Device>) -> Result<(u64, u64), Error> {
        let copies = match read_copies(device) {
            [Err(error), Err(_)] => return Err(error.into()),
            copies => copies.map(|copy| Superblock::decode_copy(copy).map_or(0, |found| found.sequence)),
        };
        Ok((u64::from(copies[1] <= copies[0]), copies[0].max(copies[1])))
    }

    /// Writes both copies, one after the other, and advances the sequence beyond that of either
    /// copy.
    pub fn write(&mut self, device: &Arc<dyn Device>) -> Result<(), Error> {
        let (first, newest) = Superblock::copy_to_begin_with(device)?;
        // A copy that the opening could not read, or that a failed write left, may be newer than
        // this one.
        self.sequence = self.sequence.max(newest) + 1;
        self.check().map_err(|error| Error::damaged(error.what.to_owned()))?;
        let bytes = self.encode()?;
        let mut buf = AlignedBuf::zeroed(COPY_BYTES);
        buf[..bytes.len()].copy_from_slice(&bytes);
        self.in_doubt = true;
        for copy in [first, 1 - first] {
            device.write(copy * COPY_BYTES as u64, &buf, Durability::Durable)?;
        }
        self.in_doubt = false;
        Ok(())
    }
}

/// Why a copy does not count.
enum BadCopy {
    Unreadable(DeviceError),
    Invalid(&'static str),
}

impl std::fmt::Display for BadCopy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BadCopy::Unreadable(error) => error.fmt(f),
            BadCopy::Invalid(what) => f.write_str(what),
        }
    }
}

/// Both copies, each read alone: a sector that cannot be read spoils one of them only.
fn read_copies(device: &Arc<dyn Device>) -> [Result<AlignedBuf, DeviceError>; 2] {
    [0, SECOND_COPY].map(|offset| {
        let mut buf = AlignedBuf::zeroed(COPY_BYTES);
        device.read(offset, &mut buf).map(|()| buf)
    })
}

/// Whether the second copy, beside the mark of a creation, is what a crash may have left of the
/// first write of a superblock: not a whole one, and none of its sectors shows a later write.
fn is_of_the_first_write(second: &[u8]) -> bool {
    let header = &second[..SECTOR_BYTES];
    let begun = || header[..8] == *MAGIC && header[32..40] == 1u64.to_le_bytes();
    (is_zero(header) || begun())
        && Superblock::decode(second).is_err()
        && Superblock::other_version(second).is_none()
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}

pub(crate) fn too_long(bytes: usize) -> Error {
    Error::new(
        ErrorKind::BadArgument,
        format!("the superblock would need {bytes} bytes; use shorter paths or fewer log devices"),
    )
}

pub(crate) fn text(bytes: &[u8]) -> Result<String, Malformed> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Malformed { what: "a path that is not UTF-8" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::creation_mark;
    use firndb_base::rng::Rng;
    use firndb_device::{
        Calls, CrashPlan, DeviceErrorKind, Fault, FaultPlan, FaultRule, Faulty, Fill, MemoryDevice, Survival,
        When,
    };

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
            in_doubt: false,
        }
    }

    fn device() -> Arc<dyn Device> {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new("superblock"));
        let mark = interrupted();
        assert_eq!(Superblock::read(&device), Ok(Found::Nothing));
        device.grow(4096, Fill::Written).expect("memory grows");
        assert_eq!(Superblock::read(&device), Ok(Found::Nothing));
        assert_eq!(creation_mark::interrupted_on(&device), Ok(Interrupted::default()));
        creation_mark::mark(&device, Making::Restoring, &mark).expect("memory grows");
        assert_eq!(Superblock::read(&device), Ok(Found::Restoring(mark.clone())));
        creation_mark::mark(&device, Making::Creating, &mark).expect("memory grows");
        assert_eq!(creation_mark::interrupted_on(&device), Ok(mark));
        device
    }

    fn interrupted() -> Interrupted {
        Interrupted { ids: vec![sample().database], files: vec!["log.0".into(), "store".into()] }
    }

    /// The first superblock was once written over the mark before there was another copy of it:
    /// what a crash left of that write was neither, and every opening called it damage.
    #[test]
    fn whatever_a_crash_leaves_of_the_first_write_is_a_database_or_an_interrupted_creation() {
        let marked = Arc::new(MemoryDevice::new("superblock"));
        let as_device: Arc<dyn Device> = marked.clone();
        creation_mark::mark(&as_device, Making::Creating, &interrupted()).expect("memory grows");
        let plan = CrashPlan::new();
        let device: Arc<dyn Device> = plan.device_holding(&marked);
        let mut first = sample();
        first.store_path = "s".repeat(3000); // longer than a sector
        first.write(&device).expect("writable");
        let (mut rng, mut torn) = (Rng::new(1), 0);
        for event in 0..=plan.event_count() {
            for _ in 0..50 {
                let image = plan.image_at(event, Survival::Sectors, &mut rng).remove(0) as Arc<dyn Device>;
                match Superblock::read(&image).expect("no damage") {
                    Found::Database(found) => assert_eq!(found, first),
                    Found::Creating(found) => {
                        assert_eq!(found, interrupted());
                        let [_, second] = read_copies(&image);
                        torn += u32::from(!is_zero(&second.expect("readable")));
                        // Begun anew, and torn anew, over what is left of this one.
                        creation_mark::mark(&image, Making::Creating, &interrupted()).expect("it is marked");
                        let mut anew = first.clone();
                        (anew.sequence, anew.store_path) = (0, "t".repeat(3000));
                        anew.write(&image).expect("writable");
                        assert_eq!(Superblock::read(&image), Ok(Found::Database(anew)));
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        assert!(torn > 10, "{torn} were torn");
    }

    /// A mark that shows again, because a device lost all later writes to it, beside a damaged copy
    /// of a later write: there may be a database.
    #[test]
    fn a_mark_beside_a_later_copy_is_damage() {
        let device = device();
        let mut mark = vec![0; COPY_BYTES];
        device.read(0, &mut mark).expect("readable");
        let mut superblock = sample();
        superblock.write(&device).expect("writable");
        superblock.write(&device).expect("writable");
        device.write(0, &mark, Durability::Durable).expect("writable");
        assert_eq!(Superblock::read(&device), Ok(Found::Database(superblock)), "the other copy is whole");
        let mut second = vec![0; COPY_BYTES];
        device.read(SECOND_COPY, &mut second).expect("readable");
        second[60] ^= 1;
        device.write(SECOND_COPY, &second, Durability::Durable).expect("writable");
        assert_eq!(Superblock::read(&device).expect_err("rotten").kind(), ErrorKind::Damaged);
    }

    #[test]
    fn either_copy_is_enough() {
        let device = device();
        let creating = Found::Creating(interrupted());
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

    /// The copies were once read with one call, so that one bad sector stopped every opening and
    /// every checkpoint.
    #[test]
    fn a_sector_that_cannot_be_read_spoils_one_copy_only_and_the_next_write_mends_it() {
        for copy in 0..2 {
            let plain = device();
            let mut superblock = sample();
            superblock.write(&plain).expect("writable");
            let bad = Arc::new(Faulty::new(plain, &FaultPlan::new(0)));
            let device: Arc<dyn Device> = bad.clone();
            let sector = copy * COPY_BYTES as u64 + 512;
            bad.make_unreadable(sector, 512);
            assert_eq!(Superblock::read(&device), Ok(Found::Database(superblock.clone())));
            superblock.redo_start = Lsn(5000);
            superblock.write(&device).expect("the medium takes another sector");
            assert_eq!(bad.unreadable_blocks(), 0);
            assert_eq!(Superblock::read(&device), Ok(Found::Database(superblock.clone())));
            // A copy that cannot be written either: the other one is not touched.
            bad.wear_out(sector, 512);
            let before = superblock.clone();
            superblock.redo_start = Lsn(5500);
            superblock.write(&device).expect_err("there would be one copy only");
            assert_eq!(Superblock::read(&device), Ok(Found::Database(before)));
        }
    }

    /// An unreadable copy is not taken for one that was never written: nothing is created over it,
    /// and no file removed for it.
    #[test]
    fn two_copies_of_which_none_can_be_read_are_an_error_of_the_device() {
        let bad = Arc::new(Faulty::new(device(), &FaultPlan::new(0)));
        let device: Arc<dyn Device> = bad.clone();
        bad.make_unreadable(SECOND_COPY, 512);
        let error = Superblock::read(&device).expect_err("a mark beside a copy that cannot be read");
        assert_eq!(error.kind(), ErrorKind::Failed, "{error}");
        sample().write(&device).expect("it heals");
        bad.make_unreadable(0, 512);
        bad.make_unreadable(SECOND_COPY, 512);
        assert_eq!(Superblock::read(&device).expect_err("no copy").kind(), ErrorKind::Failed);
        let error = sample().write(&device).expect_err("which copy counts is not known");
        assert_eq!(error.kind(), ErrorKind::Failed, "{error}");
    }

    /// The next write could not pass the sequence: it ended the process, or began again at 0 and
    /// the copy before counted. Found by the fuzzer `superblock`.
    #[test]
    fn a_sequence_that_no_write_comes_to_is_damage() {
        let with = |sequence| Superblock { sequence, ..sample() }.encode().expect("short");
        assert!(Superblock::decode(&with(u64::MAX)).is_err());
        assert!(Superblock::decode(&with(SEQUENCE_MAX)).is_ok());
    }

    /// A copy that one reading lost may be the newer: the next write passes its sequence.
    #[test]
    fn a_write_passes_the_sequence_of_a_copy_that_was_not_seen() {
        let device = device();
        let mut superblock = sample();
        superblock.write(&device).expect("writable");
        let mut behind = superblock.clone();
        superblock.write(&device).expect("writable");
        superblock.write(&device).expect("writable");
        behind.write(&device).expect("writable");
        assert_eq!(behind.sequence, superblock.sequence + 1);
        assert_eq!(Superblock::read(&device), Ok(Found::Database(behind)));
    }

    /// The copies were once always written in one order: a crash that tore the second, and another
    /// while the next opening wrote the first, left none.
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

    /// Paths leave the table of epochs its capacity: else a database could be created that could be
    /// opened once.
    #[test]
    fn paths_leave_place_for_epochs() {
        let mut superblock = sample();
        superblock.store_path = "s".repeat(COPY_BYTES - EPOCHS_RESERVE);
        assert_eq!(superblock.encode().expect_err("too long").kind(), ErrorKind::BadArgument);
        superblock.store_path.truncate(COPY_BYTES - EPOCHS_RESERVE - 200);
        // The largest starts there are.
        for epoch in 3..1 + crate::engine::superblock::EPOCHS_WRITING_MAX as u32 {
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

    /// However often it is opened without writing log: a few entries, and none that a block of a
    /// forgotten epoch fits.
    #[test]
    fn epochs_of_openings_that_wrote_no_log_do_not_add_up() {
        let mut superblock = sample();
        let (with_log, start) = (superblock.epoch(), Lsn(5000));
        superblock.open_epoch(Lsn(6000));
        superblock.forget_epochs_without_log(with_log);
        assert_eq!(superblock.epochs[2..], [(Epoch(3), Lsn(6000))], "one is the limit of the log before it");
        let mut given: Vec<Epoch> = vec![Epoch(3)];
        for opening in 1..100 {
            given.push(superblock.open_epoch(Lsn(6000 + 100 * opening)));
            superblock.forget_epochs_without_log(with_log);
            assert_eq!(superblock.epochs.len(), 3);
            let (limit, at) = superblock.epochs[2];
            assert_eq!((superblock.epochs[1], at), ((with_log, start), Lsn(6000)));
            assert!(!given.contains(&limit), "no block bears the limit's number");
        }
        let epoch = superblock.open_epoch(Lsn(20_000));
        superblock.forget_epochs_without_log(epoch);
        assert_eq!(superblock.epochs.len(), 4, "this one has log");
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
