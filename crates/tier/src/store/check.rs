//! Checking the whole store while other threads use it.

use super::bitmap::{self, Which};
use super::entry::Entry;
use super::geometry::Place;
use super::load::Loaded;
use super::lost;
use super::map_block;
use super::meta_cache::Stamp;
use super::meta_page::{self, MetaId};
use super::mirror::Mirror;
use super::state::{State, Store};
use super::suspects;
use super::totals::Totals;
use crate::error::{TierError, TierErrorKind};
use crate::page_tier::PageRead;
use firndb_base::sync::thread;
use firndb_base::{Lsn, PageId};
use firndb_device::AlignedBuf;

/// Most messages kept; further damage is only counted.
const SENTENCES_MAX: usize = 1000;
/// Images read at a time.
const READ_PAGES: usize = 64;
/// Of these, as many by each thread where all fragments of each are read.
const FRAGMENTED_A_THREAD: usize = 16;
/// Metadata pages compared with the device at a time: two slots each, all adjacent, so one request.
const SLOTS_AT_ONCE: usize = 8;
/// Attempts to read a metadata page that keeps being written; the last one blocks metadata writes.
const ATTEMPTS: u32 = 4;

/// Counts a fault, and keeps its sentence if it is one of the first.
pub(super) fn note_fault(faults: &mut u64, damage: &mut Vec<String>, sentence: String) {
    *faults += 1;
    if damage.len() < SENTENCES_MAX {
        damage.push(sentence);
    }
}

/// Progress of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckProgress {
    /// Groups with metadata that was walked, and groups in all.
    Groups(u64, u64),
    /// Page images read, and their approximate number in all.
    Images(u64, u64),
}

/// Result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreReport {
    /// Groups of the file.
    pub groups: u64,
    /// Pages allocated.
    pub pages: u64,
    /// Allocated pages that have an image.
    pub pages_placed: u64,
    /// Delta pages.
    pub delta_pages: u64,
    /// Images read and verified.
    pub images_read: u64,
    /// Faults found.
    pub faults: u64,
    /// A message for each of the first thousand faults.
    pub damage: Vec<String>,
}

impl StoreReport {
    fn fault(&mut self, sentence: String) {
        note_fault(&mut self.faults, &mut self.damage, sentence);
    }

    /// Notes that a metadata page cannot be read, unless its group was cut off meanwhile.
    fn unreadable(&mut self, error: TierError) -> Result<(), TierError> {
        match error.kind {
            TierErrorKind::Damaged | TierErrorKind::Unreadable => self.fault(error.to_string()),
            TierErrorKind::NotAllocated => {}
            _ => return Err(error),
        }
        Ok(())
    }
}

impl State {
    fn mirrored(&mut self) -> &mut Mirror {
        self.mirror.as_mut().expect("a check has one while it walks")
    }
}

impl Store {
    pub(crate) fn check_all(
        &self,
        images: bool,
        progress: &mut dyn FnMut(CheckProgress),
    ) -> Result<StoreReport, TierError> {
        let _one_at_a_time = self.checking.lock();
        let mut report = StoreReport::default();
        self.check_slots(&mut report)?;
        self.check_map_log(&mut report);
        self.state.lock().mirror = Some(Mirror::default());
        let walked = self.check_metadata(&mut report, progress);
        self.state.lock().mirror = None;
        walked?;
        if images {
            self.check_images(&mut report, progress)?;
        }
        Ok(report)
    }

    /// Compares each metadata page on the device with its state in memory: a page in use is not
    /// read otherwise, and only the next opening would meet damage or a lost write.
    fn check_slots(&self, report: &mut StoreReport) -> Result<(), TierError> {
        self.compare_slots(0, &[MetaId::Totals], report)?;
        let mut group = 0;
        while group < self.state.lock().space.groups() {
            let ids: Vec<MetaId> = meta_page::pages_of_group(&self.geometry, group).collect();
            for some in ids.chunks(SLOTS_AT_ONCE) {
                self.compare_slots(group, some, report)?;
            }
            group += 1;
        }
        Ok(())
    }

