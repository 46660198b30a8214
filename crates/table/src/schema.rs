//! The schema of a typed table.
//!
//! Invariants, checked by [`Schema::new`] and so by every decoder of a schema:
//! * 1 to [`MAX_COLUMNS`] columns, with different names of 1 to 255 bytes;
//! * the primary key has 1 to [`MAX_KEY_COLUMNS`] columns, each once, none nullable;
//! * columns are only ever added at the end, nullable or with a default, so that rows written
//!   before stay readable as they are.

use crate::error::TableError;
use crate::order_key::{self, KeyForm};
use crate::row::Layout;
use crate::value::{ColumnType, Value, ValueRef};
use firndb_base::codec::{Malformed, Reader, Writer};

/// Most columns of a table.
pub const MAX_COLUMNS: usize = 1024;
/// Most columns of a primary key or an index.
pub const MAX_KEY_COLUMNS: usize = 32;
/// Longest name of a table, column or index, in bytes of UTF-8.
pub const MAX_NAME_LEN: usize = 255;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name, unique in the table.
    pub name: String,
    /// Type of its values.
    pub column_type: ColumnType,
    /// Whether it may be NULL.
    pub nullable: bool,
    /// What rows hold that were written before the column was added; NULL if there are none.
    pub default: Value,
}

impl Column {
    /// A column that may not be NULL.
    #[must_use]
    pub fn new(name: impl Into<String>, column_type: ColumnType) -> Column {
        Column { name: name.into(), column_type, nullable: false, default: Value::Null }
    }
    /// The same, and it may be NULL.
    #[must_use]
    pub fn nullable(self) -> Column {
        Column { nullable: true, ..self }
    }
    /// The same, with a default for rows written before it was added.
    #[must_use]
    pub fn with_default(self, default: impl Into<Value>) -> Column {
        Column { default: default.into(), ..self }
    }
}

/// One column of a primary key or an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyColumn {
    /// Which column of the schema, counted from zero.
    pub column: usize,
    /// Whether large values come first.
    pub descending: bool,
}

impl KeyColumn {
    /// Small values (and NULL before them) first.
    #[must_use]
    pub fn ascending(column: usize) -> KeyColumn {
        KeyColumn { column, descending: false }
    }
    /// Large values first, NULL last.
    #[must_use]
    pub fn descending(column: usize) -> KeyColumn {
        KeyColumn { column, descending: true }
    }
}

/// Where a column's values are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// In the primary key, at this place.
    Key(usize),
    /// In the row, at this place.
    Row(usize),
}

/// Columns and primary key of a typed table.
#[derive(Clone)]
pub struct Schema {
    columns: Vec<Column>,
    key: Vec<KeyColumn>,
    /// For each column.
    homes: Vec<Home>,
    /// For each column of the key.
    key_forms: Vec<KeyForm>,
    /// The columns that are not in the key, in their order.
    row_columns: Vec<usize>,
    layout: Layout,
}

impl std::fmt::Debug for Schema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Schema").field("columns", &self.columns).field("key", &self.key).finish()
    }
}

/// The columns kept in rows, in their order: an iterator with a name, so that it can be stored.
#[derive(Clone)]
pub(crate) struct RowColumns<'a> {
    columns: &'a [Column],
    places: std::slice::Iter<'a, usize>,
}

impl<'a> Iterator for RowColumns<'a> {
    type Item = &'a Column;
    fn next(&mut self) -> Option<&'a Column> {
        self.places.next().map(|&at| &self.columns[at])
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.places.size_hint()
    }
}
impl ExactSizeIterator for RowColumns<'_> {}

impl PartialEq for Schema {
    fn eq(&self, other: &Schema) -> bool {
        self.columns == other.columns && self.key == other.key
    }
}
impl Eq for Schema {}

impl Schema {
    /// A schema of `columns` clustered by `key`. Fails with kind `BadArgument` if an invariant of
    /// the module is broken.
    pub fn new(columns: Vec<Column>, key: Vec<KeyColumn>) -> Result<Schema, TableError> {
        check_columns(&columns).map_err(TableError::bad_argument)?;
        check_key(&columns, &key).map_err(TableError::bad_argument)?;
        let mut homes = Vec::with_capacity(columns.len());
        let mut row_columns = Vec::new();
        for at in 0..columns.len() {
            homes.push(match key.iter().position(|k| k.column == at) {
                Some(place) => Home::Key(place),
                None => {
                    row_columns.push(at);
                    Home::Row(row_columns.len() - 1)
                }
            });
        }
        let form = |k: &KeyColumn| KeyForm {
            column_type: columns[k.column].column_type,
            nullable: columns[k.column].nullable,
            descending: k.descending,
        };
        let key_forms = key.iter().map(form).collect();
        let layout = Layout::of(row_columns.iter().map(|&at| &columns[at]));
        Ok(Schema { columns, key, homes, key_forms, row_columns, layout })
    }

