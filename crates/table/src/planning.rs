//! Statistics as they are kept in memory for planning, with what follows from them alone: each is
//! computed when it is first asked for, and goes with the statistics when these are replaced.

use crate::schema::Schema;
use crate::statistics::{SampledRow, TableStatistics};
use crate::stored_row::encode_sort_key;
use crate::value::{Value, ValueRef};
use firndb_base::TreeId;
use firndb_base::codec::Malformed;
use firndb_base::hash::hash_bytes;
use firndb_base::sync::{Arc, Mutex};
use std::collections::BTreeMap;

/// A table's statistics, and what planning has computed from them.
pub struct PlanningStatistics {
    pub known: TableStatistics,
    /// By number. A leaf; held while one is computed, so that none is computed twice.
    columns: Mutex<BTreeMap<usize, Arc<SampledColumn>>>,
    /// Keys of sampled rows by the tree that they are of, ascending. Likewise.
    keys: Mutex<BTreeMap<TreeId, Arc<[Vec<u8>]>>>,
}

/// A column of the sampled rows.
pub struct SampledColumn {
    /// In the order of the sample.
    values: Vec<Value>,
    /// Different ones among them.
    met: f64,
    /// As many more has the table, by Chao's estimate from those met once and twice.
    unmet: f64,
}

impl PlanningStatistics {
    pub(crate) fn new(known: TableStatistics) -> PlanningStatistics {
        PlanningStatistics { known, columns: Mutex::default(), keys: Mutex::default() }
    }

    /// A column of the sample, by the table's schema.
    ///
    /// Errors: a sampled row is none of the schema.
    pub fn column(&self, schema: &Schema, column: usize) -> Result<Arc<SampledColumn>, Malformed> {
        let mut columns = self.columns.lock();
        if let Some(known) = columns.get(&column) {
            return Ok(known.clone());
        }
        let value = |row: &SampledRow| {
            schema.stored(&row.key, &row.row)?.field(column).map(|field| field.value().to_value())
        };
        let values: Vec<Value> = self.known.sample.iter().map(value).collect::<Result<_, _>>()?;
        let made = Arc::new(SampledColumn::new(values));
        columns.insert(column, made.clone());
        Ok(made)
    }

    /// Keys in a tree of sampled rows, ascending; `make` returns them in any order.
    pub(crate) fn keys<E>(
        &self,
        tree: TreeId,
        make: impl FnOnce() -> Result<Vec<Vec<u8>>, E>,
    ) -> Result<Arc<[Vec<u8>]>, E> {
        let mut keys = self.keys.lock();
        if let Some(known) = keys.get(&tree) {
            return Ok(known.clone());
        }
        let mut made = make()?;
        made.sort_unstable();
        let made: Arc<[Vec<u8>]> = made.into();
        keys.insert(tree, made.clone());
        Ok(made)
    }
}

impl SampledColumn {
    fn new(values: Vec<Value>) -> SampledColumn {
        let (mut hashes, mut key) = (Vec::with_capacity(values.len()), Vec::new());
        for value in &values {
            key.clear();
            encode_sort_key(value.as_ref(), false, &mut key);
            hashes.push(hash_bytes(0, &key));
        }
        hashes.sort_unstable();
        let (mut met, mut once, mut twice) = (0.0, 0.0, 0.0);
        for same in hashes.chunk_by(|a, b| a == b) {
            met += 1.0;
            once += f64::from(same.len() == 1);
            twice += f64::from(same.len() == 2);
        }
        SampledColumn { values, met, unmet: once * (once - 1.0) / (2.0 * (twice + 1.0)) }
    }

    /// Of the sampled row of this number.
    #[must_use]
    pub fn value(&self, row: usize) -> ValueRef<'_> {
        self.values[row].as_ref()
    }

    /// How many values the column has in a table of as many rows; `None` without a sample.
    #[must_use]
    pub fn distinct(&self, rows: f64) -> Option<f64> {
        match self.values.len() {
            0 => None,
            sampled if sampled as f64 >= rows => Some(self.met),
            _ => Some((self.met + self.unmet).min(rows)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Column, KeyColumn};
    use crate::value::ColumnType;

    fn schema() -> Schema {
        let columns =
            vec![Column::new("id", ColumnType::I64), Column::new("name", ColumnType::Text).nullable()];
        Schema::new(columns, vec![KeyColumn::ascending(0)]).unwrap()
    }

    fn sampled(names: &[Option<&str>]) -> PlanningStatistics {
        let row = |(id, name): (usize, &Option<&str>)| {
            let (mut key, mut row) = (Vec::new(), Vec::new());
            let name = name.map_or(ValueRef::Null, ValueRef::Text);
            schema().encode(&[ValueRef::I64(id as i64), name], &mut key, &mut row).unwrap();
            SampledRow { key, row }
        };
        let sample = names.iter().enumerate().map(row).collect();
        PlanningStatistics::new(TableStatistics { sample, ..TableStatistics::default() })
    }

    #[test]
    fn columns_of_a_sample_are_decoded_once_and_their_values_counted() {
        let statistics = sampled(&[Some("a"), None, Some("b"), Some("a"), Some("c"), Some("d"), None]);
        let names = statistics.column(&schema(), 1).unwrap();
        assert_eq!((names.value(3), names.value(6)), (ValueRef::Text("a"), ValueRef::Null));
        // Three of them once, "a" and NULL twice: 3 * 2 / (2 * 3) more.
        assert_eq!(names.distinct(100.0), Some(6.0));
        assert_eq!(names.distinct(7.0), Some(5.0), "the sample is the table");
        assert!(Arc::ptr_eq(&names, &statistics.column(&schema(), 1).unwrap()));
        let ids = statistics.column(&schema(), 0).unwrap();
        assert_eq!((ids.distinct(1000.0), ids.distinct(20.0)), (Some(28.0), Some(20.0)));
        assert!(sampled(&[]).column(&schema(), 1).unwrap().distinct(1.0).is_none());
    }

    #[test]
    fn a_row_of_another_schema_is_refused_and_keys_are_sorted_once() {
        let mut statistics = sampled(&[Some("a"), Some("b")]);
        statistics.known.sample[1].row.truncate(1);
        assert!(statistics.column(&schema(), 1).is_err());
        let keys = |tree, made: Result<Vec<Vec<u8>>, ()>| statistics.keys(TreeId(tree), || made);
        assert!(keys(1, Err(())).is_err());
        let sorted = Ok([vec![1], vec![2]].into());
        assert_eq!(keys(1, Ok(vec![vec![2], vec![1]])), sorted);
        assert_eq!((keys(1, Err(())), keys(2, Ok(vec![]))), (sorted, Ok([].into())));
    }
}
