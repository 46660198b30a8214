//! Which devices the log is written to, and what room they have together.

use crate::copies;
use crate::front::{Front, OWN_RESERVE_UNITS};
use crate::options::{LogClass, LogSpace};
use crate::space::DeviceSpace;
use firn_base::Lsn;

impl Front {
    /// Takes notice of which devices there are.
    pub fn measure(&mut self) {
        self.capacity = copies::room(self.each(DeviceSpace::capacity_bytes), self.copies);
        self.own_reserve = (OWN_RESERVE_UNITS * self.setup.unit).min(self.capacity / 4);
        self.group_max = (self.setup.buffer_bytes as u64 / 2).min(self.capacity / 4);
        self.room = copies::room(self.each(DeviceSpace::room_bytes), self.copies);
    }

    /// A figure of each device in use.
    fn each(&self, figure: fn(&DeviceSpace) -> u64) -> impl Iterator<Item = u64> {
        self.spaces.iter().zip(&self.in_use).filter(|(_, in_use)| **in_use).map(move |(s, _)| figure(s))
    }

    /// The device's main stream and its area.
    pub fn streams(&self, device: usize) -> (&DeviceSpace, Option<&DeviceSpace>) {
        (&self.spaces[device], self.areas[device].as_ref())
    }
    /// Takes another device into use.
    pub fn add_device(&mut self, space: DeviceSpace, area: Option<DeviceSpace>) {
        self.spaces.push(space);
        self.areas.push(area);
        self.in_use.push(true);
        self.measure();
        self.note_room();
    }
    /// Whether, without the device, there is room for all that was admitted and for all reserves.
    pub fn can_spare(&self, device: usize) -> bool {
        let others = self.spaces.iter().enumerate().zip(&self.in_use);
        let others = others.filter(|&((place, _), &in_use)| in_use && place != device);
        let room = copies::room(others.map(|((_, space), _)| space.room_bytes()), self.copies);
        room >= self.cost_until(self.end) + self.reserve(Some(LogClass::Normal))
    }
    /// Takes a device out of use, or back into it.
    pub fn set_in_use(&mut self, device: usize, in_use: bool) {
        self.in_use[device] = in_use;
        self.measure();
        self.short |= self.left(None, self.end).is_none();
        self.note_room();
    }
    /// Whether all log on the device lies before `lsn`.
    pub fn is_drained(&self, device: usize, lsn: Lsn) -> bool {
        let (space, area) = self.streams(device);
        space.is_drained(lsn) && area.is_none_or(|area| area.is_drained(lsn))
    }
    /// Room beyond all log admitted and all that is reserved.
    pub fn room_to_spare(&self) -> u64 {
        self.room.saturating_sub(self.cost_until(self.end) + self.reserve(Some(LogClass::Normal)))
    }
    /// Room may be taken for a request that was lost, though it was reserved for others.
    pub fn take_what_there_is(&mut self) {
        self.short = true;
        self.note_room();
    }
    /// Takes notice of the devices' room after something was placed, or a section freed.
    pub fn note_room(&mut self) {
        self.room = copies::room(self.each(DeviceSpace::room_bytes), self.copies);
        self.short &= self.left(None, self.end).is_none();
        self.check_room();
    }
    /// Whether `System` may append up to `end`.
    pub fn has_room(&self, end: Lsn) -> bool {
        self.cost_until(end) + self.reserve(Some(LogClass::System)) <= self.room || end == self.end
    }
    /// Space in use.
    pub fn space(&self) -> LogSpace {
        let pending = self.cost_until(self.end);
        LogSpace {
            capacity_bytes: self.capacity,
            used_bytes: self.capacity.saturating_sub(self.room) + pending,
            normal_bytes: self.left(Some(LogClass::Normal), self.end).unwrap_or(0),
            oldest: self.oldest,
        }
    }
}
