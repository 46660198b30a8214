//! Statistics kept up to date: a background step that analyzes tables of whose rows a tenth has
//! changed.
//!
//! Now and then it looks at all tables, and reads the stale ones one after the other, the smallest
//! first ([`firndb_table::Survey`]). It reads for [`SLICE`], in a snapshot that is released with
//! it, and rests [`REST`] times as long as that took: so an analysis takes a tenth of one thread's
//! time, and of a device's, and holds back no purging. As many times as long as an analysis took
//! passes until the table is analyzed again, so that one of which a few rows are changed all the
//! time is not read all the time. What is read leaves DRAM and the flash cache as they are.
//!
//! Closing waits for a slice. An analysis that has not ended leaves the statistics as they were.

use crate::engine::Engine;
use crate::engine::analysis_state::State;
use firndb_base::Progress;
use firndb_base::clock::{self, Moment};
use firndb_table::{Survey, Surveyed, Table};
use std::time::Duration;

/// How long one slice reads about, and steps of it at most: time may stand still, if it is virtual.
const SLICE: Duration = Duration::from_millis(2);
const STEPS_A_SLICE: u32 = 256;
/// How many times as long as it took it rests after a slice, and a table after its analysis; after
/// a slice for at least and at most so long.
const REST: u32 = 9;
const REST_MIN: Duration = Duration::from_millis(1);
const REST_MAX: Duration = Duration::from_secs(10);
/// How long it waits for log, for a change of the table's definition, and for recovery.
const WAIT: Duration = Duration::from_millis(200);

impl Engine {
    /// One slice of analyzing tables. `Idle` while it rests.
    pub(crate) fn analysis_step(&self) -> Progress {
        if !self.options.tuning.analyze_in_background {
            return Progress::Idle;
        }
        let mut state = self.analyses.state.lock();
        let now = clock::now();
        if state.rests_until.is_some_and(|until| now < until) {
            return Progress::Idle;
        }
        let waits = !self.recovery.is_complete() || !self.has_log_for_housekeeping();
        let rest = if waits { Some(WAIT) } else { self.analyze_slice(&mut state, now) };
        let taken = clock::now().since(now) * REST;
        state.rests_until = clock::now().after(rest.unwrap_or(taken.clamp(REST_MIN, REST_MAX)));
        if rest.is_some() { Progress::Idle } else { Progress::Worked }
    }

    /// Works for a slice; or returns how long there is nothing to do.
    fn analyze_slice(&self, state: &mut State, begun: Moment) -> Option<Duration> {
        let rows_least = self.analyses.rows_least;
        let mut steps = 0;
        let mut may_go_on = || {
            steps += 1;
            steps < STEPS_A_SLICE && begun.elapsed() < SLICE
        };
        if state.running.is_none() && state.tables.is_empty() {
            self.list_tables(state);
        }
        loop {
            if state.running.is_none() {
                let Some(table) = state.tables.pop_front() else { return Some(self.analyses.looks_every) };
                state.running = Some((Survey::new(&table, true), begun));
            }
            if let Some((survey, since)) = &mut state.running {
                match self.catalog.survey_on(survey, rows_least, &mut may_go_on) {
                    Surveyed::Some => {}
                    Surveyed::NotNow => return Some(WAIT),
                    Surveyed::All => {
                        let until = clock::now().after(since.elapsed() * REST);
                        state.resting.extend(until.map(|until| (survey.table().id(), until)));
                        state.running = None;
                    }
                }
            }
            if !may_go_on() {
                return None;
            }
        }
    }

    /// Lists the tables to be analyzed, the smallest first: a large one does not keep others
    /// waiting.
    fn list_tables(&self, state: &mut State) {
        let now = clock::now();
        state.resting.retain(|_, until| now < *until);
        let tables = self.catalog.names().into_iter().filter_map(|name| self.catalog.table(&name).ok());
        let due = tables.filter(|table| !state.resting.contains_key(&table.id())).filter_map(|table| {
            // One that cannot be read comes last: its survey reports that.
            let leaves = self.catalog.leaves_to_survey(&table, self.analyses.rows_least);
            Some((leaves.unwrap_or(Some(u64::MAX))?, table))
        });
        let mut due: Vec<(u64, Table)> = due.collect();
        due.sort_by_key(|(leaves, _)| *leaves);
        state.tables = due.into_iter().map(|(_, table)| table).collect();
    }
}
