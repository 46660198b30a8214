//! Taking pages in, and writing groups.
//!
//! Why a crash at any point loses nothing:
//! * before a group is durable: the last durable group names an older front, nothing from there on was
//!   overwritten; the log is kept for what is only in this group (`pending`);
//! * while it is being written: it overwrites a group before that older front, and is the last: torn, it
//!   does not count;
//! * after that: what the new front passes is in the store durably, or here, or invalid by durable log.

use super::geometry::{Geometry, Serial};
use super::group::{Entry, GroupHeader};
use super::pending::Tombstone;
use super::statistics::add;
use super::{FlashCache, Ring};
use crate::{PageTier, PageWrite, TierError, Written};
use firn_base::sync::atomic::Ordering::Relaxed;
use firn_base::{Lsn, PageId};
use firn_device::Durability;
use firn_log::Appended;

impl Ring {
    /// Whether a clean page that is not in the cache is worth a place: always, until places have become scarce.
    fn lets_in(&mut self, page: PageId) -> bool {
        let Some(ghosts) = &mut self.ghosts else { return true };
        if self.front == Serial::FIRST || ghosts.recall(page) {
            return true;
        }
        ghosts.remember(page);
        false
    }
}

impl FlashCache {
    /// Makes room; answers how many pages fit into the group being filled.
    pub(crate) fn room(&self) -> usize {
        if self.is_lost() || self.is_leaving() {
            return self.store.preferred_batch();
        }
        let mut ring = self.ring.lock();
        // If it fails, the write that follows meets it again and says so.
        let _ = self.check_poison().and_then(|()| self.make_room(&mut ring));
        self.geometry.group_pages.saturating_sub(self.open.read().entries.len()).max(1)
    }

