//! Whole segments: how many places of each are available, and which are wholly so.
//!
//! A segment is *whole* if all its places are available. Placement by segments takes places from
//! whole segments only, and goes on in the segment that it opened, so what successive batches write
//! is one run on the device. Kept for learned groups: eight bytes for each 64 places.
//!
//! Invariants: `whole` has exactly those segments of learned groups of which all places are
//! available; `loose` has exactly those groups in which others have available places.

use super::geometry::{Geometry, SEGMENT_PLACES};
use std::collections::{BTreeMap, BTreeSet};

/// What goes to its own segment. Measured: more of them, for classes of pages by the time between
/// two writes, save the cleaner one copy in a hundred, and cost the drive its one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// New versions of pages, and delta pages.
    New,
    /// What the cleaner moves.
    Moved,
}

const STREAMS: usize = 2;

/// Whole segments that only the cleaner takes: without one it could not make another.
pub(crate) const WHOLE_KEPT: u64 = 2;

/// A segment: its group, and which of that group's it is.
pub(crate) type SegmentAt = (u64, usize);

#[derive(Clone, Copy, Debug, Default)]
struct Segment {
    available: u8,
    /// `clock` when it was opened last; 0 if that was not since the store was opened.
    opened: u32,
}

/// The segment in which a stream goes on, and the first place in it not yet chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    pub at: SegmentAt,
    pub next: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Segments {
    /// Of each group, if it is learned.
    groups: Vec<Box<[Segment]>>,
    whole: BTreeSet<SegmentAt>,
    /// Groups with available places in segments that are not whole, and how many.
    loose: BTreeMap<u64, u32>,
    open: [Option<Open>; STREAMS],
    /// Those that the cleaner is emptying.
    avoided: BTreeSet<SegmentAt>,
    /// Segments opened since the store was opened.
    clock: u32,
    /// Places that those had which were not opened by the cleaner.
    by_others: u64,
}

/// What makes a segment worth emptying.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Candidate {
    pub at: SegmentAt,
    pub places: u64,
    pub available: u64,
    /// Segments opened since this one was.
    pub age: u32,
}

impl Segments {
    /// Notes how many places of each segment of a group are available.
    pub(crate) fn learn(&mut self, geometry: &Geometry, group: u64, available: &[u8]) {
        assert_eq!(available.len(), geometry.segments());
        let index = group as usize;
        if index >= self.groups.len() {
            self.groups.resize_with(index + 1, Box::default);
        }
        if self.groups[index].is_empty() {
            self.groups[index] = vec![Segment::default(); available.len()].into();
        }
        for (segment, available) in available.iter().enumerate() {
            self.set(geometry, (group, segment), *available);
        }
        for open in &mut self.open {
            open.take_if(|open| open.at.0 == group && available[open.at.1] == 0);
        }
    }

    pub(crate) fn forget(&mut self, group: u64) {
        if let Some(segments) = self.groups.get_mut(group as usize) {
            (0..segments.len()).for_each(|segment| _ = self.whole.remove(&(group, segment)));
            *segments = Box::default();
        }
        self.loose.remove(&group);
        for open in &mut self.open {
            open.take_if(|open| open.at.0 == group);
        }
    }

    pub(crate) fn set(&mut self, geometry: &Geometry, at: SegmentAt, available: u8) {
        let Some(segment) = self.groups.get_mut(at.0 as usize).and_then(|group| group.get_mut(at.1)) else {
            return;
        };
        let all = geometry.segment_mask(at.1).count_ones();
        let before = std::mem::replace(&mut segment.available, available);
        match (u32::from(before) == all, u32::from(available) == all) {
            (false, true) => _ = self.whole.insert(at),
            (true, false) => _ = self.whole.remove(&at),
            _ => {}
        }
        let loose = |available: u8| if u32::from(available) == all { 0 } else { u32::from(available) };
        let of_group = self.loose.entry(at.0).or_default();
        *of_group = *of_group + loose(available) - loose(before);
        if *of_group == 0 {
            self.loose.remove(&at.0);
        }
    }

    /// The first group with an available place in a segment that is neither whole nor avoided, or
    /// else, with `false`, the first with one in an avoided segment.
    pub(crate) fn loose_group(&self) -> Option<(u64, bool)> {
        let is_other = |(group, loose): (&u64, &u32)| {
            let avoided = self.avoided.range((*group, 0)..=(*group, usize::MAX));
            let avoided = avoided.filter(|at| !self.whole.contains(at));
            let of_group = self.groups.get(*group as usize);
            let available = avoided.filter_map(|at| of_group?.get(at.1)).map(|it| u32::from(it.available));
            (*loose > available.sum()).then_some((*group, true))
        };
        let any = || self.loose.first_key_value().map(|(group, _)| (*group, false));
        self.loose.iter().find_map(is_other).or_else(any)
    }

    /// Available places of learned groups in segments that are not whole.
    pub(crate) fn loose_places(&self) -> u64 {
        self.loose.values().map(|places| u64::from(*places)).sum()
    }

