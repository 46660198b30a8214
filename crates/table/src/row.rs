//! The row encoding: columns of fixed size first, at offsets that depend on the schema alone.
//!
//! ```text
//! 0        2            2+b            2+b+f        2+b+f+2v
//! +--------+------------+--------------+------------+---------------------+
//! | n: u16 | NULL bits  | fixed-size   | ends: u16  | text and bytes      |
//! |        | (b bytes)  | (f bytes)    | (v of them)| one after the other |
//! +--------+------------+--------------+------------+---------------------+
//! ```
//! Ends are of four bytes each, and bit 15 of `n` is set, if text and bytes together are longer
//! than 65535 bytes: a *wide* row.
//!
//! `n` columns are stored: those of the schema that are not in the primary key, in order; a row
//! with fewer than the schema has was written before the rest were added. So an update that keeps
//! the lengths of its text and bytes keeps every offset, and the layer below patches only the bytes
//! that differ.
//!
//! Invariants: a NULL has its bit set and zeros (or no bytes) in its place; bits past the last
//! nullable column are zero; ends ascend, and the last one is the end of the row; a row is wide
//! only if it must be. Equal rows have equal bytes.

use crate::error::TableError;
use crate::schema::{Column, RowColumns};
use crate::value::{ColumnType, ValueRef, canonical};
use firndb_base::codec::{Malformed, Reader, Writer};

/// Longest value of a row, in bytes: 64 MiB.
pub const MAX_VALUE_LEN: usize = 64 << 20;

/// Set in the number of columns of a wide row.
const WIDE: u16 = 1 << 15;
const _: () = assert!(crate::schema::MAX_COLUMNS < WIDE as usize && MAX_VALUE_LEN < u32::MAX as usize);

/// Where one stored column lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StoredColumn {
    column_type: ColumnType,
    /// Its bit among the NULL bits, if it is nullable.
    null_bit: Option<usize>,
    position: Position,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    /// Offset within the fixed-size area.
    Fixed(usize),
    /// Number among the columns of varying size.
    Varying(usize),
}

/// Sizes of the parts of a row with a certain number of columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sizes {
    nullable: usize,
    fixed_len: usize,
    varying: usize,
}

impl Sizes {
    fn bits_len(self) -> usize {
        self.nullable.div_ceil(8)
    }
}

/// Offsets of rows. Where a column lies does not depend on those behind it, so this serves rows
/// from before columns were added, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    stored_columns: Vec<StoredColumn>,
    /// By the number of columns stored, from none to all.
    sizes: Vec<Sizes>,
}

impl Layout {
    /// The layout of a row of these columns.
    pub(crate) fn of<'a>(columns: impl Iterator<Item = &'a Column>) -> Layout {
        let mut sizes = Sizes::default();
        let mut layout = Layout { stored_columns: Vec::new(), sizes: vec![sizes] };
        for column in columns {
            let null_bit = column.nullable.then_some(sizes.nullable);
            sizes.nullable += usize::from(column.nullable);
            let position = match column.column_type.fixed_len() {
                Some(len) => {
                    sizes.fixed_len += len;
                    Position::Fixed(sizes.fixed_len - len)
                }
                None => {
                    sizes.varying += 1;
                    Position::Varying(sizes.varying - 1)
                }
            };
            layout.stored_columns.push(StoredColumn { column_type: column.column_type, null_bit, position });
            layout.sizes.push(sizes);
        }
        layout
    }

    /// Replaces `row` by the encoding of `values`, whose types have been checked.
    pub(crate) fn encode<'v>(
        &self,
        values: impl Iterator<Item = ValueRef<'v>> + Clone,
        row: &mut Vec<u8>,
    ) -> Result<(), TableError> {
        let total: usize = values.clone().map(varying_len).sum();
        if total > MAX_VALUE_LEN {
            return Err(TableError::bad_argument(format!(
                "text and bytes of a row have {total} bytes together; {} is the limit",
                MAX_VALUE_LEN
            )));
        }
        let wide = total > usize::from(u16::MAX);
        let sizes = self.sizes[self.stored_columns.len()];
        let end_len = if wide { 4 } else { 2 };
        row.clear();
        row.put_u16(self.stored_columns.len() as u16 | if wide { WIDE } else { 0 });
        row.resize(2 + sizes.bits_len(), 0);
        for (stored, value) in self.stored_columns.iter().zip(values.clone()) {
            if value.is_null() {
                let bit =
                    stored.null_bit.expect("a NULL in a column that may not hold one was refused before");
                row[2 + bit / 8] |= 1 << (bit % 8);
            }
            if matches!(stored.position, Position::Fixed(_)) {
                put_fixed(stored.column_type, value, row);
            }
        }
        let ends = row.len();
        debug_assert_eq!(ends, 2 + sizes.bits_len() + sizes.fixed_len);
        row.resize(ends + end_len * sizes.varying, 0);
        let start = row.len();
        for (stored, value) in self.stored_columns.iter().zip(values) {
            let Position::Varying(at) = stored.position else { continue };
            match value {
                ValueRef::Text(v) => row.put(v.as_bytes()),
                ValueRef::Bytes(v) => row.put(v),
                _ => {}
            }
            let end = (row.len() - start) as u32;
            row[ends + end_len * at..][..end_len].copy_from_slice(&end.to_le_bytes()[..end_len]);
        }
        debug_assert_eq!(row.len() - start, total, "the last end is that of the row");
        Ok(())
    }

    /// Reads a row of `columns`, which this is the layout of. Checks lengths and offsets, so that
    /// what is left to go wrong with a value is only its own bytes.
    pub(crate) fn read<'a>(
        &'a self,
        columns: RowColumns<'a>,
        row: &'a [u8],
    ) -> Result<RowView<'a>, Malformed> {
        let mut reader = Reader::new(row);
        let head = reader.u16()?;
        let (stored, wide) = (usize::from(head & !WIDE), head & WIDE != 0);
        let Some(&sizes) = self.sizes.get(stored) else {
            return Err(Malformed { what: "a row has more columns than its table" });
        };
        let bits = reader.bytes(sizes.bits_len())?;
        if sizes.nullable % 8 != 0 && bits[bits.len() - 1] >> (sizes.nullable % 8) != 0 {
            return Err(Malformed { what: "a row has NULL bits past its last nullable column" });
        }
        let fixed = reader.bytes(sizes.fixed_len)?;
        let ends = reader.bytes(if wide { 4 } else { 2 } * sizes.varying)?;
        let varying = reader.rest();
        let view = RowView {
            stored_columns: &self.stored_columns[..stored],
            columns,
            bits,
            fixed,
            ends,
            wide,
            varying,
        };
        let mut last = 0;
        for at in 0..sizes.varying {
            let end = view.end(at);
            if end < last {
                return Err(Malformed { what: "ends of text and bytes in a row do not ascend" });
            }
            last = end;
        }
        if last != varying.len() {
            return Err(Malformed { what: "a row is not as long as its columns" });
        }
        if wide && last <= usize::from(u16::MAX) {
            return Err(Malformed { what: "a row is wide and need not be" });
        }
        Ok(view)
    }
}