    pub(crate) fn write_pages(&self, writes: &mut [PageWrite<'_>]) {
        if self.is_lost() {
            return self.store.write_batch(writes);
        }
        if self.is_leaving() {
            return self.write_past(writes);
        }
        let passing = self.is_write_through().then(|| self.passing.read());
        if self.is_write_through() {
            // The store takes the dirty ones and declines the others.
            self.store.write_batch(writes);
        }
        {
            let mut ring = self.ring.lock();
            if self.is_write_through() {
                // An image counts as clean once it is found after a crash: so the store's record of it must be
                // found then, too.
                ring.written_back_end = ring.written_back_end.max(self.store.records_end());
            }
            for write in writes.iter_mut() {
                self.take(&mut ring, write);
            }
        }
        drop(passing);
        self.write_segments();
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
                // The version that the buffer read, and nobody wrote another.
                return add(&self.counters.clean_declined, 1);
            }
            if !rescued && !ring.lets_in(write.page) {
                return add(&self.counters.clean_declined, 1);
            }
        } else if self.is_write_through() && write.outcome != Ok(Written::Taken) {
            return;
        }
        let dirty = (write.dirty || rescued) && !self.is_write_through();
        match self.enqueue(ring, write, dirty) {
            Ok(()) => {
                add(
                    if write.dirty { &self.counters.dirty_enqueued } else { &self.counters.clean_enqueued },
                    1,
                );
                write.outcome = Ok(Written::Taken);
            }
            Err(error) if dirty => write.outcome = Err(error),
            // The store has it: it is not this page's failure.
            Err(_) if self.is_write_through() && !self.is_lost() && write.dirty => {
                // An older version may be in the cache, which must not be found any more.
                self.lost.store(true, Relaxed);
            }
            Err(_) => {}
        }
    }

    /// Adds a page to the group being filled, and writes it if that is full.
    fn enqueue(&self, ring: &mut Ring, write: &PageWrite<'_>, dirty: bool) -> Result<(), TierError> {
        self.check_poison()?;
        if self.is_lost() {
            return Err(TierError::new(crate::TierErrorKind::Failed, "the flash cache was given up"));
        }
        if self.open.read().entries.len() == self.geometry.group_pages {
            // An earlier attempt failed.
            self.write_group(ring)?;
        }
        self.make_room(ring)?;
        let entry = Entry { page: write.page, version: write.version, dirty, killed: false };
        let mut open = self.open.write();
        let index = open.push(&self.geometry, self.header.cache, entry, write.data);
        let full = open.entries.len() == self.geometry.group_pages;
        drop(open);
        if write.dirty {
            // In write-through mode, too: the store has this version, and an older image in a group that is durable
            // already would be found instead of it after a crash, did the log not say that it was stored.
            self.pending.lock().add_image(write.recovery_lsn);
        }
        self.recent.lock().note(write.page, write.version);
        let slot = self.geometry.slot(ring.rear, index);
        let inherits = self.policy.inherits();
        let old = self.directory.enqueue(write.page, slot, write.version, dirty, inherits);
        // What DRAM had alone of a page that was lost here, the store lacks since who knows when.
        let lacks = if write.dirty { write.recovery_lsn } else { Lsn::ZERO };
        self.note_lacking(slot, old, dirty, lacks);
        if full {
            // The page is taken, whatever becomes of this: it is in memory, and its log is kept.
            let _ = self.write_group(ring);
        }
        Ok(())
    }

    /// Images of these pages are invalid from the log record at `appended.first` on: they were freed, or get a
    /// new life. (An image that was copied before its page was freed may come in after that. It is harmless
    /// until the page's number is used again, which comes by here.)
    pub(crate) fn kill<'p>(&self, pages: impl Iterator<Item = &'p PageId>, appended: Appended) {
        for page in pages.filter(|page| Geometry::can_hold(**page)) {
            // Under the stripe's lock: who replaces the image's group takes it too, and then knows of the log's
            // end that it must wait for.
            self.directory.kill(*page, |slot| {
                let serial = self.geometry.serial_of(slot, self.rear()).expect("a valid image has a group");
                let position = self.geometry.position(serial, self.geometry.index_of(slot));
                let tombstone = Tombstone { position, lsn: appended.first };
                self.pending.lock().add_tombstone(tombstone, appended.end);
            });
        }
    }

    /// Writes the group being filled, if anything would be lost with it.
    pub(crate) fn write_open_group(&self) -> Result<(), TierError> {
        if self.is_lost() {
            return Ok(());
        }
        let outcome = {
            let mut ring = self.ring.lock();
            self.write_all(&mut ring)
        };
        self.write_segments();
        match outcome {
            Err(_) if self.is_lost() => Ok(()),
            other => other,
        }
    }

    fn write_all(&self, ring: &mut Ring) -> Result<(), TierError> {
        loop {
            let needed = !self.pending.lock().is_empty()
                // A newer version that is in the store must not lose to an older one here after a crash.
                || self.is_write_through() && !self.open.read().entries.is_empty();
            if !needed {
                return Ok(());
            }
            self.check_poison()?;
            self.make_room(ring)?;
            self.write_group(ring)?;
        }
    }

    /// Writes the group being filled, durably, and begins the next. If it fails, everything is as it was.
    pub(crate) fn write_group(&self, ring: &mut Ring) -> Result<(), TierError> {
        self.check_poison()?;
        let serial = ring.rear;
        assert!(ring.front.0 + self.geometry.groups >= serial.0 + 2, "the next group has a place");
        let (log_end, candidates) = {
            let pending = self.pending.lock();
            (pending.log_end(), pending.tombstones().len())
        };
        self.store.flush_records(log_end.max(ring.written_back_end))?;
        let (len, header, tombstones) = self.compose(ring, candidates);
        let outcome = {
            let open = self.open.read();
            let offset = self.geometry.group_offset(serial);
            self.device.write(offset, open.bytes(len), Durability::Durable)
        };
        if let Err(error) = outcome {
            return Err(self.give_up(TierError::new(crate::TierErrorKind::Failed, error.message)));
        }
        self.counters.wrote(len);
        self.durable.store(serial.0, Relaxed);
        self.pending.lock().written(tombstones);
        if let Some(segment) = ring.segment.add(&self.geometry, self.header.cache, &header) {
            self.segments.lock().push(segment);
        }
        ring.rear = serial.next();
        let mut open = self.open.write();
        open.begin(ring.rear);
        self.rear.store(ring.rear.0, Relaxed);
        Ok(())
    }

    /// Puts the header together; with it, how many bytes to write and how many of the first `candidates`
    /// tombstones are taken care of.
    fn compose(&self, ring: &Ring, candidates: usize) -> (usize, GroupHeader, usize) {
        let serial = ring.rear;
        let mut open = self.open.write();
        let room = self.geometry.tombstones_beside(open.entries.len());
        let mut tombstones = Vec::new();
        let mut done = 0;
        for tombstone in &self.pending.lock().tombstones()[..candidates] {
            let of = self.geometry.serial_at(tombstone.position);
            if of == serial {
                let index = self.geometry.index_of(self.geometry.slot_at(tombstone.position));
                open.entries[index].killed = true;
            } else if of >= ring.front {
                if tombstones.len() == room {
                    break;
                }
                tombstones.push(tombstone.position);
            }
            done += 1;
        }
        let entries = open.entries.clone();
        let header = GroupHeader { serial, front: ring.front, entries, tombstones };
        let len = open.compose(&self.geometry, self.header.cache, &header);
        (len, header, done)
    }

    /// Slots of groups that are written and needed.
    pub(crate) fn directory_used(&self) -> u64 {
        let ring = self.ring.lock();
        (ring.rear.0 - ring.front.0) * self.geometry.group_pages as u64
    }
}
