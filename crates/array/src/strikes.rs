//! Members that missed a write, and are not used any more.

use crate::array::Array;
use crate::lanes::Failure;
use crate::members::{MemberState, is_enough, readable};
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::Ordering;
use firndb_device::{Device, DeviceError, DeviceErrorKind};

impl Array {
    /// A member's device missed a write. Durable when this returns, if the others are enough; else
    /// its error is the array's.
    pub(crate) fn strike(
        &self,
        member: usize,
        device: &Arc<dyn Device>,
        error: &DeviceError,
    ) -> Result<(), DeviceError> {
        let failure = Failure { member, device: device.clone(), io: 0, error: error.clone() };
        self.settle(Vec::from([failure])).into_iter().next().map_or(Ok(()), |failure| Err(failure.error))
    }

    /// Makes durable that members are missing which were so when the array was opened.
    pub(crate) fn record_missing(&self) -> Result<(), DeviceError> {
        for (at, member) in self.members.iter().enumerate() {
            if member.unrecorded.load(Ordering::Acquire) {
                let device = member.device();
                let name = &device.info().name;
                let message =
                    format!("{name} was missing, cut off, or another device, when the database was opened");
                self.strike(at, &device, &DeviceError::new(DeviceErrorKind::Unusable, message))?;
            }
        }
        Ok(())
    }

    /// Strikes the members that failed in one call. Returns the failures that remain: of lack of
    /// space, which is none of the member's, and of members that cannot be done without. If those
    /// that are read cannot all be done without, none of them is struck: the call fails, and what
    /// has befallen all of them may pass.
    pub(crate) fn settle(&self, failures: Vec<Failure>) -> Vec<Failure> {
        if failures.is_empty() {
            return failures;
        }
        let _one_at_a_time = self.striking.lock();
        // The failures of a device that has been replaced, or was struck before, are nobody's.
        let is_over = |failure: &Failure| {
            let it = &self.members[failure.member];
            let is_recorded = !it.unrecorded.load(Ordering::Acquire);
            is_recorded && (!it.is_written() || !Arc::ptr_eq(&it.device(), &failure.device))
        };
        let is_its_own = |failure: &Failure| failure.error.kind != DeviceErrorKind::NoSpace;
        let failures: Vec<Failure> =
            failures.into_iter().filter(|failure| !is_its_own(failure) || !is_over(failure)).collect();
        let failed = failures
            .iter()
            .filter(|failure| is_its_own(failure))
            .fold(0_u32, |bits, failure| bits | 1 << failure.member);
        let can_go = is_enough(&self.map, readable(&self.members) & !failed);
        let mut remaining = Vec::new();
        let mut struck = 0_u32;
        for failure in failures {
            let it = &self.members[failure.member];
            if struck & 1 << failure.member != 0 && is_its_own(&failure) {
                continue;
            }
            if !is_its_own(&failure) || it.is_read() && !can_go {
                remaining.push(failure);
                continue;
            }
            match self.keeper.strike(failure.member, &failure.error) {
                Ok(()) => {
                    it.set_state(MemberState::Struck);
                    it.unrecorded.store(false, Ordering::Release);
                    struck |= 1 << failure.member;
                }
                Err(error) => remaining.push(Failure { error, ..failure }),
            }
        }
        remaining
    }
}
