//! Groups that are out of use, and what is known of whole groups. A closed group's places are not
//! chosen; what becomes free there is counted.

use super::{Geometry, GroupSpace, Space};

impl Space {
    /// Whether all places and page numbers of a learned group are available.
    pub(crate) fn is_vacant(&self, geometry: &Geometry, group: u64) -> bool {
        let all = geometry.places_per_group as u32;
        let is_vacant = |group: &GroupSpace| group.places.max(group.idle) == all && group.pages == all;
        self.groups.get(group as usize).is_some_and(is_vacant)
    }
    /// Whether no page number of a group is in use whose space was returned.
    pub(crate) fn is_hole(&self, geometry: &Geometry, group: u64) -> bool {
        let all = geometry.places_per_group as u32;
        let is_hole = |found: &GroupSpace| found.pages == all && !found.closed;
        self.unbacked.contains(&group) && self.groups.get(group as usize).is_some_and(is_hole)
    }
    /// Page numbers in use in learned groups from `first` on.
    pub(crate) fn pages_used_from(&self, geometry: &Geometry, first: u64) -> u64 {
        let groups = self.groups.iter().skip(first as usize).filter(|group| group.learned);
        groups.map(|group| geometry.places_per_group - u64::from(group.pages)).sum()
    }
    /// The group from which on no page number is in use.
    pub(crate) fn end_of_pages(&self, geometry: &Geometry) -> u64 {
        let all = geometry.places_per_group as u32;
        let last = self.groups.iter().rposition(|group| !group.learned || group.pages < all);
        last.map_or(0, |last| last as u64 + 1)
    }
    /// Takes a group out of use: its places are not chosen until it is unlearned and learned
    /// again.
    pub(crate) fn close_places(&mut self, group: u64) {
        if std::mem::replace(&mut self.groups[group as usize].closed, true) {
            return;
        }
        self.closed += 1;
        self.change(group, |space| (space.idle, space.places) = (space.places, 0));
        self.segments.forget(group);
        self.by_code.close(group);
    }
    /// Number of closed groups.
    pub(crate) fn closed(&self) -> u64 {
        self.closed
    }
    pub(crate) fn is_closed(&self, group: u64) -> bool {
        self.groups.get(group as usize).is_some_and(|group| group.closed)
    }
    /// Whether all places of a closed group would be available.
    pub(crate) fn is_emptied(&self, geometry: &Geometry, group: u64) -> bool {
        let found = self.groups.get(group as usize);
        found.is_some_and(|group| group.closed && u64::from(group.idle) == geometry.places_per_group)
    }
    /// Lets the places of closed groups be taken again, once they are learned; whether there was
    /// one.
    pub(crate) fn open_closed(&mut self) -> bool {
        let closed: Vec<u64> = (0..self.groups()).filter(|group| self.is_closed(*group)).collect();
        closed.iter().for_each(|group| self.unlearn(*group));
        !closed.is_empty()
    }
    /// Learned groups that are in use, and have space on the device, with their available places.
    pub(crate) fn open_groups(&self) -> impl Iterator<Item = (u64, u32)> {
        let open = |(number, group): &(u64, &GroupSpace)| {
            group.learned && !group.closed && !self.unbacked.contains(number)
        };
        (0..).zip(&self.groups).filter(open).map(|(number, group)| (number, group.places))
    }
    /// Whether a place of the group is held.
    pub(crate) fn is_held(&self, geometry: &Geometry, group: u64) -> bool {
        let first = group * geometry.places_per_group;
        let places = first..first + geometry.places_per_group;
        self.held_places.range(places).next().is_some() || self.has_held_shadows(geometry, group)
    }
    /// Whether a place of the group is held for the image of a shadow.
    pub(crate) fn has_held_shadows(&self, geometry: &Geometry, group: u64) -> bool {
        let first = group * geometry.places_per_group;
        self.shadows.holds_any(first..first + geometry.places_per_group)
    }
    /// Places held: of writes under way, freed by records that are not durable, and of shadows
    /// whose pages are elsewhere.
    pub(crate) fn held(&self) -> u64 {
        self.held_places.len() as u64 + self.shadows.idle()
    }
}
