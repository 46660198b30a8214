//! Which thread runs next: the seeded part of the scheduler, without threads or locks.

use super::options::{Policy, SimOptions};
use crate::rng::generator::Rng;

/// Draws which thread runs next. Everything it decides follows from the seed and the order of its
/// calls.
pub(super) struct Chooser {
    policy: Policy,
    preempt_one_in: u64,
    spurious_one_in: u64,
    rng: Rng,
    /// Scheduling points until the next preemption; for [`Policy::Random`].
    until_preemption: u64,
    /// By thread; for [`Policy::Priorities`]. No two are equal.
    priorities: Vec<i64>,
    /// Steps at which the running thread falls below all others, the next one last.
    changes: Vec<u64>,
    /// Below every priority that was given so far.
    lowest: i64,
}

impl Chooser {
    pub fn new(options: &SimOptions) -> Chooser {
        let mut rng = Rng::new(options.seed);
        let mut changes = Vec::new();
        if let Policy::Priorities { changes: count, over_steps } = options.policy {
            changes.extend((0..count).map(|_| 1 + rng.below(over_steps.max(1))));
            changes.sort_unstable_by(|a, b| b.cmp(a));
        }
        let mut chooser = Chooser {
            policy: options.policy,
            preempt_one_in: u64::from(options.preempt_one_in),
            spurious_one_in: u64::from(options.spurious_one_in),
            rng,
            until_preemption: 0,
            priorities: Vec::new(),
            changes,
            lowest: 0,
        };
        chooser.draw_preemption();
        chooser
    }

    pub fn add_thread(&mut self) {
        // Above zero, so that every fallen thread is below; the low bits make them differ.
        let drawn = (self.rng.next_u64() >> 32) as i64;
        self.priorities.push((drawn << 20) + 1 + self.priorities.len() as i64);
    }

    fn draw_preemption(&mut self) {
        // Uniform with the right mean, and cheaper than a draw at each point.
        self.until_preemption = match self.preempt_one_in {
            0 => u64::MAX,
            n => 1 + self.rng.below(2 * n - 1),
        };
    }

    /// Whether `running`, which could continue, joins `runnable` at this step.
    pub fn preempts(&mut self, running: usize, runnable: &[usize], step: u64) -> bool {
        match self.policy {
            Policy::Fair => false,
            Policy::Random => {
                self.until_preemption -= 1;
                if self.until_preemption > 0 {
                    return false;
                }
                self.draw_preemption();
                true
            }
            Policy::Priorities { .. } => {
                while self.changes.last().is_some_and(|change| *change <= step) {
                    self.changes.pop();
                    self.lower(running);
                }
                runnable.iter().any(|thread| self.priorities[*thread] > self.priorities[running])
            }
        }
    }

    /// `thread` gives way of its own will.
    pub fn yields(&mut self, thread: usize) {
        // A thread that spins for another thread with the highest priority would spin for ever.
        if matches!(self.policy, Policy::Priorities { .. }) {
            self.lower(thread);
        }
    }

    fn lower(&mut self, thread: usize) {
        self.lowest -= 1;
        self.priorities[thread] = self.lowest;
    }

    /// The place in `runnable`, which is in the order of becoming so, of the thread that runs next.
    pub fn next(&mut self, runnable: &[usize]) -> usize {
        assert!(!runnable.is_empty(), "some thread can run");
        match self.policy {
            Policy::Fair => 0,
            Policy::Random if runnable.len() == 1 => 0,
            Policy::Random => self.rng.below(runnable.len() as u64) as usize,
            Policy::Priorities { .. } => {
                let places = 0..runnable.len();
                places.max_by_key(|place| self.priorities[runnable[*place]]).expect("not empty")
            }
        }
    }

    /// Whether a wait that begins now ends at once.
    pub fn wakes_without_cause(&mut self) -> bool {
        self.spurious_one_in > 0 && self.rng.one_in(self.spurious_one_in)
    }

    /// Which of `waiting` threads a notification wakes, as a place in the order of their coming.
    pub fn woken(&mut self, waiting: usize) -> usize {
        match self.policy {
            Policy::Random if waiting > 1 => self.rng.below(waiting as u64) as usize,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chooser(policy: Policy, preempt_one_in: u32) -> Chooser {
        let mut chooser =
            Chooser::new(&SimOptions { seed: 3, policy, preempt_one_in, ..SimOptions::default() });
        (0..4).for_each(|_| chooser.add_thread());
        chooser
    }

    #[test]
    fn random_preempts_as_often_as_asked_and_runs_every_thread() {
        let mut random = chooser(Policy::Random, 5);
        let preempted = (0..10_000).filter(|step| random.preempts(0, &[1], *step)).count();
        assert!((1_900..2_100).contains(&preempted), "{preempted}");
        let mut runs = [0u32; 3];
        (0..3_000).for_each(|_| runs[random.next(&[4, 5, 6])] += 1);
        assert!(runs.iter().all(|count| *count > 900), "{runs:?}");
        let mut never = chooser(Policy::Random, 0);
        assert!((0..10_000).all(|step| !never.preempts(0, &[1], step)));
    }

    #[test]
    fn priorities_run_the_highest_until_a_change() {
        let mut pct = chooser(Policy::Priorities { changes: 1, over_steps: 100 }, 1);
        let first = [0, 1, 2, 3][pct.next(&[0, 1, 2, 3])];
        let others: Vec<usize> = (0..4).filter(|thread| *thread != first).collect();
        let changed = (1..=100).filter(|step| pct.preempts(first, &others, *step)).min();
        assert!(changed.is_some(), "it fell below the others once");
        assert_ne!([0, 1, 2, 3][pct.next(&[0, 1, 2, 3])], first);
    }

    #[test]
    fn fair_is_first_come_first_served() {
        let mut fair = chooser(Policy::Fair, 1);
        assert_eq!(fair.next(&[2, 0, 1]), 0);
        assert!(!fair.preempts(0, &[1, 2], 9));
        assert_eq!(fair.woken(3), 0);
    }
}
