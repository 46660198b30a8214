//! Secondary indexes: what they are made of, and the entries they hold.
//!
//! An index is a tree of its own. Invariants, for an index that is ready:
//! * *plain*: one entry a row; its key is the index columns followed by the row's primary key, its
//!   value is empty;
//! * *unique*: one entry a row; its key is the index columns, its value is the primary key. If any
//!   of the columns is NULL the primary key follows in the key too, so that NULLs never collide;
//! * nothing else is in the tree.
//!
//! While it is being built, entries of rows that the build has not reached may be missing; none is
//! ever wrong.

use crate::error::TableError;
use crate::order_key::{self, KeyForm};
use crate::row::RowView;
use crate::schema::{self, Home, KeyColumn, Schema};
use crate::show;
use crate::table_kind::TableKind;
use crate::value::ValueRef;
use firndb_base::codec::{Malformed, Reader, Writer};
use firndb_base::{PageId, TreeId};
use std::ops::Range;

/// Most indexes of a table.
pub const MAX_INDEXES: usize = 64;

/// One piece of an index key of a raw table: the same bytes of every row, compared as bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexPart {
    /// These bytes of the primary key.
    Key(Range<usize>),
    /// These bytes of the value.
    Value(Range<usize>),
}

impl IndexPart {
    fn range(&self) -> &Range<usize> {
        match self {
            IndexPart::Key(range) | IndexPart::Value(range) => range,
        }
    }
}

/// What the key of an index is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexParts {
    /// Of a raw table: byte ranges, one after the other. A row too short for one is refused.
    Ranges(Vec<IndexPart>),
    /// Of a typed table: columns.
    Columns(Vec<KeyColumn>),
}

/// An index to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexSpec {
    /// Its name, unique among the table's indexes; 1 to 255 bytes.
    pub name: String,
    /// Whether two rows may have the same index key.
    pub unique: bool,
    /// What its key is made of.
    pub parts: IndexParts,
}

impl IndexSpec {
    /// An index of a raw table.
    #[must_use]
    pub fn ranges(name: impl Into<String>, unique: bool, parts: Vec<IndexPart>) -> IndexSpec {
        IndexSpec { name: name.into(), unique, parts: IndexParts::Ranges(parts) }
    }
    /// An index of a typed table.
    #[must_use]
    pub fn columns(name: impl Into<String>, unique: bool, columns: Vec<KeyColumn>) -> IndexSpec {
        IndexSpec { name: name.into(), unique, parts: IndexParts::Columns(columns) }
    }
}

/// How far an index is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexState {
    /// Not yet complete, so no reader uses it.
    Building {
        /// Id and root page of the tree in which writers note its changes.
        notes: (TreeId, PageId),
    },
    /// Complete.
    Ready,
}

/// An index as the catalog knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexDefinition {
    /// What it was created as.
    pub spec: IndexSpec,
    pub tree: TreeId,
    /// Root page of its tree.
    pub root: PageId,
    /// Whether it is complete.
    pub state: IndexState,
}

impl IndexDefinition {
    /// Id and root page of its tree, and of that of the notes on it.
    pub(crate) fn trees(&self) -> impl Iterator<Item = (TreeId, PageId)> + use<> {
        let notes = match self.state {
            IndexState::Building { notes } => Some(notes),
            IndexState::Ready => None,
        };
        std::iter::once((self.tree, self.root)).chain(notes)
    }
}

