//! How far tables have changed since they were analyzed.
//!
//! A transaction counts the rows that it inserts, replaces and deletes, and adds them to the
//! table's count when it has committed ([`firndb_txn::Keepable`]): what it took back to a savepoint
//! is among them. The count is in memory only. After an opening it begins with what the shape of
//! the table's tree tells of rows that came and went since the analysis, which catches growth;
//! changes of rows in place before the opening are forgotten. A table that was never analyzed has
//! changed wholly.

use crate::catalog::Catalog;
use crate::error::{TableError, TableErrorKind};
use crate::freshness::Freshness;
use crate::statistics::TableStatistics;
use crate::table::Table;
use firndb_base::sync::atomic::Ordering;
use firndb_txn::{TxnError, TxnErrorKind};

/// A table is analyzed again when one row in this many has changed.
const CHANGED_ONE_IN: u64 = 10;

impl Catalog {
    /// About how many rows were changed since the table was analyzed; all that there are, if it
    /// never was.
    ///
    /// Errors: those of reading.
    pub fn rows_changed(&self, table: &Table) -> Result<u64, TableError> {
        let (shared, state) = (&table.shared, table.shared.state()?);
        let is_known = shared.freshness.lock().analyzed.is_some();
        if !is_known {
            let statistics = match self.table_statistics(table) {
                Err(error) if error.is_damage() || error.kind == TableErrorKind::TooNew => None,
                statistics => statistics?,
            };
            let (rows, changed) = at_opening(statistics, state.tree.estimate(None, None, None)?);
            let mut freshness = shared.freshness.lock();
            if freshness.analyzed.is_none() {
                freshness.analyzed = Some(rows);
                // What has been counted since the opening is among them.
                state.rows_changed.fetch_max(changed, Ordering::Relaxed);
            }
        }
        Ok(state.rows_changed.load(Ordering::Relaxed))
    }

    /// Whether the table is to be analyzed: a tenth of its rows were changed, and `least` rows.
    ///
    /// Errors: as [`Catalog::rows_changed`].
    pub(crate) fn is_stale(&self, table: &Table, least: u64) -> Result<bool, TableError> {
        let changed = self.rows_changed(table)?;
        let freshness = table.shared.freshness.lock();
        let tenth = freshness.analyzed.unwrap_or(0).div_ceil(CHANGED_ONE_IN);
        Ok(!freshness.set_aside && changed >= least.max(tenth))
    }

    /// About how many leaves an analysis of the table would read, but for its indexes'; `None` if
    /// it is not to be analyzed, as [`Catalog::survey_on`] decides.
    ///
    /// Errors: as [`Catalog::rows_changed`].
    pub fn leaves_to_survey(&self, table: &Table, least: u64) -> Result<Option<u64>, TableError> {
        match self.is_stale(table, least)? {
            true => Ok(Some(table.shared.state()?.tree.estimate_leaves()?)),
            false => Ok(None),
        }
    }

    /// Leaves the table to [`Catalog::survey`] until the next opening, because of damage.
    pub(crate) fn set_analysis_aside(&self, table: &Table, error: &TableError) {
        table.shared.freshness.lock().set_aside = true;
        let name = table.name().unwrap_or_else(|_| "?".to_owned());
        let kind = if error.is_damage() { TxnErrorKind::Damaged } else { TxnErrorKind::Failed };
        self.manager
            .set_aside(format!("analyzing table {name:?}"), &TxnError::new(kind, error.message.clone()));
    }

    /// A survey of the table begins.
    pub(crate) fn note_survey(&self, table: &Table) -> Result<(), TableError> {
        let state = table.shared.state()?;
        table.shared.freshness.lock().counted_before = state.rows_changed.load(Ordering::Relaxed);
        Ok(())
    }

    /// The newest survey's statistics, of a table of `rows` rows, are kept.
    pub(crate) fn note_analysis(&self, table: &Table, rows: u64) -> Result<(), TableError> {
        let state = table.shared.state()?;
        let mut freshness = table.shared.freshness.lock();
        let left = |changed: u64| Some(changed.saturating_sub(freshness.counted_before));
        // A thread that adds at this moment may undo this, or be undone: the function never fails.
        let _ = state.rows_changed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
        *freshness = Freshness { analyzed: Some(rows), ..Freshness::default() };
        Ok(())
    }
}

/// The rows of a table when it was analyzed, and how many have changed since, by what its tree's
/// shape lets expect now and let expect then.
fn at_opening(statistics: Option<TableStatistics>, estimate: u64) -> (u64, u64) {
    let Some(statistics) = statistics.filter(|statistics| statistics.rows > 0) else { return (0, estimate) };
    let rows = statistics.rows as f64 * estimate as f64 / statistics.estimate.max(1) as f64;
    (statistics.rows, statistics.rows.abs_diff(rows as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_told_by_the_shape_of_the_tree() {
        let analyzed =
            |rows, estimate| Some(TableStatistics { rows, estimate, ..TableStatistics::default() });
        // Statistics, what the shape lets expect now; rows when analyzed, changed since.
        for (statistics, estimate, expected) in [
            (None, 700, (0, 700)),
            (analyzed(0, 0), 50, (0, 50)),
            (analyzed(5000, 6000), 6000, (5000, 0)),
            (analyzed(5000, 6000), 9000, (5000, 2500)),
            (analyzed(5000, 6000), 0, (5000, 5000)),
            (analyzed(10, 0), 30, (10, 290)),
        ] {
            assert_eq!(at_opening(statistics, estimate), expected);
        }
    }
}
