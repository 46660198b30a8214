//! Which calls go wrong, and how.

use crate::error::DeviceErrorKind;
use firndb_base::rng::Rng;
use firndb_base::sync::{Arc, Mutex};
use std::time::Duration;

/// Kinds of call. A transfer of a batch is a call; questions (`info`, `len`) are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// Every call.
    Any,
    /// Reads.
    Reads,
    /// Writes of either durability.
    Writes,
    /// Syncs.
    Syncs,
    /// Growths.
    Grows,
    /// Discards and cuts.
    Discards,
}

/// How a call goes wrong. Each fits some kinds of call; a rule does not see the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Any call: does nothing and returns an error of this kind.
    Fail(DeviceErrorKind),
    /// Any call: is performed, and returns an error all the same: its outcome is unknown to the
    /// caller.
    FailLate(DeviceErrorKind),
    /// A write: only the first `blocks` logical blocks are written (all but the last, if it has no
    /// more); then it returns the error, or, without one, success as if all were written.
    Torn {
        /// Logical blocks written.
        blocks: u64,
        /// The error that it returns.
        error: Option<DeviceErrorKind>,
    },
    /// A write, sync or discard: is acknowledged and not done.
    Lost,
    /// A read or write: goes to the place `by` bytes further on, in whole blocks, around the
    /// device's end.
    Misdirected {
        /// Bytes, forwards or backwards.
        by: i64,
    },
    /// A read: this many random bits of what it returns are wrong, once. A write: of what is
    /// stored.
    BitRot {
        /// Bits flipped.
        bits: u32,
    },
    /// A read: returns, block by block, what was there before the last write (since the rule was
    /// made).
    Stale,
    /// Any call: takes this much longer, in the engine's clock, and is done properly.
    Stall(Duration),
}

/// Which of the calls that a rule sees go wrong; they are counted from zero since the rule was
/// added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The n-th call, counted from zero.
    Nth(u64),
    /// This one and all later ones: the device is broken from then on.
    From(u64),
    /// Each with a chance of one in this many, drawn from the plan's seed.
    OneIn(u64),
}

/// A fault, the calls it is for, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultRule {
    /// Kinds of call that it sees.
    pub calls: Calls,
    /// Sees only calls to the device with this name (`DeviceInfo::name`); `None`: to all of the
    /// plan.
    pub device: Option<String>,
    /// Which of them go wrong.
    pub when: When,
    /// The fault.
    pub fault: Fault,
}

/// The faults of one or more [`Faulty`](super::Faulty) devices, and the count of their calls.
/// Clones share both.
///
/// A call is seen by every rule it fits; the first that is due (in the order in which they were
/// added) decides. With one thread, everything that happens follows from the seed and the rules.
#[derive(Clone, Debug)]
pub struct FaultPlan {
    state: Arc<Mutex<PlanState>>,
}

#[derive(Debug)]
struct PlanState {
    rng: Rng,
    /// With the number of calls that each has seen.
    rules: Vec<(FaultRule, u64)>,
    calls: [u64; KINDS.len()],
    fired: u64,
}

/// The kinds that are counted.
const KINDS: [Calls; 5] = [Calls::Reads, Calls::Writes, Calls::Syncs, Calls::Grows, Calls::Discards];

/// What a call has to do.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) fault: Fault,
    /// For the fault's own choices.
    pub(super) rng: Rng,
    /// The call's number over all devices.
    pub(super) call: u64,
}

impl Fault {
    /// Whether it makes sense for calls of `kind`, which is not `Any`.
    fn fits(self, kind: Calls) -> bool {
        match self {
            Fault::Fail(_) | Fault::FailLate(_) | Fault::Stall(_) => true,
            Fault::Torn { .. } => kind == Calls::Writes,
            Fault::Lost => matches!(kind, Calls::Writes | Calls::Syncs | Calls::Discards),
            Fault::Misdirected { .. } | Fault::BitRot { .. } => matches!(kind, Calls::Reads | Calls::Writes),
            Fault::Stale => kind == Calls::Reads,
        }
    }
}

