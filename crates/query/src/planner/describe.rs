//! A choice in words, for people.

use super::access::{Access, AccessKind};
use super::request::{Choice, JoinMethod, Node, Request, Right};
use std::fmt;

impl fmt::Display for AccessKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AccessKind::TableScan => "table scan",
            AccessKind::IndexScan => "index scan",
            AccessKind::IndexFetch => "index fetch",
            AccessKind::AdaptiveFetch => "adaptive fetch",
            AccessKind::IndexOnly => "index only",
        })
    }
}

impl fmt::Display for JoinMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            JoinMethod::BlockNestedLoops => "block nested loops",
            JoinMethod::IndexNestedLoops => "index nested loops",
            JoinMethod::IndexSortMerge => "index sort-merge",
            JoinMethod::SortMerge => "sort-merge",
            JoinMethod::Hash => "hash",
        })
    }
}

/// The path of a table, as `orders by by_date`; by the primary key it is the table's name.
fn path_of(request: &Request, table: usize, path: usize) -> String {
    let facts = &request.tables[table];
    match path {
        0 => facts.name.clone(),
        _ => format!("{} by {}", facts.name, facts.paths[path].name),
    }
}

impl Access {
    fn describe(&self, request: &Request, table: usize) -> String {
        let range = if self.bounds.is_bounded() { ", a range" } else { "" };
        let backward = if self.is_backward { ", backward" } else { "" };
        let is_scan = self.or_scan.as_ref().is_some_and(|or_scan| or_scan.is_expected);
        let scan = if is_scan { ", likely a scan" } else { "" };
        format!("{} of {}{range}{backward}{scan}", self.kind, path_of(request, table, self.path))
    }
}

impl Choice {
    /// Its operators from the first table on, on one line.
    #[must_use]
    pub fn describe(&self, request: &Request) -> String {
        let sorted = if self.is_sorted { "; sort" } else { "" };
        format!("{}{sorted}", self.node.describe(request))
    }
}

impl Node {
    fn describe(&self, request: &Request) -> String {
        let join = match self {
            Node::Access(table, access) => return access.describe(request, *table),
            Node::Join(join) => join,
        };
        let outer = if join.is_outer { "left " } else { "" };
        let adaptive = match &join.right {
            Right::IndexNestedLoops(_, Some(_)) => "adaptive ",
            _ => "",
        };
        let method = join.right.method();
        let right = match &join.right {
            Right::BlockNestedLoops(access) | Right::SortMerge(access) | Right::Hash(access) => {
                access.describe(request, join.table)
            }
            Right::IndexNestedLoops(path, or_hash) => {
                let is_hash = or_hash.as_ref().is_some_and(|or_hash| or_hash.is_expected);
                let hash = if is_hash { ", likely by hash" } else { "" };
                format!("{}{hash}", path_of(request, join.table, *path))
            }
            Right::IndexSortMerge([(left, _), (right, _)]) => {
                let table = join.left.tables().trailing_zeros() as usize;
                let right = path_of(request, join.table, *right);
                return format!("{}; {outer}{method} join with {right}", path_of(request, table, *left));
            }
        };
        format!("{}; {outer}{adaptive}{method} join with {right}", join.left.describe(request))
    }
}
