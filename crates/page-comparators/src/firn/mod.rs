//! A model of Firn's delta layer over the stream: out of place, deltas against the base image in
//! the map's entry, complete without their predecessors; a write buffer; delta pages that a cleaner
//! gathers.
//!
//! The model has the design's rules, and none of the store's bytes. Images and delta pages go to
//! the emptiest segments, in runs; or only to whole empty segments, by their expected lifetime
//! ([`space::Placement`]). A page of the map is written at a checkpoint if one of its entries
//! changed; the map is in DRAM otherwise.
//!
//! Invariants: a page has a base image, and one delta at most, in the write buffer or in a delta
//! page; the one in the write buffer says all that the one in the delta page does, which stays live
//! until the newer one is on the device.

pub mod policy;

mod clean;
mod delta_pages;
mod lifetime;
mod segments;
pub mod space;
mod threaded;

use crate::changed::bytes_of;
use crate::medium::{Content, Medium, region};
use crate::method::{Method, Start, entry};
use clean::Circle;
use delta_pages::DeltaPages;
use firndb_tier::Changes;
use lifetime::Lifetimes;
use policy::{Choice, LeavingPage, Off, Policy};
use space::{Placement, Space};
use std::collections::{BTreeMap, BTreeSet};

/// Of a slot besides its ranges and bytes.
pub const SLOT_BYTES: u64 = 26;
/// Of a range in a slot: gap and length.
const RANGE_BYTES: u64 = 2;
/// Of a delta page besides its slots, and of a slot's offset.
const HEAD_BYTES: u64 = 20;
const OFFSET_BYTES: u64 = 2;
/// Of an entry of the write buffer besides the changed bytes.
const BUFFERED_BYTES: u64 = 64;
/// The write buffer is flushed at this many eighths of its budget.
const FULL_EIGHTHS: u64 = 7;
/// Delta pages of a flush, if the write buffer has as many.
const FLUSH_PAGES: u64 = 64;
/// Of this number of places at most one is a delta page.
const DELTA_SHARE: u64 = 8;
/// Entries of a map page, and its bytes.
const MAP_ENTRIES: u64 = 168;
const MAP_BYTES: u64 = 4096;
/// Of an entry of the map.
pub const ENTRY_BYTES: u64 = 24;

/// How the model is set.
pub struct FirnOptions {
    /// Bytes of the write buffer; with 0 every batch is flushed.
    pub buffer_bytes: u64,
    /// Whole or delta.
    pub policy: Box<dyn Policy>,
    /// Where new versions go.
    pub placement: Placement,
}

impl FirnOptions {
    /// Without deltas.
    #[must_use]
    pub fn off(placement: Placement) -> FirnOptions {
        FirnOptions { buffer_bytes: 0, policy: Box::new(Off), placement }
    }
}

/// What is known of a page of the database.
#[derive(Clone, Copy, Debug)]
struct Page {
    /// Place of the base image, plus one.
    base: u64,
    /// What differs from it.
    changed: Changes,
    spent_bytes: u64,
    delta_reads: u64,
    /// When it was merged into the write buffer; 0 if it is not in there.
    buffered: u64,
    /// Places taken when it was last given down to be written whole, plus one; 0: never.
    imaged: u64,
}

impl Default for Page {
    fn default() -> Page {
        Page { base: 0, changed: Changes::NONE, spent_bytes: 0, delta_reads: 0, buffered: 0, imaged: 0 }
    }
}

/// See the head of the file.
pub struct Firn {
    page_size: u64,
    options: FirnOptions,
    pages: Vec<Page>,
    allocated: u64,
    space: Space,
    lifetimes: Lifetimes,
    /// The page whose image is at each place, plus one.
    page_at: Vec<u64>,
    circle: Option<Circle>,
    deltas: DeltaPages,
    /// Pages in the write buffer, by when they were last merged into it.
    buffer: BTreeMap<u64, u64>,
    buffer_bytes: u64,
    now: u64,
    /// Images to be written at the end of the batch.
    batch: Vec<u64>,
    /// Map pages that changed since the last checkpoint.
    map_changed: BTreeSet<u64>,
}

impl Firn {
    /// Every page has an image, in the place of its number.
    #[must_use]
    pub fn new(start: Start, options: FirnOptions) -> Firn {
        let classes = match options.placement {
            Placement::Threaded => 1,
            Placement::Segments(segments) => segments.classes,
        };
        Firn {
            page_size: start.page_size,
            pages: (1..=start.pages).map(|base| Page { base, ..Page::default() }).collect(),
            allocated: start.pages,
            space: Space::new(start.pages, start.page_size, options.placement),
            lifetimes: Lifetimes::new(classes, start.pages),
            page_at: (1..=start.pages).collect(),
            circle: None,
            deltas: DeltaPages::default(),
            buffer: BTreeMap::new(),
            buffer_bytes: 0,
            now: 0,
            batch: Vec::new(),
            map_changed: BTreeSet::new(),
            options,
        }
    }

