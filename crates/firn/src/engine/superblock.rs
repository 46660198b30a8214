//! The superblock: where everything else is found. See `docs/format/superblock.md`.
//!
//! `encoding` has its bytes, `copies` reads and writes its two copies.
//!
//! Invariants:
//! * epochs ascend, and so do their starts; the redo start is never after the checkpoint record;
//! * the table of epochs is bounded: an opening drops those in which it found no log
//!   ([`Superblock::forget_epochs_without_log`]), and the archive loses its hold on log before the
//!   others are too many (`recovery/next_epoch.rs`).

pub(crate) mod copies;
pub(crate) mod encoding;

use crate::engine::superblock_fields::Extensions;
use firndb_base::codec::Malformed;
use firndb_base::{DatabaseId, Epoch, Lsn, PageId};
use firndb_log::{LogIdentity, MemberId};
use std::collections::BTreeSet;
use std::path::Path;

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

    /// The number of drives that the log's devices are on: files in one directory share one.
    /// Devices that the caller handed in (there is no `base` directory) count as a drive each.
    pub fn log_drives(&self, base: Option<&Path>) -> usize {
        let Some(base) = base else { return self.members.len() };
        let parents =
            self.members.iter().map(|member| base.join(&member.path).parent().map(Path::to_path_buf));
        parents.collect::<BTreeSet<_>>().len()
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
        let mut ids: Vec<u32> = self.members.iter().map(|member| member.id.0).collect();
        ids.sort_unstable();
        if ids.windows(2).any(|pair| pair[0] == pair[1]) {
            return fail("a superblock with two log devices of one id");
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
        if self.extensions.archived.is_some() && self.extensions.archive.is_none() {
            return fail("a superblock that says how far an archive is and names none");
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
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn sample() -> Superblock {
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

    #[test]
    fn files_in_one_directory_share_a_drive() {
        let on = |paths: &[&str]| {
            let member =
                |(path, id): (&&str, u32)| Member { id: MemberId(id), path: (*path).to_owned(), bytes: 0 };
            Superblock { members: paths.iter().zip(1..).map(member).collect(), ..sample() }
        };
        let base = Some(Path::new("/a"));
        assert_eq!(on(&["log.0", "/a/log.1", "/b/log.2"]).log_drives(base), 2);
        assert_eq!(on(&["log.0", "log.1"]).log_drives(base), 1);
        assert_eq!(on(&["log.0", "log.1"]).log_drives(None), 2, "devices that were handed in");
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
