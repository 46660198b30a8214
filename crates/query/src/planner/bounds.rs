//! From conditions to ranges of keys.

use crate::error::QueryError;
use crate::predicate::{Comparison, Predicate};
use firndb_table::{KeyColumn, KeyRange, TableError, Value, ValueRef};
use std::ops::Bound;

/// What conditions say of the first columns of a key: some are equal to a value, and the one behind
/// them lies between two.
///
/// A range that it makes holds every row for which the conditions are true, and perhaps others: the
/// conditions are evaluated besides.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyBounds {
    /// Values of the first columns.
    pub equal: Vec<Value>,
    /// Of the column behind them, by its own order.
    pub low: Bound<Value>,
    pub high: Bound<Value>,
    /// The column behind them descends in the key.
    descends: bool,
    /// Numbers of the conditions that it takes in.
    pub conditions: Vec<usize>,
}

impl KeyBounds {
    /// Of a key with these columns; the conditions are on columns of the table.
    #[must_use]
    pub fn new(conditions: &[Predicate], key: &[KeyColumn]) -> KeyBounds {
        let mut bounds = KeyBounds {
            equal: Vec::new(),
            low: Bound::Unbounded,
            high: Bound::Unbounded,
            descends: false,
            conditions: Vec::new(),
        };
        for part in key {
            let is_value = |one: &Predicate| match one {
                Predicate::Compare(column, Comparison::Equal, value) if *column == part.column => {
                    (!value.as_ref().is_null()).then(|| value.clone())
                }
                _ => None,
            };
            let found =
                conditions.iter().enumerate().find_map(|(number, one)| Some((number, is_value(one)?)));
            let Some((number, value)) = found else {
                bounds.descends = part.descending;
                for (number, one) in conditions.iter().enumerate() {
                    bounds.narrow(number, one, part.column);
                }
                break;
            };
            bounds.equal.push(value);
            bounds.conditions.push(number);
        }
        bounds
    }

    /// Takes in a condition on the column behind the equal ones.
    fn narrow(&mut self, number: usize, condition: &Predicate, of: usize) {
        let (low, high) = match condition {
            Predicate::Compare(column, how, value) if *column == of && !value.as_ref().is_null() => match how
            {
                Comparison::Less => (Bound::Unbounded, Bound::Excluded(value)),
                Comparison::LessOrEqual => (Bound::Unbounded, Bound::Included(value)),
                Comparison::Greater => (Bound::Excluded(value), Bound::Unbounded),
                Comparison::GreaterOrEqual => (Bound::Included(value), Bound::Unbounded),
                Comparison::Equal | Comparison::NotEqual => return,
            },
            Predicate::Between(column, low, high)
                if *column == of && !low.as_ref().is_null() && !high.as_ref().is_null() =>
            {
                (Bound::Included(low), Bound::Included(high))
            }
            _ => return,
        };
        // Of two bounds at one value the one that excludes it is narrower.
        let key = |bound: Bound<&Value>| match bound {
            Bound::Unbounded => None,
            Bound::Included(value) => Some((value.clone(), false)),
            Bound::Excluded(value) => Some((value.clone(), true)),
        };
        let (old, new) = (key(self.low.as_ref()), key(low));
        if new > old {
            self.low = low.cloned();
        }
        let rank = |(value, excludes): (Value, bool)| (value, !excludes);
        let (old, new) = (key(self.high.as_ref()).map(rank), key(high).map(rank));
        if let Some(new) = new
            && old.is_none_or(|old| new < old)
        {
            self.high = high.cloned();
        }
        self.conditions.push(number);
    }

