//! What the tables themselves say: their definitions, statistics and trees.

use super::bounds::KeyBounds;
use super::facts::{Knowledge, Origin, PathFacts, TableFacts};
use crate::error::QueryError;
use crate::predicate::Predicate;
use crate::row::Columns;
use crate::source::Source;
use firndb_base::codec::Malformed;
use firndb_base::sync::Arc;
use firndb_table::{
    Catalog, Counted, Field, Index, IndexState, KeyRange, PlanningStatistics, SampledColumn, Schema, Table,
    TableStatistics,
};
use firndb_txn::Transaction;

/// Bytes that a column of variable length is taken to have, and the share of a leaf that is used,
/// where there are no statistics.
const VARIABLE_BYTES: usize = 24;
const LEAF_USED: f64 = 0.7;

/// The tables of a request, and what is known of them.
pub struct Gathered {
    pub tables: Vec<Table>,
    pub schemas: Vec<Schema>,
    /// Of each table the indexes of its paths, but for the first.
    pub indexes: Vec<Vec<Index>>,
    pub facts: Vec<TableFacts>,
    statistics: Vec<Option<Arc<PlanningStatistics>>>,
    /// Entries and leaves of each path, as the table was analyzed.
    counted: Vec<Vec<Option<Counted>>>,
}

/// Asks tables, each with its name in the query. Reads nodes of their trees, and no leaves but
/// those at the ends of ranges.
///
/// Indexes that `txn` may not read, since they were completed after its snapshot, are left out.
///
/// Errors: `BadArgument` if a table holds raw bytes; those of reading. Statistics that cannot be
/// used are treated as none.
pub fn gather(
    catalog: &Catalog,
    tables: &[(String, Table)],
    txn: Option<&Transaction>,
) -> Result<Gathered, QueryError> {
    let mut gathered = Gathered {
        tables: Vec::new(),
        schemas: Vec::new(),
        indexes: Vec::new(),
        facts: Vec::new(),
        statistics: Vec::new(),
        counted: Vec::new(),
    };
    for (name, table) in tables {
        gathered.add(catalog, name, table, txn)?;
    }
    Ok(gathered)
}

impl Gathered {
    fn add(
        &mut self,
        catalog: &Catalog,
        name: &str,
        table: &Table,
        txn: Option<&Transaction>,
    ) -> Result<(), QueryError> {
        let schema = Source::new(table)?.schema().clone();
        let planning = catalog.planning_statistics(table).ok().flatten();
        let statistics = planning.as_ref().map(|planning| &planning.known);
        let (rows, row_bytes, leaves) = size_of(table, &schema, statistics)?;
        let residency = planning.as_ref().and_then(|of| table.residency(of).ok()).unwrap_or_default();
        let columns = schema.columns().len();
        let mut paths = vec![PathFacts {
            name: String::new(),
            columns: schema.key().to_vec(),
            is_unique: true,
            covers: vec![true; columns],
            leaves,
            residency,
            table_leaves: None,
        }];
        let counted = |rows: u64, leaves: u64| Counted { entries: rows, leaves };
        let mut of_paths = vec![statistics.map(|found| counted(found.rows, found.leaves))];
        let mut indexes = Vec::new();
        for definition in table.definition()?.indexes {
            // One of byte ranges has no columns to compare.
            if definition.state != IndexState::Ready || definition.columns().is_empty() {
                continue;
            }
            let index = table.index(&definition.spec.name)?;
            if let Some(txn) = txn
                && !index.is_readable_by(txn)?
            {
                continue;
            }
            let known = statistics.and_then(|found| found.index(definition.tree));
            let parts = definition.columns().iter().chain(schema.key());
            let entry: usize = parts.map(|part| fixed_len(&schema.columns()[part.column]) + 2).sum();
            let guessed = (rows * entry as f64 / LEAF_USED / table.page_size() as f64).ceil();
            paths.push(PathFacts {
                name: definition.spec.name.clone(),
                columns: definition.columns().to_vec(),
                is_unique: definition.spec.unique,
                covers: (0..columns).map(|column| definition.covers(&schema, column)).collect(),
                leaves: known.map_or(guessed, |known| known.leaves as f64).max(1.0),
                residency: planning.as_ref().and_then(|of| index.residency(of).ok()).unwrap_or_default(),
                table_leaves: known.map(|known| known.table_leaves),
            });
            of_paths.push(known.zip(statistics).map(|(known, found)| counted(found.rows, known.leaves)));
            indexes.push(index);
        }
        let origin = if statistics.is_some() { Origin::Analyzed } else { Origin::Estimated };
        let leaves = leaves.max(1.0);
        let facts =
            TableFacts { name: name.to_owned(), columns, rows, row_bytes, leaves, residency, paths, origin };
        self.tables.push(table.clone());
        self.schemas.push(schema);
        self.indexes.push(indexes);
        self.facts.push(facts);
        self.statistics.push(planning);
        self.counted.push(of_paths);
        Ok(())
    }

