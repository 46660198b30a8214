//! The front's invariants, as assertions.

use crate::write::front::Front;

impl Front {
    /// In debug builds, asserts the invariants: called after a request with one copy was composed,
    /// and after a truncation. `append` asserts what it admits.
    pub(super) fn check_in_debug(&self) {
        if cfg!(debug_assertions) {
            self.check();
        }
    }

    /// Asserts the invariants that the module's head states.
    pub fn check(&self) {
        assert!(self.requested_boundary <= self.requested && self.requested <= self.end);
        assert!(self.oldest <= self.end, "what is truncated was appended");
        assert!(self.next_record >= self.requested, "the next record is not requested");
        assert!(self.next_record <= self.end, "the next record was appended, or is the next to be");
        assert!(
            self.end.since(self.kept()) <= self.ring.capacity() as u64,
            "the ring holds what is not requested"
        );
        self.layout.iter().for_each(|layout| layout.check(self.requested, self.end));
        assert_eq!(self.spaces.len(), self.areas.len());
        assert_eq!(self.spaces.len(), self.in_use.len());
        for space in self.spaces.iter().chain(self.areas.iter().flatten()) {
            space.check();
            assert_eq!(space.unit_bytes(), self.setup.unit, "the members of a log share its unit");
        }
        self.assert_admitted_fits();
    }
}
