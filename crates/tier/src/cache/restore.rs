//! Restoring the directory at opening (FaCE, section 4.2).
//!
//! 1. The *rear* is found: from the group that was recorded as durable, headers are read on while
//!    their serials ascend. The last group counts if all of it is whole; else it was torn, and the
//!    one before is last.
//! 2. The last header names the *front*.
//! 3. Groups from front to rear are taken in order, by their segments where these are valid, by
//!    their own headers elsewhere (the youngest groups, if their segment was not written yet, or is
//!    torn).
//!
//! A later image of a page replaces an earlier one; a tombstone removes the images of the page it
//! names. Both work within one page, so the pages are divided among threads, each of which walks
//! all groups in order. Meanwhile the groups that come next are read.

use super::directory::{Directory, RestoredImage, Share};
use super::geometry::{Geometry, SEAL_BYTES, Serial};
use super::group::{Entry, GroupHeader, Seal};
use super::segment::{self, Segment, SegmentBuilder};
use super::state::FlashCache;
use super::versions::Versions;
use crate::error::{TierError, TierErrorKind};
use crate::page_cache::header::CacheHeader;
use firndb_base::Lsn;
use firndb_base::sync::thread;
use firndb_device::{AlignedBuf, Device, Io, IoOp};
use std::ops::Range;

/// Headers read in one batch.
const HEADERS_AT_ONCE: u64 = 64;
/// Entries and tombstones read at a time, or those of one segment or batch more; memory holds twice
/// this number beside the directory.
const ENTRIES_AT_ONCE: usize = 1 << 18;
/// Images passed to the directory at a time.
const IMAGES_AT_ONCE: usize = 1024;
/// Fewest entries that are worth a thread.
const ENTRIES_A_THREAD: usize = 1 << 14;
const THREADS_MAX: usize = 8;

/// What was restored.
pub(crate) struct Restored {
    pub directory: Directory,
    pub versions: Versions,
    pub front: Serial,
    /// The group to be filled next.
    pub rear: Serial,
    pub segment: SegmentBuilder,
}

/// A cache's device while it is read.
struct Source<'a> {
    device: &'a dyn Device,
    header: &'a CacheHeader,
    geometry: &'a Geometry,
}

/// Restores a cache of which everything up to group `durable` is known to have been durable.
pub(crate) fn restore(
    device: &dyn Device,
    header: &CacheHeader,
    geometry: &Geometry,
    durable: Serial,
    log: Range<Lsn>,
) -> Result<Restored, TierError> {
    let source = Source { device, header, geometry };
    let last = source.last_group(durable)?;
    if last.as_ref().is_some_and(|last| last.serial > durable) {
        // It may be in the drive's memory only, if the process ended before the sync that was to
        // follow the write: from now on it counts as durable.
        device.sync()?;
    }
    let (front, rear) = match &last {
        Some(last) => (last.front, last.serial.next()),
        None => (Serial::FIRST, Serial::FIRST),
    };
    let mut restored = Restored {
        directory: Directory::new(geometry.slots()),
        versions: Versions::since(log.start),
        front,
        rear,
        segment: SegmentBuilder::begin(
            geometry,
            // From the first group of its segment on, so that the segment will be whole.
            Serial(geometry.segment_of(rear) * geometry.segment_groups).max(Serial::FIRST),
        ),
    };
    // A group of that segment may be rewritten.
    let mut buf = AlignedBuf::zeroed(geometry.segment_bytes);
    let place = segment_in_place(&source, geometry.segment_of(rear), &mut buf)?;
    if place.is_some() {
        segment::forget(device, geometry, geometry.segment_of(rear))?;
    }
    let mut groups = Groups { source: &source, front, rear, next: front, buf };
    let mut some = groups.next()?;
    while !some.is_empty() {
        some = restored.take(&source, &some, &log, &mut || groups.next())?;
    }
    restored.directory.restored();
    restored.collect_segment(&source, front)?;
    Ok(restored)
}

/// The headers of a segment, if its place holds them.
fn segment_in_place(
    source: &Source<'_>,
    number: u64,
    buf: &mut AlignedBuf,
) -> Result<Option<Vec<GroupHeader>>, TierError> {
    // What cannot be read here is read from the groups.
    if source.device.read(source.geometry.segment_offset(number), buf).is_err() {
        return Ok(None);
    }
    Ok(Segment::read(source.geometry, source.header.cache, number, buf).ok())
}

/// Reads the headers of the groups from front to rear.
struct Groups<'a> {
    source: &'a Source<'a>,
    front: Serial,
    rear: Serial,
    next: Serial,
    buf: AlignedBuf,
}

