//! Many seeds, on all processors, until they or the time run out.

use crate::run::{Summary, Verdict, run};
use crate::scenario::Scenario;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[derive(Clone, Debug, Default)]
pub struct SwarmReport {
    pub seeds: u64,
    /// Sums over all of them; `trace` and `damaged` mean nothing here.
    pub total: Summary,
    /// Runs that ended in damage that was done and reported.
    pub damaged: u64,
    /// Seeds that found something, with what.
    pub failures: Vec<(u64, Vec<String>)>,
}

/// Runs the scenarios of `seeds`, for at most `limit`, on `workers` threads; `after` gets each
/// verdict and returns whether to go on.
pub fn swarm(
    seeds: Range<u64>,
    limit: Option<Duration>,
    workers: usize,
    scenario: impl Fn(u64) -> Scenario + Sync,
    after: impl Fn(u64, &Verdict) -> bool + Sync,
) -> SwarmReport {
    let began = Instant::now();
    let next = AtomicU64::new(seeds.start);
    let stop = AtomicBool::new(false);
    let report = Mutex::new(SwarmReport::default());
    std::thread::scope(|scope| {
        for _ in 0..workers.max(1) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) && limit.is_none_or(|limit| began.elapsed() < limit) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    let verdict = run(&scenario(seed));
                    report.lock().expect("no panic under it").add(seed, &verdict);
                    if !after(seed, &verdict) {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let mut report = report.into_inner().expect("no panic under it");
    report.failures.sort();
    report
}

impl SwarmReport {
    fn add(&mut self, seed: u64, verdict: &Verdict) {
        let (total, one) = (&mut self.total, &verdict.summary);
        self.seeds += 1;
        self.damaged += u64::from(one.damaged);
        total.committed += one.committed;
        total.aborted += one.aborted;
        total.unknown = [total.unknown[0] + one.unknown[0], total.unknown[1] + one.unknown[1]];
        total.faults += one.faults;
        total.cuts += one.cuts;
        total.recoveries += one.recoveries;
        total.restored += one.restored;
        total.renumbered += one.renumbered;
        total.laid_out += one.laid_out;
        total.analyzed += one.analyzed;
        total.pages_compared += one.pages_compared;
        total.bases_judged += one.bases_judged;
        total.laps += one.laps;
        total.time += one.time;
        total.steps += one.steps;
        if !verdict.wrong.is_empty() {
            self.failures.push((seed, verdict.wrong.clone()));
        }
    }
}
