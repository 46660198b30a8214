//! Transactions: snapshots, locks, deadlocks, commit, savepoints, and their part in recovery.
//!
//! Place in the stack: above `btree`, below `table`. A *row* is a tree entry whose value begins
//! with a [`RowHeader`]: the transaction that wrote this version and the index of its before-image
//! among that transaction's undo entries. Pages hold the newest version; before-images hang in
//! memory (the very bytes that the log record carries for undo) and spill into the *undo tree* when
//! they are too many or too old.
//!
//! * **Writers lock rows by writing them**: a row whose writer has not ended is locked. That costs
//!   nothing, needs no memory, and comes back by itself after a crash. Explicit locks (`locks.rs`)
//!   exist only for reading for update and for serializable reads (keys and key ranges, so phantoms
//!   are covered).
//! * **Deadlocks are found** when a wait begins, by a walk over the wait-for graph (`waits.rs`).
//! * **Commit in two calls**: *order* (the commit record is appended, locks fall, the changes are
//!   visible) and *wait durable*. A transaction that only read waits until what it saw is durable.
//! * **Undo is logical and idempotent**: an entry is undone only if the row still carries that very
//!   (writer, index); so a crash in mid-rollback, any number of times, is harmless.
//!
//! Lock order, outermost first: the list of prepared transactions; one transaction's `moving` →
//! page latches → registry → version shards → one transaction's versions → log. The wait graph's
//! lock is the innermost but for version shards; `WaitGraph::ended` is called with nothing held but
//! the list of prepared transactions. No thread waits for a transaction while it holds a latch or
//! one of these locks.
//!
//! How it fails: [`TxnError`]; after `Conflict` or `Deadlock` the caller rolls back and tries
//! again. A rollback that finds no space or a page that cannot be had is put off, or set aside
//! until the next opening (`losers.rs`). If it fails otherwise the manager refuses further work
//! until the database is opened again.
#![forbid(unsafe_code)]
#![allow(missing_docs)] // An internal crate: a comment says what a name does not.

mod attachment;
mod commit;
mod create_tree;
mod error;
mod fence;
mod ghost_backlog;
mod ghost_list;
mod ghosts;
mod header;
mod image_choice;
mod image_costs;
mod kept;
mod key_range;
mod leaf_writer;
mod limits;
mod load;
mod locks;
mod losers;
mod manager;
mod options;
mod page_images;
mod prepared;
mod prepared_list;
mod purge;
mod put_page;
mod ranks;
mod read;
mod read_many;
mod recovery;
mod registry;
mod request;
mod rewrites;
mod rollback;
mod row_batch;
mod row_change;
mod scan;
mod set_aside;
mod shadows;
mod shared_versions;
mod snapshot;
mod spare_buffers;
mod state;
mod statement_view;
mod sweep_all;
mod token;
mod transaction;
mod undo;
mod version_chain;
mod versions;
mod waits;
mod write;
mod write_times;

pub use attachment::Attachment;
pub use commit::CommitHandle;
pub use error::{TxnError, TxnErrorKind};
pub use ghost_backlog::Sweeps;
pub use header::RowHeader;
pub use image_choice::{PageRecovery, WriteCosts};
pub use kept::{Keepable, Kept};
pub use limits::{max_key_len, max_row_len};
pub use load::LoadedRow;
pub use manager::{ManagerOptions, TxnManager, TxnStatistics};
pub use options::{CancelToken, Isolation, TxnOptions};
pub use prepared_list::LockedKey;
pub use recovery::{Analysis, CheckpointState, LoserReport, OpenTransaction, PreparedTransaction};
pub use row_batch::{Keep, RowBatch};
pub use row_change::RowValue;
pub use scan::Course;
pub use set_aside::{SetAside, SetAsideFn};
pub use statement_view::StatementView;
pub use token::TxnToken;
pub use transaction::{Savepoint, Transaction};
pub use waits::StatementLimit;
pub use write::{Edit, check_row_size};
