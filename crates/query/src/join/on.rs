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

    /// The condition for an operator whose inputs are exchanged, with [`Output::exchanged`].
    pub(crate) fn exchanged(&self) -> On {
        On { keys: self.keys.iter().map(|(left, right)| (*right, *left)).collect(), ..self.clone() }
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
#[derive(Clone)]
pub(crate) struct Output {
    pub(crate) kind: JoinKind,
    rest: Predicate,
    pub(crate) left_types: Arc<[ColumnType]>,
    pub(crate) right_types: Arc<[ColumnType]>,
    /// The operator has the join's left input on its right.
    is_exchanged: bool,
    row: RowBuilder,
}

impl Output {
    pub(crate) fn new(on: &On, left_types: Arc<[ColumnType]>, right_types: Arc<[ColumnType]>) -> Output {
        let (kind, rest, row) = (on.kind, on.rest.clone(), RowBuilder::default());
        Output { kind, rest, left_types, right_types, is_exchanged: false, row }
    }

    /// For an operator whose inputs are exchanged, of an inner join.
    pub(crate) fn exchanged(self) -> Output {
        assert_eq!(self.kind, JoinKind::Inner);
        let (left_types, right_types) = (self.right_types, self.left_types);
        Output { left_types, right_types, is_exchanged: !self.is_exchanged, ..self }
    }

    pub(crate) fn is_outer(&self) -> bool {
        self.kind == JoinKind::LeftOuter
    }

    /// Appends the pair of rows of the operator's inputs, whose keys are equal, if the rest of the
    /// condition holds; whether it does.
    pub(crate) fn pair(
        &mut self,
        left: Row<'_>,
        right: Row<'_>,
        out: &mut Batch,
    ) -> Result<bool, QueryError> {
        let (left, right) = if self.is_exchanged { (right, left) } else { (left, right) };
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
