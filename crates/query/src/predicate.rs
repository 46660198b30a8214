//! Conditions on the columns of a row.
//!
//! Logic has three values, as in SQL: a comparison with NULL is neither true nor false, and a row
//! is kept only if its condition is true.

use crate::error::QueryError;
use crate::row::Columns;
use firndb_base::codec::Malformed;
use firndb_table::{ColumnType, Value, ValueRef};
use std::cmp::Ordering;

/// How two values compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    fn holds(self, order: Ordering) -> bool {
        match self {
            Comparison::Equal => order.is_eq(),
            Comparison::NotEqual => order.is_ne(),
            Comparison::Less => order.is_lt(),
            Comparison::LessOrEqual => order.is_le(),
            Comparison::Greater => order.is_gt(),
            Comparison::GreaterOrEqual => order.is_ge(),
        }
    }
}

/// A condition. Columns are positions.
#[derive(Clone, Debug, PartialEq)]
pub enum Predicate {
    /// A column beside a value.
    Compare(usize, Comparison, Value),
    /// A column beside another.
    CompareColumns(usize, Comparison, usize),
    /// A column at least the first value and at most the second.
    Between(usize, Value, Value),
    /// Never unknown.
    IsNull(usize),
    Not(Box<Predicate>),
    /// True if there is none.
    And(Vec<Predicate>),
    /// False if there is none.
    Or(Vec<Predicate>),
}

/// Deepest nesting.
const DEPTH_MAX: usize = 64;

impl Predicate {
    /// Whether it is true of a row; `None`: unknown.
    pub(crate) fn test<R: Columns>(&self, row: &R) -> Result<Option<bool>, Malformed> {
        Ok(match self {
            Predicate::Compare(column, comparison, value) => {
                compare(row.field(*column)?.value(), *comparison, value.as_ref())
            }
            Predicate::CompareColumns(left, comparison, right) => {
                compare(row.field(*left)?.value(), *comparison, row.field(*right)?.value())
            }
            Predicate::Between(column, low, high) => {
                let field = row.field(*column)?;
                let above = compare(field.value(), Comparison::GreaterOrEqual, low.as_ref());
                and(above, compare(field.value(), Comparison::LessOrEqual, high.as_ref()))
            }
            Predicate::IsNull(column) => Some(row.field(*column)?.value().is_null()),
            Predicate::Not(of) => of.test(row)?.map(|value| !value),
            Predicate::And(all) => {
                let mut value = Some(true);
                for one in all {
                    value = and(value, one.test(row)?);
                    if value == Some(false) {
                        break;
                    }
                }
                value
            }
            Predicate::Or(any) => {
                let mut value = Some(false);
                for one in any {
                    // De Morgan.
                    value = and(value.map(|v| !v), one.test(row)?.map(|v| !v)).map(|v| !v);
                    if value == Some(true) {
                        break;
                    }
                }
                value
            }
        })
    }

    /// Whether it is true, neither false nor unknown.
    pub(crate) fn holds<R: Columns>(&self, row: &R) -> Result<bool, Malformed> {
        Ok(self.test(row)? == Some(true))
    }

    /// Fails with kind `BadArgument` unless it fits rows of these columns.
    pub(crate) fn check(&self, types: &[ColumnType]) -> Result<(), QueryError> {
        self.check_nested(types, 0)
    }

    fn check_nested(&self, types: &[ColumnType], depth: usize) -> Result<(), QueryError> {
        if depth > DEPTH_MAX {
            return Err(QueryError::bad_argument(format!("a condition is nested deeper than {DEPTH_MAX}")));
        }
        let fits = |column: usize, value: &Value| -> Result<(), QueryError> {
            let column_type = type_of(types, column)?;
            match value.as_ref().column_type() {
                Some(other) if other != column_type => Err(QueryError::bad_argument(format!(
                    "column {column} is of type {column_type} and is compared with a value of type {other}"
                ))),
                _ => Ok(()),
            }
        };
        match self {
            Predicate::Compare(column, _, value) => fits(*column, value),
            Predicate::Between(column, low, high) => fits(*column, low).and_then(|()| fits(*column, high)),
            Predicate::CompareColumns(left, _, right) => {
                let (left_type, right_type) = (type_of(types, *left)?, type_of(types, *right)?);
                if left_type == right_type {
                    return Ok(());
                }
                Err(QueryError::bad_argument(format!(
                    "column {left} is of type {left_type} and is compared with column {right} of type {right_type}"
                )))
            }
            Predicate::IsNull(column) => type_of(types, *column).map(drop),
            Predicate::Not(of) => of.check_nested(types, depth + 1),
            Predicate::And(all) | Predicate::Or(all) => {
                all.iter().try_for_each(|one| one.check_nested(types, depth + 1))
            }
        }
    }

    /// The same condition on columns at other positions.
    #[must_use]
    pub fn with_columns(&self, place: &dyn Fn(usize) -> usize) -> Predicate {
        let all = |of: &[Predicate]| of.iter().map(|one| one.with_columns(place)).collect();
        match self {
            Predicate::Compare(column, how, value) => Predicate::Compare(place(*column), *how, value.clone()),
            Predicate::CompareColumns(left, how, right) => {
                Predicate::CompareColumns(place(*left), *how, place(*right))
            }
            Predicate::Between(column, low, high) => {
                Predicate::Between(place(*column), low.clone(), high.clone())
            }
            Predicate::IsNull(column) => Predicate::IsNull(place(*column)),
            Predicate::Not(of) => Predicate::Not(Box::new(of.with_columns(place))),
            Predicate::And(of) => Predicate::And(all(of)),
            Predicate::Or(of) => Predicate::Or(all(of)),
        }
    }

