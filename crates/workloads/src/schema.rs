//! Tables and secondary indexes, declared as data.

use std::ops::Range;

/// A table, by its position in [`Schema::tables`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub usize);

/// A secondary index, by its position in [`TableSpec::indexes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IndexId(pub usize);

/// The tables of a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schema {
    /// A table's place here is its [`TableId`].
    pub tables: Vec<TableSpec>,
}

/// A table of rows of one length, clustered by keys of one length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSpec {
    /// Unique among the schema's tables; letters, digits and `_`.
    pub name: String,
    /// Bytes of a key.
    pub key_len: usize,
    /// Bytes of a row, its key not counted.
    pub row_len: usize,
    /// A secondary index's place here is its [`IndexId`].
    pub indexes: Vec<IndexSpec>,
}

/// A secondary index: its key is the concatenation of parts of the row and of its primary key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexSpec {
    /// Unique among the table's indexes; letters, digits and `_`.
    pub name: String,
    /// Whether no two rows may have the same parts. If not unique, the primary key is appended to
    /// the parts to distinguish rows, and index scans see it as the end of the index key.
    pub unique: bool,
    /// The parts of the index key, in order.
    pub parts: Vec<Part>,
}

/// Bytes that go into an index key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A range of the primary key.
    Key(Range<usize>),
    /// A range of the row.
    Value(Range<usize>),
}

impl Schema {
    /// The table of this id. Panics if the schema has none: a workload uses its own schema's ids.
    #[must_use]
    pub fn table(&self, table: TableId) -> &TableSpec {
        &self.tables[table.0]
    }

    /// Panics unless names are unique and every part lies within its key or row. For adapters, on
    /// opening.
    pub fn assert_sound(&self) {
        for (at, table) in self.tables.iter().enumerate() {
            assert!(self.tables[..at].iter().all(|t| t.name != table.name), "two tables {}", table.name);
            for (at, index) in table.indexes.iter().enumerate() {
                assert!(table.indexes[..at].iter().all(|i| i.name != index.name), "two {}", index.name);
                for part in &index.parts {
                    let (range, len) = match part {
                        Part::Key(range) => (range, table.key_len),
                        Part::Value(range) => (range, table.row_len),
                    };
                    assert!(range.start < range.end && range.end <= len, "{}: {part:?}", index.name);
                }
            }
        }
    }
}

impl IndexSpec {
    /// Writes the index key of a row into `index_key` (and clears its old content). `key` and `row`
    /// must have the lengths that the table's spec says.
    pub fn key_of(&self, key: &[u8], row: &[u8], index_key: &mut Vec<u8>) {
        index_key.clear();
        for part in &self.parts {
            index_key.extend_from_slice(match part {
                Part::Key(range) => &key[range.clone()],
                Part::Value(range) => &row[range.clone()],
            });
        }
        if !self.unique {
            index_key.extend_from_slice(key);
        }
    }

    /// Bytes of an index key of `table`.
    #[must_use]
    pub fn key_len(&self, table: &TableSpec) -> usize {
        let parts: usize = self
            .parts
            .iter()
            .map(|part| match part {
                Part::Key(range) | Part::Value(range) => range.len(),
            })
            .sum();
        parts + if self.unique { 0 } else { table.key_len }
    }
}

/// Turns `key` into the least key greater than every key that starts with it. Empties it if there
/// is none (all its bytes are 0xff), which [`KeyRange`](crate::KeyRange) reads as "no upper bound".
pub fn make_successor(key: &mut Vec<u8>) {
    while let Some(last) = key.pop() {
        if last < u8::MAX {
            key.push(last + 1);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_key_is_its_parts_and_the_primary_key_unless_unique() {
        let mut index =
            IndexSpec { name: "i".into(), unique: false, parts: vec![Part::Value(1..3), Part::Key(0..1)] };
        let table = TableSpec { name: "t".into(), key_len: 2, row_len: 4, indexes: vec![index.clone()] };
        Schema { tables: vec![table.clone()] }.assert_sound();
        let mut key = Vec::new();
        index.key_of(b"ab", b"0123", &mut key);
        assert_eq!(key, b"12aab");
        assert_eq!(index.key_len(&table), key.len());
        index.unique = true;
        index.key_of(b"ab", b"0123", &mut key);
        assert_eq!(key, b"12a");
        assert_eq!(index.key_len(&table), key.len());
    }

    #[test]
    fn the_successor_of_a_prefix_is_past_all_it_starts() {
        let mut key = vec![1, 0xff, 0xff];
        make_successor(&mut key);
        assert_eq!(key, [2]);
        let mut last = vec![0xff];
        make_successor(&mut last);
        assert!(last.is_empty());
    }
}
