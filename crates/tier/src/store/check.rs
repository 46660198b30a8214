//! Checking the whole store.

use super::bitmap::{self, Which};
use super::entry::Entry;
use super::geometry::Place;
use super::meta_page::{self, MetaId};
use super::totals::Totals;
use super::{State, Store, suspects};
use crate::{PageRead, TierError, TierErrorKind};
use firn_base::{Lsn, PageId};
use firn_device::AlignedBuf;

/// Sentences kept; more damage than this is counted only.
const SENTENCES_MAX: usize = 1000;
/// Images read at a time.
const READ_PAGES: usize = 64;

/// How far a check has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckProgress {
    /// Metadata of so many groups walked, of so many.
    Groups(u64, u64),
    /// So many page images read, of about so many.
    Images(u64, u64),
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreReport {
    /// Groups of the file.
    pub groups: u64,
    /// Pages allocated.
    pub pages: u64,
    /// Of these, pages that have an image.
    pub pages_placed: u64,
    /// Images read and verified.
    pub images_read: u64,
    /// Faults found.
    pub faults: u64,
    /// Sentences, one for each of the first thousand faults.
    pub damage: Vec<String>,
}

impl StoreReport {
    fn fault(&mut self, sentence: String) {
        self.faults += 1;
        if self.damage.len() < SENTENCES_MAX {
            self.damage.push(sentence);
        }
    }
}

impl Store {
    pub(crate) fn check_all(
        &self,
        images: bool,
        progress: &mut dyn FnMut(CheckProgress),
    ) -> Result<StoreReport, TierError> {
        let mut report = StoreReport::default();
        {
            // The one place where I/O happens under `order`: what is compared must not change meanwhile.
            let header = self.growth.lock();
            let _write_back = self.write_back.lock();
            let _order = self.order.lock();
            self.check_slots(header.groups, &mut report)?;
            self.check_metadata(header.groups, &mut report, progress)?;
        }
        if images {
            self.check_images(&mut report, progress)?;
        }
        Ok(report)
    }

    /// Compares what the device holds of each metadata page with what is in memory: a page in use is not
    /// read otherwise, and damage or a lost write would be met at the next opening.
    fn check_slots(&self, groups: u64, report: &mut StoreReport) -> Result<(), TierError> {
        let all = (0..groups).flat_map(|group| meta_page::pages_of_group(&self.geometry, group));
        for id in std::iter::once(MetaId::Totals).chain(all) {
            let loaded = match self.load(&[id]).pop().expect("one was asked for") {
                Ok(loaded) => loaded,
                // Those not in memory are reported when they are loaded below.
                Err(error) if error.kind == TierErrorKind::Damaged => {
                    if self.state.lock().cache.contains(id) {
                        report.fault(error.message);
                    }
                    continue;
                }
                Err(error) => return Err(error),
            };
            let (sequence, changed) = {
                let state = self.state.lock();
                let Some(sequence) = state.cache.sequence(id) else { continue };
                (sequence, state.cache.is_changed(id))
            };
            if loaded.image.sequence != sequence {
                report.fault(format!(
                    "{id:?} was written {sequence} times, but the device holds version {}: a write was lost, or the \
                     newest version is damaged",
                    loaded.image.sequence
                ));
            } else if !loaded.sound && !changed {
                // (After a recovery a slot that was torn stays bad until what redo changed is written.)
                report.fault(suspects::ambiguous(id).message);
            }
        }
        Ok(())
    }

