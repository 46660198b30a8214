//! Conditions by the names of columns.

use super::names::Names;
use crate::error::Error;
use firndb_query::{Comparison, Predicate};
use firndb_table::{ColumnType, Value};
use std::mem::discriminant;

/// A column by its name: `"name"`, or `"table.name"` where two tables have one of that name.
#[must_use]
pub fn col(name: impl Into<String>) -> Col {
    Col { name: name.into() }
}

/// A column in a condition; see [`col`].
#[derive(Clone, Debug)]
pub struct Col {
    name: String,
}

/// What a column is compared with: a value, or another column.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum OtherSide {
    /// A value. Integers fit any column of integers that can hold them, and floating point and time
    /// columns, too.
    Value(Value),
    /// Another column, of the same type.
    Column(Col),
}

impl<T: Into<Value>> From<T> for OtherSide {
    fn from(value: T) -> OtherSide {
        OtherSide::Value(value.into())
    }
}
impl From<Col> for OtherSide {
    fn from(column: Col) -> OtherSide {
        OtherSide::Column(column)
    }
}

/// A condition on the columns of a query. Its logic has three values, as in SQL: a comparison with
/// NULL is neither true nor false, and a row is returned only if its conditions are true.
///
/// A chain of [`Condition::or`] or of [`Condition::and`] may be of any length; conditions that are
/// nested deeper than 60 are refused when the query is run.
#[derive(Clone, Debug)]
pub struct Condition {
    kind: Kind,
    /// Of nesting; at most [`DEPTH_MAX`], so that none of what walks it recurses deeper.
    depth: usize,
}

/// Below that of [`Predicate`]s, since the conditions of a query are put into one.
const DEPTH_MAX: usize = 60;

#[derive(Clone, Debug)]
enum Kind {
    Compare(Col, Comparison, OtherSide),
    Between(Col, Value, Value),
    IsNull(Col),
    Not(Box<Condition>),
    And(Vec<Condition>),
    Or(Vec<Condition>),
    /// In place of what is nested deeper than [`DEPTH_MAX`].
    TooDeep,
}

// The names are those of conditions everywhere, and no comparisons of `Col`s themselves.
#[allow(clippy::should_implement_trait)]
impl Col {
    fn compare(self, how: Comparison, with: OtherSide) -> Condition {
        Condition::new(Kind::Compare(self, how, with), 0)
    }
    /// Equal.
    #[must_use]
    pub fn eq(self, with: impl Into<OtherSide>) -> Condition {
        self.compare(Comparison::Equal, with.into())
    }
    /// Not equal.
    #[must_use]
    pub fn ne(self, with: impl Into<OtherSide>) -> Condition {
        self.compare(Comparison::NotEqual, with.into())
    }
    /// Less.
    #[must_use]
    pub fn lt(self, with: impl Into<OtherSide>) -> Condition {
        self.compare(Comparison::Less, with.into())
    }
    /// Less or equal.
    #[must_use]
    pub fn le(self, with: impl Into<OtherSide>) -> Condition {
        self.compare(Comparison::LessOrEqual, with.into())
    }
    /// Greater.
    #[must_use]
    pub fn gt(self, with: impl Into<OtherSide>) -> Condition {
        self.compare(Comparison::Greater, with.into())
    }
    /// Greater or equal.
    #[must_use]
    pub fn ge(self, with: impl Into<OtherSide>) -> Condition {
        self.compare(Comparison::GreaterOrEqual, with.into())
    }
    /// At least `low` and at most `high`.
    #[must_use]
    pub fn between(self, low: impl Into<Value>, high: impl Into<Value>) -> Condition {
        Condition::new(Kind::Between(self, low.into(), high.into()), 0)
    }
    /// Whether it is NULL; never unknown.
    #[must_use]
    pub fn is_null(self) -> Condition {
        Condition::new(Kind::IsNull(self), 0)
    }
}

impl Condition {
    fn new(kind: Kind, depth: usize) -> Condition {
        match depth {
            0..=DEPTH_MAX => Condition { kind, depth },
            _ => Condition { kind: Kind::TooDeep, depth: DEPTH_MAX },
        }
    }

