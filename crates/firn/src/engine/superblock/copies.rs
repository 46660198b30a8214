//! The superblock on its device: two copies, of which one is whole at any time.
//!
//! Invariants:
//! * each copy is written whole and made durable before the other is touched: a torn or lost write
//!   leaves the other copy, old or new;
//! * the sequence number grows with every write; the valid copy with the higher one counts.

use crate::engine::creation_mark::{Interrupted, Making};
use crate::engine::superblock::Superblock;
use crate::engine::superblock::encoding::{COPY_BYTES, MAGIC, VERSION};
use crate::error::Error;
use firndb_base::sync::Arc;
use firndb_device::{AlignedBuf, Device, DeviceError, Durability};

/// What a device writes whole or not at all.
pub(crate) const SECTOR_BYTES: usize = 512;
/// Where the second copy is.
pub(crate) const SECOND_COPY: u64 = COPY_BYTES as u64;
/// Bytes of the device.
pub(crate) const SUPERBLOCK_BYTES: u64 = 2 * COPY_BYTES as u64;

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
            return Err(Error::unusable(format!(
                "{name} has format version {version}, and this program knows version {VERSION} only: use a \
                     newer program"
            )));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::creation_mark;
    use crate::engine::superblock::tests::sample;
    use crate::error::ErrorKind;
    use firndb_base::Lsn;
    use firndb_base::rng::Rng;
    use firndb_device::{
        Calls, CrashPlan, DeviceErrorKind, Fault, FaultPlan, FaultRule, Faulty, Fill, MemoryDevice, Survival,
        When,
    };

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
}
