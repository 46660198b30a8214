//! Creating tables together with their rows.

use crate::database::Database;
use crate::error::Error;
use crate::table::{Table, TableSpec};
use firndb_table::{Bytes, TableError, TableErrorKind, TableKind, Value, ValueRef};

/// Key and bytes of a row.
type Row = (Vec<u8>, Vec<u8>);

impl Database {
    /// Creates a table with rows of bytes that ascend strictly by key; complete, durable and known
    /// to others when it returns, and else not there. Writes each page about once where page files
    /// do ([`PageRecovery`](crate::PageRecovery)), which takes a fraction of the time and the log
    /// of inserts. Of a typed table the bytes are as its schema encodes them: see
    /// [`Database::load_typed`].
    ///
    /// Transactions whose snapshots are older cannot use the table: they get `Stale`. Meanwhile it
    /// counts as an open transaction: what that sees is not freed. Entries of its indexes may take
    /// 64 MiB of memory together.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = firndb::Database::open(dir.path().join("db"))?;
    /// let square = |n: u64| (n.to_be_bytes().to_vec(), (n * n).to_string().into_bytes());
    /// let squares = (0..1000).map(|n| Ok(square(n)));
    /// let table = db.load_table("squares", firndb::TableSpec::raw(), squares)?;
    /// assert_eq!(db.snapshot().get(&table, &7u64.to_be_bytes())?.as_deref(), Some(&b"49"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Errors: `Exists`, `BadArgument`, also if rows do not ascend, `Duplicate` if they violate a
    /// unique index; whatever error `rows` gives.
    pub fn load_table(
        &self,
        name: &str,
        spec: TableSpec,
        rows: impl IntoIterator<Item = Result<(Vec<u8>, Vec<u8>), Error>>,
    ) -> Result<Table, Error> {
        self.load(name, spec, (Bytes::Given, rows))
    }

    fn load(
        &self,
        name: &str,
        spec: TableSpec,
        (bytes, rows): (Bytes, impl IntoIterator<Item = Result<Row, Error>>),
    ) -> Result<Table, Error> {
        let engine = self.engine();
        engine.check_writable()?;
        engine.admit()?;
        let layout = engine.layout_of_new(&spec)?;
        let mut failed = None;
        let mut rows = rows.into_iter().map(|row| {
            row.map_err(|error| {
                failed = Some(error);
                TableError::new(TableErrorKind::BadArgument, "there is no next row")
            })
        });
        let mut placed = Ok(());
        let loaded = engine.catalog.load_table(
            name,
            (spec.kind, layout),
            spec.indexes,
            (bytes, &mut rows),
            &mut || placed = engine.place_trees(),
        );
        // Without the table, if there is none.
        let placed = placed.and(engine.place_trees());
        match (failed, loaded) {
            (Some(error), _) => Err(error),
            (None, loaded) => {
                let inner = loaded?;
                placed?;
                Ok(Table { inner, handle: self.handle.clone() })
            }
        }
    }

    /// As [`Database::load_table`], for a typed table: rows of one value a column, which ascend by
    /// primary key.
    pub fn load_typed(
        &self,
        name: &str,
        spec: TableSpec,
        rows: impl IntoIterator<Item = Result<Vec<Value>, Error>>,
    ) -> Result<Table, Error> {
        let TableKind::Typed(schema) = spec.kind.clone() else {
            return Err(Error::bad_argument(format!("table {name:?} is to hold raw bytes: use load_table")));
        };
        let encode = |values: Vec<Value>| {
            let (mut key, mut row) = (Vec::new(), Vec::new());
            let values: Vec<ValueRef<'_>> = values.iter().map(Into::into).collect();
            schema.encode(&values, &mut key, &mut row)?;
            Ok((key, row))
        };
        let rows = rows.into_iter().map(|values| values.and_then(encode));
        self.load(name, spec, (Bytes::Encoded, rows))
    }
}