    /// Both, or one of them; a chain of the same kind is not nested.
    fn chained(self, other: Condition, of: fn(Vec<Condition>) -> Kind) -> Condition {
        let kind = discriminant(&of(Vec::new()));
        let (mut terms, mut depth) = (Vec::new(), 0);
        for one in [self, other] {
            let is_chain = discriminant(&one.kind) == kind;
            match one.kind {
                Kind::And(more) | Kind::Or(more) if is_chain => {
                    depth = depth.max(one.depth);
                    if terms.is_empty() { terms = more } else { terms.extend(more) }
                }
                kind => {
                    depth = depth.max(one.depth + 1);
                    terms.push(Condition { kind, depth: one.depth });
                }
            }
        }
        Condition::new(of(terms), depth)
    }

    /// Both.
    #[must_use]
    pub fn and(self, other: Condition) -> Condition {
        self.chained(other, Kind::And)
    }
    /// One of them, or both.
    #[must_use]
    pub fn or(self, other: Condition) -> Condition {
        self.chained(other, Kind::Or)
    }

    /// The condition by numbers of columns.
    pub(super) fn resolve(&self, names: &Names) -> Result<Predicate, Error> {
        let all = |of: &[Condition]| of.iter().map(|one| one.resolve(names)).collect::<Result<Vec<_>, _>>();
        Ok(match &self.kind {
            Kind::Compare(column, how, OtherSide::Value(value)) => {
                let at = names.column(&column.name)?;
                Predicate::Compare(at, *how, fitted(value, names.column_type(at), &column.name)?)
            }
            Kind::Compare(column, how, OtherSide::Column(other)) => {
                let (left, right) = (names.column(&column.name)?, names.column(&other.name)?);
                let (left_type, right_type) = (names.column_type(left), names.column_type(right));
                if left_type != right_type {
                    return Err(Error::bad_argument(format!(
                        "column {:?} is of type {left_type} and is compared with column {:?} of type {right_type}: columns of one type compare",
                        column.name, other.name
                    )));
                }
                Predicate::CompareColumns(left, *how, right)
            }
            Kind::Between(column, low, high) => {
                let at = names.column(&column.name)?;
                let fit = |value| fitted(value, names.column_type(at), &column.name);
                Predicate::Between(at, fit(low)?, fit(high)?)
            }
            Kind::IsNull(column) => Predicate::IsNull(names.column(&column.name)?),
            Kind::Not(of) => Predicate::Not(Box::new(of.resolve(names)?)),
            Kind::And(of) => Predicate::And(all(of)?),
            Kind::Or(of) => Predicate::Or(all(of)?),
            Kind::TooDeep => {
                return Err(Error::bad_argument(format!(
                    "a condition is nested deeper than {DEPTH_MAX}; chains of `or` and of `and` are not nested"
                )));
            }
        })
    }
}

impl std::ops::Not for Condition {
    type Output = Condition;
    fn not(self) -> Condition {
        let depth = self.depth + 1;
        Condition::new(Kind::Not(Box::new(self)), depth)
    }
}

/// The value in the column's type: a number may be written as any integer.
fn fitted(value: &Value, column_type: ColumnType, name: &str) -> Result<Value, Error> {
    let given = match value.as_ref().column_type() {
        None => return Ok(Value::Null),
        Some(given) if given == column_type => return Ok(value.clone()),
        Some(given) => given,
    };
    let number = match value {
        Value::I32(number) => Some(i128::from(*number)),
        Value::I64(number) => Some(i128::from(*number)),
        Value::U64(number) => Some(i128::from(*number)),
        _ => None,
    };
    let fits = number.and_then(|number| match column_type {
        ColumnType::I32 => i32::try_from(number).ok().map(Value::I32),
        ColumnType::I64 => i64::try_from(number).ok().map(Value::I64),
        ColumnType::U64 => u64::try_from(number).ok().map(Value::U64),
        ColumnType::Timestamp => i64::try_from(number).ok().map(Value::Timestamp),
        ColumnType::F64 => (number.unsigned_abs() <= 1 << 53).then_some(Value::F64(number as f64)),
        _ => None,
    });
    fits.ok_or_else(|| {
        Error::bad_argument(format!(
            "column {name:?} is of type {column_type}; {value} of type {given} is no value of it"
        ))
    })
}
