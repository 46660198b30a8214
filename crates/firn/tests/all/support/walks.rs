//! Walks over the moments of some work: the power is cut at random ones, calls fail at random ones.

use super::bed::Bed;
use firndb::Error;
use firndb::device::{Calls, CrashPlan, DeviceErrorKind, Fault, FaultPlan, FaultRule, Survival, When};
use firndb_base::rng::Rng;

/// A power cut: what is left, and what it is to be compared with.
pub struct Cut {
    pub bed: Bed,
    /// The last mark before it.
    pub acknowledged: u64,
    /// How and when, for people.
    pub place: String,
}

/// Has about one power cut in `one_in` judged, all along what `plan` recorded; returns how many
/// were.
pub fn power_cuts(
    plan: &CrashPlan,
    rng: &mut Rng,
    one_in: u64,
    mut judge: impl FnMut(Cut, &mut Rng),
) -> usize {
    let mut replay = plan.replay();
    let mut cuts = 0;
    loop {
        if rng.one_in(one_in) {
            let survival = Survival::ALL[rng.below(Survival::ALL.len() as u64) as usize];
            let acknowledged = replay.marks().last().copied().unwrap_or(0);
            let place = format!("{survival:?} at event {}", replay.position());
            let bed = Bed::of_image(replay.image(survival, rng));
            judge(Cut { bed, acknowledged, place }, rng);
            cuts += 1;
        }
        if replay.step().is_none() {
            return cuts;
        }
    }
}

/// What some work left.
pub struct Worked {
    pub bed: Bed,
    pub acknowledged: u64,
    pub outcome: Result<(), Error>,
}

/// Calls that were made to fail.
#[derive(Debug, Default)]
pub struct Failed {
    pub calls: u64,
    /// How often the work was refused.
    pub refused: u32,
    /// How often it was done all the same.
    pub survived: u32,
}

/// Does the work, which calls its second argument where it begins, again and again: each time one
/// of its calls fails, once or for ever from there on; about one call in `one_in` is chosen. Has
/// what is left judged.
pub fn failing_calls(
    one_in: u64,
    work: impl Fn(&FaultPlan, &dyn Fn()) -> Worked,
    mut judge: impl FnMut(&str, Worked),
) -> Failed {
    let plan = FaultPlan::new(1);
    let before = std::cell::Cell::new(0);
    work(&plan, &|| before.set(plan.calls())).outcome.expect("nothing fails");
    let mut failed = Failed { calls: plan.calls() - before.get(), ..Failed::default() };
    let mut rng = Rng::new(9);
    for n in (0..failed.calls).filter(|_| rng.one_in(one_in)) {
        for when in [When::Nth(n), When::From(n)] {
            let plan = FaultPlan::new(1);
            let fault = Fault::Fail(DeviceErrorKind::Failed);
            let rule = FaultRule { calls: Calls::Any, device: None, when, fault };
            let worked = work(&plan, &|| plan.add(rule.clone()));
            match &worked.outcome {
                Ok(()) => failed.survived += 1,
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    failed.refused += 1;
                }
            }
            judge(&format!("{when:?} failed ({:?})", worked.outcome), worked);
        }
    }
    failed
}
