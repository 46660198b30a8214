//! From a choice to a plan that runs.

use super::access::{Access, AccessKind};
use super::bounds::KeyBounds;
use super::gather::Gathered;
use super::request::{Choice, Join, Node, Request, Right};
use crate::error::QueryError;
use crate::join::{IndexSide, JoinKind, On};
use crate::plan::{OrHash, OrScan, Plan};
use crate::predicate::{Comparison, Predicate};
use crate::sort::SortColumn;
use crate::source::Source;
use firndb_btree::Direction;
use firndb_table::Index;

/// A part of the plan, and its columns by their numbers in the request.
struct Lowered {
    plan: Plan,
    columns: Vec<usize>,
}

struct Lowering<'a> {
    request: &'a Request,
    tables: &'a Gathered,
}

impl Choice {
    /// The plan, whose columns are those that the request returns.
    ///
    /// Errors: those of looking at the tables' definitions; `BadArgument` if a condition does not
    /// fit its columns.
    pub fn lower(&self, request: &Request, tables: &Gathered) -> Result<Plan, QueryError> {
        // What follows from the conditions is evaluated, too: a choice relies on it.
        let request = &request.with_transitive();
        let lowering = Lowering { request, tables };
        let Lowered { mut plan, columns } = lowering.node(&self.node)?;
        let place = |column: usize| position(&columns, column);
        if self.is_sorted {
            let by: Vec<SortColumn> =
                request.order.iter().map(|by| SortColumn { column: place(by.column), ..*by }).collect();
            plan = plan.sort(&by);
        }
        if let Some(limit) = request.limit {
            plan = plan.limit(limit);
        }
        let output: Vec<usize> = request.output.iter().map(|column| place(*column)).collect();
        let is_same = output.iter().copied().eq(0..columns.len());
        Ok(if is_same { plan } else { plan.project(&output) })
    }
}

fn position(columns: &[usize], column: usize) -> usize {
    columns.iter().position(|one| *one == column).expect("a column that is needed is read")
}

/// The condition on a part with these columns.
fn placed(all: &[Predicate], columns: &[usize]) -> Predicate {
    Predicate::And(all.iter().map(|one| one.with_columns(&|column| position(columns, column))).collect())
}