    /// The conditions of which all must be true for it to be true: those of nested `And`s.
    #[must_use]
    pub fn conjuncts(self) -> Vec<Predicate> {
        match self {
            Predicate::And(all) => all.into_iter().flat_map(Predicate::conjuncts).collect(),
            one => vec![one],
        }
    }

    /// Shows each column that it reads.
    pub(crate) fn columns(&self, show: &mut dyn FnMut(usize)) {
        match self {
            Predicate::Compare(column, ..) | Predicate::Between(column, ..) | Predicate::IsNull(column) => {
                show(*column);
            }
            Predicate::CompareColumns(left, _, right) => {
                show(*left);
                show(*right);
            }
            Predicate::Not(of) => of.columns(show),
            Predicate::And(all) | Predicate::Or(all) => all.iter().for_each(|one| one.columns(show)),
        }
    }
}

/// The type of a column, or why there is none.
pub(crate) fn type_of(types: &[ColumnType], column: usize) -> Result<ColumnType, QueryError> {
    types
        .get(column)
        .copied()
        .ok_or_else(|| QueryError::bad_argument(format!("there is no column {column} among {}", types.len())))
}

fn compare(left: ValueRef<'_>, comparison: Comparison, right: ValueRef<'_>) -> Option<bool> {
    (!left.is_null() && !right.is_null()).then(|| comparison.holds(left.cmp(&right)))
}

fn and(left: Option<bool>, right: Option<bool>) -> Option<bool> {
    match (left, right) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{Row, RowBuilder};

    fn test(predicate: &Predicate, values: &[ValueRef<'_>]) -> Option<bool> {
        let types = [ColumnType::I64, ColumnType::Text, ColumnType::I64];
        predicate.check(&types).unwrap();
        let mut builder = RowBuilder::default();
        builder.begin(3);
        values.iter().for_each(|value| builder.put(*value).unwrap());
        predicate.test(&Row::new(&types, builder.bytes()).unwrap()).unwrap()
    }

    #[test]
    fn conditions_have_three_values() {
        use Comparison::*;
        let row = [ValueRef::I64(5), ValueRef::Text("b"), ValueRef::Null];
        let is = |comparison, value: i64| Predicate::Compare(0, comparison, value.into());
        let unknown = || Predicate::Compare(2, Equal, 1i64.into());
        let not = |of: Predicate| Predicate::Not(Box::new(of));
        let cases = [
            (is(Equal, 5), Some(true)),
            (is(NotEqual, 5), Some(false)),
            (is(Less, 5), Some(false)),
            (is(LessOrEqual, 5), Some(true)),
            (is(Greater, 4), Some(true)),
            (is(GreaterOrEqual, 6), Some(false)),
            (Predicate::Between(0, 5i64.into(), 5i64.into()), Some(true)),
            (Predicate::Between(0, 6i64.into(), 4i64.into()), Some(false)),
            // False whatever the unknown bound is.
            (Predicate::Between(0, Value::Null, 4i64.into()), Some(false)),
            (Predicate::Between(0, Value::Null, 6i64.into()), None),
            (Predicate::Compare(1, Greater, "a".into()), Some(true)),
            (Predicate::CompareColumns(0, Equal, 2), None),
            (Predicate::CompareColumns(0, Equal, 0), Some(true)),
            (Predicate::IsNull(2), Some(true)),
            (Predicate::IsNull(0), Some(false)),
            (Predicate::Compare(0, Equal, Value::Null), None),
            (not(unknown()), None),
            (Predicate::And(vec![]), Some(true)),
            (Predicate::Or(vec![]), Some(false)),
            (Predicate::And(vec![unknown(), is(Equal, 5)]), None),
            (Predicate::And(vec![unknown(), is(Equal, 6)]), Some(false)),
            (Predicate::Or(vec![unknown(), is(Equal, 6)]), None),
            (Predicate::Or(vec![unknown(), is(Equal, 5)]), Some(true)),
            (not(Predicate::Or(vec![unknown(), is(Equal, 5)])), Some(false)),
        ];
        for (predicate, expected) in cases {
            assert_eq!(test(&predicate, &row), expected, "{predicate:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let types = [ColumnType::I64, ColumnType::Text];
        let mut deep = Predicate::IsNull(0);
        (0..=DEPTH_MAX).for_each(|_| deep = Predicate::Not(Box::new(deep.clone())));
        let refused = [
            Predicate::IsNull(2),
            Predicate::Compare(0, Comparison::Equal, "a".into()),
            Predicate::Between(1, "a".into(), 5i64.into()),
            Predicate::CompareColumns(0, Comparison::Less, 1),
            Predicate::And(vec![Predicate::IsNull(0), Predicate::Not(Box::new(Predicate::IsNull(9)))]),
            deep,
        ];
        for predicate in refused {
            let error = predicate.check(&types).unwrap_err();
            assert_eq!(error.kind, crate::QueryErrorKind::BadArgument, "{error}");
        }
    }
}
