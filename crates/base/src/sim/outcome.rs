//! The outcome of a simulation, and the report of one that failed.

use std::fmt;
use std::time::Duration;

/// A run that came to its end.
#[derive(Clone, Debug)]
pub struct SimOutcome<R> {
    /// What the body returned.
    pub value: R,
    /// The seed of the run.
    pub seed: u64,
    /// Scheduling points passed.
    pub steps: u64,
    /// How often the turn went from one thread to another.
    pub switches: u64,
    /// The virtual clock at the end.
    pub virtual_time: Duration,
    /// A hash over every scheduling point: which thread ran, what it did, when. Equal for equal
    /// runs.
    pub trace_hash: u64,
    /// Threads that had not ended when the body had and [`super::SimOptions::linger`] was over.
    /// They stay parked for the rest of the process.
    pub leaked: Vec<String>,
}

/// Why a run failed. The threads of a failed run are parked for the rest of the process; see
/// [`super::run`].
#[derive(Clone, Debug)]
pub enum SimFailure {
    /// No thread can run and none sleeps.
    Deadlock(Box<Report>),
    /// More scheduling points than [`super::SimOptions::step_limit`].
    StepLimit(Box<Report>),
    /// The virtual clock would have passed [`super::SimOptions::time_limit`].
    TimeLimit(Box<Report>),
    /// A thread panicked.
    Panicked {
        /// Number and name of the thread.
        thread: String,
        /// What it said.
        message: String,
        /// How all threads stood.
        report: Box<Report>,
    },
    /// The thread that has the turn reached no scheduling point for
    /// [`super::SimOptions::stuck_after`] of real time.
    Stuck(Box<Report>),
    /// The system refused the first thread of the run.
    NotStarted(String),
}

/// How a run stood when it failed.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed that brings it about again.
    pub seed: u64,
    /// Scheduling points passed.
    pub steps: u64,
    /// The virtual clock.
    pub virtual_time: Duration,
    /// The hash up to there.
    pub trace_hash: u64,
    /// A line a thread: its number and name, what it does or waits for, what it holds.
    pub threads: Vec<String>,
    /// The last scheduling points and notes, oldest first.
    pub history: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, step {}, {:?} of virtual time", self.seed, self.steps, self.virtual_time)?;
        for thread in &self.threads {
            writeln!(f, "  {thread}")?;
        }
        if !self.history.is_empty() {
            writeln!(f, "the last of it:")?;
        }
        for line in &self.history {
            writeln!(f, "  {line}")?;
        }
        Ok(())
    }
}

impl SimFailure {
    /// How the run stood; nothing for one that did not start.
    #[must_use]
    pub fn report(&self) -> Option<&Report> {
        match self {
            SimFailure::Deadlock(report)
            | SimFailure::StepLimit(report)
            | SimFailure::TimeLimit(report)
            | SimFailure::Stuck(report)
            | SimFailure::Panicked { report, .. } => Some(report),
            SimFailure::NotStarted(_) => None,
        }
    }
}

impl fmt::Display for SimFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SimFailure::Deadlock(report) => {
                write!(f, "deadlock: no thread can run and none sleeps; {report}")
            }
            SimFailure::StepLimit(report) => write!(
                f,
                "the step limit is reached: threads loop for ever, or the limit is too low; {report}"
            ),
            SimFailure::TimeLimit(report) => {
                write!(
                    f,
                    "the virtual clock passed its limit: something is waited for that never comes; {report}"
                )
            }
            SimFailure::Panicked { thread, message, report } => {
                write!(f, "{thread} panicked: {message}; {report}")
            }
            SimFailure::Stuck(report) => write!(
                f,
                "the running thread reaches no scheduling point: it spins without `spin_hint`, or waits for something \
                 outside of the simulation; {report}"
            ),
            SimFailure::NotStarted(error) => {
                write!(f, "the simulation's first thread could not be started: {error}")
            }
        }
    }
}

impl std::error::Error for SimFailure {}
