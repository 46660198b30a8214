//! Recovery, step 2: the log is found, from its start to its end, on the devices that are left.

use crate::engine::devices::Counted;
use crate::engine::scan_cache::ScanCache;
use crate::engine::superblock::Superblock;
use crate::error::Error;
use crate::options::Options;
use firndb_base::Lsn;
use firndb_log::{ArchiveUse, LogErrorKind, LogScan, LogSources, MemberId};

/// Finds the log: all that is retained, if the archive may need it.
pub(super) fn find_log(
    reads: &ScanCache,
    superblock: &mut Superblock,
    (archive, archive_first): &(ArchiveUse, Option<Lsn>),
    options: &Options,
    progress: &dyn Fn(u64, u64),
) -> Result<LogScan, Error> {
    let scan = |superblock: &Superblock, from| {
        let sources = LogSources::new(reads.devices(), superblock.log_identity(), from);
        let sources = sources.with_archive(archive.clone()).with_archive_first(*archive_first);
        let sources = sources.with_threads(options.background).with_kept_reads(reads.forgetting());
        let sources = sources.with_read_ahead_bytes(options.tuning.recovery_bytes / 2);
        let sources = sources.closed_after(superblock.clean.then_some(superblock.checkpoint));
        LogScan::find(sources, &mut |done, total| progress(done, total))
    };
    let from = superblock.log_start();
    if from < superblock.redo_start {
        match scan(superblock, from) {
            // Damage of log that recovery does not need affects the archive only, which will report
            // it.
            Err(error)
                if error.kind == LogErrorKind::Damaged
                    || superblock.redundancy().least_from(superblock.redo_start) > 1 =>
            {
                superblock.extensions.log_start = None;
                superblock.extensions.cache_from = None;
            }
            other => return Ok(other?),
        }
    }
    Ok(scan(superblock, superblock.redo_start)?)
}

/// Removes the members that could not be read, durably with the next epoch: other members have
/// their log. Returns them, with a sentence for the user.
pub(super) fn forget_lost(
    scan: &LogScan,
    superblock: &mut Superblock,
    devices: &Counted,
    options: &Options,
) -> Result<Vec<(MemberId, String)>, Error> {
    let mut dropped = Vec::new();
    for (id, error) in scan.lost() {
        superblock.array_mut().redundancy.lose_member();
        superblock.members.retain(|member| member.id != *id);
        devices.logs.remove(*id);
        dropped.push((
            *id,
            format!(
                "log device {} is missing or cannot be read: {error}. Others have all that it had: it has been dropped from \
                 the log, and is to be added anew when it is back",
                id.0
            ),
        ));
    }
    if let ([], [(_, error), ..]) = (&superblock.members[..], scan.lost()) {
        let message = format!("no log device can be read any more: {error}");
        return Err(Error::failed(message));
    }
    if superblock.members.len() < options.log.copies_required.get() {
        return Err(Error::unusable(format!(
            "the log has {} devices left, and log.copies_required asks for {}: {}",
            superblock.members.len(),
            options.log.copies_required.get(),
            dropped.into_iter().map(|(_, sentence)| sentence).collect::<Vec<_>>().join("; ")
        )));
    }
    Ok(dropped)
}
