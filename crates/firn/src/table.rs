//! Tables, ranges and cursors as users hold them.

use crate::database::Handle;
use crate::error::{Error, ErrorKind};
use crate::layout::Layout;
use crate::transaction::Transaction;
use firndb_base::TreeId;
use firndb_base::sync::Arc;
use firndb_btree::Direction;
use firndb_table::{IndexSpec, KeyRange, RowCount, Schema, TableKind, Value, ValueRef};
use std::ops::Bound;

/// What a new table is like.
#[derive(Clone, Debug)]
pub struct TableSpec {
    pub(crate) kind: TableKind,
    pub(crate) indexes: Vec<IndexSpec>,
    /// `None`: that of the options.
    pub(crate) layout: Option<Layout>,
}

impl TableSpec {
    /// Rows of bytes, by keys of bytes.
    #[must_use]
    pub fn raw() -> TableSpec {
        TableSpec { kind: TableKind::Raw, indexes: Vec::new(), layout: None }
    }
    /// Rows of typed columns.
    #[must_use]
    pub fn typed(schema: Schema) -> TableSpec {
        TableSpec { kind: TableKind::Typed(schema), indexes: Vec::new(), layout: None }
    }
    /// With a secondary index.
    #[must_use]
    pub fn with_index(mut self, index: IndexSpec) -> TableSpec {
        self.indexes.push(index);
        self
    }
    /// Fragmented so over the store's devices, where it has several, whatever
    /// [`Options::table_layout`] says.
    ///
    /// [`Options::table_layout`]: crate::Options::table_layout
    #[must_use]
    pub fn with_layout(mut self, layout: Layout) -> TableSpec {
        self.layout = Some(layout);
        self
    }
}

/// A table, as rows of bytes in the order of their keys. Cheap to clone; usable from any thread.
/// Read and write it through a [`Transaction`].
#[derive(Clone)]
pub struct Table {
    pub(crate) inner: firndb_table::Table,
    /// Keeps the database open.
    pub(crate) handle: Arc<Handle>,
}

impl Table {
    /// Its present name.
    ///
    /// Errors: `Stale` if it was dropped.
    pub fn name(&self) -> Result<String, Error> {
        Ok(self.inner.name()?)
    }
    /// The same table by values.
    ///
    /// Errors: `BadArgument` if it holds raw bytes.
    pub fn typed(&self) -> Result<TypedTable, Error> {
        Ok(TypedTable { inner: self.inner.typed()?, table: self.clone() })
    }
    /// One of its secondary indexes.
    ///
    /// Errors: `NotFound`.
    pub fn index(&self, name: &str) -> Result<Index, Error> {
        Ok(Index { inner: self.inner.index(name)?, handle: self.handle.clone() })
    }
    /// The names of its secondary indexes.
    pub fn index_names(&self) -> Result<Vec<String>, Error> {
        Ok(self.inner.definition()?.indexes.into_iter().map(|index| index.spec.name).collect())
    }
    /// The names of its secondary indexes with their trees, by which
    /// [`TableStatistics`](firndb_table::TableStatistics) name them.
    pub fn index_trees(&self) -> Result<Vec<(String, TreeId)>, Error> {
        let indexes = self.inner.definition()?.indexes.into_iter();
        Ok(indexes.map(|index| (index.spec.name, index.tree)).collect())
    }
    /// About how many rows it has, from a few page reads; for planners.
    pub fn approximate_rows(&self) -> Result<u64, Error> {
        Ok(self.inner.approximate_rows()?)
    }
    /// How many rows it has: counted if that takes no more than reading some thousand pages, else
    /// estimated to within 10 % from a sample of its leaves, which [`RowCount::is_exact`] tells.
    /// Deleted rows do not count.
    pub fn count_rows(&self, tx: &mut Transaction) -> Result<RowCount, Error> {
        tx.read(|txn| self.inner.count_rows(txn)).map_err(|error| of_table(&self.inner, error))
    }
    /// About how many rows lie in a range of keys, from a few page reads; for planners.
    pub fn estimate(&self, range: &KeyRange) -> Result<u64, Error> {
        Ok(self.inner.estimate(range, None)?)
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

/// A secondary index. Cheap to clone.
#[derive(Clone)]
pub struct Index {
    pub(crate) inner: firndb_table::Index,
    pub(crate) handle: Arc<Handle>,
}

impl Index {
    /// About how many rows lie in a range of index keys, from a few page reads.
    pub fn estimate(&self, range: &KeyRange) -> Result<u64, Error> {
        self.handle.engine.check_open()?;
        Ok(self.inner.estimate(range, None)?)
    }
}

/// A typed table by its values: one value a column, in the order of the schema.
///
/// ```
/// use firndb::{Column, ColumnType, IndexSpec, KeyColumn, Schema, TableSpec, Value};
/// # let dir = tempfile::tempdir()?;
/// # let db = firndb::Database::open(dir.path().join("db"))?;
/// let schema = Schema::with_key(
///     vec![Column::new("id", ColumnType::I64), Column::new("name", ColumnType::Text)],
///     &["id"],
/// )?;
/// let spec = TableSpec::typed(schema).with_index(IndexSpec::columns("by_name", true, vec![KeyColumn::ascending(1)]));
/// let people = db.create_table_with("people", spec)?.typed()?;
/// db.transact(|tx| people.insert(tx, &[1i64.into(), "Ada".into()]))?;
/// let mut row = Vec::new();
/// assert!(people.get(&mut db.snapshot(), &[1i64.into()], &mut row)?);
/// assert_eq!(row[1], Value::Text("Ada".into()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct TypedTable {
    inner: firndb_table::TypedTable,
    table: Table,
}

impl std::fmt::Debug for TypedTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.table.fmt(f)
    }
}

