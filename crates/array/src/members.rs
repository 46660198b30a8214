//! The members of an array, and what each is good for.

use crate::map::Map;
use crate::ranks;
use crate::service::ServiceTimes;
use firndb_base::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use firndb_base::sync::{Arc, RwLock};
use firndb_device::{CopyBudget, Device, DeviceError, LateReads};

/// Fragments of late reads for which others may be read at once, after as many reads that were not:
/// those that all threads have under way on a member when it freezes.
const COPIES_SAVED: u32 = 256;

/// What a member is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// It holds all that it should: it is read and written.
    Active,
    /// It took another one's place and is being filled: it is written, and not read.
    Rebuilding,
    /// It is missing or missed a write: neither is done, until another device has its place.
    Struck,
}

impl MemberState {
    /// As a byte of a format.
    #[must_use]
    pub fn byte(self) -> u8 {
        match self {
            MemberState::Active => 0,
            MemberState::Rebuilding => 1,
            MemberState::Struck => 2,
        }
    }

    /// The state of a byte; `None` if there is none.
    #[must_use]
    pub fn of_byte(byte: u8) -> Option<MemberState> {
        let all = [MemberState::Active, MemberState::Rebuilding, MemberState::Struck];
        all.into_iter().find(|state| state.byte() == byte)
    }
}

/// Keeps the states of members durably, and reports what happens to them. The thread whose transfer
/// failed calls its methods.
pub trait Keeper: Send + Sync + std::fmt::Debug {
    /// A member missed a write, or is missing: durable when this returns, before anything that it
    /// lacks is acknowledged.
    fn strike(&self, member: usize, error: &DeviceError) -> Result<(), DeviceError>;

    /// A member had something wrong, or could not be read, and has been written anew if the keeper
    /// mends.
    fn repaired(&self, member: usize, what: &str);

    /// Whether fragments that are wrong are written anew. Otherwise each is reported once, and made
    /// up for at each read.
    fn mends(&self) -> bool {
        true
    }
}

/// A member as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// What it is good for.
    pub state: MemberState,
    /// Reads that failed.
    pub failed_reads: u64,
    /// What was wrong on it, or could not be read, and was written anew if the keeper mends.
    pub repairs: u64,
}

#[derive(Debug)]
pub(crate) struct Member {
    device: RwLock<Arc<dyn Device>>,
    state: AtomicU8,
    /// It was found missing when the array was opened, and that is not durable yet.
    pub unrecorded: AtomicBool,
    /// Reads of fragments that are under way: each has a [`Load`].
    under_way: Arc<AtomicUsize>,
    pub failed_reads: AtomicU64,
    pub repairs: AtomicU64,
    pub late_reads: LateReads,
    pub service: Arc<ServiceTimes>,
}

impl Member {
    pub(crate) fn new(
        device: Arc<dyn Device>,
        state: MemberState,
        unrecorded: bool,
        budget: &Arc<CopyBudget>,
    ) -> Member {
        Member {
            device: ranks::MEMBER.rwlock(device),
            state: AtomicU8::new(state.byte()),
            unrecorded: AtomicBool::new(unrecorded),
            under_way: Arc::default(),
            failed_reads: AtomicU64::new(0),
            repairs: AtomicU64::new(0),
            late_reads: LateReads::new(true, budget.clone()),
            service: Arc::default(),
        }
    }

    pub(crate) fn device(&self) -> Arc<dyn Device> {
        self.device.read().clone()
    }

    pub(crate) fn set_device(&self, device: Arc<dyn Device>) {
        *self.device.write() = device;
        self.service.forget();
    }

    pub(crate) fn state(&self) -> MemberState {
        MemberState::of_byte(self.state.load(Ordering::Acquire)).expect("a state was stored")
    }

    pub(crate) fn set_state(&self, state: MemberState) {
        self.state.store(state.byte(), Ordering::Release);
    }

    /// It cannot be used, as opening has found: to be recorded before the first write.
    pub(crate) fn leave_out(&self) {
        self.set_state(MemberState::Struck);
        self.unrecorded.store(true, Ordering::Release);
    }

    pub(crate) fn is_read(&self) -> bool {
        self.state() == MemberState::Active
    }

    pub(crate) fn is_written(&self) -> bool {
        self.state() != MemberState::Struck
    }

    /// Counts one more read of a fragment as under way, until what it returns is dropped.
    pub(crate) fn begin_read(&self) -> Load {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        Load(self.under_way.clone())
    }

    pub(crate) fn reads_under_way(&self) -> usize {
        self.under_way.load(Ordering::Relaxed)
    }

    pub(crate) fn status(&self) -> MemberStatus {
        MemberStatus {
            state: self.state(),
            failed_reads: self.failed_reads.load(Ordering::Relaxed),
            repairs: self.repairs.load(Ordering::Relaxed),
        }
    }
}

/// Pays for reads of other fragments in the place of late ones, on all members: one that is frozen
/// earns nothing.
pub(crate) fn copy_budget() -> Arc<CopyBudget> {
    Arc::new(CopyBudget::saving(COPIES_SAVED))
}

/// A read of a fragment that is under way.
#[derive(Debug)]
pub(crate) struct Load(Arc<AtomicUsize>);

impl Drop for Load {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The members that hold all that they should, as bits.
pub(crate) fn readable(members: &[Member]) -> u32 {
    members.iter().enumerate().filter(|(_, member)| member.is_read()).fold(0, |bits, (at, _)| bits | 1 << at)
}

/// Whether every page can be read from the members that are left.
pub(crate) fn is_enough(map: &Map, readable: u32) -> bool {
    map.members - readable.count_ones() as usize <= map.code.spare()
}
