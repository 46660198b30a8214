//! Analyzing a table: its rows are read once, beside writers ([`Survey`]).
//!
//! The statistics are written by one transaction after all was read: a crash before it has
//! committed leaves the old ones.

use crate::catalog::Catalog;
use crate::catalog_rows;
use crate::error::{TableError, TableErrorKind};
use crate::planning::PlanningStatistics;
use crate::statistics::TableStatistics;
use crate::survey::{AnalyzeProgress, Survey};
use crate::table::Table;
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::Ordering;
use firndb_txn::{Isolation, TxnOptions};

/// What came of a piece of an analysis in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surveyed {
    /// There is more to read.
    Some,
    /// It has to wait: for space, for a change of the table's definition, or for a device.
    NotNow,
    /// The statistics are kept; or the table is not stale, or was dropped, or the work was set
    /// aside.
    All,
}

impl Catalog {
    /// Reads a table in one snapshot, while other transactions run. Writes nothing: see
    /// [`Catalog::keep_statistics`].
    ///
    /// Errors: the transaction's; `Dropped` if the table is dropped meanwhile.
    pub fn survey(
        &self,
        table: &Table,
        options: TxnOptions,
        progress: &mut dyn FnMut(AnalyzeProgress),
    ) -> Result<TableStatistics, TableError> {
        let options = TxnOptions { read_only: true, isolation: Isolation::Snapshot, ..options };
        let mut txn = self.manager.begin(options);
        self.note_survey(table)?;
        let mut survey = Survey::new(table, false);
        while survey.step(&mut txn, progress)? {}
        txn.rollback()?;
        Ok(survey.statistics())
    }

    /// Reads on, in a snapshot of its own, while `may_go_on`. When all has been read, keeps the
    /// statistics. It begins with finding whether the table is stale: whether a tenth of its rows,
    /// and as many as `least`, have changed since the last time. What damage prevents is set aside
    /// until the next opening.
    pub fn survey_on(&self, survey: &mut Survey, least: u64, may_go_on: impl FnMut() -> bool) -> Surveyed {
        if !survey.attempts.are_due() {
            return Surveyed::NotNow;
        }
        match self.read_on(survey, least, may_go_on) {
            Ok(surveyed) => surveyed,
            Err(error) if error.kind == TableErrorKind::Dropped => Surveyed::All,
            Err(error) if !self.is_to_be_set_aside(&error) || survey.attempts.failed(&error) => {
                Surveyed::NotNow
            }
            Err(error) => {
                self.set_analysis_aside(survey.table(), &error);
                Surveyed::All
            }
        }
    }

    fn read_on(
        &self,
        survey: &mut Survey,
        least: u64,
        mut may_go_on: impl FnMut() -> bool,
    ) -> Result<Surveyed, TableError> {
        if survey.is_to_begin() {
            if !self.is_stale(survey.table(), least)? {
                return Ok(Surveyed::All);
            }
            self.note_survey(survey.table())?;
        }
        let mut txn = self.manager.begin(TxnOptions { read_only: true, ..TxnOptions::default() });
        while survey.step(&mut txn, &mut |_| {})? {
            if !may_go_on() {
                txn.rollback()?;
                return Ok(Surveyed::Some);
            }
        }
        txn.rollback()?;
        let table = survey.table();
        // An index build holds it for as long as it takes.
        let Some(_change) = table.shared.definition_change.try_lock() else { return Ok(Surveyed::NotNow) };
        self.write_statistics(table, &survey.statistics())?;
        Ok(Surveyed::All)
    }

    /// Keeps what [`Catalog::survey`] found of a table, in place of the statistics it had.
    ///
    /// Errors: the transaction's; `Dropped` if the table was dropped meanwhile.
    pub fn keep_statistics(&self, table: &Table, statistics: &TableStatistics) -> Result<(), TableError> {
        self.check_own(table)?;
        // A table that is dropped after this erases its statistics with it.
        let _change = table.shared.definition_change.lock();
        self.write_statistics(table, statistics)
    }

    /// The caller keeps the table's definition from being changed.
    fn write_statistics(&self, table: &Table, statistics: &TableStatistics) -> Result<(), TableError> {
        assert!(table.shared.definition_change.is_locked());
        let bytes = statistics.encode(table.shared.id);
        table.shared.state()?;
        let outcome = {
            let _writing = self.writing.lock();
            self.commit(|txn| catalog_rows::write_statistics(txn, &self.system, table.shared.id, &bytes))
        };
        // Also after an error, since the commit may have come about all the same.
        table.shared.statistics_version.fetch_add(1, Ordering::SeqCst);
        outcome?;
        self.note_analysis(table, statistics.rows)
    }

    /// As [`Catalog::table_statistics`], read once for each time that they are written; they may
    /// still have those of dropped indexes, whose trees' ids are not given out again.
    ///
    /// Errors: as there.
    pub fn planning_statistics(&self, table: &Table) -> Result<Option<Arc<PlanningStatistics>>, TableError> {
        let shared = &table.shared;
        // Read first: what is then read is of this version or a later one, and is not used past it.
        let version = shared.statistics_version.load(Ordering::SeqCst);
        let known = shared.statistics.lock().clone();
        if let Some((of, statistics)) = known
            && of == version
        {
            return Ok(statistics);
        }
        let statistics = self.table_statistics(table)?.map(PlanningStatistics::new).map(Arc::new);
        *shared.statistics.lock() = Some((version, statistics.clone()));
        Ok(statistics)
    }

    /// The statistics kept of a table and of its present indexes; `None` if it was never analyzed.
    /// Read anew each time.
    ///
    /// Errors: the transaction's; `Damaged` and `TooNew` if they cannot be used. The table itself
    /// is none the worse: analyze it again.
    pub fn table_statistics(&self, table: &Table) -> Result<Option<TableStatistics>, TableError> {
        let mut txn = self.manager.begin(TxnOptions { read_only: true, ..TxnOptions::default() });
        let state = table.shared.state_for(&txn)?;
        let bytes = catalog_rows::read_statistics(&mut txn, &self.system, table.shared.id)?;
        txn.rollback()?;
        let Some(bytes) = bytes else { return Ok(None) };
        let mut statistics = TableStatistics::decode(&bytes, table.shared.id)?;
        // Those of dropped indexes stay in the catalog until the table is analyzed again.
        statistics.indexes.retain(|index| state.index(index.tree).is_some());
        Ok(Some(statistics))
    }
}