    fn slot_bytes(&self, changed: Changes) -> u64 {
        SLOT_BYTES + RANGE_BYTES * changed.runs().count() as u64 + bytes_of(changed, self.page_size)
    }

    fn leaving(&self, page: &Page, delta_bytes: u64) -> Choice {
        self.options.policy.choose(&LeavingPage {
            page_bytes: self.page_size,
            delta_bytes,
            spent_bytes: page.spent_bytes,
            delta_reads: page.delta_reads,
        })
    }

    fn unbuffer(&mut self, page: u64) {
        let found = entry(&mut self.pages, page);
        let when = std::mem::take(&mut found.buffered);
        if when > 0 {
            self.buffer_bytes -= BUFFERED_BYTES + bytes_of(found.changed, self.page_size);
            self.buffer.remove(&when);
        }
    }

    fn void(&mut self, page: u64) {
        if let Some(place) = self.deltas.void(page) {
            self.space.release(place);
        }
    }

    /// The page goes out whole, with the others of the batch.
    fn put_image(&mut self, page: u64) {
        let had_image = self.release_old(page);
        if !had_image && !self.batch.contains(&page) {
            self.allocated += 1;
            self.space.grow(self.allocated);
        }
        self.batch.push(page);
    }

    /// Forgets what the page has on the device and in the write buffer; false if it had no image.
    fn release_old(&mut self, page: u64) -> bool {
        self.unbuffer(page);
        self.void(page);
        let found = entry(&mut self.pages, page);
        let (base, imaged) = (found.base, found.imaged);
        *found = Page { imaged, ..Page::default() };
        if base > 0 {
            self.space.release(base - 1);
        }
        base > 0
    }

    fn write_images(&mut self, medium: &mut Medium<'_>) {
        self.batch.sort_unstable();
        self.batch.dedup();
        let mut batch = std::mem::take(&mut self.batch);
        self.make_space(batch.len() as u64, medium);
        let now = self.space.segments().map_or(0, |segments| segments.now);
        let mut classes: Vec<Vec<u64>> = Vec::new();
        for page in batch.drain(..) {
            let imaged = &mut entry(&mut self.pages, page).imaged;
            let lived = imaged.checked_sub(1).map(|imaged| now - imaged);
            *imaged = now + 1;
            let class = self.lifetimes.class(lived);
            classes.resize_with(classes.len().max(class + 1), Vec::new);
            classes[class].push(page);
        }
        for (class, pages) in classes.into_iter().enumerate() {
            let stream = self.space.segments().map_or(0, |segments| segments.images(class));
            self.place_images(&pages, stream, medium);
        }
    }

    /// Writes pages, which have no image, to places of a stream.
    fn place_images(&mut self, pages: &[u64], stream: usize, medium: &mut Medium<'_>) {
        let places = self.space.take(pages.len() as u64, stream);
        for (&page, &place) in pages.iter().zip(&places) {
            entry(&mut self.pages, page).base = place + 1;
            *entry(&mut self.page_at, place) = page + 1;
            self.map_changed.insert(page / MAP_ENTRIES);
        }
        medium.write_runs(Content::Image, region::IMAGES, places);
    }

    /// Writes buffered deltas, those merged longest ago first, until `left` bytes are buffered.
    fn flush(&mut self, left: u64, medium: &mut Medium<'_>) {
        let mut pages = Vec::new();
        while self.buffer_bytes > left {
            let (_, page) = self.buffer.pop_first().expect("the bytes are those of its entries");
            let found = entry(&mut self.pages, page);
            found.buffered = 0;
            self.buffer_bytes -= BUFFERED_BYTES + bytes_of(found.changed, self.page_size);
            pages.push(page);
        }
        // At most a page each.
        self.make_space(pages.len() as u64, medium);
        self.write_deltas(pages, medium);
    }

