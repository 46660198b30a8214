//! Rows within a query: values by position.
//!
//! ```text
//! 0              4n
//! +--------------+-------------------------+
//! | end: u32 (n) | values, one after other |
//! +--------------+-------------------------+
//! ```
//! An end counts from the first value; its bit 31 says that the value is NULL, which has no bytes.
//! The types are not in the row. Rows lie in memory and on the spill device only, so the encoding
//! may change with any version.

use crate::error::{QueryError, QueryErrorKind};
use firndb_base::codec::{Malformed, Reader};
use firndb_table::{ColumnType, Field, StoredEntry, StoredRow, ValueRef};

const NULL: u32 = 1 << 31;

/// A row, or what can be read as one.
pub(crate) trait Columns {
    fn field(&self, column: usize) -> Result<Field<'_>, Malformed>;
}

impl Columns for StoredRow<'_> {
    fn field(&self, column: usize) -> Result<Field<'_>, Malformed> {
        StoredRow::field(self, column)
    }
}
impl Columns for StoredEntry<'_> {
    fn field(&self, column: usize) -> Result<Field<'_>, Malformed> {
        StoredEntry::field(self, column)
    }
}

/// A row of a query.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    types: &'a [ColumnType],
    ends: &'a [u8],
    values: &'a [u8],
}

impl<'a> Row<'a> {
    /// A row of these columns. Checks all lengths.
    pub(crate) fn new(types: &'a [ColumnType], bytes: &'a [u8]) -> Result<Row<'a>, Malformed> {
        let mut reader = Reader::new(bytes);
        let row = Row { types, ends: reader.bytes(4 * types.len())?, values: reader.rest() };
        let mut last = 0;
        for (column, column_type) in types.iter().enumerate() {
            let end = row.end(column);
            let len =
                (end & !NULL).checked_sub(last).ok_or(Malformed { what: "ends in a row do not ascend" })?;
            let is_null = end & NULL != 0;
            if is_null && len > 0
                || !is_null && column_type.fixed_len().is_some_and(|fixed| fixed != len as usize)
            {
                return Err(Malformed { what: "a value in a row has not the length of its type" });
            }
            last = end & !NULL;
        }
        if last as usize != row.values.len() {
            return Err(Malformed { what: "a row is not as long as its columns" });
        }
        Ok(row)
    }

    /// As [`Row::new`], of bytes that it has accepted.
    pub(crate) fn accepted(types: &'a [ColumnType], bytes: &'a [u8]) -> Row<'a> {
        let (ends, values) = bytes.split_at(4 * types.len());
        Row { types, ends, values }
    }

    fn end(&self, column: usize) -> u32 {
        u32::from_le_bytes(*self.ends[4 * column..].first_chunk().expect("new() has checked the length"))
    }

    /// How many columns it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.types.len()
    }
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.types.is_empty()
    }

    /// The value of a column, by its position.
    pub fn get(&self, column: usize) -> Result<ValueRef<'a>, QueryError> {
        Ok(self.value(column)?)
    }

    pub(crate) fn value(&self, column: usize) -> Result<ValueRef<'a>, Malformed> {
        let end = self.end(column);
        if end & NULL != 0 {
            return Ok(ValueRef::Null);
        }
        let start = column.checked_sub(1).map_or(0, |before| self.end(before) & !NULL);
        let bytes = &self.values[start as usize..end as usize];
        let mut reader = Reader::new(bytes);
        Ok(match self.types[column] {
            ColumnType::Bool => ValueRef::Bool(reader.u8()? != 0),
            ColumnType::I32 => ValueRef::I32(reader.u32()? as i32),
            ColumnType::I64 => ValueRef::I64(reader.u64()? as i64),
            ColumnType::U64 => ValueRef::U64(reader.u64()?),
            ColumnType::F64 => ValueRef::F64(f64::from_bits(reader.u64()?)),
            ColumnType::Timestamp => ValueRef::Timestamp(reader.u64()? as i64),
            ColumnType::Text => ValueRef::Text(
                std::str::from_utf8(bytes).map_err(|_| Malformed { what: "text in a row is not UTF-8" })?,
            ),
            ColumnType::Bytes => ValueRef::Bytes(bytes),
            _ => return Err(Malformed { what: "a column of a type that queries do not know" }),
        })
    }
}

impl Columns for Row<'_> {
    fn field(&self, column: usize) -> Result<Field<'_>, Malformed> {
        self.value(column).map(Field::Stored)
    }
}

/// Two rows, one behind the other.
pub(crate) struct Joined<'a> {
    pub(crate) left: Row<'a>,
    pub(crate) right: Row<'a>,
}

impl Columns for Joined<'_> {
    fn field(&self, column: usize) -> Result<Field<'_>, Malformed> {
        match column.checked_sub(self.left.len()) {
            None => self.left.field(column),
            Some(column) => self.right.field(column),
        }
    }
}

/// Puts a row together.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowBuilder {
    bytes: Vec<u8>,
    columns: usize,
    put: usize,
}

