//! Places that records of shadows name (`store/held_shadows.rs`), held until others have the images
//! there. Such a place may be in use as any other; once it is not, it stays out of what is
//! available, whatever its bitmap page says.

use super::super::bitmap::{self, Which};
use super::{Geometry, Place, Space};
use firndb_base::sync::Arc;
use firndb_base::{Lsn, PageId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// An image that no log has, at its first place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShadowImage {
    /// LSN of the record that names its place.
    pub record: Lsn,
    /// Its page.
    pub page: PageId,
    /// The page's version.
    pub version: Lsn,
    /// The checksum of image, page number and version.
    pub checksum: u32,
    pub(crate) place: Place,
}

/// Shadows whose places are held.
#[derive(Debug, Default)]
pub(crate) struct Shadows {
    /// Those are held whose records lie at or after this LSN; `None`: none are.
    pub from: Option<Lsn>,
    /// The newest record whose images are not held.
    pub newest_not_held: Option<Lsn>,
    records: BTreeMap<Lsn, Vec<ShadowImage>>,
    /// The record of each place.
    places: BTreeMap<u64, Lsn>,
    /// Those of learned groups that would be available.
    idle: BTreeSet<u64>,
    /// Places of writes under way that will be held.
    pub coming: u64,
    /// Writes under way of which no place will be held.
    pub unheld: u64,
    /// Copies of images, so that they need not be read.
    kept: BTreeMap<u64, Arc<[u8]>>,
    kept_bytes: usize,
    /// Most bytes of copies.
    pub keep_bytes: usize,
    /// Held places are given out all the same: shows that tests notice.
    pub is_broken: bool,
}

impl Shadows {
    /// Places held, those of writes under way included.
    pub(crate) fn count(&self) -> u64 {
        self.places.len() as u64 + self.coming
    }
    /// Places held that are known to be in no other use.
    pub(super) fn idle(&self) -> u64 {
        self.idle.len() as u64
    }
    /// The images of `records`, in the order of the log.
    pub(crate) fn of_records(&self, records: Range<Lsn>) -> Vec<ShadowImage> {
        self.records.range(records).flat_map(|(_, images)| images).copied().collect()
    }
    /// LSN of the oldest record.
    pub(crate) fn oldest(&self) -> Option<Lsn> {
        self.records.first_key_value().map(|(lsn, _)| *lsn)
    }
    /// Forgets records before this LSN; without one, all.
    pub(crate) fn forget_before(&mut self, from: Option<Lsn>) {
        self.forget_while(|oldest, _| from.is_none_or(|from| oldest < from));
    }
    /// Forgets the oldest records while the others name at least `kept` places.
    pub(crate) fn forget_oldest(&mut self, kept: u64) {
        self.forget_while(|_, others| others >= kept);
    }
    /// Forgets the oldest record while `goes` says so of it, told how many places the others name.
    fn forget_while(&mut self, goes: impl Fn(Lsn, u64) -> bool) {
        while let Some(oldest) = self.records.first_entry()
            && goes(*oldest.key(), (self.places.len() as u64).saturating_sub(oldest.get().len() as u64))
        {
            for image in oldest.remove() {
                self.forget(image.place);
                self.idle.remove(&image.place.0);
            }
        }
    }
    /// Whether there is DRAM for copies of this many more bytes.
    pub(crate) fn keeps(&self, bytes: usize) -> bool {
        self.from.is_some() && self.kept_bytes + bytes <= self.keep_bytes
    }
    /// Whether half of the space for copies is taken.
    pub(crate) fn keeps_many(&self) -> bool {
        self.kept_bytes > self.keep_bytes / 2
    }
    /// Keeps a copy of the image at a place, if that is held.
    pub(crate) fn keep(&mut self, place: Place, image: Arc<[u8]>) {
        if self.places.contains_key(&place.0) {
            self.kept_bytes += image.len();
            let before = self.kept.insert(place.0, image);
            self.kept_bytes -= before.map_or(0, |before| before.len());
        }
    }
    /// The copy of an image.
    pub(crate) fn kept(&self, image: &ShadowImage) -> Option<Arc<[u8]>> {
        self.kept.get(&image.place.0).filter(|_| self.holds(image)).cloned()
    }
    /// Forgets a place and its copy.
    fn forget(&mut self, place: Place) {
        self.places.remove(&place.0);
        self.kept_bytes -= self.kept.remove(&place.0).map_or(0, |kept| kept.len());
    }
    pub(crate) fn holds(&self, image: &ShadowImage) -> bool {
        self.places.get(&image.place.0) == Some(&image.record)
    }
    pub(super) fn holds_place(&self, place: u64) -> bool {
        !self.is_broken && self.places.contains_key(&place)
    }
    pub(super) fn holds_any(&self, places: Range<u64>) -> bool {
        self.places.range(places).next().is_some()
    }
    /// The places within a segment, as bits.
    pub(super) fn mask(&self, range: Range<u64>) -> u64 {
        let start = range.start;
        if self.is_broken {
            return 0;
        }
        self.places.range(range).fold(0, |mask, (place, _)| mask | 1 << (place - start))
    }
}

impl Space {
    /// Holds the places of a record's images.
    pub(crate) fn hold_shadows(&mut self, geometry: &Geometry, images: &[ShadowImage]) {
        for image in images {
            if let Some(before) = self.shadows.places.insert(image.place.0, image.record) {
                // Only recovery, which may not know that others have it, sees a record of a place
                // that was reused.
                let older = self.shadows.records.get_mut(&before).expect("each place has its record");
                older.retain(|older| older.place != image.place);
                if older.is_empty() {
                    self.shadows.records.remove(&before);
                }
            }
            self.shadows.records.entry(image.record).or_default().push(*image);
            debug_assert!(geometry.group_of_place(image.place) < self.groups());
        }
    }

    /// From now on holds the places of records at or after `from`, if that is given, and no others.
    pub(crate) fn hold_shadows_from(&mut self, geometry: &Geometry, from: Option<Lsn>) {
        self.shadows.from = from;
        let kept = from.map_or(BTreeMap::new(), |from| self.shadows.records.split_off(&from));
        for image in std::mem::replace(&mut self.shadows.records, kept).into_values().flatten() {
            self.shadows.forget(image.place);
            if self.shadows.idle.remove(&image.place.0) {
                self.make_available(geometry, image.place);
            }
        }
    }

    /// Notes that a place would be available; whether it is held.
    pub(super) fn is_held_when_idle(&mut self, place: Place) -> bool {
        let is_held = self.shadows.holds_place(place.0);
        if is_held {
            self.shadows.idle.insert(place.0);
        }
        is_held
    }

    /// Notes which held places of a group would be available, by its bitmap page; none without.
    pub(super) fn learn_idle(&mut self, geometry: &Geometry, group: u64, body: Option<&[u8]>) {
        if self.shadows.is_broken {
            return;
        }
        let first = group * geometry.places_per_group;
        let held = self.shadows.places.range(first..first + geometry.places_per_group);
        for place in held.map(|(place, _)| *place) {
            let is_free = |body: &[u8]| !bitmap::get(geometry, body, Which::Places, place - first);
            if body.is_some_and(is_free) && !self.held_places.contains(&place) {
                self.shadows.idle.insert(place);
            } else {
                self.shadows.idle.remove(&place);
            }
        }
    }
}
