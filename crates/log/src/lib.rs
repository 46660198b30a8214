//! The write-ahead log: one endless stream of records over K devices.
//!
//! SKELETON: the signatures below are the contract with the floors above.
//!
//! Place in the stack: above `device`; used by every floor above. Knows nothing of what records mean.
//!
//! A *record* is a kind byte and a body. Its LSN is the stream offset of its first byte. A *group* is a
//! run of records appended together: recovery delivers all of them or, at the log's end, none.
//! The durable LSN always lies on a group boundary: `durable() > lsn` says that the whole group that
//! contains the record at `lsn` is durable.

mod error;
mod log;
mod record;
mod scan;

pub use error::{LogError, LogErrorKind};
pub use log::{Appended, Log, LogClass, LogOptions, LogSpace, LogStatistics};
pub use record::{Kind, Record};
pub use scan::{LogIdentity, LogScan, MemberId, Records};
