//! Columns of stored rows and of index entries, read where they lie.

use crate::index::{IndexDefinition, IndexParts};
use crate::order_key::{self, KeyForm};
use crate::row::RowView;
use crate::schema::{Home, KeyColumn, Schema};
use crate::value::{ColumnType, Value, ValueRef};
use firndb_base::codec::{Malformed, Reader};

/// A value of a stored row.
#[derive(Clone, Debug)]
pub enum Field<'a> {
    /// As it is stored.
    Stored(ValueRef<'a>),
    /// Of a key, which is encoded otherwise. Allocated only for text and bytes that are escaped or
    /// descending.
    Decoded(Value),
}

impl Field<'_> {
    #[must_use]
    pub fn value(&self) -> ValueRef<'_> {
        match self {
            Field::Stored(value) => *value,
            Field::Decoded(value) => value.as_ref(),
        }
    }
}

/// A row as it is stored, with the schema that tells its columns.
pub struct StoredRow<'a> {
    schema: &'a Schema,
    key: &'a [u8],
    view: RowView<'a>,
}

impl Schema {
    /// A stored row by its columns. An error means that the bytes are not a row of this schema; a
    /// later schema of the table may have more columns.
    pub fn stored<'a>(&'a self, key: &'a [u8], row: &'a [u8]) -> Result<StoredRow<'a>, Malformed> {
        Ok(StoredRow { schema: self, key, view: self.layout().read(self.row_columns(), row)? })
    }

    /// A column of a primary key.
    fn key_field<'a>(&self, key: &'a [u8], place: usize) -> Result<Field<'a>, Malformed> {
        let mut reader = Reader::new(key);
        for form in &self.key_forms()[..place] {
            order_key::skip(*form, &mut reader)?;
        }
        read_field(self.key_forms()[place], &mut reader)
    }
}

impl<'a> StoredRow<'a> {
    /// The value of a column of the schema, by its number.
    pub fn field(&self, column: usize) -> Result<Field<'a>, Malformed> {
        match self.schema.home(column) {
            Home::Row(place) => Ok(Field::Stored(self.view.value(place)?)),
            Home::Key(place) => self.schema.key_field(self.key, place),
        }
    }
}

/// An index entry, with the definition and the schema that tell its columns.
pub struct StoredEntry<'a> {
    schema: &'a Schema,
    columns: &'a [KeyColumn],
    key: &'a [u8],
    primary_key: &'a [u8],
}

impl IndexDefinition {
    /// An entry of the index, of a typed table, by its columns.
    #[must_use]
    pub fn stored<'a>(&'a self, schema: &'a Schema, key: &'a [u8], primary_key: &'a [u8]) -> StoredEntry<'a> {
        StoredEntry { schema, columns: self.columns(), key, primary_key }
    }

    /// The columns that it is made of; none if it is made of byte ranges.
    #[must_use]
    pub fn columns(&self) -> &[KeyColumn] {
        match &self.spec.parts {
            IndexParts::Columns(columns) => columns,
            IndexParts::Ranges(_) => &[],
        }
    }

    /// Whether its entries hold a column of the table.
    #[must_use]
    pub fn covers(&self, schema: &Schema, column: usize) -> bool {
        self.columns().iter().chain(schema.key()).any(|part| part.column == column)
    }
}

impl<'a> StoredEntry<'a> {
    /// The value of a column of the table, which the index covers.
    pub fn field(&self, column: usize) -> Result<Field<'a>, Malformed> {
        if let Home::Key(place) = self.schema.home(column) {
            return self.schema.key_field(self.primary_key, place);
        }
        let mut reader = Reader::new(self.key);
        for part in self.columns {
            let form = crate::index::form(self.schema, *part);
            if part.column == column {
                return read_field(form, &mut reader);
            }
            order_key::skip(form, &mut reader)?;
        }
        Err(Malformed { what: "an index entry does not hold the column" })
    }
}

/// As [`order_key::decode`], without a copy where the bytes can stand for themselves.
fn read_field<'a>(form: KeyForm, reader: &mut Reader<'a>) -> Result<Field<'a>, Malformed> {
    let is_plain = form.column_type.fixed_len().is_none() && !form.descending && !form.nullable;
    let rest = reader.rest();
    if is_plain
        && let Some(end) = rest.iter().position(|byte| *byte == 0)
        && rest.get(end + 1) == Some(&0)
    {
        let bytes = reader.bytes(end)?;
        reader.bytes(2)?;
        return Ok(Field::Stored(match form.column_type {
            ColumnType::Text => ValueRef::Text(
                std::str::from_utf8(bytes).map_err(|_| Malformed { what: "text in a key is not UTF-8" })?,
            ),
            _ => ValueRef::Bytes(bytes),
        }));
    }
    order_key::decode(form, reader).map(Field::Decoded)
}

/// Appends bytes to `key` that sort as the value does, NULL before all others, or the other way
/// round. Equal bytes are equal values, if these are of one type.
pub fn encode_sort_key(value: ValueRef<'_>, descending: bool, key: &mut Vec<u8>) {
    let column_type = value.column_type().unwrap_or(ColumnType::Bool);
    order_key::encode(KeyForm { column_type, nullable: true, descending }, value, key);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{IndexSpec, IndexState};
    use crate::schema::Column;
    use crate::testing::{random_type, random_value};
    use firndb_base::rng::Rng;
    use firndb_base::{PageId, TreeId};

    #[test]
    fn fields_of_rows_and_entries_are_those_that_were_encoded() {
        let mut rng = Rng::new(17);
        for _ in 0..3000 {
            let columns: Vec<Column> = (0..6)
                .map(|at| {
                    let column = Column::new(format!("c{at}"), random_type(&mut rng));
                    if at >= 2 && rng.one_in(2) { column.nullable() } else { column }
                })
                .collect();
            let part = |rng: &mut Rng, column| KeyColumn { column, descending: rng.one_in(2) };
            let key = vec![part(&mut rng, 1), part(&mut rng, 0)];
            let spec = IndexSpec::columns("i", false, vec![part(&mut rng, 4), part(&mut rng, 2)]);
            let schema = Schema::new(columns, key).unwrap();
            let values: Vec<Value> =
                schema.columns().iter().map(|c| random_value(&mut rng, c.column_type, c.nullable)).collect();
            let refs: Vec<ValueRef<'_>> = values.iter().map(Value::as_ref).collect();
            let (mut key, mut row, mut entry) = (Vec::new(), Vec::new(), Vec::new());
            schema.encode(&refs, &mut key, &mut row).unwrap();
            spec.encode_prefix(&schema, &[refs[4], refs[2]], &mut entry).unwrap();
            let stored = schema.stored(&key, &row).unwrap();
            for (column, value) in refs.iter().enumerate() {
                assert_eq!(stored.field(column).unwrap().value(), *value);
            }
            let (tree, root, state) = (TreeId(9), PageId(1), IndexState::Ready);
            let index = IndexDefinition { spec, tree, root, state };
            let stored = index.stored(&schema, &entry, &key);
            for (column, value) in refs.iter().enumerate() {
                match index.covers(&schema, column) {
                    true => assert_eq!(stored.field(column).unwrap().value(), *value),
                    false => assert!(stored.field(column).is_err()),
                }
            }
        }
    }
}