impl IndexSpec {
    /// Refuses an index that does not fit its table.
    pub(crate) fn check(&self, kind: &TableKind) -> Result<(), TableError> {
        schema::check_name("an index", &self.name).map_err(TableError::bad_argument)?;
        let refuse = |why: String| Err(TableError::bad_argument(format!("index {:?}: {why}", self.name)));
        match (&self.parts, kind) {
            (IndexParts::Columns(columns), TableKind::Typed(schema)) => {
                if columns.is_empty() {
                    return refuse("it has no columns".into());
                }
                schema::check_key_columns(schema.columns(), columns).or_else(refuse)
            }
            (IndexParts::Ranges(parts), TableKind::Raw) => {
                if parts.is_empty() || parts.len() > schema::MAX_KEY_COLUMNS {
                    return refuse(format!("it needs 1 to {} parts", schema::MAX_KEY_COLUMNS));
                }
                match parts.iter().find(|p| p.range().start >= p.range().end || p.range().end > 65_536) {
                    Some(part) => refuse(format!("{part:?} is not a range of bytes within 65536")),
                    None => Ok(()),
                }
            }
            (IndexParts::Columns(_), TableKind::Raw) => {
                refuse("a raw table is indexed by byte ranges".into())
            }
            (IndexParts::Ranges(_), TableKind::Typed(_)) => {
                refuse("a typed table is indexed by columns".into())
            }
        }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.put_blob(self.name.as_bytes());
        out.put_u8(u8::from(self.unique));
        match &self.parts {
            IndexParts::Columns(columns) => {
                out.put_u8(1);
                schema::write_key_columns(columns, out);
            }
            IndexParts::Ranges(parts) => {
                out.put_u8(2);
                out.put_varint(parts.len() as u64);
                for part in parts {
                    out.put_u8(u8::from(matches!(part, IndexPart::Value(_))));
                    out.put_varint(part.range().start as u64);
                    out.put_varint(part.range().end as u64);
                }
            }
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<IndexSpec, Malformed> {
        let name = schema::read_name(reader)?;
        let unique = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return Err(Malformed { what: "unknown flags of an index" }),
        };
        let parts = match reader.u8()? {
            1 => IndexParts::Columns(schema::read_key_columns(reader)?),
            2 => {
                let count = reader.varint_max(schema::MAX_KEY_COLUMNS)?;
                let mut parts = Vec::with_capacity(count);
                for _ in 0..count {
                    let of_value = reader.u8()?;
                    let range = reader.varint_max(65_536)?..reader.varint_max(65_536)?;
                    parts.push(match of_value {
                        0 => IndexPart::Key(range),
                        1 => IndexPart::Value(range),
                        _ => return Err(Malformed { what: "an index part is of neither key nor value" }),
                    });
                }
                IndexParts::Ranges(parts)
            }
            _ => return Err(Malformed { what: "unknown kind of index parts" }),
        };
        Ok(IndexSpec { name, unique, parts })
    }

    /// Replaces `entry` by the index entry of `row`.
    pub(crate) fn entry(&self, row: &RowSource<'_>, entry: &mut Entry) -> Result<(), TableError> {
        entry.key.clear();
        entry.value.clear();
        // Enough for most entries, so that one is not grown part by part.
        entry.key.reserve(row.key.len() + 48);
        let mut has_null = false;
        match (&self.parts, &row.typed) {
            (IndexParts::Columns(columns), Some(typed)) => {
                for column in columns {
                    has_null |= typed.put_column(row.key, *column, &mut entry.key)?;
                }
            }
            (IndexParts::Ranges(parts), None) => {
                for part in parts {
                    let source = if matches!(part, IndexPart::Key(_)) { row.key } else { row.value };
                    let bytes = source.get(part.range().clone()).ok_or_else(|| self.too_short(part, row))?;
                    entry.key.extend_from_slice(bytes);
                }
            }
            _ => unreachable!("check() refused an index of the other kind of table"),
        }
        if self.unique {
            entry.value.extend_from_slice(row.key);
        }
        if !self.unique || has_null {
            entry.key.extend_from_slice(row.key);
        }
        Ok(())
    }

    /// Whether two rows at one key have the same entry, as far as their bytes say without making
    /// it.
    pub(crate) fn stays(&self, old: &RowSource<'_>, new: &RowSource<'_>) -> bool {
        let IndexParts::Ranges(parts) = &self.parts else { return false };
        parts.iter().all(|part| match part {
            IndexPart::Key(_) => true,
            IndexPart::Value(range) => {
                let before = old.value.get(range.clone());
                before.is_some() && before == new.value.get(range.clone())
            }
        })
    }

    /// Whether a part of the key lies in the row's value, rather than in its primary key.
    pub(crate) fn needs_value(&self, kind: &TableKind) -> bool {
        match (&self.parts, kind) {
            (IndexParts::Columns(columns), TableKind::Typed(schema)) => {
                columns.iter().any(|part| matches!(schema.home(part.column), Home::Row(_)))
            }
            (IndexParts::Ranges(parts), _) => parts.iter().any(|part| matches!(part, IndexPart::Value(_))),
            _ => unreachable!("check() refused an index of the other kind of table"),
        }
    }

    fn too_short(&self, part: &IndexPart, row: &RowSource<'_>) -> TableError {
        let (what, len) = match part {
            IndexPart::Key(_) => ("key", row.key.len()),
            IndexPart::Value(_) => ("value", row.value.len()),
        };
        TableError::bad_argument(format!(
            "index {:?} is made of bytes {:?} of the {what}, and the {what} of row {} has only {len}",
            self.name,
            part.range(),
            show::Bytes(row.key)
        ))
    }

    /// The primary key of the row that an entry belongs to.
    pub(crate) fn primary_key<'a>(
        &self,
        kind: &TableKind,
        key: &'a [u8],
        value: &'a [u8],
    ) -> Result<&'a [u8], Malformed> {
        if self.unique { Ok(value) } else { Ok(&key[self.columns_len(kind, key)?..]) }
    }

    /// How many bytes of an entry's key are the index columns.
    pub(crate) fn columns_len(&self, kind: &TableKind, key: &[u8]) -> Result<usize, Malformed> {
        match (&self.parts, kind) {
            (IndexParts::Columns(columns), TableKind::Typed(schema)) => {
                let mut reader = Reader::new(key);
                for column in columns {
                    order_key::skip(form(schema, *column), &mut reader)?;
                }
                Ok(key.len() - reader.rest().len())
            }
            (IndexParts::Ranges(parts), TableKind::Raw) => {
                let len = parts.iter().map(|part| part.range().len()).sum();
                if len > key.len() {
                    return Err(Malformed { what: "an index entry is shorter than the index's parts" });
                }
                Ok(len)
            }
            _ => unreachable!("check() refused an index of the other kind of table"),
        }
    }

    /// Encodes the first columns of the index key: all of them, or fewer for a prefix. Appends to
    /// `key`.
    pub(crate) fn encode_prefix(
        &self,
        schema: &Schema,
        values: &[ValueRef<'_>],
        key: &mut Vec<u8>,
    ) -> Result<(), TableError> {
        let IndexParts::Columns(columns) = &self.parts else {
            return Err(TableError::bad_argument(format!("index {:?} is made of byte ranges", self.name)));
        };
        if values.len() > columns.len() {
            return Err(TableError::bad_argument(format!(
                "{} values given, index {:?} has {} columns",
                values.len(),
                self.name,
                columns.len()
            )));
        }
        for (column, value) in columns.iter().zip(values) {
            schema::check_value(&schema.columns()[column.column], *value)?;
            order_key::encode(form(schema, *column), *value, key);
        }
        Ok(())
    }
}

