//! Writing: from an appended record to an acknowledged commit.
//!
//! ```text
//!  append ──▶ front: log buffer ─────────────┐ composes
//!                                            ▼
//!  flush ──▶ group commit ──▶ dispatch ──▶ request ──▶ device ──▶ completion ──▶ acknowledged
//!                │   leader                  │ begins                │ ends          ▲
//!                │ waits                     ▼                       ▼               │ wakes
//!                └──────────────────────▶ in-flight table: requests, devices, waiters
//! ```
//!
//! The ordinary case is `group_commit.rs`, `dispatch.rs`, `completion.rs`. What else there is
//! attaches to it at named points: copies where a request is composed (`copies.rs`), overdue and
//! orphaned requests where a thread's turn is urgent (`hedge/`, `members/failure.rs`), the archive
//! where log becomes durable (`archive/archived_early.rs`).

mod append;
mod async_flush;
pub(crate) mod closing;
pub(crate) mod completion;
mod copies;
mod dispatch;
pub(crate) mod front;
pub(crate) mod gathering;
mod group_commit;
pub(crate) mod in_flight;
pub(crate) mod job;
pub(crate) mod pipeline;
mod ring;
mod seal;
pub(crate) mod space;
pub(crate) mod worker;
