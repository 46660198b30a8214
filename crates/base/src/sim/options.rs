//! Settings of a simulation.

use std::time::Duration;

/// Which thread runs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Any thread that can run, drawn by the seed. The running one is preempted at one scheduling
    /// point in [`SimOptions::preempt_one_in`]. Finds bugs that need many small accidents.
    Random,
    /// Every thread has a priority drawn by the seed, and the highest that can run does; at
    /// `changes` steps drawn from the first `over_steps`, the running thread falls below all
    /// others. Finds a bug that needs `changes + 1` orderings with a known least probability
    /// (Burckhardt, Kothari, Musuvathi, Nagarakatte: "A randomized scheduler with probabilistic
    /// guarantees of finding bugs", ASPLOS 2010).
    Priorities {
        /// How often a priority changes.
        changes: u32,
        /// Scheduling points that the run is expected to have.
        over_steps: u64,
    },
    /// Threads run in the order in which they became able to, each until it blocks or yields. For
    /// measuring in virtual time, where preemption at every turn would only disturb.
    Fair,
}

/// Settings of a simulation. `SimOptions { seed, ..SimOptions::default() }` is enough for most.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// Decides everything that is drawn: equal seeds and options give equal runs.
    pub seed: u64,
    /// Which thread runs next.
    pub policy: Policy,
    /// With [`Policy::Random`]: one scheduling point in this many preempts, on average. 0: none
    /// does; then threads change only where one blocks, yields or ends.
    pub preempt_one_in: u32,
    /// One wait on a condition variable in this many ends at once without a notification, as every
    /// wait may. 0: none.
    pub spurious_one_in: u32,
    /// Modelled processors: what `charge` occupies and `available_parallelism` returns. At least 1.
    pub cores: usize,
    /// What `machine::memory_bytes` returns.
    pub memory_bytes: u64,
    /// The run fails after this many scheduling points: some thread loops for ever.
    pub step_limit: u64,
    /// The run fails when the virtual clock would pass this.
    pub time_limit: Duration,
    /// How much virtual time other threads get to end after the body has returned. What runs or
    /// waits longer is reported in `SimOutcome::leaked`.
    pub linger: Duration,
    /// Virtual time that a thread sleeps which only yields, spins, or reads the clock.
    pub yield_pause: Duration,
    /// *Real* time without any scheduling point after which the run fails: a thread spins without
    /// `spin_hint`, or waits for something outside of the simulation.
    pub stuck_after: Duration,
    /// Microseconds since the Unix epoch at which the run begins.
    pub unix_start_us: u64,
    /// Notes and scheduling points kept for the report of a failure.
    pub history: usize,
    /// Keeps all threads of the run on one processor, which makes changing between them cheaper.
    pub pin: bool,
}

impl Default for SimOptions {
    fn default() -> SimOptions {
        SimOptions {
            seed: 0,
            policy: Policy::Random,
            preempt_one_in: 8,
            spurious_one_in: 0,
            cores: 4,
            memory_bytes: 8 << 30,
            step_limit: 200_000_000,
            time_limit: Duration::from_secs(24 * 3600),
            linger: Duration::from_secs(10),
            yield_pause: Duration::from_micros(1),
            stuck_after: Duration::from_secs(120),
            // 1 January 2026.
            unix_start_us: 1_767_225_600_000_000,
            history: 64,
            pin: true,
        }
    }
}

impl SimOptions {
    /// The usual options with this seed.
    #[must_use]
    pub fn seeded(seed: u64) -> SimOptions {
        SimOptions { seed, ..SimOptions::default() }
    }

    /// For measuring in virtual time: first come, first served, no preemption.
    #[must_use]
    pub fn measuring(seed: u64, cores: usize) -> SimOptions {
        SimOptions { seed, cores, policy: Policy::Fair, ..SimOptions::default() }
    }
}
