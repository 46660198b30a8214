//! Tables: catalog, rows, secondary indexes.
//!
//! Place in the stack: above `txn`, below `firn`. The layers below know trees of bytes and
//! transactions; this layer knows *names*, *columns* and *indexes*, and maintains every index of a
//! table in the transaction that changes its rows. Formats: `docs/format/rows.md`; how it works:
//! `docs/internals/tables.md`.
//!
//! * [`Schema`], [`Value`]: typed columns; the key encoding keeps their order, the row encoding
//!   keeps fixed-size columns at fixed offsets.
//! * [`Catalog`]: which tables there are. Definition changes are transactions of their own.
//! * [`PageFile`]: whole pages by number, under the same transactions.
//! * [`Table`], [`TypedTable`], [`Index`]: handles, cheap to clone, usable from any thread with any
//!   transaction of their database. [`Cursor`], [`IndexCursor`], [`TypedCursor`]: owned, holding no
//!   latch.
//!
//! Invariants: a statement changes a row and all of its indexes, or nothing; an index that is ready
//! has one entry for each row and no other; a handle never reaches the pages of a dropped table.
//!
//! How it fails: [`TableError`], whose kind says what the caller can do. Bytes that were stored and
//! do not decode are `Damaged`, never a panic.
#![forbid(unsafe_code)]
#![allow(missing_docs)] // An internal crate: a comment says what a name does not.

mod analyze;
mod attempts;
mod build;
mod catalog;
mod catalog_rows;
mod check;
mod count_rows;
mod cursor;
mod ddl;
mod definition;
mod drops;
mod error;
mod fragmenting;
mod freshness;
mod index;
mod index_cursor;
mod index_handle;
mod large;
mod large_read;
mod large_write;
mod live_index;
mod load;
mod naming;
mod notes;
mod order_key;
mod page_file;
mod page_file_ddl;
mod page_parts;
mod planning;
mod range;
mod ranks;
mod read_ahead;
mod reap;
mod relocate;
mod residency;
mod row;
mod rows;
mod rows_ahead;
mod rows_changed;
mod schema;
mod show;
mod state;
mod statement;
mod statistics;
mod stored_row;
mod superseded;
mod survey;
mod table;
mod table_kind;
#[cfg(test)]
mod testing;
mod typed;
mod upkeep;
mod value;
mod walk;
mod write;

pub use analyze::Surveyed;
pub use build::BuildLimits;
pub use catalog::{Catalog, SYSTEM_TREE};
pub use check::TableReport;
pub use count_rows::RowCount;
pub use cursor::{Cursor, KeyAndValue};
pub use definition::{Chosen, Definition, Fragmentation, Fragments};
pub use error::{TableError, TableErrorKind};
pub use firndb_btree::Counted;
pub use fragmenting::TableTrees;
pub use index::{IndexDefinition, IndexPart, IndexParts, IndexSpec, IndexState, MAX_INDEXES};
pub use index_cursor::{IndexCursor, IndexRow, UnorderedIndexCursor};
pub use index_handle::Index;
pub use naming::PageOwner;
pub use page_file::{FILE_PAGES_MAX, PageFile};
pub use planning::{PlanningStatistics, SampledColumn};
pub use range::KeyRange;
pub use relocate::RelocatableTree;
pub use residency::Residency;
pub use row::MAX_VALUE_LEN;
pub use rows::Rows;
pub use schema::{Column, KeyColumn, MAX_COLUMNS, MAX_KEY_COLUMNS, MAX_NAME_LEN, Schema};
pub use statistics::{IndexStatistics, SAMPLE_ROWS, SampledRow, TableStatistics, WINDOWS};
pub use stored_row::{Field, StoredEntry, StoredRow, encode_sort_key};
pub use survey::{AnalyzeProgress, Survey};
pub use table::Table;
pub use table_kind::TableKind;
pub use typed::{TypedCursor, TypedTable};
pub use value::{ColumnType, Value, ValueRef};
pub use write::Bytes;