pub(crate) fn form(schema: &Schema, part: KeyColumn) -> KeyForm {
    let column = &schema.columns()[part.column];
    KeyForm { column_type: column.column_type, nullable: column.nullable, descending: part.descending }
}

/// An index entry. Buffers are kept between uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// A row that entries are made from.
pub(crate) struct RowSource<'a> {
    key: &'a [u8],
    value: &'a [u8],
    typed: Option<TypedSource<'a>>,
}

struct TypedSource<'a> {
    schema: &'a Schema,
    /// Absent if only the primary key is known.
    view: Option<RowView<'a>>,
}

impl<'a> RowSource<'a> {
    /// Of a stored row of a table of `kind`.
    pub(crate) fn new(
        kind: &'a TableKind,
        key: &'a [u8],
        value: &'a [u8],
    ) -> Result<RowSource<'a>, Malformed> {
        let typed = match kind {
            TableKind::Raw => None,
            TableKind::Typed(schema) => {
                let view = schema.layout().read(schema.row_columns(), value)?;
                Some(TypedSource { schema, view: Some(view) })
            }
        };
        Ok(RowSource { key, value, typed })
    }

    /// Of a row whose primary key alone is known: for indexes that need no more.
    pub(crate) fn of_key(kind: &'a TableKind, key: &'a [u8]) -> RowSource<'a> {
        let typed = match kind {
            TableKind::Raw => None,
            TableKind::Typed(schema) => Some(TypedSource { schema, view: None }),
        };
        RowSource { key, value: &[], typed }
    }
}

