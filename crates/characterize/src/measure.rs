//! Running a plan.

use crate::cell::{Cell, Ground, Op, Pattern, Purpose, STREAM_BYTES};
use crate::drive::{self, Stop, Tally};
use crate::error::Error;
use crate::outliers::{Outliers, outliers_of_runs};
use crate::plan::{Effort, Plan};
use crate::target::Target;
use firndb_base::clock;
use firndb_base::rng::Rng;
use std::time::Duration;

/// The progress of a measurement, for display.
#[derive(Clone, Debug)]
pub struct Step {
    /// Time of the plan that has passed.
    pub done: Duration,
    /// Time of the whole plan.
    pub total: Duration,
    /// The cell that is measured now.
    pub what: String,
}

/// What a cell's rounds recorded.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The cell that was measured.
    pub cell: Cell,
    /// Requests a second of each round.
    pub rounds: Vec<f64>,
    /// All rounds together; its rates are medians over them.
    pub tally: Tally,
    /// Where each round begins in the tally's ordered latencies.
    pub seams: Vec<usize>,
}

impl Measured {
    /// Requests (or batches) a second: the median of the rounds.
    #[must_use]
    pub fn requests_per_second(&self) -> f64 {
        self.tally.requests_per_second
    }

    /// Megabytes (10^6) a second: the median of the rounds.
    #[must_use]
    pub fn mb_per_second(&self) -> f64 {
        self.tally.bytes_per_second / 1e6
    }

    /// The outliers among its requests; for cells with one request in flight.
    #[must_use]
    pub fn outliers(&self) -> Outliers {
        outliers_of_runs(&self.tally.ordered, &self.seams)
    }

    /// Requests a second of the first kind and of the one that is recorded apart; of streams beside
    /// reads and of mixtures.
    #[must_use]
    pub fn both_per_second(&self) -> (f64, f64) {
        let (first, aside) = (self.tally.latency.count() as f64, self.tally.aside.count() as f64);
        let share = if first + aside > 0.0 { first / (first + aside) } else { 0.0 };
        (self.requests_per_second() * share, self.requests_per_second() * (1.0 - share))
    }

    fn add(&mut self, round: Tally) {
        self.rounds.push(round.requests_per_second);
        let earlier = self.tally.timeline.len() as u64;
        self.tally.requests += round.requests;
        self.tally.latency.merge(&round.latency);
        self.tally.aside.merge(&round.aside);
        self.seams.push(self.tally.ordered.len());
        self.tally.ordered.extend(round.ordered);
        let step_ms = drive::TIMELINE_STEP.as_millis() as u64;
        self.tally.stalls.extend(round.stalls.iter().map(|&(at, lasted)| (at + earlier * step_ms, lasted)));
        self.tally.timeline.extend(round.timeline);
        self.tally.requests_per_second = median(&self.rounds);
        let bytes = (self.cell.bytes * self.cell.batch) as f64;
        self.tally.bytes_per_second = self.tally.requests_per_second * bytes;
        if matches!(self.cell.op, Op::Beside { .. }) {
            let (reads, stream) = self.both_per_second();
            self.tally.bytes_per_second = reads * bytes + stream * STREAM_BYTES as f64;
        }
    }
}

/// The median; 0 if there are no values.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// The results of a plan.
#[derive(Clone, Debug)]
pub struct Measurements {
    /// The plan's effort.
    pub effort: Effort,
    /// The cells in the plan's order; those for which time did not suffice are missing.
    pub cells: Vec<Measured>,
    /// Cells of the plan that have fewer rounds than planned, or none.
    pub cut_short: usize,
    /// Seconds that the plan took, without the preparation of the area.
    pub seconds: f64,
    /// Bytes of the area that requests fell into.
    pub area: u64,
}

impl Measurements {
    /// Results of a purpose, operation and pattern, in the order of request sizes, then of requests
    /// in flight, streams, batches and areas.
    #[must_use]
    pub fn of(&self, purpose: Purpose, op: Op, pattern: Pattern) -> Vec<&Measured> {
        let mut found: Vec<&Measured> = self
            .cells
            .iter()
            .filter(|measured| {
                let cell = &measured.cell;
                cell.purpose == purpose && cell.op == op && cell.pattern == pattern
            })
            .collect();
        found.sort_by_key(|measured| {
            let cell = &measured.cell;
            (cell.bytes, cell.depth, cell.streams, cell.batch, cell.area)
        });
        found
    }

    /// All results of a purpose, in the plan's order.
    #[must_use]
    pub fn about(&self, purpose: Purpose) -> Vec<&Measured> {
        self.cells.iter().filter(|measured| measured.cell.purpose == purpose).collect()
    }
}

/// Measures what `plan` lists on `target`. Returns [`Error::Interrupted`] soon after `stop` returns
/// true.
pub fn measure(
    target: &Target,
    plan: &Plan,
    progress: &mut dyn FnMut(Step),
    stop: &Stop,
) -> Result<Measurements, Error> {
    let mut plan = plan.clone();
    plan.fit(target.device().info().logical_block, target.area());
    let (begun, total) = (clock::now(), plan.budget());
    let mut cells: Vec<Option<Measured>> = plan.cells.iter().map(|_| None).collect();
    let mut seeds = Rng::new(plan.seed);
    let mut done = Duration::ZERO;
    'rounds: for _ in 0..plan.rounds.max(1) {
        for (place, cell) in plan.cells.iter().enumerate() {
            if begun.elapsed() >= plan.deadline {
                break 'rounds;
            }
            progress(Step { done, total, what: cell.to_string() });
            let budget = cell.budget / plan.rounds.max(1);
            let seed = (seeds.next_u64(), seeds.next_u64());
            if let Some(tally) = one_round(target, cell, budget, seed, stop)? {
                let empty = || Measured {
                    cell: *cell,
                    rounds: Vec::new(),
                    tally: Tally::default(),
                    seams: Vec::new(),
                };
                cells[place].get_or_insert_with(empty).add(tally);
            }
            done += budget;
        }
    }
    progress(Step { done: total, total, what: "done".to_owned() });
    let short = |measured: &&Option<Measured>| {
        measured.as_ref().is_none_or(|measured| measured.rounds.len() < plan.rounds as usize)
    };
    let cut_short = if begun.elapsed() >= plan.deadline { cells.iter().filter(short).count() } else { 0 };
    Ok(Measurements {
        effort: plan.effort,
        cells: cells.into_iter().flatten().collect(),
        cut_short,
        seconds: begun.elapsed().as_secs_f64(),
        area: target.area(),
    })
}

/// Space of a round on unwritten ground: it is written once.
const FRESH_BYTES: u64 = 128 << 20;

/// Runs one round; returns `None` if the target has no such ground.
fn one_round(
    target: &Target,
    cell: &Cell,
    budget: Duration,
    (seed, begun): (u64, u64),
    stop: &Stop,
) -> Result<Option<Tally>, Error> {
    if cell.ground != Ground::Written {
        let Some(fresh) = target.fresh(cell.ground, FRESH_BYTES.min(target.area() / 2))? else {
            return Ok(None);
        };
        return drive::round(&fresh, cell, fresh.len(), budget, (seed, 0), stop).map(Some);
    }
    let places = target.area() / cell.bytes as u64;
    let tally =
        drive::round(target.device(), cell, target.area(), budget, (seed, begun % places.max(1)), stop)?;
    if cell.op.writes() {
        // Empties the device's cache, so that the next cell does not pay for this one's writes.
        target.device().sync()?;
    }
    Ok(Some(tally))
}
