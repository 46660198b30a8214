//! Log that the archive has before the log's devices do (FlashLogging, 3.7): which commits it may
//! acknowledge, and how recovery finds it after a crash.
//!
//! # The rule
//!
//! While the archive may have log that the devices lack, the superblock says so, with an LSN up to
//! which the archive reached before: `archive_needed`. Each step is durable before the next:
//! 1. the superblock says that the archive is needed;
//! 2. the archive writes log that the devices may lack;
//! 3. commits that wait for that log are acknowledged;
//! 4. the devices complete the same log in the ordinary course;
//! 5. a checkpoint, or the idle archiver thread, clears `archive_needed`.
//!
//! So an opening after a crash between 1 and 5 finds that it needs the archive, and reads it
//! ([`ArchiveTail::find`]): what the devices lack comes from there, and the new epoch begins with a
//! copy of it, on the devices. If the archive is missing, or ends before the LSN named, the opening
//! fails, unless the caller says that the archive is lost. An opening after any other crash, or
//! after a clean close, does without the archive. An archive that fails or is lost while the
//! database runs loses nothing: all log it acknowledged is in memory until the devices have it.
//! Only its loss *together with* a crash, before they do, loses commits, and never silently.

use crate::engine::Engine;
use crate::engine::log_holds::LogHolds;
use crate::engine::superblock::Superblock;
use crate::error::Error;
use crate::options::Options;
use crate::options::archive::ArchiveSettings;
use firndb_base::Lsn;
use firndb_base::sync::atomic::{AtomicU64, Ordering};
use firndb_log::archive::{ArchiveFiles, Archived};

/// What the engine knows of log that only the archive has. Changed under the superblock's lock.
#[derive(Debug, Default)]
pub(crate) struct ArchiveNeed {
    /// The archive may have log up to this LSN, whether or not the devices have it.
    beyond: AtomicU64,
    /// Log that only the archive had at the opening could not be copied to the devices: the archive
    /// is needed until the retained log begins at this LSN.
    recovered_until: AtomicU64,
    /// The archive to use once the one that recovery needed is not needed any more.
    pub archive: Option<String>,
}

impl ArchiveNeed {
    /// For a database whose archive is to be this one.
    pub fn new(archive: Option<String>) -> ArchiveNeed {
        ArchiveNeed { archive, ..ArchiveNeed::default() }
    }

    /// For a database that is being opened: the archive that the options name, or the superblock's.
    pub fn at_opening(superblock: &Superblock, options: &Options) -> Result<ArchiveNeed, Error> {
        let named = options.archive.forget || options.archive.directory.is_some();
        let known = || superblock.extensions.archive.clone();
        Ok(ArchiveNeed::new(if named { options.archive.text()? } else { known() }))
    }

    /// Notes in `superblock` up to where the archive that it names has the log: no later than the
    /// start of the log moves past log that the archive has. What is noted may lag behind.
    pub fn note_archived(&self, holds: &LogHolds, superblock: &mut Superblock) {
        let is_named = superblock.extensions.archive == self.archive;
        superblock.extensions.archived = holds.archive_end().filter(|_| is_named);
    }

    /// Needs the archive that recovery read until no log before `lsn` is retained.
    pub fn keep_until(&self, lsn: Lsn) {
        self.recovered_until.store(lsn.0, Ordering::Relaxed);
    }

    fn is_settled(&self, on_devices: Lsn, log_start: Lsn) -> bool {
        self.beyond.load(Ordering::Relaxed) <= on_devices.0
            && self.recovered_until.load(Ordering::Relaxed) <= log_start.0
    }

    /// Clears `archive_needed` in `superblock` if the archive is not needed: the devices have all
    /// log before `on_devices`.
    pub fn settle(&self, superblock: &mut Superblock, on_devices: Lsn) {
        if superblock.extensions.archive_needed.is_some()
            && self.is_settled(on_devices, superblock.log_start())
        {
            superblock.extensions.archive_needed = None;
            superblock.extensions.archive.clone_from(&self.archive);
        }
    }
}

impl Engine {
    /// Notes durably that the archive, which ends at or after `from`, may have log up to `until`
    /// that the devices lack.
    pub fn need_archive(&self, from: Lsn, until: Lsn) -> Result<(), Error> {
        self.amend(|superblock| {
            if superblock.extensions.archive != self.archive_need.archive {
                return Err(Error::unusable("the archive that the last recovery needed is needed still"));
            }
            superblock.extensions.archive_needed.get_or_insert(from);
            // Before the superblock is written, so that no checkpoint clears `archive_needed` in
            // between. If the write fails, it is only cleared later.
            self.archive_need.beyond.fetch_max(until.0, Ordering::Relaxed);
            Ok(())
        })
    }

    /// Clears that if the devices have all of it by now; returns whether it is cleared.
    pub fn settle_archive(&self) -> Result<bool, Error> {
        self.amend(|superblock| {
            self.archive_need.settle(superblock, self.log.on_devices());
            Ok(superblock.extensions.archive_needed.is_none())
        })
    }
}

