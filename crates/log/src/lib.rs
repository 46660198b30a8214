//! The write-ahead log: one endless stream of records over K devices.
//!
//! Place in the stack: above `device`; used by every floor above. Knows nothing of what records mean.
//! How it works, its lock order and the argument about space: `docs/log.md`. Bytes: `docs/format/log.md`.
//! Source: the FlashLogging paper (SIGMOD 2009), sections 3.3 (unconventional array), 3.5 (algorithm),
//! 3.4 and 3.5 (outliers), 3.6 (section index, parallel scan) and 4 (no overlapping writes).
//!
//! A *record* is a kind byte and a body. Its LSN is the stream offset of its first byte. A *group* is a
//! run of records appended together: recovery delivers all of them or, at the log's end, none.
//! The durable LSN always lies on a group boundary: `durable() > lsn` says that the whole group that
//! contains the record at `lsn` is durable.
//!
//! Invariants:
//! * LSNs on a device never decrease, so any device is read in LSN order by reading it in ring order.
//! * No block is overwritten while it may hold log at or after the truncation point; in particular a
//!   partly filled block is never overwritten in place but written again, fuller, further on.
//! * What `append` accepted can always be placed: space is refused there and never by `flush`.
//! * `on_devices()` moves only over contiguous completed requests, each on as many devices as copies are wanted, or as the
//!   superblock says that there are. `durable()` may be ahead of it by what the archive has (`early.rs`).
//!
//! Failure: a device whose write failed takes no more, and its request is written on another; what becomes of it the
//! caller decides ([`Log::on_device_lost`]). When none is left, or none may be spared, the log takes no record and
//! acknowledges no flush until the database is opened again. No write is tried again on the device that failed it.
#![forbid(unsafe_code)]

mod adaptive;
mod ahead;
pub mod archive;
mod array;
mod block;
mod copies;
mod early;
mod epochs;
mod error;
mod flight;
mod front;
mod gathering;
mod hiding;
mod job;
mod layout;
mod log;
mod loss;
mod member;
mod merge;
mod options;
mod outliers;
mod patches;
mod pipeline;
mod policy;
mod ranks;
mod reader;
mod record;
mod records;
mod redundancy;
mod reissue;
mod rescue;
mod ring;
mod room;
mod scan;
mod sections;
mod sources;
mod space;
mod stripes;
mod tail;
pub mod testing;
mod walk;
mod worker;

pub use array::{DeviceContents, MemberState, MemberStatus, NewMember};
pub use error::{LogError, LogErrorKind};
pub use hiding::{DeviceHiding, Hiding, HidingStatistics, OutlierOptions};
pub use log::Log;
pub use loss::{Loss, LostMember};
pub use options::{Appended, Compose, LogClass, LogOptions, LogSpace, LogStatistics};
pub use policy::LogPolicy;
pub use record::{Kind, Record};
pub use redundancy::Redundancy;

pub use records::Records;
pub use scan::{LogIdentity, LogScan, MemberId};
pub use sources::{ArchiveUse, LogSources};
pub use tail::{LogTail, Piece};