    /// A schema whose key columns are named, all ascending.
    pub fn with_key(columns: Vec<Column>, key: &[&str]) -> Result<Schema, TableError> {
        let place = |name: &&str| {
            let found = columns.iter().position(|c| c.name == *name);
            found.map(KeyColumn::ascending).ok_or_else(|| {
                TableError::bad_argument(format!("primary key column {name:?} is not a column of the table"))
            })
        };
        let key = key.iter().map(place).collect::<Result<Vec<_>, _>>()?;
        Schema::new(columns, key)
    }

    #[must_use]
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }
    #[must_use]
    pub fn key(&self) -> &[KeyColumn] {
        &self.key
    }
    /// The place of the column called `name`.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|c| c.name == name)
    }

    pub(crate) fn home(&self, column: usize) -> Home {
        self.homes[column]
    }
    pub(crate) fn key_forms(&self) -> &[KeyForm] {
        &self.key_forms
    }
    /// The columns kept in rows.
    pub(crate) fn row_columns(&self) -> RowColumns<'_> {
        RowColumns { columns: &self.columns, places: self.row_columns.iter() }
    }
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Encodes a whole row, one value a column in the order of the columns, into its key and its
    /// row bytes (both replaced). Fails with kind `BadArgument` if the values do not fit.
    pub fn encode(
        &self,
        values: &[ValueRef<'_>],
        key: &mut Vec<u8>,
        row: &mut Vec<u8>,
    ) -> Result<(), TableError> {
        if values.len() != self.columns.len() {
            return Err(TableError::bad_argument(format!(
                "{} values given, the table has {} columns",
                values.len(),
                self.columns.len()
            )));
        }
        for (column, value) in self.columns.iter().zip(values) {
            check_value(column, *value)?;
        }
        key.clear();
        for (form, part) in self.key_forms.iter().zip(&self.key) {
            order_key::encode(*form, values[part.column], key);
        }
        self.layout.encode(self.row_columns.iter().map(|&at| values[at]), row)
    }

    /// Encodes the first columns of the primary key: all of them name a row, fewer a prefix for
    /// ranges. Appends to `key`.
    pub fn encode_key(&self, values: &[ValueRef<'_>], key: &mut Vec<u8>) -> Result<(), TableError> {
        if values.len() > self.key.len() {
            return Err(TableError::bad_argument(format!(
                "{} values given, the primary key has {} columns",
                values.len(),
                self.key.len()
            )));
        }
        for ((form, part), value) in self.key_forms.iter().zip(&self.key).zip(values) {
            check_value(&self.columns[part.column], *value)?;
            order_key::encode(*form, *value, key);
        }
        Ok(())
    }

    /// Decodes a stored row: one value a column, in the order of the columns (`values` is
    /// replaced). An error means that the bytes are not a row of this schema.
    pub(crate) fn decode(&self, key: &[u8], row: &[u8], values: &mut Vec<Value>) -> Result<(), Malformed> {
        values.clear();
        values.resize(self.columns.len(), Value::Null);
        let mut reader = Reader::new(key);
        for (form, part) in self.key_forms.iter().zip(&self.key) {
            values[part.column] = order_key::decode(*form, &mut reader)?;
        }
        if !reader.is_empty() {
            return Err(Malformed { what: "a key is longer than its columns" });
        }
        let view = self.layout.read(self.row_columns(), row)?;
        for (place, &at) in self.row_columns.iter().enumerate() {
            values[at] = view.value(place)?.to_value();
        }
        Ok(())
    }

    /// Whether `test` accepts the value of a column of a stored row. An error means that the bytes
    /// are not a row of this schema.
    pub(crate) fn test(
        &self,
        key: &[u8],
        row: &[u8],
        column: usize,
        test: &dyn Fn(ValueRef<'_>) -> bool,
    ) -> Result<bool, Malformed> {
        let place = match self.home(column) {
            Home::Row(place) => return Ok(test(self.layout.read(self.row_columns(), row)?.value(place)?)),
            Home::Key(place) => place,
        };
        let mut reader = Reader::new(key);
        for form in &self.key_forms[..place] {
            order_key::skip(*form, &mut reader)?;
        }
        Ok(test(order_key::decode(self.key_forms[place], &mut reader)?.as_ref()))
    }

    /// Appends the schema's own bytes, for the catalog.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.put_varint(self.columns.len() as u64);
        for column in &self.columns {
            out.put_blob(column.name.as_bytes());
            out.put_u8(column.column_type.code());
            let has_default = column.default != Value::Null;
            out.put_u8(u8::from(column.nullable) | u8::from(has_default) << 1);
            if has_default {
                let mut bytes = Vec::new();
                order_key::encode(default_form(column.column_type), column.default.as_ref(), &mut bytes);
                out.put_blob(&bytes);
            }
        }
        write_key_columns(&self.key, out);
    }

    /// Reads back what [`Schema::write`] wrote, checking every invariant.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Schema, Malformed> {
        let count = reader.varint_max(MAX_COLUMNS)?;
        let mut columns = Vec::with_capacity(count);
        for _ in 0..count {
            let name = read_name(reader)?;
            let column_type = ColumnType::from_code(reader.u8()?)?;
            let flags = reader.u8()?;
            if flags > 3 {
                return Err(Malformed { what: "unknown flags of a column" });
            }
            let mut default = Value::Null;
            if flags & 2 != 0 {
                let mut bytes = Reader::new(reader.blob()?);
                default = order_key::decode(default_form(column_type), &mut bytes)?;
            }
            columns.push(Column { name, column_type, nullable: flags & 1 != 0, default });
        }
        let key = read_key_columns(reader)?;
        Schema::new(columns, key).map_err(|_| Malformed { what: "a schema breaks its invariants" })
    }
}