impl Groups<'_> {
    /// The next groups; none at the end.
    fn next(&mut self) -> Result<Vec<GroupHeader>, TierError> {
        let geometry = self.source.geometry;
        let (mut some, mut count) = (Vec::new(), 0);
        while self.next < self.rear && count < ENTRIES_AT_ONCE {
            let number = geometry.segment_of(self.next);
            let first = Serial(number * geometry.segment_groups).max(self.front);
            let end = Serial((number + 1) * geometry.segment_groups).min(self.rear);
            // A segment that is not in its place is looked for once.
            let may_be_there = self.next == first && geometry.segment_of(end) > number;
            let segment =
                if may_be_there { segment_in_place(self.source, number, &mut self.buf)? } else { None };
            let headers = match segment {
                Some(headers) => headers,
                None => self.source.headers(self.next, end)?,
            };
            for header in headers.into_iter().filter(|header| header.serial >= first) {
                count += header.entries.len() + header.tombstones.len();
                self.next = header.serial.next();
                some.push(header);
            }
        }
        Ok(some)
    }
}

/// Returns the next groups.
type Next<'a> = dyn FnMut() -> Result<Vec<GroupHeader>, TierError> + 'a;

impl Restored {
    /// Adds groups, which follow all those added before. Calls `next` meanwhile and returns its
    /// result.
    fn take(
        &mut self,
        source: &Source<'_>,
        headers: &[GroupHeader],
        log: &Range<Lsn>,
        next: &mut Next<'_>,
    ) -> Result<Vec<GroupHeader>, TierError> {
        let newest = headers.iter().flat_map(|header| &header.entries).max_by_key(|entry| entry.version);
        if let Some(entry) = newest.filter(|entry| entry.version >= log.end) {
            return Err(source.damaged(format!(
                "it holds version {} of {:?}, and the log ends at LSN {}: the log lost its end, or the cache is from \
                 another history of this database",
                entry.version, entry.page, log.end
            )));
        }
        let entries: usize = headers.iter().map(|header| header.entries.len()).sum();
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let parts = (entries / ENTRIES_A_THREAD).clamp(1, cores.min(THREADS_MAX));
        if parts == 1 {
            let share = self.directory.share(0, 1);
            let versions = fill(&self.directory, source.geometry, headers, log.start, &share);
            self.versions.extend(versions);
            return next();
        }
        let directory = &self.directory;
        let work = |part| {
            let share = directory.share(part, parts);
            fill(directory, source.geometry, headers, log.start, &share)
        };
        let (shares, next) = thread::each_beside((0..parts).collect(), work, next);
        shares.into_iter().for_each(|versions| self.versions.extend(versions));
        next
    }

    /// Puts the headers that exist of the segment being filled into its builder.
    fn collect_segment(&mut self, source: &Source<'_>, front: Serial) -> Result<(), TierError> {
        let geometry = source.geometry;
        let first = Serial(geometry.segment_of(self.rear) * geometry.segment_groups).max(Serial::FIRST);
        if first < front {
            // Some of its groups are not needed any more, and may have been overwritten.
            self.segment = SegmentBuilder::begin(geometry, self.rear);
            return Ok(());
        }
        let mut next = first;
        while next < self.rear {
            for header in source.headers(next, self.rear)? {
                let complete = self.segment.add(geometry, source.header.cache, &header);
                assert!(complete.is_none(), "the rear lies in this segment");
                next = header.serial.next();
            }
        }
        Ok(())
    }
}

/// Puts one share of the pages into the directory; returns which of them changed since
/// `redo_start`.
fn fill(
    directory: &Directory,
    geometry: &Geometry,
    headers: &[GroupHeader],
    redo_start: Lsn,
    share: &Share,
) -> Versions {
    let mut versions = Versions::since(redo_start);
    let mut images: Vec<RestoredImage> = Vec::with_capacity(IMAGES_AT_ONCE + geometry.group_pages);
    for header in headers {
        if !header.tombstones.is_empty() || images.len() >= IMAGES_AT_ONCE {
            directory.restore(&images);
            images.clear();
        }
        // Tombstones concern images in earlier groups: they come before the images of this one.
        header.tombstones.iter().for_each(|page| directory.restore_tombstone(*page, share));
        let first = geometry.first_slot(header.serial).0;
        for (slot, entry) in (first..).map(super::geometry::Slot).zip(&header.entries) {
            if !directory.is_in(share, entry.page) {
                continue;
            }
            let Entry { page, version, dirty, killed } = *entry;
            images.push(RestoredImage { page, slot, version, dirty, killed });
            if entry.version >= redo_start {
                versions.note(entry.page, entry.version);
            }
        }
    }
    directory.restore(&images);
    versions
}