    /// Compares metadata pages of `group`, which are adjacent. They may be written meanwhile: those
    /// that were are read again, in the last attempt while no metadata is written.
    fn compare_slots(&self, group: u64, ids: &[MetaId], report: &mut StoreReport) -> Result<(), TierError> {
        let mut left = ids.to_vec();
        for attempt in 1..=ATTEMPTS {
            let _rounds = (attempt == ATTEMPTS).then(|| self.write_back.lock());
            let before = self.stamps(group, &left);
            let loaded = self.load(&left);
            let after = self.stamps(group, &left);
            let (Some(before), Some(after)) = (before, after) else {
                // The group was cut off.
                return Ok(());
            };
            let mut moved = Vec::new();
            for (((id, loaded), before), after) in left.into_iter().zip(loaded).zip(before).zip(after) {
                match (before, after) {
                    (Some(before), Some(after)) if before.is_same_version(after) => {
                        self.judge_slots(id, after, loaded, report)?;
                    }
                    // A page that is not in memory is judged when it is loaded below: but for its
                    // older slot, if it is known which that is.
                    (None, None) => match loaded {
                        Ok(loaded) if self.has_bad_older_slot(id, &loaded) => match attempt {
                            ATTEMPTS => report.fault(suspects::ambiguous(id).to_string()),
                            _ => moved.push(id),
                        },
                        _ => {}
                    },
                    _ => moved.push(id),
                }
            }
            if moved.is_empty() {
                break;
            }
            left = moved;
        }
        Ok(())
    }

    /// Whether the newer slot of a page that was read is right, and known to be the newer, and the
    /// other one is bad.
    fn has_bad_older_slot(&self, id: MetaId, loaded: &Loaded) -> bool {
        let state = self.state.lock();
        !loaded.sound && !state.sweep.may_be_torn(id) && state.sequences.has(id, loaded.image.sequence)
    }

    /// Reads the blocks of the map log that recovery needs. A live block is not overwritten: one
    /// that is bad, and still live after it was read, is damaged.
    fn check_map_log(&self, report: &mut StoreReport) {
        let spots = self.state.lock().map_log.spots();
        let mut bytes = AlignedBuf::zeroed(self.geometry.meta_bytes);
        for spot in spots {
            let read = self.device.read(self.geometry.block_offset(spot.block), &mut bytes);
            let is_right = map_block::decode(self.database, &bytes).is_some_and(|block| block.spot == spot);
            let why = match read {
                Ok(()) if is_right => continue,
                Ok(()) => "is damaged".to_owned(),
                Err(error) => format!("cannot be read: {}", error.message),
            };
            if self.state.lock().map_log.spots().contains(&spot) {
                report.fault(format!(
                    "block {} of the map log {why}. The store has what it holds in memory, the next opening would \
                     miss it: take a backup before the database is closed",
                    spot.block
                ));
            }
        }
    }

    /// The state of the versions of metadata pages on the device; `None` if their group no longer
    /// exists.
    fn stamps(&self, group: u64, ids: &[MetaId]) -> Option<Vec<Option<Stamp>>> {
        let state = self.state.lock();
        (group < state.space.groups()).then(|| ids.iter().map(|id| state.cache.stamp(*id)).collect())
    }

    fn judge_slots(
        &self,
        id: MetaId,
        stamp: Stamp,
        loaded: Result<Loaded, TierError>,
        report: &mut StoreReport,
    ) -> Result<(), TierError> {
        let loaded = match loaded {
            Ok(loaded) => loaded,
            Err(error) => return report.unreadable(error),
        };
        if loaded.image.sequence != stamp.sequence {
            report.fault(format!(
                "{id:?} was written {} times, but the device holds version {}: a write was lost, or the newest version \
                 is damaged",
                stamp.sequence, loaded.image.sequence
            ));
        } else if !loaded.sound && !self.state.lock().sweep.may_be_torn(id) {
            // (After recovery a slot that was torn stays bad until the next round writes the page.)
            report.fault(suspects::ambiguous(id).to_string());
        }
        Ok(())
    }

    /// Walks the map pages into the mirror, then compares the bitmap pages with it.
    fn check_metadata(
        &self,
        report: &mut StoreReport,
        progress: &mut dyn FnMut(CheckProgress),
    ) -> Result<(), TierError> {
        let mut group = 0;
        loop {
            let groups = {
                let mut state = self.state.lock();
                if group >= state.space.groups() {
                    // Groups that are added from here on are followed from their first page on.
                    state.mirrored().walked(u64::MAX);
                    break;
                }
                state.space.groups()
            };
            for map in group * self.geometry.maps_per_group..(group + 1) * self.geometry.maps_per_group {
                // Without the bitmap page, which is reported below, its bits are not compared.
                let _bits = self.pin(&[MetaId::Bitmap(group)]);
                match self.pin(&[MetaId::Map(map)]) {
                    Ok(_pins) => {
                        let slots = self.check_map(&mut self.state.lock(), map, report);
                        self.check_slots_of(&slots)?.into_iter().for_each(|fault| report.fault(fault));
                    }
                    Err(error) => {
                        self.state.lock().mirrored().skipped(map);
                        report.unreadable(error)?;
                    }
                }
            }
            group += 1;
            progress(CheckProgress::Groups(group, groups));
        }
        let mut group = 0;
        loop {
            {
                let mut state = self.state.lock();
                if group >= state.space.groups() {
                    self.check_totals(&mut state, report);
                    return Ok(());
                }
            }
            match self.pin(&[MetaId::Bitmap(group)]) {
                Ok(_pins) => self.check_bitmap(&mut self.state.lock(), group, report),
                Err(error) => {
                    self.state.lock().mirrored().compared(group, true, 0);
                    report.unreadable(error)?;
                }
            }
            group += 1;
        }
    }