    /// The keys of a path that bounds leave.
    ///
    /// Errors: those of encoding a key.
    pub fn range(&self, table: usize, path: usize, bounds: &KeyBounds) -> Result<KeyRange, QueryError> {
        match path {
            0 => bounds.range(|values, key| self.schemas[table].encode_key(values, key)),
            _ => bounds.range(|values, key| self.indexes[table][path - 1].encode(values, key)),
        }
    }
}

/// Rows of a table, bytes of one, and leaves, as they are known or guessed.
fn size_of(
    table: &Table,
    schema: &Schema,
    statistics: Option<&TableStatistics>,
) -> Result<(f64, f64, f64), QueryError> {
    Ok(match statistics {
        // Rows since then: in proportion.
        Some(found) => {
            let rows = table.approximate_rows()? as f64;
            let growth = if found.rows > 0 { rows / found.rows as f64 } else { 1.0 };
            // Estimates are rough: what was counted stands while it is not far off.
            let growth = if (0.5..2.0).contains(&growth) { 1.0 } else { growth };
            let row_bytes = found.row_bytes as f64 / found.rows.max(1) as f64;
            (found.rows.max(1) as f64 * growth, row_bytes, found.leaves as f64 * growth)
        }
        None => {
            let rows = (table.approximate_rows()? as f64).max(1.0);
            let row_bytes = schema.columns().iter().map(fixed_len).sum::<usize>() as f64 + 12.0;
            (rows, row_bytes, (rows * row_bytes / LEAF_USED / table.page_size() as f64).ceil().max(1.0))
        }
    })
}

/// Bytes of a column, by its type.
fn fixed_len(column: &firndb_table::Column) -> usize {
    column.column_type.fixed_len().unwrap_or(VARIABLE_BYTES)
}

impl Knowledge for Gathered {
    fn range_rows(&self, table: usize, path: usize, bounds: &KeyBounds) -> Option<f64> {
        let range = self.range(table, path, bounds).ok()?;
        let counted = self.counted[table][path];
        let rows = match path {
            0 => self.tables[table].estimate(&range, counted),
            _ => self.indexes[table][path - 1].estimate(&range, counted),
        };
        Some(rows.ok()? as f64)
    }

    fn share(&self, table: usize, condition: &Predicate) -> Option<(f64, usize)> {
        let statistics = self.statistics[table].as_ref()?;
        let mut columns = Vec::new();
        condition.columns(&mut |column| columns.push(column));
        let column = |column| Some((column, statistics.column(&self.schemas[table], column).ok()?));
        let columns: Vec<_> = columns.into_iter().map(column).collect::<Option<_>>()?;
        let holds = |row| condition.holds(&Sampled { columns: &columns, row }).unwrap_or(false);
        statistics.known.share(holds)
    }

    fn distinct(&self, table: usize, column: usize) -> Option<f64> {
        let column = self.statistics[table].as_ref()?.column(&self.schemas[table], column).ok()?;
        column.distinct(self.facts[table].rows)
    }
}

/// A sampled row, by the columns that a condition names.
struct Sampled<'a> {
    columns: &'a [(usize, Arc<SampledColumn>)],
    row: usize,
}

impl Columns for Sampled<'_> {
    fn field(&self, column: usize) -> Result<Field<'_>, Malformed> {
        let named = self.columns.iter().find(|(named, _)| *named == column);
        let missing = Malformed { what: "a column that a condition names was not sampled" };
        named.map(|(_, values)| Field::Stored(values.value(self.row))).ok_or(missing)
    }
}