impl TypedTable {
    /// The same table by its bytes.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.table
    }
    /// Its present schema.
    pub fn schema(&self) -> Result<Schema, Error> {
        Ok(self.inner.schema()?)
    }
    /// Reads the row with this primary key into `row`; false if there is none.
    pub fn get(
        &self,
        tx: &mut Transaction,
        key: &[ValueRef<'_>],
        row: &mut Vec<Value>,
    ) -> Result<bool, Error> {
        tx.read(|txn| self.inner.get(txn, key, row))
    }
    /// Reads the rows with these primary keys as one statement, in the order of the keys (see
    /// [`Transaction::get_many`]).
    pub fn get_many<'v, K: AsRef<[ValueRef<'v>]>>(
        &self,
        tx: &mut Transaction,
        keys: &[K],
    ) -> Result<Vec<Option<Vec<Value>>>, Error> {
        tx.read(|txn| self.inner.get_many(txn, keys))
    }
    /// As [`TypedTable::get`], locking the row (see [`Transaction::get_for_update`]).
    pub fn get_for_update(
        &self,
        tx: &mut Transaction,
        key: &[ValueRef<'_>],
        row: &mut Vec<Value>,
    ) -> Result<bool, Error> {
        tx.write(|txn| self.inner.get_for_update(txn, key, row))
    }
    /// Inserts a row.
    ///
    /// Errors: `Duplicate` if there is one with its key, or its values of a unique index.
    pub fn insert(&self, tx: &mut Transaction, row: &[ValueRef<'_>]) -> Result<(), Error> {
        tx.write(|txn| self.inner.insert(txn, row))
    }
    /// Inserts a row, or replaces the one with its primary key; whether there was one.
    pub fn put(&self, tx: &mut Transaction, row: &[ValueRef<'_>]) -> Result<bool, Error> {
        tx.write(|txn| self.inner.put(txn, row))
    }
    /// Replaces the row with the same primary key; false if there is none.
    pub fn update(&self, tx: &mut Transaction, row: &[ValueRef<'_>]) -> Result<bool, Error> {
        tx.write(|txn| self.inner.update(txn, row))
    }
    /// Deletes the row with this primary key; false if there is none.
    pub fn delete(&self, tx: &mut Transaction, key: &[ValueRef<'_>]) -> Result<bool, Error> {
        tx.write(|txn| self.inner.delete(txn, key))
    }
    /// Rows whose primary keys lie between two bounds, each given by values of the first key
    /// columns: an included bound takes in every key that begins with it, an excluded one leaves
    /// them out.
    pub fn scan(
        &self,
        low: Bound<&[ValueRef<'_>]>,
        high: Bound<&[ValueRef<'_>]>,
        direction: Direction,
    ) -> Result<TypedCursor, Error> {
        Ok(TypedCursor { inner: self.inner.scan(low, high, direction)? })
    }
    /// Rows whose keys of an index lie between two bounds, in the index's order.
    pub fn scan_index(
        &self,
        index: &Index,
        low: Bound<&[ValueRef<'_>]>,
        high: Bound<&[ValueRef<'_>]>,
        direction: Direction,
    ) -> Result<TypedCursor, Error> {
        Ok(TypedCursor { inner: self.inner.scan_index(&index.inner, low, high, direction)? })
    }
}

/// A row: its key and its value.
pub type KeyValue<'a> = (&'a [u8], &'a [u8]);

/// Rows of a range of a table. Owned: holds no latch and no lock between calls, and finds its place
/// again by key.
pub struct Cursor {
    pub(crate) inner: firndb_table::Cursor,
    pub(crate) table: firndb_table::Table,
}

/// Adds the table's name to an error about damage: pages have numbers only.
pub(crate) fn of_table(table: &firndb_table::Table, error: Error) -> Error {
    match table.name() {
        Ok(name) if error.kind() == ErrorKind::Damaged => error.within(&format!("table {name:?}")),
        _ => error,
    }
}

impl Cursor {
    /// The next row: its key and value, which are valid until the next call. `None` at the end.
    pub fn next<'a>(&'a mut self, tx: &mut Transaction) -> Result<Option<KeyValue<'a>>, Error> {
        tx.check_open()?;
        if self.inner.step_in_batch(&tx.inner) {
            return Ok(Some(self.inner.current()));
        }
        let outcome = self.inner.next(&mut tx.inner);
        tx.note(outcome.map_err(|error| of_table(&self.table, error.into())))
    }
    /// The same cursor, locking every row that it returns (see [`Transaction::get_for_update`]).
    #[must_use]
    pub fn for_update(self) -> Cursor {
        Cursor { inner: self.inner.for_update(), table: self.table }
    }
    /// The same cursor, returning only the rows for which `keep` holds, besides those of earlier
    /// calls. Only these are copied: `keep` is asked with the page latched, and perhaps more than
    /// once. It must depend on key and value alone, and neither block nor use the database.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = firndb::Database::open(dir.path().join("db"))?;
    /// # let fruit = db.create_table("fruit")?;
    /// # db.transact(|tx| tx.put(&fruit, b"apple", b"red"))?;
    /// # db.transact(|tx| tx.put(&fruit, b"pear", b"green"))?;
    /// let mut tx = db.snapshot();
    /// let all = tx.scan(&fruit, firndb::KeyRange::all(), firndb::Direction::Forward);
    /// let mut green = all.filter(|_, colour| colour == b"green");
    /// assert_eq!(green.next(&mut tx)?, Some((&b"pear"[..], &b"green"[..])));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn filter(self, keep: impl Fn(&[u8], &[u8]) -> bool + Send + Sync + 'static) -> Cursor {
        Cursor { inner: self.inner.filter(keep), table: self.table }
    }
    /// Forgets the rows read ahead, so that what this transaction has written since is seen.
    pub fn refresh(&mut self) {
        self.inner.refresh();
    }
}

/// Rows found through an index, in its order. Owned, as [`Cursor`].
pub struct IndexCursor {
    pub(crate) inner: firndb_table::IndexCursor,
}

impl IndexCursor {
    /// The next row. `None` at the end.
    pub fn next<'a>(&'a mut self, tx: &mut Transaction) -> Result<Option<firndb_table::IndexRow<'a>>, Error> {
        tx.check_open()?;
        let outcome = self.inner.next(&mut tx.inner).map_err(Error::from);
        tx.note(outcome)
    }
}

impl IndexCursor {
    /// The same rows in no particular order, before the first is returned. Rows of some hundred
    /// entries are read together, each page once: for large ranges whose order does not matter.
    #[must_use]
    pub fn unordered(self) -> UnorderedIndexCursor {
        UnorderedIndexCursor { inner: self.inner.unordered() }
    }
}

/// Rows found through an index, in no particular order. Owned, as [`Cursor`].
pub struct UnorderedIndexCursor {
    inner: firndb_table::UnorderedIndexCursor,
}

impl UnorderedIndexCursor {
    /// The next row. `None` at the end.
    pub fn next<'a>(&'a mut self, tx: &mut Transaction) -> Result<Option<firndb_table::IndexRow<'a>>, Error> {
        tx.check_open()?;
        let outcome = self.inner.next(&mut tx.inner).map_err(Error::from);
        tx.note(outcome)
    }
}

/// Typed rows of a range. Owned, as [`Cursor`].
pub struct TypedCursor {
    inner: firndb_table::TypedCursor,
}

impl TypedCursor {
    /// The same rows in no particular order (see [`IndexCursor::unordered`]).
    #[must_use]
    pub fn unordered(self) -> TypedCursor {
        TypedCursor { inner: self.inner.unordered() }
    }
    /// The same cursor, returning only the rows for whose value of the column with this number
    /// `keep` holds (see [`Cursor::filter`]).
    ///
    /// Errors: `BadArgument` if there is no such column.
    pub fn filter(
        self,
        column: usize,
        keep: impl Fn(ValueRef<'_>) -> bool + Send + Sync + 'static,
    ) -> Result<TypedCursor, Error> {
        Ok(TypedCursor { inner: self.inner.filter(column, keep)? })
    }
    /// The next row. `None` at the end.
    pub fn next<'a>(&'a mut self, tx: &mut Transaction) -> Result<Option<&'a [Value]>, Error> {
        tx.check_open()?;
        let outcome = self.inner.next(&mut tx.inner).map_err(Error::from);
        tx.note(outcome)
    }
}
