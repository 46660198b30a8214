//! From plans to operators.

use crate::batch::Batch;
use crate::context::Context;
use crate::error::QueryError;
use crate::index_fetch::IndexFetch;
use crate::join::{
    AdaptiveJoin, BlockNestedLoops, ByHash, HashJoin, IndexNestedLoops, IndexSortMerge, Inner, JoinKind,
    Lookups, Output, SortMerge,
};
use crate::operator::{Input, Operator};
use crate::plan::{Plan, lookup_columns};
use crate::scan::{IndexOnly, IndexScan, TableScan};
use crate::simple::{Count, Filter, Limit, Project};
use crate::sort::{Sort, SortColumn};

/// The operators of a plan that has been checked.
pub(crate) fn compile(plan: &Plan, context: &Context) -> Result<Box<dyn Operator>, QueryError> {
    Ok(match plan {
        Plan::TableScan { source, range, direction } => {
            Box::new(TableScan::new(source.clone(), range.clone(), *direction, context))
        }
        Plan::IndexScan { source, index, range, direction } => {
            Box::new(IndexScan::new(source.clone(), index, range.clone(), *direction))
        }
        Plan::IndexFetch { source, index, range, or_scan } => {
            Box::new(IndexFetch::new(source.clone(), index, range.clone(), or_scan.clone(), context))
        }
        Plan::IndexOnly { source, index, range, direction } => {
            Box::new(IndexOnly::new(source.clone(), index, range.clone(), *direction)?)
        }
        Plan::Filter { input, predicate } => {
            Box::new(Filter::new(rows_of(input, context)?, predicate.clone()))
        }
        Plan::Project { input, columns } => Box::new(Project::new(rows_of(input, context)?, columns.clone())),
        Plan::Limit { input, rows } => Box::new(Limit::new(compile(input, context)?, *rows)),
        Plan::Count { input } => {
            Box::new(Count::new(compile(input, context)?, Batch::new(input.types()?, context)))
        }
        Plan::Sort { input, by } => Box::new(Sort::new(rows_of(input, context)?, by.clone(), plan.types()?)),
        _ => compile_join(plan, context)?,
    })
}

fn compile_join(plan: &Plan, context: &Context) -> Result<Box<dyn Operator>, QueryError> {
    Ok(match plan {
        Plan::BlockNestedLoops { left, right, on } => {
            let output = Output::new(on, left.types()?, right.types()?);
            let right = right.clone();
            let reopen = Box::new(move |context: &Context| rows_of(&right, context));
            Box::new(BlockNestedLoops::new(rows_of(left, context)?, reopen, on, output, context))
        }
        Plan::IndexNestedLoops { left, right, index, on, or_hash } => {
            let lookups = Lookups {
                source: right.clone(),
                inner: index.clone().map_or(Inner::PrimaryKey, Inner::Index),
                left_keys: lookup_columns(right, index.as_ref(), on)?,
                on: on.clone(),
                output: Output::new(on, left.types()?, right.types()),
            };
            let left = rows_of(left, context)?;
            match or_hash {
                None => Box::new(IndexNestedLoops::new(left, lookups, u64::MAX, context)),
                Some(it) => {
                    let by_hash = ByHash {
                        rows: it.rows,
                        counts_ahead: it.counts_ahead,
                        scan: rows_of(&it.scan, context)?,
                        builds_left: it.builds_left && on.kind == JoinKind::Inner,
                    };
                    Box::new(AdaptiveJoin::new(left, lookups, by_hash))
                }
            }
        }
        Plan::IndexSortMerge { left, right, on } => {
            let output = Output::new(on, left.source.types(), right.source.types());
            Box::new(IndexSortMerge::new(left, right, on.keys.len(), output, context)?)
        }
        Plan::SortMerge { left, right, on } => {
            let output = Output::new(on, left.types()?, right.types()?);
            let (left, right) =
                (sorted(left, &on.left_keys(), context)?, sorted(right, &on.right_keys(), context)?);
            Box::new(SortMerge::new(left, right, on, output, context))
        }
        Plan::HashJoin { left, right, on } => {
            let output = Output::new(on, left.types()?, right.types()?);
            let (left, right) = (rows_of(left, context)?, rows_of(right, context)?);
            Box::new(HashJoin::new(left, right, on, output, 0, context))
        }
        _ => unreachable!("compile() has dealt with plans that are no joins"),
    })
}

/// The rows of a plan sorted by columns.
fn sorted(plan: &Plan, columns: &[usize], context: &Context) -> Result<Input, QueryError> {
    let by = columns.iter().map(|column| SortColumn { column: *column, descending: false }).collect();
    let types = plan.types()?;
    let sort = Sort::new(rows_of(plan, context)?, by, types.clone());
    Ok(Input::new(Box::new(sort), Batch::new(types, context)))
}

/// The rows of a plan one by one.
fn rows_of(plan: &Plan, context: &Context) -> Result<Input, QueryError> {
    Ok(Input::new(compile(plan, context)?, Batch::new(plan.types()?, context)))
}
