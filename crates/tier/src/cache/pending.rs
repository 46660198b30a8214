//! What the cache holds in volatile memory only, as far as it determines which log must be kept.
//!
//! Why a page that is freed needs no durable trace here (the crash argument for what is *not*
//! written):
//! * An image of a page that is not allocated is stale but harmless: nothing reads the page, and
//!   the store refuses the image when its group is replaced. So a restart may find it in the
//!   directory.
//! * When the page's number is allocated again, the buffer's recovery LSN of the new page is at or
//!   before the record that allocates it, and is passed on to `images_from` when the page enters
//!   the cache. So until a *younger* image of the page is durable here, which in a restart replaces
//!   all older ones, recovery reads that record and removes older images from the directory
//!   (`redo.rs`). The front passes the older images first. A page of a page file is allocated
//!   without content, and its recovery LSN is that of the record with its content, which rebuilds
//!   the page on no older image.
//! * In three cases the log may be truncated though no younger image enters the cache: recovery
//!   itself, where the new page's recovery LSN is that of its first redone change and not of its
//!   allocation; a page that by-passes a cache that is leaving (`leave.rs`); and the content of a
//!   page that no log has (`shadows_past.rs`). For these a tombstone is *owed*: the page is on the
//!   list `owed`, the log is kept for it, and the next group's header names it.
//!
//! A tombstone in a header makes all images of the page in earlier groups invalid. A header may
//! hold one whenever the directory has no image of the page, and the log that made it so is
//! durable: all images of the page here are then freed, or older than what the store has. Beyond
//! the owed tombstones headers name pages that were freed lately, as far as there is free space in
//! the header, so that a restart finds fewer stale images.

use firndb_base::{Lsn, PageId};
use std::collections::VecDeque;

/// Most freed pages remembered: the space beside the images of some groups. Others are forgotten.
const FREED_MAX: usize = 4096;

/// A page of which a restart must find no image in the groups written so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OwedTombstone {
    page: PageId,
    /// The log from here on makes the images invalid until a header does.
    needed_from: Lsn,
}

/// Images and owed tombstones of groups that are not durable yet.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// The least recovery LSN of a changed page in the group being filled; `Lsn::MAX` if no log
    /// redoes any.
    images_from: Option<Lsn>,
    /// Oldest first.
    owed: VecDeque<OwedTombstone>,
    /// How many tombstones were ever owed.
    owed_added: u64,
    /// Recently freed pages of which images were removed from the directory.
    freed: Vec<PageId>,
    /// End of the newest log record that made an image invalid: the next group's front may pass
    /// that image. Or the newest version of a clean page, which may be an allocation that is not
    /// durable yet: a restart refuses versions from behind the log. The group is not written before
    /// the log is durable to here.
    log_end: Lsn,
}

/// Tombstones for the next header.
#[derive(Debug)]
pub(crate) struct Candidates {
    pub pages: Vec<PageId>,
    owed: usize,
    freed: usize,
}

impl Pending {
    /// No group is written before the log is durable to here.
    pub(crate) fn behind(log_end: Lsn) -> Pending {
        Pending { log_end, ..Pending::default() }
    }
    /// The LSN from which the log must be kept.
    pub(crate) fn needed_from(&self) -> Option<Lsn> {
        self.owed.iter().map(|tombstone| tombstone.needed_from).chain(self.images_from).min()
    }
    /// Whether losing the group being filled would lose an image.
    pub(crate) fn has_images(&self) -> bool {
        self.images_from.is_some()
    }
    /// Number of tombstones that wait for a header.
    pub(crate) fn owed(&self) -> usize {
        self.owed.len()
    }
    /// How many tombstones were ever owed.
    pub(crate) fn owed_added(&self) -> u64 {
        self.owed_added
    }
    /// How many of them durable headers hold.
    pub(crate) fn owed_written(&self) -> u64 {
        self.owed_added - self.owed.len() as u64
    }

    /// Notes that a version newer than those in durable groups joined the group being filled.
    pub(crate) fn add_image(&mut self, recovery_lsn: Lsn) {
        self.images_from = Some(self.images_from.map_or(recovery_lsn, |from| from.min(recovery_lsn)));
    }
    /// Notes that a clean page of this version joined the group being filled.
    pub(crate) fn add_clean(&mut self, version: Lsn) {
        self.log_end = self.log_end.max(Lsn(version.0 + 1));
    }
    /// Owes a tombstone: no image of the page in groups up to the one being filled may be found
    /// after a crash. The log from `needed_from` on ensures it until a header does.
    pub(crate) fn add_owed(&mut self, page: PageId, needed_from: Lsn) {
        self.owed.push_back(OwedTombstone { page, needed_from });
        self.owed_added += 1;
    }
    /// Owes tombstones for pages that are about to get their content past the cache. The record of
    /// that will lie at or behind the log's end, and ensures it until headers do; those that
    /// allocated the pages lie before. The log's end is asked for under the lock: log from there on
    /// may be truncated as soon as [`Pending::needed_from`] was asked for without these.
    pub(crate) fn add_owed_at_end(&mut self, pages: impl Iterator<Item = PageId>, log_end: impl Fn() -> Lsn) {
        let end = log_end();
        pages.for_each(|page| self.add_owed(page, end));
        self.log_end = self.log_end.max(end);
    }
    /// Notes that a page's image was removed from the directory since the page was freed, or a new
    /// incarnation of it began, by a record in a group of records that ends at `end`.
    pub(crate) fn add_freed(&mut self, page: PageId, end: Lsn) {
        if self.freed.len() < FREED_MAX {
            self.freed.push(page);
        }
        self.log_end = self.log_end.max(end);
    }
    /// No header may rely on invalidations by records before this LSN until the log is durable to
    /// here.
    pub(crate) fn log_end(&self) -> Lsn {
        self.log_end
    }
    /// Pages for a header with space for `space` tombstones.
    pub(crate) fn candidates(&self, space: usize) -> Candidates {
        let owed = self.owed.len().min(space);
        let freed = self.freed.len().min(space - owed);
        let first = self.owed.iter().take(owed).map(|tombstone| tombstone.page);
        Candidates { pages: first.chain(self.freed[..freed].iter().copied()).collect(), owed, freed }
    }
    /// Notes that the group being filled is durable, and that its header holds `candidates`.
    pub(crate) fn written(&mut self, candidates: &Candidates) {
        self.images_from = None;
        self.owed.drain(..candidates.owed);
        self.freed.drain(..candidates.freed);
    }
}