    /// Compares the sums. Everything was walked and compared, up to this hold of `state`.
    fn check_totals(&self, state: &mut State, report: &mut StoreReport) {
        let kept = state.totals();
        let found = Totals { unnamed: kept.unnamed, ..state.mirrored().totals() };
        (report.groups, report.pages, report.pages_placed) =
            (state.space.groups(), found.pages, found.places - found.delta_pages);
        report.delta_pages = found.delta_pages;
        if found != kept && report.faults == 0 {
            report.fault(format!("the totals page says {kept:?}, the maps say {found:?}"));
        }
    }

    /// Whether the delta pages that the entries of `pages` name now are delta pages.
    /// Returns the faults; metadata pages that cannot be read are reported elsewhere.
    fn check_slots_of(&self, pages: &[(PageId, Place)]) -> Result<Vec<String>, TierError> {
        let mut faults = Vec::new();
        for (page, place) in pages {
            let bits = self.geometry.bitmap_of_place(*place);
            let _pins = match self.pin(&[self.geometry.map_of_page(*page), bits]) {
                Ok(pins) => pins,
                Err(error) if error.concerns_the_page() => continue,
                Err(error) if error.kind == TierErrorKind::NotAllocated => continue,
                Err(error) => return Err(error),
            };
            let mut state = self.state.lock();
            let Ok(Some(at)) = state.entry(self, *page).map(Entry::slot) else { continue };
            let body = &state.cache.get(bits).expect("just pinned").body;
            let is_delta =
                bitmap::get(&self.geometry, body, Which::Deltas, self.geometry.index_of_place(*place));
            if at.place == *place && !is_delta {
                faults.push(format!("{page:?} has a delta at {place:?}, which is no delta page in {bits:?}"));
            }
        }
        Ok(faults)
    }

