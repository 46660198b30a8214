//! A typed table by its values.

use crate::cursor::Cursor;
use crate::definition::Definition;
use crate::error::TableError;
use crate::index_cursor::{IndexCursor, UnorderedIndexCursor};
use crate::index_handle::Index;
use crate::range::KeyRange;
use crate::schema::Schema;
use crate::state::State;
use crate::table::Table;
use crate::table_kind::TableKind;
use crate::value::{Value, ValueRef};
use crate::write::Bytes;
use firndb_base::sync::Arc;
use firndb_btree::Direction;
use firndb_txn::Transaction;
use std::ops::Bound;

impl Table {
    /// The table by values. Fails with kind `BadArgument` if it is a raw one.
    pub fn typed(&self) -> Result<TypedTable, TableError> {
        match &self.shared.state()?.definition {
            Definition { kind: TableKind::Typed(_), .. } => Ok(TypedTable::new(self.clone())),
            Definition { name, .. } => {
                Err(TableError::bad_argument(format!("table {name:?} holds raw bytes")))
            }
        }
    }
}

/// A typed table by its values. Cheap to clone. Rows are passed and returned as one value a column,
/// in the order of the schema's columns.
#[derive(Clone, Debug)]
pub struct TypedTable {
    table: Table,
}

impl TypedTable {
    /// Of a table that was found to be typed, which it stays.
    pub(crate) fn new(table: Table) -> TypedTable {
        TypedTable { table }
    }

