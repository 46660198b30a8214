//! The write-ahead log: one endless stream of records over K devices.
//!
//! Place in the stack: above `device`; used by every layer above. It does not interpret records.
//! How it works, its lock order and the argument about space: `docs/internals/log.md`. Format:
//! `docs/format/log.md`. Source: the FlashLogging paper (SIGMOD 2009), sections 3.3 (unconventional
//! array), 3.5 (algorithm), 3.4 and 3.5 (outliers), 3.6 (section index, parallel scan) and 4 (no
//! overlapping writes).
//!
//! A *record* is a kind byte and a body. Its LSN is the stream offset of its first byte. A *group*
//! is a run of records appended together: recovery delivers all of them or, at the log's end, none.
//! The durable LSN always lies on a group boundary: `durable() > lsn` means that the whole group
//! that contains the record at `lsn` is durable.
//!
//! Invariants:
//! * LSNs on a device never decrease, so any device is read in LSN order by reading it in ring
//!   order.
//! * No block is overwritten while it may hold log at or after the truncation point; in particular
//!   a partly filled block is never overwritten in place but written again, fuller, further on.
//! * A record that `append` accepted can always be placed: lack of space is reported there and
//!   never by `flush`.
//! * `on_devices()` moves only over contiguous completed requests, each with the required number of
//!   copies, or with as many as the superblock promises. `durable()` may be ahead of it by what the
//!   archive has (`archive/archived_early.rs`).
//!
//! Failure: a place that cannot be read is handled like a damaged block (`read/medium.rs`,
//! `read/doubts.rs`).
//! A device whose write failed takes no more, and its request is written on another device; the
//! caller decides what becomes of the failed one ([`LogOptions::on_device_lost`]). When no device
//! is left, or none may be spared, the log accepts no record and acknowledges no flush until the
//! database is opened again. A failed write is never retried on the same device.
#![forbid(unsafe_code)]

pub mod archive;
mod block;
mod error;
mod hedge;
mod ids;
mod layout;
mod log;
pub mod log_layout;
mod members;
mod options;
mod ranks;
mod read;
mod record;
pub mod testing;
mod write;

pub use archive::Piece;
pub use block::{BLOCK, PAYLOAD};
pub use error::{LogError, LogErrorKind};
pub use hedge::hiding::{DeviceHiding, Hiding, HidingStatistics};
pub use hedge::outliers::OutlierOptions;
pub use ids::{LogIdentity, MemberId};
pub use log::Log;
pub use log_layout::LogLayout;
pub use members::array::{DeviceContents, MemberStatus};
pub use members::loss::{Left, Loss, LossHandler, LostMember};
pub use members::new_member::NewMember;
pub use members::redundancy::Redundancy;
pub use members::state::MemberState;
pub use options::{Appended, LogClass, LogOptions, LogSpace, LogStatistics};
pub use read::follow::LogTail;
pub use read::read_log::ReadLog;
pub use read::records::Records;
pub use read::scan::LogScan;
pub use read::sources::{ArchiveUse, KeptReads, LogSources};
pub use record::{Kind, Record};
pub use write::closing::WriteWatch;