/// Bytes of a value behind the ends.
fn varying_len(value: ValueRef<'_>) -> usize {
    match value {
        ValueRef::Text(v) => v.len(),
        ValueRef::Bytes(v) => v.len(),
        _ => 0,
    }
}

fn put_fixed(column_type: ColumnType, value: ValueRef<'_>, row: &mut Vec<u8>) {
    match value {
        ValueRef::Bool(v) => row.put_u8(u8::from(v)),
        ValueRef::I32(v) => row.put_u32(v as u32),
        ValueRef::I64(v) | ValueRef::Timestamp(v) => row.put_u64(v as u64),
        ValueRef::U64(v) => row.put_u64(v),
        ValueRef::F64(v) => row.put_u64(canonical(v).to_bits()),
        ValueRef::Null | ValueRef::Text(_) | ValueRef::Bytes(_) => {
            row.resize(row.len() + column_type.fixed_len().unwrap_or(0), 0);
        }
    }
}

/// A row being read.
pub(crate) struct RowView<'a> {
    /// Of the columns that it stores.
    stored_columns: &'a [StoredColumn],
    columns: RowColumns<'a>,
    bits: &'a [u8],
    fixed: &'a [u8],
    ends: &'a [u8],
    wide: bool,
    varying: &'a [u8],
}

impl<'a> RowView<'a> {
    fn end(&self, at: usize) -> usize {
        if !self.wide {
            return usize::from(u16::from_le_bytes([self.ends[2 * at], self.ends[2 * at + 1]]));
        }
        let end = self.ends[4 * at..].first_chunk().expect("read() has checked how many there are");
        u32::from_le_bytes(*end) as usize
    }

    /// The value of the stored column with this index; its default if the row is older than the
    /// column.
    pub(crate) fn value(&self, index: usize) -> Result<ValueRef<'a>, Malformed> {
        let Some(stored) = self.stored_columns.get(index) else {
            let column = self.columns.clone().nth(index);
            return Ok(column.expect("callers ask for columns of the schema").default.as_ref());
        };
        if stored.null_bit.is_some_and(|bit| self.bits[bit / 8] >> (bit % 8) & 1 == 1) {
            return Ok(ValueRef::Null);
        }
        match stored.position {
            Position::Fixed(offset) => fixed_value(stored.column_type, &self.fixed[offset..]),
            Position::Varying(at) => {
                let start = if at == 0 { 0 } else { self.end(at - 1) };
                let bytes = &self.varying[start..self.end(at)];
                if stored.column_type == ColumnType::Bytes {
                    return Ok(ValueRef::Bytes(bytes));
                }
                let text = std::str::from_utf8(bytes)
                    .map_err(|_| Malformed { what: "text in a row is not UTF-8" })?;
                Ok(ValueRef::Text(text))
            }
        }
    }
}

