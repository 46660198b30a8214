//! What a database shows, and what the model says.

use super::{INDEXED, Model, PLAIN, TABLES, UNIQUE};
use crate::support::small::{Rows, scan};
use firndb::{Direction, KeyRange, Table, Transaction};

pub fn within(rows: &Rows, low: Option<&[u8]>, high: Option<&[u8]>) -> Vec<(Vec<u8>, Vec<u8>)> {
    rows.iter()
        .filter(|(key, _)| low.is_none_or(|low| low <= &key[..]) && high.is_none_or(|high| &key[..] < high))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Table, key, value found and value expected, for people.
pub fn differences(found: &Model, expected: &Model) -> Vec<String> {
    let mut sentences = Vec::new();
    for (which, (found, expected)) in found.iter().zip(expected).enumerate() {
        let keys: std::collections::BTreeSet<_> = found.keys().chain(expected.keys()).collect();
        for key in keys.into_iter().filter(|key| found.get(*key) != expected.get(*key)) {
            let show = |rows: &Rows| rows.get(key).map(|value| value.escape_ascii().to_string());
            sentences.push(format!(
                "{} {}: {:?}, not {:?}",
                TABLES[which],
                key.escape_ascii(),
                show(found),
                show(expected)
            ));
        }
    }
    sentences
}

pub fn compare(tx: &mut Transaction, tables: &[Table], model: &Model) {
    for (table, rows) in tables.iter().zip(model) {
        let expected = within(rows, None, None);
        assert_eq!(scan(tx, table, KeyRange::all(), Direction::Forward), expected);
        let mut backward = scan(tx, table, KeyRange::all(), Direction::Backward);
        backward.reverse();
        assert_eq!(backward, expected);
        for (key, value) in rows.iter().step_by(3) {
            assert_eq!(tx.get(table, key).expect("readable").as_ref(), Some(value));
        }
    }
    compare_indexes(tx, &tables[INDEXED], &model[INDEXED], Direction::Forward);
}

pub fn compare_indexes(tx: &mut Transaction, table: &Table, rows: &Rows, direction: Direction) {
    for (name, part) in [("plain", PLAIN), ("unique", UNIQUE)] {
        let mut expected: Vec<(Vec<u8>, Vec<u8>)> =
            rows.iter().map(|(key, value)| (value[part.clone()].to_vec(), key.clone())).collect();
        expected.sort();
        if direction == Direction::Backward {
            expected.reverse();
        }
        let index = table.index(name).expect("there");
        let mut cursor = tx.scan_index(&index, KeyRange::all(), direction);
        let mut found = Vec::new();
        while let Some(row) = cursor.next(tx).expect("readable") {
            assert_eq!(rows.get(row.primary_key).map(Vec::as_slice), Some(row.row));
            found.push((row.row[part.clone()].to_vec(), row.primary_key.to_vec()));
        }
        assert_eq!(found, expected, "index {name}");
    }
}
