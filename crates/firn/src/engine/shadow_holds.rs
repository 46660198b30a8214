//! Shadows for the archive and for backups: the content of a shadow is in no log, so its place is
//! held (`firndb_tier`, `held_shadows.rs`) from its record on, as log is (`log_holds.rs`), until
//! all holders have the image.
//!
//! Which places are held is in memory. A checkpoint notes the oldest record of one before its redo
//! start (`Extensions::shadows_from`), or the newest that is not held, though its log is retained.
//! So recovery finds all such records before anything is written: between that LSN and the redo
//! start, and behind it. If the archive's hold begins before one that is not held, recovery revokes
//! it, and the archiver begins behind all of them. Backups do not survive a crash.

use crate::engine::Engine;
use crate::engine::superblock::Superblock;
use crate::error::Error;
use firndb_base::Lsn;
use firndb_base::codec::Malformed;
use firndb_log::{LogScan, Record};
use firndb_tier::store::Store;

impl Engine {
    /// Has the store hold the shadows whose log others than recovery need; to be called after each
    /// change of the holds. Returns the log's end: the shadows of later records are held, and those
    /// of earlier ones are in the page map.
    pub fn settle_shadow_holds(&self) -> Lsn {
        let _settling = self.settling_shadows.lock();
        self.store.hold_shadows(self.retention.oldest())
    }

    /// Revokes the archive's hold on the log, and on shadows.
    pub fn revoke_archive_hold(&self) {
        self.retention.revoke_archive();
        self.settle_shadow_holds();
    }

    /// Revokes all backups' holds; returns whether there were any.
    pub fn revoke_backup_holds(&self) -> bool {
        let any = self.retention.revoke_backups();
        self.settle_shadow_holds();
        any
    }
}

/// The shadows that the archive lacks, at an opening.
#[derive(Clone, Copy)]
pub(crate) struct HeldBefore {
    /// Where the archive's hold begins.
    pub from: Lsn,
    /// The archive is the one that the database had: shadows were held for it.
    pub is_known: bool,
}

impl HeldBefore {
    /// Holds the images of a record again, or notes that they are not held.
    pub fn redo(&self, store: &Store, lsn: Lsn, record: Record<'_>) -> Result<(), Malformed> {
        match (lsn >= self.from, self.is_known) {
            (false, _) => {}
            (true, true) => store.redo_held_shadows(lsn, record)?,
            (true, false) => store.redo_shadows_not_held(lsn, record),
        }
        Ok(())
    }

    /// As that, for all records before the redo start. False if that log cannot be read: the
    /// archive lacks images then.
    pub fn redo_before(&self, store: &Store, scan: &LogScan, superblock: &Superblock) -> Result<bool, Error> {
        // Of an archive that is begun now each record counts.
        let noted = if self.is_known { superblock.extensions.shadows_from } else { Some(self.from) };
        let Some(from) = noted else { return Ok(true) };
        // After damage of older log the scan begins with the redo start. The archive reports it.
        let from = from.max(superblock.log_start());
        if from.max(self.from) >= superblock.redo_start {
            return Ok(true);
        }
        let mut records = scan.records(from);
        loop {
            let Ok(next) = records.next() else { return Ok(false) };
            let Some((lsn, record)) = next.filter(|(lsn, _)| *lsn < superblock.redo_start) else {
                return Ok(true);
            };
            self.redo(store, lsn, record)?;
        }
    }
}