    /// Writes the deltas of these pages, each to the first of the new delta pages that has space.
    fn write_deltas(&mut self, pages: Vec<u64>, medium: &mut Medium<'_>) {
        let mut open: Vec<(u64, BTreeSet<u64>)> = Vec::new();
        for page in pages {
            let changed = entry(&mut self.pages, page).changed;
            if changed.is_none() {
                // Written whole when its image was moved meanwhile.
                continue;
            }
            let bytes = OFFSET_BYTES + self.slot_bytes(changed);
            let found = open.iter_mut().rev().take(FLUSH_PAGES as usize).find(|(left, _)| *left >= bytes);
            match found {
                Some((left, pages)) => {
                    *left -= bytes;
                    pages.insert(page);
                }
                None => open.push((self.page_size - HEAD_BYTES - bytes, BTreeSet::from([page]))),
            }
        }
        // Old slots stay until the new ones are on the device: their places are not free yet.
        let stream = self.space.segments().map_or(0, |segments| segments.deltas());
        let places = self.space.take(open.len() as u64, stream);
        medium.write_runs(Content::Delta, region::IMAGES, places.iter().copied());
        for (place, (_, pages)) in places.into_iter().zip(open) {
            for &page in &pages {
                self.void(page);
                let changed = entry(&mut self.pages, page).changed;
                let bytes = self.slot_bytes(changed);
                entry(&mut self.pages, page).spent_bytes += bytes;
                medium.packed(bytes);
                self.map_changed.insert(page / MAP_ENTRIES);
            }
            self.deltas.add(place, pages);
        }
    }

    /// Empties delta pages until there are as few as there may be.
    fn clean_deltas(&mut self, medium: &mut Medium<'_>) {
        while self.deltas.len() > self.space.places() / DELTA_SHARE {
            let mut gathered = Vec::new();
            // A few at a time, so that their slots fill new pages.
            for _ in 0..8 {
                let Some((place, pages)) = self.deltas.emptiest() else { break };
                self.gather(place, pages, &mut gathered, medium);
            }
            self.make_space(gathered.len() as u64, medium);
            self.write_deltas(gathered, medium);
        }
    }
}

impl Method for Firn {
    fn read(&mut self, page: u64, medium: &mut Medium<'_>) -> u64 {
        let delta = self.deltas.of(page);
        let found = entry(&mut self.pages, page);
        medium.read_page(Content::Image, region::IMAGES, found.base.max(1) - 1);
        match delta {
            Some(place) if found.buffered == 0 => {
                found.delta_reads += 1;
                medium.read_page(Content::Delta, region::IMAGES, place);
                1
            }
            _ => 0,
        }
    }

    fn write(&mut self, page: u64, changes: Option<Changes>, _: &mut Medium<'_>) {
        let mut found = *entry(&mut self.pages, page);
        let Some(changes) = changes.filter(|_| found.base > 0) else { return self.put_image(page) };
        found.changed |= changes;
        if self.leaving(&found, self.slot_bytes(found.changed)) == Choice::Whole {
            return self.put_image(page);
        }
        self.unbuffer(page);
        self.now += 1;
        found.buffered = self.now;
        *entry(&mut self.pages, page) = found;
        self.buffer.insert(self.now, page);
        self.buffer_bytes += BUFFERED_BYTES + bytes_of(found.changed, self.page_size);
    }

    fn clean(&mut self, page: u64, _: &mut Medium<'_>) {
        let found = *entry(&mut self.pages, page);
        let has_delta = found.buffered > 0 || self.deltas.of(page).is_some();
        if has_delta && self.leaving(&found, 0) == Choice::Whole {
            self.put_image(page);
        }
    }

    fn end_batch(&mut self, medium: &mut Medium<'_>) {
        self.write_images(medium);
        let budget = self.options.buffer_bytes;
        if self.buffer_bytes > budget * FULL_EIGHTHS / 8 {
            let flushed = (FLUSH_PAGES * self.page_size).min(budget / 2);
            self.flush((budget * FULL_EIGHTHS / 8).saturating_sub(flushed), medium);
            self.clean_deltas(medium);
        }
    }

    fn free(&mut self, page: u64) {
        self.unbuffer(page);
        self.void(page);
        self.batch.retain(|&waiting| waiting != page);
        let found = std::mem::take(entry(&mut self.pages, page));
        if found.base > 0 {
            self.space.release(found.base - 1);
            self.allocated -= 1;
            self.map_changed.insert(page / MAP_ENTRIES);
        }
    }

    fn checkpoint(&mut self, medium: &mut Medium<'_>) {
        self.write_images(medium);
        self.flush(0, medium);
        self.clean_deltas(medium);
        for map_page in std::mem::take(&mut self.map_changed) {
            medium.write(Content::Map, region::MAP + map_page * MAP_BYTES, MAP_BYTES);
        }
    }

    fn table_bytes(&self) -> u64 {
        self.pages.len() as u64 * ENTRY_BYTES
    }
}

#[cfg(test)]
mod tests;