impl Lowering<'_> {
    fn node(&self, node: &Node) -> Result<Lowered, QueryError> {
        match node {
            Node::Access(table, access) => self.access(*table, access),
            Node::Join(join) => self.join(join),
        }
    }

    /// The rows of a table for which its conditions hold, with the columns that are needed of it.
    fn source(&self, table: usize) -> Result<(Source, Vec<usize>), QueryError> {
        let needed = self.request.needed_of(table);
        let conditions = self.request.conditions_of(table);
        let mut source = Source::new(&self.tables.tables[table])?.select(&needed)?;
        if !conditions.is_empty() {
            source = source.filter(Predicate::And(conditions))?;
        }
        let first = self.request.first_column(table);
        Ok((source, needed.into_iter().map(|column| first + column).collect()))
    }

    fn index(&self, table: usize, path: usize) -> Index {
        self.tables.indexes[table][path - 1].clone()
    }

    fn access(&self, table: usize, access: &Access) -> Result<Lowered, QueryError> {
        let (source, columns) = self.source(table)?;
        let range = self.tables.range(table, access.path, &access.bounds)?;
        let direction = if access.is_backward { Direction::Backward } else { Direction::Forward };
        let index = || self.index(table, access.path);
        let plan = match access.kind {
            AccessKind::TableScan => Plan::TableScan { source, range, direction },
            AccessKind::IndexScan => Plan::IndexScan { source, index: index(), range, direction },
            AccessKind::IndexFetch | AccessKind::AdaptiveFetch => {
                let or_scan = |it: &super::access::OrScan| {
                    let range = self.tables.range(table, 0, &it.bounds)?;
                    Ok::<_, QueryError>(OrScan { entries: it.entries, range, has_share: it.has_share })
                };
                let or_scan = access.or_scan.as_ref().map(or_scan).transpose()?;
                Plan::IndexFetch { source, index: index(), range, or_scan }
            }
            AccessKind::IndexOnly => Plan::IndexOnly { source, index: index(), range, direction },
        };
        Ok(Lowered { plan, columns })
    }

    /// The keys by which rows are looked up or merged, and the others, which are compared.
    fn split_keys(&self, join: &Join) -> (Keys, Keys) {
        let first = self.request.first_column(join.table);
        let by_path = |path: usize| -> Vec<usize> {
            let parts = &self.request.tables[join.table].paths[path].columns;
            parts.iter().map(|part| first + part.column).collect()
        };
        match &join.right {
            Right::IndexNestedLoops(path, _) => by_columns(&join.keys, &by_path(*path)),
            Right::IndexSortMerge([(left_path, _), (path, _)]) => {
                let Node::Access(table, _) = &join.left else { unreachable!("it is of two tables") };
                let paths = [(*table, *left_path), (join.table, *path)];
                let count = self.request.merged_keys(&join.keys, paths);
                by_columns(&join.keys, &by_path(*path)[..count])
            }
            _ => (join.keys.clone(), Vec::new()),
        }
    }

    fn join(&self, join: &Join) -> Result<Lowered, QueryError> {
        let (source, right_columns) = self.source(join.table)?;
        let left = match &join.right {
            Right::IndexSortMerge(_) => None,
            _ => Some(self.node(&join.left)?),
        };
        let (left_source, left_columns) = match (&left, &join.left) {
            (Some(left), _) => (None, left.columns.clone()),
            (None, Node::Access(table, _)) => {
                let (source, columns) = self.source(*table)?;
                (Some((*table, source)), columns)
            }
            (None, Node::Join(_)) => unreachable!("an index sort-merge join is of two tables"),
        };
        let columns: Vec<usize> = left_columns.iter().chain(&right_columns).copied().collect();
        let (keys, others) = self.split_keys(join);
        let compared = others.into_iter().map(|(l, r)| Predicate::CompareColumns(l, Comparison::Equal, r));
        let rest: Vec<Predicate> = join.rest.iter().cloned().chain(compared).collect();
        let place = |(left, right): &(usize, usize)| {
            (position(&left_columns, *left), position(&right_columns, *right))
        };
        let kind = if join.is_outer { JoinKind::LeftOuter } else { JoinKind::Inner };
        let keys: Vec<(usize, usize)> = keys.iter().map(place).collect();
        let on = On::keys(kind, &keys).and(placed(&rest, &columns));
        let plan = match (&join.right, left.map(|left| Box::new(left.plan))) {
            (Right::BlockNestedLoops(access), Some(left)) => {
                let right = Box::new(self.access(join.table, access)?.plan);
                Plan::BlockNestedLoops { left, right, on }
            }
            (Right::SortMerge(access), Some(left)) => {
                let right = Box::new(self.access(join.table, access)?.plan);
                Plan::SortMerge { left, right, on }
            }
            (Right::Hash(access), Some(left)) => {
                let right = Box::new(self.access(join.table, access)?.plan);
                Plan::HashJoin { left, right, on }
            }
            (Right::IndexNestedLoops(path, or_hash), Some(left)) => {
                let index = (*path > 0).then(|| self.index(join.table, *path));
                let lower = |it: &super::lookups::OrHash| {
                    let scan = Box::new(self.access(join.table, &it.access)?.plan);
                    let (rows, counts_ahead, builds_left) = (it.rows, it.counts_ahead, it.builds_left);
                    Ok::<_, QueryError>(OrHash { rows, counts_ahead, scan, builds_left })
                };
                let or_hash = or_hash.as_deref().map(lower).transpose()?;
                Plan::IndexNestedLoops { left, right: source, index, on, or_hash }
            }
            (Right::IndexSortMerge([left_side, right_side]), _) => {
                let (table, left_source) = left_source.expect("it has no plan below");
                let side = |table: usize, source: Source, (path, bounds): &(usize, KeyBounds)| {
                    let range = self.tables.range(table, *path, bounds)?;
                    Ok::<_, QueryError>(IndexSide { source, index: self.index(table, *path), range })
                };
                let left = side(table, left_source, left_side)?;
                let right = side(join.table, source, right_side)?;
                Plan::IndexSortMerge { left, right, on }
            }
            (_, None) => unreachable!("only an index sort-merge join has no plan below"),
        };
        let plan = match join.filter.is_empty() {
            true => plan,
            false => plan.filter(placed(&join.filter, &columns)),
        };
        Ok(Lowered { plan, columns })
    }
}

/// Pairs of columns that are equal.
type Keys = Vec<(usize, usize)>;

/// The keys whose right columns these begin with, in their order; and the other keys.
fn by_columns(keys: &[(usize, usize)], columns: &[usize]) -> (Keys, Keys) {
    let of = |column: &usize| keys.iter().find(|key| key.1 == *column).copied();
    let taken: Keys = columns.iter().map_while(of).collect();
    let others = keys.iter().filter(|key| !taken.contains(key)).copied().collect();
    (taken, others)
}
