//! Which log recovery, and a rebuild of the flash cache, still need: a checkpoint truncates the log
//! before that, as far as its holders (`log_holds.rs`) need none of it.

use crate::engine::Engine;
use crate::engine::superblock::EPOCHS_HELD_MAX;
use crate::error::Error;
use firndb_base::Lsn;
use firndb_tier::CacheState;

/// The share of the log's space, as a divisor, that is retained for pages that only the flash cache
/// has.
const CACHE_SHARE: u64 = 4;

/// What a checkpoint finds needed.
pub(crate) struct NeededLog {
    /// The redo start of the checkpoint before.
    pub before: Lsn,
    pub redo_start: Lsn,
    /// The flash cache's state when this was collected.
    pub cache: Option<CacheState>,
    /// Log from here on, before the redo start, is retained for the flash cache.
    pub cache_keeps: Option<Lsn>,
    /// Whether the cache can be rebuilt from that log.
    pub rebuildable: bool,
}

impl Engine {
    /// Collects what is needed, after the tiers were synced.
    pub fn needed_log(&self) -> NeededLog {
        // The log's end first: every record appended before it has announced what it needs.
        let end = self.log.end();
        // Pending pages before dirty ones: a page that is redone is in both for a moment, and never
        // in neither.
        let needed = [
            self.recovery.oldest_needed(),
            self.pool.oldest_recovery_lsn(),
            self.pool.tier().oldest_needed_lsn(),
            self.txns.oldest_needed_lsn(),
        ];
        // After what is needed: some log may be needed no more because a group of the cache became
        // durable meanwhile, or because the cache was given up.
        let cache = self.tier.cache().map(|cache| cache.state());
        // After what is needed, for the same reason.
        let rebuild = self.rebuild_from();
        let before = self.superblock.lock().redo_start;
        let redo_start = redo_start(needed, end, before);
        let listed = cache.is_some_and(|cache| !cache.lost);
        let (cache_keeps, rebuildable) = rebuild.filter(|_| listed).unwrap_or((None, false));
        let cache_keeps = cache_keeps.map(|from| from.min(redo_start));
        NeededLog { before, redo_start, cache, cache_keeps, rebuildable }
    }

    /// Writes pages back to the store for which the flash cache would retain too much log. The
    /// limit in LSNs is scaled by the space in use on the devices: small requests occupy whole
    /// blocks.
    pub fn bound_what_the_cache_keeps(&self) -> Result<(), Error> {
        let (space, end) = (self.log.space(), self.log.end());
        let most = space.capacity_bytes / CACHE_SHARE;
        let kept = end.since(space.oldest);
        let most = match space.used_bytes {
            // Each of many openings may have left little log, and occupies an entry in the
            // superblock.
            _ if self.superblock.lock().epochs.len() > EPOCHS_HELD_MAX => 0,
            used if used > space.capacity_bytes / CACHE_SHARE * (CACHE_SHARE - 1) => 0,
            used if used > most => most.min((u128::from(kept) * u128::from(most) / u128::from(used)) as u64),
            _ => most,
        };
        self.write_back_from_cache(Lsn(end.0.saturating_sub(most)))
    }

    /// Writes pages back to the store for which the flash cache retains log from before `lsn`.
    pub fn write_back_from_cache(&self, lsn: Lsn) -> Result<(), Error> {
        match self.options.cache.rebuildable.get() {
            // Through the switch: a change of the cache waits until it has ended.
            true => Ok(self.tier.write_back_before(lsn)?),
            false => Ok(()),
        }
    }

    /// From which LSN log is retained for the flash cache, and whether the cache can be rebuilt
    /// from there; `None` if that is not wanted.
    fn rebuild_from(&self) -> Option<(Option<Lsn>, bool)> {
        let cache = self.tier.cache().filter(|_| self.options.cache.rebuildable.get())?;
        let from = cache.rebuild_from();
        Some((from.kept, from.complete))
    }
}

/// The redo start: the least of what is needed, and of `end`, the log's end before that was
/// collected.
///
/// It never moves back behind `before`, its last value. A need may lie before that: a thread that
/// announces a change reads the log's end first and publishes it a moment later, and a checkpoint
/// may pass in between. The change's record is appended after both, so it lies at or after that
/// checkpoint's redo start.
fn redo_start(needed: [Option<Lsn>; 4], end: Lsn, before: Lsn) -> Lsn {
    needed.into_iter().flatten().fold(end, Lsn::min).max(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This was once taken for a broken invariant: the checkpoint thread panicked, and the database
    /// with it.
    #[test]
    fn the_redo_start_does_not_go_back_for_an_announcement_that_came_late() {
        assert_eq!(redo_start([None, None, None, None], Lsn(200), Lsn(100)), Lsn(200));
        assert_eq!(redo_start([None, Some(Lsn(150)), None, Some(Lsn(120))], Lsn(200), Lsn(100)), Lsn(120));
        assert_eq!(redo_start([Some(Lsn(90)), None, None, None], Lsn(200), Lsn(100)), Lsn(100));
    }
}
