//! How the bytes of a store are cut: metadata, which is copied, and places, which are coded.

use std::ops::Range;

/// The arithmetic of the file above the array, in bytes unless said otherwise.
///
/// ```text
/// 0                slots_end             groups_start     + group_bytes
/// | slot | slot | ... | unit | unit | ... | group 0 ........ | group 1 ...
///                                         | units | pad | place 0 | ... | place n-1 | pad |
///                                                       ^ places_start
/// ```
///
/// A *unit* is what the file above writes as a whole and recognises as whole: a slot before
/// `slots_end`, a metadata page after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Of a page, and so of a place.
    pub page_bytes: u64,
    /// Of a metadata page.
    pub meta_bytes: u64,
    /// Between the beginnings of two slots.
    pub slot_bytes: u64,
    /// Where the slots end.
    pub slots_end: u64,
    /// Where group 0 begins.
    pub groups_start: u64,
    /// Of a group.
    pub group_bytes: u64,
    /// Metadata of a group, before its first place.
    pub places_start: u64,
    /// Places of a group: a count.
    pub places: u64,
}

/// A part of a range of the file above.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Area {
    /// Metadata. Padding behind the places is in no area.
    Meta(Range<u64>),
    /// Whole places of a group.
    Places { group: u64, places: Range<u64> },
}

impl Shape {
    /// Whether a label may say this: parts follow each other, and no product overflows.
    pub(crate) fn is_sound(&self) -> bool {
        let sizes = [self.page_bytes, self.meta_bytes, self.slot_bytes];
        let powers = sizes.iter().all(|size| size.is_power_of_two() && (512..=1 << 20).contains(size));
        let ordered = self.slots_end.is_multiple_of(self.slot_bytes)
            && (self.slots_end..=1 << 30).contains(&self.groups_start)
            && (1..=1 << 20).contains(&self.places)
            && self.places_start.is_multiple_of(self.page_bytes.max(self.meta_bytes))
            && (self.meta_bytes..=1 << 30).contains(&self.places_start);
        powers
            && ordered
            && self.places_start + self.places * self.page_bytes <= self.group_bytes
            && self.group_bytes <= 1 << 50
    }

    /// The group that an offset lies in; `None` before the first.
    pub(crate) fn group_of(&self, offset: u64) -> Option<u64> {
        Some(offset.checked_sub(self.groups_start)? / self.group_bytes)
    }

    /// Groups of a file of this length, the last perhaps in part.
    pub(crate) fn groups_of(&self, len: u64) -> u64 {
        len.saturating_sub(self.groups_start).div_ceil(self.group_bytes)
    }

    pub(crate) fn group_start(&self, group: u64) -> u64 {
        self.groups_start + group * self.group_bytes
    }

    pub(crate) fn place_offset(&self, group: u64, place: u64) -> u64 {
        self.group_start(group) + self.places_start + place * self.page_bytes
    }

    /// The unit that an offset of metadata lies in.
    pub(crate) fn unit_of(&self, offset: u64) -> Range<u64> {
        if offset < self.slots_end {
            let start = offset / self.slot_bytes * self.slot_bytes;
            return start..start + self.slot_bytes;
        }
        let base = self.group_of(offset).map_or(self.slots_end, |group| self.group_start(group));
        let start = base + (offset - base) / self.meta_bytes * self.meta_bytes;
        start..start + self.meta_bytes
    }

    /// A number for the unit that an offset lies in: units of groups are numbered densely.
    pub(crate) fn unit_number(&self, offset: u64) -> u64 {
        let fixed = self.groups_start.div_ceil(self.meta_bytes);
        match self.group_of(offset) {
            None => self.unit_of(offset).start / self.meta_bytes,
            Some(group) => {
                let within = (offset - self.group_start(group)) / self.meta_bytes;
                fixed + group * (self.places_start / self.meta_bytes) + within
            }
        }
    }

    /// Cuts a range into its areas, in order. Places are touched as a whole only; a caller that
    /// asks for part of one is mistaken.
    pub(crate) fn areas(&self, range: Range<u64>) -> Vec<Area> {
        let (mut areas, mut at) = (Vec::new(), range.start);
        while at < range.end {
            let Some(group) = self.group_of(at) else {
                let end = range.end.min(self.groups_start);
                areas.push(Area::Meta(at..end));
                at = end;
                continue;
            };
            let start = self.group_start(group);
            let (places_start, places_end) =
                (start + self.places_start, self.place_offset(group, self.places));
            let end = if at < places_start {
                let end = range.end.min(places_start);
                areas.push(Area::Meta(at..end));
                end
            } else if at < places_end {
                let end = range.end.min(places_end);
                let (from, to) = (at - places_start, end - places_start);
                let whole = from.is_multiple_of(self.page_bytes) && to.is_multiple_of(self.page_bytes);
                assert!(whole, "places are read and written whole: {at}..{end}");
                areas.push(Area::Places { group, places: from / self.page_bytes..to / self.page_bytes });
                end
            } else {
                range.end.min(start + self.group_bytes)
            };
            at = end;
        }
        areas
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Small groups of 20 places of 1 KiB, with four metadata pages of 512 B.
    pub(crate) const SMALL: Shape = Shape {
        page_bytes: 1024,
        meta_bytes: 512,
        slot_bytes: 4096,
        slots_end: 16384,
        groups_start: 20480,
        group_bytes: 2048 + 21 * 1024,
        places_start: 2048,
        places: 20,
    };

    #[test]
    fn areas_cover_a_range_and_units_do_not_overlap() {
        assert!(SMALL.is_sound());
        let group = SMALL.group_start(1);
        let areas = SMALL.areas(0..SMALL.group_start(2));
        assert_eq!(
            areas,
            [
                Area::Meta(0..20480),
                Area::Meta(20480..22528),
                Area::Places { group: 0, places: 0..20 },
                Area::Meta(group..group + 2048),
                Area::Places { group: 1, places: 0..20 },
            ]
        );
        let run = SMALL.place_offset(1, 3)..SMALL.place_offset(1, 7);
        assert_eq!(SMALL.areas(run), [Area::Places { group: 1, places: 3..7 }]);
        let mut numbers = std::collections::BTreeMap::new();
        for offset in (0..SMALL.group_start(2)).step_by(512) {
            let within = SMALL.group_of(offset).map(|group| offset - SMALL.group_start(group));
            if within.is_some_and(|within| within >= SMALL.places_start) {
                continue;
            }
            let unit = SMALL.unit_of(offset);
            assert!(unit.contains(&offset));
            let known = numbers.entry(SMALL.unit_number(offset)).or_insert(unit.clone());
            assert_eq!(*known, unit, "a number is of one unit");
        }
    }

    #[test]
    #[should_panic(expected = "places are read and written whole")]
    fn part_of_a_place_is_refused() {
        let at = SMALL.place_offset(0, 1);
        let _ = SMALL.areas(at..at + 512);
    }

    #[test]
    fn a_shape_that_overflows_is_refused() {
        for broken in [
            Shape { page_bytes: 1000, ..SMALL },
            Shape { places: 1 << 40, ..SMALL },
            Shape { group_bytes: 2048, ..SMALL },
            Shape { groups_start: 0, ..SMALL },
            Shape { places_start: 0, ..SMALL },
        ] {
            assert!(!broken.is_sound(), "{broken:?}");
        }
    }
}
