//! Joins: which rows of two inputs belong together.
//!
//! Rows match if their keys are equal, none of them NULL, and the rest of the condition is true. A
//! left outer join also returns each row of the left input that matches none, with NULL in the
//! columns of the right.

mod adaptive;
mod block_nested_loops;
mod bloom;
mod build_side;
mod hash;
mod hash_table;
mod index_nested_loops;
mod index_sort_merge;
mod left_rows;
mod matcher;
mod on;
mod rest;
mod sort_merge;

pub(crate) use adaptive::{AdaptiveJoin, ByHash};
pub(crate) use block_nested_loops::BlockNestedLoops;
pub(crate) use hash::HashJoin;
pub(crate) use index_nested_loops::{IndexNestedLoops, Inner, Lookups};
pub use index_sort_merge::IndexSide;
pub(crate) use index_sort_merge::IndexSortMerge;
pub(crate) use on::Output;
pub use on::{JoinKind, On};
pub(crate) use sort_merge::SortMerge;
