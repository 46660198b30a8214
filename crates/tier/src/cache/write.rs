//! Taking pages in, and writing groups.
//!
//! Why a crash at any point loses nothing:
//! * before a group is durable: the last durable group names an older front, and nothing from there
//!   on was overwritten; the log is kept for what only this group has (`pending`);
//! * while it is being written: it overwrites a group before that older front, and it is the last
//!   group: if torn, it does not count;
//! * after that: what the new front passes is in the store durably, or in a younger group, or
//!   invalid by durable log.

use super::geometry::{Geometry, Serial};
use super::group::{Entry, GroupHeader, Since};
use super::pending::Candidates;
use super::state::{FlashCache, Ring};
use crate::error::TierError;
use crate::page_cache::statistics::add;
use crate::page_tier::{PageWrite, Written};
use firndb_base::sync::atomic::Ordering::Relaxed;
use firndb_base::{Lsn, PageId};
use firndb_log::Appended;

impl Ring {
    /// Admission: whether a clean page that is not in the cache is worth a place. Always, until
    /// places have become scarce.
    fn admits(&mut self, page: PageId) -> bool {
        let Some(shadow) = &mut self.shadow else { return true };
        if self.front == Serial::FIRST || shadow.recall(page) {
            return true;
        }
        shadow.remember(page);
        false
    }
}

impl FlashCache {
    /// Replaces groups if the ring is full. Returns how many pages fit into the group being filled.
    pub(crate) fn make_batch_space(&self) -> usize {
        if self.is_lost() || self.is_leaving() {
            return self.store.make_batch_space();
        }
        let mut ring = self.ring.lock();
        // If this fails, the write that follows meets the same error and reports it.
        let _ = self.poison.check().and_then(|()| self.make_space(&mut ring));
        self.geometry.group_pages.saturating_sub(self.open.read().entries.len()).max(1)
    }

