//! What `firn stat` shows of tables: rows and statistics.

use crate::analyze::{self, named_indexes};
use firndb::{Database, Error, RowCount, TableStatistics};
use firndb_console::{say, table};
use firndb_workloads::wall;
use serde_json::{Map, Value, json};

/// A table.
pub struct TableRows {
    name: String,
    /// How many rows it has, or why they cannot be counted.
    pub count: Result<RowCount, Error>,
    analyzed: Analyzed,
    /// Rows changed since; `None` if that is not known.
    changed: Option<u64>,
}

/// The statistics kept of a table, with the names of the indexes that they are of.
type Analyzed = Result<Option<(TableStatistics, Vec<String>)>, Error>;

/// The tables of these names.
pub fn rows(db: &Database, names: &[String]) -> Vec<TableRows> {
    let rows = |name: &String| TableRows {
        name: name.clone(),
        count: count(db, name),
        analyzed: analyzed(db, name),
        changed: db.table(name).and_then(|table| db.rows_changed(&table)).ok(),
    };
    names.iter().map(rows).collect()
}

fn count(db: &Database, table: &str) -> Result<RowCount, Error> {
    db.table(table)?.count_rows(&mut db.snapshot())
}

fn analyzed(db: &Database, table: &str) -> Analyzed {
    let table = db.table(table)?;
    let Some(statistics) = db.table_statistics(&table)? else { return Ok(None) };
    let indexes = named_indexes(&table, &statistics)?;
    Ok(Some((statistics, indexes)))
}

/// For people.
pub fn print(tables: &[TableRows]) {
    let mut shown = table::new(&["table", "rows", "when analyzed", "analyzed at", "changed since"]);
    for TableRows { name, count, analyzed, changed } in tables {
        let count = match count {
            Ok(RowCount { rows, is_exact: true }) => rows.to_string(),
            // Within 10 %.
            Ok(RowCount { rows, .. }) => format!("about {rows}"),
            Err(_) => "not known".to_owned(),
        };
        let (analyzed, at) = match analyzed {
            Ok(Some((found, _))) => (found.rows.to_string(), wall::iso8601(found.unix_us)),
            Ok(None) => ("never".to_owned(), String::new()),
            Err(_) => ("not known".to_owned(), String::new()),
        };
        let changed = changed.map_or_else(String::new, |rows| format!("about {rows}"));
        shown.add_row([name.clone(), count, analyzed, at, changed]);
    }
    say!("\n{}", table::text(shown, 1));
    for TableRows { name, count, analyzed, .. } in tables {
        match (count, analyzed) {
            (Err(damage), _) => say!("DAMAGE: {damage}"),
            (_, Err(error)) => say!("statistics of {name}: {error}; firn analyze makes new ones"),
            _ => {}
        }
    }
}

/// For scripts.
pub fn to_json(tables: &[TableRows]) -> Map<String, Value> {
    let of = |table: &TableRows| {
        let statistics = match &table.analyzed {
            Ok(analyzed) => json!(analyzed.as_ref().map(|(found, indexes)| analyze::to_json(found, indexes))),
            Err(error) => json!({"trouble": error.to_string()}),
        };
        let mut shown = match &table.count {
            Ok(count) => json!({"rows": count.rows, "exact": count.is_exact}),
            Err(error) => json!({"rows": null, "exact": false, "trouble": error.to_string()}),
        };
        shown["statistics"] = statistics;
        shown["changed_since"] = json!(table.changed);
        shown
    };
    tables.iter().map(|table| (table.name.clone(), of(table))).collect()
}