impl TypedSource<'_> {
    /// Appends one index column; returns whether it is NULL.
    fn put_column(&self, primary_key: &[u8], part: KeyColumn, key: &mut Vec<u8>) -> Result<bool, Malformed> {
        match self.schema.home(part.column) {
            Home::Row(place) => {
                let view =
                    self.view.as_ref().expect("asked of a whole row, unless the key is all that is needed");
                let value = view.value(place)?;
                let form = form(self.schema, part);
                if value.is_null() && !form.nullable {
                    return Err(Malformed { what: "a row has no value for a column that needs one" });
                }
                order_key::encode(form, value, key);
                Ok(value.is_null())
            }
            Home::Key(place) => {
                // Columns of the primary key are never NULL, so its own encoding serves, turned if
                // need be.
                let mut reader = Reader::new(primary_key);
                for form in &self.schema.key_forms()[..place] {
                    order_key::skip(*form, &mut reader)?;
                }
                let here = reader.rest();
                order_key::skip(self.schema.key_forms()[place], &mut reader)?;
                let bytes = &here[..here.len() - reader.rest().len()];
                let turn =
                    if self.schema.key_forms()[place].descending == part.descending { 0 } else { 0xff };
                key.extend(bytes.iter().map(|byte| byte ^ turn));
                Ok(false)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Column;
    use crate::value::{ColumnType, Value};

    fn typed() -> TableKind {
        let columns = vec![
            Column::new("a", ColumnType::Text),
            Column::new("b", ColumnType::I64),
            Column::new("c", ColumnType::Text).nullable(),
        ];
        TableKind::Typed(
            Schema::new(columns, vec![KeyColumn::ascending(0), KeyColumn::descending(1)]).unwrap(),
        )
    }

    fn entry_of(kind: &TableKind, spec: &IndexSpec, values: &[Value]) -> (Entry, Vec<u8>) {
        let TableKind::Typed(schema) = kind else { unreachable!() };
        let borrowed: Vec<ValueRef<'_>> = values.iter().map(Value::as_ref).collect();
        let (mut key, mut row) = (Vec::new(), Vec::new());
        schema.encode(&borrowed, &mut key, &mut row).unwrap();
        let mut entry = Entry::default();
        spec.entry(&RowSource::new(kind, &key, &row).unwrap(), &mut entry).unwrap();
        (entry, key)
    }

    #[test]
    fn entries_of_typed_tables_lead_back_to_their_rows() {
        let kind = typed();
        for unique in [false, true] {
            let spec =
                IndexSpec::columns("i", unique, vec![KeyColumn::ascending(2), KeyColumn::ascending(1)]);
            spec.check(&kind).unwrap();
            for c in [Value::Null, "x\0y".into()] {
                let (entry, pk) = entry_of(&kind, &spec, &["k".into(), 5i64.into(), c.clone()]);
                assert_eq!(spec.primary_key(&kind, &entry.key, &entry.value), Ok(&pk[..]));
                let TableKind::Typed(schema) = &kind else { unreachable!() };
                let mut prefix = Vec::new();
                spec.encode_prefix(schema, &[c.as_ref(), 5i64.into()], &mut prefix).unwrap();
                assert!(entry.key.starts_with(&prefix), "key columns are turned to the index's direction");
                assert_eq!(spec.columns_len(&kind, &entry.key), Ok(prefix.len()));
                let whole = prefix.len() == entry.key.len();
                assert_eq!(whole, unique && c != Value::Null, "NULLs of a unique index do not collide");
            }
        }
    }

    #[test]
    fn entries_of_raw_tables_are_their_ranges() {
        let kind = TableKind::Raw;
        let parts = vec![IndexPart::Value(2..4), IndexPart::Key(0..1)];
        let spec = IndexSpec::ranges("i", false, parts);
        spec.check(&kind).unwrap();
        let mut entry = Entry::default();
        spec.entry(&RowSource::new(&kind, b"key", b"value").unwrap(), &mut entry).unwrap();
        assert_eq!((&entry.key[..], &entry.value[..]), (&b"lukkey"[..], &b""[..]));
        assert_eq!(spec.primary_key(&kind, &entry.key, &entry.value), Ok(&b"key"[..]));
        let stays = |old: &[u8], new: &[u8]| {
            let row = |value| RowSource::new(&kind, b"key", value).unwrap();
            spec.stays(&row(old), &row(new))
        };
        assert!(stays(b"value", b"VAlu") && !stays(b"value", b"vaLue"));
        assert!(!stays(b"value", b"val") && !stays(b"val", b"val"), "a row without an entry");
        let error = spec.entry(&RowSource::new(&kind, b"key", b"val").unwrap(), &mut entry).unwrap_err();
        assert!(error.message.contains("has only 3"), "{error}");
        assert!(spec.primary_key(&kind, b"lu", b"").is_err());
    }

    #[test]
    fn specs_round_trip_and_broken_ones_are_refused() {
        let specs = [
            IndexSpec::columns("c", true, vec![KeyColumn::descending(1)]),
            IndexSpec::ranges("r", false, vec![IndexPart::Key(0..4), IndexPart::Value(7..9)]),
        ];
        for spec in specs {
            let mut bytes = Vec::new();
            spec.write(&mut bytes);
            assert_eq!(IndexSpec::read(&mut Reader::new(&bytes)).as_ref(), Ok(&spec));
            for cut in 0..bytes.len() {
                assert!(IndexSpec::read(&mut Reader::new(&bytes[..cut])).is_err());
            }
        }
        let refused = [
            IndexSpec::columns("c", true, vec![]),
            IndexSpec::columns("", true, vec![KeyColumn::ascending(1)]),
            IndexSpec::columns("c", true, vec![KeyColumn::ascending(9)]),
            IndexSpec::ranges("r", false, vec![IndexPart::Key(0..4)]),
        ];
        assert!(refused.iter().all(|spec| spec.check(&typed()).is_err()));
        #[allow(clippy::reversed_empty_ranges)]
        let reversed = IndexSpec::ranges("r", false, vec![IndexPart::Key(4..4), IndexPart::Key(5..2)]);
        assert!(reversed.check(&TableKind::Raw).is_err());
    }
}