    fn check_metadata(
        &self,
        groups: u64,
        report: &mut StoreReport,
        progress: &mut dyn FnMut(CheckProgress),
    ) -> Result<(), TierError> {
        report.groups = groups;
        let mut used = vec![0u64; (groups * self.geometry.places_per_group).div_ceil(64) as usize];
        for group in 0..groups {
            for map in group * self.geometry.maps_per_group..(group + 1) * self.geometry.maps_per_group {
                let ids = [MetaId::Map(map), MetaId::Bitmap(group)];
                match self.pin(&ids) {
                    Ok(_pins) => self.check_map(&mut self.state.lock(), map, &mut used, report),
                    Err(error) if error.kind == TierErrorKind::Damaged => report.fault(error.message),
                    Err(error) => return Err(error),
                }
            }
            progress(CheckProgress::Groups(group + 1, groups));
        }
        let mut unbacked_groups = 0;
        for group in 0..groups {
            let Ok(_pins) = self.pin(&[MetaId::Bitmap(group)]) else { continue };
            let mut state = self.state.lock();
            let body = &state.cache.get(MetaId::Bitmap(group)).expect("just pinned").body;
            unbacked_groups += u64::from(!bitmap::is_backed(body));
            if !bitmap::is_backed(body) && bitmap::count(&self.geometry, body, Which::Places) > 0 {
                report.fault(format!("group {group} gave its space back but has places in use"));
            }
            for index in 0..self.geometry.places_per_group {
                let place = group * self.geometry.places_per_group + index;
                let named = used[(place / 64) as usize] >> (place % 64) & 1 == 1;
                if bitmap::get(&self.geometry, body, Which::Places, index) != named {
                    let what = if named { "named by a page but free" } else { "in use but named by no page" };
                    report.fault(format!("{:?} is {what} in the bitmap page of group {group}", Place(place)));
                }
            }
        }
        let found = Totals { pages: report.pages, places: report.pages_placed, unbacked_groups };
        let kept = self.state.lock().totals();
        if found != kept && report.faults == 0 {
            report.fault(format!("the totals page says {kept:?}, the maps say {found:?}"));
        }
        Ok(())
    }

    fn check_map(&self, state: &mut State, map: u64, used: &mut [u64], report: &mut StoreReport) {
        let geometry = &self.geometry;
        let group = map / geometry.maps_per_group;
        let entries: Vec<(PageId, Result<Entry, TierError>)> = (0..geometry.entries_per_map)
            .map(|slot| PageId(map * geometry.entries_per_map + slot))
            .map(|page| (page, state.entry(self, page)))
            .collect();
        let body = &state.cache.get(MetaId::Bitmap(group)).expect("the caller pinned it").body;
        for (page, entry) in entries {
            let bit = bitmap::get(geometry, body, Which::Pages, geometry.index_of_page(page));
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    report.fault(error.message);
                    continue;
                }
            };
            let allocated = entry != Entry::Free || page.0 == 0;
            if bit != allocated {
                report.fault(format!(
                    "{page:?} is {entry:?} in its map page, but its bit in group {group} says {bit}"
                ));
            }
            report.pages += u64::from(entry != Entry::Free);
            if let Some(place) = entry.place() {
                report.pages_placed += 1;
                let (word, bit) = ((place.0 / 64) as usize, 1u64 << (place.0 % 64));
                if used[word] & bit != 0 {
                    report.fault(format!("{page:?} lies at {place:?}, which another page names too"));
                }
                used[word] |= bit;
            }
        }
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
            let mut reads: Vec<PageRead<'_>> = pages
                .iter()
                .zip(buf.chunks_mut(self.geometry.page_size))
                .map(|(page, buf)| PageRead { page: *page, buf, outcome: Err(self.not_allocated(*page)) })
                .collect();
            self.read_pages(&mut reads);
            for read in reads {
                match read.outcome {
                    Ok(_) => report.images_read += 1,
                    // Freed since it was listed.
                    Err(error) if error.kind == TierErrorKind::NotAllocated => {}
                    Err(error) => report.fault(error.message),
                }
            }
            pages.clear();
        };
        let groups = report.groups;
        for map in 0..groups * self.geometry.maps_per_group {
            // Damaged map pages were reported above.
            self.map_pages(map, &mut |page, _| waiting.push(page)).or_else(|error| match error.kind {
                TierErrorKind::Damaged | TierErrorKind::NotAllocated => Ok(()),
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

    pub(crate) fn visit_pages(&self, visit: &mut dyn FnMut(PageId, Lsn)) -> Result<(), TierError> {
        let mut map = 0;
        while map < self.state.lock().space.groups() * self.geometry.maps_per_group {
            self.map_pages(map, visit)?;
            map += 1;
        }
        Ok(())
    }

    /// Shows the allocated pages of one map page.
    fn map_pages(&self, map: u64, visit: &mut dyn FnMut(PageId, Lsn)) -> Result<(), TierError> {
        let found: Vec<(PageId, Lsn)> = {
            let _pins = self.pin(&[MetaId::Map(map)])?;
            let mut state = self.state.lock();
            let pages = (0..self.geometry.entries_per_map)
                .map(|slot| PageId(map * self.geometry.entries_per_map + slot));
            let mut found = Vec::new();
            for page in pages {
                if let Some(version) = state.entry(self, page)?.version() {
                    found.push((page, version));
                }
            }
            found
        };
        found.into_iter().for_each(|(page, version)| visit(page, version));
        Ok(())
    }
}
