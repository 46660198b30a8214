//! Capacity and free space of the log's devices together.

use crate::options::{LogClass, LogSpace};
use crate::write::copies;
use crate::write::front::{Front, OWN_RESERVE_UNITS};
use crate::write::space::DeviceSpace;
use firndb_base::Lsn;

impl Front {
    /// Recomputes what depends on the set of devices in use.
    pub fn measure(&mut self) {
        self.capacity = copies::free_capacity(self.each(DeviceSpace::capacity_bytes), self.copies);
        self.own_reserve = (OWN_RESERVE_UNITS * self.setup.unit).min(self.capacity / 4);
        self.group_max = (self.setup.buffer_bytes as u64 / 2).min(self.capacity / 4);
        self.free_bytes = copies::free_capacity(self.each(DeviceSpace::free_bytes), self.copies);
    }

    /// A figure of each device in use.
    fn each(&self, figure: fn(&DeviceSpace) -> u64) -> impl Iterator<Item = u64> {
        self.spaces.iter().zip(&self.in_use).filter(|(_, in_use)| **in_use).map(move |(s, _)| figure(s))
    }

    /// The device's main stream and its area.
    pub fn streams(&self, device: usize) -> (&DeviceSpace, Option<&DeviceSpace>) {
        (&self.spaces[device], self.areas[device].as_ref())
    }
    /// Adds a device and takes it into use.
    pub fn add_device(&mut self, space: DeviceSpace, area: Option<DeviceSpace>) {
        self.spaces.push(space);
        self.areas.push(area);
        self.in_use.push(true);
        self.measure();
        self.update_free();
    }
    /// Whether the other devices have space for all admitted log and all reserves.
    pub fn can_spare(&self, device: usize) -> bool {
        let others = self.spaces.iter().enumerate().zip(&self.in_use);
        let others = others.filter(|&((place, _), &in_use)| in_use && place != device);
        let free = copies::free_capacity(others.map(|((_, space), _)| space.free_bytes()), self.copies);
        free >= self.cost_until(self.end) + self.reserve(Some(LogClass::Normal))
    }
    /// Takes a device out of use, or back into it.
    pub fn set_in_use(&mut self, device: usize, in_use: bool) {
        self.in_use[device] = in_use;
        self.measure();
        self.overcommitted |= self.left(None, self.end).is_none();
        self.update_free();
    }
    /// Whether all log on the device lies before `lsn`.
    pub fn is_drained(&self, device: usize, lsn: Lsn) -> bool {
        let (space, area) = self.streams(device);
        space.is_drained(lsn) && area.is_none_or(|area| area.is_drained(lsn))
    }
    /// Free space beyond all admitted log and all reserves.
    pub fn spare_bytes(&self) -> u64 {
        self.free_bytes.saturating_sub(self.cost_until(self.end) + self.reserve(Some(LogClass::Normal)))
    }
    /// Permits a request that lost its device to take space that was reserved for others.
    pub fn overcommit(&mut self) {
        self.overcommitted = true;
        self.update_free();
    }
    /// Recomputes the free space after log was placed or a section freed.
    pub fn update_free(&mut self) {
        self.free_bytes = copies::free_capacity(self.each(DeviceSpace::free_bytes), self.copies);
        self.overcommitted &= self.left(None, self.end).is_none();
        self.assert_admitted_fits();
    }
    /// Bytes left once log up to `end`, and what is reserved against `class`, are placed; `None` if
    /// they do not fit.
    pub(crate) fn left(&self, class: Option<LogClass>, end: Lsn) -> Option<u64> {
        let reserve = self.reserve(class);
        match &self.layout {
            None => self.free_bytes.checked_sub(self.cost_until(end) + reserve),
            Some(layout) => self.left_by_layout(&**layout, reserve, end),
        }
    }

    pub(crate) fn assert_admitted_fits(&self) {
        assert!(self.overcommitted || self.left(None, self.end).is_some(), "what was admitted can be placed");
    }

    /// Whether `System` may append up to `end`.
    pub fn has_capacity_for(&self, end: Lsn) -> bool {
        self.cost_until(end) + self.reserve(Some(LogClass::System)) <= self.free_bytes || end == self.end
    }
    /// Space in use.
    pub fn space(&self) -> LogSpace {
        let pending = self.cost_until(self.end);
        LogSpace {
            capacity_bytes: self.capacity,
            used_bytes: self.capacity.saturating_sub(self.free_bytes) + pending,
            normal_bytes: self.left(Some(LogClass::Normal), self.end).unwrap_or(0),
            oldest: self.oldest,
            copies: self.copies.min(self.in_use.iter().filter(|in_use| **in_use).count()),
        }
    }
}