impl FlashCache {
    /// Forgets the dirty images of every fourth group, as a faulty restore would: tests prove with
    /// it that they detect failure.
    pub(crate) fn forget_dirty_images(&self) {
        let mut dirty = Vec::new();
        self.directory.for_each_valid(|slot, word| {
            if word.is_dirty() && (slot.0 as usize / self.geometry.group_pages).is_multiple_of(4) {
                dirty.push((slot, word));
            }
        });
        for (slot, word) in dirty {
            self.directory.forget(word.page(), slot, word);
        }
    }
}

impl Source<'_> {
    fn damaged(&self, what: String) -> TierError {
        TierError::new(
            TierErrorKind::Damaged,
            format!("{} is not to be trusted: {what}. Restore a backup", self.device.info().name),
        )
    }

    /// The last group that is completely whole. `None` in an empty cache.
    fn last_group(&self, durable: Serial) -> Result<Option<GroupHeader>, TierError> {
        let Some(mut last) = self.some_group(durable)? else { return Ok(None) };
        let unread = loop {
            match self.header_of(last.serial.next()) {
                Ok(Some(next)) => last = next,
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        self.check_beyond(Serial(last.serial.0 + 2), unread)?;
        match self.is_whole(&last) {
            Ok(true) => return Ok(Some(last)),
            Err(error) if last.serial <= durable => return Err(error),
            _ => {}
        }
        if last.serial <= durable {
            return Err(self.damaged(format!("group {}, which was durable, is not whole", last.serial.0)));
        }
        match self.header_of(last.serial.previous())? {
            Some(before) => Ok(Some(before)),
            None if last.serial == Serial::FIRST => Ok(None),
            None => {
                Err(self.damaged(format!("group {}, which was durable, cannot be read", last.serial.0 - 1)))
            }
        }
    }

    /// A group at or after `durable` from which the chain of groups can be followed; `None` if
    /// nothing was ever written.
    fn some_group(&self, durable: Serial) -> Result<Option<GroupHeader>, TierError> {
        let start = durable.max(Serial::FIRST);
        let found = match self.header_at(start)? {
            Some(found) => Some(found).filter(|found| found.serial >= start),
            // The crash came while its place was being overwritten: the group before it was written
            // just before, in the same lap.
            None => self.header_at(start.previous())?.filter(|found| found.serial > durable),
        };
        if found.is_some() {
            return Ok(found);
        }
        if durable >= Serial::FIRST {
            return Err(self.damaged(format!("group {}, which was durable, is not there", durable.0)));
        }
        Ok(None)
    }

    /// The header in the place of group `serial`, of whatever lap.
    fn header_at(&self, serial: Serial) -> Result<Option<GroupHeader>, TierError> {
        let found = self.headers_at(serial, 1)?.pop().expect("one was asked for");
        Ok(found.filter(|found| found.serial.0 % self.geometry.groups == serial.0 % self.geometry.groups))
    }
    /// Fails unless the group before `beyond`, whose header is not there or is `unread`, is torn or
    /// was never begun. One group is written at a time, so no group may be begun behind it.
    ///
    /// Of both places one must be readable. If the first is not, the second one must show that
    /// nothing was written there in this lap: then nothing is lost with the first, since the log is
    /// kept for groups that are not known to be durable.
    fn check_beyond(&self, beyond: Serial, unread: Option<TierError>) -> Result<(), TierError> {
        let in_first_lap = beyond.0 < Serial::FIRST.0 + self.geometry.groups;
        match (self.header_at(beyond), unread) {
            (Ok(Some(found)), _) if found.serial == beyond => {
                Err(self.damaged(format!("group {} cannot be read, and {} can", beyond.0 - 1, beyond.0)))
            }
            (Ok(None), Some(error)) if !in_first_lap => Err(error),
            (Err(_), Some(error)) => Err(error),
            _ => Ok(()),
        }
    }

    fn header_of(&self, serial: Serial) -> Result<Option<GroupHeader>, TierError> {
        Ok(self.header_at(serial)?.filter(|found| found.serial == serial))
    }

    /// The headers of groups from `first` on, up to `end`, exclusive, or of one batch. All must
    /// exist.
    fn headers(&self, first: Serial, end: Serial) -> Result<Vec<GroupHeader>, TierError> {
        let count = (end.0 - first.0).min(HEADERS_AT_ONCE);
        let found = (first.0..).map(Serial).zip(self.headers_at(first, count)?);
        let headers = found.map(|(serial, found)| {
            found
                .filter(|found| found.serial == serial)
                .ok_or_else(|| self.damaged(format!("the header of group {} cannot be read", serial.0)))
        });
        headers.collect()
    }

    /// Valid headers in the places of `count` groups.
    fn headers_at(&self, first: Serial, count: u64) -> Result<Vec<Option<GroupHeader>>, TierError> {
        let mut bufs: Vec<AlignedBuf> =
            (0..count).map(|_| AlignedBuf::zeroed(self.geometry.header_bytes)).collect();
        let mut batch: Vec<Io<'_>> = (first.0..)
            .zip(&mut bufs)
            .map(|(serial, buf)| Io {
                offset: self.geometry.group_offset(Serial(serial)),
                op: IoOp::Read(buf),
                outcome: Ok(()),
            })
            .collect();
        self.device.submit(&mut batch);
        batch.into_iter().try_for_each(|io| io.outcome)?;
        (first.0..).zip(&bufs).map(|(serial, buf)| self.parse(Serial(serial), buf)).collect()
    }

    /// Parses a header; reads the rest of it first if it is longer than usual.
    fn parse(&self, serial: Serial, bytes: &[u8]) -> Result<Option<GroupHeader>, TierError> {
        let (geometry, cache) = (self.geometry, self.header.cache);
        let Ok(len) = GroupHeader::len_of(geometry, cache, bytes) else { return Ok(None) };
        if len <= bytes.len() {
            return Ok(GroupHeader::read(geometry, cache, bytes).ok());
        }
        let mut all = AlignedBuf::zeroed(len.next_multiple_of(geometry.block));
        self.device.read(geometry.group_offset(serial), &mut all)?;
        Ok(GroupHeader::read(geometry, cache, &all).ok())
    }

    /// Whether every image of the group matches its header.
    fn is_whole(&self, group: &GroupHeader) -> Result<bool, TierError> {
        if group.entries.is_empty() {
            return Ok(true);
        }
        let mut buf = AlignedBuf::zeroed(self.geometry.used_bytes(group.entries.len()));
        self.device.read(self.geometry.group_offset(group.serial), &mut buf)?;
        Ok(group.entries.iter().enumerate().all(|(index, entry)| {
            let at = self.geometry.image_at(index);
            let sealed = &buf[at..at + SEAL_BYTES + self.geometry.page_size];
            Seal::read(self.header.cache, sealed).is_some_and(|seal| seal.is_of(entry, group.serial))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page_cache::header::CacheId;
    use firndb_base::{DatabaseId, PageId};
    use firndb_device::{Durability, Fill, MemoryDevice};

    #[test]
    fn groups_of_tombstones_are_read_some_at_a_time() {
        const GROUPS: u64 = 512;
        let cache = CacheId([8; 16]);
        let geometry = Geometry::new(512, 512, 64, GROUPS).unwrap();
        let header = CacheHeader {
            database: DatabaseId([3; 16]),
            cache,
            page_size: 512,
            block: 512,
            group_pages: 64,
            write_through: false,
            groups: GROUPS,
        };
        let device = MemoryDevice::new("cache");
        device.grow(geometry.end(), Fill::Sparse).unwrap();
        let each = geometry.tombstones_beside(0);
        let (front, rear) = (Serial::FIRST, Serial(GROUPS - 1));
        for serial in (front.0..rear.0).map(Serial) {
            let (entries, tombstones) = (Vec::new(), vec![PageId(4); each]);
            let mut group = AlignedBuf::zeroed(geometry.group_bytes);
            GroupHeader { serial, front, entries, tombstones }.write(cache, &mut group);
            device.write(geometry.group_offset(serial), &group, Durability::Later).unwrap();
        }
        let source = Source { device: &device, header: &header, geometry: &geometry };
        let buf = AlignedBuf::zeroed(geometry.segment_bytes);
        let mut groups = Groups { source: &source, front, rear, next: front, buf };
        let mut next = front;
        loop {
            let some = groups.next().unwrap();
            if some.is_empty() {
                break;
            }
            assert!(some.len() * each <= ENTRIES_AT_ONCE + HEADERS_AT_ONCE as usize * each, "{}", some.len());
            for header in some {
                assert_eq!(header.serial, next);
                next = next.next();
            }
        }
        assert_eq!(next, rear);
    }
}
