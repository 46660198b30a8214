//! What is known of the free space of groups, and which one is to be looked at next.

use super::{GroupSpace, Space, mask_of};
use crate::store::bitmap::{self, Which};
use crate::store::geometry::{Geometry, SEGMENT_PLACES};
use std::ops::Range;

impl Space {
    /// Counts what is available in a group, coded by `code`, from its bitmap page; `None` if that
    /// page is damaged: then nothing is available. Does nothing if the group was cut off.
    pub(crate) fn learn(&mut self, geometry: &Geometry, group: u64, (code, body): (u8, Option<&[u8]>)) {
        if group >= self.groups() {
            return;
        }
        // Bit by bit, as they are chosen: a damaged bitmap may count places that are held, or that
        // do not exist.
        let available = |which: Which| -> Vec<u8> {
            let Some(body) = body else { return vec![0; geometry.segments()] };
            let in_segment = |segment: usize| {
                let start = group * geometry.places_per_group + segment as u64 * SEGMENT_PLACES;
                let range = start..start + SEGMENT_PLACES;
                let held = match which {
                    Which::Places | Which::Deltas => self.held_mask(range),
                    Which::Pages => {
                        mask_of(&self.reserved, range.clone()) | mask_of(&self.freed_pages, range)
                    }
                };
                let free = !bitmap::word(geometry, body, which, segment) & geometry.segment_mask(segment);
                (free & !held).count_ones() as u8
            };
            (0..geometry.segments()).map(in_segment).collect()
        };
        let sum = |segments: &[u8]| segments.iter().map(|available| u32::from(*available)).sum();
        let backed = body.is_some_and(bitmap::is_backed);
        let closed = self.groups[group as usize].closed;
        let none = vec![0; geometry.segments()];
        let found = if backed { available(Which::Places) } else { none.clone() };
        let (idle, pages) = (if closed { sum(&found) } else { 0 }, sum(&available(Which::Pages)));
        let segments = if closed { none } else { found };
        let places = sum(&segments);
        self.segments.learn(geometry, group, &segments);
        self.learn_idle(geometry, group, body.filter(|_| backed));
        if body.is_some() && !backed {
            self.unbacked.insert(group);
        }
        self.groups[group as usize].learned = true;
        if body.is_some() {
            self.groups[group as usize].code.get_or_insert(code);
        }
        self.look_from_first_segment(group);
        self.change(group, |space| (space.places, space.idle, space.pages) = (places, idle, pages));
    }
    /// Forgets what is known of a group, which is then learned again when needed.
    pub(crate) fn unlearn(&mut self, group: u64) {
        self.change(group, |space| (space.places, space.pages) = (0, 0));
        let code = self.groups[group as usize].code;
        let unknown = GroupSpace { code, ..GroupSpace::default() };
        let before = std::mem::replace(&mut self.groups[group as usize], unknown);
        self.closed -= u64::from(before.closed);
        self.unbacked.remove(&group);
        self.segments.forget(group);
        self.unlearned = self.unlearned.start.min(group)..self.unlearned.end.max(group + 1);
        self.by_code.close(group);
    }
    /// The next group to learn: the first and the last in turn. Places are free in all groups if
    /// pages are written anew all over, and in the last ones only if the file has merely grown.
    pub(crate) fn next_to_learn(&mut self) -> Option<u64> {
        let is_learned = |group: u64| self.groups[group as usize].learned;
        let Range { start, end } = &mut self.unlearned;
        while start < end && is_learned(*start) {
            *start += 1;
        }
        while start < end && is_learned(*end - 1) {
            *end -= 1;
        }
        let from_end = self.groups.len() as u64 - *end < *start;
        (start < end).then(|| if from_end { *end - 1 } else { *start })
    }

    /// The first groups that are not learned, `most` at most.
    pub(crate) fn groups_to_learn(&mut self, most: usize) -> impl Iterator<Item = u64> + use<'_> {
        // Moves the ends of the range past those that are.
        self.next_to_learn();
        let range = self.unlearned.clone();
        range.filter(|group| !self.groups[*group as usize].learned).take(most)
    }

    /// The next group to learn before a page number is reserved. The lowest number is handed out
    /// first, so as a rule the first groups have none, and all behind them some: a bisection finds
    /// where those begin, and from there on they are learned in turn, so that numbers stay low. If
    /// that comes to the file's end, any group that is not learned is next.
    pub(crate) fn next_for_page(&mut self) -> Option<u64> {
        let groups = self.groups();
        let Range { start, end } = &mut self.first_free;
        if self.with_pages.first().is_some_and(|group| group < start) {
            return None;
        }
        *end = groups.min(*end);
        while start < end {
            let middle = *start + (*end - *start) / 2;
            match &self.groups[middle as usize] {
                group if !group.learned => return Some(middle),
                group if group.pages > 0 => *end = middle,
                _ => *start = middle + 1,
            }
        }
        while let Some(group) = self.groups.get(*start as usize) {
            match group {
                group if !group.learned => return Some(*start),
                group if group.pages > 0 => return None,
                _ => *start += 1,
            }
        }
        if self.with_pages.is_empty() { self.next_to_learn() } else { None }
    }
}
