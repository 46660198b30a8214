//! Shadows for the archive and for backups: the content of a shadow is in no log, so its place is
//! held (`firndb_tier`, `held_shadows.rs`) from its record on, as log is (`log_holds.rs`), until
//! all holders have the image.
//!
//! Which places are held is in memory. A checkpoint notes the oldest record of one before its redo
//! start (`Extensions::shadows_from`); its log is retained, because the archive lacks it. So
//! recovery finds all such records before anything is written: between that LSN and the redo start,
//! and behind it. Backups do not survive a crash.

use crate::engine::Engine;
use crate::engine::superblock::Superblock;
use crate::error::Error;
use firndb_base::Lsn;
use firndb_log::LogScan;
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

/// Holds the shadows before the redo start that the archive lacks, whose hold is `held`: all whose
/// records lie at or after that. False if that log cannot be read: the archive lacks images then.
pub(crate) fn hold_again_before_redo(
    store: &Store,
    scan: &LogScan,
    superblock: &Superblock,
    held: Lsn,
) -> Result<bool, Error> {
    let Some(from) = superblock.extensions.shadows_from else { return Ok(true) };
    // After damage of older log the scan begins with the redo start. The archive will report it.
    let from = from.max(superblock.log_start());
    if from.max(held) >= superblock.redo_start {
        return Ok(true);
    }
    let mut records = scan.records(from);
    loop {
        let Ok(next) = records.next() else { return Ok(false) };
        let Some((lsn, record)) = next.filter(|(lsn, _)| *lsn < superblock.redo_start) else {
            return Ok(true);
        };
        if lsn >= held {
            store.redo_held_shadows(lsn, record)?;
        }
    }
}
