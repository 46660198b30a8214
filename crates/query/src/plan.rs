//! Plans: which operators, on what, in which order.

use crate::error::QueryError;
use crate::join::{IndexSide, On};
use crate::predicate::{Predicate, type_of};
use crate::sort::SortColumn;
use crate::source::Source;
use firndb_base::sync::Arc;
use firndb_btree::Direction;
use firndb_table::{ColumnType, Index, KeyColumn, KeyRange};

/// When a fetch by an index becomes a scan, and of what.
#[derive(Clone, Debug)]
pub struct OrScan {
    /// If there are more entries than this.
    pub entries: u64,
    /// The range of the table in which all rows lie that are wanted.
    pub range: KeyRange,
    /// Memory is divided on its account, too. Else it has little: it is likely a scan.
    pub has_share: bool,
}

/// When lookups become a hash join of the rows that are left, and of what.
#[derive(Clone, Debug)]
pub struct OrHash {
    /// If there are more left rows than this.
    pub rows: u64,
    /// All of them are counted before any is looked up: those that memory does not hold wait on the
    /// spill device.
    pub counts_ahead: bool,
    /// All rows of the join's right source.
    pub scan: Box<Plan>,
    /// Of an inner join: the left rows are the build side, not the right ones.
    pub builds_left: bool,
}

/// A plan. Columns are positions among those of the part below, from zero.
#[derive(Clone, Debug)]
pub enum Plan {
    /// Rows in the order of their primary keys, or against it.
    TableScan { source: Source, range: KeyRange, direction: Direction },
    /// Rows in the order of an index, or against it.
    IndexScan { source: Source, index: Index, range: KeyRange, direction: Direction },
    /// Rows found through an index, in no particular order: each page of the table is read once for
    /// as many entries as memory holds. With `or_scan` it is a scan of the table if there are more
    /// entries.
    IndexFetch { source: Source, index: Index, range: KeyRange, or_scan: Option<OrScan> },
    /// Columns that an index holds, in its order or against it, without reading rows.
    IndexOnly { source: Source, index: Index, range: KeyRange, direction: Direction },
    /// The rows for which a condition is true.
    Filter { input: Box<Plan>, predicate: Predicate },
    /// These columns, in this order.
    Project { input: Box<Plan>, columns: Vec<usize> },
    /// The first rows.
    Limit { input: Box<Plan>, rows: u64 },
    /// How many rows: one row with one column of type `U64`.
    Count { input: Box<Plan> },
    /// Rows in another order; those that are equal in it keep theirs.
    Sort { input: Box<Plan>, by: Vec<SortColumn> },
    /// A join, in no particular order: the columns of the left input, and those of the right behind
    /// them. Reads the right input once for each block of left rows that memory holds.
    BlockNestedLoops { left: Box<Plan>, right: Box<Plan>, on: On },
    /// A join that looks right rows up by the first columns of an index, or by their whole primary
    /// key (`None`), in any order of the keys in `on`. With `or_hash` it goes over to a hash join
    /// if there are more left rows.
    IndexNestedLoops { left: Box<Plan>, right: Source, index: Option<Index>, on: On, or_hash: Option<OrHash> },
    /// A join that merges the entries of two indexes, whose first columns are the keys in `on`, in
    /// their order, and reads the rows of matches only.
    IndexSortMerge { left: IndexSide, right: IndexSide, on: On },
    /// A join that sorts both inputs by its keys.
    SortMerge { left: Box<Plan>, right: Box<Plan>, on: On },
    /// A join by hash: the right input, which should be the smaller one, is kept in memory, and
    /// partitioned on the spill device as far as it does not fit.
    HashJoin { left: Box<Plan>, right: Box<Plan>, on: On },
}

impl Plan {
    /// The whole of a source, by its primary key.
    #[must_use]
    pub fn scan(source: Source) -> Plan {
        Plan::TableScan { source, range: KeyRange::all(), direction: Direction::Forward }
    }
    #[must_use]
    pub fn filter(self, predicate: Predicate) -> Plan {
        Plan::Filter { input: Box::new(self), predicate }
    }
    #[must_use]
    pub fn project(self, columns: &[usize]) -> Plan {
        Plan::Project { input: Box::new(self), columns: columns.to_vec() }
    }
    #[must_use]
    pub fn limit(self, rows: u64) -> Plan {
        Plan::Limit { input: Box::new(self), rows }
    }
    #[must_use]
    pub fn count(self) -> Plan {
        Plan::Count { input: Box::new(self) }
    }
    #[must_use]
    pub fn sort(self, by: &[SortColumn]) -> Plan {
        Plan::Sort { input: Box::new(self), by: by.to_vec() }
    }

