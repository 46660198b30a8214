//! Recovery, step 4: a higher epoch is made durable, and the log is opened in it.

use crate::engine::archive_needed::ArchiveTail;
use crate::engine::log_device_failure::Losses;
use crate::engine::recovery::Opening;
use crate::engine::superblock::{EPOCHS_HELD_LONG_MAX, EPOCHS_HELD_MAX, EPOCHS_WRITING_MAX};
use crate::engine::{assembly, cache};
use crate::error::Error;
use crate::options::archive::ArchiveFull;
use firndb_base::sync::Arc;
use firndb_base::{Lsn, rng};
use firndb_log::{Log, LogOptions, LogScan};

/// Most LSNs that are skipped before an epoch: there are enough for 2^40 openings.
const EPOCH_LEAP_MAX: u64 = 4 << 20;

impl Opening<'_> {
    /// Makes a higher epoch durable, and opens the log in it: from here on a log device may fail,
    /// if copies cover it.
    pub(super) fn open_log(&mut self, scan: &LogScan) -> Result<(Arc<Log>, Arc<Losses>), Error> {
        self.bound_epochs(scan);
        let (options, superblock) = (self.options, &mut self.superblock);
        let start = match options.overlay {
            // Its log stays in memory, and is no other in each opening of the same files.
            Some(_) => Log::start_at(scan.next_epoch_start()),
            None => begin_epoch(scan.next_epoch_start()),
        };
        let epoch = superblock.open_epoch(start);
        superblock.clean = false;
        superblock.extensions.settings = options.kept();
        // The archive may have been given up as lost, or have lost its end.
        self.archive_need.note_archived(&self.retention, superblock);
        let copies = options.log.copies.unwrap_or(usize::from(superblock.copies()));
        let now = copies.min(superblock.members.len());
        superblock.want_copies(copies as u8, start, now as u8);
        if self.cache.is_none() {
            // A write-through cache that could not be opened is struck, and no new one is needed.
            let struck = superblock.extensions.cache.is_some();
            self.cache = match cache::make(superblock, &self.devices, &self.store, options) {
                Err(_) if struck => None,
                made => made?,
            };
        }
        self.devices.settle_store(superblock);
        superblock.write(&self.devices.superblock()).map_err(|error| self.explain(error))?;
        let losses = Losses::new(self.superblock.clone(), self.devices.clone(), options);
        let on_device_lost = Some(losses.handler());
        let log_options = LogOptions { copies, on_device_lost, ..assembly::log_options(options) };
        let log = scan.open_log(epoch, start, log_options)?;
        if !log.is_covered() || matches!(self.tail, ArchiveTail::GivenUp(_)) {
            self.archive_need.keep_until(start);
        }
        if !log.is_covered() {
            losses.amend(|superblock| {
                // There was no space for more copies of log that a crash left on too few devices.
                superblock.array_mut().redundancy.thin_before(start);
                if scan.from_archive() > 0 && superblock.extensions.archive_needed.is_none() {
                    // Log that is damaged on the devices is in the archive alone.
                    superblock.extensions.archive_needed = Some(scan.from_archive_until());
                    superblock.extensions.archive = self.had_archive.take();
                }
                Ok(())
            })?;
        }
        assembly::attach(options, &self.store, &log);
        Ok((log, losses))
    }

    /// Bounds the superblock's table of epochs, whatever retains the log: it needs capacity for
    /// this opening's epoch, and for that of the next one.
    fn bound_epochs(&mut self, scan: &LogScan) {
        let superblock = &mut self.superblock;
        superblock.forget_epochs_without_log(scan.newest_epoch());
        superblock.prune_epochs();
        let epochs = superblock.epochs.len();
        let Some(archive) = self.archive.as_ref().filter(|_| epochs > EPOCHS_HELD_MAX) else { return };
        let held = self.retention.archive().is_some_and(|held| held < superblock.redo_start);
        let may_go = archive.when_full() == ArchiveFull::Gap;
        if held && may_go && (archive.is_away() || epochs > EPOCHS_HELD_LONG_MAX) {
            self.retention.revoke_archive();
            superblock.extensions.archive_gap = self.retention.archive_gap();
            superblock.extensions.log_start =
                superblock.extensions.cache_from.filter(|from| *from < superblock.redo_start);
            superblock.prune_epochs();
        }
    }

    /// Adds the remedy to the error of a superblock that the opening could not write.
    fn explain(&self, error: Error) -> Error {
        let holds = self.superblock.log_start() < self.superblock.redo_start;
        match &self.archive {
            Some(archive) if holds && self.superblock.epochs.len() > EPOCHS_WRITING_MAX => error.within(&format!(
                "log of {} openings is kept until it is archived, and {}: make the archive reachable, allow a gap \
                 (ArchiveFull::Gap), or forget the archive (archive.forget)",
                self.superblock.epochs.len(),
                archive.trouble()
            )),
            _ => error,
        }
    }
}

/// Where an epoch begins that may begin at `least`: somewhat further on, by a random distance. If a
/// copy of these files is opened, too, its log and archive can be told from this database's,
/// whatever else they have in common.
fn begin_epoch(least: Lsn) -> Lsn {
    let drawn = u32::from_le_bytes(rng::entropy()[..4].try_into().expect("four bytes"));
    Log::start_at(least.advance(u64::from(drawn) % EPOCH_LEAP_MAX))
}