fn fixed_value(column_type: ColumnType, bytes: &[u8]) -> Result<ValueRef<'static>, Malformed> {
    let mut reader = Reader::new(bytes);
    Ok(match column_type {
        ColumnType::Bool => match reader.u8()? {
            0 => ValueRef::Bool(false),
            1 => ValueRef::Bool(true),
            _ => return Err(Malformed { what: "a bool in a row is neither 0 nor 1" }),
        },
        ColumnType::I32 => ValueRef::I32(reader.u32()? as i32),
        ColumnType::I64 => ValueRef::I64(reader.u64()? as i64),
        ColumnType::Timestamp => ValueRef::Timestamp(reader.u64()? as i64),
        ColumnType::U64 => ValueRef::U64(reader.u64()?),
        ColumnType::F64 => ValueRef::F64(canonical(f64::from_bits(reader.u64()?))),
        ColumnType::Text | ColumnType::Bytes => return Err(Malformed { what: "text is not of fixed size" }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Schema;
    use crate::value::ValueRef;

    fn schema() -> Schema {
        Schema::with_key(
            vec![
                Column::new("id", ColumnType::I32),
                Column::new("note", ColumnType::Text).nullable(),
                Column::new("count", ColumnType::I64),
                Column::new("flag", ColumnType::Bool).nullable(),
                Column::new("tail", ColumnType::Bytes),
            ],
            &["id"],
        )
        .unwrap()
    }

    #[test]
    fn the_encoding_is_pinned() {
        let (mut key, mut row) = (Vec::new(), Vec::new());
        let values =
            [7i32.into(), ValueRef::Text("hé"), 258i64.into(), ValueRef::Null, ValueRef::Bytes(&[9])];
        schema().encode(&values, &mut key, &mut row).unwrap();
        assert_eq!(key, [0x80, 0, 0, 7]);
        let expected: &[u8] = &[
            4, 0,    // columns stored
            0b10, // NULL bits: note is there, flag is not
            2, 1, 0, 0, 0, 0, 0, 0, // count
            0, // flag
            3, 0, 4, 0, // ends
            b'h', 0xc3, 0xa9, 9,
        ];
        assert_eq!(row, expected);
    }

    #[test]
    fn wide_rows_are_pinned_and_only_those_that_must_be() {
        let (mut key, mut row) = (Vec::new(), Vec::new());
        for len in [65_535usize, 65_536] {
            let tail = vec![7; len];
            let values = [7i32.into(), ValueRef::Null, 0i64.into(), ValueRef::Null, ValueRef::Bytes(&tail)];
            schema().encode(&values, &mut key, &mut row).unwrap();
            let head: &[u8] = if len == 65_535 {
                &[4, 0, 0b11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]
            } else {
                &[4, 0x80, 0b11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]
            };
            assert_eq!(&row[..head.len()], head);
            assert_eq!(row.len(), head.len() + len);
            let mut found = Vec::new();
            schema().decode(&key, &row, &mut found).unwrap();
            assert_eq!(found[4].as_ref(), ValueRef::Bytes(&tail));
        }
        // One byte less, in a wide row: it need not be one.
        row.pop();
        row[16..20].copy_from_slice(&65_535u32.to_le_bytes());
        assert!(schema().decode(&key, &row, &mut Vec::new()).is_err());
    }

    /// A row of fewer columns once had a layout computed for each read of it.
    #[test]
    fn rows_from_before_columns_were_added_are_read_by_the_same_layout() {
        let columns = |count: usize| -> Vec<Column> {
            let types =
                [ColumnType::I32, ColumnType::Text, ColumnType::Bool, ColumnType::Bytes, ColumnType::I64];
            let of = |at: usize| {
                let column = Column::new(format!("c{at}"), types[at % types.len()]);
                if at % 2 == 1 { column.nullable() } else { column }
            };
            (0..count).map(of).collect()
        };
        let all = columns(25);
        let layout = Layout::of(all.iter());
        for count in 0..=all.len() {
            let older = Layout::of(columns(count).iter());
            assert_eq!(layout.stored_columns[..count], older.stored_columns);
            assert_eq!(layout.sizes[..=count], older.sizes);
        }
        assert_eq!(layout.sizes[25], Sizes { nullable: 12, fixed_len: 5 * (4 + 1 + 8), varying: 10 });
    }

    #[test]
    fn an_update_of_fixed_columns_changes_only_their_bytes() {
        let (mut key, mut before, mut after) = (Vec::new(), Vec::new(), Vec::new());
        let values = |count: i64| {
            [7i32.into(), ValueRef::Text("note"), count.into(), true.into(), ValueRef::Bytes(&[1])]
        };
        schema().encode(&values(1), &mut key, &mut before).unwrap();
        schema().encode(&values(2), &mut key, &mut after).unwrap();
        let differ: Vec<usize> = (0..before.len()).filter(|&at| before[at] != after[at]).collect();
        assert_eq!((before.len(), differ), (after.len(), vec![3]));
    }
}
