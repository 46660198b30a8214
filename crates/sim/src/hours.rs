//! Hours of virtual time over the smallest flash caches: laps, replacements, segments and
//! checkpoints follow each other for as long as a machine may run between two openings, on devices
//! that take up to seconds a call.

use crate::array::{ArrayRound, ArraySetup};
use crate::scenario::{CacheChange, CacheSetup, End, Round, Scenario, Severity, device_names};
use firndb_base::rng::Rng;
use firndb_cache_comparators::{Comparator, Compared};
use std::time::Duration;

const GROUP_PAGES: usize = 4;

impl Scenario {
    /// A scenario of `hours` hours of virtual time.
    #[must_use]
    pub fn of_hours(seed: u64, hours: u64) -> Scenario {
        let mut scenario = Scenario::new(seed);
        let rng = &mut Rng::new(seed ^ 0x8000_0125);
        let cache = smallest(rng, policy_of(seed));
        scenario.cache = Some(cache);
        scenario.cache_rebuildable = rng.one_in(2);
        scenario.array = ArraySetup::plain();
        (scenario.frames, scenario.clients, scenario.keys) = (64, rng.between(2, 4), 24);
        scenario.lock_deadline = rng.one_in(3).then(|| Duration::from_secs(rng.between(5, 60)));
        scenario.store_limit = 4 * 4096 * scenario.page_size as u64;
        let names = device_names(scenario.log_devices, true);
        let slowest = |name: &String| match name.as_str() {
            "store" => Duration::from_millis(2000),
            "cache" => Duration::from_millis(400),
            _ => Duration::from_millis(1000),
        };
        scenario.slowest = names.iter().map(slowest).collect();
        let span = Duration::from_secs(3600 * hours);
        let mut planned = Duration::ZERO;
        scenario.rounds.clear();
        while planned < span {
            let round = round(rng, &names, scenario.cache_rebuildable, cache);
            if let End::PowerCut(after, _) = round.end {
                planned += after;
            }
            scenario.rounds.push(round);
        }
        (scenario.time_limit, scenario.step_limit) = (4 * span, 100_000_000 * hours);
        scenario
    }
}

/// Each in its turn.
fn policy_of(seed: u64) -> Compared {
    Compared::ALL[(seed % Compared::ALL.len() as u64) as usize]
}

/// A cache of 8 to 24 groups: there are none of fewer than 8, each a segment of its own.
fn smallest(rng: &mut Rng, policy: Compared) -> CacheSetup {
    // Lazy cleaning has a least size of its own; of groups there must be space for eight with their
    // headers.
    let least = if policy == Compared::Other(Comparator::LC) { 200 } else { 64 };
    CacheSetup {
        policy,
        pages: (GROUP_PAGES as u64 * rng.between(12, 30)).max(least),
        group_pages: GROUP_PAGES,
        write_through: rng.one_in(5),
    }
}

/// Minutes, until a power cut; or some transactions, until a close. How many there can be is
/// bounded by the judge of the history, which looks at all of them at once.
fn round(rng: &mut Rng, names: &[String], rebuildable: bool, cache: CacheSetup) -> Round {
    let mut round = Round::draw(rng, names);
    // What spoils the data would end the run early.
    round.troubles.retain(|trouble| trouble.severity == Severity::Survived);
    (round.rot, round.array) = (None, ArrayRound::default());
    (round.end, round.transactions) = match round.end {
        End::PowerCut(_, survival) => {
            (End::PowerCut(Duration::from_secs(rng.between(60, 600)), survival), rng.between(10, 30))
        }
        end => (end, rng.between(5, 15)),
    };
    if let Some((after, _)) = &mut round.cut_in_recovery {
        *after *= 1000;
    }
    round.cache_lost = rebuildable && rng.one_in(4);
    if rng.one_in(3) {
        let pause = Duration::from_secs(rng.between(5, 120));
        round.cache_changes = vec![(pause, CacheChange::Detach), (pause, CacheChange::Attach(cache))];
    }
    round
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_are_planned_and_nothing_in_them_spoils_data() {
        for seed in 0..16 {
            let scenario = Scenario::of_hours(seed, 2);
            let cuts = scenario.rounds.iter().filter_map(|round| match round.end {
                End::PowerCut(after, _) => Some(after),
                _ => None,
            });
            assert!(cuts.sum::<Duration>() >= Duration::from_secs(7200));
            assert!(scenario.rounds.iter().all(|round| round.rot.is_none()));
            assert_eq!(scenario.cache.map(|cache| cache.policy), Some(policy_of(seed)));
        }
    }
}
