//! Discards that failed, and the end of a file that could not be cut off.
//!
//! Giving space back is advice: the map record that makes a group a hole, or the header that counts
//! a group less, is durable before the device is asked. What the device keeps although it was asked
//! costs space and nothing else. So a device that fails here, or cannot do it, is no reason to
//! write nothing more; what is left is tried again later, at first after a second, then after twice
//! as long each time, the holes one after the other. Meanwhile the background makes no more holes,
//! even if those that were refused are filled, and cuts off no more groups: what does not come back
//! would be filled with zeros later for nothing. Compaction tries at once, and all holes: a crash
//! may have come between the record and the discard.
//!
//! What is known here is a hint. Before a group is discarded again its bitmap page is asked whether
//! it is a hole still, under `growth`, which those take who fill holes. The end of the file is that
//! of the groups which the header counts. A crash may have come between header and cut, so the
//! first step after opening cuts, and so does growth that comes before.

use super::geometry::Place;
use super::header::Header;
use super::state::{Store, count};
use crate::error::TierError;
use firndb_device::DeviceError;

impl Store {
    /// Asks the device to take back the space of a hole. Called under `growth`; false if the device
    /// kept it.
    pub(crate) fn discard_hole(&self, group: u64) -> bool {
        let start = self.geometry.place_offset(Place(group * self.geometry.places_per_group));
        let len = self.geometry.places_per_group * self.geometry.page_size as u64;
        let is_taken = self.as_advice(self.device.discard(start, len));
        self.state.lock().discards.asked_for(group, is_taken);
        is_taken
    }

    /// Cuts off what the device has beyond the groups that the header counts. Called under
    /// `growth`; false if the device kept it.
    pub(crate) fn cut_to(&self, header: &Header) -> bool {
        let end = self.geometry.group_offset(header.groups).expect("as large as the file");
        let is_cut = self.as_advice(self.device.shrink(end));
        let discards = &mut self.state.lock().discards;
        discards.is_uncut = !is_cut;
        discards.cut_rest.note(is_cut);
        is_cut
    }

    /// As `cut_to`, unless a cut failed a moment ago: then the device is asked later.
    pub(crate) fn cut_unless_resting(&self, header: &Header) -> bool {
        {
            let discards = &mut self.state.lock().discards;
            if !discards.cut_rest.is_over() {
                discards.is_uncut = true;
                return false;
            }
        }
        self.cut_to(header)
    }

    /// As `cut_to`, if there may be something to cut off. False if the device kept it.
    pub(crate) fn cut_again(&self, header: &Header) -> bool {
        let is_uncut = self.state.lock().discards.is_uncut;
        !is_uncut || self.cut_to(header)
    }

    /// Has the device discard a range that is beyond the header's groups. Called under `growth`.
    pub(crate) fn discard_beyond(&self, offset: u64, len: u64) {
        // Nothing is there to be tried again: the next group there may be in use by then.
        self.as_advice(self.device.discard(offset, len));
    }

    /// The group is no hole any more, or gone.
    pub(crate) fn forget_discard(&self, group: u64) {
        self.state.lock().discards.forget(group);
    }

    /// Tries again what failed before, one group at a time; whether that did anything. Called under
    /// `growth`.
    pub(crate) fn discard_again(&self, header: &Header) -> Result<bool, TierError> {
        let (may_cut, next) = {
            let state = &mut *self.state.lock();
            let discards = &mut state.discards;
            if discards.wants_all && state.space.next_to_learn().is_none() {
                discards.wants_all = false;
                discards.queue(state.space.unbacked_groups());
            }
            (discards.is_uncut && discards.cut_rest.is_over(), discards.next_hole())
        };
        if may_cut && self.cut_to(header) {
            return Ok(true);
        }
        let Some((group, is_queued)) = next else { return Ok(false) };
        if !self.is_hole_of_map(header, group)? {
            self.forget_discard(group);
            return Ok(true);
        }
        // That a queued one is refused is no reason to put off the others.
        Ok(self.discard_hole(group) || is_queued)
    }

    fn is_hole_of_map(&self, header: &Header, group: u64) -> Result<bool, TierError> {
        if group >= header.groups {
            return Ok(false);
        }
        self.learn(group)?;
        Ok(self.state.lock().space.is_unbacked(group))
    }

    /// Has all holes discarded once more, and the rest of the file cut off, beginning now.
    pub(crate) fn discard_all_again(&self) {
        let discards = &mut self.state.lock().discards;
        discards.wants_all = true;
        discards.cut_rest.note(true);
    }

    /// Counts a failure; true if there was none.
    fn as_advice(&self, outcome: Result<(), DeviceError>) -> bool {
        count(&self.counters.discards_failed, usize::from(outcome.is_err()));
        outcome.is_ok()
    }
}
