//! Filling a new member of an array under the store: what it should have of the places in use.

use super::bitmap::{self, Which};
use super::geometry::Place;
use super::meta_page::MetaId;
use super::state::Store;
use crate::error::{TierError, TierErrorKind};
use firndb_array::Array;
use firndb_device::{DeviceError, DeviceErrorKind};

impl Store {
    /// Groups that it has; what its device has behind them was never written.
    pub fn groups(&self) -> u64 {
        self.state.lock().space.groups()
    }

    /// As [`Store::rebuild_group`], of the metadata before the first group.
    pub fn rebuild_before_groups(&self, array: &Array, member: usize) -> Result<u64, TierError> {
        array.rebuild_before_groups(member).map_err(of_filling)
    }

    /// Fills a new member of `array`, which is the store's device, with what it should have of a
    /// group. A place is in use if the map names it, or a write of it is under way, or what freed
    /// it is not durable yet; all others are written before they are read. Returns how many pages
    /// and units of metadata the other members could not give, or do not agree on.
    ///
    /// Errors: the new member cannot be written, and is struck or full; or another one does not
    /// answer, which concerns the page.
    pub fn rebuild_group(&self, array: &Array, member: usize, group: u64) -> Result<u64, TierError> {
        let pins = match self.pin(&[MetaId::Bitmap(group)]) {
            Ok(pins) => Some(pins),
            Err(error) if error.kind == TierErrorKind::NotAllocated => return Ok(0),
            // Which of its places are in use is not known, so all are.
            Err(error) if error.concerns_the_page() => None,
            Err(error) => return Err(error),
        };
        let mut used = |place: u64| pins.is_none() || self.is_place_used(group, place);
        array.rebuild_group(member, group, &mut used).map_err(of_filling)
    }

    /// Does the last step for a new member that has as many groups, if these are all, and while
    /// there come no more: the metadata of groups that are being added may have been written
    /// before it was a member. `None` if there are more by now.
    ///
    /// Errors: nothing more is written, after a failure.
    pub fn when_all_filled<T>(
        &self,
        filled: u64,
        finish: impl FnOnce() -> T,
    ) -> Result<Option<T>, TierError> {
        let _growth = self.growth.lock();
        // Whether a growth that failed in its last step counts, the next opening finds out.
        self.poison.check()?;
        Ok((filled >= self.groups()).then(finish))
    }

    /// Whether a place of a group is in use, whose bitmap page is in memory.
    fn is_place_used(&self, group: u64, place: u64) -> bool {
        let mut state = self.state.lock();
        let held = state.space.is_place_held(Place(group * self.geometry.places_per_group + place));
        let bits = &state.cache.get(MetaId::Bitmap(group)).expect("it is pinned").body;
        held || bitmap::get(&self.geometry, bits, Which::Places, place)
    }
}

fn of_filling(error: DeviceError) -> TierError {
    match error.kind {
        DeviceErrorKind::NoSpace => error.into(),
        _ => TierError::of_read(error),
    }
}
