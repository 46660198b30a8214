//! Statistics of tables, for planning.

use crate::database::Database;
use crate::error::Error;
use crate::table::Table;
use firndb_table::{AnalyzeProgress, TableStatistics};
use firndb_txn::TxnOptions as TransactionOptions;

impl Database {
    /// Reads a table once, in one snapshot, while other transactions run, and keeps what planning
    /// needs of it: counts, how an index's order agrees with the table's, and a sample of rows.
    /// Until that is committed, the statistics of the time before stay.
    ///
    /// Errors: `NotFound` and `Stale` if the table is dropped meanwhile, `ReadOnly`, and those of
    /// reading.
    pub fn analyze(&self, table: &Table) -> Result<TableStatistics, Error> {
        self.analyze_with(table, TransactionOptions::default(), &mut |_| {})
    }

    /// As [`Database::analyze`], with progress, and the cancel token of `options`.
    pub fn analyze_with(
        &self,
        table: &Table,
        options: TransactionOptions,
        progress: &mut dyn FnMut(AnalyzeProgress),
    ) -> Result<TableStatistics, Error> {
        let engine = self.engine();
        engine.check_writable()?;
        let statistics = engine.catalog.survey(&table.inner, options, progress)?;
        engine.write(|| Ok(engine.catalog.keep_statistics(&table.inner, &statistics)?))?;
        Ok(statistics)
    }

    /// About how many rows of a table were inserted, changed or deleted since it was analyzed; all
    /// that it has, if it never was. When a tenth was, it is analyzed in the background
    /// ([`crate::Tuning::analyze_in_background`]). After an opening the count begins with what the
    /// shape of the table's tree tells of rows that came and went.
    ///
    /// Errors: those of reading.
    pub fn rows_changed(&self, table: &Table) -> Result<u64, Error> {
        self.engine().check_open()?;
        Ok(self.engine().catalog.rows_changed(&table.inner)?)
    }

    /// What the last [`Database::analyze`] found of a table; `None` if there was none.
    ///
    /// Errors: `Damaged` or `TooNew` if what is kept cannot be used: analyze the table again.
    pub fn table_statistics(&self, table: &Table) -> Result<Option<TableStatistics>, Error> {
        self.engine().check_open()?;
        Ok(self.engine().catalog.table_statistics(&table.inner)?)
    }
}