    /// The types of its columns.
    ///
    /// Errors: `BadArgument` if its parts do not fit each other.
    pub fn types(&self) -> Result<Arc<[ColumnType]>, QueryError> {
        match self {
            Plan::TableScan { source, .. } => Ok(source.types()),
            Plan::IndexScan { source, index, .. }
            | Plan::IndexFetch { source, index, .. }
            | Plan::IndexOnly { source, index, .. } => {
                check_index(source, index)?;
                Ok(source.types())
            }
            Plan::Filter { input, predicate } => {
                let types = input.types()?;
                predicate.check(&types)?;
                Ok(types)
            }
            Plan::Project { input, columns } => {
                let types = input.types()?;
                columns.iter().map(|column| type_of(&types, *column)).collect()
            }
            Plan::Limit { input, .. } => input.types(),
            Plan::Count { input } => input.types().map(|_| Arc::from([ColumnType::U64])),
            Plan::Sort { input, by } => {
                let types = input.types()?;
                by.iter().try_for_each(|part| type_of(&types, part.column).map(drop))?;
                Ok(types)
            }
            Plan::BlockNestedLoops { left, right, on }
            | Plan::SortMerge { left, right, on }
            | Plan::HashJoin { left, right, on } => on.types(&left.types()?, &right.types()?),
            Plan::IndexNestedLoops { left, right, index, on, or_hash } => {
                let types = on.types(&left.types()?, &right.types())?;
                lookup_columns(right, index.as_ref(), on)?;
                if let Some(or_hash) = or_hash
                    && or_hash.scan.types()? != right.types()
                {
                    let message = "a join by lookups has other columns than the scan for its hash join";
                    return Err(QueryError::bad_argument(message));
                }
                Ok(types)
            }
            Plan::IndexSortMerge { left, right, on } => {
                let types = on.types(&left.source.types(), &right.source.types())?;
                check_merge(left, right, on)?;
                Ok(types)
            }
        }
    }

    /// The parts right below it.
    pub(crate) fn inputs(&self) -> Vec<&Plan> {
        match self {
            Plan::TableScan { .. }
            | Plan::IndexScan { .. }
            | Plan::IndexFetch { .. }
            | Plan::IndexOnly { .. } => Vec::new(),
            Plan::Filter { input, .. }
            | Plan::Project { input, .. }
            | Plan::Limit { input, .. }
            | Plan::Count { input }
            | Plan::Sort { input, .. } => vec![input],
            Plan::IndexSortMerge { .. } => Vec::new(),
            Plan::IndexNestedLoops { left, or_hash, .. } => {
                [&**left].into_iter().chain(or_hash.as_ref().map(|it| &*it.scan)).collect()
            }
            Plan::BlockNestedLoops { left, right, .. }
            | Plan::SortMerge { left, right, .. }
            | Plan::HashJoin { left, right, .. } => vec![left, right],
        }
    }

    /// The indexes that it reads itself.
    pub(crate) fn indexes(&self) -> Vec<&Index> {
        match self {
            Plan::IndexScan { index, .. }
            | Plan::IndexFetch { index, .. }
            | Plan::IndexOnly { index, .. } => {
                vec![index]
            }
            Plan::IndexNestedLoops { index, .. } => index.iter().collect(),
            Plan::IndexSortMerge { left, right, .. } => vec![&left.index, &right.index],
            _ => Vec::new(),
        }
    }

    /// Into how many parts memory for rows and keys is divided on its account.
    pub(crate) fn shares(&self) -> usize {
        match self {
            Plan::IndexFetch { or_scan, .. } => {
                usize::from(or_scan.as_ref().is_none_or(|or_scan| or_scan.has_share))
            }
            Plan::Sort { .. }
            | Plan::BlockNestedLoops { .. }
            | Plan::IndexNestedLoops { .. }
            | Plan::HashJoin { .. } => 1,
            // Two sorts, and the rows with one key. Entries, left rows, right rows.
            Plan::SortMerge { .. } | Plan::IndexSortMerge { .. } => 3,
            _ => 0,
        }
    }
}

pub(crate) fn check_index(source: &Source, index: &Index) -> Result<(), QueryError> {
    match index.table().id() == source.table().id() {
        true => Ok(()),
        false => Err(QueryError::bad_argument("the index belongs to another table than the source")),
    }
}

/// The left columns of a join by lookups, in the order in which the index, or the primary key, has
/// the right ones.
pub(crate) fn lookup_columns(
    right: &Source,
    index: Option<&Index>,
    on: &On,
) -> Result<Vec<usize>, QueryError> {
    let parts = match index {
        None => right.schema().key().to_vec(),
        Some(index) => {
            check_index(right, index)?;
            index.definition()?.columns().to_vec()
        }
    };
    let left_of = |part: &KeyColumn| {
        let is_it = |(_, column): &&(usize, usize)| right.columns()[*column] == part.column;
        on.keys.iter().find(is_it).map(|(left, _)| *left)
    };
    let found: Vec<usize> = parts.iter().map_while(left_of).collect();
    let is_whole = index.is_some() || found.len() == parts.len();
    if found.is_empty() || found.len() != on.keys.len() || !is_whole {
        let by = if index.is_some() { "the first columns of its index" } else { "the whole primary key" };
        return Err(QueryError::bad_argument(format!(
            "the keys of an index nested loops join must be {by}: put other columns into the rest of its condition"
        )));
    }
    Ok(found)
}

/// Fails unless the keys of `on` are the first columns of both indexes, in the same directions.
fn check_merge(left: &IndexSide, right: &IndexSide, on: &On) -> Result<(), QueryError> {
    check_index(&left.source, &left.index)?;
    check_index(&right.source, &right.index)?;
    let (left_parts, right_parts) = (left.index.definition()?, right.index.definition()?);
    let (left_parts, right_parts) = (left_parts.columns(), right_parts.columns());
    let fits = |(at, (of_left, of_right)): (usize, &(usize, usize))| {
        let (Some(l), Some(r)) = (left_parts.get(at), right_parts.get(at)) else { return false };
        l.descending == r.descending
            && l.column == left.source.columns()[*of_left]
            && r.column == right.source.columns()[*of_right]
    };
    match !on.keys.is_empty() && on.keys.iter().enumerate().all(fits) {
        true => Ok(()),
        false => Err(QueryError::bad_argument(
            "the keys of an index sort-merge join must be the first columns of both indexes, in their order and in the same directions",
        )),
    }
}
