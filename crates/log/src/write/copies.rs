//! Placing each request on several devices.
//!
//! A request goes at once to as many devices as the log has copies, to whichever are free then. The
//! alternative would be to begin with the first device that becomes free and to let others copy the
//! request as they become free in turn. That keeps an odd device busy, but a commit then waits for
//! two writes one after the other, where here it waits for the longer of two; and what an idle
//! device could have taken alone goes into the next, larger request anyway. Requests are composed
//! in order for all their devices, so LSNs on each of them never decrease.
//!
//! # Free space
//!
//! Let *f* be the free space of each device, *n* the number of devices, and *w* the width of a
//! request. Any *w* free devices may take the next unit, so the free space of the log must be what
//! can be placed *however* they are chosen. A unit can be placed unless fewer than *w* devices have
//! free space, that is, unless *j* = *n* − *w* + 1 have none. Each unit takes one from each of *w*
//! devices: at most one from the *j*-th smallest *f*, and at most *m* = min(*w*, *j*) from the sum
//! *S* of the *j* smallest. So max(*f*_j, *S*/*m*) falls by at most one per unit, and while it is
//! positive *w* devices have free space: that is the log's free space. With one copy it is the sum
//! over all devices, with a copy on every device the least. In between it promises less than could
//! be placed; since the emptiest devices are taken first, it hardly falls while they level out.

use crate::block::{BLOCK, PAYLOAD, base};
use crate::write::front::{Composed, Front, Requested};
use crate::write::in_flight::Flight;
use crate::write::in_flight::slot::FreeDevice;
use crate::write::job::Job;
use crate::write::pipeline::Pipeline;
use firndb_base::Lsn;
use std::collections::VecDeque;

/// The log's free space, given the free space of each device in use: what can be placed with
/// `copies` copies (or as many as there are devices), whichever devices take them.
pub(crate) fn free_capacity(each: impl Iterator<Item = u64>, copies: usize) -> u64 {
    if copies == 1 {
        return each.sum();
    }
    let mut free_each: Vec<u64> = each.collect();
    free_each.sort_unstable();
    let width = copies.min(free_each.len());
    if width == 0 {
        return 0;
    }
    let least = &free_each[..free_each.len() - width + 1];
    let sum: u64 = least.iter().sum();
    let most = least.last().copied().unwrap_or(0);
    most.max(sum / width.min(least.len()) as u64)
}

impl Front {
    /// Composes the next request for all of `taken`. Returns `None` if no log waits or one of the
    /// devices has no free space.
    fn compose_copies(
        &mut self,
        durable: Lsn,
        taken: &mut [FreeDevice],
    ) -> Option<(Vec<Composed>, Requested)> {
        let unit = self.unit() as usize;
        let from = self.requested();
        // All copies end where the shortest must: at the end of a section, of the ring, or of the
        // free space on its device.
        let units = taken
            .iter()
            .map(|free| self.space_mut(free.device).extent(free.buf.len() as u64 / unit as u64 - 1) as usize);
        let units = units.min().filter(|&units| units > 0)?;
        let limit = base(from).advance((units * (unit / BLOCK) * PAYLOAD) as u64);
        let mut all = Vec::with_capacity(taken.len());
        let (first, others) = taken.split_first_mut()?;
        let composed = self.compose_up_to(limit, durable, first)?;
        let reached = self.requested();
        all.push(composed);
        for free in others {
            let (end, offset, len) =
                self.fill(base(from), reached, durable, free, |end| end).expect("its free space was checked");
            assert_eq!(end, reached, "all copies of a request are equal");
            all.push(Composed { offset, len, ..composed });
        }
        self.update_free();
        Some((all, self.requested_state()))
    }
}

impl Pipeline {
    /// Composes the next request for all the devices that it goes to. The caller writes the first
    /// copy; workers, or the next threads that flush, write the others.
    pub fn compose_request_copies(&self, flight: &mut Flight) -> Option<Job> {
        if !flight.may_request() {
            return None;
        }
        let width = flight.width();
        let mut front = self.front.lock();
        let mut free: Vec<usize> = flight
            .devices_in_turn()
            .filter(|&place| flight.slots()[place].is_ready() && front.space_mut(place).free_bytes() > 0)
            .collect();
        if free.len() < width {
            return None;
        }
        // The emptiest first: the space that is guaranteed is largest when the devices are level.
        free.sort_by_key(|&place| std::cmp::Reverse(front.space_mut(place).free_bytes()));
        free.truncate(width);
        let mut taken: Vec<FreeDevice> = free.iter().filter_map(|&place| flight.take_device(place)).collect();
        let composed = front.compose_copies(self.durable(), &mut taken);
        drop(front);
        let Some((composed, requested)) = composed else {
            taken.into_iter().for_each(|free| flight.return_device(free));
            return None;
        };
        let device_mask = free.iter().fold(0, |mask, place| mask | 1 << place);
        let task = flight.begin_request(free[0], device_mask, &composed[0], requested);
        let mut jobs = VecDeque::with_capacity(width);
        for (free, composed) in taken.into_iter().zip(composed) {
            jobs.push_back(flight.begin_write(free, composed, task));
        }
        let own = jobs.pop_front();
        if flight.has_workers() {
            jobs.iter().for_each(|_| self.work.notify_one());
        }
        jobs.into_iter().for_each(|job| flight.queue(job));
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_base::rng::Rng;

    #[test]
    fn free_capacity_is_what_can_be_placed_whichever_devices_are_chosen() {
        assert_eq!(free_capacity([3, 4, 5].into_iter(), 1), 12);
        assert_eq!(free_capacity([3, 4].into_iter(), 2), 3);
        assert_eq!(free_capacity([3, 4].into_iter(), 5), 3);
        assert_eq!(free_capacity([9, 9, 9].into_iter(), 2), 9);
        assert_eq!(free_capacity([].into_iter(), 2), 0);
        let mut rng = Rng::new(3);
        for _ in 0..2000 {
            let count = rng.between(1, 5) as usize;
            let width = rng.between(1, count as u64) as usize;
            let mut free_each: Vec<u64> = (0..count).map(|_| rng.below(9)).collect();
            loop {
                let before = free_capacity(free_each.iter().copied(), width);
                let mut free: Vec<usize> = (0..count).filter(|&i| free_each[i] > 0).collect();
                if before > 0 {
                    assert!(free.len() >= width, "{free_each:?} for {width}");
                }
                if free.len() < width {
                    break;
                }
                for last in (1..free.len()).rev() {
                    free.swap(last, rng.below(last as u64 + 1) as usize);
                }
                free[..width].iter().for_each(|&i| free_each[i] -= 1);
                assert!(
                    free_capacity(free_each.iter().copied(), width) + 1 >= before,
                    "{free_each:?} for {width}"
                );
            }
        }
    }
}
