//! What a join compares, and what it returns.

use crate::batch::Batch;
use crate::error::QueryError;
use crate::predicate::{Predicate, type_of};
use crate::row::{Joined, Row, RowBuilder};
use firndb_base::codec::Malformed;
use firndb_base::sync::Arc;
use firndb_table::{ColumnType, ValueRef, encode_sort_key};

/// Which rows a join returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinKind {
    /// Pairs that match.
    Inner,
    /// And the rows of the left input that match none.
    LeftOuter,
}

/// The condition of a join.
#[derive(Clone, Debug, PartialEq)]
pub struct On {
    pub kind: JoinKind,
    /// Columns of the left and of the right input that are equal.
    pub keys: Vec<(usize, usize)>,
    /// The rest, on the columns of both inputs, those of the right behind those of the left.
    pub rest: Predicate,
}

impl On {
    /// That pairs of columns are equal.
    #[must_use]
    pub fn keys(kind: JoinKind, keys: &[(usize, usize)]) -> On {
        On { kind, keys: keys.to_vec(), rest: Predicate::And(Vec::new()) }
    }
    /// With another condition.
    #[must_use]
    pub fn and(self, rest: Predicate) -> On {
        On { rest, ..self }
    }

    /// The condition of the same inner join with its inputs exchanged, which had `left` and `right`
    /// columns.
    pub(crate) fn exchanged(&self, left: usize, right: usize) -> On {
        debug_assert_eq!(self.kind, JoinKind::Inner);
        let place = |column: usize| if column < left { column + right } else { column - left };
        On {
            kind: self.kind,
            keys: self.keys.iter().map(|(left, right)| (*right, *left)).collect(),
            rest: self.rest.with_columns(&place),
        }
    }

    /// The types of the join's columns, if the condition fits its inputs.
    pub(crate) fn types(
        &self,
        left: &[ColumnType],
        right: &[ColumnType],
    ) -> Result<Arc<[ColumnType]>, QueryError> {
        for (of_left, of_right) in &self.keys {
            let (left_type, right_type) = (type_of(left, *of_left)?, type_of(right, *of_right)?);
            if left_type != right_type {
                return Err(QueryError::bad_argument(format!(
                    "a join compares column {of_left} of type {left_type} with column {of_right} of type {right_type}"
                )));
            }
        }
        let types: Arc<[ColumnType]> = left.iter().chain(right).copied().collect();
        self.rest.check(&types)?;
        Ok(types)
    }

    pub(crate) fn left_keys(&self) -> Vec<usize> {
        self.keys.iter().map(|(left, _)| *left).collect()
    }
    pub(crate) fn right_keys(&self) -> Vec<usize> {
        self.keys.iter().map(|(_, right)| *right).collect()
    }
}

/// Replaces `key` by bytes that are equal for equal values of these columns, and sort as they do;
/// false if one is NULL, which equals nothing.
pub(crate) fn join_key(row: &Row<'_>, columns: &[usize], key: &mut Vec<u8>) -> Result<bool, Malformed> {
    key.clear();
    let mut is_whole = true;
    for column in columns {
        let value = row.value(*column)?;
        is_whole &= !value.is_null();
        encode_sort_key(value, false, key);
    }
    #[cfg(feature = "testing")]
    if crate::broken::is(crate::broken::Break::NullsMatch) {
        return Ok(true);
    }
    Ok(is_whole)
}

/// Makes the join's rows.
pub(crate) struct Output {
    pub(crate) kind: JoinKind,
    rest: Predicate,
    pub(crate) left_types: Arc<[ColumnType]>,
    pub(crate) right_types: Arc<[ColumnType]>,
    row: RowBuilder,
}

impl Output {
    pub(crate) fn new(on: &On, left_types: Arc<[ColumnType]>, right_types: Arc<[ColumnType]>) -> Output {
        Output { kind: on.kind, rest: on.rest.clone(), left_types, right_types, row: RowBuilder::default() }
    }

    pub(crate) fn is_outer(&self) -> bool {
        self.kind == JoinKind::LeftOuter
    }

    /// Appends the pair, whose keys are equal, if the rest of the condition holds; whether it does.
    pub(crate) fn pair(
        &mut self,
        left: Row<'_>,
        right: Row<'_>,
        out: &mut Batch,
    ) -> Result<bool, QueryError> {
        if !self.rest.holds(&Joined { left, right })? {
            return Ok(false);
        }
        self.row.begin(left.len() + right.len());
        self.row.put_row(left)?;
        self.row.put_row(right)?;
        out.push_built(&self.row)?;
        Ok(true)
    }

    /// Appends a left row that matches none, of an outer join.
    pub(crate) fn unmatched(&mut self, left: Row<'_>, out: &mut Batch) -> Result<(), QueryError> {
        debug_assert!(self.is_outer());
        #[cfg(feature = "testing")]
        if crate::broken::is(crate::broken::Break::UnmatchedForgotten) && out.len() % 8 == 7 {
            return Ok(());
        }
        self.row.begin(left.len() + self.right_types.len());
        self.row.put_row(left)?;
        self.row.put_nulls(self.right_types.len())?;
        out.push_built(&self.row)
    }
}

/// The values of a row's key columns, in the order of `columns`.
pub(crate) fn key_values<'r>(row: Row<'r>, columns: &[usize]) -> Result<Vec<ValueRef<'r>>, QueryError> {
    columns.iter().map(|column| row.get(*column)).collect()
}
