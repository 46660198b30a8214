//! Which columns of which rows of a table a plan reads.

use crate::batch::Batch;
use crate::error::QueryError;
use crate::predicate::Predicate;
use crate::row::{Columns, RowBuilder};
use crate::work::Seen;
use firndb_base::hash::hash_bytes;
use firndb_base::sync::Arc;
use firndb_table::{ColumnType, Schema, Table, TableKind};

/// Unwanted rows of which a scan returns one from the table's layer, on average.
const PASS_ONE_IN: u64 = 4096;

/// Columns of the rows of a typed table for which a condition is true.
#[derive(Clone, Debug)]
pub struct Source {
    table: Table,
    schema: Arc<Schema>,
    columns: Vec<usize>,
    predicate: Arc<Predicate>,
}

impl Source {
    /// All columns of all rows.
    ///
    /// Errors: `BadArgument` if the table holds raw bytes.
    pub fn new(table: &Table) -> Result<Source, QueryError> {
        let schema = schema_of(table)?;
        let columns = (0..schema.columns().len()).collect();
        let predicate = Arc::new(Predicate::And(Vec::new()));
        Ok(Source { table: table.clone(), schema: Arc::new(schema), columns, predicate })
    }

    /// Only the rows for which `predicate`, on columns of the table, is true, besides those of
    /// earlier calls.
    ///
    /// Errors: `BadArgument` if it does not fit the table.
    pub fn filter(mut self, predicate: Predicate) -> Result<Source, QueryError> {
        let types: Vec<ColumnType> = self.schema.columns().iter().map(|column| column.column_type).collect();
        predicate.check(&types)?;
        let mut all = match Arc::unwrap_or_clone(self.predicate) {
            Predicate::And(all) => all,
            other => vec![other],
        };
        all.push(predicate);
        self.predicate = Arc::new(Predicate::And(all));
        Ok(self)
    }

    /// Only these columns of the table, in this order.
    ///
    /// Errors: `BadArgument` if one does not exist.
    pub fn select(mut self, columns: &[usize]) -> Result<Source, QueryError> {
        let count = self.schema.columns().len();
        if let Some(column) = columns.iter().find(|column| **column >= count) {
            return Err(QueryError::bad_argument(format!("there is no column {column} among {count}")));
        }
        self.columns = columns.to_vec();
        Ok(self)
    }

    /// The columns of the table that it has, in their order.
    #[must_use]
    pub fn columns(&self) -> &[usize] {
        &self.columns
    }
    /// Which rows it has.
    #[must_use]
    pub fn predicate(&self) -> &Predicate {
        &self.predicate
    }
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.table
    }
    /// The table's schema when the source was made.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    pub(crate) fn types(&self) -> Arc<[ColumnType]> {
        self.columns.iter().map(|column| self.schema.columns()[*column].column_type).collect()
    }

    /// A condition to be asked where rows lie: whether the row may be wanted. It lets some other
    /// rows pass, by their keys, so that a scan which finds nothing sees that it was cancelled.
    /// `seen` counts the rows.
    pub(crate) fn may_want(&self, seen: Arc<Seen>) -> impl Fn(&[u8], &[u8]) -> bool + Send + Sync + 'static {
        let (schema, predicate) = (self.schema.clone(), self.predicate.clone());
        move |key, row| {
            seen.count_one();
            // What cannot be read is looked at again, where its error is met.
            let holds = schema.stored(key, row).and_then(|stored| predicate.holds(&stored)).unwrap_or(true);
            holds || hash_bytes(0, key).is_multiple_of(PASS_ONE_IN)
        }
    }

    /// Fails with kind `BadArgument` unless `covers` holds for all columns that are read.
    pub(crate) fn check_covered(&self, covers: impl Fn(usize) -> bool) -> Result<(), QueryError> {
        let mut missing = self.columns.iter().copied().find(|column| !covers(*column));
        self.predicate.columns(&mut |column| {
            if !covers(column) {
                missing = Some(column);
            }
        });
        match missing {
            None => Ok(()),
            Some(column) => Err(QueryError::bad_argument(format!(
                "the index does not hold column {:?}: read the rows, too",
                self.schema.columns()[column].name
            ))),
        }
    }
}

fn schema_of(table: &Table) -> Result<Schema, QueryError> {
    let definition = table.definition()?;
    match definition.kind {
        TableKind::Typed(schema) => Ok(schema),
        TableKind::Raw => {
            let message = format!("table {:?} holds raw bytes; queries read typed tables", definition.name);
            Err(QueryError::bad_argument(message))
        }
    }
}

/// Makes rows of a query from those of a table.
pub(crate) struct SourceReader {
    source: Source,
    row: RowBuilder,
}

impl SourceReader {
    pub(crate) fn new(source: Source) -> SourceReader {
        SourceReader { source, row: RowBuilder::default() }
    }

    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// The row that a stored row makes, if it is wanted.
    pub(crate) fn read(&mut self, key: &[u8], row: &[u8]) -> Result<Option<&RowBuilder>, QueryError> {
        let wanted = match self.try_read(key, row) {
            Ok(wanted) => wanted,
            Err(error) => {
                // The row may hold a column that was added since.
                let schema = schema_of(&self.source.table)?;
                if schema == *self.source.schema {
                    return Err(self.named(error));
                }
                self.source.schema = Arc::new(schema);
                self.try_read(key, row).map_err(|error| self.named(error))?
            }
        };
        Ok(wanted.then_some(&self.row))
    }

    fn try_read(&mut self, key: &[u8], row: &[u8]) -> Result<bool, QueryError> {
        let schema = self.source.schema.clone();
        let stored = schema.stored(key, row)?;
        self.read_columns(&stored)
    }

    /// Reads a row or an index entry; whether it is wanted.
    pub(crate) fn read_columns(&mut self, stored: &impl Columns) -> Result<bool, QueryError> {
        if !self.source.predicate.holds(stored)? {
            return Ok(false);
        }
        self.row.begin(self.source.columns.len());
        for column in &self.source.columns {
            self.row.put(stored.field(*column)?.value())?;
        }
        Ok(true)
    }

    /// Appends the row that was read last.
    pub(crate) fn push(&self, out: &mut Batch) -> Result<(), QueryError> {
        out.push_built(&self.row)
    }

    /// The error with the name of the table.
    fn named(&self, error: QueryError) -> QueryError {
        match self.source.table.name() {
            Ok(name) => QueryError { message: format!("table {name:?}: {}", error.message), ..error },
            Err(_) => error,
        }
    }
}