/// Log that a crash may have left in the archive alone.
pub(crate) enum ArchiveTail {
    /// There is none.
    NotNeeded,
    /// It is in this archive, from the LSN on.
    There(Archived, Lsn),
    /// It is lost, from this LSN on, and the caller has accepted that.
    GivenUp(Lsn),
}

impl ArchiveTail {
    /// Searches the archive where the options and the superblock name it.
    ///
    /// Errors: `Unusable` if it is needed and not there.
    pub fn find(superblock: &Superblock, options: &ArchiveSettings) -> Result<ArchiveTail, Error> {
        let Some(from) = superblock.extensions.archive_needed else { return Ok(ArchiveTail::NotNeeded) };
        let given = options.directory.iter().filter_map(|path| path.to_str());
        let mut directories: Vec<_> =
            given.chain(superblock.extensions.archive.as_deref()).map(|path| options.resolve(path)).collect();
        directories.dedup();
        let mut reasons = Vec::new();
        for directory in directories {
            match look(options.files(&directory), superblock, from) {
                Ok(archived) => return Ok(ArchiveTail::There(archived, from)),
                Err(reason) => reasons.push(reason),
            }
        }
        if options.lost {
            return Ok(ArchiveTail::GivenUp(from));
        }
        Err(Error::unusable(format!(
            "the archive is needed: after a crash it may have commits from LSN {from} on that the log's devices lack. {}. \
                 Make it reachable, or say where it is (archive.directory); if it is lost, archive.lost opens the \
                 database without those commits",
            reasons.join("; ")
        )))
    }
}

/// Opens the archive in `directory` if it can be the one that was in use; else returns why not.
fn look(files: ArchiveFiles, superblock: &Superblock, from: Lsn) -> Result<Archived, String> {
    let shown = files.directory().display().to_string();
    let found = Archived::open(files, superblock.database);
    let Some(archived) = found.map_err(|error| error.message)? else {
        return Err(format!("{shown} holds no log"));
    };
    let mark = archived.end_mark();
    if !superblock.epochs.contains(&(mark.epoch, mark.start)) {
        return Err(format!("the archive in {shown} ends with log of another history of this database"));
    }
    if archived.reach() < from {
        let reach = archived.reach();
        return Err(format!("the archive in {shown} ends at LSN {reach}: it is an older copy"));
    }
    Ok(archived)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::devices::Devices;
    use crate::engine::superblock::copies::Found;
    use crate::options::Options;
    use firndb_base::sync::Arc;
    use firndb_device::{
        Calls, Device, DeviceErrorKind, Fault, FaultPlan, FaultRule, Faulty, MemoryDevice, When,
    };

    /// Cause: a write of the superblock failed after its first copy, and memory kept the state
    /// before. Effect: on the device the archive was not needed, in memory it was noted as needed,
    /// and the next need was not written.
    #[test]
    fn after_a_superblock_write_that_failed_the_next_one_is_not_left_out() {
        let dir = tempfile::tempdir().expect("a directory");
        let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new("superblock"));
        let plan = FaultPlan::new(1);
        let devices = Devices {
            superblock: Arc::new(Faulty::new(memory.clone(), &plan)),
            logs: vec![Arc::new(MemoryDevice::new("log"))],
            store: Arc::new(MemoryDevice::new("store")),
            store_others: Vec::new(),
            cache: None,
        };
        let options = Options::new().page_size(1024).buffer_bytes(256 << 10).log(|log| log.bytes(256 << 10));
        let options = options
            .background_threads(false)
            .archive(|archive| archive.directory(dir.path().join("archive")));
        let db = options.create_on(devices).expect("created");
        let engine = db.engine();
        let on_device = || match Superblock::read(&memory) {
            Ok(Found::Database(superblock)) => superblock,
            other => panic!("{other:?}"),
        };
        let second_write_fails = || {
            plan.add(FaultRule {
                calls: Calls::Writes,
                device: None,
                when: When::Nth(1),
                fault: Fault::Fail(DeviceErrorKind::Failed),
            });
        };
        let (from, until) = (Lsn(4096), engine.log.on_devices());
        engine.need_archive(from, until).expect("written");
        assert_eq!(on_device().extensions.archive_needed, Some(from));
        second_write_fails();
        engine.settle_archive().expect_err("the second copy cannot be written");
        assert_eq!(on_device().extensions.archive_needed, None, "the newer copy says so");
        assert_eq!(engine.superblock.lock().extensions.archive_needed, Some(from));
        engine.need_archive(from, until).expect("written");
        assert_eq!(on_device().extensions.archive_needed, Some(from));

        // After a failed write a checkpoint's superblock in memory is either the state on the
        // device or the one before.
        let before = engine.superblock.lock().clone();
        second_write_fails();
        engine.checkpoint_all().expect_err("the second copy cannot be written");
        let after = engine.superblock.lock().clone();
        assert_eq!((after.checkpoint, after.redo_start), (before.checkpoint, before.redo_start));
        assert!(on_device().checkpoint > before.checkpoint && after.in_doubt);
        assert!(engine.log.space().oldest <= before.redo_start, "both states find their log");
        engine.need_archive(from, until).expect("written");
        assert_eq!(on_device(), *engine.superblock.lock());
    }
}