    pub(crate) fn write_batch(&self, writes: &mut [PageWrite<'_>]) {
        if self.is_lost() {
            return self.store.write_batch(writes);
        }
        if self.is_leaving() {
            return self.write_past(writes);
        }
        let passing = self.is_write_through().then(|| self.passing.read());
        if self.is_write_through() {
            // The store takes the dirty ones and declines the others.
            self.store.write_recorded(writes);
        }
        let mut refused = writes.len();
        {
            let mut ring = self.ring.lock();
            if self.is_write_through() {
                // A restart that finds the image takes it for clean: so it must also find the
                // store's record of the page.
                ring.written_back_end = ring.written_back_end.max(self.store.records_end());
            }
            for (at, write) in writes.iter_mut().enumerate() {
                self.take(&mut ring, write);
                if matches!(&write.outcome, Err(error) if self.is_held_up(error)) {
                    refused = at;
                    break;
                }
            }
        }
        drop(passing);
        self.write_segments();
        if refused < writes.len() {
            self.write_past(&mut writes[refused..]);
        }
    }

    /// Whether the front group cannot be replaced because an image in it is damaged (`lost.rs`).
    /// That concerns only the image's page: other pages by-pass the cache until the database is
    /// opened without it.
    fn is_held_up(&self, error: &TierError) -> bool {
        self.is_rebuildable() && error.concerns_the_page()
    }

    /// Takes one page, and sets its outcome.
    fn take(&self, ring: &mut Ring, write: &mut PageWrite<'_>) {
        if !Geometry::can_hold(write.page) {
            if !self.is_write_through() {
                self.store.write_batch(std::slice::from_mut(write));
            }
            return;
        }
        let rescued = self.rescues(write.page) && !write.dirty;
        if !write.dirty {
            write.outcome = Ok(Written::Declined);
            if self.directory.lookup(write.page).is_some() {
                // The version that the buffer read, and no thread wrote another.
                return add(&self.counters.clean_declined, 1);
            }
            if !rescued && !ring.admits(write.page) {
                return add(&self.counters.clean_declined, 1);
            }
        } else if self.is_write_through() && !write.is_taken() {
            return;
        }
        let dirty = (write.dirty || rescued) && !self.is_write_through();
        let since = match write.outcome {
            // The store has it since just now.
            Ok(Written::Taken { base, changes }) if self.is_write_through() => Since { base, changes },
            // The store's newest image is a notice, and no base (`lost.rs`).
            _ if rescued => Since::UNKNOWN,
            _ => Since { base: write.base, changes: write.changes },
        };
        match self.enqueue(ring, write, since, dirty) {
            Ok(()) => {
                add(
                    if write.dirty { &self.counters.dirty_enqueued } else { &self.counters.clean_enqueued },
                    1,
                );
                let Since { base, changes } = since;
                write.outcome = Ok(Written::Taken { base, changes });
            }
            Err(error) if dirty => write.outcome = Err(error),
            // The store has the page: the failure is not this page's.
            Err(_) if self.is_write_through() && !self.is_lost() && write.dirty => {
                // The cache may hold an older version, which must not be found any more.
                self.lost.store(true, Relaxed);
            }
            Err(_) => {}
        }
    }

    /// Adds a page to the group being filled, and writes it if that is full.
    fn enqueue(
        &self,
        ring: &mut Ring,
        write: &PageWrite<'_>,
        since: Since,
        dirty: bool,
    ) -> Result<(), TierError> {
        self.poison.check()?;
        if self.is_lost() {
            return Err(TierError::new(crate::TierErrorKind::Failed, "the flash cache was given up"));
        }
        if self.open.read().entries.len() == self.geometry.group_pages {
            // An earlier attempt failed.
            self.write_group(ring)?;
        }
        self.make_space(ring)?;
        let entry = Entry { page: write.page, version: write.version, dirty, killed: false };
        let mut open = self.open.write();
        let index = open.push(&self.geometry, self.header.cache, (entry, since), write.data);
        let full = open.entries.len() == self.geometry.group_pages;
        drop(open);
        if write.dirty {
            // In write-through mode, too: the store has this version, and after a crash a restart
            // would find an older image in a durable group instead of it, were the log not kept
            // that records the store's write.
            self.pending.lock().add_image(write.recovery_lsn);
        } else if dirty {
            // No log redoes a rescued page (`lost.rs`); its group must be written all the same.
            self.pending.lock().add_image(Lsn::MAX);
        } else {
            self.pending.lock().add_clean(write.version);
        }
        self.recent.lock().note(write.page, write.version);
        let slot = self.geometry.slot(ring.rear, index);
        let inherits = self.policy.inherits();
        let old = self.directory.enqueue(write.page, slot, write.version, dirty, inherits);
        // A page that was lost here and that only DRAM had: since when the store lacks its changes
        // is unknown.
        let lacks = if write.dirty { write.recovery_lsn } else { Lsn::ZERO };
        self.note_lacking(slot, old, dirty, lacks);
        if full {
            // The page is taken even if this fails: it is in memory, and its log is kept.
            let _ = self.write_group(ring);
        }
        Ok(())
    }

    /// Invalidates the images of these pages from the log record at `appended.first` on: the pages
    /// were freed, or a new incarnation began. (An image that was copied before its page was freed
    /// may enter later. It is harmless until the page's number is allocated again, which calls this
    /// again.) `pending.rs` argues why this needs no durable trace.
    pub(crate) fn invalidate<'p>(&self, pages: impl Iterator<Item = &'p PageId>, appended: Appended) {
        for page in pages.filter(|page| Geometry::can_hold(**page)) {
            // Noted under the stripe's lock: a thread that finds the image gone from the directory,
            // or replaces its group, knows the log position that must be durable first.
            self.directory.invalidate(*page, |_| self.pending.lock().add_freed(*page, appended.end));
        }
    }

    /// Makes durable what would be lost with the group being filled, and the tombstones that
    /// headers owe. Of what enters during the call, it writes only what is in the way; the rest is
    /// left to the next call. Releases `ring` between two groups.
    pub(crate) fn write_open_group(&self) -> Result<(), TierError> {
        if self.is_lost() {
            return Ok(());
        }
        let asked = {
            let ring = self.ring.lock();
            (ring.rear, self.pending.lock().owed_added())
        };
        loop {
            let outcome = {
                let mut ring = self.ring.lock();
                match self.is_owed(&ring, asked) {
                    true => self.write_one(&mut ring),
                    false => return Ok(()),
                }
            };
            self.write_segments();
            match outcome {
                Err(_) if self.is_lost() => return Ok(()),
                other => other?,
            }
        }
    }