    /// Walks a map page; returns its pages with a delta, and the places of these.
    fn check_map(&self, state: &mut State, map: u64, report: &mut StoreReport) -> Vec<(PageId, Place)> {
        let geometry = &self.geometry;
        let group = map / geometry.maps_per_group;
        let entries: Vec<(PageId, Result<Entry, TierError>)> = (0..geometry.entries_per_map)
            .map(|slot| PageId(map * geometry.entries_per_map + slot))
            .map(|page| (page, state.entry(self, page)))
            .collect();
        let bits = state.cache.peek(MetaId::Bitmap(group));
        let mirror = state.mirror.as_mut().expect("a check has one while it walks");
        let mut slots = Vec::new();
        for (page, entry) in entries {
            let index = geometry.index_of_page(page);
            let bit = bits.map(|bits| bitmap::get(geometry, &bits.body, Which::Pages, index));
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    report.fault(error.to_string());
                    continue;
                }
            };
            let allocated = entry != Entry::Free || page.0 == 0;
            if let Some(bit) = bit.filter(|bit| *bit != allocated) {
                report.fault(format!(
                    "{page:?} is {entry:?} in its map page, but its bit in group {group} says {bit}"
                ));
            }
            if entry != Entry::Free && !mirror.saw(entry.place()) {
                let place = entry.place().expect("only a place is named twice");
                report.fault(format!("{page:?} lies at {place:?}, which another page names too"));
            }
            slots.extend(entry.slot().map(|at| (page, at.place)));
        }
        mirror.walked(map + 1);
        slots
    }

    fn check_bitmap(&self, state: &mut State, group: u64, report: &mut StoreReport) {
        let body = &state.cache.get(MetaId::Bitmap(group)).expect("the caller pinned it").body;
        let mirror = state.mirror.as_mut().expect("a check has one while it walks");
        let backed = bitmap::is_backed(body);
        if !backed && bitmap::count(&self.geometry, body, Which::Places) > 0 {
            report.fault(format!("group {group} gave its space back but has places in use"));
        }
        for index in 0..self.geometry.places_per_group {
            let place = Place(group * self.geometry.places_per_group + index);
            let named = mirror.names(place);
            let get = |which| bitmap::get(&self.geometry, body, which, index);
            let what = match (get(Which::Places), get(Which::Deltas), named) {
                (true, false, true) | (true, true, false) | (false, false, false) => continue,
                (false, _, true) => "named by a page but free",
                (true, true, true) => "named as the image of a page but a delta page",
                (false, true, false) => "a delta page but free",
                // A map page that could not be read may name it.
                (true, false, false) if mirror.has_skipped() => continue,
                (true, false, false) => "in use but named by no page",
            };
            report.fault(format!("{place:?} is {what} in the bitmap page of group {group}"));
        }
        mirror.compared(group, backed, bitmap::count(&self.geometry, body, Which::Deltas));
    }

    fn check_images(
        &self,
        report: &mut StoreReport,
        progress: &mut dyn FnMut(CheckProgress),
    ) -> Result<(), TierError> {
        let of = report.pages;
        let mut waiting = Vec::new();
        let mut buf = AlignedBuf::zeroed(READ_PAGES * self.geometry.page_size);
        let mut read = |pages: &mut Vec<PageId>, report: &mut StoreReport| {
            self.check_fragments(pages, report);
            let mut reads: Vec<PageRead<'_>> = pages
                .iter()
                .zip(buf.chunks_mut(self.geometry.page_size))
                .map(|(page, buf)| PageRead { page: *page, buf, outcome: Err(self.not_allocated(*page)) })
                .collect();
            self.read_for_itself(&mut reads);
            for read in reads {
                match read.outcome {
                    Ok(_) => report.images_read += 1,
                    // Freed since it was listed.
                    Err(error) if error.kind == TierErrorKind::NotAllocated => {}
                    Err(error) => report.fault(error.to_string()),
                }
            }
            pages.clear();
        };
        let groups = report.groups;
        for map in 0..groups * self.geometry.maps_per_group {
            // Damaged map pages were reported above.
            self.map_pages(map, &mut |page, _| waiting.push(page)).or_else(|error| match error.kind {
                TierErrorKind::Damaged | TierErrorKind::Unreadable | TierErrorKind::NotAllocated => Ok(()),
                _ => Err(error),
            })?;
            while waiting.len() >= READ_PAGES
                || (map + 1 == groups * self.geometry.maps_per_group && !waiting.is_empty())
            {
                let rest = waiting.split_off(waiting.len().min(READ_PAGES));
                read(&mut waiting, report);
                waiting = rest;
            }
            progress(CheckProgress::Images(report.images_read, of));
        }
        Ok(())
    }

    /// Over an array, reads all fragments of each page, which is no more often than once, and has
    /// those that are wrong mended; leaves in `pages` what is not whole by that, or has no image.
    fn check_fragments(&self, pages: &mut Vec<PageId>, report: &mut StoreReport) {
        if self.group_codes.get().is_none() {
            return;
        }
        let is_whole = |page: &PageId, bytes: &mut [u8]| {
            let looked = self.look(*page).ok().filter(|looked| looked.entry.place().is_some());
            looked.is_some_and(|looked| self.mend(*page, &looked, bytes) && !lost::may_be_notice(bytes))
        };
        let left = thread::each(pages.chunks(FRAGMENTED_A_THREAD).collect(), |some: &[PageId]| {
            let mut bytes = AlignedBuf::zeroed(self.geometry.page_size);
            some.iter().copied().filter(|page| !is_whole(page, &mut bytes)).collect::<Vec<PageId>>()
        });
        let all = pages.len();
        *pages = left.concat();
        report.images_read += (all - pages.len()) as u64;
    }

    pub(crate) fn visit_pages(&self, visit: &mut dyn FnMut(PageId, Lsn)) -> Result<(), TierError> {
        let mut map = 0;
        while map < self.state.lock().space.groups() * self.geometry.maps_per_group {
            match self.map_pages(map, visit) {
                // Its group was cut off since the number of groups was read.
                Err(error) if error.kind == TierErrorKind::NotAllocated => {}
                outcome => outcome?,
            }
            map += 1;
        }
        Ok(())
    }

    /// Visits the allocated pages of one map page.
    fn map_pages(&self, map: u64, visit: &mut dyn FnMut(PageId, Lsn)) -> Result<(), TierError> {
        let found: Vec<(PageId, Lsn)> = {
            let _pins = self.pin(&[MetaId::Map(map)])?;
            let mut state = self.state.lock();
            let pages = (0..self.geometry.entries_per_map)
                .map(|slot| PageId(map * self.geometry.entries_per_map + slot));
            let mut found = Vec::new();
            for page in pages {
                let entry = state.entry(self, page)?;
                if let Some(version) = state.newest_version(page, entry) {
                    found.push((page, version));
                }
            }
            found
        };
        found.into_iter().for_each(|(page, version)| visit(page, version));
        Ok(())
    }
}