    /// Whether it leaves out any key.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        !self.conditions.is_empty()
    }

    /// How many of the key's first columns have one value.
    #[must_use]
    pub fn equal_columns(&self) -> usize {
        self.equal.len()
    }

    /// The range of keys; `encode` appends the key of values of its first columns.
    ///
    /// Errors: those of `encode`.
    pub fn range(
        &self,
        encode: impl Fn(&[ValueRef<'_>], &mut Vec<u8>) -> Result<(), TableError>,
    ) -> Result<KeyRange, QueryError> {
        let key = |last: Bound<&Value>| -> Result<Bound<Vec<u8>>, TableError> {
            let mut values: Vec<ValueRef<'_>> = self.equal.iter().map(Value::as_ref).collect();
            let mut key = Vec::new();
            match last {
                Bound::Unbounded if values.is_empty() => return Ok(Bound::Unbounded),
                Bound::Unbounded => {}
                Bound::Included(value) | Bound::Excluded(value) => values.push(value.as_ref()),
            }
            encode(&values, &mut key)?;
            Ok(if matches!(last, Bound::Excluded(_)) { Bound::Excluded(key) } else { Bound::Included(key) })
        };
        let (low, high) = (key(self.low.as_ref())?, key(self.high.as_ref())?);
        let (low, high) = if self.descends { (high, low) } else { (low, high) };
        Ok(KeyRange::of_prefixes(low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_base::rng::Rng;
    use firndb_table::{Column, ColumnType, Schema};

    #[test]
    fn conditions_become_bounds_of_the_first_columns() {
        use Comparison::*;
        let is = |column, how, value: i64| Predicate::Compare(column, how, value.into());
        let key = [KeyColumn::ascending(2), KeyColumn::ascending(0)];
        /// Conditions; equal columns, the bounds, and the conditions taken in.
        type Case<'a> = (Vec<Predicate>, usize, Bound<i64>, Bound<i64>, &'a [usize]);
        let cases: [Case<'_>; 8] = [
            (vec![], 0, Bound::Unbounded, Bound::Unbounded, &[]),
            (vec![is(0, Equal, 1)], 0, Bound::Unbounded, Bound::Unbounded, &[]),
            (vec![is(0, Less, 9), is(2, Equal, 1)], 1, Bound::Unbounded, Bound::Excluded(9), &[1, 0]),
            (vec![is(0, Equal, 9), is(2, Equal, 1)], 2, Bound::Unbounded, Bound::Unbounded, &[1, 0]),
            (vec![is(2, Greater, 3), is(0, Equal, 1)], 0, Bound::Excluded(3), Bound::Unbounded, &[0]),
            (
                vec![is(2, GreaterOrEqual, 3), is(2, Greater, 3), is(2, Less, 5), is(2, LessOrEqual, 5)],
                0,
                Bound::Excluded(3),
                Bound::Excluded(5),
                &[0, 1, 2, 3],
            ),
            (
                vec![Predicate::Between(2, 1i64.into(), 7i64.into()), is(2, LessOrEqual, 6)],
                0,
                Bound::Included(1),
                Bound::Included(6),
                &[0, 1],
            ),
            (
                vec![is(2, NotEqual, 3), Predicate::Compare(2, Less, Value::Null)],
                0,
                Bound::Unbounded,
                Bound::Unbounded,
                &[],
            ),
        ];
        for (conditions, equal, low, high, used) in cases {
            let bounds = KeyBounds::new(&conditions, &key);
            assert_eq!(bounds.equal.len(), equal, "{conditions:?}");
            let value = |bound: Bound<i64>| bound.map(Value::from);
            assert_eq!((&bounds.low, &bounds.high), (&value(low), &value(high)), "{conditions:?}");
            assert_eq!(bounds.conditions, used, "{conditions:?}");
            assert_eq!(bounds.is_bounded(), !used.is_empty());
        }
    }

    #[test]
    fn a_range_holds_every_row_that_satisfies_its_conditions() {
        let mut rng = Rng::new(3);
        let columns = (0..3).map(|at| Column::new(format!("c{at}"), ColumnType::I64)).collect::<Vec<_>>();
        let (mut inside, mut outside) = (0, 0);
        for _ in 0..3000 {
            let part = |rng: &mut Rng, column| KeyColumn { column, descending: rng.one_in(2) };
            let key = vec![part(&mut rng, 1), part(&mut rng, 0)];
            let schema = Schema::new(columns.clone(), key.clone()).unwrap();
            let conditions: Vec<Predicate> =
                (0..rng.below(4)).map(|_| crate::planner::testing::random_comparison(&mut rng, 3)).collect();
            let range = KeyBounds::new(&conditions, &key)
                .range(|values, out| schema.encode_key(values, out))
                .unwrap();
            for _ in 0..20 {
                let row: Vec<Value> = (0..3).map(|_| Value::I64(rng.below(6) as i64)).collect();
                let refs: Vec<ValueRef<'_>> = row.iter().map(Value::as_ref).collect();
                let (mut key, mut bytes) = (Vec::new(), Vec::new());
                schema.encode(&refs, &mut key, &mut bytes).unwrap();
                let stored = schema.stored(&key, &bytes).unwrap();
                let holds = Predicate::And(conditions.clone()).holds(&stored).unwrap();
                let is_in = range.place(&key).is_eq();
                assert!(is_in || !holds, "{conditions:?} {row:?}");
                inside += usize::from(is_in);
                outside += usize::from(!is_in);
            }
        }
        assert!(inside > 10_000 && outside > 10_000, "{inside} {outside}");
    }
}