    /// From now on scattered writes leave these segments alone as long as others have places: the
    /// cleaner is emptying them.
    pub(crate) fn avoid(&mut self, segments: BTreeSet<SegmentAt>) {
        self.avoided = segments;
    }
    pub(crate) fn is_avoided(&self, at: SegmentAt) -> bool {
        self.avoided.contains(&at)
    }

    /// Whether a stream goes on in the segment.
    pub(crate) fn is_open(&self, at: SegmentAt) -> bool {
        self.open.iter().flatten().any(|open| open.at == at)
    }

    /// Whether the segment is whole, or was since the clock stood at `since`; or is not known.
    pub(crate) fn was_whole(&self, at: SegmentAt, since: u32) -> bool {
        let segment = self.groups.get(at.0 as usize).and_then(|group| group.get(at.1));
        segment.is_none_or(|segment| segment.opened > since) || self.whole.contains(&at)
    }

    /// Notes that one more place of a learned group is available.
    pub(crate) fn add_one(&mut self, geometry: &Geometry, at: SegmentAt) {
        if let Some(segment) = self.groups.get(at.0 as usize).and_then(|group| group.get(at.1)) {
            self.set(geometry, at, segment.available + 1);
        }
    }

    /// Available places of a learned group.
    pub(crate) fn available(&self, group: u64) -> u32 {
        let segments = self.groups.get(group as usize).map_or(&[][..], |segments| segments);
        segments.iter().map(|segment| u32::from(segment.available)).sum()
    }

    /// Whole segments that are not open.
    pub(crate) fn whole(&self) -> u64 {
        let open = self.open.iter().flatten().filter(|open| self.whole.contains(&open.at)).count();
        (self.whole.len() - open) as u64
    }

    /// Segments opened since the store was opened.
    pub(crate) fn clock(&self) -> u32 {
        self.clock
    }

    /// Places of whole segments, those that the cleaner has left in its own, and those that others
    /// have had: what emptying segments increases, and nothing else does but freeing pages.
    pub(crate) fn made(&self, geometry: &Geometry) -> u64 {
        let places = |at: &SegmentAt| u64::from(geometry.segment_mask(at.1).count_ones());
        let whole: u64 = self.whole.iter().filter(|at| !self.is_open(**at)).map(places).sum();
        let left =
            self.open[Stream::Moved as usize].map_or(0, |open| places(&open.at).saturating_sub(open.next));
        whole + left + self.by_others
    }

    /// Where a stream takes its next places: in its open segment, or else in the next whole one
    /// after it, which is opened; `None` if there is none for it.
    pub(crate) fn open(&mut self, stream: Stream) -> Option<Open> {
        let last = self.open[stream as usize];
        if let Some(open) = last.filter(|open| open.next < SEGMENT_PLACES) {
            return Some(open);
        }
        if stream != Stream::Moved && self.whole() <= WHOLE_KEPT {
            return None;
        }
        let others: Vec<SegmentAt> = self.open.iter().flatten().map(|open| open.at).collect();
        let after = last.map_or((0, 0), |open| (open.at.0, open.at.1 + 1));
        let next = self.whole.range(after..).chain(self.whole.range(..after));
        let at = *next.into_iter().find(|at| !others.contains(at))?;
        self.clock = self.clock.saturating_add(1);
        let segment = &mut self.groups[at.0 as usize][at.1];
        segment.opened = self.clock;
        if stream != Stream::Moved {
            self.by_others += u64::from(segment.available);
        }
        self.open[stream as usize] = Some(Open { at, next: 0 });
        self.open[stream as usize]
    }

    /// Notes up to where a stream has chosen places in its open segment, and what is left there.
    pub(crate) fn took(&mut self, geometry: &Geometry, stream: Stream, next: u64, available: u8) {
        let open = self.open[stream as usize].as_mut().expect("it is open");
        open.next = next;
        let at = open.at;
        self.set(geometry, at, available);
    }

    /// The segments of a group that could be emptied: not open, in part in use.
    pub(crate) fn candidates(&self, geometry: &Geometry, group: u64) -> Vec<Candidate> {
        let Some(segments) = self.groups.get(group as usize) else { return Vec::new() };
        let each = segments.iter().enumerate().map(|(index, segment)| Candidate {
            at: (group, index),
            places: u64::from(geometry.segment_mask(index).count_ones()),
            available: u64::from(segment.available),
            age: self.clock - segment.opened,
        });
        each.filter(|found| found.available < found.places && !self.is_open(found.at)).collect()
    }

    /// Asserts what the head states of a group, which has so many available places.
    pub(crate) fn check(&self, geometry: &Geometry, group: u64, places: u32) {
        assert_eq!(self.available(group), places, "group {group}");
        let segments = self.groups.get(group as usize).map_or(&[][..], |segments| segments);
        let mut loose = 0;
        for (index, segment) in segments.iter().enumerate() {
            let all = u32::from(segment.available) == geometry.segment_mask(index).count_ones();
            assert_eq!(self.whole.contains(&(group, index)), all, "segment {index} of group {group}");
            loose += if all { 0 } else { u32::from(segment.available) };
        }
        assert_eq!(self.loose.get(&group).copied().unwrap_or(0), loose, "group {group}");
    }
}