impl RowBuilder {
    /// Memory kept between rows.
    const KEPT: usize = 4 << 10;

    pub(crate) fn begin(&mut self, columns: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(RowBuilder::KEPT);
        self.bytes.resize(4 * columns, 0);
        (self.columns, self.put) = (columns, 0);
    }

    pub(crate) fn put(&mut self, value: ValueRef<'_>) -> Result<(), QueryError> {
        match value {
            ValueRef::Null => return self.end_value(NULL),
            ValueRef::Bool(v) => self.bytes.push(u8::from(v)),
            ValueRef::I32(v) => self.bytes.extend_from_slice(&v.to_le_bytes()),
            ValueRef::I64(v) | ValueRef::Timestamp(v) => self.bytes.extend_from_slice(&v.to_le_bytes()),
            ValueRef::U64(v) => self.bytes.extend_from_slice(&v.to_le_bytes()),
            ValueRef::F64(v) => self.bytes.extend_from_slice(&v.to_bits().to_le_bytes()),
            ValueRef::Text(v) => self.bytes.extend_from_slice(v.as_bytes()),
            ValueRef::Bytes(v) => self.bytes.extend_from_slice(v),
            _ => return Err(QueryError::bad_argument("a column of a type that queries do not know")),
        }
        self.end_value(0)
    }

    fn end_value(&mut self, flag: u32) -> Result<(), QueryError> {
        let end = self.bytes.len() - 4 * self.columns;
        let end = u32::try_from(end).ok().filter(|end| end & NULL == 0).ok_or_else(too_long)?;
        self.bytes[4 * self.put..][..4].copy_from_slice(&(end | flag).to_le_bytes());
        self.put += 1;
        Ok(())
    }

    /// All columns of a row.
    pub(crate) fn put_row(&mut self, row: Row<'_>) -> Result<(), QueryError> {
        let before = self.bytes.len() - 4 * self.columns;
        let last = u32::try_from(before + row.values.len()).ok().filter(|last| last & NULL == 0);
        last.ok_or_else(too_long)?;
        self.bytes.extend_from_slice(row.values);
        for column in 0..row.len() {
            // The sum of the ends without their flags has 31 bits.
            let end = row.end(column) + before as u32;
            self.bytes[4 * self.put..][..4].copy_from_slice(&end.to_le_bytes());
            self.put += 1;
        }
        Ok(())
    }

    /// NULL in this many columns.
    pub(crate) fn put_nulls(&mut self, columns: usize) -> Result<(), QueryError> {
        (0..columns).try_for_each(|_| self.put(ValueRef::Null))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        assert_eq!(self.put, self.columns, "a row has all of its columns");
        &self.bytes
    }
}

fn too_long() -> QueryError {
    QueryError::new(
        QueryErrorKind::OutOfMemory,
        "a row of the query has 2 GiB or more: select fewer of its columns",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_base::rng::Rng;
    use firndb_table::Value;

    #[test]
    fn rows_round_trip_join_and_refuse_other_bytes() {
        let mut rng = Rng::new(5);
        for _ in 0..2000 {
            let types: Vec<ColumnType> =
                (0..rng.below(6)).map(|_| ColumnType::ALL[rng.below(8) as usize]).collect();
            let values: Vec<Value> =
                types.iter().map(|t| crate::testing::random_value(&mut rng, *t)).collect();
            let mut builder = RowBuilder::default();
            builder.begin(types.len());
            values.iter().for_each(|value| builder.put(value.as_ref()).unwrap());
            let bytes = builder.bytes().to_vec();
            let row = Row::new(&types, &bytes).unwrap();
            for (column, value) in values.iter().enumerate() {
                assert_eq!(row.get(column).unwrap(), value.as_ref());
            }
            builder.begin(2 * types.len() + 1);
            builder.put_row(row).unwrap();
            builder.put_nulls(1).unwrap();
            builder.put_row(row).unwrap();
            let both: Vec<ColumnType> = [&types[..], &[ColumnType::Text], &types[..]].concat();
            let joined = Row::new(&both, builder.bytes()).unwrap();
            for (column, value) in values.iter().enumerate() {
                assert_eq!(joined.get(column).unwrap(), value.as_ref());
                assert_eq!(joined.get(column + types.len() + 1).unwrap(), value.as_ref());
            }
            assert_eq!(joined.get(types.len()).unwrap(), ValueRef::Null);
            for cut in 0..bytes.len() {
                assert!(Row::new(&types, &bytes[..cut]).is_err());
            }
            let mut broken = bytes.clone();
            if !broken.is_empty() {
                let at = rng.below(broken.len() as u64) as usize;
                broken[at] ^= 1 << rng.below(8);
                // Lengths are refused here, contents when they are read; neither panics.
                if let Ok(row) = Row::new(&types, &broken) {
                    (0..types.len()).for_each(|column| drop(row.get(column)));
                }
            }
        }
    }
}