pub(crate) fn write_key_columns(key: &[KeyColumn], out: &mut Vec<u8>) {
    out.put_varint(key.len() as u64);
    for part in key {
        out.put_varint(part.column as u64);
        out.put_u8(u8::from(part.descending));
    }
}

/// Reads key columns back; that their columns exist is for the caller to check.
pub(crate) fn read_key_columns(reader: &mut Reader<'_>) -> Result<Vec<KeyColumn>, Malformed> {
    let count = reader.varint_max(MAX_KEY_COLUMNS)?;
    let mut key = Vec::with_capacity(count);
    for _ in 0..count {
        let column = reader.varint_max(MAX_COLUMNS)?;
        let descending = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return Err(Malformed { what: "unknown flags of a key column" }),
        };
        key.push(KeyColumn { column, descending });
    }
    Ok(key)
}

pub(crate) fn read_name(reader: &mut Reader<'_>) -> Result<String, Malformed> {
    let name = std::str::from_utf8(reader.blob()?).map_err(|_| Malformed { what: "a name is not UTF-8" })?;
    if name.is_empty() || name.len() > MAX_NAME_LEN {
        return Err(Malformed { what: "a name is empty or longer than 255 bytes" });
    }
    Ok(name.to_owned())
}

/// Refuses names that a catalog cannot hold.
pub(crate) fn check_name(what: &str, name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > MAX_NAME_LEN {
        return Err(format!("the name of {what} has {} bytes; it needs 1 to {MAX_NAME_LEN}", name.len()));
    }
    Ok(())
}

fn default_form(column_type: ColumnType) -> KeyForm {
    KeyForm { column_type, nullable: false, descending: false }
}

fn check_columns(columns: &[Column]) -> Result<(), String> {
    if columns.is_empty() || columns.len() > MAX_COLUMNS {
        return Err(format!("a table has 1 to {MAX_COLUMNS} columns, not {}", columns.len()));
    }
    let mut names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!("two columns are called {:?}", pair[0]));
    }
    for column in columns {
        check_name("a column", &column.name)?;
        let default = column.default.as_ref().column_type();
        if default.is_some_and(|t| t != column.column_type) {
            return Err(format!(
                "the default of column {:?} is not of type {}",
                column.name, column.column_type
            ));
        }
    }
    Ok(())
}

fn check_key(columns: &[Column], key: &[KeyColumn]) -> Result<(), String> {
    if key.is_empty() {
        return Err("a table needs a primary key of at least one column".into());
    }
    check_key_columns(columns, key)?;
    match key.iter().find(|part| columns[part.column].nullable) {
        Some(part) => Err(format!("primary key column {:?} is nullable", columns[part.column].name)),
        None => Ok(()),
    }
}

/// What holds for primary keys and indexes alike.
pub(crate) fn check_key_columns(columns: &[Column], key: &[KeyColumn]) -> Result<(), String> {
    if key.len() > MAX_KEY_COLUMNS {
        return Err(format!("a key has at most {MAX_KEY_COLUMNS} columns, not {}", key.len()));
    }
    for (at, part) in key.iter().enumerate() {
        if part.column >= columns.len() {
            return Err(format!("a key names column {}, the table has {}", part.column, columns.len()));
        }
        if key[..at].iter().any(|other| other.column == part.column) {
            return Err(format!("column {:?} is twice in one key", columns[part.column].name));
        }
    }
    Ok(())
}

/// Refuses a value of another type, or a NULL where none may be.
pub(crate) fn check_value(column: &Column, value: ValueRef<'_>) -> Result<(), TableError> {
    match value.column_type() {
        None if column.nullable => Ok(()),
        None => Err(TableError::bad_argument(format!("column {:?} may not be NULL", column.name))),
        Some(found) if found == column.column_type => Ok(()),
        Some(found) => Err(TableError::bad_argument(format!(
            "column {:?} is of type {}, the value given is of type {found}",
            column.name, column.column_type
        ))),
    }
}

#[cfg(test)]
mod tests;