    /// The same table by its bytes.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.table
    }

    pub fn schema(&self) -> Result<Schema, TableError> {
        Ok(schema(&*self.table.shared.state()?).clone())
    }

    /// Reads the row with this primary key into `row`; false if there is none.
    pub fn get(
        &self,
        txn: &mut Transaction,
        key: &[ValueRef<'_>],
        row: &mut Vec<Value>,
    ) -> Result<bool, TableError> {
        self.read(txn, key, row, Table::get)
    }

    /// As [`TypedTable::get`], locking the row (see [`Table::get_for_update`]).
    pub fn get_for_update(
        &self,
        txn: &mut Transaction,
        key: &[ValueRef<'_>],
        row: &mut Vec<Value>,
    ) -> Result<bool, TableError> {
        self.read(txn, key, row, Table::get_for_update)
    }

    /// Reads the rows with these primary keys, which may come in any order and repeat, as one
    /// statement: the row of each key, in the order of the keys.
    pub fn get_many<'v, K: AsRef<[ValueRef<'v>]>>(
        &self,
        txn: &mut Transaction,
        keys: &[K],
    ) -> Result<Vec<Option<Vec<Value>>>, TableError> {
        let state = self.table.state_for(txn)?;
        let keys: Result<Vec<_>, _> = keys.iter().map(|key| whole_key(&state, key.as_ref())).collect();
        let (keys, mut rows) = (keys?, crate::rows::Rows::new());
        self.table.get_many(txn, &keys, &mut rows)?;
        // The rows may hold a column that was added since: the state is taken after they were read.
        let state = self.table.state_for(txn)?;
        let decoded = keys.iter().zip(rows.iter()).map(|(key, bytes)| {
            let Some(bytes) = bytes else { return Ok(None) };
            let mut row = Vec::new();
            decode(&state, key, bytes, &mut row)?;
            Ok(Some(row))
        });
        decoded.collect()
    }

    /// Reads the row with these values (one a column of the index, none NULL) in a unique index;
    /// false if there is none.
    pub fn get_by(
        &self,
        txn: &mut Transaction,
        index: &Index,
        values: &[ValueRef<'_>],
        row: &mut Vec<Value>,
    ) -> Result<bool, TableError> {
        self.check_mine(index)?;
        let (mut key, mut primary_key, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        index.encode(values, &mut key)?;
        row.clear();
        if !index.get(txn, &key, &mut primary_key, &mut bytes)? {
            return Ok(false);
        }
        decode(&*self.table.state_for(txn)?, &primary_key, &bytes, row)?;
        Ok(true)
    }

    /// Inserts a row. Errors as [`Table::insert`].
    pub fn insert(&self, txn: &mut Transaction, row: &[ValueRef<'_>]) -> Result<(), TableError> {
        self.write(txn, row, Table::insert_bytes)
    }
    /// Inserts a row, or replaces the one with its primary key; whether there was one.
    pub fn put(&self, txn: &mut Transaction, row: &[ValueRef<'_>]) -> Result<bool, TableError> {
        self.write(txn, row, Table::put_bytes)
    }
    /// Replaces the row with the same primary key; false if there is none.
    pub fn update(&self, txn: &mut Transaction, row: &[ValueRef<'_>]) -> Result<bool, TableError> {
        self.write(txn, row, Table::update_bytes)
    }
    /// Deletes the row with this primary key; false if there is none.
    pub fn delete(&self, txn: &mut Transaction, key: &[ValueRef<'_>]) -> Result<bool, TableError> {
        let state = self.table.state_for(txn)?;
        self.table.delete(txn, &whole_key(&state, key)?)
    }

    /// Rows whose primary keys lie between two bounds, each given by values of the first key
    /// columns: an included bound takes in every key that begins with it, an excluded one leaves
    /// them out.
    pub fn scan(
        &self,
        low: Bound<&[ValueRef<'_>]>,
        high: Bound<&[ValueRef<'_>]>,
        direction: Direction,
    ) -> Result<TypedCursor, TableError> {
        let state = self.table.shared.state()?;
        let range = prefixes(low, high, |values, key| schema(&state).encode_key(values, key))?;
        Ok(TypedCursor {
            rows: Rows::Table(self.table.scan(range, direction)),
            table: self.table.clone(),
            filters: Vec::new(),
            row: Vec::new(),
        })
    }

    /// Rows whose keys of an index lie between two bounds (see [`TypedTable::scan`]), in the
    /// index's order.
    pub fn scan_index(
        &self,
        index: &Index,
        low: Bound<&[ValueRef<'_>]>,
        high: Bound<&[ValueRef<'_>]>,
        direction: Direction,
    ) -> Result<TypedCursor, TableError> {
        self.check_mine(index)?;
        let range = prefixes(low, high, |values, key| index.encode(values, key))?;
        Ok(TypedCursor {
            rows: Rows::Index(index.scan(range, direction)),
            table: self.table.clone(),
            filters: Vec::new(),
            row: Vec::new(),
        })
    }

    fn check_mine(&self, index: &Index) -> Result<(), TableError> {
        if index.table().id() == self.table.id() {
            return Ok(());
        }
        Err(TableError::bad_argument("the index belongs to another table"))
    }

    fn read(
        &self,
        txn: &mut Transaction,
        key: &[ValueRef<'_>],
        row: &mut Vec<Value>,
        get: impl FnOnce(&Table, &mut Transaction, &[u8], &mut Vec<u8>) -> Result<bool, TableError>,
    ) -> Result<bool, TableError> {
        let key = whole_key(&*self.table.state_for(txn)?, key)?;
        let mut bytes = Vec::new();
        if !get(&self.table, txn, &key, &mut bytes)? {
            row.clear();
            return Ok(false);
        }
        // The row may hold a column that was added since: the state is taken after the row was
        // read.
        decode(&*self.table.state_for(txn)?, &key, &bytes, row)?;
        Ok(true)
    }

    fn write<R>(
        &self,
        txn: &mut Transaction,
        row: &[ValueRef<'_>],
        write: impl FnOnce(&Table, &mut Transaction, &[u8], &[u8], Bytes) -> Result<R, TableError>,
    ) -> Result<R, TableError> {
        let state = self.table.state_for(txn)?;
        let (mut key, mut bytes) = (Vec::new(), Vec::new());
        schema(&state).encode(row, &mut key, &mut bytes)?;
        write(&self.table, txn, &key, &bytes, Bytes::Encoded)
    }
}

/// Rows by their values, from [`TypedTable::scan`] and [`TypedTable::scan_index`].
pub struct TypedCursor {
    rows: Rows,
    table: Table,
    filters: Vec<(usize, Arc<ColumnFilter>)>,
    row: Vec<Value>,
}

/// Chooses rows by the value of a column.
type ColumnFilter = dyn Fn(ValueRef<'_>) -> bool + Send + Sync;

enum Rows {
    Table(Cursor),
    Index(IndexCursor),
    Unordered(UnorderedIndexCursor),
}

impl TypedCursor {
    /// The same cursor, locking every row that it returns.
    #[must_use]
    pub fn for_update(self) -> TypedCursor {
        let rows = match self.rows {
            Rows::Table(cursor) => Rows::Table(cursor.for_update()),
            Rows::Index(cursor) => Rows::Index(cursor.for_update()),
            Rows::Unordered(cursor) => Rows::Unordered(cursor.for_update()),
        };
        TypedCursor { rows, ..self }
    }

    /// The same rows, in no particular order if they come through an index: each page of the table
    /// is then read once for the rows of some hundred entries. Of a cursor that has returned no
    /// row.
    #[must_use]
    pub fn unordered(self) -> TypedCursor {
        let rows = match self.rows {
            Rows::Index(cursor) => Rows::Unordered(cursor.unordered()),
            rows => rows,
        };
        TypedCursor { rows, ..self }
    }

    /// The same cursor, returning only the rows for whose value of `column` `keep` holds, besides
    /// those of earlier calls. Where the table itself is scanned, `keep` is asked before a row is
    /// copied, with a latch held and perhaps more than once: it must depend on its argument alone,
    /// and neither block nor use the database.
    ///
    /// Errors: `BadArgument` if there is no such column.
    pub fn filter(
        mut self,
        column: usize,
        keep: impl Fn(ValueRef<'_>) -> bool + Send + Sync + 'static,
    ) -> Result<TypedCursor, TableError> {
        let state = self.table.shared.state()?;
        let columns = schema(&state).columns().len();
        if column >= columns {
            let name = &state.definition.name;
            return Err(TableError::bad_argument(format!("table {name:?} has {columns} columns")));
        }
        let keep: Arc<ColumnFilter> = Arc::new(keep);
        self.filters.push((column, keep.clone()));
        if let Rows::Table(cursor) = self.rows {
            let schema = schema(&state).clone();
            // What cannot be read, or is newer than the schema, is decided on when it is returned.
            let keep_now =
                move |key: &[u8], row: &[u8]| schema.test(key, row, column, &*keep).unwrap_or(true);
            self.rows = Rows::Table(cursor.filter(keep_now));
        }
        Ok(self)
    }

    /// The next row, borrowed until the next call. `None` at the end.
    pub fn next(&mut self, txn: &mut Transaction) -> Result<Option<&[Value]>, TableError> {
        loop {
            let found = match &mut self.rows {
                Rows::Table(cursor) => cursor.next(txn)?,
                Rows::Index(cursor) => cursor.next(txn)?.map(|found| (found.primary_key, found.row)),
                Rows::Unordered(cursor) => cursor.next(txn)?.map(|found| (found.primary_key, found.row)),
            };
            let Some((key, row)) = found else { return Ok(None) };
            decode(&*self.table.shared.state()?, key, row, &mut self.row)?;
            if self.filters.iter().all(|(column, keep)| keep(self.row[*column].as_ref())) {
                return Ok(Some(&self.row));
            }
        }
    }

    /// Forgets the rows read ahead: the next one is read again.
    pub fn refresh(&mut self) {
        match &mut self.rows {
            Rows::Table(cursor) => cursor.refresh(),
            Rows::Index(cursor) => cursor.refresh(),
            Rows::Unordered(cursor) => cursor.refresh(),
        }
    }
}

fn schema(state: &State) -> &Schema {
    match state.kind() {
        TableKind::Typed(schema) => schema,
        TableKind::Raw => unreachable!("a table never changes its kind"),
    }
}

fn whole_key(state: &State, values: &[ValueRef<'_>]) -> Result<Vec<u8>, TableError> {
    let columns = schema(state).key().len();
    if values.len() != columns {
        return Err(TableError::bad_argument(format!(
            "{} values given, the primary key of table {:?} has {columns} columns",
            values.len(),
            state.definition.name
        )));
    }
    let mut key = Vec::new();
    schema(state).encode_key(values, &mut key)?;
    Ok(key)
}

fn decode(state: &State, key: &[u8], bytes: &[u8], row: &mut Vec<Value>) -> Result<(), TableError> {
    schema(state).decode(key, bytes, row).map_err(|error| {
        let table = &state.definition.name;
        TableError::damaged(format!("row {} of table {table:?}: {error}", crate::show::Bytes(key)))
    })
}

fn prefixes(
    low: Bound<&[ValueRef<'_>]>,
    high: Bound<&[ValueRef<'_>]>,
    encode: impl Fn(&[ValueRef<'_>], &mut Vec<u8>) -> Result<(), TableError>,
) -> Result<KeyRange, TableError> {
    let encoded = |bound: Bound<&[ValueRef<'_>]>| -> Result<Bound<Vec<u8>>, TableError> {
        let mut key = Vec::new();
        match bound {
            Bound::Unbounded => return Ok(Bound::Unbounded),
            Bound::Included(values) | Bound::Excluded(values) => encode(values, &mut key)?,
        }
        Ok(bound.map(|_| key))
    };
    let (low, high) = (encoded(low)?, encoded(high)?);
    Ok(KeyRange::of_prefixes(low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice)))
}