impl FaultRule {
    fn sees(&self, device: &str, kind: Calls) -> bool {
        (self.calls == Calls::Any || self.calls == kind)
            && self.device.as_deref().is_none_or(|name| name == device)
            && self.fault.fits(kind)
    }
}

impl FaultPlan {
    /// A plan without faults, whose random choices follow from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> FaultPlan {
        let state = PlanState { rng: Rng::new(seed), rules: Vec::new(), calls: [0; KINDS.len()], fired: 0 };
        FaultPlan { state: Arc::new(Mutex::new(state)) }
    }

    /// Adds a rule; it counts calls from here on.
    pub fn add(&self, rule: FaultRule) {
        assert!(rule.when != When::OneIn(0), "one in none is no chance");
        self.state.lock().rules.push((rule, 0));
    }

    /// Lets the `n`-th of the `calls` from here on, counted from zero over all devices, go wrong.
    pub fn nth(&self, n: u64, calls: Calls, fault: Fault) {
        self.add(FaultRule { calls, device: None, when: When::Nth(n), fault });
    }

    /// Lets the `n`-th of the `calls` from here on fail, once.
    pub fn fail_nth(&self, n: u64, calls: Calls, kind: DeviceErrorKind) {
        self.nth(n, calls, Fault::Fail(kind));
    }

    /// Lets the `n`-th of the `calls` from here on and all later ones fail.
    pub fn fail_from(&self, n: u64, calls: Calls, kind: DeviceErrorKind) {
        self.add(FaultRule { calls, device: None, when: When::From(n), fault: Fault::Fail(kind) });
    }

    /// Lets each of the `calls` go wrong with a chance of one in `n`.
    pub fn one_in(&self, n: u64, calls: Calls, fault: Fault) {
        self.add(FaultRule { calls, device: None, when: When::OneIn(n), fault });
    }

    /// Removes all rules: what was done stays done, nothing new goes wrong.
    pub fn heal(&self) {
        self.state.lock().rules.clear();
    }

    /// Calls so far, over all devices.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls_of(Calls::Any)
    }

    /// Calls of a kind so far, over all devices.
    #[must_use]
    pub fn calls_of(&self, calls: Calls) -> u64 {
        let state = self.state.lock();
        let counted = KINDS.iter().zip(&state.calls);
        counted.filter(|&(&kind, _)| calls == Calls::Any || calls == kind).map(|(_, count)| count).sum()
    }

    /// Calls that went wrong so far.
    #[must_use]
    pub fn fired(&self) -> u64 {
        self.state.lock().fired
    }

    /// Counts a call and says what goes wrong with it.
    pub(super) fn decide(&self, device: &str, kind: Calls) -> Option<Verdict> {
        let mut state = self.state.lock();
        let PlanState { rng, rules, calls, fired } = &mut *state;
        let call = calls.iter().sum();
        let slot = KINDS.iter().position(|&counted| counted == kind).expect("a call is of one kind");
        calls[slot] += 1;
        let mut due = None;
        for (rule, seen) in rules.iter_mut().filter(|(rule, _)| rule.sees(device, kind)) {
            let hit = match rule.when {
                When::Nth(n) => *seen == n,
                When::From(n) => *seen >= n,
                When::OneIn(n) => rng.one_in(n),
            };
            *seen += 1;
            if hit && due.is_none() {
                due = Some(rule.fault);
            }
        }
        let fault = due?;
        *fired += 1;
        Some(Verdict { fault, rng: Rng::new(rng.next_u64()), call })
    }

    /// Whether what is overwritten has to be kept for stale reads.
    pub(super) fn wants_history(&self) -> bool {
        self.state.lock().rules.iter().any(|(rule, _)| rule.fault == Fault::Stale)
    }
}