    /// Whether a group must be written for what there was when `rear` was being filled and `owed`
    /// tombstones had been added.
    fn is_owed(&self, ring: &Ring, (rear, owed): (Serial, u64)) -> bool {
        let has_pages = !self.open.read().entries.is_empty();
        let pending = self.pending.lock();
        let images = ring.rear == rear
            && (pending.has_images()
                // After a crash a newer version in the store must not lose to an older one here.
                || self.is_write_through() && has_pages);
        images || pending.owed_written() < owed
    }

    fn write_one(&self, ring: &mut Ring) -> Result<(), TierError> {
        self.poison.check()?;
        self.make_space(ring)?;
        self.write_group(ring)
    }

    /// Writes groups if more tombstones are owed than one header without images holds, so that
    /// their number has a bound.
    pub(crate) fn bound_owed(&self, ring: &mut Ring) -> Result<(), TierError> {
        while self.pending.lock().owed() >= self.geometry.tombstones_beside(0) {
            self.write_one(ring)?;
        }
        Ok(())
    }

    /// Writes the group being filled, durably, and begins the next. A failed write changes nothing.
    pub(crate) fn write_group(&self, ring: &mut Ring) -> Result<(), TierError> {
        self.poison.check()?;
        let serial = ring.rear;
        assert!(ring.front.0 + self.geometry.groups >= serial.0 + 2, "the next group has a place");
        let candidates = self.choose_tombstones();
        // Read after the directory: the log that invalidated an image not found there is durable
        // before the header records that.
        let log_end = self.pending.lock().log_end();
        self.store.flush_records(log_end.max(ring.written_back_end))?;
        let (len, header) = self.compose(ring, &candidates);
        let outcome = {
            let open = self.open.read();
            self.write_transfer(serial, open.bytes(len), open.entries.len())
        };
        if let Err(error) = outcome {
            return Err(self.give_up(TierError::new(crate::TierErrorKind::Failed, error.message)));
        }
        self.counters.wrote(len);
        self.durable.store(serial.0, Relaxed);
        self.pending.lock().written(&candidates);
        if let Some(segment) = ring.segment.add(&self.geometry, self.header.cache, &header) {
            self.segments.lock().push(segment);
        }
        ring.rear = serial.next();
        let mut open = self.open.write();
        open.begin(ring.rear);
        self.rear.store(ring.rear.0, Relaxed);
        Ok(())
    }

    /// Decides which images the header marks invalid: in the group being filled, and by tombstones
    /// in earlier groups. The caller holds `ring`, so no image enters until the group is written.
    /// Images may leave meanwhile, and tombstones be owed for them: those that this header holds
    /// are chosen first, so that their images that left before are marked.
    fn choose_tombstones(&self) -> Candidates {
        let mut open = self.open.write();
        let space = self.geometry.tombstones_beside(open.entries.len());
        let mut candidates = self.pending.lock().candidates(space);
        for entry in &mut open.entries {
            // An entry needs no mark if its page has a younger image.
            entry.killed = self.directory.lookup(entry.page).is_none();
        }
        // An image that entered since replaces the older ones, now and after a crash.
        candidates.pages.retain(|page| self.directory.lookup(*page).is_none());
        candidates
    }

    /// Composes the header; returns the number of bytes to write, and the header.
    fn compose(&self, ring: &Ring, candidates: &Candidates) -> (usize, GroupHeader) {
        let mut open = self.open.write();
        let entries = open.entries.clone();
        let tombstones = candidates.pages.clone();
        let header = GroupHeader { serial: ring.rear, front: ring.front, entries, tombstones };
        let len = open.compose(&self.geometry, self.header.cache, &header);
        (len, header)
    }

    /// Writes the complete segments. Called with no lock held.
    pub(crate) fn write_segments(&self) {
        loop {
            let Some(segment) = self.segments.lock().pop() else { return };
            // A failure costs the next opening some reads; if the device is broken the next group
            // reports it.
            if segment.write(&*self.device, &self.geometry).is_ok() {
                add(&self.counters.segments_written, 1);
                self.counters.wrote(segment.len());
            }
        }
    }

    /// Slots of the groups that are written and still needed. Does not wait for `ring`, which is
    /// held during I/O: of a group that is written or replaced meanwhile, either may be counted.
    pub(crate) fn directory_used(&self) -> u64 {
        let (rear, front) = (self.rear().0, self.front.load(Relaxed));
        rear.saturating_sub(front) * self.geometry.group_pages as u64
    }
}
