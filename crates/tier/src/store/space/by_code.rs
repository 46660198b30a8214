//! Learned groups with available places, by the code of their places: over a single device there is
//! one code.

use super::{Geometry, GroupSpace, Space};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// The groups of one code.
#[derive(Debug, Default)]
pub(super) struct OfCode {
    /// By available places, then lowest group first.
    by_places: BTreeSet<(u32, Reverse<u64>)>,
    /// The segment each stream is filling, placed in runs: group and segment.
    pub open: [Option<(u64, usize)>; 2],
}

impl OfCode {
    /// Notes that a group has another number of available places.
    pub fn change(&mut self, group: u64, before: u32, now: u32) {
        self.by_places.remove(&(before, Reverse(group)));
        if now > 0 {
            self.by_places.insert((now, Reverse(group)));
        }
    }

    /// The group with the most available places, and how many it has.
    pub fn best(&self) -> Option<(u32, u64)> {
        self.by_places.last().map(|(places, Reverse(group))| (*places, *group))
    }
}

/// The groups of each code.
#[derive(Debug, Default)]
pub(super) struct ByCode(Vec<OfCode>);

impl ByCode {
    pub fn get(&self, code: u8) -> Option<&OfCode> {
        self.0.get(usize::from(code))
    }

    pub fn of(&mut self, code: u8) -> &mut OfCode {
        let index = usize::from(code);
        if index >= self.0.len() {
            self.0.resize_with(index + 1, OfCode::default);
        }
        &mut self.0[index]
    }

    /// The code of which a group has the most available places.
    pub fn any(&self) -> Option<&OfCode> {
        self.0.iter().max_by_key(|of_code| of_code.best().map_or(0, |(places, _)| places))
    }

    /// The last group with this many available places.
    pub fn empty(&self, places: u32) -> Option<u64> {
        self.empty_not_of(places, None).map(|(group, _)| group)
    }

    /// The last group with this many available places that has another code, and its code.
    pub fn empty_not_of(&self, places: u32, code: Option<u8>) -> Option<(u64, u8)> {
        let others = (0..).zip(&self.0).filter(|(of, _)| Some(*of) != code);
        let last = |(code, of_code): (u8, &OfCode)| {
            let mut found = of_code.by_places.range((places, Reverse(u64::MAX))..);
            found.next().filter(|(found, _)| *found == places).map(|(_, Reverse(group))| (*group, code))
        };
        others.filter_map(last).max()
    }

    /// No stream goes on in this group.
    pub fn close(&mut self, group: u64) {
        for open in self.0.iter_mut().flat_map(|of_code| &mut of_code.open) {
            open.take_if(|(open_group, _)| *open_group == group);
        }
    }

    pub fn contains(&self, code: u8, (places, group): (u32, u64)) -> bool {
        self.get(code).is_some_and(|of_code| of_code.by_places.contains(&(places, Reverse(group))))
    }

    /// Number of groups.
    pub fn groups(&self) -> usize {
        self.0.iter().map(|of_code| of_code.by_places.len()).sum()
    }
}

impl Space {
    /// The code of a learned group.
    pub(crate) fn code_of(&self, group: u64) -> Option<u8> {
        self.groups.get(group as usize).filter(|found| found.learned).map(|found| found.code())
    }
    /// Whether groups have had places of another code than the first.
    pub(crate) fn has_several_codes(&self) -> bool {
        self.by_code.0.len() > 1
    }
    /// Whether a learned group of this code has an available place.
    pub(crate) fn has_places(&self, code: u8) -> bool {
        self.by_code.get(code).is_some_and(|of_code| of_code.best().is_some())
    }
    /// The last learned group that has another code than this one, and all of whose places are
    /// available.
    pub(crate) fn empty_group_of_others(&self, geometry: &Geometry, code: u8) -> Option<u64> {
        self.by_code.empty_not_of(geometry.places_per_group as u32, Some(code)).map(|(group, _)| group)
    }
    /// Notes which code a group has now, or that it is not known, and unlearns it.
    pub(crate) fn has_code(&mut self, group: u64, code: Option<u8>) {
        self.unlearn(group);
        self.groups[group as usize].code = code;
    }
    /// Learned groups by code: of code n, number n.
    pub(crate) fn groups_by_code(&self) -> Vec<u64> {
        let mut groups = Vec::new();
        for code in self.groups.iter().filter(|group| group.learned).map(GroupSpace::code) {
            let index = usize::from(code);
            groups.resize(groups.len().max(index + 1), 0);
            groups[index] += 1;
        }
        groups
    }
}
