//! The names in a query.

use crate::error::Error;
use firndb_table::{ColumnType, Schema};

/// The columns of all tables of a query, one table behind the other.
pub(super) struct Names {
    tables: Vec<String>,
    columns: Vec<Named>,
}

struct Named {
    table: usize,
    name: String,
    column_type: ColumnType,
}

impl Names {
    pub(super) fn of(tables: &[(String, &Schema)]) -> Result<Names, Error> {
        let mut names = Names { tables: Vec::new(), columns: Vec::new() };
        for (table, (name, schema)) in tables.iter().enumerate() {
            if names.tables.contains(name) {
                return Err(Error::bad_argument(format!(
                    "table {name:?} comes twice in the query: give one another name, as in \"{name} as other\""
                )));
            }
            names.tables.push(name.clone());
            let named = |column: &firndb_table::Column| Named {
                table,
                name: column.name.clone(),
                column_type: column.column_type,
            };
            names.columns.extend(schema.columns().iter().map(named));
        }
        Ok(names)
    }

    /// The number of a column.
    pub(super) fn column(&self, name: &str) -> Result<usize, Error> {
        let is_it = |column: &Named| {
            column.name == name
                || name
                    .strip_prefix(self.tables[column.table].as_str())
                    .and_then(|rest| rest.strip_prefix('.'))
                    == Some(&column.name)
        };
        let found: Vec<usize> = (0..self.columns.len()).filter(|at| is_it(&self.columns[*at])).collect();
        match found[..] {
            [one] => Ok(one),
            [] => {
                let all: Vec<String> = (0..self.columns.len()).map(|at| self.name(at)).collect();
                let message = format!("there is no column {name:?}; the query has {}", all.join(", "));
                Err(Error::bad_argument(message))
            }
            _ => {
                let all: Vec<String> = found.into_iter().map(|at| self.qualified(at)).collect();
                let message = format!("column {name:?} is ambiguous: say {}", all.join(" or "));
                Err(Error::bad_argument(message))
            }
        }
    }

    pub(super) fn table(&self, name: &str) -> Result<usize, Error> {
        self.tables.iter().position(|table| table == name).ok_or_else(|| {
            let all = self.tables.join(", ");
            Error::bad_argument(format!("there is no table {name:?} in the query, which has {all}"))
        })
    }

    pub(super) fn column_type(&self, column: usize) -> ColumnType {
        self.columns[column].column_type
    }
    pub(super) fn len(&self) -> usize {
        self.columns.len()
    }

    /// The shortest name of a column that means no other.
    pub(super) fn name(&self, column: usize) -> String {
        let name = &self.columns[column].name;
        match self.columns.iter().filter(|other| other.name == *name).count() {
            1 => name.clone(),
            _ => self.qualified(column),
        }
    }

    fn qualified(&self, column: usize) -> String {
        format!("{}.{}", self.tables[self.columns[column].table], self.columns[column].name)
    }
}
