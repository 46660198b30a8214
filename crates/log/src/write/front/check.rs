//! The front's invariants, as assertions.

use crate::block::base;
use crate::write::front::Front;

impl Front {
    /// In debug builds, asserts the invariants: called after a request with one copy was composed, and
    /// after a truncation. `append` asserts what it admits.
    pub(super) fn check_in_debug(&self) {
        if cfg!(debug_assertions) {
            self.check();
        }
    }

    /// Asserts the invariants that the module's head states.
    pub fn check(&self) {
        assert!(self.requested_boundary <= self.requested && self.requested <= self.end);
        assert!(self.oldest <= self.end, "what is truncated was appended");
        if self.lanes.is_none() {
            assert!(self.next_record >= self.requested, "the next record is not requested");
            assert!(self.next_record <= self.end, "the next record was appended, or is the next to be");
        }
        let kept = self.partial_unit.unwrap_or(self.requested).min(base(self.requested));
        assert!(self.end.since(kept) <= self.ring.capacity() as u64, "the ring holds what is not requested");
        let plans = self.plans.iter();
        assert!(plans.clone().is_sorted() && plans.clone().all(|&plan| plan <= self.end), "plans ascend");
        assert!(self.lanes.is_some() || plans.clone().all(|&plan| plan > self.requested));
        assert!(self.plan_cost == 0 || !self.plans.is_empty(), "only plans have a planned cost");
        assert_eq!(self.spaces.len(), self.areas.len());
        assert_eq!(self.spaces.len(), self.in_use.len());
        for space in self.spaces.iter().chain(self.areas.iter().flatten()) {
            space.check();
            assert_eq!(space.unit_bytes(), self.setup.unit, "the members of a log share its unit");
        }
        self.assert_admitted_fits();
    }
}
